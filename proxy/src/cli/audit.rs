//! `deltaweir audit`.

use super::{
    ask::{Call, Store},
    outcome::{Failure, Outcome, note, out, show},
};
use crate::{
    admin::audit_time,
    audit::{AuditKey, Sound, Wanted, newest, search, tail, verify},
    auth::audit_key,
    config::ServeConfig,
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::{
    io,
    path::Path,
    time::{Duration, SystemTime},
};

/// How often `tail --follow` looks for new lines.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);
/// The most lines of one answer of a server.
const LINES_MAX: usize = 1000;

/// Lines that are searched for: those that every flag fits.
#[derive(Args)]
pub(super) struct SearchFlags {
    /// Only lines of this user; owner for callers of the socket, token for those of the admin
    /// listener
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only lines about this operation, admin path or job, such as DeleteObject
    #[arg(long, value_name = "OPERATION")]
    action: Option<String>,
    /// Only lines about this bucket
    #[arg(long)]
    bucket: Option<String>,
    /// From this time on: 2026-11-24T13:00:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only lines about the request with this id
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Print only this many, the newest
    #[arg(short = 'n', long, value_name = "COUNT")]
    limit: Option<usize>,
}

#[derive(Subcommand)]
pub(super) enum AuditAction {
    /// Verify the chain of hashes from the first line to the last
    Verify,
    /// Print the lines about a user, action, bucket, time or request
    Search(SearchFlags),
    /// Print the newest lines
    Tail {
        /// Print this many
        #[arg(short = 'n', long, default_value_t = 10, value_name = "COUNT")]
        lines: usize,
        /// Keep printing lines as they are written
        #[arg(long)]
        follow: bool,
    },
}

pub(super) fn run(config: ServeConfig, action: &AuditAction, json: bool) -> Outcome {
    let data = config.engine.data;
    let audit = config.audit.ok_or_else(|| Failure("audit.enabled is false: there is no log".into()))?;
    let directory = audit.settings.directory;
    match action {
        AuditAction::Verify => {
            let sound = verify(&directory, &key_of(audit.key, &data)?)?;
            show(json, &json!(sound), |_| whole(&sound))
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

/// The same of a server on another machine, which reads its own log.
pub(super) async fn run_remote(store: Store, action: &AuditAction, json: bool) -> Outcome {
    let answerer = store.connect().await?;
    let lines = async |wanted: &Wanted, limit: usize| {
        let told = answerer.ask(&call(wanted, limit)).await?;
        let newest_first = told["lines"].as_array().cloned().unwrap_or_default();
        Ok::<_, Failure>(newest_first.into_iter().rev().collect::<Vec<_>>())
    };
    match action {
        AuditAction::Verify => {
            let sound: Sound = serde_json::from_value(answerer.ask(&Call::get("audit/verify", &[])).await?)?;
            show(json, &json!(sound), |_| whole(&sound))
        }
        AuditAction::Search(flags) => {
            let found = lines(&flags.wanted(SystemTime::now())?, flags.limit.unwrap_or(LINES_MAX)).await?;
            if flags.limit.is_none() && found.len() == LINES_MAX {
                note(format_args!("these are the newest {LINES_MAX}: narrow the search, or set -n"));
            }
            found.iter().try_for_each(|line| out(&line.to_string()))
        }
        AuditAction::Tail { lines: count, follow } => {
            let mut wanted = Wanted::default();
            let mut limit = *count;
            loop {
                for line in lines(&wanted, limit).await? {
                    wanted.after = line["seq"].as_u64().or(wanted.after);
                    out(&line.to_string())?;
                }
                if !*follow {
                    return Ok(());
                }
                limit = LINES_MAX;
                tokio::time::sleep(FOLLOW_EVERY).await;
            }
        }
    }
}

fn call(wanted: &Wanted, limit: usize) -> Call {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let [user, action, bucket, id, since, until] =
        [&wanted.user, &wanted.op, &wanted.bucket, &wanted.request_id, &wanted.since, &wanted.until].map(text);
    let after = wanted.after.map(|after| after.to_string()).unwrap_or_default();
    let limit = limit.clamp(1, LINES_MAX).to_string();
    let parameters = [
        ("user", user.as_str()),
        ("action", &action),
        ("bucket", &bucket),
        ("request_id", &id),
        ("since", &since),
        ("until", &until),
        ("after", &after),
        ("limit", &limit),
    ];
    Call::get("audit", &parameters)
}

fn whole(sound: &Sound) -> String {
    let torn = if sound.torn { "; half a line at the end was cut off by a crash" } else { "" };
    format!("{} lines in {} files are whole: {} to {}{torn}", sound.lines, sound.files, sound.first, sound.last)
}

fn search_for(directory: &Path, flags: &SearchFlags) -> Outcome {
    let wanted = flags.wanted(SystemTime::now())?;
    match flags.limit {
        None => {
            let print = |line: &str| out(line).map_err(|Failure(why)| io::Error::other(why));
            Ok(search(directory, &wanted, print)?)
        }
        Some(limit) => {
            let found = newest(directory, &wanted, None, limit, u64::MAX)?;
            found.lines.iter().rev().try_for_each(|line| out(&line.to_string()))
        }
    }
}

impl SearchFlags {
    fn wanted(&self, now: SystemTime) -> Result<Wanted, Failure> {
        let time = |flag: &str, text: &Option<String>| {
            text.as_deref().map(|text| audit_time(flag, text, now).map_err(Failure)).transpose()
        };
        Ok(Wanted {
            user: self.user.clone(),
            op: self.action.clone(),
            bucket: self.bucket.clone(),
            request_id: self.request_id.as_ref().map(|id| id.to_ascii_uppercase()),
            since: time("--since", &self.since)?,
            until: time("--until", &self.until)?,
            after: None,
        })
    }
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
