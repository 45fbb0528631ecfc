//! What the audit log is told of a call: which bucket it is about, and what its parameters ask for.
//! Names, numbers and words; never a secret, and never the key of an object, which an encrypted
//! bucket hides.

use super::routes::ROOT;
use crate::audit::Entry;
use percent_encoding::percent_decode_str;
use s3_wire::{BucketName, Query};
use serde_json::Value;

/// The parameters that are told, whether they come in a query or in a body.
const TOLD: [&str; 18] = [
    "backend",
    "bytes",
    "compression",
    "effort",
    "empty_trash",
    "encryption",
    "isolation",
    "now",
    "objects",
    "overwrite",
    "remove_needless",
    "source",
    "storage_headers",
    "sweep",
    "take_over",
    "target",
    "undo",
    "verify",
];
/// How much of one is told.
const CHARS_MAX: usize = 200;

/// What the audit log is told of a call besides its answer's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    bucket: Option<String>,
    change: Option<String>,
    run: Option<u64>,
}

impl Told {
    /// What the parameters of a call say, whether it is allowed or not.
    pub fn of_call(path: &str, query: &Query, body: &Value) -> Self {
        let name = path.strip_prefix(ROOT).unwrap_or_default();
        let in_path = name.strip_prefix("buckets/").map(|name| percent_decode_str(name).decode_utf8_lossy());
        let named = in_path.as_deref().or_else(|| query.get("bucket")).or_else(|| body["bucket"].as_str());
        let bucket = named.filter(|bucket| BucketName::new(*bucket).is_ok()).map(str::to_owned);
        let mut words = Vec::new();
        // Changes of accounts are told in a sentence of their own.
        if name == "quota"
            && let Some(user) = query.get("user").filter(|user| !user.is_empty())
        {
            words.push(format!("user {}", cut(user)));
        }
        for parameter in TOLD {
            match query.get(parameter) {
                Some("" | "true") => words.push(parameter.to_owned()),
                Some(text) if text != "false" => words.push(format!("{parameter} {}", cut(text))),
                _ => {}
            }
            match &body[parameter] {
                Value::Bool(true) => words.push(parameter.to_owned()),
                Value::Number(number) => words.push(format!("{parameter} {number}")),
                // Of a store that is read from, the name: what follows are keys of objects.
                Value::String(text) if parameter == "source" => {
                    words.push(format!("{parameter} {}", cut(text.split('/').next().unwrap_or_default())));
                }
                Value::String(text) => words.push(format!("{parameter} {}", cut(text))),
                _ => {}
            }
        }
        Self { bucket, change: (!words.is_empty()).then(|| words.join(", ")), run: None }
    }

    /// What the answer says as well: in `change` what was done, in `run` which run of a job it is.
    pub fn answered(&mut self, answer: &Value) {
        if let Some(change) = answer["change"].as_str() {
            self.change = Some(change.to_owned());
        }
        self.run = answer["run"].as_u64();
    }

    /// A line with all of it.
    pub(super) fn onto(self, entry: Entry) -> Entry {
        entry.with("bucket", self.bucket).with("change", self.change).with("run", self.run)
    }
}

fn cut(text: &str) -> String {
    text.chars().take(CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_call_is_told_by_its_bucket_and_by_what_it_asks_for_and_never_by_a_key() {
        let told = |path: &str, query: &str, body: Value| {
            let told = Told::of_call(&format!("{ROOT}{path}"), &Query::parse(query).unwrap(), &body);
            (told.bucket.unwrap_or_default(), told.change.unwrap_or_default())
        };
        let both = |bucket: &str, change: &str| (bucket.to_owned(), change.to_owned());
        let eject = json!({"bucket": "releases", "prefix": "secret/", "target": "/mnt/out", "overwrite": true});
        assert_eq!(told("jobs/eject", "", eject), both("releases", "overwrite, target /mnt/out"));
        let import = json!({"bucket": "releases", "source": "old/secret/", "verify": false});
        assert_eq!(told("jobs/import", "", import), both("releases", "source old"));
        assert_eq!(told("quota", "user=ann", json!({"bytes": 10})), both("", "user ann, bytes 10"));
        assert_eq!(told("keys/shred", "bucket=releases", Value::Null), both("releases", ""));
        assert_eq!(told("keys/rotate", "remove_needless=true", Value::Null), both("", "remove_needless"));
        assert_eq!(told("gc", "now=true&sweep=false", Value::Null), both("", "now"));
        let rules = json!({"isolation": "strict", "storage_headers": null});
        assert_eq!(told("buckets/a%2Db", "", rules), both("a-b", "isolation strict"));
        let user = json!({"secret_access_key": "hidden", "key": true});
        assert_eq!(told("users/ann", "user=ann", user), both("", ""));
        assert_eq!(told("jobs/eject", "bucket=../x", json!({"target": "x".repeat(999)})).1.len(), 7 + CHARS_MAX);
        assert_eq!(told("jobs/eject", "bucket=../x", Value::Null).0, "");
    }
}
