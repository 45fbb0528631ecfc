//! Is the catalog still the newest state of its store, and are the stores still its own? (E21, E22)
//!
//! A database that failed over to a standby that lagged, a copy that was put back, a disk that was
//! unmounted: the process runs on, and all it does from then on is built on a wrong state. So it
//! looks again, by one rule: **writes are refused on evidence, deletions need proof.**
//!
//! ```text
//! owner records ─┐
//! lineages ──────┼─ look ─► proven (until LOOK_MAX later) ─► writes, deletions
//! journal chain ─┘    ├───► refused, with a reason ───────► neither, until a later look finds all well
//!                     └───► no answer ────────────────────► writes go on, nothing is deleted
//! ```

use super::{
    Safety,
    anchor::{Reason, Standing},
};
use crate::{deployment::ownership::Places, error::EngineError, metrics::Metrics};
use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a write or a deletion rests on is no older than this.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// While writes come, this is how often somebody looks for them, so that they need not wait for it.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often it is looked whether what was refused is well again.
const AGAIN_EVERY: Duration = Duration::from_secs(2);
/// A process without writes sends its stores one request in this time, on average.
const IDLE_PER_REQUEST: Duration = Duration::from_secs(60);
/// How often it is asked whether a look is due; costs nothing.
const TICK: Duration = Duration::from_millis(500);
/// Requests of a look besides those for owner records: one listing of lineages, one question for
/// the next journal blob.
const REQUESTS: u32 = 2;

/// Why nothing is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: Reason,
    pub(super) why: String,
}

/// What is known, and since when.
#[derive(Clone, Debug, Default)]
struct Known {
    /// When the last look began that found all well.
    proven: Option<Instant>,
    /// When the last look began, whatever it found.
    looked: Option<Instant>,
    /// What it found.
    refusal: Option<Refusal>,
    /// When a write last asked.
    written: Option<Instant>,
}

/// How current the catalog is known to be.
pub(super) struct Currency {
    places: OnceLock<Places>,
    looking: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
    /// What is wrong with the catalog's rows, once something is known to be.
    damage: watch::Sender<Option<String>>,
    metrics: Arc<Metrics>,
}

impl Currency {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            places: OnceLock::new(),
            looking: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            damage: watch::Sender::default(),
            metrics,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses writes and deletions from now on. Said once, however often it is found.
    pub(super) fn refuse(&self, refusal: Refusal) {
        let mut known = self.known();
        // A catalog that is behind comes to be beside as soon as it goes on by itself: the same
        // fork, and the same to be done.
        let said = known.refusal.as_ref().is_some_and(|before| before.reason.advice() == refusal.reason.advice());
        if !said {
            tracing::error!(reason = refusal.reason.name(), "writes and deletions are refused: {}", refusal.why);
        }
        known.refusal = Some(refusal);
        known.proven = None;
        let refused = known.refusal.as_ref().map(|refusal| refusal.reason);
        self.show(refused);
    }

    fn prove(&self, began: Instant) {
        let mut known = self.known();
        if self.damage.borrow().is_some() {
            return;
        }
        if known.refusal.take().is_some() {
            tracing::info!("the catalog is the newest state of its store again: writes go on");
        }
        known.proven = Some(began);
        self.show(None);
    }

    fn show(&self, refused: Option<Reason>) {
        for reason in Reason::ALL {
            self.metrics.writes_refused.with_label_values(&[reason.name()]).set((Some(reason) == refused).into());
        }
    }
}

fn damage_refusal(why: &str) -> Refusal {
    Refusal { reason: Reason::Damaged, why: format!("the catalog is damaged: {why}. {}", Reason::Damaged.advice()) }
}

/// Whether a look is due in a process that nobody asks.
fn is_due(known: &Known, now: Instant, idle: Duration) -> bool {
    let Some(looked) = known.looked else { return known.written.is_some() };
    let age = now.saturating_duration_since(looked);
    let writes = known.written.is_some_and(|written| now.saturating_duration_since(written) < LOOK_MAX);
    match (&known.refusal, writes) {
        (Some(_), _) => age >= AGAIN_EVERY,
        (None, true) => age >= LOOK_EVERY,
        (None, false) => age >= idle,
    }
}

/// Whether something that happened `at` is young enough to rest on.
fn is_fresh(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < LOOK_MAX)
}

impl Safety {
    /// From now on these are held against their owner records.
    pub(crate) fn watch(&self, places: Places) {
        // Set once, when the engine is opened.
        let _ = self.currency.places.set(places);
    }

    /// The catalog was found damaged: from now on nothing is written or deleted. Only another
    /// catalog ends that.
    pub(crate) fn note_damage(&self, why: &str) {
        let is_first = self.currency.damage.send_if_modified(|damage| {
            let is_first = damage.is_none();
            damage.get_or_insert_with(|| why.to_owned());
            is_first
        });
        if is_first {
            self.metrics.catalog_damaged.set(1);
            self.currency.refuse(damage_refusal(why));
        }
    }

    /// Waits until the catalog is found damaged; why.
    pub(crate) async fn damaged(&self) -> String {
        let mut damage = self.currency.damage.subscribe();
        match damage.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    /// What is watched; `None` where no engine is open.
    pub(crate) fn places(&self) -> Option<&Places> {
        self.currency.places.get()
    }

    /// Lets a write go on, or says why not. Looks when the last look is too old, at most once for
    /// all who wait.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] in words for the operator.
    pub(crate) async fn may_write(&self) -> Result<(), EngineError> {
        self.currency.known().written = Some(Instant::now());
        if let Some(places) = self.currency.places.get()
            && let Some(lost) = places.directory_lost().await
        {
            self.currency.refuse(Refusal { reason: Reason::Place, why: lost.to_string() });
        }
        if !is_fresh(self.currency.known().looked) {
            // A store that does not answer proves nothing: what needs it fails by itself.
            if let Err(error) = self.look().await {
                tracing::warn!(%error, "it cannot be seen whether the catalog is the newest state of its store");
            }
        }
        self.check_not_refused()
    }

    /// Lets something be deleted that only the catalog says nobody needs, or says why not. Whatever
    /// is not proven is refused.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] in words for the operator; what the store or the catalog say
    /// when they cannot be asked.
    pub(crate) async fn may_delete(&self) -> Result<(), EngineError> {
        if !is_fresh(self.currency.known().proven) {
            self.look().await?;
        }
        self.check_not_refused()
    }

    /// Why writes are refused, if they are.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.currency.known().refusal.clone()
    }

    /// Whether writes are refused.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] in words for the operator.
    pub(crate) fn check_not_refused(&self) -> Result<(), EngineError> {
        self.refusal().map_or(Ok(()), |refusal| Err(EngineError::NotCurrent(refusal.why)))
    }

    /// In a few words that anybody may read: why writes are refused, if they are.
    pub(crate) fn refused_because(&self) -> Option<&'static str> {
        self.refusal().map(|refusal| refusal.reason.words())
    }

    /// Compares the catalog with its store, and notes what came out. Those who wait for another's
    /// look share it.
    async fn look(&self) -> Result<(), EngineError> {
        let asked = Instant::now();
        let _one = self.currency.looking.lock().await;
        if self.currency.known().proven.is_some_and(|proven| proven >= asked) {
            return Ok(());
        }
        let began = Instant::now();
        let found = self.compare().await;
        self.currency.known().looked = Some(began);
        let outcome = match &found {
            Ok(None) => "current",
            Ok(Some(_)) => "refused",
            Err(_) => "failed",
        };
        self.metrics.catalog_looks_total.with_label_values(&[outcome]).inc();
        match found? {
            None => self.currency.prove(began),
            Some(refusal) => self.currency.refuse(refusal),
        }
        Ok(())
    }

    async fn compare(&self) -> Result<Option<Refusal>, EngineError> {
        if let Some(why) = self.currency.damage.borrow().as_deref() {
            return Ok(Some(damage_refusal(why)));
        }
        if let Some(places) = self.currency.places.get()
            && let Some(lost) = places.lost().await?
        {
            return Ok(Some(Refusal { reason: Reason::Place, why: lost.to_string() }));
        }
        Ok(match self.standing().await? {
            Standing::Newest => None,
            Standing::Older { why, reason, .. } => Some(Refusal { reason, why: format!("{why}. {}", reason.advice()) }),
        })
    }

    /// Looks in time until `stopping`: often while there are writes, and seldom else.
    pub(crate) async fn keep_current(&self, stopping: &CancellationToken) {
        let requests = REQUESTS + self.currency.places.get().map_or(0, Places::requests);
        let idle = IDLE_PER_REQUEST * requests;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(TICK) => {}
            }
            let due = is_due(&self.currency.known(), Instant::now(), idle);
            if due && let Err(error) = self.look().await {
                tracing::warn!(%error, "it cannot be seen whether the catalog is the newest state of its store");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_frequent_while_there_are_writes_and_rare_without() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let idle = Duration::from_secs(240);
        let due = |known: &Known, seconds| is_due(known, at(seconds), idle);
        assert!(!due(&Known::default(), 1000), "nobody has written");
        let mut known = Known { looked: Some(at(0)), written: Some(at(0)), ..Known::default() };
        assert!(!due(&known, 2) && due(&known, 3) && due(&known, 4), "writes come");
        assert!(!due(&known, 6) && !due(&known, 239) && due(&known, 240), "none has come for a while");
        known.refusal = Some(Refusal { reason: Reason::Behind, why: String::new() });
        assert!(!due(&known, 1) && due(&known, 2) && due(&known, 100), "it may have become well");
    }
}
