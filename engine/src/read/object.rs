//! The read path: a range becomes the segments that cover it; their chunks are fetched ahead of the
//! client by a bounded window, checked, decoded on the codec pool, and streamed. No byte leaves
//! before it is checked (I4).

use crate::{
    blobs::{
        open::{Blobs, Manifest},
        originals::Originals,
        pins::{Pin, PinMoment, Pins},
    },
    bucket::{BucketHandle, RowPlace, digest_of},
    error::EngineError,
    facts::{ListedFacts, VersionFacts, from_json},
    metrics::Metrics,
    read::{adoption::Adopter, base_rows::BaseRows, counts::ReadCounts, heat::Heat},
    resources::{budget::MemoryBudget, clock::now_ms, ids::version_id, pool::CodecPool},
};
use catalog::{BlobKey, BlobRow, Catalog, CatalogError, Content, Extent, Version, VersionId, VersionLock, VersionRef};
use object_format::BlobId;
use serde::de::DeserializeOwned;
use std::sync::Arc;

pub(crate) mod pieces;

/// A current version with its facts opened.
#[derive(Clone, Debug)]
pub struct ObjectInfo {
    /// The row (size, Last-Modified, version id).
    pub version: Version,
    /// Its facts.
    pub facts: VersionFacts,
}

/// A version ready to be read: holds its blobs against collection until dropped. Their bases are
/// held by edges (I3).
pub struct OpenObject {
    /// What it is.
    pub info: ObjectInfo,
    /// Logical lengths of its extents, in order.
    pub extent_lens: Vec<u64>,
    pub(crate) content: Content,
    bucket: BucketHandle,
    pin: Arc<Pin>,
}

impl OpenObject {
    /// Whether some of its content lies in originals.
    pub fn is_foreign(&self) -> bool {
        self.content.blobs.iter().any(|row| row.original.is_some())
    }

    /// True when a copy of it to a bucket is a row, not bytes. Adopted content is copied into blobs
    /// of our own.
    pub fn shares_extents(&self, to: &BucketHandle) -> bool {
        self.bucket.row.id == to.row.id && !self.is_foreign()
    }
}

/// What the name of a version leads to.
pub enum Named<T> {
    /// An object.
    Object(T),
    /// A delete marker, which has no content.
    Marker(Version),
}

/// What reading takes: rows from the catalog, blobs, and memory for what is read ahead.
pub struct ReadPath {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    /// Base rows of deltas, by their ids.
    pub(crate) base_rows: BaseRows,
    pub(crate) pins: Arc<Pins>,
    pub(crate) heat: Arc<Heat>,
    pub(crate) counts: ReadCounts,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) pool: Arc<CodecPool>,
    pub(crate) originals: Arc<Originals>,
    pub(crate) adopter: Arc<Adopter>,
    pub(crate) metrics: Arc<Metrics>,
}

impl ReadPath {
    /// Forgets the rows of bases.
    pub(crate) fn drop_caches(&self) {
        self.base_rows.invalidate_all();
    }

    /// Takes note that a client reads an object: for [`crate::report::Reports::explain`].
    pub fn note_read(&self, object: &OpenObject) {
        self.counts.note(object.info.version.id, now_ms());
    }

    /// A key's current version and facts; in a bucket that reads through, one that is only in the
    /// original store is adopted first.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or the row is not what was sealed.
    pub async fn head(&self, bucket: &BucketHandle, key: &str) -> Result<Option<ObjectInfo>, EngineError> {
        loop {
            match self.catalog.current(bucket.row.id, key).await? {
                Some(version) => return Ok(Some(ObjectInfo { facts: self.open_facts(bucket, &version)?, version })),
                None if self.adopter.adopt_on_read(bucket, key).await? => {}
                None => return Ok(None),
            }
        }
    }

    /// The delete marker that hides a key; `None` when nothing does. Costs nothing in a bucket that
    /// never kept versions.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails.
    pub async fn newest_marker(&self, bucket: &BucketHandle, key: &str) -> Result<Option<Version>, EngineError> {
        if bucket.row.versioning.is_off() {
            return Ok(None);
        }
        Ok(self.catalog.newest_marker(bucket.row.id, key).await?)
    }

    /// A version by its name, and its facts; the null version of a key may be adopted first, as by
    /// [`ReadPath::head`].
    ///
    /// # Errors
    /// As [`ReadPath::head`].
    pub async fn head_version(
        &self,
        bucket: &BucketHandle,
        key: &str,
        version: VersionRef,
    ) -> Result<Option<Named<ObjectInfo>>, EngineError> {
        let Some(content) = self.named_version(bucket, key, version).await? else { return Ok(None) };
        if content.version.marker {
            return Ok(Some(Named::Marker(content.version)));
        }
        let facts = self.open_facts(bucket, &content.version)?;
        Ok(Some(Named::Object(ObjectInfo { facts, version: content.version })))
    }

    /// A version by its name, pinned for reading; otherwise as [`ReadPath::head_version`].
    ///
    /// # Errors
    /// As [`ReadPath::open_object`].
    pub async fn open_version(
        &self,
        bucket: &BucketHandle,
        key: &str,
        version: VersionRef,
    ) -> Result<Option<Named<OpenObject>>, EngineError> {
        for _ in 0..8 {
            let look = self.pins.look();
            let Some(content) = self.named_version(bucket, key, version).await? else { return Ok(None) };
            if content.version.marker {
                return Ok(Some(Named::Marker(content.version)));
            }
            let facts = self.open_facts(bucket, &content.version)?;
            match self.open_seen(look, bucket, content, facts) {
                // A blob was purged meanwhile: the version is gone, or stored otherwise, by now.
                Err(EngineError::Conflict) => {}
                outcome => return outcome.map(|object| Some(Named::Object(object))),
            }
        }
        Err(EngineError::Busy("the version is being replaced all the time"))
    }

    /// A version by the id that its writer gave it, whatever it is called; `None` when it was
    /// replaced or deleted.
    ///
    /// # Errors
    /// As [`ReadPath::head`].
    pub async fn committed(
        &self,
        bucket: &BucketHandle,
        key: &str,
        id: VersionId,
    ) -> Result<Option<ObjectInfo>, EngineError> {
        let Some(content) = self.catalog.version(bucket.row.id, key, id).await? else { return Ok(None) };
        let facts = self.open_facts(bucket, &content.version)?;
        Ok(Some(ObjectInfo { facts, version: content.version }))
    }

    async fn named_version(
        &self,
        bucket: &BucketHandle,
        key: &str,
        version: VersionRef,
    ) -> Result<Option<Content>, EngineError> {
        let find = async || self.catalog.named_version(bucket.row.id, key, version).await;
        match find().await? {
            None if version == VersionRef::Null && self.adopter.adopt_on_read(bucket, key).await? => Ok(find().await?),
            found => Ok(found),
        }
    }

    /// Opens a version's facts.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when the row is not what was written.
    pub fn open_facts(&self, bucket: &BucketHandle, version: &Version) -> Result<VersionFacts, EngineError> {
        self.open_facts_as(bucket, version)
    }

    /// Opens of a version's facts what a listing tells.
    ///
    /// # Errors
    /// As [`ReadPath::open_facts`].
    pub fn open_listed(&self, bucket: &BucketHandle, version: &Version) -> Result<ListedFacts, EngineError> {
        self.open_facts_as(bucket, version)
    }

    fn open_facts_as<T: DeserializeOwned>(&self, bucket: &BucketHandle, version: &Version) -> Result<T, EngineError> {
        let metrics = &self.metrics;
        let opened = bucket.open_facts(RowPlace::of(version), &version.facts);
        let facts = opened.inspect_err(|_| metrics.aead_failures_total.with_label_values(&["row"]).inc())?;
        from_json(&facts).inspect_err(|_| metrics.checksum_failures_total.with_label_values(&["row"]).inc())
    }

    /// A key's current version, pinned for reading, adopted first as by [`ReadPath::head`]; `None`
    /// when there is none.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or the row is not what was sealed.
    pub async fn open_object(&self, bucket: &BucketHandle, key: &str) -> Result<Option<OpenObject>, EngineError> {
        tracing::trace!(target: "path", "open_object()");
        for _ in 0..8 {
            let look = self.pins.look();
            let Some(content) = self.current_content(bucket, key).await? else {
                if self.adopter.adopt_on_read(bucket, key).await? {
                    continue;
                }
                return Ok(None);
            };
            let facts = self.open_facts(bucket, &content.version)?;
            match self.open_seen(look, bucket, content, facts) {
                // A blob was purged meanwhile: the key has another version by now.
                Err(EngineError::Conflict) => {}
                outcome => return outcome.map(Some),
            }
        }
        Err(EngineError::Busy("the key is being replaced all the time"))
    }

    /// From the catalog, always: a version that is kept anywhere else may not be the current one
    /// (E16).
    async fn current_content(&self, bucket: &BucketHandle, key: &str) -> Result<Option<Content>, CatalogError> {
        #[cfg(feature = "mutant-stale-cache")]
        return super::stale::content(&*self.catalog, bucket.row.id, key).await;
        #[cfg(not(feature = "mutant-stale-cache"))]
        self.catalog.content(bucket.row.id, key).await
    }

    /// Pins some content. [`EngineError::Conflict`] when one of its blobs is being purged.
    pub(crate) fn open_content(
        &self,
        bucket: &BucketHandle,
        content: Content,
        facts: VersionFacts,
    ) -> Result<OpenObject, EngineError> {
        self.open_seen(self.pins.look(), bucket, content, facts)
    }

    /// A blob's whole content, ready to be read.
    pub(crate) fn open_stored(&self, bucket: &BucketHandle, row: &BlobRow) -> Result<OpenObject, EngineError> {
        self.open_extents(bucket, vec![Extent { blob: row.id, offset: 0, len: row.plain_len }], vec![row.clone()])
    }

    /// Content that need not be anybody's, ready to be read.
    pub(crate) fn open_extents(
        &self,
        bucket: &BucketHandle,
        extents: Vec<Extent>,
        blobs: Vec<BlobRow>,
    ) -> Result<OpenObject, EngineError> {
        let version = Version {
            bucket: bucket.row.id,
            key: String::new(),
            id: version_id()?,
            seq: 0,
            modified_ms: now_ms(),
            size: extents.iter().map(|extent| extent.len).sum(),
            extents_digest: digest_of(&extents),
            facts: Vec::new(),
            named: false,
            marker: false,
            lock: VersionLock::default(),
        };
        self.open_content(bucket, Content { version, extents, blobs }, VersionFacts::default())
    }

    /// Pins content that the catalog named after `look`. [`EngineError::Conflict`] when one of its
    /// blobs was purged since, or is being purged.
    pub(crate) fn open_seen(
        &self,
        look: PinMoment,
        bucket: &BucketHandle,
        content: Content,
        facts: VersionFacts,
    ) -> Result<OpenObject, EngineError> {
        if digest_of(&content.extents) != content.version.extents_digest {
            return Err(EngineError::Integrity("a version's extents are not those it was written with".into()));
        }
        let blobs = content.blobs.iter().map(|row| BlobId(row.id.0));
        let pin = self.pins.pin_seen(look, blobs).ok_or(EngineError::Conflict)?;
        Ok(OpenObject {
            extent_lens: content.extents.iter().map(|extent| extent.len).collect(),
            info: ObjectInfo { version: content.version.clone(), facts },
            content,
            bucket: bucket.clone(),
            pin: Arc::new(pin),
        })
    }

    /// The rows of the whole blobs a delta needs, kept with its id: edges do not change while it
    /// lives.
    pub(crate) async fn base_rows(&self, delta: &Manifest) -> Result<Arc<Vec<BlobRow>>, EngineError> {
        if delta.root.is_whole() {
            return Ok(Arc::default());
        }
        self.base_rows
            .try_get_with(delta.id, async {
                let mut ids: Vec<BlobKey> = delta.root.view.iter().map(|range| BlobKey(range.blob.0)).collect();
                ids.sort_unstable();
                ids.dedup();
                Ok(Arc::new(self.catalog.blobs(&ids).await?))
            })
            .await
            .map_err(|error: Arc<EngineError>| EngineError::shared(&error))
    }
}
