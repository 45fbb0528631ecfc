//! How far content has moved in its base, as the deltas of one body tell while they are made.
//!
//! A dump that grows in many places moves a little further with each of them. By its end that may
//! be many windows, and a region's sketch says only in which region of the base its content lies.

use object_format::BlobId;
use std::sync::{Mutex, PoisonError};

/// Where some content was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastFound {
    /// The whole blob that has it.
    pub(crate) blob: BlobId,
    /// Where it stands in its object.
    pub(crate) position: u64,
    /// Its place in the blob minus that.
    pub(crate) shift: i64,
}

impl LastFound {
    /// The place in the blob of what stands at `position`, if it has moved as far.
    pub(crate) fn place_of(&self, position: u64) -> u64 {
        position.saturating_add_signed(self.shift)
    }
}

/// Where the segments of one body were found.
#[derive(Debug, Default)]
pub(crate) struct Moved(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The furthest one that was.
    last: Option<LastFound>,
    /// What comes behind it was not found by it.
    is_doubted: bool,
}

/// A run of a segment that was copied: where it stands in the segment, its length, and the place of
/// its base bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopiedBytes {
    /// Position in the segment.
    pub(crate) at: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// The base bytes' blob.
    pub(crate) blob: BlobId,
    /// Where in it they begin.
    pub(crate) offset: u64,
}

/// Where a segment of `len` bytes was found: half of what was copied lies before that, half behind.
/// `None` where less than half of the segment was copied.
pub(crate) fn middle_of(len: u64, copies: impl Iterator<Item = CopiedBytes>) -> Option<(BlobId, i64)> {
    let shift = |copy: &CopiedBytes| signed(copy.offset) - signed(copy.at);
    let mut shifts: Vec<(BlobId, i64, u64)> = copies.map(|copy| (copy.blob, shift(&copy), copy.len)).collect();
    let copied: u64 = shifts.iter().map(|(.., len)| len).sum();
    if copied < len / 2 {
        return None;
    }
    shifts.sort_unstable();
    let mut before = 0;
    let found = shifts.into_iter().find(|(.., len)| {
        before += len;
        before > copied / 2
    });
    found.map(|(blob, shift, _)| (blob, shift))
}

fn signed(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

impl Moved {
    /// Takes in where a segment at `position` was found ([`middle_of`]).
    pub(crate) fn note(&self, position: u64, (blob, shift): (BlobId, i64)) {
        let found = LastFound { blob, position, shift: shift - signed(position) };
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Segments are encoded side by side.
        if state.last.is_none_or(|last| last.position <= position) {
            *state = State { last: Some(found), is_doubted: false };
        }
    }

    /// Takes in that a segment was not found in a window that was opened by what is known here, or
    /// without that: the next one is opened the other way.
    pub(crate) fn note_missed(&self, was_followed: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some() {
            state.is_doubted = was_followed;
        }
    }

    /// Where the furthest segment so far was found, unless there is doubt.
    pub(crate) fn last(&self) -> Option<LastFound> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.last.filter(|_| !state.is_doubted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(at: u64, len: u64, blob: u8, offset: u64) -> CopiedBytes {
        CopiedBytes { at, len, blob: BlobId([blob; 16]), offset }
    }

    #[test]
    fn where_most_of_a_segment_was_found_is_where_what_follows_is_looked_for() {
        // A licence that stands elsewhere, a row that was put in, and another blob.
        let copies = [copy(0, 40, 1, 10), copy(40, 500, 1, 7040), copy(560, 400, 1, 7540), copy(960, 20, 2, 3)];
        let middle = middle_of(1000, copies.into_iter()).expect("most of it");
        assert_eq!(middle, (BlobId([1; 16]), 7000));
        let moved = Moved::default();
        assert_eq!(moved.last(), None);
        moved.note(5000, middle);
        assert_eq!(moved.last(), Some(LastFound { blob: BlobId([1; 16]), position: 5000, shift: 2000 }));
        assert_eq!(moved.last().expect("found").place_of(6000), 8000);
        // A segment that was encoded later, though it comes before.
        moved.note(4000, (BlobId([1; 16]), 9000));
        assert_eq!(moved.last().expect("found").shift, 2000);
        moved.note(9000, (BlobId([1; 16]), 4000));
        assert_eq!(moved.last().expect("found").place_of(1000), 0);
    }

    #[test]
    fn after_a_miss_the_next_window_is_opened_the_other_way() {
        let moved = Moved::default();
        moved.note_missed(false);
        moved.note(5000, (BlobId([1; 16]), 7000));
        assert!(moved.last().is_some());
        // Two segments of one window.
        moved.note_missed(true);
        moved.note_missed(true);
        assert_eq!(moved.last(), None);
        moved.note_missed(false);
        assert!(moved.last().is_some());
        moved.note_missed(true);
        moved.note(6000, (BlobId([1; 16]), 8000));
        assert_eq!(moved.last().expect("found again").position, 6000);
    }

    #[test]
    fn a_segment_that_is_mostly_new_says_nothing() {
        assert_eq!(middle_of(1000, [copy(0, 499, 1, 9000)].into_iter()), None);
        assert_eq!(middle_of(1000, [].into_iter()), None);
    }
}
