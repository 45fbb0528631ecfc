//! A bucket gets another domain key while it is used, and the one of before ends when nothing needs
//! it.

use super::*;
use crate::{bucket::RowPlace, facts::Form};
use async_trait::async_trait;
use catalog::{BlobKey, Catalog, CatalogError, Content, Gate, KeyDependents, RewriteCommit, ServerRun};
use serde_json::{Value, json};
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};
use storage_backends::{BlobName, put_bytes};

/// Content of every kind: a base and its delta, parts, a row's worth of bytes, none at all.
async fn filled(deployment: &Deployment) -> Vec<(&'static str, Vec<u8>)> {
    let bucket = deployment.bucket("sealed").await;
    let base = content(3 * MIB, 1);
    let stored = vec![
        ("v-1", base.clone()),
        ("v-2", edited(&base, 2)),
        ("w-copy", base.clone()),
        ("parts", content(2 * MIB, 3)),
        ("small", b"a few bytes".to_vec()),
        ("empty", Vec::new()),
    ];
    for (key, bytes) in &stored {
        match *key {
            "parts" => drop(deployment.put_in_parts(&bucket, key, bytes, MIB).await),
            _ => drop(deployment.put(&bucket, key, bytes).await),
        }
    }
    // A day later.
    deployment.engine.catalog().forget_completed_uploads(i64::MAX).await.expect("forgets");
    stored
}

async fn assert_whole(deployment: &Deployment, stored: &[(&'static str, Vec<u8>)]) {
    deployment.engine.drop_caches();
    let bucket = deployment.bucket("sealed").await;
    for (key, bytes) in stored {
        assert!(deployment.get(&bucket, key, 0..bytes.len()).await == *bytes, "{key}");
    }
}

async fn reencrypt(deployment: &Deployment) -> Value {
    deployment.engine.jobs.run_job("reencrypt", json!({ "bucket": "sealed" })).await.expect("ran")
}

async fn dependents(deployment: &Deployment, epoch: u32) -> KeyDependents {
    let id = deployment.bucket("sealed").await.row.id;
    deployment.engine.catalog().key_dependents(id, epoch).await.expect("read")
}

async fn start() -> Deployment {
    Deployment::with_jobs(crate::registry::all, |_| ()).await
}

async fn purged(deployment: &Deployment) {
    deployment.engine.ship_journal().await.expect("ships");
    let parameters = CollectParameters { now: true, ..CollectParameters::default() };
    deployment.engine.collect_as(parameters).await.expect("collects");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_encrypted_anew_reads_as_before_and_its_old_key_is_shredded() {
    let deployment = start().await;
    let stored = filled(&deployment).await;
    let engine = deployment.engine.clone();
    let head = async |key: &str| {
        let bucket = deployment.bucket("sealed").await;
        engine.read.head(&bucket, key).await.expect("read").expect("is there")
    };
    let before = head("v-2").await;
    assert_eq!(before.facts.storage.form, Form::Delta);

    let report = reencrypt(&deployment).await;
    assert_eq!((&report["epoch"], &report["objects"], &report["left"]), (&json!(2), &json!(6), &json!(0)), "{report}");
    let old = dependents(&deployment, 1).await;
    assert!(old.is_unused() && old.dying > 0, "{old:?}");
    assert_whole(&deployment, &stored).await;
    let after = head("v-2").await;
    assert_eq!(after.facts.storage.form, Form::Delta, "a delta stays one");
    assert_eq!((after.version.id, after.version.modified_ms), (before.version.id, before.version.modified_ms));
    assert_eq!(dependents(&deployment, 2).await.versions, 6);

    let told = engine.keys.shred("sealed").await.expect("told");
    assert!(!told.shredded && told.obstacles[0].contains("wait for their purge"), "{told:?}");
    purged(&deployment).await;
    let told = engine.keys.shred("sealed").await.expect("told");
    assert!(told.shredded && told.obstacles.is_empty(), "{told:?}");
    assert_eq!((told.keys.len(), told.keysets), (1, 2));
    let epochs: Vec<u32> = engine.keys.list().await.expect("lists").keys.iter().map(|key| key.epoch).collect();
    assert_eq!(epochs, [0, 2]);
    let check = engine.keys.verify().await.expect("verifies");
    assert_eq!((check.problems, check.outdated), (Vec::new(), 0));

    drop(engine);
    let dir = deployment.stop().await;
    let deployment = Deployment::reopened(dir, crate::registry::all, |_| ()).await;
    assert_whole(&deployment, &stored).await;
    assert!(deployment.engine.keys.shredding("sealed").await.expect("told").keys.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_on_which_something_depends_is_not_shredded_and_what_would_be_lost_is_told() {
    let deployment = start().await;
    let stored = filled(&deployment).await;
    let bucket = deployment.bucket("sealed").await;
    let upload =
        deployment.engine.uploads.create_upload(&bucket, "open", "owner", VersionFacts::default()).await.expect("new");
    let part =
        deployment.stage(&bucket, Destination::Part { key: "open".into(), upload, number: 1 }, &stored[0].1).await;
    let name = PartName { key: "open", upload, number: 1 };
    let facts = PartFacts { size: stored[0].1.len() as u64, ..PartFacts::default() };
    deployment.engine.publisher.publish_part(&bucket, name, part, facts).await.expect("stored");
    // A handle of before writes after the epoch opened, as an upload does that began before.
    reencrypt(&deployment).await;
    deployment.put(&bucket, "late", &content(MIB, 9)).await;
    let keys = &deployment.engine.keys;
    let told = keys.shred("sealed").await.expect("told");
    assert!(!told.shredded);
    let said = told.obstacles.join("\n");
    assert!(said.contains("metadata of 1 versions"), "{said}");
    assert!(said.contains("2 uploads and parts"), "{said}");
    // The part completes with the new key's handle, and what was late is taken along.
    let bucket = deployment.bucket("sealed").await;
    let parts = deployment.engine.uploads.parts(&bucket, "open", upload, 0, 10).await.expect("parts");
    let completion = Completion { upload, parts, parts_digest: [1; 32] };
    let publisher = &deployment.engine.publisher;
    publisher
        .complete(&bucket, "open", completion, VersionFacts::default(), Precondition::None)
        .await
        .expect("completes");
    assert!(deployment.get(&bucket, "open", 0..stored[0].1.len()).await == stored[0].1);
    reencrypt(&deployment).await;
    let told = keys.shredding("sealed").await.expect("told");
    assert_eq!(told.keys.iter().map(|key| key.blobs + key.versions).sum::<u64>(), 0, "{told:?}");
    assert_whole(&deployment, &stored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_a_bucket_of_before_reads_what_is_sealed_later_and_cannot_write_after_the_shredding() {
    let deployment = start().await;
    let stored = filled(&deployment).await;
    let old = deployment.bucket("sealed").await;
    reencrypt(&deployment).await;
    let fresh = deployment.bucket("sealed").await;
    let bytes = content(MIB, 7);
    deployment.put(&fresh, "later", &bytes).await;
    assert!(deployment.get(&old, "later", 0..bytes.len()).await == bytes);
    purged(&deployment).await;
    assert!(deployment.engine.keys.shred("sealed").await.expect("told").shredded);
    let staged = deployment.stage(&old, Destination::Object { key: "k".into() }, &bytes).await;
    let refused =
        deployment.engine.publisher.publish(&old, "k", staged, VersionFacts::default(), Precondition::None).await;
    assert!(matches!(refused, Err(EngineError::KeyGone)), "{:?}", refused.map(drop));
    let fresh = deployment.bucket("sealed").await;
    deployment.put(&fresh, "k", &bytes).await;
    assert!(deployment.get(&fresh, "k", 0..bytes.len()).await == bytes);
    // It hears of what comes after a shredding, too.
    reencrypt(&deployment).await;
    let fresh = deployment.bucket("sealed").await;
    deployment.put(&fresh, "third", &bytes[1..]).await;
    assert!(deployment.get(&old, "third", 0..bytes.len() - 1).await == bytes[1..]);
    assert_whole(&deployment, &stored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_before_keeps_the_key() {
    let deployment = start().await;
    filled(&deployment).await;
    deployment.engine.jobs.run_job("backup", Value::Null).await.expect("backs up");
    reencrypt(&deployment).await;
    purged(&deployment).await;
    let told = deployment.engine.keys.shred("sealed").await.expect("told");
    assert_eq!((told.shredded, told.backups.len()), (false, 1), "{told:?}");
    assert!(told.obstacles.iter().any(|why| why.contains("past their retention")), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_not_encrypted_is_not_encrypted_anew() {
    let deployment = start().await;
    deployment.bucket("delta").await;
    let refused = deployment.engine.jobs.run_job("reencrypt", json!({ "bucket": "delta" })).await;
    assert!(matches!(refused, Err(EngineError::JobRefused(_))), "{refused:?}");
    assert!(deployment.engine.keys.shredding("delta").await.expect("told").keys.is_empty());
    assert!(matches!(deployment.engine.keys.shredding("none").await, Err(EngineError::NoBucket)));
}

/// A sealed bucket whose small objects lie in packs.
async fn packed(deployment: &Deployment) -> Vec<BlobRow> {
    let bucket = deployment.bucket("sealed").await;
    deployment.put_documents(&bucket, 0..300).await;
    let report = deployment.pack(&mut crate::background::packs::PackCursor::default(), true).await;
    assert_eq!(report.objects, 300, "{report:?}");
    packs_of(deployment).await
}

async fn packs_of(deployment: &Deployment) -> Vec<BlobRow> {
    let catalog = deployment.engine.catalog();
    let uses = catalog.packs(BlobKey([0; 16]), 100).await.expect("asked");
    catalog.blobs(&uses.iter().map(|pack| pack.blob).collect::<Vec<_>>()).await.expect("asked")
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_stay_packs_under_the_other_key_and_the_one_of_before_is_shredded() {
    let deployment = start().await;
    let before = packed(&deployment).await;
    let report = reencrypt(&deployment).await;
    assert_eq!((&report["left"], &report["failed"]), (&json!(0), &json!(0)), "{report}");
    assert_eq!(report["converted"]["reencrypt"]["blobs"], before.len(), "{report}");
    purged(&deployment).await;
    let told = deployment.engine.keys.shred("sealed").await.expect("told");
    assert!(told.shredded, "{told:?}");

    deployment.engine.drop_caches();
    let after = packs_of(&deployment).await;
    assert!(after.len() == before.len() && after.iter().all(|row| row.key_epoch == 2), "{after:?}");
    let bucket = deployment.bucket("sealed").await;
    for number in 0..300 {
        let expected = super::packing::document(number);
        let got = deployment.get(&bucket, &format!("orders/{number}.json"), 0..expected.len()).await;
        assert!(got == expected, "{number}");
    }
    let id = BlobId(after[0].id.0).to_string();
    let told = deployment.engine.reports.inspect(&id).await.expect("inspected").expect("known");
    assert!(told["members"].as_array().is_some_and(|members| members.len() >= 2), "{told}");
    let report = deployment.engine.jobs.run_job("scrub", json!({})).await.expect("scrubbed");
    assert_eq!(report["counts"]["damaged"], 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_cannot_be_read_is_tried_once_in_a_pass_and_told_once() {
    let deployment = start().await;
    let packs = packed(&deployment).await;
    deployment.damage(&packs[0]);
    let report = reencrypt(&deployment).await;
    // The facts of its members are sealed anew, so there is a second pass.
    assert_eq!((&report["left"], &report["failed"]), (&json!(1), &json!(2)), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shredding_that_was_interrupted_is_told_and_gone_on_with() {
    let deployment = start().await;
    let stored = filled(&deployment).await;
    reencrypt(&deployment).await;
    purged(&deployment).await;
    let engine = &deployment.engine;
    // As a process leaves it that ends between the catalog and the keysets.
    let bucket = deployment.bucket("sealed").await;
    engine.catalog().remove_keys(bucket.row.id, &[1]).await.expect("removed");
    let told = engine.keys.shredding("sealed").await.expect("told");
    assert_eq!((told.keys.len(), told.unfinished), (0, 2), "{told:?}");
    let told = engine.keys.shred("sealed").await.expect("told");
    assert_eq!((told.shredded, told.keysets, told.unfinished), (true, 2, 0), "{told:?}");

    // One that is damaged may hold anything.
    let named = deployment.bucket("sealed").await.settings.keysets[0].id.clone();
    let name = BlobName::new(format!("keyset/{named}")).expect("a name");
    let disk = LocalBackend::open(deployment.dir.path().join("blobs"), LocalOptions::default()).await.expect("opens");
    disk.delete(&name).await.expect("removed");
    put_bytes(&disk, &name, Bytes::from_static(b"damaged")).await.expect("written");
    assert_eq!(engine.keys.shredding("sealed").await.expect("told").unfinished, 1);
    assert_eq!(engine.keys.shred("sealed").await.expect("told").keysets, 1);
    let told = engine.keys.shred("sealed").await.expect("told");
    assert!(!told.shredded && told.unfinished == 0 && told.obstacles.is_empty(), "{told:?}");
    assert_eq!(engine.keys.verify().await.expect("verifies").problems, Vec::<String>::new());
    assert_whole(&deployment, &stored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_epoch_was_taken_back_lets_it_seal_again() {
    let deployment = start().await;
    filled(&deployment).await;
    let bucket = deployment.bucket("sealed").await;
    let before = bucket.row.settings.clone();
    reencrypt(&deployment).await;
    let catalog = deployment.engine.catalog();
    let (settings, id) = (deployment.bucket("sealed").await.row.settings.clone(), bucket.row.id);
    let mut back = settings.clone();
    back["domain_keys"] = json!({ "oldest": 0, "sealing": 1, "newest": 2, "unused_since": 0 });
    assert!(before.get("domain_keys").is_none());
    catalog.set_bucket_settings(id, back).await.expect("set");
    let reencryptor = &deployment.engine.workers.reencryptor;
    let bucket = reencryptor.bucket_sealing_in("sealed", 2).await.expect("seals");
    assert_eq!(bucket.key_epoch(), 2);
    let refused = reencryptor.bucket_sealing_in("sealed", 1).await.err().expect("another run has gone on");
    assert!(refused.to_string().contains("no longer with key 1"), "{refused}");
}

/// Gives a version other facts and leaves its content.
pub(super) fn of_facts_alone(content: &Content, facts: Vec<u8>) -> RewriteCommit {
    RewriteCommit {
        old_facts: None,
        bucket: content.version.bucket,
        facts,
        extents_digest: content.version.extents_digest,
        key: content.version.key.clone(),
        id: content.version.id,
        old_extents: content.extents.clone(),
        new_extents: content.extents.clone(),
        epoch: 1,
        new_blobs: Vec::new(),
        notices: Vec::new(),
        now_ms: 0,
    }
}

/// Seals the facts of a version with the key of before again, whenever anybody is about to change
/// something.
#[derive(Default)]
struct Restless {
    of: OnceLock<(Arc<dyn Catalog>, BucketHandle)>,
    is_armed: AtomicBool,
}

#[async_trait]
impl Gate for Restless {
    async fn admit(&self) -> Result<(), CatalogError> {
        if !self.is_armed.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let (catalog, old) = self.of.get().expect("is set");
        let content = catalog.content(old.row.id, "empty").await?.expect("is there");
        let place = RowPlace::of(&content.version);
        let facts = old.open_facts(place, &content.version.facts).expect("open");
        let facts = old.seal_facts(place, facts.into_owned()).expect("sealed");
        catalog.rewrite(of_facts_alone(&content, facts)).await?;
        self.is_armed.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn pass(&self, _run: ServerRun) -> Result<(), CatalogError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_others_change_all_the_time_is_told_as_left() {
    let dir = TempDir::new().expect("a temporary directory");
    let metrics = Metrics::new();
    let quiet = EngineConfig { schedule_jobs: false, ..config(dir.path(), 512 << 20) };
    let stores = stores(dir.path(), &metrics).await.expect("stores open");
    // The first gate stays, so it is there before the engine's own.
    let gate = Arc::new(Restless::default());
    stores.catalog.acknowledge_behind(gate.clone());
    let engine = Engine::open_with(quiet, stores, metrics.clone(), crate::registry::all).await.expect("opens");
    let deployment = Deployment { engine, metrics, dir };
    let bucket = deployment.bucket("sealed").await;
    deployment.put(&bucket, "empty", b"").await;
    deployment.put(&bucket, "small", b"a few bytes").await;
    assert!(gate.of.set((deployment.engine.catalog().clone(), bucket)).is_ok());
    gate.is_armed.store(true, Ordering::Relaxed);
    let report = reencrypt(&deployment).await;
    gate.is_armed.store(false, Ordering::Relaxed);
    assert_eq!(report["left"], 1, "{report}");
    assert_eq!(dependents(&deployment, 1).await.versions, 1);
    assert_eq!(reencrypt(&deployment).await["left"], 0);
}
