//! From a delta and its footprint back to the segment. Nothing in a delta is believed before it is checked.

use std::ops::Range;

use thiserror::Error;

use crate::context::{self, Region};
use crate::encode::{FORM_COPY, FORM_STREAMS, SAME_DIAGONAL_LITERAL, SAME_DIAGONAL_SUB};
use crate::instruction::{BYTES_PER_COPY_MIN, Gap, Instruction, place};
use crate::pieces::Pieces;
use crate::stream::{self, Packed};
use crate::varint::{Reader, unzigzag};
use crate::zstd::Decompressor;
use crate::{FOOTPRINT_LEN_MAX, SEGMENT_LEN_MAX};

/// Most bytes of one number in an instruction stream. Part of the format (docs/format/delta-v1.md §2).
const INSTRUCTION_NUMBER_LEN_MAX: usize = 4;
/// Copies and literals up to this length are moved in one go, with whatever lies behind them.
const SHORT: usize = 32;

/// Why a delta cannot be decoded. Always an error, never a guess (I7).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("malformed delta: {0}")]
pub struct DecodeError(pub &'static str);

/// Decodes segments. Keeps its work buffers between calls; one per thread.
///
/// They stay below five times the longest target plus 16 MiB, whatever the delta says (docs/format/delta-v1.md §8).
#[derive(Debug, Default)]
pub struct Decoder {
    instructions: Vec<Instruction>,
    gap_lengths: Vec<u8>,
    copy_lengths: Vec<u8>,
    diagonals: Vec<u8>,
    sub: Vec<u8>,
    literals: Vec<u8>,
    regions: Vec<Region>,
    context: Vec<u8>,
    zstd: Decompressor,
}

/// A delta taken apart, nothing unpacked yet.
#[derive(Debug)]
pub(crate) enum Parsed<'a> {
    Copy { source: usize },
    Streams(Streams<'a>),
}

/// The body of form 1.
#[derive(Debug)]
pub(crate) struct Streams<'a> {
    pub(crate) copies: usize,
    pub(crate) gap_lengths: Packed<'a>,
    pub(crate) copy_lengths: Packed<'a>,
    pub(crate) diagonals: Packed<'a>,
    pub(crate) sub: Packed<'a>,
    pub(crate) literals: Packed<'a>,
}

/// Takes a delta apart and checks every length that can be checked without unpacking.
pub(crate) fn parse(delta: &[u8], target_len: usize) -> Result<Parsed<'_>, DecodeError> {
    if !(1..=SEGMENT_LEN_MAX).contains(&target_len) {
        return Err(DecodeError("a target of impossible length"));
    }
    let mut reader = Reader::new(delta);
    let parsed = match reader.byte()? {
        FORM_COPY => Parsed::Copy { source: reader.number()? as usize },
        FORM_STREAMS => Parsed::Streams(parse_streams(&mut reader, target_len)?),
        _ => return Err(DecodeError("an unknown form")),
    };
    if reader.is_empty() { Ok(parsed) } else { Err(DecodeError("bytes after the end")) }
}

fn parse_streams<'a>(reader: &mut Reader<'a>, target_len: usize) -> Result<Streams<'a>, DecodeError> {
    let copies = reader.number()? as usize;
    if copies > target_len / BYTES_PER_COPY_MIN {
        return Err(DecodeError("more copies than the target has room for"));
    }
    let instructions_max = copies * INSTRUCTION_NUMBER_LEN_MAX;
    let streams = Streams {
        copies,
        gap_lengths: stream::read(reader, instructions_max)?,
        copy_lengths: stream::read(reader, instructions_max)?,
        diagonals: stream::read(reader, instructions_max)?,
        sub: stream::read(reader, target_len)?,
        literals: stream::read(reader, target_len)?,
    };
    let without_context = [&streams.gap_lengths, &streams.copy_lengths, &streams.diagonals, &streams.sub];
    if without_context.iter().any(|stream| stream.needs_context()) {
        return Err(DecodeError("a context outside the literals"));
    }
    Ok(streams)
}

impl Decoder {
    /// A decoder with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `target` (whose length the segment table gives) from `delta` and the concatenated bytes of its footprint.
    ///
    /// A footprint other than the one the delta was made for gives an error or wrong bytes; the digest tells (I4).
    ///
    /// # Errors
    /// [`DecodeError`] for any input the format document tells a decoder to refuse; `target`'s content is then unspecified.
    pub fn decode(&mut self, footprint: &[u8], delta: &[u8], target: &mut [u8]) -> Result<(), DecodeError> {
        self.decode_pieces(&[footprint], delta, target)
    }

    /// As [`Decoder::decode`] with a footprint that lies in several slices: nothing is copied to join them.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode_pieces(&mut self, footprint: &[&[u8]], delta: &[u8], target: &mut [u8]) -> Result<(), DecodeError> {
        let footprint = Pieces::new(footprint);
        if footprint.len() > FOOTPRINT_LEN_MAX {
            return Err(DecodeError("a footprint of impossible length"));
        }
        match parse(delta, target.len())? {
            Parsed::Copy { source } => {
                let end = source.checked_add(target.len()).filter(|end| *end <= footprint.len());
                let end = end.ok_or(DecodeError("a copy outside of the footprint"))?;
                copy_parts(target, 0, &footprint, source..end);
                Ok(())
            }
            Parsed::Streams(streams) => self.decode_streams(&footprint, &streams, target),
        }
    }

    fn decode_streams(
        &mut self,
        footprint: &Pieces<'_>,
        streams: &Streams<'_>,
        target: &mut [u8],
    ) -> Result<(), DecodeError> {
        self.read_instructions(footprint.len(), streams, target.len())?;
        let sub = streams.sub.unpack(&[], &mut self.zstd, &mut self.sub)?;
        self.context.clear();
        if streams.literals.needs_context() {
            context::regions(&self.instructions, target.len(), footprint.len(), &mut self.regions);
            for region in &self.regions {
                footprint.parts(region.start..region.end).for_each(|part| self.context.extend_from_slice(part));
            }
        }
        let literals = streams.literals.unpack(&self.context, &mut self.zstd, &mut self.literals)?;
        execute(&self.instructions, footprint, sub, literals, target)
    }

    /// Unpacks the instruction streams and checks every instruction: afterwards all copies lie within target and footprint, and sub and
    /// literals have exactly the length that is needed.
    fn read_instructions(
        &mut self,
        footprint_len: usize,
        streams: &Streams<'_>,
        target_len: usize,
    ) -> Result<(), DecodeError> {
        let zstd = &mut self.zstd;
        let mut gap_lengths = Reader::new(streams.gap_lengths.unpack(&[], zstd, &mut self.gap_lengths)?);
        let mut copy_lengths = Reader::new(streams.copy_lengths.unpack(&[], zstd, &mut self.copy_lengths)?);
        let mut diagonals = Reader::new(streams.diagonals.unpack(&[], zstd, &mut self.diagonals)?);
        self.instructions.clear();
        // Numbers are below 2^28, positions below 2^26: an i64 cannot overflow within 2^19 copies.
        let (mut at, mut diagonal) = (0usize, 0i64);
        for _ in 0..streams.copies {
            let gap_len = gap_lengths.instruction_number()?;
            let copy_len = copy_lengths.instruction_number()?;
            let code = diagonals.instruction_number()?;
            if code > SAME_DIAGONAL_LITERAL {
                diagonal += i64::from(unzigzag(code - 1));
            }
            let copy_start = at + gap_len as usize;
            at = copy_start + copy_len as usize;
            if at > target_len {
                return Err(DecodeError("instructions run past the target"));
            }
            let source = copy_start as i64 + diagonal;
            if source < 0 || source + i64::from(copy_len) > footprint_len as i64 {
                return Err(DecodeError("a copy outside of the footprint"));
            }
            // A sub run lies between the source of this copy and the end of the one before (or the footprint's start): it needs no check.
            let gap_is_sub = code == SAME_DIAGONAL_SUB;
            self.instructions.push(Instruction { gap_len, gap_is_sub, copy_len, source: source as u32 });
        }
        if !(gap_lengths.is_empty() && copy_lengths.is_empty() && diagonals.is_empty()) {
            return Err(DecodeError("more numbers than copies"));
        }
        let (mut sub_len, mut literals_len) = (0, target_len - at);
        for placed in place(&self.instructions) {
            match placed.gap {
                Gap::None => {}
                Gap::Sub => sub_len += placed.gap_len,
                Gap::Literal => literals_len += placed.gap_len,
            }
        }
        if sub_len != streams.sub.plain_len() || literals_len != streams.literals.plain_len() {
            return Err(DecodeError("sub or literals do not fit the instructions"));
        }
        Ok(())
    }
}

/// Builds the target. The instructions have been checked; the slices are checked all the same.
fn execute(
    instructions: &[Instruction],
    footprint: &Pieces<'_>,
    sub: &[u8],
    literals: &[u8],
    target: &mut [u8],
) -> Result<(), DecodeError> {
    let (mut sub_at, mut literals_at, mut at) = (0, 0, 0);
    let mut base = footprint.cursor();
    for placed in place(instructions) {
        match placed.gap {
            Gap::None => {}
            Gap::Sub => {
                if let Some(run) = base.run(placed.base_start(), placed.gap_len) {
                    add(target, placed.gap_start, run, &sub[sub_at..], placed.gap_len);
                } else {
                    add_parts(target, placed.gap_start, footprint, placed.base_start()..placed.source, &sub[sub_at..]);
                }
                sub_at += placed.gap_len;
            }
            Gap::Literal => {
                copy(target, placed.gap_start, literals, literals_at, placed.gap_len);
                literals_at += placed.gap_len;
            }
        }
        if let Some(run) = base.run(placed.source, placed.copy_len) {
            copy(target, placed.copy_start, run, 0, placed.copy_len);
        } else {
            copy_parts(target, placed.copy_start, footprint, placed.source..placed.base_end());
        }
        at = placed.copy_end();
    }
    let rest = literals.get(literals_at..).filter(|rest| rest.len() == target.len() - at && sub_at == sub.len());
    target[at..].copy_from_slice(rest.ok_or(DecodeError("sub or literals do not fit the instructions"))?);
    Ok(())
}

/// Copies a run that crosses slices.
#[cold]
fn copy_parts(target: &mut [u8], mut at: usize, footprint: &Pieces<'_>, run: Range<usize>) {
    for part in footprint.parts(run) {
        target[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

/// Adds sub bytes to a run that crosses slices.
#[cold]
fn add_parts(target: &mut [u8], mut at: usize, footprint: &Pieces<'_>, run: Range<usize>, mut sub: &[u8]) {
    for part in footprint.parts(run) {
        add(target, at, part, sub, part.len());
        at += part.len();
        sub = &sub[part.len()..];
    }
}

/// Copies `len` bytes. A short copy moves [`SHORT`] bytes where both sides have them: what it writes past its end is written again by what follows.
#[inline(always)]
fn copy(target: &mut [u8], at: usize, source: &[u8], from: usize, len: usize) {
    if len <= SHORT
        && let Some(to) = target.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<SHORT>)
        && let Some(bytes) = source.get(from..).and_then(<[u8]>::first_chunk::<SHORT>)
    {
        *to = *bytes;
        return;
    }
    target[at..at + len].copy_from_slice(&source[from..from + len]);
}

/// Adds `len` sub bytes to as many base bytes, eight at a time where all sides have them; as with [`copy`], what is written past the end is written again.
#[inline(always)]
fn add(target: &mut [u8], at: usize, base: &[u8], sub: &[u8], len: usize) {
    let wide = len.next_multiple_of(8);
    if let (Some(to), Some(base), Some(sub)) = (target.get_mut(at..at + wide), base.get(..wide), sub.get(..wide)) {
        let words = to.as_chunks_mut::<8>().0.iter_mut().zip(base.as_chunks::<8>().0).zip(sub.as_chunks::<8>().0);
        for ((to, base), sub) in words {
            *to = add_bytes(u64::from_le_bytes(*base), u64::from_le_bytes(*sub)).to_le_bytes();
        }
        return;
    }
    for ((to, base), sub) in target[at..at + len].iter_mut().zip(base).zip(sub) {
        *to = base.wrapping_add(*sub);
    }
}

/// Eight sums modulo 256: the low seven bits cannot carry into the next byte, the top bit is a sum without carry.
#[inline(always)]
fn add_bytes(left: u64, right: u64) -> u64 {
    const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    ((left & LOW_SEVEN) + (right & LOW_SEVEN)) ^ ((left ^ right) & !LOW_SEVEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn eight_sums_at_once_are_eight_sums(left in any::<[u8; 8]>(), right in any::<[u8; 8]>()) {
            let expected: [u8; 8] = std::array::from_fn(|at| left[at].wrapping_add(right[at]));
            prop_assert_eq!(add_bytes(u64::from_le_bytes(left), u64::from_le_bytes(right)).to_le_bytes(), expected);
        }
    }
}
