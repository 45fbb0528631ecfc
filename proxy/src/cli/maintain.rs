//! Commands that are one call of the admin API each, without a shape of their own.

use super::{ask::Call, outcome::Failure};
use crate::config::parse_duration;
use clap::Subcommand;

/// What to ask for.
#[derive(Subcommand)]
pub(super) enum MaintainAction {
    /// List the versions that a bucket's lifecycle rules would remove now; removes nothing
    Lifecycle {
        /// s3://BUCKET
        bucket: String,
        /// List at most this many versions
        #[arg(short = 'n', long, default_value_t = 100, value_name = "COUNT")]
        limit: usize,
    },
    /// Show the changes that you would lose with the catalog now, and the start of a recovery
    Recovery,
    /// Ship the catalog's journal to the backend now
    Journal,
    /// Wait until background work is done
    Settle {
        /// Wait at most this long
        #[arg(long, default_value = "60s", value_name = "DURATION")]
        timeout: String,
    },
    /// Drop every cache, so that the next reads are cold
    DropCaches,
}

/// The call that does it.
pub(super) fn call(action: &MaintainAction) -> Result<Call, Failure> {
    Ok(match action {
        MaintainAction::Lifecycle { bucket, limit } => lifecycle(bucket, *limit)?,
        MaintainAction::Recovery => Call::get("recovery", &[]),
        MaintainAction::Journal => Call::post("journal", &[]),
        MaintainAction::Settle { timeout } => settle(timeout)?,
        MaintainAction::DropCaches => Call::post("cache/drop", &[]),
    })
}

fn lifecycle(bucket: &str, limit: usize) -> Result<Call, Failure> {
    let name = bucket.strip_prefix("s3://").unwrap_or(bucket).trim_end_matches('/');
    if name.is_empty() || name.contains('/') {
        return Err(Failure(format!("expected s3://BUCKET, not {bucket:?}")));
    }
    Ok(Call::get("lifecycle", &[("bucket", name), ("limit", &limit.to_string())]))
}

fn settle(timeout: &str) -> Result<Call, Failure> {
    let wrong = || Failure(format!("--timeout is a duration such as 60s, not {timeout:?}"));
    let timeout = parse_duration(timeout).ok_or_else(wrong)?;
    Ok(Call::post("settle", &[("timeout_s", &timeout.as_secs_f64().to_string())]))
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
