//! Opens the audit log for whoever writes to it: the server, or a command where none runs.

use crate::{
    audit::{AuditLog, Entry, Kind},
    auth::audit_key,
    config::AuditConfig,
    engine::{EngineError, JobEnded, RecoveryOptions, RecoveryReport},
    metrics::Metrics,
};
use std::{io, path::Path, sync::Arc};
use tokio::sync::broadcast;

/// Opens the log of a data directory to write to it.
pub(super) fn open(config: AuditConfig, data: &Path, metrics: &Metrics) -> io::Result<Arc<AuditLog>> {
    let key = config.key.map_or_else(|| audit_key::load_or_create(data), Ok)?;
    let directory = config.settings.directory.display().to_string();
    let log = AuditLog::open(config.settings, key, metrics.audit_failures_total.clone());
    log.map_err(|error| io::Error::new(error.kind(), format!("the audit log in {directory}: {error}")))
}

/// Writes a line for every run of a job that ends in this process.
pub(super) async fn write_down_jobs(log: Arc<AuditLog>, mut endings: broadcast::Receiver<JobEnded>) {
    loop {
        match endings.recv().await {
            Ok(JobEnded { job, run, outcome }) => {
                log.record(Entry::new(Kind::Job, job).with("run", run).with("outcome", outcome)).await;
            }
            Err(broadcast::error::RecvError::Lagged(runs)) => {
                log.record(Entry::new(Kind::Job, "unknown").with("runs", runs)).await;
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Writes a line of a recovery; it is on the disk when this returns. A recovery does not wait for a
/// log that cannot be written.
pub(super) fn write_down_recovery(config: AuditConfig, data: &Path, metrics: &Metrics, line: Entry) {
    let written = open(config, data, metrics).and_then(|log| {
        log.write(line);
        log.sync()
    });
    if let Err(error) = written {
        tracing::error!(%error, "the audit log has no line of this recovery");
    }
}

/// The line of a catalog that was made again, or was not: for `user`, or for the server itself
/// where that is nobody.
pub(super) fn recovery(user: &str, options: &RecoveryOptions, ended: &Result<RecoveryReport, EngineError>) -> Entry {
    let op = match options {
        RecoveryOptions { fork: Some(_), .. } => "recover",
        RecoveryOptions { manifests: true, .. } => "rebuild",
        _ => "restore",
    };
    let asked = [
        options.backup.as_ref().map(|backup| format!("backup {backup}")),
        options.in_place.then(|| "in place".to_owned()),
        options.stop_at_damage.then(|| "stop at damage".to_owned()),
        options.accept_hole.then(|| "accept holes".to_owned()),
        options.accept_unsealed_until.map(|seq| format!("accept unsealed documents up to {seq}")),
        options.accept_less_than_anchor.then(|| "accept less than the anchor".to_owned()),
    ];
    let asked: Vec<_> = asked.into_iter().flatten().collect();
    let entry = Entry::new(Kind::Admin, op).with("user", user).with("change", asked.join(", "));
    match ended {
        Ok(report) => {
            let is_whole = report.damage.is_none() && report.holes.is_empty();
            let outcome = if is_whole { "done" } else { "done, with losses" };
            entry.with("outcome", outcome).with("last_seq", report.last_seq).with("lineage", report.new_lineage.clone())
        }
        Err(_) => entry.with("outcome", "failed"),
    }
}
