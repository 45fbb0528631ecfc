//! The nouns of object lock: what keeps a version from being removed.

use super::ids::{BucketId, UnixMs, VersionId};
use serde::{Deserialize, Serialize};

/// Who may end a retention before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetentionMode {
    /// Whoever may bypass governance.
    Governance,
    /// Nobody.
    Compliance,
}

/// A version that must stay until a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Who may end it earlier.
    pub mode: RetentionMode,
    /// The version may be removed from this moment on.
    pub until_ms: UnixMs,
}

/// What keeps a version from being removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionLock {
    /// Until a date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// Until somebody ends it: true while it is on, false when it was ended, `None` when nobody
    /// ever said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legal_hold: Option<bool>,
}

impl VersionLock {
    /// True when nobody ever said anything of retention or legal hold.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a legal hold is on.
    pub fn is_held(&self) -> bool {
        self.legal_hold == Some(true)
    }

    /// Whether the version must stay at `now_ms`. `bypass`: for one who may bypass governance.
    pub fn holds(&self, now_ms: UnixMs, bypass: bool) -> bool {
        self.is_held() || self.retention.is_some_and(|retention| retention.binds(now_ms, bypass))
    }

    /// What the lock becomes by a change; `None` when the retention does not allow it at `now_ms`.
    pub(crate) fn changed(self, change: LockChange, now_ms: UnixMs, bypass: bool) -> Option<Self> {
        let retention = match change {
            LockChange::LegalHold(on) => return Some(Self { legal_hold: Some(on), ..self }),
            LockChange::Retention(retention) => retention,
        };
        let weaker = match (self.retention, retention) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(old), Some(new)) => new.until_ms < old.until_ms || new.mode != old.mode,
        };
        let bound = self.retention.is_some_and(|retention| retention.binds(now_ms, bypass));
        if weaker && bound { None } else { Some(Self { retention, ..self }) }
    }
}

impl Retention {
    fn binds(&self, now_ms: UnixMs, bypass: bool) -> bool {
        self.until_ms > now_ms && !(bypass && self.mode == RetentionMode::Governance)
    }
}

/// A change of a version's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockChange {
    /// Another retention, or none.
    Retention(Option<Retention>),
    /// A legal hold, or none.
    LegalHold(bool),
}

/// A change of one version's lock. A retention that binds can be prolonged; it is shortened,
/// removed or given another mode only by those who may bypass it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockCommit {
    /// Bucket; it must have object lock.
    pub bucket: BucketId,
    /// Key.
    pub key: String,
    /// The version.
    pub id: VersionId,
    /// What changes.
    pub change: LockChange,
    /// Whether the writer may bypass governance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bypass_governance: bool,
    /// Now, by the writer's clock: a retention binds until it is over.
    pub now_ms: UnixMs,
    /// The writer's epoch.
    pub epoch: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use RetentionMode::{Compliance, Governance};

    fn until(mode: RetentionMode, until_ms: UnixMs) -> Option<Retention> {
        Some(Retention { mode, until_ms })
    }

    #[test]
    fn a_lock_holds_until_its_date_and_a_hold_until_it_ends() {
        let lock = |retention, on: bool| VersionLock { retention, legal_hold: Some(on) };
        for (lock, holds, holds_bypassed) in [
            (lock(None, false), false, false),
            (lock(None, true), true, true),
            (lock(until(Governance, 11), false), true, false),
            (lock(until(Governance, 10), false), false, false),
            (lock(until(Compliance, 11), false), true, true),
            (lock(until(Compliance, 10), false), false, false),
            (lock(until(Governance, 11), true), true, true),
        ] {
            assert_eq!((lock.holds(10, false), lock.holds(10, true)), (holds, holds_bypassed), "{lock:?}");
        }
    }

    #[test]
    fn a_retention_that_binds_is_only_ever_prolonged() {
        let changed = |from, to, bypass| {
            let lock = VersionLock { retention: from, legal_hold: None };
            lock.changed(LockChange::Retention(to), 10, bypass).map(|lock| lock.retention)
        };
        for (from, to, allowed, bypassed) in [
            (None, until(Compliance, 20), true, true),
            (until(Governance, 20), until(Governance, 30), true, true),
            (until(Governance, 20), until(Governance, 15), false, true),
            (until(Governance, 20), until(Compliance, 30), false, true),
            (until(Governance, 20), None, false, true),
            (until(Governance, 9), None, true, true),
            (until(Compliance, 20), until(Compliance, 30), true, true),
            (until(Compliance, 20), until(Compliance, 19), false, false),
            (until(Compliance, 20), until(Governance, 30), false, false),
            (until(Compliance, 20), None, false, false),
            (until(Compliance, 9), until(Governance, 30), true, true),
        ] {
            assert_eq!(changed(from, to, false), allowed.then_some(to), "{from:?} {to:?}");
            assert_eq!(changed(from, to, true), bypassed.then_some(to), "{from:?} {to:?}, bypassed");
        }
    }
}
