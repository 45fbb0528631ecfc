//! The audit log's part of the configuration.

use super::{error::ConfigError, reader::Reader};
use crate::audit::{AuditKey, Settings};
use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

/// How the audit log is kept, and with which key.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// How it is kept.
    pub settings: Settings,
    /// Its key; `None`: the one in the data directory.
    pub key: Option<AuditKey>,
}

/// Fewest bytes of one file of the log.
const FILE_BYTES_MIN: u64 = 4096;

impl Reader<'_> {
    pub(super) fn audit(&self) -> Result<Option<AuditConfig>, ConfigError> {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let audit = &self.file.audit;
        if !audit.enabled {
            return Ok(None);
        }
        if audit.file_bytes_max.0 < FILE_BYTES_MIN {
            return Err(ConfigError::at("audit.file_bytes_max", "expected at least 4KiB"));
        }
        let key = audit.key.as_ref().map(|text| {
            let wrong = || ConfigError::at("audit.key", "expected the base64 of 32 bytes");
            let text = self.secret("audit.key", text)?;
            let bytes = Zeroizing::new(STANDARD.decode(text.expose_secret().trim()).map_err(|_| wrong())?);
            Ok(AuditKey::new(<[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| wrong())?))
        });
        let directory = audit.path.clone().unwrap_or_else(|| self.file.storage.data.join("audit"));
        let settings = Settings {
            directory,
            file_bytes_max: audit.file_bytes_max.0,
            files_max: audit.files_max,
            sync_interval: audit.sync_interval.0,
        };
        Ok(Some(AuditConfig { settings, key: key.transpose()? }))
    }
}
