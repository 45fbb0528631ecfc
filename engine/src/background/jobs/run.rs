//! One run of a job: the handle its function works with, and what keeps its lease.

use super::{
    LEASE, Started, millis,
    registry::{self, JobSpec},
    state::{JobState, Outcome, Progress},
};
use crate::{Engine, error::EngineError, resources::clock::now_ms};
use catalog::{Catalog, CatalogError, JobLease, JobRow};
use futures::FutureExt;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Between renewals, each of which also stores how far the run is.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Between stored cursors; what lies behind the last stored one is done again after a crash.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// How long a run that was stopped may take to end by itself.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How often the end of a run is told the catalog before the lease is left to end by itself.
const RELEASE_ATTEMPTS: usize = 5;

/// What a job's function works with. Cloning it gives another handle of the same run.
#[derive(Clone)]
pub struct JobRun(Arc<Running>);

/// A run under way in this process.
pub(super) struct Running {
    job: &'static str,
    lease: JobLease,
    catalog: Arc<dyn Catalog>,
    memory: Mutex<Memory>,
    /// Only one state is on its way to the catalog, so that an older one cannot overtake.
    saving: tokio::sync::Mutex<()>,
    token: CancellationToken,
    outcome: watch::Sender<Option<Arc<Result<Value, EngineError>>>>,
}

struct Memory {
    state: JobState,
    saved: Option<Instant>,
    why: Option<Outcome>,
}

impl JobRun {
    /// What this run was asked for.
    ///
    /// # Errors
    /// [`EngineError::JobRefused`] when it is not a `T` (an older version of the program began the
    /// run).
    pub fn parameters<T: DeserializeOwned>(&self) -> Result<T, EngineError> {
        registry::parse(&self.0.parameters())
            .map_err(|error| EngineError::JobRefused(format!("{}: {error}", self.0.job)))
    }

    /// Where an earlier attempt of this run was; `None` at its beginning.
    ///
    /// # Errors
    /// As [`JobRun::parameters`].
    pub fn cursor<T: DeserializeOwned>(&self) -> Result<Option<T>, EngineError> {
        let cursor = self.0.memory().state.cursor.clone();
        let read = cursor.map(serde_json::from_value).transpose();
        read.map_err(|error| EngineError::JobRefused(format!("{}: cursor: {error}", self.0.job)))
    }

    /// Fires when the run is to end: paused, cancelled, the process ends, or the lease is lost.
    pub fn token(&self) -> &CancellationToken {
        &self.0.token
    }

    /// Says whether to go on. Between two steps of work, where nothing is half done.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] when the run is to end.
    pub fn check(&self) -> Result<(), EngineError> {
        match self.0.memory().why {
            None => Ok(()),
            Some(why) => Err(EngineError::Stopped(why.as_str())),
        }
    }

    /// Says that everything before `cursor` is done and durable, and whether to go on. It is stored
    /// about once a second, and when the run is stopped; after a crash the work since the last
    /// stored one is done again.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] when the run is to end, because the lease was lost too.
    pub async fn checkpoint(&self, cursor: &(impl Serialize + Sync)) -> Result<(), EngineError> {
        let cursor = serde_json::to_value(cursor).map_err(|error| EngineError::Other(error.to_string()))?;
        let due = {
            let mut memory = self.0.memory();
            memory.state.cursor = Some(cursor);
            memory.saved.is_none_or(|saved| saved.elapsed() >= CHECKPOINT_EVERY)
        };
        self.check()?;
        if due {
            self.0.save().await;
        }
        self.check()
    }

    /// How far the run is, in the job's unit. `total` is `None` while it is not known.
    pub fn progress(&self, done: u64, total: Option<u64>) {
        let mut memory = self.0.memory();
        (memory.state.progress.done, memory.state.progress.total) = (done, total);
    }

    /// What it is at, in words.
    pub fn note(&self, note: impl Into<String>) {
        self.0.memory().state.progress.note = note.into();
    }
}

impl Running {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing panics while it holds the lock.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn started(&self) -> Started {
        Started { job: self.job, run: self.lease.fence }
    }

    pub(super) fn parameters(&self) -> Value {
        self.memory().state.parameters.clone()
    }

    pub(super) fn progress(&self) -> Progress {
        self.memory().state.progress.clone()
    }

    /// Asks the run to end. The first reason counts.
    pub(super) fn stop(&self, why: Outcome) {
        self.memory().why.get_or_insert(why);
        self.token.cancel();
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) -> Result<Value, EngineError> {
        let mut outcome = self.outcome.subscribe();
        let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        match ended.as_deref() {
            Some(Ok(report)) => Ok(report.clone()),
            Some(Err(error)) => Err(EngineError::shared(error)),
            None => Err(EngineError::Stopped("the run was dropped")),
        }
    }

    /// Stores the state under the fence. Trouble with the catalog is left to the renewals; a lost
    /// lease ends the run.
    async fn save(&self) {
        let _one_at_a_time = self.saving.lock().await;
        let state = json!(self.memory().state);
        match self.catalog.save_job(&self.lease, state).await {
            Ok(()) => self.memory().saved = Some(Instant::now()),
            Err(CatalogError::Fenced) => self.stop(Outcome::Interrupted),
            Err(error) => tracing::warn!(%error, job = self.job, "a job's state could not be stored"),
        }
    }

    /// Renews the lease until there is a reason to end the run.
    async fn keep(&self, stopping: &CancellationToken) -> Outcome {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return Outcome::Interrupted,
                () = self.token.cancelled() => return self.memory().why.unwrap_or(Outcome::Interrupted),
                () = tokio::time::sleep(RENEW_EVERY) => {}
            }
            let renewal = self.catalog.renew_job(&self.lease, millis(LEASE));
            match tokio::time::timeout(LEASE, renewal).await {
                Ok(Ok(row)) if row.cancelled => return Outcome::Cancelled,
                Ok(Ok(row)) if row.paused => return Outcome::Paused,
                Ok(Ok(_)) => {
                    renewed = Instant::now();
                    self.save().await;
                }
                Ok(Err(CatalogError::Fenced)) => return Outcome::Interrupted,
                Ok(Err(error)) => tracing::warn!(%error, job = self.job, "a job's lease could not be renewed"),
                Err(_) => tracing::warn!(job = self.job, "a job's lease could not be renewed in time"),
            }
            if renewed.elapsed() > LEASE {
                return Outcome::Interrupted;
            }
        }
    }
}

impl Engine {
    /// Starts a run under a lease that was just taken.
    pub(super) fn launch(self: &Arc<Self>, spec: &JobSpec, row: &JobRow, state: JobState) -> Arc<Running> {
        let state = JobState { unfinished: true, ..state };
        let running = Arc::new(Running {
            job: spec.name,
            lease: lease_of(row),
            catalog: self.catalog.clone(),
            memory: Mutex::new(Memory { state, saved: None, why: None }),
            saving: tokio::sync::Mutex::default(),
            token: CancellationToken::new(),
            outcome: watch::Sender::new(None),
        });
        self.jobs.running().insert(spec.name, running.clone());
        self.metrics.job_running.with_label_values(&[spec.name]).set(1);
        let work = (spec.work)(self.clone(), JobRun(running.clone()));
        let (engine, run, resumes) = (self.clone(), running.clone(), spec.resumes);
        self.background.spawn(async move {
            let began = Instant::now();
            if resumes {
                run.save().await;
            }
            let ended = engine.supervise(&run, work).await;
            engine.conclude(&run, ended, resumes, began.elapsed()).await;
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
                    tracing::warn!(job = run.job, "a job's lease was lost; what its run remembered is not kept");
                    break;
                }
                Err(error) if attempt == RELEASE_ATTEMPTS => {
                    tracing::warn!(%error, job = run.job, "a job's lease is left to end by itself");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        self.jobs.running().remove(run.job);
        run.outcome.send_replace(Some(Arc::new(ended)));
        self.jobs.ended.notify_waiters();
        self.jobs.wake.notify_one();
    }
}

/// A row's lease, as its holder shows it.
pub(super) fn lease_of(row: &JobRow) -> JobLease {
    JobLease { name: row.name.clone(), fence: row.fence }
}
