//! The first half of a write: the body is read once, hashed, cut into segments, encoded on the
//! codec pool and streamed towards the backend while it arrives. The body is never needed whole in
//! memory.
//!
//! ```text
//! body -> segment -> hash lane (in order)
//!                 \-> codec pool (in parallel) -> seal (in order) -> outlet -> backend
//! ```

use crate::{
    Destination, Engine,
    bases::{
        base::{Avoided, BaseObject, RegionOutcome},
        choose::{Candidate, Choice, ChoiceAccount, Proven, Wish},
        plan::{self, BaseOutcome, DELTA_LEN_MIN, INLINE_LEN_MAX},
        region::Region,
        similar::{HeadFuture, REGION_LEN, RegionSketch, SketchLane},
        window::BasePiece,
    },
    blobs::{
        pins::Pin,
        upload::{Outlet, held},
    },
    bucket::BucketHandle,
    config::{BucketSettings, Compression},
    deployment::keyring::random,
    error::{EngineError, StoreError},
    resources::budget::Permit,
    write::{
        effort::{self, Load, Trying},
        encode::{EncodedSegment, SegmentPlan, Trials, encode_segment},
        parts::PartsOf,
        view::VIEW_RANGES_MAX,
        views::BaseView,
    },
};
use bytes::Bytes;
use catalog::FormBytes;
use deflate_view::may_hold_streams;
use delta_codec::Effort;
use futures::{
    FutureExt, Stream,
    future::{BoxFuture, Shared},
};
use object_format::{BlobId, BlobKind, BlobSpec, BlobWriter, Coding, SEGMENT_LEN, Seal, Segment, ViewRange};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

mod body;
mod views;

pub use body::{BodyDigest, ContentDigest};
use body::{BodyReader, HashLane};

/// Most plain bytes of one blob: S3's limit for one PUT and one part.
pub(crate) const BLOB_PLAIN_LEN_MAX: u64 = 5 << 30;
/// Sealing up to this many bytes happens where it is: it takes microseconds.
const SEAL_INLINE_LEN_MAX: usize = 64 << 10;
/// Shorter pieces wait for the next one. A backend that gathers parts copies short pieces together,
/// and a copy holds no permit (I8).
const PIECE_LEN_MIN: usize = 64 << 10;
/// Memory beside a segment's bytes: tables, small buffers.
const SEGMENT_OVERHEAD: u64 = 64 << 10;
/// Memory of a full segment while it is encoded.
const SEGMENT_BYTES: u64 = 2 * SEGMENT_LEN as u64 + SEGMENT_OVERHEAD;

/// A body that has been read to its end and encoded, but is neither visible nor durable. Dropping
/// it abandons it.
pub struct Staged<T> {
    /// What the digest gave.
    pub digests: T,
    /// SHA-256 of the body.
    pub sha256: [u8; 32],
    /// Body bytes.
    pub plain_len: u64,
    pub(crate) content: StagedContent,
}

/// A blob but for its manifest.
pub(crate) struct StagedContent {
    pub(crate) id: BlobId,
    pub(crate) writer: BlobWriter,
    /// Sealed bytes not sent on yet.
    pub(crate) tail: Vec<u8>,
    /// What they hold of the budget once the blob is on its way.
    pub(crate) tail_permit: Option<Permit>,
    /// `None` while the blob is short enough to live in the catalog.
    pub(crate) outlet: Option<Outlet>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) footprints: Vec<Vec<BasePiece>>,
    /// The base view where it is settled, and what it is of; otherwise it follows from the
    /// footprints.
    pub(crate) view: Option<(Vec<ViewRange>, Arc<BaseView>)>,
    pub(crate) forms: FormBytes,
    pub(crate) plain_len: u64,
    /// What its regions resemble; empty where that does not matter.
    pub(crate) sketches: Vec<RegionSketch>,
    /// The bases of its regions and how they were chosen; holds the bases against collection.
    pub(crate) choices: Vec<Arc<Choice>>,
    pub(crate) base_outcome: BaseOutcome,
    /// It is to be encoded better later.
    pub(crate) deferred: bool,
    /// Keeps base blobs from being collected until the commit has its edges; the windows themselves
    /// go as soon as their segments are encoded.
    pub(crate) pins: Vec<Arc<Vec<Pin>>>,
}

impl Engine {
    /// Reads, hashes, encodes and streams a body towards the backend. `len` is its exact length
    /// when known.
    ///
    /// # Errors
    /// [`StoreError::Body`] when the body fails (with its own error), [`StoreError::Engine`]
    /// otherwise. Nothing is left behind.
    pub async fn stage<S, E, D>(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        destination: Destination,
        len: Option<u64>,
        body: S,
        digest: D,
    ) -> Result<Staged<D::Output>, StoreError<E>>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
        E: Send,
        D: BodyDigest,
    {
        if len.is_some_and(|len| len > BLOB_PLAIN_LEN_MAX) {
            return Err(EngineError::TooLarge.into());
        }
        // Asked again at the commit; here it spares the body's way.
        self.safety.may_write().await?;
        self.admit_upload(&bucket.settings.backend).await?;
        let short = len.is_some_and(|len| len < DELTA_LEN_MIN);
        let wanted = bucket.settings.compression == Compression::Delta && !short;
        let trying = self.trying(bucket);
        let search = match trying.effort() {
            _ if !wanted => Search::Ended(BaseOutcome::NotWanted),
            Some(_) => Search::Wanted { avoid: Avoided::default() },
            None => Search::Ended(BaseOutcome::Deferred),
        };
        let manner = self.arriving(bucket, self.target_of(&destination, len), search, trying);
        self.stage_with(bucket, manner, body, digest).await
    }

    fn arriving(&self, bucket: &BucketHandle, target: Target, search: Search, trying: Trying) -> Manner {
        let watch_streams = self.config.convert.defer && bucket.settings.compression == Compression::Delta;
        // Half of the memory for segments at most, so that a window finds room beside them: one
        // more is being emitted, and one waits for its place.
        let room = self.budget.work_bytes() / 2 / SEGMENT_BYTES;
        let jobs = (self.pool.threads() + 1).min(usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(2)).max(1);
        Manner { target, search, trying, jobs, watch_streams }
    }

    /// The same without looking for a base: the way out when a base vanished before the commit
    /// (E3).
    pub(crate) async fn stage_whole<S, D>(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        destination: &Destination,
        body: S,
        digest: D,
    ) -> Result<Staged<D::Output>, StoreError<EngineError>>
    where
        S: Stream<Item = Result<Bytes, EngineError>> + Send + Unpin,
        D: BodyDigest,
    {
        let (search, trying) = (Search::Ended(BaseOutcome::None), self.trying(bucket));
        let manner = self.arriving(bucket, self.target_of(destination, None), search, trying);
        self.stage_with(bucket, manner, body, digest).await
    }

    /// How a body that arrives now is encoded.
    fn trying(&self, bucket: &BucketHandle) -> Trying {
        let BucketSettings { effort, compression, .. } = bucket.settings;
        Trying::on_arrival(effort, compression, self.effort.control(Instant::now()), self.config.convert.defer)
    }

    fn target_of(&self, destination: &Destination, len: Option<u64>) -> Target {
        let key = destination.key().to_owned();
        match destination {
            Destination::Object { .. } => {
                Target { key, start: 0, part: None, len, reach: plan::reach_of(len), proven: Arc::default() }
            }
            Destination::Part { upload, number, .. } => {
                let PartsOf { longest, proven } = self.parts_seen.note(*upload, len.unwrap_or(0));
                // Parts of one upload have one length, but for the last. All are to share their
                // windows.
                let start = u64::from(number.saturating_sub(1)) * longest;
                Target { key, start, part: Some(*number), len, reach: plan::reach_of(None), proven }
            }
        }
    }

    /// Reads, hashes, encodes and streams a body towards the backend in a manner that is settled.
    pub(crate) async fn stage_with<S, E, D>(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        mut manner: Manner,
        body: S,
        digest: D,
    ) -> Result<Staged<D::Output>, StoreError<E>>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
        E: Send,
        D: BodyDigest,
    {
        let len = manner.target.len;
        manner.trying = manner.trying.within_budget(self.budget.bytes_max());
        let _work = match manner.trying.effort() {
            Some(Effort::Max) => Some(self.budget.acquire(effort::MAX_WORK_BYTES).await?),
            _ => None,
        };
        let mut encoding = Encoding::start(self, bucket, manner)?;
        // Sketches serve the choice of bases, and later choices of what is stored whole now.
        let mut sketching = (bucket.settings.compression == Compression::Delta)
            .then(|| SketchLane::new(self.hash_pool.clone(), bucket.similarity_secret()));
        let mut hashing = HashLane::new(self.hash_pool.clone(), digest);
        let mut reader = BodyReader::new(body);
        let mut plain_len = 0;
        while !reader.ended {
            let room = len.map_or(SEGMENT_LEN as u64, |len| (len - plain_len).min(SEGMENT_LEN as u64)).max(1);
            let asked = Instant::now();
            let room = usize::try_from(room).unwrap_or(SEGMENT_LEN);
            let arrived = reader.fill(room, self.budget.arriving(), &self.spool).await?;
            let upload = asked.elapsed();
            let permit = self.budget.acquire(2 * arrived.len() as u64 + SEGMENT_OVERHEAD).await?;
            let plain = arrived.into_memory().await?;
            if plain.is_empty() {
                break;
            }
            plain_len += plain.len() as u64;
            if plain_len > len.unwrap_or(BLOB_PLAIN_LEN_MAX) {
                return Err(EngineError::TooLarge.into());
            }
            let plain = Arc::new(plain);
            hashing.push(plain.clone()).await?;
            let head = match &mut sketching {
                Some(sketching) => sketching.push(&plain, !encoding.has_base()).await?,
                None => None,
            };
            encoding.push(plain, head, permit, upload).await?;
        }
        let sketched = async {
            match sketching {
                Some(sketching) => sketching.finish().await,
                None => Ok(Vec::new()),
            }
        };
        let (hashed, sketches, content) = futures::join!(hashing.finish(), sketched, encoding.finish());
        let ((digests, sha256), mut content) = (hashed?, content?);
        content.sketches = sketches?;
        Ok(Staged { digests, sha256, plain_len, content })
    }
}

impl Destination {
    /// The key it will be stored under.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Object { key } | Self::Part { key, .. } => key,
        }
    }
}

/// What a spawned task gave; its panic is an error like any other.
async fn joined<T>(task: JoinHandle<Result<T, EngineError>>) -> Result<T, EngineError> {
    task.await.unwrap_or_else(|error| Err(EngineError::Other(format!("a task ended without an answer: {error}"))))
}

/// How a body is encoded.
pub(crate) struct Manner {
    /// What it is.
    pub(crate) target: Target,
    /// What it differs from.
    pub(crate) search: Search,
    /// How hard the codec tries.
    pub(crate) trying: Trying,
    /// Segments that are encoded at the same time, at most.
    pub(crate) jobs: usize,
    /// Whether content with deflate streams is to be encoded again later, with these opened.
    pub(crate) watch_streams: bool,
}

/// Whether a base is looked for.
#[derive(Clone)]
pub(crate) enum Search {
    /// Yes, and these blobs must not become one.
    Wanted {
        /// What is being encoded anew.
        avoid: Avoided,
    },
    /// No: it is this.
    Settled(Arc<BaseObject>),
    /// No, and why.
    Ended(BaseOutcome),
}

/// What is being encoded.
pub(crate) struct Target {
    /// Its key.
    pub(crate) key: String,
    /// Where it presumably begins in its object.
    pub(crate) start: u64,
    /// The number of the part it is, counted from one.
    pub(crate) part: Option<u32>,
    /// Its length, when known.
    pub(crate) len: Option<u64>,
    /// Base bytes worth having for a region of it.
    pub(crate) reach: u64,
    /// Which objects its regions, and other parts of its upload, have found to be good bases.
    pub(crate) proven: Arc<Proven>,
}

type CandidatesFuture = Shared<BoxFuture<'static, Arc<Vec<Candidate>>>>;
type ChoiceFuture = Shared<BoxFuture<'static, Option<Arc<Choice>>>>;
type RegionFuture = Shared<BoxFuture<'static, Option<Arc<Region>>>>;

/// A segment's way out of the codec pool.
struct Encoded {
    segment: EncodedSegment,
    plain: Arc<Vec<u8>>,
    permit: Permit,
    pins: Option<Arc<Vec<Pin>>>,
}

/// Segments on their way through the codec pool.
struct Encoding {
    engine: Arc<Engine>,
    bucket: BucketHandle,
    target: Target,
    search: Search,
    trying: Trying,
    /// Set when some segment was not tried to be encoded well.
    deferred: bool,
    /// Bytes that were pushed.
    offset: u64,
    named: Option<CandidatesFuture>,
    /// The choice of each region so far.
    choices: Vec<ChoiceFuture>,
    /// The window in use: of which choice, of which part of the object.
    region: Option<((usize, u64), RegionFuture)>,
    /// Set when some region has a base.
    found: Arc<AtomicBool>,
    /// Set when some region had a window.
    tried: Arc<AtomicBool>,
    trials: Arc<Trials>,
    view_ranges: Arc<AtomicUsize>,
    /// Set when some segment may hold deflate streams; `None` when nobody wants to know.
    deflated: Option<Arc<AtomicBool>>,
    /// Segments pushed, and of them those that have left the codec pool.
    pushed: u64,
    left_pool: watch::Sender<u64>,
    encoded: mpsc::Sender<Option<JoinHandle<Result<Encoded, EngineError>>>>,
    content: AbortOnDrop<StagedContent>,
}

struct AbortOnDrop<T>(JoinHandle<Result<T, EngineError>>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Encoding {
    fn start(engine: &Arc<Engine>, bucket: &BucketHandle, manner: Manner) -> Result<Self, EngineError> {
        let Manner { target, search, trying, jobs, watch_streams } = manner;
        // A blob of this kind may have a base view, and need not.
        let kind = if matches!(search, Search::Ended(_)) { BlobKind::Whole } else { BlobKind::Delta };
        let content = StagedContent::begin(engine, bucket, kind)?;
        let (encoded, receiver) = mpsc::channel(jobs.max(1));
        let emitting = tokio::spawn(emit(engine.clone(), bucket.clone(), content, receiver));
        let (mut named, mut choices, mut found) = (None, Vec::new(), false);
        match &search {
            Search::Wanted { avoid } => named = Some(named_candidates(engine, bucket, &target.key, avoid.clone())),
            Search::Settled(base) => {
                let choice = Some(Arc::new(Choice::settled(base.clone())));
                choices.push(async move { choice }.boxed().shared());
                found = true;
            }
            Search::Ended(_) => {}
        }
        Ok(Self {
            engine: engine.clone(),
            bucket: bucket.clone(),
            target,
            search,
            trying,
            deferred: false,
            offset: 0,
            named,
            choices,
            region: None,
            found: Arc::new(AtomicBool::new(found)),
            tried: Arc::default(),
            trials: Arc::default(),
            view_ranges: Arc::default(),
            deflated: watch_streams.then(Arc::default),
            pushed: 0,
            left_pool: watch::Sender::default(),
            encoded,
            content: AbortOnDrop(emitting),
        })
    }

    /// True when a region has found a base: the body will hardly be stored whole.
    fn has_base(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }

    /// Takes the next segment; `head` comes with the first one of a region, `upload` is how long
    /// the client took to send it.
    async fn push(
        &mut self,
        plain: Arc<Vec<u8>>,
        head: Option<HeadFuture>,
        permit: Permit,
        upload: Duration,
    ) -> Result<(), EngineError> {
        if matches!(self.trying, Trying::ByLoad { .. }) {
            let load = Load { queue: self.engine.pool.queue_time(), upload };
            self.trying.note(load);
            self.engine.effort.note(load, Instant::now());
        }
        let effort = self.trying.effort();
        self.engine.metrics.effort_level.set(effort_level(effort));
        self.deferred |= effort.is_none();
        if let (Some(named), Some(head)) = (&self.named, head) {
            self.choices.push(self.choice(named.clone(), head, plain.clone()));
        }
        let region = match effort {
            Some(_) => self.region_here(),
            None => None,
        };
        self.offset += plain.len() as u64;
        self.pushed += 1;
        let (engine, trials, deflated) = (self.engine.clone(), self.trials.clone(), self.deflated.clone());
        let left_pool = self.left_pool.clone();
        let (compression, effort) = (self.bucket.settings.compression, effort.unwrap_or(Effort::Fast));
        let job = tokio::spawn(async move {
            let region = match region {
                Some(region) => region.await,
                None => None,
            };
            let pins = region.as_ref().map(|region| region.pins.clone());
            let how = SegmentPlan { compression, effort, region, trials };
            let (metrics, bytes) = (engine.metrics.clone(), plain.clone());
            let encoding = engine.pool.run(move |scratch| {
                if let Some(deflated) = deflated.filter(|deflated| !deflated.load(Ordering::Relaxed)) {
                    deflated.fetch_or(may_hold_streams(&bytes), Ordering::Relaxed);
                }
                encode_segment(scratch, &bytes, &how, &metrics)
            });
            let segment = encoding.await;
            left_pool.send_modify(|count| *count += 1);
            let segment = segment?;
            Ok(Encoded { segment, plain, permit, pins })
        });
        if self.encoded.send(Some(job)).await.is_err() {
            return Err(joined_content(&mut self.content)
                .await
                .err()
                .unwrap_or_else(|| EngineError::Other("encoding stopped".into())));
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<StagedContent, EngineError> {
        // A full channel is drained by the emitter; a closed one says why below.
        let _ = self.encoded.send(None).await;
        let mut content = joined_content(&mut self.content).await?;
        for choice in &self.choices {
            content.choices.extend(choice.clone().await);
        }
        content.base_outcome = match self.deferred {
            true => BaseOutcome::Deferred,
            false => self.outcome(&content.choices),
        };
        content.deferred = content.plain_len >= DELTA_LEN_MIN
            && (self.deferred
                || matches!(self.trying, Trying::Fixed { later: true, .. })
                || self.deflated.is_some_and(|deflated| deflated.load(Ordering::Relaxed)));
        Ok(content)
    }

    /// How the search ended, over all regions: what happened to the first one, unless some region
    /// had a base.
    fn outcome(&self, choices: &[Arc<Choice>]) -> BaseOutcome {
        match self.search {
            Search::Ended(outcome) => outcome,
            _ if self.tried.load(Ordering::Relaxed) => BaseOutcome::Tried,
            _ if self.has_base() => BaseOutcome::Busy,
            _ => choices.first().map_or(BaseOutcome::None, |choice| choice.outcome),
        }
    }

    /// The choice of bases for the region that begins with the next segment, being made from now
    /// on.
    fn choice(&self, named: CandidatesFuture, head: HeadFuture, first: Arc<Vec<u8>>) -> ChoiceFuture {
        let (engine, bucket, found) = (self.engine.clone(), self.bucket.clone(), self.found.clone());
        let (offset, position, part) = (self.offset, self.target.start + self.offset, self.target.part);
        let (reach, effort) = (self.target.reach, self.trying.effort().unwrap_or(Effort::Fast));
        let avoid = match &self.search {
            Search::Wanted { avoid } => avoid.clone(),
            Search::Settled(_) | Search::Ended(_) => Avoided::default(),
        };
        let left = self.target.len.map_or(first.len() as u64, |len| len.saturating_sub(offset));
        let target_bytes = left.clamp(first.len() as u64, REGION_LEN);
        let proven = self.target.proven.clone();
        let (earlier, mut left_pool) = (self.pushed, self.left_pool.subscribe());
        let choosing = tokio::spawn(async move {
            let head = head.await?;
            let named = named.await;
            if first.len() as u64 <= DELTA_LEN_MIN && offset == 0 {
                return None;
            }
            let mut wish = Wish { offset, position, part, head, first, target_bytes, reach, effort, avoid, proven };
            let mut chosen = engine.bases.choose(&bucket, &wish, &named).await;
            if chosen.as_ref().is_ok_and(|choice| choice.outcome == BaseOutcome::Busy) {
                // As for a region's window.
                left_pool.wait_for(|count| *count >= earlier).await.ok()?;
                wish.reach = reach.min(engine.bases.windows().len_max());
                chosen = engine.bases.choose(&bucket, &wish, &named).await;
            }
            match chosen {
                Ok(choice) => {
                    found.fetch_or(!choice.bases.is_empty(), Ordering::Relaxed);
                    Some(Arc::new(choice))
                }
                Err(error) => {
                    tracing::warn!(%error, "no base could be chosen: stored without one");
                    None
                }
            }
        });
        async move { choosing.await.ok().flatten() }.boxed().shared()
    }

    /// The window for the next segment, being loaded from its first use on.
    fn region_here(&mut self) -> Option<RegionFuture> {
        let choice = self.choices.last()?.clone();
        let position = self.target.start + self.offset;
        let index = (self.choices.len(), position / self.engine.bases.windows().region_len());
        if let Some((current, region)) = &self.region
            && *current == index
        {
            return Some(region.clone());
        }
        let (engine, bucket, reach) = (self.engine.clone(), self.bucket.clone(), self.target.reach);
        let (view_ranges, tried) = (self.view_ranges.clone(), self.tried.clone());
        let (earlier, mut left_pool) = (self.pushed, self.left_pool.subscribe());
        let before = self.region.take().map(|(_, region)| region);
        let loading = tokio::spawn(async move {
            let choice = choice.await.filter(|choice| !choice.bases.is_empty())?;
            // Windows come in the order of their regions: none holds what an earlier one waits for.
            if let Some(before) = before {
                before.await;
            }
            let mut outcome = engine.bases.region(&bucket, &choice.bases, position, reach).await;
            if let Ok(RegionOutcome::Busy) = outcome {
                // The memory may be with this body's earlier segments. They need nothing of what
                // comes after them, so they can be waited for however long they take. What later
                // ones hold leaves room for a small window.
                left_pool.wait_for(|count| *count >= earlier).await.ok()?;
                let reach = reach.min(engine.bases.windows().len_max());
                outcome = engine.bases.region(&bucket, &choice.bases, position, reach).await;
            }
            match outcome {
                Ok(RegionOutcome::Ready(region)) => {
                    // Every piece may become a range of the blob's view, which holds so many.
                    let pieces = region.window.piece_count();
                    let before = view_ranges.fetch_add(pieces, Ordering::Relaxed);
                    tried.store(true, Ordering::Relaxed);
                    (before + pieces <= VIEW_RANGES_MAX).then_some(region)
                }
                Ok(RegionOutcome::Nothing | RegionOutcome::Busy) => None,
                Err(error) => {
                    tracing::warn!(%error, "a base window could not be loaded: stored without it");
                    None
                }
            }
        });
        let region = async move { loading.await.ok().flatten() }.boxed().shared();
        self.region = Some((index, region.clone()));
        Some(region)
    }
}

/// What the key's name leads to, being looked up from now on.
fn named_candidates(engine: &Arc<Engine>, bucket: &BucketHandle, key: &str, avoid: Avoided) -> CandidatesFuture {
    let (engine, bucket, key) = (engine.clone(), bucket.clone(), key.to_owned());
    let looking = tokio::spawn(async move {
        let found = engine.bases.named_candidates(&bucket, &key, &avoid).await;
        found.inspect_err(|error| tracing::warn!(%error, "no base by name: only by content")).unwrap_or_default()
    });
    async move { Arc::new(looking.await.unwrap_or_default()) }.boxed().shared()
}

async fn joined_content(content: &mut AbortOnDrop<StagedContent>) -> Result<StagedContent, EngineError> {
    (&mut content.0)
        .await
        .unwrap_or_else(|error| Err(EngineError::Other(format!("encoding ended without an answer: {error}"))))
}

/// Takes encoded segments in order, seals them and sends them on.
async fn emit(
    engine: Arc<Engine>,
    bucket: BucketHandle,
    mut content: StagedContent,
    mut encoded: mpsc::Receiver<Option<JoinHandle<Result<Encoded, EngineError>>>>,
) -> Result<StagedContent, EngineError> {
    loop {
        let job = match encoded.recv().await {
            Some(Some(job)) => job,
            Some(None) => return Ok(content),
            None => return Err(EngineError::Other("the upload was given up".into())),
        };
        let Encoded { segment, plain, mut permit, pins } = joined(job).await?;
        content.note(&segment);
        content.pins.extend(pins.filter(|_| segment.coding.has_base()));
        content.pins.dedup_by(|a, b| Arc::ptr_eq(a, b));
        let stored_len = segment.stored.as_ref().map_or(plain.len(), Vec::len);
        if bucket.is_sealed() {
            engine.metrics.seal_bytes_total.with_label_values(&["seal"]).inc_by(stored_len as u64);
        }
        content = if stored_len <= SEAL_INLINE_LEN_MAX {
            content.seal(&segment, &plain)?
        } else {
            engine.pool.run(move |_| content.seal(&segment, &plain)).await??
        };
        if content.outlet.is_none() && content.plain_len > INLINE_LEN_MAX {
            content.outlet = Some(Outlet::open(engine.blobs.backend(&bucket.settings.backend)?.clone(), content.id)?);
        }
        if let Some(outlet) = &mut content.outlet {
            permit.shrink(content.tail.len() as u64);
            if content.tail.len() < PIECE_LEN_MIN {
                content.tail_permit = Some(permit);
            } else {
                content.tail_permit = None;
                outlet.send(held(std::mem::take(&mut content.tail), Some(permit))).await?;
            }
        }
    }
}

impl StagedContent {
    /// A blob of which nothing has been written.
    fn begin(engine: &Engine, bucket: &BucketHandle, kind: BlobKind) -> Result<Self, EngineError> {
        let id = BlobId::new(engine.epoch(), random()?);
        let seal = match bucket.domain_key() {
            Some(key) => Seal::Aes256Gcm { key, salt: random()? },
            None => Seal::None,
        };
        let mut tail = Vec::new();
        let writer = BlobWriter::new(BlobSpec { id, kind, seal }, &mut tail);
        Ok(Self {
            id,
            writer,
            tail,
            tail_permit: None,
            outlet: None,
            segments: Vec::new(),
            footprints: Vec::new(),
            view: None,
            forms: FormBytes::default(),
            plain_len: 0,
            sketches: Vec::new(),
            choices: Vec::new(),
            base_outcome: BaseOutcome::None,
            deferred: false,
            pins: Vec::new(),
        })
    }

    /// How its bases were chosen.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &ChoiceAccount> {
        self.choices.iter().map(|choice| &choice.account)
    }

    /// Keys of the bases that were chosen, each once.
    pub(crate) fn base_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for base in self.choices.iter().flat_map(|choice| &choice.bases) {
            if !keys.contains(&base.object.key) {
                keys.push(base.object.key.clone());
            }
        }
        keys
    }

    fn note(&mut self, encoded: &EncodedSegment) {
        let plain_len = u64::from(encoded.plain_len);
        let stored_len = encoded.stored.as_ref().map_or(plain_len, |stored| stored.len() as u64);
        match encoded.coding {
            Coding::Raw => self.forms.raw_plain += plain_len,
            Coding::Zstd => {
                self.forms.zstd_plain += plain_len;
                self.forms.zstd_stored += stored_len;
            }
            Coding::Delta | Coding::View => {
                self.forms.delta_plain += plain_len;
                self.forms.delta_stored += stored_len;
            }
        }
        self.plain_len += plain_len;
        self.segments.push(Segment {
            plain_len: encoded.plain_len,
            stored_offset: self.writer.payload_len(),
            stored_len: u32::try_from(stored_len).unwrap_or(u32::MAX),
            coding: encoded.coding,
            digest: encoded.digest,
            footprint: encoded.view_footprint.clone(),
        });
        self.footprints.push(encoded.footprint.clone());
    }

    fn seal(mut self, segment: &EncodedSegment, plain: &[u8]) -> Result<Self, EngineError> {
        let stored = segment.stored.as_deref().unwrap_or(plain);
        self.tail.reserve(stored.len() + stored.len() / 1024 + 256);
        self.writer.push(stored, &mut self.tail)?;
        Ok(self)
    }
}

/// The effort as a gauge: 0 not now, 1 fast, 2 balanced, 3 high, 4 max.
fn effort_level(effort: Option<Effort>) -> f64 {
    match effort {
        None => 0.0,
        Some(Effort::Fast) => 1.0,
        Some(Effort::Balanced) => 2.0,
        Some(Effort::High) => 3.0,
        Some(Effort::Max) => 4.0,
    }
}
