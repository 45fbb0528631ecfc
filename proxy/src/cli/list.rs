//! `deltaweir ls`: keys with their form and cost, as many as are asked for.

use super::{
    ask::{Call, Store},
    outcome::Failure,
    print,
};
use clap::Args;
use serde_json::{Value, json};

/// Entries of one call.
const PAGE: usize = 1000;

#[derive(Args)]
pub(super) struct ListFlags {
    /// s3://BUCKET or s3://BUCKET/PREFIX; the buckets if omitted
    location: Option<String>,
    /// List every key below the prefix, not one level
    #[arg(long, short)]
    recursive: bool,
    /// List at most this many entries
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    limit: usize,
}

/// Asks page by page, and gives the entries together.
pub(super) async fn list(store: Store, flags: &ListFlags) -> Result<Value, Failure> {
    let Some(location) = &flags.location else { return store.ask(Call::get("buckets", &[])).await };
    let rest = location.strip_prefix("s3://").filter(|rest| !rest.is_empty());
    let rest = rest.ok_or_else(|| Failure(format!("expected s3://BUCKET or s3://BUCKET/PREFIX, not {location:?}")))?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let delimiter = if flags.recursive { "" } else { "/" };
    let answerer = store.connect().await?;
    let listed = async {
        let (mut entries, mut next) = (Vec::new(), json!(""));
        while let Some(after) = next.as_str().filter(|_| entries.len() < flags.limit) {
            let limit = PAGE.min(flags.limit - entries.len()).to_string();
            let parameters =
                [("bucket", bucket), ("prefix", prefix), ("delimiter", delimiter), ("after", after), ("limit", &limit)];
            let mut page = answerer.ask(&Call::get("objects", &parameters)).await?;
            if let Value::Array(found) = page["entries"].take() {
                entries.extend(found);
            }
            next = page["next"].take();
        }
        Ok(json!({ "bucket": bucket, "prefix": prefix, "entries": entries, "next": next }))
    };
    let listed = listed.await;
    answerer.close().await;
    listed
}

/// A line for each entry.
pub(super) fn print(found: &Value) -> String {
    if found["buckets"].is_array() {
        return print::buckets(found);
    }
    let mut text = print::entries(found);
    if let Some(next) = found["next"].as_str() {
        text.push_str(&format!("… more behind {next}: raise --limit\n"));
    }
    text
}
