//! Where chunks lie: arithmetic that must not overflow for any u64, since lengths come from stored
//! bytes.

use crate::{
    error::FormatError,
    header::{CHUNK_LOG2, HEADER_LEN, SEGMENT_LOG2},
};
use std::ops::Range;

/// Bytes of one payload chunk, the unit of sealing and checking. Part of the format
/// (docs/format/blob-v1.md §1): blobs already stored cannot be read with another value.
pub const CHUNK_LEN: usize = 1 << CHUNK_LOG2;
/// Plain bytes of every segment but the last. Part of the format.
pub const SEGMENT_LEN: usize = 1 << SEGMENT_LOG2;
/// Most plain bytes of a blob: 5 GiB. Part of the format.
pub const PLAIN_LEN_MAX: u64 = 5 << 30;
/// Most chunks of a blob, refused and never wrapped: the index in a nonce has 32 bits. Part of the
/// format.
pub const CHUNKS_MAX: u64 = 1 << 31;

/// How many chunks hold a payload.
pub(crate) fn chunk_count(payload_len: u64) -> u64 {
    payload_len.div_ceil(CHUNK_LEN as u64)
}

/// How many segments hold plain content.
pub(crate) fn segment_count(plain_len: u64) -> u64 {
    plain_len.div_ceil(SEGMENT_LEN as u64)
}

/// A chunk's index as it enters nonces and checks.
pub(crate) fn chunk_index(chunk: u64) -> Result<u32, FormatError> {
    match u32::try_from(chunk) {
        Ok(index) if chunk < CHUNKS_MAX => Ok(index),
        _ => Err(FormatError::TooLarge("2^31 chunks")),
    }
}

/// Bytes of a payload when stored, each chunk with `overhead` bytes of tag; `u64::MAX` for lengths
/// no blob can have.
pub(crate) fn stored_payload_len(payload_len: u64, overhead: u64) -> u64 {
    payload_len.saturating_add(chunk_count(payload_len).saturating_mul(overhead))
}

/// Where chunks lie in the blob, cut at the payload's end.
pub(crate) fn stored_range(chunks: Range<u64>, payload_len: u64, overhead: u64) -> Range<u64> {
    let position = |chunk: u64| {
        let payload = chunk.saturating_mul(CHUNK_LEN as u64).min(payload_len);
        stored_payload_len(payload, overhead).saturating_add(HEADER_LEN as u64)
    };
    position(chunks.start)..position(chunks.end.max(chunks.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIB: u64 = 1 << 40;

    #[test]
    fn the_chunk_past_two_to_the_31_is_refused_not_wrapped() {
        assert_eq!(chunk_index(CHUNKS_MAX - 1), Ok(0x7fff_ffff));
        for chunk in [CHUNKS_MAX, CHUNKS_MAX + 1, 1 << 32, (1 << 32) + 5, u64::MAX] {
            assert_eq!(chunk_index(chunk), Err(FormatError::TooLarge("2^31 chunks")));
        }
    }

    #[test]
    fn chunk_positions_are_as_the_document_says() {
        assert_eq!(stored_range(0..1, 1, 16), 160..177);
        assert_eq!(stored_range(0..1, 65_536, 16), 160..160 + 65_552);
        assert_eq!(stored_range(1..2, 65_537, 16), 160 + 65_552..160 + 65_552 + 17);
        assert_eq!(stored_range(1..2, 65_537, 0), 160 + 65_536..160 + 65_537);
        assert_eq!(stored_range(2..9, 65_537, 0), 160 + 65_537..160 + 65_537);
        assert_eq!(stored_range(0..0, 0, 16), 160..160);
    }

    #[test]
    fn lengths_no_blob_can_have_saturate() {
        let range = stored_range(0..u64::MAX, u64::MAX, 16);
        assert_eq!(range, 160..u64::MAX);
        assert_eq!(stored_range(u64::MAX..u64::MAX, u64::MAX, 16), u64::MAX..u64::MAX);
        assert_eq!(chunk_count(u64::MAX), 1 << 48);
        assert_eq!(segment_count(u64::MAX), 1 << 42);
    }

    proptest! {
        #[test]
        fn neighbouring_runs_of_chunks_tile_the_payload_to_5_tib_and_past_it(
            payload_len in prop_oneof![0..=8 * TIB, Just(5 * TIB), Just(5 * TIB + 1), Just(5 * TIB - 1)],
            cut in any::<prop::sample::Index>(),
            overhead in prop_oneof![Just(0), Just(16)],
        ) {
            let count = chunk_count(payload_len);
            let cut = cut.index(usize::try_from(count).unwrap() + 1) as u64;
            let (left, right) = (stored_range(0..cut, payload_len, overhead), stored_range(cut..count, payload_len, overhead));
            prop_assert_eq!(left.start, HEADER_LEN as u64);
            prop_assert_eq!(left.end, right.start);
            let exact = 160 + u128::from(payload_len) + u128::from(count) * u128::from(overhead);
            prop_assert_eq!(u128::from(right.end), exact);
        }

        #[test]
        fn no_arguments_make_the_arithmetic_panic(start: u64, end: u64, payload_len: u64, overhead in 0..=16_u64) {
            let range = stored_range(start..end, payload_len, overhead);
            prop_assert!(range.start <= range.end);
        }
    }
}
