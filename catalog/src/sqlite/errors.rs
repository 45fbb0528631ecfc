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
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted => CatalogError::Unavailable(error.to_string()),
        ErrorCode::ConstraintViolation => match error.sqlite_error().map(|error| error.extended_code) {
            Some(ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => CatalogError::Exists,
            _ => CatalogError::Other(error.to_string()),
        },
        _ => CatalogError::Other(error.to_string()),
    }
}
