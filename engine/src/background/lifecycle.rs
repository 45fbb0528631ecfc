//! The job `lifecycle`: what a bucket's rules say is over is removed, by the same commits that a
//! client's deletion makes. Each names the current version that was seen, so that whoever wrote
//! meanwhile wins; a lock that holds is bypassed by no rule.

pub(crate) mod judge;
pub(crate) mod rules;

use crate::{
    background::jobs::run::JobRun,
    bucket::{BucketHandle, BucketState, Buckets, notify::Cause},
    error::EngineError,
    read::object::ReadPath,
    resources::clock::now_ms,
    write::{change::Changes, parts::Uploads},
};
use catalog::{Bucket, Catalog, Precondition, UploadsQuery, Version, VersionEntry, VersionRef, VersionsQuery};
use futures::{StreamExt as _, stream};
use judge::{Due, Judge, Key};
use rules::{Calendar, Lifecycle};
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// The name of a bucket's lifecycle among its configurations.
pub const LIFECYCLE: &str = "lifecycle";
/// Entries read at once.
const PAGE: usize = 1000;
/// Removals under way at once: the catalog commits them together.
const REMOVALS_AT_ONCE: usize = 16;
/// The shortest and the longest time between two runs.
const EVERY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(7200)];

/// How often the job runs: twelve times a day.
pub(crate) fn interval(day: Duration) -> Duration {
    let [shortest, longest] = EVERY;
    (day / 12).clamp(shortest, longest)
}

/// What a run did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Followed {
    /// Current versions that were removed, or hidden behind a delete marker.
    expired: u64,
    /// Versions that were not current.
    noncurrent: u64,
    /// Delete markers without a version behind them.
    markers: u64,
    /// Uploads that were aborted.
    uploads: u64,
    /// What is due and locked.
    locked: u64,
    /// What others changed meanwhile: the next run looks at it again.
    changed: u64,
}

impl BucketState {
    /// The bucket's lifecycle; `None` when there is none.
    ///
    /// # Errors
    /// [`EngineError::Other`] when what was kept cannot be read.
    pub fn lifecycle(&self) -> Result<Option<Lifecycle>, EngineError> {
        let Some(kept) = self.settings.configurations.get(LIFECYCLE) else { return Ok(None) };
        serde_json::from_value(kept.clone())
            .map(Some)
            .map_err(|error| EngineError::Other(format!("lifecycle of bucket {}: {error}", self.row.name)))
    }
}

/// Removes what is over.
pub(crate) struct LifecycleWorker {
    pub(crate) day: Duration,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) uploads: Arc<Uploads>,
}

impl LifecycleWorker {
    /// The job `lifecycle`.
    pub(crate) async fn follow_lifecycles_once(&self, run: &JobRun) -> Result<Followed, EngineError> {
        let mut report = Followed::default();
        for row in self.catalog.buckets().await? {
            run.check()?;
            if kept_in(&row).is_none() {
                continue;
            }
            let Some(bucket) = self.buckets.bucket(&row.name).await? else { continue };
            let Some(rules) = bucket.lifecycle()? else { continue };
            let judge = Judge { read: &self.read, bucket: &bucket, rules, calendar: Calendar::of(self.day) };
            let mut walk = Walk { worker: self, run, bucket: &bucket, judge, report: &mut report };
            if walk.judge.rules.concerns_versions() {
                walk.versions().await?;
            }
            if walk.judge.rules.concerns_uploads() {
                walk.uploads().await?;
            }
        }
        Ok(report)
    }
}

fn kept_in(bucket: &Bucket) -> Option<&serde_json::Value> {
    bucket.settings.get("configurations")?.get(LIFECYCLE)
}

/// One bucket, looked through once.
struct Walk<'a> {
    worker: &'a LifecycleWorker,
    run: &'a JobRun,
    bucket: &'a BucketHandle,
    judge: Judge<'a>,
    report: &'a mut Followed,
}

impl Walk<'_> {
    /// Whether the rules are still the bucket's: others are for the next run.
    async fn still_meant(&self) -> Result<bool, EngineError> {
        let row = self.worker.catalog.bucket(&self.bucket.row.name).await?;
        Ok(row.is_some_and(|row| row.id == self.bucket.row.id && kept_in(&row) == kept_in(&self.bucket.row)))
    }

    /// Every page is read before what is over in the one before it is removed, because its place is
    /// named by a version.
    async fn versions(&mut self) -> Result<(), EngineError> {
        let mut query = VersionsQuery {
            bucket: self.bucket.row.id,
            prefix: self.judge.rules.prefix().to_owned(),
            delimiter: None,
            key_after: None,
            version_after: None,
            limit: PAGE,
        };
        let mut page = Some(self.worker.catalog.list_versions(&query).await?);
        let mut key: Option<Key> = None;
        while let Some(here) = page {
            page = match here.next {
                None => None,
                Some((name, version)) => {
                    (query.key_after, query.version_after) = (Some(name), version);
                    Some(self.worker.catalog.list_versions(&query).await?)
                }
            };
            let mut due = Vec::new();
            let now_ms = now_ms();
            for entry in here.entries {
                let VersionEntry::Version { version, latest } = entry else { continue };
                self.judge.judge(&mut key, version, latest, now_ms, &mut due)?;
            }
            if page.is_none() {
                due.extend(key.take().and_then(|key| self.judge.lone_marker(key, now_ms)));
            }
            if due.is_empty() {
                self.run.check()?;
            } else if self.still_meant().await? {
                self.remove(due).await?;
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn remove(&mut self, due: Vec<Due>) -> Result<(), EngineError> {
        let (changes, bucket) = (&self.worker.changes, self.bucket);
        let cause = &Cause::lifecycle();
        let mut outcomes = stream::iter(due)
            .map(|due| async move {
                let outcome = match &due {
                    Due::Current { key, version } => {
                        let seen = Precondition::Current(version.id);
                        changes.delete(bucket, key, seen, Some(cause)).await.map(|_| true)
                    }
                    Due::Noncurrent { version, current } => {
                        remove_version(changes, bucket, version, *current, cause).await
                    }
                    Due::Marker { version } => {
                        remove_version(changes, bucket, version, Precondition::Absent, cause).await
                    }
                };
                (due, outcome)
            })
            .buffer_unordered(REMOVALS_AT_ONCE)
            .boxed();
        while let Some((due, outcome)) = outcomes.next().await {
            let count = match (outcome, due) {
                (Ok(true), Due::Current { .. }) => &mut self.report.expired,
                (Ok(true), Due::Noncurrent { .. }) => &mut self.report.noncurrent,
                (Ok(true), Due::Marker { .. }) => &mut self.report.markers,
                (Err(EngineError::Locked), _) => &mut self.report.locked,
                (Ok(false) | Err(EngineError::PreconditionFailed), _) => &mut self.report.changed,
                (Err(error), _) => return Err(error),
            };
            *count += 1;
            self.run.progress(self.report.expired + self.report.noncurrent + self.report.markers, None);
            self.run.check()?;
        }
        Ok(())
    }

    async fn uploads(&mut self) -> Result<(), EngineError> {
        let mut query = UploadsQuery {
            bucket: self.bucket.row.id,
            prefix: self.judge.rules.prefix().to_owned(),
            delimiter: None,
            key_after: None,
            upload_after: None,
            limit: PAGE,
        };
        loop {
            let page = self.worker.catalog.uploads(&query).await?;
            let next = page.next;
            let now_ms = now_ms();
            let is_over = |key: &str, created_ms| {
                self.judge.rules.abort(key, created_ms, self.judge.calendar).is_some_and(|(at_ms, _)| at_ms <= now_ms)
            };
            let over: Vec<_> = page.uploads.iter().filter(|upload| is_over(&upload.key, upload.created_ms)).collect();
            // The page's last upload names the place where the next one begins, so it stays until
            // then.
            let following = match next {
                Some((key, upload)) => {
                    (query.key_after, query.upload_after) = (Some(key), upload);
                    true
                }
                None => false,
            };
            if !over.is_empty() && !self.still_meant().await? {
                return Ok(());
            }
            let last = if following { query.upload_after } else { None };
            for upload in over.into_iter().filter(|upload| Some(upload.id) != last) {
                self.run.check()?;
                let aborted = self.worker.uploads.abort(self.bucket, &upload.key, upload.id).await?;
                self.report.uploads += u64::from(aborted);
            }
            if !following {
                return Ok(());
            }
        }
    }
}

async fn remove_version(
    changes: &Arc<Changes>,
    bucket: &BucketHandle,
    version: &Version,
    current: Precondition,
    cause: &Cause,
) -> Result<bool, EngineError> {
    let reference: VersionRef = version.reference();
    let removed = changes.delete_version(bucket, &version.key, reference, current, false, Some(cause)).await?;
    Ok(removed.is_some())
}
