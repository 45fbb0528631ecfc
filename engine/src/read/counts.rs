//! How often clients read each version in the last day, by the hour: told to whoever asks why an
//! object is stored as it is. It decides nothing; [`super::heat`] counts for the converter.

use catalog::{UnixMs, VersionId};
use serde::Serialize;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

const HOUR_MS: UnixMs = 3_600_000;
/// Hours that are told.
const HOURS: usize = 24;
/// Versions that are counted at the same time, about 150 bytes each; past it, those that were read
/// longest ago are forgotten.
const COUNTED_MAX: usize = 8192;

/// Reads within one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HourOfReads {
    /// When the hour began.
    at_ms: UnixMs,
    /// How many there were.
    count: u32,
}

/// Counts since this process began.
#[derive(Default)]
pub(crate) struct ReadCounts(Mutex<HashMap<VersionId, Day>>);

/// The counts of the hours up to the newest one, each in the place of its number.
#[derive(Clone, Copy, Default)]
struct Day {
    newest: UnixMs,
    counts: [u32; HOURS],
}

impl Day {
    fn place(hour: UnixMs) -> usize {
        usize::try_from(hour.rem_euclid(HOURS as UnixMs)).unwrap_or_default()
    }

    fn note(&mut self, hour: UnixMs) {
        // A clock that was set back counts in the newest hour.
        for gone in (self.newest + 1..=hour).rev().take(HOURS) {
            self.counts[Self::place(gone)] = 0;
        }
        self.newest = self.newest.max(hour);
        let count = &mut self.counts[Self::place(self.newest)];
        *count = count.saturating_add(1);
    }

    /// Hours with reads, oldest first.
    fn told(&self, now: UnixMs) -> Vec<HourOfReads> {
        let oldest = now.max(self.newest) - HOURS as UnixMs + 1;
        let first = oldest.max(self.newest - HOURS as UnixMs + 1);
        let hours = (first..=self.newest).map(|hour| (hour, self.counts[Self::place(hour)]));
        hours
            .filter(|(_, count)| *count > 0)
            .map(|(hour, count)| HourOfReads { at_ms: hour * HOUR_MS, count })
            .collect()
    }
}

impl ReadCounts {
    /// Takes note that a client reads a version.
    pub(crate) fn note(&self, version: VersionId, now: UnixMs) {
        let (hour, mut days) = (now / HOUR_MS, self.days());
        if days.len() >= COUNTED_MAX && !days.contains_key(&version) {
            let mut newest: Vec<UnixMs> = days.values().map(|day| day.newest).collect();
            let middle = newest.len() / 2;
            let (_, median, _) = newest.select_nth_unstable(middle);
            let median = *median;
            days.retain(|_, day| day.newest > median);
        }
        days.entry(version).or_insert_with(|| Day { newest: hour, ..Day::default() }).note(hour);
    }

    /// The hours of the last day in which a version was read.
    pub(crate) fn told(&self, version: VersionId, now: UnixMs) -> Vec<HourOfReads> {
        self.days().get(&version).map(|day| day.told(now / HOUR_MS)).unwrap_or_default()
    }

    fn days(&self) -> MutexGuard<'_, HashMap<VersionId, Day>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u32) -> VersionId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        VersionId(id)
    }

    fn told(counts: &ReadCounts, number: u32, hour: UnixMs) -> Vec<(UnixMs, u32)> {
        let hours = counts.told(version(number), hour * HOUR_MS);
        hours.into_iter().map(|one| (one.at_ms / HOUR_MS, one.count)).collect()
    }

    #[test]
    fn reads_are_told_by_the_hour_for_a_day() {
        let counts = ReadCounts::default();
        for hour in [1000, 1000, 1001, 1020, 1019] {
            counts.note(version(1), hour * HOUR_MS + 5);
        }
        assert_eq!(told(&counts, 1, 1020), [(1000, 2), (1001, 1), (1020, 2)], "a clock that went back changes no hour");
        assert_eq!(told(&counts, 1, 1024), [(1001, 1), (1020, 2)]);
        counts.note(version(1), 1026 * HOUR_MS);
        assert_eq!(told(&counts, 1, 1026), [(1020, 2), (1026, 1)]);
        counts.note(version(1), 2000 * HOUR_MS);
        assert_eq!(told(&counts, 1, 2000), [(2000, 1)]);
        assert_eq!(told(&counts, 1, 2024), []);
        assert_eq!(told(&counts, 2, 2000), []);
    }

    #[test]
    fn what_is_counted_has_a_bound_and_the_newest_stay() {
        let counts = ReadCounts::default();
        for number in 0..3 * COUNTED_MAX as u32 {
            counts.note(version(number), UnixMs::from(number) * HOUR_MS);
            assert!(counts.days().len() <= COUNTED_MAX);
        }
        let last = 3 * COUNTED_MAX as u32 - 1;
        assert_eq!(told(&counts, last, UnixMs::from(last)).len(), 1);
        assert_eq!(told(&counts, last - 9, UnixMs::from(last)).len(), 1);
        for number in 0..3 * COUNTED_MAX as u32 {
            counts.note(version(number), UnixMs::from(last) * HOUR_MS);
            assert!(counts.days().len() <= COUNTED_MAX, "of one hour, too");
        }
    }
}
