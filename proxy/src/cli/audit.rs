//! `deltaweir audit`, and what opens the log for whoever writes to it.

use super::outcome::{Failure, Outcome, out, show};
use crate::{
    admin::audit_time,
    audit::{AuditKey, AuditLog, Entry, Kind, Wanted, search, tail, verify},
    auth::audit_key,
    config::{AuditConfig, ServeConfig},
    engine::JobEnded,
    metrics::Metrics,
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::{
    collections::VecDeque,
    io,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::sync::broadcast;

/// How often `tail --follow` looks for new lines.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// Lines that are searched for: those that every flag fits.
#[derive(Args)]
pub(super) struct SearchFlags {
    /// Of this user; owner for callers of the socket, token for those of the admin listener
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// About this operation, admin path or job, such as DeleteObject
    #[arg(long, value_name = "OPERATION")]
    action: Option<String>,
    /// About this bucket
    #[arg(long)]
    bucket: Option<String>,
    /// From this time on: 2026-11-24T13:00:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// About the request with this id
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Only the newest so many
    #[arg(short = 'n', long, value_name = "COUNT")]
    limit: Option<usize>,
}

#[derive(Subcommand)]
pub(super) enum AuditAction {
    /// Follow the chain of hashes from the first line to the last: is the log whole
    Verify,
    /// Print the lines about a user, action, bucket, time or request
    Search(SearchFlags),
    /// Print the newest lines
    Tail {
        /// How many
        #[arg(short = 'n', long, default_value_t = 10, value_name = "COUNT")]
        lines: usize,
        /// Go on with lines as they are written
        #[arg(long)]
        follow: bool,
    },
}

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

pub(super) fn run(config: ServeConfig, action: &AuditAction, json: bool) -> Outcome {
    let data = config.engine.data;
    let audit = config.audit.ok_or_else(|| Failure("audit.enabled is false: there is no log".into()))?;
    let directory = audit.settings.directory;
    match action {
        AuditAction::Verify => {
            let sound = verify(&directory, &key_of(audit.key, &data)?)?;
            show(json, &json!(sound), |_| {
                let torn = if sound.torn { "; half a line at the end was cut off by a crash" } else { "" };
                format!(
                    "{} lines in {} files are whole: {} to {}{torn}",
                    sound.lines, sound.files, sound.first, sound.last
                )
            })
        }
        AuditAction::Search(flags) => search_for(&directory, flags),
        AuditAction::Tail { lines, follow } => {
            let mut last = print(&directory, *lines, 0)?;
            if !*follow {
                return Ok(());
            }
            loop {
                std::thread::sleep(FOLLOW_EVERY);
                last = print(&directory, usize::MAX, last)?;
            }
        }
    }
}

fn search_for(directory: &Path, flags: &SearchFlags) -> Outcome {
    let now = SystemTime::now();
    let time = |flag: &str, text: &Option<String>| {
        text.as_deref().map(|text| audit_time(flag, text, now).map_err(Failure)).transpose()
    };
    let fields = [
        ("user", flags.user.clone()),
        ("op", flags.action.clone()),
        ("bucket", flags.bucket.clone()),
        ("request_id", flags.request_id.as_ref().map(|id| id.to_ascii_uppercase())),
    ];
    let wanted = Wanted {
        fields: fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        since: time("--since", &flags.since)?,
        until: time("--until", &flags.until)?,
    };
    let Some(limit) = flags.limit else {
        let print = |line: &str| out(line).map_err(|Failure(why)| io::Error::other(why));
        return Ok(search(directory, &wanted, print)?);
    };
    let mut newest = VecDeque::new();
    search(directory, &wanted, |line| {
        newest.push_back(line.to_owned());
        if newest.len() > limit {
            newest.pop_front();
        }
        Ok(())
    })?;
    newest.iter().try_for_each(|line| out(line))
}

fn key_of(configured: Option<AuditKey>, data: &Path) -> Result<AuditKey, Failure> {
    match configured {
        Some(key) => Ok(key),
        None => audit_key::load(data)?.ok_or_else(|| {
            Failure(format!("there is no {} in {}: nothing was written yet", audit_key::FILE_NAME, data.display()))
        }),
    }
}

/// Prints the newest lines behind a number; the number of the newest.
fn print(directory: &Path, lines: usize, behind: u64) -> Result<u64, Failure> {
    let mut last = behind;
    for line in tail(directory, lines)? {
        let seq = serde_json::from_str::<serde_json::Value>(&line).ok().and_then(|line| line["seq"].as_u64());
        if seq.is_some_and(|seq| seq > behind) {
            out(&line)?;
            last = seq.unwrap_or(last);
        }
    }
    Ok(last)
}
