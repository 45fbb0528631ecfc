//! What was made of rows of buckets. Every request needs it, and rows hardly change: the catalog
//! gives the same one as long as it has not, so no row is looked at twice.

use catalog::Bucket;
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// Rows of which it is kept; when there are more, all are parsed anew.
const KEPT_MAX: usize = 1024;

/// What was made of each row, by the bucket's name. The row is kept too: no other one comes to lie
/// where it lies.
pub(super) struct RowsParsed<T>(RwLock<HashMap<String, (Arc<Bucket>, T)>>);

impl<T> Default for RowsParsed<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Clone> RowsParsed<T> {
    /// What was made of this very row.
    pub(super) fn of(&self, row: &Arc<Bucket>) -> Option<T> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        kept.get(&row.name).filter(|(of, _)| Arc::ptr_eq(of, row)).map(|(_, made)| made.clone())
    }

    /// Keeps what was made of a row. One that nobody else has is not given out again.
    pub(super) fn keep(&self, row: &Arc<Bucket>, made: &T) {
        if Arc::strong_count(row) == 1 {
            return;
        }
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(row.name.clone(), (row.clone(), made.clone()));
    }
}
