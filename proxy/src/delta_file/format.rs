//! The bytes of the file: header, segment heads, end (docs/format/delta-file-v1.md).

use super::error::{DeltaFileError, Result, io_error};
use object_format::{
    Coding, SEGMENT_LEN,
    blob::{FOOTPRINT_LEN_MAX, FOOTPRINT_RANGES_MAX},
};
use std::io::{self, Read};

/// What the delta is called in messages.
pub(super) const DELTA: &str = "the delta";
/// First bytes of the file. Part of the format.
const MAGIC: [u8; 4] = *b"DWDF";
/// The version of a file without deflate views, and of one that has some. Part of the format.
pub(super) const FIRST: u8 = 1;
pub(super) const WITH_VIEWS: u8 = 2;
/// That of a file with views of streams with gaps. Part of the format.
pub(super) const WITH_GAPS: u8 = 3;
/// Most bytes that the parts of a view's units have and that are opened for them. Part of the
/// format (§2).
pub(super) const VIEW_WORK_BYTES_MAX: u64 = 1 << 30;
/// Bytes of the header. Part of the format.
pub(super) const HEADER_LEN: usize = 56;
/// Bytes of a segment's head without its footprint, and of one range. Part of the format.
const HEAD_LEN: usize = 24;
const RANGE_LEN: usize = 12;

/// What the file says of its two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u8,
    pub(super) base_len: u64,
    pub(super) target_len: u64,
    pub(super) base_sha256: [u8; 32],
}

/// A run of base bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// What stands before a segment's stored bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) stored_len: u32,
    pub(super) coding: Coding,
    pub(super) digest: [u8; 16],
    pub(super) footprint: Vec<Range>,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.version;
        bytes[8..16].copy_from_slice(&self.base_len.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.target_len.to_be_bytes());
        bytes[24..].copy_from_slice(&self.base_sha256);
        bytes
    }

    pub(super) fn read(from: &mut impl Read) -> Result<Self> {
        let mut fields = Fields(from);
        if fields.array()? != MAGIC {
            return Err(DeltaFileError::Malformed("it does not begin like one"));
        }
        let version = match fields.array()? {
            [version @ FIRST..=WITH_GAPS, 0, 0, 0] => version,
            [version, 0, 0, 0] if version > WITH_GAPS => return Err(DeltaFileError::Malformed("of a later version")),
            _ => return Err(DeltaFileError::Malformed("an impossible header")),
        };
        Ok(Self { version, base_len: fields.u64()?, target_len: fields.u64()?, base_sha256: fields.array()? })
    }

    /// Plain lengths of the segments, in order.
    pub(super) fn segment_lens(&self) -> impl Iterator<Item = usize> + use<> {
        let target_len = self.target_len;
        (0..target_len.div_ceil(SEGMENT_LEN as u64))
            .map(move |number| (target_len - number * SEGMENT_LEN as u64).min(SEGMENT_LEN as u64) as usize)
    }
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        out.extend_from_slice(&self.stored_len.to_be_bytes());
        out.extend_from_slice(&[self.coding as u8, self.footprint.len() as u8, 0, 0]);
        out.extend_from_slice(&self.digest);
        for range in &self.footprint {
            out.extend_from_slice(&range.offset.to_be_bytes());
            out.extend_from_slice(&range.len.to_be_bytes());
        }
        out
    }

    /// Reads the head of a segment of `plain_len` bytes and checks all that can be checked without
    /// its stored bytes.
    pub(super) fn read(from: &mut impl Read, header: &Header, plain_len: usize) -> Result<Self> {
        let mut fields = Fields(from);
        let stored_len = u32::from_be_bytes(fields.array()?);
        let [coding, ranges, 0, 0] = fields.array()? else {
            return Err(DeltaFileError::Malformed("an impossible segment head"));
        };
        let digest = fields.array()?;
        let coding = [Coding::Raw, Coding::Zstd, Coding::Delta, Coding::View, Coding::GappedView]
            .into_iter()
            .find(|known| *known as u8 == coding && header.version >= version_of(*known))
            .ok_or(DeltaFileError::Malformed("an unknown coding"))?;
        let fits = match coding {
            Coding::Raw => stored_len as usize == plain_len,
            Coding::Zstd | Coding::Delta | Coding::View | Coding::GappedView | Coding::Planes => {
                (1..plain_len).contains(&(stored_len as usize))
            }
        };
        if !fits {
            return Err(DeltaFileError::Malformed("a stored length its coding cannot have"));
        }
        let ranges_max = if coding.has_base() { FOOTPRINT_RANGES_MAX } else { 0 };
        if usize::from(ranges) > ranges_max {
            return Err(DeltaFileError::Malformed("too many footprint ranges"));
        }
        let footprint = fields.footprint(ranges, header.base_len)?;
        Ok(Self { stored_len, coding, digest, footprint })
    }

    /// Bytes it takes in the file.
    pub(super) fn len(&self) -> usize {
        HEAD_LEN + RANGE_LEN * self.footprint.len()
    }
}

/// The first version that has a coding.
pub(super) fn version_of(coding: Coding) -> u8 {
    match coding {
        Coding::GappedView => WITH_GAPS,
        Coding::View => WITH_VIEWS,
        Coding::Raw | Coding::Zstd | Coding::Delta | Coding::Planes => FIRST,
    }
}

/// Reads what must be there.
pub(super) fn read_exact(from: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => DeltaFileError::Malformed("it ends early"),
        _ => io_error(DELTA)(error),
    })
}

/// Sees to it that nothing follows.
pub(super) fn expect_end(from: &mut impl Read) -> Result<()> {
    match from.read(&mut [0]).map_err(io_error(DELTA))? {
        0 => Ok(()),
        _ => Err(DeltaFileError::Malformed("bytes after its end")),
    }
}

struct Fields<'a, R>(&'a mut R);

impl<R: Read> Fields<'_, R> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        read_exact(self.0, &mut bytes)?;
        Ok(bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    fn footprint(&mut self, ranges: u8, base_len: u64) -> Result<Vec<Range>> {
        let mut footprint = Vec::with_capacity(usize::from(ranges));
        let (mut at, mut total) = (0, 0);
        for _ in 0..ranges {
            let range = Range { offset: self.u64()?, len: u32::from_be_bytes(self.array()?) };
            let end = range.offset.checked_add(u64::from(range.len)).filter(|&end| end <= base_len);
            let end = end.filter(|_| range.offset >= at && range.len > 0);
            at = end.ok_or(DeltaFileError::Malformed("an impossible footprint"))?;
            total += u64::from(range.len);
            footprint.push(range);
        }
        if total > FOOTPRINT_LEN_MAX {
            return Err(DeltaFileError::Malformed("a footprint that is too long"));
        }
        Ok(footprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header =
        Header { version: FIRST, base_len: 1 << 33, target_len: (1 << 33) + 5, base_sha256: [7; 32] };

    fn heads() -> impl Strategy<Value = Head> {
        let gaps = prop::collection::vec((0u64..1 << 20, 1u32..1 << 20), 0..=16);
        (1u32..1000, any::<[u8; 16]>(), gaps).prop_map(|(stored_len, digest, gaps)| {
            let mut at = 0;
            let footprint = gaps.into_iter().map(|(gap, len)| {
                let range = Range { offset: at + gap, len };
                at = range.offset + u64::from(len);
                range
            });
            Head { stored_len, coding: Coding::Delta, digest, footprint: footprint.collect() }
        })
    }

    proptest! {
        #[test]
        fn a_head_is_read_as_it_was_written_and_not_when_it_is_cut(head in heads()) {
            let bytes = head.encode();
            prop_assert_eq!(bytes.len(), head.len());
            prop_assert_eq!(&Head::read(&mut &bytes[..], &HEADER, 1000).unwrap(), &head);
            for cut in 0..bytes.len() {
                prop_assert!(Head::read(&mut &bytes[..cut], &HEADER, 1000).is_err());
            }
            let short = Header { base_len: head.footprint.last().map_or(0, |last| last.offset), ..HEADER };
            prop_assert_eq!(Head::read(&mut &bytes[..], &short, 1000).is_ok(), head.footprint.is_empty());
        }

        #[test]
        fn no_bytes_make_a_reader_panic_or_take_much(bytes in prop::collection::vec(any::<u8>(), 0..300), plain_len in 1usize..=SEGMENT_LEN) {
            let _ = Header::read(&mut &bytes[..]);
            if let Ok(head) = Head::read(&mut &bytes[..], &HEADER, plain_len) {
                prop_assert!(head.stored_len as usize <= plain_len && head.footprint.len() <= FOOTPRINT_RANGES_MAX);
            }
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written_and_of_a_known_version_only() {
        let bytes = HEADER.encode();
        assert_eq!(Header::read(&mut &bytes[..]).unwrap(), HEADER);
        let later = Header { version: WITH_VIEWS, ..HEADER };
        assert_eq!(Header::read(&mut &later.encode()[..]).unwrap(), later);
        for (at, value) in [(0, b'X'), (4, 0), (4, 4), (5, 1), (7, 1)] {
            let mut altered = bytes;
            altered[at] = value;
            assert!(Header::read(&mut &altered[..]).is_err(), "byte {at} as {value}");
        }
    }

    #[test]
    fn segments_cover_the_target() {
        for target_len in [0, 1, SEGMENT_LEN as u64, SEGMENT_LEN as u64 + 1, 3 * SEGMENT_LEN as u64 - 1] {
            let lens: Vec<usize> = Header { target_len, ..HEADER }.segment_lens().collect();
            assert_eq!(lens.iter().map(|&len| len as u64).sum::<u64>(), target_len);
            assert!(lens.iter().all(|len| (1..=SEGMENT_LEN).contains(len)));
        }
    }

    #[test]
    fn a_coding_only_has_the_lengths_and_ranges_it_can_have() {
        let read = |coding, stored_len, ranges: usize| {
            let footprint = (0..ranges as u64).map(|at| Range { offset: 8 * at, len: 8 }).collect();
            let bytes = Head { stored_len, coding, digest: [0; 16], footprint }.encode();
            let version = version_of(coding);
            Head::read(&mut &bytes[..], &Header { version, ..HEADER }, 100).is_ok()
        };
        assert!(read(Coding::Raw, 100, 0) && !read(Coding::Raw, 99, 0) && !read(Coding::Raw, 100, 1));
        assert!(read(Coding::Zstd, 99, 0) && !read(Coding::Zstd, 100, 0) && !read(Coding::Zstd, 0, 0));
        assert!(!read(Coding::Zstd, 50, 1));
        for with_base in [Coding::Delta, Coding::View, Coding::GappedView] {
            assert!(read(with_base, 99, 16) && !read(with_base, 99, 17) && !read(with_base, 100, 1));
        }
        for (coding, version) in [(Coding::View, FIRST), (Coding::GappedView, FIRST), (Coding::GappedView, WITH_VIEWS)]
        {
            let view = Head { stored_len: 9, coding, digest: [0; 16], footprint: Vec::new() }.encode();
            let header = Header { version, ..HEADER };
            assert!(Head::read(&mut &view[..], &header, 100).is_err(), "version {version} has no {coding:?}");
        }
    }
}
