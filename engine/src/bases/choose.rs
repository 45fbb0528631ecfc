//! Choosing what a region differs from: the key's previous version, the nearest names, and whatever
//! shares its hooks.
//!
//! ```text
//! names ──┐
//!         ├─ candidates ── sketches compared ── a trial where that leaves doubt ── bases ── windows (base.rs)
//! hooks ──┘
//! ```
//!
//! Nothing of a base is fetched before its sketch, which lies in its manifest, says that it may be
//! worth it. What is decided from which numbers stands in `plan.rs`.

use crate::{
    bases::{
        account::{CandidateAccount, ChoiceAccount, Source, permille},
        base::{Avoided, BaseObject, Bases, Placed, RegionOutcome},
        drift::Drift,
        key_order,
        moved::Moved,
        plan::{self, BaseOutcome, DELTA_LEN_MIN, Outlook, Prospect, Trial},
        proven::Proven,
        region::{self, Region},
        similar::{self, Head, REGION_LEN, RegionSketch, UNSKETCHED_LEN_MAX},
        text::is_in_text,
    },
    bucket::BucketHandle,
    error::EngineError,
};
use bytes::Bytes;
use catalog::{BlobForm, BlobKey, BlobRow, HookQuery, Resembling};
use delta_codec::Effort;
use object_format::BlobId;
use std::{collections::HashSet, sync::Arc};
use tokio::time::Instant;

/// Keys looked at on either side of the new one.
const NEIGHBOURS: usize = 48;
/// Candidates by name, the key's own previous version among them.
const NAMED_MAX: usize = 3;
/// Candidates whose sketches are compared.
const CANDIDATES_MAX: usize = 8;
/// Regions that share hooks: those of texts must not take the places of those of bytes.
const HOOKED_MAX: usize = 2 * CANDIDATES_MAX;
/// Blobs of one candidate whose sketches are looked at.
const BLOBS_PER_CANDIDATE: usize = 4;
/// Objects that one window is made from.
const BASES_MAX: usize = 4;
/// Another base joins when it has at least this share of the target's samples that the others have
/// not.
const JOINS_FROM: f64 = 0.08;
/// Most base bytes fetched for a trial.
const TRIAL_REACH: u64 = 16 << 20;

/// What a region differs from.
pub(crate) struct Choice {
    /// The bases, the best first; none when nothing is worth it.
    pub(crate) bases: Vec<Placed>,
    /// How the search ended.
    pub(crate) outcome: BaseOutcome,
    /// The bases that this content comes after, where its series has drifted from them.
    pub(crate) drifted_from: Vec<BlobKey>,
    /// Whether the streams of some object have content of it in their text.
    pub(crate) in_text: bool,
    /// The same for people.
    pub(crate) account: ChoiceAccount,
}

/// A region that looks for a base.
pub(crate) struct RegionTarget {
    /// Where it begins in its blob.
    pub(crate) offset: u64,
    /// Where it presumably begins in its object.
    pub(crate) position: u64,
    /// The part it belongs to, counted from one.
    pub(crate) part: Option<u32>,
    /// What it begins with.
    pub(crate) head: Arc<Head>,
    /// The same as bytes.
    pub(crate) first: Bytes,
    /// Bytes of it, as far as they are known.
    pub(crate) target_bytes: u64,
    /// Base bytes that are worth having for it.
    pub(crate) reach: u64,
    /// The upload's effort.
    pub(crate) effort: Effort,
    /// What must not become a base.
    pub(crate) avoid: Avoided,
    /// What has shown itself to be good for content around it.
    pub(crate) proven: Arc<Proven>,
    /// Where content before it was found.
    pub(crate) moved: Arc<Moved>,
}

impl RegionTarget {
    /// Where the same content may stand in an object that came before, the likeliest first: as far
    /// away as what stands before it, the same place, and the beginning of the part with the same
    /// number, because the last part of an upload may come before anybody knows how long the others
    /// are.
    fn places_in(&self, object: &BaseObject) -> Vec<u64> {
        let moved = self.moved.last().and_then(|found| object.position_of(found, self.position));
        let part = self.part.and_then(|number| object.start_of_part(number));
        moved.into_iter().chain([self.position]).chain(part.map(|start| start + self.offset)).collect()
    }
}

/// An object that shares hooks.
pub(crate) struct Hooked {
    /// The object.
    pub(crate) object: Arc<BaseObject>,
    /// Whether it shares some in the text of its streams.
    pub(crate) in_text: bool,
}

/// An object that may be a base.
#[derive(Clone)]
pub(crate) struct Candidate {
    object: Arc<BaseObject>,
    source: Source,
    /// Filled in for each region: the whole blobs behind it and what they resemble.
    wholes: Vec<Whole>,
    shift: i64,
    since: u64,
    share: Option<f64>,
    trial: Option<Trial>,
    /// Others by name that differ from the same bases.
    kin: Vec<Arc<BaseObject>>,
    /// Set when its series gets a new base.
    drifted_from: Vec<BlobKey>,
}

/// A whole blob behind a candidate.
#[derive(Clone)]
struct Whole {
    blob: BlobId,
    /// Where it begins in the candidate; `None` when a delta stands between.
    at: Option<u64>,
    regions: Arc<Vec<RegionSketch>>,
}

impl Candidate {
    fn new(object: BaseObject, source: Source) -> Self {
        Self {
            object: Arc::new(object),
            source,
            wholes: Vec::new(),
            shift: 0,
            since: 0,
            share: None,
            trial: None,
            kin: Vec::new(),
            drifted_from: Vec::new(),
        }
    }

    /// The object.
    pub(crate) fn object(&self) -> &Arc<BaseObject> {
        &self.object
    }

    /// How it was found.
    pub(crate) fn source(&self) -> Source {
        self.source
    }

    fn shares_a_blob_with(&self, other: &Self) -> bool {
        self.wholes.iter().any(|whole| other.has_blob(whole.blob))
    }

    fn has_blob(&self, blob: BlobId) -> bool {
        self.wholes.iter().any(|whole| whole.blob == blob)
    }

    fn has(&self, value: u64) -> bool {
        self.wholes.iter().flat_map(|whole| whole.regions.iter()).any(|region| region.has(value))
    }

    fn prospect(&self, wish: &RegionTarget) -> Prospect {
        Prospect {
            overlap: self.share,
            by_name: self.source != Source::Hooks,
            looks_random: wish.head.looks_random,
            fetch_bytes: self.object.size.min(wish.reach),
            target_bytes: wish.target_bytes,
        }
    }

    fn outlook(&self, wish: &RegionTarget) -> Outlook {
        plan::outlook(&self.prospect(wish))
    }

    /// Whether its trial was short enough.
    fn has_helped(&self) -> bool {
        self.trial.is_some_and(|trial| trial.helps(self.source != Source::Hooks))
    }

    fn placed(&self) -> Placed {
        Placed { object: self.object.clone(), shift: self.shift, since: self.since }
    }

    fn account(&self, chosen: bool) -> CandidateAccount {
        CandidateAccount {
            key: self.object.key.clone(),
            source: self.source,
            overlap_permille: self.share.map(permille),
            trial_permille: self.trial.and_then(|trial| trial.permille()),
            chosen,
        }
    }
}

impl Choice {
    /// Bases that were settled beforehand.
    pub(crate) fn settled(objects: &[Arc<BaseObject>]) -> Self {
        let account = ChoiceAccount { offset: 0, outcome: BaseOutcome::Tried, candidates: Vec::new() };
        let bases = objects.iter().map(|object| Placed { object: object.clone(), shift: 0, since: 0 }).collect();
        Self { bases, outcome: BaseOutcome::Tried, drifted_from: Vec::new(), in_text: false, account }
    }
}

impl Bases {
    /// What `key`'s name leads to: its own previous version, then the nearest names of its prefix.
    pub(crate) async fn named_candidates(
        &self,
        bucket: &BucketHandle,
        key: &str,
        avoid: &Avoided,
    ) -> Result<Vec<Candidate>, EngineError> {
        let id = bucket.row.id;
        let (before, after) = self.catalog.neighbours(id, key_order::prefix_of(key), key, NEIGHBOURS).await?;
        let ranked = key_order::rank(key, before.iter().chain(&after), NAMED_MAX);
        let mut candidates = Vec::new();
        let own = std::iter::once((key, Source::Version));
        for (name, source) in own.chain(ranked.into_iter().map(|name| (name, Source::Name))) {
            if candidates.len() == NAMED_MAX {
                break;
            }
            let Some(content) = self.catalog.content(id, name).await? else { continue };
            if content.version.size < DELTA_LEN_MIN || !bucket.may_be_base(&content.version) {
                continue;
            }
            candidates.extend(self.open_base(bucket, content, avoid)?.map(|base| Candidate::new(base, source)));
        }
        Ok(candidates)
    }

    /// The bases for a region, out of what its name led to and what its content leads to. Errors
    /// are for the log: encoding may give up (I7).
    pub(crate) async fn choose(
        &self,
        bucket: &BucketHandle,
        wish: &RegionTarget,
        named: &[Candidate],
    ) -> Result<Choice, EngineError> {
        tracing::trace!(target: "path", "choose()");
        let mut candidates: Vec<Candidate> = Vec::new();
        for candidate in named {
            let mut candidate = candidate.clone();
            let places = wish.places_in(&candidate.object);
            if readable(self.look_at(bucket, wish, &places, &mut candidate).await).is_none() {
                continue;
            }
            // Two deltas of one base stand for the same content.
            if let Some(other) = candidates.iter_mut().find(|other| other.shares_a_blob_with(&candidate)) {
                other.kin.push(candidate.object);
                continue;
            }
            candidates.push(candidate);
        }
        let in_text = self.add_hooked(bucket, wish, &mut candidates).await?;
        #[expect(clippy::cast_precision_loss, reason = "at most a dozen")]
        self.metrics.base_candidates.observe(candidates.len() as f64);
        candidates.sort_by(|a, b| plan::rank_of(b.share).total_cmp(&plan::rank_of(a.share)));
        let (chosen, outcome) = self.winners(bucket, wish, &mut candidates).await?;
        for index in &chosen {
            self.metrics.base_choices_total.with_label_values(&[candidates[*index].source.as_str()]).inc();
        }
        if chosen.is_empty() {
            self.metrics.base_choices_total.with_label_values(&["none"]).inc();
        }
        let told = candidates.iter().enumerate().map(|(index, candidate)| candidate.account(chosen.contains(&index)));
        Ok(Choice {
            account: ChoiceAccount { offset: wish.offset, outcome, candidates: told.collect() },
            bases: chosen.iter().map(|index| candidates[*index].placed()).collect(),
            drifted_from: candidates.iter().flat_map(|candidate| candidate.drifted_from.iter().copied()).collect(),
            outcome,
            in_text,
        })
    }

    /// Compares the sketches of the whole blobs behind a candidate, from the likeliest of `places`
    /// in it on, with the region's.
    async fn look_at(
        &self,
        bucket: &BucketHandle,
        wish: &RegionTarget,
        places: &[u64],
        candidate: &mut Candidate,
    ) -> Result<(), EngineError> {
        let object = candidate.object.clone();
        let near = places.iter().flat_map(|place| object.extents_near(*place, REGION_LEN, BLOBS_PER_CANDIDATE));
        let mut seen = HashSet::new();
        for (start, row) in near.filter(|(start, row)| seen.insert((*start, row.id))) {
            match row.form {
                BlobForm::Whole => candidate.wholes.push(self.whole(bucket, row, Some(start)).await?),
                BlobForm::Delta => {
                    let mut bases = self.catalog.bases_of(row.id).await?;
                    bases.retain(|base| !wish.avoid.contains(base));
                    bases.truncate(BLOBS_PER_CANDIDATE);
                    for base in self.catalog.blobs(&bases).await? {
                        candidate.wholes.push(self.whole(bucket, &base, None).await?);
                    }
                }
            }
        }
        let (expected, margin) = (places.first().copied().unwrap_or(wish.position), self.margin());
        let mut own_place: Option<f64> = None;
        let mut best: Option<(f64, Option<u64>)> = None;
        for whole in &candidate.wholes {
            for (index, region) in (0u64..).zip(whole.regions.iter()) {
                let Some(share) = region.share_of(&wish.head.sketch) else { continue };
                let place = whole.at.map(|at| at + index * REGION_LEN);
                if place.is_none_or(|place| region::is_near(place, expected, margin)) {
                    own_place = Some(own_place.map_or(share, |own| own.max(share)));
                }
                if best.is_none_or(|(best, _)| share > best) {
                    best = Some((share, place));
                }
            }
        }
        candidate.share = best.map(|(share, _)| share);
        // Content that has moved by regions is looked for where it is now. Regions of one table
        // resemble each other, so that a little more says nothing.
        let place = match best {
            Some((share, Some(place))) if plan::leads(own_place.map(|own| share - own)) => place,
            _ => expected,
        };
        candidate.since = wish.position;
        candidate.shift = i64::try_from(place).unwrap_or(i64::MAX) - i64::try_from(wish.position).unwrap_or(i64::MAX);
        Ok(())
    }

    async fn whole(&self, bucket: &BucketHandle, row: &BlobRow, at: Option<u64>) -> Result<Whole, EngineError> {
        let manifest = self.blobs.manifest(row, bucket.key_of(row)?.as_deref()).await?;
        let regions = Arc::new(similar::decode(&manifest.root.facts.sketch)?);
        Ok(Whole { blob: BlobId(row.id.0), at, regions })
    }

    /// Adds what shares the region's hooks and is not known by name. True when there are objects
    /// that share them in the text of their streams: those are left to the converter.
    async fn add_hooked(
        &self,
        bucket: &BucketHandle,
        wish: &RegionTarget,
        candidates: &mut Vec<Candidate>,
    ) -> Result<bool, EngineError> {
        let hooks = wish.head.sketch.hooks();
        if hooks.is_empty() || wish.first.len() as u64 <= UNSKETCHED_LEN_MAX {
            return Ok(false);
        }
        let query = hook_query(bucket, hooks);
        let (by_text, by_bytes): (Vec<_>, Vec<_>) =
            self.catalog.resembling(&query).await?.into_iter().partition(is_in_text);
        for Resembling { blob, .. } in by_bytes.into_iter().take(CANDIDATES_MAX) {
            let known = candidates.iter().any(|candidate| candidate.has_blob(BlobId(blob.id.0)));
            if known || candidates.len() >= CANDIDATES_MAX || wish.avoid.contains(&blob.id) {
                continue;
            }
            if let Some((object, at)) = readable(self.hooked_object(bucket, blob, &wish.avoid).await).flatten() {
                let mut candidate = Candidate::new(object, Source::Hooks);
                let looked = self.look_at(bucket, wish, &[at.unwrap_or(wish.position)], &mut candidate).await;
                candidates.extend(readable(looked).map(|()| candidate));
            }
        }
        // One hook is common where a licence is.
        Ok(by_text.iter().any(|found| found.shared >= 2 && !wish.avoid.contains(&found.blob.id)))
    }

    /// The objects that share most of some hooks, those that share more first.
    pub(crate) async fn hooked_objects(
        &self,
        bucket: &BucketHandle,
        hooks: Vec<u32>,
        avoid: &Avoided,
    ) -> Result<Vec<Hooked>, EngineError> {
        if hooks.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.catalog.resembling(&hook_query(bucket, hooks)).await?;
        let in_text: HashSet<BlobKey> =
            found.iter().filter(|found| is_in_text(found)).map(|found| found.blob.id).collect();
        let mut seen = HashSet::new();
        let mut objects = Vec::new();
        for Resembling { blob, .. } in found {
            if avoid.contains(&blob.id) || !seen.insert(blob.id) {
                continue;
            }
            let in_text = in_text.contains(&blob.id);
            let object = readable(self.hooked_object(bucket, blob, avoid).await).flatten();
            objects.extend(object.map(|(object, _)| Hooked { object: Arc::new(object), in_text }));
        }
        Ok(objects)
    }

    /// The object a blob belongs to, by the key its manifest names, or the blob alone when that key
    /// has other content by now. With it, where the blob begins in an object of several: a part
    /// that comes before those in front of it does not know its place, but what it resembles does.
    async fn hooked_object(
        &self,
        bucket: &BucketHandle,
        row: BlobRow,
        avoid: &Avoided,
    ) -> Result<Option<(BaseObject, Option<u64>)>, EngineError> {
        let manifest = self.blobs.manifest(&row, bucket.key_of(&row)?.as_deref()).await?;
        let key = &manifest.root.facts.key;
        if let Some(content) = self.catalog.content(bucket.row.id, key).await?
            && content.extents.len() > 1
            && content.extents.iter().any(|extent| extent.blob == row.id)
        {
            let base = self.open_base(bucket, content, avoid)?;
            return Ok(base.map(|base| {
                let at = base.start_of(row.id);
                (base, at)
            }));
        }
        Ok(self.open_blob(key.clone(), row).map(|base| (base, None)))
    }

    /// The best candidate that is worth it, with those that help it, and how the search ended.
    async fn winners(
        &self,
        bucket: &BucketHandle,
        wish: &RegionTarget,
        candidates: &mut [Candidate],
    ) -> Result<(Vec<usize>, BaseOutcome), EngineError> {
        let mut left: Vec<usize> =
            (0..candidates.len()).filter(|index| candidates[*index].outlook(wish) != Outlook::Poor).collect();
        let mut outcome = BaseOutcome::None;
        while let Some(best) = left.first().copied() {
            let rival = left.get(1).copied();
            let lead =
                rival.map(|rival| plan::rank_of(candidates[best].share) - plan::rank_of(candidates[rival].share));
            // Encoding a short body is no dearer than a trial.
            let tries_itself = rival.is_none() && wish.first.len() <= region::TRIAL_SAMPLE_LEN;
            let (together, coverage) = with_helpers(wish, candidates, best, &left);
            let clear =
                plan::is_clear(candidates[best].outlook(wish), lead) || (together.len() > 1 && plan::covers(coverage));
            // What was good for the content around it, and looks no worse than any other here, is
            // not tried again.
            let level = rival.filter(|_| !plan::leads(lead));
            let turn = if tries_itself || clear { None } else { wish.proven.turn().await };
            let proven =
                std::iter::once(best).chain(level).find(|index| wish.proven.has(&candidates[*index].object.key));
            let winner = if tries_itself || clear {
                best
            } else if let Some(proven) = proven {
                proven
            } else {
                let mut busy = false;
                for index in std::iter::once(best).chain(rival) {
                    match self.trial(bucket, wish, &candidates[index]).await? {
                        Some(trial) => {
                            wish.proven.note(&candidates[index].object.key, trial);
                            candidates[index].trial = Some(trial);
                        }
                        None => busy = true,
                    }
                }
                if let Some(mut first) = turn {
                    *first = true;
                }
                let tried = std::iter::once(best).chain(rival);
                let helpful = tried.filter(|index| candidates[*index].has_helped());
                match helpful.min_by_key(|index| candidates[*index].trial.and_then(|trial| trial.delta)) {
                    Some(winner) => winner,
                    None if goes_on(wish, &candidates[best]) => best,
                    None if busy => return Ok((Vec::new(), BaseOutcome::Busy)),
                    None if outcome == BaseOutcome::Drifted => return Ok((Vec::new(), outcome)),
                    None => return Ok((Vec::new(), BaseOutcome::Useless)),
                }
            };
            let (drift, drifted_from) =
                self.drift_of(bucket, &candidates[winner].object, &candidates[winner].kin).await?;
            if matches!(drift, Drift::Paid { .. } | Drift::Far) && candidates[winner].trial.is_none() {
                candidates[winner].trial = self.trial(bucket, wish, &candidates[winner]).await?;
            }
            // Without memory for a trial, it has.
            if drift == Drift::None || candidates[winner].trial.is_some_and(|trial| !drift.ends_series(trial)) {
                return Ok((with_helpers(wish, candidates, winner, &left).0, BaseOutcome::Tried));
            }
            if drift != Drift::Far {
                // Others are further away still.
                candidates[winner].drifted_from = drifted_from;
                return Ok((Vec::new(), BaseOutcome::Drifted));
            }
            // The series' own base is no good any more; another object that surely is may take its
            // place.
            outcome = BaseOutcome::Drifted;
            let drifted = candidates[winner].clone();
            left.retain(|index| {
                let candidate = &candidates[*index];
                *index != winner && !candidate.shares_a_blob_with(&drifted) && candidate.outlook(wish) == Outlook::Good
            });
        }
        Ok((Vec::new(), outcome))
    }

    /// Encodes a sample of the region's first segment against a candidate; `None` when there is no
    /// memory for its window just now.
    async fn trial(
        &self,
        bucket: &BucketHandle,
        wish: &RegionTarget,
        candidate: &Candidate,
    ) -> Result<Option<Trial>, EngineError> {
        let reach = wish.reach.min(TRIAL_REACH);
        let (placed, is_part) = ([candidate.placed()], wish.part.is_some());
        let at = (wish.position, wish.moved.last());
        let found = self.region(bucket, &placed, at, reach, wish.effort, is_part).await;
        let region: Arc<Region> = match readable(found) {
            Some(RegionOutcome::Ready(region)) => region,
            Some(RegionOutcome::Nothing) | None => return Ok(Some(Trial::default())),
            Some(RegionOutcome::Busy) => return Ok(None),
        };
        let (first, effort, metrics) = (wish.first.clone(), wish.effort, self.metrics.clone());
        let trial = self.pool.run(move |scratch| {
            let started = Instant::now();
            let trial = region::trial(scratch, &first, &region.window, effort);
            metrics.base_trial_seconds.observe(started.elapsed().as_secs_f64());
            trial
        });
        Ok(Some(trial.await?))
    }
}

/// Whether a region that begins with zeros, or the like, has the base in which the content before
/// it was found: what follows the zeros may be there, too.
fn goes_on(wish: &RegionTarget, candidate: &Candidate) -> bool {
    let sample_len = wish.first.len().min(region::TRIAL_SAMPLE_LEN);
    let says_nothing =
        candidate.trial.is_some_and(|trial| trial.alone > 0 && !plan::tells_of_a_base(sample_len, trial.alone));
    let found = wish.moved.last().and_then(|found| candidate.object.position_of(found, wish.position));
    says_nothing && found.is_some()
}

/// What was read of a candidate; `None`, and a line in the log, where that failed: another one may
/// serve (I7).
fn readable<T>(read: Result<T, EngineError>) -> Option<T> {
    read.inspect_err(|error| tracing::warn!(%error, "a base cannot be read: others are looked at")).ok()
}

/// The winner, and those of `others` that have what it has not: together they make the window.
/// Gives the share of the samples that they have, too.
fn with_helpers(wish: &RegionTarget, candidates: &[Candidate], winner: usize, others: &[usize]) -> (Vec<usize>, f64) {
    let mut chosen = vec![winner];
    let values = wish.head.sketch.ranking();
    let mut covered: HashSet<u64> = values.iter().copied().filter(|value| candidates[winner].has(*value)).collect();
    while chosen.len() < BASES_MAX {
        let gain = |candidate: &Candidate| {
            values.iter().filter(|value| !covered.contains(value) && candidate.has(**value)).count()
        };
        let free = others.iter().copied().filter(|index| {
            !chosen.iter().any(|taken| taken == index || candidates[*taken].shares_a_blob_with(&candidates[*index]))
        });
        let best = free.map(|index| (gain(&candidates[index]), index)).max_by_key(|(gain, _)| *gain);
        #[expect(clippy::cast_precision_loss, reason = "at most 128")]
        match best.filter(|(gain, _)| *gain as f64 >= JOINS_FROM * values.len().max(16) as f64) {
            Some((_, helper)) => {
                covered.extend(values.iter().filter(|value| candidates[helper].has(**value)));
                chosen.push(helper);
            }
            None => break,
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 128")]
    let coverage = covered.len() as f64 / values.len().max(1) as f64;
    (chosen, coverage)
}

fn hook_query(bucket: &BucketHandle, hooks: Vec<u32>) -> HookQuery {
    HookQuery { domain: bucket.domain(), hooks, limit: HOOKED_MAX }
}
