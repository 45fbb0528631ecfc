//! Whether somebody waits for the background work to settle: jobs that make way for clients should
//! not, then.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many wait.
#[derive(Default)]
pub(crate) struct Settling(AtomicUsize);

/// One who waits, until dropped.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Settling {
    /// Whether somebody waits.
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Waits from now on.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.0)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
