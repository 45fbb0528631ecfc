//! What happens to versions that are there: they are deleted, locked, or their facts (tags, grants)
//! are replaced while their content stays where it is.

use crate::{
    bucket::{
        BucketHandle, RowPlace,
        notify::{Cause, Notifier, Subject, lanes_of},
    },
    deployment::writer::Writer,
    error::EngineError,
    facts::{VersionFacts, to_json},
    read::object::ReadPath,
    resources::{clock::now_ms, ids::version_id},
};
use catalog::{
    Catalog, CatalogError, DeleteCommit, DeleteVersionCommit, Deleted, LockChange, LockCommit, Precondition,
    RewriteCommit, Version, VersionId, VersionRef,
};
use std::sync::Arc;

/// How often it is tried against others who change the same object.
const TRIES_MAX: usize = 16;

/// Changes what is there: deletes, locks and amends versions.
pub struct Changes {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) notifier: Arc<Notifier>,
}

impl Changes {
    /// Removes a key's current version, or hides it behind a delete marker where the bucket keeps
    /// versions.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`], or what the catalog says.
    pub async fn delete(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        precondition: Precondition,
        cause: Option<&Cause>,
    ) -> Result<Deleted, EngineError> {
        let hide = bucket.settings.read_through.is_some();
        let id = version_id()?;
        let notices = self.notifier.notices(bucket, cause, Subject { key, ..Subject::default() })?;
        let lanes = lanes_of(&notices);
        let (changes, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        self.writer
            .detached(async move {
                let (now_ms, epoch) = (now_ms(), changes.writer.epoch());
                let key_read_back = key.clone();
                let marker = Some(id);
                let commit = DeleteCommit { bucket, key, precondition, hide, marker, notices, now_ms, epoch };
                let outcome = changes.catalog.delete(commit).await;
                changes.notifier.ring(&lanes);
                match outcome {
                    // A marker tells that the deletion went through (I9). Without one the client
                    // repeats it, which does no harm.
                    Err(CatalogError::Unknown(why)) => {
                        match changes.catalog.version(bucket, &key_read_back, id).await? {
                            Some(content) => Ok(Deleted { removed: None, marker: Some(content.version) }),
                            None => Err(CatalogError::Unknown(why).into()),
                        }
                    }
                    outcome => Ok(outcome?),
                }
            })
            .await
    }

    /// Removes one version of a key for good, be it an object or a delete marker; gives it back,
    /// `None` when there is none of that name. `bypass_governance`: whoever asks may end a
    /// retention in governance mode.
    ///
    /// # Errors
    /// [`EngineError::PreconditionFailed`], [`EngineError::Locked`], or what the catalog says.
    pub async fn delete_version(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        version: VersionRef,
        precondition: Precondition,
        bypass_governance: bool,
        cause: Option<&Cause>,
    ) -> Result<Option<Version>, EngineError> {
        let hide = bucket.settings.read_through.is_some();
        let notices = self.notifier.notices(bucket, cause, Subject { key, ..Subject::default() })?;
        let lanes = lanes_of(&notices);
        let (changes, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        self.writer
            .detached(async move {
                let (now_ms, epoch) = (now_ms(), changes.writer.epoch());
                let commit = DeleteVersionCommit {
                    bucket,
                    key,
                    version,
                    precondition,
                    hide,
                    bypass_governance,
                    notices,
                    now_ms,
                    epoch,
                };
                let outcome = changes.catalog.delete_version(commit).await;
                changes.notifier.ring(&lanes);
                Ok(outcome?)
            })
            .await
    }

    /// Changes what keeps a version from being removed; `false` when the version is gone.
    ///
    /// # Errors
    /// [`EngineError::Locked`] when its retention does not allow it, [`EngineError::BucketState`]
    /// without object lock, or what the catalog says.
    pub async fn set_lock(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        id: VersionId,
        change: LockChange,
        bypass_governance: bool,
    ) -> Result<bool, EngineError> {
        let (changes, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
        self.writer
            .detached(async move {
                let (now_ms, epoch) = (now_ms(), changes.writer.epoch());
                let commit = LockCommit { bucket, key, id, change, bypass_governance, now_ms, epoch };
                Ok(changes.catalog.set_lock(commit).await?)
            })
            .await
    }

    /// Changes what is said of a version, such as its tags or grants; `false` when it is gone. Its
    /// content, id and Last-Modified stay.
    ///
    /// # Errors
    /// [`EngineError::Busy`] when others change the object all the time; what the catalog says.
    pub async fn amend(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        id: VersionId,
        cause: Option<&Cause>,
        change: impl Fn(&mut VersionFacts) + Send,
    ) -> Result<bool, EngineError> {
        for _ in 0..TRIES_MAX {
            let Some(content) = self.catalog.version(bucket.row.id, key, id).await? else { return Ok(false) };
            let mut facts = self.read.open_facts(bucket, &content.version)?;
            let before = facts.clone();
            change(&mut facts);
            let version = Some(content.version.reference());
            let size = Some(content.version.size);
            let subject = Subject { key, size, etag: Some(&facts.etag), id: Some(id), version };
            let notices = self.notifier.notices(bucket, cause, subject)?;
            if facts == before && notices.is_empty() {
                return Ok(true);
            }
            let lanes = lanes_of(&notices);
            let extents_digest = content.version.extents_digest;
            let place = RowPlace { key, id: id.0, part: None, extents_digest };
            let facts = bucket.seal_facts(place, to_json(&facts)?)?;
            let commit = RewriteCommit {
                bucket: bucket.row.id,
                key: key.to_owned(),
                id,
                old_extents: content.extents.clone(),
                old_facts: Some(content.version.facts),
                new_extents: content.extents,
                facts: facts.clone(),
                extents_digest,
                new_blobs: Vec::new(),
                notices,
                now_ms: now_ms(),
                epoch: self.writer.epoch(),
            };
            let (changes, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
            let swapped = self
                .writer
                .detached(async move {
                    let outcome = changes.catalog.rewrite(commit).await;
                    changes.notifier.ring(&lanes);
                    match outcome {
                        Ok(()) => Ok(true),
                        Err(CatalogError::Conflict) => Ok(false),
                        Err(CatalogError::Unknown(why)) => match changes.catalog.version(bucket, &key, id).await? {
                            Some(now) if now.version.facts == facts => Ok(true),
                            _ => Err(CatalogError::Unknown(why).into()),
                        },
                        Err(error) => Err(error.into()),
                    }
                })
                .await?;
            if swapped {
                return Ok(true);
            }
        }
        Err(EngineError::Busy("the object is being changed all the time"))
    }
}
