//! Matches copied within a text, in chunks.

use crate::alphabet::MATCH_LEN_MAX;

/// Bytes behind the room that a step may write over.
pub(crate) const SLACK: usize = MATCH_LEN_MAX + 32;
/// Bytes of a match that are copied at once; where it reaches less far back, half as many.
const CHUNK: usize = 16;
const HALF_CHUNK: usize = 8;
/// The least multiple of a distance that is no less than half a chunk.
const REPEATED: [usize; CHUNK] = [8, 8, 8, 9, 8, 10, 12, 14, 8, 9, 10, 11, 12, 13, 14, 15];

/// Appends `len` bytes from `distance` before to what ends at `at`, and writes up to [`SLACK`]
/// bytes behind them.
#[inline(always)]
pub(crate) fn copy_match(out: &mut [u8], at: usize, distance: usize, len: usize) {
    let from = at.wrapping_sub(distance);
    if distance >= CHUNK {
        // Nearly every match ends within two chunks: no branch has to foresee how many it takes.
        let mut done = 0;
        while done < len.max(CHUNK + 1) {
            copy_chunk::<CHUNK>(out, from.wrapping_add(done), at.wrapping_add(done));
            done = done.wrapping_add(CHUNK);
        }
    } else if distance == 1 {
        let byte = out[from];
        out[at..at + len].fill(byte);
    } else {
        // What is copied byte by byte comes again until it is long enough to be copied at once.
        let mut done = if distance >= HALF_CHUNK { 0 } else { HALF_CHUNK };
        for k in 0..len.min(done) {
            out[at + k] = out[from + k];
        }
        let back = REPEATED[distance % CHUNK];
        while done < len {
            let to = at.wrapping_add(done);
            copy_chunk::<HALF_CHUNK>(out, to.wrapping_sub(back), to);
            done = done.wrapping_add(HALF_CHUNK);
        }
    }
}

/// Copies a chunk to a place that lies at least as far behind.
#[inline(always)]
fn copy_chunk<const LEN: usize>(out: &mut [u8], from: usize, to: usize) {
    if let Some((before, behind)) = out.split_at_mut_checked(to)
        && let (Some(chunk), Some(place)) =
            (before.get(from..).and_then(<[u8]>::first_chunk::<LEN>), behind.first_chunk_mut::<LEN>())
    {
        *place = *chunk;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_is_copied_as_byte_by_byte_whatever_its_distance_and_length() {
        for distance in 1..40 {
            for len in 3..=MATCH_LEN_MAX {
                let mut out: Vec<u8> = (0..40 + MATCH_LEN_MAX + SLACK).map(|at| (at * 7 % 251) as u8).collect();
                let mut expected = out.clone();
                (40..40 + len).for_each(|at| expected[at] = expected[at - distance]);
                copy_match(&mut out, 40, distance, len);
                assert_eq!(out[..40 + len], expected[..40 + len], "{len} bytes from {distance} before");
            }
        }
    }
}
