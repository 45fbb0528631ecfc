//! How much may be held, and how much is.

use super::ids::BucketId;
use serde::{Deserialize, Serialize};

/// What a quota begins with among the settings.
const SETTING: &str = "quota/";

/// Whom a quota is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaOf {
    /// A bucket.
    Bucket(BucketId),
    /// All buckets of an owner together.
    Owner(String),
}

impl QuotaOf {
    /// The name of the setting that keeps it: its limits as JSON, null for none.
    pub fn setting(&self) -> String {
        match self {
            Self::Bucket(id) => format!("{SETTING}bucket/{}", id.0),
            Self::Owner(id) => format!("{SETTING}owner/{id}"),
        }
    }

    pub(crate) fn of_setting(name: &str) -> Option<Self> {
        match name.strip_prefix(SETTING)?.split_once('/')? {
            ("bucket", id) => Some(Self::Bucket(BucketId(id.parse().ok()?))),
            ("owner", id) => Some(Self::Owner(id.to_owned())),
            _ => None,
        }
    }
}

/// The most that may be held; `None`: as much as there is room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaLimits {
    /// Bytes of versions as clients wrote them, and of parts of open uploads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Versions; delete markers are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
}

/// What is to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of what it takes the place of; `None`: of nothing.
    pub replaces: Option<u64>,
    /// Whether it is a version, and not a part.
    pub is_version: bool,
}

/// What is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Bytes of versions as clients wrote them, and of parts of open uploads.
    pub bytes: u64,
    /// Versions; delete markers are none.
    pub objects: u64,
}
