//! A body on its way in: cut into segments, hashed beside everything else.

use crate::{
    error::{EngineError, StoreError},
    resources::{
        budget::Arriving,
        buffers::Shelf,
        md5_lanes::{LANES_LEN_MIN, Md5Lanes},
        pool::CodecPool,
        task::joined,
    },
    write::spool::{Arrived, Spool},
};
use bytes::Bytes;
use crypto::{Digest, Sha256};
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture};
use hash_lanes::Md5;
use std::sync::Arc;

/// What hashes a body while it arrives; runs on a pool of its own, segment by segment, in order.
pub trait BodyDigest: Send + 'static {
    /// What it gives in the end.
    type Output: Send + 'static;
    /// Takes the next bytes.
    fn update(&mut self, bytes: &[u8]);
    /// Gives away the MD5 of exactly the bytes that [`Self::update`] takes, if it computes one:
    /// until it comes back, whoever has it feeds it.
    fn lend_md5(&mut self) -> Option<Md5> {
        None
    }
    /// Takes it back.
    fn return_md5(&mut self, _md5: Md5) {}
    /// Ends: its output, and the SHA-256 of everything, for exact duplicates. Under a veil nobody
    /// needs it.
    fn finish(self) -> (Self::Output, Option<[u8; 32]>);
}

/// Cuts a body into segments.
pub(super) struct BodyReader<S> {
    body: S,
    rest: Bytes,
    pub(super) ended: bool,
}

impl<S, E> BodyReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    pub(super) fn new(body: S) -> Self {
        Self { body, rest: Bytes::new(), ended: false }
    }

    /// The next `len` bytes; fewer at the end. They are in memory while `place` has room for them,
    /// else in a spool file.
    pub(super) async fn fill(
        &mut self,
        len: usize,
        place: Arriving,
        spool: &Arc<Spool>,
        shelf: &Arc<Shelf>,
    ) -> Result<Arrived, StoreError<E>> {
        let mut arrived = Arrived::new(len, place, shelf.clone());
        while let Some(piece) = self.piece(len - arrived.len()).await.map_err(StoreError::Body)? {
            arrived.push(piece, spool).await?;
        }
        Ok(arrived)
    }

    /// The same in memory, for whoever holds a permit for them.
    pub(super) async fn fill_memory(&mut self, len: usize) -> Result<Vec<u8>, E> {
        let mut plain = Vec::with_capacity(len);
        while let Some(piece) = self.piece(len - plain.len()).await? {
            plain.extend_from_slice(&piece);
        }
        Ok(plain)
    }

    /// What has come, at most `len_max` bytes; `None` when none are wanted or none come any more.
    async fn piece(&mut self, len_max: usize) -> Result<Option<Bytes>, E> {
        while self.rest.is_empty() && !self.ended && len_max > 0 {
            match self.body.next().await {
                Some(bytes) => self.rest = bytes?,
                None => self.ended = true,
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(len_max));
        Ok((!piece.is_empty()).then_some(piece))
    }
}

/// Hashes segments in order, one at a time, beside everything else.
pub(super) struct HashLane<D: BodyDigest> {
    pool: Arc<CodecPool>,
    md5_lanes: Arc<Md5Lanes>,
    digest: LaneState<D>,
}

enum LaneState<D> {
    Idle(D),
    Busy(BoxFuture<'static, Result<D, EngineError>>),
    Failed,
}

impl<D: BodyDigest> HashLane<D> {
    pub(super) fn new(pool: Arc<CodecPool>, md5_lanes: Arc<Md5Lanes>, digest: D) -> Self {
        Self { pool, md5_lanes, digest: LaneState::Idle(digest) }
    }

    /// Waits for the segment before, then starts on this one.
    pub(super) async fn push(&mut self, plain: Bytes) -> Result<(), EngineError> {
        let mut digest = self.settle().await?;
        let (pool, md5_lanes) = (self.pool.clone(), self.md5_lanes.clone());
        let job = tokio::spawn(async move {
            let md5 = if plain.len() < LANES_LEN_MIN { None } else { digest.lend_md5() };
            let bytes = plain.clone();
            let others = pool.run(move |_| {
                digest.update(&bytes);
                digest
            });
            let Some(md5) = md5 else { return others.await };
            let (mut digest, md5) = futures::try_join!(others, md5_lanes.update(md5, plain))?;
            digest.return_md5(md5);
            Ok(digest)
        });
        self.digest = LaneState::Busy(joined(job).boxed());
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<(D::Output, Option<[u8; 32]>), EngineError> {
        Ok(self.settle().await?.finish())
    }

    async fn settle(&mut self) -> Result<D, EngineError> {
        match std::mem::replace(&mut self.digest, LaneState::Failed) {
            LaneState::Idle(digest) => Ok(digest),
            LaneState::Busy(job) => job.await,
            LaneState::Failed => Err(EngineError::Other("hashing failed before".into())),
        }
    }
}

/// SHA-256 alone, for content whose other digests are known already or asked for by nobody.
#[derive(Default)]
pub struct ContentDigest(Sha256);

impl BodyDigest for ContentDigest {
    type Output = ();

    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self) -> ((), Option<[u8; 32]>) {
        ((), Some(self.0.finalize().into()))
    }
}
