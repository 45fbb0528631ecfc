//! A file with everything it refers to.

use super::{
    environment::Environment,
    error::ConfigError,
    file::File,
    modes::{Holds, Modes},
    values::SecretText,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use object_format::Kek;
use secrecy::{ExposeSecret as _, SecretString};
use std::path::Path;
use zeroize::Zeroizing;

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

    /// A key of 32 bytes, which a secret holds as base64.
    pub(super) fn key(&self, key: &str, text: &SecretText) -> Result<Kek, ConfigError> {
        let text = self.secret(key, text)?;
        let wrong = || ConfigError::at(key, "expected the base64 of 32 bytes");
        let bytes = Zeroizing::new(BASE64_STANDARD.decode(text.expose_secret().trim()).map_err(|_| wrong())?);
        let secret = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| wrong())?;
        if secret.iter().all(|byte| *byte == secret[0]) {
            let message = "this key is one byte again and again: make one with `openssl rand -base64 32`";
            return Err(ConfigError::at(key, message));
        }
        Ok(Kek::new(secret))
    }
}
