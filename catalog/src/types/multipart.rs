//! Multipart uploads and their parts.

use super::{
    blobs::{Extent, NewBlob},
    ids::{BucketId, UnixMs, UploadId, VersionId},
    lock::VersionLock,
    notices::NewNotice,
    versions::Precondition,
};
use serde::{Deserialize, Serialize};

/// A multipart upload's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// Its id.
    pub id: UploadId,
    /// When it was created.
    pub created_ms: UnixMs,
    /// Who may go on with it.
    pub owner: String,
    /// Content headers, user metadata, checksum algorithm and type, base chosen …: opaque, possibly
    /// sealed.
    #[serde(with = "crate::encoding::base64_bytes")]
    pub facts: Vec<u8>,
    /// Set when it has been completed.
    pub completed: Option<CompletedUpload>,
}

/// What a completed upload became: kept a while so that Complete is idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedUpload {
    /// The version it became.
    pub version: VersionId,
    /// Digest of the part list that was completed.
    #[serde(with = "crate::encoding::hex_array")]
    pub parts_digest: [u8; 32],
    /// When.
    pub completed_ms: UnixMs,
}

/// One uploaded part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Part number, 1 to 10,000.
    pub number: u32,
    /// Random id of this very upload of the part (a part may be uploaded again).
    #[serde(with = "crate::encoding::hex_array")]
    pub id: [u8; 16],
    /// Logical size.
    pub size: u64,
    /// When it was stored.
    pub modified_ms: UnixMs,
    /// ETag, checksums: opaque, possibly sealed.
    #[serde(with = "crate::encoding::base64_bytes")]
    pub facts: Vec<u8>,
    /// Its content.
    pub extents: Vec<Extent>,
}

/// A part to be stored; replaces an earlier one of the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartCommit {
    /// Bucket.
    pub bucket: BucketId,
    /// The upload.
    pub upload: UploadId,
    /// The part.
    pub part: Part,
    /// Blobs this commit brings.
    pub new_blobs: Vec<NewBlob>,
    /// The writer's epoch.
    pub epoch: u32,
}

/// Completion of an upload: its chosen parts' extents become a version, the other parts are
/// dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteCommit {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// The upload.
    pub upload: UploadId,
    /// Chosen parts in order: number and the part's random id as the writer read it; a part that
    /// was replaced since makes the commit
    /// [`CatalogError::Conflict`](crate::CatalogError::Conflict).
    #[serde(with = "crate::encoding::chosen_parts")]
    pub parts: Vec<(u32, [u8; 16])>,
    /// Digest of the part list the client sent.
    #[serde(with = "crate::encoding::hex_array")]
    pub parts_digest: [u8; 32],
    /// The new version's id.
    pub id: VersionId,
    /// Logical size: the sum of the chosen parts.
    pub size: u64,
    /// Facts of the version.
    #[serde(with = "crate::encoding::base64_bytes")]
    pub facts: Vec<u8>,
    /// Digest of the version's extents.
    #[serde(with = "crate::encoding::hex_array")]
    pub extents_digest: [u8; 32],
    /// What must hold of the key.
    pub precondition: Precondition,
    /// As [`PutCommit::lock`].
    #[serde(default, skip_serializing_if = "VersionLock::is_none")]
    pub lock: VersionLock,
    /// Who is told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NewNotice>,
    /// Now.
    pub now_ms: UnixMs,
    /// The writer's epoch.
    pub epoch: u32,
}

/// A page of uploads, ordered by key, then creation, then id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadsQuery {
    /// Bucket.
    pub bucket: BucketId,
    /// Only keys that start with this.
    pub prefix: String,
    /// Roll-up, as in [`ListQuery`].
    pub delimiter: Option<String>,
    /// Go on after this key (all its uploads), or after this upload of the key when `upload_after`
    /// is given.
    pub key_after: Option<String>,
    /// See `key_after`.
    pub upload_after: Option<UploadId>,
    /// Most entries, 1 to 1000.
    pub limit: usize,
}

/// A page of uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadsPage {
    /// Open uploads in order (completed ones are not listed).
    pub uploads: Vec<Upload>,
    /// Common prefixes in order.
    pub common_prefixes: Vec<String>,
    /// There is more after the last of them.
    pub truncated: bool,
    /// Where to go on: the key, and the upload when the page ended between uploads of one key.
    pub next: Option<(String, Option<UploadId>)>,
}
