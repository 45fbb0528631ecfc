//! What a caller of the admin API may do.

use super::answer::AdminError;
use http::{Method, StatusCode};

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Health, and whatever else needs no token.
    Open,
    /// Calls that change nothing.
    Read,
    /// Every call, but directories only below the configured roots.
    Write,
    /// Every call.
    Owner,
}

impl Scope {
    /// Its name in answers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Owner => "owner",
        }
    }

    /// Whether a method is allowed.
    ///
    /// # Errors
    /// 403 for a change by a caller who may only read.
    pub(super) fn check(self, method: &Method) -> Result<(), AdminError> {
        if self >= Self::Write || matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        Err(AdminError::new(StatusCode::FORBIDDEN, "this token may only read"))
    }
}
