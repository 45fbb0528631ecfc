//! What a bucket's rules say of versions, in the order of their listing. Removes nothing: the job
//! `lifecycle` and its dry run both ask here.

use super::rules::{Calendar, Lifecycle, RuleSubject};
use crate::{bucket::BucketHandle, error::EngineError, read::object::ReadPath};
use catalog::{Precondition, UnixMs, Version};
use std::collections::BTreeMap;

/// Something that is over.
pub(crate) enum Due {
    Current { key: String, version: Version },
    Noncurrent { version: Version, current: Precondition },
    Marker { version: Version },
}

/// The versions of one key as they are met, newest first.
pub(crate) struct Key {
    pub(crate) name: String,
    /// What must still hold of the key when one of its older versions is removed.
    current: Precondition,
    /// Since when the next older version is not current.
    since_ms: UnixMs,
    /// How many were met that are not current.
    noncurrent: u32,
    /// The newest version, while it is a delete marker and nothing was met behind it.
    lone_marker: Option<Version>,
}

/// A bucket's rules at work.
pub(crate) struct Judge<'a> {
    pub(crate) read: &'a ReadPath,
    pub(crate) bucket: &'a BucketHandle,
    pub(crate) rules: Lifecycle,
    pub(crate) calendar: Calendar,
}

impl Judge<'_> {
    /// Looks at one version, in the order of the listing.
    pub(crate) fn judge(
        &self,
        key: &mut Option<Key>,
        version: Version,
        latest: bool,
        now_ms: UnixMs,
        due: &mut Vec<Due>,
    ) -> Result<(), EngineError> {
        if latest || key.as_ref().is_none_or(|key| key.name != version.key) {
            due.extend(key.take().and_then(|key| self.lone_marker(key, now_ms)));
            let current = if version.marker { Precondition::Absent } else { Precondition::Current(version.id) };
            *key = Some(Key {
                name: version.key.clone(),
                current,
                since_ms: version.modified_ms,
                noncurrent: 0,
                lone_marker: version.marker.then(|| version.clone()),
            });
            if !version.marker {
                let tags = self.tags_of(&version)?;
                let expiry = self.rules.expiry(&candidate(&version, &tags), self.calendar);
                if expiry.is_some_and(|(at_ms, _)| at_ms <= now_ms) {
                    due.push(Due::Current { key: version.key.clone(), version });
                }
            }
            return Ok(());
        }
        let Some(key) = key else { return Ok(()) };
        key.lone_marker = None;
        let tags = self.tags_of(&version)?;
        let (since_ms, newer) = (key.since_ms, key.noncurrent);
        key.since_ms = version.modified_ms;
        key.noncurrent = key.noncurrent.saturating_add(1);
        if self.rules.drops_noncurrent(&candidate(&version, &tags), since_ms, newer, now_ms, self.calendar) {
            due.push(Due::Noncurrent { version, current: key.current });
        }
        Ok(())
    }

    pub(crate) fn lone_marker(&self, key: Key, now_ms: UnixMs) -> Option<Due> {
        let version = key.lone_marker?;
        let drops = self.rules.drops_lone_marker(&key.name, version.modified_ms, now_ms, self.calendar);
        drops.then_some(Due::Marker { version })
    }

    fn tags_of(&self, version: &Version) -> Result<BTreeMap<String, String>, EngineError> {
        if version.marker || !self.rules.wants_tags() {
            return Ok(BTreeMap::new());
        }
        Ok(self.read.open_facts(self.bucket, version)?.tags)
    }
}

fn candidate<'a>(version: &'a Version, tags: &'a BTreeMap<String, String>) -> RuleSubject<'a> {
    RuleSubject { key: &version.key, size: version.size, tags, modified_ms: version.modified_ms }
}
