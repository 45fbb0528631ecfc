//! The engine: stores content and gives it back. Knows buckets, keys, versions and blobs; no HTTP.
//!
//! A write is [`Engine::stage`] (the body is encoded and streamed to the backend while it arrives) followed by
//! [`Engine::publish`] (the blob is finished, made durable, and one catalog transaction makes it visible, I9). Dropping what
//! `stage` gave abandons it without a trace. A read is [`Engine::open_object`] followed by [`Engine::read`].

mod adopt;
mod base;
mod blobs;
pub mod bucket;
mod budget;
mod choose;
pub mod collect;
pub mod config;
mod convert;
mod converter;
mod copies;
mod disks;
mod effort;
mod eject;
mod encode;
pub mod error;
pub mod facts;
mod heat;
mod hook_queue;
mod import;
pub mod jobs;
pub mod keyring;
mod leftovers;
pub(crate) mod names;
mod observe;
mod originals;
mod outlet;
mod ownership;
mod pace;
mod packs;
mod pins;
mod plan;
mod pool;
mod publish;
mod read;
mod reencode;
mod report;
mod safety;
mod scrub;
mod shelf;
mod similar;
mod stage;
#[cfg(feature = "mutant-stale-cache")]
pub mod stale;
mod stores;
#[cfg(test)]
mod tests;
mod uploads;
mod view;
mod window;
mod writer;

pub use bucket::{BucketHandle, BucketState};
pub use collect::Collection;
pub use config::{
    BackendConfig, BucketSettings, CatalogConfig, CloudConfig, CloudStore, Compression, ConvertConfig, EffortSetting,
    Encryption, EngineConfig,
};
pub use error::{EngineError, StoreError};
pub use facts::{Checksum, Facts, Form, PartFacts, PartSize, StorageFacts};
pub use jobs::{JobAction, JobRun};
pub use originals::open_plain;
pub use packs::Packing;
pub(crate) use plan::FAN_IN_MAX;
pub use publish::{Completion, PartName};
pub use read::OpenObject;
pub use safety::{
    BackupInfo, LostVersion, Progress, Recovered, RecoveryOptions, RecoveryReport, SafetyConfig, Shipped, list_backups,
    recover,
};
pub use scrub::{Affected, Damage, DamagedBlob, Quarantine, ScrubConfig};
pub use stage::Staged;

use crate::metrics::Metrics;
use blobs::{Blobs, Reads};
use budget::MemoryBudget;
use catalog::{BlobRow, Catalog, Committed, Precondition, UnixMs, UploadId, Version};
use hook_queue::HookQueue;
use keyring::Keyring;
use moka::future::Cache;
use object_format::{BlobId, SEGMENT_LEN};
use originals::Originals;
use ownership::{Deployment, Strangers};
use pins::Pins;
use pool::{CodecPool, PoolKind};
use safety::Safety;
use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use storage_backends::Backend;
use stores::{open_backend, open_catalog, open_stores};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uploads::PartsSeen;
use window::Windows;
use writer::Writer;

/// Memory one codec thread's encoder and decoder take at most.
const CODEC_THREAD_BYTES: u64 = 12 << 20;
/// How often gauges that are read from elsewhere are set.
const GAUGES_EVERY: Duration = Duration::from_secs(10);
/// How long the end of a process waits for its last shipment.
const LAST_SHIPMENT: Duration = Duration::from_secs(10);
/// Base rows of this many deltas are kept.
const BASE_ROWS_KEPT: u64 = 20_000;

/// Storage of one deployment: catalog, backends, keys, caches, codec pool and memory budget.
pub struct Engine {
    config: EngineConfig,
    catalog: Arc<dyn Catalog>,
    blobs: Arc<Blobs>,
    originals: Originals,
    base_rows: Cache<BlobId, Arc<Vec<BlobRow>>>,
    keyring: Arc<Keyring>,
    deployment: Deployment,
    safety: Arc<Safety>,
    writer: Writer,
    pool: Arc<CodecPool>,
    effort: effort::Shared,
    heat: heat::Heat,
    converter: converter::ConverterMemory,
    hash_pool: Arc<CodecPool>,
    budget: Arc<MemoryBudget>,
    windows: Arc<Windows>,
    pins: Arc<Pins>,
    hooks: HookQueue,
    parts_seen: PartsSeen,
    /// Commits under way: they end before the process does.
    commits: TaskTracker,
    background: TaskTracker,
    stopping: CancellationToken,
    jobs: jobs::Jobs,
    metrics: Arc<Metrics>,
}

/// Where a deployment keeps its rows and its bytes.
pub struct Stores {
    /// The catalog.
    pub catalog: Arc<dyn Catalog>,
    /// The backends by their configured names.
    pub backends: BTreeMap<String, Arc<dyn Backend>>,
}

/// A current version with its facts opened.
#[derive(Clone, Debug)]
pub struct ObjectInfo {
    /// The row (size, Last-Modified, version id).
    pub version: Version,
    /// Its facts.
    pub facts: Facts,
}

/// What hashes a body while it arrives; runs on a pool of its own, segment by segment, in order.
pub trait BodyDigest: Send + 'static {
    /// What it gives in the end.
    type Output: Send + 'static;
    /// Takes the next bytes.
    fn update(&mut self, bytes: &[u8]);
    /// Ends: its output, and the SHA-256 of everything (needed for exact duplicates).
    fn finish(self) -> (Self::Output, [u8; 32]);
}

/// Where a body is going.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A new version of a key.
    Object {
        /// The key.
        key: String,
    },
    /// A part of a multipart upload.
    Part {
        /// The upload's key.
        key: String,
        /// The upload.
        upload: UploadId,
        /// The part's number.
        number: u32,
    },
}

/// A version that was published.
#[derive(Clone, Debug)]
pub struct Published {
    /// The new version's id.
    pub version_id: catalog::VersionId,
    /// Place in the total order and Last-Modified.
    pub committed: Committed,
    /// How it is stored.
    pub storage: StorageFacts,
}

impl Engine {
    /// Opens catalog, backends and keys; makes what is missing on the first start; starts the background work.
    ///
    /// # Errors
    /// [`EngineError`] in words for the operator: catalog in use, newer schema, unusable backend, wrong KEK …
    pub async fn open(config: EngineConfig, metrics: Arc<Metrics>) -> Result<Arc<Self>, EngineError> {
        let stores = open_stores(&config, &metrics).await?;
        Self::open_over(config, stores, metrics).await
    }

    /// The same over stores that are open already: how tests put stores that fail under everything else.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub async fn open_over(
        config: EngineConfig,
        stores: Stores,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, EngineError> {
        let jobs = jobs::registry::all(&config);
        Self::open_with(config, stores, metrics, jobs).await
    }

    async fn open_with(
        mut config: EngineConfig,
        stores: Stores,
        metrics: Arc<Metrics>,
        jobs: Vec<jobs::registry::JobSpec>,
    ) -> Result<Arc<Self>, EngineError> {
        make_private_dir(&config.data)?;
        let Stores { catalog, backends } = stores;
        let keyring = Arc::new(Keyring::open(&config.data, config.kek.take())?);
        keyring.check(&*catalog).await?;
        let threads =
            config.codec_threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
        metrics.codec_threads.with_label_values(&["total"]).set(i64::try_from(threads).unwrap_or(0));
        let pool = Arc::new(CodecPool::new(threads, PoolKind::Codec, &metrics)?);
        let hash_pool = Arc::new(CodecPool::new(threads, PoolKind::Hash, &metrics)?);
        // Nothing is spooled (docs/decisions/0007-no-spool.md); the contract's gauge says so.
        metrics
            .spool_bytes
            .with_label_values(&["limit"])
            .set(i64::try_from(config.spool_bytes_max).unwrap_or(i64::MAX));
        metrics.spool_bytes.with_label_values(&["used"]).set(0);
        let budget = Arc::new(MemoryBudget::new(config.memory_bytes_max, metrics.clone()));
        let decoded_bytes_max = budget.bytes_max() / 8;
        let buffers = shelf::buffers_of(budget.bytes_max(), threads);
        pool.shelf().keep(buffers);
        budget.reserve(decoded_bytes_max + CODEC_THREAD_BYTES * threads as u64 + (buffers * SEGMENT_LEN) as u64);
        let keeper = backends.get(&config.safety.backend).cloned();
        let keeper = keeper
            .ok_or_else(|| EngineError::Other(format!("backend {:?} is not configured", config.safety.backend)))?;
        let safety = Arc::new(Safety::new(
            config.safety.clone(),
            catalog.clone(),
            keeper,
            keyring.clone(),
            pool.clone(),
            Some(budget.clone()),
            metrics.clone(),
        ));
        safety.check_anchor(&backends).await?;
        let strangers = if config.safety.accept_older_catalog { Strangers::Replace } else { Strangers::Refuse };
        let deployment = Deployment::of(&*catalog).await?;
        deployment.own(&backends, strangers).await?;
        if config.safety.journal_interval.is_zero() {
            catalog.acknowledge_behind(safety.clone());
        }
        let blobs = Arc::new(Blobs::new(
            backends,
            Reads::Either(catalog.clone()),
            decoded_bytes_max,
            pool.clone(),
            metrics.clone(),
        ));
        let windows = Windows::new(budget.clone(), blobs.clone(), pool.clone());
        let originals = Originals::open(&config, &metrics)?;
        let writer = Writer::open(&*catalog).await?;
        let jobs = jobs::Jobs::new(jobs);
        let hooks = HookQueue::start(catalog.clone());
        let engine = Arc::new(Self {
            config,
            catalog,
            blobs,
            originals,
            base_rows: Cache::new(BASE_ROWS_KEPT),
            keyring,
            deployment,
            safety,
            writer,
            pool,
            effort: effort::Shared::default(),
            heat: heat::Heat::default(),
            converter: converter::ConverterMemory::default(),
            hash_pool,
            budget,
            windows,
            pins: Arc::default(),
            hooks,
            parts_seen: PartsSeen::default(),
            commits: TaskTracker::new(),
            background: TaskTracker::new(),
            stopping: CancellationToken::new(),
            jobs,
            metrics,
        });
        engine.start_background();
        Ok(engine)
    }

    /// The catalog, for operations that only touch metadata (lists, uploads).
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    /// True when a copy of an object of one bucket to the other is a row, not bytes. Adopted content is copied into blobs of our own.
    pub fn shares_extents(&self, from: &BucketHandle, object: &OpenObject, to: &BucketHandle) -> bool {
        from.row.id == to.row.id && !object.is_foreign()
    }

    /// Removes a key's current version; gives it back, `None` when there was none.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`], or what the catalog says.
    pub async fn delete(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        precondition: Precondition,
    ) -> Result<Option<Version>, EngineError> {
        let hide = bucket.settings.read_through.is_some();
        let (engine, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        self.detached(async move {
            let commit =
                catalog::DeleteCommit { bucket, key, precondition, hide, now_ms: now_ms(), epoch: engine.epoch() };
            Ok(engine.catalog.delete(commit).await?)
        })
        .await
    }

    /// Drops every cache: manifests, decoded segments, idle base windows.
    pub fn drop_caches(&self) {
        self.blobs.drop_caches();
        self.base_rows.invalidate_all();
        self.windows.drop_idle();
    }

    /// Asks the catalog and every backend whether they can serve.
    ///
    /// # Errors
    /// The first trouble, in words.
    pub async fn probe(&self) -> Result<(), EngineError> {
        self.catalog.probe().await?;
        self.check_ownership().await.map_err(|error| EngineError::Unavailable(error.to_string()))?;
        for (name, backend) in self.blobs.backends() {
            backend.probe().await.map_err(|error| EngineError::Unavailable(format!("backend {name}: {error}")))?;
        }
        Ok(())
    }

    /// Ends background work, waits for commits under way, and closes this process's epoch.
    pub async fn shutdown(&self) {
        self.stopping.cancel();
        self.background.close();
        self.commits.close();
        self.background.wait().await;
        self.commits.wait().await;
        self.hooks.close().await;
        // What was acknowledged lately is safe with the backend before the process is gone, if the backend is there.
        match tokio::time::timeout(LAST_SHIPMENT, self.safety.ship_once()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the journal was not shipped to its end; the next start does it"),
            Err(_) => tracing::warn!("the journal was not shipped to its end in time; the next start does it"),
        }
        self.close_epoch().await;
    }

    /// Ships the journal now.
    ///
    /// # Errors
    /// What catalog or backend say.
    pub async fn ship_journal(&self) -> Result<Shipped, EngineError> {
        self.safety.ship_once().await
    }

    /// Every backup of the catalog, oldest first.
    ///
    /// # Errors
    /// What the backend says; an index that cannot be read, by name.
    pub async fn backups(&self) -> Result<Vec<BackupInfo>, EngineError> {
        self.safety.backups().await
    }

    /// Sets the gauges that are read from caches and, less often, from the catalog.
    pub fn refresh_gauges(&self) {
        let bytes = |kind: &str, value: u64| {
            self.metrics.cache_bytes.with_label_values(&[kind, "memory"]).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        bytes("base", self.blobs.decoded_bytes());
        bytes("window", self.windows.bytes());
    }

    fn start_background(self: &Arc<Self>) {
        let engine = self.clone();
        self.background.spawn(async move {
            let mut gauges = tokio::time::interval(GAUGES_EVERY);
            loop {
                tokio::select! {
                    () = engine.stopping.cancelled() => return,
                    _ = gauges.tick() => {
                        engine.refresh_gauges();
                        engine.measure_disks().await;
                        engine.safety.measure().await;
                        if let Err(error) = engine.show_deferred().await.and(engine.stats().await) {
                            tracing::warn!(%error, "gauges could not be read from the catalog");
                        }
                    }
                }
            }
        });
        let engine = self.clone();
        self.background.spawn(async move { engine.safety.keep_shipping(&engine.stopping).await });
        self.background.spawn(self.clone().keep_writing());
        if self.config.schedule_jobs {
            self.background.spawn(self.clone().schedule_jobs());
        }
    }
}

fn make_private_dir(path: &Path) -> Result<(), EngineError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| EngineError::Other(format!("cannot make {}: {error}", path.display())))
}

/// Milliseconds since 1970-01-01 UTC by this machine's clock. Orders nothing (I12).
pub(crate) fn now_ms() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX)
}

/// A blob id from its 32 hexadecimal digits.
fn parse_blob_id(text: &str) -> Option<BlobId> {
    let mut id = [0; 16];
    hex::decode_to_slice(text, &mut id).ok()?;
    Some(BlobId(id))
}
