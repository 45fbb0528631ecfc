//! `deltaweir restore` and `deltaweir rebuild`: a catalog is made again while no server runs.

use super::{
    audit_log,
    outcome::{Failure, Outcome, note, show},
    print,
};
use crate::{
    config::ServeConfig,
    engine::{self, RecoveryOptions, RecoveryReport},
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

/// What to do about a journal that is not whole.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DamageOptions {
    /// Discard all changes from the first damaged or missing journal blob on
    #[arg(long)]
    stop_at_damage: bool,
    /// Continue after missing journal blobs, and list the changes that are lost
    #[arg(long, conflicts_with = "stop_at_damage")]
    accept_hole: bool,
    /// Accept unsealed documents up to this mutation, for a store that was sealed only later
    #[arg(long, value_name = "SEQ")]
    accept_unsealed_until: Option<i64>,
    /// Restore although the anchor outside of the store knows more than the store
    #[arg(long)]
    accept_less_than_anchor: bool,
}

/// What a restore is told; a rebuild is told more.
pub(super) fn options(backup: Option<String>, trouble: &DamageOptions) -> RecoveryOptions {
    let DamageOptions { stop_at_damage, accept_hole, accept_unsealed_until, accept_less_than_anchor } = *trouble;
    RecoveryOptions {
        backup,
        manifests: false,
        in_place: false,
        stop_at_damage,
        accept_hole,
        accept_unsealed_until,
        accept_less_than_anchor,
        remains: None,
        fork: None,
        etag_of_parts,
    }
}

/// What a merge is told.
pub(super) fn merge_options() -> RecoveryOptions {
    let whole = DamageOptions {
        stop_at_damage: false,
        accept_hole: false,
        accept_unsealed_until: None,
        accept_less_than_anchor: false,
    };
    options(None, &whole)
}

/// As S3 makes it: the digest of the parts' digests.
pub(super) fn etag_of_parts(etags: &[String]) -> Option<String> {
    let md5s: Option<Vec<[u8; 16]>> = etags.iter().map(|etag| ETag::from_wire(etag).md5()).collect();
    Some(ETag::of_parts(md5s?).as_str().to_owned())
}

/// Makes the catalog again for `user`, or for the server itself where that is nobody, and writes
/// that into the audit log.
pub(super) async fn make_again(
    config: ServeConfig,
    options: &RecoveryOptions,
    user: &str,
    progress: &engine::RecoveryProgress,
) -> Result<RecoveryReport, Failure> {
    let (metrics, data) = (Metrics::new()?, config.engine.data.clone());
    let stores = config.stores.open(&data, &metrics.engine);
    let ended = engine::recover(config.engine, stores, options, metrics.engine.clone(), progress).await;
    if let Some(audit) = config.audit {
        audit_log::write_down_recovery(audit, &data, &metrics, audit_log::recovery(user, options, &ended));
    }
    Ok(ended?)
}

/// The same for whoever gave the command, with what was done printed.
pub(super) async fn recover(config: ServeConfig, options: RecoveryOptions, json: bool) -> Outcome {
    let (progress, began) = (progress(json), Instant::now());
    let report = make_again(config, &options, "owner", &*progress).await?;
    show(json, &serde_json::to_value(&report)?, print::outline)?;
    note(format_args!("{} objects restored in {:.1} s", report.objects, began.elapsed().as_secs_f64()));
    if let Some(warning) = &report.anchor_warning {
        note(format_args!("warning: {warning}"));
    }
    match report.damage {
        None if report.holes.is_empty() => Ok(()),
        None => Err(Failure(format!(
            "the journal has {} holes: mutations in them are lost, and {} behind them could not be made again",
            report.holes.len(),
            report.lost_mutations.len()
        ))),
        Some(why) => Err(Failure(format!("the journal was followed only up to mutation {}: {why}", report.last_seq))),
    }
}

/// Prints every backup of the configured backend.
pub(super) async fn list(config: ServeConfig, json: bool) -> Outcome {
    let (metrics, name) = (Metrics::new()?.engine.clone(), config.engine.safety.backend.clone());
    let backend = config.stores.open_backend(&name, &metrics);
    let backups = engine::list_backups(config.engine, backend, metrics.clone()).await?;
    show(json, &serde_json::json!({ "backups": backups }), print::outline)
}

/// Lines on stderr for whoever watches.
fn progress(json: bool) -> Box<engine::RecoveryProgress> {
    if json || !io::stderr().is_terminal() {
        return Box::new(|_, _| {});
    }
    let last = Mutex::new(Instant::now());
    Box::new(move |what, done| {
        let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.elapsed() >= PROGRESS_EVERY {
            *last = Instant::now();
            note(format_args!("{done} {what}"));
        }
    })
}
