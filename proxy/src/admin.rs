//! What operators ask: metrics, health, and the API of `docs/reference/admin-api.md`. The same
//! answers come over the admin listener, the socket in the data directory, and, when no server
//! runs, straight from the engine to the command line.

mod access;
mod answer;
mod console;

pub use access::{Access, Caller, Scope};
pub use answer::AdminError;
use answer::{Answer, failed, json_answer, text};

use crate::{
    auth::Users,
    engine::{CollectParameters, Engine, JobAction},
    metrics::Metrics,
    ops::access::Trial,
};
use bytes::Bytes;
use catalog::VersionRef;
use http::{HeaderValue, Method, Request, StatusCode, header, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use s3_wire::{Query, timestamp};
use serde_json::{Value, json};
use std::{
    error::Error,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use tokio::sync::watch;

/// The longest a caller may wait for background work.
const SETTLE_MAX: Duration = Duration::from_secs(3600);
/// And how long it waits when it does not say.
const SETTLE_DEFAULT: Duration = Duration::from_secs(60);
/// Most bytes of a call's body.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The admin API over one engine.
pub struct AdminService {
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    users: UsersNow,
    access: Option<Access>,
    stopping: watch::Receiver<bool>,
}

/// Gives the users as they are now.
pub type UsersNow = Box<dyn Fn() -> Arc<Users> + Send + Sync>;

type ApiResult = Result<Value, AdminError>;

impl AdminService {
    /// The API over an engine. `access` says who may call from the network, `None`: nobody;
    /// `stopping` turns readiness off.
    pub fn new(
        engine: Arc<Engine>,
        metrics: Arc<Metrics>,
        users: UsersNow,
        access: Option<Access>,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self { engine, metrics, users, access, stopping })
    }

    /// Answers one request.
    pub async fn answer<B>(self: Arc<Self>, caller: Caller, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let mut answer = match self.admit(caller, &parts).await {
            Err(error) => failed(&error),
            Ok(scope) => match parts.uri.path() {
                "/healthz" => text(StatusCode::OK, "ok\n"),
                "/readyz" => self.ready().await,
                "/metrics" => self.rendered_metrics(),
                path @ ("/" | "/console.js" | "/console.css") => console::file(path),
                _ => match self.called(scope, &parts, body).await {
                    Ok(value) => json_answer(StatusCode::OK, &value),
                    Err(error) => failed(&error),
                },
            },
        };
        let headers = answer.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }

    async fn admit(&self, caller: Caller, parts: &Parts) -> Result<Scope, AdminError> {
        match (&self.access, caller) {
            (_, Caller::Owner) => Ok(Scope::Owner),
            (Some(access), Caller::Network(_)) => access.admit(caller, parts).await,
            (None, Caller::Network(_)) => Err(AdminError::new(StatusCode::FORBIDDEN, "nobody may call from there")),
        }
    }

    async fn called<B>(&self, scope: Scope, parts: &Parts, body: B) -> ApiResult
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        access::check_content_type(parts, body.is_end_stream())?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let query = query.map_err(|error| AdminError::invalid(error.message().to_owned()))?;
        // A caller who may not make the call does not have its body read.
        scope.check(&parts.method)?;
        self.call(scope, &parts.method, parts.uri.path(), &query, document(body).await?).await
    }

    async fn ready(&self) -> Answer {
        if *self.stopping.borrow() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        match self.engine.probe().await {
            Ok(()) => text(StatusCode::OK, "ready\n"),
            Err(error) => {
                tracing::warn!(error = %error, "not ready");
                // Whoever may ask without a token is told no more than this.
                let why = self.engine.refused_because().map_or_else(String::new, |why| format!(": {why}"));
                text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready{why}\n"))
            }
        }
    }

    fn rendered_metrics(&self) -> Answer {
        self.engine.refresh_gauges();
        match self.metrics.render() {
            Ok(page) => {
                let mut answer = text(StatusCode::OK, page);
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                answer.headers_mut().insert(header::CONTENT_TYPE, kind);
                answer
            }
            Err(error) => failed(&AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        }
    }

    /// One call of the API by a caller who may do what `scope` says. `body` is null when there is
    /// none.
    ///
    /// # Errors
    /// [`AdminError`] with the status the call has over HTTP.
    pub async fn call(&self, scope: Scope, method: &Method, path: &str, query: &Query, body: Value) -> ApiResult {
        scope.check(method)?;
        let name = path.strip_prefix("/api/v1/").ok_or_else(|| AdminError::not_found("page"))?;
        if let Some(job) = name.strip_prefix("jobs/") {
            return self.job(scope, method, job, query, body).await;
        }
        let wanted = match name {
            "stats" | "explain" | "inspect" | "backups" | "jobs" | "buckets" | "quarantine" | "policy" => Method::GET,
            "gc" | "journal" | "settle" | "cache/drop" => Method::POST,
            _ => return Err(AdminError::not_found("call")),
        };
        if *method != wanted {
            let message = format!("{name} is asked for with {wanted}");
            return Err(AdminError::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let engine = &self.engine;
        match name {
            "stats" => Ok(engine.reports.stats().await?),
            "buckets" => self.buckets().await,
            "jobs" => Ok(engine.jobs.jobs().await?),
            "explain" => {
                let (bucket, key) = (required(query, "bucket")?, required(query, "key")?);
                let version = match query.get("version").filter(|version| !version.is_empty()) {
                    None => None,
                    Some(text) => Some(VersionRef::parse(text).ok_or_else(|| AdminError::not_found("version"))?),
                };
                engine.reports.explain(bucket, key, version).await?.ok_or_else(|| AdminError::not_found("object"))
            }
            "inspect" => {
                engine.reports.inspect(required(query, "blob")?).await?.ok_or_else(|| AdminError::not_found("blob"))
            }
            "quarantine" => Ok(serde_json::to_value(engine.quarantines.quarantine().await?).unwrap_or_default()),
            "policy" => self.policy(query).await,
            "gc" => {
                let parameters = CollectParameters {
                    now: flag(query, "now")?,
                    empty_trash: flag(query, "empty_trash")?,
                    undo: flag(query, "undo")?,
                    sweep: flag(query, "sweep")?,
                };
                let report = engine.collect_as(parameters).await?;
                Ok(serde_json::to_value(report).unwrap_or_default())
            }
            "backups" => Ok(json!({ "backups": engine.backups().await? })),
            "journal" => Ok(serde_json::to_value(engine.ship_journal().await?).unwrap_or_default()),
            "settle" => {
                let timeout = seconds(query, "timeout_s")?.unwrap_or(SETTLE_DEFAULT).min(SETTLE_MAX);
                Ok(json!({ "settled": engine.jobs.settle(timeout).await? }))
            }
            _ => {
                engine.drop_caches();
                Ok(json!({ "dropped": true }))
            }
        }
    }

    /// One job: what it is (GET), or starting, pausing, resuming, cancelling it (POST).
    async fn job(&self, scope: Scope, method: &Method, name: &str, query: &Query, parameters: Value) -> ApiResult {
        let engine = &self.engine;
        if name == "eject" && method == Method::POST && query.get("action").is_none() && scope < Scope::Owner {
            self.access.as_ref().map_or(Ok(()), |access| access.check_eject(&parameters))?;
        }
        match (method, query.get("action")) {
            (&Method::GET, _) => Ok(engine.jobs.job(name).await?),
            (&Method::POST, None) => Ok(json!(engine.jobs.start_job(name, parameters).await?)),
            (&Method::POST, Some(action)) => {
                let action: JobAction = serde_json::from_value(json!(action))
                    .map_err(|_| AdminError::invalid(format!("action is pause, resume or cancel, not {action:?}")))?;
                Ok(engine.jobs.act_on_job(name, action).await?)
            }
            _ => Err(AdminError::new(StatusCode::METHOD_NOT_ALLOWED, "a job is asked for with GET or POST")),
        }
    }

    /// What would be decided about a request, and by what.
    async fn policy(&self, query: &Query) -> ApiResult {
        let (user, action) = (required(query, "user")?, required(query, "action")?);
        let resource = required(query, "resource")?;
        let context = query.get("context").map_or(Ok(Value::Null), serde_json::from_str);
        let context = context.map_err(|error| AdminError::invalid(format!("context: {error}")))?;
        let users = (self.users)();
        let trial = Trial::new(&users, user, action, resource, &context);
        let trial = trial.map_err(|error| AdminError::invalid(error.to_string()))?;
        let verdict = trial.decide(&self.engine, &users).await?;
        Ok(serde_json::to_value(verdict).unwrap_or_default())
    }

    async fn buckets(&self) -> ApiResult {
        let stats = self.engine.reports.stats().await?;
        let stats = stats["buckets"].as_array().cloned().unwrap_or_default();
        let rows = self.engine.buckets.buckets().await?;
        let buckets = rows.into_iter().map(|row| {
            let numbers = stats.iter().find(|entry| entry["name"] == row.name);
            let number = |pointer: &str| numbers.and_then(|entry| entry.pointer(pointer)).cloned().unwrap_or(json!(0));
            let created = UNIX_EPOCH + Duration::from_millis(u64::try_from(row.created_ms).unwrap_or(0));
            json!({
                "name": row.name,
                "owner": row.owner,
                "created": timestamp::iso8601(created),
                "settings": row.settings,
                "objects": number("/objects"),
                "logical_bytes": number("/logical_bytes"),
                "stored_bytes": number("/stored/total"),
            })
        });
        Ok(json!({ "buckets": buckets.collect::<Vec<_>>() }))
    }
}

/// A call's body as JSON; null when it is empty.
async fn document<B>(body: B) -> ApiResult
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let bytes = Limited::new(body, BODY_BYTES_MAX).collect().await;
    let bytes = bytes.map_err(|error| AdminError::invalid(format!("the body: {error}")))?.to_bytes();
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|error| AdminError::invalid(format!("the body is not JSON: {error}")))
}

fn required<'q>(query: &'q Query, name: &'static str) -> Result<&'q str, AdminError> {
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
