//! How often something may be done for one peer.

use super::network_of;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
};

/// Calls after which peers that have been quiet are forgotten.
const FORGET_EVERY: u32 = 1024;

/// A rate for each peer, whatever the others do.
pub struct PeerRate {
    limiter: DefaultKeyedRateLimiter<IpAddr>,
    asked: AtomicU32,
}

impl PeerRate {
    /// So often a second, and so often at once by a peer that was quiet.
    pub fn new(per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let quota = Quota::per_second(per_second).allow_burst(burst);
        Self { limiter: RateLimiter::keyed(quota), asked: AtomicU32::new(0) }
    }

    /// Whether it is this peer's turn, which then counts; and the network that counts as the peer.
    pub fn take(&self, peer: Option<IpAddr>) -> (IpAddr, bool) {
        let network = network_of(peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        if self.asked.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            self.limiter.retain_recent();
        }
        (network, self.limiter.check_key(&network).is_ok())
    }

    /// Waits for the next turn of such a network.
    pub async fn turn(&self, network: &IpAddr) {
        self.limiter.until_key_ready(network).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_have_been_quiet_are_forgotten() {
        let second = NonZeroU32::new(1_000_000).expect("it is not zero");
        let rate = PeerRate::new(second, NonZeroU32::MIN);
        for peer in 0..8 * FORGET_EVERY {
            assert!(rate.take(Some(IpAddr::from(peer.to_be_bytes()))).1);
        }
        assert!(rate.limiter.len() <= 2 * FORGET_EVERY as usize, "{} are remembered", rate.limiter.len());
    }
}
