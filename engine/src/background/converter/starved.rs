//! Content whose base found no memory: when it is tried again.

use catalog::BlobKey;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Before the second try; each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_secs(30);
/// The longest pause: what never finds memory costs one try in so long.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Blobs that are remembered. Those beyond are tried in every round.
const BLOBS_MAX: usize = 4096;

/// What found no memory lately. Advice: a process that starts tries everything at once.
#[derive(Default)]
pub(super) struct Starved(Mutex<HashMap<BlobKey, Pausing>>);

/// A pause between two tries.
#[derive(Clone, Copy)]
struct Pausing {
    until: Instant,
    pause: Duration,
}

impl Starved {
    /// It found no memory now.
    pub(super) fn note(&self, blob: BlobKey, now: Instant) {
        let mut resting = self.lock();
        if resting.len() >= BLOBS_MAX {
            resting.retain(|_, rest| rest.until > now);
        }
        let is_full = resting.len() >= BLOBS_MAX;
        let pause = match resting.get(&blob) {
            Some(rest) => (rest.pause * 2).min(PAUSE_MAX),
            None if is_full => return,
            None => PAUSE_MIN,
        };
        resting.insert(blob, Pausing { until: now + pause, pause });
    }

    /// It needs no other try.
    pub(super) fn forget(&self, blob: BlobKey) {
        self.lock().remove(&blob);
    }

    /// Whether it is too soon to try it again.
    pub(super) fn rests(&self, blob: BlobKey, now: Instant) -> bool {
        self.lock().get(&blob).is_some_and(|rest| rest.until > now)
    }

    /// How many it is too soon for.
    pub(super) fn resting(&self, now: Instant) -> usize {
        self.lock().values().filter(|rest| rest.until > now).count()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlobKey, Pausing>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pause_is_twice_the_last_and_none_is_longer_than_an_hour() {
        let (starved, blob) = (Starved::default(), BlobKey([7; 16]));
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            starved.note(blob, now);
            assert_eq!((starved.rests(blob, now), starved.resting(now)), (true, 1));
            let until = starved.lock()[&blob].until;
            pauses.push((until - now).as_secs());
            now = until;
            assert_eq!((starved.rests(blob, now), starved.resting(now)), (false, 0));
        }
        assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
        starved.forget(blob);
        starved.note(blob, now);
        assert_eq!(starved.lock()[&blob].pause, PAUSE_MIN, "it begins anew");
    }

    #[test]
    fn no_more_blobs_are_remembered_than_there_is_room_for() {
        let (starved, now) = (Starved::default(), Instant::now());
        let blob = |number: usize| BlobKey(u128::to_be_bytes(number as u128));
        (0..=BLOBS_MAX).for_each(|number| starved.note(blob(number), now));
        assert_eq!(starved.resting(now), BLOBS_MAX);
        assert!(!starved.rests(blob(BLOBS_MAX), now));
        starved.note(blob(BLOBS_MAX), now + PAUSE_MIN);
        assert!(starved.rests(blob(BLOBS_MAX), now + PAUSE_MIN), "the others may be tried again");
    }
}
