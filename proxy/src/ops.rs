//! S3's operations over the engine: one file per family. Nothing here decides how content is stored.

mod buckets;
mod complete;
mod copy;
mod delete;
mod digest;
mod get;
mod late;
mod list;
mod multipart;
mod object_facts;
mod put;
mod token;

use crate::{
    engine::{BucketHandle, EngineError, StoreError},
    server::{
        AnswerBody, RequestBody,
        service::{Answer, S3Request},
    },
};
use bytes::Bytes;
use catalog::{Precondition, UnixMs};
use http::{HeaderMap, HeaderValue, StatusCode};
use s3_wire::{
    DecodedBody, ETag, ErrorCode, Framing, Operation, S3Error, checksum::Claims, headers::WriteConditions,
    operation::RequestBody as BodyKind, response, xml::Document,
};
use std::{
    ops::Deref,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The most bytes of one PUT and of the source of one copy: 5 GiB.
const PUT_BYTES_MAX: u64 = 5 << 30;

type Result<T, E = S3Error> = std::result::Result<T, E>;

/// Runs the operation a request names.
///
/// # Errors
/// What S3 answers.
pub async fn operate(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    match request.operation {
        Operation::ListBuckets => buckets::list(request).await,
        Operation::CreateBucket => buckets::create(request, body).await,
        Operation::HeadBucket => buckets::head(request).await,
        Operation::DeleteBucket => buckets::delete(request).await,
        Operation::GetBucketLocation => buckets::location(request).await,
        Operation::GetBucketVersioning => buckets::versioning(request).await,
        Operation::PutObject => put::put_object(request, body).await,
        Operation::GetObject => get::get_object(request).await,
        Operation::HeadObject => get::head_object(request).await,
        Operation::DeleteObject => delete::delete_object(request).await,
        Operation::DeleteObjects => delete::delete_objects(request, body).await,
        Operation::CopyObject => copy::copy_object(request).await,
        Operation::ListObjects => list::list_objects(request).await,
        Operation::ListObjectsV2 => list::list_objects_v2(request).await,
        Operation::CreateMultipartUpload => multipart::create(request).await,
        Operation::UploadPart => multipart::upload_part(request, body).await,
        Operation::UploadPartCopy => copy::upload_part_copy(request).await,
        Operation::ListParts => multipart::list_parts(request).await,
        Operation::ListMultipartUploads => list::list_uploads(request).await,
        Operation::CompleteMultipartUpload => complete::complete(request, body).await,
        Operation::AbortMultipartUpload => multipart::abort(request).await,
    }
}

/// A request about a bucket that is there.
struct InBucket<'r> {
    request: &'r S3Request,
    bucket: BucketHandle,
}

impl Deref for InBucket<'_> {
    type Target = S3Request;

    fn deref(&self) -> &S3Request {
        self.request
    }
}

impl S3Request {
    fn bucket_name(&self) -> Result<&str> {
        let bucket = self.target.bucket.as_ref();
        Ok(bucket.ok_or_else(|| S3Error::new(ErrorCode::InvalidBucketName))?.as_str())
    }

    fn key(&self) -> Result<&str> {
        let key = self.target.key.as_ref();
        Ok(key.ok_or_else(|| S3Error::invalid_argument("key", "", "A key has at least one byte."))?.as_str())
    }

    /// Looks the addressed bucket up.
    async fn in_bucket(&self) -> Result<InBucket<'_>> {
        let bucket = self.bucket(self.bucket_name()?).await?;
        self.key_shows.store(!bucket.is_sealed(), std::sync::atomic::Ordering::Relaxed);
        Ok(InBucket { request: self, bucket })
    }

    async fn bucket(&self, name: &str) -> Result<BucketHandle> {
        let bucket = self.service.engine.bucket(name).await.map_err(|error| self.refusal(error))?;
        bucket.ok_or_else(|| S3Error::new(ErrorCode::NoSuchBucket).field("BucketName", name))
    }

    /// There are no versions beside the current one, whose id is `null`.
    fn refuse_version(&self) -> Result<()> {
        match self.target.query.single("versionId")? {
            None | Some("null") => Ok(()),
            Some(version) => Err(no_such_version(version)),
        }
    }

    /// Reads the request's document.
    async fn document(&self, claims: Claims, body: &mut RequestBody) -> Result<Bytes> {
        let BodyKind::Xml { bytes_max } = self.operation.row().body else {
            return Ok(Bytes::new());
        };
        let is_empty = http_body::Body::is_end_stream(body);
        let framing = Framing::of_document(&self.headers, &self.payload, is_empty)?;
        let mut body = DecodedBody::new(body, framing);
        let document = body.collect(bytes_max).await?;
        let mut digests = s3_wire::checksum::Digests::new(claims.digests());
        digests.update(&document);
        let mut claims = claims;
        if let Some(trailers) = body.trailers() {
            claims.settle(trailers)?;
        }
        claims.verify(&digests.finish())?;
        Ok(document)
    }

    /// What the client is told about an engine error. Logged here, once.
    fn refusal(&self, error: EngineError) -> S3Error {
        match error {
            EngineError::PreconditionFailed => ErrorCode::PreconditionFailed.into(),
            EngineError::NotEmpty => ErrorCode::BucketNotEmpty.into(),
            EngineError::NoBucket => ErrorCode::NoSuchBucket.into(),
            EngineError::NoUpload => ErrorCode::NoSuchUpload.into(),
            EngineError::Conflict => ErrorCode::OperationAborted.into(),
            EngineError::TooLarge => ErrorCode::EntityTooLarge.into(),
            EngineError::Busy(what) => {
                self.service.metrics.rejected_total.with_label_values(&[what]).inc();
                tracing::debug!(what, "busy");
                ErrorCode::SlowDown.into()
            }
            EngineError::Full => {
                tracing::error!("storage is full");
                S3Error::with_message(ErrorCode::ServiceUnavailable, "The server's storage is full.")
            }
            EngineError::Unavailable(why) => {
                tracing::warn!(why, "unavailable");
                ErrorCode::ServiceUnavailable.into()
            }
            EngineError::Fenced => {
                tracing::warn!("a write was refused because this process lost its epoch");
                ErrorCode::ServiceUnavailable.into()
            }
            EngineError::Integrity(why) => {
                self.service.metrics.integrity_errors_total.inc();
                tracing::error!(why, "stored bytes are not what they should be");
                ErrorCode::InternalError.into()
            }
            EngineError::Original(why) => {
                tracing::error!(why, "the original of adopted content is not what it was");
                S3Error::with_message(
                    ErrorCode::InternalError,
                    "The original of this object was changed or removed in its store after it was adopted.",
                )
            }
            EngineError::Other(why) => {
                tracing::error!(why, "internal error");
                ErrorCode::InternalError.into()
            }
            EngineError::NoJob(_) | EngineError::JobRuns(_) | EngineError::JobRefused(_) | EngineError::Stopped(_) => {
                tracing::error!(%error, "a request met an error of background jobs");
                ErrorCode::InternalError.into()
            }
        }
    }

    fn store_refusal(&self, error: StoreError<S3Error>) -> S3Error {
        match error {
            StoreError::Body(error) => error,
            StoreError::Engine(error) => self.refusal(error),
        }
    }

    /// What the key must hold for a conditional write to go through, from what it holds now.
    async fn precondition(&self, bucket: &BucketHandle, key: &str) -> Result<(WriteConditions, Precondition)> {
        let conditions = WriteConditions::from_headers(&self.headers)?;
        if conditions.is_empty() {
            return Ok((conditions, Precondition::None));
        }
        if conditions.if_match.is_some() || conditions.if_match_any {
            // Whether a tag matches says what the object holds (C41).
            self.principal.authorize("s3:GetObject", Some(&bucket.row.name), Some(key))?;
        }
        let current = self.service.engine.head(bucket, key).await.map_err(|error| self.refusal(error))?;
        let etag = current.as_ref().map(|info| ETag::from_wire(&info.facts.etag));
        conditions.evaluate(etag.as_ref())?;
        let precondition = match current {
            Some(info) => Precondition::Current(info.version.id),
            None => Precondition::Absent,
        };
        Ok((conditions, precondition))
    }

    /// As [`S3Request::refusal`] for a commit under conditions. When the race was lost, the conditions are held against the winner: they fail, or they
    /// would hold again, which S3 calls a conflict worth repeating.
    async fn commit_refusal(
        &self,
        bucket: &BucketHandle,
        key: &str,
        conditions: &WriteConditions,
        error: EngineError,
    ) -> S3Error {
        if !matches!(error, EngineError::PreconditionFailed) {
            return self.refusal(error);
        }
        match self.service.engine.head(bucket, key).await {
            Err(error) => self.refusal(error),
            Ok(winner) => {
                let etag = winner.map(|info| ETag::from_wire(&info.facts.etag));
                match conditions.evaluate(etag.as_ref()) {
                    Err(error) => error,
                    Ok(()) => ErrorCode::ConditionalRequestConflict.into(),
                }
            }
        }
    }
}

fn no_such_version(version: &str) -> S3Error {
    S3Error::new(ErrorCode::NoSuchVersion).field("VersionId", version)
}

fn no_such_key(key: &str) -> S3Error {
    S3Error::new(ErrorCode::NoSuchKey).field("Key", key)
}

fn time_of(ms: UnixMs) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// An answer without a body.
fn empty(status: StatusCode) -> Answer {
    response::empty(status).map(AnswerBody::from)
}

/// An answer with a document.
fn document(document: &impl Document) -> Answer {
    response::document(StatusCode::OK, document).map(AnswerBody::from)
}

/// Sets a header from text that is known to be visible ASCII; anything else is left out.
fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    match HeaderValue::from_str(value) {
        Ok(value) => {
            headers.insert(name, value);
        }
        Err(_) => tracing::warn!(name, "a response header is not sendable and is left out"),
    }
}
