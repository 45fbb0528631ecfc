//! `[audit]` of the file.

use super::super::values::{ByteSize, Interval, SecretText};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};

/// The log of calls that change something or were denied.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Audit {
    pub(in crate::config) enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::config) path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::config) key: Option<SecretText>,
    pub(in crate::config) file_bytes_max: ByteSize,
    pub(in crate::config) files_max: usize,
    pub(in crate::config) sync_interval: Interval,
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            enabled: true,
            path: None,
            key: None,
            file_bytes_max: ByteSize(64 << 20),
            files_max: 16,
            sync_interval: Interval(Duration::from_secs(1)),
        }
    }
}
