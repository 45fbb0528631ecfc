//! A pack elsewhere, or under another domain key: the same members behind the same table, written
//! as a pack again. Its members name the same ranges of it.

use super::{Arrival, Reencoder, Reform, Reformed};
use crate::{
    background::packs::contents::build, blobs::upload::put_whole, bucket::BucketHandle, deployment::keyring::random,
    error::EngineError,
};
use catalog::{BlobForm, BlobKey, BlobRow, BlobState, NewBlob};
use crypto::{Digest, Sha256};
use futures::TryStreamExt;
use object_format::ObjectFacts;
use std::sync::Arc;

impl Reencoder {
    /// Writes a pack again in its bucket's present domain, and moves its members over. One that
    /// need not be is kept: nothing is gained.
    ///
    /// # Errors
    /// As [`Reencoder::reencode`].
    pub(super) async fn write_pack_again(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        reform: &Reform,
    ) -> Result<Reformed, EngineError> {
        if !reform.regardless {
            return Ok(Reformed::Kept);
        }
        let manifest = self.blobs.manifest(old, bucket.key_of(old)?.as_deref()).await?;
        let object = ObjectFacts { bucket: bucket.row.name.clone(), ..manifest.root.facts.clone() };
        reform.pace.take(old.plain_len).await;
        let _permit = self.read.budget.acquire(3 * old.plain_len).await?;
        let mut plain = Vec::new();
        let source = self.read.open_stored(bucket, old)?;
        let read = self.read.read(&source, 0..old.plain_len).try_for_each(|bytes| {
            plain.extend_from_slice(&bytes);
            futures::future::ready(Ok(()))
        });
        read.await?;
        let sha256: [u8; 32] = Sha256::digest(&plain).into();
        let id = self.writer.blob_id()?;
        let (sealed, salt) = (bucket.clone(), random()?);
        let built = self.read.pool.run(move |_| build(id, sealed.domain_key(), salt, &plain, &object)).await??;
        let new = BlobRow {
            id: BlobKey(id.0),
            key_epoch: bucket.key_epoch(),
            backend: bucket.settings.backend.clone(),
            form: BlobForm::Whole,
            state: BlobState::Live,
            stored_len: built.bytes.len() as u64,
            root_offset: built.root.offset,
            root_len: built.root.len,
            root_tag: built.root.tag,
            forms: built.forms,
            inline: None,
            compartment: bucket.compartment(),
            copy: None,
            ..old.clone()
        };
        let (reencoder, handle, old) = (self.clone(), bucket.clone(), old.clone());
        // From here on it goes to its end even when the job is stopped.
        self.writer
            .detached(async move {
                put_whole(reencoder.blobs.backend(&new.backend)?.clone(), id, built.bytes).await?;
                reencoder.verify_stored(&handle, &new, sha256).await?;
                let brought = NewBlob { row: new.clone(), bases: Vec::new(), deferred: false, heat_bytes: 0 };
                Ok(match reencoder.move_over(&handle, &old, new.clone(), Some((brought, None))).await? {
                    Arrival::Moved => Reformed::Moved(Box::new(new)),
                    Arrival::Unused | Arrival::BaseGone => Reformed::Unused,
                })
            })
            .await
    }
}
