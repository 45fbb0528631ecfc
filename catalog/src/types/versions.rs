//! Versions of keys: what is committed, changed and removed.

use super::{
    blobs::{BlobRow, Extent, NewBlob},
    ids::{BucketId, Seq, UnixMs, VersionId, VersionRef},
    lock::VersionLock,
    notices::NewNotice,
};
use serde::{Deserialize, Serialize};

/// A version's row, without its extents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// Its id.
    pub id: VersionId,
    /// Its place in the total order.
    pub seq: Seq,
    /// Last-Modified: monotonic per key (I12).
    pub modified_ms: UnixMs,
    /// Logical size in bytes.
    pub size: u64,
    /// ETag, content headers, user metadata, checksums …: opaque, possibly sealed.
    #[serde(with = "crate::encoding::base64_bytes")]
    pub facts: Vec<u8>,
    /// The writer's digest of the extents: sealed facts are bound to it, and readers compare it
    /// with the extents.
    #[serde(with = "crate::encoding::hex_array")]
    pub extents_digest: [u8; 32],
    /// Whether its S3 version id is its id. Otherwise it is the key's null version; a key has at
    /// most one.
    pub named: bool,
    /// Whether it is a delete marker: it has no content and no facts, and is never current.
    pub marker: bool,
    /// What keeps it from being removed.
    #[serde(default, skip_serializing_if = "VersionLock::is_none")]
    pub lock: VersionLock,
}

impl Version {
    /// How a request names it.
    pub fn reference(&self) -> VersionRef {
        if self.named { VersionRef::Id(self.id) } else { VersionRef::Null }
    }
}

/// A version with what is needed to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The row.
    pub version: Version,
    /// Its extents, in order.
    pub extents: Vec<Extent>,
    /// Every blob the extents name, each once.
    pub blobs: Vec<BlobRow>,
}

/// What must hold of a key for a commit to go through (conditional writes, compare-and-swap).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precondition {
    /// Nothing.
    None,
    /// The key has no current version.
    Absent,
    /// The current version is this one.
    Current(VersionId),
    /// The key has no current version, and none was deleted with [`DeleteCommit::hide`]: what is
    /// adopted by itself never brings back what a client deleted.
    Adoptable,
}

/// A new current version for a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutCommit {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// The new version's id.
    pub id: VersionId,
    /// Logical size.
    pub size: u64,
    /// Facts.
    #[serde(with = "crate::encoding::base64_bytes")]
    pub facts: Vec<u8>,
    /// Digest of `extents` as the writer computes it.
    #[serde(with = "crate::encoding::hex_array")]
    pub extents_digest: [u8; 32],
    /// What must hold.
    pub precondition: Precondition,
    /// Blobs this commit brings.
    pub new_blobs: Vec<NewBlob>,
    /// Content, over new and existing live blobs of the same bucket; lengths add up to `size`.
    pub extents: Vec<Extent>,
    /// What keeps the version from being removed; the bucket must have object lock when there is
    /// something.
    #[serde(default, skip_serializing_if = "VersionLock::is_none")]
    pub lock: VersionLock,
    /// Who is told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NewNotice>,
    /// Now, by the writer's clock; clamped to be monotonic per key.
    pub now_ms: UnixMs,
    /// The writer's epoch; a fenced one is refused.
    pub epoch: u32,
}

/// What a commit gave the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Place in the total order.
    pub seq: Seq,
    /// Last-Modified after clamping.
    pub modified_ms: UnixMs,
    /// Whether the version got a name of its own; otherwise it is the key's null version.
    pub named: bool,
}

/// A deletion that names no version. In a bucket that keeps no versions it removes the key's
/// current version. In one that does it adds a delete marker; where versioning is suspended the
/// marker is the null version and takes the place of the one there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteCommit {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// What must hold.
    pub precondition: Precondition,
    /// Remember that the key was deleted, whether or not it had a version: its bucket reads through
    /// to a store that may still have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hide: bool,
    /// The id of the delete marker, should there be one. Journals of before have none: their
    /// buckets kept no versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<VersionId>,
    /// Who is told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NewNotice>,
    /// Now.
    pub now_ms: UnixMs,
    /// The writer's epoch.
    pub epoch: u32,
}

/// Replacement of a version's extents by others with the same content (re-base, conversion, merge
/// of extents): goes through only when the version still is what it was (hazard E20). With the same
/// extents it replaces a version's facts alone (its tags).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewriteCommit {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// The version.
    pub id: VersionId,
    /// Its extents as the writer read them.
    pub old_extents: Vec<Extent>,
    /// Its facts as the writer read them: what another changed meanwhile is not overwritten. `None`
    /// does not look. Not in the journal, which has what was not refused.
    #[serde(skip)]
    pub old_facts: Option<Vec<u8>>,
    /// What the extents become; the same total length.
    pub new_extents: Vec<Extent>,
    /// The facts as they are to stand (sealed facts are bound to the extents, so they are sealed
    /// anew).
    #[serde(with = "crate::encoding::base64_bytes")]
    pub facts: Vec<u8>,
    /// Digest of `new_extents`.
    #[serde(with = "crate::encoding::hex_array")]
    pub extents_digest: [u8; 32],
    /// Blobs this commit brings.
    pub new_blobs: Vec<NewBlob>,
    /// Who is told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NewNotice>,
    /// Now.
    pub now_ms: UnixMs,
    /// The writer's epoch.
    pub epoch: u32,
}
