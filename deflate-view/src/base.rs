//! A base with its streams opened: its text as one run of bytes, the places that the text is opened
//! from, and the bytes of a unit's footprint.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::alphabet::WINDOW_LEN;
use crate::open::{BYTES_PER_MATCH, open_from_start};
use crate::segment::{OPENING_LEN_MAX, Opening, StoredSegment};
use crate::{Base, BasePart, Index, Malformed, Match, Opened, Stream};

/// Most plain bytes of a nested stream that is opened in a base: it is read from its start.
const NESTED_PLAIN_LEN_MAX: u64 = 4 << 20;

/// Bytes of a window in a row that nothing reads, before they are left out: fewer cost more than
/// what they were.
const UNREAD_LEN_MIN: u64 = 8;

/// Most ranges of a segment's footprint. Part of the format (docs/format/blob-v1.md §1).
pub const FOOTPRINT_RANGES_MAX: usize = 16;

/// What two equal streams have in common: digest and length.
pub fn identity(stream: &Stream) -> (u64, u64) {
    (stream.digest, stream.end - stream.start)
}

/// Whether a nested stream is opened, where `kept` stay closed.
fn is_opened(nested: &Stream, kept: &HashSet<(u64, u64)>) -> bool {
    nested.plain_len.max(nested.end - nested.start) <= NESTED_PLAIN_LEN_MAX && !kept.contains(&identity(nested))
}

/// A run of a base's text.
struct TextPiece {
    /// Where it lies in the text.
    at: u64,
    len: u64,
    from: TextFrom,
}

enum TextFrom {
    /// The base's own bytes from here on.
    Object(u64),
    /// The plain text of this stream from here on.
    Stream(usize, u64),
    /// The plain text of one nested in this stream.
    Nested(usize, usize),
}

/// The text of a base: its bytes, the streams opened that the target does not have as they are.
pub struct TextMap {
    pieces: Vec<TextPiece>,
    len: u64,
}

impl TextMap {
    /// The text of a base whose streams `kept` stay closed.
    pub fn new(index: &Index, kept: &HashSet<(u64, u64)>) -> Self {
        let mut map = Self { pieces: Vec::new(), len: 0 };
        let mut at = 0;
        for (number, stream) in index.streams.iter().enumerate() {
            if kept.contains(&identity(stream)) {
                continue;
            }
            map.add(TextFrom::Object(at), stream.start - at);
            let mut plain_at = 0;
            for (nested_number, nested) in stream.nested.iter().enumerate() {
                if is_opened(nested, kept) {
                    map.add(TextFrom::Stream(number, plain_at), nested.start - plain_at);
                    map.add(TextFrom::Nested(number, nested_number), nested.plain_len);
                    plain_at = nested.end;
                }
            }
            map.add(TextFrom::Stream(number, plain_at), stream.plain_len - plain_at);
            at = stream.end;
        }
        map.add(TextFrom::Object(at), index.len - at);
        map
    }

    /// Bytes of text.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a base of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn add(&mut self, from: TextFrom, len: u64) {
        if len > 0 {
            self.pieces.push(TextPiece { at: self.len, len, from });
            self.len += len;
        }
    }

    /// Appends a run of the text as parts that a reader can name; a run has below 4 GiB.
    pub fn parts(&self, run: Range<u64>, index: &Index, out: &mut Vec<BasePart>) {
        let first = self.pieces.partition_point(|piece| piece.at + piece.len <= run.start);
        for piece in self.pieces[first..].iter().take_while(|piece| piece.at < run.end) {
            let start = run.start.max(piece.at) - piece.at;
            let len = (run.end.min(piece.at + piece.len) - piece.at - start) as u32;
            out.push(match piece.from {
                TextFrom::Object(at) => BasePart::Object { at: at + start, len },
                TextFrom::Stream(stream, at) => {
                    BasePart::Plain { stream_at: index.streams[stream].start, plain_at: at + start, len }
                }
                TextFrom::Nested(stream, number) => {
                    let outer = &index.streams[stream];
                    let nested = &outer.nested[number];
                    BasePart::Nested {
                        stream_at: outer.start,
                        nested_at: nested.start,
                        nested_len: (nested.end - nested.start) as u32,
                        plain_at: start,
                        len,
                    }
                }
            });
        }
    }
}

impl Index {
    /// Leaves out streams that cannot be read piece by piece, for want of access points: they stay
    /// bytes of the base.
    pub fn retain_openable(&mut self) {
        let piece_max = |stream: &Stream| {
            let starts = std::iter::once(0).chain(stream.points.iter().map(|point| point.plain_at));
            let ends = stream.points.iter().map(|point| point.plain_at).chain([stream.plain_len]);
            starts.zip(ends).map(|(start, end)| end - start).max().unwrap_or(0)
        };
        self.streams.retain(|stream| piece_max(stream) <= OPENING_LEN_MAX as u64);
    }

    /// What all streams have in common with equal ones, the nested among them.
    pub fn identities(&self) -> HashSet<(u64, u64)> {
        self.streams.iter().flat_map(|stream| std::iter::once(stream).chain(&stream.nested)).map(identity).collect()
    }

    /// What is opened over a base that has `known` streams, and what stays as it is since that has
    /// it, too.
    pub fn divided(&self, known: &HashSet<(u64, u64)>) -> (Vec<Stream>, HashSet<(u64, u64)>) {
        let mut kept = self.identities();
        kept.retain(|stream| known.contains(stream));
        let others = self.streams.iter().filter(|stream| !kept.contains(&identity(stream)));
        let opened = others.map(|stream| {
            let mut stream = stream.clone();
            stream.nested.retain(|nested| is_opened(nested, &kept));
            stream
        });
        (opened.collect(), kept)
    }
}

/// All places that the streams of a base are opened from.
pub struct Openings {
    all: StoredSegment,
    /// Stream and access point of each; none for what is read from its stream's start.
    points: Vec<Option<(usize, usize)>>,
}

impl Openings {
    /// Those of every stream of a base.
    pub fn of(index: &Index) -> Self {
        let (mut openings, mut points) = (Vec::new(), Vec::new());
        for (number, stream) in index.streams.iter().enumerate() {
            for (opening, _) in Opening::all(stream) {
                let point = stream.points.iter().position(|point| point.plain_at == opening.plain_at);
                points.push(point.map(|at| (number, at)));
                openings.push(opening);
            }
        }
        Self { all: StoredSegment { units: Vec::new(), openings, windows: 0..0 }, points }
    }

    /// As a segment without units would have them.
    pub fn segment(&self) -> &StoredSegment {
        &self.all
    }

    /// One of them, by its number.
    pub fn get(&self, number: usize) -> &Opening {
        &self.all.openings[number]
    }

    /// The plain text before one; `index` is that of the base.
    pub fn window<'a>(&self, number: usize, index: &'a Index) -> &'a [u8] {
        let place = self.points.get(number).copied().flatten();
        place.map_or(&[], |(stream, point)| &index.streams[stream].points[point].window)
    }

    /// The base bytes that some parts are read from.
    ///
    /// # Errors
    /// [`Malformed`] when a part lies in no stream of the base.
    pub fn bytes_of(&self, parts: &[BasePart]) -> Result<Vec<Range<u64>>, Malformed> {
        let mut needed = Vec::new();
        for part in parts {
            match *part {
                BasePart::Object { at, len } => needed.push(at..at + u64::from(len)),
                BasePart::Plain { .. } | BasePart::Nested { .. } => {
                    needed.extend(self.all.openings[self.all.openings_of(part)?].iter().map(Opening::bytes));
                }
            }
        }
        Ok(joined(needed, 0))
    }
}

/// Ranges in as few runs as there can be, ascending; gaps of up to `gap` bytes between them are
/// filled.
pub fn joined(mut ranges: Vec<Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end.saturating_add(gap);
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
    ranges
}

/// The runs that hold all ranges, as few as a footprint may have; `None` when they are too long
/// then.
pub fn footprint_of(needed: Vec<Range<u64>>) -> Option<Vec<Range<u64>>> {
    let mut runs = joined(needed, 0);
    while runs.len() > FOOTPRINT_RANGES_MAX {
        let gaps = runs.windows(2).enumerate().map(|(at, pair)| (pair[1].start - pair[0].end, at));
        let (_, at) = gaps.min()?;
        runs[at].end = runs[at + 1].end;
        runs.remove(at + 1);
    }
    let total: u64 = runs.iter().map(|run| run.end - run.start).sum();
    (total <= crate::FOOTPRINT_LEN_MAX as u64).then_some(runs)
}

/// Bytes of a base, by place: the runs that were read, ascending and disjoint.
#[derive(Default)]
pub struct BaseBytes(pub Vec<(u64, Vec<u8>)>);

impl BaseBytes {
    /// The bytes of a range.
    ///
    /// # Errors
    /// [`Malformed`] when they were not read, because nobody said that they would be needed.
    pub fn get(&self, range: Range<u64>) -> Result<&[u8], Malformed> {
        let after = self.0.partition_point(|(at, _)| *at <= range.start);
        let run = after.checked_sub(1).map(|index| &self.0[index]);
        run.and_then(|(at, bytes)| bytes.get((range.start - at) as usize..(range.end - at) as usize))
            .ok_or(Malformed("base bytes outside of what is read"))
    }
}

/// The footprint of a unit, put together.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnitBase {
    /// Its bytes: own ones of the base and plain text.
    pub bytes: Vec<u8>,
    pub(crate) matches: Vec<Match>,
    pub(crate) opened: Vec<Range<u32>>,
    /// What the openings it was put together from read of their windows, by number.
    pub(crate) window_reads: WindowReads,
}

/// About how many matches lie in some parts.
pub(crate) fn matches_of(parts: &[BasePart]) -> usize {
    let opened = parts.iter().filter(|part| !matches!(part, BasePart::Object { .. }));
    opened.map(|part| part.len() as usize / BYTES_PER_MATCH).sum()
}

/// The bytes of windows that are read, by number of the opening.
pub(crate) type WindowReads = BTreeMap<usize, Vec<Range<usize>>>;

impl UnitBase {
    /// The bytes of `parts`; `opened` gives the text of an opening by its number in `segment`.
    ///
    /// # Errors
    /// [`Malformed`] when something of it is not there, and what `opened` says.
    pub fn of(
        parts: &[BasePart],
        segment: &StoredSegment,
        view: &BaseBytes,
        mut opened: impl FnMut(usize) -> Result<Arc<Opened>, Malformed>,
    ) -> Result<Self, Malformed> {
        let mut reads = WindowReads::new();
        let mut base = Self::to_read(parts, segment, view, |number| {
            let found = opened(number)?;
            let opening = &segment.openings[number];
            if opening.plain_at > 0 {
                reads.entry(number).or_insert_with(|| found.window_reads(opening.window_len()));
            }
            Ok(found)
        })?;
        base.window_reads = reads;
        Ok(base)
    }

    /// The same for a reader, who has no use for what is read of windows.
    pub(crate) fn to_read(
        parts: &[BasePart],
        segment: &StoredSegment,
        view: &BaseBytes,
        mut opened: impl FnMut(usize) -> Result<Arc<Opened>, Malformed>,
    ) -> Result<Self, Malformed> {
        let mut base = Self::default();
        base.bytes.reserve(parts.iter().map(|part| part.len() as usize).sum());
        base.matches.reserve(matches_of(parts));
        for part in parts {
            match *part {
                BasePart::Object { at, len } => base.bytes.extend_from_slice(view.get(at..at + u64::from(len))?),
                BasePart::Plain { plain_at, len, .. } => {
                    let start = base.bytes.len() as u32;
                    for number in segment.openings_of(part)? {
                        let range = within(&segment.openings[number], plain_at, len);
                        opened(number)?.append_to(range, &mut base.bytes, &mut base.matches);
                    }
                    base.opened.push(start..base.bytes.len() as u32);
                }
                BasePart::Nested { nested_at, nested_len, plain_at, len, .. } => {
                    let start = base.bytes.len() as u32;
                    let mut own = Vec::with_capacity(nested_len as usize);
                    for number in segment.openings_of(part)? {
                        let range = within(&segment.openings[number], nested_at, nested_len);
                        own.extend_from_slice(&opened(number)?.plain[range]);
                    }
                    let plain = open_from_start(plain_at..plain_at + u64::from(len), &own)?;
                    plain.append_to(0..len as usize, &mut base.bytes, &mut base.matches);
                    base.opened.push(start..base.bytes.len() as u32);
                }
            }
        }
        Ok(base)
    }

    /// What the parse is predicted from.
    pub fn parse(&self) -> Base<'_> {
        Base { matches: &self.matches, opened: &self.opened }
    }
}

impl Opened {
    /// The bytes of the window before it, of so many bytes, that its matches read: ascending,
    /// disjoint, short gaps between them filled.
    pub fn window_reads(&self, window_len: usize) -> Vec<Range<usize>> {
        window_reads(&self.matches, window_len)
    }
}

/// The same, from the matches.
pub(crate) fn window_reads(matches: &[Match], window_len: usize) -> Vec<Range<usize>> {
    let mut reads = Vec::new();
    for found in matches.iter().take_while(|found| (found.at as usize) < WINDOW_LEN) {
        let back = (found.distance() as usize).saturating_sub(found.at as usize).min(window_len);
        let start = window_len - back;
        let end = window_len.min(start + usize::from(found.len));
        if start < end {
            reads.push(start as u64..end as u64);
        }
    }
    let narrow = |range: Range<u64>| range.start as usize..range.end as usize;
    joined(reads, UNREAD_LEN_MIN - 1).into_iter().map(narrow).collect()
}

/// The plain bytes of a stream from `plain_at` on, as far as an opening has them, counted in it.
pub(crate) fn within(opening: &Opening, plain_at: u64, len: u32) -> Range<usize> {
    let plain = opening.plain();
    let from = plain.start.max(plain_at) - plain.start;
    let to = plain.end.min(plain_at + u64::from(len)) - plain.start;
    from as usize..to as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Container, Point};

    #[test]
    fn ranges_are_joined_where_they_touch_or_nearly_so() {
        let ranges = || vec![40..50, 0..10, 10..20, 24..30];
        assert_eq!(joined(ranges(), 0), [0..20, 24..30, 40..50]);
        assert_eq!(joined(ranges(), 4), [0..30, 40..50]);
        let view = BaseBytes(vec![(10, vec![1, 2, 3]), (20, vec![4])]);
        assert_eq!(view.get(11..13), Ok(&[2, 3][..]));
        for outside in [9..10, 12..14, 13..14, 20..22] {
            assert!(view.get(outside).is_err());
        }
    }

    #[test]
    fn a_footprint_has_at_most_sixteen_runs_and_fills_the_smallest_gaps() {
        let needed: Vec<Range<u64>> = (0..20).map(|at| at * 100..at * 100 + if at < 10 { 50 } else { 90 }).collect();
        let runs = footprint_of(needed.clone()).expect("short");
        assert_eq!(runs.len(), 16);
        assert!(needed.iter().all(|range| runs.iter().any(|run| run.start <= range.start && range.end <= run.end)));
        assert_eq!(footprint_of(vec![0..1 << 20, 1 << 20..(32 << 20) + 1]), None);
    }

    #[test]
    fn a_stream_with_too_few_access_points_is_not_opened() {
        let most = OPENING_LEN_MAX as u64;
        let stream = |plain_len, points: &[u64]| Stream {
            container: Container::Gzip,
            start: 0,
            end: 10,
            plain_len,
            digest: 0,
            points: points
                .iter()
                .map(|&plain_at| Point { plain_at, block_bit: 1, bit: 1, window: Vec::new() })
                .collect(),
            nested: Vec::new(),
            gaps: None,
        };
        let streams =
            vec![stream(most, &[]), stream(most + 1, &[]), stream(2 * most, &[most]), stream(3 * most, &[most])];
        let mut index = Index { streams: streams.clone(), len: 100 };
        index.retain_openable();
        assert_eq!(index.streams, [streams[0].clone(), streams[2].clone()]);
    }
}
