//! Series whose versions drift from their base: what is left to do when a new one has begun.

use catalog::BlobKey;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Ends of series that wait for the converter, at most.
const WAITING_MAX: usize = 4096;

/// A base that its series has drifted from, and the one that comes after it. What differs from the
/// first differs less from both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Between {
    /// The base before.
    pub(crate) before: BlobKey,
    /// The base after it.
    pub(crate) after: BlobKey,
    /// Deltas of the first up to this one, in the order of ids, have been looked at.
    pub(crate) done: Option<BlobKey>,
}

/// What waits for the converter: advice, kept in memory. Without it a series takes more bytes.
#[derive(Default)]
pub(crate) struct Ends(Mutex<VecDeque<Between>>);

impl Ends {
    /// A new base was stored.
    pub(crate) fn tell(&self, between: Between) {
        let mut waiting = self.waiting();
        let is_same = |other: &Between| (other.before, other.after) == (between.before, between.after);
        if waiting.len() < WAITING_MAX && !waiting.iter().any(is_same) {
            waiting.push_back(between);
        }
    }

    /// The one that waits longest.
    pub(crate) fn next(&self) -> Option<Between> {
        self.waiting().pop_front()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting().len()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Between>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
