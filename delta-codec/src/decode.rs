//! From a delta and its footprint back to the segment. Nothing in a delta is believed before it is
//! checked.

use std::ops::Range;

use crate::context::{self, Region};
use crate::error::DecodeError;
use crate::format::{
    FORM_COPY, FORM_PREDICTED, FORM_PREDICTED_ARM64, FORM_STREAMS, FORM_WORDS, SAME_DIAGONAL_LITERAL, SAME_DIAGONAL_SUB,
};
use crate::instruction::{BYTES_PER_COPY_MIN, Gap, Instruction, place};
use crate::pieces::Pieces;
use crate::predict::{MovedReferences, PackedReferences};
use crate::room;
use crate::stream::{self, Packed};
use crate::varint::{Reader, unzigzag};
use crate::words::{WORD_LEN, WordReader};
use crate::zstd::Decompressor;
use crate::{FOOTPRINT_LEN_MAX, SEGMENT_LEN_MAX};

/// Most bytes of one number in an instruction stream. Part of the format (docs/format/delta-v1.md
/// §2).
const INSTRUCTION_NUMBER_LEN_MAX: usize = 4;
/// Copies and literals up to this length are moved in one go, with whatever lies behind them.
const SHORT: usize = 32;

const MISFIT: DecodeError = DecodeError("sub or literals do not fit the instructions");

/// Decodes segments. Keeps its work buffers between calls; one per thread.
///
/// They stay below five times the longest target plus 16 MiB, whatever the delta says
/// (docs/format/delta-v1.md §8).
#[derive(Debug, Default)]
pub struct Decoder {
    instructions: Vec<Instruction>,
    gap_lengths: Vec<u8>,
    copy_lengths: Vec<u8>,
    diagonals: Vec<u8>,
    sub: Vec<u8>,
    words: Vec<u8>,
    predictor: MovedReferences,
    literals: Vec<u8>,
    regions: Vec<Region>,
    context: Vec<u8>,
    zstd: Decompressor,
}

/// "The target's bytes from `at` on were made from those of the footprint from `source` on."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedRun {
    /// Position in the target.
    pub at: u32,
    /// Bytes, at least one.
    pub len: u32,
    /// Position in the footprint.
    pub source: u32,
    /// They are the same bytes; otherwise differences were added to them.
    pub is_equal: bool,
}

/// A delta taken apart, nothing unpacked yet.
#[derive(Debug)]
pub(crate) enum Parsed<'a> {
    Copy { source: usize },
    Streams(Streams<'a>),
}

/// The body of forms 1 to 4.
#[derive(Debug)]
pub(crate) struct Streams<'a> {
    pub(crate) copies: usize,
    pub(crate) gap_lengths: Packed<'a>,
    pub(crate) copy_lengths: Packed<'a>,
    pub(crate) diagonals: Packed<'a>,
    pub(crate) differences: Differences<'a>,
    pub(crate) literals: Packed<'a>,
    pub(crate) predictor: Option<Box<PackedReferences<'a>>>,
}

/// What sub runs add to the base: the difference between the two forms.
#[derive(Debug)]
pub(crate) enum Differences<'a> {
    Sub(Packed<'a>),
    Words { distances: Packed<'a>, words: Packed<'a> },
}

impl<'a> Differences<'a> {
    pub(crate) fn streams(&self) -> impl Iterator<Item = &Packed<'a>> {
        let (first, second) = match self {
            Self::Sub(sub) => (sub, None),
            Self::Words { distances, words } => (distances, Some(words)),
        };
        std::iter::once(first).chain(second)
    }
}

/// Takes a delta apart and checks every length that can be checked without unpacking.
pub(crate) fn parse(delta: &[u8], target_len: usize) -> Result<Parsed<'_>, DecodeError> {
    if !(1..=SEGMENT_LEN_MAX).contains(&target_len) {
        return Err(DecodeError("a target of impossible length"));
    }
    let mut reader = Reader::new(delta);
    let parsed = match reader.byte()? {
        FORM_COPY => Parsed::Copy { source: reader.number()? as usize },
        form @ (FORM_STREAMS | FORM_WORDS | FORM_PREDICTED | FORM_PREDICTED_ARM64) => {
            Parsed::Streams(parse_streams(&mut reader, target_len, form)?)
        }
        _ => return Err(DecodeError("an unknown form")),
    };
    if reader.is_empty() { Ok(parsed) } else { Err(DecodeError("bytes after the end")) }
}

fn parse_streams<'a>(reader: &mut Reader<'a>, target_len: usize, form: u8) -> Result<Streams<'a>, DecodeError> {
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
        predictor: match form {
            FORM_PREDICTED | FORM_PREDICTED_ARM64 => Some(Box::new(PackedReferences::read(reader, target_len, form)?)),
            _ => None,
        },
        differences: match form {
            FORM_STREAMS => Differences::Sub(stream::read(reader, target_len)?),
            _ => Differences::Words {
                distances: stream::read(reader, target_len)?,
                words: stream::read(reader, target_len)?,
            },
        },
        literals: stream::read(reader, target_len)?,
    };
    let instructions = [&streams.gap_lengths, &streams.copy_lengths, &streams.diagonals];
    let predictor = streams.predictor.iter().flat_map(|packed| packed.streams());
    if instructions.into_iter().chain(streams.differences.streams()).chain(predictor).any(Packed::needs_context) {
        return Err(DecodeError("a context outside the literals"));
    }
    if let Differences::Words { distances, words } = &streams.differences {
        if distances.plain_len() + words.plain_len() + streams.literals.plain_len() > target_len {
            return Err(DecodeError("distances, words and literals longer than the target"));
        }
        if words.plain_len() % WORD_LEN != 0 {
            return Err(DecodeError("a part of a word"));
        }
    }
    Ok(streams)
}

impl Decoder {
    /// A decoder with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that it keeps between two jobs.
    pub fn memory_bytes(&self) -> usize {
        let bytes = [
            &self.gap_lengths,
            &self.copy_lengths,
            &self.diagonals,
            &self.sub,
            &self.words,
            &self.literals,
            &self.context,
        ];
        bytes.into_iter().map(Vec::capacity).sum::<usize>()
            + self.instructions.capacity() * size_of::<Instruction>()
            + self.predictor.memory_bytes()
            + self.regions.capacity() * size_of::<Region>()
            + self.zstd.memory_bytes()
    }

    /// Fills `target` (whose length the segment table gives) from `delta` and the concatenated
    /// bytes of its footprint.
    ///
    /// A footprint other than the one the delta was made for gives an error or wrong bytes; the
    /// digest tells (I4).
    ///
    /// # Errors
    /// [`DecodeError`] for any input the format document tells a decoder to refuse; `target`'s
    /// content is then unspecified.
    pub fn decode(&mut self, footprint: &[u8], delta: &[u8], target: &mut [u8]) -> Result<(), DecodeError> {
        self.decode_pieces(&[footprint], delta, target)
    }

    /// As [`Decoder::decode`] with a footprint that lies in several slices: nothing is copied to
    /// join them.
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
                let copy_len = target.len() as u32;
                self.instructions.clear();
                self.instructions.push(Instruction { gap_len: 0, gap_is_sub: false, copy_len, source: source as u32 });
                Ok(())
            }
            Parsed::Streams(streams) => self.decode_streams(&footprint, &streams, target),
        }
    }

    /// Which runs of the target that was decoded last came from which bytes of the footprint, in
    /// the target's order; nothing of it holds after an error.
    pub fn copied_runs(&self) -> impl Iterator<Item = CopiedRun> + '_ {
        place(&self.instructions).flat_map(|placed| {
            let sub = (placed.gap == Gap::Sub).then(|| CopiedRun {
                at: placed.gap_start as u32,
                len: placed.gap_len as u32,
                source: (placed.source - placed.gap_len) as u32,
                is_equal: false,
            });
            let copy = (placed.copy_len > 0).then_some(CopiedRun {
                at: placed.copy_start as u32,
                len: placed.copy_len as u32,
                source: placed.source as u32,
                is_equal: true,
            });
            [sub, copy].into_iter().flatten()
        })
    }

    fn decode_streams(
        &mut self,
        footprint: &Pieces<'_>,
        streams: &Streams<'_>,
        target: &mut [u8],
    ) -> Result<(), DecodeError> {
        self.read_instructions(footprint.len(), streams, target.len())?;
        self.context.clear();
        if streams.literals.needs_context() {
            context::regions(&self.instructions, target.len(), footprint.len(), &mut self.regions);
            room::make(&mut self.context, self.regions.iter().map(|region| region.end - region.start).sum());
            for region in &self.regions {
                footprint.parts(region.start..region.end).for_each(|part| self.context.extend_from_slice(part));
            }
        }
        if let Some(packed) = &streams.predictor {
            packed.unpack(&mut self.predictor, &mut self.zstd, &mut self.words)?;
        }
        let predictor = streams.predictor.as_ref().map(|_| &self.predictor);
        let literals = streams.literals.unpack(&self.context, &mut self.zstd, &mut self.literals)?;
        let sub = match &streams.differences {
            Differences::Sub(sub) => Sub::Bytes(sub.unpack(&[], &mut self.zstd, &mut self.sub)?),
            Differences::Words { distances, words } => Sub::Words(WordReader::new(
                distances.unpack(&[], &mut self.zstd, &mut self.sub)?,
                words.unpack(&[], &mut self.zstd, &mut self.words)?,
            )),
        };
        execute(&self.instructions, footprint, predictor, sub, literals, target)
    }

    /// Unpacks the instruction streams and checks every instruction: afterwards all copies lie
    /// within target and footprint, and sub bytes and literals have exactly the length that is
    /// needed.
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
            // A sub run lies between the source of this copy and the end of the one before (or the
            // footprint's start): it needs no check.
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
        // Whether distances and words fit is seen when they are taken.
        let sub_fits = match &streams.differences {
            Differences::Sub(sub) => sub_len == sub.plain_len(),
            Differences::Words { .. } => true,
        };
        if !sub_fits || literals_len != streams.literals.plain_len() {
            return Err(MISFIT);
        }
        Ok(())
    }
}

/// What is added to the base bytes of sub runs, taken run by run.
enum Sub<'a> {
    Bytes(&'a [u8]),
    Words(WordReader<'a>),
}

impl Sub<'_> {
    /// Makes the base bytes of a sub run those of the target.
    #[inline(always)]
    fn add(&mut self, run: &mut [u8]) -> Result<(), DecodeError> {
        match self {
            Self::Bytes(rest) => {
                let (sub, behind) = rest.split_at_checked(run.len()).ok_or(MISFIT)?;
                run.iter_mut().zip(sub).for_each(|(byte, sub)| *byte = byte.wrapping_add(*sub));
                *rest = behind;
                Ok(())
            }
            Self::Words(words) => words.add(run),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(rest) => rest.is_empty(),
            Self::Words(words) => words.is_empty(),
        }
    }
}

/// Builds the target. The instructions have been checked; the slices are checked all the same.
fn execute(
    instructions: &[Instruction],
    footprint: &Pieces<'_>,
    predictor: Option<&MovedReferences>,
    mut sub: Sub<'_>,
    literals: &[u8],
    target: &mut [u8],
) -> Result<(), DecodeError> {
    let (mut literals_at, mut at) = (0, 0);
    let mut base = footprint.cursor();
    for placed in place(instructions) {
        if placed.gap == Gap::Literal {
            copy(target, placed.gap_start, literals, literals_at, placed.gap_len);
            literals_at += placed.gap_len;
        }
        // The base bytes of a sub run and of the copy after it lie side by side.
        let (source, end) = (placed.base_start(), placed.base_end());
        let start = placed.copy_end() - (end - source);
        if let Some(run) = base.run(source, end - source) {
            copy(target, start, run, 0, end - source);
        } else {
            copy_parts(target, start, footprint, source..end);
        }
        if placed.gap == Gap::Sub {
            let run = &mut target[placed.gap_start..placed.copy_start];
            if let Some(predictor) = predictor {
                predictor.apply(run, source, placed.gap_start);
            }
            sub.add(run)?;
        }
        at = placed.copy_end();
    }
    let rest = literals.get(literals_at..).filter(|rest| rest.len() == target.len() - at && sub.is_empty());
    target[at..].copy_from_slice(rest.ok_or(MISFIT)?);
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

/// Copies `len` bytes. A short copy moves [`SHORT`] bytes where both sides have them: what it
/// writes past its end is written again by what follows.
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
