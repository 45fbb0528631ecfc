//! The nouns of the catalog. All of them serialise, because the journal keeps every mutation.

mod amounts;
mod history;
mod jobs;
mod lock;
mod multipart;

pub use amounts::{BucketStats, StoredBytes, Tombstone, TrashFile, TrashSum};
pub use history::{DeleteVersionCommit, Deleted, VersionEntry, VersionRef, Versioning, VersionsPage, VersionsQuery};
pub use jobs::{JobLease, JobRow, JobTake, JobWish, JournalEntry};
pub use lock::{LockChange, LockCommit, Retention, RetentionMode, VersionLock};
pub use multipart::{CompleteCommit, CompletedUpload, Part, PartCommit, Upload, UploadsPage, UploadsQuery};

use serde::{Deserialize, Serialize};

/// Catalog id of a bucket; never used again after the bucket is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BucketId(pub i64);

/// A version's id: 16 random bytes made by the writer before the commit, so that an unknown outcome
/// can be read back (I9).
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
    /// Whether it keeps versions.
    #[serde(default, skip_serializing_if = "Versioning::is_off")]
    pub versioning: Versioning,
    /// Whether its versions can be locked: then it keeps versions, for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub object_lock: bool,
}

/// A bucket to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBucket {
    /// S3 name.
    pub name: String,
    /// Canonical id of the owner.
    pub owner: String,
    /// Its settings.
    pub settings: serde_json::Value,
    /// Whether its versions can be locked; it keeps versions then.
    pub object_lock: bool,
    /// Now.
    pub now_ms: UnixMs,
}

/// One wrapped domain key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrappedKey {
    /// Its id.
    #[serde(with = "crate::encoding::hex_array")]
    pub id: [u8; 16],
    /// The bucket it serves.
    pub bucket: BucketId,
    /// Epoch within the bucket, from 1; 0 for the bucket's similarity secret.
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

impl std::ops::AddAssign for FormBytes {
    fn add_assign(&mut self, other: Self) {
        self.raw_plain += other.raw_plain;
        self.zstd_plain += other.zstd_plain;
        self.zstd_stored += other.zstd_stored;
        self.delta_plain += other.delta_plain;
        self.delta_stored += other.delta_stored;
    }
}

impl std::iter::Sum for FormBytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, forms| {
            sum += forms;
            sum
        })
    }
}

/// An object that lay in a store before this catalog knew it, under its own key: content that is
/// not ours (docs/decisions/0008-foreign-content.md).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its key in the store that [`BlobRow::backend`] names.
    pub key: String,
    /// Its ETag when it was registered: another one means another content.
    pub etag: String,
    /// Whether that is the MD5 of its content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub md5: bool,
    /// Where in it the row's content begins: an original longer than a blob may be has several
    /// rows.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: u64,
    /// Whether it is to be removed with the blob; otherwise nothing of ours ever touches it.
    pub owned: bool,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
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
    /// Name of the backend that holds it, or of the store that holds its original.
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
    /// Set when the content lies in an object that is not a blob. Such a row is whole, stores
    /// nothing (`stored_len` 0, no root, no digest, not inline), and is nobody's base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Original>,
    /// True when it holds the contents of several small objects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pack: bool,
    /// The id of its second copy in the same backend, which is as long as it is. Changes while the
    /// blob lives ([`CopyCommit`]), unlike everything above; never set in a commit that brings the
    /// blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<BlobKey>,
}

/// A second copy of a blob's stored bytes takes the place of another, or of none (hazard E8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCommit {
    /// The blob.
    pub blob: BlobKey,
    /// The copy it has, as the writer read it.
    pub replaces: Option<BlobKey>,
    /// The new copy, durable in the blob's backend. Its id begins with `epoch`, as a blob's does.
    pub copy: BlobKey,
    /// The writer's epoch; a fenced one is refused.
    pub epoch: u32,
}

/// How much of a pack is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackUse {
    /// The pack.
    pub blob: BlobKey,
    /// Its bucket.
    pub bucket: BucketId,
    /// Its plain bytes.
    pub plain_len: u64,
    /// Plain bytes that some version or part still names, each counted once.
    pub live_len: u64,
}

/// A blob that a commit brings along: its row and the bases it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewBlob {
    /// The row; state must be live.
    pub row: BlobRow,
    /// Whole blobs its view names (one edge each, I3); empty for whole content.
    pub bases: Vec<BlobKey>,
    /// It was stored in a hurry: it goes into the queue of what is to be encoded better later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
    /// Stored bytes it takes more than the delta in whose place it stands because that was read
    /// often; 0 for any other blob.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub heat_bytes: u64,
}

/// Whole content that stands in the place of a delta because that was read often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heated {
    /// The blob; live.
    pub row: BlobRow,
    /// Stored bytes it takes more than the delta did.
    pub heat_bytes: u64,
}

/// A blob in the queue of what is to be encoded better later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deferred {
    /// The blob; live.
    pub row: BlobRow,
    /// Since when it waits.
    pub since_ms: UnixMs,
}

/// How much waits to be encoded better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeferredSum {
    /// Blobs.
    pub blobs: u64,
    /// Their plain bytes.
    pub plain_bytes: u64,
    /// Since when the first of them waits.
    pub oldest_ms: Option<UnixMs>,
}

/// A version that references a blob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Referrer {
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: VersionId,
}

/// Versions of so many extents and more can be found without looking at the others. Part of the
/// schema: an index knows them.
pub const SCATTERED_EXTENTS_MIN: u64 = 32;

/// A version of [`SCATTERED_EXTENTS_MIN`] extents or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scattered {
    /// Its bucket.
    pub bucket: BucketId,
    /// Its key.
    pub key: String,
    /// Its id.
    pub id: VersionId,
    /// Its place in the total order.
    pub seq: Seq,
    /// Last-Modified.
    pub modified_ms: UnixMs,
    /// Logical size in bytes.
    pub size: u64,
    /// How many extents it has.
    pub extents: u64,
}

/// Regions of one blob whose hooks are remembered: 5 GiB in regions of 64 MiB.
pub const REGIONS_MAX: usize = 80;
/// Hooks of one region that are remembered. A quarter less than a sketch gives, so that a region
/// costs less than 600 bytes; what is asked for is looked up by all hooks of a sketch.
pub const REGION_HOOKS_MAX: usize = 24;

/// What a whole blob resembles: a few hashes of its content per region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobHooks {
    /// The blob.
    pub blob: BlobKey,
    /// The hooks of its regions, in order: at most [`REGIONS_MAX`] regions of [`REGION_HOOKS_MAX`]
    /// hooks are remembered.
    pub regions: Vec<Vec<u32>>,
}

/// Which blobs of one domain have some of these hooks?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookQuery {
    /// Bucket.
    pub bucket: BucketId,
    /// Key epoch.
    pub key_epoch: u32,
    /// Backend.
    pub backend: String,
    /// The hooks.
    pub hooks: Vec<u32>,
    /// Most regions wanted.
    pub limit: usize,
}

/// A region of a whole blob that shares hooks with what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resembling {
    /// The blob's row: live and whole.
    pub blob: BlobRow,
    /// Its region.
    pub region: u32,
    /// How many of the hooks it has.
    pub shared: u32,
}

/// Where a scrub is: the last blob it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyPlace {
    /// How many deltas needed it.
    pub fan_in: u64,
    /// The blob.
    pub blob: BlobKey,
}

/// A live blob as a scrub meets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToVerify {
    /// The blob.
    pub row: BlobRow,
    /// How many deltas need it.
    pub fan_in: u64,
    /// When it was last found well; 0: never.
    pub verified_ms: UnixMs,
    /// Whether it is in quarantine.
    pub quarantined: bool,
}

/// A blob in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The blob.
    pub row: BlobRow,
    /// Since when.
    pub since_ms: UnixMs,
    /// What is wrong with it: opaque here.
    pub damage: serde_json::Value,
}

/// A part of an open upload that references a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartReferrer {
    /// The upload's key.
    pub key: String,
    /// The upload.
    pub upload: UploadId,
    /// The part's number.
    pub number: u32,
    /// What it uses of the blob.
    pub extents: Vec<Extent>,
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
    /// Keys that contain this after the prefix are rolled up into one common prefix each. Not empty
    /// when given.
    pub delimiter: Option<String>,
    /// Where to go on: only keys and common prefixes greater than this (a common prefix is skipped
    /// with all its keys when it is `after` itself, or when `after` lies inside it).
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
