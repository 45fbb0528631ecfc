//! A stream while a scan reads it.

use xxhash_rust::xxh3::Xxh3;

use crate::alphabet::WINDOW_LEN;
use crate::checksum::Adler;
use crate::containers::{Container, FirstPiece, ZLIB_CHECK_LEN};
use crate::inflate::{Inflater, Input};
use crate::pieces::Joiner;
use crate::stream::{POINT_SPACING, Point, Stream};

pub(crate) struct Reading {
    pub(crate) container: Container,
    /// Bytes of the header that announced it.
    pub(crate) header_len: u64,
    /// The object's bytes before it.
    pub(crate) start: u64,
    pub(crate) inflater: Inflater,
    pub(crate) plain: Vec<u8>,
    /// Plain bytes before `plain`.
    plain_before: u64,
    points: Vec<Point>,
    digest: Xxh3,
    /// Bytes of the stream that were digested.
    digested: u64,
    /// Puts it together, where it may be cut into pieces.
    pub(crate) joiner: Option<Joiner>,
    check: Option<Adler>,
}

impl Reading {
    /// Of a stream behind a header that was found there.
    pub(crate) fn new(container: Container, found: u64, header_len: u64, first: Option<FirstPiece>) -> Self {
        Self {
            container,
            header_len,
            start: found + header_len,
            inflater: Inflater::new(),
            plain: Vec::new(),
            plain_before: 0,
            points: Vec::new(),
            digest: Xxh3::new(),
            digested: 0,
            joiner: first.map(|first| Joiner::new(first.cutting, first.len)),
            check: container.has_check().then(Adler::default),
        }
    }

    /// The bytes of a stream that lies in one piece, from those of the object from `at` on.
    pub(crate) fn input<'a>(&self, bytes: &'a [u8], at: u64, is_all: bool) -> Input<'a> {
        let from = self.start.max(at);
        Input { bytes: bytes.get((from - at) as usize..).unwrap_or_default(), at: from - self.start, is_all }
    }

    /// Bytes of it that were read.
    pub(crate) fn len(&self) -> u64 {
        self.inflater.bit().div_ceil(8)
    }

    /// Its plain bytes so far.
    pub(crate) fn plain_len(&self) -> u64 {
        self.plain_before + self.plain.len() as u64
    }

    /// Notes what was read since its text had `known` bytes.
    pub(crate) fn note(&mut self, input: Input<'_>, known: usize) {
        if let Some(check) = &mut self.check {
            check.update(&self.plain[known..]);
        }
        let read = self.len();
        if let Some(bytes) = input.bytes.get((self.digested - input.at) as usize..(read - input.at) as usize) {
            self.digest.update(bytes);
            self.digested = read;
        }
    }

    /// Whether its check is right, when it has ended; `None` when that is not there yet.
    pub(crate) fn is_right(&self, input: Input<'_>) -> Option<bool> {
        let Some(check) = self.check else { return Some(true) };
        let told = input.bytes.get((self.len() - input.at) as usize..).and_then(<[u8]>::first_chunk::<ZLIB_CHECK_LEN>);
        match told {
            Some(told) => Some(u32::from_be_bytes(*told) == check.value()),
            None if input.is_all => Some(false),
            None => None,
        }
    }

    /// Notes that reading may begin here, when the last such place is far enough.
    pub(crate) fn note_point(&mut self, left: &mut usize) {
        let plain_at = self.plain_len();
        let last = self.points.last().map_or(0, |point| point.plain_at);
        if plain_at < last + POINT_SPACING || self.inflater.is_in_stored() || *left == 0 {
            return;
        }
        *left -= 1;
        let bit = self.inflater.bit();
        let block_bit = self.inflater.block_bit().unwrap_or(bit);
        let window = self.plain[self.plain.len().saturating_sub(WINDOW_LEN)..].to_vec();
        self.points.push(Point { plain_at, block_bit, bit, window });
    }

    /// Forgets what nothing refers to any more.
    pub(crate) fn forget(&mut self) {
        let kept = self.plain.len().min(WINDOW_LEN);
        let dropped = self.plain.len() - kept;
        self.plain.drain(..dropped);
        self.plain_before += dropped as u64;
    }

    /// The object's bytes up to where it stands: all of them are needed from here on.
    pub(crate) fn place(&self) -> u64 {
        self.place_behind(self.inflater.bit() / 8)
    }

    /// The object's bytes up to the last one that was read.
    pub(crate) fn end(&self) -> u64 {
        self.place_behind(self.len())
    }

    /// The object's bytes up to the last one of so many of the stream's.
    fn place_behind(&self, read: u64) -> u64 {
        self.start + self.joiner.as_ref().map_or(read, |joiner| joiner.gaps().end_of(read))
    }

    /// The stream, which ends here.
    pub(crate) fn stream(&mut self) -> Stream {
        let end = self.end();
        let gaps = self.joiner.as_ref().map(|joiner| joiner.gaps().before(end - self.start));
        Stream {
            container: self.container,
            start: self.start,
            end,
            plain_len: self.plain_len(),
            digest: self.digest.digest(),
            points: std::mem::take(&mut self.points),
            nested: Vec::new(),
            gaps: gaps.filter(|gaps| !gaps.is_empty()).map(Into::into),
        }
    }
}
