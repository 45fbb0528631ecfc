//! A delta and its base to the target.

use super::{
    OnProgress,
    coder::with_own,
    error::{DeltaFileError, Result, io_error},
    format::{DELTA, FIRST, Head, Header, Range, expect_end, read_exact},
    pool,
    source::Source,
    threads, views,
};
use crypto::{Digest as _, Sha256};
use deflate_view::SegmentForm;
use delta_codec::{Decoder, whole};
use object_format::{Coding, blob::segment_digest};
use rayon::prelude::*;
use std::{
    fs::File,
    io::{BufReader, Read, Write},
    path::Path,
    sync::Mutex,
};

/// Segments that are decoded at once.
const BATCH: usize = 16;
/// A footprint and what a decoder takes.
const BYTES_EACH: usize = 72 << 20;
/// The same where there may be deflate views: their text, and the matches in it.
const BYTES_EACH_WITH_VIEWS: usize = 240 << 20;
/// A batch as it is stored, and as it was.
const SHARED_BYTES: usize = 2 * BATCH * object_format::SEGMENT_LEN;
/// Pieces in which the base is read for its digest.
const PIECE_LEN: usize = 4 << 20;

/// What a thread keeps between segments.
#[derive(Default)]
struct Coder {
    decoder: Decoder,
    footprint: Vec<u8>,
}

/// A segment that has been read and not decoded.
struct Stored {
    head: Head,
    bytes: Vec<u8>,
    plain: Vec<u8>,
}

/// A delta that has been opened against its own base.
pub struct Opened {
    header: Header,
    base: Source,
    delta: BufReader<File>,
}

/// Opens a delta and sees to it that `base` is the file it was made for. Progress counts the base's
/// bytes, then the target's.
///
/// # Errors
/// [`DeltaFileError::WrongBase`] for another file, [`DeltaFileError::Malformed`] for what is no
/// delta.
pub fn open(base: &Path, delta: &Path, progress: OnProgress<'_>) -> Result<Opened> {
    let mut delta = BufReader::new(File::open(delta).map_err(io_error(DELTA))?);
    let header = Header::read(&mut delta)?;
    let base = Source::open(base, "the base")?;
    if base.len() != header.base_len {
        let lens = format!("it has {} bytes instead of {}", base.len(), header.base_len);
        return Err(DeltaFileError::WrongBase(lens));
    }
    let mut hash = Sha256::new();
    base.for_each_piece(PIECE_LEN, |_, piece| {
        hash.update(piece);
        progress(piece.len() as u64);
        Ok(())
    })?;
    let found: [u8; 32] = hash.finalize().into();
    if found != header.base_sha256 {
        let digests = format!("its SHA-256 is {} instead of {}", hex::encode(found), hex::encode(header.base_sha256));
        return Err(DeltaFileError::WrongBase(digests));
    }
    Ok(Opened { header, base, delta })
}

impl Opened {
    /// Bytes of the target.
    pub fn target_len(&self) -> u64 {
        self.header.target_len
    }

    /// Writes the target to `out`. Every segment is compared with its digest before it is written,
    /// the whole with its own at the end. Memory stays below a gigabyte, whatever the files'
    /// lengths.
    ///
    /// # Errors
    /// [`DeltaFileError::Malformed`] for a delta that is damaged; what was written by then is worth
    /// nothing.
    pub fn decode(mut self, out: &mut impl Write, progress: OnProgress<'_>) -> Result<()> {
        let each = if self.header.version == FIRST { BYTES_EACH } else { BYTES_EACH_WITH_VIEWS };
        let threads = threads(SHARED_BYTES, each);
        let pool = pool(threads)?;
        let coders: Vec<Mutex<Coder>> = (0..threads).map(|_| Mutex::default()).collect();
        let mut hash = Sha256::new();
        let mut left = self.header.segment_lens();
        let mut batch: Vec<Stored> = Vec::with_capacity(BATCH);
        loop {
            batch.clear();
            for plain_len in left.by_ref().take(BATCH) {
                batch.push(Stored::read(&mut self.delta, &self.header, plain_len)?);
            }
            if batch.is_empty() {
                break;
            }
            let base = &self.base;
            let decode = |stored: &mut Stored| with_own(&coders, |coder| coder.decode(stored, base));
            pool.install(|| batch.par_iter_mut().try_for_each(decode))?;
            for stored in &batch {
                hash.update(&stored.plain);
                out.write_all(&stored.plain).map_err(io_error("the target"))?;
                progress(stored.plain.len() as u64);
            }
        }
        let mut expected = [0; 32];
        read_exact(&mut self.delta, &mut expected)?;
        expect_end(&mut self.delta)?;
        if <[u8; 32]>::from(hash.finalize()) != expected {
            return Err(DeltaFileError::Malformed("its target has another SHA-256"));
        }
        self.base.check_unchanged()
    }
}

impl Stored {
    fn read(from: &mut impl Read, header: &Header, plain_len: usize) -> Result<Self> {
        let head = Head::read(from, header, plain_len)?;
        let mut bytes = vec![0; head.stored_len as usize];
        read_exact(from, &mut bytes)?;
        Ok(Self { head, bytes, plain: vec![0; plain_len] })
    }
}

impl Coder {
    fn decode(&mut self, stored: &mut Stored, base: &Source) -> Result<()> {
        let Stored { head, bytes, plain } = stored;
        match head.coding {
            Coding::Raw => std::mem::swap(plain, bytes),
            Coding::Zstd => whole::decompress(bytes, plain).map_err(|error| DeltaFileError::Malformed(error.0))?,
            Coding::Planes => return Err(DeltaFileError::Malformed("an unknown coding")),
            Coding::View | Coding::GappedView => {
                let form = if head.coding == Coding::GappedView { SegmentForm::Gapped } else { SegmentForm::Whole };
                let footprint: Vec<_> =
                    head.footprint.iter().map(|run| run.offset..run.offset + u64::from(run.len)).collect();
                views::decode(base, (std::mem::take(bytes), form), &footprint, plain, &mut self.decoder)?;
            }
            Coding::Delta => {
                let total: usize = head.footprint.iter().map(|range| range.len as usize).sum();
                self.footprint.resize(total, 0);
                let mut at = 0;
                for Range { offset, len } in &head.footprint {
                    let end = at + *len as usize;
                    base.read_at(&mut self.footprint[at..end], *offset)?;
                    at = end;
                }
                let decoded = self.decoder.decode(&self.footprint, bytes, plain);
                decoded.map_err(|error| DeltaFileError::Malformed(error.0))?;
            }
        }
        if segment_digest(plain) == head.digest {
            Ok(())
        } else {
            Err(DeltaFileError::Malformed("a segment does not have its digest"))
        }
    }
}
