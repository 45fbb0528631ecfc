//! What stored bytes cost and saved ones do not, by the prices of the configuration.

use crate::{
    config::Prices,
    engine::metrics::{Family, Value as Figure},
};
use serde_json::{Value, json};

/// Bytes of the unit that stores sell.
const GB: f64 = 1e9;

/// Calls of backends that cost something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Requests {
    /// PUT and LIST.
    writes: u64,
    /// GET and HEAD.
    reads: u64,
}

/// Adds money to the answer of `stats`: `saved_month` to each bucket, and `money` over all. Of
/// requests only this process's since its start are known. `families` are the engine's numbers.
pub(super) fn price(stats: &mut Value, prices: &Prices, families: &[Family], started_ms: u64) {
    for bucket in stats["buckets"].as_array_mut().into_iter().flatten() {
        let saved = month(prices, saved_bytes(bucket));
        bucket["saved_month"] = json!(saved);
    }
    let totals = &stats["totals"];
    let stored = &totals["stored"];
    let (total, deleting) = (stored["total"].as_u64().unwrap_or(0), stored["tombstoned"].as_u64().unwrap_or(0));
    let Requests { writes, reads } = requests(families, prices);
    stats["money"] = json!({
        "currency": prices.currency,
        "gb_month": prices.gb_month,
        "stored_month": month(prices, bytes(total - deleting.min(total))),
        "deleting_month": month(prices, bytes(deleting)),
        "saved_month": month(prices, saved_bytes(totals)),
        "requests": {
            "since_ms": started_ms,
            "writes": writes,
            "reads": reads,
            "cost": (thousands(writes) * prices.writes_1000) + (thousands(reads) * prices.reads_1000),
        },
    });
}

#[expect(clippy::cast_precision_loss, reason = "money")]
fn bytes(count: u64) -> f64 {
    count as f64
}

fn thousands(count: u64) -> f64 {
    bytes(count) / 1e3
}

fn saved_bytes(figures: &Value) -> f64 {
    figures["saved_bytes"].as_f64().unwrap_or(0.0)
}

fn month(prices: &Prices, bytes: f64) -> f64 {
    bytes / GB * prices.gb_month
}

/// The calls of this process to backends that ask money for them. Deletions are free everywhere.
fn requests(families: &[Family], prices: &Prices) -> Requests {
    let mut requests = Requests::default();
    let counted = families.iter().find(|family| family.spec.name == "deltaweir_backend_requests_total");
    for series in counted.into_iter().flat_map(|family| &family.series) {
        let ([backend, op, ..], Figure::Counter(count)) = (&series.labels[..], &series.value) else { continue };
        if !prices.backends.contains(backend) {
            continue;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of whole calls")]
        let count = *count as u64;
        match op.as_str() {
            "put" | "list" => requests.writes += count,
            "get" | "head" => requests.reads += count,
            _ => {}
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn saved_bytes_and_requests_of_paid_backends_become_money() {
        let metrics = Metrics::new().unwrap();
        for (backend, op, count) in
            [("cloud", "put", 2_000), ("cloud", "get", 4_000), ("cloud", "delete", 9_000), ("local", "put", 7_000)]
        {
            metrics.engine.backend_requests_total.with_label_values(&[backend, op, "ok"]).inc_by(count);
        }
        let prices = Prices {
            currency: "EUR".into(),
            gb_month: 0.02,
            writes_1000: 0.005,
            reads_1000: 0.0004,
            backends: ["cloud".to_owned()].into(),
        };
        let figures = json!({
            "saved_bytes": 50_000_000_000_i64,
            "stored": { "total": 15_000_000_000_u64, "tombstoned": 5_000_000_000_u64 },
        });
        let mut stats = json!({ "buckets": [figures], "totals": figures });
        price(&mut stats, &prices, &metrics.engine.families(), 7);
        let near = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1e-9;
        let money = &stats["money"];
        assert!(near(&stats["buckets"][0]["saved_month"], 1.0) && near(&money["saved_month"], 1.0), "{stats}");
        assert!(near(&money["stored_month"], 0.2) && near(&money["deleting_month"], 0.1), "{money}");
        assert_eq!((&money["requests"]["writes"], &money["requests"]["reads"]), (&json!(2000), &json!(4000)));
        assert!(near(&money["requests"]["cost"], 0.0116) && money["requests"]["since_ms"] == 7, "{money}");
    }
}
