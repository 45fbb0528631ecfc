//! Notices are delivered: each webhook has a lane of its own, worked off in the order of the
//! changes by one process at a time.
//!
//! ```text
//! commit ─► notice in the catalog, bell ─► lane's lease ─► deliver, key by key ─► taken away ─► lease given up
//!                                  ▲ it failed: the lane rests, longer every time, with some chance in it
//! ```
//!
//! A lane that is empty costs nothing: whoever leaves a notice rings the bell. Where processes
//! share the catalog, each also looks once a minute for what one that died has left.
//!
//! An event is delivered at least once. Those of one key are delivered in their order; a later one
//! waits until the earlier one was taken. A lease makes two deliverers of a lane unlikely, not
//! impossible, and their events carry the changes' numbers (`sequencer`).

use crate::{
    bucket::{
        Buckets,
        notify::{Notifier, message},
    },
    deployment::writer::Writer,
    error::EngineError,
    metrics::Metrics,
    resources::{
        clock::{millis, now_ms},
        machine::random,
    },
};
use async_trait::async_trait;
use catalog::{Catalog, CatalogError, JobLease, JobTake, Notice, NoticesDone, Seq};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Notices read, and taken away, at once.
const PAGE: usize = 64;
/// Deliveries under way at once in one lane, each of another key.
const DELIVERIES_AT_ONCE: usize = 8;
/// How long a lane's lease lasts without being renewed.
const LEASE: Duration = Duration::from_secs(30);
/// Between renewals.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Between looks while another process works the lane off.
const HELD_POLL: Duration = Duration::from_millis(500);
/// Between looks for what a process that died has left, where several share a catalog.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long a lane rests after its first failure, and at most.
const REST: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(300)];

/// Brings an event to a webhook.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Returns once the webhook has taken the event. Bounds how long that may last.
    ///
    /// # Errors
    /// [`Undelivered`]: the webhook may have seen it all the same.
    async fn deliver(&self, webhook: &str, event: Vec<u8>) -> Result<(), Undelivered>;
}

/// Why an event is still to be delivered.
#[derive(Debug, thiserror::Error)]
pub enum Undelivered {
    /// The webhook does not answer, or not now: others wait, too.
    #[error("{0}")]
    Unavailable(String),
    /// It does not take this one.
    #[error("{0}")]
    Refused(String),
}

/// Delivers what waits.
pub(crate) struct Deliverer {
    pub(crate) alone: bool,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) courier: Arc<dyn Courier>,
}

/// What a lane's holder leaves to the next one.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct LaneState {
    /// Passes in a row that ended with a failure.
    failures: u32,
    /// How long the lane rests from the last of them on.
    rest_ms: i64,
}

/// How a look at a lane ended.
enum Look {
    /// Nothing waits.
    Empty,
    /// Something waits, and is looked at again after this.
    Again(Duration),
}

/// How far a pass through a lane came.
enum Pass {
    /// To its end, everything delivered.
    Clean,
    /// Something is still to be delivered.
    Failing,
}

impl Deliverer {
    /// Works a lane off until the process ends.
    pub(crate) async fn deliver(self: Arc<Self>, webhook: String, bell: Arc<Notify>) {
        self.metrics.notifications_delivered_total.with_label_values(&[&webhook]);
        self.metrics.notifications_failed_total.with_label_values(&[&webhook]);
        let mut state = LaneState::default();
        loop {
            let looked = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                looked = self.look(&webhook, &mut state) => looked,
            };
            let looked = looked.unwrap_or_else(|error| {
                tracing::warn!(%error, webhook, "waiting events could not be read");
                Look::Again(rest_after(1))
            });
            match looked {
                // A bell that rang meanwhile has left its mark.
                Look::Empty if self.alone => tokio::select! {
                    biased;
                    () = self.stopping.cancelled() => return,
                    () = bell.notified() => {}
                },
                Look::Empty => tokio::select! {
                    biased;
                    () = self.stopping.cancelled() => return,
                    () = bell.notified() => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                },
                Look::Again(rest) => tokio::select! {
                    biased;
                    () = self.stopping.cancelled() => return,
                    () = tokio::time::sleep(rest) => {}
                },
            }
        }
    }

    async fn look(&self, lane: &str, state: &mut LaneState) -> Result<Look, EngineError> {
        if self.catalog.notices(lane, (0, 0), 1).await?.is_empty() {
            return Ok(Look::Empty);
        }
        if self.alone {
            let pass = self.pass(lane, &Held::forever()).await?;
            return Ok(concluded(&pass, state));
        }
        let name = format!("notify:{lane}");
        let rows = self.catalog.jobs().await?;
        let row = rows.iter().find(|row| row.name == name);
        if row.is_some_and(|row| row.held) {
            return Ok(Look::Again(HELD_POLL));
        }
        let state = &mut row.map(|row| state_of(&row.state)).unwrap_or_default();
        let idle_ms = row.and_then(|row| row.idle_ms).unwrap_or(i64::MAX);
        if let Ok(rest) = u64::try_from(state.rest_ms.saturating_sub(idle_ms))
            && rest > 0
        {
            return Ok(Look::Again(Duration::from_millis(rest)));
        }
        let (epoch, rest_ms) = (self.writer.epoch(), state.rest_ms);
        let take = JobTake { name, epoch, lease_ms: millis(LEASE), rest_ms };
        let taken = self.writer.note_fenced(self.catalog.take_job(take).await.map_err(EngineError::from))?;
        let Some(row) = taken else { return Ok(Look::Again(HELD_POLL)) };
        let lease = JobLease { name: row.name, fence: row.fence };
        let held = Held::since_now();
        let pass = tokio::select! {
            biased;
            pass = self.pass(lane, &held) => pass,
            () = self.keep(&lease, &held) => return Ok(Look::Again(HELD_POLL)),
        };
        // What could not be asked of the catalog is no failure of the webhook.
        let looked = pass.as_ref().ok().map(|pass| concluded(pass, state));
        match self.catalog.release_job(&lease, json!(*state)).await {
            Ok(()) | Err(CatalogError::Fenced) => {}
            Err(error) => return Err(error.into()),
        }
        pass?;
        Ok(looked.unwrap_or(Look::Again(HELD_POLL)))
    }

    /// Renews a lease until it is lost.
    async fn keep(&self, lease: &JobLease, held: &Held) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            match tokio::time::timeout(LEASE, self.catalog.renew_job(lease, millis(LEASE))).await {
                Ok(Ok(_)) => held.renew(),
                Ok(Err(CatalogError::Fenced)) => return,
                Ok(Err(error)) => tracing::warn!(%error, lane = lease.name, "a lane's lease could not be renewed"),
                Err(_) => {}
            }
            if held.is_over() {
                return;
            }
        }
    }

    /// Goes through a lane once. A key whose event was refused is passed over to the end of it; a
    /// webhook that does not answer ends it.
    async fn pass(&self, lane: &str, held: &Held) -> Result<Pass, EngineError> {
        let (mut after, mut blocked) = ((0, 0), BTreeSet::new());
        loop {
            let page = self.catalog.notices(lane, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = (last.seq, last.ordinal);
            let page = self.give_up_old(lane, page).await?;
            let (done, available) = self.deliver_page(lane, page, &mut blocked, held).await;
            if !done.is_empty() {
                let places = NoticesDone { lane: lane.to_owned(), places: done, lost: false };
                self.catalog.notices_done(places).await?;
            }
            if !available {
                return Ok(Pass::Failing);
            }
        }
        Ok(if blocked.is_empty() { Pass::Clean } else { Pass::Failing })
    }

    /// Takes those away that have waited too long; gives the others.
    async fn give_up_old(&self, lane: &str, page: Vec<Notice>) -> Result<Vec<Notice>, EngineError> {
        let since_ms = now_ms().saturating_sub(millis(self.notifier.config().keep));
        let (old, page): (Vec<Notice>, Vec<Notice>) = page.into_iter().partition(|notice| notice.at_ms < since_ms);
        if !old.is_empty() {
            let places: Vec<(Seq, u32)> = old.iter().map(|notice| (notice.seq, notice.ordinal)).collect();
            tracing::warn!(events = places.len(), webhook = lane, "events were dropped: they waited too long");
            self.catalog.notices_done(NoticesDone { lane: lane.to_owned(), places, lost: true }).await?;
        }
        Ok(page)
    }

    /// Delivers a page; the places of those that were taken, and whether the webhook is there.
    async fn deliver_page(
        &self,
        lane: &str,
        page: Vec<Notice>,
        blocked: &mut BTreeSet<String>,
        held: &Held,
    ) -> (Vec<(Seq, u32)>, bool) {
        let mut keys: BTreeMap<String, Vec<Notice>> = BTreeMap::new();
        for notice in page.into_iter().filter(|notice| !blocked.contains(&notice.key)) {
            keys.entry(notice.key.clone()).or_default().push(notice);
        }
        let available = AtomicBool::new(true);
        let in_order: Vec<_> =
            keys.into_iter().map(|(key, notices)| self.deliver_key(lane, key, notices, &available, held)).collect();
        let mut delivered = stream::iter(in_order).buffer_unordered(DELIVERIES_AT_ONCE).boxed();
        let mut done = Vec::new();
        while let Some((key, places, whole)) = delivered.next().await {
            done.extend(places);
            if !whole {
                blocked.insert(key);
            }
        }
        drop(delivered);
        (done, available.into_inner())
    }

    /// Delivers events of one key in their order, up to the first that is not taken.
    async fn deliver_key(
        &self,
        lane: &str,
        key: String,
        notices: Vec<Notice>,
        available: &AtomicBool,
        held: &Held,
    ) -> (String, Vec<(Seq, u32)>, bool) {
        let mut done = Vec::new();
        for notice in notices {
            if !available.load(Ordering::Relaxed) || held.is_over() {
                available.store(false, Ordering::Relaxed);
                return (key, done, false);
            }
            let place = (notice.seq, notice.ordinal);
            let outcome = match message(&self.buckets, notice).await {
                Ok(event) => self.courier.deliver(lane, event).await,
                Err(error) => Err(Undelivered::Refused(error.to_string())),
            };
            if let Err(error) = outcome {
                self.metrics.notifications_failed_total.with_label_values(&[lane]).inc();
                tracing::warn!(%error, webhook = lane, seq = place.0, "an event was not delivered; it is tried again");
                if matches!(error, Undelivered::Unavailable(_)) {
                    available.store(false, Ordering::Relaxed);
                }
                return (key, done, false);
            }
            self.metrics.notifications_delivered_total.with_label_values(&[lane]).inc();
            done.push(place);
        }
        (key, done, true)
    }
}

/// Sets the gauges of every lane.
///
/// # Errors
/// What the catalog says.
pub(crate) async fn show_lanes(catalog: &dyn Catalog, metrics: &Metrics) -> Result<(), EngineError> {
    let now_ms = now_ms();
    for lane in catalog.notice_lanes().await? {
        let name = [lane.lane.as_str()];
        let age_ms = lane.oldest_ms.map_or(0, |oldest_ms| now_ms.saturating_sub(oldest_ms).max(0));
        metrics.notifications_waiting.with_label_values(&name).set(gauge(lane.waiting));
        metrics.notifications_lost.with_label_values(&name).set(gauge(lane.lost));
        metrics.notifications_oldest_age_seconds.with_label_values(&name).set(age_ms / 1000);
    }
    Ok(())
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn state_of(kept: &serde_json::Value) -> LaneState {
    serde_json::from_value(kept.clone()).unwrap_or_default()
}

/// What follows from a pass.
fn concluded(pass: &Pass, state: &mut LaneState) -> Look {
    match pass {
        // Something may have come behind the last page.
        Pass::Clean => {
            *state = LaneState::default();
            Look::Again(Duration::ZERO)
        }
        Pass::Failing => {
            state.failures = state.failures.saturating_add(1);
            let rest = rest_after(state.failures);
            state.rest_ms = millis(rest);
            Look::Again(rest)
        }
    }
}

/// How long a lane rests after so many failures in a row: twice as long each time, and between half
/// of that and all of it, so that lanes which failed together do not come back together.
fn rest_after(failures: u32) -> Duration {
    let [first, longest] = REST;
    let whole = first.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest);
    let chance = random().map_or(1.0, |chance| f64::from(u32::from_be_bytes(chance)) / f64::from(u32::MAX));
    whole.mul_f64(0.5 + chance / 2.0)
}

/// Since when a lane's lease is known to be held.
struct Held(Option<Mutex<Instant>>);

impl Held {
    /// By a process that nobody shares the catalog with.
    fn forever() -> Self {
        Self(None)
    }

    fn since_now() -> Self {
        Self(Some(Mutex::new(Instant::now())))
    }

    fn renew(&self) {
        if let Some(renewed) = &self.0 {
            *renewed.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
    }

    fn is_over(&self) -> bool {
        let renewed = self.0.as_ref().map(|renewed| *renewed.lock().unwrap_or_else(PoisonError::into_inner));
        renewed.is_some_and(|renewed| renewed.elapsed() > LEASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_rests_longer_after_every_failure_up_to_five_minutes() {
        for (failures, whole_s) in [(1, 1.0), (2, 2.0), (5, 16.0), (9, 256.0), (10, 300.0), (u32::MAX, 300.0)] {
            for _ in 0..50 {
                let rest_s = rest_after(failures).as_secs_f64();
                assert!((whole_s / 2.0..=whole_s).contains(&rest_s), "{failures} failures: {rest_s}");
            }
        }
        let mut state = LaneState::default();
        assert!(
            matches!(concluded(&Pass::Failing, &mut state), Look::Again(rest) if rest >= Duration::from_millis(500))
        );
        assert_eq!(state.failures, 1);
        assert!(matches!(concluded(&Pass::Clean, &mut state), Look::Again(Duration::ZERO)));
        assert_eq!((state.failures, state.rest_ms), (0, 0));
    }
}
