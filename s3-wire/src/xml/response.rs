//! Documents we send, as plain structs.

mod access;
mod attributes;
mod configurations;
mod listings;
mod multipart;
mod objects;

use crate::{
    checksum::{Checksum, ChecksumAlgorithm, ChecksumType},
    error::S3Error,
    etag::ETag,
};
use std::time::SystemTime;

pub use access::{AccessControlPolicy, ListedGrant, ListedGrantee, PolicyStatus};
pub use attributes::{GetObjectAttributesResponse, ObjectParts, PostResponse};
pub use configurations::DefaultConfiguration;

/// Who owns something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The canonical id, 64 hex digits.
    pub id: String,
    /// The name shown.
    pub display_name: String,
}

/// `ListAllMyBucketsResult`.
#[derive(Clone, Debug)]
pub struct ListAllMyBucketsResult {
    /// The caller.
    pub owner: Owner,
    /// Buckets in order of name.
    pub buckets: Vec<BucketEntry>,
    /// The prefix asked for.
    pub prefix: Option<String>,
    /// Where the next page starts.
    pub continuation_token: Option<String>,
}

/// One bucket.
#[derive(Clone, Debug)]
pub struct BucketEntry {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created: SystemTime,
    /// Its region, when asked for.
    pub region: Option<String>,
}

/// `LocationConstraint`. Empty for `us-east-1`.
#[derive(Clone, Debug)]
pub struct LocationConstraint {
    /// The bucket's region.
    pub region: String,
}

/// `VersioningConfiguration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersioningConfiguration {
    /// Never enabled: an empty document.
    Unversioned,
    /// `Enabled`.
    Enabled,
    /// `Suspended`.
    Suspended,
}

/// One object in a listing.
#[derive(Clone, Debug)]
pub struct ObjectEntry {
    /// The key, not encoded.
    pub key: String,
    /// When it was last modified.
    pub last_modified: SystemTime,
    /// Its tag.
    pub etag: ETag,
    /// Its logical size in bytes.
    pub size: u64,
    /// Its storage class.
    pub storage_class: String,
    /// Its owner, where the request asks for it.
    pub owner: Option<Owner>,
    /// The algorithm of its checksum.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
}

/// `ListBucketResult` of ListObjects (version 1). Strings are given plain; `encoding_type_url`
/// makes the writer encode them.
#[derive(Clone, Debug)]
pub struct ListObjectsResult {
    /// The bucket.
    pub bucket: String,
    /// As asked.
    pub prefix: String,
    /// As asked.
    pub delimiter: Option<String>,
    /// As asked.
    pub marker: String,
    /// Set when truncated and a delimiter was given.
    pub next_marker: Option<String>,
    /// As asked, at most 1000.
    pub max_keys: u32,
    /// Whether there is more.
    pub is_truncated: bool,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
    /// The objects.
    pub objects: Vec<ObjectEntry>,
    /// The common prefixes.
    pub common_prefixes: Vec<String>,
}

/// `ListBucketResult` of ListObjectsV2.
#[derive(Clone, Debug)]
pub struct ListObjectsV2Result {
    /// The bucket.
    pub bucket: String,
    /// As asked.
    pub prefix: String,
    /// As asked.
    pub delimiter: Option<String>,
    /// As asked.
    pub start_after: Option<String>,
    /// As asked.
    pub continuation_token: Option<String>,
    /// Where the next page starts, when truncated.
    pub next_continuation_token: Option<String>,
    /// As asked, at most 1000.
    pub max_keys: u32,
    /// Whether there is more.
    pub is_truncated: bool,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
    /// The objects.
    pub objects: Vec<ObjectEntry>,
    /// The common prefixes.
    pub common_prefixes: Vec<String>,
}

/// `InitiateMultipartUploadResult`.
#[derive(Clone, Debug)]
pub struct InitiateMultipartUploadResult {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The upload.
    pub upload_id: String,
}

/// `ListPartsResult`.
#[derive(Clone, Debug)]
pub struct ListPartsResult {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The upload.
    pub upload_id: String,
    /// Who started the upload.
    pub initiator: Owner,
    /// Who will own the object.
    pub owner: Owner,
    /// The storage class asked for.
    pub storage_class: String,
    /// The part number after which the list starts.
    pub part_number_marker: u32,
    /// The last number of this page.
    pub next_part_number_marker: Option<u32>,
    /// As asked, at most 1000.
    pub max_parts: u32,
    /// Whether there is more.
    pub is_truncated: bool,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
    /// What the upload was created with.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
    /// The parts.
    pub parts: Vec<PartEntry>,
}

/// One part.
#[derive(Clone, Debug)]
pub struct PartEntry {
    /// 1–10,000.
    pub number: u32,
    /// When it was uploaded.
    pub last_modified: SystemTime,
    /// Its tag.
    pub etag: ETag,
    /// Its size in bytes.
    pub size: u64,
    /// Its checksum.
    pub checksum: Option<Checksum>,
}

/// `ListMultipartUploadsResult`.
#[derive(Clone, Debug)]
pub struct ListMultipartUploadsResult {
    /// The bucket.
    pub bucket: String,
    /// As asked.
    pub prefix: String,
    /// As asked.
    pub delimiter: Option<String>,
    /// As asked.
    pub key_marker: String,
    /// As asked.
    pub upload_id_marker: String,
    /// Where the next page starts.
    pub next_key_marker: Option<String>,
    /// Where the next page starts.
    pub next_upload_id_marker: Option<String>,
    /// As asked, at most 1000.
    pub max_uploads: u32,
    /// Whether there is more.
    pub is_truncated: bool,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
    /// The uploads.
    pub uploads: Vec<UploadEntry>,
    /// The common prefixes.
    pub common_prefixes: Vec<String>,
}

/// One open upload.
#[derive(Clone, Debug)]
pub struct UploadEntry {
    /// Its key.
    pub key: String,
    /// Its id.
    pub upload_id: String,
    /// Who started it.
    pub initiator: Owner,
    /// Who will own the object.
    pub owner: Owner,
    /// The storage class asked for.
    pub storage_class: String,
    /// When it was started.
    pub initiated: SystemTime,
    /// What it was created with.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
}

/// `CompleteMultipartUploadResult`.
#[derive(Clone, Debug)]
pub struct CompleteMultipartUploadResult {
    /// The object's URL or path.
    pub location: String,
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The object's tag.
    pub etag: ETag,
    /// The object's checksum.
    pub checksum: Option<Checksum>,
}

/// `CopyObjectResult`, and `CopyPartResult` of UploadPartCopy.
#[derive(Clone, Debug)]
pub struct CopyResult {
    /// Whether this is a part.
    pub part: bool,
    /// The copy's tag.
    pub etag: ETag,
    /// When it was made.
    pub last_modified: SystemTime,
    /// Its checksum.
    pub checksum: Option<Checksum>,
}

/// `DeleteResult`.
#[derive(Clone, Debug, Default)]
pub struct DeleteResult {
    /// What was deleted (leave out when quiet).
    pub deleted: Vec<DeletedEntry>,
    /// What was not.
    pub errors: Vec<DeleteFailure>,
}

/// One deleted object.
#[derive(Clone, Debug, Default)]
pub struct DeletedEntry {
    /// Its key.
    pub key: String,
    /// The version named in the request.
    pub version_id: Option<String>,
    /// The delete marker made or removed.
    pub delete_marker_version_id: Option<String>,
}

/// `ListVersionsResult`. Strings are given plain; `encoding_type_url` makes the writer encode them.
#[derive(Clone, Debug)]
pub struct ListVersionsResult {
    /// The bucket.
    pub bucket: String,
    /// As asked.
    pub prefix: String,
    /// As asked.
    pub delimiter: Option<String>,
    /// As asked.
    pub key_marker: String,
    /// As asked.
    pub version_id_marker: String,
    /// Where the next page starts.
    pub next_key_marker: Option<String>,
    /// Where the next page starts; absent behind a common prefix.
    pub next_version_id_marker: Option<String>,
    /// As asked, at most 1000.
    pub max_keys: u32,
    /// Whether there is more.
    pub is_truncated: bool,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
    /// Versions and delete markers in order.
    pub versions: Vec<ListedVersion>,
    /// The common prefixes.
    pub common_prefixes: Vec<String>,
}

/// One version or delete marker in a listing.
#[derive(Clone, Debug)]
pub struct ListedVersion {
    /// Its version id.
    pub version_id: String,
    /// Whether it is the newest of its key.
    pub is_latest: bool,
    /// What it is.
    pub what: VersionOrMarker,
}

/// What stands under a version id.
#[derive(Clone, Debug)]
pub enum VersionOrMarker {
    /// An object.
    Version(ObjectEntry),
    /// A delete marker.
    Marker {
        /// The key, not encoded.
        key: String,
        /// When it was made.
        last_modified: SystemTime,
        /// Its owner.
        owner: Owner,
    },
}

/// One object that was not deleted.
#[derive(Clone, Debug)]
pub struct DeleteFailure {
    /// Its key.
    pub key: String,
    /// The version named in the request.
    pub version_id: Option<String>,
    /// Why.
    pub error: S3Error,
}

#[cfg(test)]
mod tests;
