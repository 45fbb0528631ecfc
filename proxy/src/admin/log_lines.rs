//! The newest lines of this process's log.

use super::{
    AdminError, AdminService, ApiResult,
    calls::{count, number},
};
use crate::log_tail::{LinesWanted, level_of};
use http::StatusCode;
use s3_wire::Query;

/// Most lines of one answer.
const LINES_MAX: usize = 1000;

impl AdminService {
    /// The body of `GET /api/v1/log`.
    pub(super) fn log(&self, query: &Query) -> ApiResult {
        let none = || AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "no server is running");
        let tail = self.log.get().ok_or_else(none)?;
        let text = |name| query.get(name).filter(|value| !value.is_empty());
        let level = |name: &str| {
            let levels = || AdminError::invalid(format!("level is error, warn, info, debug or trace, not {name:?}"));
            level_of(name).ok_or_else(levels)
        };
        let wanted = LinesWanted {
            level: text("level").map(level).transpose()?,
            text: text("text").unwrap_or_default().to_owned(),
            after: number(query, "after")?,
        };
        let found = tail.find(&wanted, count(query, "limit", 100, LINES_MAX)?);
        Ok(serde_json::to_value(found).unwrap_or_default())
    }
}
