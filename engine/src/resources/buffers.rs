//! Buffers of one segment that go round between the codec threads and the bodies of answers: a
//! fresh one of 4 MiB costs its page faults and its zeros, which is a tenth of what decoding into
//! it takes.

use crate::resources::budget::Permit;
use bytes::Bytes;
use object_format::SEGMENT_LEN;
use std::sync::{
    Arc, Mutex, PoisonError,
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

    /// A buffer of `len` bytes with whatever its last user left in it.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        match self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            Some(mut buffer) => {
                buffer.resize(len, 0);
                buffer
            }
            None => vec![0; len],
        }
    }

    /// Puts a buffer back, if it is one of a whole segment and there is room.
    pub(crate) fn put(&self, buffer: Vec<u8>) {
        if buffer.capacity() == SEGMENT_LEN {
            let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            if buffers.len() < self.most.load(Ordering::Relaxed) {
                buffers.push(buffer);
            }
        }
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
        let lie = || shelf.buffers.lock().expect("not poisoned").len();
        shelf.put(vec![1; SEGMENT_LEN]);
        assert_eq!(lie(), 0);
        shelf.keep(2);
        (0..3).for_each(|_| shelf.put(vec![1; SEGMENT_LEN]));
        shelf.put(vec![1; SEGMENT_LEN / 2]);
        assert_eq!(lie(), 2);
        assert_eq!(shelf.take(10).len(), 10);
        assert_eq!(shelf.take(SEGMENT_LEN).len(), SEGMENT_LEN);
        assert_eq!(lie(), 0);
        assert_eq!(shelf.take(7), [0; 7]);
    }

    #[test]
    fn small_budgets_keep_no_buffers_and_large_ones_two_a_thread() {
        assert_eq!(buffers_of(64 << 20, 2), 0);
        assert_eq!(buffers_of(512 << 20, 2), 2);
        assert_eq!(buffers_of(1 << 30, 2), 4);
        assert_eq!(buffers_of(64 << 30, 16), 32);
    }
}
