//! The engine: stores content and gives it back. Knows buckets, keys, versions and blobs; no HTTP.
//!
//! A write is [`Engine::stage`] (the body is encoded and streamed to the backend while it arrives) followed by
//! [`Engine::publish`] (the blob is finished, made durable, and one catalog transaction makes it visible, I9). Dropping what
//! `stage` gave abandons it without a trace. A read is [`Engine::open_object`] followed by [`Engine::read`].

mod base;
mod blobs;
pub mod bucket;
mod budget;
pub mod collect;
pub mod config;
mod disks;
mod encode;
pub mod error;
pub mod facts;
pub mod keyring;
mod names;
mod observe;
mod outlet;
mod pins;
mod plan;
mod pool;
mod publish;
mod read;
mod report;
mod stage;
#[cfg(test)]
mod tests;
mod uploads;
mod view;
mod window;

pub use bucket::{BucketHandle, BucketState};
pub use collect::Collection;
pub use config::{BackendConfig, BucketSettings, Compression, EffortSetting, Encryption, EngineConfig};
pub use error::{EngineError, StoreError};
pub use facts::{Checksum, Facts, Form, PartFacts, PartSize, StorageFacts};
pub use publish::{Completion, PartName};
pub use read::OpenObject;
pub use stage::Staged;

use crate::metrics::Metrics;
use blobs::Blobs;
use budget::MemoryBudget;
use catalog::{
    BlobRow, Catalog, CatalogError, Committed, Precondition, SqliteCatalog, SqliteOptions, UnixMs, UploadId, Version,
};
use keyring::Keyring;
use moka::future::Cache;
use object_format::BlobId;
use observe::{BackendMetrics, CatalogMetrics};
use pins::Pins;
use pool::{CodecPool, PoolKind};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use storage_backends::{
    Backend, Concurrency, Limited, LocalBackend, LocalOptions, Measured, RetryPolicy, Retrying, S3Config, S3Credentials,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uploads::PartLens;
use window::Windows;

/// Memory one codec thread's encoder and decoder take at most.
const CODEC_THREAD_BYTES: u64 = 12 << 20;
/// How often gauges that are read from elsewhere are set.
const GAUGES_EVERY: Duration = Duration::from_secs(10);
/// Base rows of this many deltas are kept.
const BASE_ROWS_KEPT: u64 = 20_000;

/// Storage of one deployment: catalog, backends, keys, caches, codec pool and memory budget.
pub struct Engine {
    config: EngineConfig,
    catalog: Arc<dyn Catalog>,
    blobs: Arc<Blobs>,
    base_rows: Cache<BlobId, Arc<Vec<BlobRow>>>,
    keyring: Keyring,
    epoch: u32,
    pool: Arc<CodecPool>,
    hash_pool: Arc<CodecPool>,
    budget: Arc<MemoryBudget>,
    windows: Arc<Windows>,
    pins: Arc<Pins>,
    part_lens: PartLens,
    /// Commits under way: they end before the process does.
    commits: TaskTracker,
    background: TaskTracker,
    stopping: CancellationToken,
    collecting: tokio::sync::Mutex<()>,
    last_collection: Mutex<Option<(UnixMs, Result<Collection, String>)>>,
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
    pub async fn open(mut config: EngineConfig, metrics: Arc<Metrics>) -> Result<Arc<Self>, EngineError> {
        make_private_dir(&config.data)?;
        let catalog = open_catalog(&config, &metrics).await?;
        let keyring = Keyring::open(&config.data, config.kek.take())?;
        keyring.check(&*catalog).await?;
        let mut backends = BTreeMap::new();
        for (name, backend) in &config.backends {
            backends.insert(name.clone(), open_backend(name, backend, config.sync, &metrics).await?);
        }
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
        budget.reserve(decoded_bytes_max + CODEC_THREAD_BYTES * threads as u64);
        let blobs = Arc::new(Blobs::new(backends, decoded_bytes_max, pool.clone(), metrics.clone()));
        let windows = Windows::new(budget.clone(), blobs.clone(), pool.clone());
        let epoch = catalog.open_epoch().await?;
        let engine = Arc::new(Self {
            config,
            catalog,
            blobs,
            base_rows: Cache::new(BASE_ROWS_KEPT),
            keyring,
            epoch,
            pool,
            hash_pool,
            budget,
            windows,
            pins: Arc::default(),
            part_lens: PartLens::default(),
            commits: TaskTracker::new(),
            background: TaskTracker::new(),
            stopping: CancellationToken::new(),
            collecting: tokio::sync::Mutex::new(()),
            last_collection: Mutex::new(None),
            metrics,
        });
        engine.start_background();
        Ok(engine)
    }

    /// The catalog, for operations that only touch metadata (lists, uploads).
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    /// True when a copy from one bucket to the other is a row, not bytes.
    pub fn shares_extents(&self, from: &BucketHandle, to: &BucketHandle) -> bool {
        from.row.id == to.row.id
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
        let (engine, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        self.detached(async move {
            let commit = catalog::DeleteCommit { bucket, key, precondition, now_ms: now_ms(), epoch: engine.epoch };
            Ok(engine.catalog.delete(commit).await?)
        })
        .await
    }

    /// Waits until no commit and no collection is under way, at most `timeout`; true when it got there.
    pub async fn settle(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let idle = async {
            while !self.commits.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let _ = self.collecting.lock().await;
        };
        tokio::time::timeout_at(deadline.into(), idle).await.is_ok()
    }

    /// Drops every cache: manifests, decoded segments, idle base windows.
    pub fn drop_caches(&self) {
        self.blobs.drop_caches();
        self.base_rows.invalidate_all();
        self.windows.drop_idle();
    }

    /// Background jobs: name, interval, last run and its outcome.
    pub fn jobs(&self) -> Value {
        let last = self.last_collection.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (last_run_ms, outcome) = match last {
            None => (None, Value::Null),
            Some((at, Ok(report))) => (Some(at), json!(report)),
            Some((at, Err(error))) => (Some(at), json!({ "error": error })),
        };
        json!([{
            "name": "gc",
            "interval_s": self.config.gc_interval.as_secs(),
            "running": self.collecting.try_lock().is_err(),
            "last_run_ms": last_run_ms,
            "last_outcome": outcome,
        }])
    }

    /// Asks the catalog and every backend whether they can serve.
    ///
    /// # Errors
    /// The first trouble, in words.
    pub async fn probe(&self) -> Result<(), EngineError> {
        self.catalog.probe().await?;
        for (name, backend) in self.blobs.backends() {
            backend.probe().await.map_err(|error| EngineError::Unavailable(format!("backend {name}: {error}")))?;
        }
        Ok(())
    }

    /// Ends background work and waits for commits under way.
    pub async fn shutdown(&self) {
        self.stopping.cancel();
        self.background.close();
        self.commits.close();
        self.background.wait().await;
        self.commits.wait().await;
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
            let mut collections = tokio::time::interval(engine.config.gc_interval);
            let mut gauges = tokio::time::interval(GAUGES_EVERY);
            loop {
                tokio::select! {
                    () = engine.stopping.cancelled() => return,
                    _ = collections.tick() => engine.collect_in_background().await,
                    _ = gauges.tick() => {
                        engine.refresh_gauges();
                        engine.measure_disks().await;
                        if let Err(error) = engine.stats().await {
                            tracing::warn!(%error, "bucket gauges could not be read from the catalog");
                        }
                    }
                }
            }
        });
    }

    async fn collect_in_background(self: &Arc<Self>) {
        let outcome = tokio::select! {
            () = self.stopping.cancelled() => return,
            outcome = self.collect(false) => outcome,
        };
        if let Err(error) = &outcome {
            tracing::error!(%error, "collection failed; it is tried again");
        }
        let outcome = outcome.map_err(|error| error.to_string());
        *self.last_collection.lock().unwrap_or_else(PoisonError::into_inner) = Some((now_ms(), outcome));
    }
}

async fn open_catalog(config: &EngineConfig, metrics: &Arc<Metrics>) -> Result<Arc<dyn Catalog>, EngineError> {
    if config.catalog != "sqlite" {
        return Err(EngineError::Other(format!(
            "catalog {:?} is not supported: this version keeps it in \"sqlite\"",
            config.catalog
        )));
    }
    let options = SqliteOptions {
        sync: config.sync,
        observer: Some(Arc::new(CatalogMetrics(metrics.clone()))),
        ..SqliteOptions::default()
    };
    let catalog =
        SqliteCatalog::open(config.data.join("catalog.sqlite"), options).await.map_err(|error| match error {
            CatalogError::InUse => {
                EngineError::Other(format!("{} is in use by another deltaweir process", config.data.display()))
            }
            other => other.into(),
        })?;
    Ok(Arc::new(catalog))
}

async fn open_backend(
    name: &str,
    config: &BackendConfig,
    sync: bool,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Backend>, EngineError> {
    let observer = Arc::new(BackendMetrics { backend: name.to_owned(), metrics: metrics.clone() });
    match config {
        BackendConfig::Local { path } => {
            let local = LocalBackend::open(path.clone(), LocalOptions { sync }).await?;
            Ok(Arc::new(Measured::new(local, observer)))
        }
        BackendConfig::S3 { endpoint, bucket, prefix, region, access_key_id, secret_access_key } => {
            let credentials = match (access_key_id, secret_access_key) {
                (Some(id), Some(secret)) => S3Credentials::Static {
                    access_key_id: id.clone(),
                    secret_access_key: secret.expose_secret().to_owned().into(),
                    session_token: None,
                },
                _ => {
                    return Err(EngineError::Other(format!(
                        "backend {name}: access_key_id and secret_access_key are needed"
                    )));
                }
            };
            let store = S3Config {
                endpoint: endpoint.clone(),
                prefix: prefix.clone(),
                region: region.clone(),
                ..S3Config::new(bucket.clone(), credentials)
            };
            let measured = Measured::new(store.open()?, observer.clone());
            let limited = Limited::new(measured, Concurrency::default());
            Ok(Arc::new(Retrying::new(limited, RetryPolicy::default(), observer)))
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
