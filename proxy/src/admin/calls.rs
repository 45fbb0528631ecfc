//! The calls of the API: parameters are read, the engine is asked.

use super::{
    AdminService, ApiResult,
    answer::AdminError,
    money,
    routes::{self, Call},
    scope::Scope,
};
use crate::{
    engine::{CELLS_MAX, CollectParameters, JobAction, PAGE_MAX, Page},
    ops::access::Trial,
    sealing::default_in_words,
};
use catalog::VersionRef;
use http::Method;
use s3_wire::Query;
use serde_json::{Value, json};
use std::time::Duration;

/// The longest a caller may wait for background work.
const SETTLE_MAX: Duration = Duration::from_secs(3600);
/// And how long it waits when it does not say.
const SETTLE_DEFAULT: Duration = Duration::from_secs(60);

impl AdminService {
    /// One call of the API by a caller who may do what `scope` says. `body` is null when there is
    /// none.
    ///
    /// # Errors
    /// [`AdminError`] with the status the call has over HTTP.
    pub async fn call(&self, scope: Scope, method: &Method, path: &str, query: &Query, body: Value) -> ApiResult {
        scope.check(method)?;
        let (call, name) = routes::route(method, path)?;
        let name = name.as_ref();
        let engine = &self.engine;
        match call {
            Call::Stats => self.stats().await,
            Call::Overview => self.overview().await,
            Call::Recovery => self.recovery().await,
            Call::Log => self.log(query),
            Call::Request => self.request(name),
            Call::Requests => self.requests(query),
            Call::Traffic => self.traffic(),
            Call::Buckets => self.buckets().await,
            Call::AddBucket => self.add_bucket(name, query, body).await,
            Call::ChangeBucket => self.change_bucket(name, body).await,
            Call::Jobs => Ok(engine.jobs.jobs().await?),
            Call::Job => Ok(engine.jobs.job(name).await?),
            Call::StartJob => self.change_job(scope, name, query, body).await,
            Call::Explain | Call::Map | Call::Object | Call::Streams | Call::Versions => {
                self.of_object(call, query).await
            }
            Call::Objects => self.objects(query).await,
            Call::Lifecycle => self.due(query).await,
            Call::Inspect => self.blob(query).await,
            Call::Quarantine => Ok(serde_json::to_value(engine.quarantines.quarantine().await?).unwrap_or_default()),
            Call::Policy => self.policy(query).await,
            Call::Preview => self.preview(query).await,
            Call::AuditLines => self.audit_lines(query).await,
            Call::AuditVerdict => self.audit_verdict().await,
            Call::Quota | Call::Quotas | Call::SetQuota | Call::ClearQuota => self.quota(call, query, body).await,
            Call::Keys => Ok(serde_json::to_value(engine.keys.list().await?).unwrap_or_default()),
            Call::CheckKeys => Ok(serde_json::to_value(engine.keys.verify().await?).unwrap_or_default()),
            Call::RotateKeys => {
                let done = engine.keys.rotate(flag(query, "remove_needless")?).await?;
                Ok(serde_json::to_value(done).unwrap_or_default())
            }
            Call::Shredding | Call::Shred => self.shred(call, query).await,
            Call::Gc => {
                let parameters = CollectParameters {
                    now: flag(query, "now")?,
                    empty_trash: flag(query, "empty_trash")?,
                    undo: flag(query, "undo")?,
                    sweep: flag(query, "sweep")?,
                };
                let report = engine.collect_as(parameters).await?;
                Ok(serde_json::to_value(report).unwrap_or_default())
            }
            Call::Backups => Ok(json!({ "backups": engine.backups().await? })),
            Call::Journal => Ok(serde_json::to_value(engine.ship_journal().await?).unwrap_or_default()),
            Call::Settle => {
                let timeout = seconds(query, "timeout_s")?.unwrap_or(SETTLE_DEFAULT).min(SETTLE_MAX);
                Ok(json!({ "settled": engine.jobs.settle(timeout).await? }))
            }
            Call::DropCaches => {
                engine.drop_caches();
                Ok(json!({ "dropped": true }))
            }
            Call::SignInOffer => Ok(self.sign_in_offer()),
            Call::BeginSignIn | Call::EndSignIn => {
                Err(AdminError::invalid("sign-in is for browsers, on the admin listener"))
            }
            Call::OpenSession | Call::Session | Call::EndSession => {
                Err(AdminError::invalid("sessions are for the admin listener"))
            }
            of_accounts => self.of_accounts(of_accounts, name, query, body).await,
        }
    }

    /// What is stored, and what that costs where the configuration has prices.
    async fn stats(&self) -> ApiResult {
        let mut stats = self.engine.reports.stats().await?;
        if let Some(prices) = self.prices.get() {
            money::price(&mut stats, prices, &self.metrics.engine.families(), self.started_ms);
        }
        Ok(stats)
    }

    /// What a bucket's lifecycle rules would remove now.
    async fn due(&self, query: &Query) -> ApiResult {
        let after = query.get("after").filter(|after| !after.is_empty()).map(str::to_owned);
        let bucket = required(query, "bucket")?;
        let due = self.engine.reports.expiring(bucket, after, count(query, "limit", 100, PAGE_MAX)?).await?;
        due.ok_or_else(|| AdminError::unknown("bucket", bucket))
    }

    /// What a blob holds.
    async fn blob(&self, query: &Query) -> ApiResult {
        let blob = required(query, "blob")?;
        self.engine.reports.inspect(blob).await?.ok_or_else(|| AdminError::unknown("blob", blob))
    }

    /// What depends on a bucket's former keys, and their removal.
    async fn shred(&self, call: Call, query: &Query) -> ApiResult {
        let (keys, bucket) = (&self.engine.keys, required(query, "bucket")?);
        let told = if call == Call::Shred { keys.shred(bucket).await } else { keys.shredding(bucket).await };
        Ok(serde_json::to_value(told.map_err(AdminError::about(bucket))?).unwrap_or_default())
    }

    /// What is told of one version: how it is stored, where its bytes come from, what it says of
    /// itself; or which versions its key has.
    async fn of_object(&self, call: Call, query: &Query) -> ApiResult {
        let (bucket, key) = (required(query, "bucket")?, required(query, "key")?);
        let named = query.get("version").filter(|version| !version.is_empty());
        let unknown = || match named {
            None => AdminError::unknown("object", &format!("s3://{bucket}/{key}")),
            Some(version) => AdminError::unknown("version", &format!("{version} of s3://{bucket}/{key}")),
        };
        let version = named.map(|text| VersionRef::parse(text).ok_or_else(unknown)).transpose()?;
        let reports = &self.engine.reports;
        let told = match call {
            Call::Map => {
                reports.map(bucket, key, version, count(query, "cells", 256, CELLS_MAX as usize)? as u64).await?
            }
            Call::Object => reports.object(bucket, key, version).await?,
            Call::Streams => reports.streams(bucket, key, version).await.map_err(|error| match error {
                engine::EngineError::TooLarge => AdminError::invalid("an object of more than 1 GiB is not looked into"),
                error => error.into(),
            })?,
            Call::Versions => reports.versions(bucket, key, count(query, "limit", 100, PAGE_MAX)?).await?,
            _ => self.explain(bucket, key, version).await?,
        };
        match told {
            Some(told) => Ok(told),
            None if self.engine.buckets.bucket(bucket).await?.is_none() => Err(AdminError::unknown("bucket", bucket)),
            None => Err(unknown()),
        }
    }

    /// Why a version is stored as it is, and whether it is plain where new ones are not.
    async fn explain(&self, bucket: &str, key: &str, version: Option<VersionRef>) -> Result<Option<Value>, AdminError> {
        let Some(mut told) = self.engine.reports.explain(bucket, key, version).await? else { return Ok(None) };
        if told.get("encryption").is_none()
            && let Some(bucket) = self.engine.buckets.bucket(bucket).await?
            && let Some(default) = default_in_words(&bucket.settings)
        {
            told["plain_before"] = json!(default);
        }
        Ok(Some(told))
    }

    /// A page of keys.
    async fn objects(&self, query: &Query) -> ApiResult {
        let text = |name| query.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
        let page = Page {
            prefix: text("prefix").unwrap_or_default(),
            delimiter: text("delimiter"),
            after: text("after"),
            limit: count(query, "limit", 100, PAGE_MAX)?,
        };
        let bucket = required(query, "bucket")?;
        let found = self.engine.reports.objects(bucket, page).await?;
        found.ok_or_else(|| AdminError::unknown("bucket", bucket))
    }

    /// Starts a job, or pauses, resumes or cancels it.
    async fn change_job(&self, scope: Scope, name: &str, query: &Query, mut parameters: Value) -> ApiResult {
        let jobs = &self.engine.jobs;
        let Some(action) = query.get("action") else {
            if name == "eject" && scope < Scope::Owner {
                self.access.as_ref().map_or(Ok(()), |access| access.check_eject(&mut parameters))?;
            }
            let bucket = parameters["bucket"].as_str().unwrap_or_default().to_owned();
            return Ok(json!(jobs.start_job(name, parameters).await.map_err(AdminError::about(&bucket))?));
        };
        let action: JobAction = serde_json::from_value(json!(action))
            .map_err(|_| AdminError::invalid(format!("action is pause, resume or cancel, not {action:?}")))?;
        Ok(jobs.act_on_job(name, action).await?)
    }

    /// What would be decided about a request, and by what.
    async fn policy(&self, query: &Query) -> ApiResult {
        let (user, action) = (required(query, "user")?, required(query, "action")?);
        let resource = required(query, "resource")?;
        let context = query.get("context").map_or(Ok(Value::Null), serde_json::from_str);
        let context = context.map_err(|error| AdminError::invalid(format!("context: {error}")))?;
        let users = self.accounts.users();
        let trial = Trial::new(&users, user, action, resource, &context);
        let trial = trial.map_err(|error| AdminError::invalid(error.to_string()))?;
        let verdict = trial.decide(&self.engine, &users).await?;
        Ok(serde_json::to_value(verdict).unwrap_or_default())
    }
}

pub(super) fn required<'q>(query: &'q Query, name: &'static str) -> Result<&'q str, AdminError> {
    query.get(name).filter(|value| !value.is_empty()).ok_or_else(|| AdminError::invalid(format!("{name} is missing")))
}

fn flag(query: &Query, name: &'static str) -> Result<bool, AdminError> {
    match query.get(name) {
        None | Some("false") => Ok(false),
        Some("" | "true") => Ok(true),
        Some(other) => Err(AdminError::invalid(format!("{name} is true or false, not {other:?}"))),
    }
}

fn seconds(query: &Query, name: &'static str) -> Result<Option<Duration>, AdminError> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let number = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    number.map(Some).ok_or_else(|| AdminError::invalid(format!("{name} is a number of seconds, not {text:?}")))
}

/// A number of entries, at least one and at most so many.
pub(super) fn count(query: &Query, name: &'static str, default: usize, most: usize) -> Result<usize, AdminError> {
    let Some(text) = query.get(name) else { return Ok(default) };
    let number = text.parse::<usize>().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| AdminError::invalid(format!("{name} is a number from 1 to {most}, not {text:?}")))
}

/// A number of a line, such as where a page ends; `None` when it is not said.
pub(super) fn number(query: &Query, name: &'static str) -> Result<Option<u64>, AdminError> {
    let Some(text) = query.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let number = text.parse().map_err(|_| AdminError::invalid(format!("{name} is a number, not {text:?}")))?;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_strictly() {
        let query = |raw: &str| Query::parse(raw).unwrap();
        assert!(flag(&query("now"), "now").unwrap() && flag(&query("now=true"), "now").unwrap());
        assert!(!flag(&query(""), "now").unwrap());
        assert!(flag(&query("now=yes"), "now").is_err());
        assert_eq!(seconds(&query("timeout_s=1.5"), "timeout_s").unwrap(), Some(Duration::from_millis(1500)));
        for raw in ["timeout_s=", "timeout_s=-1", "timeout_s=NaN", "timeout_s=inf", "timeout_s=x"] {
            assert!(seconds(&query(raw), "timeout_s").is_err(), "{raw}");
        }
    }
}
