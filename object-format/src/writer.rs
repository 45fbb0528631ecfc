//! Writing one blob front to back.

use crate::{
    error::FormatError,
    geometry::{CHUNK_LEN, PLAIN_LEN_MAX, chunk_index},
    header::{BlobId, BlobKind, Header, Suite},
    keys::DomainKey,
    page::{ChunkCheck, write_check_pages, write_segment_pages},
    root::{ObjectFacts, ROOT_LEN_MAX, RootFields, RootPlace},
    segment::{Segment, TableBounds, ViewRange, check_view},
    trailer::{self, TRAILER_LEN},
    unit::{Protection, Unit},
};
use crypto::aead::TAG_LEN;
use std::{fmt, ops::Range};

/// How a new blob is to be protected.
#[derive(Clone, Copy, Debug)]
pub enum Seal<'a> {
    /// Suite 0.
    None,
    /// Suite 1, under a domain key, with a salt fresh from the operating system (I12: a restarted
    /// encode takes a new one).
    Aes256Gcm {
        /// The domain key.
        key: &'a DomainKey,
        /// 32 random bytes, never used before.
        salt: [u8; 32],
    },
}

/// What is fixed before the first payload byte.
#[derive(Debug)]
pub struct BlobSpec<'a> {
    /// The new blob's id.
    pub id: BlobId,
    /// What it will hold.
    pub kind: BlobKind,
    /// Its protection.
    pub seal: Seal<'a>,
}

/// A blob that has been written to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// All its bytes.
    pub stored_len: u64,
    /// Where its root is.
    pub root: RootPlace,
}

/// Writes one blob front to back. Every method appends to `out`, which the caller sends on.
pub struct BlobWriter {
    header: Header,
    protection: Protection,
    /// Payload that is not sealed yet: at least one byte once anything was pushed, since only the
    /// end shows which chunk is the last.
    pending: Vec<u8>,
    /// Chunks sealed so far: the index of the next.
    chunks: u64,
    /// Checks of the chunks so far; stays empty when sealed.
    checks: Vec<ChunkCheck>,
    /// Bytes appended so far.
    written: u64,
}

impl fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobWriter").field("header", &self.header).field("chunks", &self.chunks).finish_non_exhaustive()
    }
}

impl BlobWriter {
    /// Starts a blob: appends the header.
    pub fn new(spec: BlobSpec<'_>, out: &mut Vec<u8>) -> Self {
        let mut header = Header::unsealed(spec.kind, spec.id);
        let key = match spec.seal {
            Seal::None => None,
            Seal::Aes256Gcm { key, salt } => {
                header.suite = Suite::Aes256Gcm;
                (header.key_id, header.key_epoch, header.salt) = (key.id(), key.epoch(), salt);
                Some(key)
            }
        };
        let (protection, bytes) = Protection::for_writing(&mut header, key);
        out.extend_from_slice(&bytes);
        Self { header, protection, pending: Vec::new(), chunks: 0, checks: Vec::new(), written: bytes.len() as u64 }
    }

    /// The header as it was written.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Payload bytes pushed so far: the `stored_offset` of the next segment.
    pub fn payload_len(&self) -> u64 {
        self.chunks * CHUNK_LEN as u64 + self.pending.len() as u64
    }

    /// Appends payload bytes, sealing every chunk that became full and is not the last. Each byte
    /// is copied once, and again when it had to wait for its chunk to fill: less than a chunk's
    /// worth per call.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] at 2^31 chunks: refused, never wrapped.
    pub fn push(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
        let mut payload = self.fill_pending(payload, out)?;
        while payload.len() > CHUNK_LEN {
            let (chunk, rest) = payload.split_at(CHUNK_LEN);
            self.seal_chunk(Unit::Chunk, chunk, out)?;
            payload = rest;
        }
        self.pending.extend_from_slice(payload);
        Ok(())
    }

    /// The same, but for the bytes of a blob that is not sealed which are stored as they are: they
    /// are not copied. Gives where in `payload` they lie; in the blob they follow what was appended
    /// to `out`, and what comes next follows them.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_in_place(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<Range<usize>, FormatError> {
        if self.protection.is_sealed() {
            return self.push(payload, out).map(|()| 0..0);
        }
        let mut rest = self.fill_pending(payload, out)?;
        let start = payload.len() - rest.len();
        while rest.len() > CHUNK_LEN {
            let (chunk, behind) = rest.split_at(CHUNK_LEN);
            self.check_chunk(Unit::Chunk, chunk)?;
            rest = behind;
        }
        self.pending.extend_from_slice(rest);
        Ok(start..payload.len() - rest.len())
    }

    /// Fills the chunk that has begun, and seals it where more follows; gives what follows.
    fn fill_pending<'p>(&mut self, payload: &'p [u8], out: &mut Vec<u8>) -> Result<&'p [u8], FormatError> {
        let more = (self.pending.len() + payload.len()).div_ceil(CHUNK_LEN) as u64;
        let room_left = self.chunks.checked_add(more).and_then(|chunks| chunks.checked_sub(1));
        room_left.map_or(Ok(0), chunk_index)?;
        if self.pending.is_empty() || payload.is_empty() {
            return Ok(payload);
        }
        let (fill, rest) = payload.split_at(payload.len().min(CHUNK_LEN - self.pending.len()));
        self.pending.extend_from_slice(fill);
        if !rest.is_empty() {
            let full = std::mem::take(&mut self.pending);
            self.seal_chunk(Unit::Chunk, &full, out)?;
            self.pending = full;
            self.pending.clear();
        }
        Ok(rest)
    }

    /// Seals the last chunk and appends pages, root and trailer. `segments` and `view` are only
    /// known now: view addresses in footprints refer to `view`.
    ///
    /// # Errors
    /// [`FormatError`] when the tables contradict what was pushed or each other (lengths, order,
    /// footprint outside the view, more than 256 view ranges).
    pub fn finish(
        mut self,
        segments: &[Segment],
        view: &[ViewRange],
        facts: &ObjectFacts,
        out: &mut Vec<u8>,
    ) -> Result<Finished, FormatError> {
        let plain_len = self.check_tables(segments, view)?;
        let payload_len = self.payload_len();
        if !self.pending.is_empty() {
            let last = std::mem::take(&mut self.pending);
            self.seal_chunk(Unit::LastChunk, &last, out)?;
        }
        let start = out.len();
        let segment_pages = write_segment_pages(&self.protection, segments, out);
        let check_pages = write_check_pages(&self.protection, &self.checks, out);
        let digests = segments.iter().map(|segment| &segment.digest);
        let root_at = out.len();
        RootFields {
            plain_len,
            payload_len,
            segment_pages: &segment_pages,
            check_pages: &check_pages,
            view,
            base_tag: self.protection.base_tag(&self.header.blob_id.0, plain_len, digests),
            facts,
        }
        .encode(out);
        let root_len = out.len() - root_at + TAG_LEN;
        let len = u32::try_from(root_len).ok().filter(|_| root_len <= ROOT_LEN_MAX);
        let len = len.ok_or(FormatError::TooLarge("1 MiB of root"))?;
        let tag = self.protection.close(Unit::Root, 0, out, root_at);
        let root = RootPlace { offset: self.written + (root_at - start) as u64, len, tag };
        let stored_len = root.offset + u64::from(len) + TRAILER_LEN as u64;
        trailer::encode(&root, stored_len, out);
        Ok(Finished { stored_len, root })
    }

    /// The same checks a reader makes; gives the plain length.
    fn check_tables(&self, segments: &[Segment], view: &[ViewRange]) -> Result<u64, FormatError> {
        let plain_len = segments.iter().map(|segment| u64::from(segment.plain_len)).sum();
        if plain_len > PLAIN_LEN_MAX {
            return Err(FormatError::TooLarge("5 GiB of plain content"));
        }
        let view_len = check_view(self.header.kind, view)?;
        let bounds = TableBounds { kind: self.header.kind, plain_len, payload_len: self.payload_len(), view_len };
        let end = (0..).zip(segments).try_fold(0, |at, (number, segment)| bounds.check(number, at, segment))?;
        match end == self.payload_len() {
            true => Ok(plain_len),
            false => Err(FormatError::Malformed("segments do not tile the payload")),
        }
    }

    fn seal_chunk(&mut self, unit: Unit, chunk: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
        let index = chunk_index(self.chunks)?;
        let start = out.len();
        out.extend_from_slice(chunk);
        if !self.protection.is_sealed() {
            return self.check_chunk(unit, chunk);
        }
        self.protection.close(unit, index, out, start);
        self.written += (out.len() - start) as u64;
        self.chunks += 1;
        Ok(())
    }

    /// Notes the check of the next chunk, which is stored as it is.
    fn check_chunk(&mut self, unit: Unit, chunk: &[u8]) -> Result<(), FormatError> {
        self.checks.push(self.protection.check(unit, chunk_index(self.chunks)?, chunk));
        self.written += chunk.len() as u64;
        self.chunks += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::CHUNKS_MAX;

    fn writer_after(chunks: u64) -> BlobWriter {
        let spec = BlobSpec { id: BlobId([0; 16]), kind: BlobKind::Whole, seal: Seal::None };
        let mut writer = BlobWriter::new(spec, &mut Vec::new());
        writer.chunks = chunks;
        writer
    }

    #[test]
    fn the_last_of_two_to_the_31_chunks_is_written_and_no_byte_after_it() {
        let mut out = Vec::new();
        let mut writer = writer_after(CHUNKS_MAX - 2);
        writer.push(&[1; CHUNK_LEN], &mut out).unwrap();
        writer.push(&[2; CHUNK_LEN], &mut out).unwrap();
        assert_eq!(writer.payload_len(), CHUNKS_MAX * CHUNK_LEN as u64);
        let refused = Err(FormatError::TooLarge("2^31 chunks"));
        assert_eq!(writer.push(&[3], &mut out), refused);
        assert_eq!(out.len(), CHUNK_LEN, "nothing was appended by the call that was refused");
        assert_eq!(writer_after(CHUNKS_MAX - 1).push(&[4; CHUNK_LEN + 1], &mut out), refused);
        assert_eq!(writer_after(CHUNKS_MAX).push(&[5], &mut out), refused);
        assert_eq!(writer_after(CHUNKS_MAX - 1).push(&[], &mut out), Ok(()));
    }

    #[test]
    fn a_blob_whose_bytes_stay_where_they_are_is_the_same_blob() {
        let payload: Vec<u8> = (0..5 * CHUNK_LEN + 77).map(|at| ((at / 3) ^ (at >> 9)) as u8).collect();
        let facts = ObjectFacts::default();
        for cut in [1, 500, CHUNK_LEN - 1, CHUNK_LEN, CHUNK_LEN + 1, 2 * CHUNK_LEN + 9, payload.len()] {
            let (mut copied, mut placed) = (Vec::new(), Vec::new());
            let spec = || BlobSpec { id: BlobId([3; 16]), kind: BlobKind::Whole, seal: Seal::None };
            let mut one = BlobWriter::new(spec(), &mut copied);
            let mut other = BlobWriter::new(spec(), &mut placed);
            let mut in_place = 0;
            for piece in payload.chunks(cut) {
                one.push(piece, &mut copied).unwrap();
                let stays = other.push_in_place(piece, &mut placed).unwrap();
                in_place += stays.len();
                placed.extend_from_slice(&piece[stays]);
                assert_eq!(one.payload_len(), other.payload_len());
            }
            assert!(cut <= 2 * CHUNK_LEN || in_place >= 2 * CHUNK_LEN, "{cut}: {in_place}");
            let segment = Segment {
                plain_len: payload.len() as u32,
                stored_offset: 0,
                stored_len: payload.len() as u32,
                coding: crate::Coding::Raw,
                digest: crate::blob::segment_digest(&payload),
                footprint: Vec::new(),
            };
            let ends = [
                one.finish(std::slice::from_ref(&segment), &[], &facts, &mut copied),
                other.finish(std::slice::from_ref(&segment), &[], &facts, &mut placed),
            ];
            assert_eq!(ends[0], ends[1]);
            assert!(copied == placed, "{cut}");
        }
    }
}
