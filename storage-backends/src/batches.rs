//! Cuts a body into batches of an exact size, without holding more than one.

use crate::{BackendError, ByteStream, ErrorKind, Result};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use std::time::Duration;

/// A body being read.
pub(crate) struct Batches {
    body: ByteStream,
    batch_bytes: usize,
    /// What the last piece had beyond its batch.
    over: Bytes,
    announced: Option<u64>,
    read: u64,
    /// A body that pauses ends its batch early.
    eager: bool,
}

/// Consecutive bytes of a body.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) len: u64,
    /// No batch follows. All others are exactly of the asked size, or shorter where the body
    /// paused.
    pub(crate) is_last: bool,
}

impl Batches {
    /// `announced` is the body's length where it is known.
    pub(crate) fn new(body: ByteStream, batch_bytes: usize, announced: Option<u64>) -> Self {
        Self { body: body.fuse().boxed(), batch_bytes, over: Bytes::new(), announced, read: 0, eager: false }
    }

    /// The same for a writer to whom the size of a batch does not matter: when the body pauses,
    /// what is there is given at once, so that a slow client's bytes do not lie in memory.
    pub(crate) fn eager(body: ByteStream, batch_bytes: usize, announced: Option<u64>) -> Self {
        Self { eager: true, ..Self::new(body, batch_bytes, announced) }
    }

    /// The next batch. Pieces below [`SMALL_PIECE_BYTES`] are copied together, larger ones are kept
    /// as they are.
    ///
    /// # Errors
    /// [`ErrorKind::Body`] when the body fails; [`ErrorKind::Invalid`] as soon as it is known to be
    /// of another length than announced.
    pub(crate) async fn next(&mut self) -> Result<Batch> {
        let mut pieces = Vec::new();
        let mut small = BytesMut::new();
        let mut room = self.batch_bytes;
        let mut is_last = false;
        while room > 0 {
            let mut piece = std::mem::take(&mut self.over);
            if piece.is_empty() {
                let next = match self.eager && room < self.batch_bytes {
                    true => match tokio::time::timeout(PAUSE, self.body.next()).await {
                        Ok(next) => next,
                        Err(_) => break,
                    },
                    false => self.body.next().await,
                };
                let Some(next) = next else {
                    is_last = true;
                    break;
                };
                let failed = |error| BackendError::with_source(ErrorKind::Body, "the body failed", error);
                piece = next.map_err(failed)?;
            }
            self.over = piece.split_off(piece.len().min(room));
            room -= piece.len();
            if piece.len() < SMALL_PIECE_BYTES {
                small.extend_from_slice(&piece);
            } else {
                pieces.extend((!small.is_empty()).then(|| small.split().freeze()));
                pieces.push(piece);
            }
        }
        pieces.extend((!small.is_empty()).then(|| small.freeze()));
        let len = (self.batch_bytes - room) as u64;
        self.read += len;
        self.check_len(is_last)?;
        Ok(Batch { pieces, len, is_last })
    }

    fn check_len(&self, is_last: bool) -> Result<()> {
        match self.announced {
            Some(announced) if self.read > announced || (is_last && self.read < announced) => {
                let (read, more) = (self.read, if is_last { "" } else { " or more" });
                let message = format!("the body has {read} bytes{more}, announced were {announced}");
                Err(BackendError::new(ErrorKind::Invalid, message))
            }
            _ => Ok(()),
        }
    }
}

/// Below this a copy costs less than a further entry in a vectored write or payload.
const SMALL_PIECE_BYTES: usize = 16 << 10;

/// A body that gives nothing for so long has paused.
const PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use proptest::prelude::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_pauses_is_written_as_far_as_it_has_come() {
        let body = stream::iter([10, 0, 7]).then(|pause| async move {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            Ok(Bytes::from_static(&[1; 100]))
        });
        let batches = drain(Batches::eager(body.boxed(), 1000, Some(300))).await.unwrap();
        let lens: Vec<(u64, bool)> = batches.iter().map(|(len, _, is_last)| (*len, *is_last)).collect();
        assert_eq!(lens, [(200, false), (100, true)]);
    }

    async fn drain(mut batches: Batches) -> Result<Vec<(u64, Bytes, bool)>> {
        let mut all = Vec::new();
        loop {
            let batch = batches.next().await?;
            all.push((batch.len, batch.pieces.concat().into(), batch.is_last));
            if batch.is_last {
                return Ok(all);
            }
        }
    }

    proptest! {
        #[test]
        fn batches_are_exact_and_lose_nothing(
            lens in prop::collection::vec(prop_oneof![0usize..50, 16_000usize..40_000], 0..12),
            batch_bytes in prop_oneof![1usize..100, 10_000usize..100_000],
        ) {
            let pieces: Vec<Bytes> =
                lens.iter().enumerate().map(|(i, len)| Bytes::from(vec![i as u8; *len])).collect();
            let whole = pieces.concat();
            let body = stream::iter(pieces.into_iter().map(Ok)).boxed();
            let batches = Batches::new(body, batch_bytes, Some(whole.len() as u64));
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let all = runtime.block_on(drain(batches)).unwrap();
            prop_assert_eq!(all.iter().map(|(_, bytes, _)| bytes.clone()).collect::<Vec<_>>().concat(), whole);
            for (len, bytes, is_last) in &all {
                prop_assert_eq!(*len, bytes.len() as u64);
                prop_assert!(*len == batch_bytes as u64 || (*is_last && *len < batch_bytes as u64));
            }
        }
    }

    #[tokio::test]
    async fn an_endless_body_is_refused_before_it_is_read() {
        let endless = stream::repeat_with(|| Ok(Bytes::from_static(&[0; 100]))).boxed();
        let error = drain(Batches::new(endless, 1000, Some(2500))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
