//! Removals that wait for the next list.

use crate::Result;
use object_store::{ObjectStore, path::Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool};
use tokio::sync::oneshot;

/// Lists that are on their way at a time, at most.
pub(super) const LISTS_AT_ONCE: usize = 4;

/// What waits for the next list.
pub(crate) struct Removals {
    /// Asked in lists.
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) names_max: usize,
    queue: Mutex<Queue>,
    /// The store does not know lists.
    pub(super) is_refused: AtomicBool,
}

/// Names, each with who waits for its removal.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: Vec<(Path, oneshot::Sender<Result<()>>)>,
    /// Tasks that take from it until it is empty.
    pub(super) workers: usize,
}

impl Removals {
    /// Lists of at most `names_max`, for `store` to take.
    pub(crate) fn new(store: Arc<dyn ObjectStore>, names_max: usize) -> Self {
        Self { store, names_max, queue: Mutex::default(), is_refused: AtomicBool::new(false) }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it holds the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
