//! What is read and written when a view takes the place of content: each base is scanned once, and
//! nothing that cannot be read back takes the place of anything.

use super::*;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use std::{
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use storage_backends::{Backend, BlobName, ByteStream, Listed, PutReceipt};
use tempfile::TempDir;

/// What a test wants of a medium, and what it has seen.
#[derive(Default)]
struct Medium {
    /// The next blob is written with one wrong bit.
    writes_wrongly: AtomicBool,
    /// Bytes that were read.
    read_bytes: AtomicU64,
    written: Mutex<Vec<String>>,
}

struct Watched {
    inner: Arc<dyn Backend>,
    medium: Arc<Medium>,
}

#[async_trait]
impl Backend for Watched {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> storage_backends::Result<PutReceipt> {
        let key = name.to_string();
        if !key.starts_with("blobs/") {
            return self.inner.put(name, body, len).await;
        }
        self.medium.written.lock().expect("no panic").push(key);
        if !self.medium.writes_wrongly.swap(false, Ordering::Relaxed) {
            return self.inner.put(name, body, len).await;
        }
        let mut bytes = body.map(|piece| piece.expect("it comes").to_vec()).concat().await;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        self.inner.put(name, futures::stream::iter([Ok(Bytes::from(bytes))]).boxed(), len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> storage_backends::Result<Option<ByteStream>> {
        self.medium.read_bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
        self.inner.get(name, range).await
    }

    async fn head(&self, name: &BlobName) -> storage_backends::Result<Option<u64>> {
        self.inner.head(name).await
    }

    async fn delete(&self, name: &BlobName) -> storage_backends::Result<()> {
        self.inner.delete(name).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, storage_backends::Result<Listed>> {
        self.inner.list(prefix)
    }

    async fn probe(&self) -> storage_backends::Result<()> {
        self.inner.probe().await
    }
}

async fn watched(medium: &Arc<Medium>) -> Deployment {
    let dir = TempDir::new().expect("a temporary directory");
    let wrap = |inner| Arc::new(Watched { inner, medium: medium.clone() }) as Arc<dyn Backend>;
    Deployment::wrapped(dir, |_, _| Vec::new(), |_| {}, wrap).await
}

/// The first of two releases, looked at by the converter, and the second as it came.
async fn two_releases(deployment: &Deployment, bucket: &BucketHandle) -> Vec<u8> {
    let first = prose(2_000_000, 401);
    let second = gzip(&edited(&first, 402));
    deployment.put(bucket, "app/1.0", &gzip(&first)).await;
    assert_eq!(converted(deployment, bucket, "app/1.0").await.form, BlobForm::Whole);
    deployment.put(bucket, "app/1.1", &second).await;
    second
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_cannot_be_read_back_takes_the_place_of_nothing_and_is_made_again_with_checks() {
    let medium = Arc::new(Medium::default());
    let deployment = watched(&medium).await;
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        let second = two_releases(&deployment, &bucket).await;
        let wrong = || deployment.metrics.checksum_failures_total.with_label_values(&["encoder"]).get();
        let before = wrong();
        medium.written.lock().expect("no panic").clear();
        medium.writes_wrongly.store(true, Ordering::Relaxed);
        let view = converted(&deployment, &bucket, "app/1.1").await;
        assert_eq!((view.form, wrong() - before), (BlobForm::Delta, 1), "{name}");
        let written = medium.written.lock().expect("no panic").clone();
        assert_eq!(written.len(), 2, "{name}: {written:?}");
        assert!(deployment.get(&bucket, "app/1.1", 0..second.len()).await == second, "{name}");
        let files = deployment.blob_files();
        let is_there = |name: &str| {
            files.iter().any(|file| file.file_name().is_some_and(|file| name.ends_with(&*file.to_string_lossy())))
        };
        assert!(!is_there(&written[0]) && is_there(&written[1]), "{name}: {written:?}");
    }
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_was_looked_at_when_it_came_is_not_scanned_again_for_its_successors() {
    let medium = Arc::new(Medium::default());
    let deployment = watched(&medium).await;
    let mut read = Vec::new();
    for (name, keeps) in [("delta", true), ("sealed", false)] {
        let bucket = deployment.bucket(name).await;
        let second = two_releases(&deployment, &bucket).await;
        if !keeps {
            deployment.engine.views.drop_caches();
        }
        let before = medium.read_bytes.load(Ordering::Relaxed);
        assert_eq!(converted(&deployment, &bucket, "app/1.1").await.form, BlobForm::Delta);
        read.push(medium.read_bytes.load(Ordering::Relaxed) - before);
        assert!(deployment.get(&bucket, "app/1.1", 0..second.len()).await == second);
    }
    let base_len = gzip(&prose(2_000_000, 401)).len() as u64;
    assert!(read[1] - read[0] >= base_len, "{read:?} of {base_len}");
}
