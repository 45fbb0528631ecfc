//! Object keys: any UTF-8 of 1–1024 bytes, compared and stored byte for byte.

use crate::error::{ErrorCode, Result, S3Error};
use std::fmt;

/// The most bytes a key may have.
pub const KEY_BYTES_MAX: usize = 1024;

/// A key. `foo` and `foo/bar`, `/x`, `a//b`, `.`, `..` are ordinary, distinct keys: nothing is normalised (C36, C74).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(String);

impl ObjectKey {
    /// Checks and takes a decoded key.
    ///
    /// # Errors
    /// `KeyTooLongError` past 1024 bytes; `InvalidArgument` when it is empty or holds a NUL.
    pub fn new(_key: impl Into<String>) -> Result<Self> {
        unimplemented!()
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as owned text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
