//! Blobs, and what is known of them.

use super::ids::{BlobKey, BucketId, Compartment, Seq, UnixMs, UploadId, VersionId};
use serde::{Deserialize, Serialize};

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
    /// Plain bytes stored compressed alone: as zstd or as byte planes.
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
    /// Within the bucket, whose content it may be a base or a duplicate of; `None`: the whole
    /// bucket's, as rows of before there were compartments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compartment: Option<Compartment>,
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

/// What the deltas of one blob take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltasSum {
    /// Deltas.
    pub deltas: u64,
    /// Their plain bytes.
    pub plain_bytes: u64,
    /// The stored share of each, in millionths of its plain bytes, summed up.
    pub shares_ppm: u64,
    /// The least of these shares.
    pub least_share_ppm: u64,
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
    /// The number of the first of these regions: 0 for those of its bytes, behind which follow
    /// those of its text.
    pub first: u32,
    /// The hooks of its regions, in order: [`REGION_HOOKS_MAX`] hooks of each are remembered, and
    /// no region from the number [`REGIONS_MAX`] on.
    pub regions: Vec<Vec<u32>>,
}

/// The objects that may be bases or duplicates of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Bucket.
    pub bucket: BucketId,
    /// Key epoch.
    pub key_epoch: u32,
    /// Backend.
    pub backend: String,
    /// Compartment of the bucket.
    pub compartment: Option<Compartment>,
}

/// Which blobs of one domain have some of these hooks?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookQuery {
    /// The domain.
    pub domain: Domain,
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
