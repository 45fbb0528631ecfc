//! Buffers of one segment that go round between the codec threads and the bodies of answers: a
//! fresh one of 4 MiB costs its page faults and its zeros, which is a tenth of what decoding into
//! it takes.

use crate::resources::budget::Permit;
use bytes::Bytes;
use object_format::SEGMENT_LEN;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// Where buffers lie between two uses.
#[derive(Default)]
pub(crate) struct Shelf {
    buffers: Mutex<Vec<Vec<u8>>>,
    /// How many may lie here; 0 until [`Shelf::keep`].
    most: AtomicUsize,
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

/// How many buffers to keep of a budget: two a thread, and no more than a sixty-fourth of the
/// budget.
pub(crate) fn buffers_of(budget_bytes: u64, threads: usize) -> usize {
    usize::try_from(budget_bytes / 64 / SEGMENT_LEN as u64).unwrap_or(usize::MAX).min(2 * threads)
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
        let kept = if len == SEGMENT_LEN { self.lock().pop() } else { None };
        kept.unwrap_or_else(|| vec![0; len])
    }

    /// Bytes of the buffers that lie here.
    pub(crate) fn bytes(&self) -> u64 {
        (self.lock().len() * SEGMENT_LEN) as u64
    }

    /// Puts a buffer back, if it is one of a whole segment and there is room.
    pub(crate) fn put(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() == SEGMENT_LEN {
            // Without a change: it was as long when it was taken, unless its user cut it.
            buffer.resize(SEGMENT_LEN, 0);
            let mut buffers = self.lock();
            if buffers.len() < self.most.load(Ordering::Relaxed) {
                buffers.push(buffer);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn small_budgets_keep_no_buffers_and_large_ones_two_a_thread() {
        assert_eq!(buffers_of(64 << 20, 2), 0);
        assert_eq!(buffers_of(512 << 20, 2), 2);
        assert_eq!(buffers_of(1 << 30, 2), 4);
        assert_eq!(buffers_of(64 << 30, 16), 32);
    }
}
