//! Opening the parts of one blob, each checked before a byte of it is given out (I4).

use crate::{
    error::FormatError,
    geometry::{CHUNK_LEN, chunk_count, chunk_index, stored_range},
    header::{BlobId, BlobKind, Header},
    keys::DomainKey,
    page::{self, ChunkCheck, PagePlace},
    root::{self, Root, RootPlace},
    segment::Segment,
    trailer,
    unit::{Protection, Unit},
};
use crypto::aead::TAG_LEN;
use std::{fmt, ops::Range, sync::Arc};

/// Opens the parts of one blob. Cheap to clone, holds derived keys.
#[derive(Clone)]
pub struct BlobOpener {
    id: BlobId,
    kind: BlobKind,
    protection: Arc<Protection>,
}

impl fmt::Debug for BlobOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobOpener").field("id", &self.id).field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl BlobOpener {
    /// Memory that it takes beside itself.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Protection>()
    }

    /// From a header that was read from the backend, the id the reader expects there, and the
    /// domain key when the blob must be sealed: a key says that it must, and a blob of suite 0 is
    /// then refused.
    ///
    /// # Errors
    /// [`FormatError::WrongBlob`] when the id differs (I5), [`FormatError::Key`] when the key is
    /// missing, has another id, or the commitment does not match.
    pub fn new(header: &Header, expected: BlobId, key: Option<&DomainKey>) -> Result<Self, FormatError> {
        if header.blob_id != expected {
            return Err(FormatError::WrongBlob);
        }
        let protection = Arc::new(Protection::for_reading(header, key)?);
        Ok(Self { id: expected, kind: header.kind, protection })
    }

    /// Finds the root from the trailer (the last [`crate::TRAILER_LEN`] bytes of a blob of
    /// `stored_len` bytes), for readers without a catalog row.
    ///
    /// # Errors
    /// [`FormatError`] when the trailer is malformed or points outside the blob.
    pub fn root_place(trailer: &[u8], stored_len: u64) -> Result<RootPlace, FormatError> {
        trailer::decode(trailer, stored_len)
    }

    /// Opens the root from the bytes at `place`.
    ///
    /// # Errors
    /// [`FormatError::Integrity`] when the tag does not fit, [`FormatError::Malformed`] otherwise.
    pub fn open_root(&self, place: &RootPlace, bytes: &[u8]) -> Result<Root, FormatError> {
        trailer::check_place(place)?;
        if bytes.len() != place.len as usize {
            return Err(FormatError::Malformed("a root of another length"));
        }
        let plain = page::open_tagged(&self.protection, Unit::Root, 0, &place.tag, bytes)?;
        root::decode(&plain, place.offset, self.kind, self.protection.chunk_overhead())
    }

    /// Opens a page of the segment table; its rows are checked against each other and the root that
    /// gave `place`.
    ///
    /// # Errors
    /// As [`Self::open_root`].
    pub fn open_segment_page(&self, place: &PagePlace, bytes: &[u8]) -> Result<Vec<Segment>, FormatError> {
        page::open_segment_page(&self.protection, place, bytes)
    }

    /// Opens a page of chunk checks (suite 0 only).
    ///
    /// # Errors
    /// As [`Self::open_root`].
    pub fn open_check_page(&self, place: &PagePlace, bytes: &[u8]) -> Result<Vec<ChunkCheck>, FormatError> {
        page::open_check_page(&self.protection, place, bytes)
    }

    /// The base tag of content with these segment digests, all of them in order: what
    /// [`Root::base_tag`] must be.
    pub fn base_tag<'a>(&self, plain_len: u64, digests: impl Iterator<Item = &'a [u8; 16]>) -> [u8; 16] {
        self.protection.base_tag(&self.id.0, plain_len, digests)
    }

    /// The chunks that cover a run of payload bytes. `payload` must not be empty.
    pub fn chunks_covering(&self, payload: Range<u64>) -> Range<u64> {
        payload.start / CHUNK_LEN as u64..payload.end.div_ceil(CHUNK_LEN as u64)
    }

    /// Where chunks lie in the blob; `payload_len` is the root's. Chunks past the payload's end
    /// have no bytes.
    pub fn stored_range(&self, chunks: Range<u64>, payload_len: u64) -> Range<u64> {
        stored_range(chunks, payload_len, self.protection.chunk_overhead())
    }

    /// Opens consecutive chunks starting at index `first` in place: `stored` holds exactly the
    /// bytes of [`Self::stored_range`]; afterwards it holds their plain payload bytes. `checks` are
    /// the chunks' checks for suite 0 (one per chunk), ignored for suite 1. `payload_len` is the
    /// root's.
    ///
    /// That fewer chunks came than were asked for only the caller can see, by the length of what it
    /// read.
    ///
    /// # Errors
    /// [`FormatError::Integrity`] when any chunk fails, [`FormatError::Malformed`] when the bytes
    /// are not whole chunks or there are none: `stored` is then cleared, so that unverified bytes
    /// cannot be used (I4).
    pub fn open_chunks(
        &self,
        first: u64,
        payload_len: u64,
        stored: &mut Vec<u8>,
        checks: &[ChunkCheck],
    ) -> Result<(), FormatError> {
        let opened = self.open_each_chunk(first, payload_len, stored, checks);
        match opened {
            Ok(plain_len) => stored.truncate(plain_len),
            Err(_) => {
                stored.fill(0);
                stored.clear();
            }
        }
        opened.map(|_| ())
    }

    /// Checks consecutive chunks of a blob that is not sealed, whose stored bytes are the plain
    /// ones; otherwise as [`Self::open_chunks`].
    ///
    /// # Errors
    /// As [`Self::open_chunks`]; [`FormatError::Key`] for a sealed blob.
    pub fn check_chunks(
        &self,
        first: u64,
        payload_len: u64,
        stored: &[u8],
        checks: &[ChunkCheck],
    ) -> Result<(), FormatError> {
        if self.protection.is_sealed() {
            return Err(FormatError::Key("a sealed blob has tags, not checks"));
        }
        let chunks = self.chunks_of(first, payload_len, stored.len())?;
        if checks.len() as u64 != chunks.end - chunks.start {
            return Err(FormatError::Malformed("another number of checks than of chunks"));
        }
        let total = chunk_count(payload_len);
        for ((index, chunk), check) in chunks.zip(stored.chunks(CHUNK_LEN)).zip(checks) {
            self.protection.check_plain(unit_of(index, total), chunk_index(index)?, chunk, check)?;
        }
        Ok(())
    }

    /// The chunks from `first` on that exactly `len` stored bytes are; at least one.
    fn chunks_of(&self, first: u64, payload_len: u64, len: usize) -> Result<Range<u64>, FormatError> {
        let stride = CHUNK_LEN + self.protection.chunk_overhead() as usize;
        let count = len.div_ceil(stride) as u64;
        let end = first.checked_add(count).filter(|end| *end <= chunk_count(payload_len) && count > 0);
        let end = end.ok_or(FormatError::Malformed("no chunks, or chunks past the payload's end"))?;
        let whole = self.stored_range(first..end, payload_len);
        match whole.end - whole.start == len as u64 {
            true => Ok(first..end),
            false => Err(FormatError::Malformed("bytes that are not whole chunks")),
        }
    }

    /// Opens chunk by chunk, moving each down over the tags before it; gives the plain length.
    fn open_each_chunk(
        &self,
        first: u64,
        payload_len: u64,
        stored: &mut [u8],
        checks: &[ChunkCheck],
    ) -> Result<usize, FormatError> {
        if !self.protection.is_sealed() {
            return self.check_chunks(first, payload_len, stored, checks).map(|()| stored.len());
        }
        let stride = CHUNK_LEN + TAG_LEN;
        let total = chunk_count(payload_len);
        let mut plain_end = 0;
        for (position, index) in self.chunks_of(first, payload_len, stored.len())?.enumerate() {
            let start = position * stride;
            let chunk_end = stored.len().min(start + stride);
            let split = stored[start..chunk_end].split_last_chunk_mut::<TAG_LEN>();
            let (body, tag) = split.ok_or(FormatError::Malformed("shorter than a tag"))?;
            self.protection.open(unit_of(index, total), chunk_index(index)?, body, tag)?;
            let plain_len = body.len();
            if start != plain_end {
                stored.copy_within(start..start + plain_len, plain_end);
            }
            plain_end += plain_len;
        }
        Ok(plain_end)
    }
}

fn unit_of(index: u64, total: u64) -> Unit {
    if index + 1 == total { Unit::LastChunk } else { Unit::Chunk }
}
