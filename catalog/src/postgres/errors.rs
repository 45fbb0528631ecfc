//! What the database's errors mean to a caller.

use crate::CatalogError;
use tokio_postgres::{
    Error,
    error::{Severity, SqlState},
};

/// The meaning of an error of a statement that is not a commit. [`CatalogError::Unavailable`] means
/// that the connection is not to be used any more, and that another may be tried.
pub(super) fn catalog_error(error: &Error) -> CatalogError {
    let Some(database) = error.as_db_error() else {
        // Not from the server: the connection broke, or could not be made. Values that do not fit
        // are bugs.
        return match error.is_closed() || is_io(error) {
            true => CatalogError::Unavailable(describe(error)),
            false => CatalogError::Other(describe(error)),
        };
    };
    match *database.code() {
        SqlState::UNIQUE_VIOLATION => CatalogError::Exists,
        SqlState::DISK_FULL => CatalogError::Full,
        ref code if is_passing(code) => CatalogError::Unavailable(describe(error)),
        _ => CatalogError::Other(describe(error)),
    }
}

/// Whether the server itself refused, so that a commit that failed, or came behind what failed, is
/// none. The severity is read where no language of messages changes it.
pub(super) fn is_refusal(error: &Error) -> bool {
    error.as_db_error().is_some_and(|database| database.parsed_severity() == Some(Severity::Error))
}

/// Classes of SQLSTATE that another attempt may not meet: connection trouble (08), rollbacks for
/// concurrency (40), resources (53), an operator's or a timeout's intervention (57), a server that
/// is a standby now (25006), one that gave up waiting for us (25P03) or for a lock (55P03).
fn is_passing(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    matches!(class, "08" | "40" | "53" | "57") || matches!(code.code(), "25006" | "25P03" | "25P02" | "55P03")
}

fn is_io(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if inner.is::<std::io::Error>() {
            return true;
        }
        source = inner.source();
    }
    // A connection attempt that ran out of time has no source.
    error.to_string().contains("timed out")
}

/// The error with its causes, which its own text leaves out.
pub(super) fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
