//! Failed attempts to authenticate are answered late once a peer has had too many of them. What is
//! right is never held back.

use super::{
    rate::PeerRate,
    shares::{Holder, Shares},
};
use std::{net::IpAddr, num::NonZeroU32, sync::Arc};

/// Seconds' worth of failures that a peer may have at once.
const BURST_SECONDS: u32 = 10;
/// Answers of one peer that may wait at a time; the next is refused at once and its connection
/// closed.
const WAITING_MAX: usize = 16;

/// Failures by peer.
pub struct Failures {
    rate: PeerRate,
    waiting: Arc<Shares>,
}

/// What became of the answer to a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It has waited for its turn, or did not have to.
    Due,
    /// Too many answers to this peer wait already.
    TooMany,
}

impl Failures {
    /// So many failures a second are answered to one peer.
    pub fn new(per_second: NonZeroU32) -> Self {
        let rate = PeerRate::new(per_second, per_second.saturating_mul(BURST));
        Self { rate, waiting: Shares::new(WAITING_MAX) }
    }

    /// Counts a failure of a peer and waits until its answer is due.
    pub async fn hold_back(&self, peer: Option<IpAddr>) -> Held {
        let (peer, is_due) = self.rate.take(peer);
        if is_due {
            return Held::Due;
        }
        let Some(_waiting) = self.waiting.take(&Holder::Peer(peer)) else { return Held::TooMany };
        self.rate.turn(&peer).await;
        Held::Due
    }
}

const BURST: NonZeroU32 = NonZeroU32::new(BURST_SECONDS).expect("it is not zero");

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn failures_past_the_burst_wait_and_those_past_the_waiting_room_are_refused() {
        let failures = Failures::new(NonZeroU32::MIN);
        let (peer, other) = (Some(IpAddr::from([10, 0, 0, 1])), Some(IpAddr::from([10, 0, 0, 2])));
        for _ in 0..BURST_SECONDS {
            assert_eq!(failures.hold_back(peer).now_or_never(), Some(Held::Due));
        }
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(failures.hold_back(peer))).collect();
        for answer in &mut waiting {
            assert_eq!(answer.as_mut().now_or_never(), None);
        }
        assert_eq!(failures.hold_back(peer).now_or_never(), Some(Held::TooMany));
        assert_eq!(failures.hold_back(other).now_or_never(), Some(Held::Due), "another peer is not held back");
        drop(waiting);
        assert!(failures.waiting.is_untouched());
    }
}
