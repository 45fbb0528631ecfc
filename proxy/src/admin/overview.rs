//! What an operator looks at first: one answer made of counts and gauges that are there anyway, and
//! what a recovery would find.

use super::{
    AdminService, ApiResult,
    clock::now_ms,
    forecast::{Count, FillingDisk, forecast},
};
use crate::{
    engine::{
        EngineError,
        metrics::{Family, Value as Figure},
    },
    metrics::{COMMIT, VERSION},
};
use catalog::OpenWriter;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A replica gives a sign of life every five seconds at least; one that missed three of them is
/// gone or cut off.
const SILENT_MS_MAX: i64 = 15_000;
/// What a place is called that is a backend's.
const BACKEND: &str = "backend/";

impl AdminService {
    /// The body of `GET /api/v1/overview`. Counts nothing anew that was counted a moment ago.
    pub(super) async fn overview(&self) -> ApiResult {
        let engine = &self.engine;
        let (counted_ms, stats, history) = engine.reports.counted().await?;
        let probed = engine.probe().await;
        let stopping = *self.stopping.borrow();
        let reason = match &probed {
            _ if stopping => Some("the server is stopping".to_owned()),
            Ok(()) => None,
            Err(error) => Some(engine.refused_because().map_or_else(|| error.to_string(), str::to_owned)),
        };
        let jobs = engine.jobs.jobs().await?;
        let jobs: Vec<Value> = jobs.as_array().into_iter().flatten().map(short).collect();
        let (gauges, access) = (&self.metrics.engine, self.access.as_ref());
        let disks = disks(&gauges.families());
        Ok(json!({
            "version": VERSION,
            "commit": COMMIT,
            "now_ms": now_ms(),
            "counted_ms": counted_ms,
            "health": { "ready": reason.is_none(), "reason": reason },
            "totals": stats["totals"],
            "buckets": stats["buckets"].as_array().map_or(0, Vec::len),
            "backends": stats["backends"],
            "history": &history,
            "jobs": jobs,
            "journal": { "lag_entries": gauges.journal_lag_entries.get(), "lag_s": gauges.journal_lag_seconds.get() },
            "quarantined": engine.quarantines.quarantine().await.map(|found| found.blobs.len())?,
            "forecast": forecast(&counts(&history), &filling(&disks, &stats["backends"]), now_ms()),
            "disks": disks,
            "prices": self.prices.get().map(|prices| json!({ "currency": prices.currency, "gb_month": prices.gb_month })),
            "shared": !engine.is_alone(),
            "replicas": self.replicas().await?,
            "s3": access.map(|access| access.s3()),
            "stores": access.map(|access| access.stores()).unwrap_or_default(),
            "eject_roots": access.map(|access| access.eject_roots()).unwrap_or_default(),
        }))
    }

    /// The processes that serve this store, by their writers' epochs. A replica that ended without
    /// a word stays in the list until another one's collector closes its epoch.
    async fn replicas(&self) -> Result<Vec<Value>, EngineError> {
        let writers = self.engine.catalog().open_writers().await?;
        let replica = |writer: &OpenWriter| {
            let alive = writer.silent_ms < SILENT_MS_MAX;
            json!({ "epoch": writer.epoch, "silent_ms": writer.silent_ms, "alive": alive })
        };
        Ok(writers.iter().map(replica).collect())
    }

    /// The body of `GET /api/v1/recovery`: what losing the catalog now would lose, and what a
    /// recovery would begin with.
    pub(super) async fn recovery(&self) -> ApiResult {
        let engine = &self.engine;
        let marks = engine.catalog().journal_marks().await.map_err(EngineError::from)?;
        let warning = engine.catalog().failover_warning().await.map_err(EngineError::from)?;
        let scrub = engine.jobs.job("scrub").await?;
        Ok(json!({
            "journal": { "last": marks.last, "shipped": marks.shipped, "waiting": marks.last - marks.shipped },
            "backups": engine.backups().await?,
            "refused_because": engine.refused_because(),
            "failover_warning": warning,
            "scrub": {
                "last_run_ms": scrub["last_run_ms"],
                "last_result": scrub["last_result"],
                "recovery": scrub["last_outcome"]["recovery"],
            },
        }))
    }
}

/// A job as a line of the overview.
fn short(job: &Value) -> Value {
    let kept = ["name", "running", "paused", "waiting", "backlog", "progress", "last_run_ms", "last_result"];
    kept.into_iter().map(|name| (name.to_owned(), job[name].clone())).collect::<serde_json::Map<_, _>>().into()
}

/// The counts of the history, without originals: those grow elsewhere.
fn counts(history: &Value) -> Vec<Count> {
    let count = |sample: &Value| {
        let (stored, foreign) = (sample["stored_bytes"].as_u64()?, sample["foreign_bytes"].as_u64()?);
        Some((sample["at_ms"].as_i64()?, stored.saturating_sub(foreign)))
    };
    history.as_array().into_iter().flatten().filter_map(count).collect()
}

/// The disk that all stored bytes go to; none where there are several backends, since the counts
/// do not tell whose bytes grow, or where the only one is a cloud's.
fn filling<'a>(disks: &'a [Value], backends: &Value) -> Vec<FillingDisk<'a>> {
    let [only] = backends.as_array().map(Vec::as_slice).unwrap_or_default() else { return Vec::new() };
    let disk = |disk: &'a Value| {
        let place = disk["place"].as_str().filter(|place| place.strip_prefix(BACKEND) == only["name"].as_str())?;
        Some(FillingDisk { place, free_bytes: disk["free_bytes"].as_u64()? })
    };
    disks.iter().filter_map(disk).collect()
}

/// The gauge of disks, by place.
fn disks(families: &[Family]) -> Vec<Value> {
    let mut places: BTreeMap<String, serde_json::Map<String, Value>> = BTreeMap::new();
    let gauge = families.iter().find(|family| family.spec.name == "deltaweir_disk_bytes");
    for series in gauge.into_iter().flat_map(|family| &family.series) {
        if let ([place, state], Figure::Gauge(bytes)) = (&series.labels[..], &series.value) {
            #[expect(clippy::cast_possible_truncation, reason = "a gauge of whole bytes")]
            let bytes = *bytes as i64;
            places.entry(place.clone()).or_default().insert(format!("{state}_bytes"), json!(bytes));
        }
    }
    let told = |(place, mut figures): (String, serde_json::Map<String, Value>)| {
        figures.insert("place".into(), json!(place));
        Value::Object(figures)
    };
    places.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_disk_that_takes_everything_has_a_forecast() {
        let disk = |place: &str| json!({ "place": place, "free_bytes": 7, "size_bytes": 9 });
        let told = [disk("backend/cold"), disk("backend/local"), disk("data")];
        let found = |backends: Value| -> Vec<String> {
            filling(&told, &backends).into_iter().map(|disk| disk.place.to_owned()).collect()
        };
        assert_eq!(found(json!([{ "name": "local", "stored_bytes": 1 }])), ["backend/local"]);
        assert!(found(json!([{ "name": "local" }, { "name": "cold" }])).is_empty(), "two disks share the growth");
        assert!(found(json!([{ "name": "local" }, { "name": "cloud" }])).is_empty(), "a cloud takes some of it");
        assert!(found(json!([{ "name": "cloud" }])).is_empty(), "no disk takes it");
        assert!(found(json!([])).is_empty());
    }

    #[test]
    fn originals_do_not_fill_a_disk() {
        let sample = |at: i64, stored: u64, foreign: u64| -> Value {
            json!({ "at_ms": at, "stored_bytes": stored, "foreign_bytes": foreign })
        };
        assert_eq!(counts(&json!([sample(1, 10, 0), sample(2, 1010, 1000)])), [(1, 10), (2, 10)]);
    }
}
