//! Bases as objects, and the windows over them that regions are encoded against. Which object is
//! chosen: `choose.rs`.

use crate::{
    bases::{
        account,
        drift::{Drift, drift, is_apart},
        in_flight::InFlight,
        moved::LastFound,
        plan::{self, StoredShare, may_bear_another},
        region::Region,
        series::Ends,
        window::Windows,
    },
    blobs::{
        base_reader::view_pieces,
        decode::segments_covering,
        open::{Blobs, Manifest},
        piece::BasePiece,
        pins::{Pin, Pins},
    },
    bucket::BucketHandle,
    error::EngineError,
    metrics::Metrics,
    resources::pool::CodecPool,
};
use catalog::{BlobForm, BlobKey, BlobRow, BlobState, Catalog, Content, Extent};
use delta_codec::Effort;
use object_format::{BlobId, SEGMENT_LEN, ViewRange};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

/// Longer content is not opened as text: an index of all of it is in memory while it is encoded.
pub(crate) const VIEW_LEN_MAX: u64 = 1 << 30;
/// Most ranges of a base view. Part of the format (docs/format/blob-v1.md §1).
const VIEW_RANGES_MAX: usize = 256;

/// Bases looked at to see whether a series has drifted.
const DRIFT_BASES_MAX: usize = 16;

/// Blobs that must not become bases, because they are being encoded anew.
pub(crate) type Avoided = Arc<HashSet<BlobKey>>;

/// An object to differ from.
pub(crate) struct BaseObject {
    /// Its key, for explanations.
    pub(crate) key: String,
    extents: Vec<(u64, Extent)>,
    rows: BTreeMap<BlobKey, BlobRow>,
    /// Logical bytes.
    pub(crate) size: u64,
    /// What of it must not become a base.
    avoid: Avoided,
    _pin: Pin,
}

/// True when a blob may serve new content of a bucket.
fn is_usable(row: &BlobRow, bucket: &BucketHandle) -> bool {
    row.inline.is_none()
        && row.original.is_none()
        && row.state == BlobState::Live
        && row.backend == bucket.settings.backend
        && row.key_epoch == bucket.key_epoch()
        && row.compartment == bucket.compartment()
}

/// A base, and how far the content that a region looks for has moved in it.
#[derive(Clone)]
pub(crate) struct Placed {
    /// The base.
    pub(crate) object: Arc<BaseObject>,
    /// Its position minus the region's.
    pub(crate) shift: i64,
    /// The position of the region for which that was looked up: what was found behind it is newer.
    pub(crate) since: u64,
}

impl BaseObject {
    /// Where what stands at `position` of another object stands in this one, if that has moved as
    /// far as what was `found` in a whole blob; `None` where this object has no such blob.
    pub(crate) fn position_of(&self, found: LastFound, position: u64) -> Option<u64> {
        let place = found.place_of(position);
        let is_whole = |blob: &BlobKey| self.rows.get(blob).is_some_and(|row| row.form == BlobForm::Whole);
        let mut extents =
            self.extents.iter().filter(|(_, extent)| extent.blob.0 == found.blob.0 && is_whole(&extent.blob));
        let first = extents.clone().next()?;
        let holds = |(_, extent): &&(u64, Extent)| (extent.offset..extent.offset + extent.len).contains(&place);
        let (start, extent) = extents.find(holds).unwrap_or(first);
        Some((start + place).saturating_sub(extent.offset))
    }

    /// The blobs that hold `len` bytes from `position` on, each with where it begins, `limit` at
    /// most; the last ones when the object ends before.
    pub(crate) fn extents_near(&self, position: u64, len: u64, limit: usize) -> impl Iterator<Item = (u64, &BlobRow)> {
        let first = self.extents.partition_point(|(start, extent)| start + extent.len <= position);
        let first = first.min(self.extents.len().saturating_sub(1));
        self.extents[first..]
            .iter()
            .take_while(move |(start, _)| *start < position.saturating_add(len) || *start == self.extents[first].0)
            .take(limit)
            .filter_map(|(start, extent)| {
                // A blob begins where its first byte would stand, be it before the object's own
                // beginning.
                Some((start.saturating_sub(extent.offset), self.rows.get(&extent.blob)?))
            })
    }

    /// Where the part with this number (counted from one) begins, in an object of several. A hint:
    /// extents that were merged or copied are not the parts that they were once.
    pub(crate) fn start_of_part(&self, number: u32) -> Option<u64> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.extents.get(index).filter(|_| self.extents.len() > 1).map(|(start, _)| *start)
    }

    /// What its deltas take, and what they hold that no base has.
    fn deltas(&self) -> (StoredShare, StoredShare) {
        let (mut all, mut own) = (StoredShare::default(), StoredShare::default());
        for row in self.rows.values().filter(|row| row.form == BlobForm::Delta) {
            all.plain += row.plain_len;
            all.stored += row.stored_len;
            own.plain += row.plain_len;
            own.stored += row.forms.raw_plain + row.forms.zstd_stored;
        }
        (all, own)
    }

    /// Where the first piece of a blob stands.
    pub(crate) fn start_of(&self, blob: BlobKey) -> Option<u64> {
        self.extents.iter().find(|(_, extent)| extent.blob == blob).map(|(start, _)| *start)
    }
}

/// Where bases come from: the rows and manifests of what is stored, windows over it, and pins that
/// hold it.
pub(crate) struct Bases {
    pub(super) catalog: Arc<dyn Catalog>,
    pub(super) blobs: Arc<Blobs>,
    pub(super) pool: Arc<CodecPool>,
    pub(super) metrics: Arc<Metrics>,
    windows: Arc<Windows>,
    pins: Arc<Pins>,
    in_flight: Arc<InFlight>,
    ends: Ends,
}

impl Bases {
    pub(crate) fn new(
        catalog: Arc<dyn Catalog>,
        blobs: Arc<Blobs>,
        windows: Arc<Windows>,
        pins: Arc<Pins>,
        pool: Arc<CodecPool>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { catalog, blobs, pool, metrics, windows, pins, in_flight: Arc::default(), ends: Ends::default() }
    }

    /// The windows over bases.
    pub(crate) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Compares what the base's own deltas took with what their bases took, and with what all
    /// deltas of these took; `kin` are other deltas of the same bases. Gives these bases, too.
    pub(crate) async fn drift_of(
        &self,
        bucket: &BucketHandle,
        base: &BaseObject,
        kin: &[Arc<BaseObject>],
    ) -> Result<(Drift, Vec<BlobKey>), EngineError> {
        let (deltas, own) = base.deltas();
        let mut bases: Vec<BlobKey> = Vec::new();
        if deltas.plain == 0 {
            return Ok((Drift::None, bases));
        }
        for row in base.rows.values().filter(|row| row.form == BlobForm::Delta) {
            // A few tell how the series does; an object of ten thousand parts need not be summed
            // up.
            if bases.len() < DRIFT_BASES_MAX {
                bases.extend(self.catalog.bases_of(row.id).await?);
            }
        }
        let (mut wholes, mut series) = (StoredShare::default(), Vec::new());
        let rows = self.catalog.blobs(&bases).await?;
        for row in &rows {
            wholes.plain += row.plain_len;
            wholes.stored += row.stored_len;
            series.push(self.catalog.deltas_sum(row.id).await?);
        }
        let kin = kin.iter().map(|object| object.deltas().1).filter(|own| own.plain > 0);
        let own: Vec<StoredShare> = std::iter::once(own).chain(kin).collect();
        if is_apart(&own, wholes, &series, false) {
            // A base that cannot be read now is taken for one: another would be a gain, no more.
            let is_second = self.end_a_series(bucket, &rows).await.unwrap_or(true);
            if is_apart(&own, wholes, &series, is_second) {
                return Ok((Drift::Apart, bases));
            }
        }
        Ok((drift(deltas, wholes, &series), bases))
    }

    /// True when one of these became a base because a series had drifted from the base before.
    async fn end_a_series(&self, bucket: &BucketHandle, bases: &[BlobRow]) -> Result<bool, EngineError> {
        for row in bases {
            let manifest = self.blobs.manifest(row, bucket.key_of(row)?.as_deref()).await?;
            if account::ends_a_series(&manifest.root.facts.facts) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Uploads under way.
    pub(crate) fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// Series that have a new base.
    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// An object as a base, but for the blobs `avoid`; `None` when nothing of it may be one.
    pub(crate) fn open_base(
        &self,
        bucket: &BucketHandle,
        content: Content,
        avoid: &Avoided,
    ) -> Result<Option<BaseObject>, EngineError> {
        let Some(pin) = self.pins.pin(content.blobs.iter().map(|row| BlobId(row.id.0))) else { return Ok(None) };
        let usable = |row: &BlobRow| is_usable(row, bucket) && !avoid.contains(&row.id);
        let rows: BTreeMap<BlobKey, BlobRow> =
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
        let (key, size) = (content.version.key, content.version.size);
        Ok(Some(BaseObject { key, extents, rows, size, avoid: avoid.clone(), _pin: pin }))
    }

    /// The whole blobs behind an object, each once and whole, in the order of the object as far as
    /// that can be told, as ranges of a view; `None` when one of them may not get another delta, or
    /// they are too many or too long.
    pub(crate) async fn whole_ranges(
        &self,
        bucket: &BucketHandle,
        base: &BaseObject,
        avoid: &Avoided,
    ) -> Result<Option<(Vec<ViewRange>, Vec<BlobRow>)>, EngineError> {
        let mut pieces: Vec<(BlobKey, Range<u64>)> = Vec::new();
        let mut rows: BTreeMap<BlobKey, BlobRow> = BTreeMap::new();
        for (_, extent) in &base.extents {
            let Some(row) = base.rows.get(&extent.blob) else { return Ok(None) };
            if row.form == BlobForm::Whole {
                pieces.push((row.id, extent.offset..extent.offset + extent.len));
                rows.insert(row.id, row.clone());
                continue;
            }
            let manifest = self.blobs.manifest(row, bucket.key_of(row)?.as_deref()).await?;
            let ids: Vec<BlobKey> = manifest.root.view.iter().map(|range| BlobKey(range.blob.0)).collect();
            for row in self.catalog.blobs(&self.catalog.bases_of(row.id).await?).await? {
                rows.insert(row.id, row);
            }
            for id in ids {
                let Some(row) = rows.get(&id) else { return Ok(None) };
                let piece = (id, 0..row.plain_len);
                if !pieces.contains(&piece) {
                    pieces.push(piece);
                }
            }
        }
        let len: u64 = pieces.iter().map(|(_, range)| range.end - range.start).sum();
        if pieces.is_empty() || pieces.len() > VIEW_RANGES_MAX || len > VIEW_LEN_MAX {
            return Ok(None);
        }
        let mut ranges = Vec::with_capacity(pieces.len());
        for (id, range) in pieces {
            let row = &rows[&id];
            let is_good = row.form == BlobForm::Whole
                && is_usable(row, bucket)
                && !avoid.contains(&id)
                && !self.catalog.is_quarantined(id).await?
                && may_bear_another(self.catalog.deltas_sum(id).await?);
            if !is_good {
                return Ok(None);
            }
            let base_tag = self.blobs.manifest(row, bucket.key_of(row)?.as_deref()).await?.root.base_tag;
            let (offset, len) = (range.start, range.end - range.start);
            ranges.push(ViewRange { blob: BlobId(id.0), offset, len, base_tag });
        }
        let named: HashSet<BlobKey> = ranges.iter().map(|range| BlobKey(range.blob.0)).collect();
        rows.retain(|id, _| named.contains(id));
        Ok(Some((ranges, rows.into_values().collect())))
    }

    /// One whole blob as a base; `None` when it is being purged.
    pub(crate) fn open_blob(&self, key: String, row: BlobRow) -> Option<BaseObject> {
        let pin = self.pins.pin([BlobId(row.id.0)])?;
        let (size, extent) = (row.plain_len, Extent { blob: row.id, offset: 0, len: row.plain_len });
        Some(BaseObject {
            key,
            extents: vec![(0, extent)],
            rows: BTreeMap::from([(row.id, row)]),
            size,
            avoid: Avoided::default(),
            _pin: pin,
        })
    }

    /// Whole blobs of a bucket's domain as a base, in this order; `None` when there are none that
    /// may be one.
    pub(crate) fn base_of(&self, bucket: &BucketHandle, key: &str, rows: Vec<BlobRow>) -> Option<BaseObject> {
        let pin = self.pins.pin(rows.iter().map(|row| BlobId(row.id.0)))?;
        let (mut extents, mut size) = (Vec::with_capacity(rows.len()), 0);
        for row in rows.iter().filter(|row| row.form == BlobForm::Whole && is_usable(row, bucket)) {
            extents.push((size, Extent { blob: row.id, offset: 0, len: row.plain_len }));
            size += row.plain_len;
        }
        let rows = rows.into_iter().map(|row| (row.id, row)).collect();
        let avoid = Avoided::default();
        (size > 0).then(|| BaseObject { key: key.to_owned(), extents, rows, size, avoid, _pin: pin })
    }

    /// The window for the region of the target that starts at `target`, out of at most `reach`
    /// bytes of each base, for encoding at `effort`, with pins on the blobs it came from. `found`
    /// is where content before it was. If the target `is_part` of an upload, others come behind it.
    pub(crate) async fn region(
        &self,
        bucket: &BucketHandle,
        bases: &[Placed],
        (target, found): (u64, Option<LastFound>),
        reach: u64,
        effort: Effort,
        is_part: bool,
    ) -> Result<RegionOutcome, EngineError> {
        tracing::trace!(target: "path", "region()");
        let mut pieces = Pieces::default();
        for base in bases {
            self.add_pieces(bucket, base, (target, found), reach, &mut pieces).await?;
        }
        let Pieces { mut pieces, mut rows, pins } = pieces;
        let avoided = |row: &BlobRow| bases.iter().any(|base| base.object.avoid.contains(&row.id));
        rows.retain(|row| !avoided(row) && is_usable(row, bucket));
        self.keep_live_pieces(&mut pieces, &rows).await?;
        if pieces.is_empty() {
            return Ok(RegionOutcome::Nothing);
        }
        let is_whole = bases.iter().all(|base| self.fits_whole(base.object.size, reach));
        let serves_parts = is_part && is_whole;
        let Some(window) = self.windows.get(pieces, &rows, bucket.domain_key(), effort, serves_parts).await? else {
            return Ok(RegionOutcome::Busy);
        };
        let whole = rows.iter().filter(|row| row.form == BlobForm::Whole).map(|row| row.forms).sum();
        let region = Region::new(window, pins, plan::alone_permille_of(&whole), !is_whole);
        Ok(RegionOutcome::Ready(Arc::new(Region { is_followed: found.is_some(), ..region })))
    }

    async fn add_pieces(
        &self,
        bucket: &BucketHandle,
        base: &Placed,
        (target, moved): (u64, Option<LastFound>),
        reach: u64,
        found: &mut Pieces,
    ) -> Result<(), EngineError> {
        let base_object = &base.object;
        let newer = moved.filter(|moved| moved.position >= base.since);
        let position = newer.and_then(|moved| base_object.position_of(moved, target));
        let position = position.unwrap_or_else(|| target.saturating_add_signed(base.shift));
        let (start, end) = self.place(target, position, base_object.size, reach);
        for (logical, extent) in &base_object.extents {
            let (from, to) = (start.max(*logical), end.min(logical + extent.len));
            let Some(row) = base_object.rows.get(&extent.blob).filter(|_| from < to) else { continue };
            let within = extent.offset + (from - logical)..extent.offset + (to - logical);
            match row.form {
                BlobForm::Whole => {
                    found.pieces.push(BasePiece::of(BlobId(row.id.0), within));
                    found.rows.push(row.clone());
                }
                // A delta is no base itself: the whole content it was made from stands in its place
                // (I2).
                BlobForm::Delta => {
                    let manifest = self.blobs.manifest(row, bucket.key_of(row)?.as_deref()).await?;
                    let mut ids: Vec<BlobKey> = manifest.root.view.iter().map(|range| BlobKey(range.blob.0)).collect();
                    ids.dedup();
                    ids.retain(|id| !found.rows.iter().any(|row| row.id == *id));
                    let bases = self.catalog.blobs(&ids).await?;
                    // One that is being purged ends the use of them all: none may be used without
                    // being held.
                    let Some(pin) = self.pins.pin(bases.iter().map(|base| BlobId(base.id.0))) else { continue };
                    found.pins.push(pin);
                    let whole_len: u64 = bases.iter().map(|base| base.plain_len).sum();
                    let known = moved.and_then(|moved| {
                        let base = bases.iter().find(|base| base.id.0 == moved.blob.0)?;
                        // Of many parts, the next one would be wanted.
                        if self.fits_whole(base.plain_len, u64::MAX) {
                            return None;
                        }
                        let (start, end) = self.place(target, moved.place_of(target), base.plain_len, reach);
                        (start < end).then(|| BasePiece::of(moved.blob, start..end))
                    });
                    if let Some(piece) = known.filter(|_| !self.fits_whole(whole_len, reach)) {
                        found.pieces.push(piece);
                    } else if self.fits_whole(whole_len, reach) {
                        // All of it, not only what this delta used: the same window then serves
                        // every version of a series.
                        found
                            .pieces
                            .extend(bases.iter().map(|base| BasePiece::of(BlobId(base.id.0), 0..base.plain_len)));
                    } else {
                        self.add_what_made(&manifest, within, &bases, &mut found.pieces).await?;
                    }
                    found.rows.extend(bases);
                }
            }
        }
        Ok(())
    }

    /// The base segments that a stretch of a delta was made from.
    async fn add_what_made(
        &self,
        delta: &Manifest,
        within: Range<u64>,
        bases: &[BlobRow],
        pieces: &mut Vec<BasePiece>,
    ) -> Result<(), EngineError> {
        const STEP: u64 = SEGMENT_LEN as u64;
        let mut added = HashSet::new();
        for (index, _) in segments_covering(within) {
            let segment = self.blobs.segment(delta, index).await?;
            for piece in view_pieces(&delta.root, &segment)? {
                let Some(base) = bases.iter().find(|base| base.id.0 == piece.blob.0) else { continue };
                for number in piece.offset / STEP..(piece.offset + piece.len).div_ceil(STEP) {
                    if added.insert((piece.blob, number)) {
                        let range = number * STEP..((number + 1) * STEP).min(base.plain_len);
                        pieces.push(BasePiece::of(piece.blob, range));
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops pieces whose blobs may not get another delta, and whatever is more than a window
    /// holds.
    async fn keep_live_pieces(&self, pieces: &mut Vec<BasePiece>, rows: &[BlobRow]) -> Result<(), EngineError> {
        let mut allowed: HashMap<BlobId, bool> = HashMap::new();
        for row in rows {
            if let std::collections::hash_map::Entry::Vacant(entry) = allowed.entry(BlobId(row.id.0)) {
                let whole = row.form == BlobForm::Whole && row.state == BlobState::Live;
                let usable = whole && !self.catalog.is_quarantined(row.id).await?;
                let bears = usable && may_bear_another(self.catalog.deltas_sum(row.id).await?);
                entry.insert(bears);
            }
        }
        let mut room = self.windows.whole_len_max();
        let mut seen = HashSet::new();
        pieces.retain_mut(|piece| {
            if !allowed.get(&piece.blob).copied().unwrap_or(false)
                || !seen.insert((piece.blob, piece.offset, piece.len))
            {
                return false;
            }
            piece.len = piece.len.min(room);
            room -= piece.len;
            piece.len > 0
        });
        Ok(())
    }

    /// Whether one window has all of a base of `base_len` bytes.
    fn fits_whole(&self, base_len: u64, reach: u64) -> bool {
        base_len <= reach.min(self.windows.whole_len_max())
    }

    /// Which logical bytes of a base of `base_len` bytes serve the region of the target at
    /// `target`, whose content is presumably at `position`: all when they are within `reach`, else
    /// the region with a quarter of a window on either side.
    fn place(&self, target: u64, position: u64, base_len: u64, reach: u64) -> (u64, u64) {
        if self.fits_whole(base_len, reach) {
            return (0, base_len);
        }
        let len = self.windows.len_max().min(reach).min(base_len);
        let region_len = self.windows.region_len().min(len / 2).max(1);
        // Where nothing has moved, targets share windows. What has moved lies anywhere.
        let step = if position.abs_diff(target).is_multiple_of(region_len) { region_len } else { (len / 16).max(1) };
        let start = (position / step * step).saturating_sub(len / 4).min(base_len - len);
        (start, start + len)
    }

    /// How far from where it is expected content may lie and still be in its window.
    pub(super) fn margin(&self) -> u64 {
        self.windows.len_max() / 4
    }
}

/// The pieces of a window while they are gathered.
#[derive(Default)]
struct Pieces {
    pieces: Vec<BasePiece>,
    rows: Vec<BlobRow>,
    pins: Vec<Pin>,
}

/// How the search for a region's window ended.
pub(crate) enum RegionOutcome {
    /// Here it is.
    Ready(Arc<Region>),
    /// The base has nothing usable there.
    Nothing,
    /// No memory for it just now.
    Busy,
}
