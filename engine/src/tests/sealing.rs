//! What was sealed stays sealed, whatever somebody writes into the catalog or puts into the
//! backend.

use super::{
    collecting::{database, recovered, recovery},
    *,
};
use async_trait::async_trait;
use futures::stream::BoxStream;
use std::sync::Mutex;
use storage_backends::{BlobName, ByteStream, Listed, PutReceipt, put_bytes};

fn refusal<T>(outcome: Result<T, EngineError>) -> String {
    match outcome {
        Err(EngineError::NotCurrent(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is not refused"),
    }
}

fn remove_catalog(dir: &Path) {
    for file in std::fs::read_dir(dir).expect("readable") {
        let path = file.expect("readable").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("catalog.sqlite")) {
            std::fs::remove_file(path).expect("removed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_whose_row_was_changed_to_off_is_refused_and_never_written_in_the_clear() {
    let deployment = Deployment::start(256 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    deployment.put(&bucket, "k", &content(9000, 1)).await;
    let row = deployment.engine.foundation.catalog.bucket("sealed").await.expect("answers").expect("is there");
    let mut settings = row.settings.clone();
    settings["encryption"] = "off".into();
    deployment.engine.foundation.catalog.change_bucket_settings(row.id, row.settings, settings).await.expect("changed");
    refusal(deployment.engine.buckets.bucket("sealed").await);
    let dir = deployment.stop().await;
    // A new process that has not opened its key, and whose configuration says nothing of it, has
    // the key's row.
    let forget = |config: &mut EngineConfig| drop(config.buckets.remove("sealed"));
    let deployment = Deployment::reopened(dir, |_, _| Vec::new(), forget).await;
    let why = refusal(deployment.engine.buckets.bucket("sealed").await);
    assert!(why.contains("the catalog has a key of it"), "{why}");
    assert_eq!(deployment.metrics.unsealed_buckets_total.get(), 1);
    deployment.bucket("off").await;
    let dir = deployment.stop().await;
    // With the key's row gone too the configuration still says so.
    database(dir.path()).execute("DELETE FROM keys", []).expect("deleted");
    let deployment = Deployment::reopened(dir, |_, _| Vec::new(), |_| ()).await;
    let why = refusal(deployment.engine.buckets.bucket("sealed").await);
    assert!(why.contains("the configuration asks for encryption"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_sealed_later_stands_on_what_is_sealed_from_then_on() {
    let deployment = Deployment::start(256 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "before", &content(9000, 1)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let sealed = deployment.bucket("sealed").await;
    deployment.put(&sealed, "after", &content(9000, 2)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let dir = deployment.stop().await;
    assert!(dir.path().join("sealed").exists(), "noted for a recovery that finds nothing else");
    // It opens again with its unsealed beginning behind it.
    let deployment = Deployment::reopened(dir, |_, _| Vec::new(), |_| ()).await;
    deployment.put(&deployment.bucket("off").await, "later", &content(9000, 3)).await;
    let dir = deployment.stop().await;
    remove_catalog(dir.path());
    let report = recovered(dir.path(), &recovery(false, false)).await.expect("recovered");
    assert_eq!(report.objects, 3, "{report:?}");
    assert!(report.backup.is_some(), "{report:?}");
}

/// Copies what lies under `from` and not under `to`.
fn copy_missing(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).into_iter().flatten() {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir_all(&target).expect("made");
            copy_missing(&entry.path(), &target);
        } else if !target.exists() {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_under_a_strangers_key_keeps_nobody_with_a_catalog_from_serving() {
    let stranger = Deployment::start(256 << 20).await;
    stranger.put(&stranger.bucket("sealed").await, "theirs", &content(9000, 1)).await;
    stranger.engine.ship_journal().await.expect("shipped");
    let theirs = stranger.stop().await;
    for _ in 0..2 {
        remove_catalog(theirs.path());
        recovered(theirs.path(), &recovery(false, false)).await.expect("recovered");
    }
    let own = Deployment::start(256 << 20).await;
    let body = content(9000, 2);
    own.put(&own.bucket("sealed").await, "ours", &body).await;
    own.engine.ship_journal().await.expect("shipped");
    let dir = own.stop().await;
    for kind in ["lineage", "lineage-sealed", "journal", "backup", "backup-part", "keyset"] {
        copy_missing(&theirs.path().join("blobs").join(kind), &dir.path().join("blobs").join(kind));
    }
    let again = Deployment::reopened(dir, |_, _| Vec::new(), |_| ()).await;
    let bucket = again.bucket("sealed").await;
    assert!(again.get(&bucket, "ours", 0..body.len()).await == body);
    again.put(&bucket, "later", &body).await;
    assert!(again.metrics.unsealed_documents_total.get() > 0, "what is not believed is counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_in_the_place_of_the_sealed_lineage_does_not_keep_it_from_being_written() {
    let deployment = Deployment::start(256 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "before", &content(9000, 1)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let disk = LocalBackend::open(deployment.dir.path().join("blobs"), LocalOptions::default()).await.expect("opens");
    let lineages: Vec<_> = disk.list("lineage/").try_collect().await.expect("listed");
    let copy = lineages[0].name.as_str().replace("lineage/", "lineage-sealed/");
    let copy = BlobName::new(copy).expect("a name");
    put_bytes(&disk, &copy, Bytes::from_static(b"somebody's")).await.expect("planted");
    let sealed = deployment.bucket("sealed").await;
    deployment.put(&sealed, "after", &content(9000, 2)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let dir = deployment.stop().await;
    remove_catalog(dir.path());
    let report = recovered(dir.path(), &recovery(false, false)).await.expect("it trusts the sealed lineage");
    assert_eq!(report.objects, 2, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_another_build_sealed_later_is_recovered_only_when_told_until_where() {
    let deployment = Deployment::start(256 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "before", &content(9000, 1)).await;
    let dir = deployment.stop().await;
    // What that build had written beside it: the keys of a sealed bucket, and no sealed lineage.
    std::fs::write(dir.path().join("sealed"), b"").expect("written");
    remove_catalog(dir.path());
    let why = recovered(dir.path(), &recovery(false, false)).await.expect_err("nothing is sealed").to_string();
    assert!(why.contains("can be trusted"), "{why}");
    let told = RecoveryOptions { accept_unsealed_until: Some(1000), ..recovery(false, false) };
    assert_eq!(recovered(dir.path(), &told).await.expect("recovered").objects, 1);
}

/// A store that began before it had keys and has them since; where the sealed copy of its lineage
/// lies.
async fn sealed_later() -> (TempDir, std::path::PathBuf) {
    let deployment = Deployment::start(256 << 20).await;
    deployment.put(&deployment.bucket("off").await, "before", &content(9000, 1)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    deployment.put(&deployment.bucket("sealed").await, "after", &content(9000, 2)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let dir = deployment.stop().await;
    let mut copy = dir.path().join("blobs/lineage-sealed");
    while copy.is_dir() {
        let below: Vec<_> = std::fs::read_dir(&copy).expect("readable").collect();
        assert_eq!(below.len(), 1, "{below:?}");
        copy = below[0].as_ref().expect("readable").path();
    }
    (dir, copy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_the_sealed_copy_of_a_lineage_stops_a_recovery() {
    let (dir, copy) = sealed_later().await;
    let good = std::fs::read(&copy).expect("readable");
    remove_catalog(dir.path());
    // The header, what is sealed, its tag.
    for at in [1, 40, good.len() / 2, good.len() - 1] {
        let mut flipped = good.clone();
        flipped[at] ^= 4;
        std::fs::write(&copy, flipped).expect("written");
        for manifests in [false, true] {
            let why = recovered(dir.path(), &recovery(false, manifests)).await.expect_err("stopped").to_string();
            assert!(why.contains("lineage-sealed/"), "bit in byte {at}: {why}");
        }
    }
    std::fs::write(&copy, good).expect("written");
    assert_eq!(recovered(dir.path(), &recovery(false, false)).await.expect("recovered").objects, 2);
}

/// A backend into which another replica puts the sealed copy of the lineage while this one writes
/// its backup.
struct Shared {
    inner: Arc<dyn Backend>,
    copy: BlobName,
    theirs: Mutex<Option<Vec<u8>>>,
    deleted: Arc<Mutex<Vec<BlobName>>>,
}

#[async_trait]
impl Backend for Shared {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> storage_backends::Result<PutReceipt> {
        let theirs = name.as_str().starts_with("backup/").then(|| self.theirs.lock().expect("no panic").take());
        if let Some(theirs) = theirs.flatten() {
            put_bytes(&*self.inner, &self.copy, theirs.into()).await?;
        }
        self.inner.put(name, body, len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> storage_backends::Result<Option<ByteStream>> {
        self.inner.get(name, range).await
    }

    async fn head(&self, name: &BlobName) -> storage_backends::Result<Option<u64>> {
        self.inner.head(name).await
    }

    async fn delete(&self, name: &BlobName) -> storage_backends::Result<()> {
        self.deleted.lock().expect("no panic").push(name.clone());
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
async fn the_sealed_lineage_that_another_replica_wrote_meanwhile_is_left_alone() {
    let (dir, path) = sealed_later().await;
    let theirs = std::fs::read(&path).expect("readable");
    std::fs::remove_file(&path).expect("removed");
    let disk = LocalBackend::open(dir.path().join("blobs"), LocalOptions::default()).await.expect("opens");
    let lineages: Vec<_> = disk.list("lineage/").try_collect().await.expect("listed");
    let copy = BlobName::new(lineages[0].name.as_str().replace("lineage/", "lineage-sealed/")).expect("a name");
    let deleted = Arc::<Mutex<Vec<BlobName>>>::default();
    let wrap = |inner| -> Arc<dyn Backend> {
        let theirs = Mutex::new(Some(theirs.clone()));
        Arc::new(Shared { inner, copy: copy.clone(), theirs, deleted: deleted.clone() })
    };
    let deployment = Deployment::wrapped(dir, |_, _| Vec::new(), |_| (), wrap).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let deleted = deleted.lock().expect("no panic").clone();
    assert!(!deleted.contains(&copy), "{deleted:?}");
    assert_eq!(std::fs::read(path).expect("there again"), theirs);
}
