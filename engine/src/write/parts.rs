//! Multipart uploads: their rows, their parts, and what those have shown.

use crate::{
    bases::proven::Proven,
    bucket::{BucketHandle, RowPlace, digest_of},
    deployment::{keyring::random, writer::Writer},
    error::EngineError,
    facts::{PartFacts, VersionFacts, from_json, to_json},
    resources::clock::now_ms,
    write::open_uploads::OpenUploads,
};
use catalog::{Catalog, Part, Upload, UploadId};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Uploads whose parts are remembered; what is forgotten only costs a less fitting base window, or
/// a trial.
const REMEMBERED_MAX: usize = 10_000;

/// What the parts of open uploads have shown this process.
#[derive(Default)]
pub(crate) struct PartsSeen(Mutex<HashMap<UploadId, PartsOf>>);

/// What the parts of one upload have shown.
#[derive(Clone, Default)]
pub(crate) struct PartsOf {
    /// The longest part so far: where part N starts, but for the last, is N − 1 of these.
    pub(crate) longest: u64,
    /// Which objects are good bases.
    pub(crate) proven: Arc<Proven>,
}

impl PartsSeen {
    /// Takes note of a part's length and gives what is known, that included.
    pub(crate) fn note(&self, upload: UploadId, len: u64) -> PartsOf {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= REMEMBERED_MAX && !seen.contains_key(&upload) {
            seen.clear();
        }
        let parts = seen.entry(upload).or_default();
        parts.longest = len.max(parts.longest);
        parts.clone()
    }

    /// Forgets an upload that has ended.
    pub(crate) fn forget(&self, upload: UploadId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&upload);
    }
}

/// Multipart uploads under way.
pub struct Uploads {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) open: OpenUploads,
    pub(crate) parts_seen: Arc<PartsSeen>,
    pub(crate) writer: Arc<Writer>,
}

impl Uploads {
    /// Creates an upload with the facts its object will have (ETag and checksums still empty).
    ///
    /// # Errors
    /// [`EngineError::Busy`] when the owner has too many open; [`EngineError`] when the catalog
    /// fails.
    pub async fn create_upload(
        &self,
        bucket: &BucketHandle,
        key: &str,
        owner: &str,
        facts: VersionFacts,
    ) -> Result<UploadId, EngineError> {
        self.open.admit(&*self.catalog, owner).await?;
        let id = UploadId(random()?);
        let upload = Upload {
            bucket: bucket.row.id,
            key: key.to_owned(),
            id,
            created_ms: now_ms(),
            owner: owner.to_owned(),
            facts: bucket.seal_facts(upload_place(key, id), to_json(&facts)?)?,
            completed: None,
        };
        self.catalog.create_upload(upload).await?;
        Ok(id)
    }

    /// An upload's row and facts; completed ones included while they are remembered.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or the row is not what was written.
    pub async fn upload(
        &self,
        bucket: &BucketHandle,
        key: &str,
        id: UploadId,
    ) -> Result<Option<(Upload, VersionFacts)>, EngineError> {
        match self.catalog.upload(bucket.row.id, key, id).await? {
            None => Ok(None),
            Some(upload) => {
                let facts = self.open_upload_facts(bucket, &upload)?;
                Ok(Some((upload, facts)))
            }
        }
    }

    /// Opens an upload's facts (a listing's rows).
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when the row is not what was written.
    pub fn open_upload_facts(&self, bucket: &BucketHandle, upload: &Upload) -> Result<VersionFacts, EngineError> {
        from_json(&bucket.open_facts(upload_place(&upload.key, upload.id), &upload.facts)?)
    }

    /// Parts with number greater than `after`, with their facts opened; at most `limit`.
    ///
    /// # Errors
    /// As [`Uploads::upload`].
    pub async fn parts(
        &self,
        bucket: &BucketHandle,
        key: &str,
        upload: UploadId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<(Part, PartFacts)>, EngineError> {
        let parts = self.catalog.parts(upload, after, limit, true).await?;
        parts
            .into_iter()
            .map(|part| {
                let place =
                    RowPlace { key, id: upload.0, part: Some(part.number), extents_digest: digest_of(&part.extents) };
                let facts = from_json(&bucket.open_facts(place, &part.facts)?)?;
                Ok((part, facts))
            })
            .collect()
    }

    /// Aborts an upload; `false` when it is unknown or completed.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails.
    pub async fn abort(&self, bucket: &BucketHandle, key: &str, upload: UploadId) -> Result<bool, EngineError> {
        self.parts_seen.forget(upload);
        Ok(self.catalog.abort(bucket.row.id, key, upload, self.writer.epoch()).await?)
    }
}

fn upload_place(key: &str, id: UploadId) -> RowPlace<'_> {
    RowPlace { key, id: id.0, part: None, extents_digest: digest_of(&[]) }
}
