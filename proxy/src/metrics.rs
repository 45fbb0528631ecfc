//! Every metric in one table: name, unit, labels, help. `docs/reference/metrics.md` is written from it.
//!
//! Labels are bounded: `op` is the operation table of `s3_wire`, `form` and `reason` are enums, `backend` is a
//! configured name, and `bucket` stands on gauges only. A name ends in its base unit; counters end in `_total`. No label is
//! called `job` or `instance`: Prometheus gives those to every series it scrapes, and renames ours out of the way.

use prometheus::{
    Counter, Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder, process_collector::ProcessCollector,
};
use std::{fmt::Write as _, sync::Arc};

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSpec {
    /// Full name, as Prometheus sees it.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Base unit.
    pub unit: &'static str,
    /// Label names, in order.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// Why an operation on the registry failed: a name or label that Prometheus does not take, or one registered twice.
pub type MetricsError = prometheus::Error;

/// Seconds, from 100 µs to 300 s.
const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 300.0,
];
/// Stored bytes as a share of logical bytes, from 0.001 to 1.
const RATIO: &[f64] = &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0];
/// Seconds between two clocks, up to past the 15 minutes that S3 tolerates. Signed dates have whole seconds.
const SKEW: &[f64] = &[1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0];
/// Counts of a few things.
const COUNT: &[f64] = &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
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

/// Every `reason` of `aead_failures_total`: an object's bytes or tables, a catalog row.
const AEAD_REASONS: [&str; 2] = ["open", "row"];
/// Every `where` of `checksum_failures_total`: stored chunks and tables, decoded segments, catalog rows, the encoder's own
/// check, request bodies.
const CHECKSUM_PLACES: [&str; 5] = ["chunk", "segment", "row", "encoder", "request"];

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
from_row!(Counter, "counter", |opts, labels, buckets| Self::with_opts(opts));
from_row!(IntCounterVec, "counter", |opts, labels, buckets| Self::new(opts, labels));
from_row!(IntGauge, "gauge", |opts, labels, buckets| Self::with_opts(opts));
from_row!(Gauge, "gauge", |opts, labels, buckets| Self::with_opts(opts));
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
            $(#[doc = $help] pub $field: $type,)*
        }

        /// Every metric this process writes under its own prefix, in the order of the reference page.
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
            /// A row of the table that Prometheus refuses; a test makes one, so a released binary has none.
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
                let metrics = Self { registry, $($field,)* };
                metrics.build_info.with_label_values(&[VERSION, COMMIT]).set(1);
                metrics.start_failure_counters();
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
    http_cut_total: IntCounterVec, "answers", ["op"]; "Answers that were cut off because what was left of them could not be read or did not check out."
    rejected_total: IntCounterVec, "requests", ["reason"]; "Requests and connections refused before their operation ran."
    auth_total: IntCounterVec, "requests", ["result", "reason"]; "Verified signatures and authorization decisions."
    clock_skew_seconds: Histogram, "seconds", [], SKEW; "How far the date of a verified signature lies from this machine's clock, either way."

    logical_bytes_total: IntCounterVec, "bytes", ["form"]; "Bytes clients stored, by the form they were stored in."
    stored_bytes_total: IntCounterVec, "bytes", ["form"]; "Bytes written to backends for them."
    saved_bytes_total: IntCounterVec, "bytes", ["stage"]; "Bytes not stored thanks to each stage: dedup, zstd, delta."
    plan_total: IntCounterVec, "bodies", ["form", "reason"]; "Why each body was stored as it was."
    reduction_ratio: HistogramVec, "ratio", ["form"], RATIO; "Stored bytes of a body as a share of its logical bytes."
    encode_seconds: HistogramVec, "seconds", ["codec"], SECONDS; "Time a codec thread spent on encoding one segment, its check included."
    decode_seconds: HistogramVec, "seconds", ["codec"], SECONDS; "Time a codec thread spent on decoding one segment for a read."
    codec_queue_seconds: Histogram, "seconds", [], SECONDS; "How long codec jobs waited for a thread of the codec pool."
    codec_threads: IntGaugeVec, "threads", ["state"]; "Threads of the codec pool: total, busy; and of the hash pool, which has as many: hashing."
    effort_level: Gauge, "level", []; "Effort new uploads get: 0 not now, 1 fast, 2 balanced, 3 high, 4 max."
    wasted_encode_seconds_total: Counter, "seconds", []; "Time codec threads spent on encodings that were thrown away."
    base_candidates: Histogram, "bases", [], COUNT; "Bases considered for a region of a body."
    base_choices_total: IntCounterVec, "bases", ["source"]; "Bases chosen for regions of bodies, by how they were found: version, name, hooks; none counts regions without one."
    base_trial_seconds: Histogram, "seconds", [], SECONDS; "Time a codec thread spent on trying a sample of a region against a candidate."
    base_fetch_bytes_total: IntCounterVec, "bytes", ["source"]; "Base bytes used for encoding and decoding, by where they came from: cache, backend."

    deferred_blobs: IntGauge, "blobs", []; "Blobs that were stored in a hurry and wait for the converter."
    deferred_bytes: IntGauge, "bytes", []; "Their plain bytes."
    deferred_oldest_age_seconds: IntGauge, "seconds", []; "How long the first of them has waited."
    convert_blobs_total: IntCounterVec, "blobs", ["reason", "result"]; "Blobs the converter has dealt with, by why (deferred, hot, rebase, merge, move, asked) and result (converted, kept, unused, failed)."
    convert_stored_bytes_total: IntCounterVec, "bytes", ["reason", "when"]; "Stored bytes of converted blobs: before, after."
    merged_extents_total: IntCounter, "extents", []; "Small extents of large objects that the converter has put together."

    bucket_objects: IntGaugeVec, "objects", ["bucket"]; "Current versions, from the catalog. Buckets that are not configured by name are added up as `_other`."
    bucket_logical_bytes: IntGaugeVec, "bytes", ["bucket"]; "Their logical size, from the catalog."
    bucket_stored_bytes: IntGaugeVec, "bytes", ["bucket", "kind"]; "Stored bytes, from the catalog: whole, delta, base_only, overhead."

    seal_bytes_total: IntCounterVec, "bytes", ["dir"]; "Plain bytes through AES-256-GCM: seal, open."
    aead_failures_total: IntCounterVec, "failures", ["reason"]; "Chunks, pages or rows that did not authenticate."
    integrity_errors_total: IntCounter, "requests", []; "Requests that failed because stored bytes were missing or not what they should be."
    checksum_failures_total: IntCounterVec, "failures", ["where"]; "Stored bytes whose checksum or digest was wrong, and client bodies that were not what they claimed."

    cache_hits_total: IntCounterVec, "lookups", ["kind", "tier"]; "Lookups answered by a cache."
    cache_misses_total: IntCounterVec, "lookups", ["kind", "tier"]; "Lookups that had to fetch."
    cache_evictions_total: IntCounterVec, "entries", ["kind", "tier"]; "Entries dropped for room."
    cache_bytes: IntGaugeVec, "bytes", ["kind", "tier"]; "Bytes held."

    backend_requests_total: IntCounterVec, "requests", ["backend", "op", "code"]; "Calls to a backend, by outcome."
    backend_seconds: HistogramVec, "seconds", ["backend", "op"], SECONDS; "How long they took; for reads, to the first byte."
    backend_bytes_total: IntCounterVec, "bytes", ["backend", "dir"]; "Bytes moved: written, read."
    backend_retries_total: IntCounterVec, "requests", ["backend", "reason"]; "Calls to a backend that were repeated, by why."
    catalog_commit_seconds: Histogram, "seconds", [], SECONDS; "From the start of a catalog transaction to its durable commit."
    catalog_batch_ops: Histogram, "operations", [], COUNT; "Operations that shared one commit."

    writer_epochs_lost_total: IntCounter, "epochs", []; "Writer epochs this process lost because it was not heard of for too long; writes under way were refused."

    memory_budget_bytes: IntGaugeVec, "bytes", ["state"]; "The memory budget: limit, used."
    spool_bytes: IntGaugeVec, "bytes", ["state"]; "Spool files: limit, used."
    disk_bytes: IntGaugeVec, "bytes", ["place", "state"]; "File systems of the data directory and of local backends: size, free."
    multipart_inflight: IntGauge, "uploads", []; "Multipart uploads that are open."

    packed_objects_total: IntCounter, "objects", []; "Small objects that were moved into packs."
    packed_bytes_total: IntCounterVec, "bytes", ["when"]; "Stored bytes of the small objects that were packed: before and after."
    scrub_objects_total: IntCounterVec, "blobs", ["result"]; "Blobs that a scrub verified: ok, restored (damaged, and written anew from its second copy), copy_only (damaged, and could not be), damaged, unreachable (could not be asked for now), gone (died meanwhile)."
    scrub_bytes_total: IntCounter, "bytes", []; "Stored bytes that scrubs read and checked."
    base_copies: IntGauge, "blobs", []; "Bases that have a second copy."
    base_copy_bytes: IntGauge, "bytes", []; "Stored bytes of second copies."
    base_copies_made_total: IntCounterVec, "copies", ["result"]; "Second copies of bases that were written: made, replaced (the earlier one was damaged), damaged (what was read was not what was stored, and was removed again), failed."
    base_copy_reads_total: IntCounterVec, "reads", ["result"]; "Reads that met a damaged blob with a second copy: served (from the other copy), damaged (both are)."
    quarantined_blobs: IntGauge, "blobs", []; "Damaged blobs in quarantine, as of the last scrub or look at the list; 0 in a process that did neither."

    gc_runs_total: IntCounter, "runs", []; "Runs of the collector."
    gc_deleted_blobs_total: IntCounter, "blobs", []; "Blobs it deleted."
    gc_reclaimed_bytes_total: IntCounter, "bytes", []; "Stored bytes it freed."
    backend_uploads_aborted_total: IntCounterVec, "uploads", ["backend"]; "Uploads in parts to a backend that a process left behind, and that were aborted."
    gc_errors_total: IntCounter, "errors", []; "Blobs it could not delete and left for the next run."
    gc_last_success_timestamp_seconds: IntGauge, "seconds", []; "When the collector last ended without an error, in whichever process, since the Unix epoch; 0 before."

    journal_lag_entries: IntGauge, "entries", []; "Mutations of the catalog that are not in the backend's journal yet."
    journal_lag_seconds: IntGauge, "seconds", []; "Age of the oldest of them: what losing the catalog now would lose."
    journal_shipped_entries_total: IntCounter, "entries", []; "Mutations shipped to the backend's journal."
    journal_errors_total: IntCounter, "errors", []; "Shipments that failed and are tried again."

    job_running: IntGaugeVec, "jobs", ["job_name"]; "1 while this process runs the background job."
    job_runs_total: IntCounterVec, "runs", ["job_name", "outcome"]; "Runs of background jobs in this process that ended: ok, failed, cancelled, paused, interrupted."
    job_seconds: HistogramVec, "seconds", ["job_name"], SECONDS; "How long they took."
    job_progress: IntGaugeVec, "things", ["job_name", "state"]; "How far the current or last run is, in the job's own unit: done, total (0 while it is not known)."
    job_backlog: IntGaugeVec, "things", ["job_name"]; "What waits for the job."
    job_leases_lost_total: IntCounterVec, "leases", ["job_name"]; "Runs that were stopped because their lease could not be renewed or was taken by another process."
    job_last_success_timestamp_seconds: IntGaugeVec, "seconds", ["job_name"]; "When the job last ended well, in whichever process, since the Unix epoch; 0 before."
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

/// Version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Commit of this build, where the build was told (`DELTAWEIR_COMMIT`).
pub const COMMIT: &str = match option_env!("DELTAWEIR_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

impl Metrics {
    /// Makes the counters of failures exist at 0. One that appeared with its first failure would hide it: `increase()`
    /// sees no step in a series that begins at 1.
    fn start_failure_counters(&self) {
        for reason in AEAD_REASONS {
            self.aead_failures_total.with_label_values(&[reason]);
        }
        for place in CHECKSUM_PLACES {
            self.checksum_failures_total.with_label_values(&[place]);
        }
        self.http_cut_total.with_label_values(&["GetObject"]);
        for result in ["damaged", "restored", "copy_only"] {
            self.scrub_objects_total.with_label_values(&[result]);
        }
        for result in ["served", "damaged"] {
            self.base_copy_reads_total.with_label_values(&[result]);
        }
    }

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
         `deltaweir reference metrics` from the table in `proxy/src/metrics.rs`; a test compares the two.\n\n\
         Labels are bounded: `op` is an S3 operation (`Unknown` before routing), `form` is raw, zstd, delta, dedup or foreign,\n\
         `backend` a configured name, `bucket` stands on gauges only.\n\n\
         | name | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in TABLE.iter().chain(PROCESS_TABLE) {
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
        for row in TABLE.iter().filter(|row| row.labels.is_empty()) {
            assert!(text.contains(&format!("# TYPE {} {}", row.name, row.kind)), "{} is missing", row.name);
        }
        for row in PROCESS_TABLE {
            assert!(text.contains(&format!("# TYPE {} {}", row.name, row.kind)), "{} is missing", row.name);
        }
        assert!(text.contains(&format!("deltaweir_build_info{{commit=\"{COMMIT}\",version=\"{VERSION}\"}} 1")));
    }

    #[test]
    fn counters_are_called_total_and_nothing_else_is() {
        for row in TABLE {
            assert_eq!(row.kind == "counter", row.name.ends_with("_total"), "{}", row.name);
        }
    }

    #[test]
    fn no_label_is_one_that_prometheus_gives_to_what_it_scrapes() {
        for row in TABLE {
            assert!(!row.labels.iter().any(|label| ["job", "instance", "le"].contains(label)), "{}", row.name);
        }
    }

    #[test]
    fn histograms_reach_300_seconds_16_gib_and_ratios_from_a_thousandth_to_one() {
        assert_eq!(SECONDS.last(), Some(&300.0));
        assert_eq!(BYTES.last(), Some(&17_179_869_184.0));
        assert_eq!((RATIO[0], RATIO[RATIO.len() - 1]), (0.001, 1.0));
        for buckets in [SECONDS, SKEW, BYTES, RATIO, COUNT] {
            assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn the_reference_page_is_the_table() {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/metrics.md")).unwrap();
        assert!(page == reference_page(), "print it anew: deltaweir reference metrics > docs/reference/metrics.md");
    }
}
