//! DeleteObject and DeleteObjects.

use super::{
    body::RequestBody,
    request::{Answer, Result, S3Request, document, empty, no_such_version, set},
    versions::{self, DELETE_MARKER},
};
use crate::{
    audit::{NamedObject, OfBody},
    engine::{BucketHandle, EngineError, notify::Event},
};
use catalog::{Precondition, Version, VersionRef};
use futures::{StreamExt as _, stream};
use http::StatusCode;
use s3_wire::{
    ErrorCode, ObjectKey, S3Error,
    checksum::{ChecksumClaim, Claims},
    headers::WriteConditions,
    xml::{
        request::{Delete, DeleteEntry},
        response::{DeleteFailure, DeleteResult, DeletedEntry},
    },
};

/// Deletes under way at once for one request: the catalog commits them together.
const DELETES_AT_ONCE: usize = 32;

/// Deletes a key, or one version of it. What is not there is deleted already.
pub(super) async fn delete_object(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let version = request.version()?;
    let key = request.key()?;
    let conditions = WriteConditions::of_deletion(&request.headers)?;
    let precondition = deletable(request, &here.bucket, key, &conditions).await?;
    let bypass = request.may_bypass_governance(&here.bucket, key)?;
    let gone = match delete(request, &here.bucket, (key, version), precondition, bypass).await {
        Ok(gone) => gone,
        Err(error) => return Err(request.commit_refusal(&here.bucket, key, &conditions, error).await),
    };
    let mut answer = empty(StatusCode::NO_CONTENT);
    let headers = answer.headers_mut();
    if gone.marker {
        set(headers, DELETE_MARKER, "true");
    }
    if let Some(version) = gone.version {
        versions::write(headers, &here.bucket, version);
    }
    Ok(answer)
}

/// What the key must hold for a deletion under conditions. A key that a delete marker hides is told
/// from one that never was: no condition holds for a marker.
async fn deletable(
    request: &S3Request,
    bucket: &BucketHandle,
    key: &str,
    conditions: &WriteConditions,
) -> Result<Precondition> {
    let held = request.holding(bucket, key, conditions).await;
    let absent = match &held {
        Err(error) => error.code() == ErrorCode::NoSuchKey,
        Ok(precondition) => *precondition == Precondition::Absent && conditions.needs_object(),
    };
    if absent && is_marked(request, bucket, key).await? {
        return Err(S3Error::new(ErrorCode::PreconditionFailed).field("Condition", "If-Match"));
    }
    held
}

/// Whether a delete marker is what the key holds.
async fn is_marked(request: &S3Request, bucket: &BucketHandle, key: &str) -> Result<bool> {
    let marker = request.service.engine.read.newest_marker(bucket, key).await;
    Ok(marker.map_err(|error| request.refusal(error))?.is_some())
}

/// What a deletion is answered with.
struct Gone {
    /// The version that was named, or the delete marker that was made.
    version: Option<VersionRef>,
    /// Whether that is a delete marker.
    marker: bool,
}

async fn delete(
    request: &S3Request,
    bucket: &BucketHandle,
    (key, version): (&str, Option<VersionRef>),
    precondition: Precondition,
    bypass: bool,
) -> Result<Gone, EngineError> {
    let engine = &request.service.engine;
    let cause = request.cause(bucket, Event::Removed);
    let cause = cause.as_ref();
    let Some(version) = version else {
        let marker = engine.changes.delete(bucket, key, precondition, cause).await?.marker;
        return Ok(Gone { version: marker.as_ref().map(Version::reference), marker: marker.is_some() });
    };
    let removed = engine.changes.delete_version(bucket, key, version, precondition, bypass, cause).await?;
    Ok(Gone { version: Some(version), marker: removed.is_some_and(|version| version.marker) })
}

/// Deletes up to 1,000 keys, each authorized on its own (C34).
pub(super) async fn delete_objects(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let claims = Claims::from_headers(&request.headers, &request.payload)?;
    if claims.content_md5.is_none() && claims.checksum == ChecksumClaim::None {
        return Err(S3Error::with_message(
            ErrorCode::InvalidRequest,
            "Missing required header for this request: Content-MD5 OR x-amz-checksum-*",
        ));
    }
    let delete = Delete::parse(&request.document(claims, body).await?)?;
    if request.found.is_none() {
        return delete_nowhere(request, delete);
    }
    let here = request.in_bucket().await?;
    let quiet = delete.quiet;
    let mut result = DeleteResult::default();
    let bucket = &here.bucket;
    let mut outcomes = stream::iter(delete.objects)
        .map(|entry| async move {
            let outcome = delete_entry(request, bucket, &entry).await;
            (entry, outcome)
        })
        .buffered(DELETES_AT_ONCE)
        .boxed();
    let mut of_body = OfBody::default();
    while let Some((entry, outcome)) = outcomes.next().await {
        of_body.objects.push(named_object(&entry, outcome.as_ref().err()));
        match outcome {
            Ok(_) if quiet => {}
            Ok(gone) => {
                let DeleteEntry { key, version_id, .. } = entry;
                let marker = gone.version.filter(|_| gone.marker);
                let delete_marker_version_id = marker.map(|version| version.to_string());
                result.deleted.push(DeletedEntry { key, version_id, delete_marker_version_id });
            }
            Err(error) => {
                result.errors.push(DeleteFailure { key: entry.key, version_id: entry.version_id, error });
            }
        }
    }
    // Nobody else sets it.
    let _ = request.of_body.set(of_body);
    Ok(document(&result))
}

/// An entry as the audit log has it.
fn named_object(entry: &DeleteEntry, error: Option<&S3Error>) -> NamedObject {
    let code = error.map(|error| error.code().as_str());
    NamedObject { key: entry.key.clone(), version: entry.version_id.clone(), code }
}

/// A bucket that is not there: only who could delete something in it is told so. Others are
/// answered as by a bucket that is not theirs.
fn delete_nowhere(request: &S3Request, delete: Delete) -> Result<Answer> {
    let bucket = request.bucket_name()?;
    let mut result = DeleteResult::default();
    for DeleteEntry { key, version_id, .. } in delete.objects {
        let action = action_of(version_id.as_deref());
        match request.authorize_nowhere(action, &format!("arn:aws:s3:::{bucket}/{key}")) {
            Ok(()) => return Err(S3Error::new(ErrorCode::NoSuchBucket).field("BucketName", bucket)),
            Err(error) => result.errors.push(DeleteFailure { key, version_id, error }),
        }
    }
    Ok(document(&result))
}

fn action_of(version: Option<&str>) -> &'static str {
    if version.is_some() { "s3:DeleteObjectVersion" } else { "s3:DeleteObject" }
}

async fn delete_entry(request: &S3Request, bucket: &BucketHandle, entry: &DeleteEntry) -> Result<Gone> {
    let key = ObjectKey::new(entry.key.as_str())?;
    let key = key.as_str();
    // Unlike the parameter of a request, an id of a list that is none is one that nothing has.
    let parse = |text| versions::parse("VersionId", text).map_err(|_| no_such_version(text));
    let version = entry.version_id.as_deref().map(parse);
    let action = action_of(entry.version_id.as_deref());
    let version = version.transpose();
    request.authorize_version(action, bucket, key, version.as_ref().ok().copied().flatten()).await?;
    let version = version?;
    let conditions = &entry.conditions;
    let precondition = deletable(request, bucket, key, conditions).await?;
    let bypass = request.may_bypass_governance(bucket, key)?;
    match delete(request, bucket, (key, version), precondition, bypass).await {
        Ok(gone) => Ok(gone),
        Err(error) => Err(request.commit_refusal(bucket, key, conditions, error).await),
    }
}
