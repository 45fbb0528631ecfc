//! What a job is: its name, what it does, and when.

use super::run::{self, JobRun};
use crate::error::EngineError;
use futures::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{future::Future, sync::Arc, time::Duration};

/// How many things wait for a job.
type Backlog = Box<dyn Fn() -> BoxFuture<'static, Result<u64, EngineError>> + Send + Sync>;

/// Whether a run with these parameters could do anything.
type Admission = Box<dyn Fn(&Value) -> BoxFuture<'static, Result<(), EngineError>> + Send + Sync>;

/// A job's function over its run.
type Work = Box<dyn Fn(JobRun) -> BoxFuture<'static, Result<Value, EngineError>> + Send + Sync>;

/// A report as a run gives it.
pub(crate) fn report<T: Serialize>(outcome: Result<T, EngineError>) -> Result<Value, EngineError> {
    serde_json::to_value(outcome?).map_err(|error| EngineError::Other(error.to_string()))
}

/// One job.
pub(crate) struct JobSpec {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) unit: &'static str,
    pub(super) every: Option<Duration>,
    pub(super) at_start: bool,
    pub(super) resumes: bool,
    pub(super) backlog: Option<Backlog>,
    pub(super) work: Work,
    check: fn(&Value) -> Result<(), String>,
    admission: Option<Admission>,
}

impl JobSpec {
    /// A job that runs when it is asked for, takes no parameters and begins anew every time. `unit`
    /// is what its progress counts.
    pub(crate) fn new<F, R>(name: &'static str, about: &'static str, unit: &'static str, work: F) -> Self
    where
        F: Fn(JobRun) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, EngineError>> + Send + 'static,
    {
        let check = |parameters: &Value| match parameters {
            Value::Null => Ok(()),
            Value::Object(fields) if fields.is_empty() => Ok(()),
            _ => Err("it takes no parameters".to_owned()),
        };
        Self {
            name,
            about,
            unit,
            every: None,
            at_start: false,
            resumes: false,
            backlog: None,
            work: Box::new(move |run| Box::pin(work(run))),
            check,
            admission: None,
        }
    }

    /// A job that a worker does: [`JobSpec::new`] with a handle of the worker for each run.
    pub(crate) fn of<W, F, R>(
        worker: &Arc<W>,
        (name, about, unit): (&'static str, &'static str, &'static str),
        work: F,
    ) -> Self
    where
        W: Send + Sync + 'static,
        F: Fn(Arc<W>, JobRun) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, EngineError>> + Send + 'static,
    {
        let worker = worker.clone();
        Self::new(name, about, unit, move |run| work(worker.clone(), run))
    }

    /// Its parameters are a `T`; null is `T` of an empty object.
    pub(crate) fn takes<T: DeserializeOwned>(self) -> Self {
        Self { check: |parameters| run::parse::<T>(parameters).map(drop), ..self }
    }

    /// Its parameters are a `T`, and its worker says before a run begins whether they can be met at
    /// all. What could only fail would otherwise wait to be resumed until somebody cancels it.
    pub(crate) fn admits<T, W, F, R>(self, worker: &Arc<W>, admits: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        W: Send + Sync + 'static,
        F: Fn(Arc<W>, T) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<(), EngineError>> + Send + 'static,
    {
        let (worker, job) = (worker.clone(), self.name);
        let admission = move |parameters: &Value| -> BoxFuture<'static, Result<(), EngineError>> {
            let parsed = run::parse(parameters).map_err(|error| EngineError::JobRefused(format!("{job}: {error}")));
            let (worker, admits) = (worker.clone(), admits.clone());
            Box::pin(async move { admits(worker, parsed?).await })
        };
        Self { admission: Some(Box::new(admission)), ..self.takes::<T>() }
    }

    /// It runs on its own when it last ended so long ago.
    pub(crate) fn every(self, interval: Duration) -> Self {
        Self { every: Some(interval), ..self }
    }

    /// It also runs when a process starts.
    pub(crate) fn at_start(self) -> Self {
        Self { at_start: true, ..self }
    }

    /// A run that was interrupted goes on from its cursor, in whichever process.
    pub(crate) fn resumes(self) -> Self {
        Self { resumes: true, ..self }
    }

    /// It runs, besides its interval, while `backlog` says that something waits for it, and
    /// [`Jobs::settle`](super::Jobs::settle) waits until nothing does.
    pub(crate) fn backlog<F, R>(self, backlog: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<u64, EngineError>> + Send + 'static,
    {
        Self { backlog: Some(Box::new(move || Box::pin(backlog()))), ..self }
    }

    fn check(&self, parameters: &Value) -> Result<(), String> {
        (self.check)(parameters)
    }

    /// Whether a run with these parameters may begin.
    ///
    /// # Errors
    /// [`EngineError::JobRefused`] for parameters that are none; what the worker says of others.
    pub(super) async fn admit(&self, parameters: &Value) -> Result<(), EngineError> {
        self.check(parameters).map_err(|error| EngineError::JobRefused(format!("{}: {error}", self.name)))?;
        match &self.admission {
            Some(admission) => admission(parameters).await,
            None => Ok(()),
        }
    }

    /// Its name, when it runs by an interval.
    #[cfg(test)]
    pub(crate) fn name_if_periodic(&self) -> Option<&'static str> {
        self.every.map(|_| self.name)
    }
}
