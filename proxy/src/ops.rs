//! S3's operations over the engine: one file per family. Nothing here decides how content is
//! stored.

pub mod access;
mod attributes;
pub mod body;
mod buckets;
mod complete;
mod conditions;
pub mod configuration;
mod copy;
mod delete;
mod digest;
mod encryption;
mod get;
mod late;
mod lifecycle;
mod list;
mod multipart;
mod notification;
mod object_facts;
mod object_lock;
pub(crate) mod post;
mod put;
mod refusal;
pub mod request;
pub mod sts;
mod token;
mod versions;

use body::RequestBody;
use futures::future::BoxFuture;
use request::{Answer, Result, S3Request};
use s3_wire::Operation;

/// Runs the operation a request names. Each stands behind a pointer, so that none has the room of
/// the largest, which would be moved with it.
///
/// # Errors
/// What S3 answers.
pub fn operate<'a>(request: &'a S3Request, body: &'a mut RequestBody) -> BoxFuture<'a, Result<Answer>> {
    tracing::trace!(target: "path", "operate()");
    match request.operation {
        Operation::ListBuckets => Box::pin(buckets::list(request)),
        Operation::CreateBucket => Box::pin(buckets::create(request, body)),
        Operation::HeadBucket => Box::pin(buckets::head(request)),
        Operation::DeleteBucket => Box::pin(buckets::delete(request)),
        Operation::GetBucketLocation => Box::pin(buckets::location(request)),
        Operation::GetBucketVersioning => Box::pin(versions::get_versioning(request)),
        Operation::PutBucketVersioning => Box::pin(versions::put_versioning(request, body)),
        Operation::ListObjectVersions => Box::pin(versions::list(request)),
        Operation::PutObject => Box::pin(put::put_object(request, body)),
        Operation::GetObject => Box::pin(get::get_object(request)),
        Operation::HeadObject => Box::pin(get::head_object(request)),
        Operation::DeleteObject => Box::pin(delete::delete_object(request)),
        Operation::DeleteObjects => Box::pin(delete::delete_objects(request, body)),
        Operation::CopyObject => Box::pin(copy::copy_object(request)),
        Operation::ListObjects => Box::pin(list::list_objects(request)),
        Operation::ListObjectsV2 => Box::pin(list::list_objects_v2(request)),
        Operation::CreateMultipartUpload => Box::pin(multipart::create(request)),
        Operation::UploadPart => Box::pin(multipart::upload_part(request, body)),
        Operation::UploadPartCopy => Box::pin(copy::upload_part_copy(request)),
        Operation::ListParts => Box::pin(multipart::list_parts(request)),
        Operation::ListMultipartUploads => Box::pin(list::list_uploads(request)),
        Operation::CompleteMultipartUpload => Box::pin(complete::complete(request, body)),
        Operation::AbortMultipartUpload => Box::pin(multipart::abort(request)),
        Operation::PostObject => Box::pin(post::post_object(request, body)),
        Operation::PutBucketCors => Box::pin(configuration::put_bucket_cors(request, body)),
        Operation::OptionsObject => Box::pin(configuration::preflight(request)),
        Operation::PutObjectTagging => Box::pin(configuration::put_object_tagging(request, body)),
        Operation::DeleteObjectTagging => Box::pin(configuration::delete_object_tagging(request)),
        Operation::GetBucketLifecycleConfiguration => Box::pin(lifecycle::get(request)),
        Operation::PutBucketLifecycleConfiguration => Box::pin(lifecycle::put(request, body)),
        Operation::DeleteBucketLifecycle => Box::pin(lifecycle::delete(request)),
        Operation::GetBucketNotificationConfiguration => Box::pin(notification::get(request)),
        Operation::PutBucketNotificationConfiguration => Box::pin(notification::put(request, body)),
        Operation::GetBucketEncryption => Box::pin(encryption::get_configuration(request)),
        Operation::PutBucketEncryption => Box::pin(encryption::put_configuration(request, body)),
        Operation::DeleteBucketEncryption => Box::pin(encryption::delete_configuration(request)),
        Operation::GetObjectLockConfiguration => Box::pin(object_lock::get_configuration(request)),
        Operation::PutObjectLockConfiguration => Box::pin(object_lock::put_configuration(request, body)),
        Operation::GetObjectRetention => Box::pin(object_lock::get_retention(request)),
        Operation::PutObjectRetention => Box::pin(object_lock::put_retention(request, body)),
        Operation::GetObjectLegalHold => Box::pin(object_lock::get_legal_hold(request)),
        Operation::PutObjectLegalHold => Box::pin(object_lock::put_legal_hold(request, body)),
        Operation::GetObjectAttributes => Box::pin(attributes::get_object_attributes(request)),
        Operation::PutBucketAccelerateConfiguration
        | Operation::PutBucketRequestPayment
        | Operation::PutBucketLogging => Box::pin(configuration::put_switched_off(request, body)),
        Operation::PutBucketTagging => Box::pin(configuration::put_bucket_tagging(request, body)),
        Operation::PutBucketPolicy => Box::pin(access::put_policy(request, body)),
        Operation::GetBucketPolicy => Box::pin(access::get_policy(request)),
        Operation::GetBucketPolicyStatus => Box::pin(access::get_policy_status(request)),
        Operation::GetBucketAcl | Operation::GetObjectAcl => Box::pin(access::get_acl(request)),
        Operation::PutBucketAcl | Operation::PutObjectAcl => Box::pin(access::put_acl(request, body)),
        Operation::GetBucketOwnershipControls => Box::pin(access::get_ownership(request)),
        Operation::PutBucketOwnershipControls => Box::pin(access::put_ownership(request, body)),
        Operation::DeleteBucketOwnershipControls => Box::pin(access::delete_ownership(request)),
        Operation::GetPublicAccessBlock => Box::pin(access::get_public_access_block(request)),
        Operation::PutPublicAccessBlock => Box::pin(access::put_public_access_block(request, body)),
        Operation::DeleteBucketTagging
        | Operation::DeleteBucketPolicy
        | Operation::DeleteBucketCors
        | Operation::DeletePublicAccessBlock
        | Operation::DeleteBucketWebsite
        | Operation::DeleteBucketReplication => Box::pin(configuration::delete_of_bucket(request)),
        Operation::GetObjectTagging => Box::pin(configuration::of_object(request)),
        Operation::GetBucketTagging
        | Operation::GetBucketCors
        | Operation::GetBucketLogging
        | Operation::GetBucketWebsite
        | Operation::GetBucketReplication
        | Operation::GetBucketAccelerateConfiguration
        | Operation::GetBucketRequestPayment
        | Operation::GetBucketInventoryConfiguration
        | Operation::GetBucketAnalyticsConfiguration
        | Operation::GetBucketMetricsConfiguration
        | Operation::GetBucketIntelligentTieringConfiguration => Box::pin(configuration::of_bucket(request)),
    }
}
