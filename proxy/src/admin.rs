//! What operators ask: metrics, health, and the API of `docs/reference/admin-api.md`. The same
//! answers come over the admin listener, the socket in the data directory, and, when no server
//! runs, straight from the engine to the command line.

mod access;
mod answer;
mod audit;
mod buckets;
mod calls;
mod claims;
mod clock;
mod console;
mod estimates;
mod forecast;
mod log_lines;
mod money;
mod overview;
mod quotas;
mod requests;
mod routes;
mod scope;
mod session;
mod sign_in;
mod times;
mod told;
mod users;

use access::Admitted;
pub use access::{Access, Caller};
pub use answer::{AdminError, Answer};
use answer::{failed, json_answer, text};
use claims::Claims;
pub use routes::{Call, ROOT, ROUTES};
pub use scope::Scope;
pub use session::SESSION_HEADER;
pub use times::time_of as audit_time;
pub use told::Told;

use crate::{
    audit::{AuditLog, Entry, Kind},
    auth::Accounts,
    config::Prices,
    engine::Engine,
    log_tail::LogTail,
    memory,
    metrics::Metrics,
    oidc::Oidc,
    peers::Ends,
    server::Recent,
};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt as _, Limited};
use s3_wire::Query;
use serde_json::{Value, json};
use std::{
    error::Error,
    path::PathBuf,
    sync::{Arc, OnceLock},
};
use tokio::sync::{Mutex, watch};

/// Most bytes of a call's body.
const BODY_BYTES_MAX: usize = 1 << 20;
/// How much of a path the audit log holds.
const AUDITED_PATH_CHARS_MAX: usize = 200;

/// The admin API over one engine.
pub struct AdminService {
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    accounts: Arc<Accounts>,
    access: Option<Access>,
    stopping: watch::Receiver<bool>,
    audit: OnceLock<Arc<AuditLog>>,
    prices: OnceLock<Prices>,
    recent: OnceLock<Arc<Recent>>,
    log: OnceLock<Arc<LogTail>>,
    oidc: OnceLock<Arc<Oidc>>,
    claims: Claims,
    previews: OnceLock<PathBuf>,
    preview_turn: Arc<Mutex<()>>,
    started_ms: u64,
}

type ApiResult = Result<Value, AdminError>;

/// A call as the audit log has it.
pub struct Asked<'a> {
    /// Where it comes from.
    pub caller: Caller,
    /// Whose session it shows, where that is known.
    pub who: Option<&'a str>,
    /// Its method.
    pub method: &'a Method,
    /// Its path.
    pub path: &'a str,
    /// Its query.
    pub query: Option<&'a str>,
}

/// What is found out about a call on the way to its answer.
#[derive(Default)]
struct Note {
    who: Option<Arc<str>>,
    told: Told,
}

impl AdminService {
    /// The API over an engine. `access` says who may call from the network, `None`: nobody;
    /// `stopping` turns readiness off.
    pub fn new(
        engine: Arc<Engine>,
        metrics: Arc<Metrics>,
        accounts: Arc<Accounts>,
        access: Option<Access>,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let started_ms = clock::now_ms();
        Arc::new(Self {
            engine,
            metrics,
            accounts,
            access,
            stopping,
            audit: OnceLock::new(),
            prices: OnceLock::new(),
            recent: OnceLock::new(),
            log: OnceLock::new(),
            oidc: OnceLock::new(),
            claims: Claims::default(),
            previews: OnceLock::new(),
            preview_turn: Arc::default(),
            started_ms,
        })
    }

    /// Tells of the requests of this process from now on.
    pub fn show_requests(&self, recent: Arc<Recent>) {
        self.recent.get_or_init(|| recent);
    }

    /// Tells of the lines of this process's log from now on.
    pub fn show_log(&self, tail: Arc<LogTail>) {
        self.log.get_or_init(|| tail);
    }

    /// Tells money from now on. The first prices stay.
    pub fn price_by(&self, prices: Prices) {
        self.prices.get_or_init(|| prices);
    }

    /// Writes down from now on who changed what, and who was denied. The first log stays.
    pub fn audit_to(&self, log: Arc<AuditLog>) {
        self.audit.get_or_init(|| log);
    }

    /// Writes a call down that changes something or was denied.
    pub async fn write_down(&self, asked: Asked<'_>, status: StatusCode, told: Told) {
        let Asked { caller, who, method, path, query } = asked;
        let denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let (Some(log), true) = (self.audit.get(), denied || *method != Method::GET) else { return };
        let (user, peer) = match caller {
            Caller::Owner => ("owner", None),
            Caller::Network(ends) => (who.unwrap_or(if denied { "" } else { "token" }), ends.peer),
        };
        let op: String = path.chars().take(AUDITED_PATH_CHARS_MAX).collect();
        // Which of a job's actions it was.
        let query = query.and_then(|query| Query::parse(query).ok());
        let action = query.as_ref().and_then(|query| query.get("action"));
        let action = action.filter(|action| matches!(*action, "pause" | "resume" | "cancel"));
        let entry = Entry::new(Kind::Admin, &op).with("method", method.as_str()).with("action", action);
        let entry = told.onto(entry);
        log.record(entry.with("user", user).from_peer(peer).with("status", status.as_u16())).await;
    }

    /// Answers one request.
    pub async fn answer<B>(self: Arc<Self>, caller: Caller, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let mut note = Note::default();
        let mut answer = match self.admit(caller, &parts).await {
            Err(error) => failed(&error),
            Ok((scope, who)) => {
                note.who = who;
                self.routed((caller, scope), &parts, body, &mut note).await
            }
        };
        let (path, query) = (parts.uri.path(), parts.uri.query());
        let asked = Asked { caller, who: note.who.as_deref(), method: &parts.method, path, query };
        self.write_down(asked, answer.status(), note.told).await;
        let headers = answer.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }

    /// The answer to a request that was let in.
    async fn routed<B>(&self, (caller, scope): (Caller, Scope), parts: &Parts, body: B, note: &mut Note) -> Answer
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        match (parts.uri.path(), caller) {
            ("/healthz", _) => text(StatusCode::OK, "ok\n"),
            ("/readyz", _) => self.ready().await,
            ("/metrics", _) => self.rendered_metrics(),
            ("/api/v1/session", _) => {
                let answered = self.session((caller, scope), parts, body, note).await;
                answered.unwrap_or_else(|error| failed(&error))
            }
            ("/api/v1/oidc/login", Caller::Network(_)) if parts.method == Method::GET => self.begin_sign_in().await,
            ("/api/v1/oidc/callback", Caller::Network(ends)) if parts.method == Method::GET => {
                self.end_sign_in(ends, parts).await
            }
            (path, _) => match console::file(path) {
                Some(file) => file,
                None => match self.called(scope, parts, body, note).await {
                    Ok(value) => {
                        note.told.answered(&value);
                        json_answer(StatusCode::OK, &value)
                    }
                    Err(error) => failed(&error),
                },
            },
        }
    }

    async fn admit(&self, caller: Caller, parts: &Parts) -> Result<Admitted, AdminError> {
        match (&self.access, caller) {
            (_, Caller::Owner) => Ok((Scope::Owner, None)),
            (Some(access), Caller::Network(_)) => access.admit(caller, parts).await,
            (None, Caller::Network(_)) => {
                Err(AdminError::new(StatusCode::FORBIDDEN, "requests from this origin are refused"))
            }
        }
    }

    /// Whether a request may come through the console's door to S3: it shows a session. The
    /// refusal is the answer.
    ///
    /// # Errors
    /// As any call without a token.
    pub(crate) async fn let_through(&self, ends: Ends, parts: &Parts) -> Result<(), Answer> {
        self.admit(Caller::Network(ends), parts).await.map(|_| ()).map_err(|error| failed(&error))
    }

    /// Sessions of the console: opened with a token, shown, ended.
    async fn session<B>(
        &self,
        (caller, scope): (Caller, Scope),
        parts: &Parts,
        body: B,
        note: &mut Note,
    ) -> Result<Answer, AdminError>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (call, _) = routes::route(&parts.method, parts.uri.path())?;
        let (Some(access), Caller::Network(ends)) = (&self.access, caller) else {
            return Err(AdminError::invalid("sessions are for the admin listener: a caller of the socket needs none"));
        };
        access::check_content_type(parts, body.is_end_stream())?;
        if call == Call::OpenSession {
            let body = document(body).await?;
            let (opened, signed_in) = match (body["token"].as_str(), body["code"].as_str()) {
                (Some(token), None) => (access.log_in(&ends, token).await?, false),
                (None, Some(code)) => (self.claim_sign_in(ends, &parts.headers, code).await?, true),
                _ => return Err(AdminError::invalid("expected either a token, or the code of a sign-in")),
            };
            note.who = opened.who;
            let told = json!({ "scope": opened.scope.name(), "key": opened.key });
            let mut answer = json_answer(StatusCode::OK, &told);
            let headers = answer.headers_mut();
            headers.insert(header::SET_COOKIE, opened.cookie);
            if signed_in {
                headers.append(header::SET_COOKIE, claims::cookie(access, "", 0));
            }
            return Ok(answer);
        }
        if call == Call::EndSession {
            access.log_out(&parts.headers);
        }
        Ok(json_answer(StatusCode::OK, &json!({ "scope": scope.name() })))
    }

    async fn called<B>(&self, scope: Scope, parts: &Parts, body: B, note: &mut Note) -> ApiResult
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        access::check_content_type(parts, body.is_end_stream())?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let query = query.map_err(|error| AdminError::invalid(error.message().to_owned()))?;
        let path = parts.uri.path();
        note.told = Told::of_call(path, &query, &Value::Null);
        // A caller who may not make the call does not have its body read.
        scope.check(&parts.method)?;
        let body = document(body).await?;
        note.told = Told::of_call(path, &query, &body);
        self.call(scope, &parts.method, path, &query, body).await
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
        memory::observe(&self.metrics);
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
