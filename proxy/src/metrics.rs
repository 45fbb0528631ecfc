//! Every metric of the listeners in one table (name, unit, labels, help), and the engine's beside
//! it: `engine::metrics` has a table of its own. `docs/reference/metrics.md` is written from both.
//!
//! Labels are bounded: `op` is the operation table of `s3_wire`, `form` and `reason` are enums. A
//! name ends in its base unit; counters end in `_total`. No label is called `job` or `instance`:
//! Prometheus gives those to every series it scrapes, and renames ours out of the way.

pub use engine::metrics::MetricSpec;

use engine::metrics::{SECONDS, Value};
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    TextEncoder,
    core::{Collector, Desc},
    process_collector::ProcessCollector,
    proto,
};
use std::{collections::HashMap, fmt::Write as _, sync::Arc};

/// Why an operation on the registry failed: a name or label that Prometheus does not take, or one
/// registered twice.
pub type MetricsError = prometheus::Error;

/// Seconds between two clocks, up to past the 15 minutes that S3 tolerates. Signed dates have whole
/// seconds.
const SKEW: &[f64] = &[1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0];
/// Bytes, in powers of four from 1 KiB to 16 GiB.
const BYTES: &[f64] = &[
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
    17_179_869_184.0,
];

/// What the macro below needs of a Prometheus type to make one from a row of the table.
trait FromRow: Sized + Clone + prometheus::core::Collector + 'static {
    const KIND: &'static str;
    fn from_row(opts: Opts, labels: &[&str], buckets: &[f64]) -> Result<Self, MetricsError>;
}

macro_rules! from_row {
    ($type:ty, $kind:literal, |$opts:ident, $labels:ident, $buckets:ident| $make:expr) => {
        impl FromRow for $type {
            const KIND: &'static str = $kind;
            fn from_row($opts: Opts, $labels: &[&str], $buckets: &[f64]) -> Result<Self, MetricsError> {
                let _ = ($labels, $buckets);
                $make
            }
        }
    };
}
from_row!(IntCounter, "counter", |opts, labels, buckets| Self::with_opts(opts));
from_row!(IntCounterVec, "counter", |opts, labels, buckets| Self::new(opts, labels));
from_row!(IntGaugeVec, "gauge", |opts, labels, buckets| Self::new(opts, labels));
from_row!(Histogram, "histogram", |opts, labels, buckets| Self::with_opts(
    HistogramOpts::from(opts).buckets(buckets.to_vec())
));
from_row!(HistogramVec, "histogram", |opts, labels, buckets| Self::new(
    HistogramOpts::from(opts).buckets(buckets.to_vec()),
    labels
));

macro_rules! metrics {
    ($($field:ident: $type:ty, $unit:literal, [$($label:literal),*] $(, $buckets:ident)?; $help:literal)*) => {
        /// Handles of every metric; a field is named as its metric without the `deltaweir_` prefix.
        #[derive(Clone)]
        pub struct Metrics {
            registry: Registry,
            /// What the engine counts.
            pub engine: Arc<engine::Metrics>,
            $(#[doc = $help] pub $field: $type,)*
        }

        /// Every metric of the listeners, in the order of the reference page;
        /// [`engine::metrics::TABLE`] follows.
        pub const TABLE: &[MetricSpec] = &[$(MetricSpec {
            name: concat!("deltaweir_", stringify!($field)),
            kind: <$type as FromRow>::KIND,
            unit: $unit,
            labels: &[$($label),*],
            help: $help,
        },)*];

        impl Metrics {
            /// Makes and registers every metric in a registry of its own.
            ///
            /// # Errors
            /// A row of the table that Prometheus refuses; a test makes one, so a released binary
            /// has none.
            pub fn new() -> Result<Arc<Self>, MetricsError> {
                let registry = Registry::new();
                registry.register(Box::new(ProcessCollector::for_self()))?;
                $(
                    let buckets: &[f64] = &[];
                    $(let buckets: &[f64] = { let _ = buckets; $buckets };)?
                    let opts = Opts::new(concat!("deltaweir_", stringify!($field)), $help);
                    let $field = <$type>::from_row(opts, &[$($label),*], buckets)?;
                    registry.register(Box::new($field.clone()))?;
                )*
                let engine = engine::Metrics::new();
                registry.register(Box::new(EngineCollector::new(engine.clone())?))?;
                let metrics = Self { registry, engine, $($field,)* };
                metrics.build_info.with_label_values(&[VERSION, COMMIT]).set(1);
                metrics.http_cut_total.with_label_values(&["GetObject"]);
                Ok(Arc::new(metrics))
            }
        }
    };
}

metrics! {
    build_info: IntGaugeVec, "1", ["version", "commit"]; "Constant 1; the labels say which build is running."
    http_requests_total: IntCounterVec, "requests", ["op", "code"]; "S3 requests answered, by operation and HTTP status."
    http_request_seconds: HistogramVec, "seconds", ["op"], SECONDS; "From the end of the request's head to the last byte of the answer."
    http_ttfb_seconds: HistogramVec, "seconds", ["op", "form"], SECONDS; "From the end of the request's head to the answer's head; form is the object's storage form where there is one."
    http_request_bytes_total: IntCounterVec, "bytes", ["op"]; "Request body bytes as received, framing included."
    http_response_bytes_total: IntCounterVec, "bytes", ["op"]; "Response body bytes handed to the connection."
    http_inflight: IntGaugeVec, "requests", ["op"]; "Requests being answered now."
    http_request_body_bytes: HistogramVec, "bytes", ["op"], BYTES; "Size of request bodies that carry object content."
    small_response_seconds: Histogram, "seconds", [], SECONDS; "Whole time of requests that carry and get less than 1500 bytes: rises by 40 ms when delayed ACKs meet Nagle."
    http_cut_total: IntCounterVec, "answers", ["op"]; "Responses that were cut off because the rest could not be read or failed verification."
    rejected_total: IntCounterVec, "requests", ["reason"]; "Requests and connections refused before their operation ran."
    auth_total: IntCounterVec, "requests", ["result", "reason"]; "Verified signatures and authorization decisions."
    clock_skew_seconds: Histogram, "seconds", [], SKEW; "How far the date of a verified signature lies from this machine's clock, either way."
    log_failures_total: IntCounter, "lines", []; "Lines of the log that could not be written, or that waited too long for their reader."
    access_log_failures_total: IntCounter, "lines", []; "Lines of the access log that could not be written, or that waited too long for their reader."
    trace_spans_total: IntCounterVec, "spans", ["result"]; "Spans of traces by what became of them: sent, failed (no collector took them), or dropped (the queue was full)."
    audit_failures_total: IntCounter, "lines", []; "Lines of the audit log that could not be written, or not brought to the disk."
    allocator_bytes: IntGaugeVec, "bytes", ["state"]; "Memory as the allocator counts it: allocated (in use), active (pages with something in use), metadata (its own), resident (pages it has in memory, those included that it keeps for the next allocation), retained (addresses it keeps without memory)."
    allocator_given_back_bytes_total: IntCounter, "bytes", []; "Memory that the allocator kept for its next allocations and gave back early, because the process held more than limits.memory_bytes_max and 64 MiB."
    resident_bytes: IntGaugeVec, "bytes", ["kind"]; "Resident memory of the process: anonymous (its own), file (pages of files, such as its program, that the system can take back), shared."
    integrity_errors_total: IntCounter, "requests", []; "Requests that failed because stored bytes were missing or damaged."
}

/// The standard set, written by the client library under its own names.
pub const PROCESS_TABLE: &[MetricSpec] = &[
    process("process_cpu_seconds_total", "counter", "seconds", "User and system CPU time, in whole seconds."),
    process("process_open_fds", "gauge", "descriptors", "Open file descriptors."),
    process("process_max_fds", "gauge", "descriptors", "Most file descriptors the process may open."),
    process("process_virtual_memory_bytes", "gauge", "bytes", "Virtual memory size."),
    process("process_resident_memory_bytes", "gauge", "bytes", "Resident memory size."),
    process("process_start_time_seconds", "gauge", "seconds", "Start of the process since the Unix epoch."),
    process("process_threads", "gauge", "threads", "Threads of the process."),
];

const fn process(name: &'static str, kind: &'static str, unit: &'static str, help: &'static str) -> MetricSpec {
    MetricSpec { name, kind, unit, labels: &[], help }
}

/// Every metric under our own prefix, in the order of the reference page.
pub fn table() -> impl Iterator<Item = &'static MetricSpec> {
    TABLE.iter().chain(engine::metrics::TABLE)
}

/// The engine's numbers, as Prometheus takes them.
struct EngineCollector {
    metrics: Arc<engine::Metrics>,
    descriptions: Vec<Desc>,
}

impl EngineCollector {
    fn new(metrics: Arc<engine::Metrics>) -> Result<Self, MetricsError> {
        let described = |row: &MetricSpec| {
            let labels = row.labels.iter().map(|label| (*label).to_owned()).collect();
            Desc::new(row.name.to_owned(), row.help.to_owned(), labels, HashMap::new())
        };
        let descriptions = engine::metrics::TABLE.iter().map(described).collect::<Result<_, _>>()?;
        Ok(Self { metrics, descriptions })
    }
}

impl Collector for EngineCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        self.metrics.families().into_iter().map(exposed).collect()
    }
}

fn exposed(family: engine::metrics::Family) -> proto::MetricFamily {
    let mut exposed = proto::MetricFamily::default();
    exposed.set_name(family.spec.name.to_owned());
    exposed.set_help(family.spec.help.to_owned());
    exposed.set_field_type(match family.spec.kind {
        "counter" => proto::MetricType::COUNTER,
        "gauge" => proto::MetricType::GAUGE,
        _ => proto::MetricType::HISTOGRAM,
    });
    let series = family.series.into_iter().map(|series| {
        let pair = |(name, value): (&&str, String)| {
            let mut pair = proto::LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value);
            pair
        };
        let mut metric = proto::Metric::from_label(family.spec.labels.iter().zip(series.labels).map(pair).collect());
        match series.value {
            Value::Counter(value) => {
                let mut counter = proto::Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
            Value::Gauge(value) => {
                let mut gauge = proto::Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            Value::Histogram { bounds, counts, sum } => metric.set_histogram(exposed_histogram(bounds, &counts, sum)),
        }
        metric
    });
    exposed.set_metric(series.collect());
    exposed
}

/// Prometheus adds buckets up: each counts what the smaller ones do, too.
fn exposed_histogram(bounds: &[f64], counts: &[u64], sum: f64) -> proto::Histogram {
    let mut total = 0;
    let buckets = bounds.iter().zip(counts).map(|(bound, count)| {
        total += count;
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(total);
        bucket
    });
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(counts.iter().sum());
    histogram.set_sample_sum(sum);
    histogram
}

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit of this build, or `unknown`; `proxy/build.rs` says where it is from.
pub const COMMIT: &str = env!("DELTAWEIR_COMMIT");
/// Both, as `--version` tells them, and whether it is a FIPS build.
pub const BUILD: &str = if crypto::FIPS {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("DELTAWEIR_COMMIT"), "), FIPS build")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("DELTAWEIR_COMMIT"), ")")
};

impl Metrics {
    /// Everything, in the Prometheus text format.
    ///
    /// # Errors
    /// A family that cannot be written, which the registry does not produce.
    pub fn render(&self) -> Result<String, MetricsError> {
        let mut text = Vec::with_capacity(64 << 10);
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|_| MetricsError::Msg("metrics are not UTF-8".into()))
    }
}

/// `docs/reference/metrics.md`, as the table says it.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         `GET /metrics` on the admin listener, in the Prometheus text format. This page is printed by\n\
         `deltaweir reference metrics` from the tables in `proxy/src/metrics.rs` and `engine/src/metrics.rs`; a test compares.\n\n\
         Labels are bounded: `op` is an S3 operation (`Unknown` before routing), `form` is raw, zstd, delta, dedup or foreign,\n\
         `backend` a configured name, `bucket` stands on gauges only.\n\n\
         | name | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in table().chain(PROCESS_TABLE) {
        let labels = row.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "| `{}` | {} | {} | {} | {} |", row.name, row.kind, row.unit, labels, row.help);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_can_be_registered_and_unlabelled_ones_are_rendered_at_once() {
        let metrics = Metrics::new().unwrap();
        let text = metrics.render().unwrap();
        for row in table().filter(|row| row.labels.is_empty()) {
            assert!(text.contains(&format!("# TYPE {} {}", row.name, row.kind)), "{} is missing", row.name);
        }
        for row in PROCESS_TABLE {
            assert!(text.contains(&format!("# TYPE {} {}", row.name, row.kind)), "{} is missing", row.name);
        }
        assert!(text.contains(&format!("deltaweir_build_info{{commit=\"{COMMIT}\",version=\"{VERSION}\"}} 1")));
    }

    #[test]
    fn counters_are_called_total_and_nothing_else_is() {
        for row in table() {
            assert_eq!(row.kind == "counter", row.name.ends_with("_total"), "{}", row.name);
        }
    }

    #[test]
    fn no_label_is_one_that_prometheus_gives_to_what_it_scrapes() {
        for row in table() {
            assert!(!row.labels.iter().any(|label| ["job", "instance", "le"].contains(label)), "{}", row.name);
        }
    }

    #[test]
    fn histograms_reach_300_seconds_and_16_gib() {
        assert_eq!(SECONDS.last(), Some(&300.0));
        assert_eq!(BYTES.last(), Some(&17_179_869_184.0));
        for buckets in [SECONDS, SKEW, BYTES] {
            assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn the_engines_numbers_are_shown_with_labels_and_buckets_that_add_up() {
        let metrics = Metrics::new().unwrap();
        metrics.engine.plan_total.with_label_values(&["delta", "saved"]).inc_by(3);
        metrics.engine.effort_level.set(2.5);
        for seconds in [0.000_2, 0.3, 1000.0] {
            metrics.engine.codec_queue_seconds.observe(seconds);
        }
        let text = metrics.render().unwrap();
        for line in [
            "deltaweir_plan_total{form=\"delta\",reason=\"saved\"} 3",
            "deltaweir_effort_level 2.5",
            "deltaweir_codec_queue_seconds_bucket{le=\"0.0001\"} 0",
            "deltaweir_codec_queue_seconds_bucket{le=\"0.00025\"} 1",
            "deltaweir_codec_queue_seconds_bucket{le=\"300\"} 2",
            "deltaweir_codec_queue_seconds_bucket{le=\"+Inf\"} 3",
            "deltaweir_codec_queue_seconds_count 3",
            "deltaweir_aead_failures_total{reason=\"open\"} 0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is missing");
        }
    }

    #[test]
    fn the_reference_page_is_the_table() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md")).unwrap();
        assert!(page == reference_page(), "print it anew: deltaweir reference metrics > docs/reference/metrics.md");
    }
}
