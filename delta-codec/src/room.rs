//! Room that a thread keeps from job to job. What the last job left in it is of no use to the next.

use crate::SEGMENT_LEN_MAX;

/// By this part of it there is more room than a job needs: the next one often needs a little more.
const SPARE: usize = 8;

/// Empties `bytes` and makes room for `len` in it. A `Vec` that grows takes along what it holds;
/// this one is given back first.
pub(crate) fn make(bytes: &mut Vec<u8>, len: usize) {
    bytes.clear();
    if bytes.capacity() < len {
        *bytes = Vec::new();
        bytes.reserve_exact(with_spare(len));
    }
}

/// The first `len` bytes of `bytes`, with whatever is in them.
pub(crate) fn of(bytes: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if bytes.len() < len {
        // Given back first, and fresh pages are zeros already.
        *bytes = Vec::new();
        *bytes = vec![0; with_spare(len)];
    }
    &mut bytes[..len]
}

/// Most of what is kept is no longer than a segment, and needs no more room than that.
fn with_spare(len: usize) -> usize {
    let spare = len + len / SPARE;
    if len <= SEGMENT_LEN_MAX { spare.min(SEGMENT_LEN_MAX) } else { spare }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_is_needed_again_stays_and_a_little_more_fits() {
        let (mut made, mut given) = (Vec::new(), Vec::new());
        make(&mut made, 80_000);
        let places = (made.as_ptr(), of(&mut given, 80_000).as_ptr());
        for len in [1, 80_000, 90_000] {
            made.extend_from_slice(&[7; 1000]);
            make(&mut made, len);
            assert!(made.is_empty());
            assert_eq!(of(&mut given, len).len(), len);
            assert_eq!((made.as_ptr(), given.as_ptr()), places, "{len}");
        }
        make(&mut made, 90_001);
        assert_eq!((made.capacity(), of(&mut given, 90_001).len()), (101_251, 90_001));
    }

    #[test]
    fn the_room_of_a_segment_is_as_long_as_one() {
        let mut bytes = Vec::new();
        for (len, room) in [(SEGMENT_LEN_MAX - 1, SEGMENT_LEN_MAX), (SEGMENT_LEN_MAX + 8, SEGMENT_LEN_MAX / 8 * 9 + 9)]
        {
            of(&mut bytes, len);
            assert_eq!(bytes.capacity(), room, "{len}");
        }
    }
}
