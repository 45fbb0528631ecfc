//! A scrub on a disk that answers with errors for a while.

use super::*;
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use storage_backends::{BackendError, BlobName, ByteStream, Listed, PutReceipt};

/// A disk that gives EIO for what lies on a part of it.
pub(super) struct Broken {
    folder: &'static str,
    disk: Arc<dyn Backend>,
    is_broken: Arc<AtomicBool>,
    /// Reads that went well before it broke.
    well: AtomicU64,
}

/// Blobs that can be read before the disk breaks.
const WELL: u64 = 20;

impl Broken {
    /// One whose part below `folder` breaks at once.
    pub(super) fn of(folder: &'static str, disk: Arc<dyn Backend>, is_broken: Arc<AtomicBool>) -> Self {
        Self { folder, disk, is_broken, well: AtomicU64::new(WELL) }
    }
}

#[async_trait]
impl Backend for Broken {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> storage_backends::Result<PutReceipt> {
        self.disk.put(name, body, len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> storage_backends::Result<Option<ByteStream>> {
        self.disk.get(name, range).await
    }

    async fn head(&self, name: &BlobName) -> storage_backends::Result<Option<u64>> {
        let breaks = self.is_broken.load(Ordering::Relaxed) && name.as_str().starts_with(self.folder);
        if breaks && self.well.fetch_add(1, Ordering::Relaxed) >= WELL {
            return Err(BackendError::new(ErrorKind::Other, "Input/output error (os error 5)"));
        }
        self.disk.head(name).await
    }

    async fn delete(&self, name: &BlobName) -> storage_backends::Result<()> {
        self.disk.delete(name).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, storage_backends::Result<Listed>> {
        self.disk.list(prefix)
    }

    async fn probe(&self) -> storage_backends::Result<()> {
        self.disk.probe().await
    }
}

/// A deployment whose jobs run when asked, and the switch that breaks its disk.
async fn on_a_disk_that_can_break() -> (Deployment, Arc<AtomicBool>) {
    let is_broken = Arc::new(AtomicBool::new(false));
    let switch = is_broken.clone();
    let dir = TempDir::new().expect("a temporary directory");
    let specs = registry::all;
    let quiet = |config: &mut EngineConfig| config.schedule_jobs = false;
    let deployment = Deployment::wrapped(dir, specs, quiet, move |disk| {
        Arc::new(Broken { folder: "blobs/", disk, is_broken: switch.clone(), well: AtomicU64::new(0) })
    })
    .await;
    (deployment, is_broken)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_that_met_eio_goes_on_where_it_was_when_the_disk_is_well() {
    let (deployment, is_broken) = on_a_disk_that_can_break().await;
    let bucket = deployment.bucket("off").await;
    deployment.put_many(&bucket, "key", 100).await;

    is_broken.store(true, Ordering::Relaxed);
    let failed = deployment.engine.jobs.run_job("scrub", json!({})).await.expect_err("the disk is broken");
    assert!(failed.to_string().contains("Input/output error"), "{failed}");
    let job = deployment.engine.jobs.job("scrub").await.expect("known");
    assert_eq!((&job["waiting"], &job["last_result"]), (&json!(true), &json!("failed")), "{job:#}");

    is_broken.store(false, Ordering::Relaxed);
    deployment.engine.jobs.act_on_job("scrub", JobAction::Resume).await.expect("resumed");
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    let job = deployment.engine.jobs.job("scrub").await.expect("known");
    let counts = &job["last_outcome"]["counts"];
    // The one that ended the run is asked again.
    assert_eq!(
        (&counts["ok"], &counts["unreachable"], &counts["damaged"]),
        (&json!(51), &json!(49), &json!(0)),
        "{job:#}"
    );
    assert!(deployment.engine.quarantines.quarantine().await.expect("read").blobs.is_empty());
    deployment.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrub_passes_a_few_blobs_that_give_eio_and_comes_to_its_end() {
    let (deployment, is_broken) = on_a_disk_that_can_break().await;
    let bucket = deployment.bucket("off").await;
    deployment.put_many(&bucket, "key", WELL + 30).await;
    is_broken.store(true, Ordering::Relaxed);
    let report = deployment.engine.jobs.run_job("scrub", json!({})).await.expect("it comes to its end");
    assert_eq!((&report["counts"]["ok"], &report["counts"]["unreachable"]), (&json!(WELL), &json!(30)), "{report:#}");
    deployment.stop().await;
}
