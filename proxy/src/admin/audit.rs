//! The audit log as operators look at it: a page of its newest lines.

use super::{
    AdminService, ApiResult,
    answer::AdminError,
    calls::{count, number},
};
use crate::{
    audit::{Wanted, newest},
    config::parse_duration,
};
use http::StatusCode;
use s3_wire::{Query, timestamp};
use serde_json::json;
use std::time::SystemTime;

/// Most lines of one answer.
const LINES_MAX: usize = 1000;
/// No further file is opened once so many lines were looked at.
const LOOK_MAX: u64 = 500_000;

impl AdminService {
    /// The body of `GET /api/v1/audit`.
    pub(super) async fn audited(&self, query: &Query) -> ApiResult {
        let log = self.audit.get().ok_or_else(|| AdminError::invalid("audit.enabled is false: there is no log"))?;
        let text = |name| query.get(name).filter(|value| !value.is_empty());
        let time = |name| {
            text(name).map(|text| time_of(name, text, SystemTime::now()).map_err(AdminError::invalid)).transpose()
        };
        let fields = [
            ("user", text("user").map(str::to_owned)),
            ("op", text("action").map(str::to_owned)),
            ("bucket", text("bucket").map(str::to_owned)),
            ("request_id", text("request_id").map(str::to_ascii_uppercase)),
        ];
        let wanted = Wanted {
            fields: fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            since: time("since")?,
            until: time("until")?,
        };
        let (before, limit) = (number(query, "before")?, count(query, "limit", 100, LINES_MAX)?);
        let directory = log.directory().to_owned();
        let found = tokio::task::spawn_blocking(move || newest(&directory, &wanted, before, limit, LOOK_MAX)).await;
        let failed = |error: String| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error);
        let found = found.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        Ok(json!({ "lines": found.lines, "looked_at": found.looked_at, "next": found.next }))
    }
}

/// A time of a flag or parameter, as lines of the audit log write it.
///
/// # Errors
/// It is neither a time nor how long ago one was.
pub fn time_of(name: &str, text: &str, now: SystemTime) -> Result<String, String> {
    let ago = || now.checked_sub(parse_duration(text)?);
    let time = timestamp::parse_iso8601(text).or_else(ago);
    time.map(timestamp::iso8601)
        .ok_or_else(|| format!("{name} is a time such as 2026-11-24T13:00:00Z, or a duration such as 2h, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_lines_write_them() {
        let now = timestamp::parse_iso8601("2026-11-24T13:00:00.000Z").unwrap();
        let time = |text: &str| time_of("since", text, now).ok();
        assert_eq!(time("2026-11-24T12:00:00Z"), Some("2026-11-24T12:00:00.000Z".into()));
        assert_eq!(time("2h"), Some("2026-11-24T11:00:00.000Z".into()));
        assert_eq!((time("yesterday"), time("")), (None, None));
    }
}
