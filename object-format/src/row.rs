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
    /// Its extents: blob, offset and length.
    pub extents: &'a [(BlobId, u64, u64)],
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
