//! Why a file cannot be encoded or decoded.

use std::io;
use thiserror::Error;

/// Why a file cannot be encoded or decoded.
#[derive(Debug, Error)]
pub enum DeltaFileError {
    /// A file could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// Which one.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The delta is not what the format says, or was damaged.
    #[error("not a usable delta: {0}")]
    Malformed(&'static str),
    /// The delta was made for another base.
    #[error("this is not the base the delta was made for: {0}")]
    WrongBase(String),
    /// A file changed while it was read.
    #[error("{0} changed while it was read")]
    Changed(&'static str),
}

pub(super) type Result<T> = std::result::Result<T, DeltaFileError>;

/// An error of the file that is called `what` in messages.
pub(super) fn io_error(what: &'static str) -> impl Fn(io::Error) -> DeltaFileError {
    move |source| DeltaFileError::Io { what, source }
}
