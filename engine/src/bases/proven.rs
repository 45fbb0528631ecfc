//! Which bases trials have shown to be good for the content around a region.

use super::plan::Trial;
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// What trials have shown for the regions of one object.
#[derive(Default)]
pub(crate) struct Proven {
    /// Keys of objects that are good bases.
    keys: Mutex<HashSet<String>>,
    /// Whether a trial has ended. Who is first holds it while it tries: parts come several at once,
    /// and one trial serves them all.
    first: tokio::sync::Mutex<bool>,
}

impl Proven {
    /// Whether a trial has shown the object of a key to be a good base.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// Takes in how a trial ended.
    pub(super) fn note(&self, key: &str, trial: Trial) {
        if trial.helps(false) {
            self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        }
    }

    /// Waits while the first trial is being made. It is the caller's when it is given this, and has
    /// ended when the caller has set it.
    pub(super) async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, bool>> {
        let first = self.first.lock().await;
        (!*first).then_some(first)
    }
}
