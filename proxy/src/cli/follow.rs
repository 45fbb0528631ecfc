//! Starting a background job and following it to its end: what every long command does.

use super::{
    ask::{Answerer, Call, Store},
    outcome::{Failure, note},
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::time::Duration;

/// Between two looks at the job.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Starts a job with parameters and gives its report when it ends. Progress is shown on a
/// terminal's stderr, never with `quiet`.
///
/// In a server the run goes on when this command is stopped; opened here, it is interrupted and can
/// be gone on with.
///
/// # Errors
/// [`Failure`] with what the job failed with, or why it did not start.
pub(super) async fn start(store: Store, job: &str, parameters: Value, quiet: bool) -> Result<Value, Failure> {
    let answerer = store.connect().await?;
    let report = async {
        let started = answerer.ask(&Call::post(&format!("jobs/{job}"), &[]).with(parameters)).await?;
        if started["joined"] == true {
            let seen = answerer.ask(&Call::get(&format!("jobs/{job}"), &[])).await?;
            note(goes_on(job, &started, &seen["progress"]));
        }
        follow(&answerer, job, RunNumber::of(&started), quiet).await
    };
    let report = Box::pin(report).await;
    answerer.close().await;
    report
}

/// Follows the run that is under way.
///
/// # Errors
/// As [`start`].
pub(super) async fn running(store: Store, job: &str, quiet: bool) -> Result<Value, Failure> {
    let answerer = store.connect().await?;
    let report = async {
        let seen = answerer.ask(&Call::get(&format!("jobs/{job}"), &[])).await?;
        follow(&answerer, job, RunNumber::of(&seen), quiet).await
    };
    let report = report.await;
    answerer.close().await;
    report
}

/// Which run is followed: also when a process that died leaves it to another.
#[derive(Clone, Copy)]
struct RunNumber {
    first: i64,
    latest: i64,
}

impl RunNumber {
    fn of(answer: &Value) -> Self {
        let latest = answer["run"].as_i64().unwrap_or(0);
        Self { first: answer["first_run"].as_i64().unwrap_or(latest), latest }
    }

    fn is_in(self, seen: &Value) -> bool {
        let now = Self::of(seen);
        now.latest == self.latest || now.first == self.first
    }
}

/// Says that a run was under way before the command.
fn goes_on(job: &str, started: &Value, progress: &Value) -> String {
    let (done, unit) = (progress["done"].as_u64().unwrap_or(0), progress["unit"].as_str().unwrap_or_default());
    let run = started["first_run"].as_i64().unwrap_or(0);
    format!("{job} had begun with these parameters as run {run}: it goes on from {done} {unit}")
}

async fn follow(answerer: &Answerer, job: &str, run: RunNumber, quiet: bool) -> Result<Value, Failure> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if quiet {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    loop {
        tokio::select! {
            signal = tokio::signal::ctrl_c() => {
                signal?;
                bar.finish_and_clear();
                return Err(Failure(match answerer.outlives_us() {
                    true => format!("{job} goes on in the server: deltaweir jobs {job} [follow|pause|cancel]"),
                    false => format!("{job} was interrupted"),
                }));
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let seen = answerer.ask(&Call::get(&format!("jobs/{job}"), &[])).await?;
        let over = !run.is_in(&seen);
        // One whose process ended waits until another takes it.
        let interrupted = seen["waiting"] == true && seen["paused"] == false && seen["last_result"] != "failed";
        if !over && (seen["running"] == true || interrupted) {
            draw(&bar, &seen["progress"]);
            continue;
        }
        bar.finish_and_clear();
        return outcome(job, &seen, over);
    }
}

/// What a run that ended gave. `over`: another run began since, so its report is gone.
fn outcome(job: &str, seen: &Value, over: bool) -> Result<Value, Failure> {
    if over {
        return Err(Failure(format!("{job} ended and has started again: its report is no longer available")));
    }
    match seen["last_result"].as_str() {
        Some("ok") => Ok(seen["last_outcome"].clone()),
        Some("failed") => {
            let why = seen["last_outcome"]["error"].as_str().unwrap_or("no reason is known");
            Err(Failure(format!("{job} failed: {why}")))
        }
        Some(word) => Err(Failure(format!("{job} was {word}"))),
        None => Err(Failure(format!("{job} ended without an outcome"))),
    }
}

/// Shows how far a job is.
pub(super) fn draw(bar: &ProgressBar, progress: &Value) {
    let unit = progress["unit"].as_str().unwrap_or_default();
    let amounts = if unit == "bytes" { ["{bytes}", "{total_bytes}"] } else { ["{pos}", "{len}"] };
    let [done, whole] = amounts;
    let template = match progress["total"].as_u64() {
        Some(total) => {
            bar.set_length(total);
            format!("{{bar:30}} {done}/{whole} {unit} {{msg}} {{eta}}")
        }
        None => format!("{{spinner}} {done} {unit} {{msg}}"),
    };
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.set_position(progress["done"].as_u64().unwrap_or(0));
    bar.set_message(progress["note"].as_str().unwrap_or_default().to_owned());
    bar.tick();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_run_that_did_not_end_well_is_a_failure_in_words() {
        let seen = |result: &str, report: Value| json!({ "last_result": result, "last_outcome": report });
        let message = |seen, over| outcome("scrub", &seen, over).err().map(|Failure(message)| message);
        assert_eq!(outcome("scrub", &seen("ok", json!({ "n": 1 })), false).ok(), Some(json!({ "n": 1 })));
        let failed = message(seen("failed", json!({ "error": "disk" })), false);
        assert_eq!(failed.as_deref(), Some("scrub failed: disk"));
        assert_eq!(message(seen("cancelled", json!({})), false).as_deref(), Some("scrub was cancelled"));
        assert!(message(seen("ok", json!({})), true).is_some(), "the report is another run's");
        assert!(message(json!({ "last_result": null }), false).is_some());
    }

    #[test]
    fn every_template_is_well_formed() {
        let bar = ProgressBar::hidden();
        for progress in [json!({ "unit": "bytes", "done": 1, "total": 2 }), json!({ "unit": "objects", "done": 1 })] {
            draw(&bar, &progress);
            assert_eq!(bar.position(), 1);
        }
    }
}
