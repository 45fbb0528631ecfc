//! Bases of deflate views: whole blobs laid end to end, the streams in them, and their text, which
//! targets are compared with and encoded against.

use crate::{
    bases::{
        account::{CandidateAccount, Source},
        base::{Avoided, BaseObject, Bases, VIEW_LEN_MAX},
    },
    blobs::{
        base_reader::BaseReader,
        open::Blobs,
        pins::{Pin, Pins},
    },
    bucket::BucketHandle,
    error::EngineError,
    read::object::{OpenObject, ReadPath},
    resources::{
        budget::{MemoryBudget, Permit},
        pace::Pace,
        pool::CodecPool,
    },
    write::scans::{RangesName, ScanFor, Scanned, Scanning, ScanningBeside, Scans},
};
use bytes::Bytes;
use catalog::{BlobForm, BlobKey, BlobRow, Extent};
use deflate_view::{BasePart, Malformed, Openings, TextMap, WindowText};
use delta_codec::{BaseIndex, Effort, WindowUnit};
use futures::TryStreamExt;
use object_format::{BlobId, ViewRange};
use std::{cmp::Reverse, sync::Arc};

/// A base must have at least this share of a text's samples, as far as the sketches tell.
const SHARE_MIN: f64 = 0.1;
/// Objects that are scanned to see whether they are the base.
const SCANNED_MAX: usize = 4;
/// Text that is fetched and opened at a time.
const LOAD_LEN: u64 = 4 << 20;
/// Matches that are kept with a window's text take one byte for so many of it at most; most texts
/// have fewer.
const MATCHES_SHARE: usize = 2;

/// A base as a view has it: its ranges are its address space.
pub(crate) struct BaseView {
    /// The object, for explanations.
    pub(crate) object: Arc<BaseObject>,
    /// Ranges of whole blobs.
    pub(crate) ranges: Vec<ViewRange>,
    /// Their blobs.
    pub(crate) rows: Vec<BlobRow>,
    /// Its streams, at view addresses.
    pub(crate) scanned: Arc<Scanned>,
    /// Where its text is opened from.
    pub(crate) openings: Openings,
    /// What it was chosen from, the best first; none when nobody chose.
    pub(crate) candidates: Vec<CandidateAccount>,
    _pin: Pin,
}

impl BaseView {
    /// The plain text before an opening.
    pub(crate) fn window(&self, opening: usize) -> &[u8] {
        self.openings.window(opening, &self.scanned.index)
    }
}

/// Where bases of views come from, scanned.
pub(crate) struct BaseViews {
    /// Content of bases and targets.
    pub(crate) read: Arc<ReadPath>,
    bases: Arc<Bases>,
    blobs: Arc<Blobs>,
    pins: Arc<Pins>,
    pool: Arc<CodecPool>,
    hash_pool: Arc<CodecPool>,
    pub(crate) budget: Arc<MemoryBudget>,
    scans: Scans,
}

impl BaseViews {
    pub(crate) fn new(
        read: Arc<ReadPath>,
        bases: Arc<Bases>,
        blobs: Arc<Blobs>,
        pins: Arc<Pins>,
        pools: (Arc<CodecPool>, Arc<CodecPool>),
        budget: Arc<MemoryBudget>,
    ) -> Self {
        let (pool, hash_pool) = pools;
        let scans = Scans::new(Self::scan_bytes_max(budget.bytes_max()));
        Self { read, bases, blobs, pins, pool, hash_pool, budget, scans }
    }

    /// Forgets the scans of bases.
    pub(crate) fn drop_caches(&self) {
        self.scans.clear();
    }

    /// Keeps the scan of content that stays as it is: whatever differs from it next need not scan
    /// it again.
    pub(crate) fn keep_scan(&self, source: &OpenObject, scanned: Scanned) {
        if source.content.blobs.iter().all(|row| row.form == BlobForm::Whole) {
            self.scans.keep_target(RangesName::of_object(&source.content.extents), scanned);
        }
    }

    /// Memory that scans may take, those that are kept among them.
    pub(crate) fn scan_bytes_max(budget_bytes: u64) -> u64 {
        budget_bytes / 32
    }

    /// The streams of some content.
    pub(crate) async fn scan(
        &self,
        bucket: &BucketHandle,
        source: &OpenObject,
        wanted: ScanFor,
        pace: &Pace,
    ) -> Result<Scanned, EngineError> {
        let mut scanning = self.scanning(bucket, wanted);
        let mut body = self.read.read(source, 0..source.info.version.size);
        while let Some(bytes) = body.try_next().await? {
            pace.take(bytes.len() as u64).await;
            let scanned = self.hash_pool.run(move |_| {
                scanning.feed(&bytes);
                scanning
            });
            scanning = scanned.await?;
        }
        self.end(scanning).await
    }

    fn scanning(&self, bucket: &BucketHandle, wanted: ScanFor) -> Scanning {
        Scanning::new(bucket, wanted, Self::scan_bytes_max(self.budget.bytes_max()))
    }

    /// A scan of content that is read for something else; one that does nothing for no bucket.
    pub(crate) fn scanning_beside(&self, bucket: Option<&BucketHandle>) -> ScanningBeside {
        let scanning = bucket.map(|bucket| self.scanning(bucket, ScanFor::Report));
        Arc::new(tokio::sync::Mutex::new(scanning))
    }

    /// Takes the next bytes in.
    pub(crate) async fn feed_beside(&self, beside: &ScanningBeside, bytes: &Bytes) -> Result<(), EngineError> {
        let mut beside = beside.lock().await;
        if let Some(mut scanning) = beside.take() {
            let bytes = bytes.clone();
            let fed = self.hash_pool.run(move |_| {
                scanning.feed(&bytes);
                scanning
            });
            *beside = Some(fed.await?);
        }
        Ok(())
    }

    /// What a scan found.
    pub(crate) async fn end(&self, scanning: Scanning) -> Result<Scanned, EngineError> {
        self.hash_pool.run(move |_| scanning.finish()).await
    }

    /// An object as the base of a view, scanned; `None` when it may not be one.
    pub(crate) async fn base_view(
        &self,
        bucket: &BucketHandle,
        object: Arc<BaseObject>,
        avoid: &Avoided,
        pace: &Pace,
    ) -> Result<Option<BaseView>, EngineError> {
        let Some((ranges, rows)) = self.bases.whole_ranges(bucket, &object, avoid).await? else { return Ok(None) };
        let Some(pin) = self.pins.pin(rows.iter().map(|row| BlobId(row.id.0))) else { return Ok(None) };
        let name = RangesName::of_view(&ranges);
        let scanned = match self.scans.get(&name) {
            Some(scanned) => scanned,
            None => {
                let extent =
                    |range: &ViewRange| Extent { blob: BlobKey(range.blob.0), offset: range.offset, len: range.len };
                let source = self.read.open_extents(bucket, ranges.iter().map(extent).collect(), rows.clone())?;
                let scanned = Arc::new(self.scan(bucket, &source, ScanFor::Base, pace).await?);
                self.scans.keep(name, &scanned);
                scanned
            }
        };
        let openings = Openings::of(&scanned.index);
        Ok(Some(BaseView { object, ranges, rows, scanned, openings, candidates: Vec::new(), _pin: pin }))
    }

    /// The base for a text: of what the key's name leads to and what shares the text's hooks, the
    /// object whose text has most of it. For plain content, it is among those that have it in their
    /// streams.
    pub(crate) async fn choose_view(
        &self,
        bucket: &BucketHandle,
        key: &str,
        target: &Scanned,
        avoid: &Avoided,
        pace: &Pace,
    ) -> Result<Option<BaseView>, EngineError> {
        let mut hooked = self.bases.hooked_objects(bucket, target.asked(), avoid).await?;
        hooked.retain(|hooked| hooked.in_text || !target.is_plain());
        hooked.truncate(SCANNED_MAX / 2);
        let mut objects: Vec<_> = hooked.into_iter().map(|hooked| (hooked.object, Source::Hooks)).collect();
        if !target.is_plain() {
            let named = self.bases.named_candidates(bucket, key, avoid).await?;
            objects.extend(named.iter().map(|candidate| (candidate.object().clone(), candidate.source())));
        }
        let mut best: Option<(f64, BaseView)> = None;
        let mut candidates: Vec<CandidateAccount> = Vec::new();
        let mut seen: Vec<Vec<ViewRange>> = Vec::new();
        for (object, source) in objects {
            if object.size > VIEW_LEN_MAX || seen.len() == SCANNED_MAX {
                continue;
            }
            let Some(base) = self.base_view(bucket, object, avoid, pace).await? else { continue };
            if seen.contains(&base.ranges) || target.is_plain() && base.scanned.is_plain() {
                continue;
            }
            seen.push(base.ranges.clone());
            let has_same = !target.index.identities().is_disjoint(&base.scanned.index.identities());
            // Where the text is too short to tell, a stream that both have speaks for the base, and
            // so does its name.
            let share = target.text.share_in(&base.scanned.text).unwrap_or(if has_same { 0.5 } else { SHARE_MIN });
            let chosen = share >= SHARE_MIN && best.as_ref().is_none_or(|(most, _)| share > *most);
            candidates.iter_mut().for_each(|other| other.chosen &= !chosen);
            candidates.push(CandidateAccount::of(base.object.key.clone(), source, share, chosen));
            if chosen {
                best = Some((share, base));
            }
        }
        candidates.sort_by_key(|candidate| (!candidate.chosen, Reverse(candidate.overlap_permille)));
        Ok(best.map(|(_, base)| BaseView { candidates, ..base }))
    }
}

/// Text of a base, ready to be encoded against.
pub(crate) struct TextWindow {
    /// The text.
    pub(crate) text: WindowText,
    /// Its index.
    pub(crate) index: BaseIndex,
    /// For the codec.
    pub(crate) layout: Vec<WindowUnit>,
    permit: Permit,
}

impl BaseView {
    /// The window that begins at `start`, of `len` bytes; what the `last` one of the same length
    /// has of them is not opened again. `None` when there is no memory for it just now.
    pub(crate) async fn window_from(
        self: &Arc<Self>,
        (views, bucket): (&BaseViews, &BucketHandle),
        map: &TextMap,
        (start, len): (u64, u64),
        effort: Effort,
        last: Option<TextWindow>,
    ) -> Result<Option<TextWindow>, EngineError> {
        let len = usize::try_from(len).map_err(|_| EngineError::TooLarge)?;
        let matches_bytes = len / MATCHES_SHARE;
        let (mut text, permit) = match last {
            Some(TextWindow { text, index, permit, .. }) => {
                // Its place is the next one's.
                drop(index);
                (text, permit)
            }
            None => {
                let memory = len + matches_bytes + BaseIndex::memory_bytes_for(len, effort);
                let Some(permit) = views.budget.try_acquire(memory as u64) else { return Ok(None) };
                (WindowText::new(matches_bytes), permit)
            }
        };
        let range_end = start + len as u64;
        text.move_to((start, len as u64), map, (&self.openings, &self.scanned.index));
        while text.end() < range_end {
            let mut parts = Vec::new();
            map.parts(text.end()..range_end.min(text.end() + LOAD_LEN), &self.scanned.index, &mut parts);
            text = self.load(&views.blobs, bucket, parts, text).await?;
        }
        let indexing = views.pool.run(move |_| {
            let index = BaseIndex::build(text.bytes(), effort);
            (text, index)
        });
        let (text, index) = indexing.await?;
        let plain_len = u32::try_from(len).unwrap_or(u32::MAX);
        let unit = WindowUnit { plain_len, stored_len: plain_len, divisible: true };
        let layout = if len == 0 { Vec::new() } else { vec![unit] };
        Ok(Some(TextWindow { text, index, layout, permit }))
    }

    /// Appends the bytes of some parts to a window's text.
    async fn load(
        self: &Arc<Self>,
        blobs: &Arc<Blobs>,
        bucket: &BucketHandle,
        parts: Vec<BasePart>,
        mut text: WindowText,
    ) -> Result<WindowText, EngineError> {
        let needed = self.openings.bytes_of(&parts).map_err(|error| EngineError::Other(error.to_string()))?;
        let bases = BaseReader::new(&self.rows, bucket.domain_key());
        let bytes = blobs.view_bytes(&self.ranges, needed, &bases).await?;
        let (base, texts) = (self.clone(), blobs.texts().clone());
        let opening = blobs.pool.run(move |_| {
            let opened = |number: usize| {
                let opening = base.openings.get(number);
                texts.open(opening, base.window(number), bytes.get(opening.bytes())?)
            };
            text.load(&parts, &base.openings, &bytes, opened).map(|()| text)
        });
        opening.await?.map_err(|error: Malformed| EngineError::Integrity(error.to_string()))
    }
}
