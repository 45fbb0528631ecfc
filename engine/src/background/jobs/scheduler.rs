//! Starts jobs that are due.

use super::{
    Jobs,
    due::{Due, Urgency, due},
    spec::JobSpec,
    state::{JobState, Outcome},
};
use crate::error::EngineError;
use catalog::JobRow;
use std::{sync::Arc, time::Duration};

/// Between looks at the catalog when nothing wakes the scheduler.
const POLL: Duration = Duration::from_secs(5);
/// The shortest such pause, for intervals shorter than [`POLL`].
const POLL_MIN: Duration = Duration::from_millis(100);
impl Jobs {
    /// Starts what is due until the process ends.
    pub(crate) async fn schedule(self: Arc<Self>) {
        let shortest = self.specs.iter().filter_map(|spec| spec.every).min().unwrap_or(POLL);
        let pause = shortest.clamp(POLL_MIN, POLL);
        let mut urgency = Urgency::Start;
        loop {
            match self.start_due_jobs(urgency).await {
                Ok(_) => urgency = Urgency::Routine,
                Err(error) => tracing::warn!(%error, "the catalog could not be queried for due jobs"),
            }
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Starts every job that is due; true when one was started or runs anyway.
    pub(super) async fn start_due_jobs(self: &Arc<Self>, urgency: Urgency) -> Result<bool, EngineError> {
        let rows = self.catalog.jobs().await?;
        let mut busy = false;
        for spec in &self.specs {
            let row = rows.iter().find(|row| row.name == spec.name);
            let backlog = match &spec.backlog {
                Some(backlog) => backlog().await?,
                None => 0,
            };
            self.show(spec, row, backlog);
            if self.run_of(spec.name).is_some() {
                busy = true;
                continue;
            }
            let (rest, goes_on) = match due(spec, row, backlog, urgency) {
                Due::No => continue,
                Due::Held => {
                    busy = true;
                    continue;
                }
                Due::GoOn => (Duration::ZERO, true),
                Due::Begin { rest } => (rest, false),
            };
            busy = true;
            if self.stopping.is_cancelled() {
                return Ok(busy);
            }
            // Another process may have been faster: what the row says now counts.
            let Some(row) = self.take_job(spec, rest).await? else { continue };
            let state = JobState::of(&row);
            let state = match goes_on && state.unfinished {
                true => state,
                false => JobState { outcome: state.outcome, last_ok: state.last_ok, ..JobState::default() },
            };
            self.launch(spec, &row, state);
        }
        Ok(busy)
    }

    /// Sets the gauges that every process shows of every job, whoever ran it.
    fn show(&self, spec: &JobSpec, row: Option<&JobRow>, backlog: u64) {
        let metrics = &self.metrics;
        metrics.job_backlog.with_label_values(&[spec.name]).set(i64::try_from(backlog).unwrap_or(i64::MAX));
        let state = row.map(JobState::of).unwrap_or_default();
        let last_ok = state.last_ok.unwrap_or(0) / 1000;
        metrics.job_last_success_timestamp_seconds.with_label_values(&[spec.name]).set(last_ok);
        if spec.name == "gc" {
            metrics.gc_last_success_timestamp_seconds.set(last_ok);
        }
        let progress = match self.run_of(spec.name) {
            Some(running) => running.progress(),
            None => state.progress,
        };
        let set = |state: &str, value: u64| {
            metrics.job_progress.with_label_values(&[spec.name, state]).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set("done", progress.done);
        set("total", progress.total.unwrap_or(0));
        // A counter that appeared with its first failure would hide it.
        for outcome in [Outcome::Ok, Outcome::Failed, Outcome::Cancelled, Outcome::Paused, Outcome::Interrupted] {
            metrics.job_runs_total.with_label_values(&[spec.name, outcome.as_str()]);
        }
        metrics.job_leases_lost_total.with_label_values(&[spec.name]);
    }
}
