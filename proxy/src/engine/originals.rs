//! Originals: content that lay in stores of plain objects before this catalog knew it, and lies there still
//! (docs/decisions/0008-foreign-content.md).
//!
//! They are read by ranges, each under the ETag that was registered. Nothing here changes them; they are removed only where the catalog says
//! that they are ours.

use super::{BackendConfig, EngineConfig, EngineError, observe::BackendMetrics};
use crate::metrics::Metrics;
use catalog::{BlobRow, Original};
use futures::TryStreamExt;
use std::{collections::BTreeMap, ops::Range, sync::Arc};
use storage_backends::{
    Measured, PlainDirectory, PlainRead, PlainRemoval, PlainStore, PlainWriter, RetryPolicy, Retrying,
};

/// How often a piece is read whose stream breaks off.
const READS_MAX: usize = 4;

/// Stores of plain objects by name.
pub(super) struct Originals {
    stores: BTreeMap<String, Store>,
}

struct Store {
    plain: Arc<dyn PlainStore>,
    /// For writing, where that can be.
    writer: Option<Arc<dyn PlainWriter>>,
    /// Prefixes below which backends of this deployment keep their blobs in the same place.
    ours: Vec<String>,
}

impl Originals {
    /// Prepares every configured store, and every backend as one. Asks none of them anything.
    ///
    /// # Errors
    /// [`EngineError::Other`] when a configuration contradicts itself.
    pub(super) fn open(config: &EngineConfig, metrics: &Arc<Metrics>) -> Result<Self, EngineError> {
        let mut stores = BTreeMap::new();
        for (name, store) in config.stores.iter().chain(&config.backends) {
            let (writer, retry) = match store {
                BackendConfig::Cloud(cloud) => (Some(cloud.store.open_writer()?), cloud.retry),
                BackendConfig::Local { .. } => (None, RetryPolicy::default()),
            };
            let observer = Arc::new(BackendMetrics { backend: name.clone(), metrics: metrics.clone() });
            let measured = Measured::new(open_plain(store)?, observer.clone());
            let plain = Arc::new(Retrying::new(measured, retry, observer));
            let ours = config.backends.values().filter_map(|backend| below(store, backend)).collect();
            stores.insert(name.clone(), Store { plain, writer, ours });
        }
        Ok(Self { stores })
    }

    fn named(&self, name: &str) -> Result<&Store, EngineError> {
        self.stores
            .get(name)
            .ok_or_else(|| EngineError::Other(format!("there is no [stores.{name}] or [backends.{name}]")))
    }

    /// A store by name.
    ///
    /// # Errors
    /// [`EngineError::Other`] when none of that name is configured (any more).
    pub(super) fn store(&self, name: &str) -> Result<&Arc<dyn PlainStore>, EngineError> {
        Ok(&self.named(name)?.plain)
    }

    /// A store that objects can be written to.
    ///
    /// # Errors
    /// [`EngineError::JobRefused`] when there is none of that name, or it is a directory.
    pub(super) fn writer(&self, name: &str) -> Result<&Arc<dyn PlainWriter>, EngineError> {
        let directory = || {
            EngineError::JobRefused(format!(
                "store {name:?} is a directory: write into it by its path, which keeps a manifest beside the objects"
            ))
        };
        self.named(name)?.writer.as_ref().ok_or_else(directory)
    }

    /// Whether a key of a store is a blob of this deployment and no original.
    pub(super) fn is_ours(&self, name: &str, key: &str) -> bool {
        let ours = self.stores.get(name).map(|store| store.ours.as_slice()).unwrap_or_default();
        ours.iter().any(|prefix| key.strip_prefix(prefix.as_str()).is_some_and(is_blob_name))
    }

    /// Bytes of a row's content.
    ///
    /// # Errors
    /// [`EngineError::Original`] when the original is not what it was registered as, or whatever its store says.
    pub(super) async fn read(&self, row: &BlobRow, range: Range<u64>) -> Result<Vec<u8>, EngineError> {
        let Some(original) = &row.original else {
            return Err(EngineError::Other("content of a blob was looked for in an original".into()));
        };
        if range.end > row.plain_len {
            return Err(EngineError::Integrity("an extent ends outside its original".into()));
        }
        let store = self.store(&row.backend)?;
        let within = original.offset + range.start..original.offset + range.end;
        let mut reads = 1;
        loop {
            let pieces = match store.read(&original.key, &original.etag, within.clone()).await? {
                PlainRead::Bytes(pieces) => pieces,
                PlainRead::Changed => return Err(changed(row, original, "has other content than when it was adopted")),
                PlainRead::Absent => return Err(changed(row, original, "is not there any more")),
            };
            let mut bytes = Vec::with_capacity(usize::try_from(within.end - within.start).unwrap_or(0));
            let whole = pieces.try_for_each(|piece| {
                bytes.extend_from_slice(&piece);
                futures::future::ready(Ok(()))
            });
            match whole.await {
                Ok(()) if bytes.len() as u64 == within.end - within.start => return Ok(bytes),
                Ok(()) => return Err(EngineError::Integrity("a store gave another length than asked for".into())),
                Err(error) if error.is_transient() && reads < READS_MAX => reads += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Removes an original that is ours; leaves every other one alone, and one that was changed.
    ///
    /// # Errors
    /// Whatever its store says.
    pub(super) async fn release(&self, store: &str, original: &Original) -> Result<(), EngineError> {
        if !original.owned {
            return Ok(());
        }
        if self.store(store)?.remove(&original.key, &original.etag).await? == PlainRemoval::Changed {
            tracing::warn!(
                store,
                etag = original.etag,
                "an original was changed after it was taken over; it is left alone"
            );
        }
        Ok(())
    }
}

/// A store as its configuration says, its requests neither counted nor repeated. Asks it nothing.
///
/// # Errors
/// [`EngineError::Other`] when the configuration contradicts itself.
pub fn open_plain(store: &BackendConfig) -> Result<Arc<dyn PlainStore>, EngineError> {
    Ok(match store {
        BackendConfig::Local { path } => Arc::new(PlainDirectory::new(path.clone())),
        BackendConfig::Cloud(cloud) => cloud.store.open_plain()?,
    })
}

fn changed(row: &BlobRow, original: &Original, what: &str) -> EngineError {
    EngineError::Original(format!(
        "the object that content was adopted from {what} (store {}, ETag {}, blob {}); put it back, or write the key anew",
        row.backend,
        original.etag,
        object_format::BlobId(row.id.0),
    ))
}

/// Where below `store` the blobs of `backend` lie, when both are in one place.
fn below(store: &BackendConfig, backend: &BackendConfig) -> Option<String> {
    match (store, backend) {
        (BackendConfig::Local { path: store }, BackendConfig::Local { path: blobs }) => {
            let path = |path: &std::path::Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let inside = path(blobs).strip_prefix(path(store)).ok()?.to_str()?.to_owned();
            Some(if inside.is_empty() { inside } else { inside + "/" })
        }
        (BackendConfig::Cloud(store), BackendConfig::Cloud(blobs)) if store.store.is_bucket_of(&blobs.store) => {
            blobs.store.prefix().strip_prefix(store.store.prefix()).map(str::to_owned)
        }
        _ => None,
    }
}

/// Whether a key is of the form our blobs have in any backend: a directory of ours and a leaf of hexadecimal digits.
fn is_blob_name(key: &str) -> bool {
    let Some((directory, rest)) = key.split_once('/') else { return false };
    let leaf = rest.rsplit('/').next().unwrap_or_default();
    let long_enough = if directory == "backup-part" { 8 } else { 16 };
    let hexadecimal = leaf.len() >= long_enough && leaf.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    directory == "+tmp" || (OWN_DIRECTORIES.contains(&directory) && hexadecimal)
}

/// Where backends keep what is theirs.
const OWN_DIRECTORIES: [&str; 8] =
    ["blobs", "copies", "keyset", "lineage", "journal", "backup", "backup-part", "owner"];
