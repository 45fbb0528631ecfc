//! `deltaweir buckets`: shows, makes and changes buckets while the server runs.

use super::ask::Call;
use clap::{Args, Subcommand};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// Leaves a rule to the configuration.
const CONFIGURED: &str = "configured";

/// What to do with buckets.
#[derive(Subcommand)]
pub(super) enum BucketsAction {
    /// List buckets with their settings
    List,
    /// Make a bucket; what you leave out is as the configuration has it
    Add {
        /// The bucket's name
        bucket: String,
        /// The user who owns it; root unless you name one
        #[arg(long, value_name = "USER")]
        owner: Option<String>,
        /// off, zstd or delta
        #[arg(long, value_name = "HOW")]
        compression: Option<String>,
        /// off or aes256
        #[arg(long, value_name = "HOW")]
        encryption: Option<String>,
        /// auto, fast, balanced, high or max
        #[arg(long, value_name = "EFFORT")]
        effort: Option<String>,
        #[command(flatten)]
        rules: Rules,
    },
    /// Change the rules of a bucket, for new requests on every replica
    Set {
        /// The bucket's name
        bucket: String,
        #[command(flatten)]
        rules: Rules,
    },
}

/// What may be changed of a bucket at any time.
#[derive(Args)]
pub(super) struct Rules {
    /// Where writes look for bases and duplicates: policy, bucket, prefix or strict; configured
    /// leaves it to the configuration
    #[arg(long, value_name = "RULE")]
    isolation: Option<String>,
    /// Who gets x-deltaweir-*: administrators or readers; configured leaves it to the
    /// configuration
    #[arg(long, value_name = "WHO")]
    storage_headers: Option<String>,
}

/// The call that does it.
pub(super) fn call(action: &BucketsAction) -> Call {
    match action {
        BucketsAction::List => Call::get("buckets", &[]),
        BucketsAction::Add { bucket, owner, compression, encryption, effort, rules } => {
            let named = [("compression", compression), ("encryption", encryption), ("effort", effort)];
            let mut body = rules.body();
            body.extend(named.into_iter().filter_map(|(name, value)| Some((name.into(), json!(value.as_ref()?)))));
            let owner = owner.as_deref().map(|owner| ("user", owner));
            Call::put(&path_of(bucket), owner.as_slice()).with(body.into())
        }
        BucketsAction::Set { bucket, rules } => Call::post(&path_of(bucket), &[]).with(rules.body().into()),
    }
}

fn path_of(bucket: &str) -> String {
    format!("buckets/{}", utf8_percent_encode(bucket, NON_ALPHANUMERIC))
}

impl Rules {
    fn body(&self) -> Map<String, Value> {
        let rules = [("isolation", &self.isolation), ("storage_headers", &self.storage_headers)];
        let said = rules.into_iter().filter_map(|(name, rule)| Some((name, rule.as_deref()?)));
        said.map(|(name, rule)| (name.into(), if rule == CONFIGURED { Value::Null } else { json!(rule) })).collect()
    }
}

/// Buckets for people, a line each.
pub(super) fn print(told: &Value) -> String {
    let one = std::slice::from_ref(told);
    let buckets = told["buckets"].as_array().map_or(one, Vec::as_slice);
    if buckets.is_empty() {
        return "there is no bucket".to_owned();
    }
    let mut text = String::new();
    for bucket in buckets {
        let settings = &bucket["settings"];
        let _ = write!(text, "{}:", bucket["name"].as_str().unwrap_or_default());
        for (name, value) in [
            ("compression", &settings["compression"]),
            ("encryption", &settings["encryption"]),
            ("effort", &settings["effort"]),
            ("backend", &settings["backend"]),
            ("isolation", &bucket["isolation"]),
            ("storage headers", &bucket["storage_headers"]),
        ] {
            let _ = write!(text, " {name}={}", value.as_str().unwrap_or_default());
        }
        if let Some(default) = bucket["default_encryption"].as_str() {
            let _ = write!(text, " default encryption={default}");
        }
        text.push('\n');
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_left_to_the_configuration_is_null_and_one_that_is_not_named_is_absent() {
        let rules = |isolation: Option<&str>, headers: Option<&str>| {
            let text = |rule: Option<&str>| rule.map(str::to_owned);
            Value::from(Rules { isolation: text(isolation), storage_headers: text(headers) }.body())
        };
        assert_eq!(rules(Some("strict"), None), json!({"isolation": "strict"}));
        assert_eq!(rules(None, Some("configured")), json!({"storage_headers": null}));
        let settings = json!({"compression": "delta", "encryption": "off", "effort": "auto", "backend": "local"});
        let bucket = json!({"name": "b", "settings": settings, "isolation": "policy", "storage_headers": "readers"});
        let line =
            "b: compression=delta encryption=off effort=auto backend=local isolation=policy storage headers=readers";
        assert_eq!(print(&json!({"buckets": [&bucket]})), line);
        let mut encrypting = bucket.clone();
        encrypting["default_encryption"] = json!("aws:kms invoices");
        assert_eq!(print(&encrypting), format!("{line} default encryption=aws:kms invoices"));
        assert_eq!(print(&json!({"buckets": []})), "there is no bucket");
    }
}
