//! `[traces]` of the file.

use super::super::values::{Interval, SecretText};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// Where traces go.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct TraceSettings {
    pub(in crate::config) endpoint: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::config) headers: BTreeMap<String, SecretText>,
    #[serde(default = "all")]
    pub(in crate::config) share: f64,
    #[serde(default = "service")]
    pub(in crate::config) service: String,
    #[serde(default = "ten_seconds")]
    pub(in crate::config) timeout: Interval,
}

fn all() -> f64 {
    1.0
}

fn service() -> String {
    "deltaweir".into()
}

fn ten_seconds() -> Interval {
    Interval(Duration::from_secs(10))
}
