//! One blob, written and opened.

use crate::keys::{DomainKey, KeyId};
use std::{fmt, ops::Range};
use thiserror::Error;

/// Bytes of one payload chunk, the unit of sealing and checking. Part of the format (docs/format/blob-v1.md): blobs
/// already stored cannot be read with another value.
pub const CHUNK_LEN: usize = 64 << 10;
/// Plain bytes of every segment but the last. Part of the format.
pub const SEGMENT_LEN: usize = 4 << 20;
/// Bytes of the header. Part of the format.
pub const HEADER_LEN: usize = 160;
/// Bytes of the trailer. Part of the format.
pub const TRAILER_LEN: usize = 64;

/// A blob's 128-bit id: 32-bit writer epoch (big endian), then 96 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub [u8; 16]);

impl BlobId {
    /// An id of `epoch` with 96 bits from the operating system's generator.
    pub fn new(epoch: u32, random: [u8; 12]) -> Self {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&epoch.to_be_bytes());
        id[4..].copy_from_slice(&random);
        Self(id)
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

/// What a blob holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlobKind {
    /// Object content without a base.
    Whole = 0,
    /// Object content that may have a base view. One whose view is empty is whole content all the same.
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

/// How a segment's stored bytes give its plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Coding {
    /// They are the plain bytes.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// A delta (docs/format/delta-v1.md) over the segment's footprint.
    Delta = 2,
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
    /// Epoch of that key.
    pub key_epoch: u32,
    /// Its own id.
    pub blob_id: BlobId,
    /// Salt of this blob's key derivation.
    pub salt: [u8; 32],
    /// Commitment to the derived key (zero when the suite is [`Suite::None`]).
    pub commitment: [u8; 32],
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// [`FormatError`] for a wrong magic, version, suite, kind or a reserved byte that is not zero.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let _ = bytes;
        todo!()
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        todo!()
    }
}

/// How a new blob is to be protected.
#[derive(Clone, Copy)]
pub enum Seal<'a> {
    /// Suite 0.
    None,
    /// Suite 1, under a domain key, with a salt fresh from the operating system (I12: a restarted encode takes a new one).
    Aes256Gcm {
        /// The domain key.
        key: &'a DomainKey,
        /// 32 random bytes, never used before.
        salt: [u8; 32],
    },
}

/// What is fixed before the first payload byte.
pub struct BlobSpec<'a> {
    /// The new blob's id.
    pub id: BlobId,
    /// What it will hold.
    pub kind: BlobKind,
    /// Its protection.
    pub seal: Seal<'a>,
}

/// A run of the blob's base view, in view addresses (the view's ranges laid end to end).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewAddress {
    /// First byte, from the start of the view.
    pub offset: u64,
    /// Length in bytes; never 0.
    pub len: u32,
}

/// One range of the base view: bytes of a whole blob's plain content (I2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewRange {
    /// The whole blob.
    pub blob: BlobId,
    /// First plain byte.
    pub offset: u64,
    /// Length in bytes; never 0.
    pub len: u64,
    /// The base's keyed content tag (see [`Root::base_tag`]); checked before its bytes are used (E10).
    pub base_tag: [u8; 16],
}

/// One row of the segment table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Plain bytes; [`SEGMENT_LEN`] for all but the last segment.
    pub plain_len: u32,
    /// Where its stored bytes start in the payload (payload addresses count plain chunk content, not tags).
    pub stored_offset: u64,
    /// How many stored bytes it has.
    pub stored_len: u32,
    /// How they are to be read.
    pub coding: Coding,
    /// XXH3-128 of the plain bytes, little endian.
    pub digest: [u8; 16],
    /// Ascending, disjoint runs of the view a delta needs, at most 16; empty for other codings.
    pub footprint: Vec<ViewAddress>,
}

/// What the manifest says of the object, so that a blob describes itself (E17, I11).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Bucket name.
    pub bucket: String,
    /// Object key.
    pub key: String,
    /// Version id when known at writing time (a part does not know it).
    pub version_id: Option<[u8; 16]>,
    /// Upload id and part number, for parts.
    pub part: Option<([u8; 16], u32)>,
    /// SHA-256 of the whole plain content, when computed.
    pub sha256: Option<[u8; 32]>,
    /// The catalog's facts of the version (ETag, content headers, user metadata …), opaque here.
    pub facts: Vec<u8>,
    /// The ranking sketch, opaque here; empty when there is none.
    pub sketch: Vec<u8>,
}

/// Writes one blob front to back. Every method appends to `out`, which the caller sends on.
pub struct BlobWriter {}

/// Where the root lies in a finished blob, and its tag: what the catalog row keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPlace {
    /// First byte of the root in the blob.
    pub offset: u64,
    /// Its length in bytes, tag included.
    pub len: u32,
    /// Its tag: the GCM tag (suite 1) or XXH3-128 (suite 0).
    pub tag: [u8; 16],
}

/// A blob that has been written to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// All its bytes.
    pub stored_len: u64,
    /// Where its root is.
    pub root: RootPlace,
}

impl BlobWriter {
    /// Starts a blob: appends the header.
    pub fn new(spec: BlobSpec<'_>, out: &mut Vec<u8>) -> Self {
        let _ = (spec, out);
        todo!()
    }

    /// Payload bytes pushed so far: the `stored_offset` of the next segment.
    pub fn payload_len(&self) -> u64 {
        todo!()
    }

    /// Appends payload bytes, sealing every chunk that became full.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] at 2^31 chunks: refused, never wrapped.
    pub fn push(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
        let _ = (payload, out);
        todo!()
    }

    /// Seals the last chunk and appends pages, root and trailer. `segments` and `view` are only known now: view addresses in footprints refer to `view`.
    ///
    /// # Errors
    /// [`FormatError`] when the tables contradict what was pushed or each other (lengths, order, footprint outside the view, more than 256 view ranges).
    pub fn finish(
        self,
        segments: &[Segment],
        view: &[ViewRange],
        facts: &ObjectFacts,
        out: &mut Vec<u8>,
    ) -> Result<Finished, FormatError> {
        let _ = (segments, view, facts, out);
        todo!()
    }
}

/// Where one table page lies and how it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePlace {
    /// First byte in the blob.
    pub offset: u64,
    /// Length in bytes, tag included.
    pub len: u32,
    /// First segment (segment page) or chunk (check page) it tells about.
    pub first: u64,
    /// How many it tells about.
    pub count: u32,
    /// Its tag, as in [`RootPlace::tag`].
    pub tag: [u8; 16],
}

/// A blob's opened root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Plain bytes of the content.
    pub plain_len: u64,
    /// Payload bytes (before tags).
    pub payload_len: u64,
    /// Number of segments.
    pub segments: u64,
    /// Pages of the segment table, in order.
    pub segment_pages: Vec<PagePlace>,
    /// Pages of per-chunk checks, in order; empty for suite 1.
    pub check_pages: Vec<PagePlace>,
    /// The base view; empty for whole content.
    pub view: Vec<ViewRange>,
    /// What deltas over this blob must carry: a tag over its id and all segment digests, keyed when sealed (E10).
    pub base_tag: [u8; 16],
    /// The object's facts.
    pub facts: ObjectFacts,
}

/// The check of one suite-0 chunk: XXH3-128 of its bytes and index.
pub type ChunkCheck = [u8; 16];

/// Opens the parts of one blob. Cheap to clone, holds derived keys.
#[derive(Clone)]
pub struct BlobOpener {}

impl BlobOpener {
    /// From a header that was read from the backend, the id the reader expects there, and the domain key when the suite needs one.
    ///
    /// # Errors
    /// [`FormatError::WrongBlob`] when the id differs (I5), [`FormatError::Key`] when the key is missing, has another id, or the commitment does not match.
    pub fn new(header: &Header, expected: BlobId, key: Option<&DomainKey>) -> Result<Self, FormatError> {
        let _ = (header, expected, key);
        todo!()
    }

    /// Finds the root from the trailer (the last [`TRAILER_LEN`] bytes of a blob of `stored_len` bytes), for readers without a catalog row.
    ///
    /// # Errors
    /// [`FormatError`] when the trailer is malformed or points outside the blob.
    pub fn root_place(trailer: &[u8], stored_len: u64) -> Result<RootPlace, FormatError> {
        let _ = (trailer, stored_len);
        todo!()
    }

    /// Opens the root from the bytes at `place`.
    ///
    /// # Errors
    /// [`FormatError::Integrity`] when the tag does not fit, [`FormatError::Malformed`] otherwise.
    pub fn open_root(&self, place: &RootPlace, bytes: &[u8]) -> Result<Root, FormatError> {
        let _ = (place, bytes);
        todo!()
    }

    /// Opens a page of the segment table.
    ///
    /// # Errors
    /// As [`Self::open_root`].
    pub fn open_segment_page(&self, place: &PagePlace, bytes: &[u8]) -> Result<Vec<Segment>, FormatError> {
        let _ = (place, bytes);
        todo!()
    }

    /// Opens a page of chunk checks (suite 0 only).
    ///
    /// # Errors
    /// As [`Self::open_root`].
    pub fn open_check_page(&self, place: &PagePlace, bytes: &[u8]) -> Result<Vec<ChunkCheck>, FormatError> {
        let _ = (place, bytes);
        todo!()
    }

    /// The chunks that cover a run of payload bytes. `payload` must not be empty.
    pub fn chunks_covering(&self, payload: Range<u64>) -> Range<u64> {
        payload.start / CHUNK_LEN as u64..payload.end.div_ceil(CHUNK_LEN as u64)
    }

    /// Where chunks lie in the blob; `payload_len` is the root's.
    pub fn stored_range(&self, chunks: Range<u64>, payload_len: u64) -> Range<u64> {
        let _ = (chunks, payload_len);
        todo!()
    }

    /// Opens consecutive chunks starting at index `first` in place: `stored` holds exactly the bytes of [`Self::stored_range`]; afterwards it holds their plain
    /// payload bytes. `checks` are the chunks' checks for suite 0 (one per chunk), ignored for suite 1. `payload_len` is the root's.
    ///
    /// # Errors
    /// [`FormatError::Integrity`] when any chunk fails: `stored` is then cleared, so that unverified bytes cannot be used (I4).
    pub fn open_chunks(
        &self,
        first: u64,
        payload_len: u64,
        stored: &mut Vec<u8>,
        checks: &[ChunkCheck],
    ) -> Result<(), FormatError> {
        let _ = (first, payload_len, stored, checks);
        todo!()
    }
}

/// Why bytes are not the blob they should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// Not of the documented form.
    #[error("malformed blob: {0}")]
    Malformed(&'static str),
    /// A tag or checksum does not fit: rot, tampering, or bytes of another place.
    #[error("integrity check failed: {0}")]
    Integrity(&'static str),
    /// The bytes are a blob, but not the one that was asked for.
    #[error("another blob than the one expected")]
    WrongBlob,
    /// The key is missing, another one, or does not match the blob's commitment.
    #[error("key unusable for this blob: {0}")]
    Key(&'static str),
    /// Past a limit of the format.
    #[error("past a limit of the format: {0}")]
    TooLarge(&'static str),
}

/// XXH3-128 of a segment's plain bytes as kept in [`Segment::digest`].
pub fn segment_digest(plain: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(plain).to_le_bytes()
}
