//! From a target segment to its delta: match, fill the gaps, choose the footprint, write the streams.

use crate::context::{self, Region};
use crate::effort::{Effort, Tuning};
use crate::footprint::{BaseRange, Footprint, FootprintLimits, WindowUnit, layout_fits};
use crate::index::BaseIndex;
use crate::instruction::{BYTES_PER_COPY_MIN, Gap, Instruction, place};
use crate::matcher;
use crate::zstd::Compressor;
use crate::{SEGMENT_LEN_MAX, fill, fine, stream, varint};

/// The form byte of a delta that is one copy. Part of the format (docs/format/delta-v1.md §3).
pub(crate) const FORM_COPY: u8 = 0;
/// The form byte of a delta made of streams. Part of the format.
pub(crate) const FORM_STREAMS: u8 = 1;

/// In the diagonals: the same diagonal as before, and the gap is a sub run. Part of the format (docs/format/delta-v1.md §4).
pub(crate) const SAME_DIAGONAL_SUB: u32 = 0;
/// In the diagonals: the same diagonal as before, and the gap is literal. Part of the format.
pub(crate) const SAME_DIAGONAL_LITERAL: u32 = 1;

/// What to encode one segment from.
#[derive(Clone, Copy, Debug)]
pub struct EncodeJob<'a> {
    /// The base bytes, at most [`crate::WINDOW_LEN_MAX`].
    pub window: &'a [u8],
    /// Their index, built by [`BaseIndex::build`] from the same bytes with the same effort.
    pub index: &'a BaseIndex,
    /// How the window lies in the backend, in order; lengths add up to the window's.
    pub layout: &'a [WindowUnit],
    /// The segment: 1 to [`SEGMENT_LEN_MAX`] bytes.
    pub target: &'a [u8],
    /// Same as the index's.
    pub effort: Effort,
    /// Bounds of the footprint.
    pub limits: FootprintLimits,
    /// Give up when the delta would be longer than this (say, what zstd alone gives).
    pub delta_len_max: usize,
}

/// What an encoded segment needs to be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Ascending, disjoint window ranges whose concatenation is the base the decoder must be given; empty when nothing was copied.
    pub footprint: Vec<BaseRange>,
    /// Target bytes that are copied from the footprint unchanged.
    pub copied_bytes: u64,
}

/// Encodes segments. Keeps its work buffers between calls; one per thread.
///
/// They stay below 70 MiB for fast and balanced (16 MiB of them context, the rest instructions, streams and zstd's tables), below 100 MiB for high and
/// below 200 MiB for max, most of it tables. Each is only as large as the largest segment so far has needed. While it matches a segment, max takes
/// 48 MiB more, and the length of the footprint.
#[derive(Debug, Default)]
pub struct Encoder {
    found: Vec<Instruction>,
    instructions: Vec<Instruction>,
    footprint: Footprint,
    streams: Streams,
    zstd: Compressor,
}

/// The content of the five streams, and of the context, before compression.
#[derive(Debug, Default)]
struct Streams {
    gap_lengths: Vec<u8>,
    copy_lengths: Vec<u8>,
    diagonals: Vec<u8>,
    sub: Vec<u8>,
    literals: Vec<u8>,
    seam: Vec<u8>,
    regions: Vec<Region>,
    context: Vec<u8>,
}

impl Encoder {
    /// An encoder with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the delta of `job.target` to `out`, or returns `None` with `out` as it was when the delta would not be smaller than
    /// `job.delta_len_max` (I7: encoding may give up).
    ///
    /// It also gives up on a job outside its bounds (lengths, a layout that does not add up), and at once when nothing can be copied and
    /// `delta_len_max` is no more than the target's length: such a delta is a zstd frame with a detour.
    pub fn encode(&mut self, job: &EncodeJob<'_>, out: &mut Vec<u8>) -> Option<Encoded> {
        let target_len = job.target.len();
        if !(1..=SEGMENT_LEN_MAX).contains(&target_len) || !layout_fits(job.layout, job.window.len()) {
            return None;
        }
        self.found.clear();
        matcher::find_copies(job.index, job.window, job.target, &mut self.found);
        fill::fill_gaps(job.window, job.target, &self.found, &mut self.instructions);
        std::mem::swap(&mut self.found, &mut self.instructions);
        self.footprint.choose(&self.found, job.layout, job.limits, target_len);
        self.footprint.project(&self.found, &mut self.instructions);
        if job.effort.tuning().fine && self.footprint.len() > 0 {
            self.refine(job);
        }
        let copied_bytes = self.instructions.iter().map(|instruction| u64::from(instruction.copy_len)).sum();
        if (copied_bytes == 0 && job.delta_len_max <= target_len)
            || self.instructions.len() > target_len / BYTES_PER_COPY_MIN
        {
            return None;
        }
        let start = out.len();
        self.write(job, out);
        if out.len() - start >= job.delta_len_max {
            out.truncate(start);
            return None;
        }
        Some(Encoded {
            footprint: if self.instructions.is_empty() { Vec::new() } else { self.footprint.ranges() },
            copied_bytes,
        })
    }

    /// Matches again, within the footprint.
    fn refine(&mut self, job: &EncodeJob<'_>) {
        let mut base = Vec::with_capacity(self.footprint.len());
        self.footprint.append(job.window, 0, self.footprint.len(), &mut base);
        fine::find_copies(&base, job.target, &mut self.found);
        fill::fill_gaps(&base, job.target, &self.found, &mut self.instructions);
    }

    fn write(&mut self, job: &EncodeJob<'_>, out: &mut Vec<u8>) {
        if let [Instruction { gap_len: 0, copy_len, source, .. }] = *self.instructions
            && copy_len as usize == job.target.len()
        {
            out.push(FORM_COPY);
            varint::put(out, source);
            return;
        }
        let Tuning { instructions, sub, literals, context, .. } = job.effort.tuning();
        self.streams.fill(&self.instructions, &self.footprint, job.window, job.target);
        if context {
            self.streams.fill_context(&self.instructions, &self.footprint, job.window, job.target.len());
        } else {
            self.streams.context.clear();
        }
        let streams = &self.streams;
        out.push(FORM_STREAMS);
        varint::put(out, self.instructions.len() as u32);
        stream::write(&streams.gap_lengths, &[], instructions, &mut self.zstd, out);
        stream::write(&streams.copy_lengths, &[], instructions, &mut self.zstd, out);
        stream::write(&streams.diagonals, &[], instructions, &mut self.zstd, out);
        stream::write(&streams.sub, &[], sub, &mut self.zstd, out);
        stream::write(&streams.literals, &streams.context, literals, &mut self.zstd, out);
    }
}

impl Streams {
    fn fill(&mut self, instructions: &[Instruction], footprint: &Footprint, window: &[u8], target: &[u8]) {
        for stream in
            [&mut self.gap_lengths, &mut self.copy_lengths, &mut self.diagonals, &mut self.sub, &mut self.literals]
        {
            stream.clear();
        }
        let (mut at, mut diagonal) = (0, 0);
        for placed in place(instructions) {
            // Positions are below 2^28 (target, window), so the difference of two diagonals fits.
            let here = placed.source as i32 - placed.copy_start as i32;
            varint::put(&mut self.gap_lengths, placed.gap_len as u32);
            varint::put(&mut self.copy_lengths, placed.copy_len as u32);
            varint::put(&mut self.diagonals, diagonal_code(here - diagonal, placed.gap));
            diagonal = here;
            let gap = &target[placed.gap_start..placed.copy_start];
            match placed.gap {
                Gap::None => {}
                Gap::Literal => self.literals.extend_from_slice(gap),
                Gap::Sub => self.push_sub(footprint, window, placed.base_start(), gap),
            }
            at = placed.copy_end();
        }
        self.literals.extend_from_slice(&target[at..]);
    }

    fn push_sub(&mut self, footprint: &Footprint, window: &[u8], source: usize, gap: &[u8]) {
        let base = match footprint.slice(window, source, gap.len()) {
            Some(base) => base,
            None => {
                self.seam.clear();
                footprint.append(window, source, source + gap.len(), &mut self.seam);
                &self.seam
            }
        };
        self.sub.extend(gap.iter().zip(base).map(|(target, base)| target.wrapping_sub(*base)));
    }

    fn fill_context(&mut self, instructions: &[Instruction], footprint: &Footprint, window: &[u8], target_len: usize) {
        self.context.clear();
        if self.literals.is_empty() {
            return;
        }
        context::regions(instructions, target_len, footprint.len(), &mut self.regions);
        for region in &self.regions {
            footprint.append(window, region.start, region.end, &mut self.context);
        }
    }
}

/// The number that stands in the diagonals (docs/format/delta-v1.md §4).
fn diagonal_code(change: i32, gap: Gap) -> u32 {
    match (change, gap) {
        (0, Gap::Literal) => SAME_DIAGONAL_LITERAL,
        (0, _) => SAME_DIAGONAL_SUB,
        _ => varint::zigzag(change) + 1,
    }
}
