//! The scrub: reads what is stored before a client has to, and puts what is damaged into
//! quarantine: first what a recovery needs ([`documents`]), then blobs, bases before others.
//!
//! ```text
//! catalog: live blobs, most needed first ─► verify ─► well: remembered, out of quarantine
//!                                              │
//!                                              └► damaged: read again ─► quarantine ─► every delta that needs it is verified at once
//! ```
//!
//! A base that has a second copy (E8) is verified under both names, and where one is damaged it is
//! made again from the other; nothing goes into quarantine that readers can have. Any other damaged
//! blob is never deleted: what of it can be read still is, and it stays until nothing references
//! it. It is no base and no duplicate's target any more, so the same bytes stored again are stored
//! anew. What cannot be asked for now is never taken for damage (I10).

pub(crate) mod affected;
mod documents;
pub(crate) mod pace;
pub(crate) mod verify;

use crate::{
    background::{
        copies::{Copied, Copier},
        jobs::run::JobRun,
        scrub::{
            affected::Quarantines,
            pace::ScrubPace,
            verify::{Damage, Verifier},
        },
    },
    blobs::{
        caches::CacheBytes,
        open::{Blobs, Reads},
        pins::Pins,
    },
    bucket::{BucketHandle, Buckets},
    config::ScrubConfig,
    deployment::keyring::Keyring,
    error::EngineError,
    metrics::Metrics,
    recovery::Safety,
    resources::{budget::MemoryBudget, clock::now_ms, pool::CodecPool},
};
use catalog::{BlobKey, BlobRow, BlobState, BucketId, Catalog, ToVerify, VerifyPlace};
use documents::{DocumentCounts, Documents};
use object_format::BlobId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Blobs taken from the catalog at a time: bases are counted anew for every page.
const PAGE: usize = 2000;
/// Blobs found well whose time is remembered together.
const NOTED_AT_ONCE: usize = 200;
/// Most deltas of one base.
const DEPENDENTS_MAX: usize = 1_000_000;
/// So many blobs in a row that cannot be asked for end the run: the backend is away.
const UNREACHABLE_IN_A_ROW_MAX: u64 = 50;
/// The caches of a scrub are those of a budget that is so much smaller.
const CACHES_PART: u64 = 4;
/// The setting that says where the next partial scrub begins, in percent of all blobs.
const NEXT_SETTING: &str = "scrub_next_percent";

/// What the job `scrub` is asked for. What is left out is as configured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ScrubParameters {
    /// How much, in percent of all blobs.
    percent: Option<f64>,
    /// Only blobs that were not found well for so long.
    older_than_s: u64,
    /// How fast; 0 is as fast as it goes.
    bytes_per_second: Option<u64>,
}

/// Where a run is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Cursor {
    place: Option<VerifyPlace>,
    share: Option<Share>,
    counts: Counts,
    /// What a recovery needs was looked at.
    #[serde(default)]
    recovery: Option<DocumentCounts>,
}

/// What a run counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Counts {
    /// Blobs found well.
    ok: u64,
    /// Blobs found damaged.
    damaged: u64,
    /// Blobs that could not be asked for.
    unreachable: u64,
    /// Blobs that came out of quarantine.
    released: u64,
    /// Blobs found damaged and written anew from their second copies.
    #[serde(default)]
    restored: u64,
    /// Blobs found damaged that could not be, and are read from their second copies.
    #[serde(default)]
    copy_only: u64,
    /// Second copies found damaged and replaced.
    #[serde(default)]
    copies_replaced: u64,
    /// Stored bytes read.
    bytes: u64,
}

/// Which blobs a partial scrub takes: those whose random bits fall into a window that wanders from
/// run to run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Share {
    /// Begin of the window, in percent.
    from: f64,
    /// Its width.
    percent: f64,
}

impl Share {
    fn takes(&self, blob: BlobKey) -> bool {
        let [.., a, b, c, d] = blob.0;
        let place = f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0) * 100.0;
        (place - self.from).rem_euclid(100.0) < self.percent
    }

    /// Where the next run begins.
    fn next(&self) -> f64 {
        (self.from + self.percent).rem_euclid(100.0)
    }
}

/// How one blob was found.
enum Found {
    Well,
    /// Damaged, and written anew from its second copy.
    Restored,
    /// Damaged, and readable all the same through its second copy: why it stays so, in words.
    CopyOnly(String),
    Damaged(Damage),
    /// It died meanwhile.
    Gone,
}

/// One run.
struct Scrub<'e> {
    scrubber: &'e Scrubber,
    run: &'e JobRun,
    blobs: Blobs,
    pace: ScrubPace,
    buckets: HashMap<BucketId, BucketHandle>,
    cursor: Cursor,
    /// Found well, not yet noted.
    well: Vec<BlobKey>,
    /// Deltas verified ahead of their turn, because a base of theirs was damaged or came out of
    /// quarantine.
    ahead: HashSet<BlobKey>,
    unreachable_in_a_row: u64,
    total: Option<u64>,
}

/// Verifies what is stored.
pub(crate) struct Scrubber {
    pub(crate) defaults: ScrubConfig,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) copier: Arc<Copier>,
    pub(crate) quarantines: Arc<Quarantines>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) hash_pool: Arc<CodecPool>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Scrubber {
    /// The job `scrub`: the report is what was counted, and everything in quarantine.
    pub(crate) async fn scrub_once(
        self: &Arc<Self>,
        run: &JobRun,
        parameters: ScrubParameters,
    ) -> Result<Value, EngineError> {
        let defaults = &self.defaults;
        let percent = parameters.percent.unwrap_or(defaults.percent);
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(EngineError::JobRefused(format!("scrub: {percent} percent of all blobs")));
        }
        let rate = parameters.bytes_per_second.or(defaults.bytes_per_second).filter(|rate| *rate > 0);
        let mut cursor: Cursor = run.cursor()?.unwrap_or_default();
        if cursor.share.is_none() && percent < 100.0 {
            let from = self.catalog.setting(NEXT_SETTING).await?.and_then(|next| next.as_f64()).unwrap_or(0.0);
            cursor.share = Some(Share { from, percent });
        }
        let pace = ScrubPace::new(rate, run.token().clone());
        let recovery = match cursor.recovery {
            Some(counts) => counts,
            None => {
                let documents = Documents {
                    catalog: &*self.catalog,
                    blobs: &self.blobs,
                    keyring: &self.keyring,
                    safety: &self.safety,
                    metrics: &self.metrics,
                    run,
                    pace: &pace,
                    counts: DocumentCounts::default(),
                };
                documents.all().await?
            }
        };
        cursor.recovery = Some(recovery);
        run.checkpoint(&cursor).await?;
        let cache_bytes = CacheBytes::of(self.budget.bytes_max() / CACHES_PART);
        let _caches = self.budget.acquire(cache_bytes.charged()).await?;
        let scrub = Scrub {
            scrubber: self,
            run,
            blobs: self.blobs.afresh(Reads::Either(self.catalog.clone()), cache_bytes),
            pace,
            buckets: HashMap::new(),
            cursor,
            well: Vec::new(),
            ahead: HashSet::new(),
            unreachable_in_a_row: 0,
            total: self.bytes_to_scrub(percent, parameters.older_than_s).await?,
        };
        let counts =
            scrub.all(now_ms() - i64::try_from(parameters.older_than_s).unwrap_or(0).saturating_mul(1000)).await?;
        let quarantine = self.quarantines.quarantine().await?;
        Ok(json!({ "counts": counts, "recovery": recovery, "quarantine": quarantine }))
    }

    /// How many bytes a run will read, where that can be told.
    async fn bytes_to_scrub(&self, percent: f64, older_than_s: u64) -> Result<Option<u64>, EngineError> {
        if older_than_s > 0 {
            return Ok(None);
        }
        let stats = self.catalog.stats().await?;
        let stored: u64 = stats.iter().map(|bucket| bucket.whole_bytes + bucket.delta_bytes).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an estimate"
        )]
        let bytes = (stored as f64 * percent / 100.0) as u64;
        Ok(Some(bytes))
    }
}

impl Scrub<'_> {
    /// Every blob that was not found well since `before_ms`.
    async fn all(mut self, before_ms: i64) -> Result<Counts, EngineError> {
        loop {
            let page = self.scrubber.catalog.to_verify(self.cursor.place, PAGE).await?;
            let Some(last) = page.last() else { break };
            let last = VerifyPlace { fan_in: last.fan_in, blob: last.row.id };
            for blob in page {
                self.run.check()?;
                let place = VerifyPlace { fan_in: blob.fan_in, blob: blob.row.id };
                let wanted =
                    blob.verified_ms <= before_ms && self.cursor.share.is_none_or(|share| share.takes(place.blob));
                if wanted && blob.row.original.is_none() && !self.ahead.contains(&place.blob) {
                    self.one(blob).await?;
                }
                self.cursor.place = Some(place);
                self.cursor.counts.bytes = self.pace.spent();
                self.run.progress(self.cursor.counts.bytes, self.total);
                if self.well.len() >= NOTED_AT_ONCE {
                    self.note_well().await?;
                }
                if wanted {
                    self.run.checkpoint(&self.cursor).await?;
                }
            }
            self.cursor.place = Some(last);
            self.run.checkpoint(&self.cursor).await?;
        }
        self.note_well().await?;
        if let Some(share) = self.cursor.share {
            self.scrubber.catalog.put_setting(NEXT_SETTING, json!(share.next())).await?;
        }
        Ok(self.cursor.counts)
    }

    async fn note_well(&mut self) -> Result<(), EngineError> {
        Ok(self.scrubber.catalog.note_verified(&std::mem::take(&mut self.well), now_ms()).await?)
    }

    /// A blob; when its state changed also the deltas that need it, and of a delta the bases that
    /// may be why.
    async fn one(&mut self, blob: ToVerify) -> Result<(), EngineError> {
        let ToVerify { row, quarantined, .. } = blob;
        if !self.settle(&row, quarantined).await? {
            return Ok(());
        }
        self.dependents(row.id).await?;
        // A partial scrub may meet the delta before its base.
        let bases = self.scrubber.catalog.bases_of(row.id).await?;
        for base in self.scrubber.catalog.blobs(&bases).await? {
            if self.settle_ahead(&base).await? {
                self.dependents(base.id).await?;
            }
        }
        Ok(())
    }

    async fn dependents(&mut self, base: BlobKey) -> Result<(), EngineError> {
        for delta in self.scrubber.catalog.deltas_of(base, DEPENDENTS_MAX).await? {
            self.settle_ahead(&delta).await?;
        }
        Ok(())
    }

    /// [`Scrub::settle`] before its turn, once.
    async fn settle_ahead(&mut self, row: &BlobRow) -> Result<bool, EngineError> {
        self.run.check()?;
        if !self.ahead.insert(row.id) {
            return Ok(false);
        }
        let quarantined = self.scrubber.catalog.is_quarantined(row.id).await?;
        self.settle(row, quarantined).await
    }

    /// Verifies a blob and puts it where it belongs; whether that is another place than before.
    async fn settle(&mut self, row: &BlobRow, quarantined: bool) -> Result<bool, EngineError> {
        let id = BlobId(row.id.0);
        let found = self.look(row).await;
        let count = |result: &str| self.scrubber.metrics.scrub_objects_total.with_label_values(&[result]).inc();
        match found {
            Ok(Found::Gone) => {
                count("gone");
                Ok(false)
            }
            Ok(found @ (Found::Well | Found::Restored | Found::CopyOnly(_))) => {
                self.unreachable_in_a_row = 0;
                match found {
                    Found::Restored => {
                        count("restored");
                        self.cursor.counts.restored += 1;
                        tracing::warn!(blob = %id, "a stored blob was damaged: it was rewritten from its second copy");
                    }
                    Found::CopyOnly(why) => {
                        count("copy_only");
                        self.cursor.counts.copy_only += 1;
                        tracing::error!(blob = %id, why, "a stored blob is damaged: only its second copy can be read");
                    }
                    _ => {
                        count("ok");
                        self.cursor.counts.ok += 1;
                    }
                }
                self.well.push(row.id);
                let released = quarantined && self.scrubber.catalog.end_quarantine(row.id).await?;
                self.cursor.counts.released += u64::from(released);
                if released {
                    tracing::info!(blob = %id, "a quarantined blob is good again");
                }
                Ok(released)
            }
            Ok(Found::Damaged(damage)) => {
                count("damaged");
                self.unreachable_in_a_row = 0;
                self.cursor.counts.damaged += 1;
                let what = damage.what.clone();
                let is_new = self.scrubber.catalog.quarantine(row.id, json!(damage), now_ms()).await?;
                if is_new {
                    tracing::error!(blob = %id, what, "a stored blob is damaged: it is in quarantine");
                }
                Ok(is_new)
            }
            Err(error) => {
                self.run.check()?;
                count("unreachable");
                tracing::warn!(%error, blob = %id, "a blob could not be verified now");
                self.cursor.counts.unreachable += 1;
                // A key that is missing is no trouble of the store.
                self.unreachable_in_a_row += u64::from(!matches!(error, EngineError::NoKey(_)));
                if self.unreachable_in_a_row >= UNREACHABLE_IN_A_ROW_MAX {
                    // Whatever the store's reason, a disk's EIO too: it is asked again later, from
                    // here on.
                    let why = format!("{UNREACHABLE_IN_A_ROW_MAX} blobs in a row could not be read: {error}");
                    return Err(EngineError::Unavailable(why));
                }
                Ok(false)
            }
        }
    }

    /// Reads a blob under every name it has.
    async fn look(&mut self, row: &BlobRow) -> Result<Found, EngineError> {
        let Some(_pin) = self.scrubber.pins.pin([BlobId(row.id.0)]) else { return Ok(Found::Gone) };
        let Some(bucket) = self.bucket(row.bucket).await? else { return Ok(Found::Gone) };
        // What the page said of its second copy may be out of date.
        let Some(row) = self.live(row.id).await? else { return Ok(Found::Gone) };
        let before = self.pace.spent();
        let found = match self.look_with(&bucket, &row).await {
            // Another process has opened an epoch since the bucket was asked for.
            Err(EngineError::NoKey(_)) => {
                self.buckets.remove(&row.bucket);
                let Some(bucket) = self.bucket(row.bucket).await? else { return Ok(Found::Gone) };
                self.look_with(&bucket, &row).await?
            }
            found => found?,
        };
        self.scrubber.metrics.scrub_bytes_total.inc_by(self.pace.spent() - before);
        match found {
            Found::Damaged(_) if self.live(row.id).await?.is_none() => Ok(Found::Gone),
            found => Ok(found),
        }
    }

    async fn look_with(&mut self, bucket: &BucketHandle, row: &BlobRow) -> Result<Found, EngineError> {
        match row.copy {
            None => Ok(self.verify(bucket, row, None).await?.map_or(Found::Well, Found::Damaged)),
            Some(_) => self.look_at_both(bucket, row).await,
        }
    }

    /// A blob with a second copy: each is verified alone, and the one that is damaged is made again
    /// from the other.
    async fn look_at_both(&mut self, bucket: &BucketHandle, row: &BlobRow) -> Result<Found, EngineError> {
        let blob = self.verify(bucket, row, Some(Reads::Blob)).await?;
        let copy = self.verify(bucket, row, Some(Reads::Copy)).await?;
        match (blob, copy) {
            (None, None) => Ok(Found::Well),
            (None, Some(damage)) => {
                let id = BlobId(row.id.0);
                tracing::warn!(blob = %id, what = damage.what, "the second copy of a blob is damaged: it is replaced");
                match self.scrubber.copier.copy_blob(bucket, row, &self.pace).await {
                    Ok(Copied::Made) => self.cursor.counts.copies_replaced += 1,
                    Ok(Copied::Overtaken) => {}
                    Ok(Copied::Damaged(what)) => return Err(EngineError::Unavailable(what)),
                    Err(error) => tracing::warn!(%error, blob = %id, "a second copy could not be replaced for now"),
                }
                Ok(Found::Well)
            }
            (Some(damage), None) => {
                let restored = match self.scrubber.copier.restore_blob(row).await {
                    Ok(()) => self.verify(bucket, row, Some(Reads::Blob)).await?.map(|damage| damage.what),
                    Err(error) => Some(error.to_string()),
                };
                Ok(match restored {
                    None => Found::Restored,
                    Some(why) => Found::CopyOnly(format!("{}; it could not be written anew: {why}", damage.what)),
                })
            }
            (Some(_), Some(damage)) => Ok(match self.verify(bucket, row, None).await? {
                Some(unreadable) => Found::Damaged(unreadable),
                // Readers put what they need together out of both.
                None => Found::CopyOnly(format!("its second copy is damaged elsewhere: {}", damage.what)),
            }),
        }
    }

    /// What is wrong with a blob as `reads` says, else wherever it lies; one that looks damaged is
    /// read a second time, from the backend, because damage may be on the way and not at rest.
    async fn verify(
        &self,
        bucket: &BucketHandle,
        row: &BlobRow,
        reads: Option<Reads>,
    ) -> Result<Option<Damage>, EngineError> {
        let alone = reads.map(|reads| self.scrubber.blobs.afresh(reads, CacheBytes::NONE));
        let blobs = alone.as_ref().unwrap_or(&self.blobs);
        let verifier = Verifier {
            catalog: &*self.scrubber.catalog,
            budget: &self.scrubber.budget,
            hash_pool: &self.scrubber.hash_pool,
            blobs,
            pace: &self.pace,
        };
        if verifier.verify(bucket, row).await?.is_none() {
            return Ok(None);
        }
        blobs.drop_caches();
        verifier.verify(bucket, row).await
    }

    async fn live(&self, blob: BlobKey) -> Result<Option<BlobRow>, EngineError> {
        let now = self.scrubber.catalog.blobs(&[blob]).await?.pop();
        Ok(now.filter(|row| row.state == BlobState::Live))
    }

    async fn bucket(&mut self, id: BucketId) -> Result<Option<BucketHandle>, EngineError> {
        if let Some(bucket) = self.buckets.get(&id) {
            return Ok(Some(bucket.clone()));
        }
        let bucket = self.scrubber.buckets.bucket_by_id(id).await?;
        if let Some(bucket) = &bucket {
            self.buckets.insert(id, bucket.clone());
        }
        Ok(bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_scrubs_meet_every_blob_once_in_a_round() {
        let blobs: Vec<BlobKey> = (0..500u32)
            .map(|n| {
                BlobKey(
                    [&[7; 12][..], &n.wrapping_mul(0x9e37_79b9).to_be_bytes()].concat().try_into().expect("16 bytes"),
                )
            })
            .collect();
        let mut met = vec![0; blobs.len()];
        let mut share = Share { from: 70.0, percent: 12.5 };
        for _ in 0..8 {
            for (times, blob) in met.iter_mut().zip(&blobs) {
                *times += usize::from(share.takes(*blob));
            }
            share.from = share.next();
        }
        assert_eq!(met, vec![1; blobs.len()]);
        assert!((share.from - 70.0).abs() < 1e-9);
    }
}
