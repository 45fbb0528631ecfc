//! The pieces of one read: cut, fetched ahead of the client by a bounded window, and checked.

use super::{OpenObject, ReadPath};
use crate::{
    blobs::{base_reader::BaseReader, decode::segments_covering, open::Manifest, pins::Pin, upload::held},
    bucket::BucketHandle,
    deployment::veil::Veil,
    error::EngineError,
    read::opened::OpenedRow,
    resources::{
        budget::{Permit, Slot},
        buffers::lent,
        pool::{HERE_LEN_MAX, Scratch},
    },
};
use bytes::Bytes;
use catalog::{BlobKey, BlobRow};
use futures::{StreamExt as _, stream::BoxStream};
use object_format::{BlobId, Coding, SEGMENT_LEN, Segment};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};
use tokio::{task::JoinHandle, time::Instant};

/// Pieces that are fetched and decoded ahead of the client.
const PIECES_AHEAD: usize = 4;
/// Memory that a deflate view takes beside its bytes and those of its base: text of one unit, its
/// base and its matches.
pub(crate) const VIEW_WORK_BYTES: u64 = 16 << 20;
/// The first piece of a raw range is so much shorter than the others: the first byte leaves sooner.
const FIRST_PIECE_SHARE: u32 = 4;
/// Bytes of an original that are read at a time: one request each.
const ORIGINAL_PIECE_LEN: u64 = 4 << 20;
/// Memory beside the bytes of a raw piece: the chunks at its ends.
const RAW_OVERHEAD: u64 = 128 << 10;

impl ReadPath {
    /// Streams a range of the content (`range.end <= size`), verified before it leaves (I4). The
    /// stream holds the pins. The first item is ready before any later failure: a caller that
    /// awaits it can still answer with an error status.
    pub fn read(
        self: &Arc<Self>,
        object: &OpenObject,
        range: Range<u64>,
    ) -> BoxStream<'static, Result<Bytes, EngineError>> {
        self.read_unveiled(object, range, None)
    }

    /// The same of content that was stored under a veil: it is taken away where each piece is
    /// checked, ahead of the client.
    pub fn read_unveiled(
        self: &Arc<Self>,
        object: &OpenObject,
        range: Range<u64>,
        veil: Option<Arc<dyn Veil>>,
    ) -> BoxStream<'static, Result<Bytes, EngineError>> {
        let reader = Arc::new(Reader {
            path: self.clone(),
            bucket: object.bucket.clone(),
            blobs: object.content.blobs.iter().map(|row| (row.id, row.clone())).collect(),
            opened: OpenedRow::default(),
            _pin: object.pin.clone(),
            veil,
        });
        let now = Instant::now();
        let mut runs = VecDeque::new();
        let mut start = 0;
        for extent in &object.content.extents {
            let (from, to) = (range.start.max(start), range.end.min(start + extent.len));
            if from < to {
                runs.push_back((extent.blob, extent.offset + (from - start)..extent.offset + (to - start)));
                if let Some(row) = reader.blobs.get(&extent.blob) {
                    self.heat.note(row, to - from, now);
                }
            }
            start += extent.len;
        }
        let ahead = ReadAhead::of(reader, runs, range.start);
        futures::stream::try_unfold(ahead, |mut ahead| {
            Box::pin(async move { Ok(ahead.next().await?.map(|bytes| (bytes, ahead))) })
        })
        .boxed()
    }
}

/// What every piece of one read needs.
struct Reader {
    path: Arc<ReadPath>,
    bucket: BucketHandle,
    blobs: HashMap<BlobKey, BlobRow>,
    opened: OpenedRow,
    _pin: Arc<Pin>,
    veil: Option<Arc<dyn Veil>>,
}

/// One piece.
struct Piece {
    /// Its place in the content.
    at: u64,
    source: Source,
}

/// Where a piece lies.
enum Source {
    /// Bytes of one segment.
    Segment { blob: BlobKey, index: u64, segment: Segment, within: Range<u32> },
    /// Bytes of a row's content that lie in an original.
    Original { blob: BlobKey, range: Range<u64> },
}

/// What was read of a piece.
enum Fetched {
    /// A buffer of its own.
    Own(Bytes, Permit),
    /// Part of a buffer that is lent.
    Lent(Bytes),
}

/// A piece being fetched; aborted when the client goes away.
struct Running(JoinHandle<Result<Bytes, EngineError>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A read on its way: pieces that are fetched while the client takes those before them.
struct ReadAhead {
    reader: Arc<Reader>,
    /// Ranges of blobs not cut into pieces yet.
    runs: VecDeque<(BlobKey, Range<u64>)>,
    /// Pieces of the current segment.
    within: VecDeque<Piece>,
    /// The place of the next piece in the content.
    at: u64,
    running: VecDeque<Running>,
    first: bool,
    /// Bytes of a raw segment that are read at a time.
    request_len: u32,
    /// What this stream holds for as long as it lives.
    slot: Slot,
}

impl ReadAhead {
    /// A read of these ranges of blobs, the first byte of which is at `at` in the content.
    fn of(reader: Arc<Reader>, runs: VecDeque<(BlobKey, Range<u64>)>, at: u64) -> Self {
        let (within, running) = (VecDeque::new(), VecDeque::new());
        Self { reader, runs, within, at, running, first: true, request_len: 0, slot: Slot::default() }
    }

    /// The next piece, checked; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, EngineError> {
        while self.running.len() < PIECES_AHEAD {
            let Some(piece) = self.next_piece().await? else { break };
            let cost = piece.cost();
            // What the client waits for waits for memory; what is only read ahead does not.
            let permit = match self.running.is_empty() {
                true => self.reader.path.budget.acquire_for(&self.slot, cost, self.most(&piece)).await?,
                false => match self.reader.path.budget.try_acquire(cost) {
                    Some(permit) => permit,
                    None => {
                        self.within.push_front(piece);
                        break;
                    }
                },
            };
            if self.ends_with(&piece) {
                // Nothing comes beside it, and it is waited for: a task of its own would only cost.
                return self.reader.fetch(piece, permit).await.map(Some);
            }
            let reader = self.reader.clone();
            self.running.push_back(Running(tokio::spawn(async move { reader.fetch(piece, permit).await })));
        }
        let Some(mut oldest) = self.running.pop_front() else { return Ok(None) };
        let bytes = (&mut oldest.0)
            .await
            .unwrap_or_else(|error| Err(EngineError::Other(format!("a read ended without an answer: {error}"))))?;
        Ok(Some(bytes))
    }

    /// Whether this piece is the last one, and the only one under way.
    fn ends_with(&self, piece: &Piece) -> bool {
        let short = matches!(piece.source, Source::Segment { .. }) && piece.len() <= HERE_LEN_MAX;
        short && self.runs.is_empty() && self.within.is_empty() && self.running.is_empty()
    }

    /// What any piece of this stream will take, as far as the first one tells.
    fn most(&self, piece: &Piece) -> u64 {
        let runs = self.runs.iter().map(|(_, range)| range.end - range.start).sum::<u64>();
        let left = piece.len() + self.within.iter().map(Piece::len).sum::<u64>() + runs;
        match &piece.source {
            Source::Original { .. } => 2 * left.min(ORIGINAL_PIECE_LEN),
            Source::Segment { segment, .. } if segment.coding == Coding::Raw => {
                2 * left.min(self.request_len.into()) + RAW_OVERHEAD
            }
            Source::Segment { .. } if runs == 0 => piece.cost(),
            Source::Segment { .. } => piece.cost().max(2 * SEGMENT_LEN as u64 + (1 << 20)),
        }
    }

    async fn next_piece(&mut self) -> Result<Option<Piece>, EngineError> {
        if let Some(piece) = self.within.pop_front() {
            return Ok(Some(piece));
        }
        let Some((blob, range)) = self.runs.front_mut() else { return Ok(None) };
        let blob = *blob;
        if self.reader.row(blob)?.original.is_some() {
            let share = if std::mem::take(&mut self.first) { FIRST_PIECE_SHARE.into() } else { 1 };
            let piece = range.start..range.end.min(range.start + ORIGINAL_PIECE_LEN / share);
            range.start = piece.end;
            if range.is_empty() {
                self.runs.pop_front();
            }
            return Ok(Some(self.placed(Source::Original { blob, range: piece })));
        }
        let Some((index, within)) = segments_covering(range.clone()).next() else { return Ok(None) };
        range.start += u64::from(within.end - within.start);
        if range.is_empty() {
            self.runs.pop_front();
        }
        let segment = self.reader.segment(blob, index).await?;
        if segment.coding == Coding::Raw {
            self.request_len = self.reader.request_len(blob)?;
            let mut at = within.start;
            while at < within.end {
                let share = if std::mem::take(&mut self.first) { FIRST_PIECE_SHARE } else { 1 };
                let end = within.end.min(at + self.request_len / share);
                let piece = self.placed(Source::Segment { blob, index, segment: segment.clone(), within: at..end });
                self.within.push_back(piece);
                at = end;
            }
            return Ok(self.within.pop_front());
        }
        self.first = false;
        Ok(Some(self.placed(Source::Segment { blob, index, segment, within })))
    }

    /// The next piece, in its place.
    fn placed(&mut self, source: Source) -> Piece {
        let piece = Piece { at: self.at, source };
        self.at += piece.len();
        piece
    }
}

impl Piece {
    /// Its bytes.
    fn len(&self) -> u64 {
        match &self.source {
            Source::Original { range, .. } => range.end - range.start,
            Source::Segment { within, .. } => u64::from(within.end - within.start),
        }
    }

    /// Bytes of memory its reading takes: stored and plain bytes, and the base bytes of a delta.
    fn cost(&self) -> u64 {
        match &self.source {
            Source::Original { .. } => 2 * self.len(),
            Source::Segment { segment, .. } if segment.coding == Coding::Raw => 2 * self.len() + RAW_OVERHEAD,
            Source::Segment { segment, .. } => {
                let footprint: u64 = segment.footprint.iter().map(|run| u64::from(run.len)).sum();
                let text = if segment.coding.is_view() { VIEW_WORK_BYTES } else { 0 };
                u64::from(segment.plain_len) + u64::from(segment.stored_len) + footprint + text
            }
        }
    }
}

impl Reader {
    async fn segment(&self, blob: BlobKey, index: u64) -> Result<Segment, EngineError> {
        let manifest = self.manifest(self.row(blob)?).await?;
        self.path.blobs.segment(&manifest, index).await
    }

    async fn manifest(&self, row: &BlobRow) -> Result<Arc<Manifest>, EngineError> {
        self.opened.manifest(&self.path.blobs, row, self.bucket.key_of(row)?.as_deref()).await
    }

    fn request_len(&self, blob: BlobKey) -> Result<u32, EngineError> {
        let row = self.row(blob)?;
        match row.inline {
            Some(_) => Ok(SEGMENT_LEN as u32),
            None => Ok(self.path.blobs.backend(&row.backend)?.request_len()),
        }
    }

    fn row(&self, blob: BlobKey) -> Result<&BlobRow, EngineError> {
        self.blobs.get(&blob).ok_or_else(|| EngineError::Integrity("an extent names a blob without a row".into()))
    }

    async fn fetch(&self, piece: Piece, permit: Permit) -> Result<Bytes, EngineError> {
        tracing::trace!(target: "path", "fetch()");
        match self.fetch_stored(piece.source, permit).await? {
            Fetched::Lent(bytes) => Ok(bytes),
            Fetched::Own(bytes, permit) => {
                let bytes = match self.veil.clone() {
                    None => bytes,
                    Some(veil) => {
                        let len = bytes.len() as u64;
                        Box::pin(self.path.pool.run_on(len, unveil(veil, piece.at, bytes))).await??
                    }
                };
                Ok(held(bytes, Some(permit)))
            }
        }
    }

    /// A piece as it is stored. Under a veil its buffer is its own.
    async fn fetch_stored(&self, source: Source, mut permit: Permit) -> Result<Fetched, EngineError> {
        let (blob, index, segment, within) = match source {
            Source::Segment { blob, index, segment, within } => (blob, index, segment, within),
            Source::Original { blob, range } => {
                let bytes = Box::pin(self.path.originals.read(self.row(blob)?, range)).await?;
                permit.shrink(bytes.len() as u64);
                return Ok(Fetched::Own(bytes.into(), permit));
            }
        };
        let blobs = &self.path.blobs;
        let row = self.row(blob)?;
        let key = self.bucket.key_of(row)?;
        let manifest = self.manifest(row).await?;
        let cut = within.start as usize..within.end as usize;
        let mut bytes = match segment.coding {
            Coding::Raw => {
                let bytes = blobs.raw_range(&manifest, &segment, within).await?;
                permit.shrink(bytes.len() as u64);
                return Ok(Fetched::Own(bytes, permit));
            }
            Coding::Zstd if row.pack => {
                // Whoever reads one member is likely to read its neighbours.
                let pack = Box::pin(blobs.decoded_segment(&manifest, index)).await?;
                let member = pack.get(cut).ok_or_else(too_short)?.to_vec();
                permit.shrink(member.len() as u64);
                return Ok(Fetched::Own(member.into(), permit));
            }
            Coding::View | Coding::GappedView => {
                let decode = async {
                    let rows = Box::pin(self.path.base_rows(&manifest)).await?;
                    let bases = BaseReader::new(&rows, key.as_deref());
                    blobs.view_range(&manifest, &segment, within.clone(), &bases).await
                };
                let bytes = Box::pin(blobs.view_piece(&manifest, (index, &segment), within.clone(), decode)).await?;
                permit.shrink(bytes.len() as u64);
                return Ok(Fetched::Own(bytes, permit));
            }
            Coding::Zstd | Coding::Planes | Coding::Delta => {
                let rows = Box::pin(self.path.base_rows(&manifest)).await?;
                let bases = BaseReader::new(&rows, key.as_deref());
                Box::pin(blobs.plain_segment(&manifest, &segment, &bases)).await?
            }
        };
        permit.shrink(bytes.len() as u64);
        tracing::trace!(blob = %BlobId(blob.0), segment = index, len = cut.len(), "read");
        if cut.end > bytes.len() {
            return Err(too_short());
        }
        if self.veil.is_some() {
            bytes.truncate(cut.end);
            bytes.drain(..cut.start);
            return Ok(Fetched::Own(bytes.into(), permit));
        }
        Ok(Fetched::Lent(lent(bytes, Some(permit), self.path.pool.shelf()).slice(cut)))
    }
}

/// Takes a veil away, as a job of the codec pool.
fn unveil(veil: Arc<dyn Veil>, at: u64, bytes: Bytes) -> impl FnOnce(&mut Scratch) -> Result<Bytes, EngineError> {
    move |_| {
        // Where nobody else has them, they stay where they are.
        let mut bytes = Vec::from(bytes);
        veil.apply(at, &mut bytes).map(|()| bytes.into())
    }
}

fn too_short() -> EngineError {
    EngineError::Integrity("segment shorter than its extent".into())
}
