//! How fast background work may go: bytes per second, so that clients have the rest.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// What may be taken at once after a rest.
const BURST: Duration = Duration::from_secs(1);

/// Lets bytes through at a bounded rate. Whoever takes more than is due waits before taking again.
pub(crate) struct Pace {
    /// `None`: as fast as it goes.
    bytes_per_second: Option<u64>,
    /// When everything taken so far is paid for.
    paid: Mutex<Instant>,
}

impl Pace {
    /// A pace of so many bytes per second; 0 means unbounded.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: (bytes_per_second > 0).then_some(bytes_per_second), paid: Mutex::new(Instant::now()) }
    }

    /// Takes `bytes` and waits until they are paid for.
    pub(crate) async fn take(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let cost = Duration::from_nanos(
            u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX),
        );
        let wait = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let (wait, next) = due(Instant::now(), *paid, cost);
            *paid = next;
            wait
        };
        tokio::time::sleep(wait).await;
    }
}

/// How long to wait now, and when the next bytes are free.
fn due(now: Instant, paid: Instant, cost: Duration) -> (Duration, Instant) {
    // What was not used for longer than a burst is lost.
    let paid = paid.max(now.checked_sub(BURST).unwrap_or(now)) + cost;
    (paid.saturating_duration_since(now), paid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_more_than_the_rate_and_one_burst_goes_through(costs in prop::collection::vec((0u64..2_000, 0u64..5_000), 1..100)) {
            let start = Instant::now();
            let (mut now, mut paid, mut taken) = (start, start, Duration::ZERO);
            for (cost_ms, rest_ms) in costs {
                let cost = Duration::from_millis(cost_ms);
                let (wait, next) = due(now, paid, cost);
                (now, paid, taken) = (now + wait + Duration::from_millis(rest_ms), next, taken + cost);
                prop_assert!(taken <= now - start + BURST);
            }
        }
    }
}
