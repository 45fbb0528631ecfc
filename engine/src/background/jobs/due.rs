//! Which job is due.

use super::{spec::JobSpec, state::JobState};
use catalog::JobRow;
use std::time::Duration;

/// How long a job rests after a run that met passing trouble, however long its interval is; and
/// one without an interval after any run.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// How hard to look for something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The process has just started.
    Start,
    /// As time goes by.
    Routine,
    /// Somebody waits for everything to be done.
    Settle {
        /// For so long already.
        waited: Duration,
    },
}

/// What is to be done about a job now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    No,
    /// A process has it, and it will end.
    Held,
    /// A run that was interrupted.
    GoOn,
    /// A new run; the job must have rested so long.
    Begin {
        rest: Duration,
    },
}

/// Decides over a job's row alone. `backlog` is what waits for it.
pub(super) fn due(spec: &JobSpec, row: Option<&JobRow>, backlog: u64, urgency: Urgency) -> Due {
    let Some(row) = row else {
        let begins = (spec.at_start && urgency == Urgency::Start) || spec.every.is_some() || backlog > 0;
        return if begins { Due::Begin { rest: Duration::ZERO } } else { Due::No };
    };
    if row.held {
        return Due::Held;
    }
    if row.paused {
        return Due::No;
    }
    let idle = row.idle_ms.map(|idle| Duration::from_millis(u64::try_from(idle).unwrap_or(0)));
    let state = JobState::of(row);
    if spec.resumes && state.unfinished {
        let waits = state.failed() && idle.is_some_and(|idle| idle < RETRY_AFTER);
        return if waits { Due::No } else { Due::GoOn };
    }
    let rest = match spec.every {
        Some(every) if !state.may_pass() => every,
        every => every.map_or(RETRY_AFTER, |every| every.min(RETRY_AFTER)),
    };
    let rested = idle.is_none_or(|idle| idle >= rest);
    // Trouble that was there before somebody waited is looked at again, once.
    let failed = |waited| state.failed() && !(state.may_pass() && idle.is_none_or(|idle| idle >= waited));
    match urgency {
        Urgency::Start if spec.at_start => Due::Begin { rest: Duration::ZERO },
        Urgency::Settle { waited } if backlog > 0 && !failed(waited) => Due::Begin { rest: Duration::ZERO },
        _ if rested && (spec.every.is_some() || backlog > 0) => Due::Begin { rest },
        _ => Due::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::EngineError;
    use serde_json::{Value, json};

    fn spec() -> JobSpec {
        JobSpec::new("j", "", "", |_| async { Ok(Value::Null) })
    }

    fn row(idle_s: i64) -> JobRow {
        JobRow {
            name: "j".into(),
            holder: None,
            fence: 1,
            held: false,
            started_ms: Some(0),
            ended_ms: Some(0),
            idle_ms: Some(idle_s * 1000),
            paused: false,
            cancelled: false,
            state: Value::Null,
        }
    }

    const AT_ONCE: Due = Due::Begin { rest: Duration::ZERO };
    const SETTLE: Urgency = Urgency::Settle { waited: Duration::ZERO };

    #[test]
    fn a_job_runs_by_its_interval_at_the_start_or_when_something_waits() {
        let hourly = || spec().every(Duration::from_secs(3600));
        assert_eq!(due(&hourly(), Some(&row(3599)), 0, Urgency::Routine), Due::No);
        let rest = Duration::from_secs(3600);
        assert_eq!(due(&hourly(), Some(&row(3600)), 0, Urgency::Routine), Due::Begin { rest });
        assert_eq!(due(&hourly(), None, 0, Urgency::Routine), AT_ONCE);
        assert_eq!(due(&hourly().at_start(), Some(&row(1)), 0, Urgency::Start), AT_ONCE);
        assert_eq!(due(&hourly().at_start(), Some(&row(1)), 0, Urgency::Routine), Due::No);
        assert_eq!(due(&spec(), None, 0, SETTLE), Due::No, "it runs when it is asked for");
        assert_eq!(due(&spec(), Some(&row(60)), 1, Urgency::Routine), Due::Begin { rest: RETRY_AFTER });
        assert_eq!(due(&hourly(), Some(&row(1)), 1, SETTLE), AT_ONCE);
    }

    #[test]
    fn what_is_held_or_paused_is_not_started() {
        let hourly = spec().every(Duration::from_secs(1)).at_start();
        let held = JobRow { held: true, ..row(9) };
        let paused = JobRow { paused: true, ..row(9) };
        for urgency in [Urgency::Start, Urgency::Routine, SETTLE] {
            assert_eq!(due(&hourly, Some(&held), 1, urgency), Due::Held);
            assert_eq!(due(&hourly, Some(&paused), 1, urgency), Due::No);
        }
    }

    #[test]
    fn an_interrupted_run_goes_on_and_a_failing_one_is_given_time() {
        let state = JobState { unfinished: true, ..JobState::default() };
        let interrupted = JobRow { state: json!(state), ..row(0) };
        assert_eq!(due(&spec().resumes(), Some(&interrupted), 0, Urgency::Routine), Due::GoOn);
        assert_eq!(due(&spec(), Some(&interrupted), 0, Urgency::Routine), Due::No, "it has no cursor to go on from");
        let failed = state.after(&Err(EngineError::Unavailable("net".into())), None, true, 0);
        let failed = |idle| JobRow { state: json!(failed), ..row(idle) };
        assert_eq!(due(&spec().resumes(), Some(&failed(29)), 0, SETTLE), Due::No);
        assert_eq!(due(&spec().resumes(), Some(&failed(30)), 0, Urgency::Routine), Due::GoOn);
    }

    /// The disk that was full has room again; nobody would wait half a minute for the next try.
    #[test]
    fn who_waits_starts_once_more_what_failed_before_and_not_what_failed_meanwhile() {
        let hourly = || spec().every(Duration::from_secs(3600));
        let after = |error| json!(JobState::default().after(&Err(error), None, false, 0));
        let at = |state: &Value, idle| JobRow { state: state.clone(), ..row(idle) };
        let waited = |seconds| Urgency::Settle { waited: Duration::from_secs(seconds) };
        let full = after(EngineError::Full);
        assert_eq!(due(&hourly(), Some(&at(&full, 1)), 1, waited(0)), AT_ONCE);
        assert_eq!(due(&hourly(), Some(&at(&full, 1)), 0, waited(0)), Due::No, "nothing waits");
        assert_eq!(due(&hourly(), Some(&at(&full, 1)), 1, waited(2)), Due::No, "it has been tried");
        let lasting = after(EngineError::Integrity("bit".into()));
        assert_eq!(due(&hourly(), Some(&at(&lasting, 1)), 1, waited(0)), Due::No, "it is for a person");
    }

    #[test]
    fn a_nightly_job_that_met_a_short_outage_does_not_wait_for_the_next_night() {
        let nightly = || spec().every(Duration::from_secs(86_400));
        let after = |error| JobState::default().after(&Err(error), None, false, 0);
        let at = |state: &JobState, idle| JobRow { state: json!(state), ..row(idle) };
        let outage = after(EngineError::Unavailable("net".into()));
        assert_eq!(due(&nightly(), Some(&at(&outage, 29)), 0, Urgency::Routine), Due::No);
        let again = Due::Begin { rest: RETRY_AFTER };
        assert_eq!(due(&nightly(), Some(&at(&outage, 30)), 0, Urgency::Routine), again);
        let lasting = after(EngineError::Integrity("bit".into()));
        assert_eq!(due(&nightly(), Some(&at(&lasting, 3600)), 0, Urgency::Routine), Due::No, "it is for a person");
    }
}
