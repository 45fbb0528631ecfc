//! Blobs that this process is reading or encoding against: the collector leaves them alone.

use object_format::BlobId;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Counts holders of blobs, and knows which blobs are being purged.
#[derive(Default)]
pub(super) struct Pins(Mutex<State>);

#[derive(Default)]
struct State {
    held: HashMap<BlobId, u32>,
    purging: HashSet<BlobId>,
}

/// Holds some blobs until dropped.
pub(super) struct Pin {
    pins: Arc<Pins>,
    blobs: Vec<BlobId>,
}

/// The right to purge one blob; nobody can pin it meanwhile.
pub(super) struct Purge {
    pins: Arc<Pins>,
    blob: BlobId,
}

impl Pins {
    /// Pins `blobs`; `None` when one of them is being purged (what named it is out of date).
    pub(super) fn pin(self: &Arc<Self>, blobs: impl IntoIterator<Item = BlobId>) -> Option<Pin> {
        let blobs: Vec<BlobId> = blobs.into_iter().collect();
        let mut state = self.state();
        if blobs.iter().any(|blob| state.purging.contains(blob)) {
            return None;
        }
        for blob in &blobs {
            *state.held.entry(*blob).or_default() += 1;
        }
        drop(state);
        Some(Pin { pins: self.clone(), blobs })
    }

    /// Claims a blob for purging; `None` while somebody holds it.
    pub(super) fn purge(self: &Arc<Self>, blob: BlobId) -> Option<Purge> {
        let mut state = self.state();
        if state.held.contains_key(&blob) || !state.purging.insert(blob) {
            return None;
        }
        drop(state);
        Some(Purge { pins: self.clone(), blob })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock; a poisoned one still has consistent counts.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.pins.state();
        for blob in &self.blobs {
            if let Some(count) = state.held.get_mut(blob) {
                *count -= 1;
                if *count == 0 {
                    state.held.remove(blob);
                }
            }
        }
    }
}

impl Drop for Purge {
    fn drop(&mut self) {
        self.pins.state().purging.remove(&self.blob);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_blob_cannot_be_purged_and_a_purged_one_cannot_be_pinned() {
        let pins = Arc::new(Pins::default());
        let blob = BlobId([7; 16]);
        let pin = pins.pin([blob, blob]).expect("nothing is being purged");
        assert!(pins.purge(blob).is_none());
        drop(pin);
        let purge = pins.purge(blob).expect("nobody holds it");
        assert!(pins.pin([blob]).is_none());
        assert!(pins.purge(blob).is_none(), "only one purge at a time");
        drop(purge);
        assert!(pins.pin([blob]).is_some());
    }
}
