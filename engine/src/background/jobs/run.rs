//! One run of a job: the handle its function works with, and what keeps its lease.

use super::state::{JobState, Outcome, Progress};
use crate::{
    error::EngineError,
    resources::{clock::millis, pace::Pace},
};
use bytes::Bytes;
use catalog::{Catalog, CatalogError, JobLease, JobRow};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream::BoxStream};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a lease lasts without being renewed.
pub(super) const LEASE: Duration = Duration::from_secs(30);
/// Between renewals, each of which also stores how far the run is.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Between stored cursors; what lies behind the last stored one is done again after a crash.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// What a job's function works with. Cloning it gives another handle of the same run.
#[derive(Clone)]
pub struct JobRun(Arc<Running>);

/// A run that was started.
#[derive(Clone, Debug, Serialize)]
pub struct Started {
    /// The job.
    pub job: &'static str,
    /// The run's number: grows with every run of the job, in the whole deployment.
    pub run: i64,
    /// The number under which it began, before it was interrupted.
    pub first_run: i64,
    /// It had begun before it was asked for.
    pub joined: bool,
}

/// A run under way in this process.
pub(super) struct Running {
    pub(super) job: &'static str,
    pub(super) lease: JobLease,
    catalog: Arc<dyn Catalog>,
    memory: Mutex<Memory>,
    /// Only one state is on its way to the catalog, so that an older one cannot overtake.
    saving: tokio::sync::Mutex<()>,
    token: CancellationToken,
    pub(super) outcome: watch::Sender<Option<Arc<Result<Value, EngineError>>>>,
}

pub(super) struct Memory {
    pub(super) state: JobState,
    saved: Option<Instant>,
    pub(super) why: Option<Outcome>,
}

impl JobRun {
    /// What this run was asked for.
    ///
    /// # Errors
    /// [`EngineError::JobRefused`] when it is not a `T` (an older version of the program began the
    /// run).
    pub fn parameters<T: DeserializeOwned>(&self) -> Result<T, EngineError> {
        parse(&self.0.parameters()).map_err(|error| EngineError::JobRefused(format!("{}: {error}", self.0.job)))
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

    /// A body at a pace. It ends with [`EngineError::Stopped`] when the run is to end.
    pub(crate) fn paced<'b>(
        &self,
        pace: &Arc<Pace>,
        body: impl Stream<Item = Result<Bytes, EngineError>> + Send + 'b,
    ) -> BoxStream<'b, Result<Bytes, EngineError>> {
        let (pace, run) = (pace.clone(), self.clone());
        let paced = body.and_then(move |bytes| {
            let (pace, run) = (pace.clone(), run.clone());
            async move {
                tokio::select! {
                    biased;
                    () = run.token().cancelled() => run.check()?,
                    () = pace.take(bytes.len() as u64) => {}
                }
                Ok(bytes)
            }
        });
        paced.boxed()
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
    /// A run under a lease that was just taken.
    pub(super) fn of(job: &'static str, row: &JobRow, catalog: Arc<dyn Catalog>, state: JobState) -> Arc<Self> {
        Arc::new(Self {
            job,
            lease: lease_of(row),
            catalog,
            memory: Mutex::new(Memory { state, saved: None, why: None }),
            saving: tokio::sync::Mutex::default(),
            token: CancellationToken::new(),
            outcome: watch::Sender::new(None),
        })
    }

    /// What its function works with.
    pub(super) fn handle(self: &Arc<Self>) -> JobRun {
        JobRun(self.clone())
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing panics while it holds the lock.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn started(&self) -> Started {
        let run = self.lease.fence;
        let first_run = self.memory().state.first_run.unwrap_or(run);
        Started { job: self.job, run, first_run, joined: first_run != run }
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
    pub(super) async fn save(&self) {
        let _one_at_a_time = self.saving.lock().await;
        let state = json!(self.memory().state);
        match self.catalog.save_job(&self.lease, state).await {
            Ok(()) => self.memory().saved = Some(Instant::now()),
            Err(CatalogError::Fenced) => self.stop(Outcome::Interrupted),
            Err(error) => tracing::warn!(%error, job = self.job, "a job's state could not be stored"),
        }
    }

    /// Renews the lease until there is a reason to end the run.
    pub(super) async fn keep(&self, stopping: &CancellationToken) -> Outcome {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                biased;
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

/// A row's lease, as its holder shows it.
pub(super) fn lease_of(row: &JobRow) -> JobLease {
    JobLease { name: row.name.clone(), fence: row.fence }
}

/// Whether two ask for the same. None are an empty object.
pub(super) fn are_same(one: &Value, other: &Value) -> bool {
    let named = |parameters: &Value| parameters.as_object().is_some_and(|fields| !fields.is_empty());
    one == other || !(named(one) || named(other))
}

/// Parameters as their type.
pub(super) fn parse<T: DeserializeOwned>(parameters: &Value) -> Result<T, String> {
    let parameters = if parameters.is_null() { Value::Object(serde_json::Map::new()) } else { parameters.clone() };
    serde_json::from_value(parameters).map_err(|error| error.to_string())
}
