//! A bucket as the engine sees it: its row, its settings, and its domain key when it is sealed.

pub(crate) mod compartment;
pub(crate) mod notify;
mod parsed;
mod quota;

use crate::{
    blobs::open::Blobs,
    config::{BucketSettings, Compression, Encryption, EngineConfig, Isolation, StorageHeaders},
    deployment::{
        keyring::{Keyring, Opened, keyset_name, random},
        veil::Veil,
        writer::Writer,
    },
    error::EngineError,
    facts::from_json,
    metrics::Metrics,
    resources::{clock::now_ms, turns::Party},
};
use catalog::{BlobRow, Bucket, BucketId, Catalog, CatalogError, Compartment, Extent, NewBucket, NewNotice, Version};
use object_format::{BlobId, DomainKey, row};
use parsed::RowsParsed;
use serde::{Deserialize, de::IgnoredAny};
use std::{borrow::Cow, collections::BTreeMap, ops::Deref, sync::Arc};

/// A bucket as somebody works on it, cheap to clone.
#[derive(Clone)]
pub struct BucketHandle {
    state: Arc<BucketState>,
    /// Among what new content looks for bases and duplicates; `None`: all of the bucket.
    compartment: Option<Compartment>,
    /// Who it is that works on it, for the memory that this takes.
    party: Party,
    /// What new content is encrypted with before it is stored.
    veil: Option<Arc<dyn Veil>>,
}

/// See [`BucketHandle`].
pub struct BucketState {
    /// The catalog's row.
    pub row: Arc<Bucket>,
    /// Its settings, parsed.
    pub settings: BucketSettings,
    keys: Option<Opened>,
}

impl Deref for BucketHandle {
    type Target = BucketState;

    fn deref(&self) -> &BucketState {
        &self.state
    }
}

/// Among the configurations of a bucket: its isolation, where an operator set one.
pub const ISOLATION: &str = "isolation";
/// Among the configurations of a bucket: who gets storage headers, where an operator said so.
pub const STORAGE_HEADERS: &str = "storage-headers";

/// How often a change of settings is tried against changes by others.
const CHANGES_MAX: usize = 16;

/// What a sealed row is bound to besides bucket and extents.
#[derive(Clone, Copy)]
pub(crate) struct RowPlace<'a> {
    /// Key.
    pub(crate) key: &'a str,
    /// Version or upload id.
    pub(crate) id: [u8; 16],
    /// Part number, for a part's row.
    pub(crate) part: Option<u32>,
    /// Digest of its extents.
    pub(crate) extents_digest: [u8; 32],
}

impl<'a> RowPlace<'a> {
    /// Where a version's facts stand.
    pub(crate) fn of(version: &'a Version) -> Self {
        Self { key: &version.key, id: version.id.0, part: None, extents_digest: version.extents_digest }
    }
}

impl BucketHandle {
    pub(crate) fn new(state: BucketState) -> Self {
        Self { state: Arc::new(state), compartment: None, party: None, veil: None }
    }

    /// The same bucket for work of a principal, who gets a fair share of the memory while others
    /// wait for some.
    pub fn acting_for(&self, principal: &str) -> Self {
        Self { party: Some(principal.into()), ..self.clone() }
    }

    /// For whom memory is taken.
    pub(crate) fn party(&self) -> &Party {
        &self.party
    }

    /// The same bucket with other settings, for work on it that follows none of its own.
    pub(crate) fn with(&self, change: impl FnOnce(&mut BucketSettings)) -> Self {
        let mut settings = self.settings.clone();
        change(&mut settings);
        let state = BucketState { row: self.row.clone(), settings, keys: self.keys.clone() };
        Self { state: Arc::new(state), ..self.clone() }
    }

    /// True when a version may be a base: not one that was encrypted before the engine saw it,
    /// which nothing resembles, and not one whose row is damaged.
    pub(crate) fn may_be_base(&self, version: &Version) -> bool {
        /// Of all facts the one that is asked for: those of an object of ten thousand parts are
        /// long.
        #[derive(Deserialize)]
        struct Asked {
            encryption: Option<IgnoredAny>,
        }
        let facts = self.open_facts(RowPlace::of(version), &version.facts);
        facts.and_then(|facts| from_json::<Asked>(&facts)).is_ok_and(|facts| facts.encryption.is_none())
    }

    /// The same bucket for content that is stored under a veil. It resembles nothing, so no time is
    /// spent on trying.
    pub fn veiled(&self, veil: Arc<dyn Veil>) -> Self {
        let opaque = self.with(|settings| settings.compression = Compression::Off);
        Self { veil: Some(veil), ..opaque }
    }

    /// Whether new content is stored under a veil.
    pub fn is_veiled(&self) -> bool {
        self.veil.is_some()
    }

    /// What new content is encrypted with before it is stored.
    pub(crate) fn veil(&self) -> Option<&Arc<dyn Veil>> {
        self.veil.as_ref()
    }
}

impl BucketState {
    /// True when its blobs are sealed.
    pub fn is_sealed(&self) -> bool {
        self.keys.is_some()
    }

    /// A bucket as a recovery needs it: rows are sealed and blobs opened, nothing looks for what is
    /// similar.
    pub(crate) fn recovered(row: Bucket, settings: BucketSettings, keys: Option<Opened>) -> Self {
        Self { row: Arc::new(row), settings, keys }
    }

    /// The key that a blob is sealed with; `None` in a bucket that is not sealed. A blob that says
    /// that it is not sealed in one that is, is opened with the key of now, which fails.
    ///
    /// # Errors
    /// [`EngineError::NoKey`] when this process knows no key of the blob's epoch (yet).
    pub(crate) fn key_of(&self, blob: &BlobRow) -> Result<Option<Arc<DomainKey>>, EngineError> {
        let Some(keys) = &self.keys else { return Ok(None) };
        if blob.key_epoch == 0 {
            return Ok(Some(keys.domain.clone()));
        }
        keys.of_epoch(blob.key_epoch).map(Some).ok_or(EngineError::NoKey(blob.key_epoch))
    }

    /// Whether a row is sealed with another key than new ones are.
    pub(crate) fn is_sealed_before(&self, facts: &[u8]) -> bool {
        self.keys.as_ref().is_some_and(|keys| row::key_of(facts).is_some_and(|id| id != keys.domain.id()))
    }

    /// The domain key that new content is sealed with.
    pub(crate) fn domain_key(&self) -> Option<&DomainKey> {
        self.keys.as_ref().map(|keys| &*keys.domain)
    }

    /// What its hooks and sketches are keyed with, when it is sealed.
    pub(crate) fn similarity_secret(&self) -> Option<[u8; 16]> {
        self.keys.as_ref().map(|keys| keys.similarity)
    }

    /// As [`Self::content_digest`], of a blob that may be of an epoch before.
    pub(crate) fn digest_of_blob(&self, blob: &BlobRow, sha256: &[u8; 32]) -> Result<[u8; 32], EngineError> {
        Ok(self.key_of(blob)?.map_or(*sha256, |key| digest_under(&key, sha256)))
    }

    /// Epoch of the key that new content is sealed with; 0 when it is not sealed.
    pub(crate) fn key_epoch(&self) -> u32 {
        self.domain_key().map_or(0, DomainKey::epoch)
    }

    /// What stands in the catalog for the SHA-256 of some content: keyed in a sealed bucket.
    pub(crate) fn content_digest(&self, sha256: &[u8; 32]) -> [u8; 32] {
        self.domain_key().map_or(*sha256, |key| digest_under(key, sha256))
    }

    /// Facts as they stand in a row: sealed in a sealed bucket (I5).
    pub(crate) fn seal_facts(&self, place: RowPlace<'_>, facts: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        match self.domain_key() {
            None => Ok(facts),
            Some(key) => {
                self.may_seal()?;
                Ok(row::seal(key, &self.context(place), random()?, &facts))
            }
        }
    }

    /// Lets something be sealed for the bucket, or says why not. What is not sealed always may.
    ///
    /// # Errors
    /// [`EngineError::ProviderSilent`].
    pub(crate) fn may_seal(&self) -> Result<(), EngineError> {
        self.keys.as_ref().map_or(Ok(()), |keys| keys.warrant.check())
    }

    /// The facts of a row.
    pub(crate) fn open_facts<'s>(&self, place: RowPlace<'_>, stored: &'s [u8]) -> Result<Cow<'s, [u8]>, EngineError> {
        Ok(match &self.keys {
            None => Cow::Borrowed(stored),
            Some(keys) => Cow::Owned(row::open(&keys.of_row(stored), &self.context(place), stored)?),
        })
    }

    fn context<'a>(&self, place: RowPlace<'a>) -> row::RowContext<'a> {
        row::RowContext {
            bucket: u64::try_from(self.row.id.0).unwrap_or(0),
            key: place.key,
            version_id: place.id,
            part: place.part,
            extents_digest: place.extents_digest,
        }
    }
}

fn digest_under(key: &DomainKey, sha256: &[u8; 32]) -> [u8; 32] {
    key.keyed_tag("content-digest", sha256)
}

/// The digest that binds a row to its extents.
pub(crate) fn digest_of(extents: &[Extent]) -> [u8; 32] {
    row::extents_digest(extents.iter().map(|extent| (BlobId(extent.blob.0), extent.offset, extent.len)))
}

/// The deployment's buckets.
pub struct Buckets {
    /// By name; `defaults` for every other.
    configured: BTreeMap<String, BucketSettings>,
    defaults: BucketSettings,
    catalog: Arc<dyn Catalog>,
    blobs: Arc<Blobs>,
    keyring: Arc<Keyring>,
    writer: Arc<Writer>,
    parsed: RowsParsed<BucketHandle>,
    metrics: Arc<Metrics>,
}

impl Buckets {
    pub(crate) fn new(
        config: &EngineConfig,
        catalog: Arc<dyn Catalog>,
        blobs: Arc<Blobs>,
        keyring: Arc<Keyring>,
        writer: Arc<Writer>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (configured, defaults) = (config.buckets.clone(), config.defaults.clone());
        Self { configured, defaults, catalog, blobs, keyring, writer, parsed: RowsParsed::default(), metrics }
    }

    /// A key of the keyring by its name, for content that is encrypted before it is stored.
    ///
    /// # Errors
    /// [`EngineError::ProviderSilent`].
    pub fn object_key(&self, name: &str) -> Result<zeroize::Zeroizing<[u8; 32]>, EngineError> {
        self.keyring.may_seal()?;
        Ok(self.keyring.kek().roots().named(name))
    }

    /// Reads the keyring's file again; whether it says something else now.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be read or understood.
    pub fn reload_keyring(&self) -> Result<bool, EngineError> {
        self.keyring.reload()
    }

    /// Keys of the keyring by their name, for content that is encrypted before it is stored: the
    /// one of now first, then those of KEKs before it, which older content was encrypted under.
    pub fn object_keys(&self, name: &str) -> Vec<zeroize::Zeroizing<[u8; 32]>> {
        self.keyring.named(name)
    }

    /// A bucket by name; `None` when there is none.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails, or a sealed bucket's key cannot be opened.
    pub async fn bucket(&self, name: &str) -> Result<Option<BucketHandle>, EngineError> {
        let Some(row) = self.catalog.kept_bucket(name).await? else { return Ok(None) };
        if let Some(bucket) = self.parsed.of(&row) {
            Box::pin(self.check_plain(&row)).await?;
            return Ok(Some(bucket));
        }
        let bucket = Box::pin(self.bucket_of(row)).await?;
        // What is sealed has keys, which change without its row.
        if !bucket.is_sealed() {
            self.parsed.keep(&bucket.row, &bucket);
        }
        Ok(Some(bucket))
    }

    /// Every bucket's row, by name. Settings are not parsed and keys not opened.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails.
    pub async fn buckets(&self) -> Result<Vec<Bucket>, EngineError> {
        Ok(self.catalog.buckets().await?)
    }

    /// Creates a bucket with the settings configured for its name, its domain key at once when it
    /// is to be sealed. `None` when the name is taken.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or a key cannot be stored.
    pub async fn create_bucket(&self, name: &str, owner: &str) -> Result<Option<BucketHandle>, EngineError> {
        self.create_configured_bucket(name, owner, [], false).await
    }

    /// As [`Buckets::create_bucket`], with what the client configures at once. Where versions can
    /// be locked they are kept.
    ///
    /// # Errors
    /// As there.
    pub async fn create_configured_bucket(
        &self,
        name: &str,
        owner: &str,
        configurations: impl IntoIterator<Item = (&'static str, serde_json::Value)>,
        object_lock: bool,
    ) -> Result<Option<BucketHandle>, EngineError> {
        let mut settings = self.settings_of_new(name);
        settings.configurations = configurations.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.make_bucket(name, owner, settings, object_lock).await
    }

    /// The settings that are configured for a new bucket of this name.
    pub fn settings_of_new(&self, name: &str) -> BucketSettings {
        self.configured.get(name).unwrap_or(&self.defaults).clone()
    }

    /// As [`Buckets::create_bucket`], with settings of the caller's choice.
    ///
    /// # Errors
    /// As there.
    pub async fn make_bucket(
        &self,
        name: &str,
        owner: &str,
        settings: BucketSettings,
        object_lock: bool,
    ) -> Result<Option<BucketHandle>, EngineError> {
        self.blobs.backend(&settings.backend)?;
        let settings = serde_json::to_value(settings).map_err(|error| EngineError::Other(error.to_string()))?;
        let (name, owner, now_ms) = (name.to_owned(), owner.to_owned(), now_ms());
        match self.catalog.make_bucket(NewBucket { name, owner, settings, object_lock, now_ms }).await {
            Ok(row) => Ok(Some(self.bucket_of(Arc::new(row)).await?)),
            Err(CatalogError::Exists) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets what a client configures of a bucket, or removes it. The last writer wins; what others
    /// change meanwhile stays.
    ///
    /// # Errors
    /// [`EngineError::NoBucket`] when the bucket was deleted meanwhile, [`EngineError::Conflict`]
    /// when its settings never rest, or what the catalog says.
    pub async fn configure_bucket(
        &self,
        bucket: &BucketHandle,
        name: &str,
        value: Option<serde_json::Value>,
    ) -> Result<(), EngineError> {
        self.configure_bucket_telling(bucket, name, value, Vec::new()).await
    }

    /// The same, leaving notices of it. Without any, what is configured so already is left alone.
    pub(crate) async fn configure_bucket_telling(
        &self,
        bucket: &BucketHandle,
        name: &str,
        value: Option<serde_json::Value>,
        notices: Vec<NewNotice>,
    ) -> Result<(), EngineError> {
        let mut expected = bucket.row.settings.clone();
        for _ in 0..CHANGES_MAX {
            let mut settings = expected.clone();
            let all = settings.as_object_mut().ok_or_else(|| EngineError::Other("settings are no object".into()))?;
            let configurations = all.entry("configurations").or_insert_with(|| serde_json::json!({}));
            match &value {
                Some(value) => configurations[name] = value.clone(),
                None => {
                    configurations.as_object_mut().map(|all| all.remove(name));
                }
            }
            if settings == expected && notices.is_empty() {
                return Ok(());
            }
            let (id, notices) = (bucket.row.id, notices.clone());
            match self.catalog.change_bucket_settings_telling(id, expected, settings, notices).await {
                Err(CatalogError::Conflict) => {}
                changed => return Ok(changed?),
            }
            let now = self.catalog.bucket(&bucket.row.name).await?.filter(|now| now.id == bucket.row.id);
            expected = now.ok_or(EngineError::NoBucket)?.settings;
        }
        Err(EngineError::Conflict)
    }

    /// Deletes an empty bucket, and ends the uploads that are open in it; `false` when there is
    /// none.
    ///
    /// # Errors
    /// [`EngineError::NotEmpty`], or what the catalog says.
    pub async fn delete_bucket(&self, bucket: &BucketHandle) -> Result<bool, EngineError> {
        let deleted = self.catalog.delete_bucket(bucket.row.id).await?;
        if deleted {
            self.keyring.forget(bucket.row.id);
            for copy in &bucket.settings.keysets {
                // What cannot be deleted now is garbage by its epoch: the collector finds it.
                if let Some(id) = BlobId::parse(&copy.id)
                    && let Err(error) = self.blobs.backend(&bucket.settings.backend)?.delete(&keyset_name(id)?).await
                {
                    tracing::warn!(%error, keyset = copy.id, "a deleted bucket's keyset stays until the next collection");
                }
            }
        }
        Ok(deleted)
    }

    /// A bucket that is there, by its id in the catalog.
    pub(crate) async fn bucket_by_id(&self, id: BucketId) -> Result<Option<BucketHandle>, EngineError> {
        let rows = self.catalog.buckets().await?;
        match rows.into_iter().find(|row| row.id == id) {
            Some(row) => self.bucket(&row.name).await,
            None => Ok(None),
        }
    }

    /// The settings of a bucket's row, and the rules that are in force: those that an operator set,
    /// otherwise those of the configuration.
    ///
    /// # Errors
    /// [`EngineError::Other`] for a row with settings or rules that are not understood.
    pub fn settings_of(&self, row: &Bucket) -> Result<BucketSettings, EngineError> {
        let unclear =
            |error: serde_json::Error| EngineError::Other(format!("settings of bucket {}: {error}", row.name));
        let settings = BucketSettings::deserialize(&row.settings).map_err(unclear)?;
        let configured = self.configured.get(&row.name).unwrap_or(&self.defaults);
        let isolation = match settings.configurations.get(ISOLATION) {
            Some(set) => Some(Isolation::deserialize(set).map_err(unclear)?),
            None => configured.isolation,
        };
        let storage_headers = match settings.configurations.get(STORAGE_HEADERS) {
            Some(set) => StorageHeaders::deserialize(set).map_err(unclear)?,
            None => configured.storage_headers,
        };
        Ok(BucketSettings { isolation, storage_headers, ..settings })
    }

    /// Refuses a bucket whose row alone says that it is not sealed.
    async fn check_plain(&self, row: &Bucket) -> Result<(), EngineError> {
        let configured = self.configured.get(&row.name);
        let configured = configured.is_some_and(|settings| settings.encryption == Encryption::Aes256);
        let checked = self.keyring.check_plain(row, configured, &*self.catalog).await;
        checked.inspect_err(|_| self.metrics.unsealed_buckets_total.inc())
    }

    async fn bucket_of(&self, mut row: Arc<Bucket>) -> Result<BucketHandle, EngineError> {
        let mut settings = self.settings_of(&row)?;
        let keys = match settings.encryption {
            Encryption::Off => {
                self.check_plain(&row).await?;
                None
            }
            Encryption::Aes256 => {
                let keys = self
                    .keyring
                    .bucket_keys(&row, &settings.backend, &*self.catalog, &self.blobs, self.writer.epoch())
                    .await?;
                if settings.keysets.is_empty()
                    && let Some(fresh) = self.catalog.kept_bucket(&row.name).await?
                    && fresh.id == row.id
                {
                    row = fresh;
                    settings = self.settings_of(&row)?;
                }
                Some(keys)
            }
        };
        Ok(BucketHandle::new(BucketState { row, settings, keys }))
    }
}
