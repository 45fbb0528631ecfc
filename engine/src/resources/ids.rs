//! Ids that ascend: what is made later sorts later. Rows that come together then lie together in
//! the catalog's indexes, where random ids would each write a page of their own
//! (docs/decisions/0089-ids-that-ascend.md). Versions have them, and small blobs.

use super::machine::{now_ms, random};
use crate::error::EngineError;
use catalog::VersionId;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a moment in an id.
const MOMENT_BYTES: usize = 7;

/// Microseconds since 1970-01-01 UTC, each given once: of what is made in the same one, or after
/// the clock was set back, each has one more than the last.
#[derive(Debug, Default)]
pub(crate) struct Moments(AtomicU64);

impl Moments {
    /// The next one.
    pub(crate) fn next(&self) -> u64 {
        let now = moment_now();
        let later = |last: u64| now.max(last + 1);
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(later(last)));
        later(last.unwrap_or_else(|last| last))
    }
}

fn moment_now() -> u64 {
    u64::try_from(now_ms()).unwrap_or(0).saturating_mul(1000)
}

/// An id of a moment: seven bytes of it, big endian, and random ones behind them.
///
/// # Errors
/// [`EngineError::Other`] when the operating system has no random bytes.
pub(crate) fn ascending<const N: usize>(moment: u64) -> Result<[u8; N], EngineError> {
    const { assert!(N > MOMENT_BYTES, "an id has random bytes") };
    let mut id = random::<N>()?;
    id[..MOMENT_BYTES].copy_from_slice(&moment.to_be_bytes()[8 - MOMENT_BYTES..]);
    Ok(id)
}

/// An id for a new version. Other replicas make some in the same moment: nine random bytes tell
/// them apart.
///
/// # Errors
/// As [`ascending`].
pub(crate) fn version_id() -> Result<VersionId, EngineError> {
    ascending(moment_now()).map(VersionId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, thread};

    #[test]
    fn no_moment_is_given_twice_and_each_thread_sees_them_ascend() {
        let moments = Moments::default();
        let of_thread = || (0..2000).map(|_| moments.next()).collect::<Vec<_>>();
        let given: Vec<Vec<u64>> = thread::scope(|scope| {
            let threads = [scope.spawn(of_thread), scope.spawn(of_thread), scope.spawn(of_thread)];
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(given.iter().all(|given| given.is_sorted()));
        assert_eq!(given.iter().flatten().collect::<BTreeSet<_>>().len(), 6000);
    }

    #[test]
    fn a_clock_that_is_set_back_gives_no_moment_again() {
        let ahead = moment_now() + 3_600_000_000;
        let moments = Moments(AtomicU64::new(ahead));
        assert_eq!([moments.next(), moments.next()], [ahead + 1, ahead + 2]);
    }

    #[test]
    fn ids_sort_as_their_moments_and_differ_in_the_same_one() {
        let id = |moment| ascending::<12>(moment).expect("random bytes");
        assert!(id(5) < id(6) && id(255) < id(256) && id(1 << 40) < id((1 << 40) + 1));
        assert_ne!(id(5), id(5));
        assert!(
            moment_now().leading_zeros() >= 64 - 8 * MOMENT_BYTES as u32,
            "seven bytes last for two thousand years"
        );
    }
}
