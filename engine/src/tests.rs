//! The engine through its own public functions, on a real disk and a real catalog.

mod anchors;
mod collecting;
mod compartments;
mod documents;
mod encrypting;
mod failovers;
mod forks;
mod here;
mod holding;
mod idle;
mod ids;
mod links;
mod memory;
mod merging;
mod packing;
mod pieces;
mod reencrypting;
mod refusing;
mod rot;
mod rotation;
mod scrubbing;
mod sealing;
mod starting;
mod veils;

use crate::*;
use bytes::Bytes;
use catalog::{BlobRow, CommitObserver, Precondition, SqliteCatalog, SqliteOptions};
use crypto::{Digest, Sha256};
use futures::TryStreamExt;
use object_format::{BlobId, SEGMENT_LEN};
use std::{collections::BTreeMap, convert::Infallible, ops::Range, path::Path};
use storage_backends::{Backend, LocalBackend, LocalOptions, Measured, PlainDirectory};
use tempfile::TempDir;

mod choosing;

pub(crate) const MIB: usize = 1 << 20;

pub(crate) struct Deployment {
    pub(crate) engine: Arc<Engine>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) dir: TempDir,
}

pub(crate) fn settings(compression: Compression, encryption: Encryption) -> BucketSettings {
    BucketSettings {
        compression,
        encryption,
        effort: EffortSetting::Auto,
        backend: "local".into(),
        read_through: None,
        keysets: Vec::new(),
        configurations: Default::default(),
        isolation: None,
        storage_headers: Default::default(),
    }
}

pub(crate) fn config(dir: &Path, memory_bytes_max: u64) -> EngineConfig {
    let buckets = BTreeMap::from([
        ("delta".to_owned(), settings(Compression::Delta, Encryption::Off)),
        ("sealed".to_owned(), settings(Compression::Delta, Encryption::Aes256)),
        ("off".to_owned(), settings(Compression::Off, Encryption::Off)),
    ]);
    EngineConfig {
        data: dir.to_owned(),
        defaults: settings(Compression::Delta, Encryption::Off),
        buckets,
        memory_bytes_max,
        spool_bytes_max: 1 << 30,
        kek: None,
        keyring: None,
        key_providers: crate::KeyProviders::default(),
        content_keys: None,
        codec_threads: Some(2),
        gc_grace: Duration::from_secs(300),
        unfinished_age: Duration::from_secs(86_400),
        gc_interval: Duration::from_secs(3600),
        gc_trash: Duration::from_secs(86_400),
        base_copies: 0,
        second_copies: SecondCopies::None,
        scrub: ScrubConfig::default(),
        writer_lease: Duration::from_secs(60),
        upload_age_max: Duration::from_secs(86400),
        open_uploads_per_user_max: 10_000,
        lifecycle_day: Duration::from_secs(86_400),
        safety: SafetyConfig {
            backend: "local".into(),
            journal_interval: Duration::from_secs(3600),
            backup_interval: None,
            backup_retention: Duration::from_secs(3600),
            anchor: None,
            accept_older_catalog: false,
            encrypts: false,
        },
        eject_roots: Vec::new(),
        schedule_jobs: true,
        effort_by_load: true,
        notify: crate::config::NotifyConfig::default(),
        // A machine under load would store some of the content of these tests later.
        convert: ConvertConfig {
            defer: false,
            interval: Duration::from_secs(3600),
            free_bytes_min: 0,
            ..ConvertConfig::default()
        },
    }
}

pub(crate) async fn open_catalog(dir: &Path, metrics: &Arc<Metrics>) -> Result<Arc<dyn Catalog>, EngineError> {
    let observer: Arc<dyn CommitObserver> = Arc::new(CatalogMetrics(metrics.clone()));
    // A machine under load makes any read slow.
    let read_at_once_max = Duration::MAX;
    let options = SqliteOptions { observer: Some(observer), read_at_once_max, ..SqliteOptions::default() };
    Ok(Arc::new(SqliteCatalog::open(dir.join("catalog.sqlite"), options).await?))
}

/// An embedded catalog, the backend `local`, and `old` and `local` as stores of plain objects, all
/// of them below `dir`.
pub(crate) async fn stores(dir: &Path, metrics: &Arc<Metrics>) -> Result<Stores, EngineError> {
    make_private_dir(dir)?;
    stores_over(dir, metrics, open_catalog(dir, metrics).await?).await
}

/// The same with a catalog that is open.
pub(crate) async fn stores_over(
    dir: &Path,
    metrics: &Arc<Metrics>,
    catalog: Arc<dyn Catalog>,
) -> Result<Stores, EngineError> {
    let observer = |name: &str| Arc::new(BackendMetrics { backend: name.to_owned(), metrics: metrics.clone() });
    let local = LocalBackend::open(dir.join("blobs"), LocalOptions::default()).await?;
    let local: Arc<dyn Backend> = Arc::new(Measured::new(local, observer("local")));
    let plain = |name: &str, directory: &str, ours: Vec<String>| {
        let plain = Arc::new(Measured::new(PlainDirectory::new(dir.join(directory)), observer(name)));
        (name.to_owned(), PlainPlace { plain, writer: None, ours })
    };
    let originals =
        Originals::new(BTreeMap::from([plain("old", "old", Vec::new()), plain("local", "blobs", vec![String::new()])]));
    let stores = Stores::new(catalog, BTreeMap::from([("local".to_owned(), local)]));
    let directories = BTreeMap::from([("local".to_owned(), dir.join("blobs"))]);
    Ok(Stores { directories, originals, ..stores })
}

/// An engine over the stores in its data directory.
pub(crate) async fn open(config: EngineConfig, metrics: &Arc<Metrics>) -> Result<Arc<Engine>, EngineError> {
    let stores = stores(&config.data, metrics).await?;
    Engine::open(config, stores, metrics.clone()).await
}

impl Deployment {
    pub(crate) async fn start(memory_bytes_max: u64) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let metrics = Metrics::new();
        let engine = open(config(dir.path(), memory_bytes_max), &metrics).await.expect("opens");
        Self { engine, metrics, dir }
    }

    /// One with other background jobs than the program's.
    pub(crate) async fn with_jobs(
        jobs: impl FnOnce(&EngineConfig, &Workers) -> Vec<JobSpec>,
        change: impl FnOnce(&mut EngineConfig),
    ) -> Self {
        Self::reopened(TempDir::new().expect("a temporary directory"), jobs, change).await
    }

    /// The same over a store that is there.
    pub(crate) async fn reopened(
        dir: TempDir,
        jobs: impl FnOnce(&EngineConfig, &Workers) -> Vec<JobSpec>,
        change: impl FnOnce(&mut EngineConfig),
    ) -> Self {
        Self::wrapped(dir, jobs, change, |backend| backend).await
    }

    /// The same with something between the engine and its backends.
    pub(crate) async fn wrapped(
        dir: TempDir,
        jobs: impl FnOnce(&EngineConfig, &Workers) -> Vec<JobSpec>,
        change: impl FnOnce(&mut EngineConfig),
        wrap: impl Fn(Arc<dyn Backend>) -> Arc<dyn Backend>,
    ) -> Self {
        let metrics = Metrics::new();
        let mut config = config(dir.path(), 512 << 20);
        change(&mut config);
        let mut stores = self::stores(&config.data, &metrics).await.expect("stores open");
        stores.backends = stores.backends.into_iter().map(|(name, backend)| (name, wrap(backend))).collect();
        let engine = Engine::open_with(config, stores, metrics.clone(), jobs).await.expect("opens");
        Self { engine, metrics, dir }
    }

    /// Ends the process in good order; gives what is left.
    pub(crate) async fn stop(self) -> TempDir {
        self.engine.shutdown().await;
        self.dir
    }

    pub(crate) async fn bucket(&self, name: &str) -> BucketHandle {
        match self.engine.buckets.bucket(name).await.expect("catalog answers") {
            Some(bucket) => bucket,
            None => self.engine.buckets.create_bucket(name, "owner").await.expect("created").expect("name was free"),
        }
    }

    pub(crate) async fn stage(
        &self,
        bucket: &BucketHandle,
        destination: Destination,
        content: &[u8],
    ) -> StagedBody<()> {
        let pieces: Vec<Result<Bytes, Infallible>> =
            content.chunks(70_001).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let body = futures::stream::iter(pieces);
        self.engine
            .stager
            .stage(bucket, destination, Some(content.len() as u64), body, ContentDigest::default())
            .await
            .expect("staged")
    }

    pub(crate) async fn put(&self, bucket: &BucketHandle, key: &str, content: &[u8]) -> PublishedVersion {
        let staged = self.stage(bucket, Destination::Object { key: key.into() }, content).await;
        assert_eq!(staged.sha256, (!bucket.is_veiled()).then(|| Sha256::digest(content).into()));
        let facts = VersionFacts { etag: "e".into(), ..VersionFacts::default() };
        self.engine.publisher.publish(bucket, key, staged, facts, Precondition::None).await.expect("published")
    }

    /// Uploads in parts, the last one first.
    pub(crate) async fn put_in_parts(
        &self,
        bucket: &BucketHandle,
        key: &str,
        content: &[u8],
        part_len: usize,
    ) -> PublishedVersion {
        let upload =
            self.engine.uploads.create_upload(bucket, key, "owner", VersionFacts::default()).await.expect("created");
        let parts: Vec<(u32, &[u8])> = (1..).zip(content.chunks(part_len)).collect();
        for (number, part) in parts.into_iter().rev() {
            let staged = self.stage(bucket, Destination::Part { key: key.into(), upload, number }, part).await;
            let facts = PartFacts { size: part.len() as u64, ..PartFacts::default() };
            let stored =
                self.engine.publisher.publish_part(bucket, PartName { key, upload, number }, staged, facts).await;
            assert!(stored.expect("stored") > 0);
        }
        let parts = self.engine.uploads.parts(bucket, key, upload, 0, 10_000).await.expect("parts");
        let completion = Completion { upload, parts, parts_digest: [1; 32] };
        let before = self.read_bytes();
        let completed =
            self.engine.publisher.complete(bucket, key, completion, VersionFacts::default(), Precondition::None).await;
        assert_eq!(self.read_bytes(), before, "complete moves no bytes");
        completed.expect("completed")
    }

    pub(crate) async fn get(&self, bucket: &BucketHandle, key: &str, range: Range<usize>) -> Vec<u8> {
        let object = self.engine.read.open_object(bucket, key).await.expect("opened").expect("exists");
        let pieces: Vec<Bytes> =
            self.engine.read.read(&object, range.start as u64..range.end as u64).try_collect().await.expect("read");
        pieces.concat()
    }

    pub(crate) async fn delete(&self, bucket: &BucketHandle, key: &str) {
        self.engine
            .changes
            .delete(bucket, key, Precondition::None, None)
            .await
            .expect("deleted")
            .removed
            .expect("existed");
    }

    pub(crate) fn blob_files(&self) -> Vec<std::path::PathBuf> {
        let mut files = Vec::new();
        let mut dirs = vec![self.dir.path().join("blobs")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_dir() { dirs.push(path) } else { files.push(path) }
            }
        }
        let blobs = self.dir.path().join("blobs/blobs");
        files.retain(|file| file.starts_with(&blobs));
        files
    }

    /// Changes one bit in the middle of what is stored of a blob, and drops what was read of it.
    pub(crate) fn damage(&self, row: &BlobRow) {
        let name = hex::encode(row.id.0);
        let file = self.blob_files().into_iter().find(|file| file.to_string_lossy().contains(&name));
        let file = file.expect("it lies there");
        let mut bytes = std::fs::read(&file).expect("readable");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::remove_file(&file).expect("removed");
        std::fs::write(&file, bytes).expect("written");
        self.engine.drop_caches();
    }

    fn read_bytes(&self) -> u64 {
        self.metrics.backend_bytes_total.with_label_values(&["local", "read"]).get()
    }
}

/// Content that zstd shrinks a little and that has no repeats of its own.
pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8 & 0x3f
    })
    .take(len)
    .collect()
}

/// The next version: scattered edits, one insertion.
pub(crate) fn edited(content: &[u8], seed: u64) -> Vec<u8> {
    let mut next = content.to_vec();
    let mut at = 1000 + usize::try_from(seed % 977).expect("small");
    while at < next.len() {
        next[at] ^= 0x15;
        at += 50_021;
    }
    let middle = next.len() / 2;
    next.splice(middle..middle, std::iter::repeat_n(7, 333));
    next
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_shrink_to_deltas_and_every_range_gives_the_original_bytes() {
    let deployment = Deployment::start(512 << 20).await;
    for bucket in ["delta", "sealed"] {
        let bucket = deployment.bucket(bucket).await;
        let v1 = content(9 * MIB + 77, 1);
        let v2 = edited(&v1, 2);
        let v3 = edited(&v2, 3);
        let first = deployment.put(&bucket, "r/app-1.bin", &v1).await;
        assert_eq!(first.storage.form, Form::Zstd);
        for (key, version) in [("r/app-2.bin", &v2), ("r/app-3.bin", &v3)] {
            let published = deployment.put(&bucket, key, version).await;
            assert_eq!(published.storage.form, Form::Delta, "{:?}", published.storage);
            assert!(published.storage.stored_bytes < version.len() as u64 / 20, "{:?}", published.storage);
            let len = version.len();
            for range in [0..len, 0..1, len - 1..len, 4 * MIB - 3..4 * MIB + 3, 5 * MIB..5 * MIB + 70_000, 3..3] {
                assert!(deployment.get(&bucket, key, range.clone()).await == version[range.clone()], "{key} {range:?}");
            }
        }
        let info = deployment.engine.read.head(&bucket, "r/app-3.bin").await.expect("head").expect("exists");
        assert_eq!((info.version.size, info.facts.storage.form), (v3.len() as u64, Form::Delta));
        // The key itself is the best base of its next version.
        let again = deployment.put(&bucket, "r/app-1.bin", &v2[100..]).await;
        assert_eq!(again.storage.form, Form::Delta);
        assert!(deployment.get(&bucket, "r/app-1.bin", 0..v2.len() - 100).await == v2[100..]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_many_regions_is_encoded_within_a_small_budget() {
    // 128 MiB of budget make windows of 8 MiB and regions of 4 MiB.
    let deployment = Deployment::start(128 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(45 * MIB, 5);
    let v2 = edited(&v1, 6);
    deployment.put(&bucket, "big-1", &v1).await;
    let published = deployment.put(&bucket, "big-2", &v2).await;
    assert_eq!(published.storage.form, Form::Delta);
    let explained =
        deployment.engine.reports.explain("delta", "big-2", None).await.expect("explained").expect("exists");
    let inspected = deployment
        .engine
        .reports
        .inspect(explained["blobs"][0]["id"].as_str().expect("an id"))
        .await
        .expect("inspected");
    assert!(published.storage.stored_bytes < v2.len() as u64 / 10, "{inspected:#?}");
    assert!(deployment.get(&bucket, "big-2", 0..v2.len()).await == v2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_at_the_end_of_a_delta_reads_a_bounded_number_of_stored_bytes() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(40 * MIB, 7);
    let v2 = edited(&v1, 8);
    deployment.put(&bucket, "a-1", &v1).await;
    deployment.put(&bucket, "a-2", &v2).await;
    deployment.engine.drop_caches();
    let before = deployment.read_bytes();
    let len = v2.len();
    assert!(deployment.get(&bucket, "a-2", len - 65_536..len).await == v2[len - 65_536..]);
    let read = deployment.read_bytes() - before;
    assert!(read > 0 && read < 6 * 4 * MIB as u64, "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_another_family_stays_whole_though_its_name_looks_like_a_version() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    // Text that zstd shrinks several times alone, from two vocabularies that share nothing but
    // short words.
    let text = |seed: u64| -> Vec<u8> {
        let words: Vec<Vec<u8>> =
            content(4000, seed).chunks(8).map(|word| word.iter().map(|b| b'A' + (b & 0x3f)).collect()).collect();
        let order = content(9 * MIB / 10, seed + 1);
        order
            .chunks(2)
            .flat_map(|pair| {
                words[(usize::from(pair[0]) * 64 + usize::from(pair[1])) % words.len()].iter().copied().chain(*b" ")
            })
            .collect()
    };
    deployment.put(&bucket, "notes-1.txt", &text(31)).await;
    let published = deployment.put(&bucket, "notes-2.txt", &text(77)).await;
    assert_eq!(published.storage.form, Form::Zstd, "{:?}", published.storage);
    let stats = deployment.engine.reports.stats().await.expect("stats");
    assert_eq!(stats["totals"]["delta_bytes"], 0, "{stats}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_shrink_like_single_puts_and_complete_moves_no_bytes() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    let v1 = content(20 * MIB, 9);
    let v2 = edited(&v1, 10);
    for (key, version) in [("m/x-1", &v1), ("m/x-2", &v2)] {
        let published = deployment.put_in_parts(&bucket, key, version, 8 * MIB).await;
        assert!(deployment.get(&bucket, key, 0..version.len()).await == **version);
        assert!(deployment.get(&bucket, key, 8 * MIB - 5..8 * MIB + 5).await == version[8 * MIB - 5..8 * MIB + 5]);
        if key == "m/x-2" {
            assert_eq!(published.storage.form, Form::Delta);
            assert!(published.storage.stored_bytes < version.len() as u64 / 20, "{:?}", published.storage);
        }
    }
    // A multipart base made of several blobs serves a single PUT, and a base made of deltas stands
    // for what it was made from.
    let single = deployment.put(&bucket, "m/x-3", &edited(&v2, 11)).await;
    assert_eq!(single.storage.form, Form::Delta);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_bytes_cost_nothing_the_second_time() {
    let deployment = Deployment::start(512 << 20).await;
    for bucket in ["delta", "sealed", "off"] {
        let bucket = deployment.bucket(bucket).await;
        let bytes = content(MIB, 12);
        deployment.put(&bucket, "one", &bytes).await;
        let files = deployment.blob_files().len();
        let second = deployment.put(&bucket, "two", &bytes).await;
        assert_eq!((second.storage.form, second.storage.stored_bytes), (Form::Dedup, 0));
        assert_eq!(deployment.blob_files().len(), files);
        deployment.delete(&bucket, "one").await;
        deployment.engine.collect(true).await.expect("collected");
        assert!(deployment.get(&bucket, "two", 0..MIB).await == bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_stays_while_deltas_need_it_and_nothing_is_left_in_the_end() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(5 * MIB, 13);
    let v2 = edited(&v1, 14);
    deployment.put(&bucket, "v-1", &v1).await;
    deployment.put(&bucket, "v-2", &v2).await;
    deployment.put(&bucket, "small", b"lives in the catalog").await;
    deployment.put(&bucket, "empty", b"").await;
    deployment.delete(&bucket, "v-1").await;
    deployment.engine.collect(true).await.expect("collected");
    deployment.engine.drop_caches();
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
    assert_eq!(deployment.get(&bucket, "small", 0..20).await, b"lives in the catalog");
    assert_eq!(deployment.get(&bucket, "empty", 0..0).await, b"");
    let stats = deployment.engine.reports.stats().await.expect("stats");
    assert!(stats["totals"]["stored"]["base_only"].as_u64().expect("a number") > 0, "{stats}");
    for key in ["v-2", "small", "empty"] {
        deployment.delete(&bucket, key).await;
    }
    let report = deployment.engine.collect(true).await.expect("collected");
    assert_eq!(report.errors, 0);
    assert_eq!(deployment.blob_files(), Vec::<std::path::PathBuf>::new());
    assert_eq!(deployment.engine.reports.stats().await.expect("stats")["totals"]["stored"]["total"], 0);
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_dies_between_choice_and_commit_makes_the_object_whole() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(5 * MIB, 15);
    let v2 = edited(&v1, 16);
    deployment.put(&bucket, "v-1", &v1).await;
    let staged = deployment.stage(&bucket, Destination::Object { key: "v-2".into() }, &v2).await;
    deployment.delete(&bucket, "v-1").await;
    // The base is dead, but pinned: its bytes outlive the collection.
    let report = deployment.engine.collect(true).await.expect("collected");
    assert_eq!(report.pinned_blobs, 1);
    let published = deployment
        .engine
        .publisher
        .publish(&bucket, "v-2", staged, VersionFacts::default(), Precondition::None)
        .await
        .expect("published");
    assert_eq!(published.storage.form, Form::Zstd);
    deployment.engine.collect(true).await.expect("collected");
    deployment.engine.drop_caches();
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
    assert_eq!(deployment.blob_files().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_upload_leaves_nothing() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    drop(deployment.stage(&bucket, Destination::Object { key: "a".into() }, &content(9 * MIB, 17)).await);
    let failing = futures::stream::iter([Ok(Bytes::from(content(5 * MIB, 18))), Err("cut")]);
    let destination = Destination::Object { key: "b".into() };
    let outcome = deployment.engine.stager.stage(&bucket, destination, None, failing, ContentDigest::default()).await;
    assert!(matches!(outcome, Err(StoreError::Body("cut"))));
    // Caches (decoded segments, texts, scans), codec threads and buffers have memory for good;
    // everything else comes back.
    let caches =
        blobs::caches::CacheBytes::of(512 << 20).charged() + write::views::BaseViews::scan_bytes_max(512 << 20);
    let reserved = caches + 2 * resources::pool::CODEC_THREAD_BYTES + 2 * SEGMENT_LEN as u64;
    let mut left = (usize::MAX, 0);
    for _ in 0..500 {
        left = (
            deployment.blob_files().len(),
            deployment.metrics.memory_budget_bytes.with_label_values(&["used"]).get() as u64,
        );
        if left == (0, reserved) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("files and bytes of memory left: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_of_an_earlier_start_without_a_row_are_swept_and_others_survive_it() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    let bytes = content(MIB, 19);
    deployment.put(&bucket, "kept", &bytes).await;
    let orphan =
        BlobId::new(deployment.engine.foundation.writer.epoch(), deployment::keyring::random().expect("random"));
    let name = blobs::open::blob_name(orphan).expect("a name");
    let backend = deployment.engine.foundation.blobs.backend("local").expect("configured").clone();
    storage_backends::put_bytes(&*backend, &name, Bytes::from_static(b"left by a crash")).await.expect("stored");
    let copy = blobs::copy_name::copy_name(orphan, catalog::BlobKey(orphan.0)).expect("a name");
    storage_backends::put_bytes(&*backend, &copy, Bytes::from_static(b"a copy without its row")).await.expect("stored");
    let Deployment { engine, metrics, dir } = deployment;
    drop(bucket);
    engine.shutdown().await;
    drop((engine, backend));
    let engine = open(config(dir.path(), 512 << 20), &metrics).await.expect("opens again");
    let deployment = Deployment { engine, metrics, dir };
    let report = deployment.engine.collect(true).await.expect("collected");
    assert_eq!(
        (report.orphan_blobs, report.trash_files),
        (0, 2),
        "listed, by this collection or the first of the start"
    );
    let backend = deployment.engine.foundation.blobs.backend("local").expect("configured");
    for file in [&name, &copy] {
        assert!(backend.head(file).await.expect("answers").is_some(), "{file} stays for a day");
    }
    let now = CollectParameters { empty_trash: true, ..CollectParameters::default() };
    let report = deployment.engine.collect_as(now).await.expect("collected");
    assert_eq!((report.orphan_blobs, report.trash_files), (2, 0));
    assert_eq!(backend.head(&copy).await.expect("answers"), None);
    assert_eq!(deployment.blob_files().len(), 1, "the orphan went");
    let bucket = deployment.bucket("sealed").await;
    assert!(deployment.get(&bucket, "kept", 0..MIB).await == bytes);
    // Keysets belong to a live bucket: they stay.
    assert_eq!(bucket.settings.keysets.len(), 2);
}
