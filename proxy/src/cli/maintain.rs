//! Commands that are one call of the admin API each, without a shape of their own.

use super::{ask::Call, outcome::Failure};
use crate::config::parse_duration;

/// Shows what the lifecycle rules of a bucket would remove now.
pub(super) fn lifecycle(bucket: &str, limit: usize) -> Result<Call, Failure> {
    let name = bucket.strip_prefix("s3://").unwrap_or(bucket).trim_end_matches('/');
    if name.is_empty() || name.contains('/') {
        return Err(Failure(format!("expected s3://BUCKET, not {bucket:?}")));
    }
    Ok(Call::get("lifecycle", &[("bucket", name), ("limit", &limit.to_string())]))
}

/// Waits for background work.
pub(super) fn settle(timeout: &str) -> Result<Call, Failure> {
    let wrong = || Failure(format!("--timeout is a duration such as 60s, not {timeout:?}"));
    let timeout = parse_duration(timeout).ok_or_else(wrong)?;
    Ok(Call::post("settle", &[("timeout_s", &timeout.as_secs_f64().to_string())]))
}

/// Shows what losing the catalog now would lose.
pub(super) fn recovery() -> Call {
    Call::get("recovery", &[])
}

/// Ships the journal to the backend.
pub(super) fn journal() -> Call {
    Call::post("journal", &[])
}

/// Empties every cache.
pub(super) fn drop_caches() -> Call {
    Call::post("cache/drop", &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_named_with_or_without_its_scheme_and_never_with_a_key() {
        assert!(lifecycle("s3://releases", 10).is_ok() && lifecycle("releases/", 10).is_ok());
        for wrong in ["", "s3://", "s3://releases/logs"] {
            assert!(lifecycle(wrong, 10).is_err(), "{wrong}");
        }
        assert!(settle("60s").is_ok() && settle("soon").is_err());
    }
}
