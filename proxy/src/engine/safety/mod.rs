//! Not losing what the catalog knows (I11): its journal is shipped to a backend, snapshots of it are kept there, and it can be made again
//! from both. The format is docs/format/journal-v1.md, the reasons are docs/decisions/0009-journal-chain.md.
//!
//! ```text
//! catalog.journal ── ship ──► journal/LINEAGE/FIRST …  ┐
//! catalog rows ──── backup ─► backup/…, backup-part/…  ├─► restore, rebuild ──► an empty catalog, a new lineage
//! blobs/ (their manifests) ────────────────────────────┘
//! ```

mod anchor;
mod backup;
mod document;
mod names;
mod recovered;
mod restore;
mod ship;
mod store_key;
mod vault;

pub use backup::BackupInfo;

pub use recovered::{LostVersion, Recovered};
pub use restore::{Progress, RecoveryOptions, RecoveryReport, list_backups, recover};
pub use ship::Shipped;

use super::{budget::MemoryBudget, error::EngineError, keyring::Keyring, pool::CodecPool};
use crate::metrics::Metrics;
use catalog::{Catalog, Seq};
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};
use storage_backends::Backend;
use tokio::sync::{Notify, watch};
use vault::Vault;

/// How journal and backups are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetyConfig {
    /// The backend that keeps them.
    pub backend: String,
    /// How long after a change its journal entry is in the backend. Zero: before the change is acknowledged.
    pub journal_interval: Duration,
    /// How often a backup is made; `None`: when somebody asks for one.
    pub backup_interval: Option<Duration>,
    /// How long backups are kept; the newest is kept whatever its age.
    pub backup_retention: Duration,
    /// Serve a catalog although the backend holds a later state of it.
    pub accept_older_catalog: bool,
}

/// The catalog's lineage, as its setting says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineageSetting {
    name: String,
    parent: Option<String>,
    start: Seq,
}

/// The name of that setting.
const LINEAGE_SETTING: &str = "lineage";
/// The setting that keeps the collector from blobs that only a rebuild can judge.
const SWEEP_FLOOR_SETTING: &str = "sweep_floor";
/// How long it does so.
const SWEEP_FLOOR: Duration = Duration::from_secs(7 * 86_400);

/// Ships, backs up, and knows how far it is.
pub(super) struct Safety {
    config: SafetyConfig,
    /// The catalog itself, not the one that waits for us.
    catalog: Arc<dyn Catalog>,
    vault: Vault,
    budget: Option<Arc<MemoryBudget>>,
    metrics: Arc<Metrics>,
    /// One shipment at a time in this process; several processes do no harm to each other (`cut_journal`).
    shipping: tokio::sync::Mutex<()>,
    backing_up: tokio::sync::Mutex<()>,
    /// The last sequence number that is in the backend.
    shipped: watch::Sender<Seq>,
    /// Somebody waits for a shipment.
    wanted: Notify,
    /// Generation of the lineage that the backend is known to have heard of; 0 for none.
    announced: AtomicU32,
}

impl Safety {
    pub(super) fn new(
        config: SafetyConfig,
        catalog: Arc<dyn Catalog>,
        backend: Arc<dyn Backend>,
        keyring: Arc<Keyring>,
        pool: Arc<CodecPool>,
        budget: Option<Arc<MemoryBudget>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            config,
            catalog,
            vault: Vault::new(backend, keyring, pool),
            budget,
            metrics,
            shipping: tokio::sync::Mutex::new(()),
            backing_up: tokio::sync::Mutex::new(()),
            shipped: watch::Sender::new(0),
            wanted: Notify::new(),
            announced: AtomicU32::new(0),
        }
    }

    /// How long a dead blob waits for its purge because a backup may need it (E21).
    pub(super) fn purge_delay_ms(&self) -> catalog::UnixMs {
        let retention = self.config.backup_interval.map_or(Duration::ZERO, |_| self.config.backup_retention);
        catalog::UnixMs::try_from(retention.as_millis()).unwrap_or(catalog::UnixMs::MAX / 4)
    }

    /// Every backup in the backend, oldest first.
    pub(super) async fn backups(&self) -> Result<Vec<BackupInfo>, EngineError> {
        self.vault.backups().await
    }
}

/// Blobs of epochs up to `epoch` that no row knows are left alone until `until_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SweepFloor {
    pub(super) epoch: u32,
    pub(super) until_ms: catalog::UnixMs,
}

/// The floor in force, if any.
pub(super) async fn sweep_floor(catalog: &dyn Catalog) -> Result<Option<SweepFloor>, EngineError> {
    let Some(setting) = catalog.setting(SWEEP_FLOOR_SETTING).await? else { return Ok(None) };
    let floor: SweepFloor = serde_json::from_value(setting)
        .map_err(|error| EngineError::Other(format!("the catalog's setting {SWEEP_FLOOR_SETTING}: {error}")))?;
    Ok((floor.until_ms > super::now_ms()).then_some(floor))
}
