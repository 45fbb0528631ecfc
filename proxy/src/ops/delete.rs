//! DeleteObject and DeleteObjects.

use super::{Result, document, empty, no_such_version};
use crate::{
    engine::BucketHandle,
    server::{
        RequestBody,
        service::{Answer, S3Request},
    },
};
use catalog::Precondition;
use futures::{StreamExt as _, stream};
use http::StatusCode;
use s3_wire::{
    ETag, ErrorCode, ObjectKey, S3Error,
    checksum::{ChecksumClaim, Claims},
    headers::WriteConditions,
    xml::{
        request::{Delete, DeleteEntry},
        response::{DeleteFailure, DeleteResult, DeletedEntry},
    },
};

/// Deletes under way at once for one request: the catalog commits them together.
const DELETES_AT_ONCE: usize = 32;

/// Deletes a key. One that is not there is deleted already.
pub(super) async fn delete_object(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    request.refuse_version()?;
    let key = request.key()?;
    let (conditions, precondition) = request.precondition(&here.bucket, key).await?;
    match request.service.engine.delete(&here.bucket, key, precondition).await {
        Ok(_) => Ok(empty(StatusCode::NO_CONTENT)),
        Err(error) => Err(request.commit_refusal(&here.bucket, key, &conditions, error).await),
    }
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
    while let Some((entry, outcome)) = outcomes.next().await {
        match outcome {
            Ok(()) if quiet => {}
            Ok(()) => {
                let DeleteEntry { key, version_id, .. } = entry;
                result.deleted.push(DeletedEntry { key, version_id, ..DeletedEntry::default() });
            }
            Err(error) => {
                result.errors.push(DeleteFailure { key: entry.key, version_id: entry.version_id, error });
            }
        }
    }
    Ok(document(&result))
}

async fn delete_entry(request: &S3Request, bucket: &BucketHandle, entry: &DeleteEntry) -> Result<()> {
    let key = ObjectKey::new(entry.key.as_str())?;
    let key = key.as_str();
    request.principal.authorize("s3:DeleteObject", Some(&bucket.row.name), Some(key))?;
    if let Some(version) = entry.version_id.as_deref().filter(|version| !matches!(*version, "" | "null")) {
        return Err(no_such_version(version));
    }
    let engine = &request.service.engine;
    let conditions = WriteConditions { if_match: entry.etag.clone(), ..WriteConditions::default() };
    let precondition = if conditions.is_empty() {
        Precondition::None
    } else {
        request.principal.authorize("s3:GetObject", Some(&bucket.row.name), Some(key))?;
        let current = engine.head(bucket, key).await.map_err(|error| request.refusal(error))?;
        conditions.evaluate(current.as_ref().map(|info| ETag::from_wire(&info.facts.etag)).as_ref())?;
        current.map_or(Precondition::Absent, |info| Precondition::Current(info.version.id))
    };
    match engine.delete(bucket, key, precondition).await {
        Ok(_) => Ok(()),
        Err(error) => Err(request.commit_refusal(bucket, key, &conditions, error).await),
    }
}
