//! Buckets and their keys.

use super::{
    history::Versioning,
    ids::{BucketId, UnixMs},
};
use serde::{Deserialize, Serialize};

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

/// Another wrap of a key that stays what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrap {
    /// The wrapped bytes that it takes the place of.
    #[serde(with = "crate::encoding::base64_bytes")]
    pub before: Vec<u8>,
    /// The key with its new wrap.
    pub key: WrappedKey,
}

/// What could not be opened any more without a key: content and rows that are sealed with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyDependents {
    /// Live blobs.
    pub blobs: u64,
    /// Plain bytes of those.
    pub plain_bytes: u64,
    /// Blobs that wait for their purge, and bases that only such blobs need.
    pub dying: u64,
    /// Versions whose facts are sealed with it.
    pub versions: u64,
    /// Uploads and parts whose facts are.
    pub uploads: u64,
}

impl KeyDependents {
    /// Whether nothing is sealed with it.
    pub fn is_none(&self) -> bool {
        self.is_unused() && self.dying == 0
    }

    /// Whether nothing that can be read is.
    pub fn is_unused(&self) -> bool {
        self.blobs + self.versions + self.uploads == 0
    }
}

/// How many blobs are sealed with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// The bucket.
    pub bucket: BucketId,
    /// The key's epoch.
    pub epoch: u32,
    /// Blobs that are live or wait for their purge.
    pub blobs: u64,
}
