//! How fast a scrub may read.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes read against the time they may take.
pub(crate) struct ScrubPace {
    began: Instant,
    spent: AtomicU64,
    bytes_per_second: Option<u64>,
    stop: CancellationToken,
}

impl ScrubPace {
    /// At most `bytes_per_second` (`None`: as fast as it goes); no longer slowed down once `stop`
    /// is cancelled.
    pub(crate) fn new(bytes_per_second: Option<u64>, stop: CancellationToken) -> Self {
        Self { began: Instant::now(), spent: AtomicU64::new(0), bytes_per_second, stop }
    }

    /// Bytes read so far.
    pub(crate) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// `bytes` more were read: waits until that may have been.
    pub(crate) async fn spend(&self, bytes: u64) {
        let spent = self.spent.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Some(due) = self.bytes_per_second.and_then(|rate| due_after(spent, rate)) else { return };
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(self.began + due) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

/// How long `bytes` take at least; `None` without a rate.
fn due_after(bytes: u64, bytes_per_second: u64) -> Option<Duration> {
    let ms = u128::from(bytes) * 1000 / u128::from(bytes_per_second).max(1);
    (bytes_per_second > 0).then(|| Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_read_takes_the_time_it_is_given() {
        let pace = ScrubPace::new(Some(1000), CancellationToken::new());
        let began = Instant::now();
        pace.spend(500).await;
        pace.spend(2500).await;
        assert_eq!((began.elapsed(), pace.spent()), (Duration::from_secs(3), 3000));
        let free = ScrubPace::new(None, CancellationToken::new());
        free.spend(1 << 40).await;
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_scrub_that_is_stopped_does_not_wait() {
        let stop = CancellationToken::new();
        let pace = ScrubPace::new(Some(1), stop.clone());
        stop.cancel();
        let began = Instant::now();
        pace.spend(1 << 40).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[test]
    fn no_amount_overflows() {
        assert_eq!(due_after(u64::MAX, 1), Some(Duration::from_millis(u64::MAX)));
        assert_eq!(due_after(10, 0), None);
    }
}
