//! How a blob is handed to its backend: in pieces that need not be copied together.

use super::*;
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use std::{collections::HashMap, sync::Mutex};
use storage_backends::{Backend, BackendError, BlobName, ByteStream, Listed, MemoryBackend, PutReceipt};

/// Remembers the lengths of the pieces of every body.
#[derive(Default)]
struct Watched {
    inner: MemoryBackend,
    pieces: Arc<Mutex<HashMap<String, Vec<usize>>>>,
}

#[async_trait]
impl Backend for Watched {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt, BackendError> {
        let (pieces, key) = (self.pieces.clone(), name.to_string());
        let body = body.inspect(move |piece| {
            if let Ok(piece) = piece {
                pieces.lock().unwrap().entry(key.clone()).or_default().push(piece.len());
            }
        });
        self.inner.put(name, body.boxed(), len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>, BackendError> {
        self.inner.get(name, range).await
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>, BackendError> {
        self.inner.head(name).await
    }

    async fn delete(&self, name: &BlobName) -> Result<(), BackendError> {
        self.inner.delete(name).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed, BackendError>> {
        self.inner.list(prefix)
    }

    async fn probe(&self) -> Result<(), BackendError> {
        self.inner.probe().await
    }
}

#[tokio::test]
async fn segments_that_shrink_to_almost_nothing_leave_in_pieces_that_no_backend_copies() {
    let dir = TempDir::new().unwrap();
    let mut config = config(dir.path(), 512 << 20);
    config.buckets.insert("zstd".to_owned(), settings(Compression::Zstd, Encryption::Off));
    let metrics = Metrics::new();
    let watched = Watched::default();
    let pieces = watched.pieces.clone();
    let catalog = open_catalog(dir.path(), &metrics).await.unwrap();
    let backends = BTreeMap::from([("local".to_owned(), Arc::new(watched) as Arc<dyn Backend>)]);
    let stores = Stores::new(catalog, backends);
    let engine = Engine::open(config, stores, metrics.clone()).await.unwrap();
    let deployment = Deployment { engine, metrics, dir };
    let bucket = deployment.bucket("zstd").await;
    // Thirty kilobytes of noise in each of six segments, zeros otherwise.
    let mut noise = 1u64;
    let mut content = vec![0; 24 * MIB];
    for segment in content.chunks_mut(4 * MIB) {
        for byte in &mut segment[..30_000] {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            *byte = noise.to_le_bytes()[0];
        }
    }
    deployment.put(&bucket, "k", &content).await;
    assert_eq!(deployment.get(&bucket, "k", 0..content.len()).await, content);
    let seen = pieces.lock().unwrap();
    let (_, lens) = seen.iter().find(|(name, _)| name.starts_with("blobs/")).expect("it is no inline blob");
    assert!(lens.len() >= 2, "{lens:?}");
    assert!(lens[..lens.len() - 1].iter().all(|len| *len >= 64 << 10), "{lens:?}");
}
