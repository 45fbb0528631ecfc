//! The domain keys of a bucket, one for each epoch. A new epoch begins when a bucket is encrypted
//! anew: new content is sealed with its key, older content is read with the older ones until the
//! last of it is moved over.

use super::{Keyring, Opened, SIMILARITY_EPOCH, label_of, random};
use crate::{blobs::open::Blobs, deployment::keyring::copies::KeysetFiles, error::EngineError};
use catalog::{Bucket, Catalog, CatalogError, Seq, WrappedKey};
use object_format::{DomainKey, KeyId, keyset::KeysetEntry, row};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

/// The setting of a bucket that says which of its domain keys are in force.
const SETTING: &str = "domain_keys";
/// How often a change of settings is tried against changes by others.
const CHANGES_MAX: usize = 16;

/// Which domain keys a bucket has, as its settings say. They tell processes that hold keys of the
/// bucket when to look for others; which keys there are, the catalog's rows say. All zero in a
/// bucket that was never encrypted anew: then the newest key seals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeyEpochs {
    /// The least epoch that is not shredded.
    pub(crate) oldest: u32,
    /// The epoch that new content is sealed in.
    pub(crate) sealing: u32,
    /// The greatest epoch that anything may be sealed in.
    pub(crate) newest: u32,
    /// The mutation since which nothing is sealed in an epoch before `sealing`; 0 while that is not
    /// known.
    pub(crate) unused_since: Seq,
}

impl KeyEpochs {
    pub(crate) fn of(bucket: &Bucket) -> Self {
        let told = bucket.settings.get(SETTING).cloned();
        told.and_then(|told| serde_json::from_value(told).ok()).unwrap_or_default()
    }

    /// Changes what a bucket's settings say of its keys.
    ///
    /// # Errors
    /// [`EngineError::NoBucket`] when it was deleted meanwhile, [`EngineError::Conflict`] when its
    /// settings never rest.
    pub(crate) async fn change(
        bucket: &Bucket,
        catalog: &dyn Catalog,
        change: impl Fn(Self) -> Self,
    ) -> Result<(), EngineError> {
        for _ in 0..CHANGES_MAX {
            let now = catalog.bucket(&bucket.name).await?.filter(|now| now.id == bucket.id);
            let expected = now.ok_or(EngineError::NoBucket)?;
            let epochs = change(Self::of(&expected));
            if epochs == Self::of(&expected) {
                return Ok(());
            }
            let mut settings = expected.settings.clone();
            settings[SETTING] = serde_json::to_value(epochs).map_err(|error| EngineError::Other(error.to_string()))?;
            match catalog.change_bucket_settings(bucket.id, expected.settings, settings).await {
                Err(CatalogError::Conflict) => {}
                changed => return Ok(changed?),
            }
        }
        Err(EngineError::Conflict)
    }
}

impl KeyEpochs {
    /// The keys that a bucket was sealed with before.
    pub(crate) async fn former_keys(
        self,
        bucket: &Bucket,
        catalog: &dyn Catalog,
    ) -> Result<Vec<WrappedKey>, EngineError> {
        let stored = catalog.keys(bucket.id).await?;
        Ok(stored.into_iter().filter(|key| (1..self.sealing).contains(&key.epoch)).collect())
    }

    /// Notes since when nothing that can be read uses the keys of before.
    ///
    /// # Errors
    /// As [`KeyEpochs::change`].
    pub(crate) async fn note_use(bucket: &Bucket, catalog: &dyn Catalog) -> Result<(), EngineError> {
        let mut is_unused = true;
        for key in Self::of(bucket).former_keys(bucket, catalog).await? {
            is_unused &= catalog.key_dependents(bucket.id, key.epoch).await?.is_unused();
        }
        let seq = catalog.last_seq().await?;
        let noted = |epochs: Self| {
            let since = if epochs.unused_since == 0 { seq } else { epochs.unused_since };
            Self { unused_since: if is_unused { since } else { 0 }, ..epochs }
        };
        Self::change(bucket, catalog, noted).await
    }
}

/// The domain keys of one bucket. Whoever holds a bucket sees those that are opened later, too: a
/// row that it reads may be sealed with one.
#[derive(Clone, Default)]
pub(crate) struct DomainKeys(Arc<RwLock<Vec<Arc<DomainKey>>>>);

impl DomainKeys {
    fn set(&self, keys: Vec<Arc<DomainKey>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    fn find(&self, is_it: impl Fn(&DomainKey) -> bool) -> Option<Arc<DomainKey>> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().find(|key| is_it(key)).cloned()
    }

    /// The least epoch and the greatest.
    fn span(&self) -> (u32, u32) {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let epochs = || keys.iter().map(|key| key.epoch());
        (epochs().min().unwrap_or(0), epochs().max().unwrap_or(0))
    }
}

impl Opened {
    /// One key, for a recovery that has found it.
    pub(crate) fn alone(domain: DomainKey) -> Self {
        let domain = Arc::new(domain);
        Self { all: DomainKeys(Arc::new(RwLock::new(vec![domain.clone()]))), domain, similarity: [0; 16] }
    }

    /// The key of an epoch. The one of now for an epoch without any: it opens nothing else, and
    /// says so.
    pub(crate) fn of_epoch(&self, epoch: u32) -> Arc<DomainKey> {
        let found = if self.domain.epoch() == epoch { None } else { self.all.find(|key| key.epoch() == epoch) };
        found.unwrap_or_else(|| self.domain.clone())
    }

    /// The key that a sealed row names.
    pub(crate) fn of_row(&self, sealed: &[u8]) -> Arc<DomainKey> {
        let id = row::key_of(sealed).filter(|id| *id != self.domain.id());
        id.and_then(|id| self.all.find(|key| key.id() == id)).unwrap_or_else(|| self.domain.clone())
    }

    /// Whether these are the keys that a bucket's settings ask for.
    pub(super) fn serve(&self, epochs: KeyEpochs) -> bool {
        let is_sealing = epochs.sealing == 0 || self.domain.epoch() == epochs.sealing;
        let (oldest, newest) = self.all.span();
        is_sealing && newest >= epochs.newest && oldest >= epochs.oldest
    }
}

impl Keyring {
    /// The domain keys of a bucket from its rows in the catalog, the one that seals first. Makes
    /// the first one when there is none.
    pub(super) async fn domain_keys(
        &self,
        bucket: &Bucket,
        stored: &[WrappedKey],
        catalog: &dyn Catalog,
    ) -> Result<(Arc<DomainKey>, DomainKeys), EngineError> {
        let sealing = KeyEpochs::of(bucket).sealing;
        let domain_keys = || stored.iter().filter(|key| key.epoch != SIMILARITY_EPOCH);
        let named = domain_keys().find(|key| key.epoch == sealing);
        let active = named.or_else(|| domain_keys().max_by_key(|key| key.epoch));
        let domain = Arc::new(self.open_or_make(bucket, active, 1, catalog).await?);
        let mut all = vec![domain.clone()];
        for wrapped in domain_keys().filter(|key| key.id != domain.id().0) {
            match self.open_key(wrapped) {
                Ok(Some(key)) => all.push(Arc::new(key)),
                Ok(None) => tracing::warn!(bucket = bucket.name, epoch = wrapped.epoch, "a key's KEK is not here"),
                Err(error) => {
                    tracing::warn!(%error, bucket = bucket.name, epoch = wrapped.epoch, "a key does not open")
                }
            }
        }
        let keys = self.opened(bucket.id).map(|opened| opened.all).unwrap_or_default();
        keys.set(all);
        Ok((domain, keys))
    }

    /// The keys of a bucket for a recovery: none is made, and nothing looks for what is similar.
    ///
    /// # Errors
    /// [`EngineError::Other`] when there is none, or its KEK is not here.
    pub(crate) async fn keys_of(&self, bucket: &Bucket, catalog: &dyn Catalog) -> Result<Opened, EngineError> {
        let stored = catalog.keys(bucket.id).await?;
        if stored.iter().all(|key| key.epoch == SIMILARITY_EPOCH) {
            return Err(EngineError::Other(format!("bucket {} has no key", bucket.name)));
        }
        let (domain, all) = self.domain_keys(bucket, &stored, catalog).await?;
        Ok(Opened { domain, all, similarity: [0; 16] })
    }

    /// Makes the key of the epoch behind the one that seals: beside the blobs first, then in the
    /// catalog. Nothing is sealed with it before [`Self::seal_in`]. One that was interrupted here
    /// is gone on with. Gives its epoch.
    ///
    /// # Errors
    /// [`EngineError::Other`] when a key is wrapped under another KEK; what catalog and backends
    /// say.
    pub(crate) async fn open_epoch(
        &self,
        bucket: &Bucket,
        catalog: &dyn Catalog,
        blobs: &Blobs,
    ) -> Result<u32, EngineError> {
        let _making = self.making.lock().await;
        let stored = catalog.keys(bucket.id).await?;
        let highest = stored.iter().map(|key| key.epoch).max().unwrap_or(0).max(1);
        let sealing = |epochs: KeyEpochs| if epochs.sealing == 0 { highest } else { epochs.sealing };
        let epoch = sealing(KeyEpochs::of(bucket)) + 1;
        // Who has no key of the bucket yet seals in the epoch of now, and who has one looks for
        // more.
        let announced =
            |epochs: KeyEpochs| KeyEpochs { sealing: sealing(epochs), newest: epoch, unused_since: 0, ..epochs };
        KeyEpochs::change(bucket, catalog, announced).await?;
        if stored.iter().all(|key| key.epoch != epoch) {
            self.reload()?;
            let (id, secret) = (random()?, Zeroizing::new(random()?));
            let key = DomainKey::new(KeyId(id), epoch, *secret);
            let files = self.keyset_files(bucket, catalog, blobs).await?;
            files.with(KeysetEntry::new(&self.kek(), &key, &label_of(bucket)), &key).rewrap(self).await?;
            match catalog.put_key(self.wrapped(&key, bucket.id)).await {
                // Another process was faster: its key counts.
                Ok(()) | Err(CatalogError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // As the catalog has it, also when others have written keysets meanwhile.
        self.keyset_files(bucket, catalog, blobs).await?.rewrap(self).await?;
        Ok(epoch)
    }

    /// From now on new content of a bucket is sealed in this epoch.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn seal_in(&self, bucket: &Bucket, epoch: u32, catalog: &dyn Catalog) -> Result<(), EngineError> {
        KeyEpochs::change(bucket, catalog, |epochs| KeyEpochs { sealing: epoch.max(epochs.sealing), ..epochs }).await
    }

    /// Removes keys with which nothing is sealed: from the catalog, then from the keysets beside
    /// the blobs. `oldest` is the least epoch that stays.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] when something is sealed with one of them; what catalog and
    /// backends say.
    pub(crate) async fn shred(
        &self,
        bucket: &Bucket,
        epochs: &[u32],
        oldest: u32,
        catalog: &dyn Catalog,
        blobs: &Blobs,
    ) -> Result<u64, EngineError> {
        let _making = self.making.lock().await;
        match catalog.remove_keys(bucket.id, epochs).await {
            Ok(_) => {}
            Err(CatalogError::BucketState) => return Err(EngineError::Conflict),
            Err(error) => return Err(error.into()),
        }
        let rewritten = self.keyset_files(bucket, catalog, blobs).await?.without_others(self).await?;
        KeyEpochs::change(bucket, catalog, |epochs| KeyEpochs { oldest, ..epochs }).await?;
        self.forget(bucket.id);
        Ok(rewritten)
    }
}

impl KeysetFiles {
    /// The same with another key.
    fn with(mut self, entry: KeysetEntry, key: &DomainKey) -> Self {
        self.known = object_format::keyset::Keyset::new(self.known.entries().iter().cloned().chain([entry]));
        self.needed.push((key.id(), key.epoch()));
        self
    }
}
