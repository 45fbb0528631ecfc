//! How often deltas are read, roughly: one small counter per blob, halved as time goes by. It decides nothing but what the converter makes whole
//! (SnapshotCM: reading a delta costs several times the processor time of reading whole content, so convert on use).

use catalog::BlobKey;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A counter is worth half after this long.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// Blobs that are counted at the same time; past it the cold half is forgotten.
const COUNTED_MAX: usize = 8192;

/// Counters of reads since this process began.
#[derive(Default)]
pub(super) struct Heat(Mutex<HashMap<BlobKey, Counter>>);

#[derive(Clone, Copy)]
struct Counter {
    reads: f32,
    at: Instant,
}

impl Counter {
    fn now(self, now: Instant) -> f32 {
        let halvings = now.saturating_duration_since(self.at).as_secs_f32() / HALF_LIFE.as_secs_f32();
        self.reads * (-halvings).exp2()
    }
}

impl Heat {
    /// Takes note that `share` of a blob's content (1: all of it) is being read.
    pub(super) fn note(&self, blob: BlobKey, share: f32, now: Instant) {
        let mut counters = self.counters();
        if counters.len() >= COUNTED_MAX && !counters.contains_key(&blob) {
            forget_the_cold_half(&mut counters, now);
        }
        let counter = counters.entry(blob).or_insert(Counter { reads: 0.0, at: now });
        *counter = Counter { reads: counter.now(now) + share.clamp(0.0, 1.0), at: now };
    }

    /// How often a blob has lately been read.
    pub(super) fn reads(&self, blob: BlobKey, now: Instant) -> f32 {
        self.counters().get(&blob).map_or(0.0, |counter| counter.now(now))
    }

    /// Blobs that have lately been read at least so often, hottest first.
    pub(super) fn hot(&self, reads_min: u32, now: Instant) -> Vec<BlobKey> {
        #[expect(clippy::cast_precision_loss, reason = "a threshold of a few reads")]
        let reads_min = reads_min as f32;
        let mut hot: Vec<(f32, BlobKey)> = self
            .counters()
            .iter()
            .map(|(blob, counter)| (counter.now(now), *blob))
            .filter(|(reads, _)| *reads >= reads_min)
            .collect();
        hot.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        hot.into_iter().map(|(_, blob)| blob).collect()
    }

    /// Forgets a blob that has been dealt with.
    pub(super) fn forget(&self, blob: BlobKey) {
        self.counters().remove(&blob);
    }

    fn counters(&self) -> MutexGuard<'_, HashMap<BlobKey, Counter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget_the_cold_half(counters: &mut HashMap<BlobKey, Counter>, now: Instant) {
    let mut reads: Vec<f32> = counters.values().map(|counter| counter.now(now)).collect();
    let middle = reads.len() / 2;
    let (_, median, _) = reads.select_nth_unstable_by(middle, f32::total_cmp);
    let median = *median;
    counters.retain(|_, counter| counter.now(now) > median);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(number: u32) -> BlobKey {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        BlobKey(id)
    }

    #[test]
    fn reads_add_up_by_their_share_and_fade() {
        let (heat, start) = (Heat::default(), Instant::now());
        for _ in 0..10 {
            heat.note(blob(1), 1.0, start);
            heat.note(blob(2), 0.1, start);
        }
        assert_eq!(heat.hot(8, start), [blob(1)]);
        assert_eq!(heat.hot(1, start), [blob(1), blob(2)]);
        let later = start + HALF_LIFE;
        assert!((4.9..5.1).contains(&heat.reads(blob(1), later)));
        assert_eq!(heat.hot(8, later), []);
        heat.forget(blob(1));
        assert_eq!(heat.reads(blob(1), start), 0.0);
    }

    #[test]
    fn what_is_hot_outlives_any_number_of_blobs_that_are_read_once() {
        let (heat, now) = (Heat::default(), Instant::now());
        for _ in 0..20 {
            heat.note(blob(0), 1.0, now);
        }
        for number in 1..50_000 {
            heat.note(blob(number), 1.0, now);
        }
        assert_eq!(heat.hot(16, now), [blob(0)]);
        assert!(heat.counters().len() <= COUNTED_MAX);
    }
}
