//! What blobs say of themselves (E17): versions that neither backup nor journal knows, recovered
//! from manifests.
//!
//! A manifest knows that something was stored, not that it was kept: its key may have been deleted
//! or overwritten since. So what is recovered goes into quarantine, under [`QUARANTINE`] in its own
//! bucket, where any S3 client can look at it.

use super::{
    known::version_is_there,
    lost::{KEY_LEN_MAX, QUARANTINE},
    options::{RecoveryOptions, RecoveryProgress},
};
use crate::{
    blobs::{copy_name::parse_copy_name, open::fetch},
    bucket::{BucketHandle, BucketState, RowPlace, digest_of},
    config::{BucketSettings, Encryption, EngineConfig},
    deployment::keyring::{Keyring, Opened, keyset_name, random},
    error::EngineError,
    facts::{PartFacts, PartSize, StorageFacts, VersionFacts, to_json},
    resources::{clock::now_ms, ids::version_id},
};
use catalog::{
    BlobForm, BlobKey, BlobRow, BlobState, Bucket, BucketId, Catalog, CompleteCommit, Extent, FormBytes, JournalEntry,
    Mutation, MutationText, NewBlob, Part, PartCommit, Precondition, PutCommit, UnixMs, Upload, UploadId, VersionLock,
    Versioning, WrappedKey,
};
use futures::TryStreamExt;
use object_format::{
    BlobId, BlobKind, Coding, DomainKey, KeyId,
    inspect::{InspectError, Layout, layout},
    keyset::Keyset,
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::Arc,
    time::UNIX_EPOCH,
};
use storage_backends::{Backend, BlobName, get_all};

/// Listed blobs that are looked up in the catalog at a time.
const LOOKUP: usize = 512;
/// A blob written this long before the last mutation that is known, and known to nobody, was never
/// acknowledged: clocks of replicas and stores do not agree better.
const CLOCK_MARGIN_MS: i64 = 10 * 60 * 1000;
/// Longest keyset that is read.
const KEYSET_LEN_MAX: u64 = 1 << 20;

/// A version that only its manifest knows: its key's state in the catalog is older than what was
/// last acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostVersion {
    /// Bucket.
    pub bucket: String,
    /// Key.
    pub key: String,
    /// The key it can be read under now.
    pub recovered_as: String,
    /// Logical bytes.
    pub size: u64,
    /// Whether the key has an older version in the catalog.
    pub has_older: bool,
}

/// What manifests told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Blobs that no row knew.
    pub unknown_blobs: u64,
    /// Of those, written well before the last known mutation: left alone, the collector's business.
    pub never_acknowledged: u64,
    /// Of those, with a version that the catalog has anyway: a rewrite that was killed left them,
    /// and they are the collector's business too.
    pub rewrites: u64,
    /// Versions recovered.
    pub versions: Vec<LostVersion>,
    /// Parts of uploads that are open in the catalog, or whose upload cannot be put together; their
    /// clients send them again.
    pub stray_parts: u64,
    /// Blobs that could not be recovered, and why.
    pub unreadable: Vec<(String, String)>,
}

/// What a recovery works with.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) catalog: &'a Arc<dyn Catalog>,
    pub(super) backends: &'a BTreeMap<String, Arc<dyn Backend>>,
    pub(super) keyring: &'a Keyring,
    pub(super) config: &'a EngineConfig,
    /// When the last known mutation was.
    pub(super) last_ms: Option<UnixMs>,
}

/// The greatest writer epoch that any blob, or second copy of one, in any backend was made in.
pub(super) async fn highest_epoch(backends: &BTreeMap<String, Arc<dyn Backend>>) -> Result<u32, EngineError> {
    let mut highest = 0;
    for backend in backends.values() {
        for prefix in ["blobs/", "keyset/"] {
            let mut listing = backend.list(prefix);
            while let Some(blob) = listing.try_next().await? {
                if let Some(id) = blob.name.as_str().strip_prefix(prefix).and_then(BlobId::parse) {
                    highest = highest.max(id.epoch());
                }
            }
        }
        let mut listing = backend.list("copies/");
        while let Some(listed) = listing.try_next().await? {
            if let Some((_, copy)) = parse_copy_name(&listed.name) {
                highest = highest.max(copy.epoch());
            }
        }
    }
    Ok(highest)
}

/// Makes a mutation in a catalog that is being filled.
pub(super) async fn record(catalog: &dyn Catalog, mutation: Mutation) -> Result<(), EngineError> {
    let seq = catalog.last_seq().await? + 1;
    let mutation = MutationText::of(&mutation).map_err(|error| EngineError::Other(error.to_string()))?;
    Ok(catalog.replay(vec![JournalEntry { seq, at_ms: now_ms(), mutation }]).await?)
}

/// A blob that no row knows.
#[derive(Clone, Debug)]
struct Unknown {
    id: BlobId,
    backend: String,
    stored_len: u64,
    modified_ms: Option<UnixMs>,
}

/// A part that waits for its siblings.
struct StrayPart {
    blob: Unknown,
    number: u32,
}

/// A wrapped key with the bucket it is for.
struct FoundKey {
    key: DomainKey,
    bucket: BucketId,
    bucket_name: String,
    wrapped: WrappedKey,
    backend: String,
}

struct Run<'a> {
    sources: Sources<'a>,
    keys: HashMap<KeyId, FoundKey>,
    options: &'a RecoveryOptions,
    report: Recovered,
    parts: BTreeMap<(BlobKey, String, String), Vec<StrayPart>>,
}

/// Recovers what the manifests of unknown blobs tell: whole content first, then deltas, whose bases
/// may be among it, then what was uploaded in parts.
pub(super) async fn recover_manifests(
    sources: Sources<'_>,
    options: &RecoveryOptions,
    progress: &RecoveryProgress,
) -> Result<Recovered, EngineError> {
    let keys = found_keys(&sources).await?;
    let mut run = Run { sources, keys, options, report: Recovered::default(), parts: BTreeMap::new() };
    let mut deltas = Vec::new();
    for (backend_name, backend) in sources.backends {
        let mut listing = backend.list("blobs/").try_chunks(LOOKUP);
        while let Some(listed) = listing.try_next().await.map_err(|error| EngineError::from(error.1))? {
            let unknown = run.unknown_of(backend_name, listed).await?;
            for blob in unknown {
                run.report.unknown_blobs += 1;
                if run.was_never_acknowledged(&blob) {
                    run.report.never_acknowledged += 1;
                } else if let Some(delta) = run.examine(blob, false).await? {
                    deltas.push(delta);
                }
                progress("unknown blobs examined", run.report.unknown_blobs);
            }
        }
    }
    for delta in deltas {
        run.examine(delta, true).await?;
    }
    run.assemble_uploads().await?;
    Ok(run.report)
}

/// Every domain key that a keyset in some backend holds and the KEK opens.
async fn found_keys(sources: &Sources<'_>) -> Result<HashMap<KeyId, FoundKey>, EngineError> {
    let mut keys = HashMap::new();
    for (backend_name, backend) in sources.backends {
        let mut listing = backend.list("keyset/");
        while let Some(listed) = listing.try_next().await? {
            let id = listed.name.as_str().strip_prefix("keyset/").and_then(BlobId::parse);
            let Some(id) = id.filter(|_| listed.stored_len <= KEYSET_LEN_MAX) else { continue };
            let Some(bytes) = get_all(&**backend, &keyset_name(id)?, listed.stored_len).await? else { continue };
            // One damaged copy is why there are two.
            let Ok(keyset) = Keyset::read_blob(&bytes, id) else {
                tracing::warn!(keyset = %id, "a damaged keyset is skipped");
                continue;
            };
            for entry in keyset.entries() {
                let Ok((key, label)) = sources.keyring.open_entry(entry) else {
                    tracing::warn!(key = %entry.key_id(), "a domain key is wrapped under another KEK");
                    continue;
                };
                let bucket = BucketId(i64::try_from(label.id).unwrap_or(0));
                let wrapped = WrappedKey {
                    id: entry.key_id().0,
                    bucket,
                    epoch: entry.key_epoch(),
                    kek: entry.kek_fingerprint(),
                    wrapped: entry.wrapped().to_vec(),
                };
                let found = FoundKey { key, bucket, bucket_name: label.name, wrapped, backend: backend_name.clone() };
                keys.insert(entry.key_id(), found);
            }
        }
    }
    Ok(keys)
}

impl Run<'_> {
    async fn unknown_of(
        &self,
        backend: &str,
        listed: Vec<storage_backends::Listed>,
    ) -> Result<Vec<Unknown>, EngineError> {
        let mut found = Vec::new();
        for blob in listed {
            let Some(id) = blob.name.as_str().strip_prefix("blobs/").and_then(BlobId::parse) else { continue };
            let since = blob.modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
            let modified_ms = since.and_then(|since| UnixMs::try_from(since.as_millis()).ok());
            found.push(Unknown { id, backend: backend.to_owned(), stored_len: blob.stored_len, modified_ms });
        }
        let ids: Vec<BlobKey> = found.iter().map(|blob| BlobKey(blob.id.0)).collect();
        let known: HashSet<BlobKey> = self.sources.catalog.blobs(&ids).await?.into_iter().map(|row| row.id).collect();
        found.retain(|blob| !known.contains(&BlobKey(blob.id.0)));
        Ok(found)
    }

    /// Whether the journal, had it been acknowledged, would know it.
    fn was_never_acknowledged(&self, blob: &Unknown) -> bool {
        match (self.sources.last_ms, blob.modified_ms) {
            (Some(last), Some(modified)) => modified < last - CLOCK_MARGIN_MS,
            _ => false,
        }
    }

    /// Recovers a blob, or remembers a part, or gives a delta back for later. What cannot be read
    /// is reported.
    async fn examine(&mut self, blob: Unknown, with_deltas: bool) -> Result<Option<Unknown>, EngineError> {
        match self.try_examine(&blob, with_deltas).await {
            Ok(true) => Ok(None),
            Ok(false) => Ok(Some(blob)),
            Err(error @ (EngineError::Integrity(_) | EngineError::Other(_))) => {
                self.report.unreadable.push((blob.id.to_string(), error.to_string()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn try_examine(&mut self, blob: &Unknown, with_deltas: bool) -> Result<bool, EngineError> {
        let layout = self.layout(blob).await?;
        let manifest = layout.manifest.as_ref().ok_or_else(|| other("its key is in no keyset"))?;
        if !matches!(layout.header.kind, BlobKind::Whole | BlobKind::Delta) {
            return Err(other("it holds no single version"));
        }
        if !manifest.root.view.is_empty() && !with_deltas {
            return Ok(false);
        }
        let facts = &manifest.root.facts;
        if facts.key.is_empty() {
            return Err(other("its manifest names no key"));
        }
        let found = self.keys.get(&layout.header.key_id);
        let name = found.map_or(facts.bucket.as_str(), |found| found.bucket_name.as_str());
        if version_is_there(&**self.sources.catalog, name, facts).await? {
            self.report.rewrites += 1;
            return Ok(true);
        }
        if let Some((upload, number)) = facts.part {
            let bucket = self.bucket_of(blob, &layout).await?;
            let group = (BlobKey(upload), bucket.row.name.clone(), facts.key.clone());
            self.parts.entry(group).or_default().push(StrayPart { blob: blob.clone(), number });
            return Ok(true);
        }
        let bucket = self.bucket_of(blob, &layout).await?;
        let new_blob = self.row_of(blob, &layout, &bucket)?;
        let mut version: VersionFacts = serde_json::from_slice(&facts.facts).unwrap_or_default();
        version.storage = storage_of(&new_blob);
        let key = facts.key.clone();
        let (place, has_older) = self.place_for(&bucket, &key, blob.id, self.options.in_place).await?;
        let extents = vec![Extent { blob: new_blob.row.id, offset: 0, len: new_blob.row.plain_len }];
        let (id, extents_digest) = (version_id()?, digest_of(&extents));
        let row_place = RowPlace { key: &place, id: id.0, part: None, extents_digest };
        let modified_ms = blob.modified_ms.unwrap_or_else(now_ms);
        let size = new_blob.row.plain_len;
        let commit = PutCommit {
            bucket: bucket.row.id,
            key: place.clone(),
            id,
            size,
            facts: bucket.seal_facts(row_place, to_json(&version)?)?,
            extents_digest,
            precondition: Precondition::Absent,
            new_blobs: vec![new_blob],
            extents,
            lock: VersionLock::default(),
            notices: Vec::new(),
            now_ms: modified_ms,
            epoch: blob.id.epoch(),
        };
        let named = bucket.row.versioning == Versioning::Enabled;
        record(&**self.sources.catalog, Mutation::Put { commit: Box::new(commit), modified_ms, named }).await?;
        let bucket = bucket.row.name.clone();
        self.report.versions.push(LostVersion { bucket, key, recovered_as: place, size, has_older });
        Ok(true)
    }

    /// Makes versions of parts whose upload the catalog does not know.
    async fn assemble_uploads(&mut self) -> Result<(), EngineError> {
        for ((upload, bucket, key), parts) in std::mem::take(&mut self.parts) {
            let count = parts.len() as u64;
            let row = self.sources.catalog.bucket(&bucket).await?.ok_or(EngineError::NoBucket)?;
            if self.sources.catalog.upload(row.id, &key, UploadId(upload.0)).await?.is_some() {
                self.report.stray_parts += count;
                continue;
            }
            let first = parts.first().map(|part| part.blob.id.to_string()).unwrap_or_default();
            match self.assemble(&bucket, &key, parts).await {
                Ok(()) => {}
                Err(error @ (EngineError::Integrity(_) | EngineError::Other(_))) => {
                    self.report.stray_parts += count;
                    self.report.unreadable.push((first, error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The parts by number: one that was uploaded again counts as it was sent last.
    fn newest_of(&mut self, parts: Vec<StrayPart>) -> BTreeMap<u32, StrayPart> {
        let mut newest: BTreeMap<u32, StrayPart> = BTreeMap::new();
        for part in parts {
            let age = |part: &StrayPart| (part.blob.id.epoch(), part.blob.modified_ms);
            match newest.get(&part.number) {
                Some(known) if age(known) >= age(&part) => self.report.stray_parts += 1,
                _ => drop(newest.insert(part.number, part)),
            }
        }
        newest
    }

    async fn assemble(&mut self, bucket: &str, key: &str, parts: Vec<StrayPart>) -> Result<(), EngineError> {
        let mut made = Vec::new();
        for (number, part) in self.newest_of(parts) {
            let layout = self.layout(&part.blob).await?;
            let handle = self.bucket_of(&part.blob, &layout).await?;
            let manifest = layout.manifest.as_ref().ok_or_else(|| other("its key is in no keyset"))?;
            let facts: PartFacts = serde_json::from_slice(&manifest.root.facts.facts).unwrap_or_default();
            let blob = self.row_of(&part.blob, &layout, &handle)?;
            made.push((number, blob, facts, handle));
        }
        let Some((.., handle)) = made.first() else { return Ok(()) };
        let handle = handle.clone();
        let upload = UploadId(random()?);
        // Always in quarantine: a part of a few bytes had no blob, so nobody can tell whether these
        // are all.
        let (place, has_older) = self.place_for(&handle, key, BlobId(upload.0), false).await?;
        let now = now_ms();
        let row = Upload {
            bucket: handle.row.id,
            key: place.clone(),
            id: upload,
            created_ms: now,
            owner: handle.row.owner.clone(),
            facts: Vec::new(),
            completed: None,
        };
        let etags: Vec<String> = made.iter().map(|(_, _, facts, _)| facts.etag.clone()).collect();
        let etag = (self.options.etag_of_parts)(&etags).ok_or_else(|| other("a part's manifest has no ETag"))?;
        let mut version = VersionFacts { etag, ..VersionFacts::default() };
        let catalog = &**self.sources.catalog;
        record(catalog, Mutation::CreateUpload { upload: Box::new(row) }).await?;
        let (mut extents, mut chosen, mut size) = (Vec::new(), Vec::new(), 0);
        for (number, blob, facts, _) in made {
            let extent = Extent { blob: blob.row.id, offset: 0, len: blob.row.plain_len };
            let epoch = BlobId(blob.row.id.0).epoch();
            let row_place =
                RowPlace { key: &place, id: upload.0, part: Some(number), extents_digest: digest_of(&[extent]) };
            let part = Part {
                number,
                id: random()?,
                size: extent.len,
                modified_ms: now,
                facts: handle.seal_facts(row_place, to_json(&facts)?)?,
                extents: vec![extent],
            };
            version.parts.push(PartSize { number, size: extent.len, checksum: None });
            version.storage.stored_bytes += blob.row.stored_len;
            (size, version.storage.form) = (size + extent.len, storage_of(&blob).form);
            chosen.push((number, part.id));
            extents.push(extent);
            let commit = PartCommit { bucket: handle.row.id, upload, part, new_blobs: vec![blob], epoch };
            record(catalog, Mutation::PutPart { commit: Box::new(commit) }).await?;
        }
        version.storage.reason = "recovered".into();
        let (id, extents_digest) = (version_id()?, digest_of(&extents));
        let row_place = RowPlace { key: &place, id: id.0, part: None, extents_digest };
        let commit = CompleteCommit {
            bucket: handle.row.id,
            key: place.clone(),
            upload,
            parts: chosen,
            parts_digest: [0; 32],
            id,
            size,
            facts: handle.seal_facts(row_place, to_json(&version)?)?,
            extents_digest,
            precondition: Precondition::Absent,
            lock: VersionLock::default(),
            notices: Vec::new(),
            now_ms: now,
            epoch: 0,
        };
        let named = handle.row.versioning == Versioning::Enabled;
        record(catalog, Mutation::Complete { commit: Box::new(commit), modified_ms: now, named }).await?;
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        self.report.versions.push(LostVersion { bucket, key, recovered_as: place, size, has_older });
        Ok(())
    }

    /// Where a recovered version goes, and whether its key has another one.
    async fn place_for(
        &self,
        bucket: &BucketHandle,
        key: &str,
        blob: BlobId,
        in_place: bool,
    ) -> Result<(String, bool), EngineError> {
        let catalog = self.sources.catalog;
        // A delete marker counts: what it hides does not come back by itself.
        let taken = async |key: &str| -> Result<bool, EngineError> {
            let current = catalog.current(bucket.row.id, key).await?.is_some();
            Ok(current || catalog.newest_marker(bucket.row.id, key).await?.is_some())
        };
        let has_older = taken(key).await?;
        if in_place && !has_older {
            return Ok((key.to_owned(), false));
        }
        let mut place = format!("{QUARANTINE}{key}");
        if place.len() > KEY_LEN_MAX || taken(&place).await? {
            place = format!("{QUARANTINE}{blob}");
        }
        Ok((place, has_older))
    }

    /// The bucket that a blob belongs to; made again when the catalog has lost it.
    async fn bucket_of(&self, blob: &Unknown, layout: &Layout) -> Result<BucketHandle, EngineError> {
        let catalog = &**self.sources.catalog;
        let manifest = layout.manifest.as_ref().ok_or_else(|| other("its key is in no keyset"))?;
        let found = self.keys.get(&layout.header.key_id);
        let name = found.map_or(manifest.root.facts.bucket.as_str(), |found| found.bucket_name.as_str());
        let row = match catalog.bucket(name).await? {
            Some(row) => row,
            None => self.make_bucket(name, blob, found).await?,
        };
        if let Some(found) = found
            && !catalog.keys(row.id).await?.iter().any(|key| key.id == found.wrapped.id)
        {
            let key = self.sources.keyring.wrapped(&found.key, row.id);
            record(catalog, Mutation::PutKey { key }).await?;
        }
        let settings: BucketSettings = serde_json::from_value(row.settings.clone())
            .map_err(|error| other(&format!("settings of bucket {}: {error}", row.name)))?;
        let key = found.map(|found| Opened::alone(found.key.clone()));
        if key.is_none() != (settings.encryption == Encryption::Off) {
            return Err(other("its bucket's encryption is another one now"));
        }
        Ok(BucketHandle::new(BucketState::recovered(row, settings, key)))
    }

    async fn make_bucket(&self, name: &str, blob: &Unknown, found: Option<&FoundKey>) -> Result<Bucket, EngineError> {
        if name.is_empty() {
            return Err(other("its manifest names no bucket"));
        }
        let catalog = &**self.sources.catalog;
        let config = self.sources.config;
        let buckets = catalog.buckets().await?;
        let reserved = self.keys.values().map(|found| found.bucket);
        let highest = buckets.iter().map(|bucket| bucket.id).chain(reserved).max().unwrap_or(BucketId(0));
        let id = match found {
            Some(found) if buckets.iter().all(|bucket| bucket.id != found.bucket) => found.bucket,
            _ => BucketId(highest.0 + 1),
        };
        let settings = BucketSettings {
            encryption: if found.is_some() { Encryption::Aes256 } else { Encryption::Off },
            backend: found.map_or(&blob.backend, |found| &found.backend).clone(),
            ..config.buckets.get(name).unwrap_or(&config.defaults).clone()
        };
        let settings = serde_json::to_value(settings).map_err(|error| EngineError::Other(error.to_string()))?;
        // The owner is not in any manifest: whoever administers the store is.
        let owner = buckets.first().map_or_else(|| "root".to_owned(), |bucket| bucket.owner.clone());
        let (name, versioning) = (name.to_owned(), Versioning::Off);
        let bucket = Bucket { id, name, owner, created_ms: now_ms(), settings, versioning, object_lock: false };
        record(catalog, Mutation::CreateBucket { bucket: bucket.clone() }).await?;
        Ok(bucket)
    }

    /// A blob's row, as it was when the blob was written.
    fn row_of(&self, blob: &Unknown, layout: &Layout, bucket: &BucketHandle) -> Result<NewBlob, EngineError> {
        let manifest = layout.manifest.as_ref().ok_or_else(|| other("its key is in no keyset"))?;
        let mut forms = FormBytes::default();
        for segment in &manifest.segments {
            let (plain, stored) = (u64::from(segment.plain_len), u64::from(segment.stored_len));
            match segment.coding {
                Coding::Raw => forms.raw_plain += plain,
                Coding::Zstd | Coding::Planes => {
                    (forms.zstd_plain, forms.zstd_stored) = (forms.zstd_plain + plain, forms.zstd_stored + stored)
                }
                Coding::Delta | Coding::View | Coding::GappedView => {
                    (forms.delta_plain, forms.delta_stored) = (forms.delta_plain + plain, forms.delta_stored + stored);
                }
            }
        }
        let mut bases: Vec<BlobKey> = manifest.root.view.iter().map(|range| BlobKey(range.blob.0)).collect();
        bases.sort_unstable();
        bases.dedup();
        let row = BlobRow {
            id: BlobKey(blob.id.0),
            bucket: bucket.row.id,
            key_epoch: layout.header.key_epoch,
            backend: blob.backend.clone(),
            form: if bases.is_empty() { BlobForm::Whole } else { BlobForm::Delta },
            state: BlobState::Live,
            plain_len: manifest.root.plain_len,
            stored_len: blob.stored_len,
            root_offset: layout.root_place.offset,
            root_len: layout.root_place.len,
            root_tag: layout.root_place.tag,
            digest: manifest.root.facts.sha256.map(|sha256| bucket.content_digest(&sha256)),
            forms,
            inline: None,
            original: None,
            pack: false,
            compartment: None,
            copy: None,
        };
        Ok(NewBlob { row, bases, deferred: false, heat_bytes: 0 })
    }

    /// Header, root and tables of a blob; its content is not read.
    async fn layout(&self, blob: &Unknown) -> Result<Layout, EngineError> {
        let backend = self.sources.backends.get(&blob.backend).ok_or_else(|| other("its backend is not configured"))?;
        let name = BlobName::new(format!("blobs/{}", blob.id))?;
        let mut read: HashMap<Range<u64>, Vec<u8>> = HashMap::new();
        loop {
            let outcome = layout(
                blob.stored_len,
                Some(blob.id),
                |header| self.keys.get(&header.key_id).map(|found| found.key.clone()),
                |range| read.get(&range).cloned().ok_or(range),
            );
            let missing = match outcome {
                Ok(layout) => return Ok(layout),
                Err(InspectError::Format(error)) => return Err(error.into()),
                Err(InspectError::Read(missing)) => missing,
            };
            let bytes = fetch(&**backend, &name, missing.clone()).await?;
            read.insert(missing, bytes.into());
        }
    }
}

fn storage_of(blob: &NewBlob) -> StorageFacts {
    use super::super::Form;
    let forms = blob.row.forms;
    let (_, form) = [(forms.raw_plain, Form::Raw), (forms.zstd_plain, Form::Zstd), (forms.delta_plain, Form::Delta)]
        .into_iter()
        .max_by_key(|(bytes, _)| *bytes)
        .unwrap_or_default();
    StorageFacts { form, stored_bytes: blob.row.stored_len, bases: Vec::new(), reason: "recovered".into() }
}

fn other(why: &str) -> EngineError {
    EngineError::Other(why.to_owned())
}
