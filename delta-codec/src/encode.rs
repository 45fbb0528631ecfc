//! From a target segment to its delta: match, fill the gaps, choose the footprint, write the
//! streams.

use crate::across;
use crate::compare::{self, EqualMask, Scan};
use crate::context::{self, Region};
use crate::effort::{Effort, Tuning};
use crate::footprint::{BaseRange, Footprint, FootprintLimits, WindowUnit, layout_fits};
use crate::format::{FORM_COPY, FORM_STREAMS, FORM_WORDS, SAME_DIAGONAL_LITERAL, SAME_DIAGONAL_SUB};
use crate::index::BaseIndex;
use crate::instruction::{BYTES_PER_COPY_MIN, Gap, Instruction, Placed, SubRun, join_sub_runs, place};
use crate::learn;
use crate::matcher;
use crate::predict::MovedReferences;
use crate::room;
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
    predictor: MovedReferences,
    /// The base bytes of a sub run with their references predicted.
    predicted: Vec<u8>,
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

    /// Bytes that it keeps between two jobs.
    pub fn memory_bytes(&self) -> usize {
        (self.found.capacity() + self.instructions.capacity()) * size_of::<Instruction>()
            + self.footprint.memory_bytes()
            + self.streams.memory_bytes()
            + self.zstd.memory_bytes()
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
        across::look_across(job.index, job.window, job.target, &self.found, &mut self.instructions);
        // Gaps that are close together leave no room for ways there and back.
        if self.instructions.len() <= target_len / (2 * BYTES_PER_COPY_MIN) {
            std::mem::swap(&mut self.found, &mut self.instructions);
        }
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
        let tuning = job.effort.tuning();
        let source = Source {
            instructions: &self.instructions,
            footprint: &self.footprint,
            window: job.window,
            target: job.target,
        };
        let (streams, zstd, copies) = (&mut self.streams, &mut self.zstd, self.instructions.len());
        streams.start_literals(&source, tuning.context);
        let start = out.len();
        let mut predicted = tuning.predict && streams.learn(&source);
        if predicted {
            let form = streams.predictor.form();
            predicted = streams.fill_words(&source, form);
            if predicted {
                streams.write(form, copies, tuning, zstd, out);
            }
        }
        let predicted_len = out.len() - start;
        let form = match streams.fill_words(&source, FORM_WORDS) {
            true if streams.words.len() > 0 => FORM_WORDS,
            true => FORM_STREAMS,
            false => {
                compare::dispatch(Fill { streams, source, form: FORM_STREAMS });
                FORM_STREAMS
            }
        };
        streams.write(form, copies, tuning, zstd, out);
        if predicted && out.len() - start - predicted_len >= predicted_len {
            out.truncate(start + predicted_len);
        } else {
            out.drain(start..start + predicted_len);
        }
        // Last in every form, and the most expensive by far.
        stream::write(streams.literals(), streams.context(), tuning.literals, zstd, out);
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

    /// Visits the sub runs.
    fn sub_runs(&self, visit: &mut dyn FnMut(SubRun<'_>)) {
        let mut seam = Vec::new();
        for placed in place(self.instructions).filter(|placed| placed.gap == Gap::Sub) {
            let Placed { gap_start: at, gap_len, .. } = placed;
            let source = placed.base_start();
            let base = &self.base(source, gap_len, &mut seam)[..gap_len];
            visit(SubRun { source, at, base, target: &self.target[at..][..gap_len] });
        }
    }
}

/// Fills all streams.
struct Fill<'a> {
    streams: &'a mut Streams,
    source: Source<'a>,
    form: u8,
}

impl Scan for Fill<'_> {
    #[inline(always)]
    fn run<M: EqualMask>(self, mask: M) {
        let Self { streams, source, form } = self;
        let target = source.target;
        streams.clear();
        let (mut at, mut diagonal) = (0, 0);
        for placed in place(source.instructions) {
            // Bytes of the copy that the sub run takes.
            let mut more = 0;
            match placed.gap {
                Gap::None => {}
                Gap::Literal => streams.literals.extend_from_slice(&target[placed.gap_start..placed.copy_start]),
                Gap::Sub if form == FORM_WORDS => more = streams.push_words(mask, &source, &placed),
                Gap::Sub if form == FORM_STREAMS => streams.push_sub(&source, &placed),
                Gap::Sub => streams.push_predicted(mask, &source, &placed),
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
    fn memory_bytes(&self) -> usize {
        let bytes = [
            &self.gap_lengths,
            &self.copy_lengths,
            &self.diagonals,
            &self.predicted,
            &self.words.distances,
            &self.words.words,
            &self.sub,
            &self.literals,
            &self.seam,
        ];
        bytes.into_iter().map(Vec::capacity).sum::<usize>()
            + self.predictor.memory_bytes()
            + self.regions.capacity() * size_of::<Region>()
    }

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
            room::make(&mut self.literals, context_len + source.target.len());
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

    /// Learns how references moved. True when predicting them may pay.
    fn learn(&mut self, source: &Source<'_>) -> bool {
        learn::learn(&mut self.predictor, seams(&source.footprint.ranges()), source.target, |visit| {
            source.sub_runs(visit)
        })
    }

    /// Fills all streams in a form that has words. False when they are too long for it.
    fn fill_words(&mut self, source: &Source<'_>, form: u8) -> bool {
        compare::dispatch(Fill { streams: self, source: *source, form });
        self.words.len() + self.literals().len() <= source.target.len()
    }

    /// Appends all but the literals, in the form in which the streams have been filled.
    fn write(&self, form: u8, copies: usize, tuning: Tuning, zstd: &mut Compressor, out: &mut Vec<u8>) {
        let Tuning { instructions, sub, words, .. } = tuning;
        out.push(form);
        varint::put(out, copies as u32);
        for plain in [&self.gap_lengths, &self.copy_lengths, &self.diagonals] {
            stream::write(plain, &[], instructions, zstd, out);
        }
        if !matches!(form, FORM_STREAMS | FORM_WORDS) {
            self.predictor.write(instructions, zstd, out);
        }
        if form == FORM_STREAMS {
            stream::write(&self.sub, &[], sub, zstd, out);
        } else {
            stream::write(&self.words.distances, &[], sub, zstd, out);
            stream::write(&self.words.words, &[], words, zstd, out);
        }
    }

    fn push_sub(&mut self, source: &Source<'_>, placed: &Placed) {
        let base = source.base(placed.base_start(), placed.gap_len, &mut self.seam);
        let gap = &source.target[placed.gap_start..placed.copy_start];
        self.sub.extend(gap.iter().zip(base).map(|(target, base)| target.wrapping_sub(*base)));
    }

    #[inline(always)]
    fn push_predicted(&mut self, mask: impl EqualMask, source: &Source<'_>, placed: &Placed) {
        let Placed { gap_start, gap_len, .. } = *placed;
        let base = source.base(placed.base_start(), gap_len, &mut self.seam);
        self.predicted.clear();
        self.predicted.extend_from_slice(&base[..gap_len]);
        self.predictor.apply(&mut self.predicted, placed.base_start(), gap_start);
        // A last word that lies across the end of the run is a part of a word: the copy behind it
        // is not predicted.
        self.words.push(mask, &source.target[gap_start..][..gap_len], &self.predicted, gap_len);
    }

    /// Returns how many bytes of the copy behind it the sub run takes.
    #[inline(always)]
    fn push_words(&mut self, mask: impl EqualMask, source: &Source<'_>, placed: &Placed) -> usize {
        let len = placed.gap_len + placed.copy_len.min(WORD_LEN - 1);
        let base = source.base(placed.base_start(), len, &mut self.seam);
        self.words.push(mask, &source.target[placed.gap_start..][..len], base, placed.gap_len)
    }
}

/// Where ranges leave out bytes of the window: positions in the footprint, and how many bytes are
/// missing from its first one up to there.
fn seams(ranges: &[BaseRange]) -> Vec<(usize, usize)> {
    let Some(first) = ranges.first() else { return Vec::new() };
    let mut at = 0;
    let seams = ranges.iter().map(|range| {
        let left_out = (range.offset - first.offset) as usize - at;
        at += range.len as usize;
        (at - range.len as usize, left_out)
    });
    seams.skip(1).collect()
}

/// The number that stands in the diagonals (docs/format/delta-v1.md §4).
fn diagonal_code(change: i32, gap: Gap) -> u32 {
    match (change, gap) {
        (0, Gap::Literal) => SAME_DIAGONAL_LITERAL,
        (0, _) => SAME_DIAGONAL_SUB,
        _ => varint::zigzag(change) + 1,
    }
}
