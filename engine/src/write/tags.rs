//! Tags and grants of an object that is there: its facts are replaced, its content stays where it
//! is.

use crate::{
    Engine,
    bucket::{BucketHandle, RowPlace},
    error::EngineError,
    facts::Facts,
    resources::clock::now_ms,
    write::publish::to_json,
};
use catalog::{CatalogError, RewriteCommit, VersionId};
use std::sync::Arc;

/// How often it is tried against others who change the same object.
const TRIES_MAX: usize = 16;

impl Engine {
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
        change: impl Fn(&mut Facts) + Send,
    ) -> Result<bool, EngineError> {
        for _ in 0..TRIES_MAX {
            let Some(content) = self.catalog.version(bucket.row.id, key, id).await? else { return Ok(false) };
            let mut facts = self.open_facts(bucket, &content.version)?;
            let before = facts.clone();
            change(&mut facts);
            if facts == before {
                return Ok(true);
            }
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
                now_ms: now_ms(),
                epoch: self.epoch(),
            };
            let (engine, bucket, key) = (self.clone(), bucket.row.id, key.to_owned());
            let swapped = self
                .detached(async move {
                    match engine.catalog.rewrite(commit).await {
                        Ok(()) => Ok(true),
                        Err(CatalogError::Conflict) => Ok(false),
                        Err(CatalogError::Unknown(why)) => match engine.catalog.version(bucket, &key, id).await? {
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
