//! Base windows: the run of base bytes one 64 MiB region of a target is encoded against, fetched
//! once and shared.
//!
//! A window is a few pieces of whole blobs (I2), decoded and laid end to end in memory, with the
//! index of the codec beside them. They lie in the order of blobs' ids, whichever objects they
//! belong to and in whatever order those have them: so a blob's view can have that order too,
//! whatever windows its segments were encoded against (`view.rs`), and objects that are made of the
//! same blobs share a window. Windows are kept while there is memory: whoever needs some frees the
//! idle ones.

use crate::{
    blobs::{
        base_reader::BaseReader,
        decode::segments_covering,
        open::{Blobs, Manifest},
        piece::BasePiece,
    },
    error::EngineError,
    resources::{
        budget::{MemoryBudget, Permit},
        pool::CodecPool,
    },
};
use bytes::BytesMut;
use catalog::BlobRow;
use delta_codec::{BaseIndex, BaseRange, Effort, WINDOW_LEN_MAX, WindowUnit};
use futures::{StreamExt, TryStreamExt};
use object_format::{BlobId, Coding, DomainKey, Segment};
use std::{
    collections::HashMap,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// How long a window waits for memory that others hold. What the same body holds it does not wait
/// for here: `write/stage.rs`.
const PATIENCE: Duration = Duration::from_secs(2);
/// And how long one for parts: about as long as those before it take to pay for themselves.
const PATIENCE_OF_PARTS: Duration = Duration::from_secs(5);
/// And how long one that takes a large part of all there is: what it waits for is mostly its own
/// body's.
const PATIENCE_IF_LARGE: Duration = Duration::from_millis(300);
/// From this part of the memory on it is large.
const LARGE_PART: u64 = 4;
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Segments of a base that are fetched and decoded at the same time.
const FETCHES_AT_ONCE: usize = 4;
/// How long a window that nobody uses stays there before it has served as many bytes as it took to
/// load: the next part of its upload is on its way.
const KEPT_IDLE: Duration = Duration::from_secs(1);

/// The same bytes in ascending order of blobs and offsets, each once, in as few pieces as there can
/// be.
pub(crate) fn in_order(mut pieces: Vec<BasePiece>) -> Vec<BasePiece> {
    pieces.sort_unstable_by_key(|piece| (piece.blob, piece.offset));
    pieces.dedup_by(|next, last| {
        let joins = last.blob == next.blob && next.offset <= last.end();
        if joins {
            last.len = last.end().max(next.end()) - last.offset;
        }
        joins
    });
    pieces
}

/// Decoded base bytes with what is needed to encode against them.
pub(crate) struct Window {
    /// The bytes.
    pub(crate) plain: BytesMut,
    /// How they lie in the backend.
    pub(crate) layout: Vec<WindowUnit>,
    pieces: Vec<(u64, BasePiece)>,
    /// The effort that the narrow index is built for, which is what was charged.
    narrow: Effort,
    /// Bytes that were encoded against it.
    served: AtomicU64,
    /// With so many it has paid for itself, and may go as soon as nobody uses it.
    served_enough: u64,
    wide_index: OnceLock<BaseIndex>,
    narrow_index: OnceLock<BaseIndex>,
    _permit: Permit,
}

impl Window {
    /// The codec's index for an effort, built by the first who asks; [`index_bytes`] has them
    /// charged. Call it on the codec pool.
    pub(crate) fn index(&self, effort: Effort) -> &BaseIndex {
        let (slot, built_for) = match effort {
            Effort::Fast => (&self.wide_index, effort),
            _ => (&self.narrow_index, self.narrow),
        };
        slot.get_or_init(|| BaseIndex::build(&self.plain, built_for))
    }

    /// Says that `len` bytes were encoded against it.
    pub(crate) fn has_served(&self, len: usize) {
        self.served.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Window ranges, which ascend, as pieces of base blobs, which do so too.
    pub(crate) fn pieces_of(&self, footprint: &[BaseRange]) -> Vec<BasePiece> {
        let mut pieces = Vec::with_capacity(footprint.len() + 2);
        for run in footprint {
            let (start, end) = (run.offset, run.offset + u64::from(run.len));
            let first = self.pieces.partition_point(|(at, piece)| at + piece.len <= start);
            for (at, piece) in self.pieces[first..].iter().take_while(|(at, _)| *at < end) {
                let (from, to) = (start.max(*at), end.min(at + piece.len));
                let skip = from - at;
                pieces.push(BasePiece { offset: piece.offset + skip, len: to - from, ..*piece });
            }
        }
        pieces
    }

    /// The blob that a byte of the window comes from, and where in it.
    pub(crate) fn place_of(&self, offset: u64) -> Option<(BlobId, u64)> {
        let next = self.pieces.partition_point(|(at, _)| *at <= offset);
        let (at, piece) = self.pieces.get(next.checked_sub(1)?)?;
        (offset - at < piece.len).then(|| (piece.blob, piece.offset + (offset - at)))
    }

    fn indexed_bytes(&self) -> usize {
        [&self.wide_index, &self.narrow_index].into_iter().filter_map(OnceLock::get).map(BaseIndex::memory_bytes).sum()
    }

    /// The blobs that it comes from.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = BlobId> + '_ {
        self.pieces.iter().map(|(_, piece)| piece.blob)
    }
}

/// The effort whose narrow index serves `effort`: that of `high` and `max`, which is the same,
/// takes twice as much as the others'.
fn narrow_for(effort: Effort) -> Effort {
    match effort {
        Effort::Fast | Effort::Balanced => Effort::Balanced,
        Effort::High | Effort::Max => Effort::High,
    }
}

/// Memory of the indexes of a window of `len` bytes: the wide one, and the narrow one.
fn index_bytes(len: u64, narrow: Effort) -> u64 {
    let len = usize::try_from(len).unwrap_or(WINDOW_LEN_MAX);
    [Effort::Fast, narrow].into_iter().map(|effort| BaseIndex::memory_bytes_for(len, effort) as u64).sum()
}

type WindowKey = (Effort, Vec<(BlobId, u64, u64)>);

#[derive(Default)]
struct Slot {
    cell: OnceCell<Arc<Window>>,
    used: AtomicU64,
    askers: AtomicUsize,
    idle_since: Mutex<Option<Instant>>,
}

impl Slot {
    fn idle_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.idle_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its window, which nobody uses, may go for another: it has paid for itself, or was
    /// found without use a while ago.
    fn is_spare(&self, window: &Window, now: Instant) -> bool {
        let since = *self.idle_since().get_or_insert(now);
        window.served.load(Ordering::Relaxed) >= window.served_enough || now - since >= KEPT_IDLE
    }
}

/// Somebody who asks for a window. When the last of them goes without it, because it cannot be
/// loaded or nobody waits for it any more, its place goes too.
struct Asked<'a> {
    windows: &'a Windows,
    name: &'a WindowKey,
    slot: Arc<Slot>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut slots = self.windows.slots();
        // Counted under the lock: of several who go at once, one is the last.
        if self.slot.askers.fetch_sub(1, Ordering::Relaxed) == 1 && self.slot.cell.get().is_none() {
            slots.remove(self.name);
        }
    }
}

/// Windows by what they hold. Immutable content under immutable ids: never stale.
pub(crate) struct Windows {
    slots: Mutex<HashMap<WindowKey, Arc<Slot>>>,
    clock: AtomicU64,
    len_max: u64,
    whole_len_max: u64,
    budget: Arc<MemoryBudget>,
    blobs: Arc<Blobs>,
    pool: Arc<CodecPool>,
}

impl Windows {
    /// Windows within `budget`: a base of up to an eighth of it is taken whole; of a longer one two
    /// windows (a region's and the next one's) of a tenth each leave room for segments.
    pub(crate) fn new(budget: Arc<MemoryBudget>, blobs: Arc<Blobs>, pool: Arc<CodecPool>) -> Arc<Self> {
        let whole_len_max = (budget.bytes_max() / 8).min(WINDOW_LEN_MAX as u64);
        let len_max = 1 << (budget.bytes_max() / 10).min(WINDOW_LEN_MAX as u64).ilog2();
        let windows = Arc::new(Self {
            slots: Mutex::default(),
            clock: AtomicU64::new(0),
            len_max,
            whole_len_max,
            budget,
            blobs,
            pool,
        });
        let idle = Arc::downgrade(&windows);
        windows.budget.on_pressure(Box::new(move || idle.upgrade().is_some_and(|windows| windows.free_one_idle())));
        windows
    }

    /// Target bytes that share one window: half a window's length, so that content may have moved
    /// by a quarter either way.
    pub(crate) fn region_len(&self) -> u64 {
        self.len_max / 2
    }

    /// Most bytes of a region's window.
    pub(crate) fn len_max(&self) -> u64 {
        self.len_max
    }

    /// A base of up to so many bytes is one window for all regions.
    pub(crate) fn whole_len_max(&self) -> u64 {
        self.whole_len_max
    }

    /// The window over some pieces of whole blobs for an effort, loaded by the first who asks.
    /// `rows` has the blobs' rows. If it `serves_parts`, the next part of the upload will ask for
    /// it. `None` when there is no memory for it just now.
    pub(crate) async fn get(
        &self,
        pieces: Vec<BasePiece>,
        rows: &[BlobRow],
        key: Option<&DomainKey>,
        effort: Effort,
        serves_parts: bool,
    ) -> Result<Option<Arc<Window>>, EngineError> {
        tracing::trace!(target: "path", "get()");
        let (pieces, narrow) = (in_order(pieces), narrow_for(effort));
        let name = (narrow, pieces.iter().map(|piece| (piece.blob, piece.offset, piece.len)).collect());
        let asked = self.ask(&name);
        let loaded = asked
            .slot
            .cell
            .get_or_try_init(|| async {
                let len = pieces.iter().map(|piece| piece.len).sum::<u64>();
                let bytes = len + index_bytes(len, narrow);
                let (served_enough, patience) = match serves_parts {
                    _ if self.is_large(bytes) => (0, PATIENCE_IF_LARGE),
                    true => (len, PATIENCE_OF_PARTS),
                    false => (0, PATIENCE),
                };
                let permit = self.patiently(bytes, patience).await.ok_or(None)?;
                self.load(pieces, len, rows, key, (narrow, served_enough, permit)).await.map(Arc::new).map_err(Some)
            })
            .await;
        match loaded {
            Ok(window) => Ok(Some(window.clone())),
            Err(failure) => failure.map_or(Ok(None), Err),
        }
    }

    /// The place of a window, which may have to be loaded.
    fn ask<'a>(&'a self, name: &'a WindowKey) -> Asked<'a> {
        let mut slots = self.slots();
        let slot = slots.entry(name.clone()).or_default().clone();
        slot.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        slot.askers.fetch_add(1, Ordering::Relaxed);
        *slot.idle_since() = None;
        Asked { windows: self, name, slot }
    }

    async fn load(
        &self,
        mut pieces: Vec<BasePiece>,
        len: u64,
        rows: &[BlobRow],
        key: Option<&DomainKey>,
        (narrow, served_enough, permit): (Effort, u64, Permit),
    ) -> Result<Window, EngineError> {
        let mut parts = Vec::new();
        for piece in &mut pieces {
            let row = rows.iter().find(|row| row.id.0 == piece.blob.0);
            let row = row.ok_or_else(|| EngineError::Other("a base piece without its row".into()))?;
            let manifest = self.blobs.manifest(row, key).await?;
            if !manifest.root.is_whole() {
                return Err(EngineError::Integrity("a delta blob where whole content is needed".into()));
            }
            piece.base_tag = manifest.root.base_tag;
            parts.extend(
                segments_covering(piece.offset..piece.offset + piece.len)
                    .map(|(index, within)| (manifest.clone(), index, within)),
            );
        }
        let mut room = BytesMut::zeroed(usize::try_from(len).map_err(|_| EngineError::TooLarge)?);
        let parts = parts.into_iter().map(|(manifest, index, within)| {
            let place = room.split_to((within.end - within.start) as usize);
            async move {
                let segment = self.blobs.segment(&manifest, index).await?;
                let plain = self.fill(place, &manifest, &segment, within.clone()).await?;
                Ok::<_, EngineError>((segment, plain, within.end - within.start))
            }
        });
        let parts = parts.collect::<Vec<_>>();
        let fetched = futures::stream::iter(parts).buffered(FETCHES_AT_ONCE.max(self.pool.threads()));
        // Its places lie end to end, and become one again.
        let mut plain = BytesMut::new();
        let mut layout = Vec::new();
        futures::pin_mut!(fetched);
        while let Some((segment, bytes, unit_len)) = fetched.try_next().await? {
            plain.unsplit(bytes);
            layout.push(match segment.coding {
                Coding::Raw => WindowUnit { plain_len: unit_len, stored_len: unit_len, divisible: true },
                // A very compressible unit still costs memory to decode: it counts at least half
                // its plain bytes, which bounds a footprint to four segments of plain base.
                _ => WindowUnit {
                    plain_len: unit_len,
                    stored_len: segment.stored_len.max(unit_len / 2),
                    divisible: false,
                },
            });
        }
        let mut start = 0;
        let pieces = pieces
            .into_iter()
            .map(|piece| {
                let placed = (start, piece);
                start += piece.len;
                placed
            })
            .collect();
        Ok(Window {
            plain,
            layout,
            pieces,
            narrow,
            served: AtomicU64::new(0),
            served_enough,
            wide_index: OnceLock::new(),
            narrow_index: OnceLock::new(),
            _permit: permit,
        })
    }

    /// Fills a place of the window with bytes `within` of a segment, decoded where they are to lie
    /// if they are all of it.
    async fn fill(
        &self,
        mut place: BytesMut,
        manifest: &Manifest,
        segment: &Segment,
        within: Range<u32>,
    ) -> Result<BytesMut, EngineError> {
        if within == (0..segment.plain_len) && !segment.coding.is_view() {
            return self.blobs.decode_into(manifest, segment, &BaseReader::NONE, move || place).await;
        }
        let plain = self.blobs.plain_segment(manifest, segment, &BaseReader::NONE).await?;
        let part = plain.get(within.start as usize..within.end as usize);
        place.copy_from_slice(
            part.ok_or_else(|| EngineError::Integrity("base segment shorter than its extent".into()))?,
        );
        self.pool.shelf().put(plain);
        Ok(place)
    }

    /// Whether so many bytes are a large part of all there is.
    fn is_large(&self, bytes: u64) -> bool {
        bytes > self.budget.work_bytes() / LARGE_PART
    }

    /// Memory for a window. The region before gives its window back when its last segments are
    /// encoded: worth a moment's wait, and no more, because others may be waiting for what this
    /// upload holds.
    async fn patiently(&self, bytes: u64, patience: Duration) -> Option<Permit> {
        let deadline = Instant::now() + patience;
        loop {
            match self.budget.try_acquire(bytes) {
                None if Instant::now() < deadline => tokio::time::sleep(LOOK_EVERY).await,
                outcome => return outcome,
            }
        }
    }

    /// Forgets the windows nobody is using.
    pub(crate) fn drop_idle(&self) {
        while self.free_one(|_, _| true) {}
    }

    /// Bytes of windows held, with the indexes that were built over them.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |window: &Arc<Window>| (window.plain.len() + window.indexed_bytes()) as u64;
        self.slots().values().filter_map(|slot| slot.cell.get()).map(bytes).sum()
    }

    /// How many windows are held or asked for.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.slots().len()
    }

    /// Forgets the one that was asked for longest ago among those that nobody uses and that have
    /// served their time: several uploads whose windows do not fit at once would otherwise take
    /// them from each other, and load one for each part.
    fn free_one_idle(&self) -> bool {
        let now = Instant::now();
        self.free_one(|slot, window| slot.is_spare(window, now))
    }

    fn free_one(&self, may_go: impl Fn(&Slot, &Window) -> bool) -> bool {
        let mut slots = self.slots();
        let oldest = slots
            .iter()
            .filter(|(_, slot)| Arc::strong_count(slot) == 1)
            .filter(|(_, slot)| {
                slot.cell.get().is_some_and(|window| Arc::strong_count(window) == 1 && may_go(slot, window))
            })
            .min_by_key(|(_, slot)| slot.used.load(Ordering::Relaxed))
            .map(|(key, _)| key.clone());
        oldest.is_some_and(|key| slots.remove(&key).is_some())
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<WindowKey, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_indexes_of_a_window_take_no_more_than_it_is_charged_for() {
        for len in [1 << 20, 50 << 20, WINDOW_LEN_MAX] {
            let plain = vec![0; len];
            let held = |effort| BaseIndex::build(&plain, effort).memory_bytes() as u64;
            for effort in [Effort::Fast, Effort::Balanced, Effort::High, Effort::Max] {
                let charged = index_bytes(len as u64, narrow_for(effort));
                assert!(held(Effort::Fast) + held(effort) <= charged, "{len} at {effort:?}");
            }
        }
    }
}
