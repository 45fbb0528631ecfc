//! What a store vouches for: its newest lineage, and the newest backup of one.

use super::{
    document::LineageDocument,
    names::{BackupName, Lineage, lineage_name, sealed_lineage_name},
    vault::Vault,
};
use crate::error::EngineError;
use object_format::BlobKind;

impl Vault {
    /// The newest lineage that the store vouches for. `own` is the one of a catalog that is at
    /// hand, which needs no other witness.
    ///
    /// # Errors
    /// What the backend says; two of one generation.
    pub(super) async fn newest_lineage(&self, own: Option<Lineage>) -> Result<Option<Lineage>, EngineError> {
        let mut lineages = self.lineages().await?;
        while let Some(generation) = lineages.last().map(|newest| newest.generation()) {
            let mut newest = Vec::new();
            while let Some(lineage) = lineages.pop_if(|lineage| lineage.generation() == generation) {
                if own == Some(lineage) || self.vouches_for(lineage).await? {
                    newest.push(lineage);
                }
            }
            match newest[..] {
                [] => {}
                [newest] => return Ok(Some(newest)),
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

    /// Whether a lineage's document, or its sealed copy, is the store's own. Without keys every
    /// document is.
    async fn vouches_for(&self, lineage: Lineage) -> Result<bool, EngineError> {
        if !self.trust.is_only_sealed() || self.trust.knows(lineage) {
            return Ok(true);
        }
        let copy = self.read(&sealed_lineage_name(lineage)?, BlobKind::Journal).await?.filter(|copy| copy.sealed);
        let found = match copy {
            Some(copy) => Some(copy),
            None => self.get_trusted(&lineage_name(lineage)?, BlobKind::Journal).await?,
        };
        let Some(found) = found else { return Ok(false) };
        if !lineage.follows(LineageDocument::decode(&found.document)?.parent) {
            return Err(EngineError::Integrity(format!("lineage {lineage} does not follow the one that it names")));
        }
        self.trust.know(lineage);
        Ok(true)
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
}

#[cfg(test)]
mod tests;
