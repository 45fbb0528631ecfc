//! What the objects of a bucket would take under other settings: an estimate with a bucket of this
//! store as its source.
//!
//! Only its first keys are looked at, and no more is read than the sample and one object, so that
//! asking costs the same however many there are and however long they are.

use crate::{
    engine::{
        BucketHandle, BucketSettings, Compression, DISK_RESERVE_BYTES, EffortSetting, Encryption, Engine, EngineError,
        Named, VersionFacts, free_bytes_at, key_order::prefix_of, make_private_dir,
    },
    estimate::{Estimate, EstimateOptions, Prediction, PriceTable, Sample, estimate},
};
use async_trait::async_trait;
use catalog::{Version, VersionEntry, VersionRef, VersionsQuery};
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use serde::Serialize;
use std::{
    collections::HashMap,
    io,
    ops::Range,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use storage_backends::{BackendError, ErrorKind, PlainEntry, PlainObject, PlainRead, PlainRemoval, PlainStore, Result};
use tempfile::TempDir;

/// The directory of temporary stores, below the data directory.
pub const PREVIEW_DIRECTORY: &str = "preview";
/// Versions that a preview looks at.
pub const VERSIONS_MAX: u64 = 20_000;
/// Versions that are read from the catalog at a time.
const PAGE_VERSIONS: usize = 1000;
/// The number of a key's newest version in a listing; those before it count down.
const NEWEST: u64 = 999_999;
/// For whom memory is taken.
const PARTY: &str = "preview";

/// What would be stored, and how.
pub struct PreviewOptions {
    /// Only keys that start with this.
    pub prefix: String,
    /// Reduction; `None`: as the bucket has it.
    pub compression: Option<Compression>,
    /// Effort; `None`: as the bucket has it.
    pub effort: Option<EffortSetting>,
    /// Bytes that may be read; what is left of the last object comes on top.
    pub sample_bytes: u64,
    /// Where the choice of the sample begins.
    pub seed: u64,
}

/// What a bucket's objects would take under other settings.
#[derive(Debug, Serialize)]
pub struct Preview {
    /// The bucket.
    pub bucket: String,
    /// Only keys that start with this were looked at.
    pub prefix: String,
    /// The settings that were tried.
    pub compression: Compression,
    /// As there. `auto` is tried as on an idle machine.
    pub effort: EffortSetting,
    /// Objects that were looked at: the first ones of the prefix. Of a bucket that keeps versions,
    /// every version is one.
    pub objects: u64,
    /// Whether there are more.
    pub more: bool,
    /// Their bytes.
    pub logical_bytes: u64,
    /// What they take now, as each was stored.
    pub stored_now_bytes: u64,
    /// What they would take.
    pub stored_bytes: Prediction,
    /// CPU seconds of this process for a gigabyte of the sample. Whatever else it did meanwhile
    /// counts too, so it is no less than what it costs.
    pub cpu_s_per_gb: f64,
    /// What was read.
    pub sample: Sample,
}

/// Tries other settings on a bucket's objects, in a temporary store below `work`; `None` when there
/// is no such bucket. Content of an encrypted bucket is encrypted there too, under a key that ends
/// with it.
///
/// # Errors
/// [`EngineError`] when the catalog or the temporary store fail, or the disk has no room for the
/// sample.
pub async fn preview(
    engine: Arc<Engine>,
    bucket: &str,
    work: &Path,
    options: PreviewOptions,
) -> std::result::Result<Option<Preview>, EngineError> {
    let Some(handle) = engine.buckets.bucket(bucket).await? else { return Ok(None) };
    let PreviewOptions { prefix, compression, effort, sample_bytes, seed } = options;
    let settings = BucketSettings {
        compression: compression.unwrap_or(handle.settings.compression),
        effort: effort.unwrap_or(handle.settings.effort),
        encryption: if handle.is_sealed() { Encryption::Aes256 } else { Encryption::Off },
        ..handle.settings.clone()
    };
    let (compression, effort) = (settings.compression, settings.effort);
    let directory = room(work)?;
    has_room(free_bytes_at(work).map_err(|error| of_path(work, error))?, sample_bytes)?;
    let looked = Arc::new(Looked::default());
    let source = OwnBucket { engine, bucket: handle.acting_for(PARTY), looked: looked.clone() };
    let options = EstimateOptions { prefix: prefix.clone(), sample_bytes, bounded: true, seed, settings };
    let found = estimate(Arc::new(source), directory.path(), options, &PriceTable::load(None)?, |_, _| ()).await?;
    let Estimate { objects, logical_bytes, sample, stored_bytes, cpu_seconds, .. } = found;
    #[expect(clippy::cast_precision_loss, reason = "a share of bytes")]
    let cpu_s_per_gb = if logical_bytes == 0 { 0.0 } else { cpu_seconds * 1e9 / logical_bytes as f64 };
    Ok(Some(Preview {
        bucket: bucket.to_owned(),
        prefix,
        compression,
        effort,
        objects,
        more: looked.more.load(Ordering::Relaxed),
        logical_bytes,
        stored_now_bytes: looked.stored_bytes.load(Ordering::Relaxed),
        stored_bytes,
        cpu_s_per_gb,
        sample,
    }))
}

/// A directory for a temporary store. Clears away what a process left that was killed in between.
fn room(work: &Path) -> std::result::Result<TempDir, EngineError> {
    match std::fs::remove_dir_all(work) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(of_path(work, error)),
        _ => make_private_dir(work)?,
    }
    tempfile::tempdir_in(work).map_err(|error| of_path(work, error))
}

fn of_path(path: &Path, error: io::Error) -> EngineError {
    EngineError::Other(format!("{}: {error}", path.display()))
}

/// Refuses a sample that would take what the server keeps free: the temporary store lies on the
/// disk of the data directory. Three times the sample is more than it and one object take, with the
/// rows, and with archives in both of their forms.
fn has_room(free_bytes: u64, sample_bytes: u64) -> std::result::Result<(), EngineError> {
    let needed = sample_bytes.saturating_mul(3).saturating_add(DISK_RESERVE_BYTES);
    if free_bytes < needed {
        let message = format!("a preview needs {needed} free bytes below the data directory; {free_bytes} are left");
        return Err(EngineError::Unavailable(message));
    }
    Ok(())
}

/// What a listing came across.
#[derive(Default)]
struct Looked {
    stored_bytes: AtomicU64,
    more: AtomicBool,
    /// Which version each name of the listing stands for.
    named: Mutex<HashMap<String, (String, VersionRef)>>,
}

impl Looked {
    fn note(&self, name: &str, version: &Version) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.insert(name.to_owned(), (version.key.clone(), version.reference()));
    }

    fn version(&self, name: &str) -> Option<(String, VersionRef)> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// The versions of a bucket, as a store of plain objects.
struct OwnBucket {
    engine: Arc<Engine>,
    bucket: BucketHandle,
    looked: Arc<Looked>,
}

/// How a listing goes on.
struct Listing {
    engine: Arc<Engine>,
    bucket: BucketHandle,
    looked: Arc<Looked>,
    query: VersionsQuery,
    left: u64,
    /// The key of the last version, and how many newer ones of it there were.
    last: Option<(String, u64)>,
}

impl Listing {
    /// The next page; `None` at the end.
    async fn page(mut self) -> Result<Option<(Vec<PlainEntry>, Option<Self>)>> {
        self.query.limit = usize::try_from(self.left).unwrap_or(PAGE_VERSIONS).min(PAGE_VERSIONS);
        let page = self.engine.catalog().list_versions(&self.query).await;
        let page = page.map_err(EngineError::from).map_err(backend_error)?;
        let mut entries = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let VersionEntry::Version { version, .. } = entry else { continue };
            self.left -= 1;
            let name = self.name_of(&version);
            if version.marker {
                continue;
            }
            let facts = self.engine.read.open_facts(&self.bucket, &version).map_err(backend_error)?;
            // What has a key of its own resembles nothing, and is stored as it is in any case.
            if facts.encryption.is_none() {
                self.looked.stored_bytes.fetch_add(facts.storage.stored_bytes, Ordering::Relaxed);
                self.looked.note(&name, &version);
                entries.push(PlainEntry { key: name, len: version.size, etag: Some(facts.etag) });
            }
        }
        let next = match page.next {
            None => None,
            Some(_) if self.left == 0 => {
                self.looked.more.store(true, Ordering::Relaxed);
                None
            }
            Some((key, version)) => {
                (self.query.key_after, self.query.version_after) = (Some(key), version);
                Some(self)
            }
        };
        Ok(Some((entries, next)))
    }

    /// What a version is called in the listing: its key, and in a bucket that keeps versions a
    /// number in it, so that those of a key are a series, the oldest first.
    fn name_of(&mut self, version: &Version) -> String {
        if self.bucket.row.versioning.is_off() {
            return version.key.clone();
        }
        let newer = match self.last.take() {
            Some((key, newer)) if key == version.key => newer + 1,
            _ => 0,
        };
        self.last = Some((version.key.clone(), newer));
        numbered(&version.key, NEWEST - newer)
    }
}

/// A key with a number before its extension.
fn numbered(key: &str, number: u64) -> String {
    let file = prefix_of(key).len();
    let (start, extension) = key.split_at(key[file..].rfind('.').map_or(key.len(), |dot| file + dot));
    format!("{start}~{number}{extension}")
}

impl OwnBucket {
    /// What tells this content from any other under its key.
    fn etag(version: &Version) -> String {
        hex::encode(version.id.0)
    }

    fn object(version: &Version, facts: VersionFacts) -> PlainObject {
        PlainObject { len: version.size, etag: Self::etag(version), headers: facts.headers, ..PlainObject::default() }
    }
}

#[async_trait]
impl PlainStore for OwnBucket {
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>> {
        let query = VersionsQuery {
            bucket: self.bucket.row.id,
            prefix: prefix.to_owned(),
            delimiter: None,
            key_after: after.map(str::to_owned),
            version_after: None,
            limit: PAGE_VERSIONS,
        };
        let (engine, bucket, looked) = (self.engine.clone(), self.bucket.clone(), self.looked.clone());
        let first = Listing { engine, bucket, looked, query, left: VERSIONS_MAX, last: None };
        let pages = stream::try_unfold(Some(first), |listing| async {
            match listing {
                None => Ok(None),
                Some(listing) => listing.page().await,
            }
        });
        pages.map_ok(|entries| stream::iter(entries.into_iter().map(Ok))).try_flatten().boxed()
    }

    async fn head(&self, name: &str) -> Result<Option<PlainObject>> {
        let Some((key, version)) = self.looked.version(name) else { return Ok(None) };
        let found = self.engine.read.head_version(&self.bucket, &key, version).await.map_err(backend_error)?;
        Ok(match found {
            Some(Named::Object(found)) => Some(Self::object(&found.version, found.facts)),
            Some(Named::Marker(_)) | None => None,
        })
    }

    async fn read(&self, name: &str, etag: &str, range: Range<u64>) -> Result<PlainRead> {
        let Some((key, version)) = self.looked.version(name) else { return Ok(PlainRead::Absent) };
        let found = self.engine.read.open_version(&self.bucket, &key, version).await.map_err(backend_error)?;
        let Some(Named::Object(object)) = found else { return Ok(PlainRead::Absent) };
        if Self::etag(&object.info.version) != etag {
            return Ok(PlainRead::Changed);
        }
        let content = self.engine.read.read(&object, range);
        // The object stays open, and its blobs stay, for as long as somebody reads.
        let kept = content.map(move |piece| {
            let _ = &object;
            piece.map_err(backend_error)
        });
        Ok(PlainRead::Bytes(kept.boxed()))
    }

    async fn remove(&self, _key: &str, _etag: &str) -> Result<PlainRemoval> {
        Err(BackendError::new(ErrorKind::Denied, "a preview removes nothing"))
    }
}

/// What is wrong with one object leaves it out of the sample; what is wrong with the store ends it.
fn backend_error(error: EngineError) -> BackendError {
    let kind = match &error {
        EngineError::Integrity(_) | EngineError::Original(_) => ErrorKind::Body,
        EngineError::Busy(_) | EngineError::Unavailable(_) => ErrorKind::Transient,
        _ => ErrorKind::Other,
    };
    BackendError::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_a_key_are_a_series_that_keeps_its_extension() {
        for (key, name) in [
            ("a/dump.sql", "a/dump~7.sql"),
            ("a.b/dump", "a.b/dump~7"),
            ("a/", "a/~7"),
            (".env", "~7.env"),
            ("x.tar.gz", "x.tar~7.gz"),
        ] {
            assert_eq!(numbered(key, 7), name);
        }
    }

    #[test]
    fn a_sample_leaves_the_reserve_of_the_disk_alone() {
        assert!(has_room(DISK_RESERVE_BYTES + 300, 100).is_ok());
        for free_bytes in [0, DISK_RESERVE_BYTES, DISK_RESERVE_BYTES + 299] {
            assert!(matches!(has_room(free_bytes, 100), Err(EngineError::Unavailable(_))), "{free_bytes}");
        }
        assert!(has_room(u64::MAX - 1, u64::MAX).is_err());
    }
}
