//! In which order the queue is worked through: what has waited too long, then what saves most for
//! its processor time, newer content sooner than older.
//!
//! What content of a kind saves is learned from what was encoded before, and lives as long as the
//! process: a wrong order costs time and nothing else.

use catalog::{BlobRow, BucketId, UnixMs};
use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Content that is expected to save alike.
pub(super) type Class = (BucketId, u32);

/// Saved bytes and processor time that a class begins with: the unknown is tried before what is
/// known to save little.
const SAVED_AT_FIRST: u64 = 20 << 20;
const WORKED_AT_FIRST: Duration = Duration::from_secs(1);
/// Processor time from which on older experience counts half.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Classes that are remembered; when there are more, all are learned anew.
const CLASSES_MAX: usize = 4096;
/// Content of this age comes half as soon as new content that saves as much.
const HALF_AS_SOON_MS: f64 = 600_000.0;

/// The class of a blob: its bucket, and its length by powers of four.
pub(super) fn class_of(row: &BlobRow) -> Class {
    (row.bucket, row.plain_len.max(1).ilog2() / 2)
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    saved_bytes: u64,
    worked: Duration,
}

impl Sums {
    fn bytes_per_second(self) -> f64 {
        self.saved_bytes as f64 / self.worked.as_secs_f64().max(1e-6)
    }
}

impl Default for Sums {
    fn default() -> Self {
        Self { saved_bytes: SAVED_AT_FIRST, worked: WORKED_AT_FIRST }
    }
}

/// What was saved for how much processor time, by class.
#[derive(Default)]
pub(super) struct Gains(Mutex<HashMap<Class, Sums>>);

impl Gains {
    /// Notes one blob: what encoding it anew saved, and the time of the codec's threads it took.
    pub(super) fn note(&self, class: Class, saved_bytes: u64, worked: Duration) {
        let mut classes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if classes.len() >= CLASSES_MAX && !classes.contains_key(&class) {
            classes.clear();
        }
        let sums = classes.entry(class).or_default();
        sums.saved_bytes = sums.saved_bytes.saturating_add(saved_bytes);
        sums.worked = sums.worked.saturating_add(worked);
        if sums.worked > REMEMBERED {
            *sums = Sums { saved_bytes: sums.saved_bytes / 2, worked: sums.worked / 2 };
        }
    }

    /// Puts what waits in order: what has waited since before `overdue_ms` first, the oldest of it
    /// at the front; then by expected saving for each second of work, less the older it is.
    pub(super) fn order<T>(
        &self,
        waiting: &mut [T],
        (now_ms, overdue_ms): (UnixMs, UnixMs),
        of: impl Fn(&T) -> (Class, UnixMs),
    ) {
        let classes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let worth = |one: &T| {
            let (class, since_ms) = of(one);
            let age_ms = now_ms.saturating_sub(since_ms).max(0) as f64;
            let rate = classes.get(&class).copied().unwrap_or_default().bytes_per_second();
            // A whole number: it is compared, and equal worth leaves the newest first.
            (rate / (1.0 + age_ms / HALF_AS_SOON_MS)) as u64
        };
        waiting.sort_by_cached_key(|one| match of(one) {
            (_, since_ms) if since_ms <= overdue_ms => (0, Reverse(0), since_ms),
            (_, since_ms) => (1, Reverse(worth(one)), since_ms.saturating_neg()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIG: Class = (BucketId(1), 12);
    const SMALL: Class = (BucketId(1), 9);
    const OTHER: Class = (BucketId(2), 12);
    const SECOND: Duration = Duration::from_secs(1);
    const NOW: UnixMs = 1_000_000_000;

    fn ordered(gains: &Gains, overdue_ms: UnixMs, mut waiting: Vec<(Class, UnixMs)>) -> Vec<(Class, UnixMs)> {
        gains.order(&mut waiting, (NOW, overdue_ms), |one| *one);
        waiting
    }

    #[test]
    fn of_equal_content_the_newest_comes_first() {
        let waiting = vec![(BIG, NOW - 3000), (SMALL, NOW - 1000), (BIG, NOW - 2000)];
        let order = ordered(&Gains::default(), 0, waiting);
        assert_eq!(order, [(SMALL, NOW - 1000), (BIG, NOW - 2000), (BIG, NOW - 3000)]);
    }

    #[test]
    fn what_saves_more_for_its_work_comes_before_what_is_a_little_newer() {
        let gains = Gains::default();
        gains.note(BIG, 0, 9 * SECOND);
        gains.note(OTHER, 900 << 20, 9 * SECOND);
        let waiting = vec![(BIG, NOW), (SMALL, NOW - 1000), (OTHER, NOW - 60_000)];
        assert_eq!(ordered(&gains, 0, waiting), [(OTHER, NOW - 60_000), (SMALL, NOW - 1000), (BIG, NOW)]);
        let hours_ago = NOW - 40 * 3_600_000;
        let waiting = vec![(OTHER, hours_ago), (SMALL, NOW)];
        assert_eq!(ordered(&gains, 0, waiting), [(SMALL, NOW), (OTHER, hours_ago)], "but not before all that is new");
    }

    #[test]
    fn what_has_waited_too_long_comes_first_and_the_oldest_of_it_before_the_others() {
        let gains = Gains::default();
        gains.note(BIG, 0, 50 * SECOND);
        let waiting = vec![(SMALL, NOW), (BIG, NOW - 50_000), (SMALL, NOW - 9), (BIG, NOW - 90_000)];
        let order = ordered(&gains, NOW - 50_000, waiting);
        assert_eq!(order, [(BIG, NOW - 90_000), (BIG, NOW - 50_000), (SMALL, NOW), (SMALL, NOW - 9)]);
    }

    #[test]
    fn experience_fades() {
        let gains = Gains::default();
        gains.note(BIG, 0, 50 * SECOND);
        let rate = || ordered(&gains, 0, vec![(BIG, NOW), (SMALL, NOW - 1)])[0].0;
        assert_eq!(rate(), SMALL);
        for _ in 0..20 {
            gains.note(BIG, 900 << 20, 10 * SECOND);
        }
        assert_eq!(rate(), BIG);
    }
}
