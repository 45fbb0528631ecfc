//! Which versions are made of many small extents, and which of these are put together: numbers in,
//! ranges out.
//!
//! What was put together is never looked at again: its extents are as long as a group, or lie
//! between others that stay. The property test below is what the converter relies on in order not
//! to go in circles.

use crate::bases::{plan, similar::REGION_LEN};
use catalog::SCATTERED_EXTENTS_MIN;
use object_format::SEGMENT_LEN;
use std::ops::Range;

/// From this mean length on a version is not worth rewriting: reading an extent of 16 MiB asks the
/// backend for its manifest once and for its content at least four times. Below lie the parts that
/// clients send unless told otherwise (5 to 15 MiB).
const MEAN_LEN_MAX: u64 = 16 << 20;
/// Extents that are put together are shorter than a region, the unit that looks for a base by
/// itself.
const SMALL_LEN_MAX: u64 = REGION_LEN;
/// Plain bytes of a group. Its eight regions look for their bases one by one, each in a window of
/// at most 128 MiB. Where a base is made of 5 MiB parts, the least that S3 allows, their windows
/// are 208 ranges together: less than the 256 of a view (I2).
const GROUP_LEN_MAX: u64 = 8 * REGION_LEN;
/// Fewer extents together are not worth a rewrite.
const GROUP_EXTENTS_MIN: usize = 8;

/// One extent of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Plain bytes.
    pub(super) len: u64,
    /// Which of the version's blobs they lie in.
    pub(super) blob: usize,
}

/// One blob of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlobShare {
    /// Plain bytes.
    pub(super) plain_len: u64,
    /// Stored bytes.
    pub(super) stored_len: u64,
    /// It stays whatever becomes of the version, so that its content would be stored twice.
    pub(super) bound: bool,
}

impl BlobShare {
    /// Stored bytes of so many plain ones of it.
    fn share(&self, len: u64) -> u64 {
        let share = u128::from(self.stored_len) * u128::from(len) / u128::from(self.plain_len.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// True for a version of many small extents: of so many as `extents_min` with a mean length below
/// that of the parts which large uploads are cut into, or of [`SCATTERED_EXTENTS_MIN`] that are
/// shorter than one segment, so that reading them costs more requests for manifests than for
/// content.
pub(super) fn is_scattered(extents: u64, size: u64, extents_min: u64) -> bool {
    let mean = size / extents.max(1);
    (extents >= extents_min && mean < MEAN_LEN_MAX) || (extents >= SCATTERED_EXTENTS_MIN && mean < SEGMENT_LEN as u64)
}

/// The runs of extents that become one blob each, ascending; none when that would store noticeably
/// more than it frees.
pub(super) fn groups(pieces: &[Piece], sources: &[BlobShare]) -> Vec<Range<usize>> {
    let mut used = vec![0u64; sources.len()];
    let mut movable: Vec<bool> = sources.iter().map(|source| !source.bound).collect();
    for piece in pieces {
        used[piece.blob] = used[piece.blob].saturating_add(piece.len);
        movable[piece.blob] &= piece.len < SMALL_LEN_MAX;
    }
    for (index, source) in sources.iter().enumerate() {
        // Content that the version names more than once is stored once now.
        movable[index] &= used[index] <= source.plain_len.saturating_add(source.plain_len / 32);
    }
    let mut groups = Vec::new();
    let (mut first, mut len) = (0, 0u64);
    for (index, piece) in pieces.iter().enumerate() {
        if movable[piece.blob] && len.saturating_add(piece.len) <= GROUP_LEN_MAX {
            len += piece.len;
            continue;
        }
        groups.push((first..index, len));
        (first, len) = if movable[piece.blob] { (index, piece.len) } else { (index + 1, 0) };
    }
    groups.push((first..pieces.len(), len));
    groups.retain(|(group, len)| {
        group.len() >= GROUP_EXTENTS_MIN && *len < MEAN_LEN_MAX.saturating_mul(group.len() as u64)
    });
    let groups: Vec<Range<usize>> = groups.into_iter().map(|(group, _)| group).collect();
    if plan::is_as_short(freed(pieces, sources, &groups), added(pieces, sources, &groups)) {
        groups
    } else {
        Vec::new()
    }
}

/// Stored bytes of the blobs that only the groups use.
fn freed(pieces: &[Piece], sources: &[BlobShare], groups: &[Range<usize>]) -> u64 {
    let mut stays: Vec<bool> = vec![true; sources.len()];
    groups.iter().flat_map(|group| &pieces[group.clone()]).for_each(|piece| stays[piece.blob] = false);
    let mut kept = groups.iter();
    let mut group = kept.next();
    for (index, piece) in pieces.iter().enumerate() {
        while group.is_some_and(|group| group.end <= index) {
            group = kept.next();
        }
        stays[piece.blob] |= group.is_none_or(|group| index < group.start);
    }
    sources.iter().zip(stays).filter(|(_, stays)| !stays).map(|(source, _)| source.stored_len).sum()
}

/// Stored bytes of the groups' extents, each as its blob is stored now.
fn added(pieces: &[Piece], sources: &[BlobShare], groups: &[Range<usize>]) -> u64 {
    let pieces = groups.iter().flat_map(|group| &pieces[group.clone()]);
    pieces.map(|piece| sources[piece.blob].share(piece.len)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const NONE: [Range<usize>; 0] = [];

    /// Blobs of these lengths, one extent each.
    fn whole(lens: &[u64]) -> (Vec<Piece>, Vec<BlobShare>) {
        let pieces = lens.iter().enumerate().map(|(blob, len)| Piece { len: *len, blob }).collect();
        let source = |len: &u64| BlobShare { plain_len: *len, stored_len: len / 2, bound: false };
        (pieces, lens.iter().map(source).collect())
    }

    /// What becomes of the extents, the new blobs behind the old ones.
    fn merged(pieces: &[Piece], sources: &[BlobShare], groups: &[Range<usize>]) -> (Vec<Piece>, Vec<BlobShare>) {
        let (mut left, mut blobs, mut at) = (Vec::new(), sources.to_vec(), 0);
        for group in groups {
            left.extend_from_slice(&pieces[at..group.start]);
            let len = pieces[group.clone()].iter().map(|piece| piece.len).sum();
            left.push(Piece { len, blob: blobs.len() });
            blobs.push(BlobShare { plain_len: len, stored_len: len / 2, bound: false });
            at = group.end;
        }
        left.extend_from_slice(&pieces[at..]);
        (left, blobs)
    }

    #[test]
    fn ten_thousand_parts_of_5_mib_become_a_hundred_blobs() {
        let (pieces, sources) = whole(&[5 * MIB; 10_000]);
        assert!(is_scattered(10_000, 50_000 * MIB, 256));
        let groups = groups(&pieces, &sources);
        assert_eq!((groups.len(), groups[0].clone(), groups[97].clone()), (98, 0..102, 9894..9996));
        let (left, _) = merged(&pieces, &sources, &groups);
        assert_eq!(left.len(), 102, "the last four parts stay");
        assert!(!is_scattered(left.len() as u64, 50_000 * MIB, 256));
    }

    #[test]
    fn few_extents_and_long_ones_stay() {
        assert!(!is_scattered(255, 255 * 5 * MIB, 256));
        assert!(is_scattered(256, 256 * 5 * MIB, 256));
        assert!(!is_scattered(1000, 16_000 * MIB, 256));
        assert!(is_scattered(32, 32 * 4 * MIB - 32, 256), "shorter than a segment");
        assert!(!is_scattered(31, 31, 256));
        assert!(!is_scattered(32, 32 * 4 * MIB, 256));
        let (pieces, sources) = whole(&[MIB; 7]);
        assert_eq!(groups(&pieces, &sources), NONE);
        let (pieces, sources) = whole(&[16 * MIB; 300]);
        assert_eq!(groups(&pieces, &sources), NONE);
    }

    #[test]
    fn what_others_need_stays_and_parts_the_groups() {
        let (pieces, mut sources) = whole(&[MIB; 30]);
        sources[12].bound = true;
        assert_eq!(groups(&pieces, &sources), [0..12, 13..30]);
        sources[20].bound = true;
        assert_eq!(groups(&pieces, &sources), [0..12, 21..30], "seven in between are too few");
    }

    #[test]
    fn content_that_is_named_again_and_again_is_not_stored_again_and_again() {
        let sources = [BlobShare { plain_len: 5 * MIB, stored_len: 5 * MIB, bound: false }];
        let pieces = [Piece { len: 5 * MIB, blob: 0 }; 300];
        assert_eq!(groups(&pieces, &sources), NONE);
    }

    #[test]
    fn a_large_blob_of_which_little_is_left_is_let_go_of() {
        let sources = [BlobShare { plain_len: 5 << 30, stored_len: 1 << 30, bound: false }];
        let pieces = [Piece { len: MIB, blob: 0 }; 40];
        assert_eq!(groups(&pieces, &sources).first(), Some(&(0..40)));
        // One long extent keeps it: what the short ones use of it would be stored twice.
        let with_a_long_one: Vec<Piece> = pieces.into_iter().chain([Piece { len: 1 << 30, blob: 0 }]).collect();
        assert_eq!(groups(&with_a_long_one, &sources), NONE);
    }

    #[test]
    fn a_blob_that_is_only_half_in_a_group_counts_as_kept() {
        // 40 extents of one blob, but for the last, which stands alone behind content that stays.
        let sources = [
            BlobShare { plain_len: 40 * MIB, stored_len: 40 * MIB, bound: false },
            BlobShare { plain_len: MIB, stored_len: MIB, bound: true },
        ];
        let mut pieces = vec![Piece { len: MIB, blob: 0 }; 39];
        pieces.extend([Piece { len: MIB, blob: 1 }, Piece { len: MIB, blob: 0 }]);
        assert_eq!(groups(&pieces, &sources), NONE);
    }

    prop_compose! {
        fn version()(
            sources in prop::collection::vec((1u64..200 * MIB, 0u64..200 * MIB, prop::bool::weighted(0.1)), 1..60)
        )(
            pieces in prop::collection::vec((0..sources.len(), 1u64..=1000), 1..400), sources in Just(sources)
        ) -> (Vec<Piece>, Vec<BlobShare>) {
            let sources: Vec<BlobShare> = sources
                .into_iter()
                .map(|(plain_len, stored_len, bound)| BlobShare { plain_len, stored_len: stored_len.min(plain_len), bound })
                .collect();
            let piece = |(blob, permille): (usize, u64)| {
                let source: &BlobShare = &sources[blob];
                Piece { len: (source.plain_len * permille / 20_000).max(1), blob }
            };
            (pieces.into_iter().map(piece).collect(), sources)
        }
    }

    proptest! {
        #[test]
        fn groups_are_ascending_runs_of_small_extents_that_nobody_else_needs((pieces, sources) in version()) {
            let mut end = 0;
            for group in groups(&pieces, &sources) {
                prop_assert!(group.start >= end && group.len() >= GROUP_EXTENTS_MIN);
                end = group.end;
                let inside = &pieces[group];
                prop_assert!(inside.iter().map(|piece| piece.len).sum::<u64>() <= GROUP_LEN_MAX);
                prop_assert!(inside.iter().all(|piece| !sources[piece.blob].bound && piece.len < SMALL_LEN_MAX));
            }
            prop_assert!(end <= pieces.len());
        }

        #[test]
        fn what_was_put_together_is_left_alone_from_then_on((pieces, sources) in version()) {
            let first = groups(&pieces, &sources);
            let (left, blobs) = merged(&pieces, &sources, &first);
            prop_assert_eq!(groups(&left, &blobs), NONE);
        }

        #[test]
        fn more_is_freed_than_added_but_for_a_thirty_second((pieces, sources) in version()) {
            let groups = groups(&pieces, &sources);
            let (added, freed) = (added(&pieces, &sources, &groups), freed(&pieces, &sources, &groups));
            prop_assert!(added <= freed + freed / 32);
        }
    }
}
