//! The read path: a range becomes the segments that cover it; their chunks are fetched ahead of the client by a bounded
//! window, checked, decoded on the codec pool, and streamed. No byte leaves before it is checked (I4).

use super::{
    Engine, EngineError, ObjectInfo,
    blobs::{BaseReader, Manifest, segments_covering},
    bucket::{BucketHandle, RowPlace, digest_of},
    budget::Permit,
    facts::Facts,
    outlet::held,
    pins::Pin,
    shelf::lent,
};
use bytes::Bytes;
use catalog::{BlobForm, BlobKey, BlobRow, CatalogError, Content, Version};
use futures::{StreamExt, stream::BoxStream};
use object_format::{BlobId, Coding, Segment};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
    time::Instant,
};
use tokio::task::JoinHandle;

/// Pieces that are fetched and decoded ahead of the client.
const PIECES_AHEAD: usize = 4;
/// Bytes of a raw segment that are read at a time.
const RAW_PIECE_LEN: u32 = 1 << 20;
/// Bytes of the first piece of a raw range: the first byte leaves sooner.
const FIRST_RAW_PIECE_LEN: u32 = 256 << 10;
/// Bytes of an original that are read at a time: one request each.
const ORIGINAL_PIECE_LEN: u64 = 4 << 20;

/// A version ready to be read: holds its blobs against collection until dropped. Their bases are held by edges (I3).
pub struct OpenObject {
    /// What it is.
    pub info: ObjectInfo,
    /// Logical lengths of its extents, in order.
    pub extent_lens: Vec<u64>,
    pub(super) content: Content,
    bucket: BucketHandle,
    pin: Arc<Pin>,
}

impl OpenObject {
    /// Whether some of its content lies in originals.
    pub fn is_foreign(&self) -> bool {
        self.content.blobs.iter().any(|row| row.original.is_some())
    }
}

impl Engine {
    /// A key's current version and facts; in a bucket that reads through, one that is only in the original store is adopted first.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or the row is not what was sealed.
    pub async fn head(&self, bucket: &BucketHandle, key: &str) -> Result<Option<ObjectInfo>, EngineError> {
        loop {
            match self.catalog.current(bucket.row.id, key).await? {
                Some(version) => return Ok(Some(ObjectInfo { facts: self.open_facts(bucket, &version)?, version })),
                None if self.adopt_on_read(bucket, key).await? => {}
                None => return Ok(None),
            }
        }
    }

    /// Opens a version's facts (a listing's rows).
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when the row is not what was written.
    pub fn open_facts(&self, bucket: &BucketHandle, version: &Version) -> Result<Facts, EngineError> {
        let place =
            RowPlace { key: &version.key, id: version.id.0, part: None, extents_digest: version.extents_digest };
        let metrics = &self.metrics;
        let opened = bucket.open_facts(place, &version.facts);
        let facts = opened.inspect_err(|_| metrics.aead_failures_total.with_label_values(&["row"]).inc())?;
        from_json(&facts).inspect_err(|_| metrics.checksum_failures_total.with_label_values(&["row"]).inc())
    }

    /// A key's current version, pinned for reading, adopted first as by [`Engine::head`]; `None` when there is none.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or the row is not what was sealed.
    pub async fn open_object(&self, bucket: &BucketHandle, key: &str) -> Result<Option<OpenObject>, EngineError> {
        for _ in 0..8 {
            let Some(content) = self.current_content(bucket, key).await? else {
                if self.adopt_on_read(bucket, key).await? {
                    continue;
                }
                return Ok(None);
            };
            let facts = self.open_facts(bucket, &content.version)?;
            match self.open_content(bucket, content, facts) {
                // A blob was being purged: the key has another version by now.
                Err(EngineError::Conflict) => {}
                outcome => return outcome.map(Some),
            }
        }
        Err(EngineError::Busy("the key is being replaced all the time"))
    }

    /// From the catalog, always: a version that is kept anywhere else may not be the current one (E16).
    async fn current_content(&self, bucket: &BucketHandle, key: &str) -> Result<Option<Content>, CatalogError> {
        #[cfg(feature = "mutant-stale-cache")]
        return super::stale::content(&*self.catalog, bucket.row.id, key).await;
        #[cfg(not(feature = "mutant-stale-cache"))]
        self.catalog.content(bucket.row.id, key).await
    }

    /// Pins some content. [`EngineError::Conflict`] when one of its blobs is being purged.
    pub(super) fn open_content(
        &self,
        bucket: &BucketHandle,
        content: Content,
        facts: Facts,
    ) -> Result<OpenObject, EngineError> {
        if digest_of(&content.extents) != content.version.extents_digest {
            return Err(EngineError::Integrity("a version's extents are not those it was written with".into()));
        }
        let pin = self.pins.pin(content.blobs.iter().map(|row| BlobId(row.id.0))).ok_or(EngineError::Conflict)?;
        Ok(OpenObject {
            extent_lens: content.extents.iter().map(|extent| extent.len).collect(),
            info: ObjectInfo { version: content.version.clone(), facts },
            content,
            bucket: bucket.clone(),
            pin: Arc::new(pin),
        })
    }

    /// The rows of the whole blobs a delta needs, kept with its id: edges do not change while it lives.
    pub(super) async fn base_rows(&self, delta: &Manifest) -> Result<Arc<Vec<BlobRow>>, EngineError> {
        if delta.root.is_whole() {
            return Ok(Arc::default());
        }
        self.base_rows
            .try_get_with(delta.id, async {
                let mut ids: Vec<BlobKey> = delta.root.view.iter().map(|range| BlobKey(range.blob.0)).collect();
                ids.sort_unstable();
                ids.dedup();
                Ok(Arc::new(self.catalog.blobs(&ids).await?))
            })
            .await
            .map_err(|error: Arc<EngineError>| EngineError::shared(&error))
    }

    /// Streams a range of the content (`range.end <= size`), verified before it leaves (I4). The stream holds the pins. The first item is ready before any
    /// later failure: a caller that awaits it can still answer with an error status.
    pub fn read(
        self: &Arc<Self>,
        object: &OpenObject,
        range: Range<u64>,
    ) -> BoxStream<'static, Result<Bytes, EngineError>> {
        let reader = Arc::new(Reader {
            engine: self.clone(),
            bucket: object.bucket.clone(),
            blobs: object.content.blobs.iter().map(|row| (row.id, row.clone())).collect(),
            _pin: object.pin.clone(),
        });
        self.note_heat(object, &range);
        let mut runs = VecDeque::new();
        let mut start = 0;
        for extent in &object.content.extents {
            let (from, to) = (range.start.max(start), range.end.min(start + extent.len));
            if from < to {
                runs.push_back((extent.blob, extent.offset + (from - start)..extent.offset + (to - start)));
            }
            start += extent.len;
        }
        let ahead = ReadAhead { reader, runs, within: VecDeque::new(), running: VecDeque::new(), first: true };
        futures::stream::try_unfold(
            ahead,
            |mut ahead| async move { Ok(ahead.next().await?.map(|bytes| (bytes, ahead))) },
        )
        .boxed()
    }
}

impl Engine {
    /// Counts how much of each delta is read: what is read often is better whole.
    fn note_heat(&self, object: &OpenObject, range: &Range<u64>) {
        let len = range.end.saturating_sub(range.start);
        for row in object.content.blobs.iter().filter(|row| row.form == BlobForm::Delta) {
            #[expect(clippy::cast_precision_loss, reason = "a rough share")]
            let share = len as f32 / row.plain_len.max(1) as f32;
            self.heat.note(row.id, share, Instant::now());
        }
    }
}

/// What every piece of one read needs.
struct Reader {
    engine: Arc<Engine>,
    bucket: BucketHandle,
    blobs: HashMap<BlobKey, BlobRow>,
    _pin: Arc<Pin>,
}

/// One piece.
enum Piece {
    /// Bytes of one segment.
    Segment { blob: BlobKey, index: u64, segment: Segment, within: Range<u32> },
    /// Bytes of a row's content that lie in an original.
    Original { blob: BlobKey, range: Range<u64> },
}

/// A piece being fetched; aborted when the client goes away.
struct Running(JoinHandle<Result<Bytes, EngineError>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct ReadAhead {
    reader: Arc<Reader>,
    /// Ranges of blobs not cut into pieces yet.
    runs: VecDeque<(BlobKey, Range<u64>)>,
    /// Pieces of the current segment.
    within: VecDeque<Piece>,
    running: VecDeque<Running>,
    first: bool,
}

impl ReadAhead {
    async fn next(&mut self) -> Result<Option<Bytes>, EngineError> {
        while self.running.len() < PIECES_AHEAD {
            let Some(piece) = self.next_piece().await? else { break };
            let cost = piece.cost();
            // What the client waits for waits for memory; what is only read ahead does not.
            let permit = match self.running.is_empty() {
                true => self.reader.engine.budget.acquire(cost).await?,
                false => match self.reader.engine.budget.try_acquire(cost) {
                    Some(permit) => permit,
                    None => {
                        self.within.push_front(piece);
                        break;
                    }
                },
            };
            let reader = self.reader.clone();
            self.running.push_back(Running(tokio::spawn(async move { reader.fetch(piece, permit).await })));
        }
        let Some(mut oldest) = self.running.pop_front() else { return Ok(None) };
        let bytes = (&mut oldest.0)
            .await
            .unwrap_or_else(|error| Err(EngineError::Other(format!("a read ended without an answer: {error}"))))?;
        Ok(Some(bytes))
    }

    async fn next_piece(&mut self) -> Result<Option<Piece>, EngineError> {
        if let Some(piece) = self.within.pop_front() {
            return Ok(Some(piece));
        }
        let Some((blob, range)) = self.runs.front_mut() else { return Ok(None) };
        let blob = *blob;
        if self.reader.row(blob)?.original.is_some() {
            let len = if std::mem::take(&mut self.first) { FIRST_RAW_PIECE_LEN.into() } else { ORIGINAL_PIECE_LEN };
            let piece = range.start..range.end.min(range.start + len);
            range.start = piece.end;
            if range.is_empty() {
                self.runs.pop_front();
            }
            return Ok(Some(Piece::Original { blob, range: piece }));
        }
        let Some((index, within)) = segments_covering(range.clone()).next() else { return Ok(None) };
        range.start += u64::from(within.end - within.start);
        if range.is_empty() {
            self.runs.pop_front();
        }
        let segment = self.reader.segment(blob, index).await?;
        if segment.coding == Coding::Raw {
            let mut at = within.start;
            while at < within.end {
                let len = if std::mem::take(&mut self.first) { FIRST_RAW_PIECE_LEN } else { RAW_PIECE_LEN };
                let end = within.end.min(at + len);
                self.within.push_back(Piece::Segment { blob, index, segment: segment.clone(), within: at..end });
                at = end;
            }
            return Ok(self.within.pop_front());
        }
        self.first = false;
        Ok(Some(Piece::Segment { blob, index, segment, within }))
    }
}

impl Piece {
    /// Bytes of memory its reading takes: stored and plain bytes, and the base bytes of a delta.
    fn cost(&self) -> u64 {
        match self {
            Self::Original { range, .. } => 2 * (range.end - range.start),
            Self::Segment { segment, within, .. } if segment.coding == Coding::Raw => {
                2 * u64::from(within.end - within.start) + (128 << 10)
            }
            Self::Segment { segment, .. } => {
                let footprint: u64 = segment.footprint.iter().map(|run| u64::from(run.len)).sum();
                u64::from(segment.plain_len) + u64::from(segment.stored_len) + footprint
            }
        }
    }
}

impl Reader {
    async fn segment(&self, blob: BlobKey, index: u64) -> Result<Segment, EngineError> {
        let manifest = self.engine.blobs.manifest(self.row(blob)?, self.bucket.domain_key()).await?;
        self.engine.blobs.segment(&manifest, index).await
    }

    fn row(&self, blob: BlobKey) -> Result<&BlobRow, EngineError> {
        self.blobs.get(&blob).ok_or_else(|| EngineError::Integrity("an extent names a blob without a row".into()))
    }

    async fn fetch(&self, piece: Piece, mut permit: Permit) -> Result<Bytes, EngineError> {
        let (blob, index, segment, within) = match piece {
            Piece::Segment { blob, index, segment, within } => (blob, index, segment, within),
            Piece::Original { blob, range } => {
                let bytes = self.engine.originals.read(self.row(blob)?, range).await?;
                permit.shrink(bytes.len() as u64);
                return Ok(held(bytes, Some(permit)));
            }
        };
        let blobs = &self.engine.blobs;
        let row = self.row(blob)?;
        let manifest = blobs.manifest(row, self.bucket.domain_key()).await?;
        let cut = within.start as usize..within.end as usize;
        let raw = segment.coding == Coding::Raw;
        let bytes = match segment.coding {
            Coding::Raw => blobs.raw_range(&manifest, &segment, within).await?,
            Coding::Zstd if row.pack => {
                // Whoever reads one member is likely to read its neighbours.
                let pack = blobs.decoded_segment(&manifest, index).await?;
                let member = pack.get(cut).ok_or_else(too_short)?.to_vec();
                permit.shrink(member.len() as u64);
                return Ok(held(member, Some(permit)));
            }
            Coding::Zstd | Coding::Delta => {
                let rows = self.engine.base_rows(&manifest).await?;
                let bases = BaseReader::new(&rows, self.bucket.domain_key());
                blobs.plain_segment(&manifest, &segment, &bases).await?
            }
        };
        permit.shrink(bytes.len() as u64);
        tracing::trace!(blob = %BlobId(blob.0), segment = index, len = cut.len(), "read");
        if raw {
            return Ok(held(bytes, Some(permit)));
        }
        let bytes = lent(bytes, permit, self.engine.pool.shelf());
        if cut.end > bytes.len() {
            return Err(too_short());
        }
        Ok(bytes.slice(cut))
    }
}

fn too_short() -> EngineError {
    EngineError::Integrity("segment shorter than its extent".into())
}

pub(super) fn from_json<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, EngineError> {
    serde_json::from_slice(bytes).map_err(|error| EngineError::Integrity(format!("cannot understand facts: {error}")))
}
