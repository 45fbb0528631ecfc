//! Segments through the codec pool: bases are chosen, windows loaded, segments encoded side by side
//! and sealed in order.

use crate::{
    bases::{
        base::{Avoided, BaseObject, Bases, RegionOutcome},
        choose::{Candidate, Choice, RegionTarget},
        moved::Moved,
        plan::{BaseOutcome, DELTA_LEN_MIN, INLINE_LEN_MAX},
        proven::Proven,
        region::Region,
        similar::{HeadFuture, REGION_LEN},
    },
    blobs::{
        open::Blobs,
        pins::Pin,
        upload::{Outlet, held},
    },
    bucket::BucketHandle,
    deployment::writer::Writer,
    error::EngineError,
    metrics::Metrics,
    resources::{budget::Permit, pool::CodecPool, task::joined},
    write::{
        effort::{self, Load, Trying},
        encode::{EncodedSegment, SegmentPlan, Trials, encode_segment, under},
        stage::content::{PIECE_LEN_MIN, UnfinishedBlob},
        view::VIEW_RANGES_MAX,
    },
};
use bytes::Bytes;
use deflate_view::may_hold_streams;
use delta_codec::Effort;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use object_format::{BlobId, BlobKind};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

/// Sealing up to this many bytes happens where it is: it takes microseconds.
const SEAL_INLINE_LEN_MAX: usize = 64 << 10;

/// What encoding takes.
pub(crate) struct Encoder {
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) bases: Arc<Bases>,
    pub(crate) pool: Arc<CodecPool>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) effort: effort::Shared,
    pub(crate) metrics: Arc<Metrics>,
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
    /// No: it is these, side by side.
    Settled(Vec<Arc<BaseObject>>),
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
pub(super) struct Encoded {
    pub(super) segment: EncodedSegment,
    pub(super) plain: Bytes,
    pub(super) permit: Permit,
    pub(super) pins: Option<Arc<Vec<Pin>>>,
}

/// Segments on their way through the codec pool.
pub(super) struct Encoding {
    encoder: Arc<Encoder>,
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
    /// Where in the base its content was found.
    moved: Arc<Moved>,
    /// The blobs of all windows so far: a view has a range for each at least.
    view_blobs: Arc<Mutex<HashSet<BlobId>>>,
    /// Set when some segment may hold deflate streams; `None` when nobody wants to know.
    deflated: Option<Arc<AtomicBool>>,
    /// Segments pushed, and of them those that have left the codec pool.
    pushed: u64,
    left_pool: watch::Sender<u64>,
    encoded: mpsc::Sender<Option<JoinHandle<Result<Encoded, EngineError>>>>,
    content: AbortOnDrop<Box<UnfinishedBlob>>,
}

pub(super) struct AbortOnDrop<T>(pub(super) JoinHandle<Result<T, EngineError>>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Encoding {
    pub(super) fn start(encoder: &Arc<Encoder>, bucket: &BucketHandle, manner: Manner) -> Result<Self, EngineError> {
        tracing::trace!(target: "path", "start()");
        let Manner { target, search, trying, jobs, watch_streams } = manner;
        // A blob of this kind may have a base view, and need not.
        let kind = if matches!(search, Search::Ended(_)) { BlobKind::Whole } else { BlobKind::Delta };
        let content = UnfinishedBlob::begin(encoder.writer.blob_id()?, bucket, kind)?;
        let (encoded, receiver) = mpsc::channel(jobs.max(1));
        let emitting = tokio::spawn(emit(encoder.clone(), bucket.clone(), content, receiver));
        let (mut named, mut choices, mut found) = (None, Vec::new(), false);
        match &search {
            Search::Wanted { avoid } => named = Some(named_candidates(encoder, bucket, &target.key, avoid.clone())),
            Search::Settled(bases) => {
                let choice = Some(Arc::new(Choice::settled(bases)));
                choices.push(async move { choice }.boxed().shared());
                found = true;
            }
            Search::Ended(_) => {}
        }
        Ok(Self {
            encoder: encoder.clone(),
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
            moved: Arc::default(),
            view_blobs: Arc::default(),
            deflated: watch_streams.then(Arc::default),
            pushed: 0,
            left_pool: watch::Sender::default(),
            encoded,
            content: AbortOnDrop(emitting),
        })
    }

    /// True when a region has found a base: the body will hardly be stored whole.
    pub(super) fn has_base(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }

    /// Takes the next segment; `head` comes with the first one of a region, `upload` is how long
    /// the client took to send it.
    pub(super) async fn push(
        &mut self,
        plain: Bytes,
        head: Option<HeadFuture>,
        permit: Permit,
        upload: Duration,
    ) -> Result<(), EngineError> {
        if matches!(self.trying, Trying::ByLoad { .. }) {
            let load = Load { queue: self.encoder.pool.queue_time(), upload };
            self.trying.note(load);
            self.encoder.effort.note(load, Instant::now());
        }
        let effort = self.trying.effort();
        self.encoder.metrics.effort_level.set(effort_level(effort));
        self.deferred |= effort.is_none();
        if let (Some(named), Some(head)) = (&self.named, head) {
            self.choices.push(self.choice(named.clone(), head, plain.clone()));
        }
        let region = match effort {
            Some(_) => self.region_here(),
            None => None,
        };
        let (at, veil) = (self.offset, self.bucket.veil().cloned());
        self.offset += plain.len() as u64;
        self.pushed += 1;
        let (encoder, trials, deflated) = (self.encoder.clone(), self.trials.clone(), self.deflated.clone());
        let (left_pool, moved, position) = (self.left_pool.clone(), self.moved.clone(), self.target.start + at);
        let (compression, effort) = (self.bucket.settings.compression, effort.unwrap_or(Effort::Fast));
        let job = tokio::spawn(async move {
            let region = match region {
                Some(region) => region.await,
                None => None,
            };
            let pins = region.as_ref().map(|region| region.pins.clone());
            let is_followed = region.as_ref().is_some_and(|region| region.is_followed);
            let how = SegmentPlan { compression, effort, region, trials };
            let metrics = encoder.metrics.clone();
            let encoding = encoder.pool.run(move |scratch| {
                let plain = under(veil, at, plain)?;
                if let Some(deflated) = deflated.filter(|deflated| !deflated.load(Ordering::Relaxed)) {
                    deflated.fetch_or(may_hold_streams(&plain), Ordering::Relaxed);
                }
                Ok::<_, EngineError>((encode_segment(scratch, &plain, &how, &metrics), plain))
            });
            let encoded = encoding.await;
            left_pool.send_modify(|count| *count += 1);
            let (segment, plain) = encoded??;
            match segment.found {
                Some(found) => moved.note(position, found),
                None if segment.misses_base() => moved.note_missed(is_followed),
                None => {}
            }
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

    pub(super) async fn finish(mut self) -> Result<Box<UnfinishedBlob>, EngineError> {
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
        let lies_in_text = self.deflated.is_some()
            && matches!(content.base_outcome, BaseOutcome::None | BaseOutcome::Useless)
            && content.choices.iter().any(|choice| choice.in_text);
        content.deferred = content.plain_len >= DELTA_LEN_MIN
            && (self.deferred
                || lies_in_text
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
    fn choice(&self, named: CandidatesFuture, head: HeadFuture, first: Bytes) -> ChoiceFuture {
        let (encoder, bucket, found) = (self.encoder.clone(), self.bucket.clone(), self.found.clone());
        let (offset, position, part) = (self.offset, self.target.start + self.offset, self.target.part);
        let (reach, effort) = (self.target.reach, self.trying.effort().unwrap_or(Effort::Fast));
        let avoid = match &self.search {
            Search::Wanted { avoid } => avoid.clone(),
            Search::Settled(_) | Search::Ended(_) => Avoided::default(),
        };
        let left = self.target.len.map_or(first.len() as u64, |len| len.saturating_sub(offset));
        let target_bytes = left.clamp(first.len() as u64, REGION_LEN);
        let (proven, moved) = (self.target.proven.clone(), self.moved.clone());
        let (earlier, mut left_pool) = (self.pushed, self.left_pool.subscribe());
        let choosing = tokio::spawn(async move {
            let head = head.await?;
            let named = named.await;
            if first.len() as u64 <= DELTA_LEN_MIN && offset == 0 {
                return None;
            }
            let mut wish =
                RegionTarget { offset, position, part, head, first, target_bytes, reach, effort, avoid, proven, moved };
            let mut chosen = encoder.bases.choose(&bucket, &wish, &named).await;
            if chosen.as_ref().is_ok_and(|choice| choice.outcome == BaseOutcome::Busy) {
                // As for a region's window.
                left_pool.wait_for(|count| *count >= earlier).await.ok()?;
                wish.reach = reach.min(encoder.bases.windows().len_max());
                chosen = encoder.bases.choose(&bucket, &wish, &named).await;
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
        let index = (self.choices.len(), position / self.encoder.bases.windows().region_len());
        if let Some((current, region)) = &self.region
            && *current == index
        {
            return Some(region.clone());
        }
        let (encoder, bucket, reach) = (self.encoder.clone(), self.bucket.clone(), self.target.reach);
        let (effort, is_part) = (self.trying.effort().unwrap_or(Effort::Fast), self.target.part.is_some());
        let (view_blobs, tried) = (self.view_blobs.clone(), self.tried.clone());
        let (earlier, mut left_pool) = (self.pushed, self.left_pool.subscribe());
        let (before, moved) = (self.region.take().map(|(_, region)| region), self.moved.clone());
        let loading = tokio::spawn(async move {
            let choice = choice.await.filter(|choice| !choice.bases.is_empty())?;
            // Windows come in the order of their regions: none holds what an earlier one waits for.
            if let Some(before) = before {
                before.await;
            }
            let at = (position, moved.last());
            let mut outcome = encoder.bases.region(&bucket, &choice.bases, at, reach, effort, is_part).await;
            if let Ok(RegionOutcome::Busy) = outcome {
                // The memory may be with this body's earlier segments. They need nothing of what
                // comes after them, so they can be waited for however long they take. What later
                // ones hold leaves room for a small window.
                left_pool.wait_for(|count| *count >= earlier).await.ok()?;
                let reach = reach.min(encoder.bases.windows().len_max());
                let at = (position, moved.last());
                outcome = encoder.bases.region(&bucket, &choice.bases, at, reach, effort, is_part).await;
            }
            match outcome {
                Ok(RegionOutcome::Ready(region)) => {
                    tried.store(true, Ordering::Relaxed);
                    // Gaps within a blob are closed where a view has too many ranges
                    // (`write/view.rs`); a blob more is a range more.
                    let mut blobs = view_blobs.lock().unwrap_or_else(PoisonError::into_inner);
                    let more = region.window.blobs().filter(|blob| !blobs.contains(blob)).collect::<HashSet<_>>();
                    if blobs.len() + more.len() > VIEW_RANGES_MAX {
                        return None;
                    }
                    blobs.extend(more);
                    drop(blobs);
                    Some(region)
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
fn named_candidates(encoder: &Arc<Encoder>, bucket: &BucketHandle, key: &str, avoid: Avoided) -> CandidatesFuture {
    let (encoder, bucket, key) = (encoder.clone(), bucket.clone(), key.to_owned());
    let looking = tokio::spawn(async move {
        let found = encoder.bases.named_candidates(&bucket, &key, &avoid).await;
        found
            .inspect_err(|error| tracing::warn!(%error, "base candidates could not be found by name, only by content"))
            .unwrap_or_default()
    });
    async move { Arc::new(looking.await.unwrap_or_default()) }.boxed().shared()
}

pub(super) async fn joined_content(
    content: &mut AbortOnDrop<Box<UnfinishedBlob>>,
) -> Result<Box<UnfinishedBlob>, EngineError> {
    (&mut content.0)
        .await
        .unwrap_or_else(|error| Err(EngineError::Other(format!("encoding ended without an answer: {error}"))))
}

/// Takes encoded segments in order, seals them and sends them on.
pub(super) async fn emit(
    encoder: Arc<Encoder>,
    bucket: BucketHandle,
    mut content: Box<UnfinishedBlob>,
    mut encoded: mpsc::Receiver<Option<JoinHandle<Result<Encoded, EngineError>>>>,
) -> Result<Box<UnfinishedBlob>, EngineError> {
    loop {
        let job = match encoded.recv().await {
            Some(Some(job)) => job,
            Some(None) => return Ok(content),
            None => return Err(EngineError::Other("the upload was given up".into())),
        };
        content = send_on(&encoder, &bucket, content, joined(job).await?).await?;
    }
}

/// Seals the next segment and sends it on its way.
pub(super) async fn send_on(
    encoder: &Encoder,
    bucket: &BucketHandle,
    mut content: Box<UnfinishedBlob>,
    encoded: Encoded,
) -> Result<Box<UnfinishedBlob>, EngineError> {
    let Encoded { mut segment, plain, mut permit, pins } = encoded;
    content.note(&segment);
    content.pins.extend(pins.filter(|_| segment.coding.has_base()));
    content.pins.dedup_by(|a, b| Arc::ptr_eq(a, b));
    let stored = match segment.stored.take() {
        Some(stored) => Bytes::from(stored),
        None => plain,
    };
    let stored_len = stored.len();
    if bucket.is_sealed() {
        encoder.metrics.seal_bytes_total.with_label_values(&["seal"]).inc_by(stored_len as u64);
    }
    let in_place;
    (content, in_place) = if stored_len <= SEAL_INLINE_LEN_MAX {
        content.seal(&stored)?
    } else {
        let bytes = stored.clone();
        encoder.pool.run(move |_| content.seal(&bytes)).await??
    };
    let in_place = stored.slice(in_place);
    drop(stored);
    if content.outlet.is_none() && content.plain_len > INLINE_LEN_MAX {
        content.outlet = Some(Outlet::open(encoder.blobs.backend(&bucket.settings.backend)?.clone(), content.id)?);
    }
    if let Some(outlet) = &mut content.outlet {
        if !in_place.is_empty() {
            permit.shrink((content.tail.len() + stored_len) as u64);
            outlet.send(held(std::mem::take(&mut content.tail), content.tail_permit.take())).await?;
            outlet.send(held(in_place, Some(permit))).await?;
            return Ok(content);
        }
        permit.shrink(content.tail.len() as u64);
        if content.tail.len() < PIECE_LEN_MIN {
            content.tail_permit = Some(permit);
        } else {
            content.tail_permit = None;
            outlet.send(held(std::mem::take(&mut content.tail), Some(permit))).await?;
        }
    }
    Ok(content)
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
