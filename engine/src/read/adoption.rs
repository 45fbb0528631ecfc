//! Adopting: an object that lies in a store of plain objects becomes a version whose content stays
//! where it is.
//!
//! The catalog commits it like any write, under a precondition that decides what it may replace; no
//! byte of content is read.

use crate::{
    blobs::{originals::Originals, piece::BLOB_PLAIN_LEN_MAX},
    bucket::{BucketHandle, RowPlace, digest_of},
    deployment::writer::Writer,
    error::EngineError,
    facts::{Checksum, Form, StorageFacts, VersionFacts, to_json},
    resources::{clock::now_ms, ids::version_id},
};
use catalog::{
    BlobForm, BlobKey, BlobRow, BlobState, Catalog, CatalogError, Extent, FormBytes, NewBlob, Original, Precondition,
    PutCommit, UnixMs, VersionLock,
};
use std::{sync::Arc, time::UNIX_EPOCH};
use storage_backends::PlainObject;

/// Why adopted content is stored as it is.
const REASON: &str = "adopted";

/// Where an original lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OriginalPlace<'a> {
    /// The store's name.
    pub(crate) store: &'a str,
    /// Its key there.
    pub(crate) key: &'a str,
}

/// How something is adopted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adoption {
    /// Whether the original is removed when its content is not needed any more. Not kept for one
    /// that is longer than a blob may be: several rows name it, and none of them knows when the
    /// last is gone.
    pub(crate) owned: bool,
    /// What must hold of the key.
    pub(crate) precondition: Precondition,
}

/// Takes originals in as objects.
pub(crate) struct Adopter {
    catalog: Arc<dyn Catalog>,
    originals: Arc<Originals>,
    writer: Arc<Writer>,
}

impl Adopter {
    pub(crate) fn new(catalog: Arc<dyn Catalog>, originals: Arc<Originals>, writer: Arc<Writer>) -> Self {
        Self { catalog, originals, writer }
    }

    /// Registers an original as a key's current version. `false` when the precondition does not
    /// hold.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn adopt(
        &self,
        bucket: &BucketHandle,
        key: &str,
        place: OriginalPlace<'_>,
        object: &PlainObject,
        how: Adoption,
    ) -> Result<bool, EngineError> {
        let id = version_id()?;
        let new_blobs = self.rows_of(bucket, place, object, how.owned)?;
        let extents: Vec<Extent> =
            new_blobs.iter().map(|blob| Extent { blob: blob.row.id, offset: 0, len: blob.row.plain_len }).collect();
        let extents_digest = digest_of(&extents);
        let facts = to_json(&facts_of(object))?;
        // A key that appears has its original's time; one that is replaced changes now.
        let now_ms = match how.precondition {
            Precondition::Absent | Precondition::Adoptable => modified_ms(object).unwrap_or_else(now_ms),
            Precondition::None | Precondition::Current(_) => now_ms(),
        };
        let epoch = self.writer.epoch_of(&new_blobs);
        let commit = PutCommit {
            bucket: bucket.row.id,
            key: key.to_owned(),
            id,
            size: object.len,
            facts: bucket.seal_facts(RowPlace { key, id: id.0, part: None, extents_digest }, facts)?,
            extents_digest,
            precondition: how.precondition,
            new_blobs,
            extents,
            lock: VersionLock::default(),
            notices: Vec::new(),
            now_ms,
            epoch,
        };
        match self.writer.commit_put(commit).await {
            Ok(_) => Ok(true),
            Err(CatalogError::PreconditionFailed) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn rows_of(
        &self,
        bucket: &BucketHandle,
        place: OriginalPlace<'_>,
        object: &PlainObject,
        owned: bool,
    ) -> Result<Vec<NewBlob>, EngineError> {
        let whole = object.len <= BLOB_PLAIN_LEN_MAX;
        let mut rows = Vec::new();
        let mut offset = 0;
        while offset < object.len {
            let plain_len = (object.len - offset).min(BLOB_PLAIN_LEN_MAX);
            let original = Original {
                key: place.key.to_owned(),
                etag: object.etag.clone(),
                md5: object.etag_is_md5,
                offset,
                owned: owned && whole,
            };
            let row = BlobRow {
                id: BlobKey(self.writer.small_blob_id()?.0),
                bucket: bucket.row.id,
                key_epoch: bucket.key_epoch(),
                backend: place.store.to_owned(),
                form: BlobForm::Whole,
                state: BlobState::Live,
                plain_len,
                stored_len: 0,
                root_offset: 0,
                root_len: 0,
                root_tag: [0; 16],
                digest: None,
                forms: FormBytes::default(),
                inline: None,
                original: Some(original),
                pack: false,
                compartment: None,
                copy: None,
            };
            rows.push(NewBlob { row, bases: Vec::new(), deferred: false, heat_bytes: 0 });
            offset += plain_len;
        }
        Ok(rows)
    }

    /// Looks a key that the catalog lacks up in the store its bucket reads through to, and adopts
    /// it. True when it is worth looking into the catalog again: it was adopted, or somebody else
    /// was faster.
    ///
    /// # Errors
    /// Whatever the store or the catalog says: an error is never read as absence (I10).
    pub(crate) async fn adopt_on_read(&self, bucket: &BucketHandle, key: &str) -> Result<bool, EngineError> {
        let Some(read_through) = &bucket.settings.read_through else { return Ok(false) };
        // What a marker hides is not looked for elsewhere.
        if !bucket.row.versioning.is_off() && self.catalog.newest_marker(bucket.row.id, key).await?.is_some() {
            return Ok(false);
        }
        let (store, prefix) = read_through.split_once('/').unwrap_or((read_through, ""));
        let original = format!("{prefix}{key}");
        if self.originals.is_ours(store, &original) || self.catalog.hidden(bucket.row.id, key).await? {
            return Ok(false);
        }
        let found = match self.originals.store(store)?.head(&original).await {
            Ok(found) => found,
            // A key that the store cannot be asked for is in no store.
            Err(error) if error.kind() == storage_backends::ErrorKind::Invalid => None,
            Err(error) => return Err(error.into()),
        };
        let Some(object) = found else { return Ok(false) };
        let how = Adoption { owned: false, precondition: Precondition::Adoptable };
        let adopted = self.adopt(bucket, key, OriginalPlace { store, key: &original }, &object, how).await?;
        // Not adopted: the key was written, adopted or deleted meanwhile.
        Ok(adopted || !self.catalog.hidden(bucket.row.id, key).await?)
    }
}

/// What an original's store says of it, as facts.
pub(crate) fn facts_of(object: &PlainObject) -> VersionFacts {
    let checksum =
        |(algorithm, value): (&String, &String)| Checksum { algorithm: algorithm.clone(), value: value.clone() };
    VersionFacts {
        etag: object.etag.clone(),
        headers: object.headers.clone(),
        user_metadata: object.user_metadata.clone(),
        checksums: object.checksums.iter().map(checksum).collect(),
        checksum_type: object.checksum_type.clone().filter(|_| !object.checksums.is_empty()),
        storage_class: object.storage_class.clone(),
        storage: StorageFacts {
            form: Form::Foreign,
            stored_bytes: object.len,
            bases: Vec::new(),
            reason: REASON.to_owned(),
        },
        ..VersionFacts::default()
    }
}

fn modified_ms(object: &PlainObject) -> Option<UnixMs> {
    let since = object.modified?.duration_since(UNIX_EPOCH).ok()?;
    UnixMs::try_from(since.as_millis()).ok()
}
