//! What SQLite's errors mean.

use crate::CatalogError;
use rusqlite::ErrorCode;

/// What SQLite's errors mean to a caller.
pub(super) fn catalog_error(error: rusqlite::Error) -> CatalogError {
    use rusqlite::ffi;
    let Some(code) = error.sqlite_error_code() else { return CatalogError::Other(error.to_string()) };
    match code {
        ErrorCode::DiskFull => CatalogError::Full,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => CatalogError::Damaged(error.to_string()),
        ErrorCode::DatabaseBusy
        | ErrorCode::DatabaseLocked
        | ErrorCode::SystemIoFailure
        | ErrorCode::CannotOpen
        // Files that cannot be opened for writing, since descriptors have run out, say, are opened
        // for reading.
        | ErrorCode::ReadOnly
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted => CatalogError::Unavailable(error.to_string()),
        ErrorCode::ConstraintViolation => match error.sqlite_error().map(|error| error.extended_code) {
            Some(ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => CatalogError::Exists,
            _ => CatalogError::Other(error.to_string()),
        },
        _ => CatalogError::Other(error.to_string()),
    }
}

/// Whether another connection may do what this one could not: it has a file open as SQLite found
/// it in a bad moment, or met an error of the disk. SQLite calls a page that the disk does not give
/// damaged, too.
pub(super) fn is_of_connection(error: &CatalogError) -> bool {
    matches!(error, CatalogError::Unavailable(_) | CatalogError::Damaged(_))
}

/// Whether somebody else has the database locked.
pub(super) fn is_lock(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
