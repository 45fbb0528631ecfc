//! `eject`: writes the current versions of a bucket as plain objects: files in a directory, or
//! objects in a bucket of an S3 store.
//!
//! Content goes through the ordinary verified read path, is written, and is read back and compared
//! before it counts as written.

mod bucket;
mod directory;
mod opened;
pub(crate) mod outcome;

use crate::{
    background::jobs::run::JobRun,
    blobs::originals::Originals,
    bucket::{BucketHandle, Buckets},
    error::EngineError,
};
use bucket::BucketTarget;
use catalog::{Catalog, ListEntry, ListQuery};
use directory::DirectoryTarget;
use futures::{StreamExt, TryStreamExt, stream};
use outcome::{Fate, ManifestLine, ObjectReader};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Objects written at the same time.
const AT_ONCE: usize = 4;
/// Keys listed at a time; also what lies between two checkpoints.
const PAGE_KEYS: usize = 256;
/// Troubles that are reported by name; the rest are only counted.
const NAMED_MAX: usize = 100;
/// Names a target that is a bucket and no directory.
const STORE: &str = "store:";

/// What an ejection is asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EjectParameters {
    /// The bucket.
    bucket: String,
    /// Only keys that start with this.
    #[serde(default)]
    prefix: String,
    /// An absolute path of a directory, or `store:NAME` or `store:NAME/prefix`.
    target: String,
    /// Replace other objects that stand under the same keys in a target that is a bucket.
    #[serde(default)]
    overwrite: bool,
    /// A directory must lie below one of `eject.roots` when it is opened: asked by a caller who may
    /// not own the store.
    #[serde(default)]
    within_roots: bool,
}

impl EjectParameters {
    /// The name and prefix of the store that is written to; `None` for a directory.
    fn store(&self) -> Option<(&str, &str)> {
        let store = self.target.strip_prefix(STORE)?;
        Some(store.split_once('/').unwrap_or((store, "")))
    }
}

/// What an ejection did.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct EjectReport {
    /// Objects written and read back.
    written: u64,
    /// Their bytes.
    written_bytes: u64,
    /// Those whose keys no file system could hold, and that lie under another name; the manifest
    /// says which.
    renamed: u64,
    /// Keys that a client deleted while this ran.
    vanished: u64,
    /// Objects that could not be written.
    failed: u64,
    /// The first of them, and why.
    failures: Vec<EjectFailure>,
}

/// One object that something is wrong with.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct EjectFailure {
    key: String,
    error: String,
}

/// Where an ejection is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Cursor {
    /// The last key that was dealt with.
    after: Option<String>,
    /// Bytes of the manifest that belong to the keys up to there.
    manifest_len: u64,
    report: EjectReport,
}

/// Where objects go.
enum Target {
    Directory(DirectoryTarget),
    Bucket(BucketTarget),
}

/// Writes objects out as they were.
pub(crate) struct Ejector {
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) originals: Arc<Originals>,
    pub(crate) reader: ObjectReader,
}

impl Ejector {
    /// Refuses what nothing here can write out, and gives the bucket.
    ///
    /// # Errors
    /// [`EngineError::NoBucket`]; [`EngineError::JobRefused`] for a target that is none, or that an
    /// encrypted bucket may not be written to.
    async fn admitted(&self, parameters: &EjectParameters) -> Result<BucketHandle, EngineError> {
        let bucket = self.buckets.bucket(&parameters.bucket).await?.ok_or(EngineError::NoBucket)?;
        if bucket.is_sealed() || parameters.within_roots {
            check_directory(&self.roots, parameters)?;
        }
        let refused = |error: EngineError| EngineError::JobRefused(format!("eject: {error}"));
        match parameters.store() {
            Some((name, _)) => self.originals.writer(name).map(|_| ()).map_err(refused)?,
            None if Path::new(&parameters.target).is_absolute() => {}
            None => {
                return Err(EngineError::JobRefused(format!(
                    "{:?} is neither an absolute path nor store:NAME",
                    parameters.target
                )));
            }
        }
        Ok(bucket)
    }

    /// The same before a run begins.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn admit(&self, parameters: &EjectParameters) -> Result<(), EngineError> {
        self.admitted(parameters).await.map(drop)
    }

    /// One run of the eject job.
    ///
    /// # Errors
    /// [`EngineError`] when the target cannot be written to at all, or the catalog fails; what was
    /// written stays, and the next run goes on.
    pub(crate) async fn eject_once(self: &Arc<Self>, run: &JobRun) -> Result<EjectReport, EngineError> {
        let parameters: EjectParameters = run.parameters()?;
        let bucket = self.admitted(&parameters).await?;
        let mut cursor: Cursor = run.cursor()?.unwrap_or_default();
        let target = self.target(&bucket, &parameters, &cursor).await?;
        loop {
            let query = ListQuery {
                bucket: bucket.row.id,
                prefix: parameters.prefix.clone(),
                delimiter: None,
                after: cursor.after.clone(),
                limit: PAGE_KEYS,
            };
            let page = self.catalog.list(&query).await?;
            let keys = page.entries.into_iter().filter_map(|entry| match entry {
                ListEntry::Key(version) => Some(version.key),
                ListEntry::CommonPrefix(_) => None,
            });
            let mut fates = stream::iter(keys)
                .map(|key| {
                    let (target, bucket) = (&target, &bucket);
                    async move {
                        let fate = self.eject_one(bucket, &key, target).await?;
                        Ok::<_, EngineError>((key, fate))
                    }
                })
                .buffered(AT_ONCE);
            let mut lines = Vec::new();
            while let Some((key, fate)) = fates.try_next().await? {
                run.check()?;
                cursor.report.note(&key, fate, &mut lines);
                cursor.after = Some(key);
                run.progress(cursor.report.written + cursor.report.vanished + cursor.report.failed, None);
            }
            drop(fates);
            if let Target::Directory(directory) = &target {
                cursor.manifest_len = directory.append(cursor.manifest_len, &lines).await?;
            }
            run.checkpoint(&cursor).await?;
            if page.next.is_none() {
                return Ok(cursor.report);
            }
        }
    }

    async fn target(
        &self,
        bucket: &BucketHandle,
        parameters: &EjectParameters,
        cursor: &Cursor,
    ) -> Result<Target, EngineError> {
        if let Some((name, prefix)) = parameters.store() {
            return Ok(Target::Bucket(BucketTarget {
                writer: self.originals.writer(name)?.clone(),
                store: self.originals.store(name)?.clone(),
                prefix: prefix.to_owned(),
                overwrite: parameters.overwrite,
            }));
        }
        let root = PathBuf::from(&parameters.target);
        // What was admitted by its name is opened by no other way.
        let roots = (bucket.is_sealed() || parameters.within_roots).then(|| self.roots.clone());
        DirectoryTarget::open(root, roots, cursor.after.is_none(), cursor.manifest_len).await.map(Target::Directory)
    }

    async fn eject_one(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        key: &str,
        target: &Target,
    ) -> Result<Fate, EngineError> {
        let Some(object) = self.reader.read.open_object(bucket, key).await? else { return Ok(Fate::Vanished) };
        if object.info.facts.encryption.is_some() {
            return Ok(Fate::Failed("it is encrypted with a key of its own: copy it with a client".into()));
        }
        let outcome = match target {
            Target::Directory(directory) => directory.write(&self.reader, key, &object).await,
            Target::Bucket(bucket) => bucket.write(&self.reader, key, &object).await,
        };
        match outcome {
            // Trouble with this object: the others go on, and the report names it.
            Err(error @ (EngineError::Integrity(_) | EngineError::Original(_))) => Ok(Fate::Failed(error.to_string())),
            outcome => outcome,
        }
    }
}

/// Refuses to eject into a directory that lies below none of `roots`, for a caller who may not own
/// the store, and has the same looked at when it is opened.
///
/// # Errors
/// [`EngineError::JobRefused`], also for parameters that are none of `eject`.
pub fn check_eject(roots: &[PathBuf], parameters: &mut serde_json::Value) -> Result<(), EngineError> {
    let read = EjectParameters::deserialize(&*parameters);
    check_directory(roots, &read.map_err(|error| EngineError::JobRefused(format!("eject: {error}")))?)?;
    parameters["within_roots"] = true.into();
    Ok(())
}

fn check_directory(roots: &[PathBuf], parameters: &EjectParameters) -> Result<(), EngineError> {
    let target = Path::new(&parameters.target);
    if parameters.target.starts_with(STORE) || opened::is_below(roots, target) {
        return Ok(());
    }
    Err(EngineError::JobRefused(format!(
        "{:?} lies below none of eject.roots, which are asked of encrypted buckets and of callers of the admin listener",
        parameters.target
    )))
}

impl EjectReport {
    fn note(&mut self, key: &str, fate: Fate, lines: &mut Vec<ManifestLine>) {
        match fate {
            Fate::Written { bytes, line, renamed } => {
                self.written += 1;
                self.written_bytes += bytes;
                self.renamed += u64::from(renamed);
                lines.extend(line.map(|line| *line));
            }
            Fate::Vanished => self.vanished += 1,
            Fate::Failed(error) => {
                self.failed += 1;
                if self.failures.len() < NAMED_MAX {
                    self.failures.push(EjectFailure { key: key.to_owned(), error });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_caller_of_the_listener_asks_for_is_looked_at_again_when_it_is_opened() {
        let root = tempfile::tempdir().unwrap();
        let roots = [root.path().to_owned()];
        let mut parameters = json!({ "bucket": "b", "target": root.path().join("new") });
        check_eject(&roots, &mut parameters).unwrap();
        assert!(EjectParameters::deserialize(parameters).unwrap().within_roots);
        let mut elsewhere = json!({ "bucket": "b", "target": "/elsewhere", "within_roots": false });
        assert!(matches!(check_eject(&roots, &mut elsewhere), Err(EngineError::JobRefused(_))));
    }
}
