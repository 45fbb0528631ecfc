//! References in sub runs, predicted (docs/format/delta-v1.md §5.1): where code moved, a relative
//! branch or a pointer changes by how far its own place and the place it means have moved. A few
//! numbers, the *knots*, say that for whole stretches of addresses.

use crate::FOOTPRINT_LEN_MAX;
use crate::arm64::{self, CodeReference, PAGE_LEN, Pages, RunPlace};
use crate::error::DecodeError;
use crate::format::{FORM_PREDICTED, FORM_PREDICTED_ARM64, REACH};
use crate::stream::{self, Packed};
use crate::varint::{self, Reader, unzigzag, zigzag};
use crate::zstd::{Compressor, Decompressor, Settings};

/// Target bytes that share one kind of references. Part of the format.
pub(crate) const BLOCK_LEN: usize = 4096;
/// A target of `len` bytes has at most `len /` this many knots in each table. Part of the format.
pub(crate) const BYTES_PER_KNOT_MIN: usize = 64;
/// Most seams of a footprint: places where bytes of the base were left out. Part of the format.
const SEAMS_MAX: usize = 15;
/// Most bytes that seams leave out together. Part of the format.
const LEFT_OUT_MAX: usize = 1 << 27;
/// Most bytes of a number about a knot.
const NUMBER_LEN_MAX: usize = 5;

/// The encoder knows no larger shifts: the change from one to the next has a code.
pub(crate) const SHIFT_MAX: u32 = 1 << 30;

/// Kinds of blocks. Part of the format.
pub(crate) mod kind {
    /// Nothing is predicted.
    pub(crate) const PLAIN: u8 = 0;
    /// x86-64 code: offsets of 32 bits from the end of the field.
    pub(crate) const CODE: u8 = 1;
    /// Pointers of eight bytes, whose lower half is predicted.
    pub(crate) const POINTERS: u8 = 2;
    /// Addresses of four bytes.
    pub(crate) const OFFSETS: u8 = 3;
    /// AArch64 code; in form 4.
    pub(crate) const ARM64: u8 = 4;
}

/// "From `start` on, addresses have moved by `shift`", or nothing is known about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Knot {
    pub(crate) start: u32,
    pub(crate) shift: Option<i32>,
}

/// Everything that references are predicted from.
#[derive(Debug, Default)]
pub(crate) struct MovedReferences {
    /// The kind of each block of the target.
    pub(crate) kinds: Vec<u8>,
    /// For relative references, ascending.
    pub(crate) near: Vec<Knot>,
    /// For addresses, ascending.
    pub(crate) far: Vec<Knot>,
    /// Where the footprint leaves out bytes of the base: positions in it, ascending, and how many
    /// bytes are missing up to there.
    pub(crate) seams: Vec<(usize, usize)>,
    /// Where pages of memory begin, for AArch64 code.
    pub(crate) pages: Pages,
}

impl MovedReferences {
    /// Bytes that it keeps.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.kinds.capacity()
            + (self.near.capacity() + self.far.capacity()) * size_of::<Knot>()
            + self.seams.capacity() * size_of::<(usize, usize)>()
    }
}

/// A reference that a kind of block may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MovedReference {
    /// Relative to its own place.
    Near(Field),
    /// An address.
    Far(Field),
    /// In AArch64 code.
    Code(CodeReference),
}

/// A reference that is a number of four bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    /// Where its four bytes begin in the run.
    pub(crate) at: usize,
    pub(crate) value: u32,
    /// What it means, in the numbers of its table.
    pub(crate) address: u32,
}

/// The streams of a predictor, packed.
#[derive(Debug)]
pub(crate) struct PackedReferences<'a> {
    kind_max: u8,
    pages: Pages,
    seams: Vec<(usize, usize)>,
    near: usize,
    far: usize,
    kinds: Packed<'a>,
    starts: Packed<'a>,
    shifts: Packed<'a>,
}

impl MovedReferences {
    pub(crate) fn clear(&mut self) {
        self.kinds.clear();
        self.near.clear();
        self.far.clear();
        self.seams.clear();
        self.pages = Pages::default();
    }

    /// The form that has room for all kinds of blocks.
    pub(crate) fn form(&self) -> u8 {
        if self.kinds.contains(&kind::ARM64) { FORM_PREDICTED_ARM64 } else { FORM_PREDICTED }
    }

    /// Where a run of base bytes lies in base and target.
    pub(crate) fn place(&self, source: usize, at: usize) -> RunPlace {
        RunPlace { origin: self.origin(source), at, pages: self.pages }
    }

    /// Where a run that begins at `source` in the footprint begins in the base.
    pub(crate) fn origin(&self, source: usize) -> usize {
        let before = self.seams.partition_point(|(at, _)| *at <= source);
        source + self.seams[..before].last().map_or(0, |(_, left_out)| *left_out)
    }

    /// Makes the base bytes of a sub run what they should be in the target. `source` and `at` are
    /// the run's places in footprint and target.
    pub(crate) fn apply(&self, run: &mut [u8], source: usize, at: usize) {
        let place = self.place(source, at);
        let moved = (place.origin as i32).wrapping_sub(at as i32);
        self.walk(run, source, at, |run, reference| {
            let (knots, field, moved) = match reference {
                MovedReference::Near(field) => (&self.near, field, moved),
                MovedReference::Far(field) => (&self.far, field, 0),
                MovedReference::Code(code) => {
                    return shift_at(&self.near, code.near()).is_some_and(|shift| code.redirect(run, place, shift));
                }
            };
            let Some(shift) = shift_at(knots, field.address) else { return false };
            let value = field.value.wrapping_add_signed(shift.wrapping_add(moved));
            run[field.at..field.at + 4].copy_from_slice(&value.to_le_bytes());
            true
        });
    }

    /// Calls `visit` with each reference that the kinds of the blocks allow. When it returns true
    /// the reference is taken: the next one begins behind it.
    #[inline(always)]
    pub(crate) fn walk(
        &self,
        run: &mut [u8],
        source: usize,
        at: usize,
        mut visit: impl FnMut(&mut [u8], MovedReference) -> bool,
    ) {
        let place = self.place(source, at);
        let mut next = 0;
        while next < run.len() {
            let block = (at + next) / BLOCK_LEN;
            let end = ((block + 1) * BLOCK_LEN - at).min(run.len());
            next = match self.kinds[block] {
                kind::CODE => walk_code(run, next, end, place.origin, &mut visit),
                kind::POINTERS => walk_aligned::<8>(run, next, end, source, &mut visit),
                kind::OFFSETS => walk_aligned::<4>(run, next, end, source, &mut visit),
                kind::ARM64 => arm64::walk(run, next, end, place, |run, code| visit(run, MovedReference::Code(code))),
                _ => end,
            };
        }
    }
}

/// Calls and jumps (E8, E9), conditional jumps (0F 80 to 0F 8F), and operands relative to the
/// instruction pointer (a byte whose bits 0 to 2 are 5, and 6 and 7 are 0).
#[inline(always)]
fn walk_code(
    run: &mut [u8],
    mut next: usize,
    end: usize,
    origin: usize,
    visit: &mut impl FnMut(&mut [u8], MovedReference) -> bool,
) -> usize {
    while next < end {
        let byte = run[next];
        let skipped = match LEADS[byte as usize] {
            0 => {
                next += 1;
                continue;
            }
            2 if run.get(next + 1).is_none_or(|second| second & 0xf0 != 0x80) => {
                next += 1;
                continue;
            }
            skipped => usize::from(skipped),
        };
        let at = next + skipped;
        next += 1;
        let Some(bytes) = run.get(at..).and_then(<[u8]>::first_chunk::<4>) else { continue };
        let value = i32::from_le_bytes(*bytes);
        if !(-REACH..REACH).contains(&value) {
            continue;
        }
        let address = ((origin + at + 4) as u32).wrapping_add_signed(value).wrapping_add(REACH as u32);
        if visit(run, MovedReference::Near(Field { at, value: value as u32, address })) {
            next = at + 4;
        }
    }
    next
}

/// Numbers of four bytes at every multiple of `STEP` of the footprint.
#[inline(always)]
fn walk_aligned<const STEP: usize>(
    run: &mut [u8],
    mut next: usize,
    end: usize,
    source: usize,
    visit: &mut impl FnMut(&mut [u8], MovedReference) -> bool,
) -> usize {
    next += (source + next).next_multiple_of(STEP) - (source + next);
    while next < end {
        let Some(bytes) = run.get(next..).and_then(<[u8]>::first_chunk::<4>) else { break };
        let value = u32::from_le_bytes(*bytes);
        visit(run, MovedReference::Far(Field { at: next, value, address: value }));
        next += STEP;
    }
    next.max(end)
}

/// How many bytes before a field each byte may stand, 0 for none. 0F needs a second byte.
const LEADS: [u8; 256] = {
    let mut leads = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if byte & 0xc7 == 0x05 || byte & 0xfe == 0xe8 {
            leads[byte] = 1;
        }
        byte += 1;
    }
    leads[0x0f] = 2;
    leads
};

/// What the last knot at or before `address` says.
#[inline(always)]
pub(crate) fn shift_at(knots: &[Knot], address: u32) -> Option<i32> {
    let behind = knots.partition_point(|knot| knot.start <= address);
    knots[..behind].last()?.shift
}

impl MovedReferences {
    /// Appends the pages where the form has them, the seams, both numbers of knots and the three
    /// streams.
    pub(crate) fn write(&self, settings: Settings, zstd: &mut Compressor, out: &mut Vec<u8>) {
        if self.form() == FORM_PREDICTED_ARM64 {
            varint::put(out, self.pages.base);
            varint::put(out, self.pages.target);
        }
        varint::put(out, self.seams.len() as u32);
        let mut last = (0, 0);
        for &(at, left_out) in &self.seams {
            varint::put(out, (at - last.0) as u32);
            varint::put(out, (left_out - last.1) as u32);
            last = (at, left_out);
        }
        let (mut starts, mut shifts) = (Vec::new(), Vec::new());
        for knots in [&self.near, &self.far] {
            varint::put(out, knots.len() as u32);
            let (mut start, mut shift) = (0, 0);
            for knot in knots {
                varint::put(&mut starts, knot.start - start);
                start = knot.start;
                match knot.shift {
                    None => shifts.push(0),
                    // Shifts are below SHIFT_MAX, so that the code of no change overflows.
                    Some(here) => {
                        varint::put(&mut shifts, zigzag(here - shift) + 1);
                        shift = here;
                    }
                }
            }
        }
        for plain in [&self.kinds, &starts, &shifts] {
            stream::write(plain, &[], settings, zstd, out);
        }
    }
}

fn read_pages(reader: &mut Reader<'_>) -> Result<Pages, DecodeError> {
    let pages = Pages { base: reader.number()?, target: reader.number()? };
    match (pages.base.max(pages.target) as usize) < PAGE_LEN {
        true => Ok(pages),
        false => Err(DecodeError("a place past the end of a page")),
    }
}

fn read_seams(reader: &mut Reader<'_>) -> Result<Vec<(usize, usize)>, DecodeError> {
    let count = reader.number()? as usize;
    if count > SEAMS_MAX {
        return Err(DecodeError("more seams than a footprint has"));
    }
    let mut seams = Vec::with_capacity(count);
    let (mut at, mut left_out) = (0usize, 0usize);
    for _ in 0..count {
        at += reader.number()? as usize;
        left_out += reader.number()? as usize;
        if at > FOOTPRINT_LEN_MAX || left_out > LEFT_OUT_MAX {
            return Err(DecodeError("a seam outside of a footprint, or one that leaves out too much"));
        }
        seams.push((at, left_out));
    }
    Ok(seams)
}

impl<'a> PackedReferences<'a> {
    /// Reads what there is before the three streams, and their heads.
    pub(crate) fn read(reader: &mut Reader<'a>, target_len: usize, form: u8) -> Result<Self, DecodeError> {
        let (kind_max, pages) = match form {
            FORM_PREDICTED_ARM64 => (kind::ARM64, read_pages(reader)?),
            _ => (kind::OFFSETS, Pages::default()),
        };
        let seams = read_seams(reader)?;
        let (near, far) = (reader.number()? as usize, reader.number()? as usize);
        if near.max(far) > target_len / BYTES_PER_KNOT_MIN {
            return Err(DecodeError("more knots than the target has room for"));
        }
        let blocks = target_len.div_ceil(BLOCK_LEN);
        let numbers_max = (near + far) * NUMBER_LEN_MAX;
        let packed = Self {
            kind_max,
            pages,
            seams,
            near,
            far,
            kinds: stream::read(reader, blocks)?,
            starts: stream::read(reader, numbers_max)?,
            shifts: stream::read(reader, numbers_max)?,
        };
        match packed.kinds.plain_len() == blocks {
            true => Ok(packed),
            false => Err(DecodeError("blocks without a kind")),
        }
    }

    pub(crate) fn streams(&self) -> [&Packed<'a>; 3] {
        [&self.kinds, &self.starts, &self.shifts]
    }

    /// Unpacks and checks everything. `buffer` is for the plain streams.
    pub(crate) fn unpack(
        &self,
        into: &mut MovedReferences,
        zstd: &mut Decompressor,
        buffer: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        into.clear();
        into.pages = self.pages;
        into.seams.extend_from_slice(&self.seams);
        let kinds = self.kinds.unpack(&[], zstd, buffer)?;
        if kinds.iter().any(|&kind| kind > self.kind_max) {
            return Err(DecodeError("a block of unknown kind"));
        }
        into.kinds.extend_from_slice(kinds);
        let mut starts = Reader::new(self.starts.unpack(&[], zstd, buffer)?);
        for (knots, count) in [(&mut into.near, self.near), (&mut into.far, self.far)] {
            let mut start = 0u32;
            for number in 0..count {
                let step = starts.number()?;
                if step == 0 && number > 0 {
                    return Err(DecodeError("two knots at one address"));
                }
                start = start.checked_add(step).ok_or(DecodeError("a knot past the last address"))?;
                knots.push(Knot { start, shift: None });
            }
        }
        let starts_end = starts.is_empty();
        let mut shifts = Reader::new(self.shifts.unpack(&[], zstd, buffer)?);
        for knots in [&mut into.near, &mut into.far] {
            let mut shift = 0i32;
            for knot in knots {
                if let Some(code) = shifts.number()?.checked_sub(1) {
                    shift = shift.wrapping_add(unzigzag(code));
                    knot.shift = Some(shift);
                }
            }
        }
        if starts_end && shifts.is_empty() { Ok(()) } else { Err(DecodeError("more numbers than knots")) }
    }
}
