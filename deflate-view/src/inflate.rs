//! From the bits of a deflate stream to its plain text and its parse, in steps of any size, from
//! its start or from an access point.

use std::sync::Arc;

use crate::Malformed;
use crate::alphabet::{
    CodeLengths, LENGTH_CODE_LEN_MAX, LENGTH_ORDER, LENGTH_SYMBOLS, LITLEN_SYMBOLS, MATCH_LEN_MAX, codes, fixed_lengths,
};
use crate::copying::{SLACK, copy_match};
use crate::lookup::{Entry, Lookups};
use crate::parse::{Block, Header, Kind, LengthRun, Match, Parse};

/// Bytes of plain text that room is made for at once: what it is filled with first is written for
/// nothing, and many streams have fewer.
const ROOM_LEN: usize = 64 << 10;
/// What two refills read at most.
const REFILLS_LEN: usize = 16;
/// A step takes at most 48 bits; a piece of input shorter than this is read through a padded copy.
const TAIL_LEN: usize = 32;
/// A run of a stream's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) bytes: &'a [u8],
    /// Bytes of the stream before them.
    pub(crate) at: u64,
    /// No more will come.
    pub(crate) is_all: bool,
}

/// Why [`Inflater::run`] came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// The input holds no further step.
    Starved,
    /// The plain text is as long as was wanted.
    Full,
    /// The stream has ended.
    Done,
}

/// Where a reader stands in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    Stored { left: u32 },
    Steps,
    Done,
}

/// Reads one stream.
#[derive(Clone, Debug)]
pub(crate) struct Inflater {
    /// Bits of the stream before what is read next.
    bit: u64,
    phase: Phase,
    is_last: bool,
    /// Bits of the stream before the header of the block at hand.
    header_bit: u64,
    /// Headers of blocks that are read at most.
    headers_left: u64,
    lookups: Lookups,
    /// Those of fixed codes: a block that has them may be a few bits long.
    are_fixed: bool,
}

impl Inflater {
    /// At the start of a stream.
    pub(crate) fn new() -> Self {
        Self {
            bit: 0,
            phase: Phase::Header,
            is_last: false,
            header_bit: 0,
            headers_left: u64::MAX,
            lookups: Lookups::default(),
            are_fixed: false,
        }
    }

    /// The same, reading at most so many blocks: it is [`Stopped::Full`] before the next one.
    pub(crate) fn of_blocks(count: u64) -> Self {
        Self { headers_left: count, ..Self::new() }
    }

    /// Before the header of the block that begins at this bit.
    pub(crate) fn at_block(bit: u64) -> Self {
        Self { bit, header_bit: bit, ..Self::new() }
    }

    /// Bits read.
    pub(crate) fn bit(&self) -> u64 {
        self.bit
    }

    /// Reads the header at hand and nothing behind it.
    ///
    /// # Errors
    /// [`Malformed`] when it is none, or not all there.
    pub(crate) fn read_header_only(&mut self, input: Input<'_>) -> Result<(), Malformed> {
        if self.header(input, 0, None)? { Ok(()) } else { Err(Malformed("a stream ends early")) }
    }

    /// Goes on at another bit of the block at hand, where a step begins.
    pub(crate) fn skip_to(&mut self, bit: u64) {
        self.bit = bit;
    }

    /// Where the block at hand begins, when a reader stands between two steps of it.
    pub(crate) fn block_bit(&self) -> Option<u64> {
        matches!(self.phase, Phase::Steps).then_some(self.header_bit)
    }

    /// True inside a stored block.
    pub(crate) fn is_in_stored(&self) -> bool {
        matches!(self.phase, Phase::Stored { .. })
    }

    /// Appends to `out`, whose end is the history, until it has `len_wanted` bytes (or up to 259
    /// more), the input or the stream ends. Positions in the parse are positions in `out`, those of
    /// matches counted from its origin.
    ///
    /// # Errors
    /// [`Malformed`] for a stream that is none, ends early, or has a spelling that the parse does
    /// not keep.
    pub(crate) fn run(
        &mut self,
        input: Input<'_>,
        out: &mut Vec<u8>,
        len_wanted: usize,
        parse: Option<&mut Parse>,
    ) -> Result<Stopped, Malformed> {
        let mut text = Text { len: out.len(), bytes: out };
        let stopped = self.run_on(input, &mut text, len_wanted, parse);
        text.bytes.truncate(text.len);
        stopped
    }

    fn run_on(
        &mut self,
        input: Input<'_>,
        text: &mut Text<'_>,
        len_wanted: usize,
        mut parse: Option<&mut Parse>,
    ) -> Result<Stopped, Malformed> {
        loop {
            match self.phase {
                Phase::Done => return Ok(Stopped::Done),
                _ if text.len >= len_wanted => return Ok(Stopped::Full),
                Phase::Header if self.headers_left == 0 => return Ok(Stopped::Full),
                Phase::Header => {
                    if !self.header(input, text.len, parse.as_deref_mut())? {
                        return starved(input);
                    }
                }
                Phase::Stored { left } => {
                    let from = (self.bit / 8 - input.at) as usize;
                    let rest = input.bytes.get(from..).unwrap_or_default();
                    let taken = rest.len().min(left as usize).min(len_wanted - text.len);
                    text.append(&rest[..taken]);
                    self.bit += taken as u64 * 8;
                    let left = left - taken as u32;
                    self.phase = Phase::Stored { left };
                    if left == 0 {
                        self.end_block(text.len, parse.as_deref_mut());
                    } else if taken == rest.len() {
                        return starved(input);
                    }
                }
                Phase::Steps => {
                    let ended = match parse.as_deref_mut() {
                        Some(parse) => self.steps::<true>(input, text, len_wanted, parse)?,
                        None => self.steps::<false>(input, text, len_wanted, &mut Parse::default())?,
                    };
                    match ended {
                        Some(Stopped::Done) => self.end_block(text.len, parse.as_deref_mut()),
                        Some(stopped) => {
                            if let Some(parse) = parse {
                                note_progress(parse, text.len);
                            }
                            return if stopped == Stopped::Starved { starved(input) } else { Ok(stopped) };
                        }
                        None => {}
                    }
                }
            }
            if let Some(parse) = parse.as_deref_mut() {
                note_progress(parse, text.len);
            }
        }
    }

    fn end_block(&mut self, plain_len: usize, parse: Option<&mut Parse>) {
        self.phase = if self.is_last { Phase::Done } else { Phase::Header };
        if let Some(parse) = parse {
            note_progress(parse, plain_len);
            if let Some(block) = parse.blocks.last_mut() {
                block.end_bit = Some(self.bit);
            }
        }
    }

    /// Reads a block's header; false when the input does not hold all of it.
    fn header(&mut self, input: Input<'_>, plain_at: usize, parse: Option<&mut Parse>) -> Result<bool, Malformed> {
        let mut bits = Bits { input, bit: self.bit };
        let Some((is_last, kind)) = read_header(&mut bits)? else { return Ok(false) };
        self.headers_left -= 1;
        self.header_bit = self.bit;
        self.bit = bits.bit;
        self.is_last = is_last;
        self.phase = match &kind {
            Kind::Stored { len, .. } => Phase::Stored { left: u32::from(*len) },
            Kind::Fixed => {
                if !self.are_fixed {
                    self.lookups.set(&fixed_lengths())?;
                    self.are_fixed = true;
                }
                Phase::Steps
            }
            Kind::Dynamic(header) => {
                self.are_fixed = false;
                self.lookups.set(&header.lengths)?;
                Phase::Steps
            }
        };
        if let Some(parse) = parse {
            let matches = parse.matches.len();
            parse.blocks.push(Block {
                is_last,
                kind,
                matches: matches..matches,
                plain: plain_at..plain_at,
                header_bit: self.header_bit,
                body_bit: self.bit,
                end_bit: None,
            });
        }
        Ok(true)
    }

    /// Steps of the block at hand. `Done` stands for the end of the block, `None` for "go on".
    fn steps<const KEEP: bool>(
        &mut self,
        input: Input<'_>,
        text: &mut Text<'_>,
        len_wanted: usize,
        parse: &mut Parse,
    ) -> Result<Option<Stopped>, Malformed> {
        let from = (self.bit / 8).checked_sub(input.at).ok_or(Malformed("input from behind"))? as usize;
        let rest = input.bytes.get(from..).unwrap_or_default();
        let shift = (self.bit % 8) as u32;
        let room = text.room_for(len_wanted);
        let out = text.bytes.as_mut_slice();
        let mut place = Place { at: text.len, bits: 0 };
        let ended = if rest.len() > TAIL_LEN {
            self.step_loop::<KEEP, false>(rest, shift, rest.len() * 8, out, room, parse, &mut place)
        } else {
            let mut padded = [0; TAIL_LEN + 2 * REFILLS_LEN];
            padded[..rest.len()].copy_from_slice(rest);
            self.step_loop::<KEEP, true>(&padded, shift, rest.len() * 8, out, room, parse, &mut place)
        };
        text.len = place.at;
        self.bit += place.bits as u64;
        Ok(match ended? {
            // There is room for more.
            Some(Stopped::Full) if text.len < len_wanted => None,
            // A long piece is left some bytes before its end; these are read through the padded
            // copy.
            Some(Stopped::Starved) if rest.len() > TAIL_LEN => None,
            ended => ended,
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the hot loop's state, in registers")]
    #[inline(always)]
    fn step_loop<const KEEP: bool, const TAIL: bool>(
        &self,
        bytes: &[u8],
        shift: u32,
        bits_given: usize,
        out: &mut [u8],
        len_wanted: usize,
        Parse { matches, origin, .. }: &mut Parse,
        place: &mut Place,
    ) -> Result<Option<Stopped>, Malformed> {
        let lookups = &self.lookups;
        let mut held = Held::from(bytes, shift);
        let mut at = place.at;
        let stopped = loop {
            if TAIL {
                // The place to come back to when the step is not all there.
                *place = Place { at, bits: held.read_since(shift) };
            }
            if at >= len_wanted {
                break Some(Stopped::Full);
            }
            // A step refills twice at most.
            if bytes.len() < held.read.wrapping_add(REFILLS_LEN) {
                break Some(Stopped::Starved);
            }
            held.refill(bytes);
            let mut entry = lookups.litlen(held.bits);
            if entry.is_literal() {
                if TAIL {
                    held.take(entry);
                    if held.read_since(0) > bits_given {
                        break Some(Stopped::Starved);
                    }
                    out[at] = entry.value() as u8;
                    at += 1;
                    continue;
                }
                let Some(places) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<4>) else {
                    return place.failed(at, held.read_since(shift), "a text without room");
                };
                // Three codes of 15 bits are held for sure. They are told apart one by one, since
                // what follows the first is foreseen better that way than in a loop.
                places[0] = held.take(entry);
                entry = lookups.litlen(held.bits);
                at = at.wrapping_add(1);
                if entry.is_literal() {
                    places[1] = held.take(entry);
                    entry = lookups.litlen(held.bits);
                    at = at.wrapping_add(1);
                    if entry.is_literal() {
                        places[2] = held.take(entry);
                        at = at.wrapping_add(1);
                        continue;
                    }
                }
                held.refill(bytes);
            }
            let before = held.read_since(0);
            let len = entry.value_with(held.bits);
            let is_long_way_round = len == MATCH_LEN_MAX && entry.has_extra_bits();
            held.take(entry);
            if !entry.is_value() {
                if !entry.is_end() {
                    // Zeros behind the input's end may look like anything.
                    if TAIL && before + 48 > bits_given {
                        break Some(Stopped::Starved);
                    }
                    return place.failed(at, before.wrapping_sub(shift as usize), "a code without a meaning");
                }
                if TAIL && held.read_since(0) > bits_given {
                    break Some(Stopped::Starved);
                }
                place.bits = held.read_since(shift);
                break Some(Stopped::Done);
            }
            let entry = lookups.distance(held.bits);
            let distance = entry.value_with(held.bits);
            held.take(entry);
            if TAIL && held.read_since(0) > bits_given {
                break Some(Stopped::Starved);
            }
            if !entry.is_value() || distance > at || is_long_way_round {
                if TAIL && before + 48 > bits_given {
                    break Some(Stopped::Starved);
                }
                return place.failed(at, before.wrapping_sub(shift as usize), "a match of what is not there");
            }
            copy_match(out, at, distance, len);
            if KEEP {
                matches.push(Match::new((at as u32).wrapping_sub(*origin), len as u16, distance as u32));
            }
            at = at.wrapping_add(len);
        };
        if !TAIL {
            *place = Place { at, bits: held.read_since(shift) };
        }
        Ok(stopped)
    }
}

/// Bits that were read ahead, the next one lowest. Nothing of it overflows: at least 56 are held
/// before a step, which takes 48.
struct Held {
    bits: u64,
    count: u32,
    /// Bytes read.
    read: usize,
}

impl Held {
    /// The first bytes but for so many bits.
    fn from(bytes: &[u8], shift: u32) -> Self {
        let Some(word) = bytes.first_chunk::<8>() else { return Self { bits: 0, count: 0, read: 0 } };
        let count = 56 - shift;
        Self { bits: u64::from_le_bytes(*word) >> shift & ((1 << count) - 1), count, read: 7 }
    }

    /// Up to 56 bits or more, as long as there are eight bytes.
    #[inline(always)]
    fn refill(&mut self, bytes: &[u8]) {
        let Some(word) = bytes.get(self.read..).and_then(<[u8]>::first_chunk::<8>) else { return };
        self.bits |= u64::from_le_bytes(*word).wrapping_shl(self.count);
        self.read = self.read.wrapping_add((63u32.wrapping_sub(self.count) >> 3) as usize);
        self.count |= 56;
    }

    /// Drops the bits of a code and those behind it; the literal, if it is that of one.
    #[inline(always)]
    fn take(&mut self, entry: Entry) -> u8 {
        self.bits >>= entry.all_bits();
        self.count = self.count.wrapping_sub(entry.all_bits());
        entry.value() as u8
    }

    /// Bits that were taken, but for the first ones.
    #[inline(always)]
    fn read_since(&self, shift: u32) -> usize {
        self.read.wrapping_mul(8).wrapping_sub(self.count.wrapping_add(shift) as usize)
    }
}

/// Plain text that grows: behind its end is room.
struct Text<'a> {
    bytes: &'a mut Vec<u8>,
    len: usize,
}

impl Text<'_> {
    /// Up to where there is room now; all of `len_wanted` takes more than one call.
    fn room_for(&mut self, len_wanted: usize) -> usize {
        let room = len_wanted.min(self.len + ROOM_LEN);
        if self.bytes.len() < room + SLACK {
            self.bytes.resize(room + SLACK, 0);
        }
        room
    }

    fn append(&mut self, bytes: &[u8]) {
        self.bytes.truncate(self.len);
        self.bytes.extend_from_slice(bytes);
        self.len = self.bytes.len();
    }
}

/// What a loop of steps has come to: plain bytes in all, and bits read since it began.
struct Place {
    at: usize,
    bits: usize,
}

impl Place {
    /// At the step that cannot be.
    #[cold]
    fn failed<T>(&mut self, at: usize, bits: usize, why: &'static str) -> Result<T, Malformed> {
        *self = Self { at, bits };
        Err(Malformed(why))
    }
}

fn note_progress(parse: &mut Parse, plain_len: usize) {
    let matches = parse.matches.len();
    if let Some(block) = parse.blocks.last_mut().filter(|block| block.end_bit.is_none()) {
        block.matches.end = matches;
        block.plain.end = plain_len;
    }
}

fn starved(input: Input<'_>) -> Result<Stopped, Malformed> {
    if input.is_all { Err(Malformed("a stream ends early")) } else { Ok(Stopped::Starved) }
}

/// Reads a few bits at a time, for headers.
struct Bits<'a> {
    input: Input<'a>,
    bit: u64,
}

impl Bits<'_> {
    /// The next bits, at most 16; `None` past the input's end.
    fn take(&mut self, count: u32) -> Option<u32> {
        let first = (self.bit / 8).checked_sub(self.input.at)? as usize;
        let shift = (self.bit % 8) as u32;
        let bytes = self.input.bytes.get(first..first + ((shift + count).div_ceil(8)) as usize)?;
        let word = bytes.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        self.bit += u64::from(count);
        Some(word >> shift & ((1 << count) - 1))
    }

    /// At least the next seven bits, zeros past the input's end.
    fn peek(&self) -> u32 {
        let first = (self.bit / 8).saturating_sub(self.input.at) as usize;
        let byte = |at: usize| u32::from(self.input.bytes.get(at).copied().unwrap_or_default());
        (byte(first) | byte(first + 1) << 8) >> (self.bit % 8)
    }

    /// Fewer than seven bits are left.
    fn is_short(&self) -> bool {
        self.bit + LENGTH_CODE_LEN_MAX as u64 > (self.input.at + self.input.bytes.len() as u64) * 8
    }
}

/// Whether the block is the last, and its kind.
type Found = Option<(bool, Kind)>;

/// Symbol and length of the code at every sequence of seven bits.
type LengthTable = [(u8, u8); 1 << LENGTH_CODE_LEN_MAX];

fn length_table(lengths: &[u8; LENGTH_SYMBOLS]) -> Result<LengthTable, Malformed> {
    let mut length_codes = [0u16; LENGTH_SYMBOLS];
    codes(lengths, &mut length_codes).ok_or(Malformed("more codes than there are"))?;
    let mut table = [(0, 0); 1 << LENGTH_CODE_LEN_MAX];
    for (symbol, (&len, &code)) in lengths.iter().zip(&length_codes).enumerate().filter(|(_, (len, _))| **len > 0) {
        table[usize::from(code)..].iter_mut().step_by(1 << len).for_each(|place| *place = (symbol as u8, len));
    }
    Ok(table)
}

/// A block's header; `None` when it goes past the input's end.
fn read_header(bits: &mut Bits<'_>) -> Result<Found, Malformed> {
    let Some(first) = bits.take(3) else { return Ok(None) };
    let is_last = first & 1 == 1;
    let kind = match first >> 1 {
        0 => read_stored(bits)?,
        1 => Some(Kind::Fixed),
        2 => read_dynamic(bits)?.map(|header| Kind::Dynamic(Arc::new(header))),
        _ => return Err(Malformed("a block of the reserved kind")),
    };
    Ok(kind.map(|kind| (is_last, kind)))
}

fn read_stored(bits: &mut Bits<'_>) -> Result<Option<Kind>, Malformed> {
    let unread = (8 - (bits.bit % 8) as u32) % 8;
    let (Some(padding), Some(len), Some(check)) = (bits.take(unread), bits.take(16), bits.take(16)) else {
        return Ok(None);
    };
    if len ^ check != 0xffff {
        return Err(Malformed("a stored length and its complement differ"));
    }
    Ok(Some(Kind::Stored { padding: padding as u8, len: len as u16 }))
}

fn read_dynamic(bits: &mut Bits<'_>) -> Result<Option<Header>, Malformed> {
    let (Some(litlen), Some(distance), Some(count)) = (bits.take(5), bits.take(5), bits.take(4)) else {
        return Ok(None);
    };
    let (litlen_count, distance_count) = (257 + litlen as usize, 1 + distance as usize);
    let length_count = 4 + count as usize;
    if litlen_count > LITLEN_SYMBOLS {
        return Err(Malformed("too many lengths"));
    }
    let mut length_lengths = [0u8; LENGTH_SYMBOLS];
    for &symbol in &LENGTH_ORDER[..length_count] {
        let Some(len) = bits.take(3) else { return Ok(None) };
        length_lengths[symbol] = len as u8;
    }
    let table = length_table(&length_lengths)?;
    let mut lengths = Vec::with_capacity(320);
    let mut runs = Vec::with_capacity(200);
    let total = litlen_count + distance_count;
    while lengths.len() < total {
        let (symbol, code_len) = table[bits.peek() as usize & (table.len() - 1)];
        if code_len == 0 && bits.is_short() {
            return Ok(None);
        }
        if code_len == 0 {
            return Err(Malformed("a code without a meaning"));
        }
        if bits.take(code_len.into()).is_none() {
            return Ok(None);
        }
        let mut run = LengthRun { symbol, extra: 0 };
        let Some(extra) = bits.take(run.extra_bits()) else { return Ok(None) };
        run.extra = extra as u8;
        let len = match symbol {
            16 => *lengths.last().ok_or(Malformed("a first length that repeats"))?,
            17 | 18 => 0,
            len => len,
        };
        lengths.extend(std::iter::repeat_n(len, run.count()));
        runs.push(run);
    }
    if lengths.len() != total {
        return Err(Malformed("lengths past their end"));
    }
    let mut all = CodeLengths { litlen: [0; 288], distance: [0; 32], litlen_count, distance_count };
    all.litlen[..litlen_count].copy_from_slice(&lengths[..litlen_count]);
    all.distance[..distance_count].copy_from_slice(&lengths[litlen_count..]);
    Ok(Some(Header { lengths: all, length_lengths, length_count, runs }))
}
