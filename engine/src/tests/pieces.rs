//! How a blob is handed to its backend, in pieces that need not be copied together, and how it is
//! read from it.

use super::*;
use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use std::{collections::HashMap, sync::Mutex};
use storage_backends::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, MemoryBackend, PutReceipt};

/// Remembers the lengths of the pieces of every body, and of every range that was asked for.
#[derive(Clone, Default)]
struct Watched {
    inner: Arc<MemoryBackend>,
    /// Whether it asks for long requests, as a cloud does.
    is_far: bool,
    pieces: Arc<Mutex<HashMap<String, Vec<usize>>>>,
    ranges: Arc<Mutex<Vec<u64>>>,
    /// A byte that the medium does not give.
    lost: Arc<Mutex<Option<u64>>>,
    /// The next read that is longer than this is wrong, so many bytes before its end.
    wrong: Arc<Mutex<Option<(u64, usize)>>>,
}

impl Watched {
    async fn deployment(&self, bucket: &str, compression: Compression) -> Deployment {
        let dir = TempDir::new().unwrap();
        let mut config = config(dir.path(), 512 << 20);
        config.buckets.insert(bucket.to_owned(), settings(compression, Encryption::Off));
        let metrics = Metrics::new();
        let catalog = open_catalog(dir.path(), &metrics).await.unwrap();
        let backends = BTreeMap::from([("local".to_owned(), Arc::new(self.clone()) as Arc<dyn Backend>)]);
        let engine = Engine::open(config, Stores::new(catalog, backends), metrics.clone()).await.unwrap();
        Deployment { engine, metrics, dir }
    }
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
        let len = range.end - range.start;
        self.ranges.lock().unwrap().push(len);
        if self.lost.lock().unwrap().is_some_and(|lost| range.contains(&lost)) {
            return Err(BackendError::new(ErrorKind::Other, "a sector cannot be read"));
        }
        let wrong = self.wrong.lock().unwrap().take_if(|(longer, _)| len > *longer);
        let mut found = self.inner.get(name, range).await?;
        let (Some((_, before_end)), Some(stream)) = (wrong, &mut found) else { return Ok(found) };
        let mut bytes = stream.map(|piece| piece.expect("it is there").to_vec()).concat().await;
        let place = bytes.len() - before_end;
        bytes[place] ^= 1;
        Ok(Some(futures::stream::iter([Ok(bytes.into())]).boxed()))
    }

    fn request_len(&self) -> u32 {
        if self.is_far { 4 << 20 } else { self.inner.request_len() }
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
    let watched = Watched::default();
    let deployment = watched.deployment("zstd", Compression::Zstd).await;
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
    let seen = watched.pieces.lock().unwrap();
    let (_, lens) = seen.iter().find(|(name, _)| name.starts_with("blobs/")).expect("it is no inline blob");
    assert!(lens.len() >= 2, "{lens:?}");
    assert!(lens[..lens.len() - 1].iter().all(|len| *len >= 64 << 10), "{lens:?}");
}

#[tokio::test]
async fn a_store_whose_requests_are_paid_for_is_asked_for_a_segment_at_a_time() {
    let content: Vec<u8> =
        (0..32 * MIB as u64 / 8).flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    for (is_far, requests) in [(false, 33), (true, 9)] {
        let watched = Watched { is_far, ..Watched::default() };
        let deployment = watched.deployment("off", Compression::Off).await;
        let bucket = deployment.bucket("off").await;
        deployment.put(&bucket, "k", &content).await;
        assert_eq!(deployment.get(&bucket, "k", 5..6).await, content[5..6], "the manifest is known from here on");
        watched.ranges.lock().unwrap().clear();
        assert_eq!(deployment.get(&bucket, "k", 0..content.len()).await, content);
        let asked = watched.ranges.lock().unwrap().iter().filter(|len| **len > 64 << 10).count();
        assert_eq!(asked, requests, "is_far: {is_far}");
    }
}

#[tokio::test]
async fn what_a_first_read_needs_of_a_long_blob_comes_in_two_requests_and_its_bytes_in_one() {
    let content: Vec<u8> =
        (0..32 * MIB as u64 / 8).flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    for is_far in [false, true] {
        let watched = Watched { is_far, ..Watched::default() };
        let deployment = watched.deployment("off", Compression::Off).await;
        let bucket = deployment.bucket("off").await;
        deployment.put(&bucket, "k", &content).await;
        watched.ranges.lock().unwrap().clear();
        let (start, end) = (20 * MIB, 20 * MIB + 100);
        assert_eq!(deployment.get(&bucket, "k", start..end).await, content[start..end]);
        // The header; the tables and the root; a chunk.
        let asked = watched.ranges.lock().unwrap().clone();
        assert_eq!(asked.len(), 3, "is_far: {is_far}, {asked:?}");
        watched.ranges.lock().unwrap().clear();
        assert_eq!(deployment.get(&bucket, "k", 0..100).await, content[..100]);
        assert_eq!(*watched.ranges.lock().unwrap(), [64 << 10], "is_far: {is_far}");
    }
}

/// An object of 32 MiB, stored as it is and never read, and how long its blob is.
async fn long_object(watched: &Watched) -> (Deployment, BucketHandle, Vec<u8>, u64) {
    let content: Vec<u8> =
        (0..32 * MIB as u64 / 8).flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect();
    let deployment = watched.deployment("off", Compression::Off).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "k", &content).await;
    let pieces = watched.pieces.lock().unwrap();
    let stored = pieces.iter().filter(|(name, _)| name.starts_with("blobs/")).map(|(_, lens)| lens.iter().sum()).max();
    let stored: usize = stored.expect("it is no inline blob");
    drop(pieces);
    (deployment, bucket, content, stored as u64)
}

#[tokio::test]
async fn content_that_cannot_be_read_before_the_tables_costs_no_other_content() {
    let watched = Watched::default();
    let (deployment, bucket, content, _) = long_object(&watched).await;
    // The payload ends where the tables begin: 160 bytes of header lie before it.
    *watched.lost.lock().unwrap() = Some(160 + content.len() as u64 - 1);
    assert_eq!(deployment.get(&bucket, "k", 0..1000).await, content[..1000]);
}

#[tokio::test]
async fn tables_that_were_read_wrongly_are_read_again() {
    let watched = Watched::default();
    let (deployment, bucket, content, stored) = long_object(&watched).await;
    assert!(stored > content.len() as u64 + 8192, "pages of checks lie between the content and the root");
    *watched.wrong.lock().unwrap() = Some((8 << 10, 5000));
    assert_eq!(deployment.get(&bucket, "k", 5..6).await, content[5..6]);
    assert!(watched.wrong.lock().unwrap().is_none(), "it was wrong once");
}
