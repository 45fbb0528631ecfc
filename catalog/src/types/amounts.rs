//! Pending deletions, files without a row, and what is stored.

use super::{
    blobs::{FormBytes, Original},
    ids::{BlobKey, UnixMs},
};
use serde::{Deserialize, Serialize};

/// A blob waiting for its purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The blob.
    pub blob: BlobKey,
    /// The backend that holds it.
    pub backend: String,
    /// True when it lives in the catalog: nothing is to be deleted from a backend.
    pub inline: bool,
    /// Set when it stands for an object that is not a blob.
    pub original: Option<Original>,
    /// Its second copy, which is as long as it is and goes with it.
    pub copy: Option<BlobKey>,
    /// Its stored bytes, those of the copy not among them.
    pub stored_len: u64,
    /// Since when.
    pub since_ms: UnixMs,
    /// True when something names the blob all the same, or its row is not dying: the catalog
    /// contradicts itself, and nothing may be deleted.
    pub needed: bool,
}

/// A file that no row knows, on the list of what is to be removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrashFile {
    /// The backend it lies in.
    pub backend: String,
    /// Its name there.
    pub name: String,
    /// Its stored bytes.
    pub stored_len: u64,
    /// Since when it is on the list.
    pub since_ms: UnixMs,
}

/// How much is on that list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrashSum {
    /// Files.
    pub files: u64,
    /// Their stored bytes.
    pub stored_bytes: u64,
    /// Since when the first of them is listed.
    pub oldest_ms: Option<UnixMs>,
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
    /// Blobs of other kinds (keysets, journals, backups), and second copies of live blobs.
    pub overhead: u64,
    /// Dying blobs not yet purged, and their second copies.
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
    /// Versions with content that are not current.
    pub noncurrent_versions: u64,
    /// Sum of their logical sizes.
    pub noncurrent_bytes: u64,
    /// Delete markers.
    pub delete_markers: u64,
    /// Stored bytes of live blobs that versions need, but no current one and no part: about what
    /// the history costs. Blobs that only deltas need are not among them.
    pub noncurrent_stored: u64,
    /// Open multipart uploads.
    pub uploads: u64,
    /// Logical bytes of their parts.
    pub upload_bytes: u64,
    /// Stored bytes by why they are kept.
    pub stored: StoredBytes,
    /// Bytes of live content that lies in originals: they are in none of the classes of `stored`.
    pub foreign_bytes: u64,
    /// Stored bytes of live whole blobs, inline ones included.
    pub whole_bytes: u64,
    /// Stored bytes of live delta blobs, inline ones included.
    pub delta_bytes: u64,
    /// Sums of [`FormBytes`] over live blobs.
    pub forms: FormBytes,
    /// Live blobs that have a second copy.
    pub copies: u64,
    /// Stored bytes of those copies; they are part of `stored.overhead`.
    pub copy_bytes: u64,
}
