//! What was found by one look, and what to do about it.

use serde::Serialize;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Nothing is to be done.
    Ok,
    /// It works, and less well than it could.
    Warning,
    /// It does not work.
    Failed,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Check {
    pub(super) check: String,
    pub(super) state: State,
    pub(super) detail: String,
    /// What to do; empty where all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
}

impl Check {
    pub(super) fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { check: check.into(), state: State::Ok, detail: detail.into(), remedy: String::new() }
    }

    pub(super) fn warning(check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.into(), state: State::Warning, detail: detail.into(), remedy: remedy.into() }
    }

    pub(super) fn failed(check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.into(), state: State::Failed, detail: detail.into(), remedy: remedy.into() }
    }
}
