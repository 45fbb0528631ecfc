//! The admin listener: who may ask what (C49).

use crate::{running::Running, wire::Wire};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TOKEN: &str = "[server]\nadmin_token = \"0123456789abcdef0123456789abcdef\"\nadmin_read_token = \"fedcba9876543210fedcba9876543210\"";
const RIGHT: &str = "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n";
const READ: &str = "Authorization: Bearer fedcba9876543210fedcba9876543210\r\n";
const CALLS: [(&str, &str); 11] = [
    ("GET", "/metrics"),
    ("GET", "/api/v1/stats"),
    ("GET", "/api/v1/buckets"),
    ("GET", "/api/v1/jobs"),
    ("GET", "/api/v1/requests"),
    ("GET", "/api/v1/traffic"),
    ("GET", "/api/v1/explain?bucket=bucket&key=key"),
    ("GET", "/api/v1/inspect?blob=00000000000000000000000000000000"),
    ("POST", "/api/v1/gc?now=true"),
    ("POST", "/api/v1/settle?timeout_s=5"),
    ("POST", "/api/v1/cache/drop"),
];

async fn status(running: &Running, method: &str, target: &str, headers: &str) -> u16 {
    let mut wire = Wire::to(running.admin).await;
    let head = wire.unsigned(method, target, headers);
    wire.send(head).await;
    wire.reply(false).await.unwrap().status
}

#[tokio::test]
async fn with_a_token_everything_but_health_and_the_empty_console_asks_for_it() {
    let running = Running::start(TOKEN).await;
    let mut wire = Wire::to(running.s3).await;
    wire.call("PUT", "/bucket", b"").await;
    wire.call("PUT", "/bucket/key", b"hello").await;
    for (method, target) in CALLS {
        for headers in ["", &RIGHT[..RIGHT.len() - 3], &RIGHT.replace("Bearer ", "")] {
            let headers = format!("{}\r\n", headers.trim_end()).trim_start().to_owned();
            assert_eq!(status(&running, method, target, &headers).await, 401, "{target} {headers}");
        }
        let expected = if target.contains("inspect") { 404 } else { 200 };
        assert_eq!(status(&running, method, target, RIGHT).await, expected, "{target}");
        let may = if method == "GET" { expected } else { 403 };
        assert_eq!(status(&running, method, target, READ).await, may, "{target} with the token that reads");
    }
    for target in ["/healthz", "/readyz", "/", "/console/app.js", "/console/pages/explain.js"] {
        assert_eq!(status(&running, "GET", target, "").await, 200, "{target}");
    }
}

#[tokio::test]
async fn pages_of_other_sites_are_refused_whatever_they_show() {
    let running = Running::start(TOKEN).await;
    assert_eq!(status(&running, "GET", "/api/v1/stats", RIGHT).await, 200);
    for page in ["Sec-Fetch-Site: cross-site\r\n", "Origin: http://evil.example\r\n", "Origin: null\r\n"] {
        assert_eq!(status(&running, "POST", "/api/v1/gc", &format!("{RIGHT}{page}")).await, 403, "{page}");
    }
}

#[tokio::test]
async fn without_a_configured_token_the_one_in_the_data_directory_is_asked_for() {
    use std::os::unix::fs::PermissionsExt as _;
    let running = Running::start("").await;
    assert_eq!(status(&running, "GET", "/metrics", "").await, 200, "on loopback");
    assert_eq!(status(&running, "GET", "/api/v1/stats", "").await, 401);
    let path = running.data().join("admin-token");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let token = format!("Authorization: Bearer {}\r\n", std::fs::read_to_string(&path).unwrap());
    assert_eq!(status(&running, "POST", "/api/v1/gc", &token).await, 200);
}

#[tokio::test]
async fn wrong_calls_are_told_what_is_wrong() {
    let running = Running::start(TOKEN).await;
    for (method, target, expected) in [
        ("POST", "/api/v1/stats", 405),
        ("GET", "/api/v1/gc", 405),
        ("GET", "/api/v1/explain?bucket=b", 400),
        ("GET", "/api/v1/explain?bucket=nowhere&key=k", 404),
        ("GET", "/api/v1/inspect?blob=zz", 404),
        ("POST", "/api/v1/settle?timeout_s=soon", 400),
        ("GET", "/api/v1/env", 404),
        ("GET", "/debug/pprof", 404),
    ] {
        assert_eq!(status(&running, method, target, RIGHT).await, expected, "{method} {target}");
    }
}

#[tokio::test]
async fn the_s3_listener_carries_s3_only() {
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    let head = wire.unsigned("GET", "/metrics", "");
    wire.send(head).await;
    assert_eq!(wire.reply(false).await.unwrap().code().as_deref(), Some("NoSuchBucket"));
}

#[tokio::test]
async fn the_socket_asks_for_nothing_and_only_its_owner_can_open_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let running = Running::start(TOKEN).await;
    let path = running.data().join("admin.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut socket = tokio::net::UnixStream::connect(&path).await.unwrap();
    let request = b"GET /api/v1/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.contains("\"totals\""), "{reply}");
    drop(socket);
    running.begin_to_stop();
    assert!(running.end().await);
    assert!(!path.exists());
}

#[tokio::test]
async fn what_was_asked_shows_in_the_metrics() {
    let running = Running::start("").await;
    let mut wire = Wire::to(running.s3).await;
    wire.call("PUT", "/bucket", b"").await;
    wire.call("PUT", "/bucket/key", b"hello").await;
    wire.call("GET", "/bucket/key", b"").await;
    wire.call("GET", "/bucket/none", b"").await;
    let mut admin = Wire::to(running.admin).await;
    let head = admin.unsigned("GET", "/metrics", "");
    admin.send(head).await;
    let page = String::from_utf8(admin.reply(false).await.unwrap().body).unwrap();
    for line in [
        "deltaweir_http_requests_total{code=\"200\",op=\"PutObject\"} 1",
        "deltaweir_http_requests_total{code=\"404\",op=\"GetObject\"} 1",
        "deltaweir_http_request_bytes_total{op=\"PutObject\"} 5",
        "deltaweir_http_inflight{op=\"GetObject\"} 0",
        "deltaweir_auth_total{reason=\"header\",result=\"ok\"} 4",
    ] {
        assert!(page.contains(line), "{line} is missing");
    }
}
