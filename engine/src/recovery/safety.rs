//! What keeps a catalog from being lost, as long as the process lives: each room of this folder
//! adds what it does.

use super::{
    currency::{Currency, Refusal},
    document::LineageDocument,
    outside::OutsideAnchor,
    vault::Vault,
};
use crate::{
    config::SafetyConfig,
    deployment::keyring::Keyring,
    error::EngineError,
    metrics::Metrics,
    resources::{budget::MemoryBudget, clock::now_ms, pool::CodecPool},
};
use catalog::{Catalog, Seq, ServerRun};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicU32},
    time::Duration,
};
use storage_backends::{Backend, Reserve};
use tokio::sync::Notify;

/// The catalog's lineage, as its setting says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LineageSetting {
    pub(super) name: String,
    pub(super) parent: Option<String>,
    pub(super) start: Seq,
}

impl LineageSetting {
    /// As the store is told of it.
    pub(super) fn document(&self) -> Result<LineageDocument, EngineError> {
        let parent = self.parent.as_deref().map(str::parse).transpose()?;
        Ok(LineageDocument { start: self.start, parent })
    }
}

/// The name of that setting.
pub(super) const LINEAGE_SETTING: &str = "lineage";
/// The setting that keeps the collector from blobs that only a rebuild can judge.
pub(super) const SWEEP_FLOOR_SETTING: &str = "sweep_floor";
/// How long it does so.
pub(super) const SWEEP_FLOOR: Duration = Duration::from_secs(7 * 86_400);

/// How many shipments have ended well, up to where the last of them came, and in which run of the
/// database's server. The second may go back: a catalog may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shipment {
    pub(super) number: u64,
    pub(super) seq: Seq,
    pub(super) run: ServerRun,
}

/// Where they are waited for. Whoever came first is woken first.
#[derive(Default)]
pub(super) struct Rounds {
    last: Mutex<Shipment>,
    ended: Notify,
}

impl Rounds {
    /// The last one that ended well.
    pub(super) fn last(&self) -> Shipment {
        *self.lock()
    }

    /// Another one ended well, and came up to `seq` in a run of the database's server.
    pub(super) fn end(&self, seq: Seq, run: ServerRun) {
        let mut last = self.lock();
        *last = Shipment { number: last.number + 1, seq, run };
        drop(last);
        self.ended.notify_waiters();
    }

    /// Waits for one of which something holds.
    pub(super) async fn wait_for(&self, holds: impl Fn(Shipment) -> bool) -> Shipment {
        loop {
            let mut ended = pin!(self.ended.notified());
            // One that ends between the look and the wait is not missed.
            ended.as_mut().enable();
            let last = self.last();
            if holds(last) {
                return last;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shipment> {
        // Nothing panics while it holds the lock.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ships, backs up, and knows how far it is.
pub(crate) struct Safety {
    pub(super) config: SafetyConfig,
    /// The catalog itself, not the one that waits for us.
    pub(super) catalog: Arc<dyn Catalog>,
    pub(super) vault: Vault,
    pub(super) budget: Option<Arc<MemoryBudget>>,
    pub(super) metrics: Arc<Metrics>,
    /// One shipment at a time in this process; several processes do no harm to each other
    /// (`cut_journal`).
    pub(super) shipping: tokio::sync::Mutex<()>,
    pub(super) backing_up: tokio::sync::Mutex<()>,
    /// What is kept on the backend's disk for when it is full.
    pub(super) reserve: OnceLock<Arc<Reserve>>,
    /// What the last shipment came to.
    pub(super) shipped: Rounds,
    /// Somebody waits for a shipment.
    pub(super) wanted: Notify,
    pub(super) currency: Currency,
    /// How far the journal is known to be by what lies elsewhere.
    pub(super) outside: OutsideAnchor,
    /// Generation of the lineage that the backend is known to have heard of; 0 for none.
    pub(super) announced: AtomicU32,
    /// Generation of the lineage whose document is known to be sealed, itself or by a copy; 0 for
    /// none.
    pub(super) sealed: AtomicU32,
}

impl Safety {
    /// The backends that are this deployment's now. One that cannot be asked is not known to be.
    ///
    /// # Errors
    /// [`EngineError`] that says what to do when one was taken over since the start.
    pub(crate) async fn owned_backends(&self) -> Result<BTreeSet<String>, EngineError> {
        match self.places() {
            Some(places) => places.owned().await,
            None => Ok(BTreeSet::new()),
        }
    }

    /// Whether every backend can be asked and is this deployment's. One that is not refuses writes
    /// from now on, whoever found out.
    ///
    /// # Errors
    /// As [`Safety::owned_backends`], and what the backends say.
    pub(crate) async fn check_ownership(&self) -> Result<(), EngineError> {
        let Some(places) = self.places() else { return Ok(()) };
        let Some(lost) = places.lost().await? else { return Ok(()) };
        self.currency.refuse(Refusal::of_place(&lost.why, lost.is_directory));
        Err(lost.why)
    }

    pub(crate) fn new(
        config: SafetyConfig,
        catalog: Arc<dyn Catalog>,
        backend: Arc<dyn Backend>,
        keyring: Arc<Keyring>,
        pool: Arc<CodecPool>,
        budget: Option<Arc<MemoryBudget>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            currency: Currency::new(metrics.clone()),
            outside: OutsideAnchor::default(),
            config,
            catalog,
            vault: Vault::new(backend, keyring, pool, metrics.clone()),
            budget,
            metrics,
            shipping: tokio::sync::Mutex::new(()),
            backing_up: tokio::sync::Mutex::new(()),
            reserve: OnceLock::new(),
            shipped: Rounds::default(),
            wanted: Notify::new(),
            announced: AtomicU32::new(0),
            sealed: AtomicU32::new(0),
        }
    }

    /// The same with the anchor that the configuration names; `store` is open where that names one.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it is not.
    pub(crate) fn anchored(mut self, store: Option<Arc<dyn Backend>>) -> Result<Self, EngineError> {
        self.outside = OutsideAnchor::open(self.config.anchor.clone(), store, self.metrics.clone())?;
        Ok(self)
    }

    /// From now on the journal is spared while this is used up: each of its blobs takes some of it.
    pub(crate) fn spare(&self, reserve: Arc<Reserve>) {
        // Set once, when the engine is opened.
        let _ = self.reserve.set(reserve);
    }

    /// How long a dead blob waits for its purge because a backup may need it (E21).
    pub(crate) fn purge_delay_ms(&self) -> catalog::UnixMs {
        let retention = self.config.backup_interval.map_or(Duration::ZERO, |_| self.config.backup_retention);
        catalog::UnixMs::try_from(retention.as_millis()).unwrap_or(catalog::UnixMs::MAX / 4)
    }
}

/// Blobs of epochs up to `epoch` that no row knows are left alone until `until_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SweepFloor {
    pub(crate) epoch: u32,
    pub(crate) until_ms: catalog::UnixMs,
}

/// The floor in force, if any.
pub(crate) async fn sweep_floor(catalog: &dyn Catalog) -> Result<Option<SweepFloor>, EngineError> {
    let Some(setting) = catalog.setting(SWEEP_FLOOR_SETTING).await? else { return Ok(None) };
    let floor: SweepFloor = serde_json::from_value(setting)
        .map_err(|error| EngineError::Other(format!("the catalog's setting {SWEEP_FLOOR_SETTING}: {error}")))?;
    Ok((floor.until_ms > now_ms()).then_some(floor))
}
