//! What an ejection reads objects with, and what becomes of one.

use crate::{
    facts::{Checksum, PartSize, VersionFacts},
    read::object::{OpenObject, ReadPath},
    resources::{budget::MemoryBudget, pool::CodecPool},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// What reading objects out takes.
pub(crate) struct ObjectReader {
    pub(crate) read: Arc<ReadPath>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) hash_pool: Arc<CodecPool>,
}

/// What is said of one object in the manifest: everything that a file cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct ManifestLine {
    pub(super) key: String,
    /// Path of its file below the target directory.
    pub(super) file: String,
    pub(super) size: u64,
    pub(super) etag: String,
    pub(super) last_modified_ms: i64,
    /// Hexadecimal digest of the content, as written and as read back.
    pub(super) sha256: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) user_metadata: BTreeMap<String, String>,
    pub(super) checksums: Vec<Checksum>,
    pub(super) checksum_type: Option<String>,
    pub(super) storage_class: Option<String>,
    pub(super) parts: Vec<PartSize>,
}

/// What became of one object.
pub(super) enum Fate {
    Written { bytes: u64, line: Option<Box<ManifestLine>>, renamed: bool },
    Vanished,
    Failed(String),
}

impl ManifestLine {
    pub(super) fn of(object: &OpenObject, file: String, sha256: String) -> Self {
        let (version, facts): (_, &VersionFacts) = (&object.info.version, &object.info.facts);
        Self {
            key: version.key.clone(),
            file,
            size: version.size,
            etag: facts.etag.clone(),
            last_modified_ms: version.modified_ms,
            sha256,
            headers: facts.headers.clone(),
            user_metadata: facts.user_metadata.clone(),
            checksums: facts.checksums.clone(),
            checksum_type: facts.checksum_type.clone(),
            storage_class: facts.storage_class.clone(),
            parts: facts.parts.clone(),
        }
    }
}
