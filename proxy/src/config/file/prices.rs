//! `[prices]` of the file.

use serde::{Deserialize, Serialize};

/// What the store of this deployment costs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Prices {
    #[serde(default = "dollars")]
    pub(in crate::config) currency: String,
    pub(in crate::config) gb_month: f64,
    #[serde(default)]
    pub(in crate::config) writes_1000: f64,
    #[serde(default)]
    pub(in crate::config) reads_1000: f64,
}

fn dollars() -> String {
    "USD".into()
}
