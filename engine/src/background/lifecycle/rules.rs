//! The rules of a bucket's lifecycle, and when they are due. Pure.

use catalog::UnixMs;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// A bucket's lifecycle as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// The client's document, for the client.
    pub document: String,
    /// What of it is followed.
    pub rules: Vec<LifecycleRule>,
    /// The least size of objects that transitions move, in S3's words, where the client named one.
    /// It is told, and nothing is moved.
    #[serde(default)]
    pub least_size: Option<String>,
}

/// One rule that is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifecycleRule {
    /// Its name.
    pub id: String,
    /// The key starts with this.
    pub prefix: String,
    /// The object has all of these tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// It is larger than so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub larger_than: Option<u64>,
    /// It is smaller than so many bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smaller_than: Option<u64>,
    /// When a current version goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Expires>,
    /// Whether a delete marker goes when no version is left behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lone_markers: bool,
    /// When a version goes that is not current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noncurrent: Option<Noncurrent>,
    /// After how many days an upload that nobody completed is aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_days: Option<u32>,
}

/// When a current version goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expires {
    /// So many days after it was written.
    Days(u32),
    /// From this moment on.
    Date(UnixMs),
}

/// When a version goes that is not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noncurrent {
    /// So many days after a newer one took its place.
    pub days: u32,
    /// So many of the newest that are not current stay.
    pub newer: u32,
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
pub struct RuleSubject<'a> {
    /// The key.
    pub key: &'a str,
    /// The version's size in bytes.
    pub size: u64,
    /// Its tags.
    pub tags: &'a BTreeMap<String, String>,
    /// Its Last-Modified.
    pub modified_ms: UnixMs,
}

/// How long a day is, and when one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    day_ms: UnixMs,
}

const DAY_MS: UnixMs = 86_400_000;

impl Calendar {
    /// Days of 24 hours.
    pub const REAL: Self = Self { day_ms: DAY_MS };

    /// Days that are as long as `day`; another length than 24 hours is for tests.
    pub fn of(day: Duration) -> Self {
        Self { day_ms: UnixMs::try_from(day.as_millis()).unwrap_or(DAY_MS).max(1) }
    }

    /// The moment `days` days after another. Real days end at the next midnight UTC, as in S3;
    /// shortened ones end at once.
    pub fn after(self, from_ms: UnixMs, days: u32) -> UnixMs {
        let due = from_ms.saturating_add(self.day_ms.saturating_mul(UnixMs::from(days)));
        if self == Self::REAL { due.div_euclid(DAY_MS).saturating_add(1).saturating_mul(DAY_MS) } else { due }
    }
}

impl LifecycleRule {
    fn concerns(&self, candidate: &RuleSubject<'_>) -> bool {
        candidate.key.starts_with(&self.prefix)
            && self.larger_than.is_none_or(|size| candidate.size > size)
            && self.smaller_than.is_none_or(|size| candidate.size < size)
            && self.tags.iter().all(|(key, value)| candidate.tags.get(key) == Some(value))
    }

    fn looks_at_content(&self) -> bool {
        !self.tags.is_empty() || self.larger_than.is_some() || self.smaller_than.is_some()
    }

    fn expires_at(&self, modified_ms: UnixMs, calendar: Calendar) -> Option<UnixMs> {
        match self.expires? {
            Expires::Days(days) => Some(calendar.after(modified_ms, days)),
            Expires::Date(at_ms) => Some(at_ms),
        }
    }
}

impl Lifecycle {
    /// Whether a rule asks for tags, which stand in an object's facts.
    pub fn wants_tags(&self) -> bool {
        self.rules.iter().any(|rule| !rule.tags.is_empty())
    }

    /// When a current version goes, and by which rule: the first moment of all.
    pub fn expiry(&self, candidate: &RuleSubject<'_>, calendar: Calendar) -> Option<(UnixMs, &str)> {
        let due = |rule: &&LifecycleRule| rule.concerns(candidate);
        let of_rule = |rule: &'_ LifecycleRule| rule.expires_at(candidate.modified_ms, calendar);
        let rules = self.rules.iter().filter(due);
        let dates = rules.filter_map(|rule| Some((of_rule(rule)?, rule.id.as_str())));
        dates.min_by_key(|(at_ms, _)| *at_ms)
    }

    /// Whether a version goes that stopped being current at `since_ms` and has `newer` newer ones
    /// that are not current either.
    pub fn drops_noncurrent(
        &self,
        candidate: &RuleSubject<'_>,
        since_ms: UnixMs,
        newer: u32,
        now_ms: UnixMs,
        calendar: Calendar,
    ) -> bool {
        self.rules.iter().filter(|rule| rule.concerns(candidate)).any(|rule| {
            rule.noncurrent.is_some_and(|noncurrent| {
                newer >= noncurrent.newer && calendar.after(since_ms, noncurrent.days) <= now_ms
            })
        })
    }

    /// Whether a delete marker goes that has no version behind it: at once where a rule says so,
    /// otherwise at the age at which an object would.
    pub fn drops_lone_marker(&self, key: &str, modified_ms: UnixMs, now_ms: UnixMs, calendar: Calendar) -> bool {
        self.rules.iter().filter(|rule| key.starts_with(&rule.prefix) && !rule.looks_at_content()).any(|rule| {
            rule.lone_markers || rule.expires_at(modified_ms, calendar).is_some_and(|at_ms| at_ms <= now_ms)
        })
    }

    /// When an upload is aborted that nobody completes, and by which rule.
    pub fn abort(&self, key: &str, created_ms: UnixMs, calendar: Calendar) -> Option<(UnixMs, &str)> {
        let rules = self.rules.iter().filter(|rule| key.starts_with(&rule.prefix));
        let dates = rules.filter_map(|rule| Some((calendar.after(created_ms, rule.abort_days?), rule.id.as_str())));
        dates.min_by_key(|(at_ms, _)| *at_ms)
    }

    /// What every key starts with that some rule is about.
    pub(crate) fn prefix(&self) -> &str {
        let Some(first) = self.rules.first() else { return "" };
        let mut len = first.prefix.len();
        for rule in &self.rules[1..] {
            let shared = first.prefix.bytes().zip(rule.prefix.bytes()).take_while(|(a, b)| a == b).count();
            len = len.min(shared);
        }
        while !first.prefix.is_char_boundary(len) {
            len -= 1;
        }
        &first.prefix[..len]
    }

    /// Whether versions must be looked at.
    pub(crate) fn concerns_versions(&self) -> bool {
        self.rules.iter().any(|rule| rule.expires.is_some() || rule.noncurrent.is_some() || rule.lone_markers)
    }

    /// Whether uploads must be.
    pub(crate) fn concerns_uploads(&self) -> bool {
        self.rules.iter().any(|rule| rule.abort_days.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: UnixMs = 10 * DAY_MS + DAY_MS / 2;

    fn rule(prefix: &str) -> LifecycleRule {
        LifecycleRule { id: format!("of {prefix}"), prefix: prefix.into(), ..LifecycleRule::default() }
    }

    fn candidate<'a>(key: &'a str, size: u64, tags: &'a BTreeMap<String, String>) -> RuleSubject<'a> {
        RuleSubject { key, size, tags, modified_ms: NOON }
    }

    #[test]
    fn days_end_at_the_next_midnight_and_shortened_ones_at_once() {
        assert_eq!(Calendar::REAL.after(NOON, 1), 12 * DAY_MS);
        assert_eq!(Calendar::REAL.after(10 * DAY_MS, 1), 12 * DAY_MS);
        assert_eq!(Calendar::of(Duration::from_secs(10)).after(NOON, 3), NOON + 30_000);
        assert_eq!(Calendar::of(Duration::from_secs(86_400)), Calendar::REAL);
    }

    #[test]
    fn the_first_rule_to_be_due_of_those_that_concern_an_object_counts() {
        let tags = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let none = BTreeMap::new();
        let rules = vec![
            LifecycleRule { expires: Some(Expires::Days(5)), ..rule("") },
            LifecycleRule { expires: Some(Expires::Days(2)), tags: tags.clone(), ..rule("p/") },
            LifecycleRule {
                expires: Some(Expires::Days(1)),
                larger_than: Some(10),
                smaller_than: Some(20),
                ..rule("s")
            },
            LifecycleRule { expires: Some(Expires::Date(11 * DAY_MS)), ..rule("old") },
        ];
        let lifecycle = Lifecycle { rules, ..Lifecycle::default() };
        let expiry = |key, size, tags| {
            lifecycle.expiry(&candidate(key, size, tags), Calendar::REAL).map(|(at, id)| (at / DAY_MS, id.to_owned()))
        };
        assert_eq!(expiry("x", 0, &none), Some((16, "of ".into())));
        assert_eq!(expiry("p/x", 0, &none), Some((16, "of ".into())));
        assert_eq!(expiry("p/x", 0, &tags), Some((13, "of p/".into())));
        assert_eq!(expiry("s", 11, &none), Some((12, "of s".into())));
        for size in [10, 20] {
            assert_eq!(expiry("s", size, &none), Some((16, "of ".into())));
        }
        assert_eq!(expiry("old", 0, &none), Some((11, "of old".into())));
        assert_eq!(lifecycle.prefix(), "");
    }

    #[test]
    fn versions_that_are_not_current_go_by_age_and_number() {
        let keep = LifecycleRule { noncurrent: Some(Noncurrent { days: 1, newer: 2 }), ..rule("k") };
        let lifecycle = Lifecycle { rules: vec![keep], ..Lifecycle::default() };
        let none = BTreeMap::new();
        let drops =
            |newer, now_ms| lifecycle.drops_noncurrent(&candidate("k", 0, &none), NOON, newer, now_ms, Calendar::REAL);
        assert!(!drops(1, 99 * DAY_MS) && !drops(2, 12 * DAY_MS - 1) && drops(2, 12 * DAY_MS));
    }

    #[test]
    fn a_marker_without_versions_goes_at_once_or_at_the_age_of_an_object() {
        let at_once =
            Lifecycle { rules: vec![LifecycleRule { lone_markers: true, ..rule("a") }], ..Lifecycle::default() };
        let aged = LifecycleRule { expires: Some(Expires::Days(1)), ..rule("") };
        let tagged = LifecycleRule { tags: BTreeMap::from([("a".into(), "b".into())]), ..aged.clone() };
        let drops = |lifecycle: &Lifecycle, key, now_ms| lifecycle.drops_lone_marker(key, NOON, now_ms, Calendar::REAL);
        assert!(drops(&at_once, "a", NOON) && !drops(&at_once, "b", NOON));
        let aged = Lifecycle { rules: vec![aged], ..Lifecycle::default() };
        assert!(!drops(&aged, "a", NOON) && drops(&aged, "a", 12 * DAY_MS));
        let tagged = Lifecycle { rules: vec![tagged], ..Lifecycle::default() };
        assert!(!drops(&tagged, "a", 99 * DAY_MS), "a marker has no tags");
    }

    #[test]
    fn rules_share_the_prefix_of_all_of_them() {
        let lifecycle = |prefixes: &[&str]| Lifecycle {
            rules: prefixes.iter().map(|prefix| rule(prefix)).collect(),
            ..Lifecycle::default()
        };
        assert_eq!(lifecycle(&["logs/a", "logs/b"]).prefix(), "logs/");
        assert_eq!(lifecycle(&["ä", "å"]).prefix(), "");
        assert_eq!(lifecycle(&["a", ""]).prefix(), "");
    }
}
