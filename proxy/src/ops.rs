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
use request::{Answer, Result, S3Request};
use s3_wire::Operation;

/// Runs the operation a request names.
///
/// # Errors
/// What S3 answers.
pub async fn operate(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    tracing::trace!(target: "path", "operate()");
    match request.operation {
        Operation::ListBuckets => buckets::list(request).await,
        Operation::CreateBucket => buckets::create(request, body).await,
        Operation::HeadBucket => buckets::head(request).await,
        Operation::DeleteBucket => buckets::delete(request).await,
        Operation::GetBucketLocation => buckets::location(request).await,
        Operation::GetBucketVersioning => versions::get_versioning(request).await,
        Operation::PutBucketVersioning => versions::put_versioning(request, body).await,
        Operation::ListObjectVersions => versions::list(request).await,
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
        Operation::PostObject => Box::pin(post::post_object(request, body)).await,
        Operation::PutBucketCors => configuration::put_bucket_cors(request, body).await,
        Operation::OptionsObject => configuration::preflight(request).await,
        Operation::PutObjectTagging => configuration::put_object_tagging(request, body).await,
        Operation::DeleteObjectTagging => configuration::delete_object_tagging(request).await,
        Operation::GetBucketLifecycleConfiguration => lifecycle::get(request).await,
        Operation::PutBucketLifecycleConfiguration => lifecycle::put(request, body).await,
        Operation::DeleteBucketLifecycle => lifecycle::delete(request).await,
        Operation::GetBucketNotificationConfiguration => notification::get(request).await,
        Operation::PutBucketNotificationConfiguration => notification::put(request, body).await,
        Operation::GetBucketEncryption => encryption::get_configuration(request).await,
        Operation::PutBucketEncryption => encryption::put_configuration(request, body).await,
        Operation::DeleteBucketEncryption => encryption::delete_configuration(request).await,
        Operation::GetObjectLockConfiguration => object_lock::get_configuration(request).await,
        Operation::PutObjectLockConfiguration => object_lock::put_configuration(request, body).await,
        Operation::GetObjectRetention => object_lock::get_retention(request).await,
        Operation::PutObjectRetention => object_lock::put_retention(request, body).await,
        Operation::GetObjectLegalHold => object_lock::get_legal_hold(request).await,
        Operation::PutObjectLegalHold => object_lock::put_legal_hold(request, body).await,
        Operation::GetObjectAttributes => attributes::get_object_attributes(request).await,
        Operation::PutBucketAccelerateConfiguration
        | Operation::PutBucketRequestPayment
        | Operation::PutBucketLogging => configuration::put_switched_off(request, body).await,
        Operation::PutBucketTagging => configuration::put_bucket_tagging(request, body).await,
        Operation::PutBucketPolicy => access::put_policy(request, body).await,
        Operation::GetBucketPolicy => access::get_policy(request).await,
        Operation::GetBucketPolicyStatus => access::get_policy_status(request).await,
        Operation::GetBucketAcl | Operation::GetObjectAcl => access::get_acl(request).await,
        Operation::PutBucketAcl | Operation::PutObjectAcl => access::put_acl(request, body).await,
        Operation::GetBucketOwnershipControls => access::get_ownership(request).await,
        Operation::PutBucketOwnershipControls => access::put_ownership(request, body).await,
        Operation::DeleteBucketOwnershipControls => access::delete_ownership(request).await,
        Operation::GetPublicAccessBlock => access::get_public_access_block(request).await,
        Operation::PutPublicAccessBlock => access::put_public_access_block(request, body).await,
        Operation::DeleteBucketTagging
        | Operation::DeleteBucketPolicy
        | Operation::DeleteBucketCors
        | Operation::DeletePublicAccessBlock
        | Operation::DeleteBucketWebsite
        | Operation::DeleteBucketReplication => configuration::delete_of_bucket(request).await,
        Operation::GetObjectTagging => configuration::of_object(request).await,
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
        | Operation::GetBucketIntelligentTieringConfiguration => configuration::of_bucket(request).await,
    }
}
