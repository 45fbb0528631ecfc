//! Names of things, and the order of changes.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Catalog id of a bucket; never used again after the bucket is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BucketId(pub i64);

/// A version's id: 16 bytes made by the writer before the commit, so that an unknown outcome can be
/// read back (I9). Nobody else makes the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VersionId(#[serde(with = "crate::encoding::hex_array")] pub [u8; 16]);

/// A multipart upload's id: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UploadId(#[serde(with = "crate::encoding::hex_array")] pub [u8; 16]);

/// A blob's id (its first four bytes are the writer epoch, big endian).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobKey(#[serde(with = "crate::encoding::hex_array")] pub [u8; 16]);

/// A part of a bucket whose content is nobody's base or duplicate outside of it: 16 bytes that the
/// engine chose. Equality is all the catalog asks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Compartment(#[serde(with = "crate::encoding::hex_array")] pub [u8; 16]);

/// Position in the catalog's total order of mutations (I12). Starts at 1.
pub type Seq = i64;

/// Which run of a database's server: from its start to its end, on one machine. In another run the
/// database may have gone back, or be a standby that lacks the latest commits.
pub type ServerRun = i64;

/// The only run where one process owns the database.
pub const NO_SERVER: ServerRun = 0;

/// Milliseconds since 1970-01-01 UTC.
pub type UnixMs = i64;

/// Which version of a key a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VersionRef {
    /// The one with this id, which has a name of its own.
    Id(VersionId),
    /// The null version.
    Null,
}

/// The S3 version id: 32 lower-case hex digits, or `null`.
impl fmt::Display for VersionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionRef::Id(id) => f.write_str(&hex::encode(id.0)),
            VersionRef::Null => f.write_str("null"),
        }
    }
}

impl VersionRef {
    /// Reads an S3 version id; `None` for what no version is called.
    pub fn parse(text: &str) -> Option<VersionRef> {
        if text == "null" {
            return Some(VersionRef::Null);
        }
        let mut id = [0; 16];
        let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        hex::decode_to_slice(text, &mut id).ok().filter(|()| lower)?;
        Some(VersionRef::Id(VersionId(id)))
    }
}
