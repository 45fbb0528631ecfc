//! `[access_log]` of the file.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How requests are logged.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct AccessLog {
    pub(in crate::config) format: AccessFormat,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::config) path: Option<PathBuf>,
    pub(in crate::config) recent: usize,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self { format: AccessFormat::Log, path: None, recent: 4096 }
    }
}

/// What a line looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum AccessFormat {
    /// As the other lines of the log, among them.
    #[default]
    Log,
    /// One JSON object.
    Json,
    /// The combined log format.
    Clf,
}
