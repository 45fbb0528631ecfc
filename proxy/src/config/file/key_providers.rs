//! `[key_providers.NAME]` of the file.

use super::super::values::{Interval, SecretText};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};

/// Who keeps KEKs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(in crate::config) enum Provider {
    Vault(Box<VaultKeys>),
    AwsKms(Box<KmsKeys>),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct VaultKeys {
    pub(in crate::config) address: String,
    #[serde(default = "transit")]
    pub(in crate::config) mount: String,
    pub(in crate::config) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) token: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) role_id: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) secret_id: Option<SecretText>,
    #[serde(default = "approle")]
    pub(in crate::config) approle_mount: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) ca_file: Option<PathBuf>,
    #[serde(default = "patience")]
    pub(in crate::config) timeout: Interval,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct KmsKeys {
    pub(in crate::config) key: String,
    pub(in crate::config) region: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) access_key_id: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) secret_access_key: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) session_token: Option<SecretText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) credentials_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) ca_file: Option<PathBuf>,
    #[serde(default = "patience")]
    pub(in crate::config) timeout: Interval,
}

fn transit() -> String {
    "transit".into()
}

fn approle() -> String {
    "approle".into()
}

fn patience() -> Interval {
    Interval(Duration::from_secs(5))
}
