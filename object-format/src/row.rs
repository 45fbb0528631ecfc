//! Sealing of a version row's facts in encrypted buckets (I5): bound to bucket, key, version and
//! extents (docs/format/blob-v1.md §5.3).

use crate::{
    error::FormatError,
    fields::Fields,
    header::BlobId,
    keys::{DomainKey, KeyId},
};
use crypto::{
    Digest, Sha256,
    aead::{Aead as _, Short, TAG_LEN},
};

const VERSION: u8 = 1;
const CONTEXT_LABEL: &[u8] = b"deltaweir row v1";
/// Version, key id and nonce.
const START_LEN: usize = 1 + 16 + 24;

/// Bytes a sealed row has more than its facts. Part of the format.
pub const SEALED_ROW_OVERHEAD: usize = START_LEN + TAG_LEN;

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
    /// [`extents_digest`] of its extents; kept in the catalog row, so that a listing opens facts
    /// without reading extents, and compared with the extents themselves before they are read.
    pub extents_digest: [u8; 32],
}

/// SHA-256 over an ordered list of extents (blob, offset, length), each of fixed width, so that two
/// lists never have the same bytes.
pub fn extents_digest(extents: impl IntoIterator<Item = (BlobId, u64, u64)>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (blob, offset, len) in extents {
        hash.update(blob.0);
        hash.update(offset.to_le_bytes());
        hash.update(len.to_le_bytes());
    }
    hash.finalize().into()
}

impl RowContext<'_> {
    /// Everything in it with fixed lengths or its length before it, so that two contexts never have
    /// the same bytes.
    fn associated(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(CONTEXT_LABEL);
        hash.update(self.bucket.to_le_bytes());
        hash.update(u32::try_from(self.key.len()).unwrap_or(u32::MAX).to_le_bytes());
        hash.update(self.key);
        hash.update(self.version_id);
        match self.part {
            None => hash.update([0]),
            Some(part) => {
                hash.update([1]);
                hash.update(part.to_le_bytes());
            }
        }
        hash.update(self.extents_digest);
        hash.finalize().into()
    }
}

impl<'a> RowContext<'a> {
    /// What an account's row is bound to: its kind and name, written `kind/name`. Catalog ids of
    /// buckets are far smaller than this one.
    pub fn of_account(kind_and_name: &'a str) -> Self {
        Self { bucket: u64::MAX, key: kind_and_name, version_id: [0; 16], part: None, extents_digest: [0; 32] }
    }
}

/// Seals `facts`. `nonce` is 24 bytes fresh from the operating system's generator. The result has
/// [`SEALED_ROW_OVERHEAD`] bytes more.
pub fn seal(key: &DomainKey, context: &RowContext<'_>, nonce: [u8; 24], facts: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(facts.len() + SEALED_ROW_OVERHEAD);
    out.push(VERSION);
    out.extend_from_slice(&key.id().0);
    out.extend_from_slice(&nonce);
    out.extend_from_slice(facts);
    let keys = key.row_keys(&nonce);
    let tag = Short::new(&keys.encryption).seal(keys.nonce, &context.associated(), &mut out[START_LEN..]);
    out.extend_from_slice(&tag);
    out
}

/// The key that sealed facts name; `None` for what is no sealed row.
pub fn key_of(sealed: &[u8]) -> Option<KeyId> {
    let mut fields = Fields::new(sealed);
    let is_row = sealed.len() >= SEALED_ROW_OVERHEAD && fields.u8() == Ok(VERSION);
    if is_row { fields.array().ok().map(KeyId) } else { None }
}

/// Opens sealed facts.
///
/// # Errors
/// [`FormatError::Integrity`] when they were sealed for another context or altered;
/// [`FormatError::Key`] for another key; [`FormatError::Malformed`] when they are no sealed row at
/// all.
pub fn open(key: &DomainKey, context: &RowContext<'_>, sealed: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut fields = Fields::new(sealed);
    if fields.u8()? != VERSION {
        return Err(FormatError::Malformed("unknown version of a sealed row"));
    }
    if KeyId(fields.array()?) != key.id() {
        return Err(FormatError::Key("the row is sealed under another key"));
    }
    let nonce = fields.array()?;
    let body_len = fields.len().checked_sub(TAG_LEN).ok_or(FormatError::Malformed("shorter than a tag"))?;
    let mut facts = fields.take(body_len)?.to_vec();
    let tag: [u8; TAG_LEN] = fields.array()?;
    let keys = key.row_keys(&nonce);
    let opened = Short::new(&keys.encryption).open(keys.nonce, &context.associated(), &mut facts, &tag);
    opened.map_err(|_| FormatError::Integrity("a sealed row"))?;
    Ok(facts)
}
