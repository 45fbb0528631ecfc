//! Blobs that this process is reading or encoding against: the collector leaves them alone.

use object_format::BlobId;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Claims for purging that are remembered. Whoever looked longer ago than these reach looks again.
const CLAIMS_KEPT: usize = 4096;

/// Counts holders of blobs, and knows which blobs are being purged or were lately.
#[derive(Default)]
pub(crate) struct Pins(Mutex<State>);

#[derive(Default)]
struct State {
    held: HashMap<BlobId, u32>,
    purging: HashSet<BlobId>,
    /// The last claims for purging, oldest first.
    claims: VecDeque<BlobId>,
    /// Claims there ever were.
    claims_total: u64,
}

impl State {
    /// Whether one of `blobs` may have been claimed for purging since `look`.
    fn claimed_since(&self, look: PinMoment, blobs: &[BlobId]) -> bool {
        let since = usize::try_from(self.claims_total - look.0).unwrap_or(usize::MAX);
        since > self.claims.len() || self.claims.iter().rev().take(since).any(|claimed| blobs.contains(claimed))
    }
}

/// A moment before blobs were looked up in the catalog.
#[derive(Clone, Copy)]
pub(crate) struct PinMoment(u64);

/// Holds some blobs until dropped.
pub(crate) struct Pin {
    pins: Arc<Pins>,
    blobs: Vec<BlobId>,
}

/// The right to purge one blob; nobody can pin it meanwhile.
pub(crate) struct Purge {
    pins: Arc<Pins>,
    blob: BlobId,
}

impl Pins {
    /// Pins `blobs`; `None` when one of them is being purged (what named it is out of date).
    pub(crate) fn pin(self: &Arc<Self>, blobs: impl IntoIterator<Item = BlobId>) -> Option<Pin> {
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

    /// Now: to be taken before the catalog is asked for what [`Pins::pin_seen`] is to hold.
    pub(crate) fn look(&self) -> PinMoment {
        PinMoment(self.state().claims_total)
    }

    /// Pins blobs that the catalog named after `look`; `None` also when one of them was purged
    /// since, so that what named it is out of date.
    pub(crate) fn pin_seen(self: &Arc<Self>, look: PinMoment, blobs: impl IntoIterator<Item = BlobId>) -> Option<Pin> {
        let pin = self.pin(blobs)?;
        // Once pinned, nobody claims them any more.
        let is_stale = self.state().claimed_since(look, &pin.blobs);
        (!is_stale).then_some(pin)
    }

    /// Claims a blob for purging; `None` while somebody holds it.
    pub(crate) fn purge(self: &Arc<Self>, blob: BlobId) -> Option<Purge> {
        let mut state = self.state();
        if state.held.contains_key(&blob) || !state.purging.insert(blob) {
            return None;
        }
        if state.claims.len() == CLAIMS_KEPT {
            state.claims.pop_front();
        }
        state.claims.push_back(blob);
        state.claims_total += 1;
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

    #[test]
    fn who_looked_before_a_purge_looks_again_and_who_looked_after_it_does_not() {
        let pins = Arc::new(Pins::default());
        let (purged, other) = (BlobId([7; 16]), BlobId([8; 16]));
        let before = pins.look();
        drop(pins.purge(purged));
        assert!(pins.pin_seen(before, [other, purged]).is_none());
        assert!(pins.pin_seen(before, [other]).is_some());
        assert!(pins.pin_seen(pins.look(), [purged]).is_some());
        assert!(pins.purge(purged).is_some(), "a refused pin holds nothing");
        for number in 0..=CLAIMS_KEPT {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(number as u64).to_be_bytes());
            drop(pins.purge(BlobId(id)));
        }
        assert!(pins.pin_seen(before, [other]).is_none(), "too long ago to be known");
        assert_eq!(pins.state().claims.len(), CLAIMS_KEPT);
    }
}
