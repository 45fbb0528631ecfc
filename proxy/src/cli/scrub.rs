//! `deltaweir scrub`: its flags, its report for people, and whether it is a failure.

use super::{
    ask::{Call, Store},
    follow,
    outcome::{Failure, Outcome},
};
use crate::config::{parse_duration, parse_size};
use clap::Args;
use serde_json::{Value, json};

/// What may be asked of a scrub.
#[derive(Args)]
pub(super) struct ScrubFlags {
    /// Percentage of blobs to verify; the next partial scrub continues with others
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    percent: f64,
    /// Only blobs not verified good within this time, such as 30d
    #[arg(long, value_name = "DURATION")]
    older_than: Option<String>,
    /// Read at most this much per second, such as 50MiB
    #[arg(long, value_name = "SIZE")]
    bytes_per_second: Option<String>,
    /// Verify nothing: show the quarantine
    #[arg(long, conflicts_with_all = ["percent", "older_than", "bytes_per_second"])]
    quarantined: bool,
}

impl ScrubFlags {
    fn parameters(&self) -> Result<Value, Failure> {
        let older_than_s = match &self.older_than {
            None => 0,
            Some(text) => parse_duration(text)
                .ok_or_else(|| Failure(format!("--older-than: expected a duration such as 30d, not {text:?}")))?
                .as_secs(),
        };
        let rate = match &self.bytes_per_second {
            None => 0,
            Some(text) => parse_size(text)
                .filter(|rate| *rate > 0)
                .ok_or_else(|| Failure(format!("--bytes-per-second: expected a size such as 50MiB, not {text:?}")))?,
        };
        Ok(json!({ "percent": self.percent, "older_than_s": older_than_s, "bytes_per_second": rate }))
    }
}

/// Runs it, or looks at what earlier ones found.
///
/// # Errors
/// [`Failure`] when a flag is wrong or the scrub did not end well.
pub(super) async fn run(store: Store, flags: &ScrubFlags, quiet: bool) -> Result<Value, Failure> {
    if flags.quarantined {
        return Ok(json!({ "quarantine": store.ask(Call::get("quarantine", &[])).await? }));
    }
    Box::pin(follow::start(store, "scrub", flags.parameters()?, quiet)).await
}

/// A scrub that found damage, or could not look everywhere, ends with a failure: a script should
/// notice.
///
/// # Errors
/// [`Failure`] with the numbers.
pub(super) fn verdict(report: &Value) -> Outcome {
    let damaged = list(report, "blobs").len();
    if damaged > 0 {
        let affected = list(report, "affected").len();
        return Err(Failure(format!("{damaged} blobs are damaged; {affected} objects are affected")));
    }
    let count = |name: &str| report["counts"][name].as_u64().filter(|blobs| *blobs > 0);
    if let Some(blobs) = count("copy_only") {
        return Err(Failure(format!("{blobs} blobs are damaged and are read from their second copies")));
    }
    if let Some(unreachable) = count("unreachable") {
        return Err(Failure(format!("{unreachable} blobs could not be read: their backend did not answer")));
    }
    let documents = |name: &str| report["recovery"][name].as_u64().unwrap_or(0);
    match (documents("damaged"), documents("unreachable")) {
        (0, 0) => Ok(()),
        (0, unreachable) => {
            Err(Failure(format!("{unreachable} documents of recovery could not be read: their backend did not answer")))
        }
        (damaged, _) => Err(Failure(format!("{damaged} documents of recovery are damaged and could not be repaired"))),
    }
}

/// The report as lines.
pub(super) fn print(report: &Value) -> String {
    let count = |name: &str| report["counts"][name].as_u64();
    let mut lines = Vec::new();
    if let (Some(ok), Some(damaged), Some(unreachable), Some(released), Some(bytes)) =
        (count("ok"), count("damaged"), count("unreachable"), count("released"), count("bytes"))
    {
        lines.push(format!(
            "{bytes} bytes read: {ok} blobs OK, {damaged} damaged, {unreachable} unreachable; {released} recovered"
        ));
        for (name, what) in [
            ("restored", "were damaged and written anew from their second copies"),
            ("copy_only", "are damaged, could not be written anew, and are read from their second copies"),
            ("copies_replaced", "had a damaged second copy, which was replaced"),
        ] {
            if let Some(blobs) = count(name).filter(|blobs| *blobs > 0) {
                lines.push(format!("{blobs} blobs {what}"));
            }
        }
    }
    let documents = |name: &str| report["recovery"][name].as_u64();
    if let (Some(ok), Some(restored), Some(damaged), Some(unreachable)) =
        (documents("ok"), documents("restored"), documents("damaged"), documents("unreachable"))
    {
        lines.push(format!(
            "{ok} recovery documents OK, {restored} rewritten, {damaged} damaged, {unreachable} unreachable"
        ));
    }
    for blob in list(report, "blobs") {
        lines.push(format!("damaged  {} in {}: {}", text(blob, "blob"), text(blob, "backend"), text(blob, "what")));
    }
    for object in list(report, "affected") {
        let whose = match object["part"].as_array().map(Vec::as_slice) {
            Some([upload, number]) => format!("part {number} of upload {}", upload.as_str().unwrap_or_default()),
            _ => format!("version {}", text(object, "version")),
        };
        lines.push(format!("affected s3://{}/{} {whose}", text(object, "bucket"), text(object, "key")));
    }
    if list(report, "blobs").is_empty() {
        lines.push("nothing is in quarantine".to_owned());
    }
    lines.join("\n") + "\n"
}

fn list<'v>(report: &'v Value, name: &str) -> &'v [Value] {
    report["quarantine"][name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_and_what_could_not_be_asked_for_are_failures() {
        let report = |blobs: Value, unreachable: u64| json!({ "counts": { "unreachable": unreachable }, "quarantine": { "blobs": blobs, "affected": [] } });
        assert!(verdict(&report(json!([]), 0)).is_ok());
        assert!(verdict(&report(json!([]), 1)).is_err());
        assert!(verdict(&report(json!([{"blob": "00"}]), 0)).is_err());
        let copies =
            |restored: u64, copy_only: u64| json!({ "counts": { "restored": restored, "copy_only": copy_only } });
        assert!(verdict(&copies(1, 0)).is_ok(), "it is well again");
        assert!(verdict(&copies(0, 1)).is_err());
        let documents =
            |damaged: u64, unreachable: u64| json!({ "recovery": { "damaged": damaged, "unreachable": unreachable } });
        assert!(verdict(&documents(0, 0)).is_ok());
        assert!(verdict(&documents(1, 0)).is_err() && verdict(&documents(0, 1)).is_err());
        assert!(verdict(&json!({ "quarantine": { "blobs": [], "affected": [] } })).is_ok());
    }
}
