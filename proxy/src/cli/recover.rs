//! `deltaweir restore` and `deltaweir rebuild`: a catalog is made again while no server runs.

use super::{Failure, Outcome, print, show};
use crate::{
    config::ServeConfig,
    engine::{self, RecoveryOptions},
    metrics::Metrics,
};
use s3_wire::ETag;
use std::{
    io::{self, IsTerminal as _},
    sync::Mutex,
    time::{Duration, Instant},
};

/// Between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// What a restore is told; a rebuild is told more.
pub(super) fn options(backup: Option<String>, stop_at_damage: bool) -> RecoveryOptions {
    RecoveryOptions { backup, manifests: false, in_place: false, stop_at_damage, etag_of_parts }
}

/// As S3 makes it: the digest of the parts' digests.
fn etag_of_parts(etags: &[String]) -> Option<String> {
    let md5s: Option<Vec<[u8; 16]>> = etags.iter().map(|etag| ETag::from_wire(etag).md5()).collect();
    Some(ETag::of_parts(md5s?).as_str().to_owned())
}

/// Makes the catalog again and prints what was done.
pub(super) async fn recover(config: ServeConfig, options: RecoveryOptions, json: bool) -> Outcome {
    let progress = progress(json);
    let report = engine::recover(config.engine, &options, Metrics::new()?, &*progress).await?;
    show(json, &serde_json::to_value(&report)?, print::outline)?;
    match report.damage {
        None => Ok(()),
        Some(why) => Err(Failure(format!("the journal was followed only up to mutation {}: {why}", report.last_seq))),
    }
}

/// Prints every backup of the configured backend.
pub(super) async fn list(config: ServeConfig, json: bool) -> Outcome {
    let backups = engine::list_backups(config.engine, Metrics::new()?).await?;
    show(json, &serde_json::json!({ "backups": backups }), print::outline)
}

/// Lines on stderr for whoever watches.
fn progress(json: bool) -> Box<engine::Progress> {
    if json || !io::stderr().is_terminal() {
        return Box::new(|_, _| {});
    }
    let last = Mutex::new(Instant::now());
    Box::new(move |what, done| {
        let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.elapsed() >= PROGRESS_EVERY {
            *last = Instant::now();
            eprintln!("{done} {what}");
        }
    })
}
