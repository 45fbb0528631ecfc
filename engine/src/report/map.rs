//! Why an object costs as much as it does, along the object: which of its bytes are copied from
//! which base, which are new, which are only compressed, and what each stretch of it takes.
//!
//! ```text
//! object   |----extent----|--extent--|        cells of equal length, each with the plain bytes of
//! blobs    |seg|seg|seg|s | seg | seg |       every kind and the stored bytes of the segments that
//! cells    |  |  |  |  |  |  |  |  |  |       cover it, shared out by length
//! ```

use super::Reports;
use crate::{
    blobs::{
        base_reader::{BaseReader, view_pieces},
        decode::segments_covering,
        open::Manifest,
        piece::BasePiece,
    },
    bucket::BucketHandle,
    error::EngineError,
    read::object::{Named, OpenObject},
};
use catalog::{BlobKey, BlobRow, VersionRef};
use object_format::{BlobId, Coding, SEGMENT_LEN, Segment};
use serde_json::{Value, json};
use std::{collections::BTreeMap, ops::Range};

/// Most cells of a map.
pub const CELLS_MAX: u64 = 1024;
/// Plain bytes of delta segments that are decoded for one map. Of what is behind them the map shows
/// how much is new, and not where.
const DECODED_BYTES_MAX: u64 = 64 << 20;
/// Segments whose table rows are read for one map; what is behind them is not shown.
const SEGMENTS_MAX: u64 = 4096;
/// Memory of one segment that is decoded: itself, its stored bytes and its base.
const DECODING_BYTES: u64 = 4 * SEGMENT_LEN as u64;
/// Objects that are named of those that need a base.
const NAMED_MAX: usize = 8;

/// What becomes of a plain byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The same byte of a base.
    Copied,
    /// A byte of a base and a difference.
    Changed,
    /// In a delta, from no base.
    Added,
    /// In zstd.
    Compressed,
    /// As it is.
    Raw,
    /// Inside a deflate view.
    Opened,
    /// In an original.
    Foreign,
}

const KINDS: [(Kind, &str); 7] = [
    (Kind::Copied, "copied"),
    (Kind::Changed, "changed"),
    (Kind::Added, "added"),
    (Kind::Compressed, "compressed"),
    (Kind::Raw, "raw"),
    (Kind::Opened, "opened"),
    (Kind::Foreign, "foreign"),
];

/// A stretch of the object.
#[derive(Clone, Default)]
struct Cell {
    kinds: [u64; KINDS.len()],
    stored: u64,
    bases: BTreeMap<BlobId, u64>,
}

/// What a base gives the object.
#[derive(Clone, Copy, Default)]
struct Given {
    copied: u64,
    footprint: u64,
}

/// The map while it is made.
struct Drawing {
    size: u64,
    cell_len: u64,
    cells: Vec<Cell>,
    bases: BTreeMap<BlobId, Given>,
    base_rows: BTreeMap<BlobId, BlobRow>,
    decode_left: u64,
    segments_left: u64,
    estimated: u64,
    shown: u64,
}

impl Drawing {
    fn new(size: u64, cells: u64) -> Self {
        let cell_len = size.div_ceil(cells.clamp(1, CELLS_MAX)).max(1);
        let count = usize::try_from(size.div_ceil(cell_len)).unwrap_or(0);
        Self {
            size,
            cell_len,
            cells: vec![Cell::default(); count],
            bases: BTreeMap::new(),
            base_rows: BTreeMap::new(),
            decode_left: DECODED_BYTES_MAX,
            segments_left: SEGMENTS_MAX,
            estimated: 0,
            shown: 0,
        }
    }

    /// Gives each cell its part of `amount`, by the bytes of `range` in it; the parts add up.
    fn share(&mut self, range: &Range<u64>, amount: u64, mut give: impl FnMut(&mut Cell, u64)) {
        let len = u128::from(range.end - range.start).max(1);
        let until = |at: u64| u64::try_from(u128::from(amount) * u128::from(at - range.start) / len).unwrap_or(amount);
        let mut at = range.start;
        while at < range.end {
            let number = at / self.cell_len;
            let end = range.end.min((number + 1) * self.cell_len);
            let part = until(end) - until(at);
            if let Some(cell) = usize::try_from(number).ok().and_then(|number| self.cells.get_mut(number)) {
                give(cell, part);
            }
            at = end;
        }
    }

    fn paint(&mut self, range: &Range<u64>, amount: u64, kind: Kind) {
        self.share(range, amount, |cell, part| cell.kinds[kind as usize] += part);
    }

    fn copy(&mut self, range: &Range<u64>, kind: Kind, base: Option<BlobId>) {
        let len = range.end - range.start;
        self.paint(range, len, kind);
        if let Some(base) = base {
            self.share(range, len, |cell, part| *cell.bases.entry(base).or_default() += part);
            self.bases.entry(base).or_default().copied += len;
        }
    }

    /// Gives ranges their parts of `stored` bytes, by length.
    fn charge(&mut self, ranges: &[Range<u64>], stored: u64) {
        let len = |range: &Range<u64>| u128::from(range.end - range.start);
        let all = ranges.iter().map(len).sum::<u128>().max(1);
        let (mut reached, mut charged) = (0, 0);
        for range in ranges {
            reached += len(range);
            let until = u64::try_from(u128::from(stored) * reached / all).unwrap_or(stored);
            self.share(range, until - charged, |cell, part| cell.stored += part);
            charged = until;
        }
    }

    /// The runs of a delta segment, in the object's bytes `at`, which are the segment's `within`.
    /// Gives the ranges that are new, and those that are copied with differences.
    fn runs(
        &mut self,
        at: &Range<u64>,
        within: &Range<u32>,
        pieces: &[BasePiece],
        runs: &[delta_codec::CopiedRun],
    ) -> [Vec<Range<u64>>; 2] {
        let (mut added, mut changed) = (Vec::new(), Vec::new());
        let place = |offset: u32| at.start + u64::from(offset.clamp(within.start, within.end) - within.start);
        let mut reached = within.start;
        for run in runs {
            let (start, end) = (run.at.max(within.start), run.at.saturating_add(run.len).min(within.end));
            if start >= end {
                continue;
            }
            if reached < start {
                added.push(place(reached)..place(start));
            }
            let here = place(start)..place(end);
            let kind = if run.is_equal { Kind::Copied } else { Kind::Changed };
            self.copy(&here, kind, base_at(pieces, run.source.into()));
            if !run.is_equal {
                changed.push(here);
            }
            reached = reached.max(end);
        }
        if place(reached) < at.end {
            added.push(place(reached)..at.end);
        }
        for new in &added {
            self.paint(new, new.end - new.start, Kind::Added);
        }
        [added, changed]
    }

    fn json(&self) -> Vec<Value> {
        let order: Vec<BlobId> = self.bases.keys().copied().collect();
        let cells = self.cells.iter().enumerate().map(|(number, cell)| {
            let offset = number as u64 * self.cell_len;
            let mut value =
                json!({ "offset": offset, "len": self.cell_len.min(self.size - offset), "stored_bytes": cell.stored });
            for (kind, name) in KINDS.iter().filter(|(kind, _)| cell.kinds[*kind as usize] > 0) {
                value[*name] = json!(cell.kinds[*kind as usize]);
            }
            let number = |base: &BlobId| order.iter().position(|other| other == base);
            let bases: Vec<Value> = cell.bases.iter().map(|(base, bytes)| json!([number(base), bytes])).collect();
            if !bases.is_empty() {
                value["bases"] = json!(bases);
            }
            value
        });
        cells.collect()
    }
}

/// The base that holds a place of the footprint.
fn base_at(pieces: &[BasePiece], place: u64) -> Option<BlobId> {
    let mut at = 0;
    let holds = |piece: &&BasePiece| {
        at += piece.len;
        place < at
    };
    pieces.iter().find(holds).map(|piece| piece.blob)
}

impl Reports {
    /// The body of `GET /api/v1/map`: the object in at most `cells` stretches of equal length, its
    /// bases, and which other objects need these; `None` when there is no such version. Decodes at
    /// most 64 MiB, each segment under a permit of the budget (I8).
    ///
    /// # Errors
    /// [`EngineError`] when catalog or backend fail, or content is damaged.
    pub async fn map(
        &self,
        bucket: &str,
        key: &str,
        version: Option<VersionRef>,
        cells: u64,
    ) -> Result<Option<Value>, EngineError> {
        let Some(handle) = self.buckets.bucket(bucket).await? else { return Ok(None) };
        let found = match version {
            None => self.read.open_object(&handle, key).await?.map(Named::Object),
            Some(version) => self.read.open_version(&handle, key, version).await?,
        };
        let Some(Named::Object(object)) = found else { return Ok(None) };
        let mut drawing = Drawing::new(object.info.version.size, cells);
        self.draw(&handle, &object, &mut drawing).await?;
        let mut bases = Vec::new();
        for (id, given) in &drawing.bases {
            bases.push(self.base_json(&handle, key, *id, *given, &drawing.base_rows).await?);
        }
        let storage = &object.info.facts.storage;
        Ok(Some(json!({
            "bucket": bucket,
            "key": key,
            "version": object.info.version.reference().to_string(),
            "size": drawing.size,
            "stored_bytes": storage.stored_bytes,
            "form": storage.form.as_str(),
            "reason": storage.reason,
            "cell_len": drawing.cell_len,
            "cells": drawing.json(),
            "bases": bases,
            "estimated_bytes": drawing.estimated,
            "shown_bytes": drawing.shown,
        })))
    }

    async fn draw(&self, handle: &BucketHandle, object: &OpenObject, drawing: &mut Drawing) -> Result<(), EngineError> {
        let mut at = 0;
        for extent in &object.content.extents {
            let row = object.content.blobs.iter().find(|row| row.id == extent.blob);
            let row = row.ok_or_else(|| EngineError::Integrity("an extent without its blob".into()))?;
            if row.original.is_some() {
                drawing.paint(&(at..at + extent.len), extent.len, Kind::Foreign);
                drawing.shown += extent.len;
                at += extent.len;
                continue;
            }
            let key = handle.key_of(row)?;
            let manifest = self.blobs.manifest(row, key.as_deref()).await?;
            let base_rows = self.read.base_rows(&manifest).await?;
            let bases = BaseReader::new(&base_rows, key.as_deref());
            drawing.base_rows.extend(base_rows.iter().map(|row| (BlobId(row.id.0), row.clone())));
            for (index, within) in segments_covering(extent.offset..extent.offset + extent.len) {
                let Some(left) = drawing.segments_left.checked_sub(1) else { return Ok(()) };
                drawing.segments_left = left;
                let segment = self.blobs.segment(&manifest, index).await?;
                let here = at..at + u64::from(within.end - within.start);
                self.draw_segment(&manifest, &segment, &bases, (&here, &within), drawing).await?;
                drawing.shown += here.end - here.start;
                at = here.end;
            }
        }
        Ok(())
    }

    async fn draw_segment(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        bases: &BaseReader<'_>,
        (here, within): (&Range<u64>, &Range<u32>),
        drawing: &mut Drawing,
    ) -> Result<(), EngineError> {
        let len = here.end - here.start;
        let scaled = |bytes: u64| bytes * len / u64::from(segment.plain_len).max(1);
        let mut stored = scaled(segment.stored_len.into());
        let pieces = view_pieces(&manifest.root, segment)?;
        for piece in &pieces {
            drawing.bases.entry(piece.blob).or_default().footprint += piece.len;
        }
        match segment.coding {
            Coding::Raw => drawing.paint(here, len, Kind::Raw),
            Coding::Zstd | Coding::Planes => drawing.paint(here, len, Kind::Compressed),
            Coding::View | Coding::GappedView => drawing.paint(here, len, Kind::Opened),
            Coding::Delta => match drawing.decode_left.checked_sub(segment.plain_len.into()) {
                Some(left) => {
                    drawing.decode_left = left;
                    let _permit = self.budget.acquire(DECODING_BYTES).await?;
                    let (runs, composed) = self.blobs.delta_runs(manifest, segment, bases).await?;
                    let [added, changed] = drawing.runs(here, within, &pieces, &runs);
                    // Instructions are everybody's; literals and differences have their places.
                    for (ranges, bytes) in
                        [(added, composed.literal_bytes_stored), (changed, composed.sub_bytes_stored)]
                    {
                        let bytes = if ranges.is_empty() { 0 } else { scaled(bytes as u64).min(stored) };
                        drawing.charge(&ranges, bytes);
                        stored -= bytes;
                    }
                }
                None => {
                    let stored = self.blobs.stored_bytes(manifest, segment).await?;
                    let found = delta_codec::summarize(&stored, segment.plain_len as usize)
                        .map_err(|error| EngineError::Integrity(error.to_string()))?;
                    let new = scaled(found.literal_bytes as u64).min(len);
                    drawing.paint(here, new, Kind::Added);
                    drawing.paint(here, len - new, Kind::Copied);
                    drawing.estimated += len;
                }
            },
        }
        drawing.share(here, stored, |cell, part| cell.stored += part);
        Ok(())
    }

    /// A base: what it is, what it gives here, and which objects it belongs to and which need it.
    async fn base_json(
        &self,
        handle: &BucketHandle,
        key: &str,
        id: BlobId,
        given: Given,
        rows: &BTreeMap<BlobId, BlobRow>,
    ) -> Result<Value, EngineError> {
        let blob = BlobKey(id.0);
        let own: Vec<String> =
            self.catalog.referrers(blob, NAMED_MAX).await?.into_iter().map(|referrer| referrer.key).collect();
        let mut dependants = Vec::new();
        for delta in self.catalog.deltas_of(blob, NAMED_MAX + 1).await? {
            for referrer in self.catalog.referrers(delta.id, 1).await? {
                if referrer.key != key && !dependants.contains(&referrer.key) && dependants.len() < NAMED_MAX {
                    dependants.push(referrer.key);
                }
            }
        }
        let row = rows.get(&id);
        Ok(json!({
            "blob": id.to_string(),
            "bucket": handle.row.name,
            "keys": own,
            "plain_len": row.map(|row| row.plain_len),
            "stored_len": row.map(|row| row.stored_len),
            "fan_in": self.catalog.fan_in(blob).await?,
            "copied_bytes": given.copied,
            "footprint_bytes": given.footprint,
            "needed_by": dependants,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(drawing: &Drawing, kind: Kind) -> Vec<u64> {
        drawing.cells.iter().map(|cell| cell.kinds[kind as usize]).collect()
    }

    #[test]
    fn every_byte_of_a_range_lands_in_one_cell() {
        for (size, cells) in [(1, 1), (1000, 7), (1000, 1000), (1000, 5000), (0, 3)] {
            let mut drawing = Drawing::new(size, cells);
            drawing.paint(&(0..size), size, Kind::Raw);
            drawing.share(&(0..size), 333, |cell, part| cell.stored += part);
            assert_eq!(kinds(&drawing, Kind::Raw).iter().sum::<u64>(), size);
            assert_eq!(drawing.cells.iter().map(|cell| cell.stored).sum::<u64>(), if size == 0 { 0 } else { 333 });
            assert!(drawing.cells.len() as u64 <= CELLS_MAX.min(cells));
        }
    }

    #[test]
    fn what_no_run_gives_is_new_and_runs_are_cut_at_the_extent() {
        let run = |at, len, source, is_equal| delta_codec::CopiedRun { at, len, source, is_equal };
        let piece = |blob: u8, len| BasePiece::of(BlobId([blob; 16]), 0..len);
        let mut drawing = Drawing::new(100, 10);
        let runs = [run(0, 60, 0, true), run(70, 20, 60, false), run(95, 50, 0, true)];
        drawing.runs(&(0..90), &(10..100), &[piece(1, 50), piece(2, 50)], &runs);
        assert_eq!(kinds(&drawing, Kind::Copied), [10, 10, 10, 10, 10, 0, 0, 0, 5, 0]);
        assert_eq!(kinds(&drawing, Kind::Added), [0, 0, 0, 0, 0, 10, 0, 0, 5, 0]);
        assert_eq!(kinds(&drawing, Kind::Changed), [0, 0, 0, 0, 0, 0, 10, 10, 0, 0]);
        assert_eq!(drawing.bases[&BlobId([1; 16])].copied, 55);
        assert_eq!(drawing.bases[&BlobId([2; 16])].copied, 20);
    }
}
