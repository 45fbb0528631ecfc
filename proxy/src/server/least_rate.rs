//! A reader that takes next to nothing holds memory that others wait for: it is let go while they
//! do. Who stops altogether meets the stall timeout: a download's in `io.rs`, an upload's in
//! `ops/body.rs`.

use prometheus::IntCounter;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// Time that a connection is blocked by its reader before it is judged.
const WINDOW: Duration = Duration::from_secs(5);

/// What readers must take while others wait.
#[derive(Clone)]
pub(super) struct LeastRate {
    pub(super) bytes_per_second: u64,
    /// Whether somebody waits for what a reader could hold.
    pub(super) others_wait: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Counts readers that were let go.
    pub(super) let_go: IntCounter,
}

/// How fast one reader takes what is there for it. Only time in which it keeps the connection
/// blocked counts.
pub(super) struct Reader {
    least: LeastRate,
    blocked: Duration,
    taken: u64,
    /// Blocked since, and when to look again.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Reader {
    pub(super) fn new(least: LeastRate) -> Self {
        Self { least, blocked: Duration::ZERO, taken: 0, waiting: None }
    }

    /// It took this much.
    pub(super) fn took(&mut self, bytes: u64) {
        if let Some((since, _)) = self.waiting.take() {
            self.blocked += since.elapsed();
        }
        self.taken += bytes;
    }

    /// It keeps the connection blocked; ready when it has to go.
    pub(super) fn poll_blocked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = Instant::now();
            let until = now + WINDOW.saturating_sub(self.blocked);
            let (_, look) = self.waiting.get_or_insert_with(|| (now, Box::pin(tokio::time::sleep_until(until))));
            if look.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let slow = self.taken < self.least.bytes_per_second.saturating_mul(WINDOW.as_secs());
            if slow && (self.least.others_wait)() {
                self.least.let_go.inc();
                return Poll::Ready(());
            }
            (self.waiting, self.blocked, self.taken) = (None, Duration::ZERO, 0);
        }
    }
}
