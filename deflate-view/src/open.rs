//! A part of a stream as plain text and matches, read from the access point before it.

use std::borrow::Cow;
use std::ops::Range;

use crate::Malformed;
use crate::containers::Container;
use crate::inflate::{Inflater, Input, Stopped};
use crate::parse::{Match, Parse};
use crate::stream::Stream;

/// Room for a window and for what a reader writes past the end.
const ROOM_LEN: usize = (32 << 10) + 1024;
/// Plain bytes for which there is room for one match at first: most texts have fewer.
pub(crate) const BYTES_PER_MATCH: usize = 8;

/// Plain text of a stream and the matches in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The plain text.
    pub plain: Vec<u8>,
    /// Its matches, positions counted from its start. One that begins before the text is cut to
    /// what is in it, as is one that ends behind.
    pub matches: Vec<Match>,
}

impl Opened {
    /// Appends `plain[range]` and its matches to a base that is put together of several parts.
    pub fn append_to(&self, range: Range<usize>, bytes: &mut Vec<u8>, matches: &mut Vec<Match>) {
        let shift = bytes.len() as u32;
        bytes.extend_from_slice(&self.plain[range.clone()]);
        append_matches(&self.matches, range, shift, matches);
    }
}

/// Appends the matches within `range`, clipped to it, counted from its start plus `shift`.
pub(crate) fn append_matches(from: &[Match], range: Range<usize>, shift: u32, to: &mut Vec<Match>) {
    let (start, end) = (range.start as u32, range.end as u32);
    let first = from.partition_point(|found| found.end() <= start);
    let behind = from.partition_point(|found| found.at < end);
    let clip = |found: &Match| {
        let at = found.at.max(start);
        let len = found.end().min(end).wrapping_sub(at);
        Match::new(at.wrapping_sub(start).wrapping_add(shift), len as u16, found.distance())
    };
    to.extend(from.get(first..behind).unwrap_or_default().iter().map(clip));
}

/// The same in place, counted from the range's start.
fn clipped(mut matches: Vec<Match>, range: &Range<usize>) -> Vec<Match> {
    let (start, end) = (range.start as u32, range.end as u32);
    matches.truncate(matches.partition_point(|found| found.at < end));
    if start == 0 {
        if let Some(last) = matches.last_mut() {
            last.len = last.end().min(end).wrapping_sub(last.at) as u16;
        }
        return kept(matches);
    }
    matches.drain(..matches.partition_point(|found| found.end() <= start));
    for found in &mut matches {
        let at = found.at.max(start);
        let len = found.end().min(end).wrapping_sub(at);
        *found = Match::new(at.wrapping_sub(start), len as u16, found.distance());
    }
    kept(matches)
}

/// Opened text is kept, and counts with the room that it takes.
fn kept(mut matches: Vec<Match>) -> Vec<Match> {
    if matches.len() < matches.capacity() / 2 {
        matches.shrink_to_fit();
    }
    matches
}

/// The plain bytes `plain` of a stream that is read from its start, from its own `bytes`.
///
/// # Errors
/// [`Malformed`] when the bytes are not those of the stream.
pub(crate) fn open_from_start(plain: Range<u64>, bytes: &[u8]) -> Result<Opened, Malformed> {
    let stream = Stream {
        container: Container::Gzip,
        start: 0,
        end: bytes.len() as u64,
        plain_len: plain.end,
        digest: 0,
        points: Vec::new(),
        nested: Vec::new(),
        gaps: None,
    };
    open(&stream, plain, bytes)
}

/// The object's bytes that [`open`] needs for this plain range.
pub fn bytes_to_open(stream: &Stream, plain: &Range<u64>) -> Range<u64> {
    let first = point_before(stream, plain.start).map_or(0, |point| point.block_bit / 8);
    let end = stream.points.iter().find(|point| point.plain_at >= plain.end);
    // A step that begins before the point may end behind it, and a header is read whole.
    let end = end.map_or(stream.end, |point| stream.place_after(point.bit / 8 + 64));
    stream.place_of(first)..end
}

fn point_before(stream: &Stream, plain_at: u64) -> Option<&crate::stream::Point> {
    let after = stream.points.partition_point(|point| point.plain_at <= plain_at);
    after.checked_sub(1).map(|at| &stream.points[at])
}

/// The plain bytes `plain` of a stream, from `bytes`, those of the object that [`bytes_to_open`]
/// names.
///
/// # Errors
/// [`Malformed`] when the bytes are not those of the stream.
pub fn open(stream: &Stream, plain: Range<u64>, bytes: &[u8]) -> Result<Opened, Malformed> {
    let point = point_before(stream, plain.start);
    let first = bytes_to_open(stream, &plain).start - stream.start;
    let at = point.map_or(0, |point| point.block_bit / 8);
    let joined = stream.gaps.as_ref().map_or(Cow::Borrowed(bytes), |gaps| gaps.joined(first, bytes));
    let input = Input { bytes: &joined, at, is_all: true };
    let mut text = Vec::with_capacity((plain.end - point.map_or(0, |point| point.plain_at)) as usize + ROOM_LEN);
    text.extend_from_slice(point.map_or(&[][..], |point| &point.window));
    let (before, window_len) = (point.map_or(0, |point| point.plain_at), text.len());
    let wanted = |position: u64| (position - before) as usize + window_len;
    let mut inflater = Inflater::at_block(point.map_or(0, |point| point.block_bit));
    if let Some(point) = point.filter(|point| point.bit != point.block_bit) {
        inflater.read_header_only(input)?;
        inflater.skip_to(point.bit);
    }
    let matches = Vec::with_capacity((plain.end - plain.start) as usize / BYTES_PER_MATCH);
    let mut parse = Parse { matches, origin: window_len as u32, ..Parse::default() };
    while text.len() < wanted(plain.end) {
        if inflater.run(input, &mut text, wanted(plain.end), Some(&mut parse))? == Stopped::Done {
            break;
        }
    }
    if text.len() < wanted(plain.end) {
        return Err(Malformed("a stream that is shorter than it was"));
    }
    text.truncate(wanted(plain.end));
    text.drain(..wanted(plain.start));
    let matches = clipped(parse.matches, &((plain.start - before) as usize..(plain.end - before) as usize));
    Ok(Opened { plain: text, matches })
}
