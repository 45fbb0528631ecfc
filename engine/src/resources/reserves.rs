//! What happens on full disks: which reserve is whose, what may take the last bytes, and when an
//! upload is refused.

use crate::error::EngineError;
use catalog::SpareSpace;
use std::{collections::BTreeMap, sync::Arc};
use storage_backends::{BlobName, Reserve};

/// Bytes that are kept on every disk for the moment when it is full.
pub const DISK_RESERVE_BYTES: u64 = 16 << 20;

/// The reserves of a deployment's disks. Places on one disk share theirs.
#[derive(Clone, Default)]
pub struct Reserves {
    /// Where an embedded catalog lies.
    pub data: Option<Arc<Reserve>>,
    /// Where local backends lie, by name.
    pub backends: BTreeMap<String, Arc<Reserve>>,
}

/// A reserve as the catalog sees it.
pub struct CatalogReserve(pub Arc<Reserve>);

impl SpareSpace for CatalogReserve {
    fn give_back(&self) -> bool {
        self.0.give_back()
    }

    fn is_spent(&self) -> bool {
        self.0.is_spent()
    }
}

/// Whether a file of this name may take a full disk's last bytes: the journal of what was deleted,
/// and what says whose the store is. Content, copies and backups may not.
pub fn may_take_the_last(name: &BlobName) -> bool {
    matches!(name.as_str().split_once('/'), Some(("journal" | "lineage" | "owner" | "keyset", _)))
}

impl Reserves {
    pub(super) fn places(&self) -> impl Iterator<Item = (String, &Arc<Reserve>)> {
        let backends = self.backends.iter().map(|(name, reserve)| (format!("backend/{name}"), reserve));
        self.data.iter().map(|reserve| ("data".to_owned(), reserve)).chain(backends)
    }

    /// Makes what is missing and finds room. Blocks.
    pub(super) fn make(&self) {
        for (_, reserve) in self.places() {
            reserve.make();
        }
    }

    /// Lets an upload to this backend begin.
    pub(super) async fn admit(&self, backend: &str) -> Result<(), EngineError> {
        for reserve in self.data.iter().chain(self.backends.get(backend)) {
            reserve.admit(0).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_space_may_take_the_last_bytes_and_content_may_not() {
        let may = |name: &str| may_take_the_last(&BlobName::new(name).unwrap());
        for name in ["journal/00000001-0a0b0c0d/0000000000000001", "owner/0000000000000001", "keyset/store-a"] {
            assert!(may(name), "{name}");
        }
        for name in ["blobs/0a", "copies/0a-0b", "backup/0a", "backup-part/0a", "journal"] {
            assert!(!may(name), "{name}");
        }
    }
}
