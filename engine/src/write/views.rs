//! Bases of deflate views: whole blobs laid end to end, the streams in them, and their text, which
//! targets are compared with and encoded against.

use crate::{
    bases::{
        account::{CandidateAccount, Source},
        base::{Avoided, BaseObject, Bases, VIEW_LEN_MAX},
        text::{TextSketch, TextSketcher},
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
};
use bytes::Bytes;
use catalog::{BlobKey, BlobRow, Extent};
use deflate_view::{BasePart, Index, Malformed, Openings, ScanLimits, Scanner, TextMap, WindowText};
use delta_codec::{BaseIndex, Effort, WindowUnit};
use futures::TryStreamExt;
use object_format::{BlobId, ViewRange};
use std::{
    cmp::Reverse,
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// Streams of an object that are opened; those behind them are raw.
const STREAMS_MAX: usize = 1 << 16;
/// Memory of an access point.
const POINT_BYTES: u64 = (32 << 10) + 64;
/// Bases whose scan is kept: a release has the same one as the release before.
const SCANS_KEPT: usize = 2;
/// A base must have at least this share of a text's samples, as far as the sketches tell.
const SHARE_MIN: f64 = 0.1;
/// Objects that are scanned to see whether they are the base.
const SCANNED_MAX: usize = 4;
/// Text that is fetched and opened at a time.
const LOAD_LEN: u64 = 4 << 20;
/// Matches that are kept with a window's text take one byte for so many of it at most; most texts
/// have fewer.
const MATCHES_SHARE: usize = 2;

/// The streams of an object, and what it resembles.
pub(crate) struct Scanned {
    /// The streams.
    pub(crate) index: Index,
    /// Their text.
    pub(crate) text: TextSketch,
    /// Its own bytes: the same where it has no streams.
    bytes: TextSketch,
}

impl Scanned {
    /// True for content that has no streams.
    pub(crate) fn is_plain(&self) -> bool {
        self.index.streams.is_empty()
    }

    /// What the catalog's index is asked for.
    fn asked(&self) -> Vec<u32> {
        let mut hooks = self.text.asked();
        hooks.extend(self.bytes.asked());
        hooks.sort_unstable();
        hooks.dedup();
        hooks
    }
}

/// Content on its way through a scanner.
pub(crate) struct Scanning {
    scanner: Scanner,
    text: Arc<Mutex<TextSketcher>>,
    bytes: TextSketcher,
    is_base: bool,
}

impl Scanning {
    fn new(bucket: &BucketHandle, points_max: usize, is_base: bool) -> Self {
        let limits = ScanLimits { streams_max: STREAMS_MAX, points_max, ..ScanLimits::default() };
        let empty = || TextSketcher::new(bucket.similarity_secret());
        let text = Arc::new(Mutex::new(empty()));
        let sink = text.clone();
        let sink = move |plain: &[u8]| sink.lock().unwrap_or_else(PoisonError::into_inner).update(plain);
        Self { scanner: Scanner::with_sink(limits, Box::new(sink)), text, bytes: empty(), is_base }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.scanner.feed(bytes);
        self.bytes.update(bytes);
    }

    fn finish(self) -> Scanned {
        let mut index = self.scanner.finish();
        if self.is_base {
            // Its text is opened piece by piece, within the memory that one piece may take.
            index.retain_openable();
        }
        let bytes = self.bytes.finish();
        // Without streams, an unpacked tree for example, its own bytes are its text.
        let text = match Arc::into_inner(self.text).filter(|_| !index.streams.is_empty()) {
            Some(text) => text.into_inner().unwrap_or_else(PoisonError::into_inner).finish(),
            None => bytes.clone(),
        };
        Scanned { index, text, bytes }
    }
}

/// A scan beside something else.
pub(crate) type ScanningBeside = Arc<tokio::sync::Mutex<Option<Scanning>>>;

/// Scans of bases, by what these consist of: immutable content, never stale.
#[derive(Default)]
pub(crate) struct Scans(Mutex<VecDeque<(RangesName, Arc<Scanned>)>>);

/// Blob, offset and length of each range of a base.
type RangesName = Vec<(BlobId, u64, u64)>;

impl Scans {
    fn get(&self, name: &[(BlobId, u64, u64)]) -> Option<Arc<Scanned>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(other, _)| other == name).map(|(_, scanned)| scanned.clone())
    }

    fn keep(&self, name: RangesName, scanned: &Arc<Scanned>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((name, scanned.clone()));
        kept.truncate(SCANS_KEPT);
    }

    /// Forgets them all.
    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

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
        Self { read, bases, blobs, pins, pool, hash_pool, budget, scans: Scans::default() }
    }

    /// Forgets the scans of bases.
    pub(crate) fn drop_caches(&self) {
        self.scans.clear();
    }

    /// Memory that the scans of bases may take.
    pub(crate) fn scan_bytes_max(budget_bytes: u64) -> u64 {
        budget_bytes / 32
    }

    /// The streams of some content; with access points only where it is to be a base.
    pub(crate) async fn scan(
        &self,
        bucket: &BucketHandle,
        source: &OpenObject,
        is_base: bool,
        pace: &Pace,
    ) -> Result<Scanned, EngineError> {
        let points_max = Self::scan_bytes_max(self.budget.bytes_max()) / SCANS_KEPT as u64 / POINT_BYTES;
        let points_max = if is_base { usize::try_from(points_max).unwrap_or(usize::MAX) } else { 0 };
        let mut scanning = Scanning::new(bucket, points_max, is_base);
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

    /// A scan of content that is read for something else; one that does nothing for no bucket.
    pub(crate) fn scanning_beside(&self, bucket: Option<&BucketHandle>) -> ScanningBeside {
        let scanning = bucket.map(|bucket| Scanning::new(bucket, 0, false));
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
        let name: Vec<_> = ranges.iter().map(|range| (range.blob, range.offset, range.len)).collect();
        let scanned = match self.scans.get(&name) {
            Some(scanned) => scanned,
            None => {
                let extent =
                    |range: &ViewRange| Extent { blob: BlobKey(range.blob.0), offset: range.offset, len: range.len };
                let source = self.read.open_extents(bucket, ranges.iter().map(extent).collect(), rows.clone())?;
                let scanned = Arc::new(self.scan(bucket, &source, true, pace).await?);
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
