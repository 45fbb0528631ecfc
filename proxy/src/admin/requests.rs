//! What this process answers now: sums by operation and bucket, and the newest requests.

use super::{AdminError, AdminService, ApiResult, calls::count, clock::now_ms};
use crate::server::{Ended, Recent, Wanted};
use http::StatusCode;
use prometheus::core::Collector as _;
use s3_wire::Query;
use serde_json::{Map, Value, json};
use std::{net::IpAddr, ops::RangeInclusive, time::Duration};

/// Most requests of one answer.
const REQUESTS_MAX: usize = 1000;
/// Hex digits of a request's id.
const ID_LEN: usize = 16;

impl AdminService {
    fn recent(&self) -> Result<&Recent, AdminError> {
        let none = || AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "no server is running");
        self.recent.get().map(|recent| &**recent).ok_or_else(none)
    }

    /// The body of `GET /api/v1/traffic`.
    pub(super) fn traffic(&self) -> ApiResult {
        let recent = self.recent()?;
        let mut under_way = Map::new();
        for family in self.metrics.http_inflight.collect() {
            for metric in family.get_metric() {
                #[expect(clippy::cast_possible_truncation, reason = "a gauge of whole requests")]
                let count = metric.get_gauge().get_value() as i64;
                let op = metric.get_label().first().map(|label| label.value().to_owned());
                if let (Some(op), 1..) = (op, count) {
                    under_way.insert(op, json!(count));
                }
            }
        }
        Ok(json!({
            "now_ms": now_ms(),
            "since_ms": recent.since_ms(),
            "under_way": under_way,
            "traffic": recent.traffic(),
        }))
    }

    /// The body of `GET /api/v1/requests`.
    pub(super) fn requests(&self, query: &Query) -> ApiResult {
        let found = self.recent()?.find(&wanted(query)?, count(query, "limit", 100, REQUESTS_MAX)?);
        let requests: Vec<Value> = found.requests.iter().map(|(number, ended)| told(*number, ended)).collect();
        Ok(json!({ "requests": requests, "next": found.next, "missed": found.missed }))
    }

    /// The body of `GET /api/v1/requests/ID`: one request, step by step.
    pub(super) fn request(&self, id: &str) -> ApiResult {
        if id.len() != ID_LEN || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(AdminError::invalid("a request's id has 16 hex digits"));
        }
        let wanted = Wanted { id: Some(id.to_ascii_uppercase()), ..Wanted::default() };
        let found = self.recent()?.find(&wanted, 1);
        let unknown = || AdminError::new(StatusCode::NOT_FOUND, format!("request {id} is not among the newest"));
        let (number, ended) = found.requests.first().ok_or_else(unknown)?;
        let mut told = told(*number, ended);
        told["steps"] = steps(ended);
        Ok(told)
    }
}

fn told(number: u64, ended: &Ended) -> Value {
    let mut told = serde_json::to_value(ended).unwrap_or_default();
    told["number"] = json!(number);
    told
}

/// When a request came to each point, in milliseconds from the end of its head.
fn steps(ended: &Ended) -> Value {
    let ms = |duration: Duration| (duration.as_secs_f64() * 1e6).round() / 1e3;
    let points = [
        ("signature verified", ended.verified),
        ("allowed", ended.admitted),
        ("answer begins", ended.first_byte),
        (ended.end, Some(ended.whole)),
    ];
    let step = |(step, at): (&str, Option<Duration>)| Some(json!({ "step": step, "ms": ms(at?) }));
    points.into_iter().filter_map(step).collect()
}

fn wanted(query: &Query) -> Result<Wanted, AdminError> {
    let text = |name| query.get(name).filter(|value| !value.is_empty());
    let number = |name: &'static str| {
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| AdminError::invalid(format!("{name} is a whole number, not {text:?}")))
        };
        text(name).map(number).transpose()
    };
    let peer = text("peer").map(|text| {
        text.parse::<IpAddr>()
            .map_err(|_| AdminError::invalid(format!("peer is an address such as 10.0.0.7, not {text:?}")))
    });
    let status = text("status").map(|text| {
        statuses(text).ok_or_else(|| AdminError::invalid(format!("status is one such as 404, or 4xx, not {text:?}")))
    });
    Ok(Wanted {
        op: text("op").map(str::to_owned),
        bucket: text("bucket").map(str::to_owned),
        user: text("user").map(str::to_owned),
        peer: peer.transpose()?,
        status: status.transpose()?,
        id: text("id").map(str::to_ascii_uppercase),
        slower: Duration::from_millis(number("slower_ms")?.unwrap_or(0)),
        after: number("after")?,
    })
}

/// `404`, or a class such as `4xx`.
fn statuses(text: &str) -> Option<RangeInclusive<u16>> {
    if let Some(class) = text.strip_suffix("xx") {
        let class: u16 = class.parse().ok().filter(|class| (1..=5).contains(class))?;
        return Some(class * 100..=class * 100 + 99);
    }
    let status = text.parse::<u16>().ok().filter(|status| (100..600).contains(status))?;
    Some(status..=status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_strictly() {
        let read = |raw: &str| wanted(&Query::parse(raw).unwrap()).map_err(|error| error.status.as_u16());
        let whole = read("op=GetObject&bucket=b&user=&peer=10.0.0.7&status=4xx&slower_ms=250&after=7").unwrap();
        assert_eq!((whole.op.as_deref(), whole.user, whole.status), (Some("GetObject"), None, Some(400..=499)));
        assert_eq!((whole.slower, whole.after), (Duration::from_millis(250), Some(7)));
        assert_eq!(read("status=404").unwrap().status, Some(404..=404));
        for raw in ["status=6xx", "status=99", "status=x", "peer=here", "after=-1", "slower_ms=1.5"] {
            assert_eq!(read(raw).err(), Some(400), "{raw}");
        }
    }

    #[test]
    fn a_request_is_told_step_by_step() {
        let ended = Ended {
            verified: Some(Duration::from_micros(200)),
            first_byte: Some(Duration::from_millis(9)),
            whole: Duration::from_millis(12),
            end: "complete",
            ..Ended::default()
        };
        let expected = json!([
            { "step": "signature verified", "ms": 0.2 },
            { "step": "answer begins", "ms": 9.0 },
            { "step": "complete", "ms": 12.0 },
        ]);
        assert_eq!(steps(&ended), expected);
    }
}
