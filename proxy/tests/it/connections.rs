//! A connection stays in step with its requests or is closed (C66), and no answer ends as if it
//! were whole when it is not (I4).

use crate::{running::Running, wire::Wire};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{io::Write as _, path::Path};

#[tokio::test]
async fn a_refused_request_is_not_told_to_continue() {
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    assert_eq!(wire.call("PUT", "/bucket", b"").await.status, 200);
    let head = wire.unsigned("PUT", "/bucket/key", "Expect: 100-continue\r\nContent-Length: 5\r\n");
    wire.send(head).await;
    let reply = wire.reply(false).await.unwrap();
    assert_eq!((reply.status, reply.code().as_deref()), (403, Some("AccessDenied")));
    assert!(reply.closes() && wire.ended().await);
}

#[tokio::test]
async fn an_allowed_request_is_told_to_continue_and_stored() {
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    assert_eq!(wire.call("PUT", "/bucket", b"").await.status, 200);
    let head = wire.signed("PUT", "/bucket/key", &[("expect", "100-continue"), ("content-length", "5")]);
    wire.send(head).await;
    assert_eq!(wire.reply(false).await.unwrap().status, 100);
    wire.send(b"hello").await;
    assert_eq!(wire.reply(false).await.unwrap().status, 200);
    assert_eq!(wire.call("GET", "/bucket/key", b"").await.body, b"hello");
}

#[tokio::test]
async fn what_follows_a_refused_body_that_is_too_long_is_never_read_as_a_request() {
    // C66
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    assert_eq!(wire.call("PUT", "/bucket", b"").await.status, 200);
    let smuggled = wire.unsigned("GET", "/bucket/key", "");
    let head = wire.unsigned("PUT", "/bucket/key", "Content-Length: 5000\r\n");
    wire.send(head + &smuggled).await;
    let reply = wire.reply(false).await.unwrap();
    assert_eq!(reply.status, 403);
    assert!(reply.closes() && wire.ended().await);
}

#[tokio::test]
async fn a_short_refused_body_is_drained_and_the_connection_goes_on() {
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    assert_eq!(wire.call("PUT", "/bucket", b"").await.status, 200);
    let head = wire.unsigned("PUT", "/bucket/key", "Content-Length: 5\r\n");
    wire.send(head + "hello").await;
    assert_eq!(wire.reply(false).await.unwrap().status, 403);
    assert_eq!(wire.call("PUT", "/bucket/key", b"hello").await.status, 200);
}

#[tokio::test]
async fn a_request_with_length_and_chunks_at_once_ends_its_connection() {
    // C64
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    let smuggled = wire.unsigned("GET", "/bucket/key", "");
    let head = wire.unsigned("PUT", "/bucket/key", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n");
    wire.send(head + "0\r\n\r\n" + &smuggled).await;
    assert!(wire.reply(false).await.unwrap().status >= 400);
    assert!(wire.ended().await);
}

#[tokio::test]
async fn a_body_that_is_cut_off_stores_nothing() {
    // E24
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    wire.call("PUT", "/bucket", b"").await;
    let head = wire.signed("PUT", "/bucket/key", &[("content-length", "10")]);
    wire.send(head + "hello").await;
    wire.end_sending().await;
    if let Some(reply) = wire.reply(false).await {
        assert_eq!(reply.code().as_deref(), Some("IncompleteBody"));
    }
    let mut wire = Wire::to(running.s3).await;
    assert_eq!(wire.call("HEAD", "/bucket/key", b"").await.status, 404);
}

#[tokio::test]
async fn an_answer_whose_content_is_damaged_half_way_is_cut_off() {
    // I4: 12 MiB of raw content, damaged beyond what is read before the status is sent.
    let running = Running::start("[defaults]\ncompression = \"off\"").await;
    let mut wire = Wire::to(running.s3).await;
    wire.call("PUT", "/bucket", b"").await;
    let mut state = 1_u64;
    let content: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    })
    .take(12 << 20)
    .collect();
    assert_eq!(wire.call("PUT", "/bucket/key", &content).await.status, 200);
    assert_eq!(wire.call("GET", "/bucket/key", b"").await.body, content);
    damage(&largest_file(&running.data().join("blobs")), 11 << 20);
    running.engine.drop_caches();
    let reply = wire.call("GET", "/bucket/key", b"").await;
    assert_eq!(reply.status, 200);
    assert!(reply.body.len() < content.len(), "the end never comes");
    assert!(content.starts_with(&reply.body), "and what came is right");
    assert!(wire.ended().await);
}

fn largest_file(directory: &Path) -> std::path::PathBuf {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            if meta.is_dir() { directories.push(entry.path()) } else { files.push((meta.len(), entry.path())) }
        }
    }
    files.into_iter().max().unwrap().1
}

fn damage(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 1;
    // Written anew, since blobs are read-only and may be held open.
    std::fs::remove_file(file).unwrap();
    std::fs::File::create(file).unwrap().write_all(&bytes).unwrap();
}

#[tokio::test]
async fn http_2_without_tls_is_served_as_well() {
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    assert_eq!(wire.call("PUT", "/bucket", b"").await.status, 200);
    let stream = tokio::net::TcpStream::connect(running.s3).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(connection);
    let request =
        || http::Request::get(format!("http://{}/bucket/key", running.s3)).body(Empty::<Bytes>::new()).unwrap();
    for _ in 0..2 {
        let reply = sender.send_request(request()).await.unwrap();
        assert_eq!((reply.version(), reply.status().as_u16()), (http::Version::HTTP_2, 403));
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        assert!(body.windows(12).any(|w| w == b"AccessDenied"));
    }
    driver.abort();
}
