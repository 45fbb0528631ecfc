//! The KEKs and the domain keys they wrap. One domain key per sealed bucket and epoch; the file
//! `keyring.json` in the data directory holds the KEKs unless an operator gave them.

pub(crate) mod copies;
pub(crate) mod epochs;
pub(crate) mod keks;
mod opening;
mod provided;
pub(crate) mod provider;
pub(crate) mod roots;

use crate::{blobs::open::Blobs, error::EngineError, metrics::Metrics};
use bytes::Bytes;
use catalog::{Bucket, BucketId, Catalog, CatalogError, WrappedKey};
use epochs::KeyEpochs;
pub(crate) use epochs::Opened;
pub(crate) use keks::Keks;
use keks::Source;
use object_format::{
    BlobId, DomainKey, Kek, KekOrigin, KeyId, Roots,
    keyset::{BucketLabel, Keyset, KeysetEntry},
};
use provider::{KeyProviders, Warrant};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
};
use storage_backends::BlobName;
use zeroize::Zeroizing;

/// What an operator gives of KEKs.
#[derive(Default)]
pub(crate) struct Given {
    /// The KEK itself.
    pub(crate) kek: Option<Kek>,
    /// A file of several; otherwise the one in the data directory.
    pub(crate) file: Option<PathBuf>,
    /// Who keeps others.
    pub(crate) providers: KeyProviders,
}

/// Opens domain keys.
pub(crate) struct Keyring {
    keks: RwLock<Arc<Keks>>,
    /// Of KEKs that are gone, under one that is here: what was derived from them stays readable.
    former_roots: RwLock<Vec<Roots>>,
    source: Source,
    providers: KeyProviders,
    /// How long the KEK that wraps may seal.
    warrant: Arc<Warrant>,
    metrics: Arc<Metrics>,
    opened: Mutex<HashMap<BucketId, Opened>>,
    /// Held while keys are opened or made: two at once would each store keysets, and one pair would
    /// be named nowhere.
    making: tokio::sync::Mutex<()>,
    /// A file in the data directory: the store has keys.
    sealed_mark: PathBuf,
    /// Buckets whose rows say that they are not sealed, and nothing says otherwise.
    plain: Mutex<HashSet<BucketId>>,
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

/// Name of the file in the data directory that says that the store has keys.
const SEALED_MARK: &str = "sealed";

impl Keyring {
    /// The KEKs that are configured, or those of the file in the data directory, which is made with
    /// a new one where there is none (0600, synced) and no provider is to keep the KEK of now.
    ///
    /// # Errors
    /// [`EngineError::Other`] when a file cannot be read, written or understood.
    pub(crate) fn open(data: &Path, given: Given, metrics: &Arc<Metrics>) -> Result<Self, EngineError> {
        let source = Source::new(data, given.kek, given.file);
        let keks = match source.read()? {
            Some(keks) => keks,
            None if given.providers.active.is_some() => Keks::made_up()?,
            None => source.make()?,
        };
        Ok(Self::new(data, keks, source, given.providers, metrics))
    }

    fn new(data: &Path, keks: Keks, source: Source, providers: KeyProviders, metrics: &Arc<Metrics>) -> Self {
        Self {
            keks: RwLock::new(Arc::new(keks)),
            former_roots: RwLock::default(),
            source,
            providers,
            warrant: Arc::default(),
            metrics: metrics.clone(),
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
        write().map_err(|error| keks::failed("cannot write", &self.sealed_mark, &error))
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
    pub(crate) fn open_existing(data: &Path, given: Given, metrics: &Arc<Metrics>) -> Result<Self, EngineError> {
        let source = Source::new(data, given.kek, given.file);
        let keks = match source.read()? {
            Some(keks) => keks,
            // It opens nothing, which is what is known.
            None => Keks::made_up()?,
        };
        Ok(Self::new(data, keks, source, given.providers, metrics))
    }

    /// The KEKs of now.
    pub(crate) fn keks(&self) -> Arc<Keks> {
        self.keks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The KEK that wraps.
    pub(crate) fn kek(&self) -> Arc<Kek> {
        self.keks().active().clone()
    }

    /// Whether an operator gave the KEK; otherwise it lies in the data directory, beside the
    /// catalog.
    pub(crate) fn is_configured(&self) -> bool {
        self.source.is_configured() || self.is_provided()
    }

    /// Opens a keyset's entry.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it is wrapped under another KEK.
    pub(crate) fn open_entry(&self, entry: &KeysetEntry) -> Result<(DomainKey, BucketLabel), EngineError> {
        let keks = self.keks();
        let kek = keks.find(&entry.kek_fingerprint()).unwrap_or_else(|| keks.active());
        entry.open(kek).map_err(|error| {
            EngineError::Other(format!(
                "key {} cannot be opened ({error}): {}",
                entry.key_id(),
                remedy(entry.wrapped())
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
        let epochs = KeyEpochs::of(bucket);
        let here = || self.opened(bucket.id).filter(|keys| keys.serve(epochs));
        if let Some(keys) = here() {
            return Ok(keys);
        }
        let _making = self.making.lock().await;
        if let Some(keys) = here() {
            return Ok(keys);
        }
        let stored = catalog.keys(bucket.id).await?;
        let (domain, all) = self.domain_keys(bucket, &stored, catalog).await?;
        let similarity = stored.iter().find(|key| key.epoch == SIMILARITY_EPOCH);
        let similarity = self.open_or_make(bucket, similarity, SIMILARITY_EPOCH, catalog).await?;
        if bucket.settings.get("keysets").is_none() {
            self.store_keysets(bucket, backend, catalog, blobs, epoch).await?;
        }
        let tag = similarity.keyed_tag("similarity", &[]);
        let mut secret = [0; 16];
        secret.copy_from_slice(&tag[..16]);
        let keys = Opened { domain, all, similarity: secret, warrant: self.warrant.clone() };
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
        self.open_key(&wrapped)?.ok_or_else(|| other_kek(bucket, &wrapped.wrapped))
    }

    /// Opens a wrapped key; `None` when it is wrapped under a KEK that is not here, also after a
    /// look at the file.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when it was altered, or is another bucket's.
    pub(crate) fn open_key(&self, wrapped: &WrappedKey) -> Result<Option<DomainKey>, EngineError> {
        let mut keks = self.keks();
        if keks.find(&wrapped.kek).is_none() {
            self.reload()?;
            keks = self.keks();
        }
        let Some(kek) = keks.find(&wrapped.kek) else { return Ok(None) };
        let bucket = u64::try_from(wrapped.bucket.0).unwrap_or(0);
        Ok(Some(kek.unwrap_for(KeyId(wrapped.id), wrapped.epoch, bucket, &wrapped.wrapped)?))
    }

    /// A bucket's key under the KEK of now.
    pub(crate) fn wrapped(&self, key: &DomainKey, bucket: BucketId) -> WrappedKey {
        let kek = self.kek();
        let wrapped = kek.wrap_for(key, u64::try_from(bucket.0).unwrap_or(0));
        WrappedKey { id: key.id().0, bucket, epoch: key.epoch(), kek: kek.fingerprint(), wrapped }
    }

    /// Refuses a KEK that does not open what is stored: every bucket's newest key must be wrapped
    /// under it.
    ///
    /// # Errors
    /// [`EngineError::Other`] naming the first bucket that is sealed under another KEK.
    pub(crate) async fn check(&self, catalog: &dyn Catalog) -> Result<(), EngineError> {
        for bucket in catalog.buckets().await? {
            let newest = catalog.keys(bucket.id).await?.into_iter().max_by_key(|key| key.epoch);
            if let Some(key) = newest.filter(|key| self.keks().find(&key.kek).is_none()) {
                return Err(other_kek(&bucket, &key.wrapped));
            }
        }
        self.load_former_roots(catalog).await
    }

    /// Forgets a deleted bucket's key.
    pub(crate) fn forget(&self, bucket: BucketId) {
        self.lock().remove(&bucket);
        self.plain.lock().unwrap_or_else(PoisonError::into_inner).remove(&bucket);
    }

    async fn make(&self, bucket: &Bucket, epoch: u32, catalog: &dyn Catalog) -> Result<WrappedKey, EngineError> {
        // Another process may have chosen another KEK: what is wrapped under one that it removes is
        // lost.
        self.reload()?;
        self.warrant.check()?;
        let id = random::<16>()?;
        let secret = Zeroizing::new(random::<32>()?);
        let wrapped = self.wrapped(&DomainKey::new(KeyId(id), epoch, *secret), bucket.id);
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
        catalog: &dyn Catalog,
        blobs: &Blobs,
        epoch: u32,
    ) -> Result<(), EngineError> {
        let stored = self.copy_keysets(bucket, backend, catalog, blobs, epoch).await?;
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

    /// Two copies of a sealed bucket's wrapped keys in a backend that has none of them yet.
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
pub(crate) async fn discard(unnamed: &[KeysetCopy], backend: &str, blobs: &Blobs) -> Result<(), EngineError> {
    for id in unnamed.iter().filter_map(|copy| BlobId::parse(&copy.id)) {
        blobs.backend(backend)?.delete(&keyset_name(id)?).await?;
    }
    Ok(())
}

fn label_of(bucket: &Bucket) -> BucketLabel {
    BucketLabel { id: u64::try_from(bucket.id.0).unwrap_or(0), name: bucket.name.clone() }
}

/// What an operator can do about a wrap that does not open.
fn remedy(wrapped: &[u8]) -> String {
    match KekOrigin::of(wrapped) {
        Ok((Some(origin), _)) => format!(
            "its KEK is kept by key {} of a {} provider: configure that one in [key_providers]",
            origin.key, origin.provider
        ),
        _ => {
            "give the store's KEK as storage.kek or DELTAWEIR_KEK, or put its keyring.json back into the data directory"
                .into()
        }
    }
}

fn other_kek(bucket: &Bucket, wrapped: &[u8]) -> EngineError {
    let name = &bucket.name;
    EngineError::Other(format!("bucket {name} is sealed under another KEK than the one given: {}", remedy(wrapped)))
}

#[cfg(test)]
mod provided_tests;
#[cfg(test)]
mod tests;
