//! Which parts of the window a delta may need, and what that costs to read back.
//!
//! The matcher copies from wherever it likes. Here the window is cut into *blocks* (64 KiB of what
//! is stored raw, whole units of anything else), each block is credited with the target bytes it
//! provides, and blocks are dropped or joined until the bounds hold: O(range) reads depend on it.
//! Copies from dropped blocks become literals; the rest is *projected* into the address space of
//! the footprint.

use crate::FOOTPRINT_LEN_MAX;
use crate::instruction::{Gap, Instruction, place};
use crate::{SEGMENT_LEN_MAX, WINDOW_LEN_MAX};

/// Granularity of what is stored raw.
const BLOCK_LEN: u32 = 64 << 10;
/// When the footprint is larger than its target, a block must provide at least one byte for this
/// many stored ones.
const STORED_PER_BENEFIT_MAX: u64 = 256;
/// A shorter piece of a copy that was cut is not worth an instruction; with it, cutting keeps
/// copies below the format's number.
const PIECE_LEN_MIN: usize = 16;
/// Reading this many stored bytes in vain, to join two ranges, is thought as bad as one more
/// literal byte.
const STORED_PER_LITERAL: u64 = 16;

/// One stored unit of a window: bytes that lie together in a base blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowUnit {
    /// Window bytes it covers; never 0.
    pub plain_len: u32,
    /// Bytes that must be read from the backend to have it whole.
    pub stored_len: u32,
    /// True when any 64 KiB of it can be read alone at proportional cost (stored raw); false when
    /// it is all or nothing (zstd).
    pub divisible: bool,
}

/// What a segment's footprint may cost, so that reading it back stays O(range).
///
/// Besides these bounds a footprint is never longer than [`FOOTPRINT_LEN_MAX`] plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FootprintLimits {
    /// Most stored base bytes, counted in whole units or 64 KiB blocks.
    pub stored_bytes_max: u64,
    /// Most coalesced ranges.
    pub ranges_max: usize,
}

impl Default for FootprintLimits {
    /// Two segments' worth of stored bytes in sixteen ranges (docs/format/delta-v1.md §1).
    fn default() -> Self {
        Self { stored_bytes_max: 2 * SEGMENT_LEN_MAX as u64, ranges_max: 16 }
    }
}

/// A run of window bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseRange {
    /// First byte, from the start of the window.
    pub offset: u64,
    /// Length in bytes; never 0.
    pub len: u32,
}

/// The least that can be read of the window.
#[derive(Clone, Copy, Debug)]
struct Block {
    start: u32,
    len: u32,
    stored: u64,
    /// Target bytes it provides.
    benefit: u64,
    kept: bool,
}

/// Adjacent kept blocks, by number, with their sum.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: usize,
    last: usize,
    benefit: u64,
}

/// A chosen part of the window, with its place in the footprint.
#[derive(Clone, Copy, Debug)]
struct Part {
    window_start: usize,
    window_end: usize,
    footprint_start: usize,
}

/// Chooses footprints. Keeps its buffers between segments.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    blocks: Vec<Block>,
    runs: Vec<Run>,
    parts: Vec<Part>,
}

impl Footprint {
    /// Bytes that it keeps.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>()
            + self.runs.capacity() * size_of::<Run>()
            + self.parts.capacity() * size_of::<Part>()
    }
}

/// True when `layout` describes a window of this length that a segment may be encoded against.
pub(crate) fn layout_fits(layout: &[WindowUnit], window_len: usize) -> bool {
    let total: u64 = layout.iter().map(|unit| u64::from(unit.plain_len)).sum();
    window_len <= WINDOW_LEN_MAX && total == window_len as u64 && layout.iter().all(|unit| unit.plain_len > 0)
}

impl Footprint {
    /// Decides for `instructions` over the window that `layout` describes (see [`layout_fits`]).
    /// O(instructions + blocks²) at worst, blocks being about 2,000 for the largest window.
    pub(crate) fn choose(
        &mut self,
        instructions: &[Instruction],
        layout: &[WindowUnit],
        limits: FootprintLimits,
        target_len: usize,
    ) {
        self.cut_blocks(layout);
        self.credit(instructions);
        self.drop_poor_blocks(limits, target_len);
        self.bound_runs(limits);
        self.take_back_neighbours(limits);
        self.collect_parts();
    }

    fn cut_blocks(&mut self, layout: &[WindowUnit]) {
        self.blocks.clear();
        let mut start = 0u32;
        for unit in layout {
            let end = start + unit.plain_len;
            let step = if unit.divisible { BLOCK_LEN } else { unit.plain_len };
            while start < end {
                let len = step.min(end - start);
                let stored = (u64::from(unit.stored_len) * u64::from(len)).div_ceil(u64::from(unit.plain_len));
                self.blocks.push(Block { start, len, stored, benefit: 0, kept: false });
                start += len;
            }
        }
    }

    fn credit(&mut self, instructions: &[Instruction]) {
        let mut number = 0;
        for placed in place(instructions) {
            let mut at = placed.base_start() as u32;
            let end = placed.base_end() as u32;
            if at == end {
                continue;
            }
            let inside = |block: &Block| block.start <= at && at - block.start < block.len;
            if !self.blocks.get(number).is_some_and(inside) {
                number = self.blocks.partition_point(|block| block.start + block.len <= at);
            }
            while at < end {
                let block = &mut self.blocks[number];
                let taken = end.min(block.start + block.len) - at;
                block.benefit += u64::from(taken);
                block.kept = true;
                at += taken;
                if at < end {
                    number += 1;
                }
            }
        }
    }

    fn kept_sums(&self) -> (u64, u64) {
        let kept = self.blocks.iter().filter(|block| block.kept);
        kept.fold((0, 0), |(stored, plain), block| (stored + block.stored, plain + u64::from(block.len)))
    }

    /// Drops the blocks that provide least for what they cost, until both sums are within bounds
    /// and what lies beyond the target's own length earns its reading.
    fn drop_poor_blocks(&mut self, limits: FootprintLimits, target_len: usize) {
        let (mut stored, mut plain) = self.kept_sums();
        let thrift_from = target_len as u64 + 2 * u64::from(BLOCK_LEN);
        if stored <= limits.stored_bytes_max.min(thrift_from) && plain <= FOOTPRINT_LEN_MAX as u64 {
            return;
        }
        let mut order: Vec<usize> = (0..self.blocks.len()).filter(|&number| self.blocks[number].kept).collect();
        order.sort_by(|&left, &right| by_density(&self.blocks[left], &self.blocks[right]));
        for number in order {
            let block = &mut self.blocks[number];
            let over = stored > limits.stored_bytes_max || plain > FOOTPRINT_LEN_MAX as u64;
            let wasteful = stored > thrift_from && block.benefit * STORED_PER_BENEFIT_MAX < block.stored;
            if !over && !wasteful {
                return;
            }
            block.kept = false;
            stored -= block.stored;
            plain -= u64::from(block.len);
        }
    }

    /// Joins runs over cheap gaps and drops the least useful ones until there are few enough.
    fn bound_runs(&mut self, limits: FootprintLimits) {
        self.runs.clear();
        for (number, block) in self.blocks.iter().enumerate().filter(|(_, block)| block.kept) {
            match self.runs.last_mut() {
                Some(run) if run.last + 1 == number => {
                    run.last = number;
                    run.benefit += block.benefit;
                }
                _ => self.runs.push(Run { first: number, last: number, benefit: block.benefit }),
            }
        }
        let (mut stored, mut plain) = self.kept_sums();
        while self.runs.len() > limits.ranges_max {
            let poorest = (0..self.runs.len()).min_by_key(|&run| self.runs[run].benefit).unwrap_or(0);
            let gap_cost = |left: usize| {
                let gap = &self.blocks[self.runs[left].last + 1..self.runs[left + 1].first];
                gap.iter().fold((0, 0), |(stored, plain), block| (stored + block.stored, plain + u64::from(block.len)))
            };
            let cheapest = (0..self.runs.len() - 1).map(|left| (gap_cost(left), left)).min();
            if let Some(((gap_stored, gap_plain), left)) = cheapest
                && gap_stored <= self.runs[poorest].benefit * STORED_PER_LITERAL
                && stored + gap_stored <= limits.stored_bytes_max
                && plain + gap_plain <= FOOTPRINT_LEN_MAX as u64
            {
                let right = self.runs.remove(left + 1);
                let run = &mut self.runs[left];
                self.blocks[run.last + 1..right.first].iter_mut().for_each(|block| block.kept = true);
                run.last = right.last;
                run.benefit += right.benefit;
                stored += gap_stored;
                plain += gap_plain;
            } else {
                let run = self.runs.remove(poorest);
                for block in &mut self.blocks[run.first..=run.last] {
                    block.kept = false;
                    stored -= block.stored;
                    plain -= u64::from(block.len);
                }
            }
        }
    }

    /// Spends what dropping has left over on useful blocks beside kept ones: they cost no range.
    fn take_back_neighbours(&mut self, limits: FootprintLimits) {
        let (mut stored, mut plain) = self.kept_sums();
        loop {
            let beside_kept = |number: usize| {
                (number > 0 && self.blocks[number - 1].kept)
                    || self.blocks.get(number + 1).is_some_and(|block| block.kept)
            };
            let best = (0..self.blocks.len())
                .filter(|&number| {
                    let block = &self.blocks[number];
                    !block.kept
                        && block.benefit * STORED_PER_BENEFIT_MAX >= block.stored.max(1)
                        && stored + block.stored <= limits.stored_bytes_max
                        && plain + u64::from(block.len) <= FOOTPRINT_LEN_MAX as u64
                        && beside_kept(number)
                })
                .max_by(|&left, &right| by_density(&self.blocks[left], &self.blocks[right]));
            let Some(number) = best else { return };
            let block = &mut self.blocks[number];
            block.kept = true;
            stored += block.stored;
            plain += u64::from(block.len);
        }
    }

    fn collect_parts(&mut self) {
        self.parts.clear();
        let mut footprint_start = 0;
        for block in self.blocks.iter().filter(|block| block.kept) {
            let (start, len) = (block.start as usize, block.len as usize);
            match self.parts.last_mut() {
                Some(part) if part.window_end == start => part.window_end += len,
                _ => self.parts.push(Part { window_start: start, window_end: start + len, footprint_start }),
            }
            footprint_start += len;
        }
    }

    /// The chosen ranges, ascending and disjoint.
    pub(crate) fn ranges(&self) -> Vec<BaseRange> {
        let range = |part: &Part| BaseRange {
            offset: part.window_start as u64,
            len: (part.window_end - part.window_start) as u32,
        };
        self.parts.iter().map(range).collect()
    }

    /// Length of the footprint.
    pub(crate) fn len(&self) -> usize {
        self.parts.last().map_or(0, |part| part.footprint_start + part.window_end - part.window_start)
    }

    /// Moves copies and sub runs from the window into the footprint; what refers to bytes outside
    /// becomes literal.
    pub(crate) fn project(&self, instructions: &[Instruction], projected: &mut Vec<Instruction>) {
        projected.clear();
        let mut projection = Projection { projected, literal_len: 0 };
        let mut number = 0;
        for placed in place(instructions) {
            if placed.gap == Gap::Literal {
                projection.literal_len += placed.gap_len;
            }
            let (mut at, end) = (placed.base_start(), placed.base_end());
            if !self.parts.get(number).is_some_and(|part| part.window_start <= at && at < part.window_end) {
                number = self.parts.partition_point(|part| part.window_end <= at);
            }
            while at < end {
                let part = self.parts.get(number).filter(|part| part.window_start < end);
                let Some(part) = part else {
                    projection.literal_len += end - at;
                    break;
                };
                let start = at.max(part.window_start);
                let stop = end.min(part.window_end);
                projection.literal_len += start - at;
                let differing = placed.source.clamp(start, stop) - start;
                projection.push(
                    part.footprint_start + (start - part.window_start),
                    differing,
                    stop - start - differing,
                );
                at = stop;
                if at < end {
                    number += 1;
                }
            }
        }
    }

    /// Appends footprint bytes `start..end` to `out`.
    pub(crate) fn append(&self, window: &[u8], start: usize, end: usize, out: &mut Vec<u8>) {
        let mut at = start;
        let mut number = self.parts.partition_point(|part| part.footprint_start <= at).saturating_sub(1);
        while at < end {
            let part = &self.parts[number];
            let from = part.window_start + (at - part.footprint_start);
            let len = (end - at).min(part.window_end - from);
            out.extend_from_slice(&window[from..from + len]);
            at += len;
            number += 1;
        }
    }

    /// Footprint bytes `start..start + len` as one slice, unless a seam runs through them.
    pub(crate) fn slice<'w>(&self, window: &'w [u8], start: usize, len: usize) -> Option<&'w [u8]> {
        let part = match self.parts.as_slice() {
            [only] => only,
            parts => &parts[parts.partition_point(|part| part.footprint_start <= start).checked_sub(1)?],
        };
        let from = part.window_start + (start - part.footprint_start);
        (from + len <= part.window_end).then(|| &window[from..from + len])
    }
}

/// Less provided for what it costs comes first.
fn by_density(left: &Block, right: &Block) -> std::cmp::Ordering {
    (left.benefit * right.stored.max(1)).cmp(&(right.benefit * left.stored.max(1)))
}

/// A list of projected instructions under construction.
struct Projection<'a> {
    projected: &'a mut Vec<Instruction>,
    /// Target bytes since the last instruction that have nothing to refer to.
    literal_len: usize,
}

impl Projection<'_> {
    /// Adds a piece of base bytes that begins at `start` of the footprint: first a sub run, then a
    /// copy.
    fn push(&mut self, start: usize, differing: usize, equal: usize) {
        if differing + equal < PIECE_LEN_MIN {
            self.literal_len += differing + equal;
            return;
        }
        let source = (start + differing) as u32;
        let (gap_len, copy_len) = (differing as u32, equal as u32);
        let in_step = self.literal_len == 0
            && self.projected.last().is_some_and(|last| (last.source + last.copy_len) as usize == start);
        if in_step && differing == 0 {
            if let Some(last) = self.projected.last_mut() {
                last.copy_len += copy_len;
            }
            return;
        }
        if in_step {
            self.projected.push(Instruction { gap_len, gap_is_sub: true, copy_len, source });
            return;
        }
        let literal_len = std::mem::take(&mut self.literal_len) as u32;
        if differing == 0 {
            self.projected.push(Instruction { gap_len: literal_len, gap_is_sub: false, copy_len, source });
        } else {
            // An empty copy sets the diagonal on which the sub run counts.
            self.projected.push(Instruction {
                gap_len: literal_len,
                gap_is_sub: false,
                copy_len: 0,
                source: start as u32,
            });
            self.projected.push(Instruction { gap_len, gap_is_sub: true, copy_len, source });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(plain_len: u32) -> WindowUnit {
        WindowUnit { plain_len, stored_len: plain_len, divisible: true }
    }

    fn copy(source: u32, copy_len: u32) -> Instruction {
        Instruction { gap_len: 0, gap_is_sub: false, copy_len, source }
    }

    fn chosen(instructions: &[Instruction], layout: &[WindowUnit], limits: FootprintLimits) -> Vec<BaseRange> {
        let mut footprint = Footprint::default();
        let target_len = instructions.iter().map(|i| (i.gap_len + i.copy_len) as usize).sum();
        footprint.choose(instructions, layout, limits, target_len);
        footprint.ranges()
    }

    #[test]
    fn a_raw_unit_is_taken_by_blocks_and_others_whole() {
        let compressed = WindowUnit { plain_len: 1 << 20, stored_len: 1 << 18, divisible: false };
        let layout = [raw(1 << 20), compressed];
        let instructions = [copy(100_000, 50_000), copy((1 << 20) + 7, 30_000)];
        let limits = FootprintLimits::default();
        let expected = [BaseRange { offset: 65_536, len: 131_072 }, BaseRange { offset: 1 << 20, len: 1 << 20 }];
        assert_eq!(chosen(&instructions, &layout, limits), expected);
    }

    #[test]
    fn the_poorest_blocks_go_first_when_the_bytes_do_not_fit() {
        let layout = [raw(1 << 20)];
        let instructions = [copy(0, 60_000), copy(200_000, 1000), copy(400_000, 50_000)];
        let limits = FootprintLimits { stored_bytes_max: 2 << 16, ranges_max: 16 };
        let expected = [BaseRange { offset: 0, len: 65_536 }, BaseRange { offset: 393_216, len: 65_536 }];
        assert_eq!(chosen(&instructions, &layout, limits), expected);
    }

    #[test]
    fn cheap_gaps_are_joined_when_there_are_too_many_ranges() {
        let layout = [raw(1 << 20)];
        let instructions = [copy(0, 60_000), copy(131_072, 60_000), copy(655_360, 60_000)];
        let limits = FootprintLimits { stored_bytes_max: 1 << 20, ranges_max: 2 };
        let expected = [BaseRange { offset: 0, len: 196_608 }, BaseRange { offset: 655_360, len: 65_536 }];
        assert_eq!(chosen(&instructions, &layout, limits), expected);
    }

    #[test]
    fn a_copy_across_a_dropped_block_keeps_its_ends() {
        let instructions = [copy(0, 200_000)];
        let mut footprint = Footprint::default();
        footprint.choose(
            &instructions,
            &[raw(200_000)],
            FootprintLimits { stored_bytes_max: 1 << 20, ranges_max: 3 },
            200_000,
        );
        footprint.blocks[1].kept = false;
        footprint.collect_parts();
        let mut projected = Vec::new();
        footprint.project(&instructions, &mut projected);
        let tail = Instruction { gap_len: 65_536, gap_is_sub: false, copy_len: 200_000 - 131_072, source: 65_536 };
        assert_eq!(projected, [copy(0, 65_536), tail]);
    }

    #[test]
    fn no_ranges_or_no_bytes_means_no_footprint() {
        for limits in [
            FootprintLimits { stored_bytes_max: 0, ranges_max: 16 },
            FootprintLimits { stored_bytes_max: 1 << 20, ranges_max: 0 },
        ] {
            assert_eq!(chosen(&[copy(0, 100)], &[raw(1000)], limits), []);
        }
    }

    fn unit() -> impl Strategy<Value = WindowUnit> {
        (1u32..300_000, 1u32..=100, any::<bool>()).prop_map(|(plain_len, percent, divisible)| WindowUnit {
            plain_len,
            stored_len: if divisible { plain_len } else { (plain_len / 100 * percent).max(1) },
            divisible,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn limits_hold_and_bytes_stay_the_same(
            layout in prop::collection::vec(unit(), 1..12),
            picks in prop::collection::vec((any::<prop::sample::Index>(), 0u32..100, 0u32..90_000, any::<bool>()), 0..60),
            stored_bytes_max in 0u64..1_000_000, ranges_max in 0usize..6,
        ) {
            let window_len: u32 = layout.iter().map(|unit| unit.plain_len).sum();
            let window: Vec<u8> = (0..window_len).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
            let mut instructions = Vec::new();
            let mut previous_end = 0;
            for (start, gap_len, len, gap_is_sub) in picks {
                let source = if gap_is_sub { (previous_end + gap_len).min(window_len) } else { start.index(window.len()) as u32 };
                let gap_len = if gap_is_sub { source - previous_end } else { gap_len };
                let copy_len = len.min(window_len - source);
                instructions.push(Instruction { gap_len, gap_is_sub, copy_len, source });
                previous_end = source + copy_len;
            }
            let target_len: usize = instructions.iter().map(|i| (i.gap_len + i.copy_len) as usize).sum();
            let limits = FootprintLimits { stored_bytes_max, ranges_max };
            let mut footprint = Footprint::default();
            footprint.choose(&instructions, &layout, limits, target_len);

            let ranges = footprint.ranges();
            prop_assert!(ranges.len() <= ranges_max);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].offset + u64::from(pair[0].len) < pair[1].offset));
            let stored: u64 = footprint.blocks.iter().filter(|block| block.kept).map(|block| block.stored).sum();
            prop_assert!(stored <= stored_bytes_max);
            prop_assert_eq!(footprint.len() as u64, ranges.iter().map(|range| u64::from(range.len)).sum::<u64>());

            let mut bytes = Vec::new();
            footprint.append(&window, 0, footprint.len(), &mut bytes);
            let joined: Vec<u8> = ranges.iter().flat_map(|range| &window[range.offset as usize..][..range.len as usize]).copied().collect();
            prop_assert_eq!(&bytes, &joined);

            // What is copied or differs from base is so from the same base byte as before, position
            // by position; the rest is literal.
            let origin_of = |list: &[Instruction], base: &[u8]| {
                let mut origin = vec![None; target_len];
                for placed in place(list) {
                    for at in placed.base_start()..placed.base_end() {
                        origin[placed.copy_start + at - placed.source] = Some(base[at]);
                    }
                }
                origin
            };
            let mut projected = Vec::new();
            footprint.project(&instructions, &mut projected);
            let before = origin_of(&instructions, &window);
            let after = origin_of(&projected, &bytes);
            prop_assert!(before.iter().zip(&after).all(|(before, after)| after.is_none() || before == after));
            // Sub runs stand on the diagonal of what precedes them.
            let mut previous_end = 0;
            for placed in place(&projected) {
                prop_assert!(placed.gap != Gap::Sub || placed.base_start() == previous_end);
                previous_end = placed.base_end();
            }
        }
    }
}
