//! Rows of buckets as they are now. Every request needs one, and they hardly change; asking the
//! database costs a small request a tenth of its time.
//!
//! Only where one process owns the database: whoever writes says so before a change of buckets can
//! be seen and after all of it can, and in between nothing is kept or given out. So a row that is
//! given out is the one that the database would have given at that moment.

use crate::types::Bucket;
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// Rows that are kept; when there are more, all are read anew.
const KEPT_MAX: usize = 1024;

/// The rows, by name.
#[derive(Default)]
pub(crate) struct KeptBuckets(RwLock<State>);

#[derive(Default)]
struct State {
    /// Changes that began or ended so far.
    generation: u64,
    /// Changes under way.
    changing: usize,
    rows: HashMap<String, Arc<Bucket>>,
}

/// When a question was asked: what it finds is kept if nothing has changed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked(u64);

/// Buckets may be changing until this is dropped.
pub(crate) struct Changing<'a>(&'a KeptBuckets);

impl KeptBuckets {
    /// A bucket's row, if it is known.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Bucket>> {
        self.read().rows.get(name).cloned()
    }

    /// To be taken before the database is asked; `None` while buckets are changing.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let state = self.read();
        (state.changing == 0).then_some(Asked(state.generation))
    }

    /// Keeps what a question gave.
    pub(crate) fn keep(&self, asked: Asked, row: &Arc<Bucket>) {
        let mut state = self.write();
        if state.changing > 0 || state.generation != asked.0 {
            return;
        }
        if state.rows.len() >= KEPT_MAX {
            state.rows.clear();
        }
        state.rows.insert(row.name.clone(), row.clone());
    }

    /// Forgets everything, and keeps nothing until what is returned is dropped.
    pub(crate) fn changing(&self) -> Changing<'_> {
        let mut state = self.write();
        state.changing += 1;
        state.forget();
        Changing(self)
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn forget(&mut self) {
        self.generation += 1;
        self.rows.clear();
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.write();
        state.changing -= 1;
        state.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BucketId, Versioning};

    fn bucket(name: &str) -> Arc<Bucket> {
        Arc::new(Bucket {
            id: BucketId(1),
            name: name.into(),
            owner: "owner".into(),
            created_ms: 0,
            settings: serde_json::json!({}),
            versioning: Versioning::Off,
            object_lock: false,
        })
    }

    #[test]
    fn a_row_is_kept_until_buckets_change() {
        let kept = KeptBuckets::default();
        kept.keep(kept.asked().unwrap(), &bucket("a"));
        let (one, other) = (kept.get("a").unwrap(), kept.get("a").unwrap());
        assert!(one == bucket("a") && Arc::ptr_eq(&one, &other));
        assert_eq!(kept.get("b"), None);
        let changing = kept.changing();
        assert_eq!(kept.get("a"), None);
        drop(changing);
        assert_eq!(kept.get("a"), None);
    }

    #[test]
    fn what_was_asked_before_or_during_a_change_is_not_kept() {
        let kept = KeptBuckets::default();
        let before = kept.asked().unwrap();
        let changing = kept.changing();
        assert_eq!(kept.asked(), None);
        kept.keep(before, &bucket("a"));
        drop(changing);
        kept.keep(before, &bucket("a"));
        assert_eq!(kept.get("a"), None);
        kept.keep(kept.asked().unwrap(), &bucket("a"));
        assert_eq!(kept.get("a"), Some(bucket("a")));
    }

    #[test]
    fn rows_are_bounded() {
        let kept = KeptBuckets::default();
        for number in 0..KEPT_MAX + 1 {
            kept.keep(kept.asked().unwrap(), &bucket(&number.to_string()));
        }
        assert_eq!((kept.read().rows.len(), kept.get("0")), (1, None));
    }
}
