//! Plain objects of a bucket that does not seal are encrypted where they are, when its default
//! encryption asks for it.

use super::{reencrypting::of_facts_alone, *};
use crate::{
    background::{encrypt::Encryptor, jobs::spec::JobSpec, reencrypt::Reencryptor},
    registry::Workers,
};
use async_trait::async_trait;
use catalog::{BlobKey, Catalog, CatalogError, Gate, ServerRun, VersionEntry, VersionsQuery};
use serde_json::{Value, json};
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Stands for whoever knows the keys: each stretch has a mask of its own, which its salt tells.
#[derive(Default)]
struct Masks {
    begun: Arc<AtomicU64>,
    is_silent: AtomicBool,
}

struct MaskKey(Arc<AtomicU64>);

struct Mask(u64);

impl Veil for Mask {
    fn apply(&self, at: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
        for (place, byte) in (at..).zip(bytes) {
            let mixed = (place ^ self.0 << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte ^= (mixed ^ mixed >> 29) as u8 | 1;
        }
        Ok(())
    }
}

impl ContentKey for MaskKey {
    fn facts(&self) -> ObjectEncryption {
        ObjectEncryption { algorithm: "AES256".into(), check: "checked".into(), ..ObjectEncryption::default() }
    }

    fn begin_stretch(&self) -> Result<(String, Arc<dyn Veil>), EngineError> {
        let salt = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        Ok((salt.to_string(), Arc::new(Mask(salt))))
    }
}

impl ContentKeys for Masks {
    fn by_default(
        &self,
        configurations: &BTreeMap<String, Value>,
        named: NamedKey<'_>,
    ) -> Result<Option<Box<dyn ContentKey>>, EngineError> {
        if self.is_silent.load(Ordering::Relaxed) {
            return Err(EngineError::ProviderSilent);
        }
        assert_eq!(named("").expect("there is a KEK").len(), 32);
        let key = || Box::new(MaskKey(self.begun.clone())) as Box<dyn ContentKey>;
        Ok(configurations.contains_key("encryption").then(key))
    }
}

/// What takes the masks of some stretches away.
struct Unmasked(Vec<Stretch>);

impl Veil for Unmasked {
    fn apply(&self, mut at: u64, mut bytes: &mut [u8]) -> Result<(), EngineError> {
        let mut start = 0;
        for stretch in &self.0 {
            let end = start + stretch.len;
            if at < end && !bytes.is_empty() {
                let len = usize::try_from(end - at).expect("short").min(bytes.len());
                let (here, rest) = bytes.split_at_mut(len);
                Mask(stretch.salt.parse().expect("a salt")).apply(at - start, here)?;
                (at, bytes) = (end, rest);
            }
            start = end;
        }
        assert!(bytes.is_empty(), "no stretch covers the bytes from {at}");
        Ok(())
    }
}

async fn start_with(keys: Arc<Masks>) -> Deployment {
    Deployment::with_jobs(crate::registry::all, |config| config.content_keys = Some(keys)).await
}

async fn start() -> Deployment {
    start_with(Arc::default()).await
}

/// Jobs of which the one that encrypts makes blobs of a MiB at most.
fn with_short_blobs(config: &EngineConfig, workers: &Workers) -> Vec<JobSpec> {
    let mut specs = crate::registry::all(config, workers);
    specs.pop();
    let (ordered, keys) = (workers.ordered.clone(), config.content_keys.clone());
    let remnants = workers.collector.remnants.clone();
    let encryptor = Arc::new(Encryptor { ordered: ordered.clone(), keys, remnants, blob_len_max: MIB as u64 });
    specs.push(crate::registry::reencrypt(&Arc::new(Reencryptor { ordered, encryptor, alone: true })));
    specs
}

async fn ask_for_encryption(deployment: &Deployment, bucket: &BucketHandle) {
    let set = deployment.engine.buckets.configure_bucket(bucket, "encryption", Some(json!("AES256")));
    set.await.expect("configured");
}

async fn encrypt(deployment: &Deployment) -> Value {
    deployment.engine.jobs.run_job("reencrypt", json!({ "bucket": "delta" })).await.expect("ran")
}

/// Content in every form, three of it under one digest.
async fn filled(deployment: &Deployment, bucket: &BucketHandle) -> Vec<(String, Vec<u8>)> {
    let base = content(3 * MIB, 1);
    let mut stored = vec![
        ("v-1", base.clone()),
        ("v-2", edited(&base, 2)),
        ("w-copy", base.clone()),
        ("parts", content(5 * MIB / 2, 3)),
        ("small", b"a few bytes".to_vec()),
        ("empty", Vec::new()),
    ];
    for (key, bytes) in &stored {
        match *key {
            "parts" => drop(deployment.put_in_parts(bucket, key, bytes, MIB).await),
            _ => drop(deployment.put(bucket, key, bytes).await),
        }
    }
    // A day later.
    deployment.engine.catalog().forget_completed_uploads(i64::MAX).await.expect("forgets");
    deployment.put_documents(bucket, 0..200).await;
    let report = deployment.pack(&mut crate::background::packs::PackCursor::default(), true).await;
    assert!(report.objects >= 200, "{report:?}");
    let documents: Vec<(String, Vec<u8>)> =
        (0..200).map(|number| (format!("orders/{number}.json"), super::packing::document(number))).collect();
    stored.drain(..).map(|(key, bytes)| (key.to_owned(), bytes)).chain(documents).collect()
}

async fn versions_of(deployment: &Deployment, bucket: &BucketHandle) -> Vec<catalog::Version> {
    let query = VersionsQuery {
        bucket: bucket.row.id,
        prefix: String::new(),
        delimiter: None,
        key_after: None,
        version_after: None,
        limit: 1000,
    };
    let page = deployment.engine.catalog().list_versions(&query).await.expect("listed");
    let version = |entry| match entry {
        VersionEntry::Version { version, .. } => Some(version),
        _ => None,
    };
    page.entries.into_iter().filter_map(version).collect()
}

/// What is stored of a version, and that without its veil.
async fn read(deployment: &Deployment, bucket: &BucketHandle, key: &str) -> (Vec<u8>, Vec<u8>) {
    let object = deployment.engine.read.open_object(bucket, key).await.expect("opened").expect("exists");
    let encryption = object.info.facts.encryption.clone();
    let size = object.info.version.size;
    let mut read = Vec::new();
    for veil in [None, encryption.map(|encryption| Arc::new(Unmasked(encryption.stretches)) as Arc<dyn Veil>)] {
        let pieces = deployment.engine.read.read_unveiled(&object, 0..size, veil);
        read.push(pieces.try_collect::<Vec<Bytes>>().await.expect("read").concat());
    }
    let plain = read.pop().expect("two");
    (read.pop().expect("two"), plain)
}

async fn assert_encrypted(deployment: &Deployment, stored: &[(String, Vec<u8>)]) {
    deployment.engine.drop_caches();
    let bucket = deployment.bucket("delta").await;
    for (key, bytes) in stored {
        let (veiled, plain) = read(deployment, &bucket, key).await;
        assert!(plain == *bytes, "{key}");
        assert!(bytes.is_empty() || veiled != plain, "{key} is stored as it is");
    }
}

async fn blobs_of(deployment: &Deployment, bucket: &BucketHandle) -> Vec<BlobRow> {
    let mut rows: BTreeMap<BlobKey, BlobRow> = BTreeMap::new();
    for version in versions_of(deployment, bucket).await {
        let content = deployment.engine.catalog().version(bucket.row.id, &version.key, version.id).await;
        let content = content.expect("read").expect("is there");
        rows.extend(content.blobs.into_iter().map(|row| (row.id, row)));
    }
    rows.into_values().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_objects_of_every_form_are_encrypted_where_they_are_and_nothing_of_before_stays() {
    let deployment = start().await;
    let bucket = deployment.bucket("delta").await;
    let stored = filled(&deployment, &bucket).await;
    let before = versions_of(&deployment, &bucket).await;
    let old: Vec<BlobKey> = blobs_of(&deployment, &bucket).await.iter().map(|row| row.id).collect();
    assert!(deployment.engine.read.head(&bucket, "v-2").await.unwrap().unwrap().facts.storage.form == Form::Delta);
    ask_for_encryption(&deployment, &bucket).await;

    let report = encrypt(&deployment).await;
    let bytes: usize = stored.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((&report["objects"], &report["encrypted"]), (&json!(206), &json!(206)), "{report}");
    assert_eq!((&report["encrypted_bytes"], &report["left"]), (&json!(bytes), &json!(0)), "{report}");
    assert_encrypted(&deployment, &stored).await;
    let after = versions_of(&deployment, &bucket).await;
    for (old, new) in before.iter().zip(&after) {
        let (was, is) =
            (deployment.engine.read.open_facts(&bucket, old), deployment.engine.read.open_facts(&bucket, new));
        let (was, is) = (was.expect("facts"), is.expect("facts"));
        let encryption = is.encryption.clone().expect("it is encrypted");
        let len: u64 = encryption.stretches.iter().map(|stretch| stretch.len).sum();
        assert_eq!((len, encryption.stretches.len()), (new.size, 1), "{}", new.key);
        assert_eq!(VersionFacts { encryption: None, storage: was.storage.clone(), ..is }, was, "{}", new.key);
        let same = |version: &catalog::Version| (version.id, version.seq, version.modified_ms, version.size);
        assert_eq!(same(old), same(new), "{}", new.key);
    }
    let salts = blobs_of(&deployment, &bucket).await;
    assert!(salts.iter().all(|row| row.digest.is_none() && row.form == catalog::BlobForm::Whole));

    deployment.engine.ship_journal().await.expect("ships");
    deployment.engine.collect(true).await.expect("collected");
    assert_eq!(deployment.engine.catalog().blobs(&old).await.expect("asked"), Vec::new(), "old blobs are gone");
    assert_encrypted(&deployment, &stored).await;
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
    let stats = deployment.engine.catalog().stats().await.expect("stats");
    let stats = stats.iter().find(|stats| stats.name == "delta").expect("listed");
    assert_eq!((stats.objects, stats.logical_bytes), (206, bytes as u64));

    // A second run looks and finds nothing to do.
    let report = encrypt(&deployment).await;
    assert_eq!((&report["encrypted"], &report["already"]), (&json!(0), &json!(206)), "{report}");
    // What other jobs make of it stays what it is.
    deployment.pack(&mut crate::background::packs::PackCursor::default(), true).await;
    let scrubbed = deployment.engine.jobs.run_job("scrub", json!({})).await.expect("scrubbed");
    assert_eq!(scrubbed["counts"]["damaged"], 0, "{scrubbed}");
    assert_encrypted(&deployment, &stored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_longer_than_a_blob_is_encrypted_in_several_stretches() {
    let change = |config: &mut EngineConfig| config.content_keys = Some(Arc::new(Masks::default()));
    let deployment = Deployment::with_jobs(with_short_blobs, change).await;
    let bucket = deployment.bucket("delta").await;
    let stored = filled(&deployment, &bucket).await;
    ask_for_encryption(&deployment, &bucket).await;
    let report = encrypt(&deployment).await;
    assert_eq!(report["encrypted"], 206, "{report}");
    assert_encrypted(&deployment, &stored).await;
    let facts = deployment.engine.read.head(&bucket, "parts").await.expect("read").expect("is there").facts;
    let lens: Vec<u64> = facts.encryption.expect("encrypted").stretches.iter().map(|stretch| stretch.len).collect();
    assert_eq!(lens, [MIB as u64, MIB as u64, MIB as u64 / 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_whose_default_encrypts_nothing_is_refused_in_words_that_name_both_ways() {
    let keys = Arc::<Masks>::default();
    let deployment = start_with(keys.clone()).await;
    let bucket = deployment.bucket("delta").await;
    let stored = filled(&deployment, &bucket).await;
    let run = async || deployment.engine.jobs.run_job("reencrypt", json!({ "bucket": "delta" })).await;
    let refused = run().await.expect_err("there is no default").to_string();
    assert!(refused.contains("PutBucketEncryption") && refused.contains("encryption = \"aes256\""), "{refused}");
    ask_for_encryption(&deployment, &bucket).await;
    keys.is_silent.store(true, Ordering::Relaxed);
    let refused = run().await.expect_err("nobody gives the key");
    assert!(matches!(refused, EngineError::ProviderSilent), "{refused}");
    keys.is_silent.store(false, Ordering::Relaxed);
    run().await.expect("ran");
    assert_encrypted(&deployment, &stored).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_began_before_completes_plain_and_the_next_run_encrypts_it() {
    let deployment = start().await;
    let bucket = deployment.bucket("delta").await;
    let uploads = &deployment.engine.uploads;
    let upload = uploads.create_upload(&bucket, "late", "owner", VersionFacts::default()).await.expect("begun");
    let bytes = content(MIB, 5);
    let part = Destination::Part { key: "late".into(), upload, number: 1 };
    let staged = deployment.stage(&bucket, part, &bytes).await;
    let facts = PartFacts { size: bytes.len() as u64, ..PartFacts::default() };
    let publisher = &deployment.engine.publisher;
    publisher.publish_part(&bucket, PartName { key: "late", upload, number: 1 }, staged, facts).await.expect("stored");
    ask_for_encryption(&deployment, &bucket).await;
    let report = encrypt(&deployment).await;
    assert_eq!((&report["encrypted"], &report["uploads"]), (&json!(0), &json!(1)), "{report}");
    let parts = uploads.parts(&bucket, "late", upload, 0, 10).await.expect("parts");
    let completion = Completion { upload, parts, parts_digest: [1; 32] };
    let completed = publisher.complete(&bucket, "late", completion, VersionFacts::default(), Precondition::None);
    completed.await.expect("completed");
    assert!(deployment.get(&bucket, "late", 0..bytes.len()).await == bytes, "plain as before");
    let report = encrypt(&deployment).await;
    assert_eq!((&report["encrypted"], &report["uploads"]), (&json!(1), &json!(0)), "{report}");
    assert_encrypted(&deployment, &[("late".to_owned(), bytes)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_told_as_left_and_the_rest_is_encrypted() {
    let deployment = start().await;
    let bucket = deployment.bucket("off").await;
    let stored: Vec<(String, Vec<u8>)> = (0..4).map(|n| (format!("k-{n}"), content(MIB, 11 + 2 * n))).collect();
    for (key, bytes) in &stored {
        deployment.put(&bucket, key, bytes).await;
    }
    let content = deployment.engine.catalog().content(bucket.row.id, "k-1").await.expect("read").expect("is there");
    deployment.damage(&content.blobs[0]);
    ask_for_encryption(&deployment, &bucket).await;
    let report = deployment.engine.jobs.run_job("reencrypt", json!({ "bucket": "off" })).await.expect("ran");
    assert_eq!((&report["encrypted"], &report["left"]), (&json!(3), &json!(1)), "{report}");
    let facts = deployment.engine.read.head(&bucket, "k-1").await.expect("read").expect("is there").facts;
    assert!(facts.encryption.is_none());
    let (_, plain) = read(&deployment, &bucket, "k-3").await;
    assert!(plain == stored[3].1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_recovered_after_half_a_run_reads_everything() {
    let deployment = start().await;
    let bucket = deployment.bucket("delta").await;
    let stored = filled(&deployment, &bucket).await;
    ask_for_encryption(&deployment, &bucket).await;
    encrypt(&deployment).await;
    let plain = content(MIB, 77);
    deployment.put(&bucket, "z-plain", &plain).await;
    deployment.engine.ship_journal().await.expect("ships");
    let dir = deployment.stop().await;
    let deployment = Deployment::reopened(dir, crate::registry::all, |_| ()).await;
    assert_encrypted(&deployment, &stored).await;
    let bucket = deployment.bucket("delta").await;
    assert!(read(&deployment, &bucket, "z-plain").await.1 == plain);
}

/// Gives a version another tag whenever anybody is about to change something.
#[derive(Default)]
struct Restless {
    of: OnceLock<(Arc<dyn Catalog>, BucketHandle)>,
    is_armed: AtomicBool,
    changes: AtomicU64,
}

#[async_trait]
impl Gate for Restless {
    async fn admit(&self) -> Result<(), CatalogError> {
        if !self.is_armed.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let (catalog, bucket) = self.of.get().expect("is set");
        let content = catalog.content(bucket.row.id, "k").await?.expect("is there");
        let mut facts: Value = serde_json::from_slice(&content.version.facts).expect("facts");
        let changes = self.changes.fetch_add(1, Ordering::Relaxed);
        facts["tags"] = json!({ "changes": changes.to_string() });
        catalog.rewrite(of_facts_alone(&content, serde_json::to_vec(&facts).expect("facts"))).await?;
        self.is_armed.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn pass(&self, _run: ServerRun) -> Result<(), CatalogError> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_others_change_keeps_what_they_said_and_is_told_as_left() {
    let dir = TempDir::new().expect("a temporary directory");
    let metrics = Metrics::new();
    let quiet = EngineConfig {
        schedule_jobs: false,
        content_keys: Some(Arc::new(Masks::default())),
        ..config(dir.path(), 512 << 20)
    };
    let stores = stores(dir.path(), &metrics).await.expect("stores open");
    // The first gate stays, so it is there before the engine's own.
    let gate = Arc::new(Restless::default());
    stores.catalog.acknowledge_behind(gate.clone());
    let engine = Engine::open_with(quiet, stores, metrics.clone(), crate::registry::all).await.expect("opens");
    let deployment = Deployment { engine, metrics, dir };
    let bucket = deployment.bucket("delta").await;
    let bytes = content(MIB, 4);
    deployment.put(&bucket, "k", &bytes).await;
    ask_for_encryption(&deployment, &bucket).await;
    assert!(gate.of.set((deployment.engine.catalog().clone(), bucket.clone())).is_ok());
    gate.is_armed.store(true, Ordering::Relaxed);
    let report = encrypt(&deployment).await;
    gate.is_armed.store(false, Ordering::Relaxed);
    assert_eq!((&report["left"], &report["encrypted"]), (&json!(1), &json!(0)), "{report}");
    assert!(read(&deployment, &bucket, "k").await.0 == bytes, "plain as before");
    assert_eq!(deployment.blob_files().len(), 1, "what came to nothing is gone");
    let report = encrypt(&deployment).await;
    assert_eq!((&report["left"], &report["encrypted"]), (&json!(0), &json!(1)), "{report}");
    let facts = deployment.engine.read.head(&bucket, "k").await.expect("read").expect("is there").facts;
    assert_eq!(facts.tags["changes"], (gate.changes.load(Ordering::Relaxed) - 1).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_source_is_encrypted_meanwhile_is_refused_and_never_other_bytes() {
    let deployment = start().await;
    let bucket = deployment.bucket("delta").await;
    let bytes = content(MIB, 4);
    deployment.put(&bucket, "k", &bytes).await;
    let upload = deployment.engine.uploads.create_upload(&bucket, "parts", "owner", VersionFacts::default());
    let upload = upload.await.expect("begun");
    let source = deployment.engine.read.open_object(&bucket, "k").await.expect("opened").expect("exists");
    ask_for_encryption(&deployment, &bucket).await;
    assert_eq!(encrypt(&deployment).await["encrypted"], 1);
    let publisher = &deployment.engine.publisher;
    let facts = VersionFacts { etag: "e".into(), ..VersionFacts::default() };
    let copied = publisher.publish_copy(&bucket, "copy", &source, facts, Precondition::None).await;
    assert!(matches!(copied, Err(EngineError::Conflict)), "{:?}", copied.map(|copied| copied.storage));
    let name = PartName { key: "parts", upload, number: 1 };
    let facts = PartFacts { size: bytes.len() as u64, ..PartFacts::default() };
    let copied = publisher.publish_part_copy(&bucket, name, &source, 0..bytes.len() as u64, facts).await;
    assert!(matches!(copied, Err(EngineError::Conflict)), "{copied:?}");
    // Who opened it before reads on.
    let pieces = deployment.engine.read.read(&source, 0..bytes.len() as u64);
    assert!(pieces.try_collect::<Vec<Bytes>>().await.expect("read").concat() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn adopted_content_is_told_and_encrypted_once_it_lies_in_blobs_of_ours() {
    let deployment = start().await;
    let bucket = deployment.bucket("delta").await;
    let bytes = content(MIB, 6);
    std::fs::create_dir_all(deployment.dir.path().join("old")).expect("made");
    std::fs::write(deployment.dir.path().join("old/k"), &bytes).expect("written");
    let jobs = &deployment.engine.jobs;
    jobs.run_job("import", json!({ "source": "old", "bucket": "delta" })).await.expect("imported");
    ask_for_encryption(&deployment, &bucket).await;
    let report = encrypt(&deployment).await;
    assert_eq!((&report["encrypted"], &report["adopted"]), (&json!(0), &json!(1)), "{report}");
    assert!(read(&deployment, &bucket, "k").await.1 == bytes);
    jobs.run_job("convert", json!({ "bucket": "delta" })).await.expect("converted");
    let report = encrypt(&deployment).await;
    assert_eq!((&report["encrypted"], &report["adopted"]), (&json!(1), &json!(0)), "{report}");
    assert_encrypted(&deployment, &[("k".to_owned(), bytes)]).await;
}
