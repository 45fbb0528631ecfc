//! `deltaweir logs`: the newest lines of a server's log.

use super::{
    ask::{Answerer, Call, Store},
    outcome::{Outcome, note, out, show},
    print::{date, number, word},
};
use clap::Args;
use serde_json::Value;
use std::time::Duration;

/// How often `--follow` asks for more.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);
/// The most lines of one call.
const PAGE: usize = 1000;

#[derive(Args)]
pub(super) struct LogFlags {
    /// Only lines that are at least so severe
    #[arg(long, value_parser = ["error", "warn", "info", "debug", "trace"])]
    level: Option<String>,
    /// Only lines that contain this
    #[arg(long)]
    text: Option<String>,
    /// Show this many, the newest
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    limit: usize,
    /// Keep printing lines as they come
    #[arg(long)]
    follow: bool,
}

/// Shows the newest lines that fit.
pub(super) async fn logs(store: Store, flags: &LogFlags, json: bool) -> Outcome {
    let answerer = store.connect().await?;
    let shown = many(&answerer, flags, json).await;
    answerer.close().await;
    shown
}

async fn many(answerer: &Answerer, flags: &LogFlags, json: bool) -> Outcome {
    let mut told = answerer.ask(&call(flags, flags.limit.min(PAGE), None)).await?;
    if !flags.follow {
        return show(json, &told, |told| lines(told).map(|one| line(one) + "\n").collect());
    }
    loop {
        if number(&told["missed"]) > 0 {
            note(format_args!("{} lines came and went between two looks", told["missed"]));
        }
        for one in lines(&told) {
            out(&if json { one.to_string() } else { line(one) })?;
        }
        tokio::select! {
            signal = tokio::signal::ctrl_c() => return Ok(signal?),
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
        }
        told = answerer.ask(&call(flags, PAGE, told["next"].as_u64())).await?;
    }
}

fn call(flags: &LogFlags, limit: usize, after: Option<u64>) -> Call {
    let (limit, after) = (limit.to_string(), after.map(|after| after.to_string()).unwrap_or_default());
    let parameters = [
        ("level", flags.level.as_deref().unwrap_or_default()),
        ("text", flags.text.as_deref().unwrap_or_default()),
        ("after", &after),
        ("limit", &limit),
    ];
    Call::get("log", &parameters)
}

fn lines(told: &Value) -> impl Iterator<Item = &Value> {
    told["lines"].as_array().into_iter().flatten()
}

/// A line as it was logged; what a client sent stays in it.
fn line(line: &Value) -> String {
    let level = word(&line["level"]).to_uppercase();
    let text = word(&line["text"]).replace(char::is_control, " ");
    format!("{} {level:>5} {}: {text}", date(&line["at_ms"]), word(&line["target"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let told = json!({ "at_ms": 0, "level": "warn", "target": "engine", "text": "a\nb\u{1b}[2J" });
        assert_eq!(line(&told), "1970-01-01T00:00:00.000Z  WARN engine: a b [2J");
    }
}
