//! Opens the audit log for whoever writes to it: the server, or a command where none runs.

use crate::{
    audit::{AuditLog, Entry, Kind},
    auth::audit_key,
    config::AuditConfig,
    engine::JobEnded,
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
