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

use crate::{deployment::ownership::Places, error::EngineError, metrics::Metrics};
use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use tokio::time::Instant;

/// What a write or a deletion rests on is no older than this.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(5);
/// While writes come, this is how often somebody looks for them, so that they need not wait for it.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(3);
/// How often it is looked whether what was refused is well again.
pub(super) const AGAIN_EVERY: Duration = Duration::from_secs(2);
/// A write looks by itself whether a directory that did not answer is well, once in this time.
pub(super) const AT_ONCE_EVERY: Duration = Duration::from_millis(250);
/// A process without writes sends its stores one request in this time, on average.
pub(super) const IDLE_PER_REQUEST: Duration = Duration::from_secs(60);
/// How often it is asked whether a look is due; costs nothing.
pub(super) const TICK: Duration = Duration::from_millis(500);
/// Requests of a look besides those for owner records: one listing of lineages, one question for
/// the next journal blob.
pub(super) const REQUESTS: u32 = 2;

/// Why a catalog may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaleReason {
    /// The store's journal goes further.
    Behind,
    /// The store's journal has other mutations under the same numbers.
    Beside,
    /// Another catalog went on from this one, or this one never was the store's.
    Lineage,
    /// A backend is another deployment's, or nobody's.
    Place,
    /// Rows of the catalog are not what was written.
    Damaged,
}

impl StaleReason {
    /// Every one.
    pub(super) const ALL: [Self; 5] = [Self::Behind, Self::Beside, Self::Lineage, Self::Place, Self::Damaged];

    /// As metrics and logs name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::Beside => "beside",
            Self::Lineage => "lineage",
            Self::Place => "place",
            Self::Damaged => "damaged",
        }
    }

    /// As anybody may be told.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Behind => "the catalog is behind its store",
            Self::Beside => "the catalog and its store tell different stories",
            Self::Lineage => "another catalog has the store",
            Self::Place => "a backend is not this deployment's",
            Self::Damaged => "the catalog is damaged",
        }
    }

    /// What an operator of a running process is to do.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Behind | Self::Beside => {
                "A database that failed over, or was put back from a copy, looks like this. Bring back the one that has these \
                 mutations, and writes go on by themselves; if it is lost, stop every replica and join what this one and its store have with \
                 `deltaweir recover --merge` (docs/guide/disaster.md)"
            }
            Self::Lineage => "Stop this process: its catalog is not the store's any more (docs/guide/disaster.md)",
            Self::Place => "Bring the right place back, and writes go on by themselves",
            Self::Damaged => {
                "Nothing is written or collected. Stop every process, keep a copy of the database, and run `deltaweir rebuild` into an empty \
                 one (docs/guide/disaster.md)"
            }
        }
    }
}

/// Why nothing is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) reason: StaleReason,
    pub(super) why: String,
    /// Whether it is a directory that is lost: it may have failed to answer for a moment only.
    pub(super) of_directory: bool,
}

impl Refusal {
    /// With what to do about it.
    pub(super) fn advised(reason: StaleReason, why: &str) -> Self {
        Self { reason, why: format!("{why}. {}", reason.advice()), of_directory: false }
    }

    /// Because of a place that is not this deployment's any more.
    pub(super) fn of_place(lost: &EngineError, is_directory: bool) -> Self {
        Self { reason: StaleReason::Place, why: lost.to_string(), of_directory: is_directory }
    }
}

/// What is known, and since when.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// When the last look began that found all well.
    pub(super) proven: Option<Instant>,
    /// When the last look began, whatever it found.
    pub(super) looked: Option<Instant>,
    /// What it found.
    pub(super) refusal: Option<Refusal>,
    /// When a write last asked.
    pub(super) written: Option<Instant>,
}

/// How current the catalog is known to be.
pub(super) struct Currency {
    pub(super) places: OnceLock<Places>,
    pub(super) looking: tokio::sync::Mutex<()>,
    pub(super) known: Mutex<Known>,
    /// What is wrong with the catalog's rows, once something is known to be.
    pub(super) damage: watch::Sender<Option<String>>,
    pub(super) metrics: Arc<Metrics>,
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

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
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

    pub(super) fn prove(&self, began: Instant) {
        let mut known = self.known();
        if self.damage.borrow().is_some() {
            return;
        }
        if known.refusal.take().is_some() {
            tracing::info!("the catalog is the newest state of its store again: writes resume");
        }
        known.proven = Some(began);
        self.show(None);
    }

    pub(super) fn show(&self, refused: Option<StaleReason>) {
        for reason in StaleReason::ALL {
            self.metrics.writes_refused.with_label_values(&[reason.name()]).set((Some(reason) == refused).into());
        }
    }
}

pub(super) fn damage_refusal(why: &str) -> Refusal {
    Refusal::advised(StaleReason::Damaged, &format!("the catalog is damaged: {why}"))
}

/// Whether a look is due in a process that nobody asks.
pub(super) fn is_due(known: &Known, now: Instant, idle: Duration) -> bool {
    let Some(looked) = known.looked else { return known.written.is_some() };
    let age = now.saturating_duration_since(looked);
    let writes = known.written.is_some_and(|written| now.saturating_duration_since(written) < LOOK_MAX);
    match (&known.refusal, writes) {
        (Some(_), _) => age >= AGAIN_EVERY,
        (None, true) => age >= LOOK_EVERY,
        (None, false) => age >= idle,
    }
}

/// Whether a look is due before a write. A directory that did not answer, because descriptors had
/// run out, say, and does so now, `answers`: who writes need not wait until it is looked for them.
/// That no directory is lost says nothing of a cloud that is.
pub(super) fn is_due_for_write(known: &Known, now: Instant, answers: bool) -> bool {
    let Some(age) = known.looked.map(|looked| now.saturating_duration_since(looked)) else { return true };
    let may_be_well = answers && known.refusal.as_ref().is_some_and(|refusal| refusal.of_directory);
    age >= LOOK_MAX || may_be_well && age >= AT_ONCE_EVERY
}

/// Whether something that happened `at` is young enough to rest on.
pub(super) fn is_fresh(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < LOOK_MAX)
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
        known.refusal = Some(Refusal { reason: StaleReason::Behind, why: String::new(), of_directory: false });
        assert!(!due(&known, 1) && due(&known, 2) && due(&known, 100), "it may have become well");
    }

    #[test]
    fn a_write_looks_at_once_whether_a_directory_that_answers_again_is_well() {
        let start = Instant::now();
        let due = |known: &Known, after: Duration, answers| is_due_for_write(known, start + after, answers);
        let mut known = Known { looked: Some(start), ..Known::default() };
        assert!(due(&Known::default(), Duration::ZERO, true), "nobody has looked");
        assert!(!due(&known, AT_ONCE_EVERY, true) && due(&known, LOOK_MAX, true), "nothing is wrong");
        let refused = |reason| Some(Refusal { reason, why: String::new(), of_directory: false });
        known.refusal = refused(StaleReason::Place);
        assert!(!due(&known, AT_ONCE_EVERY, true), "it is a cloud that is lost");
        known.refusal = known.refusal.map(|refusal| Refusal { of_directory: true, ..refusal });
        assert!(due(&known, AT_ONCE_EVERY, true) && !due(&known, AT_ONCE_EVERY / 2, true), "it answers");
        assert!(!due(&known, AT_ONCE_EVERY, false), "it does not");
        known.refusal = refused(StaleReason::Behind);
        assert!(!due(&known, AT_ONCE_EVERY, true), "no directory mends a fork");
    }
}
