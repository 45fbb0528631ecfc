//! Past a bound a client is told so, and others go on.

use crate::{running::Running, wire::Wire};

#[tokio::test]
async fn requests_past_the_limit_are_told_to_slow_down() {
    let running = Running::start("[limits]\nrequests_max = 1").await;
    let mut first = Wire::to(running.s3).await;
    first.call("PUT", "/bucket", b"").await;
    let head = first.signed("PUT", "/bucket/key", &[("expect", "100-continue"), ("content-length", "5")]);
    first.send(head).await;
    assert_eq!(first.reply(false).await.unwrap().status, 100);
    let mut second = Wire::to(running.s3).await;
    let reply = second.call("HEAD", "/bucket", b"").await;
    assert_eq!(reply.status, 503);
    assert_eq!(running.metrics.rejected_total.with_label_values(&["requests"]).get(), 1);
    first.send(b"hello").await;
    assert_eq!(first.reply(false).await.unwrap().status, 200);
    assert_eq!(second.call("HEAD", "/bucket", b"").await.status, 200, "the place was given back");
}

#[tokio::test]
async fn past_the_limit_an_idle_connection_makes_room_and_a_busy_one_stays() {
    let running = Running::start("[limits]\nconnections_max = 1").await;
    let mut idle = Wire::to(running.s3).await;
    idle.call("PUT", "/bucket", b"").await;
    let mut busy = Wire::to(running.s3).await;
    let head = busy.signed("PUT", "/bucket/key", &[("expect", "100-continue"), ("content-length", "5")]);
    busy.send(head).await;
    assert_eq!(busy.reply(false).await.unwrap().status, 100);
    assert!(idle.ended().await);
    assert!(Wire::to(running.s3).await.ended().await);
    busy.send(b"hello").await;
    assert_eq!(busy.reply(false).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_peer_with_its_share_of_the_connections_makes_room_for_itself_alone() {
    let running = Running::start("[limits]\nconnections_max = 8\nconnections_per_peer_max = 2").await;
    let mut other = Wire::from(2, running.s3).await;
    other.call("PUT", "/bucket", b"").await;
    let mut first = Wire::to(running.s3).await;
    first.call("HEAD", "/bucket", b"").await;
    let mut second = Wire::to(running.s3).await;
    second.call("HEAD", "/bucket", b"").await;
    let mut third = Wire::to(running.s3).await;
    assert_eq!(third.call("HEAD", "/bucket", b"").await.status, 200);
    assert!(first.ended().await, "the peer's own oldest connection makes room");
    assert_eq!(other.call("HEAD", "/bucket", b"").await.status, 200);
    assert_eq!(second.call("HEAD", "/bucket", b"").await.status, 200);
}

#[tokio::test]
async fn one_peer_leaves_a_quarter_of_the_connections_to_others() {
    let running = Running::start("[limits]\nconnections_max = 4").await;
    let mut busy = Vec::new();
    for number in 0..3 {
        let mut wire = Wire::to(running.s3).await;
        if number == 0 {
            wire.call("PUT", "/bucket", b"").await;
        }
        let head = wire.signed("PUT", "/bucket/key", &[("expect", "100-continue"), ("content-length", "5")]);
        wire.send(head).await;
        assert_eq!(wire.reply(false).await.unwrap().status, 100);
        busy.push(wire);
    }
    assert!(Wire::to(running.s3).await.ended().await, "a fourth connection of the peer");
    assert_eq!(Wire::from(2, running.s3).await.call("HEAD", "/bucket", b"").await.status, 200);
}

#[tokio::test]
async fn a_trusted_proxy_may_take_every_connection() {
    let settings =
        "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n[limits]\nconnections_max = 2\nconnections_per_peer_max = 1";
    let running = Running::start(settings).await;
    let mut first = Wire::to(running.s3).await;
    first.call("PUT", "/bucket", b"").await;
    let mut second = Wire::to(running.s3).await;
    second.call("HEAD", "/bucket", b"").await;
    assert_eq!(first.call("HEAD", "/bucket", b"").await.status, 200);
}

#[tokio::test]
async fn a_connection_that_sends_no_request_is_closed_at_the_head_timeout() {
    let running = Running::start("[server]\nhead_timeout = \"1s\"").await;
    for start in ["", "P", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nHost: "] {
        let mut wire = Wire::to(running.s3).await;
        wire.send(start).await;
        let reply = wire.reply(false).await;
        assert!(reply.is_none_or(|reply| reply.status == 408), "{start:?}");
        assert!(wire.ended().await, "{start:?}");
    }
}

#[tokio::test]
async fn a_body_that_stalls_is_refused_and_its_connection_closed() {
    let running = Running::start("[server]\nstall_timeout = \"1s\"").await;
    let mut wire = Wire::to(running.s3).await;
    wire.call("PUT", "/bucket", b"").await;
    let head = wire.signed("PUT", "/bucket/key", &[("content-length", "10")]);
    wire.send(head + "hello").await;
    let reply = wire.reply(false).await.unwrap();
    assert_eq!(reply.status, 400);
    assert!(reply.closes() && wire.ended().await);
}

#[tokio::test]
async fn a_body_larger_than_one_put_may_be_is_refused_before_it_is_sent() {
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    wire.call("PUT", "/bucket", b"").await;
    let length = ((5_u64 << 30) + 1).to_string();
    let head = wire.signed("PUT", "/bucket/key", &[("expect", "100-continue"), ("content-length", &length)]);
    wire.send(head).await;
    let reply = wire.reply(false).await.unwrap();
    assert_eq!((reply.status, reply.code().as_deref()), (400, Some("EntityTooLarge")));
    assert!(wire.ended().await);
}

#[tokio::test]
async fn a_head_past_its_bounds_is_refused() {
    // C80
    let running = Running::start("").await;
    let many: String = (0..1000).map(|n| format!("x-{n}: a\r\n")).collect();
    let long = format!("x-a: {}\r\n", "a".repeat(80 << 10));
    for headers in [many, long] {
        let mut wire = Wire::to(running.s3).await;
        let head = wire.unsigned("GET", "/bucket/key", &headers);
        wire.send(head).await;
        assert_eq!(wire.reply(false).await.unwrap().status, 431);
        assert!(wire.ended().await);
    }
    let mut wire = Wire::to(running.s3).await;
    let head = wire.unsigned("GET", &format!("/bucket/{}", "a".repeat(20 << 10)), "");
    wire.send(head).await;
    assert_eq!(wire.reply(false).await.unwrap().code().as_deref(), Some("InvalidURI"));
}
