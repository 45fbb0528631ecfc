//! What a job remembers between runs and over a process's end: one JSON value in its catalog row.

use crate::error::EngineError;
use catalog::{JobRow, UnixMs};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A job's memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct JobState {
    /// What the run under way, or the last one, was asked for.
    pub(super) parameters: Value,
    /// A run began and did not end: it is gone on with.
    pub(super) unfinished: bool,
    /// The number it began under: each lease that it goes on under has another.
    pub(super) first_run: Option<i64>,
    /// Where it is.
    pub(super) cursor: Option<Value>,
    /// How far that is.
    pub(super) progress: Progress,
    /// How the last run ended.
    pub(super) outcome: Option<LastOutcome>,
    /// When one last ended well.
    pub(super) last_ok: Option<UnixMs>,
}

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Progress {
    pub(super) done: u64,
    pub(super) total: Option<u64>,
    pub(super) note: String,
}

/// How a run ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LastOutcome {
    pub(super) result: Outcome,
    /// Its report, or `{"error": …}`.
    pub(super) report: Value,
    /// It failed of trouble that may pass by itself: the catalog or a backend was away, busy or
    /// full.
    #[serde(default)]
    pub(super) passing: bool,
}

/// In a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// It did what it was to do.
    Ok,
    /// It met an error.
    Failed,
    /// An operator gave it up.
    Cancelled,
    /// An operator paused it.
    Paused,
    /// Its process ended, or lost the lease.
    Interrupted,
}

impl Outcome {
    /// As metrics and answers name it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Paused => "paused",
            Self::Interrupted => "interrupted",
        }
    }
}

impl JobState {
    /// As the catalog's row has it; a state of another form is no state.
    pub(super) fn of(row: &JobRow) -> Self {
        serde_json::from_value(row.state.clone()).unwrap_or_default()
    }

    /// Whether a run waits to be gone on with.
    pub(super) fn waits(&self) -> bool {
        self.unfinished || self.failed_half_way()
    }

    /// Whether the last run failed and could be gone on with, if somebody says so.
    pub(super) fn failed_half_way(&self) -> bool {
        self.cursor.is_some() && self.outcome.as_ref().is_some_and(|last| last.result == Outcome::Failed)
    }

    /// Whether the last run failed of trouble that may have passed.
    pub(super) fn may_pass(&self) -> bool {
        self.outcome.as_ref().is_some_and(|last| last.passing)
    }

    /// Whether the last run failed, of whatever.
    pub(super) fn failed(&self) -> bool {
        self.outcome.as_ref().is_some_and(|last| last.result == Outcome::Failed)
    }

    /// Why it waits.
    pub(super) fn word(&self, paused: bool) -> &'static str {
        match self.unfinished {
            true if paused => "paused",
            true => "about to be resumed",
            false => "failed half-way",
        }
    }

    /// Without the run that waited.
    pub(super) fn given_up(self) -> Self {
        let report = json!({ "error": "cancelled" });
        let outcome = Some(LastOutcome { result: Outcome::Cancelled, report, passing: false });
        Self { unfinished: false, cursor: None, outcome, ..self }
    }

    /// After a run. `resumes`: whether the job can go on from a cursor.
    pub(super) fn after(
        self,
        ended: &Result<Value, EngineError>,
        why: Option<Outcome>,
        resumes: bool,
        now: UnixMs,
    ) -> Self {
        let result = match (ended, why) {
            (Ok(_), _) => Outcome::Ok,
            (Err(_), Some(why)) => why,
            (Err(_), None) => Outcome::Failed,
        };
        let passing = result == Outcome::Failed
            && matches!(ended, Err(EngineError::Unavailable(_) | EngineError::Busy(_) | EngineError::Full));
        let report = match ended {
            Ok(report) => report.clone(),
            Err(error) => json!({ "error": error.to_string() }),
        };
        let goes_on = match result {
            Outcome::Ok | Outcome::Cancelled => false,
            Outcome::Paused | Outcome::Interrupted => resumes,
            Outcome::Failed => resumes && passing,
        };
        let cursor = match (result, ended) {
            (Outcome::Ok | Outcome::Cancelled, _) => None,
            // What it was about is gone: there is nothing to resume, and others need not wait.
            (Outcome::Failed, Err(EngineError::NoBucket | EngineError::JobRefused(_))) => None,
            _ => self.cursor.filter(|_| resumes),
        };
        Self {
            unfinished: goes_on,
            cursor,
            last_ok: if result == Outcome::Ok { Some(now) } else { self.last_ok },
            outcome: Some(LastOutcome { result, report, passing }),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cursor: u64) -> JobState {
        JobState { unfinished: true, cursor: Some(json!(cursor)), ..JobState::default() }
    }

    #[test]
    fn a_job_whose_bucket_has_gone_leaves_nothing_to_resume() {
        for error in [EngineError::NoBucket, EngineError::JobRefused("no such store".into())] {
            let after = at(7).after(&Err(error), None, true, 0);
            assert!(after.failed() && after.cursor.is_none() && !after.unfinished);
        }
        assert_eq!(at(7).after(&Err(EngineError::Full), None, true, 0).cursor, Some(json!(7)));
    }

    #[test]
    fn a_run_that_was_stopped_waits_with_its_cursor_and_one_that_ended_does_not() {
        let stopped = || Err(EngineError::Stopped("test"));
        for why in [Outcome::Paused, Outcome::Interrupted] {
            let after = at(7).after(&stopped(), Some(why), true, 1);
            assert!(after.unfinished && after.cursor == Some(json!(7)), "{why:?}");
            assert!(!at(7).after(&stopped(), Some(why), false, 1).waits(), "it cannot be gone on with");
        }
        assert!(!at(7).after(&stopped(), Some(Outcome::Cancelled), true, 1).waits());
        let ended = at(7).after(&Ok(json!({})), Some(Outcome::Paused), true, 1);
        assert!(!ended.waits() && ended.last_ok == Some(1), "it came to its end before it was stopped");
    }

    #[test]
    fn passing_trouble_is_tried_again_and_other_trouble_waits_for_somebody() {
        let passing = at(7).after(&Err(EngineError::Unavailable("net".into())), None, true, 1);
        assert!(passing.unfinished && passing.failed());
        let lasting = at(7).after(&Err(EngineError::Integrity("bit".into())), None, true, 1);
        assert!(!lasting.unfinished && lasting.failed_half_way() && lasting.last_ok.is_none());
    }

    #[test]
    fn a_state_of_another_form_is_read_as_none() {
        let row = |state| JobRow {
            name: "j".into(),
            holder: None,
            fence: 1,
            held: false,
            started_ms: None,
            ended_ms: None,
            idle_ms: None,
            paused: false,
            cancelled: false,
            state,
        };
        assert!(!JobState::of(&row(json!("what"))).waits());
        assert_eq!(JobState::of(&row(json!(at(7)))).cursor, Some(json!(7)));
    }
}
