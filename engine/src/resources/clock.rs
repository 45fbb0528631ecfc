//! The time.

pub(crate) use super::machine::now_ms;
use std::time::Duration;

/// A duration in milliseconds, as the catalog has them.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}
