//! The match of effort max: every position of the footprint can be found, and what resembles
//! counts, not only what is equal.
//!
//! [`crate::matcher`] finds words of 16 equal bytes at sampled positions. Code whose every few
//! bytes name an address that moved has few such words. Here the positions of the footprint are
//! chained by the hash of six bytes, and a candidate is judged by everything around it: an equal
//! byte gains, a different one costs, as in bsdiff. The first match has chosen the footprint, which
//! is small enough for this; what else it found is not needed.
//!
//! ```text
//! footprint ── chains ──┐
//! target ──────────── alignments (mostly equal stretches of both) ── copies and sub runs
//! ```

use crate::compare::{self, EqualMask, MASK_LEN, Scan, common_prefix_len, repeated_mask};
use crate::instruction::Instruction;

/// Bytes of a word that is looked up.
const WORD: usize = 6;
/// Most positions in the chains; of a longer footprint only every second or fourth is in them.
const LINKS_MAX: usize = 8 << 20;
/// Fewest and most chains, as powers of two.
const HEAD_BITS: std::ops::RangeInclusive<u32> = 10..=22;
/// 2^64 divided by the golden ratio: spreads a word into the upper bits, which choose the chain.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Most candidates of a chain that are compared …
const DEPTH: usize = 24;
/// … and those with the longest equal runs, which are judged by their surroundings.
const JUDGED: usize = 3;
/// The diagonals of so many alignments are tried without any word …
const RECENT: usize = 8;
/// … where as many of [`MASK_LEN`] bytes are equal.
const RECENT_EQUAL_MIN: u32 = 40;
/// What an equal byte gains and a different one costs. A literal takes two or three bits once it is
/// compressed over its context, so a unit is about a bit.
const EQUAL_GAIN: i32 = 2;
const DIFFERENT_COST: i32 = 6;
/// An alignment is not followed past where its score has fallen by this much, nor for longer than
/// this without a better one: that bounds what a candidate can cost.
const DROP: i32 = 128;
const STALE_LEN: usize = 256;
/// What an alignment costs, and what each byte of the number that says where.
const ALIGNMENT_COST: i32 = 16;
const ALIGNMENT_COST_PER_BYTE: i32 = 24;
/// Shortest equal run within an alignment that becomes a copy; a shorter one is cheaper as zeros in
/// the sub run around it.
const RUN_LEN_MIN: usize = 24;
/// A miss makes the next step longer by one for every this many (as a power of two) bytes since the
/// last alignment.
const STEP_SHIFT: u32 = 10;

/// A stretch of the target and as many bytes of the footprint, most of them equal, the first and
/// the last among them.
#[derive(Clone, Copy, Debug)]
struct Alignment {
    start: usize,
    source: usize,
    len: usize,
}

/// How far a comparison was followed to where it was best.
#[derive(Clone, Copy, Debug, Default)]
struct Reach {
    len: usize,
    score: i32,
}

/// Replaces `found` by copies and sub runs with sources in `footprint`.
///
/// Takes four bytes for every byte of the footprint up to [`LINKS_MAX`], and up to 16 MiB, while it
/// works. O(target · [`DEPTH`]).
pub(crate) fn find_copies(footprint: &[u8], target: &[u8], found: &mut Vec<Instruction>) {
    let chains = Chains::build(footprint);
    let mut alignments = Vec::new();
    compare::dispatch(Search { chains: &chains, footprint, target, alignments: &mut alignments });
    found.clear();
    let mut covered = 0;
    for alignment in &alignments {
        write(alignment, covered, footprint, target, found);
        covered = alignment.start + alignment.len;
    }
}

/// Positions of the footprint by the hash of the word that stands there.
struct Chains {
    /// The first position of each chain, plus one and divided by the stride; 0 is its end.
    heads: Vec<u32>,
    /// For each position the next one of its chain, in the same way.
    links: Vec<u32>,
    shift: u32,
    stride: usize,
}

impl Chains {
    fn build(footprint: &[u8]) -> Self {
        let mut stride = 1;
        while footprint.len().div_ceil(stride) > LINKS_MAX {
            stride *= 2;
        }
        let positions = footprint.len().div_ceil(stride);
        let bits = positions.next_power_of_two().trailing_zeros().clamp(*HEAD_BITS.start(), *HEAD_BITS.end());
        let mut chains = Self { heads: vec![0; 1 << bits], links: vec![0; positions], shift: u64::BITS - bits, stride };
        let word_at = |number: usize| footprint[number * stride..].first_chunk::<WORD>();
        for number in (0..positions).rev() {
            let Some(word) = word_at(number) else { continue };
            // Of a run of one byte only the start is entered: the rest of it is no better, and
            // would fill the chain.
            if number > 0 && word_at(number - 1) == Some(word) {
                continue;
            }
            let chain = chains.chain_of(word);
            chains.links[number] = std::mem::replace(&mut chains.heads[chain], number as u32 + 1);
        }
        chains
    }

    #[inline(always)]
    fn chain_of(&self, word: &[u8; WORD]) -> usize {
        let [a, b, c, d, e, f] = *word;
        (u64::from_be_bytes([f, e, d, c, b, a, 0, 0]).wrapping_mul(GOLDEN) >> self.shift) as usize
    }

    /// Positions where this word may stand, from the front.
    #[inline(always)]
    fn candidates(&self, word: &[u8; WORD]) -> impl Iterator<Item = usize> + '_ {
        let mut next = self.heads[self.chain_of(word)];
        std::iter::from_fn(move || {
            let number = next.checked_sub(1)? as usize;
            next = self.links[number];
            Some(number * self.stride)
        })
    }
}

/// One pass over one target.
struct Search<'a> {
    chains: &'a Chains,
    footprint: &'a [u8],
    target: &'a [u8],
    alignments: &'a mut Vec<Alignment>,
}

impl Scan for Search<'_> {
    #[inline(always)]
    fn run<M: EqualMask>(self, mask: M) {
        let (mut at, mut covered, mut diagonal) = (0, 0, 0);
        let mut recent = [0isize; RECENT];
        while let Some(word) = self.target.get(at..).and_then(<[u8]>::first_chunk::<WORD>) {
            let mut best: Option<(i32, Alignment)> = None;
            let mut judge = |source: usize| {
                let (score, alignment) = self.judge(mask, at, covered, source, diagonal);
                if score > best.map_or(0, |(score, _)| score) {
                    best = Some((score, alignment));
                }
            };
            for (_, source) in self.longest(at, word).into_iter().filter(|&(run_len, _)| run_len >= WORD) {
                judge(source);
            }
            for source in recent.iter().filter_map(|&diagonal| at.checked_add_signed(diagonal)) {
                if let Some(left) = self.target[at..].first_chunk::<MASK_LEN>()
                    && let Some(right) = self.footprint.get(source..).and_then(<[u8]>::first_chunk::<MASK_LEN>)
                    && mask.equal_mask(left, right).count_ones() >= RECENT_EQUAL_MIN
                {
                    judge(source);
                }
            }
            let Some((_, alignment)) = best else {
                at += 1 + ((at - covered) >> STEP_SHIFT);
                continue;
            };
            diagonal = alignment.source as isize - alignment.start as isize;
            let place = recent.iter().position(|&known| known == diagonal).unwrap_or(RECENT - 1);
            recent[..=place].rotate_right(1);
            recent[0] = diagonal;
            covered = alignment.start + alignment.len;
            at = covered;
            self.alignments.push(alignment);
        }
    }
}

impl Search<'_> {
    /// The candidates for the word at `at` with the longest equal runs: length and source, longest
    /// first.
    #[inline(always)]
    fn longest(&self, at: usize, word: &[u8; WORD]) -> [(usize, usize); JUDGED] {
        let mut longest = [(0, 0); JUDGED];
        for source in self.chains.candidates(word).take(DEPTH) {
            let mut entry = (common_prefix_len(&self.target[at..], &self.footprint[source..]), source);
            for place in &mut longest {
                if entry.0 > place.0 {
                    std::mem::swap(&mut entry, place);
                }
            }
        }
        longest
    }

    /// What it gains to align `at` with `source`, with as much before and after as is good for it.
    #[inline(always)]
    fn judge<M: EqualMask>(
        &self,
        mask: M,
        at: usize,
        covered: usize,
        source: usize,
        diagonal: isize,
    ) -> (i32, Alignment) {
        let forward = reach_forward(mask, &self.target[at..], &self.footprint[source..]);
        let backward = reach_backward(&self.target[covered..at], &self.footprint[..source]);
        let score = forward.score + backward.score - alignment_cost(diagonal, source as isize - at as isize);
        let len = backward.len + forward.len;
        (score, Alignment { start: at - backward.len, source: source - backward.len, len })
    }
}

/// What it costs to leave diagonal `from` for diagonal `to`.
fn alignment_cost(from: isize, to: isize) -> i32 {
    let bits = match (to - from).unsigned_abs() {
        0 => 0,
        change => usize::BITS - change.leading_zeros() + 1,
    };
    ALIGNMENT_COST + ALIGNMENT_COST_PER_BYTE * bits.div_ceil(7) as i32
}

/// Keeps the best of a growing comparison.
#[derive(Default)]
struct Judgement {
    at: usize,
    score: i32,
    best: Reach,
}

impl Judgement {
    #[inline(always)]
    fn gain(&mut self, len: usize) {
        self.at += len;
        self.score += EQUAL_GAIN * len as i32;
        if self.score > self.best.score {
            self.best = Reach { len: self.at, score: self.score };
        }
    }

    /// Whether to go on.
    #[inline(always)]
    fn lose(&mut self, len: usize) -> bool {
        self.at += len;
        self.score -= DIFFERENT_COST * len as i32;
        self.score >= self.best.score - DROP && self.at - self.best.len <= STALE_LEN
    }
}

#[inline(always)]
fn reach_forward<M: EqualMask>(mask: M, target: &[u8], base: &[u8]) -> Reach {
    let mut judgement = Judgement::default();
    while let (Some(left), Some(right)) = (
        target.get(judgement.at..).and_then(<[u8]>::first_chunk::<MASK_LEN>),
        base.get(judgement.at..).and_then(<[u8]>::first_chunk::<MASK_LEN>),
    ) {
        let mut equal = mask.equal_mask(left, right);
        if equal != u64::MAX {
            // A difference that repeats is as cheap as an equal byte.
            equal |= repeated_mask(mask, left, right);
        }
        let mut rest = MASK_LEN as u32;
        while rest > 0 {
            let gained = equal.trailing_ones().min(rest);
            judgement.gain(gained as usize);
            rest -= gained;
            equal = equal.checked_shr(gained).unwrap_or(0);
            let lost = equal.trailing_zeros().min(rest);
            if !judgement.lose(lost as usize) {
                return judgement.best;
            }
            rest -= lost;
            equal = equal.checked_shr(lost).unwrap_or(0);
        }
    }
    for (left, right) in target.iter().zip(base).skip(judgement.at) {
        if left == right {
            judgement.gain(1);
        } else if !judgement.lose(1) {
            break;
        }
    }
    judgement.best
}

#[inline(always)]
fn reach_backward(target: &[u8], base: &[u8]) -> Reach {
    let mut judgement = Judgement::default();
    for (left, right) in target.iter().rev().zip(base.iter().rev()) {
        if left == right {
            judgement.gain(1);
        } else if !judgement.lose(1) {
            break;
        }
    }
    judgement.best
}

/// Appends the instructions of one alignment after literals from `covered`.
fn write(alignment: &Alignment, covered: usize, footprint: &[u8], target: &[u8], found: &mut Vec<Instruction>) {
    let Alignment { start, source, len } = *alignment;
    let (to, from) = (&target[start..start + len], &footprint[source..source + len]);
    let mut push = |gap_len, gap_is_sub, copy_len, source| {
        found.push(Instruction::new(gap_len, gap_is_sub, copy_len, source));
    };
    let first = common_prefix_len(to, from);
    // The first copy sets the diagonal, if need be with no bytes.
    let mut written = if first >= RUN_LEN_MIN || first == len { first } else { 0 };
    push(start - covered, false, written, source);
    let mut at = first;
    while at < len {
        at += to[at..].iter().zip(&from[at..]).take_while(|(left, right)| left != right).count();
        let run_len = common_prefix_len(&to[at..], &from[at..]);
        if run_len >= RUN_LEN_MIN {
            push(at - written, true, run_len, source + at);
            written = at + run_len;
        }
        at += run_len;
    }
    if written < len {
        push(len - written, true, 0, source + len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::{Gap, place, rebuild};
    use proptest::prelude::*;

    /// Searches, and compares what it finds with what the dispatched search has found.
    struct Same<'a> {
        pass: (&'a Chains, &'a [u8], &'a [u8]),
        expected: &'a [Instruction],
    }

    impl Scan for Same<'_> {
        #[inline(always)]
        fn run<M: EqualMask>(self, mask: M) {
            let (chains, footprint, target) = self.pass;
            let mut alignments = Vec::new();
            Search { chains, footprint, target, alignments: &mut alignments }.run(mask);
            let (mut found, mut covered) = (Vec::new(), 0);
            for alignment in &alignments {
                write(alignment, covered, footprint, target, &mut found);
                covered = alignment.start + alignment.len;
            }
            assert_eq!(found, self.expected, "{}", std::any::type_name::<M>());
        }
    }

    proptest! {
        #[test]
        fn copies_are_true_and_the_same_on_every_processor(
            footprint in prop::collection::vec(0u8..4, 0..3000),
            splices in prop::collection::vec((any::<prop::sample::Index>(), 0usize..300, any::<u8>(), 1usize..40), 1..20),
        ) {
            let mut target = Vec::new();
            for (start, len, byte, every) in splices {
                if !footprint.is_empty() {
                    let start = start.index(footprint.len());
                    target.extend_from_slice(&footprint[start..(start + len).min(footprint.len())]);
                    let from = target.len().saturating_sub(len);
                    target[from..].iter_mut().step_by(every).for_each(|changed| *changed = byte);
                }
                target.push(byte);
            }
            let mut found = Vec::new();
            find_copies(&footprint, &target, &mut found);
            prop_assert_eq!(&rebuild(&footprint, &target, &found), &target);
            prop_assert!(found.len() <= 1 + target.len() / crate::instruction::BYTES_PER_COPY_MIN);
            let chains = Chains::build(&footprint);
            compare::with_every_mask(|| Same { pass: (&chains, &footprint, &target), expected: &found });
        }
    }

    #[test]
    fn bytes_with_changes_too_dense_for_any_word_are_found_by_their_surroundings() {
        let footprint: Vec<u8> = (0..8000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        // Moved by 500, and every twelfth byte is another one: no run reaches sixteen bytes.
        let mut target = footprint[500..7500].to_vec();
        target.iter_mut().step_by(12).for_each(|byte| *byte = byte.wrapping_add(16));
        let mut found = Vec::new();
        find_copies(&footprint, &target, &mut found);
        let literal: usize =
            place(&found).filter(|placed| placed.gap == Gap::Literal).map(|placed| placed.gap_len).sum();
        assert!(found.len() <= 2 && literal <= 1, "{found:?}");
    }

    #[test]
    fn a_run_of_one_byte_is_found_from_its_start() {
        let footprint = [&[7u8; 100][..], &[0; 50_000], &[9; 100]].concat();
        let target = [&[1u8; 10][..], &[0; 49_000], &[2; 10]].concat();
        let mut found = Vec::new();
        find_copies(&footprint, &target, &mut found);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].source, found[0].copy_len), (100, 49_000));
    }

    #[test]
    fn the_chains_of_a_long_footprint_have_no_more_links_than_those_of_a_shorter_one() {
        let chains = Chains::build(&vec![0; LINKS_MAX + 1]);
        assert_eq!((chains.stride, chains.links.len()), (2, LINKS_MAX / 2 + 1));
    }
}
