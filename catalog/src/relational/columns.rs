//! Nouns as columns hold them.

use crate::{CatalogError, Result, types::*};

pub(super) const GOVERNANCE: i64 = 1;
pub(super) const COMPLIANCE: i64 = 2;
pub(super) const HELD: i64 = 4;
pub(super) const HOLD_ENDED: i64 = 8;

/// A lock as its two columns have it.
pub(crate) fn lock_columns(lock: &VersionLock) -> (i64, Option<i64>) {
    let mode = match lock.retention.map(|retention| retention.mode) {
        None => 0,
        Some(RetentionMode::Governance) => GOVERNANCE,
        Some(RetentionMode::Compliance) => COMPLIANCE,
    };
    let hold = lock.legal_hold.map_or(0, |on| if on { HELD } else { HOLD_ENDED });
    (mode | hold, lock.retention.map(|retention| retention.until_ms))
}

/// A row's original as it stands in its column.
pub(crate) fn original_text(row: &BlobRow) -> Result<Option<String>> {
    row.original.as_ref().map(serde_json::to_string).transpose().map_err(unwritable)
}

/// A form as it stands in its column.
pub(crate) fn form_column(form: BlobForm) -> i64 {
    match form {
        BlobForm::Whole => 0,
        BlobForm::Delta => 1,
    }
}

pub(super) fn unwritable(error: serde_json::Error) -> CatalogError {
    CatalogError::Other(error.to_string())
}
