//! The calls about the audit log: its lines, and whether it is whole.

use super::{
    AdminService, ApiResult,
    answer::AdminError,
    calls::{count, number},
    times::time_of,
};
use crate::audit::{AuditLog, Wanted, newest};
use http::StatusCode;
use s3_wire::Query;
use serde_json::json;
use std::{sync::Arc, time::SystemTime};

/// Most lines of one answer.
const LINES_MAX: usize = 1000;
/// No further file is opened once so many lines were looked at.
const LOOK_MAX: u64 = 500_000;

impl AdminService {
    /// A page of its lines, the newest first.
    pub(super) async fn audit_lines(&self, query: &Query) -> ApiResult {
        let (log, wanted) = (self.audit_log()?, wanted(query, SystemTime::now())?);
        let (before, limit) = (number(query, "before")?, count(query, "limit", 100, LINES_MAX)?);
        let look = move || newest(log.directory(), &wanted, before, limit, LOOK_MAX);
        let found = tokio::task::spawn_blocking(look).await.map_err(broke_off)?;
        let found = found.map_err(|error| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(json!({ "lines": found.lines, "looked_at": found.looked_at, "next": found.next }))
    }

    /// Whether the log is whole.
    pub(super) async fn audit_verdict(&self) -> ApiResult {
        let log = self.audit_log()?;
        match tokio::task::spawn_blocking(move || log.verify()).await.map_err(broke_off)? {
            Ok(sound) => Ok(json!(sound)),
            Err(broken) => Err(AdminError::new(StatusCode::CONFLICT, broken.to_string())),
        }
    }

    fn audit_log(&self) -> Result<Arc<AuditLog>, AdminError> {
        self.audit.get().cloned().ok_or_else(|| AdminError::invalid("there is no audit log: audit.enabled is false"))
    }
}

fn broke_off(error: tokio::task::JoinError) -> AdminError {
    AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn wanted(query: &Query, now: SystemTime) -> Result<Wanted, AdminError> {
    let text = |name| query.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    let time = |name| text(name).map(|text| time_of(name, &text, now).map_err(AdminError::invalid)).transpose();
    Ok(Wanted {
        user: text("user"),
        op: text("action"),
        bucket: text("bucket"),
        request_id: text("request_id").map(|id| id.to_ascii_uppercase()),
        since: time("since")?,
        until: time("until")?,
        after: number(query, "after")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3_wire::timestamp;

    #[test]
    fn parameters_say_which_lines_are_wanted() {
        let now = timestamp::parse_iso8601("2026-11-24T13:00:00.000Z").unwrap();
        let read = |raw: &str| wanted(&Query::parse(raw).unwrap(), now).ok();
        let found = read("user=ci&action=&since=2026-11-24T12:00:00Z&until=30m&after=7&request_id=ab").unwrap();
        assert_eq!((found.user.as_deref(), found.op, found.after), (Some("ci"), None, Some(7)));
        assert_eq!(found.since.as_deref(), Some("2026-11-24T12:00:00.000Z"));
        assert_eq!(found.until.as_deref(), Some("2026-11-24T12:30:00.000Z"));
        assert_eq!(found.request_id.as_deref(), Some("AB"));
        for raw in ["since=yesterday", "until=now", "after=-1", "after=x"] {
            assert!(read(raw).is_none(), "{raw}");
        }
    }
}
