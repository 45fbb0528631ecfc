//! What a store vouches for: its newest lineage, and the newest backup of one.

use super::{
    document::LineageDocument,
    names::{BackupName, Lineage, lineage_name, sealed_lineage_name},
    trust::Voucher,
    vault::{OpenedDocument, Vault},
};
use crate::error::EngineError;
use object_format::{BlobKind, KeyId};
use std::collections::{BTreeMap, BTreeSet};

impl Vault {
    /// The newest lineage that the store vouches for. `own` is the one of a catalog that is at
    /// hand, which needs no other witness.
    ///
    /// # Errors
    /// What the backend says; two of one generation, or of two stores.
    pub(super) async fn newest_lineage(&self, own: Option<Lineage>) -> Result<Option<Lineage>, EngineError> {
        let mut lineages = self.lineages().await?;
        while let Some(generation) = lineages.last().map(|newest| newest.generation()) {
            let mut newest = Vec::new();
            while let Some(lineage) = lineages.pop_if(|lineage| lineage.generation() == generation) {
                if own == Some(lineage) || self.vouches_for(lineage, own).await? {
                    newest.push(lineage);
                }
            }
            match newest[..] {
                [] => {}
                [newest] => {
                    if own.is_none() {
                        self.refuse_two_stores(newest, &lineages).await?;
                    }
                    return Ok(Some(newest));
                }
                _ => {
                    return Err(EngineError::Other(format!(
                        "two catalogs went on from the same state of this store: {newest:?}. Name the backup of the right one with \
                         `deltaweir restore --backup`, and delete the other's `lineage/` blob"
                    )));
                }
            }
        }
        Ok(None)
    }

    /// Whether a lineage's document is the store's own. Without keys every document is. With a
    /// catalog at hand, one that does not open or is of another store counts for nothing; without,
    /// one that does not open may be the newest there is, and is an error.
    async fn vouches_for(&self, lineage: Lineage, own: Option<Lineage>) -> Result<bool, EngineError> {
        if !self.trust.is_only_sealed() {
            return Ok(true);
        }
        let name = lineage_name(lineage)?;
        let voucher = match (self.voucher(lineage).await, own) {
            (Ok(Some(voucher)), _) => voucher,
            (Ok(None), _) => return Ok(false),
            (Err(error), Some(_)) if does_not_open(&error) => {
                self.trust.refuse(&name, &format!("{name} counts for nothing, because it does not open: {error}"));
                return Ok(false);
            }
            (Err(error), None) if does_not_open(&error) => {
                return Err(EngineError::Integrity(format!(
                    "{name} does not open: {error}. If the store is not newer than what comes before it, somebody has put it there: \
                     delete it"
                )));
            }
            (Err(error), _) => return Err(error),
        };
        let (Some(own), Some(key)) = (own, self.trust.store_key()) else { return Ok(true) };
        if voucher.sealed_by == Some(key) || self.are_related(lineage, own).await? {
            return Ok(true);
        }
        self.trust.refuse(&name, &format!("{name} counts for nothing: it is of another store, whose KEK is the same"));
        Ok(false)
    }

    /// What a lineage's document says; `None` when nothing that is to be trusted says it.
    async fn voucher(&self, lineage: Lineage) -> Result<Option<Voucher>, EngineError> {
        if let Some(voucher) = self.trust.voucher(lineage) {
            return Ok(Some(voucher));
        }
        let (document, sealed_by) = match self.sealed_lineage(lineage).await? {
            Some((document, key)) => (document, Some(key)),
            None => match self.get_trusted(&lineage_name(lineage)?, BlobKind::Journal).await? {
                Some(found) => (LineageDocument::decode(&found.document)?, found.sealed_by),
                None => {
                    // A copy that does not open may be the seal of one that was written without: it
                    // is told, and not taken for absent.
                    self.read(&sealed_lineage_name(lineage)?, BlobKind::Journal).await?;
                    return Ok(None);
                }
            },
        };
        if !lineage.follows(document.parent) {
            return Err(EngineError::Integrity(format!("lineage {lineage} does not follow the one that it names")));
        }
        let voucher = Voucher { parent: document.parent, sealed_by };
        self.trust.note_voucher(lineage, voucher);
        Ok(Some(voucher))
    }

    /// The sealed copy of a lineage's document, and its key; `None` when there is none that opens.
    ///
    /// # Errors
    /// What the backend says.
    pub(super) async fn sealed_lineage(
        &self,
        lineage: Lineage,
    ) -> Result<Option<(LineageDocument, KeyId)>, EngineError> {
        let copy = match self.read(&sealed_lineage_name(lineage)?, BlobKind::Journal).await {
            Err(error) if does_not_open(&error) => None,
            found => found?,
        };
        let Some(OpenedDocument { document, sealed_by: Some(key), .. }) = copy else { return Ok(None) };
        Ok(Some((LineageDocument::decode(&document)?, key)))
    }

    /// Whether two lineages go back to the same one, as far as the documents are there: then they
    /// are of one store, whatever seals them.
    async fn are_related(&self, one: Lineage, other: Lineage) -> Result<bool, EngineError> {
        Ok(!self.ancestry(one).await?.is_disjoint(&self.ancestry(other).await?))
    }

    /// A lineage and those that come before it.
    async fn ancestry(&self, lineage: Lineage) -> Result<BTreeSet<Lineage>, EngineError> {
        let (mut ancestry, mut at) = (BTreeSet::new(), Some(lineage));
        while let Some(lineage) = at {
            ancestry.insert(lineage);
            at = match self.voucher(lineage).await {
                Err(error) if does_not_open(&error) => None,
                voucher => voucher?.and_then(|voucher| voucher.parent),
            };
        }
        Ok(ancestry)
    }

    /// Refuses to choose between the documents of two stores with one KEK: whoever can write to
    /// both can copy one's beside the other's.
    async fn refuse_two_stores(&self, newest: Lineage, others: &[Lineage]) -> Result<(), EngineError> {
        #[cfg(test)]
        if self.without.stores {
            return Ok(());
        }
        if !self.trust.is_only_sealed() {
            return Ok(());
        }
        let mut keys = BTreeMap::new();
        for lineage in others.iter().chain([&newest]).copied() {
            match self.voucher(lineage).await {
                Err(error) if does_not_open(&error) => {}
                // One that is believed though it has no seal was told to be.
                voucher => drop(voucher?.and_then(|voucher| keys.insert(lineage, voucher.sealed_by?))),
            }
        }
        let Some(key) = keys.remove(&newest) else { return Ok(()) };
        for (lineage, other) in keys {
            if other != key && !self.are_related(newest, lineage).await? {
                return Err(EngineError::Other(format!(
                    "the documents of two stores with one KEK lie here: lineage {newest} is sealed with store key {key}, and lineage \
                     {lineage} with {other}. Delete the `lineage/` blobs of the one that is not yours, or name a backup of yours with \
                     `deltaweir restore --backup`"
                )));
            }
        }
        Ok(())
    }

    /// The newest backup of a lineage that the store vouches for. One that cannot be read is named:
    /// who reads it says why.
    ///
    /// # Errors
    /// What the backend says.
    pub(super) async fn newest_backup(&self, lineage: Lineage) -> Result<Option<BackupName>, EngineError> {
        for name in self.backups_of(lineage).await?.into_iter().rev() {
            let passed_over = self.trust.is_only_sealed()
                && matches!(self.get_trusted(&name.index()?, BlobKind::Backup).await, Ok(None));
            if !passed_over {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Whether another process has made a backup since `read` was the newest one, or has removed
    /// that one: a listing may be older than what it lists.
    ///
    /// # Errors
    /// What the backend says.
    pub(super) async fn is_overtaken(&self, lineage: Lineage, read: Option<BackupName>) -> Result<bool, EngineError> {
        if self.newest_backup(lineage).await? != read {
            return Ok(true);
        }
        match read {
            Some(name) => Ok(!self.holds(&name.index()?).await?),
            None => Ok(false),
        }
    }

    /// The newest backup of a lineage that opens: what anybody can make up neither shows that a
    /// catalog is older nor takes the place of the last one that a recovery can use.
    ///
    /// # Errors
    /// What the backend says.
    pub(super) async fn newest_whole_backup(&self, lineage: Lineage) -> Result<Option<BackupName>, EngineError> {
        for name in self.backups_of(lineage).await?.into_iter().rev() {
            match self.index(&name).await {
                Ok(_) => return Ok(Some(name)),
                Err(error) if does_not_open(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Whoever reads backups has been overtaken ([`Vault::is_overtaken`]) as often as it looks again.
pub(super) fn overtaken_too_often() -> EngineError {
    EngineError::Unavailable(
        "backups are removed faster than they can be read, or the store lists some that are gone".into(),
    )
}

/// Whether a document is not what was written, rather than that its store, a key or a disk gives
/// nothing just now.
pub(super) fn does_not_open(error: &EngineError) -> bool {
    matches!(error, EngineError::Integrity(_))
}

/// Checks that are left out: each is what a build without it would read.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Without {
    /// What does not open is taken for absent.
    pub(super) damage: bool,
    /// Documents of two stores are one's.
    pub(super) stores: bool,
}

#[cfg(test)]
mod forged;
#[cfg(test)]
mod tests;
