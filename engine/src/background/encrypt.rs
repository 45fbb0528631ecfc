//! Encryption in place: objects of a bucket that does not seal get the encryption that its default
//! gives to new ones (docs/decisions/0079-objects-encrypted-in-place.md).
//!
//! ```text
//! a version's content -> read, verified -> stage under a veil -> blob durable -> read back, verified
//!     -> one rewrite of its extents and facts -> the old blobs die by their tombstones
//! ```
//!
//! The unit is the version: its facts keep the salts, so extents and facts change together, by
//! compare-and-swap (E20). Whenever a run ends, each version is plain or encrypted as a whole. What
//! a client sees of it stays, but for the headers that tell of the encryption.

use crate::{
    background::{
        convert::OrderedConverter,
        jobs::run::JobRun,
        reencode::{Occasion, Reencoder, Swap},
        remnants::Remnants,
    },
    bases::plan::{self, BaseOutcome},
    bucket::{BucketHandle, compartment::compartment_of},
    deployment::veil::{ContentKey, ContentKeys, Veil},
    error::{EngineError, StoreError},
    facts::{ObjectEncryption, PartFacts, StorageFacts, Stretch, VersionFacts, to_json},
    read::object::OpenObject,
    resources::pace::Pace,
    write::{
        effort::{self, Trying},
        stage::{
            BodyDigest, StagedBody,
            encoding::{Manner, Search, Target},
        },
    },
};
use catalog::{Content, Extent, NewBlob, UploadsQuery, Version, VersionEntry, VersionRef};
use crypto::{Digest, Sha256};
use object_format::ObjectFacts;
use serde::{Deserialize, Serialize};
use std::{ops::Range, sync::Arc};

/// Uploads of one page.
const UPLOADS_AT_ONCE: usize = 1000;
/// How often a bucket is gone through for what uploads completed meanwhile that had begun before.
const PASSES_MAX: u32 = 8;
/// How often a version that others change all the time is tried.
const TRIES_MAX: usize = 8;

/// Where a run is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct EncryptCursor {
    /// How often the bucket has been gone through.
    pass: u32,
    /// The last version that is done in this pass.
    after: Option<(String, VersionRef)>,
    /// Versions that were encrypted in this pass.
    changed: u64,
    report: EncryptReport,
}

/// What encryption in place came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EncryptReport {
    /// Versions looked at.
    objects: u64,
    /// Those that were encrypted.
    encrypted: u64,
    /// Their bytes.
    encrypted_bytes: u64,
    /// Those that had an encryption of their own before.
    already: u64,
    /// Those left because their content is adopted: it lies in no blob of ours.
    adopted: u64,
    /// Those left because they could not be read, or others change them all the time.
    left: u64,
    /// Open uploads that began before the default: what they complete is plain.
    uploads: u64,
}

/// What became of one version.
enum Encrypted {
    /// It is encrypted now.
    Now(u64),
    /// It was before.
    Already,
    /// Its content is adopted.
    Adopted,
    /// It was deleted meanwhile.
    Gone,
    /// Others change it all the time.
    Restless,
}

/// One run's means.
struct Work<'a> {
    run: &'a JobRun,
    pace: Arc<Pace>,
}

/// A version's content under its veil, in blobs that no version names yet.
#[derive(Default)]
struct Veiled {
    encryption: ObjectEncryption,
    blobs: Vec<(NewBlob, StorageFacts)>,
}

/// A range of a version's content that becomes one blob.
struct Run {
    range: Range<u64>,
    veil: Arc<dyn Veil>,
    object: ObjectFacts,
}

/// SHA-256 of plain text, which what is stored under a veil does not keep.
#[derive(Default)]
struct PlainDigest(Sha256);

impl BodyDigest for PlainDigest {
    type Output = [u8; 32];

    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self) -> ([u8; 32], Option<[u8; 32]>) {
        (self.0.finalize().into(), None)
    }
}

/// Encrypts what is plain, at the pace and with the means of conversions that are ordered.
pub(crate) struct Encryptor {
    pub(crate) ordered: Arc<OrderedConverter>,
    /// Who knows the keys; `None`: nobody in this process.
    pub(crate) keys: Option<Arc<dyn ContentKeys>>,
    pub(crate) remnants: Arc<Remnants>,
    /// Most bytes of one blob.
    pub(crate) blob_len_max: u64,
}

impl Encryptor {
    /// Refuses a bucket whose default encrypts nothing.
    ///
    /// # Errors
    /// [`EngineError::JobRefused`]; [`EngineError::ProviderSilent`].
    pub(crate) fn admit(&self, bucket: &BucketHandle) -> Result<(), EngineError> {
        self.key_for(bucket).map(drop)
    }

    /// A key for one more object of a bucket.
    fn key_for(&self, bucket: &BucketHandle) -> Result<Box<dyn ContentKey>, EngineError> {
        let buckets = &self.ordered.buckets;
        let key = match &self.keys {
            Some(keys) => keys.by_default(&bucket.settings.configurations, &|name| buckets.object_key(name))?,
            None => None,
        };
        key.ok_or_else(|| {
            EngineError::JobRefused(format!(
                "reencrypt: bucket {} is not encrypted and has no default encryption. Set one with PutBucketEncryption, \
                 then run this again: it encrypts each object by itself. To keep deltas, copy the objects into a bucket \
                 with encryption = \"aes256\"",
                bucket.row.name
            ))
        })
    }

    fn reencoder(&self) -> &Arc<Reencoder> {
        &self.ordered.converter.reencoder
    }

    /// The job `reencrypt` of a bucket that does not seal.
    pub(crate) async fn encrypt(self: &Arc<Self>, run: &JobRun, name: &str) -> Result<EncryptReport, EngineError> {
        let mut cursor: EncryptCursor = run.cursor()?.unwrap_or_default();
        let total = self.ordered.versions_of(name).await?;
        let work = Work { run, pace: Arc::new(Pace::new(self.ordered.bytes_per_second_max)) };
        loop {
            // Asked for anew for every page: its default may be another one by now.
            let bucket = self.ordered.buckets.bucket(name).await?.ok_or(EngineError::NoBucket)?;
            self.admit(&bucket)?;
            let page = self.ordered.versions_behind(&bucket, "", cursor.after.clone().unzip()).await?;
            for entry in page.entries {
                let VersionEntry::Version { version, .. } = entry else { continue };
                run.check()?;
                if !version.marker {
                    self.encrypt_counted(&bucket, &version, &work, &mut cursor).await?;
                    cursor.report.objects += u64::from(cursor.pass == 0);
                }
                cursor.after = Some((version.key.clone(), version.reference()));
                run.progress(cursor.report.objects, total);
                let EncryptReport { encrypted, encrypted_bytes, .. } = cursor.report;
                run.note(format!("{encrypted} objects of {encrypted_bytes} bytes are encrypted"));
                run.checkpoint(&cursor).await?;
            }
            if page.next.is_some() {
                continue;
            }
            // What began before may have ended behind our back, plain as before.
            if cursor.changed == 0 || cursor.pass + 1 >= PASSES_MAX {
                cursor.report.uploads = self.plain_uploads(&bucket).await?;
                self.remnants.overwrite_and_note().await?;
                return Ok(cursor.report);
            }
            cursor = EncryptCursor { pass: cursor.pass + 1, after: None, changed: 0, ..cursor };
            (cursor.report.left, cursor.report.adopted) = (0, 0);
            run.checkpoint(&cursor).await?;
        }
    }

    /// Open uploads without an encryption.
    async fn plain_uploads(&self, bucket: &BucketHandle) -> Result<u64, EngineError> {
        let mut plain = 0;
        let mut query = UploadsQuery {
            bucket: bucket.row.id,
            prefix: String::new(),
            delimiter: None,
            key_after: None,
            upload_after: None,
            limit: UPLOADS_AT_ONCE,
        };
        loop {
            let uploads = self.ordered.catalog.uploads(&query).await?.uploads;
            for upload in &uploads {
                plain += u64::from(self.ordered.uploads.open_upload_facts(bucket, upload)?.encryption.is_none());
            }
            let Some(last) = uploads.last().filter(|_| uploads.len() == UPLOADS_AT_ONCE) else { return Ok(plain) };
            (query.key_after, query.upload_after) = (Some(last.key.clone()), Some(last.id));
        }
    }

    /// [`Encryptor::encrypt_version`], with an end for what is wrong with this version alone. An
    /// error is trouble that any other would meet too.
    async fn encrypt_counted(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        version: &Version,
        work: &Work<'_>,
        cursor: &mut EncryptCursor,
    ) -> Result<(), EngineError> {
        let count = |result: &str| {
            let occasion = Occasion::Reencrypt.as_str();
            self.ordered.converter.metrics.convert_blobs_total.with_label_values(&[occasion, result]).inc();
        };
        let report = &mut cursor.report;
        match self.encrypt_version(bucket, version, work).await {
            Ok(Encrypted::Now(bytes)) => {
                count("converted");
                cursor.changed += 1;
                report.encrypted += 1;
                report.encrypted_bytes += bytes;
            }
            Ok(Encrypted::Already) => report.already += u64::from(cursor.pass == 0),
            Ok(Encrypted::Adopted) => report.adopted += 1,
            Ok(Encrypted::Gone) => count("unused"),
            Ok(Encrypted::Restless) => {
                tracing::warn!(bucket = bucket.row.name, "a version is changed all the time and stays as it was");
                report.left += 1;
            }
            Err(error @ (EngineError::Conflict | EngineError::Integrity(_) | EngineError::Other(_))) => {
                let there = self.ordered.catalog.version(bucket.row.id, &version.key, version.id).await?;
                if there.is_some() {
                    count("failed");
                    report.left += 1;
                    tracing::error!(%error, version = hex::encode(version.id.0), "a version could not be encrypted and stays as it was");
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn encrypt_version(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        version: &Version,
        work: &Work<'_>,
    ) -> Result<Encrypted, EngineError> {
        let read = &self.reencoder().read;
        // What is encrypted stays so.
        if read.open_facts(bucket, version)?.encryption.is_some() {
            return Ok(Encrypted::Already);
        }
        for _ in 0..TRIES_MAX {
            let found = self.ordered.catalog.version(bucket.row.id, &version.key, version.id).await?;
            let Some(content) = found else { return Ok(Encrypted::Gone) };
            let facts = read.open_facts(bucket, &content.version)?;
            if facts.encryption.is_some() {
                return Ok(Encrypted::Already);
            }
            if content.blobs.iter().any(|row| row.original.is_some()) {
                return Ok(Encrypted::Adopted);
            }
            if !self.ordered.converter.allowance.has_room(bucket, version.size) {
                return Err(EngineError::Full);
            }
            let key = self.key_for(bucket)?;
            let bucket = bucket.within(compartment_of(&content.blobs));
            let extents = content.extents.clone();
            let veiled = match self.veil(&bucket, content, facts, &*key, work).await {
                // A blob was purged meanwhile: the version is stored otherwise by now.
                Err(EngineError::Conflict) => continue,
                veiled => veiled?,
            };
            if self.swap(bucket, version.clone(), extents, veiled).await? {
                return Ok(Encrypted::Now(version.size));
            }
        }
        Ok(Encrypted::Restless)
    }

    /// Writes the content of a version under a veil and waits until it is durable. What was written
    /// of content that fails is forgotten.
    async fn veil(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        content: Content,
        facts: VersionFacts,
        key: &dyn ContentKey,
        work: &Work<'_>,
    ) -> Result<Veiled, EngineError> {
        let version = content.version.clone();
        let ranges = ranges_of(version.size, self.blob_len_max);
        let begun = ranges.iter().map(|range| {
            let (salt, veil) = key.begin_stretch()?;
            Ok((Stretch { len: range.end - range.start, salt }, veil))
        });
        let (stretches, veils): (Vec<Stretch>, Vec<Arc<dyn Veil>>) =
            begun.collect::<Result<Vec<_>, EngineError>>()?.into_iter().unzip();
        let encryption = ObjectEncryption { stretches, ..key.facts() };
        let mut veiled = Veiled { encryption, blobs: Vec::new() };
        let kept = VersionFacts {
            encryption: Some(veiled.encryption.clone()),
            storage: StorageFacts::default(),
            ..facts.clone()
        };
        let source = self.reencoder().read.open_content(bucket, content, facts)?;
        let runs = ranges.iter().zip(veils).enumerate().filter(|(_, (range, _))| !range.is_empty());
        for (index, (range, veil)) in runs {
            let whole = ranges.len() == 1;
            let part = (version.id.0, u32::try_from(index + 1).unwrap_or(u32::MAX));
            let facts = match whole {
                true => to_json(&kept)?,
                false => to_json(&PartFacts {
                    size: range.end - range.start,
                    salt: Some(veiled.encryption.stretches[index].salt.clone()),
                    ..PartFacts::default()
                })?,
            };
            let object = ObjectFacts {
                bucket: bucket.row.name.clone(),
                key: version.key.clone(),
                version_id: whole.then_some(version.id.0),
                part: (!whole).then_some(part),
                sha256: None,
                facts,
                sketch: Vec::new(),
            };
            match self.veil_run(bucket, &source, Run { range: range.clone(), veil, object }, work).await {
                Ok(blob) => veiled.blobs.push(blob),
                Err(error) => {
                    self.forget(&veiled).await;
                    return Err(error);
                }
            }
        }
        Ok(veiled)
    }

    /// One range of it, as one blob.
    async fn veil_run(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        source: &OpenObject,
        Run { range, veil, object }: Run,
        work: &Work<'_>,
    ) -> Result<(NewBlob, StorageFacts), EngineError> {
        let reencoder = self.reencoder().clone();
        let bucket = bucket.veiled(veil);
        let len = range.end - range.start;
        let body = work.run.paced(&work.pace, reencoder.read.read(source, range.clone()));
        let target = Target {
            key: object.key.clone(),
            start: range.start,
            part: None,
            len: Some(len),
            reach: plan::reach_of(Some(len)),
            proven: Arc::default(),
        };
        let trying = Trying::Fixed { effort: effort::in_background(bucket.settings.effort, true), later: false };
        // One segment at a time beside the one that is being read: clients come first.
        let search = Search::Ended(BaseOutcome::NotWanted);
        let manner = Manner { target, search, trying, jobs: 1, watch_streams: false };
        let staged = reencoder.stager.stage_with(&bucket, manner, body, PlainDigest::default()).await;
        let staged = staged.map_err(|error| match error {
            StoreError::Body(error) | StoreError::Engine(error) => error,
        })?;
        check_read(source, &range, &staged)?;
        let sha256 = staged.digests;
        // From here on it goes to its end even when the job is stopped.
        let writer = reencoder.writer.clone();
        writer
            .detached(async move {
                let finisher = &reencoder.publisher.finisher;
                let stored = finisher.finish_blob(&bucket, staged.content, &object, None).await?;
                let mut new_blobs = stored.new_blobs;
                let blob = new_blobs.pop().ok_or_else(|| EngineError::Other("a stage without a blob".into()))?;
                reencoder.verify_stored(&bucket, &blob.row, sha256).await?;
                Ok((blob, stored.storage))
            })
            .await
    }

    /// Lets the version name what is under the veil, if it still is what was read. Otherwise the
    /// new blobs are forgotten.
    async fn swap(
        self: &Arc<Self>,
        bucket: BucketHandle,
        version: Version,
        old: Vec<Extent>,
        veiled: Veiled,
    ) -> Result<bool, EngineError> {
        let encryptor = self.clone();
        let swap = async move {
            // Read anew, because its facts may be others by now.
            let content = encryptor.ordered.catalog.version(bucket.row.id, &version.key, version.id).await?;
            let reencoder = encryptor.reencoder();
            let swapped = match content.filter(|content| content.extents == old) {
                None => Swap::Changed,
                Some(content) => {
                    let mut facts = reencoder.read.open_facts(&bucket, &content.version)?;
                    match facts.encryption.is_some() {
                        true => Swap::Changed,
                        false => {
                            facts.encryption = Some(veiled.encryption.clone());
                            facts.storage = veiled.storage().unwrap_or(facts.storage);
                            let (extents, blobs) = (veiled.extents(), veiled.new_blobs());
                            reencoder.rewrite(&bucket, content, extents, blobs, &facts).await?
                        }
                    }
                }
            };
            let done = matches!(swapped, Swap::Done);
            if !done {
                encryptor.forget(&veiled).await;
            }
            Ok(done)
        };
        self.reencoder().writer.detached(swap).await
    }

    async fn forget(&self, veiled: &Veiled) {
        for (blob, _) in &veiled.blobs {
            self.reencoder().publisher.finisher.forget_blob(&blob.row).await;
        }
    }
}

impl Veiled {
    fn extents(&self) -> Vec<Extent> {
        let of = |(blob, _): &(NewBlob, StorageFacts)| Extent { blob: blob.row.id, offset: 0, len: blob.row.plain_len };
        self.blobs.iter().map(of).collect()
    }

    fn new_blobs(&self) -> Vec<NewBlob> {
        self.blobs.iter().map(|(blob, _)| blob.clone()).collect()
    }

    /// How the version is stored then; `None` without content, where nothing changes.
    fn storage(&self) -> Option<StorageFacts> {
        let stored_bytes = self.blobs.iter().map(|(_, storage)| storage.stored_bytes).sum();
        self.blobs.first().map(|(_, storage)| StorageFacts { stored_bytes, ..storage.clone() })
    }
}

/// That what was read is as long as the content, and is it where one blob held all of it.
fn check_read(source: &OpenObject, range: &Range<u64>, staged: &StagedBody<[u8; 32]>) -> Result<(), EngineError> {
    let content = &source.content;
    let whole = match (&content.extents[..], &content.blobs[..]) {
        ([extent], [row]) if extent.len == row.plain_len && *range == (0..row.plain_len) => row.digest,
        _ => None,
    };
    let other = whole.is_some_and(|digest| digest != staged.digests);
    if other || staged.plain_len != range.end - range.start {
        return Err(EngineError::Integrity("a version's content is not what it was stored as".into()));
    }
    Ok(())
}

/// Content cut into ranges of one blob each; one empty range where there is nothing.
fn ranges_of(size: u64, len_max: u64) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let mut at = 0;
    loop {
        let end = size.min(at + len_max);
        ranges.push(at..end);
        at = end;
        if at == size {
            return ranges;
        }
    }
}
