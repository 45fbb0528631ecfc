//! A blob's base view, put together when all its segments are encoded: just the base bytes they need (I2).

use super::window::BasePiece;
use object_format::{ViewAddress, ViewRange};

/// Most ranges in a view. Part of the format (docs/format/blob-v1.md).
pub(super) const VIEW_RANGES_MAX: usize = 256;
/// Most runs in a segment's footprint. Part of the format.
pub(super) const FOOTPRINT_RUNS_MAX: usize = 16;

/// The smallest view (coalesced, at most [`VIEW_RANGES_MAX`] ranges) that holds every footprint, and the footprints as view addresses.
/// `None` when no such view exists: too many different blobs.
pub(super) fn build(footprints: &[Vec<BasePiece>]) -> Option<(Vec<ViewRange>, Vec<Vec<ViewAddress>>)> {
    let mut pieces: Vec<BasePiece> = footprints.iter().flatten().copied().collect();
    pieces.sort_unstable_by_key(|piece| piece.at);
    let mut ranges: Vec<BasePiece> = Vec::new();
    for piece in pieces {
        match ranges.last_mut() {
            Some(last) if same_run(last, &piece) && piece.at <= last.at + last.len => {
                last.len = last.len.max(piece.at + piece.len - last.at);
            }
            _ => ranges.push(piece),
        }
    }
    while ranges.len() > VIEW_RANGES_MAX {
        // Closing a gap inside one blob costs nothing to read: only footprints are read.
        let smallest = ranges
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| same_run(&pair[0], &pair[1]))
            .min_by_key(|(_, pair)| pair[1].at - pair[0].at - pair[0].len)?;
        let (index, end) = (smallest.0, smallest.1[1].at + smallest.1[1].len);
        ranges[index].len = end - ranges[index].at;
        ranges.remove(index + 1);
    }
    let mut view_offsets = Vec::with_capacity(ranges.len());
    let mut view_len = 0;
    for range in &ranges {
        view_offsets.push(view_len);
        view_len += range.len;
    }
    let addresses = footprints
        .iter()
        .map(|footprint| {
            let mut runs: Vec<ViewAddress> = Vec::with_capacity(footprint.len());
            for piece in footprint {
                let index = ranges.partition_point(|range| range.at <= piece.at) - 1;
                let offset = view_offsets[index] + (piece.at - ranges[index].at);
                let len = u32::try_from(piece.len).ok()?;
                match runs.last_mut() {
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

/// True when both lie in one blob at the same distance between base address and blob offset.
fn same_run(a: &BasePiece, b: &BasePiece) -> bool {
    a.blob == b.blob && a.at.wrapping_sub(a.offset) == b.at.wrapping_sub(b.offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_format::BlobId;
    use proptest::prelude::*;

    const BLOB_LEN: u64 = 1 << 20;

    /// A piece of a base made of consecutive blobs of a mebibyte each.
    fn pieces(at: u64, len: u64) -> Vec<BasePiece> {
        let mut pieces = Vec::new();
        let (mut at, end) = (at, at + len);
        while at < end {
            let blob = at / BLOB_LEN;
            let to = end.min((blob + 1) * BLOB_LEN);
            let id = BlobId([u8::try_from(blob % 250).expect("below 250"); 16]);
            pieces.push(BasePiece { at, blob: id, offset: at % BLOB_LEN, len: to - at, base_tag: [0; 16] });
            at = to;
        }
        pieces
    }

    proptest! {
        #[test]
        fn every_footprint_reads_the_same_base_bytes_through_the_view(
            runs in prop::collection::vec((0u64..20 << 20, 1u64..300_000), 0..40)
        ) {
            let footprints: Vec<Vec<BasePiece>> = runs.iter().map(|(at, len)| pieces(*at, *len)).collect();
            let (view, addresses) = build(&footprints).expect("few blobs");
            prop_assert!(view.len() <= VIEW_RANGES_MAX);
            for (footprint, runs) in footprints.iter().zip(&addresses) {
                let through_view: Vec<(BlobId, u64)> = runs
                    .iter()
                    .flat_map(|run| (run.offset..run.offset + u64::from(run.len)).step_by(997))
                    .map(|address| {
                        let mut start = 0;
                        let range = view.iter().find(|range| { start += range.len; address < start }).expect("inside the view");
                        (range.blob, range.offset + (address - (start - range.len)))
                    })
                    .collect();
                let mut direct = Vec::new();
                let mut skip = 0;
                // The same sampling over the pieces laid end to end, restarted at each run of the view.
                let mut run_ends = runs.iter().map(|run| u64::from(run.len));
                let mut left = run_ends.next().unwrap_or(0);
                for piece in footprint {
                    let mut within = 0;
                    while within < piece.len {
                        if left == 0 { left = run_ends.next().expect("as many bytes"); skip = 0; }
                        if skip == 0 { direct.push((piece.blob, piece.offset + within)); skip = 997; }
                        let step = skip.min(piece.len - within).min(left);
                        within += step; skip -= step; left -= step;
                    }
                }
                prop_assert_eq!(through_view, direct);
            }
        }
    }

    #[test]
    fn a_scattered_footprint_never_needs_more_than_256_ranges() {
        let footprints: Vec<Vec<BasePiece>> = (0..1000).map(|i| pieces(i * 1000, 10)).collect();
        let (view, _) = build(&footprints).expect("one blob");
        assert!(view.len() <= VIEW_RANGES_MAX);
    }
}
