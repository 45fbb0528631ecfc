//! What the store took lately: counts that were made anyway, kept in memory for as long as this
//! process runs.

use crate::resources::clock::now_ms;
use catalog::{BucketStats, UnixMs};
use serde::Serialize;
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts that are kept. When there are more, every second one is dropped.
const SAMPLES_MAX: usize = 720;
/// Between two counts that are kept, at first.
const EVERY_MS: UnixMs = 30_000;

/// One count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Sample {
    /// When.
    at_ms: UnixMs,
    /// Bytes of all versions.
    logical_bytes: u64,
    /// What they take, originals included.
    stored_bytes: u64,
    /// The part of it that originals take, in stores that are not ours.
    foreign_bytes: u64,
}

/// The counts of this process.
#[derive(Default)]
pub(crate) struct History(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    every_ms: UnixMs,
    samples: Vec<Sample>,
    counted: Option<(UnixMs, Value)>,
}

impl History {
    /// The newest answer and when it was made, and the counts, oldest first; `None` before the
    /// first count.
    pub(super) fn told(&self) -> Option<(UnixMs, Value, Value)> {
        let kept = self.locked();
        let (at_ms, stats) = kept.counted.clone()?;
        Some((at_ms, stats, serde_json::to_value(&kept.samples).unwrap_or_default()))
    }

    fn locked(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a count. `stats` is the answer that was made of it.
    pub(super) fn note(&self, totals: &BucketStats, stored_bytes: u64, stats: &Value) {
        let at_ms = now_ms();
        let mut kept = self.locked();
        kept.counted = Some((at_ms, stats.clone()));
        kept.add(Sample {
            at_ms,
            logical_bytes: totals.logical_bytes + totals.noncurrent_bytes,
            stored_bytes: stored_bytes + totals.foreign_bytes,
            foreign_bytes: totals.foreign_bytes,
        });
    }
}

impl Kept {
    fn add(&mut self, sample: Sample) {
        let every_ms = self.every_ms.max(EVERY_MS);
        // The newest one always shows; it makes room until the pause is over.
        if let [.., before, _] = self.samples[..]
            && sample.at_ms - before.at_ms < every_ms
        {
            self.samples.pop();
        }
        self.samples.push(sample);
        if self.samples.len() > SAMPLES_MAX {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every_ms = every_ms * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_thinned_out_and_never_more_than_so_many() {
        let mut kept = Kept::default();
        for number in 0..100_000 {
            kept.add(Sample { at_ms: number * 10_000, logical_bytes: 2, stored_bytes: 1, foreign_bytes: 0 });
            assert!(kept.samples.len() <= SAMPLES_MAX);
        }
        assert_eq!(kept.samples.last().map(|sample| sample.at_ms), Some(99_999 * 10_000), "the newest one shows");
        assert_eq!(kept.samples.first().map(|sample| sample.at_ms), Some(0), "and how it began");
        assert!(kept.samples.is_sorted_by_key(|sample| sample.at_ms));
        assert!(kept.samples.len() > SAMPLES_MAX / 4);
    }
}
