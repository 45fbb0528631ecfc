//! How a bucket comes by its domain keys: they are opened, another epoch begins, and one of before
//! ends.

use super::{
    Keyring, SIMILARITY_EPOCH,
    copies::KeysetFiles,
    epochs::{DomainKeys, KeyEpochs, Opened},
    label_of, random,
};
use crate::{blobs::open::Blobs, error::EngineError};
use catalog::{Bucket, Catalog, CatalogError, WrappedKey};
use object_format::{
    DomainKey, KeyId,
    keyset::{Keyset, KeysetEntry},
};
use std::sync::Arc;
use zeroize::Zeroizing;

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
        Ok(Opened { domain, all, similarity: [0; 16], warrant: Arc::default() })
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
            self.warrant.check()?;
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
        // As the catalog has it, also when others have written keysets meanwhile, or elsewhere.
        let now = row_of(bucket, catalog).await?;
        let files = self.keyset_files(&now, catalog, blobs).await?;
        files.rewrap(self).await?;
        files.note_lengths(&now, catalog).await?;
        Ok(epoch)
    }

    /// From now on new content of a bucket is sealed in this epoch.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn seal_in(&self, bucket: &Bucket, epoch: u32, catalog: &dyn Catalog) -> Result<(), EngineError> {
        KeyEpochs::change(bucket, catalog, |epochs| KeyEpochs {
            sealing: epoch.max(epochs.sealing),
            newest: epoch.max(epochs.newest),
            ..epochs
        })
        .await
    }

    /// Removes keys with which nothing is sealed: from the catalog, then from the keysets beside
    /// the blobs. `oldest` is the least epoch that stays. Goes on with one that was interrupted,
    /// also when the catalog has none of the keys any more.
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
        KeyEpochs::change(bucket, catalog, |epochs| KeyEpochs { oldest, ..epochs }).await?;
        if let Some(opened) = self.opened(bucket.id) {
            opened.all.keep_from(oldest);
        }
        // Also those that others have copied to another backend meanwhile: whoever does that from
        // now on has seen the settings change.
        let now = row_of(bucket, catalog).await?;
        let files = self.keyset_files(&now, catalog, blobs).await?;
        let rewritten = files.without_others(self).await?;
        files.note_lengths(&now, catalog).await?;
        Ok(rewritten)
    }
}

/// A bucket's row as it is now.
async fn row_of(bucket: &Bucket, catalog: &dyn Catalog) -> Result<Bucket, EngineError> {
    let now = catalog.bucket(&bucket.name).await?.filter(|now| now.id == bucket.id);
    now.ok_or(EngineError::NoBucket)
}

impl KeysetFiles {
    /// The same with another key.
    fn with(mut self, entry: KeysetEntry, key: &DomainKey) -> Self {
        self.known = Keyset::new(self.known.entries().iter().cloned().chain([entry]));
        self.needed.push((key.id(), key.epoch()));
        self
    }
}
