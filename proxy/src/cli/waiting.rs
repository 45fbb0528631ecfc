//! What a command shows on a terminal while one answer takes long: the job that works on it, else
//! how long it has waited.

use super::{
    ask::{Answerer, Call, Store},
    follow,
    outcome::Failure,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::{
    io::{IsTerminal as _, stderr},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Nothing is shown of what takes less.
const SOON: Duration = Duration::from_secs(2);
/// Between two looks at the jobs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Makes one call, and shows progress if it takes longer than two seconds.
///
/// # Errors
/// As [`Store::ask`].
pub(super) async fn ask(store: Store, call: &Call) -> Result<Value, Failure> {
    let answerer = store.connect().await?;
    let answer = answer(&answerer, call).await;
    answerer.close().await;
    answer
}

/// The same of a store that is asked more than once.
///
/// # Errors
/// As [`Answerer::ask`].
pub(super) async fn answer(answerer: &Answerer, call: &Call) -> Result<Value, Failure> {
    let mut answer = Box::pin(answerer.ask(call));
    if let Ok(answer) = timeout(SOON, &mut answer).await {
        return answer;
    }
    if !stderr().is_terminal() {
        return answer.await;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_elapsed(SOON);
    let answer = loop {
        let look = async {
            let jobs = answerer.ask(&Call::get("jobs", &[])).await.unwrap_or_default();
            draw(&bar, &jobs);
            sleep(LOOK_EVERY).await;
        };
        tokio::select! {
            answer = &mut answer => break answer,
            () = look => {}
        }
    };
    bar.finish_and_clear();
    answer
}

/// The first job that runs, with its name; without one, the time.
fn draw(bar: &ProgressBar, jobs: &Value) {
    let Some(job) = jobs.as_array().into_iter().flatten().find(|job| job["running"] == true) else {
        if let Ok(style) = ProgressStyle::with_template("{spinner} waiting for the answer {elapsed}") {
            bar.set_style(style);
        }
        bar.tick();
        return;
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut progress = job["progress"].clone();
    progress["note"] = format!("{} {}", text(&job["name"]), text(&job["progress"]["note"])).trim_end().into();
    follow::draw(bar, &progress);
}
