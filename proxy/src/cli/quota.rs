//! `deltaweir quota`: how much buckets and users may hold, and how much they do.

use super::{ask::Call, outcome::Failure};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// What to do with quotas.
#[derive(Subcommand)]
pub(super) enum QuotaAction {
    /// Show every quota and the current usage
    List,
    /// Show the quota and the current usage of a bucket or user
    Show(Whose),
    /// Set the quota of a bucket or user; an omitted limit is unlimited
    Set {
        #[command(flatten)]
        whose: Whose,
        /// Maximum bytes as clients wrote them, versions and parts of open uploads; such as 10GiB
        #[arg(long, value_name = "SIZE", required_unless_present = "objects")]
        bytes: Option<String>,
        /// Maximum number of versions
        #[arg(long, value_name = "COUNT")]
        objects: Option<u64>,
    },
    /// Remove the quota of a bucket or user
    Clear(Whose),
}

/// Whom a quota is for.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(super) struct Whose {
    /// A bucket
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
    /// All buckets together that a user owns
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

impl Whose {
    fn parameters(&self) -> [(&str, &str); 2] {
        [("bucket", self.bucket.as_deref().unwrap_or_default()), ("user", self.user.as_deref().unwrap_or_default())]
    }
}

/// The call that does it.
pub(super) fn call(action: &QuotaAction) -> Result<Call, Failure> {
    Ok(match action {
        QuotaAction::List => Call::get("quotas", &[]),
        QuotaAction::Show(whose) => Call::get("quota", &whose.parameters()),
        QuotaAction::Clear(whose) => Call::delete("quota", &whose.parameters()),
        QuotaAction::Set { whose, bytes, objects } => {
            let mut limits = Map::new();
            if let Some(bytes) = bytes {
                limits.insert("bytes".into(), json!(crate::config::bytes_of(bytes).map_err(Failure)?));
            }
            if let Some(objects) = objects {
                limits.insert("objects".into(), json!(objects));
            }
            Call::put("quota", &whose.parameters()).with(Value::Object(limits))
        }
    })
}

/// Quotas for people, a line each.
pub(super) fn print(told: &Value) -> String {
    let one = std::slice::from_ref(told);
    let quotas = told["quotas"].as_array().map_or(one, Vec::as_slice);
    if quotas.is_empty() {
        return "no quota is set".to_owned();
    }
    let mut text = String::new();
    for quota in quotas {
        let whose = match (quota["bucket"].as_str(), quota["user"].as_str()) {
            (Some(bucket), _) => format!("bucket {bucket}"),
            (None, Some(user)) if !user.is_empty() => format!("user {user}"),
            _ => format!("owner {}", quota["owner"].as_str().unwrap_or_default()),
        };
        let of = |what: &str| {
            let held = &quota["held"][what];
            match quota["limits"][what].as_u64() {
                Some(limit) => format!("{held} of {limit} {what}"),
                None => format!("{held} {what} (no limit)"),
            }
        };
        let _ = writeln!(text, "{whose}: {}, {}", of("bytes"), of("objects"));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_told_in_a_line_each() {
        let bucket = json!({"bucket": "b", "limits": {"bytes": 10}, "held": {"bytes": 7, "objects": 2}});
        assert_eq!(print(&bucket), "bucket b: 7 of 10 bytes, 2 objects (no limit)");
        let owner = json!({"user": "", "owner": "0f", "limits": null, "held": {"bytes": 0, "objects": 0}});
        let both = json!({"quotas": [bucket, owner]});
        assert!(print(&both).ends_with("\nowner 0f: 0 bytes (no limit), 0 objects (no limit)"), "{}", print(&both));
        assert_eq!(print(&json!({"quotas": []})), "no quota is set");
    }
}
