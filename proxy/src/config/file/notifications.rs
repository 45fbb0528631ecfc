//! `[notifications]` of the file.

use super::super::values::{Interval, SecretText};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// Who is told of changes in buckets.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Notifications {
    pub(in crate::config) waiting_max: u64,
    pub(in crate::config) keep: Interval,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::config) webhooks: BTreeMap<String, Webhook>,
}

impl Default for Notifications {
    fn default() -> Self {
        let engine::NotifyConfig { waiting_max, keep, .. } = engine::NotifyConfig::default();
        Self { waiting_max, keep: Interval(keep), webhooks: BTreeMap::new() }
    }
}

/// One of them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Webhook {
    pub(in crate::config) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::config) token: Option<SecretText>,
    #[serde(default = "ten_seconds")]
    pub(in crate::config) timeout: Interval,
}

fn ten_seconds() -> Interval {
    Interval(Duration::from_secs(10))
}
