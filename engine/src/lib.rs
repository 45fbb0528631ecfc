//! The engine: stores content and gives it back. Knows buckets, keys, versions and blobs; no HTTP.
//!
//! A write is [`Stager::stage`] (the body is encoded and streamed to the backend while it arrives)
//! followed by [`Publisher::publish`] (the blob is finished, made durable, and one catalog
//! transaction makes it visible, I9). Dropping what `stage` gave abandons it without a trace. A
//! read is [`ReadPath::open_object`] followed by [`ReadPath::read`].

mod adopt;
mod assembly;
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
mod registry;
mod report;
mod resources;
#[cfg(test)]
mod tests;
mod write;

pub use adopt::eject::check_eject;
pub use background::{
    collect::CollectParameters,
    collection::Collection,
    jobs::{JobAction, JobEnded, Jobs, run::JobRun},
    keys::{KekReport, KeyReport, Keys, KeysCheck, KeysReport, Rotation},
    packs::Packing,
    scrub::{
        affected::{Affected, DamagedBlob, Quarantine, Quarantines},
        verify::Damage,
    },
    shred::{FormerKey, Shredding},
};
/// Rules by which objects, versions and uploads expire.
pub mod lifecycle {
    pub use crate::background::lifecycle::{
        LIFECYCLE,
        rules::{Calendar, Expires, Lifecycle, LifecycleRule, Noncurrent, RuleSubject},
    };
}

/// Telling others of changes in buckets.
pub mod notify {
    pub use crate::background::notify::{Courier, Undelivered};
    pub use crate::bucket::notify::{Cause, Event, NOTIFICATION, NotificationRule, Notifications, Notifier};
}

/// What fuzz targets and their smoke tests call.
#[doc(hidden)]
pub mod fuzzing {
    /// Any bytes as a document of recovery of some kind.
    ///
    /// # Panics
    /// When what was read does not come back.
    pub fn document(kind: u8, bytes: &[u8]) {
        crate::recovery::decode_anything(kind, bytes);
    }
}

pub use bases::{key_order, plan::FAN_IN_MAX};
pub use blobs::{
    originals::{Originals, PlainPlace},
    stores::Stores,
};
pub use bucket::{BucketHandle, BucketState, Buckets, ISOLATION, STORAGE_HEADERS, compartment::Sharing};
pub use config::{
    AnchorPlace, BucketSettings, Compression, ConvertConfig, EffortSetting, Encryption, EngineConfig, Isolation,
    NotifyConfig, SafetyConfig, ScrubConfig, SecondCopies, StorageHeaders,
};
pub use deployment::accounts::{AccountKind, AccountName, AccountRecord, AccountRecords, Accounts, AccountsWrite};
pub use deployment::keyring::keks::{check_keyring_file, keyring_file};
pub use deployment::keyring::provider::{KekContext, KeyProvider, KeyProviders, ProviderError};
pub use deployment::veil::{ContentKey, ContentKeys, NamedKey, Veil};
pub use error::{EngineError, StoreError};
pub use facts::{
    BegunOver, Checksum, Form, ListedChecksum, ListedFacts, ObjectEncryption, PartFacts, PartSize, StorageFacts,
    Stretch, VersionFacts,
};
pub use metrics::Metrics;
pub use read::object::{Named, ObjectInfo, OpenObject, ReadPath};
#[cfg(feature = "mutant-stale-cache")]
pub use read::stale;
pub use recovery::{
    BackupInfo, Conflict, Fork, Hole, LostMutation, LostVersion, Merged, Recovered, RecoveryOptions, RecoveryProgress,
    RecoveryReport, Shipped, Side, Written, check_fork, list_backups, recover,
};
pub use report::{CELLS_MAX, PAGE_MAX, Page, Reports};
pub use resources::{
    disks::free_bytes_at,
    files::make_private_dir,
    machine::{Machine, StandIn, stand_in},
    observe::{BackendMetrics, CatalogMetrics},
    reserves::{CatalogReserve, DISK_RESERVE_BYTES, Reserves, may_take_the_last},
};
pub use write::{
    change::Changes,
    parts::Uploads,
    publish::{Completion, PartName, PublishedVersion, Publisher, Terms},
    stage::{BodyDigest, ContentDigest, Destination, StagedBody, Stager},
};

use assembly::{Foundation, Paths};
use background::{
    jobs::spec::JobSpec,
    notify::{Courier, show_lanes},
};
use bucket::notify::Notifier;
use catalog::Catalog;
use registry::Workers;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use storage_backends::ErrorKind;
use tokio_util::task::TaskTracker;
use write::views::BaseViews;

/// How often gauges that are read from elsewhere are set.
const GAUGES_EVERY: Duration = Duration::from_secs(10);
/// How often the database is asked for its standbys.
const REPLICATION_EVERY: Duration = Duration::from_secs(60);
/// How long the end of a process waits for its last shipment.
const LAST_SHIPMENT: Duration = Duration::from_secs(10);

/// Storage of one deployment, open: what callers ask of it, room by room.
pub struct Engine {
    /// Users, groups, policies and access keys.
    pub accounts: Arc<Accounts>,
    /// The keys that everything is sealed with.
    pub keys: Arc<Keys>,
    /// Buckets: their rows, settings and keys.
    pub buckets: Arc<Buckets>,
    /// Reading objects.
    pub read: Arc<ReadPath>,
    /// Taking bodies in.
    pub stager: Arc<Stager>,
    /// Making them visible.
    pub publisher: Arc<Publisher>,
    /// Multipart uploads under way.
    pub uploads: Arc<Uploads>,
    /// Changing what is there.
    pub changes: Arc<Changes>,
    /// Background jobs.
    pub jobs: Arc<Jobs>,
    /// Who is told of changes.
    pub notifier: Arc<Notifier>,
    /// What operators are told.
    pub reports: Arc<Reports>,
    /// What was found damaged.
    pub quarantines: Arc<Quarantines>,
    foundation: Foundation,
    views: Arc<BaseViews>,
    workers: Workers,
    background: TaskTracker,
}

impl Engine {
    /// Opens keys and caches over stores that are open; makes what is missing on the first start;
    /// starts the background work.
    ///
    /// # Errors
    /// [`EngineError`] in words for the operator: newer schema, unusable backend, wrong KEK …
    pub async fn open(config: EngineConfig, stores: Stores, metrics: Arc<Metrics>) -> Result<Arc<Self>, EngineError> {
        Self::open_with(config, stores, metrics, registry::all).await
    }

    async fn open_with(
        config: EngineConfig,
        stores: Stores,
        metrics: Arc<Metrics>,
        specs: impl FnOnce(&EngineConfig, &Workers) -> Vec<JobSpec>,
    ) -> Result<Arc<Self>, EngineError> {
        let foundation = Foundation::lay(config, stores, metrics).await?;
        let paths = Paths::over(&foundation);
        let workers = assembly::workers(&foundation, &paths);
        let background = TaskTracker::new();
        let specs = specs(&foundation.config, &workers);
        let jobs = Arc::new(assembly::jobs(&foundation, specs, background.clone()));
        let reports = Arc::new(assembly::reports(&foundation, &paths));
        let quarantines = workers.scrubber.quarantines.clone();
        let accounts =
            Arc::new(Accounts::new(foundation.catalog.clone(), foundation.keyring.clone(), foundation.alone));
        let keys = Arc::new(Keys {
            catalog: foundation.catalog.clone(),
            keyring: foundation.keyring.clone(),
            blobs: foundation.blobs.clone(),
            safety: foundation.safety.clone(),
            accounts: accounts.clone(),
            alone: foundation.alone,
            rotating: tokio::sync::Mutex::default(),
        });
        let Paths { buckets, read, stager, publisher, uploads, changes, notifier, views, .. } = paths;
        let engine = Arc::new(Self {
            accounts,
            keys,
            buckets,
            read,
            stager,
            publisher,
            uploads,
            changes,
            jobs,
            notifier,
            reports,
            quarantines,
            foundation,
            views,
            workers,
            background,
        });
        // Not before it is known whose the disks are.
        engine.foundation.disks.measure().await;
        engine.start_background();
        Ok(engine)
    }

    /// The catalog, for operations that only touch metadata (lists, uploads).
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.foundation.catalog
    }

    /// Whether this process owns the store alone: its catalog is a file that no other may open.
    pub fn is_alone(&self) -> bool {
        self.foundation.alone
    }

    /// Collects: tombstones older than the grace, files of closed epochs without a row. One
    /// collection at a time in the whole deployment; this waits for one that is under way.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog or a listing fails, or when catalog and store contradict
    /// each other; what was done until then stays done.
    pub async fn collect_as(&self, parameters: CollectParameters) -> Result<Collection, EngineError> {
        let report = self.jobs.run_job("gc", json!(parameters)).await?;
        serde_json::from_value(report).map_err(|error| EngineError::Other(error.to_string()))
    }

    /// The same by default, or without the grace when `now`.
    ///
    /// # Errors
    /// As [`Engine::collect_as`].
    pub async fn collect(&self, now: bool) -> Result<Collection, EngineError> {
        self.collect_as(CollectParameters { now, ..CollectParameters::default() }).await
    }

    /// Drops every cache: manifests, decoded segments, idle base windows.
    pub fn drop_caches(&self) {
        self.foundation.blobs.drop_caches();
        self.read.drop_caches();
        self.foundation.bases.windows().drop_idle();
        self.views.drop_caches();
    }

    /// Asks the catalog and every backend whether they can serve.
    ///
    /// # Errors
    /// The first trouble, in words.
    pub async fn probe(&self) -> Result<(), EngineError> {
        self.foundation.catalog.probe().await?;
        self.foundation.safety.check_not_refused()?;
        self.foundation.safety.check_ownership().await.map_err(|error| EngineError::Unavailable(error.to_string()))?;
        // Who read the owner record of another store just now has asked it; a listing would cost as
        // much as twelve reads.
        let is_local = |name: &str| self.foundation.disks.is_local(name);
        for (name, backend) in self.foundation.blobs.backends().filter(|(name, _)| is_local(name)) {
            match backend.probe().await {
                // Reads and deletions are served, and only deletions make space.
                Err(error) if error.kind() == ErrorKind::Full => {}
                probed => probed.map_err(|error| EngineError::Unavailable(format!("backend {name}: {error}")))?,
            }
        }
        Ok(())
    }

    /// Delivers events to the configured webhooks from now on.
    pub fn deliver_events(&self, courier: Arc<dyn Courier>) {
        let deliverer = assembly::deliverer(&self.foundation, &self.buckets, &self.notifier, courier);
        for (webhook, bell) in self.notifier.bells() {
            self.background.spawn(deliverer.clone().deliver(webhook.clone(), bell.clone()));
        }
    }

    /// Waits until the catalog is found damaged; why, for the operator. Nothing is written or
    /// deleted from then on.
    pub async fn damaged(&self) -> String {
        self.foundation.safety.damaged().await
    }

    /// In a few words that anybody may read: why writes are refused, if they are.
    pub fn refused_because(&self) -> Option<&'static str> {
        self.foundation.safety.refused_because()
    }

    /// Ends background work, waits for commits under way, and closes this process's epoch.
    pub async fn shutdown(&self) {
        let Foundation { stopping, writer, hooks, safety, .. } = &self.foundation;
        stopping.cancel();
        self.background.close();
        self.background.wait().await;
        writer.finish().await;
        hooks.close().await;
        // What was acknowledged lately is safe with the backend before the process is gone, if the
        // backend is there.
        match tokio::time::timeout(LAST_SHIPMENT, safety.ship_once()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the journal was not shipped to its end; the next start does it"),
            Err(_) => tracing::warn!("the journal was not shipped to its end in time; the next start does it"),
        }
        safety.settle_anchor().await;
        writer.close().await;
    }

    /// Ships the journal now.
    ///
    /// # Errors
    /// What catalog or backend say.
    pub async fn ship_journal(&self) -> Result<Shipped, EngineError> {
        self.foundation.safety.ship_once().await
    }

    /// Every backup of the catalog, oldest first.
    ///
    /// # Errors
    /// What the backend says; an index that cannot be read, by name.
    pub async fn backups(&self) -> Result<Vec<BackupInfo>, EngineError> {
        self.foundation.safety.backups().await
    }

    /// Sets the gauges that are read from caches and, less often, from the catalog.
    pub fn refresh_gauges(&self) {
        let Foundation { metrics, blobs, bases, .. } = &self.foundation;
        let bytes = |kind: &str, value: u64| {
            metrics.cache_bytes.with_label_values(&[kind, "memory"]).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        blobs.cache_bytes().into_iter().for_each(|(kind, value)| bytes(kind, value));
        bytes("buffer", self.foundation.pool.shelf().bytes());
        bytes("window", bases.windows().bytes());
        bytes("base_row", self.read.base_rows.weighted_size());
        bytes("codec", resources::pool::kept_bytes());
    }

    /// Says when a failover of the database may lose what was acknowledged, and again when that has
    /// changed: standbys come and go.
    async fn watch_replication(self: Arc<Self>) {
        // A change that is in the backend's journal before it is acknowledged is not lost with the
        // database.
        if self.foundation.config.safety.journal_interval.is_zero() {
            return;
        }
        let mut asked = tokio::time::interval(REPLICATION_EVERY);
        let mut said = None;
        loop {
            tokio::select! {
                biased;
                () = self.foundation.stopping.cancelled() => return,
                _ = asked.tick() => {}
            }
            match self.foundation.catalog.failover_warning().await {
                Ok(warning) if warning == said => {}
                Ok(warning) => {
                    if let Some(warning) = &warning {
                        let seconds = self.foundation.config.safety.journal_interval.as_secs();
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

    /// Nobody who delivers no events looks at those that wait.
    async fn show_lanes(&self) -> Result<(), EngineError> {
        match self.foundation.config.notify.webhooks.is_empty() {
            true => Ok(()),
            false => show_lanes(&*self.foundation.catalog, &self.foundation.metrics).await,
        }
    }

    /// Sets gauges from time to time.
    async fn keep_gauges(self: Arc<Self>) {
        let Foundation { stopping, disks, safety, .. } = &self.foundation;
        let mut gauges = tokio::time::interval(GAUGES_EVERY);
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                _ = gauges.tick() => {
                    self.foundation.blobs.tidy().await;
                    self.foundation.pool.shelf().tidy();
                    self.refresh_gauges();
                    disks.measure().await;
                    safety.measure().await;
                    let shown = self.workers.converter.show_deferred().await;
                    let lanes = self.show_lanes().await;
                    if let Err(error) = shown.and(lanes).and(self.reports.refresh_counts().await) {
                        tracing::warn!(%error, "gauges could not be read from the catalog");
                    }
                }
            }
        }
    }

    fn start_background(self: &Arc<Self>) {
        self.background.spawn(self.clone().keep_gauges());
        let engine = self.clone();
        self.background.spawn(async move { engine.foundation.safety.keep_shipping(&engine.foundation.stopping).await });
        let engine = self.clone();
        self.background.spawn(async move { engine.foundation.safety.keep_current(&engine.foundation.stopping).await });
        let Foundation { writer, stopping, .. } = &self.foundation;
        self.background.spawn(writer.clone().keep_writing(stopping.clone()));
        if !self.foundation.alone {
            self.background.spawn(self.clone().watch_replication());
        }
        let (keys, stopping) = (self.keys.clone(), self.foundation.stopping.clone());
        self.background.spawn(async move { keys.follow_keyring(stopping).await });
        let (keyring, stopping) = (self.foundation.keyring.clone(), self.foundation.stopping.clone());
        self.background.spawn(async move { keyring.keep_warranted(stopping).await });
        let engine = self.clone();
        self.background.spawn(async move {
            let Foundation { soundness, catalog, safety, stopping, .. } = &engine.foundation;
            soundness.verify(&**catalog, safety, stopping).await;
        });
        if self.foundation.config.schedule_jobs {
            self.background.spawn(self.jobs.clone().schedule());
        }
    }
}
