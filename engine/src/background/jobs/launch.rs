//! Running a job to its end.

use super::{
    JobEnded, Jobs,
    run::Running,
    spec::JobSpec,
    state::{JobState, Outcome},
};
use crate::{error::EngineError, resources::clock::now_ms};
use catalog::{CatalogError, JobRow};
use futures::FutureExt;
use serde_json::{Value, json};
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a run that was stopped may take to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How often the end of a run is told the catalog before the lease is left to end by itself.
const RELEASE_ATTEMPTS: usize = 5;

impl Jobs {
    /// Starts a run under a lease that was just taken.
    pub(super) fn launch(self: &Arc<Self>, spec: &JobSpec, row: &JobRow, state: JobState) -> Arc<Running> {
        let first_run = state.first_run.or(Some(row.fence));
        let state = JobState { unfinished: true, first_run, ..state };
        let running = Running::of(spec.name, row, self.catalog.clone(), state);
        self.running().insert(spec.name, running.clone());
        self.metrics.job_running.with_label_values(&[spec.name]).set(1);
        let work = (spec.work)(running.handle());
        let (jobs, run, resumes) = (self.clone(), running.clone(), spec.resumes);
        self.tasks.spawn(async move {
            let began = Instant::now();
            if resumes {
                run.save().await;
            }
            let ended = jobs.supervise(&run, work).await;
            jobs.conclude(&run, ended, resumes, began.elapsed()).await;
        });
        running
    }

    async fn supervise(
        &self,
        run: &Running,
        work: impl Future<Output = Result<Value, EngineError>>,
    ) -> Result<Value, EngineError> {
        let work = AssertUnwindSafe(work)
            .catch_unwind()
            .map(|ended| ended.unwrap_or_else(|_| Err(EngineError::Other("the job panicked".into()))));
        tokio::pin!(work);
        let why = tokio::select! {
            biased;
            ended = &mut work => return ended,
            why = run.keep(&self.stopping) => why,
        };
        run.stop(why);
        match tokio::time::timeout(STOP_GRACE, work).await {
            Ok(ended) => ended,
            Err(_) => Err(EngineError::Stopped(why.as_str())),
        }
    }

    /// Tells everybody how a run ended.
    async fn conclude(&self, run: &Running, ended: Result<Value, EngineError>, resumes: bool, took: Duration) {
        let (state, why) = {
            let memory = run.memory();
            (memory.state.clone(), memory.why)
        };
        let state = state.after(&ended, why, resumes, now_ms());
        let result = state.outcome.as_ref().map_or(Outcome::Failed, |last| last.result);
        if result == Outcome::Failed
            && let Err(error) = &ended
        {
            tracing::error!(%error, job = run.job, "a background job failed");
        }
        let labels = [run.job, result.as_str()];
        self.metrics.job_runs_total.with_label_values(&labels).inc();
        self.metrics.job_seconds.with_label_values(&[run.job]).observe(took.as_secs_f64());
        self.metrics.job_running.with_label_values(&[run.job]).set(0);
        let state = json!(state);
        for attempt in 1..=RELEASE_ATTEMPTS {
            match self.catalog.release_job(&run.lease, state.clone()).await {
                Ok(()) => break,
                Err(CatalogError::Fenced) => {
                    self.metrics.job_leases_lost_total.with_label_values(&[run.job]).inc();
                    tracing::warn!(job = run.job, "a job's lease was lost; its cursor is not stored");
                    break;
                }
                Err(error) if attempt == RELEASE_ATTEMPTS => {
                    tracing::warn!(%error, job = run.job, "a job's lease could not be released; it expires by itself");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        self.running().remove(run.job);
        // Nobody may listen.
        let _ = self.endings.send(JobEnded { job: run.job, run: run.lease.fence, outcome: result.as_str() });
        run.outcome.send_replace(Some(Arc::new(ended)));
        self.ended.notify_waiters();
        self.wake.notify_one();
    }
}
