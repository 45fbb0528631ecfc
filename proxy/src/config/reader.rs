//! A file with everything it refers to.

use super::{
    environment::Environment,
    error::ConfigError,
    file::File,
    modes::{Holds, Modes},
    values::SecretText,
};
use secrecy::SecretString;
use std::path::Path;

/// A file with everything it refers to.
pub(super) struct Reader<'a> {
    pub(super) file: &'a File,
    pub(super) environment: &'a Environment,
    pub(super) directory: &'a Path,
    pub(super) modes: &'a Modes,
}

impl Reader<'_> {
    pub(super) fn secret(&self, key: &str, text: &SecretText) -> Result<SecretString, ConfigError> {
        if let Some(path) = text.file(self.directory) {
            self.modes.check(key, &path, Holds::Secret)?;
        }
        text.resolve(key, self.environment, self.directory)
    }
}
