//! Gives the bytes that were left literal another try, close to where the base goes on.
//!
//! [`crate::matcher`] finds words of equal bytes. A table whose every entry changed (symbols,
//! relocations, addresses of functions) has no such word, and where an entry was added to it
//! nothing leads to the new diagonal. But that diagonal is only an entry away from the one before.
//! So each long gap is walked from both of its ends, a *stretch* of [`MASK_LEN`] bytes at a time,
//! along the diagonal of the copy there; where the target stops resembling the base, the diagonals
//! around are tried. What resembles becomes sub runs.

use crate::compare::{self, EqualMask, MASK_LEN, Scan, repeated_mask};
use crate::instruction::{Gap, Instruction, place};
use crate::matcher::{CLOSE_EQUAL_MIN, CLOSE_REPEATED_MIN};

/// A shorter gap is left as it is. Tables are long; in text such gaps are words in place of others,
/// which are shorter as literals, and in code that was compiled into something else there are very
/// many.
const GAP_LEN_MIN: usize = 2048;
/// A stretch with this many equal bytes becomes a sub run even where it is not close, when it is on
/// the diagonal of what comes before it and no diagonal around is better. The matcher follows only
/// what is close, because it might follow a wrong diagonal past the right one.
const LOOSE_EQUAL_MIN: u32 = 36;
/// With fewer equal bytes than this a stretch is not looked at for differences that repeat.
const REPEATED_EQUAL_MIN: u32 = 16;
/// Diagonals up to this far away are all tried …
const SHIFT_NEAR: isize = 16;
/// … and up to this far those at a distance of whole pointers: entries of tables.
const SHIFT_FAR: isize = 512;
const POINTER_LEN: isize = 8;
/// After so many stretches in a row that resemble nothing a walk ends.
const MISSES_MAX: usize = 3;

/// The distances at which diagonals are tried, the smallest first.
const SHIFTS: [isize; 2 * (SHIFT_NEAR + (SHIFT_FAR - SHIFT_NEAR) / POINTER_LEN) as usize] = {
    let mut shifts = [0; _];
    let (mut at, mut shift) = (0, 1);
    while at < shifts.len() {
        (shifts[at], shifts[at + 1]) = (shift, -shift);
        at += 2;
        shift += if shift < SHIFT_NEAR { 1 } else { POINTER_LEN };
    }
    shifts
};

/// Writes `found`, whose sources are in `base`, to `filled`, with sub runs in place of literal
/// bytes that resemble the base near them.
///
/// O(target), a stretch costing at most as many comparisons as there are [`SHIFTS`]. The copies
/// stay what they are.
pub(crate) fn fill_gaps(base: &[u8], target: &[u8], found: &[Instruction], filled: &mut Vec<Instruction>) {
    filled.clear();
    compare::dispatch(Pass { base, target, found, filled });
}

/// The arguments of [`fill_gaps`].
struct Pass<'a> {
    base: &'a [u8],
    target: &'a [u8],
    found: &'a [Instruction],
    filled: &'a mut Vec<Instruction>,
}

impl Scan for Pass<'_> {
    #[inline(always)]
    fn run<M: EqualMask>(self, mask: M) {
        let Self { base, target, found, filled } = self;
        let search = Search { mask, base, target };
        let mut stretches = Vec::new();
        let (mut at, mut before) = (0, None);
        for (instruction, placed) in found.iter().zip(place(found)) {
            let after = placed.source as isize - placed.copy_start as isize;
            if placed.gap == Gap::Literal {
                search.find(placed.gap_start, placed.copy_start, before, Some(after), &mut stretches);
            }
            if stretches.is_empty() {
                filled.push(*instruction);
            } else {
                let last = write(&mut stretches, placed.gap_start, before, filled);
                if last.end == placed.copy_start && last.diagonal == after {
                    filled.push(Instruction { gap_len: last.len as u32, gap_is_sub: true, ..*instruction });
                } else {
                    push_empty(last.len, true, last.end, last.diagonal, filled);
                    filled.push(Instruction { gap_len: (placed.copy_start - last.end) as u32, ..*instruction });
                }
            }
            (at, before) = (placed.copy_end(), Some(after));
        }
        search.find(at, target.len(), before, None, &mut stretches);
        if !stretches.is_empty() {
            let last = write(&mut stretches, at, before, filled);
            push_empty(last.len, true, last.end, last.diagonal, filled);
        }
    }
}

/// [`MASK_LEN`] bytes of the target that resemble those of the base.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: usize,
    diagonal: isize,
}

impl Stretch {
    fn end(&self) -> usize {
        self.start + MASK_LEN
    }
}

/// A sub run of the target.
struct SubRun {
    len: usize,
    end: usize,
    diagonal: isize,
}

/// Empties `stretches` into the instructions of a gap from `start` on, but for its last sub run,
/// which is returned.
fn write(stretches: &mut Vec<Stretch>, start: usize, before: Option<isize>, filled: &mut Vec<Instruction>) -> SubRun {
    let mut run = SubRun { len: 0, end: start, diagonal: before.unwrap_or(0) };
    for stretch in stretches.drain(..) {
        if stretch.start > run.end || stretch.diagonal != run.diagonal {
            if run.len > 0 {
                push_empty(run.len, true, run.end, run.diagonal, filled);
            }
            // An empty copy sets the diagonal on which the sub run counts.
            push_empty(stretch.start - run.end, false, stretch.start, stretch.diagonal, filled);
            run = SubRun { len: 0, ..run };
        }
        run = SubRun { len: run.len + MASK_LEN, end: stretch.end(), diagonal: stretch.diagonal };
    }
    run
}

/// Adds an empty copy after a gap that ends at `end` of the target.
fn push_empty(gap_len: usize, gap_is_sub: bool, end: usize, diagonal: isize, filled: &mut Vec<Instruction>) {
    filled.push(Instruction::new(gap_len, gap_is_sub, 0, end.wrapping_add_signed(diagonal)));
}

/// How much a stretch resembles the base.
#[derive(Clone, Copy, Debug, Default)]
struct Likeness {
    /// Equal bytes.
    equal: u32,
    /// Differences that equal the one eight bytes before.
    repeated: u32,
}

impl Likeness {
    /// As [`crate::matcher`] has it.
    #[inline(always)]
    fn is_close(self) -> bool {
        self.equal >= CLOSE_EQUAL_MIN || self.repeated >= CLOSE_REPEATED_MIN
    }
}

/// What is searched, and how it is compared.
struct Search<'a, M> {
    mask: M,
    base: &'a [u8],
    target: &'a [u8],
}

impl<M: EqualMask> Search<'_, M> {
    /// Appends the stretches of the gap `start..end`, in order. `before` and `after` are the
    /// diagonals of the copies around it, if there are any.
    #[inline(always)]
    fn find(
        &self,
        start: usize,
        end: usize,
        before: Option<isize>,
        after: Option<isize>,
        stretches: &mut Vec<Stretch>,
    ) {
        if end - start < GAP_LEN_MIN {
            return;
        }
        let mut free = start;
        if let Some(diagonal) = before {
            let starts = (start..=end - MASK_LEN).step_by(MASK_LEN);
            self.walk(starts, diagonal, stretches);
            free = stretches.last().map_or(start, Stretch::end);
        }
        if let Some(diagonal) = after {
            let forwards = stretches.len();
            let starts = (free + MASK_LEN..=end).rev().step_by(MASK_LEN).map(|end| end - MASK_LEN);
            self.walk(starts, diagonal, stretches);
            stretches[forwards..].reverse();
        }
    }

    /// Goes from stretch to stretch, and from diagonal to diagonal.
    #[inline(always)]
    fn walk(&self, starts: impl Iterator<Item = usize>, mut diagonal: isize, stretches: &mut Vec<Stretch>) {
        let mut misses = 0;
        for start in starts {
            let here = self.likeness(start, diagonal);
            if !here.is_close() {
                if let Some(near) = self.close_near(start, diagonal) {
                    diagonal = near;
                } else if here.equal < LOOSE_EQUAL_MIN {
                    misses += 1;
                    if misses == MISSES_MAX {
                        return;
                    }
                    continue;
                }
            }
            stretches.push(Stretch { start, diagonal });
            misses = 0;
        }
    }

    /// The diagonal around this one on which the stretch is close, and resembles the base most.
    /// Away from the base's ends all of them lie in one piece of it.
    #[inline(always)]
    fn close_near(&self, start: usize, diagonal: isize) -> Option<isize> {
        const AROUND_LEN: usize = 2 * SHIFT_FAR as usize + MASK_LEN;
        let lowest = start.checked_add_signed(diagonal - SHIFT_FAR);
        let around = lowest.and_then(|lowest| self.base.get(lowest..)).and_then(<[u8]>::first_chunk::<AROUND_LEN>);
        let target = self.target.get(start..).and_then(<[u8]>::first_chunk::<MASK_LEN>);
        let (mut best, mut best_score) = (None, 0);
        let mut consider = |shift: isize, likeness: Likeness| {
            let score = likeness.equal + likeness.repeated;
            if score > best_score && likeness.is_close() {
                (best, best_score) = (Some(diagonal + shift), score);
            }
        };
        if let (Some(around), Some(target)) = (around, target) {
            for shift in SHIFTS {
                if let Some(base) = around[(shift + SHIFT_FAR) as usize..].first_chunk() {
                    consider(shift, self.likeness_of(target, base));
                }
            }
        } else {
            for shift in SHIFTS {
                consider(shift, self.likeness(start, diagonal + shift));
            }
        }
        best
    }

    /// None at all where the base has no such bytes.
    #[inline(always)]
    fn likeness(&self, start: usize, diagonal: isize) -> Likeness {
        let left = self.target.get(start..).and_then(<[u8]>::first_chunk);
        let source = start.checked_add_signed(diagonal);
        let right = source.and_then(|source| self.base.get(source..)).and_then(<[u8]>::first_chunk);
        let (Some(left), Some(right)) = (left, right) else { return Likeness::default() };
        self.likeness_of(left, right)
    }

    #[inline(always)]
    fn likeness_of(&self, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> Likeness {
        let equal = self.mask.equal_mask(left, right).count_ones();
        let may_repeat = equal >= REPEATED_EQUAL_MIN;
        let repeated = if may_repeat { repeated_mask(self.mask, left, right).count_ones() } else { 0 };
        Likeness { equal, repeated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::{join_sub_runs, rebuild};
    use proptest::prelude::*;

    fn copied(found: &[Instruction]) -> Vec<(usize, usize, usize)> {
        let copies = place(found).filter(|placed| placed.copy_len > 0);
        copies.map(|placed| (placed.copy_start, placed.source, placed.copy_len)).collect()
    }

    fn literal_len(target: &[u8], found: &[Instruction]) -> usize {
        let tail = target.len() - place(found).last().map_or(0, |placed| placed.copy_end());
        tail + place(found).filter(|placed| placed.gap == Gap::Literal).map(|placed| placed.gap_len).sum::<usize>()
    }

    fn fill(base: &[u8], target: &[u8], found: &[Instruction]) -> Vec<Instruction> {
        let mut filled = Vec::new();
        fill_gaps(base, target, found, &mut filled);
        assert_eq!(rebuild(base, target, &filled), target);
        assert_eq!(copied(&filled), copied(found));
        filled
    }

    fn copy(gap_len: usize, copy_len: usize, source: usize) -> Instruction {
        Instruction::new(gap_len, false, copy_len, source)
    }

    /// Entries of 24 bytes, of which a number in 2 and another in 3 bytes may have grown by as much
    /// in all of them, between bytes that never change.
    fn table(numbers: impl Iterator<Item = u64>, grown: [u32; 2]) -> Vec<u8> {
        let entry = |number: u64| {
            let words = [1, 2, 3].map(|word| (3 * number + word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
            let mut entry: [u8; 24] =
                words.map(u64::to_le_bytes).concat().try_into().expect("three words are 24 bytes");
            for (at, len, grown) in [(0, 2, grown[0]), (8, 3, grown[1])] {
                for (byte, grown) in entry[at..at + len].iter_mut().zip(grown.to_le_bytes()) {
                    *byte = byte.wrapping_add(grown);
                }
            }
            entry
        };
        [&[1; 100][..], &numbers.flat_map(entry).collect::<Vec<u8>>(), &[2; 100]].concat()
    }

    const GROWN: [u32; 2] = [0x0304, 0x06_0708];

    #[test]
    fn a_table_is_followed_past_entries_that_were_added_or_removed_from_either_end() {
        let base = table(0..400, [0, 0]);
        let target = table((0..100).chain(1000..1003).chain(100..200).chain(210..400), GROWN);
        assert_eq!(target.len(), base.len() - 7 * 24);
        let back = base.len() - 100;
        let from_front = vec![copy(0, 100, 0)];
        let from_back = vec![copy(back - 7 * 24, 100, back)];
        let from_both = vec![copy(0, 100, 0), copy(back - 7 * 24 - 100, 100, back)];
        for found in [from_front, from_back, from_both] {
            let filled = fill(&base, &target, &found);
            // The entries added, the stretches that meet an end of something, and what no whole
            // stretch is left of.
            assert!(literal_len(&target, &filled) <= 3 * 24 + 4 * MASK_LEN, "{filled:?}");
        }
    }

    #[test]
    fn bytes_that_moved_by_less_than_an_entry_are_found() {
        let base = table(0..400, [0, 0]);
        for (shift, is_found) in [(1, true), (13, true), (16, true), (17, false), (24, true), (512, true), (516, false)]
        {
            // The target has lost so many bytes of the table's start, and what came first has not
            // moved.
            let target = [&base[..100], &table(0..400, GROWN)[100 + shift..]].concat();
            let filled = fill(&base, &target, &[copy(0, 100, 0)]);
            assert_eq!(literal_len(&target, &filled) < MASK_LEN, is_found, "{shift}");
        }
    }

    #[test]
    fn a_short_gap_stays_literal_and_so_do_bytes_that_resemble_nothing() {
        let base = table(0..100, [0, 0]);
        let target = table(0..100, GROWN);
        let short = [copy(0, 100, 0), copy(GAP_LEN_MIN - 1, 10, 100 + GAP_LEN_MIN - 1)];
        let target = [&target[..100 + GAP_LEN_MIN - 1], &base[100 + GAP_LEN_MIN - 1..][..10]].concat();
        assert_eq!(fill(&base, &target, &short), short);
        let other = table(1000..1100, [0, 0]);
        assert_eq!(fill(&base, &other[..2000], &[copy(0, 100, 0)]), [copy(0, 100, 0)]);
    }

    #[test]
    fn loose_bytes_are_a_sub_run_only_on_the_diagonal_they_follow() {
        let base = table(0..400, [0, 0]);
        for (equal, is_filled) in [(LOOSE_EQUAL_MIN as usize, true), (LOOSE_EQUAL_MIN as usize - 1, false)] {
            let mut target = base.clone();
            // Differences that do not repeat, so that only the equal bytes count.
            let changed = |at: usize| at >= 100 && (at - 100) % MASK_LEN >= equal;
            let bytes = target.iter_mut().enumerate().filter(|&(at, _)| changed(at));
            bytes.for_each(|(at, byte)| *byte = byte.wrapping_add(1 + (at * at % 251) as u8));
            let filled = fill(&base, &target, &[copy(0, 100, 0)]);
            assert_eq!(literal_len(&target, &filled) < MASK_LEN, is_filled, "{equal}");
            let moved = [&base[..100], &target[124..]].concat();
            let filled = fill(&base, &moved, &[copy(0, 100, 0)]);
            assert_eq!(filled.len(), 1, "{filled:?}");
        }
    }

    #[test]
    fn a_sub_run_that_goes_on_in_the_gap_becomes_one_with_it() {
        let base = table(0..401, [0, 0]);
        let target = table(0..401, GROWN);
        let sub = Instruction { gap_len: 640, gap_is_sub: true, copy_len: 0, source: 740 };
        let tail = target.len() - 100;
        let found = [copy(0, 100, 0), sub, copy(tail - 740, 100, tail)];
        let mut filled = fill(&base, &target, &found);
        join_sub_runs(&mut filled);
        // 9624 bytes are 150 stretches and 24 bytes: of 640 ten, then 140 from the front, and the
        // rest.
        let expected =
            Instruction { gap_len: 640 + 140 * 64, gap_is_sub: true, copy_len: 0, source: 100 + 640 + 140 * 64 };
        assert_eq!(filled, [copy(0, 100, 0), expected, copy(24, 100, tail)]);
    }

    /// Fills, and compares with what [`fill_gaps`] has filled.
    struct Same<'a> {
        pass: (&'a [u8], &'a [u8], &'a [Instruction]),
        expected: &'a [Instruction],
    }

    impl Scan for Same<'_> {
        #[inline(always)]
        fn run<M: EqualMask>(self, mask: M) {
            let (base, target, found) = self.pass;
            let mut filled = Vec::new();
            Pass { base, target, found, filled: &mut filled }.run(mask);
            assert_eq!(filled, self.expected, "{}", std::any::type_name::<M>());
        }
    }

    proptest! {
        #[test]
        fn filled_gaps_are_true_and_the_same_on_every_processor(
            base in prop::collection::vec(0u8..4, 400..3000),
            splices in prop::collection::vec((any::<prop::sample::Index>(), 0usize..600, 1usize..8, any::<bool>(), any::<u8>()), 1..12),
        ) {
            let (mut target, mut found) = (Vec::new(), Vec::new());
            let mut covered = 0;
            for (from, len, every, is_copy, byte) in splices {
                let source = from.index(base.len());
                let piece = &base[source..(source + len).min(base.len())];
                if is_copy {
                    found.push(copy(target.len() - covered, piece.len(), source));
                    target.extend_from_slice(piece);
                    covered = target.len();
                } else {
                    target.extend(piece.iter().enumerate().map(|(at, &value)| if at % every == 0 { byte } else { value }));
                }
            }
            target.push(7);
            let filled = fill(&base, &target, &found);
            let added = 2 * (target.len() / MASK_LEN);
            prop_assert!(filled.len() <= found.len() + added);
            compare::with_every_mask(|| Same { pass: (&base, &target, &found), expected: &filled });
        }
    }
}
