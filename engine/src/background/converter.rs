//! The background converter: encodes what was stored in a hurry, makes whole what is read often for
//! as long as it is, puts together what lies in many small blobs, lets go of bases that cost more
//! than they save.
//!
//! It works when cores are idle, one blob at a time, and makes way for clients between two blobs.
//! Nothing it does changes what a client can see but the `x-deltaweir-*` headers; each step is
//! [`Engine::reencode`], or for small blobs what `merge.rs` tells.

mod merge;
mod order;

use crate::{
    Engine,
    background::{
        jobs::JobRun,
        reencode::{Occasion, Reform, Reformed, Wish},
    },
    bases::plan::{self, StoredShare},
    bucket::BucketHandle,
    error::EngineError,
    resources::{clock::now_ms, disks, pace::Pace},
    write::effort,
};
use catalog::{BlobForm, BlobKey, BlobRow, BlobState, BucketId, Deferred, FormBytes, Heated, Seq};
use delta_codec::Effort;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// Blobs taken from the queue at a time.
const BATCH: usize = 64;
/// The newest blobs of the queue, among which the next are chosen.
const CHOSEN_AMONG: usize = 1024;
/// Looks at the codec pool that must find it idle before a blob is taken on.
const IDLE_LOOKS: usize = 3;
/// Between two such looks.
const IDLE_LOOK_EVERY: Duration = Duration::from_millis(20);
/// Deltas of one base that are looked at: as many as it may have.
const DELTAS_MAX: usize = 1_000;

/// What the converter remembers while the process lives.
#[derive(Default)]
pub(crate) struct ConverterMemory {
    merging: merge::MergeMemory,
    gains: order::Gains,
}

/// How a background run is asked for.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConverterParameters {
    /// Do not wait for idle cores.
    pub(crate) now: bool,
}

/// What was encoded anew, by why.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tallies {
    /// By occasion.
    converted: BTreeMap<String, Tally>,
    /// Blobs left as they were, because it would have gained nothing.
    kept: u64,
    /// Blobs that could not be read or written; the log has why.
    failed: u64,
    /// Blobs left for want of room in their backend's file system.
    without_room: u64,
}

/// Sums of one occasion.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    blobs: u64,
    plain_bytes: u64,
    stored_before: u64,
    stored_after: u64,
}

impl Tallies {
    /// For a progress line.
    pub(crate) fn in_words(&self) -> String {
        let (blobs, before, after) = self.converted.values().fold((0, 0, 0), |(blobs, before, after), tally| {
            (blobs + tally.blobs, before + tally.stored_before, after + tally.stored_after)
        });
        format!("{blobs} blobs, {before} bytes became {after}")
    }
}

/// One round of work.
struct Round<'a> {
    run: &'a JobRun,
    /// Do not wait for idle cores.
    now: bool,
    pace: Arc<Pace>,
    tallies: Tallies,
}

impl Engine {
    /// The job `converter`.
    pub(crate) async fn convert_once(self: &Arc<Self>, run: &JobRun) -> Result<Tallies, EngineError> {
        let ConverterParameters { now } = run.parameters()?;
        let pace = Arc::new(Pace::new(self.config.convert.bytes_per_second_max));
        let mut round = Round { run, now, pace, tallies: Tallies::default() };
        self.shrink_deferred(&mut round).await?;
        self.turn_cooled_back(&mut round).await?;
        self.make_hot_whole(&mut round).await?;
        // Behind the queue: what waits there is not merged before its turn.
        self.merge_scattered(&mut round).await?;
        self.rebase(&mut round).await?;
        self.show_deferred().await?;
        Ok(round.tallies)
    }

    /// How much waits for the converter: what [`Engine::settle`] waits for.
    pub(crate) async fn converter_backlog(&self) -> Result<u64, EngineError> {
        let (hot_reads, now) = (self.config.convert.hot_reads, Instant::now());
        let hot = (self.heat.hot(hot_reads, now).len() + self.heat.cooled(hot_reads, now)) as u64;
        let bases = self.looks.bases_are_due(self.catalog.last_seq().await?, self.is_settling());
        let merging = self.merging_backlog().await?;
        Ok(self.catalog.deferred_sum().await?.blobs + hot + merging + u64::from(bases))
    }

    /// Sets the gauges of the queue.
    pub(crate) async fn show_deferred(&self) -> Result<(), EngineError> {
        let sum = self.catalog.deferred_sum().await?;
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.deferred_blobs.set(gauge(sum.blobs));
        self.metrics.deferred_bytes.set(gauge(sum.plain_bytes));
        let age_ms = sum.oldest_ms.map_or(0, |oldest| (now_ms() - oldest).max(0));
        self.metrics.deferred_oldest_age_seconds.set(age_ms / 1000);
        self.metrics.heat_bytes.set(gauge(self.catalog.heat_sum().await?));
        Ok(())
    }

    /// Encodes what waits in the queue, in the order that `order.rs` tells.
    async fn shrink_deferred(self: &Arc<Self>, round: &mut Round<'_>) -> Result<(), EngineError> {
        let mut passed: HashSet<BlobKey> = HashSet::new();
        loop {
            let fresh = self.next_deferred(&passed).await?;
            if fresh.is_empty() {
                return Ok(());
            }
            passed.extend(fresh.iter().map(|waiting| waiting.row.id));
            for Deferred { row, since_ms } in fresh {
                round.run.check()?;
                if !self.may_work(round, since_ms).await {
                    return Ok(());
                }
                let Some(bucket) = self.bucket_by_id(row.bucket).await? else { continue };
                if !self.has_room(&bucket, row.plain_len) {
                    round.tallies.without_room += 1;
                    continue;
                }
                let cold = self.heat.reads(row.id, Instant::now()) < 1.0;
                let effort = effort::in_background(bucket.settings.effort, cold);
                let reform = round.reform(Occasion::Deferred, Wish::Best, effort);
                let worked = self.pool.worked();
                let outcome = self.reencode_counted(&bucket, &row, &reform, &mut round.tallies).await?;
                let saved_bytes = match &outcome {
                    Some(Reformed::Moved(new)) => row.stored_len.saturating_sub(new.stored_len),
                    _ => 0,
                };
                let worked = self.pool.worked().saturating_sub(worked);
                self.converter.gains.note(order::class_of(&row), saved_bytes, worked);
                // What failed stays in the queue and is tried again in the next round. A blob that
                // parts of open uploads still use is done with too.
                if outcome.is_some() {
                    self.catalog.undefer(row.id).await?;
                }
                round.show();
            }
        }
    }

    /// The next blobs of the queue that were not passed yet.
    async fn next_deferred(&self, passed: &HashSet<BlobKey>) -> Result<Vec<Deferred>, EngineError> {
        let now_ms = now_ms();
        let patience = i64::try_from(self.config.convert.defer_age_max.as_millis()).unwrap_or(i64::MAX);
        let overdue_ms = now_ms.saturating_sub(patience);
        let mut waiting = self.catalog.deferred(overdue_ms, passed.len() + BATCH).await?;
        waiting.extend(self.catalog.deferred(i64::MAX, passed.len() + CHOSEN_AMONG).await?);
        let mut seen = HashSet::new();
        waiting.retain(|waiting| !passed.contains(&waiting.row.id) && seen.insert(waiting.row.id));
        let of = |waiting: &Deferred| (order::class_of(&waiting.row), waiting.since_ms);
        self.converter.gains.order(&mut waiting, (now_ms, overdue_ms), of);
        waiting.truncate(BATCH);
        Ok(waiting)
    }

    /// Makes deltas whole that are read often, hottest first, as long as what deltas save pays for
    /// it ([`plan::heat_left`]). The catalog keeps the account, so that it outlives the process and
    /// every replica draws on the same.
    async fn make_hot_whole(self: &Arc<Self>, round: &mut Round<'_>) -> Result<(), EngineError> {
        let hot_reads = self.config.convert.hot_reads;
        if hot_reads == 0 {
            return Ok(());
        }
        let hot = self.heat.hot(hot_reads, Instant::now());
        if hot.is_empty() {
            return Ok(());
        }
        let forms: FormBytes = self.catalog.stats().await?.iter().map(|stats| stats.forms).sum();
        let saved = forms.delta_plain.saturating_sub(forms.delta_stored);
        let spent = self.catalog.heat_sum().await?;
        let mut left = plan::heat_left(saved, spent);
        for id in hot {
            round.run.check()?;
            if !self.may_work(round, i64::MAX).await {
                return Ok(());
            }
            let row = self.catalog.blobs(&[id]).await?.into_iter().next();
            let row = row.filter(|row| row.form == BlobForm::Delta && row.state == BlobState::Live);
            let bucket = match &row {
                Some(row) => self.bucket_by_id(row.bucket).await?,
                None => None,
            };
            let (Some(row), Some(bucket)) = (row, bucket) else {
                self.heat.forget(id);
                continue;
            };
            if plan::growth_max(&row) <= left && self.has_room(&bucket, row.plain_len) {
                let reform = round.reform(Occasion::Hot, Wish::Whole, Effort::Balanced);
                let outcome = self.reencode_counted(&bucket, &row, &reform, &mut round.tallies).await?;
                if let Some(Reformed::Moved(new)) = outcome {
                    left = left.saturating_sub(new.stored_len.saturating_sub(row.stored_len));
                    self.heat.has_cooled(new.id, hot_reads, Instant::now());
                }
                round.show();
            }
            // Counted anew from here: a blob that could not be made whole is not looked at again
            // until it has been read as often again.
            self.heat.forget(id);
        }
        Ok(())
    }

    /// Encodes anew as deltas what was made whole for its readers and has cooled down. Content that
    /// warms up again waits for its reads to add up first, so that nothing is encoded back and
    /// forth.
    async fn turn_cooled_back(self: &Arc<Self>, round: &mut Round<'_>) -> Result<(), EngineError> {
        let began = Instant::now();
        if !(round.now || self.is_settling() || self.looks.heated_is_due()) {
            return Ok(());
        }
        let mut after = None;
        loop {
            let heated = self.catalog.heated(after, BATCH).await?;
            let Some(last) = heated.last() else {
                self.looks.note_heated(began);
                return Ok(());
            };
            after = Some(last.row.id);
            for Heated { row, .. } in heated {
                if !self.heat.has_cooled(row.id, self.config.convert.hot_reads, Instant::now()) {
                    continue;
                }
                round.run.check()?;
                if !self.may_work(round, i64::MAX).await {
                    return Ok(());
                }
                let Some(bucket) = self.bucket_by_id(row.bucket).await? else { continue };
                if !self.has_room(&bucket, row.plain_len) {
                    round.tallies.without_room += 1;
                    continue;
                }
                let reform = round.reform(Occasion::Cooled, Wish::Best, Effort::Balanced);
                match self.reencode_counted(&bucket, &row, &reform, &mut round.tallies).await? {
                    Some(Reformed::Moved(_)) | None => {}
                    // Its base is gone, or it has become one: it is whole content like any other
                    // now.
                    Some(Reformed::Kept | Reformed::Unused) => drop(self.catalog.cool(row.id).await?),
                }
                self.heat.forget(row.id);
                round.show();
            }
        }
    }

    /// Lets go of bases that are kept only for deltas and cost more than a quarter of what these
    /// save: the newest of the deltas becomes whole, and the others differ from that.
    async fn rebase(self: &Arc<Self>, round: &mut Round<'_>) -> Result<(), EngineError> {
        let (seq, began) = (self.catalog.last_seq().await?, Instant::now());
        if !self.looks.bases_are_due(seq, round.now || self.is_settling()) {
            return Ok(());
        }
        let (mut after, mut burdens) = (None, 0);
        loop {
            let kept = self.catalog.kept_bases(after, BATCH).await?;
            let Some(last) = kept.last() else { break };
            after = Some(last.id);
            for base in kept {
                round.run.check()?;
                let deltas = self.catalog.deltas_of(base.id, DELTAS_MAX).await?;
                if !plan::is_a_burden(share(&base), deltas.iter().map(share)) {
                    continue;
                }
                if !self.may_work(round, i64::MAX).await {
                    return Ok(());
                }
                burdens += u64::from(self.rebase_deltas(round, deltas).await?);
            }
        }
        if burdens == 0 {
            self.looks.bases_are_in_order(seq, began);
        }
        Ok(())
    }

    /// True when something was encoded anew.
    async fn rebase_deltas(self: &Arc<Self>, round: &mut Round<'_>, deltas: Vec<BlobRow>) -> Result<bool, EngineError> {
        let Some(first) = deltas.first() else { return Ok(false) };
        let Some(bucket) = self.bucket_by_id(first.bucket).await? else { return Ok(false) };
        let mut used: Vec<(Seq, String, BlobRow)> = Vec::new();
        for row in deltas {
            for referrer in self.catalog.referrers(row.id, 1).await? {
                if let Some(content) = self.catalog.version(row.bucket, &referrer.key, referrer.id).await? {
                    used.push((content.version.seq, referrer.key, row.clone()));
                }
            }
        }
        used.sort_by_key(|(seq, ..)| std::cmp::Reverse(*seq));
        let mut wish = Wish::Whole;
        let mut changed = false;
        for (_, key, row) in used {
            round.run.check()?;
            if !self.has_room(&bucket, row.plain_len) {
                round.tallies.without_room += 1;
                continue;
            }
            let reform = round.reform(Occasion::Rebase, wish.clone(), Effort::Balanced);
            let outcome = self.reencode_counted(&bucket, &row, &reform, &mut round.tallies).await?;
            if let Some(Reformed::Moved(new)) = outcome {
                changed = true;
                if new.form == BlobForm::Whole {
                    wish = Wish::These(key, vec![*new]);
                }
            }
            round.show();
        }
        Ok(changed)
    }

    async fn is_live(&self, row: &BlobRow) -> Result<bool, EngineError> {
        let now = self.catalog.blobs(&[row.id]).await?;
        Ok(now.first().is_some_and(|row| row.state == BlobState::Live))
    }

    /// Whether a blob may be taken on: somebody waits for it, it has waited too long, or the codec
    /// pool is idle.
    async fn may_work(&self, round: &Round<'_>, since_ms: i64) -> bool {
        let patience = i64::try_from(self.config.convert.defer_age_max.as_millis()).unwrap_or(i64::MAX);
        if round.now || self.is_settling() || now_ms().saturating_sub(since_ms) > patience {
            return true;
        }
        for _ in 0..IDLE_LOOKS {
            if self.pool.busy() > 0 {
                return false;
            }
            tokio::time::sleep(IDLE_LOOK_EVERY).await;
        }
        true
    }

    /// Whether the file system of a bucket's backend has room for so many bytes more. Stores
    /// elsewhere say themselves when they are full.
    pub(crate) fn has_room(&self, bucket: &BucketHandle, bytes: u64) -> bool {
        let Some(path) = self.directories.get(&bucket.settings.backend) else { return true };
        match disks::free_bytes(path) {
            Some(free) => free >= bytes.saturating_add(self.config.convert.free_bytes_min),
            None => true,
        }
    }

    /// A bucket that is there, by its id in the catalog.
    pub(crate) async fn bucket_by_id(&self, id: BucketId) -> Result<Option<BucketHandle>, EngineError> {
        let rows = self.catalog.buckets().await?;
        match rows.into_iter().find(|row| row.id == id) {
            Some(row) => self.bucket(&row.name).await,
            None => Ok(None),
        }
    }

    /// [`Engine::reencode`], counted. `None` when this blob failed for a reason of its own, which
    /// is in the log; trouble that any other would meet too is an error.
    pub(crate) async fn reencode_counted(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        reform: &Reform,
        tallies: &mut Tallies,
    ) -> Result<Option<Reformed>, EngineError> {
        let occasion = reform.occasion.as_str();
        let count = |result: &str| self.metrics.convert_blobs_total.with_label_values(&[occasion, result]).inc();
        match self.reencode(bucket, old, reform).await {
            Ok(reformed) => {
                match &reformed {
                    Reformed::Moved(new) => {
                        count("converted");
                        let bytes = &self.metrics.convert_stored_bytes_total;
                        bytes.with_label_values(&[occasion, "before"]).inc_by(old.stored_len);
                        bytes.with_label_values(&[occasion, "after"]).inc_by(new.stored_len);
                        let tally = tallies.converted.entry(occasion.to_owned()).or_default();
                        tally.blobs += 1;
                        tally.plain_bytes += old.plain_len;
                        tally.stored_before += old.stored_len;
                        tally.stored_after += new.stored_len;
                    }
                    Reformed::Kept => {
                        count("kept");
                        tallies.kept += 1;
                    }
                    Reformed::Unused => count("unused"),
                }
                Ok(Some(reformed))
            }
            // Deleted and collected while it was being read.
            Err(EngineError::Conflict | EngineError::Integrity(_)) if !self.is_live(old).await? => {
                count("unused");
                Ok(Some(Reformed::Unused))
            }
            Err(error @ (EngineError::Conflict | EngineError::Integrity(_) | EngineError::Other(_))) => {
                count("failed");
                tallies.failed += 1;
                tracing::error!(%error, blob = hex::encode(old.id.0), occasion, "a blob could not be encoded anew; it is as it was");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Round<'_> {
    fn reform(&self, occasion: Occasion, wish: Wish, effort: Effort) -> Reform {
        Reform {
            occasion,
            wish,
            effort,
            pace: self.pace.clone(),
            regardless: !matches!(occasion, Occasion::Deferred | Occasion::Cooled),
        }
    }

    fn show(&self) {
        let done: u64 = self.tallies.converted.values().map(|tally| tally.blobs).sum();
        self.run.progress(done + self.tallies.kept, None);
        self.run.note(self.tallies.in_words());
    }
}

fn share(row: &BlobRow) -> StoredShare {
    StoredShare { plain: row.plain_len, stored: row.stored_len }
}

#[cfg(test)]
mod tests;
