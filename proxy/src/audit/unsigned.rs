//! Lines about denied calls that nobody signed: so many a second for each peer. The log keeps a
//! bounded number of files, and whoever needs no key must not be able to push its old lines out.

use crate::peers::PeerRate;
use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
};

/// Lines a second for one peer.
const PER_SECOND: NonZeroU32 = NonZeroU32::new(5).expect("it is not zero");
/// Lines that a peer may cause at once.
const BURST: NonZeroU32 = NonZeroU32::new(50).expect("it is not zero");
/// Peers whose calls without a line are counted. With one more, the counts begin anew.
const COUNTED_MAX: usize = 4096;

/// Who has caused how many lines.
pub(super) struct UnsignedCalls {
    rate: PeerRate,
    left_out: Mutex<HashMap<IpAddr, u64>>,
}

impl UnsignedCalls {
    pub(super) fn new() -> Self {
        Self { rate: PeerRate::new(PER_SECOND, BURST), left_out: Mutex::default() }
    }

    /// Whether a call of this peer has a line: then how many before it had none.
    pub(super) fn admit(&self, peer: Option<IpAddr>) -> Option<u64> {
        let (peer, is_due) = self.rate.take(peer);
        // Nothing panics while it holds the lock.
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if is_due {
            return Some(left_out.remove(&peer).unwrap_or(0));
        }
        if left_out.len() >= COUNTED_MAX {
            left_out.clear();
        }
        *left_out.entry(peer).or_default() += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::network_of;

    #[test]
    fn a_peer_has_its_burst_of_lines_and_the_next_one_tells_how_many_had_none() {
        let calls = UnsignedCalls::new();
        let (peer, other) = (Some(IpAddr::from([10, 0, 0, 1])), Some(IpAddr::from([10, 0, 0, 2])));
        let burst = usize::try_from(BURST.get()).expect("it is small");
        let answers: Vec<_> = (0..4 * burst).map(|_| calls.admit(peer)).collect();
        assert!(answers[..burst].iter().all(|answer| *answer == Some(0)));
        let lines = answers.iter().flatten().count();
        assert!(lines < 2 * burst, "{lines} lines");
        let told: u64 = answers.iter().flatten().sum();
        let waiting = calls.left_out.lock().unwrap().get(&network_of(peer.unwrap())).copied().unwrap_or(0);
        assert_eq!(told + waiting, (answers.len() - lines) as u64, "each call without a line is counted");
        assert_eq!(calls.admit(other), Some(0), "another peer has lines of its own");
    }

    #[test]
    fn what_is_remembered_of_peers_is_bounded() {
        let calls = UnsignedCalls::new();
        for peer in 0..2 * u32::try_from(COUNTED_MAX).expect("it is small") {
            for _ in 0..=BURST.get() {
                calls.admit(Some(IpAddr::from(peer.to_be_bytes())));
            }
        }
        assert!(calls.left_out.lock().unwrap().len() <= COUNTED_MAX);
    }
}
