//! Notices: what others are told of a change, kept until somebody has told them.

use super::ids::{Seq, UnixMs, VersionId};
use serde::{Deserialize, Serialize};

/// A notice that a change leaves in its own transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNotice {
    /// Whom it is for: notices of one lane wait in the order of the changes.
    pub lane: String,
    /// The key it is about; empty when it is about a bucket.
    pub key: String,
    /// Which outcome of the change it tells of.
    #[serde(default, skip_serializing_if = "NoticeOf::is_any")]
    pub of: NoticeOf,
    /// What it says (opaque here).
    pub body: serde_json::Value,
    /// Since when it waits.
    pub at_ms: UnixMs,
    /// It is not left, only counted, while so many wait in its lane.
    pub waiting_max: u64,
}

/// Which outcome of a change a notice tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoticeOf {
    /// Whatever it gave.
    #[default]
    Any,
    /// A deletion that removed a version.
    Removal,
    /// A deletion that made a delete marker.
    Marker,
}

impl NoticeOf {
    /// True for the default.
    pub fn is_any(&self) -> bool {
        *self == Self::Any
    }
}

/// A notice that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The change it tells of: greater for later ones.
    pub seq: Seq,
    /// Its place among the notices of that change.
    pub ordinal: u32,
    /// The key it is about; empty when it is about a bucket.
    pub key: String,
    /// The version that the change made or removed, when that has a name of its own.
    pub version: Option<VersionId>,
    /// Since when it waits.
    pub at_ms: UnixMs,
    /// What it says.
    pub body: serde_json::Value,
}

/// Notices of one lane that need not wait any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticesDone {
    /// The lane.
    pub lane: String,
    /// Change and ordinal of each.
    pub places: Vec<(Seq, u32)>,
    /// Whether they are given up: nobody was told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

/// A lane in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeLane {
    /// The lane.
    pub lane: String,
    /// How many notices wait in it.
    pub waiting: u64,
    /// How many were ever given up, or not left because the lane was full.
    pub lost: u64,
    /// Since when the first of them waits.
    pub oldest_ms: Option<UnixMs>,
}
