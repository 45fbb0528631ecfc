//! Cuts an object into units, of which each is encoded and decoded alone.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::Malformed;
use crate::alphabet::{MATCH_LEN_MAX, WINDOW_LEN, fixed_lengths};
use crate::gapped::Gapped;
use crate::gaps::Gaps;
use crate::inflate::{Inflater, Input, Stopped};
use crate::parse::{Block, Kind, Match, Parse};
use crate::stream::Stream;
use crate::unit::{Cut, Item, Lead, Part, PartBlock, PartKind, TEXT_LEN_MAX, UNIT_LEN_MAX, Unit};
use crate::write::Codes;

/// Plain bytes behind a part that are kept with it: as far as an encoder that is replayed looks
/// ahead.
const TAIL_LEN: usize = 300;
/// A part gets at least so much room for its own text, or a unit of its own.
const ROOM_MIN: usize = 4 << 10;
/// Most text of a unit some of whose streams have streams in their plain text: the rest of
/// [`TEXT_LEN_MAX`] is left for the plain text of these.
const OUTER_TEXT_LEN_MAX: usize = TEXT_LEN_MAX / 4;
/// Bytes of the object that [`Cutter::next`] may look at behind a unit's start.
pub const AHEAD_LEN: usize = UNIT_LEN_MAX + (512 << 10);

/// How large units become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutLimits {
    /// Most bytes of text, at most [`TEXT_LEN_MAX`] and at least 64 KiB.
    pub text_len_max: usize,
    /// Most bytes of the object, at most [`UNIT_LEN_MAX`] and at least 4 KiB.
    pub unit_len_max: usize,
}

impl Default for CutLimits {
    fn default() -> Self {
        Self { text_len_max: TEXT_LEN_MAX, unit_len_max: UNIT_LEN_MAX }
    }
}

/// Walks an object from front to back. `S` is a reference to a stream, of whatever kind.
pub struct Cutter<S> {
    limits: CutLimits,
    /// Streams that are opened, in order; the others are raw.
    streams: Vec<Placed<S>>,
    next: usize,
    /// Bytes of the object before the next unit, and those of them that are in no gap: all places
    /// below are counted without gaps.
    place: u64,
    at: u64,
    len: u64,
    gapped: Gapped,
    inside: Option<Inside>,
}

/// A stream, and where it lies in the object without gaps.
#[derive(Clone)]
struct Placed<S> {
    of: S,
    start: u64,
    end: u64,
}

/// A stream of which a part has been cut.
struct Inside {
    inflater: Inflater,
    is_done: bool,
    plain: Vec<u8>,
    /// Plain bytes before `plain`.
    plain_before: u64,
    parse: Parse,
    /// What the next part begins with.
    here: Here,
}

/// A place between two steps, or before a header.
#[derive(Clone, Copy, Debug, Default)]
struct Here {
    plain: usize,
    matched: usize,
    block: usize,
    in_block: bool,
    /// Bits of the stream before it.
    bit: u64,
}

/// Where plain text of a stream lies in the text of a unit.
struct Region<S> {
    stream: S,
    /// Its bytes in the text.
    text: Range<usize>,
    /// Plain bytes of the stream before it.
    plain_at: u64,
}

impl<S: Deref<Target = Stream> + Clone> Cutter<S> {
    /// Of an object of `len` bytes, `streams` of which are opened; they are in order and disjoint.
    pub fn new(streams: Vec<S>, len: u64, limits: CutLimits) -> Self {
        let most = if streams.iter().any(|stream| !stream.nested.is_empty()) { OUTER_TEXT_LEN_MAX } else { usize::MAX };
        let limits = CutLimits { text_len_max: limits.text_len_max.min(most), ..limits };
        let gapped = Gapped::new(streams.iter().map(|stream| &**stream));
        let placed = |of: S| {
            let (start, end) = (gapped.joined_before(of.start), gapped.joined_before(of.end));
            Placed { of, start, end }
        };
        let streams = streams.into_iter().map(placed).collect();
        Self { limits, streams, next: 0, place: 0, at: 0, len, gapped, inside: None }
    }

    /// Gives units from here on at most half as much text; `false`, and nothing else, where that
    /// would be less than `least`.
    pub fn halve_text(&mut self, least: usize) -> bool {
        let half = self.limits.text_len_max / 2;
        if half >= least {
            self.limits.text_len_max = half;
        }
        half >= least
    }

    /// Goes back to the object's first byte.
    pub fn begin_anew(&mut self) {
        (self.next, self.place, self.at, self.inside) = (0, 0, 0, None);
    }

    /// The object's bytes before the next unit.
    pub fn position(&self) -> u64 {
        self.place
    }

    /// The next unit, or `None` at the object's end. `bytes` are those of the object from
    /// [`Cutter::position`] on: [`AHEAD_LEN`] of them, or all that are left.
    ///
    /// # Errors
    /// [`Malformed`] when a stream is not what it was when it was found.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Option<Unit>, Malformed> {
        self.next_until(bytes, self.len)
    }

    /// The same, of a unit that ends at the object's byte `until` or before it; `None` when the
    /// next one would begin there.
    ///
    /// # Errors
    /// As [`Cutter::next`].
    pub fn next_until(&mut self, bytes: &[u8], until: u64) -> Result<Option<Unit>, Malformed> {
        let start = self.place;
        let mut until = until.min(self.len);
        if !self.gapped.is_empty() {
            // So that what stands in its gaps has room in the text.
            until = until.min(start + self.limits.unit_len_max.min(self.limits.text_len_max) as u64);
        }
        if until <= start {
            return Ok(None);
        }
        let joined = self.gapped.joined(start, bytes);
        let room = self.limits.text_len_max - self.gapped.len_within(start..until) as usize;
        let (mut unit, regions) = self.unit(&joined, self.gapped.joined_before(until), room)?;
        self.place = self.gapped.place_of(self.at).min(until);
        unit.object = start..self.place;
        let own = bytes.get(..unit.len()).ok_or(Malformed("an object that ends early"))?;
        let (gaps, between) = self.gapped.unit(start, own);
        if !between.is_empty() {
            unit.text.extend_from_slice(&between);
            unit.items.push(Item::Raw(between.len()));
            unit.gaps = gaps;
        }
        if unit.is_empty() {
            return Ok(None);
        }
        nested(unit, &regions, self.limits.text_len_max).map(Some)
    }

    /// The next unit without what stands in its gaps, with at most so much text, and where plain
    /// text lies in it. Bytes and places are without gaps.
    fn unit(&mut self, bytes: &[u8], until: u64, text_len_max: usize) -> Result<(Unit, Vec<Region<S>>), Malformed> {
        let start = self.at;
        let given = bytes.len() as u64;
        let mut unit = Unit {
            object: start..start,
            text: Vec::new(),
            items: Vec::new(),
            matches: Vec::new(),
            outer: None,
            gaps: Gaps::default(),
        };
        let mut regions = Vec::new();
        while self.at < until && given > self.at - start {
            let own_room = self.limits.unit_len_max - (self.at - start) as usize;
            let room = own_room.min((until - self.at) as usize);
            let stream = self.streams.get(self.next).cloned();
            match stream {
                Some(stream) if stream.start <= self.at => {
                    let is_enough = unit.text.len() + WINDOW_LEN + TAIL_LEN + ROOM_MIN <= text_len_max;
                    if !unit.items.is_empty() && (!is_enough || own_room < 1024) {
                        break;
                    }
                    let input = Input { bytes, at: 0, is_all: true };
                    let before = self.at;
                    regions.extend(self.part(&stream, input, (start, until), text_len_max, &mut unit)?);
                    if self.inside.is_some() || self.at == before {
                        break;
                    }
                }
                _ => {
                    let end = stream.as_ref().map_or(until, |stream| stream.start).min(start + given);
                    let left = text_len_max - unit.text.len();
                    let taken = ((end - self.at) as usize).min(room).min(left);
                    if taken == 0 {
                        break;
                    }
                    let from = (self.at - start) as usize;
                    unit.text.extend_from_slice(&bytes[from..from + taken]);
                    unit.items.push(Item::Raw(taken));
                    self.at += taken as u64;
                }
            }
        }
        Ok((unit, regions))
    }

    /// Appends the next part of `stream` to the unit that began at `unit_start` and ends at `until`
    /// at the latest; where its plain text lies, if there is any.
    fn part(
        &mut self,
        stream: &Placed<S>,
        input: Input<'_>,
        (unit_start, until): (u64, u64),
        text_len_max: usize,
        unit: &mut Unit,
    ) -> Result<Option<Region<S>>, Malformed> {
        let is_inside = self.inside.is_some();
        let mut inside = self.inside.take().unwrap_or_else(Inside::new);
        let context_len = inside.here.plain.min(WINDOW_LEN);
        let room = text_len_max - unit.text.len() - context_len - TAIL_LEN;
        let wanted = inside.here.plain + room;
        // The input's bytes counted from the stream's start; a stream that began before them is
        // read from where it stands.
        let (skipped, at) = match stream.start.checked_sub(unit_start) {
            Some(skipped) => (skipped as usize, 0),
            None => (0, unit_start - stream.start),
        };
        let input = Input { bytes: &input.bytes[skipped..], at, is_all: false };
        let stopped = inside.inflater.run(input, &mut inside.plain, wanted + TAIL_LEN, Some(&mut inside.parse))?;
        inside.is_done = stopped == Stopped::Done;
        let object_max =
            (unit_start + self.limits.unit_len_max as u64).min(input.bytes.len() as u64 + stream.start + at).min(until);
        let text_at = unit.text.len();
        let matches_at = unit.matches.len();
        let lead = is_inside.then(|| inside.lead(context_len, (self.at - stream.start) * 8, input));
        let is_whole = inside.is_done && inside.plain.len() <= wanted && stream.end <= object_max;
        let (end, cut, object_end) = if is_whole {
            (inside.end(), None, stream.end)
        } else {
            let Some((end, object_end)) = inside.find_cut(stream.start..stream.end, wanted, object_max, self.at)?
            else {
                if unit.items.is_empty() {
                    return Err(Malformed("a stream that cannot be cut"));
                }
                self.inside = is_inside.then_some(inside);
                return Ok(None);
            };
            let tail_len = (inside.plain.len() - end.plain).min(TAIL_LEN);
            (end, Some(Cut { tail_len, object_len: (object_end - self.at) as usize }), object_end)
        };
        let here = inside.here;
        let tail_len = cut.as_ref().map_or(0, |cut| cut.tail_len);
        let from = here.plain - context_len;
        unit.text.extend_from_slice(&inside.plain[from..end.plain + tail_len]);
        let shift = |position: usize| position - from + text_at;
        let matches = &inside.parse.matches[here.matched..end.matched];
        unit.matches.extend(
            matches.iter().map(|found| Match::new(shift(found.at as usize) as u32, found.len, found.distance())),
        );
        let blocks = inside.blocks(&end, shift, |matched| matched - here.matched + matches_at);
        let padding = if is_whole { inside.padding(input) } else { 0 };
        unit.items.push(Item::Part(Part { text_at, plain_len: end.plain - here.plain, lead, cut, blocks, padding }));
        self.at = object_end;
        let plain_at = inside.plain_before + from as u64;
        let region = Region { stream: stream.of.clone(), text: text_at..unit.text.len(), plain_at };
        if is_whole {
            self.next += 1;
        } else {
            inside.move_to(end);
            self.inside = Some(inside);
        }
        Ok(Some(region))
    }
}

/// The unit with the nested streams opened that lie in its text whole; the same unit when there are
/// none. The text grows to at most five times `text_len_max`.
///
/// # Errors
/// [`Malformed`] when a stream is not what it was when it was found.
fn nested<S: Deref<Target = Stream>>(
    unit: Unit,
    regions: &[Region<S>],
    text_len_max: usize,
) -> Result<Unit, Malformed> {
    let mut streams = Vec::new();
    for Region { stream, text, plain_at } in regions {
        let first = stream.nested.partition_point(|nested| nested.start < *plain_at);
        let place = |at: u64| at - plain_at + text.start as u64;
        let found = stream.nested[first..].iter().take_while(|nested| place(nested.end) <= text.end as u64);
        let in_text = |nested: &Stream| Stream { start: place(nested.start), end: place(nested.end), ..nested.clone() };
        streams.extend(found.map(in_text));
    }
    let len = unit.text.len();
    if streams.is_empty() || len > TEXT_LEN_MAX / 2 {
        return Ok(unit);
    }
    let text_len_max = (TEXT_LEN_MAX - len).min(4 * text_len_max);
    let mut cutter =
        Cutter::new(streams.iter().collect(), len as u64, CutLimits { text_len_max, unit_len_max: UNIT_LEN_MAX });
    let Some(mut inner) = cutter.next(&unit.text)?.filter(|inner| inner.parts() > 0) else { return Ok(unit) };
    // What there was no room for stays as it is.
    let rest = &unit.text[inner.len()..];
    if !rest.is_empty() {
        inner.text.extend_from_slice(rest);
        inner.items.push(Item::Raw(rest.len()));
    }
    inner.object = unit.object.clone();
    inner.outer = Some(Box::new(unit));
    Ok(inner)
}

impl Inside {
    fn new() -> Self {
        Self {
            inflater: Inflater::new(),
            is_done: false,
            plain: Vec::new(),
            plain_before: 0,
            parse: Parse::default(),
            here: Here::default(),
        }
    }

    /// The place behind the last block.
    fn end(&self) -> Here {
        let block = self.parse.blocks.len();
        let bit = self.inflater.bit();
        Here { plain: self.plain.len(), matched: self.parse.matches.len(), block, in_block: false, bit }
    }

    /// What a part needs that begins inside: the bits from `object_bit` (of the stream) up to here.
    fn lead(&self, context_len: usize, object_bit: u64, input: Input<'_>) -> Lead {
        let bits = (object_bit..self.here.bit).map(|bit| bit_of(input, bit)).collect();
        Lead { context_len, bits, in_block: self.here.in_block }
    }

    fn padding(&self, input: Input<'_>) -> u8 {
        let bit = self.inflater.bit();
        (bit..bit.next_multiple_of(8)).enumerate().map(|(at, bit)| u8::from(bit_of(input, bit)) << at).sum()
    }

    /// Where to cut: behind the step that crosses plain position `wanted`, or at `object_max`. The
    /// place behind the last step that begins before the cut, and the cut in the object.
    fn find_cut(
        &self,
        stream: Range<u64>,
        wanted: usize,
        object_max: u64,
        object_at: u64,
    ) -> Result<Option<(Here, u64)>, Malformed> {
        let mut object_end = object_max.min(stream.end.saturating_sub(1));
        let reached = stream.start + self.inflater.bit() / 8;
        if !self.is_done {
            object_end = object_end.min(reached);
        }
        if self.plain.len() > wanted {
            let bit = self.walk(|here, _| here.plain + MATCH_LEN_MAX >= wanted)?.bit;
            object_end = object_end.min(stream.start + bit / 8);
        }
        while object_end > object_at {
            let cut_bit = (object_end - stream.start) * 8;
            let here = self.walk(|here, _| here.bit >= cut_bit)?;
            // Behind the last block there is only padding, which is no part of its own; and a text
            // must not grow past its room.
            if here.block < self.parse.blocks.len() && here.plain <= wanted {
                return Ok(Some((here, object_end)));
            }
            object_end -= 1;
        }
        Ok(None)
    }

    /// Walks from here over headers, steps and ends of blocks, and returns the first place where
    /// `is_enough` holds, or the last one there is.
    fn walk(&self, is_enough: impl Fn(&Here, &Block) -> bool) -> Result<Here, Malformed> {
        let mut here = self.here;
        while let Some(block) = self.parse.blocks.get(here.block) {
            if is_enough(&here, block) {
                return Ok(here);
            }
            // Places come in order, and so does what makes one enough: a block at whose end there
            // is not enough has no such place.
            if let Some(bit) = block.end_bit {
                let matched = block.matches.end;
                let end = Here { plain: block.plain.end, matched, block: here.block, in_block: true, bit };
                if !is_enough(&end, block) {
                    here = Here { block: here.block + 1, in_block: false, ..end };
                    continue;
                }
            }
            if !here.in_block {
                here = Here { in_block: true, bit: block.body_bit, ..here };
                if is_enough(&here, block) {
                    return Ok(here);
                }
            }
            let is_stored = matches!(block.kind, Kind::Stored { .. });
            let ended = if is_stored {
                walk_stored(&mut here, block, &is_enough)
            } else {
                self.walk_steps(&mut here, block, &is_enough)?
            };
            match block.end_bit {
                Some(bit) if !ended => here = Here { block: here.block + 1, in_block: false, bit, ..here },
                _ => return Ok(here),
            }
        }
        Ok(here)
    }

    /// True when there was enough within the block.
    fn walk_steps(
        &self,
        here: &mut Here,
        block: &Block,
        is_enough: &impl Fn(&Here, &Block) -> bool,
    ) -> Result<bool, Malformed> {
        let codes = match &block.kind {
            Kind::Dynamic(header) => Codes::new(&header.lengths)?,
            _ => Codes::new(&fixed_lengths())?,
        };
        while here.plain < block.plain.end {
            match self.parse.matches[..block.matches.end].get(here.matched) {
                Some(found) if found.at as usize == here.plain => {
                    here.bit += u64::from(codes.match_bits(found));
                    here.plain = found.end() as usize;
                    here.matched += 1;
                }
                _ => {
                    here.bit += u64::from(codes.literal_bits(self.plain[here.plain]));
                    here.plain += 1;
                }
            }
            if is_enough(here, block) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The blocks from here to `end`, in positions of the unit.
    fn blocks(&self, end: &Here, plain: impl Fn(usize) -> usize, matched: impl Fn(usize) -> usize) -> Vec<PartBlock> {
        let here = &self.here;
        let last = end.block + usize::from(end.in_block);
        let one = |(at, block): (usize, &Block)| {
            let is_first = at == here.block && here.in_block;
            let is_open = at == end.block;
            let plain_start = if is_first { here.plain } else { block.plain.start };
            let plain_end = if is_open { end.plain } else { block.plain.end };
            let matches_start = if is_first { here.matched } else { block.matches.start };
            let matches_end = if is_open { end.matched } else { block.matches.end };
            let kind = match &block.kind {
                Kind::Stored { len, .. } if is_first => {
                    PartKind::Stored { padding: 0, len: len - (here.plain - block.plain.start) as u16 }
                }
                Kind::Stored { padding, len } => PartKind::Stored { padding: *padding, len: *len },
                Kind::Fixed => PartKind::Fixed,
                Kind::Dynamic(header) => PartKind::Dynamic(Arc::clone(header)),
            };
            PartBlock {
                is_last: block.is_last,
                kind,
                plain: plain(plain_start)..plain(plain_end),
                matches: matched(matches_start)..matched(matches_end),
                is_closed: !is_open,
            }
        };
        self.parse.blocks.iter().enumerate().take(last).skip(here.block).map(one).collect()
    }

    /// The next part begins at `end`. What nothing refers to any more is forgotten.
    fn move_to(&mut self, end: Here) {
        let dropped = end.plain.saturating_sub(WINDOW_LEN);
        self.plain.drain(..dropped);
        self.plain_before += dropped as u64;
        self.parse.matches.drain(..end.matched);
        for found in &mut self.parse.matches {
            *found = Match::new(found.at - dropped as u32, found.len, found.distance());
        }
        self.parse.blocks.drain(..end.block);
        for block in &mut self.parse.blocks {
            // The rest of a stored block that was cut counts from where it is cut.
            let cut = end.plain.max(block.plain.start) - block.plain.start;
            if let (Kind::Stored { len, .. }, true) = (&mut block.kind, cut > 0) {
                *len -= cut as u16;
            }
            block.plain = shifted(&block.plain, end.plain, dropped);
            block.matches = shifted(&block.matches, end.matched, end.matched);
        }
        self.here = Here { plain: end.plain - dropped, matched: 0, block: 0, ..end };
    }
}

/// A range from `from` on at the earliest, `dropped` positions nearer.
fn shifted(range: &Range<usize>, from: usize, dropped: usize) -> Range<usize> {
    range.start.max(from) - dropped..range.end.max(from) - dropped
}

/// True when there was enough within the block, whose bytes are walked one by one.
fn walk_stored(here: &mut Here, block: &Block, is_enough: &impl Fn(&Here, &Block) -> bool) -> bool {
    while here.plain < block.plain.end {
        here.plain += 1;
        here.bit += 8;
        if is_enough(here, block) {
            return true;
        }
    }
    false
}

fn bit_of(input: Input<'_>, bit: u64) -> bool {
    let byte = (bit / 8).checked_sub(input.at).and_then(|at| input.bytes.get(at as usize));
    byte.is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}
