//! `deltaweir policy`: what policies and grants decide.

use super::{ask::Call, outcome::Failure};
use clap::Subcommand;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// What to do with policies.
#[derive(Subcommand)]
pub(super) enum PolicyAction {
    /// Show whether a user may do something, and which statement or grant decides
    Test {
        /// The user's name; anonymous for unsigned requests
        user: String,
        /// The action, such as s3:GetObject
        action: String,
        /// arn:aws:s3:::BUCKET, arn:aws:s3:::BUCKET/KEY, or * for all buckets
        arn: String,
        /// The value of a condition key, such as aws:SourceIp=10.0.0.7; may be given several times
        #[arg(long, value_name = "KEY=VALUE")]
        context: Vec<String>,
    },
}

/// The call that asks for it.
pub(super) fn call(action: &PolicyAction) -> Result<Call, Failure> {
    let PolicyAction::Test { user, action, arn, context } = action;
    let mut values = Map::new();
    for pair in context {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure(format!("--context is KEY=VALUE, not {pair:?}")));
        };
        let of_key = values.entry(key).or_insert_with(|| Value::Array(Vec::new()));
        of_key.as_array_mut().into_iter().for_each(|list| list.push(value.into()));
    }
    let context = Value::Object(values).to_string();
    let query = [("user", user.as_str()), ("action", action), ("resource", arn), ("context", &context)];
    Ok(Call::get("policy", &query))
}

/// The verdict for people.
pub(super) fn print(verdict: &Value) -> String {
    let word = if verdict["allowed"] == true { "allowed" } else { "denied" };
    let mut text = format!("{word}: {}", verdict["reason"].as_str().unwrap_or_default());
    for key in verdict["missing"].as_array().into_iter().flatten() {
        let _ = write!(text, "\nno value was given for {}", key.as_str().unwrap_or_default());
    }
    text
}
