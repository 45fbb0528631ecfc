//! The places of a run at which a process may die.

use std::{
    future::pending,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// The points of a run so far.
#[derive(Debug, Default)]
pub(crate) struct Points {
    is_counting: AtomicBool,
    count: AtomicU64,
    dies_at: AtomicU64,
    is_dead: AtomicBool,
}

impl Points {
    /// A point: whoever dies here goes no further, and nobody else of its process does.
    pub(crate) async fn pass(&self) {
        if self.is_dead.load(Ordering::Relaxed) {
            return pending().await;
        }
        if !self.is_counting.load(Ordering::Relaxed) {
            return;
        }
        let at = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if at == self.dies_at.load(Ordering::Relaxed) {
            self.is_dead.store(true, Ordering::Relaxed);
            pending().await
        }
    }

    /// Counts from now on, and whoever comes to this one dies; 0: nobody.
    pub(crate) fn begin(&self, dies_at: u64) {
        self.dies_at.store(dies_at, Ordering::Relaxed);
        self.is_counting.store(true, Ordering::Relaxed);
    }

    /// Counts no more.
    pub(crate) fn end(&self) {
        self.is_counting.store(false, Ordering::Relaxed);
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether its process is to be taken away.
    pub(crate) fn take_death(&self) -> bool {
        self.is_dead.swap(false, Ordering::Relaxed)
    }
}
