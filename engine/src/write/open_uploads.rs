//! How many multipart uploads one owner may have open. Counting them costs a look at the catalog,
//! so an owner far from the bound is counted once for as many uploads as it may still open.

use crate::error::EngineError;
use catalog::Catalog;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Uploads that are opened before an owner is counted again: other processes open some, too.
const COUNT_EVERY: u64 = 1000;
/// How long an owner who had too many is refused without another count.
const REFUSED_FOR: Duration = Duration::from_secs(1);
/// Owners that are remembered; when there are more, all are counted anew.
const OWNERS_MAX: usize = 10_000;

/// The bound, and what is left of it to whom.
pub(crate) struct OpenUploads {
    per_owner_max: u64,
    owners: Mutex<HashMap<String, Standing>>,
}

#[derive(Clone, Copy)]
enum Standing {
    /// So many more may be opened before the next count.
    Left(u64),
    Refused(Instant),
}

impl OpenUploads {
    pub(crate) fn new(per_owner_max: u64) -> Self {
        Self { per_owner_max, owners: Mutex::default() }
    }

    /// Lets an owner open one more.
    ///
    /// # Errors
    /// [`EngineError::Busy`] when it has too many; [`EngineError`] when the catalog fails.
    pub(crate) async fn admit(&self, catalog: &dyn Catalog, owner: &str) -> Result<(), EngineError> {
        let standing = self.owners().get(owner).copied();
        match standing {
            Some(Standing::Left(left @ 1..)) => {
                self.set(owner, Standing::Left(left - 1));
                return Ok(());
            }
            Some(Standing::Refused(until)) if Instant::now() < until => return Err(EngineError::Busy("open uploads")),
            _ => {}
        }
        let open = catalog.open_uploads(owner, self.per_owner_max).await?;
        match self.per_owner_max.saturating_sub(open) {
            0 => {
                self.set(owner, Standing::Refused(Instant::now() + REFUSED_FOR));
                Err(EngineError::Busy("open uploads"))
            }
            left => {
                self.set(owner, Standing::Left((left - 1).min(COUNT_EVERY)));
                Ok(())
            }
        }
    }

    fn set(&self, owner: &str, standing: Standing) {
        let mut owners = self.owners();
        if owners.len() >= OWNERS_MAX && !owners.contains_key(owner) {
            owners.clear();
        }
        owners.insert(owner.to_owned(), standing);
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Standing>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_owners_are_remembered_than_there_is_room_for() {
        let open = OpenUploads::new(1000);
        (0..=OWNERS_MAX).for_each(|owner| open.set(&owner.to_string(), Standing::Left(1)));
        assert_eq!(open.owners().len(), 1, "all were forgotten for the last one");
        open.set("another", Standing::Left(1));
        open.set("another", Standing::Left(2));
        assert_eq!(open.owners().len(), 2);
    }
}
