//! `[oidc]` of the file.

use super::super::values::{Interval, SecretText};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, path::PathBuf, time::Duration};

/// Who vouches for operators of the console.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Oidc {
    pub(in crate::config) issuer: String,
    pub(in crate::config) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) client_secret: Option<SecretText>,
    pub(in crate::config) console_url: String,
    #[serde(default = "profile")]
    pub(in crate::config) scopes: Vec<String>,
    #[serde(default = "groups")]
    pub(in crate::config) claim: String,
    #[serde(default)]
    pub(in crate::config) write: BTreeSet<String>,
    #[serde(default)]
    pub(in crate::config) read: BTreeSet<String>,
    #[serde(default = "eight_hours")]
    pub(in crate::config) session_lifetime: Interval,
    #[serde(default = "name")]
    pub(in crate::config) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) ca_file: Option<PathBuf>,
}

fn profile() -> Vec<String> {
    vec!["profile".into()]
}

fn groups() -> String {
    "groups".into()
}

fn eight_hours() -> Interval {
    Interval(Duration::from_secs(8 * 3600))
}

fn name() -> String {
    "single sign-on".into()
}
