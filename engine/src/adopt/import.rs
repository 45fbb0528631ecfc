//! `import`: registers the objects of a store of plain objects as versions of a bucket. A listing
//! and a HEAD for each; no content moves.

use crate::{
    background::jobs::run::JobRun,
    blobs::{originals::Originals, piece::BLOB_PLAIN_LEN_MAX},
    bucket::{BucketHandle, Buckets},
    error::EngineError,
    read::{
        adoption::{Adopter, Adoption, OriginalPlace},
        object::ReadPath,
    },
    resources::budget::MemoryBudget,
};
use catalog::{Catalog, Precondition};
use futures::{StreamExt, TryStreamExt};
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use storage_backends::{ErrorKind, PlainEntry, PlainRead, PlainStore};

/// Objects that are asked about, or committed, at the same time.
const AT_ONCE: usize = 32;
/// Objects between two checkpoints.
const CHECKPOINT_OBJECTS: u64 = 256;
/// Troubles that are reported by name; the rest are only counted.
const NAMED_MAX: usize = 100;
/// One object in so many has its content compared.
const SAMPLE_ONE_IN: u64 = 100;
/// Bytes of content compared per object.
const SAMPLE_BYTES_MAX: u64 = 4 << 20;

/// What an import is asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportParameters {
    /// A store's name, or `NAME/prefix`: objects whose keys start with the prefix.
    source: String,
    /// The bucket they become versions of.
    bucket: String,
    /// What takes the place of the source's prefix in their keys.
    #[serde(default)]
    prefix: String,
    /// Replace versions that are there, and bring back keys that were deleted.
    #[serde(default)]
    overwrite: bool,
    /// Remove originals whose content is not needed any more.
    #[serde(default)]
    take_over: bool,
    /// List once more and compare: counts, sizes, and the content of a sample.
    #[serde(default)]
    verify: bool,
}

impl ImportParameters {
    /// The name of the store, and the prefix of the keys in it.
    fn store(&self) -> (&str, &str) {
        self.source.split_once('/').unwrap_or((&self.source, ""))
    }
}

/// What an import did.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ImportReport {
    /// Objects of the listing.
    listed: u64,
    /// Those that were registered, by this run or the part of it that was interrupted.
    adopted: u64,
    /// Their bytes.
    adopted_bytes: u64,
    /// Keys that had a version and were left alone.
    existing: u64,
    /// Keys that a client had deleted and that were left deleted.
    deleted: u64,
    /// Objects that were gone when they were asked about.
    vanished: u64,
    /// Our own blobs, which are no originals.
    own: u64,
    /// Objects with tags, which are not taken along.
    with_tags: u64,
    /// Originals that stay although they were to be taken over, because they are longer than a blob
    /// may be.
    left_to_owner: u64,
    /// Objects that could not be registered.
    failed: u64,
    /// The first of them, and why.
    failures: Vec<FailedObject>,
    /// What a second look found.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Verification>,
}

/// One object that something is wrong with.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct FailedObject {
    key: String,
    error: String,
}

/// What a second look found.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Verification {
    /// Objects listed again.
    listed: u64,
    /// Those that are versions of the same size.
    same: u64,
    /// Those that are not.
    different: u64,
    /// Objects whose content was compared.
    sampled: u64,
    /// Bytes compared.
    sampled_bytes: u64,
    /// The first that differ, and how.
    differences: Vec<FailedObject>,
}

/// Where an import is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Cursor {
    /// The last key of the source that was dealt with.
    after: Option<String>,
    /// Whether that is of the second look.
    verifying: bool,
    report: ImportReport,
}

/// One import as it runs.
struct Import {
    importer: Arc<Importer>,
    bucket: BucketHandle,
    store: Arc<dyn PlainStore>,
    store_name: String,
    source_prefix: String,
    parameters: ImportParameters,
}

/// What became of one object.
enum Fate {
    Adopted { bytes: u64, tags: bool, left_to_owner: bool },
    Existing,
    Deleted,
    Vanished,
    Own,
    Failed(FailedObject),
}

/// Registers the objects of other stores.
pub(crate) struct Importer {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) originals: Arc<Originals>,
    pub(crate) adopter: Arc<Adopter>,
    pub(crate) budget: Arc<MemoryBudget>,
}

impl Importer {
    /// Refuses what nothing here can register.
    ///
    /// # Errors
    /// [`EngineError::NoBucket`]; [`EngineError::JobRefused`] for a store that is not configured.
    pub(crate) async fn admit(&self, parameters: &ImportParameters) -> Result<(), EngineError> {
        let refused = |error: EngineError| EngineError::JobRefused(format!("import: {error}"));
        self.originals.store(parameters.store().0).map_err(refused)?;
        self.buckets.bucket(&parameters.bucket).await?.map(drop).ok_or(EngineError::NoBucket)
    }

    /// One run of the import job.
    ///
    /// # Errors
    /// [`EngineError`] when the source cannot be listed or the catalog fails; what was registered
    /// stays, and the next run goes on.
    pub(crate) async fn import_once(self: &Arc<Self>, run: &JobRun) -> Result<ImportReport, EngineError> {
        let parameters: ImportParameters = run.parameters()?;
        let (name, prefix) = parameters.store();
        let import = Import {
            importer: self.clone(),
            bucket: self.buckets.bucket(&parameters.bucket).await?.ok_or(EngineError::NoBucket)?,
            store: self.originals.store(name)?.clone(),
            store_name: name.to_owned(),
            source_prefix: prefix.to_owned(),
            parameters: parameters.clone(),
        };
        let mut cursor: Cursor = run.cursor()?.unwrap_or_default();
        if !cursor.verifying {
            import.register(run, &mut cursor).await?;
            if !parameters.verify {
                return Ok(cursor.report);
            }
            cursor = Cursor { after: None, verifying: true, report: cursor.report };
            cursor.report.verified = Some(Verification::default());
            run.checkpoint(&cursor).await?;
        }
        import.verify(run, &mut cursor).await?;
        Ok(cursor.report)
    }
}

impl Import {
    async fn register(&self, run: &JobRun, cursor: &mut Cursor) -> Result<(), EngineError> {
        run.note("registering");
        let listing = self.store.list(&self.source_prefix, cursor.after.as_deref());
        let mut fates = listing
            .map(|listed| async move {
                match listed {
                    Ok(entry) => {
                        let fate = self.register_one(&entry).await?;
                        Ok((Some(entry.key), fate))
                    }
                    // One object that cannot be named; the listing goes on.
                    Err(error) if error.kind() == ErrorKind::Invalid => {
                        Ok((None, Fate::Failed(FailedObject { key: String::new(), error: error.to_string() })))
                    }
                    Err(error) => Err(EngineError::from(error)),
                }
            })
            .buffered(AT_ONCE);
        while let Some((key, fate)) = fates.try_next().await? {
            cursor.after = key.or(cursor.after.take());
            cursor.report.note(fate);
            if cursor.report.listed.is_multiple_of(CHECKPOINT_OBJECTS) {
                run.progress(cursor.report.listed, None);
                run.checkpoint(cursor).await?;
            }
        }
        run.progress(cursor.report.listed, None);
        Ok(())
    }

    /// A key of the source as a key of the bucket.
    fn key_of(&self, original: &str) -> String {
        let rest = original.strip_prefix(&self.source_prefix).unwrap_or(original);
        format!("{}{rest}", self.parameters.prefix)
    }

    async fn register_one(&self, entry: &PlainEntry) -> Result<Fate, EngineError> {
        if self.importer.originals.is_ours(&self.store_name, &entry.key) {
            return Ok(Fate::Own);
        }
        let key = self.key_of(&entry.key);
        let failed = |error: String| Ok(Fate::Failed(FailedObject { key: entry.key.clone(), error }));
        if key.is_empty() || key.len() > KEY_LEN_MAX || key.contains('\0') {
            return failed(format!("{key:?} is no key: 1 to {KEY_LEN_MAX} bytes without NUL"));
        }
        let bucket = self.bucket.row.id;
        let current = self.importer.catalog.current(bucket, &key).await?;
        if current.is_some() && !self.parameters.overwrite {
            return Ok(Fate::Existing);
        }
        let object = match self.store.head(&entry.key).await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(Fate::Vanished),
            // Trouble with this object; trouble with the store ends the run.
            Err(error) if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Denied | ErrorKind::Corrupt) => {
                return failed(error.to_string());
            }
            Err(error) => return Err(error.into()),
        };
        let precondition = match (&current, self.parameters.overwrite) {
            (Some(version), _) => Precondition::Current(version.id),
            (None, true) => Precondition::Absent,
            (None, false) => Precondition::Adoptable,
        };
        let place = OriginalPlace { store: &self.store_name, key: &entry.key };
        let how = Adoption { owned: self.parameters.take_over, precondition };
        let too_long = object.len > BLOB_PLAIN_LEN_MAX;
        Ok(match self.importer.adopter.adopt(&self.bucket, &key, place, &object, how).await? {
            true => Fate::Adopted {
                bytes: object.len,
                tags: object.tags > 0,
                left_to_owner: self.parameters.take_over && too_long,
            },
            // Written meanwhile by a client, whose version stays, or deleted by one.
            false if self.importer.catalog.current(bucket, &key).await?.is_some() => Fate::Existing,
            false => Fate::Deleted,
        })
    }

    async fn verify(&self, run: &JobRun, cursor: &mut Cursor) -> Result<(), EngineError> {
        run.note("verifying");
        let total = cursor.report.listed;
        let listing = self.store.list(&self.source_prefix, cursor.after.as_deref());
        let mut compared = listing
            .filter(|listed| std::future::ready(!matches!(listed, Err(error) if error.kind() == ErrorKind::Invalid)))
            .map(|listed| async move {
                let entry = listed?;
                let outcome = self.compare(&entry).await?;
                Ok::<_, EngineError>((entry.key, outcome))
            })
            .buffered(AT_ONCE);
        while let Some((key, outcome)) = compared.try_next().await? {
            cursor.after = Some(key.clone());
            let verified = cursor.report.verified.get_or_insert_default();
            let Some(outcome) = outcome else { continue };
            verified.listed += 1;
            match outcome {
                Ok(bytes) => {
                    verified.same += 1;
                    verified.sampled += u64::from(bytes > 0);
                    verified.sampled_bytes += bytes;
                }
                Err(error) => {
                    verified.different += 1;
                    if verified.differences.len() < NAMED_MAX {
                        verified.differences.push(FailedObject { key, error });
                    }
                }
            }
            if verified.listed.is_multiple_of(CHECKPOINT_OBJECTS) {
                run.progress(verified.listed, Some(total));
                run.checkpoint(cursor).await?;
            }
        }
        Ok(())
    }

    /// Holds a version against what the source lists; gives the bytes of content that were
    /// compared. `None` for what is ours.
    async fn compare(&self, entry: &PlainEntry) -> Result<Option<Result<u64, String>>, EngineError> {
        if self.importer.originals.is_ours(&self.store_name, &entry.key) {
            return Ok(None);
        }
        let key = self.key_of(&entry.key);
        let Some(object) = self.importer.read.open_object(&self.bucket, &key).await? else {
            return Ok(Some(Err("it is no version of the bucket".into())));
        };
        let (size, facts) = (object.info.version.size, &object.info.facts);
        if size != entry.len {
            return Ok(Some(Err(format!("{size} bytes in the bucket, {} in the source", entry.len))));
        }
        if entry.etag.as_ref().is_some_and(|etag| *etag != facts.etag) {
            return Ok(Some(Err(format!(
                "ETag {} in the bucket, {} in the source",
                facts.etag,
                entry.etag.as_deref().unwrap_or_default()
            ))));
        }
        if size == 0 || !is_sampled(&entry.key) {
            return Ok(Some(Ok(0)));
        }
        let range = 0..size.min(SAMPLE_BYTES_MAX);
        let _permit = self.importer.budget.acquire(2 * range.end).await?;
        let through: Vec<_> = self.importer.read.read(&object, range.clone()).try_collect().await?;
        let direct = match self.store.read(&entry.key, &facts.etag, range.clone()).await? {
            PlainRead::Bytes(pieces) => pieces.try_collect::<Vec<_>>().await?.concat(),
            PlainRead::Changed | PlainRead::Absent => return Ok(Some(Err("it changed while it was compared".into()))),
        };
        if through.concat() != direct {
            return Ok(Some(Err(format!("the first {} bytes differ", range.end))));
        }
        let md5 = object.content.blobs.iter().all(|row| row.original.as_ref().is_some_and(|original| original.md5));
        if range.end == size && md5 && hex::encode(Md5::digest(&direct)) != facts.etag {
            return Ok(Some(Err("its content is not what its ETag says".into())));
        }
        Ok(Some(Ok(range.end)))
    }
}

impl ImportReport {
    fn note(&mut self, fate: Fate) {
        self.listed += 1;
        match fate {
            Fate::Adopted { bytes, tags, left_to_owner } => {
                self.adopted += 1;
                self.adopted_bytes += bytes;
                self.with_tags += u64::from(tags);
                self.left_to_owner += u64::from(left_to_owner);
            }
            Fate::Existing => self.existing += 1,
            Fate::Deleted => self.deleted += 1,
            Fate::Vanished => self.vanished += 1,
            Fate::Own => self.own += 1,
            Fate::Failed(trouble) => {
                self.failed += 1;
                if self.failures.len() < NAMED_MAX {
                    self.failures.push(trouble);
                }
            }
        }
    }
}

/// Whether an object is of the sample: by its key, so that a run that goes on takes the same.
fn is_sampled(key: &str) -> bool {
    let digest = Md5::digest(key.as_bytes());
    u64::from_le_bytes([digest[0], digest[1], digest[2], digest[3], 0, 0, 0, 0]).is_multiple_of(SAMPLE_ONE_IN)
}

/// S3's bound on keys, in bytes.
const KEY_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests;
