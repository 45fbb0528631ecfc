//! Which commits may go in: the rules that need no more than the commit and the rows it names.
//! Pure.

use crate::{CatalogError, Result, types::*};
use std::collections::{BTreeMap, BTreeSet};

/// Most bases of one delta (I2).
const BASES_MAX: usize = 256;

/// What a commit says about content: the blobs it brings and the extents that use them.
pub(crate) struct Content<'a> {
    pub(crate) bucket: BucketId,
    pub(crate) epoch: u32,
    pub(crate) new_blobs: &'a [NewBlob],
    pub(crate) extents: &'a [Extent],
    /// What the extents must add up to.
    pub(crate) size: u64,
}

/// The facts about an existing blob that decide whether it may be referenced.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) bucket: BucketId,
    pub(crate) key_epoch: u32,
    pub(crate) backend: String,
    pub(crate) form: BlobForm,
    pub(crate) state: BlobState,
    pub(crate) plain_len: u64,
    /// Its content lies in an original.
    pub(crate) foreign: bool,
    /// It was found damaged.
    pub(crate) quarantined: bool,
}

impl Known {
    fn of(row: &BlobRow) -> Self {
        Known {
            bucket: row.bucket,
            key_epoch: row.key_epoch,
            backend: row.backend.clone(),
            form: row.form,
            state: row.state,
            plain_len: row.plain_len,
            foreign: row.original.is_some(),
            quarantined: false,
        }
    }
}

impl Content<'_> {
    /// Existing blobs the commit references, in order of id: the order in which their rows are
    /// locked.
    pub(crate) fn existing(&self) -> BTreeSet<BlobKey> {
        let new: BTreeSet<_> = self.new_blobs.iter().map(|blob| blob.row.id).collect();
        let bases = self.new_blobs.iter().flat_map(|blob| blob.bases.iter().copied());
        let named: BTreeSet<_> = self.extents.iter().map(|extent| extent.blob).chain(bases).collect();
        named.difference(&new).copied().collect()
    }

    /// Checks everything that does not depend on the catalog's rows.
    pub(crate) fn check_shape(&self) -> Result<()> {
        let mut total = 0u64;
        for extent in self.extents {
            if extent.len == 0 {
                return invalid("an extent is empty");
            }
            total = total.checked_add(extent.len).ok_or_else(|| CatalogError::Invalid("extents overflow".into()))?;
        }
        if total != self.size {
            return invalid(format!("extents add up to {total}, not {}", self.size));
        }
        let mut used: BTreeSet<_> = self.extents.iter().map(|extent| extent.blob).collect();
        used.extend(self.new_blobs.iter().flat_map(|blob| blob.bases.iter().copied()));
        let mut ids = BTreeSet::new();
        for NewBlob { row, bases, .. } in self.new_blobs {
            if !ids.insert(row.id) {
                return invalid("a new blob is named twice");
            }
            if !used.contains(&row.id) {
                return invalid("a new blob is not referenced by its commit");
            }
            if row.id.0[..4] != self.epoch.to_be_bytes() {
                return invalid("a new blob's id is of another epoch");
            }
            if row.bucket != self.bucket {
                return invalid("a new blob is of another bucket");
            }
            if row.state != BlobState::Live {
                return invalid("a new blob is not live");
            }
            if row.copy.is_some() {
                return invalid("a new blob has a second copy already");
            }
            if row.inline.as_ref().is_some_and(|bytes| bytes.len() as u64 != row.stored_len) {
                return invalid("an inline blob's length is not its stored length");
            }
            let stores_something = row.stored_len > 0 || row.inline.is_some() || row.digest.is_some();
            if row.original.is_some() && (row.form != BlobForm::Whole || stores_something) {
                return invalid("content in an original is whole, stores nothing and has no digest");
            }
            match row.form {
                BlobForm::Whole if !bases.is_empty() => return invalid("a whole blob has bases"),
                BlobForm::Delta if bases.is_empty() => return invalid("a delta has no base"),
                _ if bases.len() > BASES_MAX => return invalid("a delta has more than 256 bases"),
                _ if bases.iter().collect::<BTreeSet<_>>().len() != bases.len() => {
                    return invalid("a delta names a base twice");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks references against `known`: the rows of [`Self::existing`] as read under lock (E3).
    pub(crate) fn check_references(&self, mut known: BTreeMap<BlobKey, Known>) -> Result<()> {
        known.extend(self.new_blobs.iter().map(|blob| (blob.row.id, Known::of(&blob.row))));
        let live = |id: &BlobKey| match known.get(id) {
            Some(blob) if blob.state == BlobState::Live && blob.bucket == self.bucket => Ok(blob),
            _ => Err(CatalogError::BaseGone),
        };
        for extent in self.extents {
            let blob = live(&extent.blob)?;
            if extent.offset.checked_add(extent.len).is_none_or(|end| end > blob.plain_len) {
                return invalid("an extent lies outside its blob");
            }
        }
        for NewBlob { row, bases, .. } in self.new_blobs {
            for base in bases {
                let base = live(base)?;
                if base.quarantined {
                    return Err(CatalogError::BaseGone);
                }
                if base.form != BlobForm::Whole {
                    return invalid("a base is not whole");
                }
                if base.foreign {
                    return invalid("a base lies in an original");
                }
                if (base.key_epoch, &base.backend) != (row.key_epoch, &row.backend) {
                    return invalid("a base is of another domain");
                }
            }
        }
        Ok(())
    }
}

impl Precondition {
    /// Whether it holds of a key whose current version is `current`; `hidden` says whether it was
    /// deleted for good.
    pub(crate) fn check(&self, current: Option<VersionId>, hidden: bool) -> Result<()> {
        let holds = match self {
            Precondition::None => true,
            Precondition::Absent => current.is_none(),
            Precondition::Current(id) => current == Some(*id),
            Precondition::Adoptable => current.is_none() && !hidden,
        };
        if holds { Ok(()) } else { Err(CatalogError::PreconditionFailed) }
    }
}

fn invalid<T>(why: impl Into<String>) -> Result<T> {
    Err(CatalogError::Invalid(why.into()))
}
