//! What merging has seen and refused.

use crate::resources::clock::now_ms;
use catalog::{Seq, UnixMs, VersionId};
use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

/// All versions are looked at again so often: copies and deltas that kept one from being merged may
/// be gone. Otherwise only new ones are.
const AGAIN_AFTER_MS: UnixMs = 3_600_000;
/// Versions that are remembered as not worth merging; past this they may be tried again.
const REFUSED_MAX: usize = 10_000;

/// What merging remembers while the process lives. It is all advice: what is forgotten is looked at
/// again.
#[derive(Default)]
pub(crate) struct MergeMemory {
    /// The last version that was looked at.
    pub(super) seen: AtomicI64,
    /// When the last look from the first version on began, by this machine's clock; 0 before the
    /// first.
    pub(super) began_ms: AtomicI64,
    /// Versions that would take more.
    refused: Mutex<HashSet<VersionId>>,
}

impl MergeMemory {
    /// Behind which version to go on.
    pub(super) fn after(&self) -> Seq {
        let again = now_ms() - self.began_ms.load(Ordering::Relaxed) >= AGAIN_AFTER_MS;
        if again { 0 } else { self.seen.load(Ordering::Relaxed) }
    }

    pub(super) fn is_refused(&self, id: VersionId) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    pub(super) fn refuse(&self, id: VersionId) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= REFUSED_MAX {
            refused.clear();
        }
        refused.insert(id);
    }
}
