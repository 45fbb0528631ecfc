//! The KEK and the domain keys it wraps. One domain key per sealed bucket and epoch; the file
//! `keyring.json` in the data directory holds the KEK unless the environment gave one.

pub(crate) mod copies;

use crate::{blobs::open::Blobs, error::EngineError};
use bytes::Bytes;
use catalog::{Bucket, BucketId, Catalog, CatalogError, WrappedKey};
use object_format::{
    BlobId, DomainKey, Kek, KeyId,
    keyset::{BucketLabel, Keyset, KeysetEntry},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use storage_backends::BlobName;
use zeroize::Zeroizing;

/// Opens domain keys.
pub(crate) struct Keyring {
    kek: Kek,
    opened: Mutex<HashMap<BucketId, Opened>>,
    /// Held while keys are opened or made: two at once would each store keysets, and one pair would
    /// be named nowhere.
    making: tokio::sync::Mutex<()>,
    is_configured: bool,
    /// The file with the KEK that was made when none was configured.
    file: PathBuf,
    /// A file in the data directory: the store has keys.
    sealed_mark: PathBuf,
    /// Buckets whose rows say that they are not sealed, and nothing says otherwise.
    plain: Mutex<HashSet<BucketId>>,
}

/// A sealed bucket's keys.
#[derive(Clone)]
pub(crate) struct Opened {
    /// The domain key of its newest epoch.
    pub(crate) domain: Arc<DomainKey>,
    /// What its hooks and sketches are keyed with: the same for all epochs.
    pub(crate) similarity: [u8; 16],
}

/// The epoch that the similarity secret of a bucket is wrapped as: no domain key has it.
const SIMILARITY_EPOCH: u32 = 0;

pub(crate) use crate::resources::machine::random;

/// One keyset blob, as named in its bucket's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysetCopy {
    /// Blob id in hex.
    pub id: String,
    /// Its bytes in the backend.
    pub stored_len: u64,
}

impl KeysetCopy {
    /// The keyset blobs a bucket's settings name.
    pub(crate) fn of(bucket: &Bucket) -> Vec<Self> {
        Self::in_settings(&bucket.settings)
    }

    /// The same of settings.
    pub(crate) fn in_settings(settings: &Value) -> Vec<Self> {
        serde_json::from_value(settings.get("keysets").cloned().unwrap_or_default()).unwrap_or_default()
    }

    /// The id of the blob, if it is one.
    pub(crate) fn blob_id(&self) -> Option<BlobId> {
        BlobId::parse(&self.id)
    }
}

/// The name of a keyset blob in its backend.
pub(crate) fn keyset_name(id: BlobId) -> Result<BlobName, EngineError> {
    Ok(BlobName::new(format!("keyset/{id}"))?)
}

/// Name of the file in the data directory that holds a KEK.
const FILE_NAME: &str = "keyring.json";
/// Name of the file in the data directory that says that the store has keys.
const SEALED_MARK: &str = "sealed";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyringFile {
    version: u32,
    kek: String,
}

impl Keyring {
    /// The KEK of the environment, or the file's, or a new one in a new file (0600, synced).
    ///
    /// # Errors
    /// [`EngineError::Other`] when the file cannot be read, written or understood.
    pub(crate) fn open(data: &Path, from_environment: Option<Kek>) -> Result<Self, EngineError> {
        let is_configured = from_environment.is_some();
        let path = data.join(FILE_NAME);
        let kek = match from_environment {
            Some(kek) => kek,
            None => match read_kek(&path)? {
                Some(kek) => kek,
                None => make_kek(&path)?,
            },
        };
        Ok(Self::new(data, kek, is_configured))
    }

    fn new(data: &Path, kek: Kek, is_configured: bool) -> Self {
        Self {
            kek,
            is_configured,
            file: data.join(FILE_NAME),
            opened: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            sealed_mark: data.join(SEALED_MARK),
            plain: Mutex::default(),
        }
    }

    /// Notes in the data directory that the store has keys, for a recovery that finds neither
    /// catalog nor keys.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be written.
    pub(crate) fn note_sealed(&self) -> Result<(), EngineError> {
        if self.was_sealed() {
            return Ok(());
        }
        let write = || {
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600).open(&self.sealed_mark)?.sync_all()?;
            fs::File::open(self.sealed_mark.parent().unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|error| keyring_failed("cannot write", &self.sealed_mark, &error))
    }

    /// Whether the data directory says that the store has keys.
    pub(crate) fn was_sealed(&self) -> bool {
        self.sealed_mark.exists()
    }

    /// Refuses a bucket whose row says that it is not sealed while its keys, or the configuration,
    /// say that it is: somebody has changed the row.
    ///
    /// # Errors
    /// [`EngineError::NotCurrent`] in words for the operator; what the catalog says.
    pub(crate) async fn check_plain(
        &self,
        bucket: &Bucket,
        configured: bool,
        catalog: &dyn Catalog,
    ) -> Result<(), EngineError> {
        let known = |plain: &Mutex<HashSet<BucketId>>| {
            plain.lock().unwrap_or_else(PoisonError::into_inner).contains(&bucket.id)
        };
        let why = match () {
            () if configured => "the configuration asks for encryption",
            () if self.opened(bucket.id).is_some() => "this process has opened its key",
            () if known(&self.plain) => return Ok(()),
            () if !catalog.keys(bucket.id).await?.is_empty() => "the catalog has a key of it",
            () => {
                self.plain.lock().unwrap_or_else(PoisonError::into_inner).insert(bucket.id);
                return Ok(());
            }
        };
        Err(EngineError::NotCurrent(format!(
            "bucket {} is refused: its row says that it is not encrypted, and {why}. Somebody may have changed the row \
             (docs/threat-model.md)",
            bucket.name
        )))
    }

    /// As [`Keyring::open`], but leaves no new file where there is none: the old one may still be
    /// put back.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn open_existing(data: &Path, from_environment: Option<Kek>) -> Result<Self, EngineError> {
        let is_configured = from_environment.is_some();
        let kek = match from_environment {
            Some(kek) => Some(kek),
            None => read_kek(&data.join(FILE_NAME))?,
        };
        let kek = match kek {
            Some(kek) => kek,
            // It opens nothing, which is what is known.
            None => Kek::new(random()?),
        };
        Ok(Self::new(data, kek, is_configured))
    }

    /// The KEK.
    pub(crate) fn kek(&self) -> &Kek {
        &self.kek
    }

    /// The KEK that was made before an operator gave another one; `None` when there was none.
    ///
    /// # Errors
    /// [`EngineError::Other`] when its file cannot be read.
    pub(crate) fn former(&self) -> Result<Option<Kek>, EngineError> {
        let found = if self.is_configured { read_kek(&self.file)? } else { None };
        Ok(found.filter(|kek| kek.fingerprint() != self.kek.fingerprint()))
    }

    /// Whether an operator gave the KEK; otherwise it lies in the data directory, beside the
    /// catalog.
    pub(crate) fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Opens a keyset's entry.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it is wrapped under another KEK.
    pub(crate) fn open_entry(&self, entry: &KeysetEntry) -> Result<(DomainKey, BucketLabel), EngineError> {
        entry.open(&self.kek).map_err(|error| {
            EngineError::Other(format!(
                "key {} cannot be opened ({error}): give the store's KEK as storage.kek or DELTAWEIR_KEK, or put its \
                 keyring.json back into the data directory",
                entry.key_id()
            ))
        })
    }

    /// The keys of a sealed bucket. Makes them when the bucket has none yet: wrapped in the catalog
    /// and in two keyset blobs before the first blob that needs it (I11).
    pub(crate) async fn bucket_keys(
        &self,
        bucket: &Bucket,
        backend: &str,
        catalog: &dyn Catalog,
        blobs: &Blobs,
        epoch: u32,
    ) -> Result<Opened, EngineError> {
        if let Some(keys) = self.opened(bucket.id) {
            return Ok(keys);
        }
        let _making = self.making.lock().await;
        if let Some(keys) = self.opened(bucket.id) {
            return Ok(keys);
        }
        let stored = catalog.keys(bucket.id).await?;
        let newest = stored.iter().filter(|key| key.epoch != SIMILARITY_EPOCH).max_by_key(|key| key.epoch);
        let domain = self.open_or_make(bucket, newest, 1, catalog).await?;
        let similarity = stored.iter().find(|key| key.epoch == SIMILARITY_EPOCH);
        let similarity = self.open_or_make(bucket, similarity, SIMILARITY_EPOCH, catalog).await?;
        if bucket.settings.get("keysets").is_none() {
            self.store_keysets(bucket, backend, [&domain, &similarity], catalog, blobs, epoch).await?;
        }
        let tag = similarity.keyed_tag("similarity", &[]);
        let mut secret = [0; 16];
        secret.copy_from_slice(&tag[..16]);
        let keys = Opened { domain: Arc::new(domain), similarity: secret };
        self.lock().insert(bucket.id, keys.clone());
        Ok(keys)
    }

    async fn open_or_make(
        &self,
        bucket: &Bucket,
        stored: Option<&WrappedKey>,
        epoch: u32,
        catalog: &dyn Catalog,
    ) -> Result<DomainKey, EngineError> {
        let wrapped = match stored {
            Some(wrapped) => wrapped.clone(),
            None => self.make(bucket, epoch, catalog).await?,
        };
        if wrapped.kek != self.kek.fingerprint() {
            return Err(other_kek(bucket));
        }
        Ok(self.kek.unwrap(KeyId(wrapped.id), wrapped.epoch, &wrapped.wrapped)?)
    }

    /// Refuses a KEK that does not open what is stored: every bucket's newest key must be wrapped
    /// under it.
    ///
    /// # Errors
    /// [`EngineError::Other`] naming the first bucket that is sealed under another KEK.
    pub(crate) async fn check(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        for bucket in catalog.buckets().await? {
            let newest = catalog.keys(bucket.id).await?.into_iter().max_by_key(|key| key.epoch);
            if newest.is_some_and(|key| key.kek != self.kek.fingerprint()) {
                return Err(other_kek(&bucket));
            }
        }
        Ok(())
    }

    /// Forgets a deleted bucket's key.
    pub(crate) fn forget(&self, bucket: BucketId) {
        self.lock().remove(&bucket);
        self.plain.lock().unwrap_or_else(PoisonError::into_inner).remove(&bucket);
    }

    async fn make(&self, bucket: &Bucket, epoch: u32, catalog: &dyn Catalog) -> Result<WrappedKey, EngineError> {
        let id = random::<16>()?;
        let secret = Zeroizing::new(random::<32>()?);
        let key = DomainKey::new(KeyId(id), epoch, *secret);
        let wrapped =
            WrappedKey { id, bucket: bucket.id, epoch, kek: self.kek.fingerprint(), wrapped: self.kek.wrap(&key) };
        match catalog.put_key(wrapped.clone()).await {
            Ok(()) => {}
            // Another replica was first: its key counts.
            Err(CatalogError::Exists) => {
                let keys = catalog.keys(bucket.id).await?;
                return keys.into_iter().find(|key| key.epoch == epoch).ok_or(EngineError::NoBucket);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(wrapped)
    }

    /// Two copies of the wrapped keys in the bucket's backend, named in the bucket's settings, so
    /// that accounting and the collector know them.
    async fn store_keysets(
        &self,
        bucket: &Bucket,
        backend: &str,
        keys: [&DomainKey; 2],
        catalog: &dyn Catalog,
        blobs: &Blobs,
        epoch: u32,
    ) -> Result<(), EngineError> {
        let stored = self.write_keysets(bucket, backend, &keys, blobs, epoch).await?;
        let named = serde_json::to_value(&stored).map_err(|error| EngineError::Other(error.to_string()))?;
        let mut expected = bucket.settings.clone();
        loop {
            let mut settings = expected.clone();
            settings["keysets"] = named.clone();
            match catalog.change_bucket_settings(bucket.id, expected, settings).await {
                Ok(()) => return Ok(()),
                Err(CatalogError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
            // Another replica has changed the settings: perhaps it named copies of its own, which
            // hold the same keys.
            let now = catalog.bucket(&bucket.name).await?.filter(|now| now.id == bucket.id);
            let now = now.ok_or(EngineError::NoBucket)?;
            if now.settings.get("keysets").is_some() {
                return discard(&stored, backend, blobs).await;
            }
            expected = now.settings;
        }
    }

    /// Two copies of a sealed bucket's wrapped keys in another backend than those it has already.
    pub(crate) async fn copy_keysets(
        &self,
        bucket: &Bucket,
        backend: &str,
        catalog: &dyn Catalog,
        blobs: &Blobs,
        epoch: u32,
    ) -> Result<Vec<KeysetCopy>, EngineError> {
        let keyset = self.keyset_of(bucket, catalog).await?;
        Self::write_twice(&keyset, backend, blobs, epoch).await
    }

    async fn write_keysets(
        &self,
        bucket: &Bucket,
        backend: &str,
        keys: &[&DomainKey],
        blobs: &Blobs,
        epoch: u32,
    ) -> Result<Vec<KeysetCopy>, EngineError> {
        let keyset = self.keyset(keys, &label_of(bucket));
        Self::write_twice(&keyset, backend, blobs, epoch).await
    }

    async fn write_twice(
        keyset: &Keyset,
        backend: &str,
        blobs: &Blobs,
        epoch: u32,
    ) -> Result<Vec<KeysetCopy>, EngineError> {
        let mut stored = Vec::new();
        for _ in 0..2 {
            let id = BlobId::new(epoch, random()?);
            let mut bytes = Vec::new();
            keyset.write_blob(id, &mut bytes)?;
            let (name, stored_len) = (keyset_name(id)?, bytes.len() as u64);
            let body = futures::stream::iter([Ok(Bytes::from(bytes))]);
            blobs.backend(backend)?.put(&name, Box::pin(body), Some(stored_len)).await?;
            stored.push(KeysetCopy { id: id.to_string(), stored_len });
        }
        Ok(stored)
    }

    fn opened(&self, bucket: BucketId) -> Option<Opened> {
        self.lock().get(&bucket).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<BucketId, Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes copies that nothing names.
async fn discard(unnamed: &[KeysetCopy], backend: &str, blobs: &Blobs) -> Result<(), EngineError> {
    for id in unnamed.iter().filter_map(|copy| BlobId::parse(&copy.id)) {
        blobs.backend(backend)?.delete(&keyset_name(id)?).await?;
    }
    Ok(())
}

fn label_of(bucket: &Bucket) -> BucketLabel {
    BucketLabel { id: u64::try_from(bucket.id.0).unwrap_or(0), name: bucket.name.clone() }
}

fn other_kek(bucket: &Bucket) -> EngineError {
    EngineError::Other(format!("bucket {} is sealed under another KEK than the one given", bucket.name))
}

fn keyring_failed(what: &str, path: &Path, error: &dyn std::fmt::Display) -> EngineError {
    EngineError::Other(format!("{what} {}: {error}", path.display()))
}

/// The KEK of the file; `None` when there is none.
fn read_kek(path: &Path) -> Result<Option<Kek>, EngineError> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let unclear = |error: &dyn std::fmt::Display| keyring_failed("cannot understand", path, error);
    let text = match fs::read_to_string(path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(keyring_failed("cannot read", path, &error)),
    };
    let file: KeyringFile = serde_json::from_str(&text).map_err(|error| unclear(&error))?;
    if file.version != 1 {
        return Err(unclear(&"unknown version"));
    }
    let secret = Zeroizing::new(BASE64_STANDARD.decode(&file.kek).map_err(|error| unclear(&error))?);
    let secret: [u8; 32] = secret.as_slice().try_into().map_err(|_| unclear(&"the KEK is not 32 bytes"))?;
    Ok(Some(Kek::new(secret)))
}

/// A new KEK in a new file.
fn make_kek(path: &Path) -> Result<Kek, EngineError> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let failed = |error: &dyn std::fmt::Display| keyring_failed("cannot write", path, error);
    let secret = Zeroizing::new(random::<32>()?);
    let file = KeyringFile { version: 1, kek: BASE64_STANDARD.encode(*secret) };
    let text = serde_json::to_string_pretty(&file).map_err(|error| failed(&error))?;
    let write = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| failed(&error))?;
    Ok(Kek::new(*secret))
}

#[cfg(test)]
mod tests;
