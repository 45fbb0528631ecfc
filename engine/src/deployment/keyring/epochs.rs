//! The domain keys of a bucket, one for each epoch. A new epoch begins when a bucket is encrypted
//! anew: new content is sealed with its key, older content is read with the older ones until the
//! last of it is moved over.

use super::provider::Warrant;
use crate::error::EngineError;
use catalog::{Bucket, Catalog, CatalogError, Seq, WrappedKey};
use object_format::{DomainKey, row};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::{Arc, PoisonError, RwLock};

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
        change_settings(bucket, catalog, |settings, now| {
            let (before, told) = (Self::of(now), change(Self::of(now)));
            if told != before {
                settings[SETTING] =
                    serde_json::to_value(told).map_err(|error| EngineError::Other(error.to_string()))?;
            }
            Ok(())
        })
        .await
    }

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

/// Changes a bucket's settings as they are now, which `change` is given with the bucket.
///
/// # Errors
/// As [`KeyEpochs::change`].
pub(super) async fn change_settings(
    bucket: &Bucket,
    catalog: &dyn Catalog,
    change: impl Fn(&mut Value, &Bucket) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    for _ in 0..CHANGES_MAX {
        let now = catalog.bucket(&bucket.name).await?.filter(|now| now.id == bucket.id);
        let expected = now.ok_or(EngineError::NoBucket)?;
        let mut settings = expected.settings.clone();
        change(&mut settings, &expected)?;
        if settings == expected.settings {
            return Ok(());
        }
        match catalog.change_bucket_settings(bucket.id, expected.settings, settings).await {
            Err(CatalogError::Conflict) => {}
            changed => return Ok(changed?),
        }
    }
    Err(EngineError::Conflict)
}

/// The domain keys of one bucket. Whoever holds a bucket sees those that are opened later, too: a
/// row that it reads may be sealed with one.
#[derive(Clone, Default)]
pub(crate) struct DomainKeys(Arc<RwLock<Vec<Arc<DomainKey>>>>);

impl DomainKeys {
    pub(super) fn set(&self, keys: Vec<Arc<DomainKey>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Forgets keys that were shredded; whoever shares these goes on hearing of later ones.
    pub(super) fn keep_from(&self, oldest: u32) {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|key| key.epoch() >= oldest);
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

/// A sealed bucket's keys.
#[derive(Clone)]
pub(crate) struct Opened {
    /// The domain key that new content is sealed with.
    pub(crate) domain: Arc<DomainKey>,
    /// Those of all epochs.
    pub(crate) all: DomainKeys,
    /// What its hooks and sketches are keyed with: the same for all epochs.
    pub(crate) similarity: [u8; 16],
    /// How long it may seal.
    pub(crate) warrant: Arc<Warrant>,
}

impl Opened {
    /// One key, for a recovery that has found it.
    pub(crate) fn alone(domain: DomainKey) -> Self {
        let domain = Arc::new(domain);
        Self {
            all: DomainKeys(Arc::new(RwLock::new(vec![domain.clone()]))),
            domain,
            similarity: [0; 16],
            warrant: Arc::default(),
        }
    }

    /// The key of an epoch, where it is known here.
    pub(crate) fn of_epoch(&self, epoch: u32) -> Option<Arc<DomainKey>> {
        match self.domain.epoch() == epoch {
            true => Some(self.domain.clone()),
            false => self.all.find(|key| key.epoch() == epoch),
        }
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
