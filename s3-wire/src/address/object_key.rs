//! Object keys: any UTF-8 of 1–1024 bytes, compared and stored byte for byte.

use crate::error::{ErrorCode, Result, S3Error};
use std::fmt;

/// The most bytes a key may have.
const KEY_BYTES_MAX: usize = 1024;

/// A key. Source: Amazon S3 User Guide, "Naming Amazon S3 objects". NUL is refused because neither
/// PostgreSQL text nor most file systems can carry it, so no store could `eject` such a key. `foo`
/// and `foo/bar`, `/x`, `a//b`, `.`, `..` are ordinary, distinct keys: nothing is normalised (C36,
/// C74).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(String);

impl ObjectKey {
    /// Checks and takes a decoded key.
    ///
    /// # Errors
    /// `KeyTooLongError` past 1024 bytes; `InvalidArgument` when it is empty or holds a NUL.
    pub fn new(key: impl Into<String>) -> Result<Self> {
        let key = key.into();
        if key.len() > KEY_BYTES_MAX {
            return Err(S3Error::new(ErrorCode::KeyTooLongError)
                .field("Size", key.len().to_string())
                .field("MaxSizeAllowed", KEY_BYTES_MAX.to_string()));
        }
        if key.is_empty() {
            return Err(S3Error::invalid_argument("key", key, "A key has at least one byte."));
        }
        if key.contains('\0') {
            return Err(S3Error::invalid_argument("key", key, "A key cannot contain the character U+0000."));
        }
        Ok(Self(key))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_counts_bytes_and_its_bound_is_exact() {
        // C74
        assert!(ObjectKey::new("k".repeat(1024)).is_ok());
        assert!(ObjectKey::new("𝕜".repeat(256)).is_ok());
        for key in ["k".repeat(1025), "𝕜".repeat(257)] {
            assert_eq!(ObjectKey::new(key).unwrap_err().code(), ErrorCode::KeyTooLongError);
        }
        assert_eq!(ObjectKey::new("").unwrap_err().code(), ErrorCode::InvalidArgument);
        assert_eq!(ObjectKey::new("a\0b").unwrap_err().code(), ErrorCode::InvalidArgument);
    }

    #[test]
    fn nothing_is_normalised() {
        // C36, C74
        for key in [
            "..",
            "a/../b",
            "/a",
            "a//b",
            "a/",
            ".",
            "a\\b",
            "\u{202e}x",
            "e\u{301}",
            "\u{e9}",
            "x.delta.delta",
            "a\u{1}b",
        ] {
            assert_eq!(ObjectKey::new(key).unwrap().as_str(), key);
        }
        assert_ne!(ObjectKey::new("e\u{301}").unwrap(), ObjectKey::new("\u{e9}").unwrap());
    }
}
