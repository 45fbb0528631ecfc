//! Choosing what to differ from: the key's previous content, or the nearest name in its prefix.

use super::{
    Engine, EngineError,
    blobs::Manifest,
    bucket::BucketHandle,
    encode::Region,
    names,
    pins::Pin,
    plan::{DELTA_LEN_MIN, FAN_IN_MAX, StoredShare, has_drifted},
    window::BasePiece,
};
use catalog::{BlobForm, BlobKey, BlobRow, BlobState, Content, Extent};
use object_format::BlobId;
use std::{collections::HashMap, sync::Arc};

/// Keys looked at on either side of the new one.
const NEIGHBOURS: usize = 48;
/// Candidates opened before giving up.
const CANDIDATES: usize = 4;
/// Every extent of a base has its own stretch of the base's address space: the addresses only order pieces and tell which may be joined.
const EXTENT_ADDRESSES_LOG2: u32 = 40;

/// Bases looked at to see whether a series has drifted.
const DRIFT_BASES_MAX: usize = 16;

/// How the search for a base ended.
pub(super) enum BaseChoice {
    /// Here it is.
    Found(BaseObject),
    /// There is one, but its series has drifted from its own base: store whole, to be the next base.
    Drifted,
    /// There is none.
    None,
}

/// An object to differ from.
pub(super) struct BaseObject {
    /// Its key, for explanations.
    pub(super) key: String,
    extents: Vec<(u64, Extent)>,
    rows: HashMap<BlobKey, BlobRow>,
    size: u64,
    _pin: Pin,
}

impl Engine {
    /// The best base for `key` by name, if there is one. Errors are for the log: encoding may give up (I7).
    pub(super) async fn choose_base(&self, bucket: &BucketHandle, key: &str) -> Result<BaseChoice, EngineError> {
        let id = bucket.row.id;
        let (before, after) = self.catalog.neighbours(id, names::prefix_of(key), key, NEIGHBOURS).await?;
        let ranked = names::rank(key, before.iter().chain(&after), CANDIDATES - 1);
        let mut candidates = 0;
        for candidate in std::iter::once(key).chain(ranked) {
            let Some(content) = self.catalog.content(id, candidate).await? else { continue };
            candidates += 1;
            if content.version.size < DELTA_LEN_MIN {
                continue;
            }
            if let Some(base) = self.open_base(bucket, content)? {
                self.metrics.base_candidates.observe(f64::from(candidates));
                return Ok(if self.has_drifted(&base).await? { BaseChoice::Drifted } else { BaseChoice::Found(base) });
            }
        }
        self.metrics.base_candidates.observe(f64::from(candidates));
        Ok(BaseChoice::None)
    }

    /// Compares what the base's own deltas took with what their bases took.
    async fn has_drifted(&self, base: &BaseObject) -> Result<bool, EngineError> {
        let mut deltas = StoredShare::default();
        let mut bases: Vec<BlobKey> = Vec::new();
        for row in base.rows.values().filter(|row| row.form == BlobForm::Delta) {
            deltas.plain += row.plain_len;
            deltas.stored += row.stored_len;
            // A few tell how the series does; an object of ten thousand parts need not be summed up.
            if bases.len() < DRIFT_BASES_MAX {
                bases.extend(self.catalog.bases_of(row.id).await?);
            }
        }
        let mut wholes = StoredShare::default();
        for row in self.catalog.blobs(&bases).await? {
            wholes.plain += row.plain_len;
            wholes.stored += row.stored_len;
        }
        Ok(deltas.plain > 0 && has_drifted(deltas, wholes))
    }

    fn open_base(&self, bucket: &BucketHandle, content: Content) -> Result<Option<BaseObject>, EngineError> {
        let Some(pin) = self.pins.pin(content.blobs.iter().map(|row| BlobId(row.id.0))) else { return Ok(None) };
        let usable = |row: &BlobRow| {
            row.inline.is_none()
                && row.state == BlobState::Live
                && row.backend == bucket.settings.backend
                && row.key_epoch == bucket.key_epoch()
        };
        let rows: HashMap<BlobKey, BlobRow> =
            content.blobs.into_iter().filter(usable).map(|row| (row.id, row)).collect();
        let mut start = 0;
        let mut extents = Vec::with_capacity(content.extents.len());
        for extent in content.extents {
            if rows.contains_key(&extent.blob) {
                extents.push((start, extent));
            }
            start += extent.len;
        }
        if extents.is_empty() {
            return Ok(None);
        }
        Ok(Some(BaseObject { key: content.version.key, extents, rows, size: content.version.size, _pin: pin }))
    }

    /// The window for the region of the target that starts at `target`, with pins on the blobs it came from. `None` when the base has nothing there, or
    /// (`busy` set) when there is no memory.
    pub(super) async fn region(
        &self,
        bucket: &BucketHandle,
        base: &BaseObject,
        target: u64,
    ) -> Result<RegionOutcome, EngineError> {
        let (start, end) = self.place(target, base.size);
        let key = bucket.domain_key();
        let mut pieces = Vec::new();
        let mut rows: Vec<BlobRow> = Vec::new();
        let mut pins = Vec::new();
        for (index, (logical, extent)) in base.extents.iter().enumerate() {
            let (from, to) = (start.max(*logical), end.min(logical + extent.len));
            let Some(row) = base.rows.get(&extent.blob).filter(|_| from < to) else { continue };
            let at = (index as u64) << EXTENT_ADDRESSES_LOG2;
            match row.form {
                BlobForm::Whole => {
                    let offset = extent.offset + (from - logical);
                    pieces.push(BasePiece {
                        at: at + offset,
                        blob: BlobId(row.id.0),
                        offset,
                        len: to - from,
                        base_tag: [0; 16],
                    });
                    rows.push(row.clone());
                }
                // A delta is no base itself: the whole content it was made from stands in its place (I2).
                BlobForm::Delta => {
                    let manifest = self.blobs.manifest(row, key).await?;
                    let mut ids: Vec<BlobKey> = manifest.root.view.iter().map(|range| BlobKey(range.blob.0)).collect();
                    ids.dedup();
                    ids.retain(|id| !rows.iter().any(|row| row.id == *id));
                    let bases = self.catalog.blobs(&ids).await?;
                    pins.extend(self.pins.pin(bases.iter().map(|base| BlobId(base.id.0))));
                    let whole_len: u64 = bases.iter().map(|base| base.plain_len).sum();
                    if whole_len <= self.windows.whole_len_max() {
                        // All of it, not only what this delta used: the same window then serves every version of a series.
                        whole_blobs(&bases, &manifest, at, &mut pieces);
                    } else {
                        let within = (extent.offset + (from - logical), extent.offset + (to - logical));
                        view_part(&manifest, row.plain_len, within, at, &mut pieces);
                    }
                    rows.extend(bases);
                }
            }
        }
        self.keep_live_pieces(&mut pieces, &rows).await?;
        if pieces.is_empty() {
            return Ok(RegionOutcome::Nothing);
        }
        Ok(match self.windows.get(pieces, &rows, key).await? {
            Some(window) => RegionOutcome::Ready(Arc::new(Region::new(window, pins))),
            None => RegionOutcome::Busy,
        })
    }

    /// Drops pieces whose blobs may not get another delta, and whatever is more than a window holds.
    async fn keep_live_pieces(&self, pieces: &mut Vec<BasePiece>, rows: &[BlobRow]) -> Result<(), EngineError> {
        let mut allowed: HashMap<BlobId, bool> = HashMap::new();
        for row in rows {
            if let std::collections::hash_map::Entry::Vacant(entry) = allowed.entry(BlobId(row.id.0)) {
                let whole = row.form == BlobForm::Whole && row.state == BlobState::Live;
                entry.insert(whole && self.catalog.fan_in(row.id).await? < FAN_IN_MAX);
            }
        }
        let mut room = self.windows.whole_len_max();
        pieces.retain_mut(|piece| {
            piece.len = piece.len.min(room);
            room -= piece.len;
            piece.len > 0 && allowed.get(&piece.blob).copied().unwrap_or(false)
        });
        Ok(())
    }

    /// Which logical bytes of a base of `base_len` bytes serve the region of the target at `target`: all when they fit in a window, else the region with a
    /// quarter of a window on either side.
    fn place(&self, target: u64, base_len: u64) -> (u64, u64) {
        let len_max = self.windows.len_max();
        if base_len <= self.windows.whole_len_max() {
            return (0, base_len);
        }
        let region_len = self.windows.region_len();
        let start = (target / region_len * region_len).saturating_sub(len_max / 4).min(base_len - len_max);
        (start, start + len_max)
    }
}

/// The whole content of a delta's bases, in the order its view first names them.
fn whole_blobs(bases: &[BlobRow], delta: &Manifest, at: u64, pieces: &mut Vec<BasePiece>) {
    let mut start = at;
    for range in &delta.root.view {
        let Some(base) = bases.iter().find(|base| base.id.0 == range.blob.0) else { continue };
        if pieces.iter().all(|piece| piece.blob != range.blob) {
            pieces.push(BasePiece { at: start, blob: range.blob, offset: 0, len: base.plain_len, base_tag: [0; 16] });
            start += base.plain_len;
        }
    }
}

/// The part of a delta's view that lies where `within` lies in its `plain_len` bytes, in proportion.
fn view_part(delta: &Manifest, plain_len: u64, within: (u64, u64), at: u64, pieces: &mut Vec<BasePiece>) {
    let view_len: u64 = delta.root.view.iter().map(|range| range.len).sum();
    let scaled = |position: u64| {
        let scaled = u128::from(position) * u128::from(view_len) / u128::from(plain_len.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    };
    let (from, to) = (scaled(within.0), scaled(within.1));
    let mut address = 0;
    for range in &delta.root.view {
        let (first, last) = (from.max(address), to.min(address + range.len));
        if first < last {
            let skip = first - address;
            let offset = range.offset + skip;
            pieces.push(BasePiece { at: at + first, blob: range.blob, offset, len: last - first, base_tag: [0; 16] });
        }
        address += range.len;
    }
}

/// How the search for a region's window ended.
pub(super) enum RegionOutcome {
    /// Here it is.
    Ready(Arc<Region>),
    /// The base has nothing usable there.
    Nothing,
    /// No memory for it just now.
    Busy,
}
