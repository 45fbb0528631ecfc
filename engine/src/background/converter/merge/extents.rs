//! Extents before and after merging, in numbers.

use super::groups::{BlobShare, Piece};
use crate::error::EngineError;
use catalog::{BlobKey, BlobRow, Content, Extent};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
};

/// The extents with each group in `done` (ascending) replaced by its one.
pub(super) fn with_merged(extents: &[Extent], done: &[(Range<usize>, Extent)]) -> Vec<Extent> {
    let (mut new, mut at) = (Vec::new(), 0);
    for (group, extent) in done {
        new.extend_from_slice(&extents[at..group.start]);
        new.push(*extent);
        at = group.end;
    }
    new.extend_from_slice(&extents[at..]);
    new
}

/// A version as the policy sees it.
pub(super) fn numbers_of(
    content: &Content,
    bound: &HashSet<BlobKey>,
) -> Result<(Vec<Piece>, Vec<BlobShare>), EngineError> {
    let places: HashMap<BlobKey, usize> = content.blobs.iter().enumerate().map(|(at, row)| (row.id, at)).collect();
    let source = |row: &BlobRow| BlobShare {
        plain_len: row.plain_len,
        stored_len: row.stored_len,
        bound: bound.contains(&row.id),
    };
    let piece = |extent: &Extent| Some(Piece { len: extent.len, blob: *places.get(&extent.blob)? });
    let pieces: Option<Vec<Piece>> = content.extents.iter().map(piece).collect();
    let pieces = pieces.ok_or_else(|| EngineError::Integrity("an extent names a blob without a row".into()))?;
    Ok((pieces, content.blobs.iter().map(source).collect()))
}

pub(super) fn rows_of<'c>(content: &'c Content, extents: &[Extent]) -> BTreeMap<BlobKey, &'c BlobRow> {
    let named: HashSet<BlobKey> = extents.iter().map(|extent| extent.blob).collect();
    content.blobs.iter().filter(|row| named.contains(&row.id)).map(|row| (row.id, row)).collect()
}

pub(super) fn content_len(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.len).sum()
}

/// Stored bytes of so many plain ones of a blob.
pub(super) fn share_of(row: &BlobRow, len: u64) -> u64 {
    let share = u128::from(row.stored_len) * u128::from(len) / u128::from(row.plain_len.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
