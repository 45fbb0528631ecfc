//! From a request to its answer: the steps every S3 request takes, in order. The operation itself is in [`crate::ops`].

use super::{RequestBody, RequestRecord, ResponseBody, body::AnswerBody};
use crate::{
    auth::{Principal, Users},
    config::ServerConfig,
    engine::{Engine, Form},
    metrics::Metrics,
    ops,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header, request::Parts};
use hyper::body::Incoming;
use s3_wire::{
    Domains, Operation, S3Error, Target,
    error::ErrorCode,
    headers,
    response::{self, RequestIds},
    sigv4::{Identity, PayloadMode, SignatureKind, Verifier},
};
use std::{
    net::IpAddr,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime},
};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

/// Most bytes of a request target; longer ones are refused before anything of them is read (C80).
const TARGET_BYTES_MAX: usize = 16 << 10;
/// How much of a body nobody wanted is read so that the client sees its answer. Past it the connection is closed.
const DRAIN_BYTES_MAX: u64 = 4 << 20;

/// An operation's answer.
pub type Answer = Response<AnswerBody>;

/// What every request shares.
pub struct S3Service {
    /// Storage.
    pub engine: Arc<Engine>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Users.
    pub users: Users,
    /// Region of bucket locations.
    pub region: String,
    /// Whether answers carry `x-deltaweir-*`.
    pub storage_headers: bool,
    /// `http` or `https`.
    pub scheme: &'static str,
    verifier: Verifier,
    domains: Domains,
    host_id: String,
    stall_timeout: Duration,
    requests_max: usize,
    places: Arc<Semaphore>,
}

/// One request after it was routed, verified and authorized: what an operation sees. Cheap to clone.
#[derive(Clone)]
pub struct S3Request {
    /// What every request shares.
    pub service: Arc<S3Service>,
    /// The operation.
    pub operation: Operation,
    /// Bucket, key, parameters.
    pub target: Arc<Target>,
    /// Effective headers.
    pub headers: Arc<HeaderMap>,
    /// How the payload is framed.
    pub payload: PayloadMode,
    /// Who sent it.
    pub principal: Principal,
    /// Whether the access log may show the key.
    pub key_shows: Arc<AtomicBool>,
}

impl S3Service {
    /// The service of one server.
    pub fn new(config: &ServerConfig, engine: Arc<Engine>, metrics: Arc<Metrics>, users: Users) -> Arc<Self> {
        Arc::new(Self {
            engine,
            metrics,
            users,
            region: config.region.clone(),
            storage_headers: config.storage_headers,
            scheme: if config.tls.is_some() { "https" } else { "http" },
            verifier: Verifier::new(config.region.clone()),
            domains: config.domains.clone(),
            host_id: host_id(),
            stall_timeout: config.stall_timeout,
            requests_max: config.requests_max,
            places: Arc::new(Semaphore::new(config.requests_max)),
        })
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Requests that hold a place.
    pub fn requests_under_way(&self) -> usize {
        self.requests_max - self.places.available_permits()
    }

    /// Answers one request.
    pub async fn answer(self: Arc<Self>, peer: Option<IpAddr>, request: Request<Incoming>) -> Response<ResponseBody> {
        let ids = RequestIds::new(random_u64(), self.host_id.clone());
        let span = tracing::info_span!("request", id = %ids.request_id);
        self.answer_in_span(peer, request, ids).instrument(span).await
    }

    async fn answer_in_span(
        self: Arc<Self>,
        peer: Option<IpAddr>,
        request: Request<Incoming>,
        ids: RequestIds,
    ) -> Response<ResponseBody> {
        let (parts, body) = request.into_parts();
        let place = self.places.clone().try_acquire_owned().ok();
        let full = place.is_none();
        let mut record = RequestRecord::new(self.metrics.clone(), peer, &parts.method, ids, place);
        let mut body = RequestBody::new(body, self.stall_timeout, record.received());
        let result = if full {
            self.metrics.rejected_total.with_label_values(&["requests"]).inc();
            Err(S3Error::new(ErrorCode::SlowDown))
        } else {
            Box::pin(self.operate(&parts, &mut body, &mut record)).await
        };
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
        let headers = response.headers_mut();
        response::add_common_headers(headers, record.ids(), SystemTime::now());
        if close && parts.version < Version::HTTP_2 {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        record.answered(response.status(), code, form);
        response.map(|body| ResponseBody::new(body, record))
    }

    /// Route, verify, authorize, operate.
    async fn operate(
        self: &Arc<Self>,
        parts: &Parts,
        body: &mut RequestBody,
        record: &mut RequestRecord,
    ) -> Result<Answer, S3Error> {
        if parts.uri.path_and_query().is_some_and(|target| target.as_str().len() > TARGET_BYTES_MAX) {
            return Err(S3Error::with_message(ErrorCode::InvalidURI, "The request target is too long."));
        }
        let target = Target::parse(parts, &self.domains)?;
        record.target(&target);
        let headers = headers::effective(&target.query, &parts.headers)?.into_owned();
        // An error of routing is told only to who signed the request: a forged one learns nothing but that (C21).
        let routed = s3_wire::route(&parts.method, &target, &headers);
        if let Ok(operation) = routed {
            record.operation(operation);
        }
        let identity = self.authenticate(&parts.method, &target, &parts.headers)?;
        let operation = routed?;
        let principal = self.users.principal(identity.access_key_id());
        record.user(principal.user().map(|user| user.name.as_str()).unwrap_or_default());
        headers::refuse_unsupported(&headers)?;
        let request = S3Request {
            service: self.clone(),
            operation,
            target: Arc::new(target),
            headers: Arc::new(headers),
            payload: identity.payload().clone(),
            principal,
            key_shows: record.key_shows(),
        };
        self.authorize(&request)?;
        ops::operate(&request, body).await
    }

    fn authenticate(&self, method: &Method, target: &Target, headers: &HeaderMap) -> Result<Identity, S3Error> {
        let now = SystemTime::now();
        let identity = self.verifier.authenticate(method, target, headers, now, &self.users);
        if let Ok(Identity::Authenticated(who)) = &identity
            && who.kind == SignatureKind::Header
        {
            // A presigned URL may have been signed long ago.
            let skew = now.duration_since(who.signed_at).unwrap_or_else(|early| early.duration());
            self.metrics.clock_skew_seconds.observe(skew.as_secs_f64());
        }
        let labels = match &identity {
            Ok(Identity::Anonymous { .. }) => ["ok", "anonymous"],
            Ok(Identity::Authenticated(who)) => match who.kind {
                SignatureKind::Header => ["ok", "header"],
                SignatureKind::Presigned => ["ok", "presigned"],
            },
            Err(error) => ["refused", error.code().as_str()],
        };
        self.metrics.auth_total.with_label_values(&labels).inc();
        identity
    }

    /// The addressed resource; copies check their source, DeleteObjects each key, in their operations.
    fn authorize(&self, request: &S3Request) -> Result<(), S3Error> {
        let (bucket, key) = (request.target.bucket.as_ref(), request.target.key.as_ref());
        let allowed = match request.operation {
            Operation::DeleteObjects if request.principal.user().is_some() => Ok(()),
            operation => request.principal.authorize(
                operation.action(),
                bucket.map(|bucket| bucket.as_str()),
                key.map(|key| key.as_str()),
            ),
        };
        if allowed.is_err() {
            self.metrics.auth_total.with_label_values(&["refused", "AccessDenied"]).inc();
        }
        allowed
    }

    /// Reads what is left of a body within bounds; whether the connection is in step afterwards (C66). A body that waits for `100
    /// Continue` is not asked for. An empty one never gets its `100 Continue`, and botocore would take the next answer on the connection for
    /// it: there, too, the connection ends with this answer.
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

/// Names this process in `x-amz-id-2`.
fn host_id() -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    STANDARD.encode([random_u64(), random_u64(), random_u64()].map(u64::to_be_bytes).as_flattened())
}

fn random_u64() -> u64 {
    getrandom::u64().expect("the operating system gives random bytes once it has booted")
}
