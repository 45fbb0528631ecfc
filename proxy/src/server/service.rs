//! From a request to its answer: the steps every S3 request takes, in order. The operation itself
//! is in [`crate::ops`].

use super::{AccessLog, Recent, RequestRecord, ResponseBody, Traces};
use crate::{
    audit::AuditLog,
    auth::{Accounts, Look, Principal, Users},
    config::ServerConfig,
    engine::{Engine, Form},
    metrics::Metrics,
    ops::{
        self,
        body::{AnswerBody, RequestBody},
        request::{Answer, S3Request, Service, Signed},
    },
    peers::{Failures, Held, Holder, Shares, TrustedProxies},
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header, request::Parts};
use hyper::body::Incoming;
use s3_wire::{
    Domains, Operation, S3Error, Target,
    cors::CorsConfiguration,
    error::ErrorCode,
    headers,
    response::{self, RequestIds},
    sigv4::{Identity, PayloadMode, SignatureKind},
    sts::StsErrorCode,
};
use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

/// Most bytes of a request target; longer ones are refused before anything of them is read (C80).
const TARGET_BYTES_MAX: usize = 16 << 10;
/// When only this part of the places is left, readers that take nothing are let go.
const PLACES_KEPT: usize = 8;
/// How much of a body nobody wanted is read so that the client sees its answer. Past it the
/// connection is closed.
const DRAIN_BYTES_MAX: u64 = 4 << 20;

/// The S3 side of one server: what requests share, and the bounds it lets them in under.
pub struct S3Service {
    pub(super) shared: Arc<Service>,
    domains: Domains,
    host_id: String,
    stall_timeout: Duration,
    requests_max: usize,
    places: Arc<Semaphore>,
    /// Requests under way, and those of them that send content, by who sent them.
    requests: Arc<Shares>,
    uploads: Arc<Shares>,
    failures: Failures,
    proxies: TrustedProxies,
    audit: OnceLock<Arc<AuditLog>>,
    access_log: OnceLock<Arc<AccessLog>>,
    recent: Arc<Recent>,
    traces: OnceLock<Arc<Traces>>,
}

impl S3Service {
    /// The service of one server.
    pub fn new(
        config: &ServerConfig,
        engine: Arc<Engine>,
        metrics: Arc<Metrics>,
        accounts: Arc<Accounts>,
    ) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::new(Service::new(config, engine, metrics, accounts)),
            domains: config.domains.clone(),
            host_id: host_id(),
            stall_timeout: config.stall_timeout,
            requests_max: config.requests_max,
            places: Arc::new(Semaphore::new(config.requests_max)),
            requests: Shares::new(config.requests_per_user_max),
            uploads: Shares::new(config.uploads_per_user_max),
            failures: Failures::new(config.failures_per_second),
            proxies: config.trusted_proxies.clone(),
            audit: OnceLock::new(),
            access_log: OnceLock::new(),
            recent: Arc::new(Recent::new(config.recent_requests)),
            traces: OnceLock::new(),
        })
    }

    /// Writes down from now on who changed what, and who was denied. The first log stays.
    pub fn audit_to(&self, log: Arc<AuditLog>) {
        self.audit.get_or_init(|| log);
    }

    /// Logs requests there from now on, and not among the log's other lines. The first log stays.
    pub fn log_to(&self, log: Arc<AccessLog>) {
        self.access_log.get_or_init(|| log);
    }

    /// Sends a span of each request there from now on. The first place stays.
    pub fn trace_to(&self, traces: Arc<Traces>) {
        self.traces.get_or_init(|| traces);
    }

    /// The newest requests.
    pub fn recent(&self) -> Arc<Recent> {
        self.recent.clone()
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Requests that hold a place.
    pub fn requests_under_way(&self) -> usize {
        self.requests_max - self.places.available_permits()
    }

    /// Whether requests wait for memory, or the next ones will find no place.
    pub fn others_wait(&self) -> bool {
        self.shared.metrics.engine.memory_waiting.get() > 0
            || self.places.available_permits() <= self.requests_max / PLACES_KEPT
    }

    /// Answers one request of a connection from `peer`.
    pub async fn answer(self: Arc<Self>, peer: Option<IpAddr>, request: Request<Incoming>) -> Response<ResponseBody> {
        let ids = RequestIds::new(random_u64(), self.host_id.clone());
        let span = tracing::info_span!("request", id = %ids.request_id);
        tracing::trace!(target: "path", "answer()");
        // Behind a pointer: whoever drives the connection moves what it polls from place to place.
        Box::pin(self.answer_in_span(peer, request, ids)).instrument(span).await
    }

    async fn answer_in_span(
        self: Arc<Self>,
        peer: Option<IpAddr>,
        request: Request<Incoming>,
        ids: RequestIds,
    ) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        let (connected, peer) = (peer, self.proxies.client_of(peer, &parts.headers));
        let place = self.places.clone().try_acquire_owned().ok();
        let full = place.is_none();
        let mut record = RequestRecord::new(self.shared.metrics.clone(), peer, &parts.method, ids, place);
        record.came(&parts, connected);
        record.audited(self.audit.get().cloned());
        record.logged(self.access_log.get().cloned(), self.recent.clone());
        record.traced(self.traces.get(), &parts);
        let mut body = RequestBody::new(body, self.stall_timeout, record.received());
        let result = if full {
            Err(self.slow_down("requests"))
        } else {
            Box::pin(self.operate(peer, &parts, &mut body, &mut record)).await
        };
        if result.is_err() {
            // What is left is to wait for its turn to be told, and for the rest of its body.
            // Neither keeps anybody else out (C141).
            record.give_place_back();
        }
        let result = self.slow_down_failures(peer, result).await;
        let mut close = false;
        let mut code = None;
        let mut response = match result {
            Ok(answer) => answer,
            Err(error) => {
                close = error.close_connection();
                code = Some(error.code().as_str());
                let resource = Target::parse(&parts, &self.domains).map_or_else(|_| "/".into(), |t| t.resource());
                response::error(error, &parts.method, &resource, record.ids()).map(AnswerBody::from)
            }
        };
        close |= !self.settle_body(&parts, &mut body).await;
        let form = response.extensions().get::<Form>().copied();
        code = code.or(response.extensions().get::<StsErrorCode>().map(|code| code.as_str()));
        let shared = if full { HeaderMap::new() } else { self.shared_with(&parts).await };
        let headers = response.headers_mut();
        headers.extend(shared);
        response::add_common_headers(headers, record.ids(), SystemTime::now());
        if close && parts.version < Version::HTTP_2 {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        record.write_down(response.status(), code).await;
        record.answered(response.status(), code, form);
        response.map(|body| ResponseBody::new(body, record))
    }

    /// Route, verify, authorize, operate.
    async fn operate(
        self: &Arc<Self>,
        peer: Option<IpAddr>,
        parts: &Parts,
        body: &mut RequestBody,
        record: &mut RequestRecord,
    ) -> Result<Answer, S3Error> {
        if parts.uri.path_and_query().is_some_and(|target| target.as_str().len() > TARGET_BYTES_MAX) {
            return Err(S3Error::with_message(ErrorCode::InvalidURI, "The request target is too long."));
        }
        let target = Target::parse(parts, &self.domains)?;
        if s3_wire::sts::is_for(parts, &target) {
            return Ok(self.answer_sts(peer, parts, &target, body, record).await);
        }
        record.target(&target);
        let headers = headers::effective(&target.query, &parts.headers)?.into_owned();
        // An error of routing is told only to who signed the request: a forged one learns nothing
        // but that (C21).
        let routed = s3_wire::route(&parts.method, &target, &headers);
        if let Ok(operation) = routed {
            record.operation(operation);
        }
        let users = self.shared.users();
        let (identity, principal) = match parts.method {
            // Browsers sign no preflight, even when the request they ask about is presigned.
            Method::OPTIONS => (Identity::Anonymous { payload: PayloadMode::Unsigned }, Principal::nobody()),
            _ => self.authenticate(&users, &parts.method, &target, &parts.headers)?,
        };
        record.verified();
        let operation = routed?;
        let user = principal.user().map(|user| user.name.as_str());
        record.user(user.unwrap_or_default());
        self.take_share(&Holder::of(user, peer), Some(operation), record)?;
        headers::refuse_unsupported(&headers)?;
        let mut request = S3Request {
            service: self.shared.clone(),
            operation,
            target: Arc::new(target),
            headers: Arc::new(headers),
            payload: identity.payload().clone(),
            principal,
            users,
            signed: signed_of(&identity),
            ids: record.shared_ids(),
            peer,
            said: Arc::default(),
            found: None,
            key_shows: record.key_shows(),
            damage: record.damage(),
            of_body: record.of_body(),
        };
        ops::access::admit(&mut request).await?;
        record.admitted();
        ops::operate(&request, body).await
    }

    /// The headers that let a script of another origin read the answer, an error too. Only browsers
    /// send an origin, so other clients cost no look at the bucket's rules.
    async fn shared_with(&self, parts: &Parts) -> HeaderMap {
        let origin = parts.headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
        let (Some(origin), true) = (origin, parts.method != Method::OPTIONS) else { return HeaderMap::new() };
        let Some(bucket) = Target::parse(parts, &self.domains).ok().and_then(|target| target.bucket) else {
            return HeaderMap::new();
        };
        match self.shared.engine.buckets.bucket(bucket.as_str()).await {
            Ok(Some(bucket)) => match ops::configuration::cors_of(&bucket) {
                Ok(rules) => {
                    let answer = |rules: CorsConfiguration| rules.answer(origin, parts.method.as_str(), &parts.headers);
                    rules.map(answer).unwrap_or_default()
                }
                Err(error) => {
                    tracing::error!(%error, "an answer was sent without its CORS headers");
                    HeaderMap::new()
                }
            },
            // The operation has said already what is wrong.
            Ok(None) | Err(_) => HeaderMap::new(),
        }
    }

    /// Takes what a request needs of its sender's share.
    ///
    /// # Errors
    /// `SlowDown` when the sender has all of it under way.
    pub(super) fn take_share(
        &self,
        holder: &Holder,
        operation: Option<Operation>,
        record: &mut RequestRecord,
    ) -> Result<(), S3Error> {
        let sends = matches!(operation, Some(Operation::PutObject | Operation::UploadPart | Operation::PostObject));
        let uploads = sends.then_some((&self.uploads, "uploads of a user"));
        for (shares, what) in [(&self.requests, "requests of a user")].into_iter().chain(uploads) {
            let Some(share) = shares.take(holder) else { return Err(self.slow_down(what)) };
            record.hold(share);
        }
        Ok(())
    }

    pub(super) fn slow_down(&self, why: &str) -> S3Error {
        self.shared.metrics.rejected_total.with_label_values(&[why]).inc();
        S3Error::new(ErrorCode::SlowDown)
    }

    /// Answers a wrong signature late once its peer has had too many of them: neither the processor
    /// nor a guessed secret is to be had for nothing.
    pub(super) async fn slow_down_failures<T>(
        &self,
        peer: Option<IpAddr>,
        result: Result<T, S3Error>,
    ) -> Result<T, S3Error> {
        let Err(error) = result else { return result };
        use ErrorCode::{InvalidAccessKeyId, InvalidToken, SignatureDoesNotMatch};
        if !matches!(error.code(), SignatureDoesNotMatch | InvalidAccessKeyId | InvalidToken) {
            return Err(error);
        }
        match self.failures.hold_back(peer).await {
            Held::Due => Err(error),
            Held::TooMany => Err(self.slow_down("failures").closing()),
        }
    }

    fn authenticate(
        &self,
        users: &Users,
        method: &Method,
        target: &Target,
        headers: &HeaderMap,
    ) -> Result<(Identity, Principal), S3Error> {
        let now = SystemTime::now();
        let look = Look::new(users, now);
        let identity = self.shared.verifier.authenticate(method, target, headers, now, &look);
        if let Ok(Identity::Authenticated(who)) = &identity
            && matches!(who.kind, SignatureKind::Header | SignatureKind::HeaderV2)
        {
            // A presigned URL may have been signed long ago.
            let skew = now.duration_since(who.signed_at).unwrap_or_else(|early| early.duration());
            self.shared.metrics.clock_skew_seconds.observe(skew.as_secs_f64());
        }
        let labels = match &identity {
            Ok(Identity::Anonymous { .. }) => ["ok", "anonymous"],
            Ok(Identity::Authenticated(who)) => match who.kind {
                SignatureKind::Header => ["ok", "header"],
                SignatureKind::Presigned => ["ok", "presigned"],
                SignatureKind::PresignedV2 => ["ok", "presigned-v2"],
                SignatureKind::HeaderV2 => ["ok", "header-v2"],
            },
            Err(error) => ["refused", error.code().as_str()],
        };
        self.shared.metrics.auth_total.with_label_values(&labels).inc();
        Ok((identity?, look.principal()))
    }

    /// Reads what is left of a body within bounds; whether the connection is in step afterwards
    /// (C66). A body that waits for `100 Continue` is not asked for. An empty one never gets its
    /// `100 Continue`, and botocore would take the next answer on the connection for it: there,
    /// too, the connection ends with this answer.
    async fn settle_body(&self, parts: &Parts, body: &mut RequestBody) -> bool {
        if parts.version < Version::HTTP_2 && parts.headers.contains_key(header::EXPECT) && body.received_nothing() {
            return false;
        }
        if body.ended() {
            return true;
        }
        if parts.version >= Version::HTTP_2 {
            return false;
        }
        body.drain(DRAIN_BYTES_MAX).await
    }
}

/// How a request was signed; `None` when nobody did.
fn signed_of(identity: &Identity) -> Option<Signed> {
    match identity {
        Identity::Anonymous { .. } => None,
        Identity::Authenticated(who) => Some(Signed { kind: who.kind, at: who.signed_at }),
    }
}

/// Names this process in `x-amz-id-2`.
fn host_id() -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    STANDARD.encode([random_u64(), random_u64(), random_u64()].map(u64::to_be_bytes).as_flattened())
}

fn random_u64() -> u64 {
    crypto::random_u64().expect("the operating system gives random bytes once it has booted")
}
