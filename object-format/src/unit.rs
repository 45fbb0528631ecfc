//! Units: the chunks, pages and root that are sealed (suite 1) or checked (suite 0) as one
//! (docs/format/blob-v1.md §4).

use crate::{
    error::FormatError,
    header::{BlobKind, HEADER_LEN, Header, Suite, derivation_info},
    keys::{DomainKey, keyed_mac},
};
use crypto::{
    Digest, Mac, Sha256,
    aead::{Aead, Bulk, NONCE_LEN, Short, TAG_LEN},
};
use subtle::ConstantTimeEq;
use xxhash_rust::xxh3::Xxh3Default;
use zeroize::Zeroizing;

const BASE_PURPOSE: &str = "base";
const BASE_LABEL: &[u8] = b"deltaweir base v1";

/// What a unit is. The numbers are part of the format: they are in its nonce and in what it is
/// authenticated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Unit {
    Chunk = 0,
    LastChunk = 1,
    SegmentPage = 2,
    CheckPage = 3,
    Root = 4,
}

impl Unit {
    /// That it is not what was written.
    fn failed(self) -> FormatError {
        FormatError::Integrity(match self {
            Self::Chunk | Self::LastChunk => "a chunk",
            Self::SegmentPage => "a page of the segment table",
            Self::CheckPage => "a page of checks",
            Self::Root => "the root",
        })
    }
}

/// The derived keys of one blob, or their absence, and what every unit of it is bound to.
pub(crate) struct Protection {
    header_hash: [u8; 32],
    cipher: Option<Cipher>,
}

struct Cipher {
    key: Box<dyn Aead>,
    nonce_prefix: [u8; 7],
    base_tag_key: Zeroizing<[u8; 32]>,
}

impl Protection {
    /// Protection of a blob that is being written: completes `header` with the commitment and gives
    /// its final bytes.
    pub(crate) fn for_writing(header: &mut Header, key: Option<&DomainKey>) -> (Self, [u8; HEADER_LEN]) {
        let cipher = key.map(|key| {
            let (cipher, commitment) = Cipher::derive(header, key);
            header.commitment = commitment;
            cipher
        });
        let bytes = header.encode();
        (Self { header_hash: Sha256::digest(bytes).into(), cipher }, bytes)
    }

    /// Protection of a blob that exists. A key means that a sealed blob is expected: a plain one in
    /// its place is refused.
    pub(crate) fn for_reading(header: &Header, key: Option<&DomainKey>) -> Result<Self, FormatError> {
        let cipher = match (header.suite, key) {
            (Suite::None, None) => None,
            (Suite::None, Some(_)) => return Err(FormatError::Key("the blob is not sealed, though it should be")),
            (Suite::Aes256Gcm, None) => return Err(FormatError::Key("the blob is sealed and no key was given")),
            (Suite::Aes256Gcm, Some(key)) => {
                if (key.id(), key.epoch()) != (header.key_id, header.key_epoch) {
                    return Err(FormatError::Key("sealed under another key"));
                }
                let (cipher, commitment) = Cipher::derive(header, key);
                if !bool::from(commitment.ct_eq(&header.commitment)) {
                    return Err(FormatError::Key("the header's key commitment does not match"));
                }
                Some(cipher)
            }
        };
        Ok(Self { header_hash: Sha256::digest(header.encode()).into(), cipher })
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.cipher.is_some()
    }

    /// Bytes that every chunk grows by when stored.
    pub(crate) fn chunk_overhead(&self) -> u64 {
        if self.is_sealed() { TAG_LEN as u64 } else { 0 }
    }

    /// Seals what `out` holds from `start` on as one unit, in place, appends its tag (suite 1) or
    /// check (suite 0) and returns it.
    pub(crate) fn close(&self, unit: Unit, index: u32, out: &mut Vec<u8>, start: usize) -> [u8; TAG_LEN] {
        let tag = match &self.cipher {
            None => self.check(unit, index, &out[start..]),
            Some(cipher) => cipher.key.seal(cipher.nonce(unit, index), &self.associated(unit), &mut out[start..]),
        };
        out.extend_from_slice(&tag);
        tag
    }

    /// Opens a unit in place. After an error `bytes` holds nothing that may be used.
    pub(crate) fn open(
        &self,
        unit: Unit,
        index: u32,
        bytes: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), FormatError> {
        match &self.cipher {
            None => self.check_plain(unit, index, bytes, tag),
            Some(cipher) => {
                let opened = cipher.key.open(cipher.nonce(unit, index), &self.associated(unit), bytes, tag);
                opened.map_err(|_| unit.failed())
            }
        }
    }

    /// Compares a unit that is not sealed with its check.
    pub(crate) fn check_plain(
        &self,
        unit: Unit,
        index: u32,
        bytes: &[u8],
        check: &[u8; TAG_LEN],
    ) -> Result<(), FormatError> {
        if self.check(unit, index, bytes) == *check { Ok(()) } else { Err(unit.failed()) }
    }

    /// XXH3-128 over what binds the unit to its place, then its bytes.
    pub(crate) fn check(&self, unit: Unit, index: u32, bytes: &[u8]) -> [u8; TAG_LEN] {
        let mut bound = [0; 37];
        bound[..32].copy_from_slice(&self.header_hash);
        bound[32] = unit as u8;
        bound[33..].copy_from_slice(&index.to_be_bytes());
        let mut hash = Xxh3Default::new();
        hash.update(&bound);
        hash.update(bytes);
        hash.digest128().to_le_bytes()
    }

    /// What deltas over this content must carry (§8.1): keyed when sealed, so that it says nothing
    /// to who lacks the key.
    pub(crate) fn base_tag<'a>(
        &self,
        blob: &[u8; 16],
        plain_len: u64,
        digests: impl Iterator<Item = &'a [u8; 16]>,
    ) -> [u8; TAG_LEN] {
        let start = [BASE_LABEL, blob, &plain_len.to_le_bytes()];
        let whole: [u8; 32] = match &self.cipher {
            Some(cipher) => {
                let mut mac = keyed_mac(&cipher.base_tag_key);
                start.into_iter().chain(digests.map(|digest| digest.as_slice())).for_each(|part| mac.update(part));
                mac.finalize().into_bytes().into()
            }
            None => {
                let mut hash = Sha256::new();
                start.into_iter().chain(digests.map(|digest| digest.as_slice())).for_each(|part| hash.update(part));
                hash.finalize().into()
            }
        };
        whole.first_chunk().copied().expect("32 bytes hold 16")
    }

    fn associated(&self, unit: Unit) -> [u8; 33] {
        let mut associated = [0; 33];
        associated[..32].copy_from_slice(&self.header_hash);
        associated[32] = unit as u8;
        associated
    }
}

impl Cipher {
    /// The cipher of a blob and the commitment its header must carry.
    fn derive(header: &Header, key: &DomainKey) -> (Self, [u8; 32]) {
        let keys = key.blob_keys(&header.salt, derivation_info(&header.encode()));
        let cipher = Self {
            key: match header.kind {
                BlobKind::Whole | BlobKind::Delta | BlobKind::Pack | BlobKind::Backup => {
                    Box::new(Bulk::new(&keys.encryption))
                }
                BlobKind::Keyset | BlobKind::Journal => Box::new(Short::new(&keys.encryption)),
            },
            nonce_prefix: keys.nonce_prefix,
            base_tag_key: key.tag_key(BASE_PURPOSE),
        };
        (cipher, keys.commitment)
    }

    /// Unique within the blob since no two units share type and index; the key is the blob's own.
    fn nonce(&self, unit: Unit, index: u32) -> [u8; NONCE_LEN] {
        nonce_bytes(&self.nonce_prefix, unit, index)
    }
}

fn nonce_bytes(prefix: &[u8; 7], unit: Unit, index: u32) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[..7].copy_from_slice(prefix);
    nonce[7..11].copy_from_slice(&index.to_be_bytes());
    nonce[11] = unit as u8;
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        geometry::CHUNKS_MAX,
        header::{BlobId, BlobKind},
        keys::KeyId,
    };
    use proptest::prelude::*;
    use std::collections::HashSet;

    const UNITS: [Unit; 5] = [Unit::Chunk, Unit::LastChunk, Unit::SegmentPage, Unit::CheckPage, Unit::Root];

    fn any_unit() -> impl Strategy<Value = (Unit, u32)> {
        (
            prop::sample::select(&UNITS[..]),
            prop_oneof![0..3_u32, CHUNKS_MAX as u32 - 3..CHUNKS_MAX as u32, any::<u32>()],
        )
    }

    fn sealed_header(id: [u8; 16], salt: [u8; 32]) -> Header {
        let mut header = Header::unsealed(BlobKind::Whole, BlobId(id));
        (header.suite, header.salt, header.key_id, header.key_epoch) = (Suite::Aes256Gcm, salt, KeyId([1; 16]), 1);
        header
    }

    proptest! {
        #[test]
        fn no_two_units_of_a_blob_share_a_nonce(prefix: [u8; 7], a in any_unit(), b in any_unit()) {
            let same = nonce_bytes(&prefix, a.0, a.1) == nonce_bytes(&prefix, b.0, b.1);
            prop_assert_eq!(same, a == b);
        }
    }

    #[test]
    fn no_two_blobs_share_a_key() {
        let key = DomainKey::new(KeyId([1; 16]), 1, [7; 32]);
        let mut seen = HashSet::new();
        for id in 0..40_u8 {
            for salt in 0..40_u8 {
                let header = sealed_header([id; 16], [salt; 32]);
                let keys = key.blob_keys(&header.salt, derivation_info(&header.encode()));
                assert!(seen.insert(*keys.encryption));
                assert!(seen.insert(keys.commitment));
            }
        }
    }

    #[test]
    fn another_domain_key_gives_another_commitment() {
        let header = sealed_header([1; 16], [2; 32]);
        let keys = |secret| {
            DomainKey::new(KeyId([1; 16]), 1, secret).blob_keys(&header.salt, derivation_info(&header.encode()))
        };
        assert_ne!(keys([7; 32]).commitment, keys([8; 32]).commitment);
    }
}
