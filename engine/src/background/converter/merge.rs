//! Merging: a version of many small extents, as uploads in many parts and copies of ranges leave
//! it, becomes one of few blobs.
//!
//! ```text
//! extents of a group -> read, verified -> stage -> blob durable -> read back, verified ─┐
//! extents of the next ...                                                              ─┴─> one rewrite of the version -> old blobs die
//! ```
//!
//! What it saves is rows, requests of whoever reads, and ranges of whoever differs from it (I2). It
//! is not for space: content is left as it is where it would take noticeably more, or where a copy
//! or a delta needs the old blobs too, so that they would be stored beside the new one. Which
//! extents are put together is decided from numbers alone, in [`groups`]. Whole content stays
//! whole, and a delta a delta of the same bases where they are there.

mod digest;
mod extents;
mod groups;
pub(crate) mod memory;

use crate::{
    background::{
        converter::round::{Allowance, Round, Tally},
        reencode::{Occasion, Reencoder, Swap, payload_len},
    },
    bases::{
        base::{BaseObject, Bases},
        hook_queue::HookQueue,
        plan::{self, BaseOutcome, DELTA_LEN_MIN},
    },
    blobs::open::Blobs,
    bucket::{BucketHandle, Buckets, compartment::compartment_of, digest_of},
    config::Compression,
    deployment::writer::Writer,
    error::{EngineError, StoreError},
    facts::{PartFacts, StorageFacts, VersionFacts, to_json},
    metrics::Metrics,
    read::{heat::Heat, object::ReadPath},
    resources::{clock::now_ms, ids::version_id},
    write::{
        effort::{self, Trying},
        finish::{FinishedContent, HeldBases},
        past::Conversion,
        publish::Publisher,
        stage::{
            StagedBody, Stager,
            encoding::{Manner, Search, Target},
        },
    },
};
use catalog::{BlobForm, BlobHooks, BlobKey, BlobRow, Catalog, Content, Extent, NewBlob, Scattered, UnixMs, Version};
use digest::{GroupDigest, GroupDigests};
use extents::{content_len, numbers_of, rows_of, share_of, with_merged};
use memory::MergeMemory;
use object_format::ObjectFacts;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::{Arc, atomic::Ordering},
};
use tokio::time::Instant;

/// Versions looked at together.
const PAGE: usize = 64;
/// Younger versions are left for later: what is soon replaced or copied is not worth moving.
const AGE_MIN_MS: UnixMs = 10 * 60_000;
/// Rewrites of one version, about. Each writes all its extents to catalog and journal; what is not
/// rewritten when the process dies is done again.
const REWRITES: usize = 8;
/// The number of the last part there can be.
const PART_NUMBER_MAX: u64 = 10_000;

/// A group's content in its new blob, which no version names yet.
struct Merged {
    group: Range<usize>,
    extent: Extent,
    blob: NewBlob,
    storage: StorageFacts,
    hooks: Option<BlobHooks>,
    /// Stored bytes of the same content before.
    before: u64,
    /// What the blob differs from stays until the version names the blob.
    _held: HeldBases,
}

/// How the work on one group ended.
enum Grouped {
    /// It lies in a new blob.
    Done(Box<Merged>),
    /// It would take more than now.
    Longer,
}

/// A version on its way.
struct Merging {
    bucket: BucketHandle,
    /// As it was when it was looked at.
    content: Content,
    facts: VersionFacts,
    /// Its extents as they are now.
    extents: Vec<Extent>,
    /// Groups that it names by their new extents, ascending.
    done: Vec<(Range<usize>, Extent)>,
}

/// Merges versions of many small extents.
pub(crate) struct Merger {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) bases: Arc<Bases>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) stager: Arc<Stager>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) reencoder: Arc<Reencoder>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) hooks: Arc<HookQueue>,
    pub(crate) heat: Arc<Heat>,
    pub(crate) allowance: Arc<Allowance>,
    pub(crate) memory: MergeMemory,
    pub(crate) metrics: Arc<Metrics>,
}

impl Merger {
    /// Merges what came since the last look, oldest first.
    pub(super) async fn merge_scattered(self: &Arc<Self>, round: &mut Round<'_>) -> Result<(), EngineError> {
        if self.allowance.config.merge_extents == 0 {
            return Ok(());
        }
        let memory = &self.memory;
        let mut after = if round.now { 0 } else { memory.after() };
        if after == 0 {
            memory.began_ms.store(now_ms(), Ordering::Relaxed);
        }
        loop {
            memory.seen.store(after, Ordering::Relaxed);
            let page = self.catalog.scattered(after, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            for version in page {
                round.run.check()?;
                if version.modified_ms > self.mergeable_before(round.now) {
                    return Ok(());
                }
                if self.wants_merging(&version) {
                    if !self.allowance.may_work(round, i64::MAX).await {
                        return Ok(());
                    }
                    if !self.merge_counted(round, &version).await? {
                        return Ok(());
                    }
                }
                after = version.seq;
                memory.seen.store(after, Ordering::Relaxed);
            }
        }
    }

    /// 1 when something came since the last look that may want merging, else 0.
    pub(super) async fn backlog(&self) -> Result<u64, EngineError> {
        if self.allowance.config.merge_extents == 0 {
            return Ok(0);
        }
        let next = self.catalog.scattered(self.memory.after(), 1).await?;
        Ok(u64::from(next.first().is_some_and(|version| version.modified_ms <= self.mergeable_before(false))))
    }

    /// Versions from before this are merged.
    fn mergeable_before(&self, now: bool) -> UnixMs {
        if now || self.allowance.settling.is_on() { UnixMs::MAX } else { now_ms() - AGE_MIN_MS }
    }

    fn wants_merging(&self, version: &Scattered) -> bool {
        let extents_min = self.allowance.config.merge_extents.into();
        groups::is_scattered(version.extents, version.size, extents_min) && !self.memory.is_refused(version.id)
    }

    /// [`Merger::merge`], with an end for what is wrong with this version alone: the log has it. An
    /// error is trouble that any other would meet too.
    async fn merge_counted(self: &Arc<Self>, round: &mut Round<'_>, version: &Scattered) -> Result<bool, EngineError> {
        match self.merge(round, version).await {
            Err(error @ (EngineError::Conflict | EngineError::Integrity(_) | EngineError::Other(_))) => {
                let there = self.catalog.version(version.bucket, &version.key, version.id).await?;
                if there.is_none() {
                    // Deleted and collected while it was being read.
                    self.count_merge("unused");
                    return Ok(true);
                }
                self.count_merge("failed");
                round.tallies.failed += 1;
                self.memory.refuse(version.id);
                tracing::error!(%error, version = hex::encode(version.id.0), "the parts of a version could not be merged; it stays readable");
                Ok(true)
            }
            outcome => outcome,
        }
    }

    fn count_merge(&self, result: &str) {
        self.metrics.convert_blobs_total.with_label_values(&[Occasion::Merge.as_str(), result]).inc();
    }

    /// Gives a version fewer and longer extents. Whenever it ends early, the version is readable
    /// and what was rewritten stays so. False when it is to be looked at again soon: the work was
    /// interrupted, or the version changed meanwhile.
    async fn merge(self: &Arc<Self>, round: &mut Round<'_>, version: &Scattered) -> Result<bool, EngineError> {
        let Some(bucket) = self.buckets.bucket_by_id(version.bucket).await? else { return Ok(true) };
        let bound: HashSet<BlobKey> = self.catalog.bound_blobs(version.id).await?.into_iter().collect();
        let content = self.catalog.version(version.bucket, &version.key, version.id).await?;
        let Some(content) = content else { return Ok(true) };
        let bucket = bucket.within(compartment_of(&content.blobs));
        let (pieces, sources) = numbers_of(&content, &bound)?;
        let groups = groups::groups(&pieces, &sources);
        let rewrite_after = groups.len().div_ceil(REWRITES);
        let facts = self.read.open_facts(&bucket, &content.version)?;
        let mut merging = Merging { extents: content.extents.clone(), bucket, content, facts, done: Vec::new() };
        let mut waiting: Vec<Merged> = Vec::new();
        let mut outcome = Ok(true);
        for group in groups {
            let len = content_len(&merging.content.extents[group.clone()]);
            if round.run.check().is_err() || !self.allowance.may_work(round, i64::MAX).await {
                outcome = Ok(false);
                break;
            }
            if !self.allowance.has_room(&merging.bucket, len) {
                round.tallies.without_room += 1;
                break;
            }
            match self.merge_group(round, &merging, group).await {
                Ok(Grouped::Done(merged)) => waiting.push(*merged),
                Ok(Grouped::Longer) => {
                    self.count_merge("kept");
                    round.tallies.kept += 1;
                    self.memory.refuse(version.id);
                    break;
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            if waiting.len() >= rewrite_after
                && !self.rewrite_merged(round, &mut merging, std::mem::take(&mut waiting)).await?
            {
                return Ok(false);
            }
        }
        // What is durable is not thrown away, however the loop ended.
        let rewritten = self.rewrite_merged(round, &mut merging, waiting).await?;
        Ok(outcome? && rewritten)
    }

    /// Encodes the extents of a group as one blob and waits until that is durable.
    async fn merge_group(
        self: &Arc<Self>,
        round: &Round<'_>,
        merging: &Merging,
        group: Range<usize>,
    ) -> Result<Grouped, EngineError> {
        let Merging { bucket, content, .. } = merging;
        let extents = &content.extents[group.clone()];
        let rows = rows_of(content, extents);
        let before = extents.iter().filter_map(|extent| Some(share_of(rows.get(&extent.blob)?, extent.len))).sum();
        let start = content_len(&content.extents[..group.start]);
        for attempt in self.attempts(bucket, content, extents, start).await? {
            let staged = self.stage_group(round, merging, extents, attempt).await?;
            if !plan::is_as_short(before, payload_len(&staged.content.forms)) {
                continue;
            }
            let object = object_facts(merging, &group, start, &staged)?;
            let object = Conversion::of(Occasion::Merge.as_str(), rows.values().copied()).noted_in(object)?;
            let (merger, bucket) = (self.clone(), bucket.clone());
            let merged: Vec<BlobKey> = rows.keys().copied().collect();
            // From here on it goes to its end even when the job is stopped.
            let stored = self.writer.detached(async move {
                let sha256 = staged.hashed()?;
                let digest = Some(bucket.content_digest(&sha256));
                let stored = merger.publisher.finisher.finish_blob(&bucket, staged.content, &object, digest).await?;
                let FinishedContent { mut new_blobs, storage, hooks, held, .. } = stored;
                let mut blob = new_blobs.pop().ok_or_else(|| EngineError::Other("a stage without a blob".into()))?;
                if blob.row.form == BlobForm::Whole {
                    blob.heat_bytes = merger.catalog.heat_of(&merged).await?;
                }
                merger.reencoder.verify_stored(&bucket, &blob.row, sha256).await?;
                Ok((blob, storage, hooks, held))
            });
            let (blob, storage, hooks, held) = stored.await?;
            let extent = Extent { blob: blob.row.id, offset: 0, len: blob.row.plain_len };
            return Ok(Grouped::Done(Box::new(Merged { group, extent, blob, storage, hooks, before, _held: held })));
        }
        Ok(Grouped::Longer)
    }

    /// What a group's content may differ from, the first choice first: each with the place in the
    /// base where the group presumably begins.
    async fn attempts(
        &self,
        bucket: &BucketHandle,
        content: &Content,
        extents: &[Extent],
        start: u64,
    ) -> Result<Vec<(Search, u64)>, EngineError> {
        if bucket.settings.compression != Compression::Delta || content_len(extents) < DELTA_LEN_MIN {
            return Ok(vec![(Search::Ended(BaseOutcome::NotWanted), start)]);
        }
        let rows = rows_of(content, extents);
        if rows.values().all(|row| row.form == BlobForm::Whole) {
            return Ok(vec![(Search::Ended(BaseOutcome::None), start)]);
        }
        let mut attempts = Vec::new();
        if let Some((base, place)) = self.present_base(bucket, content, extents).await? {
            attempts.push((Search::Settled(vec![Arc::new(base)]), place));
        }
        // Whatever of the version is still to be merged must not become its own base: it would be
        // kept for that alone.
        let avoid = Arc::new(content.blobs.iter().map(|row| row.id).collect());
        attempts.push((Search::Wanted { avoid }, start));
        Ok(attempts)
    }

    /// What the deltas among some extents differ from, in the order in which they name it, and
    /// where in that the extents presumably begin.
    async fn present_base(
        &self,
        bucket: &BucketHandle,
        content: &Content,
        extents: &[Extent],
    ) -> Result<Option<(BaseObject, u64)>, EngineError> {
        let rows = rows_of(content, extents);
        let (mut ids, mut seen): (Vec<BlobKey>, HashSet<BlobKey>) = (Vec::new(), HashSet::new());
        let (mut before, mut first): (u64, Option<(u64, u64)>) = (0, None);
        let mut looked_at = HashSet::new();
        for extent in extents {
            let delta = rows.get(&extent.blob).filter(|row| row.form == BlobForm::Delta && looked_at.insert(row.id));
            if let Some(delta) = delta {
                let manifest = self.blobs.manifest(delta, bucket.key_of(delta)?.as_deref()).await?;
                for range in &manifest.root.view {
                    first.get_or_insert((before, range.offset));
                    let id = BlobKey(range.blob.0);
                    if seen.insert(id) {
                        ids.push(id);
                    }
                }
            }
            before += extent.len;
        }
        let found: HashMap<BlobKey, BlobRow> =
            self.catalog.blobs(&ids).await?.into_iter().map(|row| (row.id, row)).collect();
        let bases: Vec<BlobRow> = ids.iter().filter_map(|id| found.get(id).cloned()).collect();
        let base = self.bases.base_of(bucket, &content.version.key, bases);
        // The first delta begins where its base's first range lies, and the group so much before
        // it.
        Ok(base.zip(first).map(|(base, (before, offset))| (base, offset.saturating_sub(before))))
    }

    /// Reads a group's content through the ordinary verified path and encodes it.
    async fn stage_group(
        self: &Arc<Self>,
        round: &Round<'_>,
        Merging { bucket, content, .. }: &Merging,
        extents: &[Extent],
        (search, start): (Search, u64),
    ) -> Result<StagedBody<GroupDigests>, EngineError> {
        let rows = rows_of(content, extents);
        let len = content_len(extents);
        let part = Content {
            version: Version {
                id: version_id()?,
                size: len,
                extents_digest: digest_of(extents),
                facts: Vec::new(),
                ..content.version.clone()
            },
            extents: extents.to_vec(),
            blobs: rows.values().map(|row| (*row).clone()).collect(),
        };
        let source = self.read.open_content(bucket, part, VersionFacts::default())?;
        let body = round.run.paced(&round.pace, self.read.read(&source, 0..len));
        let cold = rows.keys().all(|blob| self.heat.reads(*blob, Instant::now()) < 1.0);
        let trying = Trying::Fixed { effort: effort::in_background(bucket.settings.effort, cold), later: false };
        let reach = plan::reach_of(Some(content.version.size));
        let target = Target {
            key: content.version.key.clone(),
            start,
            part: None,
            len: Some(len),
            reach,
            proven: Arc::default(),
        };
        // One segment at a time beside the one that is being read: clients come first.
        let manner = Manner { target, search, trying, jobs: 1, watch_streams: false };
        let staged = self.stager.stage_with(bucket, manner, body, GroupDigest::new(extents)).await;
        let staged = staged.map_err(|error| match error {
            StoreError::Body(error) | StoreError::Engine(error) => error,
        })?;
        // Each blob that was read to its end is what it was stored as; the segments of the others
        // were checked while they were read.
        let is_another = |(extent, sha256): (&Extent, &[u8; 32])| {
            let row = rows.get(&extent.blob).filter(|row| extent.len == row.plain_len);
            let digest = row.filter(|row| row.key_epoch == bucket.key_epoch()).and_then(|row| row.digest);
            digest.is_some_and(|digest| digest != bucket.content_digest(sha256))
        };
        let sha256s = &staged.digests.extents;
        if staged.plain_len != len || sha256s.len() != extents.len() || extents.iter().zip(sha256s).any(is_another) {
            return Err(EngineError::Integrity("a blob's content is not what it was stored as".into()));
        }
        Ok(staged)
    }

    /// Lets the version name new blobs in place of their groups. False when it is another one by
    /// now; the new blobs are gone then.
    async fn rewrite_merged(
        self: &Arc<Self>,
        round: &mut Round<'_>,
        merging: &mut Merging,
        merged: Vec<Merged>,
    ) -> Result<bool, EngineError> {
        if merged.is_empty() {
            return Ok(true);
        }
        let mut done = merging.done.clone();
        done.extend(merged.iter().map(|merged| (merged.group.clone(), merged.extent)));
        let new_extents = with_merged(&merging.content.extents, &done);
        let (merger, bucket, old, new) =
            (self.clone(), merging.bucket.clone(), merging.extents.clone(), new_extents.clone());
        let (version, ids) = (merging.content.version.clone(), done.iter().map(|(_, extent)| extent.blob).collect());
        let (swapped, merged) = self
            .writer
            .detached(async move {
                let swapped = merger.swap_merged(&bucket, &version, old, new, &ids, &merged).await?;
                if !swapped {
                    for merged in &merged {
                        merger.publisher.finisher.forget_blob(&merged.blob.row).await;
                    }
                }
                Ok((swapped, merged))
            })
            .await?;
        if !swapped {
            self.count_merge("unused");
            return Ok(false);
        }
        (merging.extents, merging.done) = (new_extents, done);
        let tally = round.tallies.converted.entry(Occasion::Merge.as_str().to_owned()).or_default();
        for Merged { group, blob, hooks, before, .. } in merged {
            hooks.into_iter().for_each(|hooks| self.hooks.tell(hooks));
            self.note_merged(tally, &group, &blob.row, before);
        }
        round.show();
        Ok(true)
    }

    fn note_merged(&self, tally: &mut Tally, group: &Range<usize>, row: &BlobRow, before: u64) {
        self.count_merge("converted");
        self.metrics.merged_extents_total.inc_by(group.len() as u64);
        let bytes = &self.metrics.convert_stored_bytes_total;
        bytes.with_label_values(&[Occasion::Merge.as_str(), "before"]).inc_by(before);
        bytes.with_label_values(&[Occasion::Merge.as_str(), "after"]).inc_by(row.stored_len);
        tally.blobs += 1;
        tally.plain_bytes += row.plain_len;
        tally.stored_before += before;
        tally.stored_after += row.stored_len;
    }

    /// One compare-and-swap from `old` to `new` extents (E20). `ours`: blobs that merging has made,
    /// these among them.
    async fn swap_merged(
        &self,
        bucket: &BucketHandle,
        version: &Version,
        old: Vec<Extent>,
        new: Vec<Extent>,
        ours: &HashSet<BlobKey>,
        merged: &[Merged],
    ) -> Result<bool, EngineError> {
        // Read anew, because its facts may be others by now.
        let content = self.catalog.version(version.bucket, &version.key, version.id).await?;
        let Some(content) = content.filter(|content| content.extents == old) else { return Ok(false) };
        let mut facts = self.read.open_facts(bucket, &content.version)?;
        facts.storage = storage_after(&facts.storage, &content, &new, ours, merged);
        let new_blobs = merged.iter().map(|merged| merged.blob.clone()).collect();
        Ok(matches!(self.reencoder.rewrite(bucket, content, new, new_blobs, &facts).await?, Swap::Done))
    }
}

/// What the new blob says of itself (E17): the version, when it holds all of it; else it is a part,
/// of an upload that is called like the version, and its number is its place in ten thousandths, so
/// that parts stay in order whenever they were made.
fn object_facts(
    Merging { bucket, content, facts, .. }: &Merging,
    group: &Range<usize>,
    start: u64,
    staged: &StagedBody<GroupDigests>,
) -> Result<ObjectFacts, EngineError> {
    let version = &content.version;
    let whole = group.len() == content.extents.len();
    let number = u128::from(start) * u128::from(PART_NUMBER_MAX - 1) / u128::from(version.size.max(1)) + 1;
    let part = (version.id.0, u32::try_from(number).unwrap_or(u32::MAX));
    let facts = match whole {
        true => to_json(&VersionFacts { storage: StorageFacts::default(), ..facts.clone() })?,
        false => to_json(&PartFacts {
            size: staged.plain_len,
            etag: hex::encode(staged.digests.md5),
            ..PartFacts::default()
        })?,
    };
    Ok(ObjectFacts {
        bucket: bucket.row.name.clone(),
        key: version.key.clone(),
        version_id: whole.then_some(version.id.0),
        part: (!whole).then_some(part),
        sha256: staged.sha256,
        facts,
        sketch: Vec::new(),
    })
}

/// How a version is stored with `new` extents: sums and the majority by bytes.
fn storage_after(
    before: &StorageFacts,
    content: &Content,
    new: &[Extent],
    ours: &HashSet<BlobKey>,
    merged: &[Merged],
) -> StorageFacts {
    let named: HashSet<BlobKey> = new.iter().map(|extent| extent.blob).collect();
    let (stay, go): (Vec<&BlobRow>, Vec<&BlobRow>) = content.blobs.iter().partition(|row| named.contains(&row.id));
    let rows: Vec<&BlobRow> = stay.iter().copied().chain(merged.iter().map(|merged| &merged.blob.row)).collect();
    let form = plan::majority(&rows.iter().map(|row| row.forms).sum());
    let stored_len = |rows: &[&BlobRow]| rows.iter().map(|row| row.stored_len).sum::<u64>();
    let new_rows: u64 = merged.iter().map(|merged| merged.blob.row.stored_len).sum();
    let stored_bytes = match stay.iter().all(|row| ours.contains(&row.id)) {
        true => stored_len(&rows),
        // What it shares with others it did not count before, and does not count now.
        false => before.stored_bytes.saturating_sub(stored_len(&go)) + new_rows,
    };
    let mut bases: Vec<String> = Vec::new();
    let old_bases = before.bases.iter().filter(|_| stay.iter().any(|row| row.form == BlobForm::Delta));
    for base in old_bases.chain(merged.iter().flat_map(|merged| &merged.storage.bases)) {
        if !bases.contains(base) {
            bases.push(base.clone());
        }
    }
    let reason = merged.iter().find(|merged| merged.storage.form == form).map(|merged| &merged.storage.reason);
    StorageFacts { form, stored_bytes, bases, reason: reason.unwrap_or(&before.reason).clone() }
}

#[cfg(test)]
mod tests;
