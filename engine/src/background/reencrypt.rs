//! Re-encryption: a bucket gets another domain key, and what was sealed before is sealed with that.
//! In a bucket that does not seal it is [`Encryptor`]'s: each object is encrypted by itself.
//!
//! ```text
//! new epoch: key beside the blobs, key in the catalog, new content is sealed with it
//! each version: its bases, its blobs (`Reencoder::reencode`), its facts by compare-and-swap
//! ```
//!
//! Every blob says in which epoch it was sealed, and every row names its key. So a bucket that is
//! half done reads as one that is not, and so does a store that is recovered then. What is left
//! behind dies by its tombstone. The old key goes when somebody shreds it
//! ([`Keys::shred`](crate::Keys::shred)).

use crate::{
    background::{
        convert::OrderedConverter,
        converter::round::Tallies,
        encrypt::Encryptor,
        jobs::{run::JobRun, spec::report},
        reencode::{Occasion, Reform, Reformed, Swap, Wish},
        remnants::Remnants,
    },
    bases::base::Avoided,
    blobs::piece::BLOB_PLAIN_LEN_MAX,
    bucket::BucketHandle,
    deployment::{keyring::epochs::KeyEpochs, veil::ContentKeys},
    error::EngineError,
    resources::pace::Pace,
    write::effort,
};
use catalog::{BlobForm, BlobKey, BlobRow, Version, VersionEntry, VersionRef};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::HashMap, sync::Arc, time::Duration};

/// How often a bucket is gone through for what was sealed in the epoch before meanwhile, by
/// uploads that had begun before.
const PASSES_MAX: u32 = 8;
/// How often a row that others change all the time is tried.
const TRIES_MAX: usize = 8;
/// Blobs that a pass remembers; what it forgets is only looked at once more.
const SETTLED_MAX: usize = 1 << 20;
/// How long the other processes of a deployment have to read a new key before it seals.
const SETTLING: Duration = Duration::from_secs(3);

/// What is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReencryptOrder {
    /// The bucket.
    bucket: String,
}

/// Where a run is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Position {
    /// The epoch that all is to be in; 0 before it is opened.
    epoch: u32,
    /// How often the bucket has been gone through.
    pass: u32,
    /// The last version that is done in this pass.
    after: Option<(String, VersionRef)>,
    /// What was sealed anew in this pass.
    changed: u64,
    report: ReencryptReport,
}

/// One pass through the bucket.
struct Pass {
    pace: Arc<Pace>,
    /// What was tried, and whether no version uses it any more: a pack is met once for each of its
    /// members, a base for each of its deltas.
    settled: HashMap<BlobKey, bool>,
}

/// What a re-encryption came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ReencryptReport {
    /// The epoch that new content is sealed in.
    epoch: u32,
    /// Versions looked at.
    objects: u64,
    /// Versions whose facts alone were sealed anew.
    facts: u64,
    /// Blobs that could not be sealed anew, or that only parts of open uploads use, and versions
    /// whose facts others change all the time.
    left: u64,
    /// Blobs that were.
    #[serde(flatten)]
    tallies: Tallies,
}

/// Seals anew, at the pace and with the means of conversions that are ordered.
pub(crate) struct Reencryptor {
    pub(crate) ordered: Arc<OrderedConverter>,
    /// Who encrypts the objects of buckets that do not seal.
    pub(crate) encryptor: Arc<Encryptor>,
    /// Whether this process has the store to itself.
    pub(crate) alone: bool,
}

impl Reencryptor {
    pub(crate) fn new(
        ordered: &Arc<OrderedConverter>,
        remnants: Arc<Remnants>,
        keys: Option<Arc<dyn ContentKeys>>,
        alone: bool,
    ) -> Self {
        let encryptor =
            Arc::new(Encryptor { ordered: ordered.clone(), keys, remnants, blob_len_max: BLOB_PLAIN_LEN_MAX });
        Self { ordered: ordered.clone(), encryptor, alone }
    }

    /// Refuses an order that nothing here can follow.
    ///
    /// # Errors
    /// [`EngineError::NoBucket`]; [`EngineError::JobRefused`] for a bucket that does not seal and
    /// whose default encrypts nothing.
    pub(crate) async fn admit(&self, order: &ReencryptOrder) -> Result<(), EngineError> {
        let bucket = self.bucket(&order.bucket).await?;
        if bucket.is_sealed() { Ok(()) } else { self.encryptor.admit(&bucket) }
    }

    /// The job `reencrypt`.
    pub(crate) async fn reencrypt(self: &Arc<Self>, run: &JobRun) -> Result<Value, EngineError> {
        let order: ReencryptOrder = run.parameters()?;
        match self.bucket(&order.bucket).await?.is_sealed() {
            true => report(self.seal_anew(run, order).await),
            false => report(self.encryptor.encrypt(run, &order.bucket).await),
        }
    }

    async fn seal_anew(self: &Arc<Self>, run: &JobRun, order: ReencryptOrder) -> Result<ReencryptReport, EngineError> {
        let mut position: Position = run.cursor()?.unwrap_or_default();
        if position.epoch == 0 {
            self.admit(&order).await?;
            position.epoch = self.open_epoch(&order.bucket).await?;
            position.report.epoch = position.epoch;
            run.checkpoint(&position).await?;
        }
        let total = self.ordered.versions_of(&order.bucket).await?;
        let pace = Arc::new(Pace::new(self.ordered.bytes_per_second_max));
        let mut round = Pass { pace, settled: HashMap::new() };
        loop {
            let bucket = self.bucket_sealing_in(&order.bucket, position.epoch).await?;
            let page = self.ordered.versions_behind(&bucket, "", position.after.clone().unzip()).await?;
            for entry in page.entries {
                let VersionEntry::Version { version, .. } = entry else { continue };
                run.check()?;
                if !version.marker {
                    self.reencrypt_version(&bucket, &version, &mut round, &mut position).await?;
                    position.report.objects += u64::from(position.pass == 0);
                }
                position.after = Some((version.key.clone(), version.reference()));
                run.progress(position.report.objects, total);
                run.note(position.report.tallies.in_words());
                run.checkpoint(&position).await?;
            }
            if page.next.is_some() {
                continue;
            }
            // What began before may have ended behind our back, sealed as before.
            if position.changed == 0 || position.pass + 1 >= PASSES_MAX {
                KeyEpochs::note_use(&bucket.row, &*self.ordered.catalog).await?;
                return Ok(position.report);
            }
            let pass = position.pass + 1;
            position = Position { pass, after: None, changed: 0, ..position };
            position.report.left = 0;
            round.settled.clear();
            run.checkpoint(&position).await?;
        }
    }

    async fn bucket(&self, name: &str) -> Result<BucketHandle, EngineError> {
        self.ordered.buckets.bucket(name).await?.ok_or(EngineError::NoBucket)
    }

    /// The bucket, which seals in this epoch: what is sealed in another one would be left behind.
    pub(crate) async fn bucket_sealing_in(&self, name: &str, epoch: u32) -> Result<BucketHandle, EngineError> {
        let mut bucket = self.bucket(name).await?;
        // A bucket that was made anew under the name has no such key.
        if bucket.key_epoch() != epoch && self.has_key(&bucket, epoch).await? {
            let sealing = bucket.key_epoch();
            tracing::warn!(bucket = name, epoch, sealing, "another domain key seals: the one of this run is to");
            self.ordered.keyring.seal_in(&bucket.row, epoch, &*self.ordered.catalog).await?;
            bucket = self.bucket(name).await?;
        }
        match bucket.key_epoch() {
            now if now == epoch => Ok(bucket),
            now => Err(EngineError::JobRefused(format!(
                "reencrypt: bucket {name} is sealed with key {now} and no longer with key {epoch}. Run \
                 `deltaweir keys reencrypt {name}` again"
            ))),
        }
    }

    async fn has_key(&self, bucket: &BucketHandle, epoch: u32) -> Result<bool, EngineError> {
        Ok(self.ordered.catalog.keys(bucket.row.id).await?.iter().any(|key| key.epoch == epoch))
    }

    /// Opens another epoch of a bucket, and lets it seal once every process can read it.
    async fn open_epoch(&self, name: &str) -> Result<u32, EngineError> {
        let bucket = self.bucket(name).await?;
        let epoch = self.ordered.keyring.open_epoch(&bucket.row, &*self.ordered.catalog, &self.ordered.blobs).await?;
        if !self.alone {
            tokio::time::sleep(SETTLING).await;
        }
        self.ordered.keyring.seal_in(&bucket.row, epoch, &*self.ordered.catalog).await?;
        tracing::info!(bucket = name, epoch, "a new domain key seals what is written from now on");
        Ok(epoch)
    }

    async fn reencrypt_version(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        version: &Version,
        round: &mut Pass,
        position: &mut Position,
    ) -> Result<(), EngineError> {
        let found = self.ordered.catalog.version(bucket.row.id, &version.key, version.id).await?;
        let Some(content) = found else { return Ok(()) };
        for row in content.blobs.iter().filter(|row| is_before(bucket, row)) {
            if row.form == BlobForm::Delta {
                // Its bases first: then it can stay the delta that it is.
                let bases = self.ordered.catalog.bases_of(row.id).await?;
                for base in self.ordered.catalog.blobs(&bases).await?.iter().filter(|base| is_before(bucket, base)) {
                    if !round.settled.contains_key(&base.id) {
                        self.reencrypt_blob(bucket, base, round, position).await?;
                    }
                }
            }
            // What failed is not tried again for the next version of it; what was moved and is in
            // use again is.
            if round.settled.get(&row.id) != Some(&false) && !self.reencrypt_blob(bucket, row, round, position).await? {
                position.report.left += 1;
            }
        }
        if !self.reseal(bucket, version, position).await? {
            tracing::warn!(
                bucket = bucket.row.name,
                "the facts of a version were never at rest and are sealed as before"
            );
            position.report.left += 1;
        }
        Ok(())
    }

    /// True when no version uses the blob any more.
    async fn reencrypt_blob(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        row: &BlobRow,
        round: &mut Pass,
        position: &mut Position,
    ) -> Result<bool, EngineError> {
        if !self.ordered.converter.allowance.has_room(bucket, row.plain_len) {
            return Err(EngineError::Full);
        }
        let reform = Reform {
            occasion: Occasion::Reencrypt,
            wish: Wish::Kept,
            effort: effort::in_background(bucket.settings.effort, false),
            pace: round.pace.clone(),
            regardless: true,
            avoid: Avoided::default(),
        };
        let outcome =
            self.ordered.converter.reencode_counted(bucket, row, &reform, &mut position.report.tallies).await?;
        position.changed += u64::from(matches!(outcome, Some(Reformed::Moved(_))));
        let is_done = matches!(outcome, Some(Reformed::Moved(_) | Reformed::Unused));
        if round.settled.len() < SETTLED_MAX {
            round.settled.insert(row.id, is_done);
        }
        Ok(is_done)
    }

    /// Seals a version's facts anew that are sealed with a key of before: those of versions without
    /// blobs, or whose blobs others had moved. False when others change them all the time.
    async fn reseal(
        &self,
        bucket: &BucketHandle,
        version: &Version,
        position: &mut Position,
    ) -> Result<bool, EngineError> {
        for _ in 0..TRIES_MAX {
            let found = self.ordered.catalog.version(bucket.row.id, &version.key, version.id).await?;
            let Some(content) = found.filter(|found| bucket.is_sealed_before(&found.version.facts)) else {
                return Ok(true);
            };
            let facts = self.ordered.converter.reencoder.read.open_facts(bucket, &content.version)?;
            let extents = content.extents.clone();
            if let Swap::Done =
                self.ordered.converter.reencoder.rewrite(bucket, content, extents, Vec::new(), &facts).await?
            {
                position.report.facts += 1;
                position.changed += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a blob is sealed in an epoch before the one that seals.
fn is_before(bucket: &BucketHandle, row: &BlobRow) -> bool {
    row.original.is_none() && row.key_epoch != bucket.key_epoch()
}
