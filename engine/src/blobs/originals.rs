//! Originals: content that lay in stores of plain objects before this catalog knew it, and lies
//! there still (docs/decisions/0008-foreign-content.md).
//!
//! They are read by ranges, each under the ETag that was registered. Nothing here changes them;
//! they are removed only where the catalog says that they are ours.

use crate::error::EngineError;
use catalog::{BlobRow, Original};
use futures::TryStreamExt;
use std::{collections::BTreeMap, ops::Range, sync::Arc};
use storage_backends::{PlainRead, PlainRemoval, PlainStore, PlainWriter};

/// How often a piece is read whose stream breaks off.
const READS_MAX: usize = 4;

/// Stores of plain objects by name.
#[derive(Default)]
pub struct Originals {
    stores: BTreeMap<String, PlainPlace>,
}

/// A store of plain objects.
pub struct PlainPlace {
    /// For reading.
    pub plain: Arc<dyn PlainStore>,
    /// For writing, where that can be.
    pub writer: Option<Arc<dyn PlainWriter>>,
    /// Prefixes below which backends of this deployment keep their blobs in the same place.
    pub ours: Vec<String>,
}

impl Originals {
    /// Stores by their configured names.
    pub fn new(stores: BTreeMap<String, PlainPlace>) -> Self {
        Self { stores }
    }

    fn named(&self, name: &str) -> Result<&PlainPlace, EngineError> {
        self.stores
            .get(name)
            .ok_or_else(|| EngineError::Other(format!("there is no [stores.{name}] or [backends.{name}]")))
    }

    /// A store by name.
    ///
    /// # Errors
    /// [`EngineError::Other`] when none of that name is configured (any more).
    pub(crate) fn store(&self, name: &str) -> Result<&Arc<dyn PlainStore>, EngineError> {
        Ok(&self.named(name)?.plain)
    }

    /// A store that objects can be written to.
    ///
    /// # Errors
    /// [`EngineError::JobRefused`] when there is none of that name, or it is a directory.
    pub(crate) fn writer(&self, name: &str) -> Result<&Arc<dyn PlainWriter>, EngineError> {
        let directory = || {
            EngineError::JobRefused(format!(
                "store {name:?} is a directory: write into it by its path, which keeps a manifest beside the objects"
            ))
        };
        self.named(name)?.writer.as_ref().ok_or_else(directory)
    }

    /// Whether a key of a store is a blob of this deployment and no original.
    pub(crate) fn is_ours(&self, name: &str, key: &str) -> bool {
        let ours = self.stores.get(name).map(|store| store.ours.as_slice()).unwrap_or_default();
        ours.iter().any(|prefix| key.strip_prefix(prefix.as_str()).is_some_and(is_blob_name))
    }

    /// Bytes of a row's content.
    ///
    /// # Errors
    /// [`EngineError::Original`] when the original is not what it was registered as, or whatever
    /// its store says.
    pub(crate) async fn read(&self, row: &BlobRow, range: Range<u64>) -> Result<Vec<u8>, EngineError> {
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
    pub(crate) async fn release(&self, store: &str, original: &Original) -> Result<(), EngineError> {
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

fn changed(row: &BlobRow, original: &Original, what: &str) -> EngineError {
    EngineError::Original(format!(
        "the object that content was adopted from {what} (store {}, ETag {}, blob {}); put it back, or write the key anew",
        row.backend,
        original.etag,
        object_format::BlobId(row.id.0),
    ))
}

/// Whether a key is of the form our blobs have in any backend: a directory of ours and a leaf of
/// hexadecimal digits.
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
