//! What is wrong with a configuration, and where.

use std::fmt;

/// What is wrong, and where.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    key: Option<String>,
    message: String,
}

impl ConfigError {
    pub(super) fn at(key: &str, message: impl Into<String>) -> Self {
        Self { key: Some(key.to_owned()), message: message.into() }
    }

    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self { key: None, message: message.into() }
    }

    /// Path of the key, such as `server.listen`, or the name of the variable.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{key}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigError {}
