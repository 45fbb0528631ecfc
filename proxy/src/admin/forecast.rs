//! When disks will be full if the store goes on growing as it has since this process started.
//!
//! The growth is the median of the slopes between all pairs of counts (the estimator of Theil and
//! Sen): one large import or one large deletion does not move it, as it would move a mean.

use serde_json::{Value, json};

/// A shorter history says nothing.
const SPAN_MS_MIN: i64 = 3_600_000;
/// Fewer counts say nothing either.
const COUNTS_MIN: usize = 8;
/// Most counts that are paired: the number of pairs is what it costs.
const COUNTS_MAX: usize = 200;
const DAY_MS: f64 = 86_400_000.0;

/// One count: when, and the bytes that everything took in our backends.
pub(super) type Count = (i64, u64);

/// A local file system.
pub(super) struct FillingDisk<'a> {
    /// What the gauges call it.
    pub(super) place: &'a str,
    /// Bytes that are left on it.
    pub(super) free_bytes: u64,
}

/// Bytes a day that the store has grown by; `None` while nothing can be said.
pub(super) fn growth(counts: &[Count]) -> Option<f64> {
    let (first, last) = (counts.first()?, counts.last()?);
    if counts.len() < COUNTS_MIN || last.0 - first.0 < SPAN_MS_MIN {
        return None;
    }
    let every = counts.len().div_ceil(COUNTS_MAX);
    let counts: Vec<Count> = counts.iter().copied().step_by(every).collect();
    #[expect(clippy::cast_precision_loss, reason = "a slope")]
    let slope = |from: &Count, to: &Count| (to.1 as f64 - from.1 as f64) / (to.0 - from.0) as f64;
    let pairs = counts.iter().enumerate().flat_map(|(at, from)| counts[at + 1..].iter().map(move |to| (from, to)));
    let mut slopes: Vec<f64> = pairs.filter(|(from, to)| to.0 > from.0).map(|(from, to)| slope(from, to)).collect();
    let middle = slopes.len() / 2;
    (!slopes.is_empty()).then(|| *slopes.select_nth_unstable_by(middle, f64::total_cmp).1 * DAY_MS)
}

/// `forecast` of the overview. `now_ms` is when the disks had so much free.
pub(super) fn forecast(counts: &[Count], disks: &[FillingDisk<'_>], now_ms: u64) -> Value {
    let growth = growth(counts);
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a day, some time from now")]
    let full = |disk: &FillingDisk<'_>| {
        let days = growth.filter(|bytes| *bytes >= 1.0).map(|bytes| disk.free_bytes as f64 / bytes);
        let full_ms = days.map(|days| now_ms as f64 + days * DAY_MS).filter(|ms| *ms < 1e14).map(|ms| ms as i64);
        json!({ "place": disk.place, "full_ms": full_ms })
    };
    #[expect(clippy::cast_possible_truncation, reason = "whole bytes")]
    let bytes_per_day = growth.map(|bytes| bytes.round() as i64);
    json!({
        "since_ms": counts.first().map(|count| count.0),
        "counts": counts.len(),
        "bytes_per_day": bytes_per_day,
        "disks": disks.iter().map(full).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn hours(bytes: impl Fn(u64) -> u64, count: u64) -> Vec<Count> {
        (0..count).map(|hour| (i64::try_from(hour).unwrap() * HOUR_MS, bytes(hour))).collect()
    }

    #[test]
    fn a_disk_is_full_when_what_is_free_has_grown() {
        let counts = hours(|hour| 1000 + hour * 100, 24);
        let disks = [FillingDisk { place: "backend/local", free_bytes: 24_000 }];
        let told = forecast(&counts, &disks, 0);
        assert_eq!((&told["bytes_per_day"], &told["counts"]), (&json!(2400), &json!(24)));
        assert_eq!(told["disks"][0]["full_ms"], json!(10 * 24 * HOUR_MS));
    }

    #[test]
    fn one_import_is_no_growth() {
        let counts = hours(|hour| if hour < 20 { 5000 } else { 900_000 }, 48);
        assert_eq!(growth(&counts), Some(0.0));
        assert_eq!(
            forecast(&counts, &[FillingDisk { place: "d", free_bytes: 1 }], 0)["disks"][0]["full_ms"],
            Value::Null
        );
        let shrinking = hours(|hour| 9000 - hour * 10, 48);
        assert_eq!(growth(&shrinking), Some(-240.0));
    }

    #[test]
    fn a_short_history_says_nothing() {
        assert_eq!(growth(&[]), None);
        assert_eq!(growth(&hours(|hour| hour, 7)), None);
        let minute: Vec<Count> = (0..60).map(|second| (second * 1000, 5)).collect();
        assert_eq!(growth(&minute), None);
        assert_eq!(forecast(&minute, &[], 0)["bytes_per_day"], Value::Null);
    }

    #[test]
    fn a_long_history_costs_no_more() {
        let counts = hours(|hour| hour * 10, 720);
        assert_eq!(growth(&counts), Some(240.0));
    }
}
