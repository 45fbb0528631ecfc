//! Units of one segment as they are stored together, and the places in the base where their plain
//! text is opened from.
//!
//! Part of the format (docs/format/deflate-view-v1.md §12).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::alphabet::WINDOW_LEN;
use crate::containers::Container;
use crate::gaps::{GAP_RUNS_MAX, GapPlaces, Gaps};
use crate::numbers::{put, take, take_up_to};
use crate::open::{Opened, open};
use crate::stream::{Point, Stream};
use crate::unit::UNIT_LEN_MAX;
use crate::{BasePart, Malformed, StoredUnit};

/// Most units of a segment. Part of the format.
pub const UNITS_MAX: usize = 1 << 12;
/// Most openings of a segment. Part of the format.
pub const OPENINGS_MAX: usize = 1 << 16;
/// Most plain bytes of one opening. Part of the format.
pub const OPENING_LEN_MAX: usize = 8 << 20;
/// Most plain bytes of all openings of a segment. Part of the format.
pub const OPENED_LEN_MAX: usize = 128 << 20;
/// Bytes of a unit's digest. Part of the format.
const DIGEST_LEN: usize = 16;

/// Most streams with gaps of a segment. Part of the format.
const GAPPED_MAX: usize = 1 << 16;

/// How a segment's bytes are to be read: which coding of blob-v1 it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentForm {
    /// Coding 3: every stream lies in one piece.
    Whole,
    /// Coding 5: streams of the object or of the base have gaps.
    Gapped,
}

impl SegmentForm {
    /// Takes one of its units apart.
    ///
    /// # Errors
    /// As [`StoredUnit::read`], and for a unit that it may not have.
    pub fn unit(self, bytes: &[u8]) -> Result<StoredUnit<'_>, Malformed> {
        let unit = StoredUnit::read(bytes)?;
        match self {
            Self::Whole if !unit.gaps.is_empty() => Err(Malformed("gaps where none can be")),
            _ => Ok(unit),
        }
    }
}

/// Plain text of a stream of the base that is read from one place on, the stream's start or an
/// access point.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opening {
    /// The base's bytes before the stream's first.
    pub stream_at: u64,
    /// Plain bytes of the stream before it; 0 where it is read from the stream's start.
    pub plain_at: u64,
    /// Its plain bytes.
    pub plain_len: u32,
    /// Bits of the stream before the header of the block that it begins in.
    pub block_bit: u64,
    /// Bits from there to its first step; 0 when it begins with the header.
    pub step_bits: u64,
    /// The base's bytes it is read from.
    pub len: u32,
    /// The stream's gaps, in bytes from its first one on.
    pub gaps: Option<Arc<Gaps>>,
}

impl Opening {
    /// The openings of a stream: one from its start and one from each access point, up to the next.
    pub fn all(stream: &Stream) -> impl Iterator<Item = (Self, &[u8])> {
        let starts = std::iter::once(None).chain(stream.points.iter().map(Some));
        starts.enumerate().filter_map(|(number, point)| {
            let (plain_at, block_bit) = point.map_or((0, 0), |point| (point.plain_at, point.block_bit));
            let next = stream.points.get(number);
            let plain_end = next.map_or(stream.plain_len, |next| next.plain_at);
            let first = stream.place_of(block_bit / 8);
            // The reader of steps looks some bytes ahead.
            let end = next.map_or(stream.end, |next| stream.place_after(next.bit / 8 + 64));
            let opening = Self {
                stream_at: stream.start,
                plain_at,
                plain_len: u32::try_from(plain_end - plain_at).ok().filter(|len| *len > 0)?,
                block_bit,
                step_bits: point.map_or(0, |point| point.bit - point.block_bit),
                len: u32::try_from(end - first).ok()?,
                gaps: stream.gaps.clone(),
            };
            Some((opening, point.map_or(&[][..], |point| &point.window)))
        })
    }

    /// The base's bytes it is read from.
    pub fn bytes(&self) -> Range<u64> {
        let first = self.stream_at + self.first();
        first..first + u64::from(self.len)
    }

    /// Bytes that reading it takes at most: its plain ones, and where its stream has gaps, those it
    /// is read from, which are copied, and a byte for each run that is walked along. Part of the
    /// format of delta files.
    pub(crate) fn work(&self) -> u64 {
        let gaps = self.gaps.as_ref().map_or(0, |gaps| u64::from(self.len) + gaps.runs() as u64);
        u64::from(self.plain_len) + gaps
    }

    /// Bytes of the stream, its gaps among them, before the first one that it is read from.
    fn first(&self) -> u64 {
        let at = self.block_bit / 8;
        self.gaps.as_ref().map_or(at, |gaps| gaps.place_of(at))
    }

    /// The gaps in the bytes that [`Opening::bytes`] names, counted from there.
    pub fn own_gaps(&self) -> Option<Gaps> {
        let first = self.first();
        self.gaps.as_ref().map(|gaps| gaps.part(first..first + u64::from(self.len))).filter(|gaps| !gaps.is_empty())
    }

    /// Its plain bytes, counted in the stream.
    pub fn plain(&self) -> Range<u64> {
        self.plain_at..self.plain_at + u64::from(self.plain_len)
    }

    /// Bytes of plain text before it that reading it needs.
    pub fn window_len(&self) -> usize {
        WINDOW_LEN.min(usize::try_from(self.plain_at).unwrap_or(WINDOW_LEN))
    }

    /// Its plain text and matches. `window` is the plain text before it, `bytes` those of the base
    /// that [`Opening::bytes`] names.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not those of the stream.
    pub fn open(&self, window: &[u8], bytes: &[u8]) -> Result<Opened, Malformed> {
        if window.len() != self.window_len() || bytes.len() != self.len as usize {
            return Err(Malformed("an opening of other bytes"));
        }
        let point = Point {
            plain_at: self.plain_at,
            block_bit: self.block_bit,
            bit: self.block_bit + self.step_bits,
            window: window.to_vec(),
        };
        let stream = Stream {
            container: Container::Gzip,
            start: 0,
            end: self.first() + u64::from(self.len),
            plain_len: self.plain().end,
            digest: 0,
            points: if self.plain_at == 0 { Vec::new() } else { vec![point] },
            nested: Vec::new(),
            gaps: self.gaps.clone(),
        };
        open(&stream, self.plain(), bytes)
    }
}

/// Where many openings begin: each table of gaps is walked along once, and not for each of them.
#[derive(Default)]
pub(crate) struct OpeningPlaces(BTreeMap<u64, GapPlaces>);

impl OpeningPlaces {
    /// What [`Opening::bytes`] says.
    pub(crate) fn bytes(&mut self, opening: &Opening) -> Range<u64> {
        let at = opening.block_bit / 8;
        let first = opening.stream_at
            + opening
                .gaps
                .as_ref()
                .map_or(at, |gaps| self.0.entry(opening.stream_at).or_insert_with(|| GapPlaces::of(gaps)).place_of(at));
        first..first + u64::from(opening.len)
    }
}

/// One unit in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentUnit {
    /// Bytes of the object: 1 to [`UNIT_LEN_MAX`].
    pub object_len: u32,
    /// XXH3-128 of these bytes, little endian.
    pub digest: [u8; DIGEST_LEN],
    /// Where the stored unit lies among the segment's stored bytes.
    pub place: Range<usize>,
}

/// The stored bytes of a segment, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSegment {
    /// Its units, in the order of the object.
    pub units: Vec<SegmentUnit>,
    /// Places its base is opened from, ascending.
    pub openings: Vec<Opening>,
    /// Where the frame with the openings' windows lies among the stored bytes.
    pub windows: Range<usize>,
}

impl StoredSegment {
    /// The stored bytes of a segment: `units` are object length, digest and stored unit each,
    /// `windows` one frame with the windows of `openings`.
    pub fn write(
        units: &[(u32, [u8; DIGEST_LEN], Vec<u8>)],
        openings: &[Opening],
        windows: &[u8],
        form: SegmentForm,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, units.len() as u64);
        for (object_len, digest, bytes) in units {
            put(&mut out, u64::from(*object_len));
            put(&mut out, bytes.len() as u64);
            out.extend_from_slice(digest);
        }
        put(&mut out, openings.len() as u64);
        let mut last = 0;
        for opening in openings {
            put(&mut out, (opening.stream_at - last) << 1 | u64::from(opening.plain_at > 0));
            last = opening.stream_at;
            if opening.plain_at > 0 {
                put(&mut out, opening.plain_at);
                put(&mut out, opening.block_bit);
                put(&mut out, opening.step_bits);
            }
            put(&mut out, u64::from(opening.plain_len));
            put(&mut out, u64::from(opening.len));
        }
        if form == SegmentForm::Gapped {
            write_gaps(openings, &mut out);
        }
        put(&mut out, windows.len() as u64);
        out.extend_from_slice(windows);
        units.iter().for_each(|(_, _, bytes)| out.extend_from_slice(bytes));
        out
    }

    /// Takes the stored bytes of a segment of `plain_len` bytes apart. Nothing of the units is
    /// looked at.
    ///
    /// # Errors
    /// [`Malformed`] for what the format document tells a decoder to refuse.
    pub fn read(bytes: &[u8], plain_len: u32, form: SegmentForm) -> Result<Self, Malformed> {
        let mut rest = bytes;
        let count = take_up_to(&mut rest, UNITS_MAX)?;
        let mut units = Vec::with_capacity(count.min(64));
        let (mut object_left, mut at) = (plain_len, 0usize);
        for _ in 0..count {
            let object_len = take_up_to(&mut rest, UNIT_LEN_MAX)? as u32;
            let len = take_up_to(&mut rest, UNIT_LEN_MAX)?;
            let (digest, behind) = rest.split_first_chunk().ok_or(Malformed("a segment ends early"))?;
            rest = behind;
            object_left = object_left.checked_sub(object_len).ok_or(Malformed("units past their segment"))?;
            if object_len == 0 || len == 0 {
                return Err(Malformed("a unit of nothing"));
            }
            units.push(SegmentUnit { object_len, digest: *digest, place: at..at + len });
            at += len;
        }
        if object_left > 0 {
            return Err(Malformed("units that end before their segment"));
        }
        let mut openings = read_openings(&mut rest)?;
        if form == SegmentForm::Gapped {
            read_gaps(&mut rest, &mut openings)?;
        }
        let windows_len = take_up_to(&mut rest, bytes.len())?;
        let windows_at = bytes.len() - rest.len();
        let units_at = windows_at + windows_len;
        if units_at.checked_add(at) != Some(bytes.len()) {
            return Err(Malformed("units that do not fill their segment"));
        }
        if (windows_len == 0) != openings.iter().all(|opening| opening.plain_at == 0) {
            return Err(Malformed("windows that nobody needs, or none where some are needed"));
        }
        for unit in &mut units {
            unit.place = unit.place.start + units_at..unit.place.end + units_at;
        }
        Ok(Self { units, openings, windows: windows_at..units_at })
    }

    /// Bytes of all windows.
    pub fn windows_len(&self) -> usize {
        self.openings.iter().map(Opening::window_len).sum()
    }

    /// The openings, as positions in [`StoredSegment::openings`], that a part of the base is read
    /// from.
    ///
    /// # Errors
    /// [`Malformed`] when there is a part of it that none has.
    pub fn openings_of(&self, part: &BasePart) -> Result<Range<usize>, Malformed> {
        let (stream_at, plain_at, len) = match *part {
            BasePart::Object { .. } => return Ok(0..0),
            BasePart::Plain { stream_at, plain_at, len } => (stream_at, plain_at, len),
            BasePart::Nested { stream_at, nested_at, nested_len, .. } => (stream_at, nested_at, nested_len),
        };
        let end = plain_at.checked_add(len.into()).ok_or(Malformed("plain text that nothing opens"))?;
        let before = |opening: &Opening| (opening.stream_at, opening.plain().end) <= (stream_at, plain_at);
        let first = self.openings.partition_point(before);
        let (mut at, mut covered) = (first, plain_at);
        while covered < end {
            let next = self.openings.get(at).filter(|next| next.stream_at == stream_at && next.plain_at <= covered);
            covered = next.ok_or(Malformed("plain text that nothing opens"))?.plain().end;
            at += 1;
        }
        Ok(first..at)
    }
}

/// Appends the gaps of every stream that some of the openings are of.
fn write_gaps(openings: &[Opening], out: &mut Vec<u8>) {
    let gapped = openings.iter().filter_map(|opening| Some((opening.stream_at, opening.gaps.as_ref()?)));
    let gapped: BTreeMap<u64, &Arc<Gaps>> = gapped.collect();
    put(out, gapped.len() as u64);
    let mut last = 0;
    for (stream_at, gaps) in gapped {
        put(out, stream_at - last);
        last = stream_at;
        gaps.write(out);
    }
}

/// Gives openings the gaps of their streams.
fn read_gaps(rest: &mut &[u8], openings: &mut [Opening]) -> Result<(), Malformed> {
    let (mut stream_at, mut runs) = (0u64, 0);
    for number in 0..take_up_to(rest, GAPPED_MAX)? {
        let further = take(rest)?;
        stream_at =
            stream_at.checked_add(further).filter(|at| *at < 1 << 62).ok_or(Malformed("gaps past every object"))?;
        let gaps = Gaps::read(rest, 1 << 62)?;
        runs += gaps.runs();
        if (further == 0 && number > 0) || gaps.begins() || runs > GAP_RUNS_MAX {
            return Err(Malformed("gaps where none can be"));
        }
        let gaps = Arc::new(gaps);
        let first = openings.partition_point(|opening| opening.stream_at < stream_at);
        for opening in openings[first..].iter_mut().take_while(|opening| opening.stream_at == stream_at) {
            opening.gaps = Some(Arc::clone(&gaps));
        }
    }
    Ok(())
}

fn read_openings(rest: &mut &[u8]) -> Result<Vec<Opening>, Malformed> {
    let count = take_up_to(rest, OPENINGS_MAX)?;
    let mut openings: Vec<Opening> = Vec::with_capacity(count.min(1024));
    let (mut stream_at, mut total) = (0u64, 0usize);
    for _ in 0..count {
        let head = take(rest)?;
        stream_at = stream_at.checked_add(head >> 1).ok_or(Malformed("an opening past every object"))?;
        let (mut plain_at, mut block_bit, mut step_bits) = (0, 0, 0);
        if head & 1 == 1 {
            (plain_at, block_bit, step_bits) = (take(rest)?, take(rest)?, take(rest)?);
            if plain_at == 0 {
                return Err(Malformed("a number in the wrong form"));
            }
        }
        let plain_len = take_up_to(rest, OPENING_LEN_MAX)? as u32;
        let len = take_up_to(rest, crate::FOOTPRINT_LEN_MAX)? as u32;
        total += plain_len as usize;
        let ends = [plain_at.checked_add(plain_len.into()), block_bit.checked_add(step_bits)];
        let far = stream_at >= 1 << 62 || ends.iter().any(|end| end.is_none_or(|end| end >= 1 << 62));
        if plain_len == 0 || len == 0 || total > OPENED_LEN_MAX || far {
            return Err(Malformed("an opening of impossible length"));
        }
        let opening = Opening { stream_at, plain_at, plain_len, block_bit, step_bits, len, gaps: None };
        if openings.last().is_some_and(|last| (last.stream_at, last.plain().end) > (stream_at, plain_at)) {
            return Err(Malformed("openings that do not ascend"));
        }
        openings.push(opening);
    }
    Ok(openings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn opening() -> impl Strategy<Value = (u64, u64, u32, u64, u64, u32)> {
        (0u64..1 << 40, 0u64..3, 1u32..1 << 10, 0u64..1 << 30, 0u64..1000, 1u32..1 << 20)
    }

    proptest! {
        #[test]
        fn a_segment_comes_back(
            units in prop::collection::vec((1u32..1000, any::<[u8; 16]>(), prop::collection::vec(any::<u8>(), 1..50)), 1..9),
            openings in prop::collection::vec(opening(), 0..20),
            gapped in prop::option::of(prop::collection::vec((1u32..200, 1u32..20), 1..9)),
        ) {
            let form = if gapped.is_some() { SegmentForm::Gapped } else { SegmentForm::Whole };
            let gaps = gapped.map(|pieces| {
                let mut gaps = Gaps::default();
                pieces.into_iter().for_each(|(piece, gap)| gaps.push(piece, gap));
                Arc::new(gaps)
            });
            let mut at = 0;
            let openings: Vec<_> = openings
                .into_iter()
                .map(|(further, plain_at, plain_len, block_bit, step_bits, len)| {
                    at += further + 1;
                    let (block_bit, step_bits) = if plain_at == 0 { (0, 0) } else { (block_bit, step_bits) };
                    Opening { stream_at: at, plain_at, plain_len, block_bit, step_bits, len, gaps: gaps.clone().filter(|_| at % 2 == 0) }
                })
                .collect();
            let windows = if openings.iter().all(|opening| opening.plain_at == 0) { vec![] } else { vec![7; 9] };
            let bytes = StoredSegment::write(&units, &openings, &windows, form);
            let plain_len = units.iter().map(|(len, ..)| len).sum();
            let read = StoredSegment::read(&bytes, plain_len, form).expect("what was written reads");
            prop_assert_eq!(&read.openings, &openings);
            prop_assert_eq!(&bytes[read.windows.clone()], &windows[..]);
            for (unit, (len, digest, stored)) in read.units.iter().zip(&units) {
                prop_assert_eq!((unit.object_len, unit.digest), (*len, *digest));
                prop_assert_eq!(&bytes[unit.place.clone()], &stored[..]);
            }
            prop_assert!(StoredSegment::read(&bytes, plain_len + 1, form).is_err());
            prop_assert!(StoredSegment::read(&bytes[..bytes.len() - 1], plain_len, form).is_err());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), len in 0u32..100) {
            let _ = StoredSegment::read(&bytes, len, SegmentForm::Whole);
            let _ = StoredSegment::read(&bytes, len, SegmentForm::Gapped);
        }
    }
}
