//! The calls about the audit log: its lines, and whether it is whole.

use super::{AdminService, ApiResult, answer::AdminError, calls::count};
use crate::audit::{AuditLog, Wanted};
use http::StatusCode;
use s3_wire::{Query, timestamp};
use serde_json::json;
use std::sync::Arc;

/// Most lines of one answer.
const LINES_MAX: usize = 1000;

impl AdminService {
    /// The newest lines that fit, oldest first.
    pub(super) async fn audit_lines(&self, query: &Query) -> ApiResult {
        let (log, wanted) = (self.audit_log()?, wanted(query)?);
        let limit = count(query, "limit", 100, LINES_MAX)?;
        let found = tokio::task::spawn_blocking(move || log.newest(&wanted, limit)).await.map_err(broke_off)?;
        let lines = found.map_err(|error| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(json!({ "lines": lines }))
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

fn wanted(query: &Query) -> Result<Wanted, AdminError> {
    let text = |name| query.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    let time = |name| {
        let Some(text) = text(name) else { return Ok(None) };
        let time = timestamp::parse_iso8601(&text).map(timestamp::iso8601);
        let wrong = || AdminError::invalid(format!("{name} is a time such as 2026-11-24T13:00:00Z, not {text:?}"));
        time.map(Some).ok_or_else(wrong)
    };
    let after = match text("after") {
        None => None,
        Some(number) => {
            let wrong = |_| AdminError::invalid(format!("after is the number of a line, not {number:?}"));
            Some(number.parse().map_err(wrong)?)
        }
    };
    Ok(Wanted {
        user: text("user"),
        op: text("action"),
        bucket: text("bucket"),
        request_id: text("request_id").map(|id| id.to_ascii_uppercase()),
        since: time("since")?,
        until: time("until")?,
        after,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_of_lines_are_read_strictly() {
        let read = |raw: &str| wanted(&Query::parse(raw).unwrap()).ok();
        let found = read("user=ci&action=&since=2026-11-24T12:00:00Z&after=7&request_id=ab").unwrap();
        assert_eq!((found.user.as_deref(), found.op, found.after), (Some("ci"), None, Some(7)));
        assert_eq!(found.since.as_deref(), Some("2026-11-24T12:00:00.000Z"));
        assert_eq!(found.request_id.as_deref(), Some("AB"));
        for raw in ["since=2h", "until=now", "after=-1", "after=x"] {
            assert!(read(raw).is_none(), "{raw}");
        }
    }
}
