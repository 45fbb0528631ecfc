//! What was written is read back before it takes the place of anything.

use super::{Arrival, Occasion, Reencoder, User};
use crate::{
    bases::plan::Reason,
    bucket::BucketHandle,
    error::EngineError,
    write::{finish::FinishedContent, stage::StagedBody},
};
use catalog::{BlobForm, BlobHooks, BlobRow};
use crypto::{Digest, Sha256};
use std::{slice, sync::Arc};

impl Reencoder {
    /// Makes a blob of what was staged, reads it back, and moves every version over to it.
    pub(super) async fn store(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        user: &User,
        staged: StagedBody<()>,
        occasion: Occasion,
    ) -> Result<(Arrival, BlobRow, Option<BlobHooks>), EngineError> {
        let sha256 = staged.hashed()?;
        let object = occasion.noted(self.object_facts(bucket, old, user, sha256).await?, slice::from_ref(old))?;
        let digest = Some(bucket.content_digest(&sha256));
        let (reencoder, bucket, old) = (self.clone(), bucket.clone(), old.clone());
        // From here on it goes to its end even when the job is stopped.
        self.writer
            .detached(async move {
                let stored = reencoder.publisher.finisher.finish_blob(&bucket, staged.content, &object, digest).await?;
                let FinishedContent { mut new_blobs, mut storage, hooks, held: _held, .. } = stored;
                let mut new = new_blobs.pop().ok_or_else(|| EngineError::Other("a stage without a blob".into()))?;
                if occasion == Occasion::Hot {
                    new.heat_bytes = new.row.stored_len.saturating_sub(old.stored_len);
                    storage.reason = Reason::Hot.as_str().to_owned();
                } else if new.row.form == BlobForm::Whole {
                    // Elsewhere, or encoded otherwise: it still stands in the place of a delta.
                    new.heat_bytes = reencoder.catalog.heat_of(&[old.id]).await?;
                }
                reencoder.verify_stored(&bucket, &new.row, sha256).await?;
                let (row, more) = (new.row.clone(), Some((new, Some(storage))));
                Ok((reencoder.move_over(&bucket, &old, row.clone(), more).await?, row, hooks))
            })
            .await
    }

    /// Reads a blob back from its backend before it takes the place of content that is well; under
    /// a veil, `sha256` is that of the plain text. One that is not what was written is forgotten.
    pub(crate) async fn verify_stored(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        row: &BlobRow,
        sha256: [u8; 32],
    ) -> Result<(), EngineError> {
        let read = self.sha256_of_stored(bucket, row).await;
        if matches!(&read, Ok(read) if *read == sha256) {
            return Ok(());
        }
        self.publisher.finisher.forget_blob(row).await;
        match read {
            Ok(_) => Err(EngineError::Integrity("a blob read back from its backend is not what was written".into())),
            Err(error) => Err(error),
        }
    }

    async fn sha256_of_stored(self: &Arc<Self>, bucket: &BucketHandle, row: &BlobRow) -> Result<[u8; 32], EngineError> {
        let stored = self.read.open_stored(bucket, row)?;
        let body = self.read.read_unveiled(&stored, 0..row.plain_len, bucket.veil().cloned());
        Ok(self.hash_pool.hash_all(Sha256::new(), body).await?.finalize().into())
    }
}
