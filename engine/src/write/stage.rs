//! The first half of a write: the body is read once, hashed, cut into segments, encoded on the
//! codec pool and streamed towards the backend while it arrives. The body is never needed whole in
//! memory.
//!
//! ```text
//! body -> segment -> hash lane (in order)
//!                 \-> codec pool (in parallel) -> seal (in order) -> outlet -> backend
//! ```

use crate::{
    bases::{
        base::Avoided,
        plan::{self, BaseOutcome, DELTA_LEN_MIN, INLINE_LEN_MAX},
        similar::SketchLane,
    },
    blobs::piece::BLOB_PLAIN_LEN_MAX,
    bucket::BucketHandle,
    config::{BucketSettings, Compression},
    error::{EngineError, StoreError},
    recovery::Safety,
    resources::{
        budget::MemoryBudget,
        disks::Disks,
        md5_lanes::Md5Lanes,
        pool::{CodecPool, HERE_LEN_MAX},
    },
    write::{
        effort::{self, Trying},
        encode::{SegmentPlan, Trials, encode_segment, under},
        parts::{PartsOf, PartsSeen},
        spool::Spool,
    },
};
use bytes::Bytes;
use catalog::UploadId;
use delta_codec::Effort;
use futures::Stream;
use object_format::{BlobKind, SEGMENT_LEN};
use std::sync::Arc;
use tokio::time::Instant;

mod body;
pub(crate) mod content;
pub(crate) mod encoding;
pub(crate) mod views;

pub use body::{BodyDigest, ContentDigest};
use body::{BodyReader, HashLane};
use content::UnfinishedBlob;
use encoding::{Encoded, Encoder, Encoding, Manner, Search, Target, send_on};

/// Memory beside a segment's bytes: tables, small buffers.
const SEGMENT_OVERHEAD: u64 = 64 << 10;
// A short body runs on no other thread.
const _: () = assert!(DELTA_LEN_MIN <= HERE_LEN_MAX);

/// A body that has been read to its end and encoded, but is neither visible nor durable. Dropping
/// it abandons it.
pub struct StagedBody<T> {
    /// What the digest gave.
    pub digests: T,
    /// SHA-256 of what is stored of it; `None` under a veil, where nothing is its duplicate.
    pub sha256: Option<[u8; 32]>,
    /// Body bytes.
    pub plain_len: u64,
    pub(crate) content: Box<UnfinishedBlob>,
}

impl<T> StagedBody<T> {
    /// The SHA-256 of what was hashed for itself.
    pub(crate) fn hashed(&self) -> Result<[u8; 32], EngineError> {
        self.sha256.ok_or_else(|| EngineError::Other("content was staged without its SHA-256".into()))
    }
}

/// Takes bodies in: cut, hashed, encoded and on their way to the backend.
pub struct Stager {
    /// Whether what is too much to do on arrival is done later.
    pub(crate) defer: bool,
    /// Whether `auto` looks at the load.
    pub(crate) effort_by_load: bool,
    pub(crate) encoder: Arc<Encoder>,
    pub(crate) hash_pool: Arc<CodecPool>,
    pub(crate) md5_lanes: Arc<Md5Lanes>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) parts_seen: Arc<PartsSeen>,
}

impl Stager {
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
    ) -> Result<StagedBody<D::Output>, StoreError<E>>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
        E: Send,
        D: BodyDigest,
    {
        tracing::trace!(target: "path", "stage()");
        if len.is_some_and(|len| len > BLOB_PLAIN_LEN_MAX) {
            return Err(EngineError::TooLarge.into());
        }
        // The row asks again.
        bucket.may_seal()?;
        // Asked again at the commit; here it spares the body's way, which the shortest bodies do
        // not have: they go into the catalog.
        if len.is_none_or(|len| len > INLINE_LEN_MAX) {
            Box::pin(self.safety.may_write()).await?;
        }
        self.disks.admit_upload(&bucket.settings.backend).await?;
        let short = len.is_some_and(|len| len < DELTA_LEN_MIN);
        let wanted = bucket.settings.compression == Compression::Delta && !short;
        let trying = self.trying(bucket);
        if let Some(len) = len.filter(|_| short) {
            return self.stage_short(bucket, trying, len, body, digest).await;
        }
        let search = match trying.effort() {
            _ if !wanted => Search::Ended(BaseOutcome::NotWanted),
            Some(_) => Search::Wanted { avoid: Avoided::default() },
            None => Search::Ended(BaseOutcome::Deferred),
        };
        let manner = self.arriving(bucket, self.target_of(&destination, len), search, trying);
        let upload = wanted.then(|| self.encoder.bases.in_flight().begin());
        let mut staged = Box::pin(self.stage_with(bucket, manner, body, digest)).await?;
        let content = &mut staged.content;
        let resembles = upload.is_some_and(|upload| upload.ends(bucket.domain(), &content.sketches));
        // A window may have memory later. What found a base has no need of those that came at the
        // same time.
        content.deferred |= self.defer
            && match content.base_outcome {
                BaseOutcome::Busy => true,
                BaseOutcome::None => resembles,
                _ => false,
            };
        Ok(staged)
    }

    /// The same of `len` bytes, too few for a base: they are read, hashed, encoded and sealed where
    /// they arrive, because a longer body's task and threads would cost more than the work.
    async fn stage_short<S, E, D>(
        &self,
        bucket: &BucketHandle,
        trying: Trying,
        len: u64,
        body: S,
        mut digest: D,
    ) -> Result<StagedBody<D::Output>, StoreError<E>>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
        E: Send,
        D: BodyDigest,
    {
        // One byte more, so that a body which is longer than it said is seen to be.
        let room = usize::try_from(len + 1).unwrap_or(usize::MAX);
        let arrived =
            BodyReader::new(body).fill(room, self.budget.arriving(), &self.spool, self.encoder.pool.shelf()).await?;
        let bytes = segment_bytes(bucket, arrived.len());
        let permit = self.budget.acquire_as(bucket.party(), bytes).await?;
        let plain = arrived.into_memory().await?;
        let plain_len = plain.len() as u64;
        if plain_len > len {
            return Err(EngineError::TooLarge.into());
        }
        let encoder = &self.encoder;
        let mut content = UnfinishedBlob::begin(encoder.writer.small_blob_id()?, bucket, BlobKind::Whole)?;
        if !plain.is_empty() {
            let how = SegmentPlan {
                compression: bucket.settings.compression,
                effort: trying.effort().unwrap_or(Effort::Fast),
                region: None,
                trials: Arc::<Trials>::default(),
            };
            let (metrics, veil) = (encoder.metrics.clone(), bucket.veil().cloned());
            let encoded = encoder.pool.run_on(plain_len, move |scratch| {
                digest.update(&plain);
                let plain = under(veil, 0, plain)?;
                Ok::<_, EngineError>((digest, encode_segment(scratch, &plain, &how, &metrics), plain))
            });
            let (hashed, segment, plain) = encoded.await??;
            digest = hashed;
            content = send_on(encoder, bucket, content, Encoded { segment, plain, permit, pins: None }).await?;
        }
        content.base_outcome = BaseOutcome::NotWanted;
        let (digests, sha256) = digest.finish();
        Ok(StagedBody { digests, sha256: sha256.filter(|_| !bucket.is_veiled()), plain_len, content })
    }

    fn arriving(&self, bucket: &BucketHandle, target: Target, search: Search, trying: Trying) -> Manner {
        let watch_streams = self.defer && bucket.settings.compression == Compression::Delta;
        // Half of the memory for segments at most, so that a window finds room beside them: one
        // more is being emitted, and one waits for its place.
        let room = self.budget.work_bytes() / 2 / segment_bytes(bucket, SEGMENT_LEN);
        let jobs =
            (self.encoder.pool.threads() + 1).min(usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(2)).max(1);
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
    ) -> Result<StagedBody<D::Output>, StoreError<EngineError>>
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
        let effort = if self.effort_by_load { effort } else { effort.without_load() };
        Trying::on_arrival(effort, compression, self.encoder.effort.control(Instant::now()), self.defer)
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
    ) -> Result<StagedBody<D::Output>, StoreError<E>>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
        E: Send,
        D: BodyDigest,
    {
        let len = manner.target.len;
        manner.trying = manner.trying.within_budget(self.budget.bytes_max());
        let _work = match manner.trying.effort() {
            Some(Effort::Max) => Some(self.budget.acquire_as(bucket.party(), effort::MAX_WORK_BYTES).await?),
            _ => None,
        };
        let mut encoding = Encoding::start(&self.encoder, bucket, manner)?;
        // Sketches serve the choice of bases, and later choices of what is stored whole now.
        let mut sketching = (bucket.settings.compression == Compression::Delta)
            .then(|| SketchLane::new(self.hash_pool.clone(), bucket.similarity_secret()));
        let mut hashing = HashLane::new(self.hash_pool.clone(), self.md5_lanes.clone(), digest);
        let mut reader = BodyReader::new(body);
        let (mut plain_len, began) = (0, Instant::now());
        while !reader.ended {
            let room = len.map_or(SEGMENT_LEN as u64, |len| (len - plain_len).min(SEGMENT_LEN as u64)).max(1);
            let asked = Instant::now();
            let room = usize::try_from(room).unwrap_or(SEGMENT_LEN);
            let arrived = reader.fill(room, self.budget.arriving(), &self.spool, self.encoder.pool.shelf()).await?;
            let upload = asked.elapsed();
            let bytes = segment_bytes(bucket, arrived.len());
            let permit = self.budget.acquire_for_body(bucket.party(), bytes, began).await?;
            let plain = arrived.into_memory().await?;
            if plain.is_empty() {
                break;
            }
            plain_len += plain.len() as u64;
            if plain_len > len.unwrap_or(BLOB_PLAIN_LEN_MAX) {
                return Err(EngineError::TooLarge.into());
            }
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
        Ok(StagedBody { digests, sha256: sha256.filter(|_| !bucket.is_veiled()), plain_len, content })
    }
}

/// Memory of a segment while it is encoded: plain, as it is stored, and under a veil between them.
fn segment_bytes(bucket: &BucketHandle, len: usize) -> u64 {
    let copies = if bucket.is_veiled() { 3 } else { 2 };
    copies * len as u64 + SEGMENT_OVERHEAD
}

/// Where a body is going.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A new version of a key.
    Object {
        /// The key.
        key: String,
    },
    /// A part of a multipart upload.
    Part {
        /// The upload's key.
        key: String,
        /// The upload.
        upload: UploadId,
        /// The part's number.
        number: u32,
    },
}

impl Destination {
    /// The key it will be stored under.
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Object { key } | Self::Part { key, .. } => key,
        }
    }
}
