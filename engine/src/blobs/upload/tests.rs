//! What an upload to a cloud holds in memory, counted.

use super::*;
use crate::{metrics::Metrics, resources::budget::MemoryBudget};
use std::time::Duration;
use storage_backends::{S3Config, S3Credentials, UploadOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

const MIB: usize = 1 << 20;
const PART: usize = 5 * MIB;

/// A store that takes parts and answers them when it is allowed to.
struct SlowStore {
    endpoint: String,
    /// How many parts have arrived whole.
    arrived: watch::Receiver<usize>,
    /// Whether they are answered.
    answers: watch::Sender<bool>,
}

impl SlowStore {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (counted, arrived) = watch::channel(0);
        let (answers, allowed) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, counted.clone(), allowed.clone()));
            }
        });
        Self { endpoint, arrived, answers }
    }

    fn backend(&self) -> Arc<dyn Backend> {
        let credentials = S3Credentials::Static {
            access_key_id: "key".into(),
            secret_access_key: "secret".to_owned().into(),
            session_token: None,
        };
        let upload = UploadOptions { part_bytes: PART, parts_in_flight: 2 };
        let config = S3Config { endpoint: Some(self.endpoint.clone()), upload, ..S3Config::new("bucket", credentials) };
        Arc::new(config.open().unwrap())
    }
}

async fn serve(mut connection: TcpStream, counted: watch::Sender<usize>, mut allowed: watch::Receiver<bool>) {
    let mut request = Vec::new();
    let head_len = loop {
        if let Some(at) = request.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if connection.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let head = String::from_utf8_lossy(&request[..head_len]).to_ascii_lowercase();
    let body_len = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let body_len: usize = body_len.map_or(0, |len| len.trim().parse().unwrap());
    while request.len() < head_len + body_len {
        if connection.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let body = match head.split(' ').next() {
        Some("post") if head.contains("?uploads") => {
            "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
        }
        Some("put") => {
            counted.send_modify(|parts| *parts += 1);
            let _ = allowed.wait_for(|allowed| *allowed).await;
            ""
        }
        _ => "",
    };
    let answer =
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\netag: \"e\"\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _ = connection.write_all(answer.as_bytes()).await;
}

/// Waits for a condition that other tasks bring about.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn every_byte_in_the_parts_of_an_upload_counts_in_the_budget_until_its_part_is_acknowledged() {
    let store = SlowStore::start().await;
    let metrics = Metrics::new();
    let budget = MemoryBudget::new(256 << 20, metrics.clone());
    let used = || usize::try_from(metrics.memory_budget_bytes.with_label_values(&["used"]).get()).unwrap();
    let mut outlet = Outlet::open(store.backend(), BlobId([7; 16])).unwrap();
    let mut sent = 0;
    // Two parts on their way, one that is being gathered, and what waits between the two tasks.
    let full = 3 * PART + PIECES_MAX * MIB;
    while sent < full {
        let permit = budget.acquire(MIB as u64).await.unwrap();
        outlet.send(held(vec![1; MIB], Some(permit))).await.unwrap();
        sent += MIB;
    }
    let mut arrived = store.arrived.clone();
    arrived.wait_for(|parts| *parts == 2).await.unwrap();
    assert_eq!(used(), full, "nothing was acknowledged yet, so all of it is held and counted");

    store.answers.send_replace(true);
    until("the acknowledged parts are given back", || used() < PART).await;
    drop(outlet);
    until("an upload that is given up holds nothing", || used() == 0).await;
}
