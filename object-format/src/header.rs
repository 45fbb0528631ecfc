//! The fixed first bytes of a blob: what it is, and which key it needs.

use crate::{
    error::FormatError,
    fields::{Fields, PutFields},
    keys::KeyId,
};
use std::fmt;

/// Bytes of the header. Part of the format (docs/format/blob-v1.md §3).
pub const HEADER_LEN: usize = 160;
/// First bytes of every blob. Part of the format.
pub const MAGIC: [u8; 4] = *b"DWB1";
/// The version this crate writes and reads. Part of the format.
pub const VERSION: u8 = 1;

pub(crate) const CHUNK_LOG2: u8 = 16;
pub(crate) const SEGMENT_LOG2: u8 = 22;
/// The header's bytes before and after the commitment take part in the key derivation.
const COMMITMENT_AT: usize = 96;
const COMMITMENT_END: usize = 128;

/// A blob's 128-bit id: 32-bit writer epoch (big endian, so that ids sort by epoch), then 96 random
/// bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub [u8; 16]);

impl BlobId {
    /// An id of `epoch` with 12 bytes that its writer uses once.
    pub fn new(epoch: u32, once: [u8; 12]) -> Self {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&epoch.to_be_bytes());
        id[4..].copy_from_slice(&once);
        Self(id)
    }

    /// Reads an id as it is displayed, 32 hexadecimal digits in either case; `None` for anything
    /// else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes().as_chunks::<2>();
        let mut id = [0; 16];
        if digits.0.len() != id.len() || !digits.1.is_empty() {
            return None;
        }
        for (byte, [high, low]) in id.iter_mut().zip(digits.0) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
        }
        Some(Self(id))
    }

    /// The writer epoch it was made in.
    pub fn epoch(&self) -> u32 {
        u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How chunks, pages and root are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Suite {
    /// Checksums only.
    None = 0,
    /// AES-256-GCM.
    Aes256Gcm = 1,
}

impl Suite {
    fn from_byte(byte: u8) -> Result<Self, FormatError> {
        match byte {
            0 => Ok(Self::None),
            1 => Ok(Self::Aes256Gcm),
            _ => Err(FormatError::Malformed("unknown suite")),
        }
    }
}

/// What a blob holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlobKind {
    /// Object content without a base.
    Whole = 0,
    /// Object content that may have a base view. One whose view is empty is whole content all the
    /// same.
    Delta = 1,
    /// Many small values.
    Pack = 2,
    /// A catalog backup.
    Backup = 3,
    /// Wrapped domain keys.
    Keyset = 4,
    /// Catalog journal entries.
    Journal = 5,
}

impl BlobKind {
    fn from_byte(byte: u8) -> Result<Self, FormatError> {
        match byte {
            0 => Ok(Self::Whole),
            1 => Ok(Self::Delta),
            2 => Ok(Self::Pack),
            3 => Ok(Self::Backup),
            4 => Ok(Self::Keyset),
            5 => Ok(Self::Journal),
            _ => Err(FormatError::Malformed("unknown kind")),
        }
    }
}

/// The fixed first bytes of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protection of everything that follows.
    pub suite: Suite,
    /// What the blob holds.
    pub kind: BlobKind,
    /// The domain key it is sealed under; zero when the suite is [`Suite::None`].
    pub key_id: KeyId,
    /// Epoch of that key; zero when the suite is [`Suite::None`].
    pub key_epoch: u32,
    /// Its own id.
    pub blob_id: BlobId,
    /// Salt of this blob's key derivation; zero when the suite is [`Suite::None`].
    pub salt: [u8; 32],
    /// Commitment to the derived key; zero when the suite is [`Suite::None`].
    pub commitment: [u8; 32],
}

impl Header {
    /// Reads a header from the first [`HEADER_LEN`] bytes of a blob; more bytes are refused.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] for a wrong length, magic, version, suite, kind, or a reserved
    /// byte that is not zero.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = Fields::new(bytes);
        if fields.array()? != MAGIC {
            return Err(FormatError::Malformed("not a blob: wrong magic"));
        }
        if fields.u8()? != VERSION {
            return Err(FormatError::Malformed("unknown version"));
        }
        let suite = Suite::from_byte(fields.u8()?)?;
        if (fields.u8()?, fields.u8()?) != (CHUNK_LOG2, SEGMENT_LOG2) {
            return Err(FormatError::Malformed("unknown chunk or segment length"));
        }
        let kind = BlobKind::from_byte(fields.u8()?)?;
        fields.zero(7)?;
        let key_id = KeyId(fields.array()?);
        let key_epoch = fields.u32()?;
        fields.zero(12)?;
        let blob_id = BlobId(fields.array()?);
        let header =
            Self { suite, kind, key_id, key_epoch, blob_id, salt: fields.array()?, commitment: fields.array()? };
        fields.zero(32)?;
        fields.end()?;
        if suite == Suite::None && header != Self::unsealed(kind, blob_id) {
            return Err(FormatError::Malformed("key fields in a blob without a key"));
        }
        Ok(header)
    }

    /// The header of a suite-0 blob.
    pub(crate) fn unsealed(kind: BlobKind, blob_id: BlobId) -> Self {
        Self {
            suite: Suite::None,
            kind,
            key_id: KeyId::default(),
            key_epoch: 0,
            blob_id,
            salt: [0; 32],
            commitment: [0; 32],
        }
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.put(&MAGIC);
        out.put(&[VERSION, self.suite as u8, CHUNK_LOG2, SEGMENT_LOG2, self.kind as u8]);
        out.put(&[0; 7]);
        out.put(&self.key_id.0);
        out.put_u32(self.key_epoch);
        out.put(&[0; 12]);
        out.put(&self.blob_id.0);
        out.put(&self.salt);
        out.put(&self.commitment);
        out.put(&[0; 32]);
        out.try_into().expect("the fields above add up to the header's length")
    }
}

/// What a header gives to the key derivation: everything but the commitment, which comes out of it.
pub(crate) fn derivation_info(header: &[u8; HEADER_LEN]) -> [&[u8]; 2] {
    [&header[..COMMITMENT_AT], &header[COMMITMENT_END..]]
}
