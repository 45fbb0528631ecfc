//! What the collector believes: not the catalog alone.

use super::*;
use catalog::BlobKey;
use object_format::BlobId;

/// Objects whose blobs lie in the backend.
const LEN: usize = 20_000;

pub(crate) fn database(dir: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(dir.join("catalog.sqlite")).expect("the catalog opens");
    connection.busy_timeout(Duration::from_secs(30)).expect("set");
    connection
}

/// Puts the rows of a copy in the place of those of the catalog that a process is using: what a
/// failover to a replica that lags looks like to it.
pub(crate) fn put_back(dir: &Path, copy: &Path) {
    let live = database(dir);
    live.execute_batch(&format!("PRAGMA foreign_keys = OFF; ATTACH '{}' AS copy; BEGIN IMMEDIATE;", copy.display()))
        .expect("attached");
    let tables: Vec<String> = live
        .prepare("SELECT name FROM copy.sqlite_master WHERE type = 'table'")
        .and_then(|mut tables| tables.query_map([], |row| row.get(0))?.collect())
        .expect("tables");
    for table in tables {
        let sql = format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM copy.{table};");
        live.execute_batch(&sql).expect("replaced");
    }
    live.execute_batch("COMMIT").expect("committed");
}

pub(crate) fn copy_of_catalog(dir: &Path) -> std::path::PathBuf {
    let copy = dir.join("copy.sqlite");
    database(dir).execute_batch(&format!("VACUUM INTO '{}'", copy.display())).expect("copied");
    copy
}

impl Deployment {
    pub(crate) async fn put_many(&self, bucket: &BucketHandle, prefix: &str, count: u64) {
        for number in 0..count {
            self.put(bucket, &format!("{prefix}/{number}"), &content(LEN, 2 * (number * 97 + prefix.len() as u64)))
                .await;
        }
    }

    /// Everything that this process wrote is of a closed epoch afterwards.
    pub(crate) async fn close_own_epoch(&self) {
        let old = self.engine.foundation.writer.epoch();
        self.engine.foundation.catalog.close_epochs(&[old]).await.expect("closed");
        assert!(matches!(
            self.engine.foundation.writer.note_fenced::<()>(Err(EngineError::Fenced)),
            Err(EngineError::Fenced)
        ));
        tokio::time::timeout(Duration::from_secs(60), async {
            while self.engine.foundation.writer.epoch() == old {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("a new epoch is taken");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_was_put_back_from_a_copy_collects_nothing_the_journal_names() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put_many(&bucket, "before", 3).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let copy = copy_of_catalog(deployment.dir.path());
    deployment.put_many(&bucket, "lost", 40).await;
    deployment.engine.ship_journal().await.expect("shipped");
    put_back(deployment.dir.path(), &copy);
    let there = deployment.blob_files().len();
    assert_eq!(there, 43);
    deployment.engine.foundation.catalog.close_epochs(&[deployment.engine.foundation.writer.epoch()]).await.ok();
    for _ in 0..3 {
        deployment.engine.collect(true).await.expect_err("nothing is collected");
        assert_eq!(deployment.blob_files().len(), there);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_lost_its_row_is_not_swept_while_the_store_says_that_it_is_needed() {
    // Named by the journal alone, and by a backup.
    for with_backup in [false, true] {
        let deployment = Deployment::start(512 << 20).await;
        let bucket = deployment.bucket("off").await;
        deployment.put_many(&bucket, "k", 5).await;
        if with_backup {
            deployment.engine.foundation.safety.backup().await.expect("a backup");
        }
        let lost = deployment.blob_files().len();
        database(deployment.dir.path())
            .execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM blobs WHERE id IN (SELECT id FROM blobs LIMIT 1)")
            .expect("lost");
        deployment.close_own_epoch().await;
        let refused = deployment.engine.collect(true).await.expect_err("nothing is swept").to_string();
        assert!(refused.contains("needs 1 files that the catalog does not know"), "{refused}");
        assert_eq!(deployment.blob_files().len(), lost);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_in_the_store_knows_what_was_purged_and_copied() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    deployment.put_many(&bucket, "k", 4).await;
    let ids: Vec<BlobId> = blob_ids(&deployment);
    deployment.delete(&bucket, "k/0").await;
    deployment.engine.collect(true).await.expect("collected");
    let kept = blob_ids(&deployment);
    assert_eq!((ids.len(), kept.len()), (4, 3));
    let mut suspects = recovery::Suspects::default();
    let name = |id: &BlobId| blobs::open::blob_name(*id).expect("a name");
    for id in &ids {
        assert!(suspects.add(&name(id)));
    }
    for keyset in deployment::keyring::KeysetCopy::of(&deployment.bucket("sealed").await.row) {
        assert!(suspects.add(&storage_backends::BlobName::new(format!("keyset/{}", keyset.id)).expect("a name")));
    }
    for backup in [false, true] {
        if backup {
            deployment.engine.foundation.safety.backup().await.expect("a backup");
        }
        let named = deployment.engine.foundation.safety.named_in_store(&suspects).await.expect("read");
        for id in &ids {
            assert_eq!(named.contains(&name(id)), kept.contains(id), "{id} {backup}");
        }
        for keyset in deployment::keyring::KeysetCopy::of(&deployment.bucket("sealed").await.row) {
            let name = storage_backends::BlobName::new(format!("keyset/{}", keyset.id)).expect("a name");
            assert!(named.contains(&name), "{name}");
        }
    }
}

fn blob_ids(deployment: &Deployment) -> Vec<BlobId> {
    let files = deployment.blob_files();
    let mut ids: Vec<BlobId> =
        files.iter().filter_map(|file| BlobId::parse(&file.file_name()?.to_string_lossy())).collect();
    ids.sort_unstable_by_key(|id| BlobKey(id.0));
    ids
}

/// Files of the journal, in order.
fn journal_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.join("blobs/journal")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("readable") {
            let path = entry.expect("readable").path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files.sort_by_key(|file| file.file_name().map(ToOwned::to_owned));
    files
}

pub(super) fn recovery(accept_hole: bool, manifests: bool) -> RecoveryOptions {
    let etag_of_parts = |_: &[String]| Some("e".to_owned());
    RecoveryOptions {
        backup: None,
        manifests,
        in_place: false,
        stop_at_damage: false,
        accept_less_than_anchor: false,
        accept_hole,
        accept_unsealed_until: None,
        remains: None,
        fork: None,
        etag_of_parts,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_catalog_is_not_added_to_a_store_that_has_lost_what_lies_before_it() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    for key in ["shipped", "unshipped"] {
        deployment.put(&bucket, key, &content(LEN, key.len() as u64)).await;
        if key == "shipped" {
            deployment.engine.ship_journal().await.expect("shipped");
        }
    }
    let catalog = deployment.engine.catalog();
    let entries = catalog.journal(0, 100).await.expect("read");
    assert!(!entries.is_empty() && entries[0].seq > 1, "{entries:?}");
    let lineage = catalog.setting("lineage").await.expect("read").expect("it has one");
    let remains = catalog::Remains {
        last_seq: entries.last().map(|entry| entry.seq),
        entries,
        settings: [("lineage".to_owned(), lineage)].into(),
    };
    let dir = deployment.stop().await;
    for file in std::fs::read_dir(dir.path()).expect("readable") {
        let path = file.expect("readable").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("catalog.sqlite")) {
            std::fs::remove_file(path).expect("removed");
        }
    }
    for kind in ["lineage", "journal", "backup"] {
        let _ = std::fs::remove_dir_all(dir.path().join("blobs").join(kind));
    }
    let options = RecoveryOptions { remains: Some(remains), ..recovery(false, true) };
    let why = recovered(dir.path(), &options).await.expect_err("its beginning is missing").to_string();
    assert!(why.contains("what was shipped of its journal is missing"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hole_in_the_journal_stops_a_recovery_and_is_passed_only_when_told() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    for key in ["first", "second", "third"] {
        deployment.put(&bucket, key, &content(LEN, key.len() as u64)).await;
        deployment.engine.ship_journal().await.expect("shipped");
    }
    deployment.delete(&bucket, "second").await;
    let dir = deployment.stop().await;
    let files = journal_files(dir.path());
    assert!(files.len() >= 4, "{files:?}");
    // The one with the second object.
    std::fs::remove_file(&files[1]).expect("removed");
    for file in std::fs::read_dir(dir.path()).expect("readable") {
        let path = file.expect("readable").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("catalog.sqlite")) {
            std::fs::remove_file(path).expect("removed");
        }
    }
    for manifests in [false, true] {
        let why = recovered(dir.path(), &recovery(false, manifests)).await.expect_err("a hole").to_string();
        assert!(why.contains("is missing, and the journal goes on with journal/"), "{why}");
        assert!(why.contains("--accept-hole"), "{why}");
    }
    let report = recovered(dir.path(), &recovery(true, true)).await.expect("recovered");
    assert_eq!(report.holes.len(), 1, "{report:?}");
    assert_eq!(report.objects, 3, "first, third, and the second in quarantine: {report:?}");
    let back = report.recovered.expect("manifests were read");
    assert_eq!(back.versions.len(), 1, "{back:?}");
    assert_eq!((back.versions[0].key.as_str(), back.never_acknowledged), ("second", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_rewrite_left_is_no_lost_version() {
    const LEN: usize = 300_000;
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    let body = content(LEN, 1);
    deployment.put(&bucket, "k", &body).await;
    let stored = deployment.engine.catalog().current(bucket.row.id, "k").await.expect("read").expect("exists");
    // As a rewrite: written and durable, and not committed.
    let staged = deployment.stage(&bucket, crate::Destination::Object { key: "k".into() }, &body).await;
    let object = object_format::ObjectFacts {
        bucket: "off".into(),
        key: "k".into(),
        version_id: Some(stored.id.0),
        part: None,
        sha256: None,
        facts: Vec::new(),
        sketch: Vec::new(),
    };
    let finisher = &deployment.engine.publisher.finisher;
    finisher.finish_blob(&bucket, staged.content, &object, None).await.expect("written");
    deployment.engine.ship_journal().await.expect("shipped");
    let dir = deployment.stop().await;
    for file in std::fs::read_dir(dir.path()).expect("readable") {
        let path = file.expect("readable").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("catalog.sqlite")) {
            std::fs::remove_file(path).expect("removed");
        }
    }
    let report = recovered(dir.path(), &recovery(false, true)).await.expect("recovered");
    let back = report.recovered.expect("manifests were read");
    assert_eq!((report.objects, back.unknown_blobs, back.rewrites, back.versions.len()), (1, 1, 1, 0), "{back:?}");
    assert_eq!(back.unreadable, []);
}

pub(super) async fn recovered(dir: &Path, options: &RecoveryOptions) -> Result<RecoveryReport, EngineError> {
    let metrics = Metrics::new();
    recover(config(dir, 512 << 20), stores(dir, &metrics), options, metrics.clone(), &|_, _| {}).await
}

async fn store_orphan(deployment: &Deployment) -> storage_backends::BlobName {
    let orphan =
        BlobId::new(deployment.engine.foundation.writer.epoch(), deployment::keyring::random().expect("random"));
    let name = blobs::open::blob_name(orphan).expect("a name");
    let backend = deployment.engine.foundation.blobs.backend("local").expect("configured");
    storage_backends::put_bytes(&**backend, &name, Bytes::from_static(b"left by a crash")).await.expect("stored");
    name
}

fn asked(deployment: &Deployment, op: &str) -> u64 {
    let outcomes = ["ok", "absent", "failed"];
    let requests = &deployment.metrics.backend_requests_total;
    outcomes.iter().map(|outcome| requests.with_label_values(&["local", op, outcome]).get()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_sweep_found_stays_a_day_can_be_kept_and_is_looked_up_again_before_it_goes() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put_many(&bucket, "k", 2).await;
    let orphan = store_orphan(&deployment).await;
    deployment.close_own_epoch().await;
    let empty = CollectParameters { empty_trash: true, ..CollectParameters::default() };
    let engine = &deployment.engine;
    let backend = engine.foundation.blobs.backend("local").expect("configured");
    let report = engine.collect(true).await.expect("collected");
    assert_eq!((report.trashed_files, report.trash_files, report.orphan_blobs), (1, 1, 0), "{report:?}");
    let report =
        engine.collect_as(CollectParameters { undo: true, ..CollectParameters::default() }).await.expect("kept");
    assert_eq!((report.kept_files, report.trash_files), (1, 0), "{report:?}");
    let report = engine.collect_as(empty).await.expect("collected");
    assert_eq!((report.orphan_blobs, report.trashed_files), (0, 0), "it was looked through already: {report:?}");
    assert!(backend.head(&orphan).await.expect("answers").is_some());
    let again = CollectParameters { sweep: true, ..CollectParameters::default() };
    assert_eq!(engine.collect_as(again).await.expect("collected").trashed_files, 1);
    // A live blob that got onto the list is not removed.
    let mut names = blob_ids(&deployment).into_iter().map(|id| format!("blobs/{id}"));
    let live = catalog::TrashFile {
        backend: "local".into(),
        name: names.find(|name| *name != orphan.as_str()).expect("two are live"),
        stored_len: 1,
        since_ms: 1,
    };
    engine.foundation.catalog.note_sweep(&[], vec![live]).await.expect("listed");
    let refused = engine.collect_as(empty).await.expect_err("the journal needs it").to_string();
    assert!(refused.contains("needs 1 files"), "{refused}");
    assert_eq!(deployment.blob_files().len(), 3);
    engine.collect_as(CollectParameters { undo: true, ..CollectParameters::default() }).await.expect("kept");
    engine.collect_as(again).await.expect("swept");
    assert_eq!(engine.collect_as(empty).await.expect("collected").orphan_blobs, 1);
    assert_eq!(deployment.blob_files().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn trash_goes_once_its_list_is_in_the_store_and_nobody_reads_what_is_on_it() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put_many(&bucket, "k", 2).await;
    let orphan = store_orphan(&deployment).await;
    deployment.close_own_epoch().await;
    let engine = &deployment.engine;
    let empty = CollectParameters { empty_trash: true, ..CollectParameters::default() };
    let id = BlobId::parse(orphan.as_str().trim_start_matches("blobs/")).expect("a blob");
    // As when its row was in a catalog that has gone back since.
    let read = engine.foundation.pins.pin([id]).expect("nobody removes it");
    let report = engine.collect_as(empty).await.expect("collected");
    assert_eq!((report.trashed_files, report.orphan_blobs, report.trash_files), (1, 0, 1), "{report:?}");
    let marks = engine.catalog().journal_marks().await.expect("marks");
    assert_eq!(marks.shipped, marks.last, "the list is in the store");
    drop(read);
    assert_eq!(engine.collect_as(empty).await.expect("collected").orphan_blobs, 1);
    assert_eq!(deployment.blob_files().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_is_listed_once_and_an_idle_collection_touches_no_blob() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put_many(&bucket, "k", 20).await;
    deployment.close_own_epoch().await;
    let before = asked(&deployment, "list");
    deployment.engine.collect(false).await.expect("collected");
    assert!(asked(&deployment, "list") > before, "the closed epoch is looked through");
    let requests =
        || ["list", "put", "delete", "get", "head", "probe"].map(|op| asked(&deployment, op)).iter().sum::<u64>();
    let changes = || ["put", "delete"].map(|op| asked(&deployment, op));
    let before = changes();
    // The least of five: the watch for forks may look meanwhile.
    let mut fewest = u64::MAX;
    for _ in 0..5 {
        let before = requests();
        deployment.engine.collect(false).await.expect("collected");
        fewest = fewest.min(requests() - before);
    }
    assert_eq!((fewest, changes()), (0, before), "it asks the store nothing");
    let before = requests();
    deployment.engine.collect(true).await.expect("collected");
    assert!(requests() > before, "who asks by hand learns whether the catalog is the newest");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_blob_that_something_still_needs_is_not_deleted() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put_many(&bucket, "k", 3).await;
    // A bit that makes a live blob look dead, and the tombstone that follows from it.
    database(deployment.dir.path())
        .execute_batch("UPDATE blobs SET state = 1; INSERT INTO tombstones SELECT id, 0 FROM blobs")
        .expect("changed");
    let report = deployment.engine.collect(true).await.expect("collected");
    assert_eq!((report.deleted_blobs, report.errors), (0, 3), "{report:?}");
    assert_eq!(deployment.blob_files().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_dead_blobs_are_deleted_together() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    let number = 400;
    for key in 0..number {
        deployment.put(&bucket, &format!("k/{key}"), &content(5_000, 2 * key + 2)).await;
    }
    for key in 0..number {
        deployment.delete(&bucket, &format!("k/{key}")).await;
    }
    let began = std::time::Instant::now();
    let report = deployment.engine.collect(true).await.expect("collected");
    assert_eq!((report.deleted_blobs, report.errors), (number, 0), "{report:?}");
    println!("{number} blobs deleted in {:?}", began.elapsed());
    assert_eq!(deployment.blob_files().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn now_means_now_for_what_died_in_the_future_of_a_clock_that_was_set_back() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put_many(&bucket, "k", 2).await;
    deployment.delete(&bucket, "k/0").await;
    database(deployment.dir.path())
        .execute_batch("UPDATE tombstones SET since_ms = since_ms + 86400000")
        .expect("a day ahead");
    deployment.engine.collect(false).await.expect("collected");
    assert_eq!(deployment.blob_files().len(), 2, "who knows how long it is dead");
    deployment.engine.collect(true).await.expect("collected");
    assert_eq!(deployment.blob_files().len(), 1);
}
