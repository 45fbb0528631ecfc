//! The engine: stores content and gives it back. Knows buckets, keys, versions and blobs; no HTTP.
//!
//! A write is [`Engine::stage`] (the body is encoded and streamed to the backend while it arrives)
//! followed by [`Engine::publish`] (the blob is finished, made durable, and one catalog transaction
//! makes it visible, I9). Dropping what `stage` gave abandons it without a trace. A read is
//! [`Engine::open_object`] followed by [`Engine::read`].

mod adopt;
mod background;
mod bases;
mod blobs;
pub mod bucket;
pub mod config;
mod deployment;
pub mod error;
pub mod facts;
pub mod metrics;
mod read;
mod recovery;
mod resources;
#[cfg(test)]
mod tests;
mod write;

pub use adopt::eject::check_eject;
pub use background::{
    collect::{CollectParameters, Collection},
    jobs::{JobAction, JobRun},
    packs::Packing,
    scrub::{Affected, Damage, DamagedBlob, Quarantine, ScrubConfig},
};
/// Rules by which objects, versions and uploads expire.
pub mod lifecycle {
    pub use crate::background::lifecycle::{
        LIFECYCLE,
        rules::{Calendar, Candidate, Expires, Lifecycle, LifecycleRule, Noncurrent},
    };
}

pub use bases::{key_order, plan::FAN_IN_MAX};
pub use blobs::{
    originals::{Originals, PlainPlace},
    stores::Stores,
};
pub use bucket::{BucketHandle, BucketState};
pub use config::{BucketSettings, Compression, ConvertConfig, EffortSetting, Encryption, EngineConfig, SecondCopies};
pub use error::{EngineError, StoreError};
pub use facts::{Checksum, Facts, Form, ObjectEncryption, PartFacts, PartSize, StorageFacts, Stretch};
pub use metrics::Metrics;
pub use read::object::{Named, OpenObject};
#[cfg(feature = "mutant-stale-cache")]
pub use read::stale;
pub use recovery::{
    BackupInfo, Conflict, Fork, Hole, LostMutation, LostVersion, Merged, Progress, Recovered, RecoveryOptions,
    RecoveryReport, SafetyConfig, Shipped, Side, Written, check_fork, list_backups, recover,
};
pub use resources::{
    files::make_private_dir,
    observe::{BackendMetrics, CatalogMetrics},
    reserves::{CatalogReserve, DISK_RESERVE_BYTES, Reserves, may_take_the_last},
};
pub use write::{
    publish::{Completion, PartName, Terms},
    stage::{BodyDigest, ContentDigest, Staged},
};

use background::{converter, jobs};
use bases::{base::Bases, hook_queue::HookQueue, window::Windows};
use blobs::{
    open::{Blobs, Reads, TEXT_SHARE},
    pins::Pins,
};
use catalog::{
    Catalog, CatalogError, Committed, Deleted, LockChange, Precondition, UploadId, Version, VersionId, VersionRef,
};
use deployment::{
    keyring::Keyring,
    ownership::{Deployment, Places, Strangers},
    writer::Writer,
};
use object_format::SEGMENT_LEN;
use read::{base_rows::BaseRows, heat};
use recovery::Safety;
use resources::{
    budget::MemoryBudget,
    buffers,
    clock::now_ms,
    pool::{CodecPool, PoolKind},
};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};
use storage_backends::{Backend, ErrorKind, UnfinishedUploads};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use write::{effort, open_uploads::OpenUploads, parts::PartsSeen};

/// Memory one codec thread's encoder and decoder take at most.
const CODEC_THREAD_BYTES: u64 = 12 << 20;
/// How often gauges that are read from elsewhere are set.
const GAUGES_EVERY: Duration = Duration::from_secs(10);
/// How often the database is asked for its standbys.
const REPLICATION_EVERY: Duration = Duration::from_secs(60);
/// How long the end of a process waits for its last shipment.
const LAST_SHIPMENT: Duration = Duration::from_secs(10);

/// Storage of one deployment: catalog, backends, keys, caches, codec pool and memory budget.
pub struct Engine {
    config: EngineConfig,
    catalog: Arc<dyn Catalog>,
    alone: bool,
    blobs: Arc<Blobs>,
    directories: BTreeMap<String, PathBuf>,
    reserves: Reserves,
    unfinished: BTreeMap<String, Arc<dyn UnfinishedUploads>>,
    originals: Originals,
    base_rows: BaseRows,
    keyring: Arc<Keyring>,
    safety: Arc<Safety>,
    soundness: background::soundness::Soundness,
    writer: Writer,
    pool: Arc<CodecPool>,
    effort: effort::Shared,
    heat: heat::Heat,
    scans: write::views::Scans,
    converter: converter::ConverterMemory,
    looks: background::looks::Looks,
    hash_pool: Arc<CodecPool>,
    budget: Arc<MemoryBudget>,
    spool: Arc<write::spool::Spool>,
    bases: Bases,
    pins: Arc<Pins>,
    hooks: HookQueue,
    parts_seen: PartsSeen,
    open_uploads: OpenUploads,
    /// Commits under way: they end before the process does.
    commits: TaskTracker,
    background: TaskTracker,
    stopping: CancellationToken,
    jobs: jobs::Jobs,
    metrics: Arc<Metrics>,
}

/// A current version with its facts opened.
#[derive(Clone, Debug)]
pub struct ObjectInfo {
    /// The row (size, Last-Modified, version id).
    pub version: Version,
    /// Its facts.
    pub facts: Facts,
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

impl Published {
    /// How requests name it.
    pub fn reference(&self) -> VersionRef {
        if self.committed.named { VersionRef::Id(self.version_id) } else { VersionRef::Null }
    }
}

impl Engine {
    /// Opens keys and caches over stores that are open; makes what is missing on the first start;
    /// starts the background work.
    ///
    /// # Errors
    /// [`EngineError`] in words for the operator: newer schema, unusable backend, wrong KEK …
    pub async fn open(config: EngineConfig, stores: Stores, metrics: Arc<Metrics>) -> Result<Arc<Self>, EngineError> {
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
        let Stores { catalog, alone, backends, directories, reserves, unfinished, originals } = stores;
        let keyring = Arc::new(Keyring::open(&config.data, config.kek.take())?);
        keyring.check(&*catalog).await?;
        let threads =
            config.codec_threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
        let threads = threads_within(config.memory_bytes_max, threads);
        metrics.codec_threads.with_label_values(&["total"]).set(i64::try_from(threads).unwrap_or(0));
        let pool = Arc::new(CodecPool::new(threads, PoolKind::Codec, &metrics)?);
        let hash_pool = Arc::new(CodecPool::new(threads, PoolKind::Hash, &metrics)?);
        let spool = Arc::new(write::spool::Spool::new(&config.data, config.spool_bytes_max, metrics.clone()));
        let budget = Arc::new(MemoryBudget::new(config.memory_bytes_max, metrics.clone()));
        let decoded_bytes_max = budget.bytes_max() / 8;
        let buffers = buffers::buffers_of(budget.bytes_max(), threads);
        pool.shelf().keep(buffers);
        let texts_bytes_max = decoded_bytes_max / TEXT_SHARE;
        budget.divide(
            decoded_bytes_max
                + texts_bytes_max
                + Self::scan_bytes_max(budget.bytes_max())
                + CODEC_THREAD_BYTES * threads as u64
                + (buffers * SEGMENT_LEN) as u64,
        );
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
        if let Some(reserve) = reserves.backends.get(&config.safety.backend) {
            safety.spare(reserve.clone());
        }
        safety.check_anchor(&backends).await?;
        let strangers = if config.safety.accept_older_catalog { Strangers::Replace } else { Strangers::Refuse };
        let (deployment, is_new) = Deployment::of(&*catalog).await?;
        if strangers == Strangers::Refuse && !is_new {
            Deployment::refuse_empty(&*catalog, &backends).await?;
        }
        deployment.own(&backends, strangers).await?;
        let places = Places::new(deployment, &backends, |name| directories.contains_key(name));
        places.lost().await?.map_or(Ok(()), Err)?;
        safety.watch(places);
        catalog.acknowledge_behind(safety.gate());
        let blobs = Arc::new(Blobs::new(
            backends,
            Reads::Either(catalog.clone()),
            decoded_bytes_max,
            pool.clone(),
            metrics.clone(),
        ));
        let windows = Windows::new(budget.clone(), blobs.clone(), pool.clone());
        let pins = Arc::<Pins>::default();
        let bases = Bases::new(catalog.clone(), blobs.clone(), windows, pins.clone(), pool.clone(), metrics.clone());
        let writer = Writer::open(&*catalog).await?;
        let jobs = jobs::Jobs::new(jobs);
        let hooks = HookQueue::start(catalog.clone());
        let open_uploads = OpenUploads::new(config.open_uploads_per_user_max);
        let engine = Arc::new(Self {
            config,
            catalog,
            alone,
            blobs,
            directories,
            reserves,
            unfinished,
            originals,
            base_rows: read::base_rows::base_rows(),
            keyring,
            safety,
            soundness: background::soundness::Soundness::default(),
            writer,
            pool,
            effort: effort::Shared::default(),
            heat: heat::Heat::default(),
            scans: write::views::Scans::default(),
            converter: converter::ConverterMemory::default(),
            looks: background::looks::Looks::default(),
            hash_pool,
            budget,
            spool,
            bases,
            pins,
            hooks,
            parts_seen: PartsSeen::default(),
            open_uploads,
            commits: TaskTracker::new(),
            background: TaskTracker::new(),
            stopping: CancellationToken::new(),
            jobs,
            metrics,
        });
        // Not before it is known whose the disks are.
        engine.measure_disks().await;
        engine.start_background();
        Ok(engine)
    }

    /// The catalog, for operations that only touch metadata (lists, uploads).
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    /// True when a copy of an object of one bucket to the other is a row, not bytes. Adopted
    /// content is copied into blobs of our own.
    pub fn shares_extents(&self, from: &BucketHandle, object: &OpenObject, to: &BucketHandle) -> bool {
        from.row.id == to.row.id && !object.is_foreign()
    }

    /// Removes a key's current version, or hides it behind a delete marker where the bucket keeps
    /// versions.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`], or what the catalog says.
    pub async fn delete(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        precondition: Precondition,
    ) -> Result<Deleted, EngineError> {
        let hide = bucket.settings.read_through.is_some();
        let id = catalog::VersionId(deployment::keyring::random()?);
        let (engine, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        self.detached(async move {
            let (now_ms, epoch) = (now_ms(), engine.epoch());
            let key_read_back = key.clone();
            let commit = catalog::DeleteCommit { bucket, key, precondition, hide, marker: Some(id), now_ms, epoch };
            match engine.catalog.delete(commit).await {
                // A marker tells that the deletion went through (I9). Without one the client
                // repeats it, which does no harm.
                Err(CatalogError::Unknown(why)) => match engine.catalog.version(bucket, &key_read_back, id).await? {
                    Some(content) => Ok(Deleted { removed: None, marker: Some(content.version) }),
                    None => Err(CatalogError::Unknown(why).into()),
                },
                outcome => Ok(outcome?),
            }
        })
        .await
    }

    /// Removes one version of a key for good, be it an object or a delete marker; gives it back,
    /// `None` when there is none of that name. `bypass_governance`: whoever asks may end a
    /// retention in governance mode.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`], [`EngineError::Locked`], or what the catalog says.
    pub async fn delete_version(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        version: VersionRef,
        precondition: Precondition,
        bypass_governance: bool,
    ) -> Result<Option<Version>, EngineError> {
        let hide = bucket.settings.read_through.is_some();
        let (engine, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        self.detached(async move {
            let (now_ms, epoch) = (now_ms(), engine.epoch());
            let commit = catalog::DeleteVersionCommit {
                bucket,
                key,
                version,
                precondition,
                hide,
                bypass_governance,
                now_ms,
                epoch,
            };
            Ok(engine.catalog.delete_version(commit).await?)
        })
        .await
    }

    /// Changes what keeps a version from being removed; `false` when the version is gone.
    ///
    /// # Errors
    /// [`EngineError::Locked`] when its retention does not allow it, [`EngineError::BucketState`]
    /// without object lock, or what the catalog says.
    pub async fn set_lock(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        id: VersionId,
        change: LockChange,
        bypass_governance: bool,
    ) -> Result<bool, EngineError> {
        let (engine, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        self.detached(async move {
            let (now_ms, epoch) = (now_ms(), engine.epoch());
            let commit = catalog::LockCommit { bucket, key, id, change, bypass_governance, now_ms, epoch };
            Ok(engine.catalog.set_lock(commit).await?)
        })
        .await
    }

    /// Drops every cache: manifests, decoded segments, idle base windows.
    pub fn drop_caches(&self) {
        self.blobs.drop_caches();
        self.base_rows.invalidate_all();
        self.bases.windows().drop_idle();
        self.scans.clear();
    }

    /// Asks the catalog and every backend whether they can serve.
    ///
    /// # Errors
    /// The first trouble, in words.
    pub async fn probe(&self) -> Result<(), EngineError> {
        self.catalog.probe().await?;
        self.safety.check_not_refused()?;
        self.check_ownership().await.map_err(|error| EngineError::Unavailable(error.to_string()))?;
        for (name, backend) in self.blobs.backends() {
            match backend.probe().await {
                // Reads and deletions are served, and only deletions make space.
                Err(error) if error.kind() == ErrorKind::Full => {}
                probed => probed.map_err(|error| EngineError::Unavailable(format!("backend {name}: {error}")))?,
            }
        }
        Ok(())
    }

    /// Whether the catalog is proven, within the last five seconds, to be the newest state of
    /// stores that are this deployment's: what only the catalog calls garbage may be deleted. Cheap
    /// while it is; looks at the stores otherwise.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] when it is not; what stores and catalog say when they do not
    /// answer. Then nothing may be deleted.
    pub(crate) async fn may_delete(&self) -> Result<(), EngineError> {
        self.safety.may_delete().await
    }

    /// Waits until the catalog is found damaged; why, for the operator. Nothing is written or
    /// deleted from then on.
    pub async fn damaged(&self) -> String {
        self.safety.damaged().await
    }

    /// In a few words that anybody may read: why writes are refused, if they are.
    pub fn refused_because(&self) -> Option<&'static str> {
        self.safety.refused_because()
    }

    /// Ends background work, waits for commits under way, and closes this process's epoch.
    pub async fn shutdown(&self) {
        self.stopping.cancel();
        self.background.close();
        self.commits.close();
        self.background.wait().await;
        self.commits.wait().await;
        self.hooks.close().await;
        // What was acknowledged lately is safe with the backend before the process is gone, if the
        // backend is there.
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
        bytes("window", self.bases.windows().bytes());
    }

    /// Says when a failover of the database may lose what was acknowledged, and again when that has
    /// changed: standbys come and go.
    async fn watch_replication(self: Arc<Self>) {
        // A change that is in the backend's journal before it is acknowledged is not lost with the
        // database.
        if self.config.safety.journal_interval.is_zero() {
            return;
        }
        let mut asked = tokio::time::interval(REPLICATION_EVERY);
        let mut said = None;
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                _ = asked.tick() => {}
            }
            match self.catalog.failover_warning().await {
                Ok(warning) if warning == said => {}
                Ok(warning) => {
                    if let Some(warning) = &warning {
                        let seconds = self.config.safety.journal_interval.as_secs();
                        tracing::warn!(
                            "{warning}; or set backup.journal_seconds = 0, which ships each change before it is acknowledged. As it is, a \
                             failover may lose changes of the last {seconds} s"
                        );
                    }
                    said = warning;
                }
                Err(error) => tracing::debug!(%error, "the database does not say who replicates it"),
            }
        }
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
                        if let Err(error) = engine.show_deferred().await.and(engine.refresh_counts().await) {
                            tracing::warn!(%error, "gauges could not be read from the catalog");
                        }
                    }
                }
            }
        });
        let engine = self.clone();
        self.background.spawn(async move { engine.safety.keep_shipping(&engine.stopping).await });
        let engine = self.clone();
        self.background.spawn(async move { engine.safety.keep_current(&engine.stopping).await });
        self.background.spawn(self.clone().keep_writing());
        if !self.alone {
            self.background.spawn(self.clone().watch_replication());
        }
        self.background.spawn(self.clone().verify_catalog());
        if self.config.schedule_jobs {
            self.background.spawn(self.clone().schedule_jobs());
        }
    }
}

/// As many codec threads as a budget has room for, at least one: besides their work memory and the
/// caches, five eighths are for requests.
fn threads_within(memory_bytes_max: u64, wanted: usize) -> usize {
    let room = memory_bytes_max / 4 / CODEC_THREAD_BYTES;
    let threads = wanted.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1);
    if threads < wanted {
        tracing::warn!(
            wanted,
            threads,
            memory_bytes_max,
            "the memory budget has no room for so many codec threads: fewer are used"
        );
    }
    threads
}
