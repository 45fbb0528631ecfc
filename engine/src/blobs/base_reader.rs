//! The base bytes that a delta segment needs: which ranges of which blobs, and the blobs, opened.

use super::{
    open::{Blobs, Manifest, damaged},
    piece::BasePiece,
};
use crate::error::EngineError;
use catalog::BlobRow;
use object_format::{DomainKey, Root, Segment, ViewAddress, ViewRange};
use std::sync::Arc;

/// Finds base manifests for a reader: the rows it was given, looked up by id.
pub(crate) struct BaseReader<'a> {
    rows: &'a [BlobRow],
    key: Option<&'a DomainKey>,
}

impl<'a> BaseReader<'a> {
    /// For whole blobs, which need no bases.
    pub(crate) const NONE: BaseReader<'static> = BaseReader { rows: &[], key: None };

    pub(crate) fn new(rows: &'a [BlobRow], key: Option<&'a DomainKey>) -> Self {
        Self { rows, key }
    }

    /// The base's manifest, checked to be whole content with the tag the view carries (E10).
    pub(crate) async fn manifest(&self, blobs: &Blobs, piece: &BasePiece) -> Result<Arc<Manifest>, EngineError> {
        let row = self.rows.iter().find(|row| row.id.0 == piece.blob.0).ok_or_else(|| damaged("a base is missing"))?;
        let base = blobs.manifest(row, self.key).await?;
        let range = ViewRange { blob: piece.blob, offset: piece.offset, len: piece.len, base_tag: piece.base_tag };
        base.root.check_as_base(&range).map_err(|_| damaged("not the base this delta was made from"))?;
        Ok(base)
    }
}

/// A segment's footprint as ranges of base blobs.
pub(crate) fn view_pieces(root: &Root, segment: &Segment) -> Result<Vec<BasePiece>, EngineError> {
    pieces_of(&root.view, &segment.footprint)
}

/// Runs of a base view as ranges of base blobs.
pub(crate) fn pieces_of(view: &[ViewRange], runs: &[ViewAddress]) -> Result<Vec<BasePiece>, EngineError> {
    let mut pieces = Vec::with_capacity(runs.len());
    for run in runs {
        let (start, end) = (run.offset, run.offset + u64::from(run.len));
        let mut at = 0;
        let mut covered = start;
        for range in view {
            let (from, to) = (covered.max(at), end.min(at + range.len));
            if from == covered && from < to {
                let offset = range.offset + (from - at);
                pieces.push(BasePiece { blob: range.blob, offset, len: to - from, base_tag: range.base_tag });
                covered = to;
            }
            at += range.len;
        }
        if covered != end {
            return Err(damaged("footprint outside the view"));
        }
    }
    Ok(pieces)
}
