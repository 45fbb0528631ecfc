//! The second half of a write: the blob is finished and durable, then one catalog transaction makes
//! it visible (I9).
//!
//! Publishing runs in a task of its own: a client that hangs up cannot leave it half done (E25).

use crate::{
    bases::{hook_queue::HookQueue, plan::Reason, series::Between},
    bucket::{
        BucketHandle, RowPlace, digest_of,
        notify::{Cause, Notifier, Subject, lanes_of},
    },
    deployment::{keyring::random, writer::Writer},
    error::EngineError,
    facts::{Form, PartFacts, StorageFacts, VersionFacts, to_json},
    metrics::Metrics,
    read::object::OpenObject,
    resources::{clock::now_ms, ids::version_id},
    write::{
        finish::{FinishedContent, Finisher},
        parts::PartsSeen,
        stage::{Destination, StagedBody, content::UnfinishedBlob},
    },
};
use catalog::{
    BlobHooks, BlobRow, Catalog, CatalogError, Committed, CompleteCommit, Content, Extent, Part, PartCommit,
    Precondition, PutCommit, UnixMs, UploadId, Version, VersionId, VersionLock, VersionRef,
};
use object_format::ObjectFacts;
use std::{ops::Range, sync::Arc};

/// Which part of which upload.
#[derive(Clone, Copy, Debug)]
pub struct PartName<'a> {
    /// The upload's key.
    pub key: &'a str,
    /// The upload.
    pub upload: UploadId,
    /// The part's number.
    pub number: u32,
}

/// What must hold of a key when its new version is committed, what keeps that version from being
/// removed, and what others are told of it.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What must hold.
    pub precondition: Precondition,
    /// What keeps it.
    pub lock: VersionLock,
    /// What caused it; `None`: nobody is told.
    pub cause: Option<Cause>,
}

impl From<Precondition> for Terms {
    fn from(precondition: Precondition) -> Self {
        Self { precondition, lock: VersionLock::default(), cause: None }
    }
}

/// What an upload is completed from.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The upload.
    pub upload: UploadId,
    /// The chosen parts, ascending, as [`Uploads::parts`](crate::Uploads::parts) gave them.
    pub parts: Vec<(Part, PartFacts)>,
    /// Digest of the part list the client sent: the same list completes an upload twice.
    pub parts_digest: [u8; 32],
}

/// Makes staged content visible.
pub struct Publisher {
    pub(crate) finisher: Arc<Finisher>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) hooks: Arc<HookQueue>,
    pub(crate) parts_seen: Arc<PartsSeen>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) metrics: Arc<Metrics>,
}

/// A version that was published.
#[derive(Clone, Debug)]
pub struct PublishedVersion {
    /// The new version's id.
    pub version_id: VersionId,
    /// Place in the total order and Last-Modified.
    pub committed: Committed,
    /// How it is stored.
    pub storage: StorageFacts,
}

impl PublishedVersion {
    /// How requests name it.
    pub fn reference(&self) -> VersionRef {
        if self.committed.named { VersionRef::Id(self.version_id) } else { VersionRef::Null }
    }
}

impl Publisher {
    /// Finishes a staged body and makes it the key's current version; `facts.storage` is filled in
    /// here.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`] and everything backend or catalog can do; nothing is
    /// visible then.
    pub async fn publish<T: Send>(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        staged: StagedBody<T>,
        facts: VersionFacts,
        terms: impl Into<Terms>,
    ) -> Result<PublishedVersion, EngineError> {
        tracing::trace!(target: "path", "publish()");
        let terms = terms.into();
        let (publisher, bucket, key) = (self.clone(), bucket.clone(), key.to_owned());
        let (content, sha256) = (staged.content, staged.sha256);
        self.writer
            .detached(async move { publisher.publish_object(&bucket, &key, content, sha256, facts, terms).await })
            .await
    }

    async fn publish_object(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        content: Box<UnfinishedBlob>,
        sha256: Option<[u8; 32]>,
        facts: VersionFacts,
        terms: Terms,
    ) -> Result<PublishedVersion, EngineError> {
        let id = version_id()?;
        let (size, digest) = (content.plain_len, sha256.map(|sha256| bucket.content_digest(&sha256)));
        let place = VersionPlace { key, id, size, terms: &terms };
        if let Some(duplicate) = self.duplicate(bucket, digest, size).await? {
            match self.commit_version(bucket, place, duplicate, &facts).await? {
                Err(CatalogError::BaseGone) => {}
                outcome => return Ok(outcome?),
            }
        }
        let object = ObjectFacts {
            bucket: bucket.row.name.clone(),
            key: key.to_owned(),
            version_id: Some(id.0),
            part: None,
            sha256,
            facts: to_json(&facts)?,
            sketch: Vec::new(),
        };
        let destination = Destination::Object { key: key.to_owned() };
        let stored = self.finisher.finish_blob(bucket, content, &object, digest).await?;
        let (rows, _held) = (stored.new_blobs.clone(), stored.held.clone());
        match self.commit_version(bucket, place, stored, &facts).await? {
            Err(CatalogError::BaseGone) => {
                let stored = self.finisher.restage_whole(bucket, &destination, rows, &object, digest);
                let stored = Box::pin(stored).await?;
                Ok(self.commit_version(bucket, place, stored, &facts).await??)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Finishes a staged part. Gives its Last-Modified.
    ///
    /// # Errors
    /// [`EngineError::NoUpload`] and everything backend or catalog can do.
    pub async fn publish_part<T: Send>(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        part: PartName<'_>,
        staged: StagedBody<T>,
        facts: PartFacts,
    ) -> Result<UnixMs, EngineError> {
        let PartName { key, upload, number } = part;
        let (publisher, bucket, key) = (self.clone(), bucket.clone(), key.to_owned());
        let (content, sha256) = (staged.content, staged.sha256);
        self.writer
            .detached(async move {
                let (size, digest) = (content.plain_len, sha256.map(|sha256| bucket.content_digest(&sha256)));
                let place = PartPlace { key: &key, upload, number, size };
                if let Some(duplicate) = publisher.duplicate(&bucket, digest, size).await? {
                    match publisher.commit_part(&bucket, place, duplicate, &facts).await? {
                        Err(CatalogError::BaseGone) => {}
                        outcome => return Ok(outcome?),
                    }
                }
                let object = ObjectFacts {
                    bucket: bucket.row.name.clone(),
                    key: key.clone(),
                    version_id: None,
                    part: Some((upload.0, number)),
                    sha256,
                    facts: to_json(&facts)?,
                    sketch: Vec::new(),
                };
                let stored = publisher.finisher.finish_blob(&bucket, content, &object, digest).await?;
                let (rows, _held) = (stored.new_blobs.clone(), stored.held.clone());
                match publisher.commit_part(&bucket, place, stored, &facts).await? {
                    Err(CatalogError::BaseGone) => {
                        let destination = Destination::Part { key: key.clone(), upload, number };
                        let stored = publisher.finisher.restage_whole(&bucket, &destination, rows, &object, digest);
                        let stored = Box::pin(stored).await?;
                        Ok(publisher.commit_part(&bucket, place, stored, &facts).await??)
                    }
                    outcome => Ok(outcome?),
                }
            })
            .await
    }

    /// Makes a range of an existing version of the same bucket a part of an upload; moves no bytes.
    ///
    /// # Errors
    /// As [`Publisher::publish_part`]; [`EngineError::Conflict`] when the source vanished
    /// meanwhile.
    pub async fn publish_part_copy(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        part: PartName<'_>,
        source: &OpenObject,
        range: Range<u64>,
        facts: PartFacts,
    ) -> Result<UnixMs, EngineError> {
        let PartName { key, upload, number } = part;
        let (publisher, bucket, key) = (self.clone(), bucket.clone(), key.to_owned());
        let mut content = source.content.clone();
        self.writer
            .detached(async move {
                let place = PartPlace { key: &key, upload, number, size: range.end - range.start };
                loop {
                    let stored = FinishedContent::copy_of(clip(&content.extents, range.clone()));
                    match publisher.commit_part(&bucket, place, stored, &facts).await? {
                        Err(CatalogError::BaseGone) => content = publisher.content_now(&bucket, content).await?,
                        outcome => return Ok(outcome?),
                    }
                }
            })
            .await
    }

    /// Makes the source's content the current version of a key in the same bucket with other facts;
    /// moves no bytes.
    ///
    /// # Errors
    /// As [`Publisher::publish`]; [`EngineError::Conflict`] when the source vanished meanwhile.
    pub async fn publish_copy(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        source: &OpenObject,
        facts: VersionFacts,
        terms: impl Into<Terms>,
    ) -> Result<PublishedVersion, EngineError> {
        let terms = terms.into();
        let (publisher, bucket, key) = (self.clone(), bucket.clone(), key.to_owned());
        let (id, size) = (version_id()?, source.info.version.size);
        let mut content = source.content.clone();
        self.writer
            .detached(async move {
                let place = VersionPlace { key: &key, id, size, terms: &terms };
                loop {
                    let stored = FinishedContent::copy_of(content.extents.clone());
                    match publisher.commit_version(&bucket, place, stored, &facts).await? {
                        Err(CatalogError::BaseGone) => content = publisher.content_now(&bucket, content).await?,
                        outcome => return Ok(outcome?),
                    }
                }
            })
            .await
    }

    /// What a version's content has become since `content` was read, after one of its blobs was
    /// found dead: the converter may have encoded it anew.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] when the version is gone, or is what it was, or was encrypted
    /// meanwhile: then other bytes stand there, which the reader's facts do not fit.
    async fn content_now(&self, bucket: &BucketHandle, content: Content) -> Result<Content, EngineError> {
        let Version { key, id, .. } = &content.version;
        let now = self.catalog.version(bucket.row.id, key, *id).await?;
        let now = now.filter(|now| now.extents != content.extents).ok_or(EngineError::Conflict)?;
        let read = &self.finisher.read;
        let (was, is) = (read.open_facts(bucket, &content.version)?, read.open_facts(bucket, &now.version)?);
        if was.encryption == is.encryption { Ok(now) } else { Err(EngineError::Conflict) }
    }

    /// Completes an upload. `facts` are complete but for `storage`.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] when a part was replaced meanwhile, [`EngineError::NoUpload`],
    /// [`EngineError::PreconditionFailed`].
    pub async fn complete(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        completion: Completion,
        facts: VersionFacts,
        terms: impl Into<Terms>,
    ) -> Result<PublishedVersion, EngineError> {
        tracing::trace!(target: "path", "complete()");
        let Terms { precondition, lock, cause } = terms.into();
        let Completion { upload, parts, parts_digest } = completion;
        let id = version_id()?;
        let extents: Vec<Extent> = parts.iter().flat_map(|(part, _)| part.extents.iter().copied()).collect();
        let extents_digest = digest_of(&extents);
        let storage = StorageFacts::of_parts(parts.iter().map(|(_, facts)| (facts.size, &facts.storage)));
        let facts = VersionFacts { storage: storage.clone(), ..facts };
        let size = parts.iter().map(|(part, _)| part.size).sum();
        let subject = Subject { key, size: Some(size), etag: Some(&facts.etag), id: Some(id), version: None };
        let notices = self.notifier.notices(bucket, cause.as_ref(), subject)?;
        let lanes = lanes_of(&notices);
        let facts = bucket.seal_facts(RowPlace { key, id: id.0, part: None, extents_digest }, to_json(&facts)?)?;
        let commit = CompleteCommit {
            bucket: bucket.row.id,
            key: key.to_owned(),
            upload,
            parts: parts.iter().map(|(part, _)| (part.number, part.id)).collect(),
            parts_digest,
            id,
            size,
            facts,
            extents_digest,
            precondition,
            lock,
            notices,
            now_ms: now_ms(),
            epoch: self.writer.epoch(),
        };
        let (publisher, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        let committed = self
            .writer
            .detached(async move {
                let outcome = publisher.catalog.complete(commit).await;
                publisher.notifier.ring(&lanes);
                match outcome {
                    Err(CatalogError::Unknown(why)) => Ok(publisher.writer.read_back(bucket, &key, id, why).await?),
                    outcome => Ok(outcome?),
                }
            })
            .await?;
        self.parts_seen.forget(upload);
        Ok(PublishedVersion { version_id: id, committed, storage })
    }

    /// Existing content with the same digest and length, as if it had just been stored, in a blob
    /// that the catalog finds fit. Content under a veil has no digest.
    async fn duplicate(
        &self,
        bucket: &BucketHandle,
        digest: Option<[u8; 32]>,
        plain_len: u64,
    ) -> Result<Option<FinishedContent>, EngineError> {
        if plain_len == 0 {
            return Ok(Some(FinishedContent { reason: Reason::Empty, ..FinishedContent::copy_of(Vec::new()) }));
        }
        let Some(digest) = digest else { return Ok(None) };
        let found = self.catalog.duplicate(&bucket.domain(), digest, plain_len).await?;
        Ok(found.map(|row| FinishedContent::copy_of(vec![Extent { blob: row.id, offset: 0, len: plain_len }])))
    }

    async fn commit_version(
        &self,
        bucket: &BucketHandle,
        place: VersionPlace<'_>,
        stored: FinishedContent,
        facts: &VersionFacts,
    ) -> Result<Result<PublishedVersion, CatalogError>, EngineError> {
        let VersionPlace { key, id, size, terms: Terms { precondition, lock, cause } } = place;
        let extents_digest = digest_of(&stored.extents);
        let storage = stored.storage;
        let subject = Subject { key, size: Some(size), etag: Some(&facts.etag), id: Some(id), version: None };
        let notices = self.notifier.notices(bucket, cause.as_ref(), subject)?;
        let lanes = lanes_of(&notices);
        let facts = VersionFacts { storage: storage.clone(), ..facts.clone() };
        let facts = bucket.seal_facts(RowPlace { key, id: id.0, part: None, extents_digest }, to_json(&facts)?)?;
        let rows: Vec<BlobRow> = stored.new_blobs.iter().map(|blob| blob.row.clone()).collect();
        let epoch = self.writer.epoch_of(&stored.new_blobs);
        let commit = PutCommit {
            bucket: bucket.row.id,
            key: key.to_owned(),
            id,
            size,
            facts,
            extents_digest,
            precondition: *precondition,
            new_blobs: stored.new_blobs,
            extents: stored.extents,
            lock: *lock,
            notices,
            now_ms: now_ms(),
            epoch,
        };
        let outcome = self.writer.commit_put(commit).await;
        self.notifier.ring(&lanes);
        self.settle_blobs(&rows, &outcome).await;
        Ok(outcome.map(|committed| {
            self.tell(stored.hooks, stored.ends);
            self.count_plan(&storage, stored.reason, size, &rows);
            PublishedVersion { version_id: id, committed, storage }
        }))
    }

    async fn commit_part(
        &self,
        bucket: &BucketHandle,
        place: PartPlace<'_>,
        stored: FinishedContent,
        facts: &PartFacts,
    ) -> Result<Result<UnixMs, CatalogError>, EngineError> {
        let extents_digest = digest_of(&stored.extents);
        let storage = stored.storage.clone();
        let row_place = RowPlace { key: place.key, id: place.upload.0, part: Some(place.number), extents_digest };
        let facts = PartFacts { storage: stored.storage, ..facts.clone() };
        let modified_ms = now_ms();
        let new_blobs: Vec<BlobRow> = stored.new_blobs.iter().map(|blob| blob.row.clone()).collect();
        let part = Part {
            number: place.number,
            id: random()?,
            size: place.size,
            modified_ms,
            facts: bucket.seal_facts(row_place, to_json(&facts)?)?,
            extents: stored.extents,
        };
        let id = part.id;
        let epoch = self.writer.epoch_of(&stored.new_blobs);
        let commit =
            PartCommit { bucket: bucket.row.id, upload: place.upload, part, new_blobs: stored.new_blobs, epoch };
        let outcome = match self.catalog.put_part(commit).await {
            Err(CatalogError::Unknown(why)) => match self.catalog.part(place.upload, place.number).await {
                Ok(Some(part)) if part.id == id => Ok(()),
                _ => Err(CatalogError::Unknown(why)),
            },
            outcome => outcome,
        };
        self.settle_blobs(&new_blobs, &outcome).await;
        Ok(outcome.map(|()| {
            self.tell(stored.hooks, stored.ends);
            self.count_plan(&storage, stored.reason, place.size, &new_blobs);
            modified_ms
        }))
    }

    /// Removes blobs of a commit that surely did not go through. BaseGone ones are still needed:
    /// their content is read back.
    async fn settle_blobs<T>(&self, rows: &[BlobRow], outcome: &Result<T, CatalogError>) {
        let surely_failed = match outcome {
            Ok(_) | Err(CatalogError::Unknown(_) | CatalogError::BaseGone) => false,
            Err(_) => true,
        };
        if surely_failed {
            for row in rows {
                self.finisher.forget_blob(row).await;
            }
        }
    }

    /// Lets later choices of bases, and the converter, know of what was committed.
    fn tell(&self, hooks: Option<BlobHooks>, ends: Vec<Between>) {
        hooks.into_iter().for_each(|hooks| self.hooks.tell(hooks));
        let bases = &self.finisher.stager.encoder.bases;
        ends.into_iter().for_each(|between| bases.ends().tell(between));
    }

    fn count_plan(&self, storage: &StorageFacts, reason: Reason, logical: u64, new_blobs: &[BlobRow]) {
        let metrics = &self.metrics;
        let form = storage.form.as_str();
        metrics.plan_total.with_label_values(&[form, reason.as_str()]).inc();
        metrics.logical_bytes_total.with_label_values(&[form]).inc_by(logical);
        metrics.stored_bytes_total.with_label_values(&[form]).inc_by(storage.stored_bytes);
        if logical > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a ratio for a histogram")]
            metrics.reduction_ratio.with_label_values(&[form]).observe(storage.stored_bytes as f64 / logical as f64);
        }
        let saved = metrics.saved_bytes_total.clone();
        for row in new_blobs {
            let forms = row.forms;
            saved.with_label_values(&["zstd"]).inc_by(forms.zstd_plain.saturating_sub(forms.zstd_stored));
            saved.with_label_values(&["delta"]).inc_by(forms.delta_plain.saturating_sub(forms.delta_stored));
        }
        if storage.form == Form::Dedup {
            saved.with_label_values(&["dedup"]).inc_by(logical);
        }
    }
}

/// Where a version goes.
#[derive(Clone, Copy)]
struct VersionPlace<'a> {
    key: &'a str,
    id: VersionId,
    size: u64,
    terms: &'a Terms,
}

/// Where a part goes.
#[derive(Clone, Copy)]
struct PartPlace<'a> {
    key: &'a str,
    upload: UploadId,
    number: u32,
    size: u64,
}

impl StorageFacts {
    /// The facts of an object made of parts: sums, the majority by bytes, every base once.
    fn of_parts<'a>(parts: impl Iterator<Item = (u64, &'a Self)>) -> Self {
        let mut total = Self::default();
        let mut majority: Vec<(Form, &str, u64)> = Vec::new();
        for (size, part) in parts {
            total.stored_bytes += part.stored_bytes;
            for base in &part.bases {
                if !total.bases.contains(base) {
                    total.bases.push(base.clone());
                }
            }
            match majority.iter_mut().find(|(form, ..)| *form == part.form) {
                Some((.., bytes)) => *bytes += size,
                None => majority.push((part.form, &part.reason, size)),
            }
        }
        if let Some((form, reason, _)) = majority.into_iter().max_by_key(|(.., bytes)| *bytes) {
            total.form = form;
            total.reason = reason.to_owned();
        }
        total
    }
}

/// Extents that cover a range of some content.
fn clip(extents: &[Extent], range: Range<u64>) -> Vec<Extent> {
    let mut start = 0;
    let mut clipped = Vec::new();
    for extent in extents {
        let (from, to) = (range.start.max(start), range.end.min(start + extent.len));
        if from < to {
            clipped.push(Extent { blob: extent.blob, offset: extent.offset + (from - start), len: to - from });
        }
        start += extent.len;
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::BlobKey;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn clipping_extents_keeps_exactly_the_bytes_of_the_range(
            lens in prop::collection::vec(1u64..1 << 40, 1..20), from in 0u64..1 << 44, len in 1u64..1 << 44
        ) {
            let mut at = 0;
            let extents: Vec<Extent> = lens.iter().map(|len| { at += len; Extent { blob: BlobKey([0; 16]), offset: at - len, len: *len } }).collect();
            let (from, to) = (from.min(at), from.saturating_add(len).min(at));
            let clipped = clip(&extents, from..to);
            prop_assert_eq!(clipped.iter().map(|extent| extent.len).sum::<u64>(), to - from);
            // Offsets were laid out like addresses, so contiguity shows as equality.
            let mut next = from;
            for extent in clipped {
                prop_assert_eq!(extent.offset, next);
                next += extent.len;
            }
        }
    }
}
