//! The KEK and the domain keys it wraps. One domain key per sealed bucket and epoch; the file `keyring.json` in the data
//! directory holds the KEK unless the environment gave one.

use super::{blobs::Blobs, error::EngineError};
use bytes::Bytes;
use catalog::{Bucket, BucketId, Catalog, CatalogError, WrappedKey};
use object_format::{
    BlobId, DomainKey, Kek, KeyId,
    keyset::{BucketLabel, Keyset, KeysetEntry},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use storage_backends::BlobName;
use zeroize::Zeroizing;

/// Opens domain keys.
pub(super) struct Keyring {
    kek: Kek,
    opened: Mutex<HashMap<BucketId, Arc<DomainKey>>>,
}

/// Bytes from the operating system's generator.
pub(super) fn random<const N: usize>() -> Result<[u8; N], EngineError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| EngineError::Other(format!("no randomness: {error}")))?;
    Ok(bytes)
}

/// One keyset blob, as named in its bucket's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysetCopy {
    /// Blob id in hex.
    pub id: String,
    /// Its bytes in the backend.
    pub stored_len: u64,
}

/// The name of a keyset blob in its backend.
pub(super) fn keyset_name(id: BlobId) -> Result<BlobName, EngineError> {
    Ok(BlobName::new(format!("keyset/{id}"))?)
}

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
    pub(super) fn open(data: &Path, from_environment: Option<Kek>) -> Result<Self, EngineError> {
        let kek = match from_environment {
            Some(kek) => kek,
            None => file_kek(&data.join("keyring.json"))?,
        };
        Ok(Self { kek, opened: Mutex::default() })
    }

    /// The domain key of a sealed bucket. Makes it when the bucket has none yet: wrapped in the catalog and in two keyset blobs before the first blob that needs it (I11).
    pub(super) async fn domain_key(
        &self,
        bucket: &Bucket,
        backend: &str,
        catalog: &dyn Catalog,
        blobs: &Blobs,
        epoch: u32,
    ) -> Result<Arc<DomainKey>, EngineError> {
        if let Some(key) = self.lock().get(&bucket.id) {
            return Ok(key.clone());
        }
        let wrapped = match catalog.keys(bucket.id).await?.into_iter().max_by_key(|key| key.epoch) {
            Some(wrapped) => wrapped,
            None => self.make(bucket, catalog).await?,
        };
        if wrapped.kek != self.kek.fingerprint() {
            return Err(EngineError::Other(format!(
                "bucket {} is sealed under another KEK than the one given",
                bucket.name
            )));
        }
        let key = Arc::new(self.kek.unwrap(KeyId(wrapped.id), wrapped.epoch, &wrapped.wrapped)?);
        if bucket.settings.get("keysets").is_none() {
            self.store_keysets(bucket, backend, &key, catalog, blobs, epoch).await?;
        }
        self.lock().insert(bucket.id, key.clone());
        Ok(key)
    }

    /// Refuses a KEK that does not open what is stored: every bucket's newest key must be wrapped under it.
    ///
    /// # Errors
    /// [`EngineError::Other`] naming the first bucket that is sealed under another KEK.
    pub(super) async fn check(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        for bucket in catalog.buckets().await? {
            let newest = catalog.keys(bucket.id).await?.into_iter().max_by_key(|key| key.epoch);
            if newest.is_some_and(|key| key.kek != self.kek.fingerprint()) {
                return Err(other_kek(&bucket));
            }
        }
        Ok(())
    }

    /// Forgets a deleted bucket's key.
    pub(super) fn forget(&self, bucket: BucketId) {
        self.lock().remove(&bucket);
    }

    async fn make(&self, bucket: &Bucket, catalog: &dyn Catalog) -> Result<WrappedKey, EngineError> {
        let id = random::<16>()?;
        let secret = Zeroizing::new(random::<32>()?);
        let key = DomainKey::new(KeyId(id), 1, *secret);
        let wrapped =
            WrappedKey { id, bucket: bucket.id, epoch: 1, kek: self.kek.fingerprint(), wrapped: self.kek.wrap(&key) };
        match catalog.put_key(wrapped.clone()).await {
            Ok(()) => {}
            // Another replica was first: its key counts.
            Err(CatalogError::Exists) => {
                let keys = catalog.keys(bucket.id).await?;
                return keys.into_iter().max_by_key(|key| key.epoch).ok_or(EngineError::NoBucket);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(wrapped)
    }

    /// Two copies of the wrapped key in the bucket's backend, named in the bucket's settings, so that accounting and the collector know them.
    async fn store_keysets(
        &self,
        bucket: &Bucket,
        backend: &str,
        key: &DomainKey,
        catalog: &dyn Catalog,
        blobs: &Blobs,
        epoch: u32,
    ) -> Result<(), EngineError> {
        let label = BucketLabel { id: u64::try_from(bucket.id.0).unwrap_or(0), name: bucket.name.clone() };
        let keyset = Keyset::new([KeysetEntry::new(&self.kek, key, &label)]);
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
        let mut settings = bucket.settings.clone();
        settings["keysets"] = serde_json::to_value(stored).map_err(|error| EngineError::Other(error.to_string()))?;
        Ok(catalog.set_bucket_settings(bucket.id, settings).await?)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<BucketId, Arc<DomainKey>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn other_kek(bucket: &Bucket) -> EngineError {
    EngineError::Other(format!("bucket {} is sealed under another KEK than the one given", bucket.name))
}

fn file_kek(path: &Path) -> Result<Kek, EngineError> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let failed =
        |what: &str, error: &dyn std::fmt::Display| EngineError::Other(format!("{what} {}: {error}", path.display()));
    match fs::read_to_string(path) {
        Ok(text) => {
            let text = Zeroizing::new(text);
            let file: KeyringFile = serde_json::from_str(&text).map_err(|error| failed("cannot understand", &error))?;
            if file.version != 1 {
                return Err(failed("cannot understand", &"unknown version"));
            }
            let secret =
                Zeroizing::new(BASE64_STANDARD.decode(&file.kek).map_err(|error| failed("cannot understand", &error))?);
            let secret: [u8; 32] =
                secret.as_slice().try_into().map_err(|_| failed("cannot understand", &"the KEK is not 32 bytes"))?;
            Ok(Kek::new(secret))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let secret = Zeroizing::new(random::<32>()?);
            let file = KeyringFile { version: 1, kek: BASE64_STANDARD.encode(*secret) };
            let text = serde_json::to_string_pretty(&file).map_err(|error| failed("cannot write", &error))?;
            let write = || {
                let mut options = fs::OpenOptions::new();
                let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
            };
            write().map_err(|error| failed("cannot write", &error))?;
            Ok(Kek::new(*secret))
        }
        Err(error) => Err(failed("cannot read", &error)),
    }
}
