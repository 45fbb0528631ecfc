//! Every background job there is. Adding one is a line in [`all`].

use super::{Backlog, JobRun, Work, boxed};
use crate::{
    Engine,
    background::lifecycle,
    config::{EngineConfig, SecondCopies},
    error::EngineError,
};
use futures::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{future::Future, sync::Arc, time::Duration};

/// How often uploads are looked through for those past their age.
const EXPIRY_EVERY: Duration = Duration::from_secs(3600);

/// How often backends are asked for uploads that were left behind: each asks for a listing.
const LEFTOVERS_EVERY: Duration = Duration::from_secs(86_400);

/// How often packs are looked through for those that are hardly in use; small objects do not wait
/// for it.
const PACKS_EVERY: Duration = Duration::from_secs(600);

/// How often bases are looked through for those that have come to need a second copy: each look
/// counts every edge.
const COPIES_EVERY: Duration = Duration::from_secs(600);

/// The jobs of a deployment.
pub(crate) fn all(config: &EngineConfig) -> Vec<JobSpec> {
    vec![
        JobSpec::new("gc", "Deletes blobs that nothing needs.", "blobs", |engine, run| async move {
            let parameters = run.parameters()?;
            report(engine.collect_once(&run, parameters).await)
        })
        .takes::<crate::background::collect::CollectParameters>()
        .every(config.gc_interval)
        .at_start(),
        JobSpec::new(
            "uploads",
            "Aborts uploads past their age, forgets completed ones.",
            "uploads",
            |engine, run| async move { report(engine.expire_uploads_once(&run).await) },
        )
        .every(EXPIRY_EVERY.min(config.upload_age_max))
        .at_start(),
        JobSpec::new(
            "leftovers",
            "Aborts uploads in parts to backends that a process left behind.",
            "uploads",
            |engine, run| async move { report(engine.abort_leftovers_once(&run).await) },
        )
        .every(LEFTOVERS_EVERY)
        .at_start(),
        JobSpec::new("pack", "Packs small objects together.", "objects", |engine, run| async move {
            report(engine.pack_once(&run).await)
        })
        .every(PACKS_EVERY)
        .backlog(|engine| Box::pin(engine.packing_backlog())),
        JobSpec::new(
            "import",
            "Registers the objects of a store as versions of a bucket.",
            "objects",
            |engine, run| async move { report(engine.import_once(&run).await) },
        )
        .takes::<crate::adopt::import::ImportParameters>()
        .resumes(),
        JobSpec::new(
            "eject",
            "Writes the objects of a bucket as plain files or objects.",
            "objects",
            |engine, run| async move { report(engine.eject_once(&run).await) },
        )
        .takes::<crate::adopt::eject::EjectParameters>()
        .resumes(),
        JobSpec::new(
            "lifecycle",
            "Removes what the lifecycle rules of buckets say is over.",
            "versions",
            |engine, run| async move { report(engine.follow_lifecycles_once(&run).await) },
        )
        .every(lifecycle::interval(config.lifecycle_day)),
        scrub(config),
        copies(config),
        backup(config),
        JobSpec::new(
            "converter",
            "Encodes stored content better while cores are idle.",
            "blobs",
            |engine, run| async move { report(engine.convert_once(&run).await) },
        )
        .takes::<crate::background::converter::ConverterParameters>()
        .every(config.convert.interval)
        .backlog(|engine| Box::pin(engine.converter_backlog())),
        JobSpec::new("convert", "Encodes a bucket or a prefix anew, as asked.", "objects", |engine, run| async move {
            report(engine.convert_as_ordered(&run).await)
        })
        .takes::<crate::background::convert::ConvertOrder>()
        .resumes(),
    ]
}

fn scrub(config: &EngineConfig) -> JobSpec {
    let about = "Verifies what is stored, puts what is damaged into quarantine.";
    let spec = JobSpec::new("scrub", about, "bytes", |engine, run| async move {
        let parameters = run.parameters()?;
        engine.scrub_once(&run, parameters).await
    })
    .takes::<crate::background::scrub::ScrubParameters>()
    .resumes();
    match config.scrub.interval {
        Some(interval) => spec.every(interval),
        None => spec,
    }
}

fn copies(config: &EngineConfig) -> JobSpec {
    let about = "Gives what many objects or deltas need a second copy.";
    let job =
        JobSpec::new("copies", about, "blobs", |engine, run| async move { report(engine.copy_bases_once(&run).await) });
    match (config.base_copies, config.second_copies) {
        (0, SecondCopies::None) => job,
        _ => job.every(COPIES_EVERY),
    }
}

fn backup(config: &EngineConfig) -> JobSpec {
    let about = "Makes a backup of the catalog and removes those past their retention.";
    let job = JobSpec::new("backup", about, "backups", |engine, _| async move { report(engine.safety.backup().await) });
    match config.safety.backup_interval {
        Some(interval) => job.every(interval),
        None => job,
    }
}

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
}

impl JobSpec {
    /// A job that runs when it is asked for, takes no parameters and begins anew every time. `unit`
    /// is what its progress counts.
    pub(crate) fn new<F, R>(name: &'static str, about: &'static str, unit: &'static str, work: F) -> Self
    where
        F: Fn(Arc<Engine>, JobRun) -> R + Send + Sync + 'static,
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
            work: boxed(work),
            check,
        }
    }

    /// Its parameters are a `T`; null is `T` of an empty object.
    pub(crate) fn takes<T: DeserializeOwned>(self) -> Self {
        Self { check: |parameters| parse::<T>(parameters).map(drop), ..self }
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
    /// [`Engine::settle`] waits until nothing does.
    pub(crate) fn backlog<F>(self, backlog: F) -> Self
    where
        F: for<'e> Fn(&'e Engine) -> BoxFuture<'e, Result<u64, EngineError>> + Send + Sync + 'static,
    {
        Self { backlog: Some(Box::new(backlog)), ..self }
    }

    pub(super) fn check(&self, parameters: &Value) -> Result<(), String> {
        (self.check)(parameters)
    }

    /// Its name, when it runs by an interval.
    #[cfg(test)]
    pub(crate) fn name_if_periodic(&self) -> Option<&'static str> {
        self.every.map(|_| self.name)
    }
}

/// Parameters as their type.
pub(super) fn parse<T: DeserializeOwned>(parameters: &Value) -> Result<T, String> {
    let parameters = if parameters.is_null() { Value::Object(serde_json::Map::new()) } else { parameters.clone() };
    serde_json::from_value(parameters).map_err(|error| error.to_string())
}
