//! Conditional writes: what must hold, before the body and in the commit, and who lost a race.

use super::request::{Result, S3Request, time_of};
use crate::engine::{BucketHandle, EngineError, ObjectInfo, VersionFacts};
use catalog::Precondition;
use s3_wire::{
    ETag, ErrorCode, S3Error,
    headers::{Current, WriteConditions},
};

impl S3Request {
    /// What the key must hold for a conditional write to go through, from what it holds now.
    pub(super) async fn precondition(
        &self,
        bucket: &BucketHandle,
        key: &str,
    ) -> Result<(WriteConditions, Precondition)> {
        let conditions = WriteConditions::from_headers(&self.headers)?;
        let precondition = self.holding(bucket, key, &conditions).await?;
        Ok((conditions, precondition))
    }

    /// The same for whoever completes an upload. A key that was written or deleted since the upload
    /// began is a conflict, as in S3, also where the conditions hold: what was uploaded was made
    /// without it.
    pub(super) async fn precondition_of_upload(
        &self,
        bucket: &BucketHandle,
        key: &str,
        upload: &VersionFacts,
    ) -> Result<(WriteConditions, Precondition)> {
        let (conditions, precondition) = self.precondition(bucket, key).await?;
        let changed = match (&precondition, upload.begun_over) {
            (Precondition::None | Precondition::Adoptable, _) | (_, None) => false,
            (Precondition::Absent, Some(then)) => then.current.is_some(),
            (Precondition::Current(now), Some(then)) => then.current != Some(*now),
        };
        if changed { Err(conflict(&conditions, key)) } else { Ok((conditions, precondition)) }
    }

    /// What the key must still hold when conditions, which hold now, are to hold in the commit.
    pub(super) async fn holding(
        &self,
        bucket: &BucketHandle,
        key: &str,
        conditions: &WriteConditions,
    ) -> Result<Precondition> {
        if conditions.is_empty() {
            return Ok(Precondition::None);
        }
        if *conditions != (WriteConditions { if_none_match_any: true, ..WriteConditions::default() }) {
            // Whether a tag, a date or a size matches says what the object holds (C41).
            self.authorize("s3:GetObject", bucket, Some(key)).await?;
        }
        let current = self.service.engine.read.head(bucket, key).await.map_err(|error| self.refusal(error))?;
        conditions.evaluate(current.as_ref().map(held).as_ref())?;
        Ok(current.map_or(Precondition::Absent, |info| Precondition::Current(info.version.id)))
    }

    /// As [`S3Request::refusal`] for a commit under conditions. When the race was lost, the
    /// conditions are held against the winner: they fail, or they would hold again, which S3 calls
    /// a conflict worth repeating.
    pub(super) async fn commit_refusal(
        &self,
        bucket: &BucketHandle,
        key: &str,
        conditions: &WriteConditions,
        error: EngineError,
    ) -> S3Error {
        if !matches!(error, EngineError::PreconditionFailed) {
            return self.refusal(error);
        }
        match self.service.engine.read.head(bucket, key).await {
            Err(error) => self.refusal(error),
            Ok(winner) => match conditions.evaluate(winner.as_ref().map(held).as_ref()) {
                Err(error) => error,
                Ok(()) => conflict(conditions, key),
            },
        }
    }
}

/// Somebody else changed the key meanwhile, and the conditions hold.
fn conflict(conditions: &WriteConditions, key: &str) -> S3Error {
    S3Error::new(ErrorCode::ConditionalRequestConflict).field("Condition", conditions.header()).field("Key", key)
}

/// What an object says to conditions of writes.
fn held(info: &ObjectInfo) -> Current {
    let etag = ETag::from_wire(&info.facts.etag);
    Current { etag, last_modified: time_of(info.version.modified_ms), size: info.version.size }
}
