//! The nouns of buckets that keep versions.

use super::{
    ids::{BucketId, UnixMs, VersionRef},
    notices::NewNotice,
    versions::{Precondition, Version},
};
use serde::{Deserialize, Serialize};

/// Whether a bucket keeps the versions that are overwritten or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Versioning {
    /// It never did: a key has one version, whose S3 id is `null`.
    #[default]
    Off,
    /// Every write makes a version with an id of its own, every deletion a delete marker.
    Enabled,
    /// A write replaces the null version alone; versions with an id of their own stay.
    Suspended,
}

impl Versioning {
    /// True while it never kept versions: the default.
    pub fn is_off(&self) -> bool {
        *self == Versioning::Off
    }
}

/// What a deletion that names no version did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// The version that is no more, if there was one: the current one, or the null version that the
    /// marker replaced.
    pub removed: Option<Version>,
    /// The delete marker, which is the key's newest version now. `None` in a bucket that keeps no
    /// versions.
    pub marker: Option<Version>,
}

/// Removal of one version for good, be it an object or a delete marker. When it was the newest, the
/// next one is: a key whose last marker is removed has its object back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteVersionCommit {
    /// Bucket.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// Which version.
    pub version: VersionRef,
    /// What must hold of the key's current version, whichever one is removed.
    pub precondition: Precondition,
    /// As [`DeleteCommit::hide`](super::DeleteCommit::hide), for a key that has no version left by
    /// this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hide: bool,
    /// Whether the writer may bypass governance. Nobody removes what is held otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bypass_governance: bool,
    /// Who is told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<NewNotice>,
    /// Now, by the writer's clock: a retention binds until it is over.
    pub now_ms: UnixMs,
    /// The writer's epoch.
    pub epoch: u32,
}

/// A listing request over all versions: by key in byte order, and the versions of a key newest
/// first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionsQuery {
    /// Bucket.
    pub bucket: BucketId,
    /// Only keys that start with this.
    pub prefix: String,
    /// Roll-up, as in [`ListQuery`](super::ListQuery).
    pub delimiter: Option<String>,
    /// Go on after this key with all its versions, or after this version of it when `version_after`
    /// is given.
    pub key_after: Option<String>,
    /// See `key_after`. When that version is gone the key's versions are given from the newest:
    /// twice is better than not at all.
    pub version_after: Option<VersionRef>,
    /// Most entries (versions, markers and common prefixes together), 1 to 1000.
    pub limit: usize,
}

/// One entry of a page of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionEntry {
    /// A version or a delete marker.
    Version {
        /// Its row.
        version: Version,
        /// Whether it is the newest of its key.
        latest: bool,
    },
    /// A common prefix, delimiter included.
    CommonPrefix(String),
}

/// One page of versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionsPage {
    /// Entries in order.
    pub entries: Vec<VersionEntry>,
    /// The last entry when there is more: the next page's `key_after` and `version_after`. A common
    /// prefix has no version.
    pub next: Option<(String, Option<VersionRef>)>,
}
