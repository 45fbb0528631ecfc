//! What is known of one request: one log line and its metrics, written when the answer has left or
//! the client has gone.

use super::{
    access_log::{AccessLog, Ended, ms_of, program},
    recent::Recent,
    traces::Traces,
};
use crate::{
    audit::{AuditLog, Entry, Kind, OfBody},
    engine::{EngineError, Form},
    metrics::Metrics,
    peers::Share,
};
use http::request::Parts;
use opentelemetry::Context;
use prometheus::IntGauge;
use s3_wire::{Operation, Target, response::RequestIds};
use std::{
    net::IpAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::OwnedSemaphorePermit;

/// One request. Dropped when its answer is: nothing has to remember to close it (E25).
pub struct RequestRecord(Box<Inner>);

struct Inner {
    metrics: Arc<Metrics>,
    began: SystemTime,
    started: Instant,
    peer: Option<IpAddr>,
    via: Option<IpAddr>,
    method: String,
    ids: Arc<RequestIds>,
    version: http::Version,
    program: Option<String>,
    received: Arc<AtomicU64>,
    key_shows: Arc<AtomicBool>,
    damage: Arc<OnceLock<String>>,
    of_body: Arc<OnceLock<OfBody>>,
    audit: Option<Arc<AuditLog>>,
    log: Option<Arc<AccessLog>>,
    recent: Option<Arc<Recent>>,
    /// Where its span goes, and the trace that its client says it belongs to.
    traced: Option<(Arc<Traces>, Context)>,
    op: &'static str,
    inflight: Option<IntGauge>,
    bucket: String,
    key: String,
    /// The version that is named, as the client wrote it.
    version_id: Option<String>,
    user: String,
    status: Option<u16>,
    code: Option<&'static str>,
    form: Option<Form>,
    verified: Option<Duration>,
    admitted: Option<Duration>,
    first_byte: Option<Duration>,
    sent: u64,
    end: End,
    place: Option<OwnedSemaphorePermit>,
    /// What its sender holds of its shares.
    shares: Vec<Share>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Not there yet; dropped like this, the client went away.
    None,
    Complete,
    /// We cut it (I4).
    Cut,
}

/// `op` of requests that were refused before it was known which operation they are.
const OP_UNKNOWN: &str = "Unknown";
/// What fits one packet.
const SMALL_BYTES: u64 = 1500;

impl RequestRecord {
    /// Starts a record. `place` is given back when it closes.
    pub fn new(
        metrics: Arc<Metrics>,
        peer: Option<IpAddr>,
        method: &http::Method,
        ids: RequestIds,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self(Box::new(Inner {
            metrics,
            began: SystemTime::now(),
            started: Instant::now(),
            peer,
            via: None,
            method: method.as_str().to_owned(),
            ids: Arc::new(ids),
            version: http::Version::HTTP_11,
            program: None,
            received: Arc::default(),
            key_shows: Arc::default(),
            damage: Arc::default(),
            of_body: Arc::default(),
            audit: None,
            log: None,
            recent: None,
            traced: None,
            op: OP_UNKNOWN,
            inflight: None,
            bucket: String::new(),
            key: String::new(),
            version_id: None,
            user: String::new(),
            status: None,
            code: None,
            form: None,
            verified: None,
            admitted: None,
            first_byte: None,
            sent: 0,
            end: End::None,
            place,
            shares: Vec::new(),
        }))
    }

    /// It has this head, and came over a connection from there.
    pub fn came(&mut self, parts: &Parts, connected: Option<IpAddr>) {
        let connected = connected.map(|address| address.to_canonical());
        self.0.via = connected.filter(|address| self.0.peer != Some(*address));
        self.0.version = parts.version;
        self.0.program = parts.headers.get(http::header::USER_AGENT).and_then(|value| program(value.as_bytes()));
    }

    /// Has its line in this access log, not among the log's other lines, and counts among the
    /// newest requests.
    pub fn logged(&mut self, log: Option<Arc<AccessLog>>, recent: Arc<Recent>) {
        (self.0.log, self.0.recent) = (log, Some(recent));
    }

    /// Is a span of a trace, where somebody collects them.
    pub fn traced(&mut self, traces: Option<&Arc<Traces>>, parts: &Parts) {
        self.0.traced = traces.map(|traces| (traces.clone(), Traces::parent_of(&parts.headers)));
    }

    /// Its signature is right, or nobody signed it and that is known.
    pub fn verified(&mut self) {
        self.0.verified = Some(self.0.started.elapsed());
    }

    /// It may be done.
    pub fn admitted(&mut self) {
        self.0.admitted = Some(self.0.started.elapsed());
    }

    /// Counts the request body's bytes.
    pub fn received(&self) -> Arc<AtomicU64> {
        self.0.received.clone()
    }

    /// Set by whoever learns that the request's bucket is not sealed: only then does the log show
    /// its key (logs see no names of sealed buckets).
    pub fn key_shows(&self) -> Arc<AtomicBool> {
        self.0.key_shows.clone()
    }

    /// Set by whoever finds that stored bytes are missing or damaged: why, in words.
    pub fn damage(&self) -> Arc<OnceLock<String>> {
        self.0.damage.clone()
    }

    /// Set by an operation whose body says who sent it, or which objects it is about.
    pub fn of_body(&self) -> Arc<OnceLock<OfBody>> {
        self.0.of_body.clone()
    }

    /// Has a line in this log when it changed something, was denied or met damage. Of denied calls
    /// that nobody signed, so many of a peer have one.
    pub fn audited(&mut self, audit: Option<Arc<AuditLog>>) {
        self.0.audit = audit;
    }

    /// Gives its place to others before it closes.
    pub fn give_place_back(&mut self) {
        self.0.place = None;
    }

    /// Writes what the log is to know of it, once the head of its answer is known and before that
    /// leaves.
    pub async fn write_down(&self, status: http::StatusCode, code: Option<&'static str>) {
        if let Some(why) = self.0.damage.get() {
            self.0.tell_damage(why);
        }
        let Some(audit) = &self.0.audit else { return };
        let changes = !matches!(self.0.method.as_str(), "GET" | "HEAD" | "OPTIONS");
        let denied = matches!(status.as_u16(), 401 | 403);
        let entry = || self.0.entry(Kind::S3).with("status", status.as_u16()).with("code", code);
        if denied && self.0.sender().is_empty() {
            audit.record_unsigned(self.0.peer, entry()).await;
        } else if changes || denied {
            audit.record(entry()).await;
        }
    }

    /// The request's ids.
    pub fn ids(&self) -> &RequestIds {
        &self.0.ids
    }

    /// The same, to be kept.
    pub fn shared_ids(&self) -> Arc<RequestIds> {
        self.0.ids.clone()
    }

    /// It is about this.
    pub fn target(&mut self, target: &Target) {
        self.0.bucket = target.bucket.as_ref().map(ToString::to_string).unwrap_or_default();
        self.0.key = target.key.as_ref().map(ToString::to_string).unwrap_or_default();
        self.0.version_id = target.query.single("versionId").ok().flatten().map(str::to_owned);
    }

    /// It is this operation.
    pub fn operation(&mut self, operation: Operation) {
        self.operation_of_sts(operation.name());
    }

    /// It is this action of STS.
    pub fn operation_of_sts(&mut self, name: &'static str) {
        self.0.op = name;
        let gauge = self.0.metrics.http_inflight.with_label_values(&[self.0.op]);
        gauge.inc();
        self.0.inflight = Some(gauge);
    }

    /// It holds this of its sender's share until it closes.
    pub fn hold(&mut self, share: Share) {
        self.0.shares.push(share);
    }

    /// It was sent by this user.
    pub fn user(&mut self, name: &str) {
        self.0.user = name.to_owned();
    }

    /// Its answer's head is known.
    pub fn answered(&mut self, status: http::StatusCode, code: Option<&'static str>, form: Option<Form>) {
        self.0.status = Some(status.as_u16());
        (self.0.code, self.0.form) = (code, form);
        let first_byte = self.0.started.elapsed();
        self.0.first_byte = Some(first_byte);
        let form = form.map_or("", Form::as_str);
        self.0.metrics.http_ttfb_seconds.with_label_values(&[self.0.op, form]).observe(first_byte.as_secs_f64());
    }

    /// So many bytes of the answer have left.
    pub fn progressed(&mut self, sent: u64) {
        self.0.sent = sent;
    }

    /// All of them have.
    pub fn completed(&mut self, sent: u64) {
        self.0.sent = sent;
        self.0.end = End::Complete;
    }

    /// The answer was cut off after so many, because of `error` where it was the engine's.
    pub fn cut(&mut self, sent: u64, error: Option<&EngineError>) {
        let metrics = &self.0.metrics;
        metrics.http_cut_total.with_label_values(&[self.0.op]).inc();
        if matches!(error, Some(EngineError::Integrity(_) | EngineError::Damaged(_))) {
            metrics.integrity_errors_total.inc();
            self.0.tell_damage(&error.map(ToString::to_string).unwrap_or_default());
        }
        self.0.sent = sent;
        self.0.end = End::Cut;
    }

    #[cfg(test)]
    pub(super) fn detached() -> Self {
        let metrics = Metrics::new().expect("the table is valid");
        Self::new(metrics, None, &http::Method::GET, RequestIds::new(0, "test"), None)
    }
}

impl Inner {
    /// The user who sent it, by its head or its body; empty for nobody.
    fn sender(&self) -> &str {
        match self.of_body.get() {
            Some(of_body) if self.user.is_empty() => &of_body.user,
            _ => &self.user,
        }
    }

    fn entry(&self, kind: Kind) -> Entry {
        let shows = self.key_shows.load(Ordering::Relaxed);
        Entry::new(kind, self.op)
            .with("request_id", self.ids.request_id.clone())
            .with("method", self.method.clone())
            .with("bucket", self.bucket.clone())
            .about(&self.key, shows)
            .with("version", self.version_id.clone())
            .naming(self.of_body.get().map_or(&[], |of_body| of_body.objects.as_slice()), shows)
            .with("user", self.sender())
            .from_peer(self.peer)
    }

    /// What the log says of it. Leaves nothing of the names behind.
    fn ended(&mut self, status: u16, received: u64, whole: Duration) -> Ended {
        let (has_key, shows) = (!self.key.is_empty(), self.key_shows.load(Ordering::Relaxed));
        let user = match self.of_body.get() {
            Some(of_body) if self.user.is_empty() => of_body.user.clone(),
            _ => std::mem::take(&mut self.user),
        };
        Ended {
            at_ms: ms_of(self.began),
            request_id: self.ids.request_id.clone(),
            peer: self.peer,
            via: self.via,
            user,
            method: std::mem::take(&mut self.method),
            version: format!("{:?}", self.version),
            op: self.op,
            bucket: std::mem::take(&mut self.bucket),
            key: (has_key && shows).then(|| std::mem::take(&mut self.key)),
            hides_key: has_key && !shows,
            status,
            code: self.code,
            form: self.form.map(Form::as_str),
            bytes_in: received,
            bytes_out: self.sent,
            verified: self.verified,
            admitted: self.admitted,
            first_byte: self.first_byte,
            whole,
            program: self.program.take(),
            end: match self.end {
                End::Complete => "complete",
                End::Cut => "cut",
                End::None => "client gone",
            },
        }
    }

    /// Says which request met damage, where it lies, and whose object that is.
    fn tell_damage(&self, why: &str) {
        tracing::error!(
            target: "deltaweir::corruption",
            request_id = %self.ids.request_id,
            bucket = self.bucket,
            key = self.key_shows.load(Ordering::Relaxed).then_some(self.key.as_str()),
            why,
            "stored bytes are missing or damaged"
        );
        if let Some(audit) = &self.audit {
            audit.write(self.entry(Kind::Corruption).with("why", why));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(gauge) = &self.inflight {
            gauge.dec();
        }
        let received = self.received.load(Ordering::Relaxed);
        let whole = self.started.elapsed();
        let seconds = whole.as_secs_f64();
        // 499 is nginx's word for a client that went away before it had its answer.
        let status = self.status.unwrap_or(499);
        let metrics = &self.metrics;
        metrics.http_requests_total.with_label_values(&[self.op, status.to_string().as_str()]).inc();
        metrics.http_request_seconds.with_label_values(&[self.op]).observe(seconds);
        metrics.http_request_bytes_total.with_label_values(&[self.op]).inc_by(received);
        metrics.http_response_bytes_total.with_label_values(&[self.op]).inc_by(self.sent);
        if self.end == End::Complete && self.sent < SMALL_BYTES && received < SMALL_BYTES {
            metrics.small_response_seconds.observe(seconds);
        }
        if matches!(self.op, "PutObject" | "UploadPart") {
            metrics.http_request_body_bytes.with_label_values(&[self.op]).observe(received as f64);
        }
        let ended = self.ended(status, received, whole);
        match &self.log {
            Some(log) => log.write(&ended),
            None => ended.trace(),
        }
        if let Some((traces, parent)) = &self.traced {
            traces.note(&ended, self.began, parent);
        }
        if let Some(recent) = &self.recent {
            recent.note(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_request_once_and_gives_its_place_back_when_it_is_dropped() {
        let metrics = Metrics::new().unwrap();
        let places = Arc::new(tokio::sync::Semaphore::new(1));
        let place = places.clone().try_acquire_owned().unwrap();
        let mut record =
            RequestRecord::new(metrics.clone(), None, &http::Method::GET, RequestIds::new(1, "h"), Some(place));
        record.operation(Operation::HeadObject);
        assert_eq!(metrics.http_inflight.with_label_values(&["HeadObject"]).get(), 1);
        record.answered(http::StatusCode::OK, None, None);
        record.completed(10);
        drop(record);
        assert_eq!(metrics.http_inflight.with_label_values(&["HeadObject"]).get(), 0);
        assert_eq!(metrics.http_requests_total.with_label_values(&["HeadObject", "200"]).get(), 1);
        assert_eq!(metrics.http_response_bytes_total.with_label_values(&["HeadObject"]).get(), 10);
        assert_eq!(metrics.small_response_seconds.get_sample_count(), 1);
        assert_eq!(places.available_permits(), 1);
    }

    #[test]
    fn an_answer_that_is_cut_is_counted_and_damage_apart_from_other_trouble() {
        let metrics = Metrics::new().unwrap();
        let causes = [Some(EngineError::Integrity("bit".into())), Some(EngineError::Unavailable("net".into())), None];
        for cause in causes {
            let ids = RequestIds::new(1, "h");
            let mut record = RequestRecord::new(metrics.clone(), None, &http::Method::GET, ids, None);
            record.operation(Operation::GetObject);
            record.cut(7, cause.as_ref());
        }
        assert_eq!(metrics.http_cut_total.with_label_values(&["GetObject"]).get(), 3);
        assert_eq!(metrics.integrity_errors_total.get(), 1);
    }

    #[test]
    fn a_client_that_goes_away_before_its_answer_is_a_499() {
        let metrics = Metrics::new().unwrap();
        drop(RequestRecord::new(metrics.clone(), None, &http::Method::GET, RequestIds::new(1, "h"), None));
        assert_eq!(metrics.http_requests_total.with_label_values(&["Unknown", "499"]).get(), 1);
        assert_eq!(metrics.small_response_seconds.get_sample_count(), 0);
    }
}
