//! Sealing of a version row's facts in encrypted buckets (I5): bound to bucket, key, version and extents.

use crate::{
    blob::{BlobId, FormatError},
    keys::DomainKey,
};

/// What a row's facts are bound to.
#[derive(Clone, Copy, Debug)]
pub struct RowContext<'a> {
    /// Catalog id of the bucket.
    pub bucket: u64,
    /// Object key.
    pub key: &'a str,
    /// Version id, or upload id for a part.
    pub version_id: [u8; 16],
    /// Part number for a part's facts.
    pub part: Option<u32>,
    /// [`extents_digest`] of its extents; kept in the catalog row, so that a listing opens facts without reading extents, and compared with the
    /// extents themselves before they are read.
    pub extents_digest: [u8; 32],
}

/// SHA-256 over an ordered list of extents (blob, offset, length), unambiguous.
pub fn extents_digest(extents: impl IntoIterator<Item = (BlobId, u64, u64)>) -> [u8; 32] {
    let _ = extents.into_iter();
    todo!()
}

/// Seals `facts`. `nonce` is 24 bytes fresh from the operating system's generator.
pub fn seal(key: &DomainKey, context: &RowContext<'_>, nonce: [u8; 24], facts: &[u8]) -> Vec<u8> {
    let _ = (key, context, nonce, facts);
    todo!()
}

/// Opens sealed facts.
///
/// # Errors
/// [`FormatError::Integrity`] when they were sealed for another context or altered; [`FormatError::Key`] for another key.
pub fn open(key: &DomainKey, context: &RowContext<'_>, sealed: &[u8]) -> Result<Vec<u8>, FormatError> {
    let _ = (key, context, sealed);
    todo!()
}
