//! How often content is read, roughly: one small counter per blob, halved as time goes by. It
//! decides nothing but what the converter makes whole (SnapshotCM: reading a delta costs several
//! times the processor time of reading whole content, so convert on use), and when that becomes a
//! delta again.

use catalog::{BlobForm, BlobKey, BlobRow};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// A counter is worth half after this long.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// Deltas that are counted at the same time; past it the cold half is forgotten.
const COUNTED_MAX: usize = 8192;
/// Blobs made whole that are counted at the same time; those past it are cold.
const WATCHED_MAX: usize = 65_536;
/// What is made whole at so many reads is cold below a quarter of them: after two half-lives
/// without any.
const COLD_SHARE: f32 = 0.25;

/// Counters of reads since this process began.
#[derive(Default)]
pub(crate) struct Heat(Mutex<Counters>);

#[derive(Default)]
struct Counters {
    deltas: HashMap<BlobKey, Counter>,
    /// Blobs that stand in the place of hot deltas.
    watched: HashMap<BlobKey, Counter>,
}

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

    fn add(&mut self, share: f32, now: Instant) {
        *self = Counter { reads: self.now(now) + share, at: now };
    }
}

impl Heat {
    /// Takes note that `len` bytes of a blob's content are being read. All of it is one read.
    pub(crate) fn note(&self, row: &BlobRow, len: u64, now: Instant) {
        #[expect(clippy::cast_precision_loss, reason = "a rough share")]
        let share = (len as f32 / row.plain_len.max(1) as f32).min(1.0);
        let mut counters = self.counters();
        if let Some(counter) = counters.watched.get_mut(&row.id) {
            counter.add(share, now);
        } else if row.form == BlobForm::Delta {
            if counters.deltas.len() >= COUNTED_MAX && !counters.deltas.contains_key(&row.id) {
                forget_the_cold_half(&mut counters.deltas, now);
            }
            counters.deltas.entry(row.id).or_insert(Counter { reads: 0.0, at: now }).add(share, now);
        }
    }

    /// How often a blob has lately been read.
    pub(crate) fn reads(&self, blob: BlobKey, now: Instant) -> f32 {
        let counters = self.counters();
        let counter = counters.watched.get(&blob).or_else(|| counters.deltas.get(&blob));
        counter.map_or(0.0, |counter| counter.now(now))
    }

    /// Deltas that have lately been read at least so often, hottest first.
    pub(crate) fn hot(&self, reads_min: u32, now: Instant) -> Vec<BlobKey> {
        #[expect(clippy::cast_precision_loss, reason = "a threshold of a few reads")]
        let reads_min = reads_min as f32;
        let mut hot: Vec<(f32, BlobKey)> = self
            .counters()
            .deltas
            .iter()
            .map(|(blob, counter)| (counter.now(now), *blob))
            .filter(|(reads, _)| *reads >= reads_min)
            .collect();
        hot.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        hot.into_iter().map(|(_, blob)| blob).collect()
    }

    /// Counts the reads of a blob that stands in the place of a delta, as if it had just been read
    /// `reads_min` times when it is met for the first time. Whether it has cooled down.
    pub(crate) fn has_cooled(&self, blob: BlobKey, reads_min: u32, now: Instant) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a threshold of a few reads")]
        let reads_min = reads_min as f32;
        let mut counters = self.counters();
        let room = counters.watched.len() < WATCHED_MAX;
        let counter = match counters.watched.get(&blob) {
            Some(counter) => *counter,
            None if room => *counters.watched.entry(blob).or_insert(Counter { reads: reads_min, at: now }),
            None => return true,
        };
        // Where nothing is ever hot, nothing stays so.
        reads_min == 0.0 || counter.now(now) < reads_min * COLD_SHARE
    }

    /// How many of the watched have cooled down.
    pub(crate) fn cooled(&self, reads_min: u32, now: Instant) -> usize {
        #[expect(clippy::cast_precision_loss, reason = "a threshold of a few reads")]
        let reads_min = reads_min as f32;
        let is_cold = |counter: &&Counter| counter.now(now) < reads_min * COLD_SHARE;
        self.counters().watched.values().filter(is_cold).count()
    }

    /// Forgets a blob that has been dealt with.
    pub(crate) fn forget(&self, blob: BlobKey) {
        let mut counters = self.counters();
        counters.deltas.remove(&blob);
        counters.watched.remove(&blob);
    }

    /// Lets `time` go by.
    #[cfg(test)]
    pub(crate) fn pass(&self, time: Duration) {
        let mut counters = self.counters();
        let Counters { deltas, watched } = &mut *counters;
        for counter in deltas.values_mut().chain(watched.values_mut()) {
            counter.at -= time;
        }
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
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
    use catalog::{BlobState, BucketId, FormBytes};

    const LEN: u64 = 1000;

    fn blob(number: u32) -> BlobKey {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        BlobKey(id)
    }

    fn row(number: u32, form: BlobForm) -> BlobRow {
        BlobRow {
            id: blob(number),
            bucket: BucketId(1),
            key_epoch: 1,
            backend: "local".into(),
            form,
            state: BlobState::Live,
            plain_len: LEN,
            stored_len: LEN,
            root_offset: 0,
            root_len: 0,
            root_tag: [0; 16],
            digest: None,
            forms: FormBytes::default(),
            inline: None,
            original: None,
            pack: false,
            compartment: None,
            copy: None,
        }
    }

    #[test]
    fn reads_add_up_by_their_share_and_fade() {
        let (heat, start) = (Heat::default(), Instant::now());
        for _ in 0..10 {
            heat.note(&row(1, BlobForm::Delta), LEN, start);
            heat.note(&row(2, BlobForm::Delta), LEN / 10, start);
            heat.note(&row(3, BlobForm::Whole), LEN, start);
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
            heat.note(&row(0, BlobForm::Delta), LEN, now);
        }
        for number in 1..50_000 {
            heat.note(&row(number, BlobForm::Delta), LEN, now);
        }
        assert_eq!(heat.hot(16, now), [blob(0)]);
        assert!(heat.counters().deltas.len() <= COUNTED_MAX);
    }

    #[test]
    fn what_was_made_whole_cools_after_two_half_lives_unless_it_is_read() {
        let (heat, start) = (Heat::default(), Instant::now());
        for number in 1..=2 {
            assert!(!heat.has_cooled(blob(number), 16, start), "met for the first time");
        }
        let later = start + 2 * HALF_LIFE + Duration::from_secs(60);
        heat.note(&row(2, BlobForm::Whole), LEN, later);
        assert_eq!(heat.cooled(16, later), 1);
        assert!(heat.has_cooled(blob(1), 16, later) && !heat.has_cooled(blob(2), 16, later));
        assert!(heat.has_cooled(blob(3), 0, start), "where nothing is ever hot");
    }
}
