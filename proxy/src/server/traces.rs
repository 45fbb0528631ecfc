//! Traces: one span for each request that has ended, with the steps it went through below it, sent
//! to an OpenTelemetry collector (OTLP over HTTP, protobuf).
//!
//! Spans are made of what the access log has, so they tell nothing that it does not. They wait in a
//! bounded queue; what does not fit is dropped and counted, and no request waits for a collector.
//! No text in a span is longer than [`TEXT_CHARS_MAX`], whatever a client sends.

use super::access_log::Ended;
use crate::webhooks::{beginning_of, in_words, outward};
use async_trait::async_trait;
use http::HeaderMap;
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator as _,
    trace::{
        Span as _, SpanContext, SpanKind, Status, TraceContextExt as _, TraceState, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, Span as SdkSpan, SpanData,
        SpanExporter, SpanLimits, SpanProcessor, TracerProviderBuilder,
    },
};
use prometheus::{IntCounter, IntCounterVec};
use reqwest::{Client, Url, header::CONTENT_TYPE};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::runtime::Handle;

/// Where traces go.
#[derive(Clone, Debug)]
pub struct TracesConfig {
    /// `http` or `https`, with its path: `http://collector:4318/v1/traces`.
    pub endpoint: Url,
    /// Sent along, by name.
    pub headers: BTreeMap<String, SecretString>,
    /// The part of traces that is sent, 0 to 1.
    pub share: f64,
    /// What this server is called there.
    pub service: String,
    /// How long a delivery may take, its answer included.
    pub timeout: Duration,
}

/// Spans that wait for the next delivery; later ones are dropped.
const WAITING_MAX: usize = 8192;
/// Spans of one delivery.
const BATCH_MAX: usize = 512;
/// How long spans wait for others.
const DELAY: Duration = Duration::from_secs(2);
/// Characters of a text in a span: as many as a key has at most.
const TEXT_CHARS_MAX: usize = 1024;
/// Methods that spans name; any other word is a client's own.
const METHODS: [&str; 9] = ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];

/// Whoever sends spans. Dropped without [`Traces::end`], it forgets those that wait.
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    kept: Kept,
}

impl Traces {
    /// Opens no connection yet. `sent` counts spans by what became of them.
    ///
    /// # Errors
    /// In words, when TLS cannot be set up or a variable of OpenTelemetry contradicts.
    pub fn new(config: TracesConfig, sent: IntCounterVec) -> Result<Self, String> {
        let client = outward().timeout(config.timeout).build().map_err(|error| format!("traces: {error}"))?;
        let transport = Transport { client, runtime: Handle::current(), headers: config.headers };
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(config.endpoint.as_str())
            .with_timeout(config.timeout)
            .with_http_client(transport)
            .build()
            .map_err(|error| format!("traces: {}", in_words(&error)))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(DELAY)
            .build();
        let queue = Arc::new(Queue { waiting: AtomicUsize::new(0), dropped: sent.with_label_values(&["dropped"]) });
        let exporter = Counted { exporter, sent, queue: queue.clone() };
        let batches = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        let provider = TracerProviderBuilder::default()
            .with_span_processor(Bounded { batches, queue })
            // Who is sent was decided before its span was begun.
            .with_sampler(Sampler::AlwaysOn)
            .with_span_limits(SpanLimits::default())
            .with_resource(
                Resource::builder_empty()
                    .with_service_name(config.service)
                    .with_attribute(KeyValue::new("service.version", crate::metrics::VERSION))
                    .build(),
            )
            .build();
        Ok(Self { tracer: provider.tracer("deltaweir"), provider, kept: Kept(config.share) })
    }

    /// The trace that a request says it belongs to (`traceparent`, W3C Trace Context). Its
    /// `tracestate` is left behind: no span needs it, and a client chooses its length.
    pub(crate) fn parent_of(headers: &HeaderMap) -> Context {
        let named = TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(headers));
        let span = named.span().span_context().clone();
        if !span.is_valid() {
            return Context::new();
        }
        let (trace, id, flags) = (span.trace_id(), span.span_id(), span.trace_flags());
        let span = SpanContext::new(trace, id, flags, true, TraceState::default());
        Context::new().with_remote_span_context(span)
    }

    /// Takes a request that has ended.
    pub(crate) fn note(&self, ended: &Ended, began: SystemTime, parent: &Context) {
        if !self.kept.takes(parent) {
            return;
        }
        let builder = self.tracer.span_builder(ended.op).with_kind(SpanKind::Server).with_start_time(began);
        let mut span = builder.with_attributes(attributes(ended)).start_with_context(&self.tracer, parent);
        if !span.is_recording() {
            return;
        }
        if ended.status >= 500 || ended.end == "cut" {
            span.set_status(Status::error(ended.code.unwrap_or(ended.end)));
        }
        let below = Context::new().with_remote_span_context(span.span_context().clone());
        let mut from = Duration::ZERO;
        for (step, to) in steps(ended) {
            let builder = self.tracer.span_builder(step).with_start_time(began + from);
            builder.start_with_context(&self.tracer, &below).end_with_timestamp(began + to);
            from = to;
        }
        span.end_with_timestamp(began + ended.whole);
    }

    /// Sends what waits, for at most so long.
    pub async fn end(&self, within: Duration) {
        let provider = self.provider.clone();
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(within)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// The part of requests that is sent.
struct Kept(f64);

impl Kept {
    /// Whether a request is sent. A draw of our own decides, not the trace's id, which a client may
    /// choose. A client that does not sample its trace is believed.
    fn takes(&self, parent: &Context) -> bool {
        let named = parent.span().span_context().clone();
        if named.is_valid() && !named.is_sampled() {
            return false;
        }
        if self.0 >= 1.0 {
            return true;
        }
        let mut drawn = [0; 4];
        // Without randomness nothing is sent: a share is a bound.
        crypto::fill_random(&mut drawn).is_ok() && f64::from(u32::from_le_bytes(drawn)) / 4_294_967_296.0 < self.0
    }
}

/// Spans that wait, and those that found no place.
#[derive(Debug)]
struct Queue {
    waiting: AtomicUsize,
    dropped: IntCounter,
}

impl Queue {
    /// Takes a place; false where there is none.
    fn enter(&self) -> bool {
        let entered = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            (waiting < WAITING_MAX).then_some(waiting + 1)
        });
        if entered.is_err() {
            self.dropped.inc();
        }
        entered.is_ok()
    }

    fn leave(&self, spans: usize) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
    }
}

/// Counts what the queue of OpenTelemetry would drop without a word.
#[derive(Debug)]
struct Bounded {
    batches: BatchSpanProcessor,
    queue: Arc<Queue>,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut SdkSpan, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.queue.enter() {
            self.batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// What a request did one after the other, and when it was done with each, from its beginning.
fn steps(ended: &Ended) -> impl Iterator<Item = (&'static str, Duration)> {
    let points = [
        ("verify signature", ended.verified),
        ("authorize", ended.admitted),
        ("operate", ended.first_byte),
        ("send answer", ended.first_byte.map(|_| ended.whole)),
    ];
    points.into_iter().filter_map(|(step, to)| Some((step, to?)))
}

/// Names of OpenTelemetry's conventions, where they have one.
fn attributes(ended: &Ended) -> Vec<KeyValue> {
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let method = METHODS.into_iter().find(|method| *method == ended.method);
    let mut attributes = vec![
        KeyValue::new("http.request.method", method.unwrap_or("_OTHER")),
        KeyValue::new("http.response.status_code", i64::from(ended.status)),
        KeyValue::new("http.request.body.size", number(ended.bytes_in)),
        KeyValue::new("http.response.body.size", number(ended.bytes_out)),
        KeyValue::new("deltaweir.request_id", ended.request_id.clone()),
        KeyValue::new("deltaweir.end", ended.end),
    ];
    let texts = [
        ("client.address", ended.peer.map(|peer| peer.to_string())),
        ("user.name", Some(ended.user.clone()).filter(|user| !user.is_empty())),
        ("user_agent.name", ended.program.clone()),
        ("aws.s3.bucket", Some(ended.bucket.clone()).filter(|bucket| !bucket.is_empty())),
        ("aws.s3.key", ended.key.clone().filter(|_| !ended.hides_key)),
        ("error.type", ended.code.map(str::to_owned)),
        ("deltaweir.form", ended.form.map(str::to_owned)),
    ];
    attributes.extend(texts.into_iter().filter_map(|(name, text)| Some(KeyValue::new(name, short(text?)))));
    attributes
}

/// As much of a text as a span has.
fn short(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
        text.truncate(end);
    }
    text
}

/// Sends what OpenTelemetry encoded, as webhooks are sent. It asks from a thread of its own; the
/// connection belongs to the server's runtime.
#[derive(Debug)]
struct Transport {
    client: Client,
    runtime: Handle,
    headers: BTreeMap<String, SecretString>,
}

#[async_trait]
impl HttpClient for Transport {
    async fn send_bytes(
        &self,
        request: http::Request<opentelemetry_http::Bytes>,
    ) -> Result<http::Response<opentelemetry_http::Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let mut post = self.client.post(parts.uri.to_string()).body(body);
        // Of its headers, those of the content alone: others may come from variables of the
        // environment, and the configuration is to name them.
        if let Some(kind) = parts.headers.get(CONTENT_TYPE) {
            post = post.header(CONTENT_TYPE, kind);
        }
        for (name, value) in &self.headers {
            post = post.header(name, value.expose_secret());
        }
        let answer = self.runtime.spawn(async move {
            // A URL may hold what only its collector should know.
            let mut answer = post.send().await.map_err(|error| in_words(&error.without_url()))?;
            let status = answer.status();
            let told = beginning_of(&mut answer).await;
            let mut response = http::Response::new(told.into());
            *response.status_mut() = status;
            Ok::<_, String>(response)
        });
        Ok(answer.await??)
    }
}

/// Counts what became of spans.
#[derive(Debug)]
struct Counted {
    exporter: opentelemetry_otlp::SpanExporter,
    sent: IntCounterVec,
    queue: Arc<Queue>,
}

impl SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.queue.leave(batch.len());
        let spans = batch.len() as u64;
        let done = self.exporter.export(batch).await;
        let failed = self.sent.with_label_values(&["failed"]);
        match &done {
            Ok(()) => self.sent.with_label_values(&["sent"]).inc_by(spans),
            Err(error) => {
                if failed.get() == 0 {
                    tracing::error!(%error, "traces could not be sent");
                }
                failed.inc_by(spans);
            }
        }
        done
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    /// What a span says under a name, where that is a text.
    fn said(ended: &Ended, name: &str) -> Option<String> {
        attributes(ended).into_iter().find(|one| one.key.as_str() == name).map(|one| one.value.as_str().into_owned())
    }

    #[test]
    fn steps_follow_each_other_and_stop_where_the_request_did() {
        let at = Duration::from_millis;
        let ended = Ended {
            verified: Some(at(1)),
            admitted: Some(at(2)),
            first_byte: Some(at(9)),
            whole: at(12),
            ..Ended::default()
        };
        let all: Vec<_> = steps(&ended).collect();
        assert_eq!(
            all,
            [("verify signature", at(1)), ("authorize", at(2)), ("operate", at(9)), ("send answer", at(12))]
        );
        let refused = Ended { verified: None, admitted: None, ..ended };
        assert_eq!(steps(&refused).map(|(step, _)| step).collect::<Vec<_>>(), ["operate", "send answer"]);
        assert_eq!(steps(&Ended::default()).count(), 0);
    }

    #[test]
    fn a_span_says_what_the_access_log_says() {
        let told = Ended {
            bucket: "b".into(),
            key: Some("k".into()),
            method: "PUT".into(),
            status: 503,
            code: Some("SlowDown"),
            ..Ended::default()
        };
        assert_eq!(said(&told, "aws.s3.bucket"), Some("b".into()));
        assert_eq!((said(&told, "aws.s3.key"), said(&told, "user.name")), (Some("k".into()), None));
        assert_eq!(said(&told, "error.type"), Some("SlowDown".into()));
        assert_eq!(said(&told, "http.request.method"), Some("PUT".into()));
        let hidden = Ended { hides_key: true, ..told };
        assert_eq!(said(&hidden, "aws.s3.key"), None);
    }

    #[test]
    fn a_client_does_not_choose_how_long_a_span_is() {
        let long = "ä".repeat(5000);
        let ended = Ended { bucket: long.clone(), method: long.clone(), key: Some(long), ..Ended::default() };
        assert_eq!(said(&ended, "http.request.method"), Some("_OTHER".into()));
        for name in ["aws.s3.bucket", "aws.s3.key"] {
            assert_eq!(said(&ended, name), Some("ä".repeat(TEXT_CHARS_MAX)), "{name}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", http::HeaderValue::from_static(PARENT));
        headers.insert("tracestate", http::HeaderValue::from_static("vendor=whatever"));
        let named = Traces::parent_of(&headers);
        assert_eq!(named.span().span_context().trace_state().header(), "");
    }

    #[test]
    fn no_id_that_a_client_chooses_raises_the_share() {
        let taken = |share: f64, parent: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", http::HeaderValue::from_static(parent));
            let (kept, parent) = (Kept(share), Traces::parent_of(&headers));
            assert!(parent.span().span_context().is_valid());
            (0..4000).filter(|_| kept.takes(&parent)).count()
        };
        let low = "00-00000000000000000000000000000001-b7ad6b7169203331-01";
        let high = "00-ffffffffffffffffffffffffffffffff-b7ad6b7169203331-01";
        for parent in [low, high, PARENT] {
            // 200 are expected; nine standard deviations either way are 124.
            assert!((76..=324).contains(&taken(0.05, parent)), "{parent}");
            assert_eq!((taken(0.0, parent), taken(1.0, parent)), (0, 4000));
        }
        assert_eq!(taken(1.0, "00-00000000000000000000000000000001-b7ad6b7169203331-00"), 0);
        assert!(Kept(1.0).takes(&Context::new()) && !Kept(0.0).takes(&Context::new()));
    }

    #[test]
    fn a_span_that_finds_the_queue_full_is_counted() {
        let dropped = IntCounter::new("dropped", "spans").unwrap();
        let queue = Queue { waiting: AtomicUsize::new(0), dropped: dropped.clone() };
        assert!((0..WAITING_MAX).all(|_| queue.enter()));
        assert_eq!((queue.enter(), queue.enter(), dropped.get()), (false, false, 2));
        queue.leave(BATCH_MAX);
        assert!((0..BATCH_MAX).all(|_| queue.enter()));
        assert_eq!((queue.enter(), dropped.get()), (false, 3));
    }

    #[test]
    fn the_trace_of_a_request_is_the_one_that_it_names() {
        let mut headers = HeaderMap::new();
        assert!(!Traces::parent_of(&headers).span().span_context().is_valid());
        headers.insert("traceparent", http::HeaderValue::from_static(PARENT));
        let named = Traces::parent_of(&headers);
        let span = named.span().span_context().clone();
        assert_eq!(span.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        headers.insert("traceparent", http::HeaderValue::from_static("00-0-0-1"));
        assert!(!Traces::parent_of(&headers).span().span_context().is_valid());
    }
}
