//! The one error of everything that reads bytes of a delta.

use thiserror::Error;

/// Why a delta cannot be decoded. Always an error, never a guess (I7).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("malformed delta: {0}")]
pub struct DecodeError(pub &'static str);
