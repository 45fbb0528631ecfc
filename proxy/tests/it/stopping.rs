//! The end of a server.

use crate::{running::Running, wire::Wire};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_request_under_way_ends_well_while_the_server_stops() {
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    wire.call("PUT", "/bucket", b"").await;
    let head = wire.signed("PUT", "/bucket/key", &[("expect", "100-continue"), ("content-length", "10")]);
    wire.send(head).await;
    assert_eq!(wire.reply(false).await.unwrap().status, 100);
    let mut idle = Wire::to(running.s3).await;
    assert_eq!(idle.call("HEAD", "/bucket", b"").await.status, 200);
    running.begin_to_stop();
    assert!(idle.ended().await, "an idle connection is closed at once");
    let (address, engine) = (running.s3, running.engine.clone());
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    wire.send(b"helloworld").await;
    let reply = wire.reply(false).await.unwrap();
    assert_eq!(reply.status, 200);
    let bucket = engine.buckets.bucket("bucket").await.unwrap().unwrap();
    assert_eq!(engine.read.head(&bucket, "key").await.unwrap().unwrap().version.size, 10);
    assert!(running.end().await);
}

#[tokio::test]
async fn a_request_that_does_not_end_is_cut_off_at_the_drain_timeout() {
    let running = Running::start("[server]\ndrain_timeout = \"1s\"").await;
    let mut wire = Wire::to(running.s3).await;
    wire.call("PUT", "/bucket", b"").await;
    let head = wire.signed("PUT", "/bucket/key", &[("expect", "100-continue"), ("content-length", "10")]);
    wire.send(head).await;
    assert_eq!(wire.reply(false).await.unwrap().status, 100);
    running.begin_to_stop();
    assert!(!running.end().await);
}

#[tokio::test]
async fn a_second_server_on_the_same_store_refuses_to_start() {
    // C120
    let running = Running::start("").await;
    let environment = deltaweir::config::Environment::from([("DELTAWEIR_DATA", running.data().to_str().unwrap())]);
    let overrides = deltaweir::config::Overrides::default();
    let config = deltaweir::config::ServeConfig::from_text("", "".as_ref(), &overrides, &environment).unwrap();
    let metrics = deltaweir::engine::Metrics::new();
    let error =
        deltaweir::stores::open_engine(config.engine, &config.stores, metrics).await.err().expect("the store is held");
    assert!(error.to_string().contains("in use"), "{error}");
}
