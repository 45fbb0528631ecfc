//! Why bytes are refused.

use thiserror::Error;

/// Why bytes are not the blob they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Not of the documented form.
    #[error("malformed blob: {0}")]
    Malformed(&'static str),
    /// A tag or checksum does not fit: rot, tampering, or bytes of another place.
    #[error("integrity check failed: {0}")]
    Integrity(&'static str),
    /// The bytes are a blob, but not the one that was asked for.
    #[error("not the expected blob")]
    WrongBlob,
    /// The key is missing, another one, or does not match the blob's commitment.
    #[error("key unusable for this blob: {0}")]
    Key(&'static str),
    /// Past a limit of the format.
    #[error("past a limit of the format: {0}")]
    TooLarge(&'static str),
}
