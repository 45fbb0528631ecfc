//! What a collection did.

use serde::{Deserialize, Serialize};

/// Files that are removed at a time: their directories are flushed, and their rows committed,
/// together.
pub(crate) const AT_ONCE: usize = 64;
/// The same where they go to a cloud in lists: as many as a backend is asked for at a time.
pub(crate) const AT_ONCE_IN_LISTS: usize = 256;

/// What one collection did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Collection {
    /// Blobs purged from tombstones.
    pub deleted_blobs: u64,
    /// Their stored bytes, those of second copies among them.
    pub reclaimed_bytes: u64,
    /// Tombstoned blobs left alone because they are being read.
    pub pinned_blobs: u64,
    /// Files of closed epochs that no row knew, removed.
    pub orphan_blobs: u64,
    /// Their stored bytes.
    pub orphan_bytes: u64,
    /// Files of closed epochs that no row knows, found now and put on the list of what is to be
    /// removed.
    #[serde(default)]
    pub trashed_files: u64,
    /// Their stored bytes.
    #[serde(default)]
    pub trashed_bytes: u64,
    /// Files that were taken off that list and stay.
    #[serde(default)]
    pub kept_files: u64,
    /// Files on that list now.
    #[serde(default)]
    pub trash_files: u64,
    /// Their stored bytes.
    #[serde(default)]
    pub trash_bytes: u64,
    /// Blobs that could not be deleted; they are tried again.
    pub errors: u64,
}
