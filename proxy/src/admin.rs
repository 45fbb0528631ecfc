//! What operators ask: metrics, health, and the API of `docs/reference/admin-api.md`. The same answers come over the admin listener, the socket in
//! the data directory, and, when no server runs, straight from the engine to the command line.

mod console;

use crate::{
    engine::{Engine, EngineError, JobAction},
    metrics::Metrics,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full, Limited};
use s3_wire::{Query, timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use std::{
    error::Error,
    net::IpAddr,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use subtle::ConstantTimeEq as _;
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
    token: Option<SecretString>,
    stopping: watch::Receiver<bool>,
}

/// Why an API call has no answer.
#[derive(Debug)]
pub struct AdminError {
    /// What it is over HTTP.
    pub status: StatusCode,
    /// What the operator is told. Operators are trusted with the engine's own words.
    pub message: String,
}

impl AdminError {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no such {what}"))
    }

    fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }
}

impl From<EngineError> for AdminError {
    fn from(error: EngineError) -> Self {
        let status = match error {
            EngineError::Busy(_) | EngineError::Unavailable(_) | EngineError::Fenced => StatusCode::SERVICE_UNAVAILABLE,
            EngineError::NoJob(_) => StatusCode::NOT_FOUND,
            EngineError::JobRuns(_) | EngineError::JobRefused(_) => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

type ApiResult = Result<Value, AdminError>;
type Answer = Response<Full<Bytes>>;

impl AdminService {
    /// The API over an engine. `token` is what untrusted callers must show; `stopping` turns readiness off.
    pub fn new(
        engine: Arc<Engine>,
        metrics: Arc<Metrics>,
        token: Option<SecretString>,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self { engine, metrics, token, stopping })
    }

    /// Answers one request. `trusted`: it came over the socket, whose file only the owner may open.
    pub async fn answer<B>(self: Arc<Self>, trusted: bool, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let mut answer = match self.admit(trusted, path, &parts.headers) {
            Err(error) => failed(&error),
            Ok(()) => match path {
                "/healthz" => text(StatusCode::OK, "ok\n"),
                "/readyz" => self.ready().await,
                "/metrics" => self.rendered_metrics(),
                "/" | "/console.js" | "/console.css" => console::file(path),
                _ => match Query::parse(parts.uri.query().unwrap_or_default()) {
                    Ok(query) => {
                        let called = async {
                            let body = document(body).await?;
                            self.call(&parts.method, path, &query, body).await
                        };
                        called.await.map_or_else(|error| failed(&error), |value| json_answer(StatusCode::OK, &value))
                    }
                    Err(error) => failed(&AdminError::invalid(error.message().to_owned())),
                },
            },
        };
        let headers = answer.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }

    /// Whether a caller may ask. Health needs no token, because what probes it seldom has one; the console's own files tell nothing.
    fn admit(&self, trusted: bool, path: &str, headers: &HeaderMap) -> Result<(), AdminError> {
        if trusted || matches!(path, "/healthz" | "/readyz") {
            return Ok(());
        }
        let Some(token) = &self.token else { return refuse_foreign_pages(headers) };
        if matches!(path, "/" | "/console.js" | "/console.css") {
            return Ok(());
        }
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let same = shown.is_some_and(|shown| bool::from(shown.ct_eq(token.expose_secret().as_bytes())));
        if same {
            Ok(())
        } else {
            Err(AdminError::new(StatusCode::UNAUTHORIZED, "the admin token is missing or wrong"))
        }
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
                text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
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

    /// One call of the API. `body` is null when there is none.
    ///
    /// # Errors
    /// [`AdminError`] with the status the call has over HTTP.
    pub async fn call(&self, method: &Method, path: &str, query: &Query, body: Value) -> ApiResult {
        let name = path.strip_prefix("/api/v1/").ok_or_else(|| AdminError::not_found("page"))?;
        if let Some(job) = name.strip_prefix("jobs/") {
            return self.job(method, job, query, body).await;
        }
        let wanted = match name {
            "stats" | "explain" | "inspect" | "backups" | "jobs" | "buckets" | "quarantine" => Method::GET,
            "gc" | "journal" | "settle" | "cache/drop" => Method::POST,
            _ => return Err(AdminError::not_found("call")),
        };
        if *method != wanted {
            let message = format!("{name} is asked for with {wanted}");
            return Err(AdminError::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let engine = &self.engine;
        match name {
            "stats" => Ok(engine.stats().await?),
            "buckets" => self.buckets().await,
            "jobs" => Ok(engine.jobs().await?),
            "explain" => {
                let (bucket, key) = (required(query, "bucket")?, required(query, "key")?);
                if query.get("version").is_some_and(|version| !matches!(version, "" | "null")) {
                    return Err(AdminError::not_found("version"));
                }
                engine.explain(bucket, key).await?.ok_or_else(|| AdminError::not_found("object"))
            }
            "inspect" => engine.inspect(required(query, "blob")?).await?.ok_or_else(|| AdminError::not_found("blob")),
            "quarantine" => Ok(serde_json::to_value(engine.quarantine().await?).unwrap_or_default()),
            "gc" => {
                let report = engine.collect(flag(query, "now")?).await?;
                Ok(serde_json::to_value(report).unwrap_or_default())
            }
            "backups" => Ok(json!({ "backups": engine.backups().await? })),
            "journal" => Ok(serde_json::to_value(engine.ship_journal().await?).unwrap_or_default()),
            "settle" => {
                let timeout = seconds(query, "timeout_s")?.unwrap_or(SETTLE_DEFAULT).min(SETTLE_MAX);
                Ok(json!({ "settled": engine.settle(timeout).await? }))
            }
            _ => {
                engine.drop_caches();
                Ok(json!({ "dropped": true }))
            }
        }
    }

    /// One job: what it is (GET), or starting, pausing, resuming, cancelling it (POST).
    async fn job(&self, method: &Method, name: &str, query: &Query, parameters: Value) -> ApiResult {
        let engine = &self.engine;
        match (method, query.get("action")) {
            (&Method::GET, _) => Ok(engine.job(name).await?),
            (&Method::POST, None) => Ok(json!(engine.start_job(name, parameters).await?)),
            (&Method::POST, Some(action)) => {
                let action: JobAction = serde_json::from_value(json!(action))
                    .map_err(|_| AdminError::invalid(format!("action is pause, resume or cancel, not {action:?}")))?;
                Ok(engine.act_on_job(name, action).await?)
            }
            _ => Err(AdminError::new(StatusCode::METHOD_NOT_ALLOWED, "a job is asked for with GET or POST")),
        }
    }

    async fn buckets(&self) -> ApiResult {
        let stats = self.engine.stats().await?;
        let stats = stats["buckets"].as_array().cloned().unwrap_or_default();
        let rows = self.engine.buckets().await?;
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

/// Without a token the listener is on loopback, where every page open in the operator's browser could reach it: by a request across sites,
/// or by a name that resolves to 127.0.0.1.
fn refuse_foreign_pages(headers: &HeaderMap) -> Result<(), AdminError> {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    if matches!(site, None | Some(b"none" | b"same-origin")) && is_own_host(host) {
        return Ok(());
    }
    Err(AdminError::new(
        StatusCode::FORBIDDEN,
        "this page may only be asked for directly; set an admin token otherwise",
    ))
}

/// `localhost` or an address, with or without a port.
fn is_own_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

fn json_answer(status: StatusCode, value: &Value) -> Answer {
    let mut answer = text(status, value.to_string() + "\n");
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn failed(error: &AdminError) -> Answer {
    let mut answer = json_answer(error.status, &json!({ "error": error.message }));
    if error.status == StatusCode::UNAUTHORIZED {
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (header::HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn only_addresses_and_localhost_are_names_of_ours() {
        for host in ["localhost:9001", "127.0.0.1:9001", "127.0.0.1", "[::1]:9001", "LOCALHOST"] {
            assert!(is_own_host(host), "{host}");
        }
        for host in ["evil.example:9001", "localhost.evil.example", "", "127.0.0.1.nip.io:9001"] {
            assert!(!is_own_host(host), "{host}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        assert!(refuse_foreign_pages(&headers(&[("host", "127.0.0.1:9001")])).is_ok());
        assert!(refuse_foreign_pages(&headers(&[("host", "localhost"), ("sec-fetch-site", "same-origin")])).is_ok());
        assert!(refuse_foreign_pages(&headers(&[("host", "localhost"), ("sec-fetch-site", "cross-site")])).is_err());
        assert!(refuse_foreign_pages(&headers(&[("host", "rebound.example:9001")])).is_err());
    }

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
