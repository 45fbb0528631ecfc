//! What containers put before a deflate stream, and what looks like it.

use crate::alphabet::{DISTANCE_BASE, DISTANCE_EXTRA, LENGTH_BASE, LENGTH_EXTRA};
use crate::checksum::Adler;
use crate::inflate::{Inflater, Input, Stopped};
use crate::pieces::Cutting;

/// Bytes before a signature that are looked at: what a container says of a stream's first piece.
pub(crate) const BEFORE_LEN: usize = 5;
/// Uploads are looked through for zlib streams in this much of each mebibyte: what has such streams
/// has many, as a rule.
const LOOKED_LEN: usize = 256 << 10;
const LOOKED_EVERY: usize = 1 << 20;
/// What an archive of `pg_dump` begins with. It may have one stream alone.
const DUMP_MAGIC: &[u8] = b"PGDMP";
/// Bytes that are compared with zlib's headers at once.
const BLOCK_LEN: usize = 64;
/// Bytes of a zlib stream that are read to see whether it may be one.
const TRIAL_LEN: usize = 512;
/// Steps of a block with fixed codes that are read before anything is made ready for more.
const TRIAL_STEPS: usize = 48;
/// Blocks and plain bytes after which it is believed: codes are made ready for each block, and few
/// bytes may have much text.
const TRIAL_BLOCKS: u64 = 4;
const TRIAL_PLAIN_LEN: usize = 16 << 10;
/// Bytes read in vain that a trial counts as: one that ends before codes are made ready, and one
/// that does not.
const LOOK_VAIN: u64 = 16;
const TRIAL_VAIN: u64 = 512;
/// What trials may count as in one look through content: 512 that do not end at once.
const LOOKED_VAIN_MAX: u64 = 512 * TRIAL_VAIN;
/// The shortest zlib stream because of which content is looked at again.
const WORTH_LEN_MIN: u64 = 48;
/// Bytes of what zlib puts before a stream, and after it.
const ZLIB_HEADER_LEN: usize = 2;
pub(crate) const ZLIB_CHECK_LEN: usize = 4;

/// Which container said that there is a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// A member of a zip file (also a wheel, jar, office document …).
    Zip,
    /// A member of a gzip file.
    Gzip,
    /// The IDAT chunks of a PNG file.
    Png,
    /// The data of a table in a custom archive of PostgreSQL's `pg_dump`.
    PgDump,
    /// A zlib stream, whatever it lies in.
    Zlib,
}

impl Container {
    /// Every kind there is.
    pub const ALL: [Self; 5] = [Self::Zip, Self::Gzip, Self::Png, Self::PgDump, Self::Zlib];

    /// What reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zip => "zip",
            Self::Gzip => "gzip",
            Self::Png => "png",
            Self::PgDump => "pg_dump",
            Self::Zlib => "zlib",
        }
    }

    /// Whether the stream has zlib's header, and its check behind it.
    pub(crate) fn has_check(self) -> bool {
        matches!(self, Self::Png | Self::PgDump | Self::Zlib)
    }
}

/// What a container begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    Zip,
    Gzip,
    Png,
    Zlib,
}

impl Signature {
    pub(crate) const ALL: [Self; 4] = [Self::Zip, Self::Gzip, Self::Png, Self::Zlib];
    /// Bytes of the longest one.
    pub(crate) const LEN_MAX: usize = 4;

    /// The first one there is.
    pub(crate) fn find(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Zip => memchr::memmem::find(bytes, b"PK\x03\x04"),
            Self::Gzip => memchr::memmem::find(bytes, b"\x1f\x8b\x08"),
            Self::Png => memchr::memmem::find(bytes, b"IDAT"),
            Self::Zlib => find_zlib(bytes),
        }
    }

    /// What a header says that begins with it, `before` being the bytes before it; no more will
    /// come when `is_all`.
    pub(crate) fn read(self, before: &[u8], bytes: &[u8], is_all: bool) -> Announced {
        match self {
            Self::Zip => zip_header(bytes),
            Self::Gzip => gzip_header(bytes),
            Self::Png => png_header(before, bytes),
            Self::Zlib => zlib_header(before, bytes, is_all),
        }
    }
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// A stream begins so many bytes further on.
    Stream(usize, Container, Option<FirstPiece>),
    /// It is none.
    None,
    /// It is none, which took as long as it takes to read so many bytes.
    Vain(u64),
    /// The rest of it is not there yet.
    Short,
}

/// How a stream is cut, and bytes of its first piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstPiece {
    pub(crate) cutting: Cutting,
    pub(crate) len: u32,
}

impl FirstPiece {
    /// What a piece of so many bytes has of the stream behind zlib's header; `None` for nothing.
    fn behind_header(cutting: Cutting, piece: u32) -> Option<Self> {
        piece.checked_sub(ZLIB_HEADER_LEN as u32).filter(|len| *len > 0).map(|len| Self { cutting, len })
    }
}

/// Whether the bytes hold what looks like the beginning of a stream: cheap, and mostly right. One
/// that begins in other bytes is not seen.
pub fn may_hold_streams(bytes: &[u8]) -> bool {
    let announced = [Signature::Zip, Signature::Gzip, Signature::Png];
    let mut vain = 0;
    bytes.starts_with(DUMP_MAGIC)
        || announced.into_iter().any(|signature| is_among(signature, bytes, bytes.len(), &mut 0))
        || bytes.chunks(LOOKED_EVERY).any(|bytes| is_among(Signature::Zlib, bytes, LOOKED_LEN, &mut vain))
}

/// Whether a likely one begins among the first so many bytes. Trials add to `vain`, up to a bound.
fn is_among(signature: Signature, bytes: &[u8], len: usize, vain: &mut u64) -> bool {
    let looked = &bytes[..bytes.len().min(len)];
    let mut at = 0;
    while let Some(found) = signature.find(&looked[at..]).filter(|_| *vain < LOOKED_VAIN_MAX) {
        at += found;
        if is_likely(signature, &bytes[at..], vain) {
            return true;
        }
        at += 1;
    }
    false
}

/// Whether what begins with a signature is a container, as far as its header tells.
fn is_likely(signature: Signature, bytes: &[u8], vain: &mut u64) -> bool {
    match signature {
        Signature::Zip => zip_header(bytes) != Announced::None,
        // Three bytes and a few flags are found in noise, too; what encoders write behind them is
        // not (RFC 1952 §2.3.1).
        Signature::Gzip => {
            let is_usual = match bytes.get(8..10) {
                Some(&[level, system]) => matches!(level, 0 | 2 | 4) && matches!(system, 0..14 | 255),
                _ => true,
            };
            is_usual && gzip_header(bytes) != Announced::None
        }
        Signature::Png => png_header(&[], bytes) != Announced::None,
        Signature::Zlib => {
            let tried = is_zlib(&bytes[ZLIB_HEADER_LEN..], true);
            *vain += tried.err().unwrap_or(0);
            tried.is_ok()
        }
    }
}

/// A local header (APPNOTE 4.3.7): deflated, not encrypted. Lengths may come after the stream or in
/// an extra field; the stream says itself where it ends.
fn zip_header(bytes: &[u8]) -> Announced {
    let Some(fixed) = bytes.first_chunk::<30>() else { return Announced::Short };
    let number = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let (flags, method) = (number(6), number(8));
    let len = 30 + usize::from(number(26)) + usize::from(number(28));
    match () {
        () if method != 8 || flags & 1 != 0 => Announced::None,
        () if bytes.len() < len => Announced::Short,
        () => Announced::Stream(len, Container::Zip, None),
    }
}

/// RFC 1952 §2.3.
fn gzip_header(bytes: &[u8]) -> Announced {
    let Some(fixed) = bytes.first_chunk::<10>() else { return Announced::Short };
    let flags = fixed[3];
    if flags & 0xe0 != 0 {
        return Announced::None;
    }
    let mut len = 10;
    if flags & 4 != 0 {
        let Some(extra) = bytes.get(len..).and_then(<[u8]>::first_chunk::<2>) else { return Announced::Short };
        len += 2 + usize::from(u16::from_le_bytes(*extra));
    }
    for text in [8, 16] {
        if flags & text != 0 {
            let rest = bytes.get(len..).unwrap_or_default();
            let Some(end) = memchr::memchr(0, &rest[..rest.len().min(4096)]) else {
                return if rest.len() >= 4096 { Announced::None } else { Announced::Short };
            };
            len += end + 1;
        }
    }
    len += usize::from(flags & 2 != 0) * 2;
    if bytes.len() < len { Announced::Short } else { Announced::Stream(len, Container::Gzip, None) }
}

/// `IDAT` and a zlib header (RFC 1950) without a dictionary; before it the chunk's length.
fn png_header(before: &[u8], bytes: &[u8]) -> Announced {
    let Some(&[_, _, _, _, method, flags]) = bytes.first_chunk::<6>() else { return Announced::Short };
    if !is_zlib_header(method, flags) {
        return Announced::None;
    }
    let piece = before.last_chunk::<4>().map(|len| u32::from_be_bytes(*len));
    let first = piece.and_then(|piece| FirstPiece::behind_header(Cutting::Png, piece));
    Announced::Stream(6, Container::Png, first)
}

fn is_zlib_header(method: u8, flags: u8) -> bool {
    method & 15 == 8 && method >> 4 <= 7 && flags & 32 == 0 && u16::from_be_bytes([method, flags]).is_multiple_of(31)
}

/// A zlib header where no container says so: with a window of 32 KiB, or as Adobe's library writes
/// it in PDF files. Others are rare, and found by chance too often.
fn find_zlib(bytes: &[u8]) -> Option<usize> {
    let is_one = |first: u8, second: u8| {
        let usual = (second == 0x9c) | (second == 0xda) | (second == 0x01) | (second == 0x5e);
        ((first == 0x78) & usual) | ((first == 0x48) & (second == 0x89))
    };
    let seconds = bytes.get(1..)?;
    let (firsts, last_firsts) = bytes[..seconds.len()].as_chunks::<BLOCK_LEN>();
    let (blocks, last_seconds) = seconds.as_chunks::<BLOCK_LEN>();
    // Without branches, so that a block is compared in a few instructions.
    let holds_one = |(firsts, seconds): (&[u8; BLOCK_LEN], &[u8; BLOCK_LEN])| {
        firsts.iter().zip(seconds).fold(0, |found, (first, second)| found | u8::from(is_one(*first, *second))) != 0
    };
    let block = firsts.iter().zip(blocks).position(holds_one);
    let start = block.unwrap_or(blocks.len()) * BLOCK_LEN;
    let (firsts, seconds) = match block {
        Some(number) => (&firsts[number][..], &blocks[number][..]),
        None => (last_firsts, last_seconds),
    };
    firsts.iter().zip(seconds).position(|(first, second)| is_one(*first, *second)).map(|at| start + at)
}

/// A zlib header with what looks like a stream behind it. A block's length before it may be that of
/// a piece in an archive of `pg_dump`.
fn zlib_header(before: &[u8], bytes: &[u8], is_all: bool) -> Announced {
    let rest = bytes.get(ZLIB_HEADER_LEN..).unwrap_or_default();
    if rest.len() < TRIAL_LEN + ZLIB_CHECK_LEN && !is_all {
        return Announced::Short;
    }
    if let Err(vain) = is_zlib(rest, false) {
        return Announced::Vain(vain);
    }
    let piece = before.last_chunk::<5>().and_then(|before| Cutting::PgDump.piece_len(before));
    let first = piece.and_then(|piece| FirstPiece::behind_header(Cutting::PgDump, piece));
    let container = if first.is_some() { Container::PgDump } else { Container::Zlib };
    Announced::Stream(ZLIB_HEADER_LEN, container, first)
}

/// Whether the first of these bytes read as a stream; if not, how many bytes read in vain that
/// counts as. One that ends among them has its right check; for content to be looked at again, it
/// has some length, too.
fn is_zlib(bytes: &[u8], is_worth: bool) -> Result<(), u64> {
    let given = &bytes[..bytes.len().min(TRIAL_LEN)];
    if !begins_like_a_block(given) {
        return Err(LOOK_VAIN);
    }
    let (mut inflater, mut plain) = (Inflater::of_blocks(TRIAL_BLOCKS), Vec::new());
    let input = Input { bytes: given, at: 0, is_all: false };
    let is_one = match inflater.run(input, &mut plain, TRIAL_PLAIN_LEN, None) {
        Ok(Stopped::Done) => {
            let end = inflater.bit().div_ceil(8);
            let mut check = Adler::default();
            check.update(&plain);
            let told = bytes.get(end as usize..).and_then(<[u8]>::first_chunk::<ZLIB_CHECK_LEN>);
            told.is_some_and(|told| u32::from_be_bytes(*told) == check.value()) && (!is_worth || end >= WORTH_LEN_MIN)
        }
        Ok(Stopped::Full) => true,
        Ok(Stopped::Starved) => given.len() == TRIAL_LEN,
        Err(_) => false,
    };
    if is_one { Ok(()) } else { Err(TRIAL_VAIN) }
}

/// Whether a block begins here, as far as can be told in little time: most of what is none ends
/// here.
fn begins_like_a_block(bytes: &[u8]) -> bool {
    let Some(&[first, second, third]) = bytes.first_chunk::<3>() else { return false };
    match first >> 1 & 3 {
        0 => {
            let Some(&[_, a, b, c, d]) = bytes.first_chunk::<5>() else { return false };
            u16::from_le_bytes([a, b]) ^ u16::from_le_bytes([c, d]) == 0xffff
        }
        1 => fixed_goes_on(bytes),
        2 => {
            // Encoders write complete codes, since others refuse what is none.
            let count = 4 + usize::from(second >> 5 | third << 3 & 8);
            let mut bits = FixedBits { bytes, bit: 17 };
            let lens = (0..count).filter_map(|_| bits.low(3)).filter(|len| *len > 0);
            first >> 3 <= 29 && lens.map(|len| 128 >> len).sum::<u32>() == 128
        }
        _ => false,
    }
}

/// Whether the first steps of a block with fixed codes have a meaning (RFC 1951 §3.2.6).
fn fixed_goes_on(bytes: &[u8]) -> bool {
    let mut bits = FixedBits { bytes, bit: 3 };
    let mut at = 0;
    for _ in 0..TRIAL_STEPS {
        let Some(code) = bits.high(7) else { return true };
        let symbol = match code {
            0 => return true,
            1..24 => code,
            _ => match code << 1 | bits.next().unwrap_or(0) {
                code @ 0xc0..0xc8 => code - 0xc0 + 24,
                literal => {
                    if literal > 0xc7 {
                        bits.next();
                    }
                    at += 1;
                    continue;
                }
            },
        };
        let symbol = symbol as usize - 1;
        let (Some(base), Some(extra)) = (LENGTH_BASE.get(symbol), LENGTH_EXTRA.get(symbol)) else { return false };
        let len = u32::from(*base) + bits.low((*extra).into()).unwrap_or(0);
        let Some(distance) = bits.high(5) else { return true };
        let distance = distance as usize;
        let (Some(base), Some(extra)) = (DISTANCE_BASE.get(distance), DISTANCE_EXTRA.get(distance)) else {
            return false;
        };
        let Some(extra) = bits.low((*extra).into()) else { return true };
        if u32::from(*base) + extra > at {
            return false;
        }
        at += len;
    }
    true
}

/// Bits one by one.
struct FixedBits<'a> {
    bytes: &'a [u8],
    bit: usize,
}

impl FixedBits<'_> {
    fn next(&mut self) -> Option<u32> {
        let byte = self.bytes.get(self.bit / 8)?;
        self.bit += 1;
        Some(u32::from(byte >> ((self.bit - 1) % 8) & 1))
    }

    /// So many bits, the first the lowest.
    fn low(&mut self, count: u32) -> Option<u32> {
        (0..count).try_fold(0, |value, at| Some(value | self.next()? << at))
    }

    /// So many bits, the first the highest.
    fn high(&mut self, count: u32) -> Option<u32> {
        (0..count).try_fold(0, |value, _| Some(value << 1 | self.next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{ScanLimits, Scanner};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn zlib_headers_are_found_as_byte_by_byte(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
            places in prop::collection::vec((any::<prop::sample::Index>(), 0usize..7), 0..4),
        ) {
            const PAIRS: [[u8; 2]; 7] =
                [[0x78, 0x01], [0x78, 0x5e], [0x78, 0x9c], [0x78, 0xda], [0x48, 0x89], [0x48, 0x9c], [0x78, 0x89]];
            for (place, pair) in places.into_iter().filter(|_| bytes.len() > 1).collect::<Vec<_>>() {
                let at = place.index(bytes.len() - 1);
                bytes[at..at + 2].copy_from_slice(&PAIRS[pair]);
            }
            let expected = bytes.windows(2).position(|pair| PAIRS[..5].iter().any(|known| known == pair));
            prop_assert_eq!(find_zlib(&bytes), expected);
        }
    }

    #[test]
    fn trials_of_content_are_bounded_however_many_headers_it_has() {
        // A block of no bytes with fixed codes, then one of a type that there is not.
        let dear = b"\x78\x9c\x02\x1c".repeat(1 << 18);
        let mut vain = 0;
        assert!(!is_among(Signature::Zlib, &dear, dear.len(), &mut vain));
        assert_eq!(vain, LOOKED_VAIN_MAX);
        // One that ends at once counts less.
        let cheap = b"\x78\x9c\x07\x00".repeat(1000);
        let mut vain = 0;
        assert!(!is_among(Signature::Zlib, &cheap, cheap.len(), &mut vain));
        assert_eq!(vain, 1000 * LOOK_VAIN);
        let index = Scanner::index(&[dear, cheap].concat(), ScanLimits::default());
        assert!(index.streams.is_empty());
    }

    #[test]
    fn a_trial_reads_a_few_blocks_and_little_text() {
        // Blocks of no bytes, 10 bits each.
        let blocks = [0x02, 0x08, 0x20, 0x80, 0x00].repeat(100);
        let mut inflater = Inflater::of_blocks(TRIAL_BLOCKS);
        let input = Input { bytes: &blocks, at: 0, is_all: false };
        assert_eq!(inflater.run(input, &mut Vec::new(), TRIAL_PLAIN_LEN, None), Ok(Stopped::Full));
        assert_eq!(inflater.bit(), TRIAL_BLOCKS * 10);
    }

    #[test]
    fn a_short_stream_with_much_text_is_found_at_an_objects_end() {
        const MATCHES: u32 = 200;
        // A last block with fixed codes: a zero, and matches of 258 bytes one byte back.
        let mut bits = vec![true, true, false];
        let mut code = |value: u32, count: u32| bits.extend((0..count).rev().map(|at| value >> at & 1 == 1));
        code(0x30, 8);
        (0..MATCHES).for_each(|_| code(0xc5 << 5, 13));
        code(0, 7);
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        let mut object = b"some bytes\x78\x9c".to_vec();
        object.extend(bits.chunks(8).map(byte));
        object.extend_from_slice(&(((1 + MATCHES * 258) << 16) | 1).to_be_bytes());
        assert!(may_hold_streams(&object));
        let index = Scanner::index(&object, ScanLimits::default());
        let plain_lens: Vec<u64> = index.streams.iter().map(|stream| stream.plain_len).collect();
        assert_eq!(plain_lens, [1 + u64::from(MATCHES) * 258]);
    }

    #[test]
    fn noise_holds_no_streams_and_headers_in_it_are_no_streams() {
        let mut state = 7u64;
        let mut noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(2 << 20)
        .collect();
        assert!(!may_hold_streams(&noise));
        for at in (0..noise.len() - 2).step_by(97) {
            noise[at..at + 2].copy_from_slice(&[0x78, 0x9c]);
        }
        assert!(!may_hold_streams(&noise));
        assert!(may_hold_streams(b"PGDMP\x01\x0e"));
    }
}
