//! Which documents are read in a store that has keys: sealed ones. Whoever can write to the backend
//! can put an unsealed document under any name, so there it proves nothing
//! (docs/format/journal-v1.md §2).

use super::names::{BackupName, Lineage};
use crate::{error::EngineError, metrics::Metrics};
use catalog::Seq;
use object_format::KeyId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use storage_backends::BlobName;

/// Documents that are named in the log; all are counted.
const NAMED_MAX: usize = 10_000;

/// What a lineage's document says, and what sealed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Voucher {
    pub(super) parent: Option<Lineage>,
    /// `None` where documents need no seal.
    pub(super) sealed_by: Option<KeyId>,
}

/// What is read although it is not sealed, and what is known to be the store's own.
pub(super) struct Trust {
    sealed_only: AtomicBool,
    until: OnceLock<Seq>,
    vouched: Mutex<BTreeMap<Lineage, Voucher>>,
    /// The store key that the catalog names.
    store_key: OnceLock<KeyId>,
    /// Named in the log once.
    refused: Mutex<BTreeSet<String>>,
    metrics: Arc<Metrics>,
}

impl Trust {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            sealed_only: AtomicBool::new(false),
            until: OnceLock::new(),
            vouched: Mutex::default(),
            store_key: OnceLock::new(),
            refused: Mutex::default(),
            metrics,
        }
    }

    /// The store has keys: from now on nothing else is read.
    pub(super) fn only_sealed(&self) {
        self.sealed_only.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_only_sealed(&self) -> bool {
        self.sealed_only.load(Ordering::Relaxed)
    }

    /// But for documents that reach no further than this mutation: an operator says that the store
    /// was sealed after it.
    pub(super) fn accept_unsealed_until(&self, seq: Seq) {
        // Told once, when a recovery begins.
        let _ = self.until.set(seq);
    }

    /// What is known of a lineage whose document was found to be trustworthy.
    pub(super) fn voucher(&self, lineage: Lineage) -> Option<Voucher> {
        self.vouched.lock().unwrap_or_else(PoisonError::into_inner).get(&lineage).copied()
    }

    pub(super) fn note_voucher(&self, lineage: Lineage, voucher: Voucher) {
        self.vouched.lock().unwrap_or_else(PoisonError::into_inner).insert(lineage, voucher);
    }

    /// The catalog says which key seals its store's documents: it stays the same for good.
    pub(super) fn name_store_key(&self, key: KeyId) {
        let _ = self.store_key.set(key);
    }

    pub(super) fn store_key(&self) -> Option<KeyId> {
        self.store_key.get().copied()
    }

    /// Counts a document that is not believed, and names it in the log once.
    pub(super) fn refuse(&self, name: &BlobName, why: &str) {
        self.metrics.unsealed_documents_total.inc();
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever forges documents can make up names without end.
        if refused.len() < NAMED_MAX && refused.insert(name.as_str().to_owned()) {
            tracing::error!("{why}");
        }
    }

    /// Refuses a document that anybody may have written.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] that names it, and says what to do if it is the store's own.
    pub(super) fn check(&self, name: &BlobName, sealed: bool, document: &[u8]) -> Result<(), EngineError> {
        let reach = reach_of(name, document);
        let accepted = self.until.get().is_some_and(|until| reach.is_none_or(|reach| reach <= *until));
        if sealed || accepted || !self.is_only_sealed() {
            return Ok(());
        }
        let reach = reach.map_or_else(String::new, |reach| format!(", which reaches mutation {reach}"));
        let why = format!(
            "{name}{reach}, is not sealed, and this store has keys: anybody who can write to the backend may have put it there. If the \
             store was sealed later than that, `--accept-unsealed-until SEQ` reads unsealed documents up to mutation SEQ"
        );
        self.refuse(name, &why);
        Err(EngineError::Integrity(why))
    }
}

/// The last mutation that a document tells of; `None` for a part of a backup, which its index
/// vouches for.
fn reach_of(name: &BlobName, document: &[u8]) -> Option<Seq> {
    let number = |at: usize| {
        let bytes = document.get(at..at + 8)?.try_into().ok()?;
        Some(Seq::try_from(u64::from_le_bytes(bytes)).unwrap_or(Seq::MAX))
    };
    // What cannot be read reaches past everything.
    match name.as_str().split_once('/')? {
        ("journal", _) => Some(number(16).unwrap_or(Seq::MAX)),
        ("lineage", _) => Some(number(8).unwrap_or(Seq::MAX)),
        ("backup", name) => Some(name.parse::<BackupName>().map_or(Seq::MAX, |name| name.cut)),
        ("backup-part", _) => None,
        _ => Some(Seq::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_documents_are_all_counted_and_so_many_of_them_are_remembered() {
        let metrics = Metrics::new();
        let trust = Trust::new(metrics.clone());
        for number in 0..=NAMED_MAX {
            let name = BlobName::new(format!("journal/{number}")).expect("a name");
            trust.refuse(&name, "it is not sealed");
        }
        assert_eq!(trust.refused.lock().expect("no panic").len(), NAMED_MAX);
        assert_eq!(metrics.unsealed_documents_total.get(), NAMED_MAX as u64 + 1);
    }
}
