//! A bucket's keys, page by page.

use super::{ids::BucketId, versions::Version};

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
