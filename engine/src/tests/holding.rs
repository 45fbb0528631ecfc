//! What is being read, or is a base of what is being written, outlives any collection until the
//! catalog knows better.

use super::*;
use crate::resources::clock::now_ms;
use async_trait::async_trait;
use catalog::{CatalogError, Gate, ServerRun};
use futures::stream::BoxStream;
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use storage_backends::{BlobName, ByteStream, Listed, PutReceipt};
use tokio::sync::oneshot;

/// A backend whose next read waits where a test wants it to.
struct Waiting {
    inner: Arc<dyn Backend>,
    next: Arc<Mutex<Option<Wait>>>,
}

/// Says that a read has come, and when it may go on.
struct Wait {
    came: oneshot::Sender<()>,
    go_on: oneshot::Receiver<()>,
}

#[async_trait]
impl Backend for Waiting {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> storage_backends::Result<PutReceipt> {
        self.inner.put(name, body, len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> storage_backends::Result<Option<ByteStream>> {
        let wait = self.next.lock().expect("no panic").take();
        if let Some(Wait { came, go_on }) = wait {
            came.send(()).expect("the test listens");
            go_on.await.expect("the test goes on");
        }
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

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_dies_during_an_upload_is_there_until_the_content_is_stored_without_it() {
    let next = Arc::new(Mutex::new(None));
    let deployment = Deployment::wrapped(
        TempDir::new().expect("a temporary directory"),
        registry::all,
        |_| {},
        |inner| Arc::new(Waiting { inner, next: next.clone() }),
    )
    .await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(5 * MIB, 15);
    let v2 = edited(&v1, 16);
    for part in [false, true] {
        deployment.put(&bucket, "v-1", &v1).await;
        let upload = deployment
            .engine
            .uploads
            .create_upload(&bucket, "v-2", "owner", VersionFacts::default())
            .await
            .expect("created");
        let destination = match part {
            false => Destination::Object { key: "v-2".into() },
            true => Destination::Part { key: "v-2".into(), upload, number: 1 },
        };
        let staged = deployment.stage(&bucket, destination, &v2).await;
        deployment.delete(&bucket, "v-1").await;
        deployment.engine.drop_caches();
        // Once the catalog has said that the base is dying, the content is read back: the collector
        // comes between.
        let (came, arrived) = oneshot::channel();
        let (release, go_on) = oneshot::channel();
        *next.lock().expect("no panic") = Some(Wait { came, go_on });
        let collecting = async {
            arrived.await.expect("the content is read back");
            let report = deployment.engine.collect(true).await.expect("collected");
            deployment.engine.drop_caches();
            release.send(()).expect("it waits");
            report
        };
        let engine = &deployment.engine;
        let publishing = async {
            match part {
                false => {
                    let published = engine
                        .publisher
                        .publish(&bucket, "v-2", staged, VersionFacts::default(), Precondition::None)
                        .await;
                    assert_eq!(published.expect("published").storage.form, Form::Zstd);
                }
                true => {
                    let facts = PartFacts { size: v2.len() as u64, ..PartFacts::default() };
                    let part = PartName { key: "v-2", upload, number: 1 };
                    engine.publisher.publish_part(&bucket, part, staged, facts).await.expect("stored");
                    let parts = engine.uploads.parts(&bucket, "v-2", upload, 0, 10).await.expect("listed");
                    let completion = Completion { upload, parts, parts_digest: [1; 32] };
                    let none = Precondition::None;
                    engine
                        .publisher
                        .complete(&bucket, "v-2", completion, VersionFacts::default(), none)
                        .await
                        .expect("completed");
                }
            }
        };
        let ((), report) = futures::join!(publishing, collecting);
        assert_eq!((report.pinned_blobs, report.deleted_blobs), (1, 0));
        assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
        deployment.delete(&bucket, "v-2").await;
        engine.collect(true).await.expect("collected");
        assert_eq!(deployment.blob_files(), Vec::<std::path::PathBuf>::new(), "nothing is held for good");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_is_gone_all_the_same_is_for_the_client_to_send_again_and_no_damage() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(5 * MIB, 15);
    let v2 = edited(&v1, 16);
    deployment.put(&bucket, "v-1", &v1).await;
    let staged = deployment.stage(&bucket, Destination::Object { key: "v-2".into() }, &v2).await;
    let base = deployment.blob_files().into_iter().max_by_key(|file| file.metadata().expect("readable").len());
    let catalog = deployment.engine.catalog();
    let row = catalog.content(bucket.row.id, "v-1").await.expect("read").expect("exists").blobs.remove(0);
    deployment.delete(&bucket, "v-1").await;
    deployment.engine.drop_caches();
    // As another process's collector would, which knows of no pin of this one.
    std::fs::remove_file(base.expect("a blob")).expect("removed");
    catalog.purge(row.id, now_ms()).await.expect("purged");
    let outcome =
        deployment.engine.publisher.publish(&bucket, "v-2", staged, VersionFacts::default(), Precondition::None).await;
    assert!(matches!(outcome, Err(EngineError::Unavailable(_))), "{outcome:?}");
    assert_eq!(deployment.blob_files(), Vec::<std::path::PathBuf>::new());
    deployment.put(&bucket, "v-2", &v2).await;
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_comes_late_for_a_purge_looks_again() {
    let deployment = Deployment::start(512 << 20).await;
    let (engine, bucket) = (&deployment.engine, deployment.bucket("off").await);
    deployment.put(&bucket, "k", &content(MIB, 1)).await;
    let look = engine.foundation.pins.look();
    let seen = engine.catalog().content(bucket.row.id, "k").await.expect("read").expect("exists");
    deployment.put(&bucket, "k", &content(MIB, 2)).await;
    assert_eq!(engine.collect(true).await.expect("collected").deleted_blobs, 1);
    let opened = engine.read.open_seen(look, &bucket, seen, VersionFacts::default());
    assert!(matches!(opened.map(|_| ()), Err(EngineError::Conflict)));
    assert!(deployment.get(&bucket, "k", 0..MIB).await == content(MIB, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_committed_and_not_shipped_is_not_acknowledged() {
    struct Shut(AtomicBool);

    #[async_trait]
    impl Gate for Shut {
        async fn pass(&self, _run: ServerRun) -> Result<(), CatalogError> {
            match self.0.load(Ordering::Relaxed) {
                true => Err(CatalogError::Unknown("not shipped".into())),
                false => Ok(()),
            }
        }
    }

    let dir = TempDir::new().expect("a temporary directory");
    let (config, metrics) = (config(dir.path(), 512 << 20), Metrics::new());
    let stores = stores(dir.path(), &metrics).await.expect("stores open");
    // The first gate stays, so it is there before the engine's own.
    let gate = Arc::new(Shut(AtomicBool::new(false)));
    stores.catalog.acknowledge_behind(gate.clone());
    let engine = Engine::open_with(config, stores, metrics.clone(), |_, _| Vec::new()).await.expect("opens");
    let deployment = Deployment { engine, metrics, dir };
    let (engine, bucket) = (&deployment.engine, deployment.bucket("off").await);
    let upload = engine.uploads.create_upload(&bucket, "k", "owner", VersionFacts::default()).await.expect("created");
    let bytes = content(MIB, 1);
    let staged = deployment.stage(&bucket, Destination::Part { key: "k".into(), upload, number: 1 }, &bytes).await;
    gate.0.store(true, Ordering::Relaxed);
    let facts = PartFacts { size: MIB as u64, ..PartFacts::default() };
    let stored = engine.publisher.publish_part(&bucket, PartName { key: "k", upload, number: 1 }, staged, facts).await;
    assert!(matches!(stored, Err(EngineError::Unavailable(_))), "{stored:?}");
    let parts = engine.uploads.parts(&bucket, "k", upload, 0, 10).await.expect("listed");
    assert_eq!(parts.len(), 1, "it is committed all the same");
}
