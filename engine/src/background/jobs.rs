//! Background jobs: what runs without a client waiting, once at a time in the whole deployment.
//!
//! ```text
//! registry ─► scheduler: due? ─► lease from the catalog ─► run ─► checkpoints, progress ─► outcome, lease given up
//!                                      ▲  renewed while it runs; when that fails, the run is stopped
//! ```
//!
//! A job is a named function in [`crate::registry`]. It runs when its interval is over, when
//! something waits for it, or when an operator asks; it remembers a cursor, so that a run which was
//! interrupted goes on where it was, on whichever process is there.
//!
//! The lease makes two runs of one job unlikely, not impossible: a process that is stopped for
//! longer than its lease wakes up and believes in it until the next renewal. Nothing rests on it
//! (E4, E23; docs/reference/jobs.md has the argument): its commits carry a writer epoch and name
//! the state they change, and what it remembers is only stored under its own fence.

mod due;
mod launch;
pub(crate) mod run;
mod scheduler;
pub(crate) mod spec;
mod state;
#[cfg(test)]
mod tests;

use crate::{
    background::settling::Settling, bases::hook_queue::HookQueue, deployment::writer::Writer, error::EngineError,
    metrics::Metrics, resources::clock::millis,
};
use catalog::{Catalog, JobRow, JobTake, JobWish};
use due::Urgency;
use run::{LEASE, Running, Started};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use spec::JobSpec;
use state::{JobState, Outcome};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, broadcast},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Between two looks at a job that another process runs.
const ELSEWHERE_POLL: Duration = Duration::from_millis(200);

/// The jobs of one process.
pub struct Jobs {
    specs: Vec<JobSpec>,
    catalog: Arc<dyn Catalog>,
    writer: Arc<Writer>,
    hooks: Arc<HookQueue>,
    metrics: Arc<Metrics>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    running: Mutex<BTreeMap<&'static str, Arc<Running>>>,
    /// Something may be due, or has ended.
    wake: Notify,
    ended: Notify,
    endings: broadcast::Sender<JobEnded>,
    settling: Arc<Settling>,
}

/// Endings that may wait for whoever listens; older ones are passed over.
const ENDINGS_KEPT: usize = 64;

/// A run of a job that ended in this process.
#[derive(Clone, Copy, Debug)]
pub struct JobEnded {
    /// The job.
    pub job: &'static str,
    /// The run's number.
    pub run: i64,
    /// How it ended, in one word.
    pub outcome: &'static str,
}

/// What an operator asks of a job that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobAction {
    /// Stop where it is; go on when resumed.
    Pause,
    /// Go on; also with a run that failed.
    Resume,
    /// Give up the run under way, or the one that waits to be resumed.
    Cancel,
}

impl Jobs {
    #[expect(clippy::too_many_arguments, reason = "each is one of its fields")]
    pub(crate) fn new(
        specs: Vec<JobSpec>,
        catalog: Arc<dyn Catalog>,
        writer: Arc<Writer>,
        hooks: Arc<HookQueue>,
        settling: Arc<Settling>,
        tasks: TaskTracker,
        stopping: CancellationToken,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            specs,
            catalog,
            writer,
            hooks,
            metrics,
            tasks,
            stopping,
            running: Mutex::default(),
            wake: Notify::new(),
            ended: Notify::new(),
            endings: broadcast::Sender::new(ENDINGS_KEPT),
            settling,
        }
    }

    fn spec(&self, name: &str) -> Result<&JobSpec, EngineError> {
        self.specs.iter().find(|spec| spec.name == name).ok_or_else(|| EngineError::NoJob(name.to_owned()))
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<&'static str, Arc<Running>>> {
        // Nothing panics while it holds the lock.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_of(&self, name: &str) -> Option<Arc<Running>> {
        self.running().get(name).cloned()
    }
}

impl Jobs {
    /// Tells of every run that ends in this process from now on.
    pub fn endings(&self) -> broadcast::Receiver<JobEnded> {
        self.endings.subscribe()
    }

    /// Starts a run of a job with parameters, here and now. A run with the same parameters that
    /// could be resumed is joined: one that was interrupted goes on here, one under way stays where
    /// it is.
    ///
    /// # Errors
    /// [`EngineError::NoJob`]; [`EngineError::JobRuns`] when another run is under way;
    /// [`EngineError::JobRefused`] when one is paused or waits to be resumed, or when it does not
    /// take the parameters; [`EngineError::NoBucket`] when they name a bucket that is not there; or
    /// what the catalog says.
    pub async fn start_job(self: &Arc<Self>, name: &str, parameters: Value) -> Result<Started, EngineError> {
        match self.begin(name, parameters.clone()).await {
            Err(EngineError::JobRuns(runs)) => {
                self.under_way(name, &parameters).await?.ok_or(EngineError::JobRuns(runs))
            }
            begun => begun.map(|running| running.started()),
        }
    }

    /// The run under way, wherever it is, if it was asked for the same and is one that goes on
    /// after its process was killed.
    async fn under_way(&self, name: &str, parameters: &Value) -> Result<Option<Started>, EngineError> {
        let spec = self.spec(name)?;
        if let Some(running) = self.run_of(name) {
            let same = spec.resumes && run::are_same(&running.parameters(), parameters);
            return Ok(same.then(|| Started { joined: true, ..running.started() }));
        }
        let row = self.catalog.jobs().await?.into_iter().find(|row| row.name == name && row.held);
        Ok(row.and_then(|row| {
            let state = JobState::of(&row);
            let same = spec.resumes && state.unfinished && run::are_same(&state.parameters, parameters);
            let first_run = state.first_run.unwrap_or(row.fence);
            same.then_some(Started { job: spec.name, run: row.fence, first_run, joined: true })
        }))
    }

    /// Runs a job and gives its report. Waits for a run of it that is under way, here or elsewhere.
    ///
    /// # Errors
    /// As [`Jobs::start_job`], and what the run failed with.
    pub async fn run_job(self: &Arc<Self>, name: &str, parameters: Value) -> Result<Value, EngineError> {
        loop {
            if self.stopping.is_cancelled() {
                return Err(EngineError::Stopped("the process is ending"));
            }
            match self.begin(name, parameters.clone()).await {
                Ok(running) => return running.ended().await,
                Err(EngineError::JobRuns(_)) => match self.run_of(name) {
                    Some(running) => drop(running.ended().await),
                    None => tokio::time::sleep(ELSEWHERE_POLL).await,
                },
                Err(error) => return Err(error),
            }
        }
    }

    async fn begin(self: &Arc<Self>, name: &str, parameters: Value) -> Result<Arc<Running>, EngineError> {
        let spec = self.spec(name)?;
        spec.admit(&parameters).await?;
        let row = self.take_job(spec, Duration::ZERO).await?;
        let row = row.ok_or_else(|| EngineError::JobRuns(name.to_owned()))?;
        let state = JobState::of(&row);
        if spec.resumes && state.unfinished && !row.paused && run::are_same(&state.parameters, &parameters) {
            return Ok(self.launch(spec, &row, state));
        }
        if spec.resumes && state.waits() {
            self.give_back(&row, &state).await?;
            let message = format!("{name} has a run that is {}: resume or cancel it first", state.word(row.paused));
            return Err(EngineError::JobRefused(message));
        }
        Ok(self.launch(
            spec,
            &row,
            JobState { parameters, outcome: state.outcome, last_ok: state.last_ok, ..JobState::default() },
        ))
    }

    async fn take_job(&self, spec: &JobSpec, rest: Duration) -> Result<Option<JobRow>, EngineError> {
        let take = JobTake {
            name: spec.name.into(),
            epoch: self.writer.epoch(),
            lease_ms: millis(LEASE),
            rest_ms: millis(rest),
        };
        self.writer.note_fenced(self.catalog.take_job(take).await.map_err(EngineError::from))
    }

    /// Gives a lease back that was taken to look.
    async fn give_back(&self, row: &JobRow, state: &JobState) -> Result<(), EngineError> {
        Ok(self.catalog.release_job(&run::lease_of(row), json!(state)).await?)
    }

    /// Pauses, resumes or cancels a job wherever it runs. What runs elsewhere hears of it at its
    /// next renewal.
    ///
    /// # Errors
    /// [`EngineError::NoJob`], [`EngineError::JobRefused`] when there is nothing to cancel, or what
    /// the catalog says.
    pub async fn act_on_job(self: &Arc<Self>, name: &str, action: JobAction) -> Result<Value, EngineError> {
        let spec = self.spec(name)?;
        match action {
            JobAction::Pause => {
                self.catalog.wish_job(name, JobWish::Pause).await?;
                self.stop_local(name, Outcome::Paused);
            }
            JobAction::Resume => {
                let row = self.catalog.wish_job(name, JobWish::Resume).await?;
                if spec.resumes
                    && !row.held
                    && JobState::of(&row).failed_half_way()
                    && let Some(row) = self.take_job(spec, Duration::ZERO).await?
                {
                    self.launch(spec, &row, JobState::of(&row));
                }
            }
            JobAction::Cancel => {
                let row = self.catalog.wish_job(name, JobWish::Cancel).await?;
                self.stop_local(name, Outcome::Cancelled);
                if !row.held {
                    self.forget_waiting(spec).await?;
                }
            }
        }
        self.wake.notify_one();
        self.job(name).await
    }

    fn stop_local(&self, name: &str, why: Outcome) {
        if let Some(running) = self.run_of(name) {
            running.stop(why);
        }
    }

    async fn forget_waiting(&self, spec: &JobSpec) -> Result<(), EngineError> {
        let Some(row) = self.take_job(spec, Duration::ZERO).await? else { return Ok(()) };
        let state = JobState::of(&row);
        let waits = state.waits();
        let left = if waits { state.given_up() } else { state };
        self.give_back(&row, &left).await?;
        if waits { Ok(()) } else { Err(EngineError::JobRefused(format!("no run of {} is under way", spec.name))) }
    }

    /// Every job: what it is, whether it runs, how far it is, how it ended last.
    ///
    /// # Errors
    /// What the catalog says.
    pub async fn jobs(&self) -> Result<Value, EngineError> {
        let rows = self.catalog.jobs().await?;
        let described = self.specs.iter().map(|spec| self.describe(spec, &rows));
        Ok(Value::Array(futures::future::join_all(described).await))
    }

    /// One of them.
    ///
    /// # Errors
    /// [`EngineError::NoJob`], or what the catalog says.
    pub async fn job(&self, name: &str) -> Result<Value, EngineError> {
        let spec = self.spec(name)?;
        let rows = self.catalog.jobs().await?;
        Ok(self.describe(spec, &rows).await)
    }

    async fn describe(&self, spec: &JobSpec, rows: &[JobRow]) -> Value {
        let row = rows.iter().find(|row| row.name == spec.name);
        let here = self.run_of(spec.name);
        let state = row.map(JobState::of).unwrap_or_default();
        let (progress, parameters) = match &here {
            Some(running) => (running.progress(), running.parameters()),
            None => (state.progress.clone(), state.parameters.clone()),
        };
        let backlog = match &spec.backlog {
            Some(backlog) => backlog().await.ok(),
            None => None,
        };
        let word = state.outcome.as_ref().map(|last| last.result);
        let run = row.map_or(0, |row| row.fence);
        let first_run = here.as_ref().map_or(state.first_run, |here| Some(here.started().first_run));
        json!({
            "name": spec.name,
            "about": spec.about,
            "interval_s": spec.every.map(|every| every.as_secs_f64()),
            "run": run,
            "first_run": first_run.unwrap_or(run),
            "running": here.is_some() || row.is_some_and(|row| row.held),
            "here": here.is_some(),
            "paused": row.is_some_and(|row| row.paused),
            "waiting": here.is_none() && !row.is_some_and(|row| row.held) && spec.resumes && state.waits(),
            "parameters": parameters,
            "progress": { "done": progress.done, "total": progress.total, "unit": spec.unit, "note": progress.note },
            "backlog": backlog,
            "last_run_ms": row.and_then(|row| row.ended_ms),
            "last_result": word,
            "last_outcome": state.outcome.map(|last| last.report),
        })
    }

    /// Waits until no commit is under way and no job runs, is due or has something waiting for it,
    /// at most `timeout`; true when it got there. Paused jobs do not count. A failed one is tried
    /// once more where its trouble may have passed.
    ///
    /// # Errors
    /// What the catalog says.
    pub async fn settle(self: &Arc<Self>, timeout: Duration) -> Result<bool, EngineError> {
        let (_settling, began) = (self.settling.wait(), Instant::now());
        let idle = async {
            loop {
                let ended = self.ended.notified();
                self.hooks.settle().await;
                let urgency = Urgency::Settle { waited: began.elapsed() };
                if self.writer.is_idle() && !self.start_due_jobs(urgency).await? {
                    return Ok(());
                }
                let _ = tokio::time::timeout(Duration::from_millis(20), ended).await;
            }
        };
        match tokio::time::timeout(timeout, idle).await {
            Ok(settled) => settled.map(|()| true),
            Err(_) => Ok(false),
        }
    }
}
