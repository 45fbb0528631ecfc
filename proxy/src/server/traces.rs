//! Traces: one span for each request that has ended, with the steps it went through below it, sent
//! to an OpenTelemetry collector (OTLP over HTTP, protobuf).
//!
//! Spans are made of what the access log has, so they tell nothing that it does not. They wait in a
//! bounded queue; what does not fit is dropped, and no request waits for a collector.

use super::access_log::Ended;
use crate::webhooks::{in_words, outward};
use async_trait::async_trait;
use http::HeaderMap;
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator as _,
    trace::{Span as _, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _},
};
use opentelemetry_http::{HeaderExtractor, HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{
        BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, SpanData, SpanExporter,
        SpanLimits, TracerProviderBuilder,
    },
};
use prometheus::IntCounterVec;
use reqwest::{Client, Url, header::CONTENT_TYPE};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    collections::BTreeMap,
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
/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Whoever sends spans. Dropped without [`Traces::end`], it forgets those that wait.
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
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
        let processor = BatchSpanProcessor::builder(Counted { exporter, sent }).with_batch_config(batches).build();
        // Whoever names a trace does not decide how much of ours is sent: of traces that others
        // began we keep the same part, by the trace's id.
        let share = Sampler::TraceIdRatioBased(config.share);
        let sampler = Sampler::parent_based(share.clone()).with_remote_parent_sampled(share);
        let provider = TracerProviderBuilder::default()
            .with_span_processor(processor)
            .with_sampler(sampler)
            .with_span_limits(SpanLimits::default())
            .with_resource(
                Resource::builder_empty()
                    .with_service_name(config.service)
                    .with_attribute(KeyValue::new("service.version", crate::metrics::VERSION))
                    .build(),
            )
            .build();
        Ok(Self { tracer: provider.tracer("deltaweir"), provider })
    }

    /// The trace that a request says it belongs to (`traceparent`, W3C Trace Context).
    pub(crate) fn parent_of(headers: &HeaderMap) -> Context {
        TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(headers))
    }

    /// Takes a request that has ended.
    pub(crate) fn note(&self, ended: &Ended, began: SystemTime, parent: &Context) {
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
    let mut attributes = vec![
        KeyValue::new("http.request.method", ended.method.clone()),
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
        ("aws.s3.key", ended.key.clone()),
        ("error.type", ended.code.map(str::to_owned)),
        ("deltaweir.form", ended.form.map(str::to_owned)),
    ];
    attributes.extend(texts.into_iter().filter_map(|(name, text)| Some(KeyValue::new(name, text?))));
    attributes
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
            let mut told = Vec::new();
            while let Ok(Some(piece)) = answer.chunk().await {
                if told.len() + piece.len() > ANSWER_BYTES_MAX {
                    break;
                }
                told.extend_from_slice(&piece);
            }
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
}

impl SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
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
        let ended =
            Ended { bucket: "b".into(), hides_key: true, status: 503, code: Some("SlowDown"), ..Ended::default() };
        let said =
            |name: &str| attributes(&ended).into_iter().find(|one| one.key.as_str() == name).map(|one| one.value);
        assert_eq!(said("aws.s3.bucket"), Some("b".into()));
        assert_eq!((said("aws.s3.key"), said("user.name")), (None, None));
        assert_eq!(said("error.type"), Some("SlowDown".to_owned().into()));
    }

    #[test]
    fn the_trace_of_a_request_is_the_one_that_it_names() {
        let mut headers = HeaderMap::new();
        assert!(!Traces::parent_of(&headers).span().span_context().is_valid());
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.insert("traceparent", http::HeaderValue::from_static(parent));
        let named = Traces::parent_of(&headers);
        let span = named.span().span_context().clone();
        assert_eq!(span.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        headers.insert("traceparent", http::HeaderValue::from_static("00-0-0-1"));
        assert!(!Traces::parent_of(&headers).span().span_context().is_valid());
    }
}
