//! The background converter: encodes what was stored in a hurry, makes whole what is read often for
//! as long as it is, puts together what lies in many small blobs, lets go of bases that cost more
//! than they save.
//!
//! It works when cores are idle, one blob at a time, and makes way for clients between two blobs.
//! Nothing it does changes what a client can see but the `x-deltaweir-*` headers; each step is
//! [`Reencoder::reencode`], or for small blobs what `merge.rs` tells.

pub(crate) mod merge;
mod order;
pub(crate) mod round;
mod starved;

use crate::{
    background::{
        converter::{
            merge::Merger,
            round::{Allowance, Round, Tallies},
        },
        jobs::run::JobRun,
        looks::Looks,
        reencode::{Occasion, Reencoder, Reform, Reformed, Wish},
    },
    bases::plan::{self, StoredShare},
    bucket::{BucketHandle, Buckets},
    error::EngineError,
    metrics::Metrics,
    read::heat::Heat,
    resources::{clock::now_ms, pace::Pace},
    write::effort,
};
use catalog::{BlobForm, BlobKey, BlobRow, BlobState, Catalog, Deferred, FormBytes, Heated, Seq};
use delta_codec::Effort;
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, sync::Arc};
use tokio::time::Instant;

/// Blobs taken from the queue at a time.
const BATCH: usize = 64;
/// The newest blobs of the queue, among which the next are chosen.
const CHOSEN_AMONG: usize = 1024;
/// Deltas of one base that are looked at: as many as it may have.
const DELTAS_MAX: usize = 1_000;

/// What the converter remembers while the process lives.
#[derive(Default)]
pub(crate) struct ConverterMemory {
    gains: order::Gains,
    starved: starved::Starved,
}

/// How a background run is asked for.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConverterParameters {
    /// Do not wait for idle cores.
    pub(crate) now: bool,
}

/// Encodes better, while cores are idle, what was stored in a hurry.
pub(crate) struct Converter {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) reencoder: Arc<Reencoder>,
    pub(crate) merger: Arc<Merger>,
    pub(crate) allowance: Arc<Allowance>,
    pub(crate) heat: Arc<Heat>,
    pub(crate) memory: ConverterMemory,
    pub(crate) looks: Arc<Looks>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Converter {
    /// The job `converter`.
    pub(crate) async fn convert_once(self: &Arc<Self>, run: &JobRun) -> Result<Tallies, EngineError> {
        let ConverterParameters { now } = run.parameters()?;
        let pace = Arc::new(Pace::new(self.allowance.config.bytes_per_second_max));
        let mut round = Round { run, now, pace, tallies: Tallies::default() };
        self.shrink_deferred(&mut round).await?;
        self.turn_cooled_back(&mut round).await?;
        self.make_hot_whole(&mut round).await?;
        // Behind the queue: what waits there is not merged before its turn.
        self.merger.merge_scattered(&mut round).await?;
        self.rebase(&mut round).await?;
        self.fill_between(&mut round).await?;
        self.show_deferred().await?;
        Ok(round.tallies)
    }

    /// How much waits for the converter: what [`Jobs::settle`](crate::Jobs::settle) waits for.
    pub(crate) async fn backlog(&self) -> Result<u64, EngineError> {
        let (hot_reads, now) = (self.allowance.config.hot_reads, Instant::now());
        let hot = (self.heat.hot(hot_reads, now).len() + self.heat.cooled(hot_reads, now)) as u64;
        let bases = self.looks.bases_are_due(self.catalog.last_seq().await?, self.allowance.settling.is_on());
        let merging = self.merger.backlog().await?;
        let between = self.reencoder.bases.ends().len() as u64;
        Ok(self.waiting(now).await? + hot + merging + u64::from(bases) + between)
    }

    /// Blobs of the queue, without those that found no memory lately and wait by themselves. Of
    /// these, some may have left the queue otherwise.
    async fn waiting(&self, now: Instant) -> Result<u64, EngineError> {
        let sum = self.catalog.deferred_sum().await?.blobs;
        let starved = &self.memory.starved;
        let resting_max = starved.resting(now);
        if resting_max == 0 {
            return Ok(sum);
        }
        // If none waits but those that rest, all of them are among the first.
        let first = self.catalog.deferred(i64::MAX, resting_max + 1).await?;
        let resting = first.iter().filter(|waiting| starved.rests(waiting.row.id, now)).count() as u64;
        Ok(sum.saturating_sub(resting))
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
            let mut undecided = self.undecided(&fresh).await?;
            for Deferred { row, since_ms } in fresh {
                undecided.remove(&row.id);
                round.run.check()?;
                if !round.now && self.memory.starved.rests(row.id, Instant::now()) {
                    continue;
                }
                if !self.allowance.may_work(round, since_ms).await {
                    return Ok(());
                }
                let Some(bucket) = self.buckets.bucket_by_id(row.bucket).await? else { continue };
                if !self.allowance.has_room(&bucket, row.plain_len) {
                    round.tallies.without_room += 1;
                    continue;
                }
                let cold = self.heat.reads(row.id, Instant::now()) < 1.0;
                let effort = effort::in_background(bucket.settings.effort, cold);
                let avoid = Arc::new(undecided.clone());
                let reform = Reform { avoid, ..round.reform(Occasion::Deferred, Wish::Best, effort) };
                let worked = self.allowance.pool.worked();
                let outcome = self.reencode_counted(&bucket, &row, &reform, &mut round.tallies).await?;
                let saved_bytes = match &outcome {
                    Some(Reformed::Moved(new)) => row.stored_len.saturating_sub(new.stored_len),
                    _ => 0,
                };
                let worked = self.allowance.pool.worked().saturating_sub(worked);
                self.memory.gains.note(order::class_of(&row), saved_bytes, worked);
                match outcome {
                    Some(Reformed::NoMemory) => self.memory.starved.note(row.id, Instant::now()),
                    // A blob that parts of open uploads still use is done with too.
                    Some(Reformed::Moved(_) | Reformed::Kept | Reformed::Unused) => {
                        self.memory.starved.forget(row.id);
                        self.catalog.undefer(row.id).await?;
                    }
                    // What failed stays in the queue and is tried again in the next round.
                    None => {}
                }
                round.show();
            }
        }
    }

    /// Whole content that waits and that nothing differs from yet. It may become a delta on its own
    /// turn, so nothing that comes before it is to differ from it: content that was uploaded side
    /// by side would differ in pairs.
    async fn undecided(&self, waiting: &[Deferred]) -> Result<HashSet<BlobKey>, EngineError> {
        let mut undecided = HashSet::new();
        for Deferred { row, .. } in waiting {
            if row.form == BlobForm::Whole && self.catalog.fan_in(row.id).await? == 0 {
                undecided.insert(row.id);
            }
        }
        Ok(undecided)
    }

    /// The next blobs of the queue that were not passed yet.
    async fn next_deferred(&self, passed: &HashSet<BlobKey>) -> Result<Vec<Deferred>, EngineError> {
        let now_ms = now_ms();
        let patience = i64::try_from(self.allowance.config.defer_age_max.as_millis()).unwrap_or(i64::MAX);
        let overdue_ms = now_ms.saturating_sub(patience);
        let mut waiting = self.catalog.deferred(overdue_ms, passed.len() + BATCH).await?;
        waiting.extend(self.catalog.deferred(i64::MAX, passed.len() + CHOSEN_AMONG).await?);
        let mut seen = HashSet::new();
        waiting.retain(|waiting| !passed.contains(&waiting.row.id) && seen.insert(waiting.row.id));
        let of = |waiting: &Deferred| (order::class_of(&waiting.row), waiting.since_ms);
        self.memory.gains.order(&mut waiting, (now_ms, overdue_ms), of);
        waiting.truncate(BATCH);
        Ok(waiting)
    }

    /// Makes deltas whole that are read often, hottest first, as long as what deltas save pays for
    /// it ([`plan::heat_left`]). The catalog keeps the account, so that it outlives the process and
    /// every replica draws on the same.
    async fn make_hot_whole(self: &Arc<Self>, round: &mut Round<'_>) -> Result<(), EngineError> {
        let hot_reads = self.allowance.config.hot_reads;
        if hot_reads == 0 {
            return Ok(());
        }
        let hot = self.heat.hot(hot_reads, Instant::now());
        if hot.is_empty() {
            return Ok(());
        }
        let (saved, spent) = (self.saved_by_deltas().await?, self.catalog.heat_sum().await?);
        let mut left = plan::heat_left(saved, spent);
        for id in hot {
            round.run.check()?;
            if !self.allowance.may_work(round, i64::MAX).await {
                return Ok(());
            }
            let row = self.catalog.blobs(&[id]).await?.into_iter().next();
            let row = row.filter(|row| row.form == BlobForm::Delta && row.state == BlobState::Live);
            let bucket = match &row {
                Some(row) => self.buckets.bucket_by_id(row.bucket).await?,
                None => None,
            };
            let (Some(row), Some(bucket)) = (row, bucket) else {
                self.heat.forget(id);
                continue;
            };
            if plan::growth_max(&row) <= left && self.allowance.has_room(&bucket, row.plain_len) {
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

    /// What deltas save, as last counted where counting takes long.
    async fn saved_by_deltas(&self) -> Result<u64, EngineError> {
        let (seq, began) = (self.catalog.last_seq().await?, Instant::now());
        if let Some(saved) = self.looks.saved(seq) {
            return Ok(saved);
        }
        let forms: FormBytes = self.catalog.stats().await?.iter().map(|stats| stats.forms).sum();
        let saved = forms.delta_plain.saturating_sub(forms.delta_stored);
        self.looks.note_saved(seq, began, saved);
        Ok(saved)
    }

    /// Encodes anew as deltas what was made whole for its readers and has cooled down. Content that
    /// warms up again waits for its reads to add up first, so that nothing is encoded back and
    /// forth.
    async fn turn_cooled_back(self: &Arc<Self>, round: &mut Round<'_>) -> Result<(), EngineError> {
        let began = Instant::now();
        if !(round.now || self.allowance.settling.is_on() || self.looks.heated_is_due()) {
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
                if !self.heat.has_cooled(row.id, self.allowance.config.hot_reads, Instant::now()) {
                    continue;
                }
                round.run.check()?;
                if !self.allowance.may_work(round, i64::MAX).await {
                    return Ok(());
                }
                let Some(bucket) = self.buckets.bucket_by_id(row.bucket).await? else { continue };
                if !self.allowance.has_room(&bucket, row.plain_len) {
                    round.tallies.without_room += 1;
                    continue;
                }
                let reform = round.reform(Occasion::Cooled, Wish::Best, Effort::Balanced);
                match self.reencode_counted(&bucket, &row, &reform, &mut round.tallies).await? {
                    Some(Reformed::Moved(_) | Reformed::NoMemory) | None => {}
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
        if !self.looks.bases_are_due(seq, round.now || self.allowance.settling.is_on()) {
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
                if !self.allowance.may_work(round, i64::MAX).await {
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
        let Some(bucket) = self.buckets.bucket_by_id(first.bucket).await? else { return Ok(false) };
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
            if !self.allowance.has_room(&bucket, row.plain_len) {
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

    /// Encodes anew what differs from a base that its series has drifted from: over that one and
    /// the one that came after it, most of it is found in one of the two. A delta changes its base
    /// for no single change, so what lies nearer to the later one may have to be shown that alone.
    async fn fill_between(self: &Arc<Self>, round: &mut Round<'_>) -> Result<(), EngineError> {
        let ends = self.reencoder.bases.ends();
        while let Some(mut between) = ends.next() {
            let both = self.catalog.blobs(&[between.before, between.after]).await?;
            let are_bases = both.iter().all(|row| row.form == BlobForm::Whole && row.state == BlobState::Live);
            let bucket = match both.first() {
                Some(row) if both.len() == 2 && are_bases => self.buckets.bucket_by_id(row.bucket).await?,
                _ => None,
            };
            let Some(bucket) = bucket else { continue };
            let after = self.catalog.referrers(between.after, 1).await?;
            let key = after.into_iter().next().map_or_else(String::new, |referrer| referrer.key);
            for row in self.catalog.deltas_of(between.before, DELTAS_MAX).await? {
                if let Err(stopped) = round.run.check() {
                    ends.tell(between);
                    return Err(stopped);
                }
                if between.done >= Some(row.id) || self.catalog.bases_of(row.id).await? != [between.before] {
                    continue;
                }
                if !self.allowance.may_work(round, i64::MAX).await {
                    ends.tell(between);
                    return Ok(());
                }
                if !self.allowance.has_room(&bucket, row.plain_len) {
                    round.tallies.without_room += 1;
                    continue;
                }
                let later = both.iter().filter(|base| base.id == between.after).cloned().collect();
                for wish in [Wish::Each(key.clone(), both.clone()), Wish::These(key.clone(), later)] {
                    let reform = round.reform(Occasion::Between, wish, Effort::Balanced);
                    let outcome = self.reencode_counted(&bucket, &row, &reform, &mut round.tallies).await?;
                    if !matches!(outcome, Some(Reformed::Kept | Reformed::NoMemory)) {
                        break;
                    }
                }
                between.done = Some(row.id);
                round.show();
            }
        }
        Ok(())
    }

    async fn is_live(&self, row: &BlobRow) -> Result<bool, EngineError> {
        let now = self.catalog.blobs(&[row.id]).await?;
        Ok(now.first().is_some_and(|row| row.state == BlobState::Live))
    }

    /// [`Reencoder::reencode`], counted. `None` when this blob failed for a reason of its own,
    /// which is in the log; trouble that any other would meet too is an error.
    pub(crate) async fn reencode_counted(
        self: &Arc<Self>,
        bucket: &BucketHandle,
        old: &BlobRow,
        reform: &Reform,
        tallies: &mut Tallies,
    ) -> Result<Option<Reformed>, EngineError> {
        let occasion = reform.occasion.as_str();
        let count = |result: &str| self.metrics.convert_blobs_total.with_label_values(&[occasion, result]).inc();
        match self.reencoder.reencode(bucket, old, reform).await {
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
                    Reformed::NoMemory => {
                        count("busy");
                        tallies.without_memory += 1;
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
            Err(
                error @ (EngineError::Conflict
                | EngineError::Integrity(_)
                | EngineError::NoKey(_)
                | EngineError::Other(_)),
            ) => {
                count("failed");
                tallies.failed += 1;
                tracing::error!(%error, blob = hex::encode(old.id.0), occasion, "a blob could not be re-encoded: unchanged");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn share(row: &BlobRow) -> StoredShare {
    StoredShare { plain: row.plain_len, stored: row.stored_len }
}

#[cfg(test)]
mod tests;
