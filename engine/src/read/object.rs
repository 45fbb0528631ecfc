//! The read path: a range becomes the segments that cover it; their chunks are fetched ahead of the
//! client by a bounded window, checked, decoded on the codec pool, and streamed. No byte leaves
//! before it is checked (I4).

use crate::{
    blobs::{
        open::{BaseReader, Blobs, Manifest, segments_covering},
        originals::Originals,
        pins::{Pin, PinMoment, Pins},
        upload::held,
    },
    bucket::{BucketHandle, RowPlace, digest_of},
    deployment::keyring::random,
    error::EngineError,
    facts::{VersionFacts, from_json},
    metrics::Metrics,
    read::{adoption::Adopter, base_rows::BaseRows, heat::Heat, opened::OpenedRow},
    resources::{
        budget::{MemoryBudget, Permit, Slot},
        buffers::lent,
        clock::now_ms,
        pool::{CodecPool, HERE_LEN_MAX},
    },
};
use bytes::Bytes;
use catalog::{BlobKey, BlobRow, Catalog, CatalogError, Content, Extent, Version, VersionId, VersionLock, VersionRef};
use futures::{StreamExt, stream::BoxStream};
use object_format::{BlobId, Coding, SEGMENT_LEN, Segment};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

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

/// A current version with its facts opened.
#[derive(Clone, Debug)]
pub struct ObjectInfo {
    /// The row (size, Last-Modified, version id).
    pub version: Version,
    /// Its facts.
    pub facts: VersionFacts,
}

/// A version ready to be read: holds its blobs against collection until dropped. Their bases are
/// held by edges (I3).
pub struct OpenObject {
    /// What it is.
    pub info: ObjectInfo,
    /// Logical lengths of its extents, in order.
    pub extent_lens: Vec<u64>,
    pub(crate) content: Content,
    bucket: BucketHandle,
    pin: Arc<Pin>,
}

impl OpenObject {
    /// Whether some of its content lies in originals.
    pub fn is_foreign(&self) -> bool {
        self.content.blobs.iter().any(|row| row.original.is_some())
    }

    /// True when a copy of it to a bucket is a row, not bytes. Adopted content is copied into blobs
    /// of our own.
    pub fn shares_extents(&self, to: &BucketHandle) -> bool {
        self.bucket.row.id == to.row.id && !self.is_foreign()
    }
}

/// What the name of a version leads to.
pub enum Named<T> {
    /// An object.
    Object(T),
    /// A delete marker, which has no content.
    Marker(Version),
}

/// What reading takes: rows from the catalog, blobs, and memory for what is read ahead.
pub struct ReadPath {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    /// Base rows of deltas, by their ids.
    pub(crate) base_rows: BaseRows,
    pub(crate) pins: Arc<Pins>,
    pub(crate) heat: Arc<Heat>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) pool: Arc<CodecPool>,
    pub(crate) originals: Arc<Originals>,
    pub(crate) adopter: Arc<Adopter>,
    pub(crate) metrics: Arc<Metrics>,
}

impl ReadPath {
    /// Forgets the rows of bases.
    pub(crate) fn drop_caches(&self) {
        self.base_rows.invalidate_all();
    }

    /// A key's current version and facts; in a bucket that reads through, one that is only in the
    /// original store is adopted first.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or the row is not what was sealed.
    pub async fn head(&self, bucket: &BucketHandle, key: &str) -> Result<Option<ObjectInfo>, EngineError> {
        loop {
            match self.catalog.current(bucket.row.id, key).await? {
                Some(version) => return Ok(Some(ObjectInfo { facts: self.open_facts(bucket, &version)?, version })),
                None if self.adopter.adopt_on_read(bucket, key).await? => {}
                None => return Ok(None),
            }
        }
    }

    /// The delete marker that hides a key; `None` when nothing does. Costs nothing in a bucket that
    /// never kept versions.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails.
    pub async fn newest_marker(&self, bucket: &BucketHandle, key: &str) -> Result<Option<Version>, EngineError> {
        if bucket.row.versioning.is_off() {
            return Ok(None);
        }
        Ok(self.catalog.newest_marker(bucket.row.id, key).await?)
    }

    /// A version by its name, and its facts; the null version of a key may be adopted first, as by
    /// [`ReadPath::head`].
    ///
    /// # Errors
    /// As [`ReadPath::head`].
    pub async fn head_version(
        &self,
        bucket: &BucketHandle,
        key: &str,
        version: VersionRef,
    ) -> Result<Option<Named<ObjectInfo>>, EngineError> {
        let Some(content) = self.named_version(bucket, key, version).await? else { return Ok(None) };
        if content.version.marker {
            return Ok(Some(Named::Marker(content.version)));
        }
        let facts = self.open_facts(bucket, &content.version)?;
        Ok(Some(Named::Object(ObjectInfo { facts, version: content.version })))
    }

    /// A version by its name, pinned for reading; otherwise as [`ReadPath::head_version`].
    ///
    /// # Errors
    /// As [`ReadPath::open_object`].
    pub async fn open_version(
        &self,
        bucket: &BucketHandle,
        key: &str,
        version: VersionRef,
    ) -> Result<Option<Named<OpenObject>>, EngineError> {
        for _ in 0..8 {
            let look = self.pins.look();
            let Some(content) = self.named_version(bucket, key, version).await? else { return Ok(None) };
            if content.version.marker {
                return Ok(Some(Named::Marker(content.version)));
            }
            let facts = self.open_facts(bucket, &content.version)?;
            match self.open_seen(look, bucket, content, facts) {
                // A blob was purged meanwhile: the version is gone, or stored otherwise, by now.
                Err(EngineError::Conflict) => {}
                outcome => return outcome.map(|object| Some(Named::Object(object))),
            }
        }
        Err(EngineError::Busy("the version is being replaced all the time"))
    }

    /// A version by the id that its writer gave it, whatever it is called; `None` when it was
    /// replaced or deleted.
    ///
    /// # Errors
    /// As [`ReadPath::head`].
    pub async fn committed(
        &self,
        bucket: &BucketHandle,
        key: &str,
        id: VersionId,
    ) -> Result<Option<ObjectInfo>, EngineError> {
        let Some(content) = self.catalog.version(bucket.row.id, key, id).await? else { return Ok(None) };
        let facts = self.open_facts(bucket, &content.version)?;
        Ok(Some(ObjectInfo { facts, version: content.version }))
    }

    async fn named_version(
        &self,
        bucket: &BucketHandle,
        key: &str,
        version: VersionRef,
    ) -> Result<Option<Content>, EngineError> {
        let find = async || self.catalog.named_version(bucket.row.id, key, version).await;
        match find().await? {
            None if version == VersionRef::Null && self.adopter.adopt_on_read(bucket, key).await? => Ok(find().await?),
            found => Ok(found),
        }
    }

    /// Opens a version's facts (a listing's rows).
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when the row is not what was written.
    pub fn open_facts(&self, bucket: &BucketHandle, version: &Version) -> Result<VersionFacts, EngineError> {
        let metrics = &self.metrics;
        let opened = bucket.open_facts(RowPlace::of(version), &version.facts);
        let facts = opened.inspect_err(|_| metrics.aead_failures_total.with_label_values(&["row"]).inc())?;
        from_json(&facts).inspect_err(|_| metrics.checksum_failures_total.with_label_values(&["row"]).inc())
    }

    /// A key's current version, pinned for reading, adopted first as by [`ReadPath::head`]; `None`
    /// when there is none.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or the row is not what was sealed.
    pub async fn open_object(&self, bucket: &BucketHandle, key: &str) -> Result<Option<OpenObject>, EngineError> {
        tracing::trace!(target: "path", "open_object()");
        for _ in 0..8 {
            let look = self.pins.look();
            let Some(content) = self.current_content(bucket, key).await? else {
                if self.adopter.adopt_on_read(bucket, key).await? {
                    continue;
                }
                return Ok(None);
            };
            let facts = self.open_facts(bucket, &content.version)?;
            match self.open_seen(look, bucket, content, facts) {
                // A blob was purged meanwhile: the key has another version by now.
                Err(EngineError::Conflict) => {}
                outcome => return outcome.map(Some),
            }
        }
        Err(EngineError::Busy("the key is being replaced all the time"))
    }

    /// From the catalog, always: a version that is kept anywhere else may not be the current one
    /// (E16).
    async fn current_content(&self, bucket: &BucketHandle, key: &str) -> Result<Option<Content>, CatalogError> {
        #[cfg(feature = "mutant-stale-cache")]
        return super::stale::content(&*self.catalog, bucket.row.id, key).await;
        #[cfg(not(feature = "mutant-stale-cache"))]
        self.catalog.content(bucket.row.id, key).await
    }

    /// Pins some content. [`EngineError::Conflict`] when one of its blobs is being purged.
    pub(crate) fn open_content(
        &self,
        bucket: &BucketHandle,
        content: Content,
        facts: VersionFacts,
    ) -> Result<OpenObject, EngineError> {
        self.open_seen(self.pins.look(), bucket, content, facts)
    }

    /// A blob's whole content, ready to be read.
    pub(crate) fn open_stored(&self, bucket: &BucketHandle, row: &BlobRow) -> Result<OpenObject, EngineError> {
        self.open_extents(bucket, vec![Extent { blob: row.id, offset: 0, len: row.plain_len }], vec![row.clone()])
    }

    /// Content that need not be anybody's, ready to be read.
    pub(crate) fn open_extents(
        &self,
        bucket: &BucketHandle,
        extents: Vec<Extent>,
        blobs: Vec<BlobRow>,
    ) -> Result<OpenObject, EngineError> {
        let version = Version {
            bucket: bucket.row.id,
            key: String::new(),
            id: VersionId(random()?),
            seq: 0,
            modified_ms: now_ms(),
            size: extents.iter().map(|extent| extent.len).sum(),
            extents_digest: digest_of(&extents),
            facts: Vec::new(),
            named: false,
            marker: false,
            lock: VersionLock::default(),
        };
        self.open_content(bucket, Content { version, extents, blobs }, VersionFacts::default())
    }

    /// Pins content that the catalog named after `look`. [`EngineError::Conflict`] when one of its
    /// blobs was purged since, or is being purged.
    pub(crate) fn open_seen(
        &self,
        look: PinMoment,
        bucket: &BucketHandle,
        content: Content,
        facts: VersionFacts,
    ) -> Result<OpenObject, EngineError> {
        if digest_of(&content.extents) != content.version.extents_digest {
            return Err(EngineError::Integrity("a version's extents are not those it was written with".into()));
        }
        let blobs = content.blobs.iter().map(|row| BlobId(row.id.0));
        let pin = self.pins.pin_seen(look, blobs).ok_or(EngineError::Conflict)?;
        Ok(OpenObject {
            extent_lens: content.extents.iter().map(|extent| extent.len).collect(),
            info: ObjectInfo { version: content.version.clone(), facts },
            content,
            bucket: bucket.clone(),
            pin: Arc::new(pin),
        })
    }

    /// The rows of the whole blobs a delta needs, kept with its id: edges do not change while it
    /// lives.
    pub(crate) async fn base_rows(&self, delta: &Manifest) -> Result<Arc<Vec<BlobRow>>, EngineError> {
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

    /// Streams a range of the content (`range.end <= size`), verified before it leaves (I4). The
    /// stream holds the pins. The first item is ready before any later failure: a caller that
    /// awaits it can still answer with an error status.
    pub fn read(
        self: &Arc<Self>,
        object: &OpenObject,
        range: Range<u64>,
    ) -> BoxStream<'static, Result<Bytes, EngineError>> {
        let reader = Arc::new(Reader {
            path: self.clone(),
            bucket: object.bucket.clone(),
            blobs: object.content.blobs.iter().map(|row| (row.id, row.clone())).collect(),
            opened: OpenedRow::default(),
            _pin: object.pin.clone(),
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
        let (within, running) = (VecDeque::new(), VecDeque::new());
        let ahead = ReadAhead { reader, runs, within, running, first: true, request_len: 0, slot: Slot::default() };
        futures::stream::try_unfold(
            ahead,
            |mut ahead| async move { Ok(ahead.next().await?.map(|bytes| (bytes, ahead))) },
        )
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
    /// Bytes of a raw segment that are read at a time.
    request_len: u32,
    /// What this stream holds for as long as it lives.
    slot: Slot,
}

impl ReadAhead {
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
        let short =
            matches!(piece, Piece::Segment { within, .. } if u64::from(within.end - within.start) <= HERE_LEN_MAX);
        short && self.runs.is_empty() && self.within.is_empty() && self.running.is_empty()
    }

    /// What any piece of this stream will take, as far as the first one tells.
    fn most(&self, piece: &Piece) -> u64 {
        let cut = |piece: &Piece| match piece {
            Piece::Original { range, .. } => range.end - range.start,
            Piece::Segment { within, .. } => u64::from(within.end - within.start),
        };
        let runs = self.runs.iter().map(|(_, range)| range.end - range.start).sum::<u64>();
        let left = cut(piece) + self.within.iter().map(cut).sum::<u64>() + runs;
        match piece {
            Piece::Original { .. } => 2 * left.min(ORIGINAL_PIECE_LEN),
            Piece::Segment { segment, .. } if segment.coding == Coding::Raw => {
                2 * left.min(self.request_len.into()) + RAW_OVERHEAD
            }
            Piece::Segment { .. } if runs == 0 => piece.cost(),
            Piece::Segment { .. } => piece.cost().max(2 * SEGMENT_LEN as u64 + (1 << 20)),
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
            return Ok(Some(Piece::Original { blob, range: piece }));
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
                2 * u64::from(within.end - within.start) + RAW_OVERHEAD
            }
            Self::Segment { segment, .. } => {
                let footprint: u64 = segment.footprint.iter().map(|run| u64::from(run.len)).sum();
                let text = if segment.coding == Coding::View { VIEW_WORK_BYTES } else { 0 };
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

    async fn fetch(&self, piece: Piece, mut permit: Permit) -> Result<Bytes, EngineError> {
        let (blob, index, segment, within) = match piece {
            Piece::Segment { blob, index, segment, within } => (blob, index, segment, within),
            Piece::Original { blob, range } => {
                let bytes = Box::pin(self.path.originals.read(self.row(blob)?, range)).await?;
                permit.shrink(bytes.len() as u64);
                return Ok(held(bytes, Some(permit)));
            }
        };
        let blobs = &self.path.blobs;
        let row = self.row(blob)?;
        let key = self.bucket.key_of(row)?;
        let manifest = self.manifest(row).await?;
        let cut = within.start as usize..within.end as usize;
        let bytes = match segment.coding {
            Coding::Raw => {
                let bytes = blobs.raw_range(&manifest, &segment, within).await?;
                permit.shrink(bytes.len() as u64);
                return Ok(held(bytes, Some(permit)));
            }
            Coding::Zstd if row.pack => {
                // Whoever reads one member is likely to read its neighbours.
                let pack = Box::pin(blobs.decoded_segment(&manifest, index)).await?;
                let member = pack.get(cut).ok_or_else(too_short)?.to_vec();
                permit.shrink(member.len() as u64);
                return Ok(held(member, Some(permit)));
            }
            Coding::View => {
                let rows = self.path.base_rows(&manifest).await?;
                let bases = BaseReader::new(&rows, key.as_deref());
                let bytes = Box::pin(blobs.view_range(&manifest, &segment, within, &bases)).await?;
                permit.shrink(bytes.len() as u64);
                return Ok(held(bytes, Some(permit)));
            }
            Coding::Zstd | Coding::Planes | Coding::Delta => {
                let rows = self.path.base_rows(&manifest).await?;
                let bases = BaseReader::new(&rows, key.as_deref());
                Box::pin(blobs.plain_segment(&manifest, &segment, &bases)).await?
            }
        };
        permit.shrink(bytes.len() as u64);
        tracing::trace!(blob = %BlobId(blob.0), segment = index, len = cut.len(), "read");
        let bytes = lent(bytes, Some(permit), self.path.pool.shelf());
        if cut.end > bytes.len() {
            return Err(too_short());
        }
        Ok(bytes.slice(cut))
    }
}

fn too_short() -> EngineError {
    EngineError::Integrity("segment shorter than its extent".into())
}
