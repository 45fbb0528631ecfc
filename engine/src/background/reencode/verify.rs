//! What was written is read back before it takes the place of anything.

use super::Reencoder;
use crate::{bucket::BucketHandle, error::EngineError};
use catalog::BlobRow;
use crypto::{Digest, Sha256};
use std::sync::Arc;

impl Reencoder {
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
