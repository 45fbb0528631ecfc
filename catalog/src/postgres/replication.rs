//! Whether a failover of the database may lose what was acknowledged.

use crate::{
    Result,
    relational::{
        change::only,
        session::{Session, statement},
    },
};

/// Facts about the primary and its standbys, as the server tells them.
struct Replication {
    /// Standbys that are connected. Anybody may count them; who waits for which only a monitor may
    /// see, so that is read from the settings.
    standbys: i64,
    /// `synchronous_standby_names`.
    names: String,
    /// `synchronous_commit` in our sessions.
    commit: String,
}

/// In a sentence, how a failover may lose commits, and the setting that prevents it; `None` when it
/// may not, or nothing could take over.
pub(super) async fn warning<S: Session>(session: &mut S) -> Result<Option<String>> {
    let answers = session
        .run(vec![
            statement!("SELECT count(*) FROM pg_stat_replication"),
            statement!("SELECT current_setting('synchronous_standby_names')"),
            statement!("SELECT current_setting('synchronous_commit')"),
        ])
        .await?;
    let replication = Replication {
        standbys: only(&answers, 0)?.int(0)?,
        names: only(&answers, 1)?.text(0)?.to_owned(),
        commit: only(&answers, 2)?.text(0)?.to_owned(),
    };
    Ok(judge(&replication))
}

fn judge(replication: &Replication) -> Option<String> {
    let waits = !matches!(replication.commit.as_str(), "local" | "off");
    match (replication.standbys, replication.names.trim().is_empty()) {
        (0, _) => None,
        (standbys, true) => Some(format!(
            "the database has {standbys} standby server(s), and none of them is synchronous: a failover may lose commits. \
             Set synchronous_standby_names on the database"
        )),
        (_, false) if !waits => Some(format!(
            "synchronous_commit is {}: commits do not wait for the standbys of synchronous_standby_names, and a failover may lose them. \
             Set synchronous_commit = on",
            replication.commit
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(standbys: i64, names: &str, commit: &str) -> Option<String> {
        judge(&Replication { standbys, names: names.into(), commit: commit.into() })
    }

    #[test]
    fn only_a_standby_that_nobody_waits_for_is_a_warning() {
        assert_eq!(said(0, "", "on"), None, "nothing can take over");
        for commit in ["on", "remote_apply", "remote_write"] {
            assert_eq!(said(1, "FIRST 1 (*)", commit), None);
        }
        assert!(said(2, " ", "on").is_some_and(|said| said.contains("Set synchronous_standby_names")));
        assert!(said(1, "*", "local").is_some_and(|said| said.contains("Set synchronous_commit = on")));
    }
}
