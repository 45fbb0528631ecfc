//! The base bytes that literals are compressed over (docs/format/delta-v1.md §6). Both sides build
//! the same from the instructions alone.

use crate::instruction::{Gap, Instruction, place};

/// Most context. Part of the format: the first region with which the context would be longer is
/// left out with all that follow.
const CONTEXT_LEN_MAX: usize = 16 << 20;
/// How far a region reaches past what it is about. Part of the format.
const MARGIN: usize = 32;

/// A run of footprint bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The regions of the context, in order, for instructions whose sources lie within a footprint of
/// `footprint_len` bytes. O(instructions).
pub(crate) fn regions(instructions: &[Instruction], target_len: usize, footprint_len: usize, list: &mut Vec<Region>) {
    list.clear();
    let mut previous_end = None;
    let mut at = 0;
    for placed in place(instructions) {
        if placed.gap == Gap::Literal {
            add_around(placed.gap_len, previous_end, Some(placed.source), footprint_len, list);
        }
        previous_end = Some(placed.base_end());
        at = placed.copy_end();
    }
    if at < target_len {
        add_around(target_len - at, previous_end, None, footprint_len, list);
    }
    let mut total = 0;
    let fitting = list.iter().take_while(|region| {
        total += region.end - region.start;
        total <= CONTEXT_LEN_MAX
    });
    let fitting = fitting.count();
    list.truncate(fitting);
}

/// Adds what surrounds one literal run: the base bytes it stands for when both neighbours are near
/// each other, else what follows the one and precedes the other.
fn add_around(
    gap_len: usize,
    previous_end: Option<usize>,
    next_start: Option<usize>,
    footprint_len: usize,
    list: &mut Vec<Region>,
) {
    let reach = 2 * gap_len + 256;
    match (previous_end, next_start) {
        (Some(previous), Some(next)) if next >= previous && next - previous <= 8 * reach => {
            add(previous, next, footprint_len, list)
        }
        (previous, next) => {
            if let Some(previous) = previous {
                add(previous, previous + reach, footprint_len, list);
            }
            if let Some(next) = next {
                add(next.saturating_sub(reach), next, footprint_len, list);
            }
        }
    }
}

fn add(start: usize, end: usize, footprint_len: usize, list: &mut Vec<Region>) {
    let start = start.saturating_sub(MARGIN);
    let end = (end + MARGIN).min(footprint_len);
    if start >= end {
        return;
    }
    match list.last_mut() {
        Some(last) if last.start <= start && start <= last.end => last.end = last.end.max(end),
        _ => list.push(Region { start, end }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions as (gap, copy, source); a negative gap is a sub run.
    fn regions_of(instructions: &[(i32, u32, u32)], target_len: usize, footprint_len: usize) -> Vec<(usize, usize)> {
        let instructions: Vec<Instruction> = instructions
            .iter()
            .map(|&(gap, copy_len, source)| Instruction {
                gap_len: gap.unsigned_abs(),
                gap_is_sub: gap < 0,
                copy_len,
                source,
            })
            .collect();
        let mut list = Vec::new();
        regions(&instructions, target_len, footprint_len, &mut list);
        list.iter().map(|region| (region.start, region.end)).collect()
    }

    #[test]
    fn a_literal_between_near_copies_takes_the_bytes_between_their_sources() {
        assert_eq!(regions_of(&[(0, 100, 1000), (10, 100, 1200)], 210, 5000), [(1068, 1232)]);
    }

    #[test]
    fn a_literal_between_far_copies_takes_both_sides() {
        assert_eq!(regions_of(&[(0, 100, 1000), (10, 100, 9000)], 210, 10_000), [(1068, 1408), (8692, 9032)]);
    }

    #[test]
    fn a_sub_run_takes_nothing_and_the_tail_takes_what_follows() {
        assert_eq!(regions_of(&[(0, 100, 1000), (-10, 100, 1110)], 215, 5000), [(1178, 1508)]);
    }

    #[test]
    fn neighbours_grow_together_and_ends_are_clamped() {
        assert_eq!(regions_of(&[(5, 50, 10), (100, 50, 200)], 210, 300), [(0, 300)]);
    }

    #[test]
    fn a_target_without_copies_has_no_context() {
        assert_eq!(regions_of(&[], 100, 100), []);
    }

    #[test]
    fn the_context_stops_before_it_is_too_long() {
        let long = 5 << 20;
        let instructions = [(0, 8, 0), (1 << 20, 8, 10 << 20), (1 << 20, 8, 0), (1 << 20, 8, long)];
        let list = regions_of(&instructions, 4 << 20, 32 << 20);
        let total: usize = list.iter().map(|(start, end)| end - start).sum();
        assert!(total <= CONTEXT_LEN_MAX && total > CONTEXT_LEN_MAX / 2, "{total}");
    }
}
