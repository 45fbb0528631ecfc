//! What is wrong with a configuration, and where.

use super::lines::line_of;
use std::{fmt, path::Path};

/// What is wrong, and where.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, and the line where it is known.
    place: Option<String>,
    key: Option<String>,
    message: String,
}

impl ConfigError {
    pub(super) fn at(key: &str, message: impl Into<String>) -> Self {
        Self { place: None, key: Some(key.to_owned()), message: message.into() }
    }

    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self { place: None, key: None, message: message.into() }
    }

    /// Names the file, and the line of the key, if what is wrong stands in it: a flag or a variable
    /// may have said it, too.
    pub(super) fn in_file(self, path: &Path, text: &str) -> Self {
        let line = self.key.as_deref().map(|key| line_of(text, key));
        let place = match line {
            None => Some(path.display().to_string()),
            Some(line) => line.map(|line| format!("{}:{line}", path.display())),
        };
        Self { place, ..self }
    }

    /// Path of the key, such as `server.listen`, or the name of the variable.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
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
