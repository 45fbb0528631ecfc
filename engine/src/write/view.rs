//! A blob's base view, put together when all its segments are encoded: just the base bytes they
//! need (I2).

use crate::{bases::window::in_order, blobs::piece::BasePiece};
use object_format::{ViewAddress, ViewRange};

/// Most ranges in a view. Part of the format (docs/format/blob-v1.md).
pub(crate) const VIEW_RANGES_MAX: usize = 256;
/// Most runs in a segment's footprint. Part of the format.
pub(crate) const FOOTPRINT_RUNS_MAX: usize = 16;

/// The smallest view (coalesced, at most [`VIEW_RANGES_MAX`] ranges) that holds every footprint,
/// and the footprints as view addresses. `None` when no such view exists: too many different blobs,
/// or footprints that do not ascend.
///
/// The view has its blobs in the order of their ids, as every window has (`window.rs`): the
/// footprints of one blob may come from several windows, and each must ascend in the view.
pub(crate) fn build(footprints: &[Vec<BasePiece>]) -> Option<(Vec<ViewRange>, Vec<Vec<ViewAddress>>)> {
    let mut ranges = in_order(footprints.iter().flatten().copied().collect());
    while ranges.len() > VIEW_RANGES_MAX {
        // Closing a gap inside one blob costs nothing to read: only footprints are read.
        let smallest = ranges
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| pair[0].blob == pair[1].blob)
            .min_by_key(|(_, pair)| pair[1].offset - pair[0].end())?;
        let (index, end) = (smallest.0, smallest.1[1].end());
        ranges[index].len = end - ranges[index].offset;
        ranges.remove(index + 1);
    }
    let mut view_offsets = Vec::with_capacity(ranges.len());
    let mut view_len = 0;
    for range in &ranges {
        view_offsets.push(view_len);
        view_len += range.len;
    }
    let address_of = |piece: &BasePiece| {
        let after = ranges.partition_point(|range| (range.blob, range.offset) <= (piece.blob, piece.offset));
        let index = after.checked_sub(1)?;
        let range = &ranges[index];
        let holds = range.blob == piece.blob && piece.end() <= range.end();
        holds.then(|| view_offsets[index] + (piece.offset - range.offset))
    };
    let addresses = footprints
        .iter()
        .map(|footprint| {
            let mut runs: Vec<ViewAddress> = Vec::with_capacity(footprint.len());
            for piece in footprint {
                let (offset, len) = (address_of(piece)?, u32::try_from(piece.len).ok()?);
                match runs.last_mut() {
                    Some(last) if last.offset + u64::from(last.len) > offset => return None,
                    Some(last) if last.offset + u64::from(last.len) == offset => {
                        last.len = last.len.checked_add(len)?
                    }
                    _ => runs.push(ViewAddress { offset, len }),
                }
            }
            (runs.len() <= FOOTPRINT_RUNS_MAX).then_some(runs)
        })
        .collect::<Option<Vec<_>>>()?;
    let view = ranges
        .iter()
        .map(|range| ViewRange { blob: range.blob, offset: range.offset, len: range.len, base_tag: range.base_tag })
        .collect();
    Some((view, addresses))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_format::BlobId;
    use proptest::prelude::*;

    const BLOB_LEN: u64 = 1 << 20;

    fn blob(number: u8) -> BlobId {
        BlobId([number; 16])
    }

    /// Footprints as windows give them: of any blobs, ascending, at most [`FOOTPRINT_RUNS_MAX`]
    /// pieces.
    fn footprint() -> impl Strategy<Value = Vec<BasePiece>> {
        prop::collection::vec((0u8..8, 0..BLOB_LEN, 1..300_000u64), 0..FOOTPRINT_RUNS_MAX).prop_map(|pieces| {
            let piece =
                |(number, start, len): (u8, u64, u64)| BasePiece::of(blob(number), start..(start + len).min(BLOB_LEN));
            in_order(pieces.into_iter().map(piece).collect())
        })
    }

    proptest! {
        #[test]
        fn every_footprint_reads_the_same_base_bytes_through_the_view_whatever_the_others_are(
            footprints in prop::collection::vec(footprint(), 0..24)
        ) {
            let (view, addresses) = build(&footprints).expect("few blobs");
            prop_assert!(view.len() <= VIEW_RANGES_MAX);
            for (footprint, runs) in footprints.iter().zip(&addresses) {
                prop_assert!(runs.windows(2).all(|pair| pair[0].offset + u64::from(pair[0].len) < pair[1].offset));
                // What a reader does (docs/format/blob-v1.md §8): cut the runs along the view's
                // ranges.
                let mut read = Vec::new();
                for run in runs {
                    let (mut start, end) = (0, run.offset + u64::from(run.len));
                    for range in &view {
                        let (from, to) = (run.offset.max(start), end.min(start + range.len));
                        if from < to {
                            let within = range.offset + (from - start)..range.offset + (to - start);
                            read.push(BasePiece::of(range.blob, within));
                        }
                        start += range.len;
                    }
                    prop_assert!(end <= start);
                }
                prop_assert_eq!(&in_order(read), footprint);
            }
        }
    }

    #[test]
    fn a_scattered_footprint_never_needs_more_than_256_ranges() {
        let scattered = |i: u64| vec![BasePiece::of(blob(1), i * 1000..i * 1000 + 10)];
        let footprints: Vec<Vec<BasePiece>> = (0..1000).map(scattered).collect();
        let (view, _) = build(&footprints).expect("one blob");
        assert!(view.len() <= VIEW_RANGES_MAX);
    }

    #[test]
    fn what_does_not_ascend_has_no_view() {
        let (low, high) = (BasePiece::of(blob(1), 0..10), BasePiece::of(blob(2), 0..10));
        assert!(build(&[vec![low, high]]).is_some());
        assert!(build(&[vec![high, low]]).is_none());
    }
}
