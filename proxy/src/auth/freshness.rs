//! Until when what is known of accounts counts.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Until when what is known of accounts counts.
#[derive(Debug)]
pub(super) struct Freshness {
    began: Instant,
    /// `None`: for ever, since nobody else changes them.
    lapses_after: Option<Duration>,
    /// Milliseconds after `began`.
    confirmed: AtomicU64,
}

impl Freshness {
    /// Counting from now.
    pub(super) fn new(lapses_after: Option<Duration>) -> Self {
        Self { began: Instant::now(), lapses_after, confirmed: AtomicU64::new(0) }
    }

    /// What is known was so at this moment.
    pub(super) fn confirm(&self, at: Instant) {
        let since = at.saturating_duration_since(self.began).as_millis();
        self.confirmed.fetch_max(u64::try_from(since).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// Whether it counts now.
    pub(super) fn holds(&self) -> bool {
        self.holds_at(Instant::now())
    }

    fn holds_at(&self, now: Instant) -> bool {
        let Some(lapses_after) = self.lapses_after else { return true };
        let confirmed = self.began + Duration::from_millis(self.confirmed.load(Ordering::Acquire));
        now.saturating_duration_since(confirmed) <= lapses_after
    }
}

#[cfg(test)]
impl Freshness {
    /// One that holds no more.
    pub(super) fn lapsed() -> Self {
        let began = Instant::now() - Duration::from_secs(2);
        Self { began, ..Self::new(Some(Duration::from_secs(1))) }
    }
}

impl Default for Freshness {
    fn default() -> Self {
        Self::new(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_confirms_lapses_and_what_nobody_else_changes_does_not() {
        let freshness = Freshness::new(Some(Duration::from_secs(5)));
        let at = |seconds| freshness.began + Duration::from_secs(seconds);
        assert!(freshness.holds_at(at(5)) && !freshness.holds_at(at(6)));
        freshness.confirm(at(3));
        freshness.confirm(at(1));
        assert!(freshness.holds_at(at(8)) && !freshness.holds_at(at(9)));
        assert!(Freshness::default().holds_at(at(1_000_000)));
    }
}
