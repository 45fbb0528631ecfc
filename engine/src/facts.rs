//! What a version row says of an object beyond its size: kept as JSON in the row, sealed in
//! encrypted buckets.

use crate::error::EngineError;
use catalog::{VersionId, VersionLock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How content is stored, the majority by bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As it is.
    #[default]
    Raw,
    /// zstd frames.
    Zstd,
    /// Deltas.
    Delta,
    /// Existing content, named once more.
    Dedup,
    /// As it is, in an original that is no blob of ours.
    Foreign,
}

impl Form {
    /// Its name in headers and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Zstd => "zstd",
            Self::Delta => "delta",
            Self::Dedup => "dedup",
            Self::Foreign => "foreign",
        }
    }
}

/// How and why a version is stored as it is: the `x-deltaweir-*` headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFacts {
    /// Majority form by bytes.
    pub form: Form,
    /// Stored bytes this version adds; 0 for dedup.
    pub stored_bytes: u64,
    /// Keys of the bases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bases: Vec<String>,
    /// Why.
    pub reason: String,
}

/// A checksum as S3 states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// `CRC32`, `CRC32C`, `CRC64NVME`, `SHA1` or `SHA256`.
    pub algorithm: String,
    /// Base64, with `-N` for composite ones.
    pub value: String,
}

/// One part, as kept with its upload and, after completion, with the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFacts {
    /// Logical bytes.
    pub size: u64,
    /// Hex MD5.
    pub etag: String,
    /// Its checksums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checksums: Vec<Checksum>,
    /// The salt of its key where its upload is encrypted, hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
    /// How it is stored.
    #[serde(default)]
    pub storage: StorageFacts,
}

/// One part of a completed object, short: what `partNumber` reads and GetObjectAttributes need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartSize {
    /// Part number as the client gave it.
    pub number: u32,
    /// Logical bytes.
    pub size: u64,
    /// Its checksum, when the upload has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
}

/// Content that was encrypted before the engine saw it, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectEncryption {
    /// `AES256`, `aws:kms` or `SSE-C`.
    pub algorithm: String,
    /// The name of the key, for `aws:kms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// The context that the key is bound to, for `aws:kms`: JSON, names in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Whether `aws:kms` was asked to use the key of the bucket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bucket_key: bool,
    /// Salt and check value of the key, hex: they tell the key from another one, and nothing of it.
    pub check: String,
    /// The content in order; empty for an upload that is not completed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stretches: Vec<Stretch>,
}

/// A run of content with a key of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Bytes.
    pub len: u64,
    /// The salt of its key, hex.
    pub salt: String,
}

/// What the key of an upload held when the upload began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunOver {
    /// The version that was current; `None` when the key held nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<VersionId>,
}

/// A version's facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionFacts {
    /// ETag without quotes: hex MD5, or hex MD5 of part MD5s with `-N`.
    pub etag: String,
    /// Lower-case content headers: content-type, content-encoding, content-disposition,
    /// content-language, cache-control, expires.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// User metadata without the `x-amz-meta-` prefix, lower-case names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user_metadata: BTreeMap<String, String>,
    /// Checksums.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checksums: Vec<Checksum>,
    /// `COMPOSITE` or `FULL_OBJECT`, when there are checksums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_type: Option<String>,
    /// For uploads that have not been completed: the checksum algorithm asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum_algorithm: Option<String>,
    /// For uploads that have not been completed: the lock asked for. A version's lock stands in its
    /// row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<VersionLock>,
    /// For uploads that have not been completed: what their key held. `None` for those that were
    /// begun before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_over: Option<BegunOver>,
    /// Storage class as the client gave it; `None` is STANDARD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Where a website sends those who ask for it, as the client gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_location: Option<String>,
    /// How its content was encrypted before it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<ObjectEncryption>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The canonical id of its owner; `None`: the bucket's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The grants a client gave it; `None`: everything to its owner. Kept as it is, nothing to the
    /// engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl: Option<serde_json::Value>,
    /// The parts of a multipart object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartSize>,
    /// How it is stored.
    #[serde(default)]
    pub storage: StorageFacts,
}

/// What a listing tells of a version's facts. A listing reads a thousand of them, and passes over
/// the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ListedFacts {
    /// As [`VersionFacts::etag`].
    pub etag: String,
    /// As [`VersionFacts::checksums`].
    #[serde(default)]
    pub checksums: Vec<ListedChecksum>,
    /// As [`VersionFacts::checksum_type`].
    #[serde(default)]
    pub checksum_type: Option<String>,
    /// As [`VersionFacts::checksum_algorithm`].
    #[serde(default)]
    pub checksum_algorithm: Option<String>,
    /// As [`VersionFacts::storage_class`].
    #[serde(default)]
    pub storage_class: Option<String>,
    /// As [`VersionFacts::owner`].
    #[serde(default)]
    pub owner: Option<String>,
}

/// A [`Checksum`] without its value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ListedChecksum {
    /// As [`Checksum::algorithm`].
    pub algorithm: String,
}

pub(crate) fn to_json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, EngineError> {
    serde_json::to_vec(value).map_err(|error| EngineError::Other(format!("cannot write facts: {error}")))
}

pub(crate) fn from_json<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, EngineError> {
    serde_json::from_slice(bytes).map_err(|error| EngineError::Integrity(format!("cannot understand facts: {error}")))
}
