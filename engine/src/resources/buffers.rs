//! Buffers of one segment that go round between bodies that arrive, the codec threads and the
//! bodies of answers: a fresh one of 4 MiB costs a thousand page faults, which is a tenth of what
//! decoding into it takes.

use crate::resources::budget::Permit;
use bytes::Bytes;
use object_format::SEGMENT_LEN;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// Buffers that are kept for each codec thread.
const BUFFERS_PER_THREAD: usize = 4;
/// The part of the budget that they may take, and of what is beyond [`SMALL_BUDGET`].
const SHARE: u64 = 64;
const SHARE_BEYOND: u64 = 16;
/// Up to this a budget needs its memory for other things.
const SMALL_BUDGET: u64 = 512 << 20;

/// Where buffers lie between two uses.
#[derive(Default)]
pub(crate) struct Shelf {
    kept: Mutex<Kept>,
    /// How many may lie here; 0 until [`Shelf::keep`].
    most: AtomicUsize,
}

#[derive(Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    /// The fewest of them since the last [`Shelf::tidy`]: so many nobody has needed.
    idle: usize,
}

/// Bytes that hold memory from the budget, where it is not a cache's, until the last reader lets go
/// of them, in a buffer that is then put back.
struct Lent {
    bytes: Vec<u8>,
    shelf: Arc<Shelf>,
    _permit: Option<Permit>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.shelf.put(std::mem::take(&mut self.bytes));
    }
}

/// How many buffers to keep of a budget for so many codec threads.
pub(crate) fn buffers_of(budget_bytes: u64, threads: usize) -> usize {
    let bytes = (budget_bytes / SHARE).max(budget_bytes.saturating_sub(SMALL_BUDGET) / SHARE_BEYOND);
    usize::try_from(bytes / SEGMENT_LEN as u64).unwrap_or(usize::MAX).min(BUFFERS_PER_THREAD * threads)
}

impl Shelf {
    /// From now on up to `most` buffers are kept.
    pub(crate) fn keep(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// A buffer of `len` bytes; one of a whole segment may have what its last user left in it.
    ///
    /// For anything shorter it is a fresh one of that length: whoever keeps those bytes, such as
    /// the cache of decoded segments, is charged for them and not for the room behind them.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        self.take_kept(len).unwrap_or_else(|| vec![0; len])
    }

    /// A buffer that lies here, if one of a whole segment is wanted and there is one.
    pub(crate) fn take_kept(&self, len: usize) -> Option<Vec<u8>> {
        if len != SEGMENT_LEN {
            return None;
        }
        let mut kept = self.lock();
        let buffer = kept.buffers.pop();
        kept.idle = kept.idle.min(kept.buffers.len());
        buffer
    }

    /// Bytes of the buffers that lie here.
    pub(crate) fn bytes(&self) -> u64 {
        (self.lock().buffers.len() * SEGMENT_LEN) as u64
    }

    /// Gives back the buffers that nobody has needed since the last call.
    pub(crate) fn tidy(&self) {
        let mut kept = self.lock();
        let needed = kept.buffers.len() - kept.idle;
        let idle = kept.buffers.split_off(needed);
        kept.idle = needed;
        drop(kept);
        drop(idle);
    }

    /// Puts a buffer back, if it is one of a whole segment and there is room.
    pub(crate) fn put(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() == SEGMENT_LEN {
            // Without a change: it was as long when it was taken, unless its user cut it.
            buffer.resize(SEGMENT_LEN, 0);
            let mut kept = self.lock();
            if kept.buffers.len() < self.most.load(Ordering::Relaxed) {
                kept.buffers.push(buffer);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `bytes` with their permit; the buffer goes back to the shelf after the last reader.
pub(crate) fn lent(bytes: Vec<u8>, permit: Option<Permit>, shelf: &Arc<Shelf>) -> Bytes {
    Bytes::from_owner(Lent { bytes, shelf: shelf.clone(), _permit: permit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shelf_keeps_whole_segments_up_to_its_number() {
        let shelf = Shelf::default();
        shelf.put(vec![1; SEGMENT_LEN]);
        assert_eq!(shelf.bytes(), 0);
        shelf.keep(2);
        (0..3).for_each(|_| shelf.put(vec![1; SEGMENT_LEN]));
        shelf.put(vec![1; SEGMENT_LEN / 2]);
        assert_eq!(shelf.bytes(), 2 * SEGMENT_LEN as u64);
        assert_eq!((shelf.take(SEGMENT_LEN).len(), shelf.take(SEGMENT_LEN).len()), (SEGMENT_LEN, SEGMENT_LEN));
        assert_eq!(shelf.bytes(), 0);
        assert_eq!(shelf.take(7), [0; 7]);
    }

    #[test]
    fn what_is_shorter_than_a_segment_takes_no_more_room_than_it_is_long() {
        let shelf = Shelf::default();
        shelf.keep(2);
        for len in [10, 1 << 20, SEGMENT_LEN - 1] {
            shelf.put(vec![1; SEGMENT_LEN]);
            let taken = shelf.take(len);
            assert_eq!((taken.len(), taken.capacity()), (len, len));
        }
        let mut cut = vec![1; SEGMENT_LEN];
        cut.truncate(3);
        shelf.keep(3);
        shelf.put(cut);
        assert_eq!(shelf.take(SEGMENT_LEN).len(), SEGMENT_LEN);
    }

    #[test]
    fn buffers_that_nobody_needs_between_two_looks_are_given_back() {
        let shelf = Shelf::default();
        shelf.keep(4);
        let lie_here = || shelf.bytes() / SEGMENT_LEN as u64;
        (0..4).for_each(|_| shelf.put(vec![1; SEGMENT_LEN]));
        shelf.tidy();
        assert_eq!(lie_here(), 4, "they have just come");
        let in_use: Vec<_> = (0..3).map(|_| shelf.take(SEGMENT_LEN)).collect();
        in_use.into_iter().for_each(|buffer| shelf.put(buffer));
        shelf.tidy();
        assert_eq!(lie_here(), 3, "one of four was never needed");
        shelf.tidy();
        assert_eq!(lie_here(), 0);
    }

    #[test]
    fn small_budgets_keep_no_buffers_and_large_ones_four_a_thread() {
        assert_eq!(buffers_of(64 << 20, 2), 0);
        assert_eq!(buffers_of(128 << 20, 2), 0);
        assert_eq!(buffers_of(512 << 20, 2), 2);
        assert_eq!(buffers_of(1 << 30, 2), 8);
        assert_eq!(buffers_of(64 << 30, 16), 64);
    }
}
