//! Times as operators type them.

use crate::config::parse_duration;
use s3_wire::timestamp;
use std::time::SystemTime;

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
