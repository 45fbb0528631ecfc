//! From a target segment to its delta: match, fill the gaps, choose the footprint, write the
//! streams.

use crate::compare::{self, EqualMask, Scan};
use crate::context::{self, Region};
use crate::effort::{Effort, Tuning};
use crate::footprint::{BaseRange, Footprint, FootprintLimits, WindowUnit, layout_fits};
use crate::format::{FORM_COPY, FORM_STREAMS, FORM_WORDS, SAME_DIAGONAL_LITERAL, SAME_DIAGONAL_SUB};
use crate::index::BaseIndex;
use crate::instruction::{BYTES_PER_COPY_MIN, Gap, Instruction, Placed, join_sub_runs, place};
use crate::matcher;
use crate::words::{WORD_LEN, Words};
use crate::zstd::Compressor;
use crate::{SEGMENT_LEN_MAX, fill, fine, stream, varint};

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
    /// Ascending, disjoint window ranges whose concatenation is the base the decoder must be given;
    /// empty when nothing was copied.
    pub footprint: Vec<BaseRange>,
    /// Target bytes that are copied from the footprint unchanged.
    pub copied_bytes: u64,
}

/// Encodes segments. Keeps its work buffers between calls; one per thread.
///
/// They stay below 70 MiB for fast and balanced (16 MiB of them context, the rest instructions,
/// streams and zstd's tables), below 100 MiB for high and below 200 MiB for max, most of it tables.
/// Each is only as large as the largest segment so far has needed. While it matches a segment, max
/// takes 48 MiB more, and the length of the footprint.
#[derive(Debug, Default)]
pub struct Encoder {
    found: Vec<Instruction>,
    instructions: Vec<Instruction>,
    footprint: Footprint,
    streams: Streams,
    zstd: Compressor,
}

/// The content of the streams before compression.
#[derive(Debug, Default)]
struct Streams {
    gap_lengths: Vec<u8>,
    copy_lengths: Vec<u8>,
    diagonals: Vec<u8>,
    words: Words,
    sub: Vec<u8>,
    /// The context, and the literals right behind it: zstd is faster when they are one piece of
    /// memory.
    literals: Vec<u8>,
    context_len: usize,
    seam: Vec<u8>,
    regions: Vec<Region>,
}

impl Encoder {
    /// An encoder with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the delta of `job.target` to `out`, or returns `None` with `out` as it was when the
    /// delta would not be smaller than `job.delta_len_max` (I7: encoding may give up).
    ///
    /// It also gives up on a job outside its bounds (lengths, a layout that does not add up), and
    /// at once when nothing can be copied and `delta_len_max` is no more than the target's length:
    /// such a delta is a zstd frame with a detour.
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
        join_sub_runs(&mut self.instructions);
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
        let Tuning { instructions, sub, words, literals, context, .. } = job.effort.tuning();
        let source = Source {
            instructions: &self.instructions,
            footprint: &self.footprint,
            window: job.window,
            target: job.target,
        };
        let streams = &mut self.streams;
        streams.start_literals(&source, context);
        compare::dispatch(Fill { streams, source, in_words: true });
        let has_sub = streams.words.len() > 0;
        let in_words = has_sub && streams.words.len() + streams.literals().len() <= job.target.len();
        if has_sub && !in_words {
            compare::dispatch(Fill { streams, source, in_words });
        }
        out.push(if in_words { FORM_WORDS } else { FORM_STREAMS });
        varint::put(out, self.instructions.len() as u32);
        let mut write =
            |plain: &[u8], context: &[u8], settings| stream::write(plain, context, settings, &mut self.zstd, out);
        write(&streams.gap_lengths, &[], instructions);
        write(&streams.copy_lengths, &[], instructions);
        write(&streams.diagonals, &[], instructions);
        if in_words {
            write(&streams.words.distances, &[], sub);
            write(&streams.words.words, &[], words);
        } else {
            write(&streams.sub, &[], sub);
        }
        write(streams.literals(), streams.context(), literals);
    }
}

/// What streams are made from.
#[derive(Clone, Copy)]
struct Source<'a> {
    instructions: &'a [Instruction],
    footprint: &'a Footprint,
    window: &'a [u8],
    target: &'a [u8],
}

impl Source<'_> {
    /// `len` bytes of the footprint as one slice: in `seam` where one runs through them.
    #[inline(always)]
    fn base<'s>(&'s self, start: usize, len: usize, seam: &'s mut Vec<u8>) -> &'s [u8] {
        match self.footprint.slice(self.window, start, len) {
            Some(base) => base,
            None => {
                seam.clear();
                self.footprint.append(self.window, start, start + len, seam);
                seam
            }
        }
    }
}

/// Fills all streams.
struct Fill<'a> {
    streams: &'a mut Streams,
    source: Source<'a>,
    /// Whether sub runs become words. Otherwise they become sub bytes.
    in_words: bool,
}

impl Scan for Fill<'_> {
    #[inline(always)]
    fn run<M: EqualMask>(self, mask: M) {
        let Self { streams, source, in_words } = self;
        let target = source.target;
        streams.clear();
        let (mut at, mut diagonal) = (0, 0);
        for placed in place(source.instructions) {
            // Bytes of the copy that the sub run takes.
            let mut more = 0;
            match placed.gap {
                Gap::None => {}
                Gap::Literal => streams.literals.extend_from_slice(&target[placed.gap_start..placed.copy_start]),
                Gap::Sub if in_words => more = streams.push_words(mask, &source, &placed),
                Gap::Sub => streams.push_sub(&source, &placed),
            }
            // Positions are below 2^28 (target, window), so the difference of two diagonals fits.
            let here = placed.source as i32 - placed.copy_start as i32;
            varint::put(&mut streams.gap_lengths, (placed.gap_len + more) as u32);
            varint::put(&mut streams.copy_lengths, (placed.copy_len - more) as u32);
            varint::put(&mut streams.diagonals, diagonal_code(here - diagonal, placed.gap));
            diagonal = here;
            at = placed.copy_end();
        }
        streams.literals.extend_from_slice(&target[at..]);
    }
}

impl Streams {
    fn context(&self) -> &[u8] {
        &self.literals[..self.context_len]
    }

    fn literals(&self) -> &[u8] {
        &self.literals[self.context_len..]
    }

    /// Puts the context before where the literals will be.
    fn start_literals(&mut self, source: &Source<'_>, context: bool) {
        self.literals.clear();
        if context {
            context::regions(source.instructions, source.target.len(), source.footprint.len(), &mut self.regions);
            let context_len: usize = self.regions.iter().map(|region| region.end - region.start).sum();
            self.literals.reserve_exact(context_len + source.target.len());
            for region in &self.regions {
                source.footprint.append(source.window, region.start, region.end, &mut self.literals);
            }
        }
        self.context_len = self.literals.len();
    }

    /// Empties all streams but for the context.
    fn clear(&mut self) {
        for stream in [&mut self.gap_lengths, &mut self.copy_lengths, &mut self.diagonals, &mut self.sub] {
            stream.clear();
        }
        self.words.clear();
        self.literals.truncate(self.context_len);
    }

    fn push_sub(&mut self, source: &Source<'_>, placed: &Placed) {
        let base = source.base(placed.base_start(), placed.gap_len, &mut self.seam);
        let gap = &source.target[placed.gap_start..placed.copy_start];
        self.sub.extend(gap.iter().zip(base).map(|(target, base)| target.wrapping_sub(*base)));
    }

    /// Returns how many bytes of the copy behind it the sub run takes.
    #[inline(always)]
    fn push_words(&mut self, mask: impl EqualMask, source: &Source<'_>, placed: &Placed) -> usize {
        let len = placed.gap_len + placed.copy_len.min(WORD_LEN - 1);
        let base = source.base(placed.base_start(), len, &mut self.seam);
        self.words.push(mask, &source.target[placed.gap_start..][..len], base, placed.gap_len)
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
