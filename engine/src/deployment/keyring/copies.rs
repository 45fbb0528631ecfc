//! A keyset is stored twice. A copy that is damaged or missing is written again from the other, or
//! from the keys that this process has.

use super::{Keyring, KeysetCopy, epochs::change_settings, keyset_name, label_of, other_kek};
use crate::{
    blobs::open::Blobs,
    deployment::documents::{Found, Look, look, verdict, write_again},
    error::EngineError,
};
use catalog::{Bucket, Catalog};
use object_format::{
    BlobId, DomainKey, KeyId,
    keyset::{BucketLabel, Keyset, KeysetEntry},
};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc};
use storage_backends::{Backend, BlobName, get_all};

/// Longest keyset that is read.
pub(crate) const KEYSET_LEN_MAX: u64 = 1 << 20;

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

    /// Whether a keyset holds what is needed, and all of it under the KEK of now.
    pub(crate) fn is_current(&self, keyset: &Keyset, keyring: &Keyring) -> bool {
        let active = keyring.kek().fingerprint();
        let mut entries = keyset.entries().iter();
        keyset.entries().len() >= self.needed.len() && entries.all(|entry| entry.kek_fingerprint() == active)
    }

    /// Writes every copy again that holds a key under another KEK than the one of now, one after
    /// the other: while one is written, the other one is there. How many were.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when what was written does not read back; what the backend says.
    pub(crate) async fn rewrap(&self, keyring: &Keyring) -> Result<u64, EngineError> {
        let is_current = |keyset: &Keyset| self.is_current(keyset, keyring);
        let mut rewritten = 0;
        for file in &self.files {
            let found = self.read(keyring, file).await?;
            if found.good().is_some_and(is_current) {
                continue;
            }
            let outdated = match found {
                Look::Missing => Look::Missing,
                _ => Look::Damaged("its keys are wrapped under a KEK of before".to_owned()),
            };
            write(file, &outdated, &self.known).await?;
            let after = self.read(keyring, file).await?;
            if !after.good().is_some_and(is_current) {
                let why = after.why().unwrap_or_else(|| "its keys are wrapped under another KEK".to_owned());
                return Err(EngineError::Integrity(format!("{} was written again, and {why}", file.name)));
            }
            rewritten += 1;
        }
        Ok(rewritten)
    }

    /// Notes in the settings of the bucket how long its copies are by now: a key more makes them
    /// longer, and accounting goes by it.
    ///
    /// # Errors
    /// What the backends say, and as [`KeyEpochs::change`](super::KeyEpochs::change).
    pub(crate) async fn note_lengths(&self, bucket: &Bucket, catalog: &dyn Catalog) -> Result<(), EngineError> {
        let mut lens = HashMap::new();
        for file in &self.files {
            if let Some(len) = file.backend.head(&file.name).await? {
                lens.insert(file.id.to_string(), len);
            }
        }
        let note = |settings: &mut Value, _: &Bucket| {
            let mut copies = KeysetCopy::in_settings(settings);
            for copy in &mut copies {
                copy.stored_len = lens.get(&copy.id).copied().unwrap_or(copy.stored_len);
            }
            if !copies.is_empty() {
                settings["keysets"] =
                    serde_json::to_value(copies).map_err(|error| EngineError::Other(error.to_string()))?;
            }
            Ok(())
        };
        change_settings(bucket, catalog, note).await
    }

    fn holds_others(&self, keyset: &Keyset) -> bool {
        keyset.entries().len() > self.needed.len()
    }

    /// How many copies hold a key which is not needed, or may: they cannot be read as they should.
    ///
    /// # Errors
    /// What the backend says.
    pub(crate) async fn with_others(&self, keyring: &Keyring) -> Result<u64, EngineError> {
        let mut found = 0;
        for file in &self.files {
            let look = self.read(keyring, file).await?;
            found += u64::from(look.good().is_none_or(|keyset| self.holds_others(keyset)));
        }
        Ok(found)
    }

    /// Writes every copy again that holds a key which is not needed, and those that are damaged or
    /// missing. How many were.
    ///
    /// # Errors
    /// As [`KeysetFiles::rewrap`].
    pub(super) async fn without_others(&self, keyring: &Keyring) -> Result<u64, EngineError> {
        let mut rewritten = 0;
        for file in &self.files {
            let found = self.read(keyring, file).await?;
            let outdated = match found {
                Look::Good(keyset) if !self.holds_others(&keyset) => continue,
                Look::Good(_) => Look::Damaged("it holds a key that was shredded".to_owned()),
                damaged => damaged,
            };
            write(file, &outdated, &self.known).await?;
            let after = self.read(keyring, file).await?;
            if after.good().is_none_or(|keyset| self.holds_others(keyset)) {
                let why = after.why().unwrap_or_else(|| "the shredded key is in it".to_owned());
                return Err(EngineError::Integrity(format!("{} was written again, and {why}", file.name)));
            }
            rewritten += 1;
        }
        Ok(rewritten)
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
                let opened = entry.map(|entry| keyring.open_entry(entry).map(drop));
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
            keys.push(self.open_key(&wrapped)?.ok_or_else(|| other_kek(bucket, &wrapped.wrapped))?);
        }
        Ok(self.keyset(&keys.iter().collect::<Vec<_>>(), &label_of(bucket)))
    }

    /// These keys, wrapped.
    pub(super) fn keyset(&self, keys: &[&DomainKey], label: &BucketLabel) -> Keyset {
        let kek = self.kek();
        Keyset::new(keys.iter().map(|key| KeysetEntry::new(&kek, key, label)))
    }

    /// The copies of a bucket's keyset, with what the catalog has of its keys.
    ///
    /// # Errors
    /// As [`Keyring::keyset_of`], and what the backends say.
    pub(crate) async fn keyset_files(
        &self,
        bucket: &Bucket,
        catalog: &dyn Catalog,
        blobs: &Blobs,
    ) -> Result<KeysetFiles, EngineError> {
        let needed = catalog.keys(bucket.id).await?;
        Ok(KeysetFiles {
            files: files_of(bucket, &KeysetCopy::of(bucket), blobs).await?,
            known: self.keyset_of(bucket, catalog).await?,
            needed: needed.iter().map(|key| (KeyId(key.id), key.epoch)).collect(),
        })
    }
}

/// Where the copies of a bucket's keyset lie. One that is nowhere belongs beside the one it was
/// written with.
async fn files_of(bucket: &Bucket, copies: &[KeysetCopy], blobs: &Blobs) -> Result<Vec<KeysetFile>, EngineError> {
    let settings = bucket.settings.get("backend").and_then(|backend| backend.as_str()).unwrap_or_default();
    let usual = blobs.backend(settings)?;
    let ids: Vec<BlobId> = copies.iter().filter_map(KeysetCopy::blob_id).collect();
    let mut places: Vec<Option<Arc<dyn Backend>>> = Vec::new();
    for id in &ids {
        places.push(place_of(&keyset_name(*id)?, usual, blobs).await?);
    }
    let mut files = Vec::new();
    for (index, id) in ids.iter().enumerate() {
        // They are written in pairs.
        let twin = places.get(index ^ 1).cloned().flatten();
        let backend = places[index].clone().or(twin).unwrap_or_else(|| usual.clone());
        files.push(KeysetFile { backend, name: keyset_name(*id)?, id: *id });
    }
    Ok(files)
}

async fn place_of(
    name: &BlobName,
    usual: &Arc<dyn Backend>,
    blobs: &Blobs,
) -> Result<Option<Arc<dyn Backend>>, EngineError> {
    let others = blobs.backends().map(|(_, backend)| backend);
    for backend in std::iter::once(usual).chain(others) {
        match backend.head(name).await.map_err(EngineError::from) {
            Ok(None) => {}
            // Something that is no blob lies there.
            Ok(Some(_)) | Err(EngineError::Integrity(_)) => return Ok(Some(backend.clone())),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
