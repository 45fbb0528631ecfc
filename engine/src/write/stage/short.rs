//! Bodies too short for a base are read, hashed, encoded and sealed where they arrive: the task and
//! the threads of a longer one would cost more than the work.

use super::{
    BodyDigest, SEGMENT_OVERHEAD, Staged, Stager,
    body::BodyReader,
    content::StagedContent,
    encoding::{Encoded, send_on},
};
use crate::{
    bases::plan::{BaseOutcome, DELTA_LEN_MIN},
    bucket::BucketHandle,
    error::{EngineError, StoreError},
    resources::pool::HERE_LEN_MAX,
    write::{
        effort::Trying,
        encode::{SegmentPlan, Trials, encode_segment},
    },
};
use bytes::Bytes;
use delta_codec::Effort;
use futures::Stream;
use object_format::BlobKind;
use std::sync::Arc;

// What takes this path runs on no other thread.
const _: () = assert!(DELTA_LEN_MIN <= HERE_LEN_MAX);

impl Stager {
    /// [`Stager::stage`] of a body of `len` bytes, fewer than [`DELTA_LEN_MIN`].
    pub(super) async fn stage_short<S, E, D>(
        &self,
        bucket: &BucketHandle,
        trying: Trying,
        len: u64,
        body: S,
        mut digest: D,
    ) -> Result<Staged<D::Output>, StoreError<E>>
    where
        S: Stream<Item = Result<Bytes, E>> + Send + Unpin,
        E: Send,
        D: BodyDigest,
    {
        // One byte more, so that a body which is longer than it said is seen to be.
        let room = usize::try_from(len + 1).unwrap_or(usize::MAX);
        let arrived = BodyReader::new(body).fill(room, self.budget.arriving(), &self.spool).await?;
        let bytes = 2 * arrived.len() as u64 + SEGMENT_OVERHEAD;
        let permit = self.budget.acquire_as(bucket.party(), bytes).await?;
        let plain = Arc::new(arrived.into_memory().await?);
        let plain_len = plain.len() as u64;
        if plain_len > len {
            return Err(EngineError::TooLarge.into());
        }
        let encoder = &self.encoder;
        let mut content = StagedContent::begin(encoder.writer.epoch(), bucket, BlobKind::Whole)?;
        if !plain.is_empty() {
            let how = SegmentPlan {
                compression: bucket.settings.compression,
                effort: trying.effort().unwrap_or(Effort::Fast),
                region: None,
                trials: Arc::<Trials>::default(),
            };
            let (bytes, metrics) = (plain.clone(), encoder.metrics.clone());
            let encoded = encoder.pool.run_on(plain_len, move |scratch| {
                digest.update(&bytes);
                (digest, encode_segment(scratch, &bytes, &how, &metrics))
            });
            let (hashed, segment) = encoded.await?;
            digest = hashed;
            content = send_on(encoder, bucket, content, Encoded { segment, plain, permit, pins: None }).await?;
        }
        content.base_outcome = BaseOutcome::NotWanted;
        let (digests, sha256) = digest.finish();
        Ok(Staged { digests, sha256, plain_len, content })
    }
}
