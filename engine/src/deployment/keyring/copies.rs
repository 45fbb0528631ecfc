//! A keyset is stored twice. A copy that is damaged or missing is written again from the other, or
//! from the keys that this process has.

use super::{Keyring, label_of, other_kek};
use crate::{
    deployment::documents::{Found, Look, look, verdict, write_again},
    error::EngineError,
};
use catalog::{Bucket, Catalog};
use object_format::{
    BlobId, DomainKey, KeyId,
    keyset::{BucketLabel, Keyset, KeysetEntry},
};
use std::sync::Arc;
use storage_backends::{Backend, BlobName, get_all};

/// Longest keyset that is read.
const KEYSET_LEN_MAX: u64 = 1 << 20;

/// Where a copy lies, or should.
#[derive(Clone)]
pub(crate) struct KeysetFile {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) name: BlobName,
    pub(crate) id: BlobId,
}

/// All copies of one keyset.
pub(crate) struct KeysetFiles {
    pub(crate) files: Vec<KeysetFile>,
    /// What this process knows to be in it; empty when it does not know its keys.
    pub(crate) known: Keyset,
    /// Ids and epochs of the keys that a good copy holds.
    pub(crate) needed: Vec<(KeyId, u32)>,
}

/// A copy as it was found.
pub(crate) struct KeysetLook {
    pub(crate) file: KeysetFile,
    pub(crate) found: Result<Look<Keyset>, EngineError>,
}

impl KeysetFiles {
    /// Reads every copy.
    pub(crate) async fn look(&self, keyring: &Keyring) -> Vec<KeysetLook> {
        let mut looks = Vec::new();
        for file in &self.files {
            looks.push(KeysetLook { found: self.read(keyring, file).await, file: file.clone() });
        }
        looks
    }

    /// Writes copies again that are damaged or missing. Call it when something may be removed: a
    /// damaged copy is, before its name is used again.
    pub(crate) async fn mend(&self, keyring: &Keyring, looks: Vec<KeysetLook>) -> Vec<(BlobName, Found)> {
        let twin = looks.iter().find_map(|look| look.found.as_ref().ok()?.good().cloned());
        let source = twin.unwrap_or_else(|| self.known.clone());
        let mut outcomes = Vec::new();
        for KeysetLook { file, found } in looks {
            let found = match found {
                Err(error) => Found::Unreachable(error.to_string()),
                Ok(found) => match found.why() {
                    None => Found::Well,
                    Some(why) if source.entries().is_empty() => {
                        Found::Damaged(format!("{why}; no other copy is good, and its keys are not known"))
                    }
                    Some(why) => {
                        let written = write(&file, &found, &source).await;
                        verdict(why, written, self.read(keyring, &file).await)
                    }
                },
            };
            outcomes.push((file.name, found));
        }
        outcomes
    }

    /// As a recovery reads it: every part of the blob, and every key that is needed under our KEK.
    async fn read(&self, keyring: &Keyring, file: &KeysetFile) -> Result<Look<Keyset>, EngineError> {
        let read = || async {
            let Some(len) = file.backend.head(&file.name).await? else { return Ok(None) };
            if len > KEYSET_LEN_MAX {
                return Err(EngineError::Integrity("it is longer than a keyset".into()));
            }
            let Some(bytes) = get_all(&*file.backend, &file.name, len).await? else { return Ok(None) };
            let keyset = Keyset::read_blob(&bytes, file.id)?;
            for (id, epoch) in &self.needed {
                let entry = keyset.entries().iter().find(|entry| (entry.key_id(), entry.key_epoch()) == (*id, *epoch));
                let opened = entry.map(|entry| entry.open(&keyring.kek).map(drop));
                match opened {
                    Some(Ok(())) => {}
                    Some(Err(error)) => return Err(EngineError::Integrity(format!("its key {id}: {error}"))),
                    None => return Err(EngineError::Integrity(format!("it lacks the key {id}"))),
                }
            }
            Ok(Some(keyset))
        };
        look(read).await
    }
}

async fn write(file: &KeysetFile, found: &Look<Keyset>, source: &Keyset) -> Result<(), EngineError> {
    let mut bytes = Vec::new();
    source.write_blob(file.id, &mut bytes)?;
    write_again(&*file.backend, &file.name, found, bytes.into()).await
}

impl Keyring {
    /// The keyset of a sealed bucket, from the keys that the catalog has of it.
    ///
    /// # Errors
    /// [`EngineError::Other`] when one of them is wrapped under another KEK; what the catalog says.
    pub(crate) async fn keyset_of(&self, bucket: &Bucket, catalog: &dyn Catalog) -> Result<Keyset, EngineError> {
        let mut keys = Vec::new();
        for wrapped in catalog.keys(bucket.id).await? {
            if wrapped.kek != self.kek.fingerprint() {
                return Err(other_kek(bucket));
            }
            keys.push(self.kek.unwrap(KeyId(wrapped.id), wrapped.epoch, &wrapped.wrapped)?);
        }
        Ok(self.keyset(&keys.iter().collect::<Vec<_>>(), &label_of(bucket)))
    }

    /// These keys, wrapped.
    pub(super) fn keyset(&self, keys: &[&DomainKey], label: &BucketLabel) -> Keyset {
        Keyset::new(keys.iter().map(|key| KeysetEntry::new(&self.kek, key, label)))
    }
}
