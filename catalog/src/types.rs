//! The nouns of the catalog. All of them serialise, because the journal keeps every mutation.

use serde::{Deserialize, Serialize};

/// Catalog id of a bucket; never used again after the bucket is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BucketId(pub i64);

/// A version's id: 16 random bytes made by the writer before the commit, so that an unknown outcome can be read back (I9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VersionId(#[serde(with = "crate::encoding::hex_array")] pub [u8; 16]);

/// A multipart upload's id: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UploadId(#[serde(with = "crate::encoding::hex_array")] pub [u8; 16]);

/// A blob's id (its first four bytes are the writer epoch, big endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobKey(#[serde(with = "crate::encoding::hex_array")] pub [u8; 16]);

/// Position in the catalog's total order of mutations (I12). Starts at 1.
pub type Seq = i64;

/// Milliseconds since 1970-01-01 UTC.
pub type UnixMs = i64;

/// A bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Catalog id.
    pub id: BucketId,
    /// S3 name.
    pub name: String,
    /// Canonical id of the owner.
    pub owner: String,
    /// When it was made.
    pub created_ms: UnixMs,
    /// Its settings as JSON: compression, encryption, effort, backend, key id … (opaque here).
    pub settings: serde_json::Value,
}

/// One wrapped domain key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedKey {
    /// Its id.
    #[serde(with = "crate::encoding::hex_array")]
    pub id: [u8; 16],
    /// The bucket it serves.
    pub bucket: BucketId,
    /// Epoch within the bucket, from 1.
    pub epoch: u32,
    /// Fingerprint of the KEK that wraps it.
    #[serde(with = "crate::encoding::hex_array")]
    pub kek: [u8; 8],
    /// The wrapped bytes.
    #[serde(with = "crate::encoding::base64_bytes")]
    pub wrapped: Vec<u8>,
}

/// What kind of content a blob row stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlobForm {
    /// Whole content: may be a base and a duplicate's target.
    Whole,
    /// Needs bases: has edges.
    Delta,
}

/// A blob's life (hazard E4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlobState {
    /// May be referenced.
    Live,
    /// Nothing references it and nothing may any more; a tombstone row waits for its purge.
    Dying,
}

/// Logical and stored bytes of one coding inside a blob, for accounting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormBytes {
    /// Plain bytes stored raw.
    pub raw_plain: u64,
    /// Plain bytes stored as zstd.
    pub zstd_plain: u64,
    /// Stored bytes of those.
    pub zstd_stored: u64,
    /// Plain bytes stored as deltas.
    pub delta_plain: u64,
    /// Stored bytes of those.
    pub delta_stored: u64,
}

/// A blob's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRow {
    /// Its id.
    pub id: BlobKey,
    /// The bucket whose domain it belongs to: only versions of this bucket may reference it.
    pub bucket: BucketId,
    /// Key epoch of the domain; 0 when not sealed.
    pub key_epoch: u32,
    /// Name of the backend that holds it.
    pub backend: String,
    /// Whole or delta.
    pub form: BlobForm,
    /// Live or dying.
    pub state: BlobState,
    /// Plain bytes of content.
    pub plain_len: u64,
    /// Bytes in the backend (or inline).
    pub stored_len: u64,
    /// Where its root lies.
    pub root_offset: u64,
    /// The root's length.
    pub root_len: u32,
    /// The root's tag.
    #[serde(with = "crate::encoding::hex_array")]
    pub root_tag: [u8; 16],
    /// Content digest for exact duplicates (plain or keyed SHA-256); `None` when unknown.
    #[serde(with = "crate::encoding::hex_array_option")]
    pub digest: Option<[u8; 32]>,
    /// Bytes by coding.
    pub forms: FormBytes,
    /// The complete blob when it lives in the catalog instead of a backend.
    #[serde(with = "crate::encoding::base64_option")]
    pub inline: Option<Vec<u8>>,
}

/// A blob that a commit brings along: its row and the bases it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewBlob {
    /// The row; state must be live.
    pub row: BlobRow,
    /// Whole blobs its view names (one edge each, I3); empty for whole content.
    pub bases: Vec<BlobKey>,
}

/// A run of a blob's plain content; a version's content is a list of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// The blob.
    pub blob: BlobKey,
    /// First plain byte.
    pub offset: u64,
    /// Length in bytes; never 0.
    pub len: u64,
}

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
    /// The writer's digest of the extents: sealed facts are bound to it, and readers compare it with the extents.
    #[serde(with = "crate::encoding::hex_array")]
    pub extents_digest: [u8; 32],
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
}

/// Removal of a key's current version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteCommit {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// What must hold.
    pub precondition: Precondition,
    /// Now.
    pub now_ms: UnixMs,
    /// The writer's epoch.
    pub epoch: u32,
}

/// Replacement of a version's extents by others with the same content (re-base, conversion, merge of extents): goes through only
/// when the version still is what it was (hazard E20).
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
    /// What they become; the same total length.
    pub new_extents: Vec<Extent>,
    /// The facts as they are to stand (sealed facts are bound to the extents, so they are sealed anew).
    #[serde(with = "crate::encoding::base64_bytes")]
    pub facts: Vec<u8>,
    /// Digest of `new_extents`.
    #[serde(with = "crate::encoding::hex_array")]
    pub extents_digest: [u8; 32],
    /// Blobs this commit brings.
    pub new_blobs: Vec<NewBlob>,
    /// Now.
    pub now_ms: UnixMs,
    /// The writer's epoch.
    pub epoch: u32,
}

/// A listing request over current versions, in byte order of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListQuery {
    /// Bucket.
    pub bucket: BucketId,
    /// Only keys that start with this.
    pub prefix: String,
    /// Keys that contain this after the prefix are rolled up into one common prefix each. Not empty when given.
    pub delimiter: Option<String>,
    /// Where to go on: only keys and common prefixes greater than this (a common prefix is skipped with all its keys when it is
    /// `after` itself, or when `after` lies inside it).
    pub after: Option<String>,
    /// Most entries (keys and common prefixes together), 1 to 1000.
    pub limit: usize,
}

/// One entry of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListEntry {
    /// A key's current version.
    Key(Version),
    /// A common prefix, delimiter included.
    CommonPrefix(String),
}

/// One page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Entries in order.
    pub entries: Vec<ListEntry>,
    /// `Some(last key or common prefix)` when there is more: the next page's `after`.
    pub next: Option<String>,
}

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
    /// Content headers, user metadata, checksum algorithm and type, base chosen …: opaque, possibly sealed.
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

/// Completion of an upload: its chosen parts' extents become a version, the other parts are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompleteCommit {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// The upload.
    pub upload: UploadId,
    /// Chosen parts in order: number and the part's random id as the writer read it; a part that was replaced since makes the commit [`CatalogError::Conflict`](crate::CatalogError::Conflict).
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
    /// Go on after this key (all its uploads), or after this upload of the key when `upload_after` is given.
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

/// A blob waiting for its purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The blob.
    pub blob: BlobKey,
    /// The backend that holds it.
    pub backend: String,
    /// True when it lives in the catalog: nothing is to be deleted from a backend.
    pub inline: bool,
    /// Its stored bytes.
    pub stored_len: u64,
    /// Since when.
    pub since_ms: UnixMs,
}

/// Bytes of one bucket. Σ stored = exclusive + shared + base_only + overhead + tombstoned + inline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBytes {
    /// Blobs with exactly one referring version or part.
    pub exclusive: u64,
    /// Blobs with several.
    pub shared: u64,
    /// Blobs that only deltas need.
    pub base_only: u64,
    /// Blobs of other kinds (keysets, journals, backups).
    pub overhead: u64,
    /// Dying blobs not yet purged.
    pub tombstoned: u64,
    /// Blobs inside the catalog.
    pub inline: u64,
}

/// Counts and sums of one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketStats {
    /// Name.
    pub name: String,
    /// Current versions.
    pub objects: u64,
    /// Sum of their logical sizes.
    pub logical_bytes: u64,
    /// Open multipart uploads.
    pub uploads: u64,
    /// Logical bytes of their parts.
    pub upload_bytes: u64,
    /// Stored bytes by why they are kept.
    pub stored: StoredBytes,
    /// Stored bytes of live whole blobs, inline ones included.
    pub whole_bytes: u64,
    /// Stored bytes of live delta blobs, inline ones included.
    pub delta_bytes: u64,
    /// Sums of [`FormBytes`] over live blobs.
    pub forms: FormBytes,
}

/// One journal row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Sequence number: consecutive with every other mutation's.
    pub seq: Seq,
    /// When, by the writer's clock.
    pub at_ms: UnixMs,
    /// The mutation as JSON.
    pub mutation: serde_json::Value,
}
