//! Leaves a diagonal for another one where that has what this one lacks.
//!
//! The matcher stays on its diagonal past a few changed bytes. That is right where a word changed,
//! and wrong in two kinds of content. Rows of a table resemble each other, so behind a row that was
//! taken out the diagonal leads from each row to its neighbour, whose words between the values are
//! equal, for the rest of the table. And a window may hold two bases of a series, end to end: a
//! version between them has each change in one of the two. So each gap that was left is looked for
//! elsewhere in the window. Where it is found, the target goes on there until that differs, too:
//!
//! ```text
//! base 1   ────────x────────────────     x: the base differs from the target here
//! base 2   ──────────────x──────────
//! target   1 1 1 1 2 2 2 1 1 1 1 1 1
//! ```

use crate::compare::common_prefix_len;
use crate::effort::WordLen;
use crate::index::BaseIndex;
use crate::instruction::{Gap, Instruction, place};
use crate::word;

/// Shortest gap that is worth the two instructions of a way there and back: of literal bytes, and
/// of a sub run, whose bytes are mostly equal.
const LITERAL_LEN_MIN: usize = 8;
const SUB_LEN_MIN: usize = 16;
/// Shortest gap for which the index is asked.
const ASKED_LEN_MIN: usize = 12;
/// Equal bytes that must follow the gap on the other diagonal.
const BEYOND_LEN_MIN: usize = 8;
/// Distances between diagonals that are tried without the index.
const SHIFTS_KEPT: usize = 4;
/// Words that are asked for at a gap: as many as lie between two positions in the index.
const PROBES: usize = 16;
/// After so many gaps in a row that are nowhere else, the index is asked no more.
const MISSES_MAX: usize = 64;

/// Writes `found`, whose sources are in `window`, to `crossed`, with copies from elsewhere in the
/// window in place of gaps. O(gaps · [`PROBES`] + target).
pub(crate) fn look_across(
    index: &BaseIndex,
    window: &[u8],
    target: &[u8],
    found: &[Instruction],
    crossed: &mut Vec<Instruction>,
) {
    crossed.clear();
    let mut search = Search { index, window, target, shifts: Vec::with_capacity(SHIFTS_KEPT + 1), misses: 0 };
    let mut written = Written { instructions: crossed, at: 0, source: None };
    for placed in place(found) {
        if placed.copy_end() <= written.at {
            continue;
        }
        let diagonal = placed.source as isize - placed.copy_start as isize;
        let gap = written.at..placed.copy_start;
        let len_min = if placed.gap == Gap::Sub { SUB_LEN_MIN } else { LITERAL_LEN_MIN };
        if gap.len() >= len_min
            && let Some(other) = search.elsewhere(gap.start, gap.end, diagonal)
        {
            let source = gap.start.wrapping_add_signed(other);
            let len = common_prefix_len(&target[gap.start..], &window[source..]);
            written.copy(gap.start, false, len, source);
        }
        if placed.copy_end() > written.at {
            let start = placed.copy_start.max(written.at);
            let source = start.wrapping_add_signed(diagonal);
            written.copy(start, placed.gap == Gap::Sub, placed.copy_end() - start, source);
        }
    }
}

/// The instructions so far.
struct Written<'a> {
    instructions: &'a mut Vec<Instruction>,
    /// Target bytes they describe.
    at: usize,
    /// Where the last copy ends in the window.
    source: Option<usize>,
}

impl Written<'_> {
    /// Goes on to `start` of the target, and copies `len` bytes from `source` there.
    fn copy(&mut self, start: usize, gap_is_sub: bool, len: usize, source: usize) {
        let gap_len = start - self.at;
        let gap_is_sub = gap_is_sub && gap_len > 0;
        if gap_is_sub && self.source.unwrap_or(0) + gap_len != source {
            // Off the diagonal of what was copied last: an empty copy leads back.
            self.instructions.push(Instruction::new(0, false, 0, source - gap_len));
        }
        if len == 0 && gap_len == 0 && self.source == Some(source) {
            return;
        }
        self.instructions.push(Instruction::new(gap_len, gap_is_sub, len, source));
        self.at = start + len;
        self.source = Some(source + len);
    }
}

/// Looks for gaps elsewhere in the window.
struct Search<'a> {
    index: &'a BaseIndex,
    window: &'a [u8],
    target: &'a [u8],
    /// How far apart two diagonals were between which it went, the last one first.
    shifts: Vec<isize>,
    /// Gaps since the last that was found.
    misses: usize,
}

impl Search<'_> {
    /// The diagonal on which all of `start..end` of the target is copied, and some bytes behind it.
    fn elsewhere(&mut self, start: usize, end: usize, diagonal: isize) -> Option<isize> {
        let known = self.shifts.iter().flat_map(|shift| [*shift, -*shift]);
        let known = known.map(|shift| diagonal + shift).find(|other| self.has(start, end, *other));
        if let Some(other) = known {
            self.misses = 0;
            return Some(other);
        }
        if self.misses >= MISSES_MAX || end - start < ASKED_LEN_MIN {
            return None;
        }
        let asked = match self.index.word_len() {
            WordLen::Sixteen => self.ask::<16>(start, end, diagonal),
            WordLen::ThirtyTwo => self.ask::<32>(start, end, diagonal),
        };
        match asked {
            Some(other) => {
                self.misses = 0;
                self.shifts.insert(0, other - diagonal);
                self.shifts.truncate(SHIFTS_KEPT);
            }
            None => self.misses += 1,
        }
        asked
    }

    fn ask<const WORD: usize>(&self, start: usize, end: usize, diagonal: isize) -> Option<isize> {
        let first = start.saturating_sub(WORD / 2);
        let mut hashes = [0; PROBES];
        let words = (first..first + PROBES).zip(&mut hashes).map_while(|(probe, hash)| {
            *hash = word::hash(self.target.get(probe..)?.first_chunk::<WORD>()?);
            self.index.prefetch(*hash);
            Some(())
        });
        let count = words.count();
        (first..).zip(&hashes[..count]).find_map(|(probe, hash)| {
            let other = self.index.look_up(*hash)? as isize - probe as isize;
            (other != diagonal && self.has(start, end, other)).then_some(other)
        })
    }

    fn has(&self, start: usize, end: usize, diagonal: isize) -> bool {
        let wanted = &self.target[start..(end + BEYOND_LEN_MIN).min(self.target.len())];
        let base = start.checked_add_signed(diagonal).and_then(|source| self.window.get(source..));
        base.is_some_and(|base| base.starts_with(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Effort;
    use crate::instruction::rebuild;
    use crate::matcher::find_copies;
    use crate::noise::noise;
    use proptest::prelude::*;

    fn crossed(window: &[u8], target: &[u8]) -> (Vec<Instruction>, Vec<Instruction>) {
        let index = BaseIndex::build(window, Effort::Balanced);
        let (mut found, mut crossed) = (Vec::new(), Vec::new());
        find_copies(&index, window, target, &mut found);
        look_across(&index, window, target, &found, &mut crossed);
        assert_eq!(rebuild(window, target, &crossed), target);
        (found, crossed)
    }

    fn gap_bytes(found: &[Instruction]) -> usize {
        place(found).map(|placed| placed.gap_len).sum()
    }

    /// A series in which each step changes 16 bytes at 20 places; it grows by a byte where it is
    /// `uneven`.
    fn series(versions: usize, uneven: bool) -> Vec<Vec<u8>> {
        let mut version = noise(60_000, 1);
        (0..versions)
            .map(|number| {
                let changes = noise(20 * 18, 7 + number as u64);
                for change in changes.chunks_exact(18) {
                    let at = (usize::from(change[0]) << 8 | usize::from(change[1])) % (version.len() - 16);
                    version[at..at + 16].copy_from_slice(&change[2..]);
                }
                if uneven {
                    version.insert(30_000, number as u8);
                }
                version.clone()
            })
            .collect()
    }

    #[test]
    fn what_lies_between_two_bases_is_copied_from_both() {
        for uneven in [false, true] {
            let series = series(9, uneven);
            let window = [&series[0][..], &series[8][..]].concat();
            let (found, crossed) = crossed(&window, &series[4]);
            assert!(gap_bytes(&found) > 1000, "{}", gap_bytes(&found));
            assert!(gap_bytes(&crossed) * 8 < gap_bytes(&found), "{} of {}", gap_bytes(&crossed), gap_bytes(&found));
        }
    }

    #[test]
    fn behind_a_row_that_was_taken_out_the_rows_are_found_again() {
        let row = |number: usize| {
            let digest: String = noise(16, number as u64).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{number}\tThe words of every row are the same, and so is their length\t{digest}\n")
        };
        let rows: Vec<String> = (10_000..11_000).map(row).collect();
        let kept = rows.iter().enumerate().filter(|(number, _)| number % 50 != 7).map(|(_, row)| row.as_str());
        let (found, crossed) = crossed(rows.concat().as_bytes(), kept.collect::<String>().as_bytes());
        assert!(gap_bytes(&found) > 20_000, "{}", gap_bytes(&found));
        assert!(gap_bytes(&crossed) < 1_000, "{}", gap_bytes(&crossed));
    }

    #[test]
    fn one_base_stays_as_it_was_matched() {
        let series = series(9, false);
        let (found, crossed) = crossed(&series[0], &series[4]);
        assert_eq!(crossed, found);
    }

    proptest! {
        #[test]
        fn what_is_crossed_describes_the_same_target(
            window in prop::collection::vec(0u8..4, 0..3000),
            splices in prop::collection::vec((any::<prop::sample::Index>(), 0usize..300, any::<u8>(), 0usize..20), 1..20),
        ) {
            let mut target = Vec::new();
            for (start, len, byte, count) in splices {
                if !window.is_empty() {
                    let start = start.index(window.len());
                    target.extend_from_slice(&window[start..(start + len).min(window.len())]);
                }
                target.extend(std::iter::repeat_n(byte, count + 1));
            }
            crossed(&window, &target);
        }
    }
}
