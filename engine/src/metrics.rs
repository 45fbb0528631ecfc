//! What the engine counts, in one table: name, unit, labels, help. `docs/reference/metrics.md` is
//! written from it.
//!
//! The engine keeps plain numbers and knows no protocol that shows them: [`Metrics::families`]
//! gives them as they stand, and the program writes them in the format it likes.
//!
//! Labels are bounded: `form` and `reason` are enums, `backend` is a configured name, and `bucket`
//! stands on gauges only. A name ends in its base unit; counters end in `_total`. No label is
//! called `job` or `instance`: Prometheus gives those to every series it scrapes, and renames ours
//! out of the way.

mod series;

pub use series::{
    Counter, Family, Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, MetricSpec,
    Series, Value,
};

use series::FromRow;
use std::sync::Arc;

/// Seconds, from 100 µs to 300 s.
pub const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 300.0,
];
/// Stored bytes as a share of logical bytes, from 0.001 to 1.
const RATIO: &[f64] = &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0];
/// Counts of a few things.
const COUNT: &[f64] = &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// Every `reason` of `aead_failures_total`: an object's bytes or tables, a catalog row.
const AEAD_REASONS: [&str; 2] = ["open", "row"];
/// Every `reason` of `writes_refused`.
const WRITE_REFUSALS: [&str; 5] = ["behind", "beside", "lineage", "place", "damaged"];
/// Every `where` of `checksum_failures_total`: stored chunks and tables, decoded segments, catalog
/// rows, the encoder's own check, request bodies.
const CHECKSUM_PLACES: [&str; 5] = ["chunk", "segment", "row", "encoder", "request"];

macro_rules! metrics {
    ($($field:ident: $type:ty, $unit:literal, [$($label:literal),*] $(, $buckets:ident)?; $help:literal)*) => {
        /// Every number the engine keeps; a field is named as its metric without the `deltaweir_`
        /// prefix.
        pub struct Metrics {
            $(#[doc = $help] pub $field: $type,)*
        }

        /// Every metric of the engine, in the order of the reference page.
        pub const TABLE: &[MetricSpec] = &[$(MetricSpec {
            name: concat!("deltaweir_", stringify!($field)),
            kind: <$type as FromRow>::KIND,
            unit: $unit,
            labels: &[$($label),*],
            help: $help,
        },)*];

        impl Metrics {
            /// Numbers that begin at zero.
            pub fn new() -> Arc<Self> {
                $(
                    let buckets: &'static [f64] = &[];
                    $(let buckets: &'static [f64] = { let _ = buckets; $buckets };)?
                    let $field = <$type>::from_row(&[$($label),*], buckets);
                )*
                let metrics = Self { $($field,)* };
                metrics.start_failure_counters();
                Arc::new(metrics)
            }

            /// All of them as they stand now, in the order of [`TABLE`].
            pub fn families(&self) -> Vec<Family> {
                let series = [$(self.$field.series(),)*];
                TABLE.iter().zip(series).map(|(spec, series)| Family { spec, series }).collect()
            }
        }
    };
}

metrics! {
    logical_bytes_total: IntCounterVec, "bytes", ["form"]; "Bytes clients stored, by the form they were stored in."
    stored_bytes_total: IntCounterVec, "bytes", ["form"]; "Bytes written to backends for stored bodies."
    saved_bytes_total: IntCounterVec, "bytes", ["stage"]; "Bytes not stored thanks to each stage: dedup, zstd, delta."
    plan_total: IntCounterVec, "bodies", ["form", "reason"]; "Stored bodies, by form and the reason for it."
    reduction_ratio: HistogramVec, "ratio", ["form"], RATIO; "Stored bytes of a body as a share of its logical bytes."
    encode_seconds: HistogramVec, "seconds", ["codec"], SECONDS; "Time a codec thread spent on encoding one segment, its check included."
    decode_seconds: HistogramVec, "seconds", ["codec"], SECONDS; "Time a codec thread spent on decoding one segment for a read."
    codec_queue_seconds: Histogram, "seconds", [], SECONDS; "How long codec jobs waited for a thread of the codec pool."
    codec_threads: IntGaugeVec, "threads", ["state"]; "Threads of the codec pool: total, busy; of the hash pool, which has as many: hashing; and the one that spools bodies: spooling."
    effort_level: Gauge, "level", []; "Effort for new uploads: 0 deferred, 1 fast, 2 balanced, 3 high, 4 max."
    wasted_encode_seconds_total: Counter, "seconds", []; "Time codec threads spent on encodings that were discarded."
    base_candidates: Histogram, "bases", [], COUNT; "Bases considered for a region of a body."
    base_choices_total: IntCounterVec, "bases", ["source"]; "Bases chosen for regions of bodies, by how they were found: version, name, hooks; none counts regions without one."
    base_trial_seconds: Histogram, "seconds", [], SECONDS; "Time a codec thread spent on trying a sample of a region against a candidate."
    base_fetch_bytes_total: IntCounterVec, "bytes", ["source"]; "Base bytes used for encoding and decoding, by where they came from: cache, backend."

    deferred_blobs: IntGauge, "blobs", []; "Blobs whose full encoding was deferred and that wait for the converter."
    deferred_bytes: IntGauge, "bytes", []; "Plain bytes of the blobs that wait for the converter."
    deferred_oldest_age_seconds: IntGauge, "seconds", []; "How long the oldest deferred blob has waited."
    heat_bytes: IntGauge, "bytes", []; "Extra stored bytes of deltas that were made whole because they are read often: at most a twentieth of what deltas save."
    convert_blobs_total: IntCounterVec, "blobs", ["reason", "result"]; "Blobs the converter has processed, by reason (deferred, hot, cooled, rebase, between, merge, move, reencrypt, asked) and result (converted, kept, busy (no memory for the base), unused, failed)."
    convert_stored_bytes_total: IntCounterVec, "bytes", ["reason", "when"]; "Stored bytes of converted blobs: before, after."
    view_streams_total: IntCounterVec, "streams", ["result"]; "Deflate streams of content that was encoded over a base whose streams are opened: opened, nested (in the plain text of these), gapped (of the opened ones, those that lie in pieces), same (left as it is, because the base has it bit for bit)."
    view_steps_total: IntCounterVec, "steps", ["result"]; "Literals and matches of opened deflate streams in stored segments: predicted from the base, replayed by a known encoder, written out."
    view_text_bytes_total: IntCounter, "bytes", []; "Plain bytes of opened deflate streams that were encoded."
    merged_extents_total: IntCounter, "extents", []; "Small extents of large objects that the converter has merged."

    bucket_objects: IntGaugeVec, "objects", ["bucket"]; "Current versions, from the catalog. Configured buckets and the 100 oldest others stand by name; the rest are summed as `_other`."
    bucket_logical_bytes: IntGaugeVec, "bytes", ["bucket"]; "Logical size of current versions, from the catalog."
    bucket_noncurrent_versions: IntGaugeVec, "versions", ["bucket"]; "Versions with content that are not current, from the catalog."
    bucket_delete_markers: IntGaugeVec, "markers", ["bucket"]; "Delete markers, from the catalog."
    bucket_noncurrent_bytes: IntGaugeVec, "bytes", ["bucket", "kind"]; "Size of noncurrent versions, from the catalog: logical, and stored bytes that only they need."
    bucket_stored_bytes: IntGaugeVec, "bytes", ["bucket", "kind"]; "Stored bytes, from the catalog: whole, delta, base_only, overhead."

    seal_bytes_total: IntCounterVec, "bytes", ["dir"]; "Plain bytes through AES-256-GCM: seal, open."
    aead_failures_total: IntCounterVec, "failures", ["reason"]; "Chunks, pages or rows that did not authenticate."
    checksum_failures_total: IntCounterVec, "failures", ["where"]; "Stored bytes whose checksum or digest was wrong, and client bodies that did not match their declared checksum."

    key_provider_calls_total: IntCounterVec, "calls", ["provider", "call", "outcome"]; "Calls to key providers (Vault transit, AWS KMS): wrap, unwrap, by outcome: ok, unavailable (no answer), refused (an answer other than the key)."
    sealing_refused: IntGauge, "boolean", []; "1 while writes that encrypt are refused because the key provider has not answered for longer than storage.key_lifetime."

    cache_hits_total: IntCounterVec, "lookups", ["kind", "tier"]; "Lookups answered by a cache."
    cache_misses_total: IntCounterVec, "lookups", ["kind", "tier"]; "Lookups that had to fetch."
    cache_evictions_total: IntCounterVec, "entries", ["kind", "tier"]; "Entries dropped for room."
    cache_bytes: IntGaugeVec, "bytes", ["kind", "tier"]; "Bytes held in a cache, by kind: base (decoded segments of bases, and of compressed files that were read whole), window (bases that encoders see, with their indexes), text (plain text of compressed bases), manifest, page (of tables of segments and checks), base_row (rows of bases), buffer (free buffers of segments), codec (what codecs keep between two jobs)."

    backend_requests_total: IntCounterVec, "requests", ["backend", "op", "code"]; "Calls to a backend, by outcome."
    backend_seconds: HistogramVec, "seconds", ["backend", "op"], SECONDS; "How long calls to a backend took; for reads, to the first byte."
    backend_bytes_total: IntCounterVec, "bytes", ["backend", "dir"]; "Bytes moved to and from a backend: written, read."
    backend_retries_total: IntCounterVec, "requests", ["backend", "reason"]; "Calls to a backend that were retried, by reason."
    catalog_commit_seconds: Histogram, "seconds", [], SECONDS; "From the start of a catalog transaction to its durable commit."
    catalog_batch_ops: Histogram, "operations", [], COUNT; "Operations that shared one commit."

    writer_epochs_lost_total: IntCounter, "epochs", []; "Writer epochs this process lost because it was silent too long; its unfinished writes were refused."

    memory_budget_bytes: IntGaugeVec, "bytes", ["state"]; "The memory budget: limit, used."
    memory_waiting: IntGauge, "requests", []; "Requests and jobs that wait for memory."
    spool_bytes: IntGaugeVec, "bytes", ["state"]; "Spool files: limit, used."
    disk_bytes: IntGaugeVec, "bytes", ["place", "state"]; "File systems of the data directory and of local backends: size, free."
    disk_full: IntGaugeVec, "boolean", ["place"]; "1 while uploads are refused because the disk of the data directory or of a local backend is full."
    disk_reserve_bytes: IntGaugeVec, "bytes", ["place"]; "Bytes still reserved on a disk for the time when it is full."
    multipart_inflight: IntGauge, "uploads", []; "Multipart uploads that are open."

    packed_objects_total: IntCounter, "objects", []; "Small objects that were moved into packs."
    packed_bytes_total: IntCounterVec, "bytes", ["when"]; "Stored bytes of the small objects that were packed: before and after."
    scrub_objects_total: IntCounterVec, "blobs", ["result"]; "Blobs that a scrub verified: ok, restored (damaged, and written anew from its second copy), copy_only (damaged, and could not be), damaged, unreachable (backend did not answer), gone (died meanwhile)."
    scrub_bytes_total: IntCounter, "bytes", []; "Stored bytes that scrubs read and checked."
    scrub_recovery_documents_total: IntCounterVec, "documents", ["kind", "outcome"]; "Documents that a recovery needs and a scrub verified, by kind (keyset, owner, lineage, backup, journal): ok, restored (damaged or missing, and written again or covered by a new backup), damaged (and could not be), unreachable (backend did not answer)."
    base_copies: IntGauge, "blobs", []; "Blobs that have a second copy: bases, packs, and other blobs that many objects need."
    base_copy_bytes: IntGauge, "bytes", []; "Stored bytes of second copies."
    base_copies_made_total: IntCounterVec, "copies", ["result"]; "Second copies of bases that were written: made, replaced (the earlier one was damaged), damaged (it did not read back as stored and was removed), failed."
    base_copy_reads_total: IntCounterVec, "reads", ["result"]; "Reads that met a damaged blob with a second copy: served (from the other copy), damaged (both are)."
    quarantined_blobs: IntGauge, "blobs", []; "Damaged blobs in quarantine, as of the last scrub or quarantine query in this process; 0 if there was none."

    catalog_damaged: IntGauge, "state", []; "1 when a catalog row fails its checksum, or the verification after the start found damage: writes and collection stop."
    gc_runs_total: IntCounter, "runs", []; "Runs of the collector."
    gc_deleted_blobs_total: IntCounter, "blobs", []; "Blobs that the collector deleted."
    gc_reclaimed_bytes_total: IntCounter, "bytes", []; "Stored bytes that the collector freed."
    backend_uploads_aborted_total: IntCounterVec, "uploads", ["backend"]; "Aborted multipart uploads to a backend that a process had left behind."
    gc_errors_total: IntCounter, "errors", []; "Blobs that the collector could not delete and left for the next run."
    gc_refusals_total: IntCounter, "runs", []; "Runs in which the collector removed nothing because the catalog and the store's journal disagree or could not be compared."
    gc_trash_files: IntGauge, "files", []; "Files on the trash list, which the catalog does not know, as of the last collection in this process."
    gc_trash_bytes: IntGauge, "bytes", []; "Stored bytes of the files on the trash list."
    gc_last_success_timestamp_seconds: IntGauge, "seconds", []; "When the collector last ended without an error, in any process, since the Unix epoch; 0 before."

    journal_lag_entries: IntGauge, "entries", []; "Mutations of the catalog that are not in the backend's journal yet."
    journal_lag_seconds: IntGauge, "seconds", []; "Age of the oldest mutation that is not in the journal: the time span of writes that you would lose with the catalog now."
    journal_shipped_entries_total: IntCounter, "entries", []; "Mutations shipped to the backend's journal."
    journal_errors_total: IntCounter, "errors", []; "Shipments that failed and are tried again."
    unsealed_documents_total: IntCounter, "documents", []; "Journal and backup documents that were rejected in a store that has keys, because they are unsealed, do not open, or are another store's: they may be forged."
    unsealed_buckets_total: IntCounter, "requests", []; "Requests refused because the bucket's row says unencrypted and its keys or the configuration say encrypted: the row may have been altered."
    writes_refused: IntGaugeVec, "1", ["reason"]; "1 while writes and deletions are refused because the catalog is not the newest state of its store: behind (older than the journal), beside (the journal has different changes), lineage (another catalog went on), place (a backend does not, or no longer does, belong to this deployment), damaged (the catalog is damaged)."
    catalog_looks_total: IntCounterVec, "looks", ["outcome"]; "Comparisons of the catalog with its store's journal and owner records: current, refused, failed (the store or the catalog did not answer)."

    notifications_delivered_total: IntCounterVec, "events", ["webhook"]; "Events that the webhook accepted from this process."
    notifications_failed_total: IntCounterVec, "attempts", ["webhook"]; "Failed attempts of this process to deliver an event; each is repeated."
    notifications_waiting: IntGaugeVec, "events", ["webhook"]; "Events that wait for the webhook, from the catalog."
    notifications_oldest_age_seconds: IntGaugeVec, "seconds", ["webhook"]; "How long the oldest event for the webhook has waited."
    notifications_lost: IntGaugeVec, "events", ["webhook"]; "Events dropped so far because too many waited or they waited too long, from the catalog."

    job_running: IntGaugeVec, "jobs", ["job_name"]; "1 while this process runs the background job."
    job_runs_total: IntCounterVec, "runs", ["job_name", "outcome"]; "Runs of background jobs in this process that ended: ok, failed, cancelled, paused, interrupted."
    job_seconds: HistogramVec, "seconds", ["job_name"], SECONDS; "How long runs of background jobs took."
    job_progress: IntGaugeVec, "things", ["job_name", "state"]; "How far the current or last run is, in the job's own unit: done, total (0 while it is not known)."
    job_backlog: IntGaugeVec, "things", ["job_name"]; "Items that wait for the job."
    job_leases_lost_total: IntCounterVec, "leases", ["job_name"]; "Runs that were stopped because their lease could not be renewed or was taken by another process."
    job_last_success_timestamp_seconds: IntGaugeVec, "seconds", ["job_name"]; "When the job last succeeded, in any process, since the Unix epoch; 0 before."
}

impl Metrics {
    /// Makes the counters of failures exist at 0. One that appeared with its first failure would
    /// hide it: `increase()` sees no step in a series that begins at 1.
    fn start_failure_counters(&self) {
        for reason in AEAD_REASONS {
            self.aead_failures_total.with_label_values(&[reason]);
        }
        for place in CHECKSUM_PLACES {
            self.checksum_failures_total.with_label_values(&[place]);
        }
        for reason in WRITE_REFUSALS {
            self.writes_refused.with_label_values(&[reason]).set(0);
        }
        for result in ["damaged", "restored", "copy_only"] {
            self.scrub_objects_total.with_label_values(&[result]);
        }
        for kind in ["keyset", "owner", "lineage", "backup", "journal"] {
            for outcome in ["damaged", "restored", "unreachable"] {
                self.scrub_recovery_documents_total.with_label_values(&[kind, outcome]);
            }
        }
        for result in ["served", "damaged"] {
            self.base_copy_reads_total.with_label_values(&[result]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_series_and_unlabelled_ones_exist_at_once() {
        let families = Metrics::new().families();
        assert_eq!(families.len(), TABLE.len());
        for family in &families {
            assert!(!family.spec.labels.is_empty() || family.series.len() == 1, "{}", family.spec.name);
        }
    }

    #[test]
    fn counters_of_failures_begin_at_zero() {
        let families = Metrics::new().families();
        let failures = families.iter().find(|family| family.spec.name == "deltaweir_aead_failures_total").unwrap();
        let shown: Vec<_> =
            failures.series.iter().map(|series| (series.labels.clone(), series.value.clone())).collect();
        assert_eq!(
            shown,
            [(vec!["open".to_owned()], Value::Counter(0.0)), (vec!["row".to_owned()], Value::Counter(0.0))]
        );
    }

    #[test]
    fn buckets_rise_and_ratios_go_from_a_thousandth_to_one() {
        assert_eq!((RATIO[0], RATIO[RATIO.len() - 1]), (0.001, 1.0));
        for buckets in [SECONDS, RATIO, COUNT] {
            assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
