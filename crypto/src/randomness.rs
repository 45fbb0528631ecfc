//! Why there are no random bytes.

use std::fmt;

/// The generator gives no bytes.
#[derive(Debug)]
pub struct NoRandomness(pub(crate) String);

impl fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no randomness: {}", self.0)
    }
}

impl std::error::Error for NoRandomness {}
