//! Finds the copies: probes the index along the target, extends hits both ways, and stays on their
//! diagonal.
//!
//! After a copy the two strings often go on in step with a few bytes changed (an address that moved
//! in native code, a field of a record). So the matcher looks ahead on the same *diagonal* (source
//! minus target position) before it asks the index again; the bytes in between become sub bytes.
//! That is what finds the copies that are too short for any index.

use crate::compare::{self, EqualMask, MASK_LEN, Scan, common_prefix_len, common_suffix_len, repeated_mask};
use crate::effort::WordLen;
use crate::index::BaseIndex;
use crate::instruction::Instruction;
use crate::word;

/// A miss makes the next step longer by one for every this many (as a power of two) bytes since the
/// last copy …
const STEP_SHIFT: u32 = 7;
/// … up to this; steps are odd, so that they do not resonate with aligned data.
const STEP_MAX: usize = 33;
/// Words asked for together: these many after a copy, and …
const PROBES_MIN: usize = 4;
/// … these when they had no match; about as many as a core waits for at once.
const PROBES_MAX: usize = 16;
/// A copy off the current diagonal must be longer than what its instruction costs, which grows with
/// how far away it is: these many bytes, and …
const FAR_COPY_LEN_MIN: usize = 12;
/// … this many more for each byte of the number that says where.
const FAR_COPY_LEN_PER_BYTE: usize = 4;
/// Shortest equal run on a diagonal that becomes a copy of its own; a shorter one is cheaper as
/// zeros in the sub run around it.
const RUN_LEN_MIN: usize = 16;
/// The run that a mask can show; longer ones are measured from where it is.
const RUN_SEEN: usize = 8;
/// Consecutive masks overlap by a run's length, so that no run is cut in two.
const LOOK_STEP: usize = MASK_LEN - RUN_SEEN;
/// How far past the last close byte to look for the next equal run.
const LOOK_AHEAD: usize = 112;
/// A stretch of [`MASK_LEN`] bytes with this many equal ones is *close* to its base: its
/// differences are shorter to store than its bytes.
pub(crate) const CLOSE_EQUAL_MIN: u32 = 44;
/// It is close as well when this many of its differences equal the one eight bytes before: a table
/// of pointers that all moved alike.
pub(crate) const CLOSE_REPEATED_MIN: u32 = 40;
/// A gap of up to this many bytes between copies on one diagonal is a sub run even when nothing in
/// it is close: an address or two.
const GAP_SUB_LEN: usize = 8;
/// One of up to this many is a sub run when one byte in [`GAP_SUB_EQUAL`] is equal. Code has that;
/// text in place of other text does not, and is shorter as literals.
const GAP_SUB_MAX: usize = 64;
const GAP_SUB_EQUAL: usize = 3;

/// Appends to `found` copies that together with the bytes between them make up `target`, with
/// sources in `window`.
///
/// `index` should be that of `window`; from another one nothing good comes, but nothing wrong
/// either: every copy is compared.
pub(crate) fn find_copies(index: &BaseIndex, window: &[u8], target: &[u8], found: &mut Vec<Instruction>) {
    compare::dispatch(Pass { index, window, target, found });
}

/// The arguments of [`find_copies`].
struct Pass<'a> {
    index: &'a BaseIndex,
    window: &'a [u8],
    target: &'a [u8],
    found: &'a mut Vec<Instruction>,
}

impl Scan for Pass<'_> {
    #[inline(always)]
    fn run<M: EqualMask>(self, mask: M) {
        let Self { index, window, target, found } = self;
        match index.word_len() {
            WordLen::Sixteen => Search { mask, window, target, found }.run::<16>(index),
            WordLen::ThirtyTwo => Search { mask, window, target, found }.run::<32>(index),
        }
    }
}

/// Words of the target whose slots in the index have been asked for: they lie anywhere in memory,
/// and a core waits for several of them in the time of one.
#[derive(Default)]
struct Probes {
    /// Where each word is in the target, and its hash.
    words: [(usize, u64); PROBES_MAX],
    len: usize,
}

impl Probes {
    /// Asks for the next words from `at` on, at most `len_max`, and moves `at` past them. There is
    /// none where the target ends.
    #[inline(always)]
    fn ask<const WORD: usize>(
        &mut self,
        index: &BaseIndex,
        target: &[u8],
        at: &mut usize,
        covered: usize,
        len_max: usize,
    ) {
        self.len = 0;
        while self.len < len_max
            && let Some(word) = target.get(*at..).and_then(<[u8]>::first_chunk::<WORD>)
        {
            let hash = word::hash(word);
            index.prefetch(hash);
            self.words[self.len] = (*at, hash);
            self.len += 1;
            *at += (1 + ((*at - covered) >> STEP_SHIFT)).min(STEP_MAX) | 1;
        }
    }
}

/// One pass over one target.
struct Search<'a, M> {
    mask: M,
    window: &'a [u8],
    target: &'a [u8],
    found: &'a mut Vec<Instruction>,
}

impl<M: EqualMask> Search<'_, M> {
    #[inline(always)]
    fn run<const WORD: usize>(&mut self, index: &BaseIndex) {
        let (window, target) = (self.window, self.target);
        let mut at = 0;
        // Target bytes before this are decided.
        let mut covered = 0;
        let mut diagonal: Option<isize> = None;
        let (mut now, mut next) = (&mut Probes::default(), &mut Probes::default());
        // Soon after a copy there is often another: only a gap that has gone on asks ahead of what
        // it looks at.
        let mut ahead = false;
        'probing: loop {
            if now.len == 0 {
                now.ask::<WORD>(index, target, &mut at, covered, if ahead { PROBES_MAX } else { PROBES_MIN });
                if now.len == 0 {
                    return;
                }
            }
            if ahead {
                next.ask::<WORD>(index, target, &mut at, covered, PROBES_MAX);
            }
            for &(probe, hash) in &now.words[..now.len] {
                let Some(candidate) = index.look_up(hash) else { continue };
                let Some(word) = target[probe..].first_chunk::<WORD>() else { continue };
                let source = diagonal
                    .and_then(|diagonal| probe.checked_add_signed(diagonal))
                    .filter(|&source| window.get(source..).and_then(<[u8]>::first_chunk::<WORD>) == Some(word))
                    .unwrap_or(candidate);
                let forward = window.get(source..).map_or(0, |base| common_prefix_len(&target[probe..], base));
                if forward < WORD {
                    continue;
                }
                let backward = common_suffix_len(&target[covered..probe], &window[..source]);
                let here = source as isize - probe as isize;
                let in_step = diagonal == Some(here);
                if !in_step && forward + backward < far_copy_len_min(diagonal.unwrap_or(0), here) {
                    continue;
                }
                diagonal = Some(here);
                let start = probe - backward;
                if in_step && is_short_sub(&target[covered..start], &window[source - backward - (start - covered)..]) {
                    self.push(start - covered, true, forward + backward, source - backward);
                } else {
                    let close = self.close_len_before(&target[covered..start], &window[..source - backward]);
                    self.push_gap_and_copy(start - close - covered, close, forward + backward, source - backward);
                }
                covered = self.follow(probe + forward, source + forward);
                at = covered;
                (now.len, next.len, ahead) = (0, 0, false);
                continue 'probing;
            }
            std::mem::swap(&mut now, &mut next);
            (next.len, ahead) = (0, true);
        }
    }

    #[inline(always)]
    fn push(&mut self, gap_len: usize, gap_is_sub: bool, copy_len: usize, source: usize) {
        self.found.push(Instruction::new(gap_len, gap_is_sub, copy_len, source));
    }

    /// Adds literal bytes, then a sub run, then a copy from `source`.
    #[inline(always)]
    fn push_gap_and_copy(&mut self, literal_len: usize, sub_len: usize, copy_len: usize, source: usize) {
        if sub_len == 0 {
            self.push(literal_len, false, copy_len, source);
        } else {
            // An empty copy sets the diagonal on which the sub run counts.
            self.push(literal_len, false, 0, source - sub_len);
            self.push(sub_len, true, copy_len, source);
        }
    }

    /// How many bytes at the end of both slices are close to each other, in whole masks.
    #[inline(always)]
    fn close_len_before(&self, target: &[u8], base: &[u8]) -> usize {
        let mut close = 0;
        while let Some(left) = target[..target.len() - close].last_chunk::<MASK_LEN>()
            && let Some(right) = base[..base.len() - close].last_chunk::<MASK_LEN>()
            && self.is_close(self.mask.equal_mask(left, right), left, right)
        {
            close += MASK_LEN;
        }
        close
    }

    /// Whether the differences of these bytes, whose mask is `equal`, are shorter to store than the
    /// bytes.
    #[inline(always)]
    fn is_close(&self, equal: u64, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> bool {
        if equal.count_ones() >= CLOSE_EQUAL_MIN {
            return true;
        }
        repeated_mask(self.mask, left, right).count_ones() >= CLOSE_REPEATED_MIN
    }

    /// Goes on along a diagonal from the end of a copy (`at` in the target, `source` in the window)
    /// for as long as equal runs follow or most bytes are equal. Returns where that ends in the
    /// target.
    #[inline(always)]
    fn follow(&mut self, mut at: usize, mut source: usize) -> usize {
        loop {
            let Next { close_len, far_len, run_len } = self.next_run(&self.target[at..], &self.window[source..]);
            let copied_from = source + close_len + far_len;
            let far = at + close_len..at + close_len + far_len;
            if is_short_sub(&self.target[far], &self.window[source + close_len..]) {
                if close_len + run_len > 0 {
                    self.push(close_len + far_len, true, run_len, copied_from);
                }
            } else {
                if close_len > 0 {
                    self.push(close_len, true, 0, source + close_len);
                }
                self.push(far_len, false, run_len, copied_from);
            }
            at += close_len + far_len + run_len;
            source = copied_from + run_len;
            if run_len == 0 {
                return at;
            }
        }
    }

    /// Looks for the next run of equal bytes at the fronts of both slices, past bytes that are
    /// close and a few that are not.
    #[inline(always)]
    fn next_run(&self, target: &[u8], base: &[u8]) -> Next {
        let mut at = 0;
        let mut close_len = 0;
        while at < close_len + LOOK_AHEAD {
            let Some(left) = target.get(at..).and_then(<[u8]>::first_chunk::<MASK_LEN>) else { break };
            let Some(right) = base.get(at..).and_then(<[u8]>::first_chunk::<MASK_LEN>) else { break };
            let equal = self.mask.equal_mask(left, right);
            let two = equal & (equal >> 1);
            let four = two & (two >> 2);
            let eight = four & (four >> 4);
            if eight != 0 {
                let start = at + eight.trailing_zeros() as usize;
                let run_len = common_prefix_len(&target[start..], &base[start..]);
                let far_len = start.saturating_sub(close_len);
                // A run pays for its instruction and for the distant bytes before it only when it
                // is long enough.
                if run_len >= RUN_LEN_MIN + (far_len >> 2) {
                    return Next { close_len: close_len.min(start), far_len, run_len };
                }
            }
            if self.is_close(equal, left, right) {
                close_len = at + MASK_LEN;
            }
            at += LOOK_STEP;
        }
        Next { close_len, far_len: 0, run_len: 0 }
    }
}

/// Whether a gap between copies on one diagonal is a sub run without being close.
#[inline(always)]
fn is_short_sub(target: &[u8], base: &[u8]) -> bool {
    let len = target.len();
    let equal = || target.iter().zip(base).filter(|(left, right)| left == right).count();
    len <= GAP_SUB_LEN || (len <= GAP_SUB_MAX && equal() * GAP_SUB_EQUAL >= len)
}

/// The shortest copy worth leaving diagonal `from` for diagonal `to`.
#[inline(always)]
fn far_copy_len_min(from: isize, to: isize) -> usize {
    let bits = usize::BITS - (to - from).unsigned_abs().leading_zeros() + 1;
    FAR_COPY_LEN_MIN + FAR_COPY_LEN_PER_BYTE * bits.div_ceil(7) as usize
}

/// What follows the end of a copy on its diagonal: close bytes, then some that are not, then a run
/// of equal ones. Without a run there is nothing far either.
struct Next {
    close_len: usize,
    far_len: usize,
    run_len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Effort, instruction::rebuild};
    use proptest::prelude::*;

    /// Finds copies and compares them with those that [`find_copies`] has found.
    struct Same<'a> {
        pass: (&'a BaseIndex, &'a [u8], &'a [u8]),
        expected: &'a [Instruction],
    }

    impl Scan for Same<'_> {
        #[inline(always)]
        fn run<M: EqualMask>(self, mask: M) {
            let (index, window, target) = self.pass;
            let mut found = Vec::new();
            Pass { index, window, target, found: &mut found }.run(mask);
            assert_eq!(found, self.expected, "{}", std::any::type_name::<M>());
        }
    }

    proptest! {
        #[test]
        fn copies_are_true_and_the_same_on_every_processor(
            window in prop::collection::vec(0u8..4, 0..3000), splices in prop::collection::vec((any::<prop::sample::Index>(), 0usize..300, any::<u8>()), 1..20),
        ) {
            let mut target = Vec::new();
            for (start, len, byte) in splices {
                if !window.is_empty() {
                    let start = start.index(window.len());
                    target.extend_from_slice(&window[start..(start + len).min(window.len())]);
                }
                target.push(byte);
            }
            for effort in [Effort::Fast, Effort::Balanced] {
                let index = BaseIndex::build(&window, effort);
                let mut found = Vec::new();
                find_copies(&index, &window, &target, &mut found);
                prop_assert_eq!(&rebuild(&window, &target, &found), &target);
                prop_assert!(found.iter().all(|instruction| instruction.gap_is_sub || instruction.copy_len == 0 || instruction.copy_len as usize >= RUN_LEN_MIN));
                prop_assert!(found.len() <= 1 + target.len() / crate::instruction::BYTES_PER_COPY_MIN);
                let mut kinds = 0;
                compare::with_every_mask(|| {
                    kinds += 1;
                    Same { pass: (&index, &window, &target), expected: &found }
                });
                prop_assert!(kinds >= 2 || !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")));
            }
        }

        #[test]
        fn a_foreign_index_does_no_harm(window in prop::collection::vec(0u8..3, 0..500), other in prop::collection::vec(0u8..3, 0..5000), target in prop::collection::vec(0u8..3, 1..2000)) {
            let index = BaseIndex::build(&other, Effort::Balanced);
            let mut found = Vec::new();
            find_copies(&index, &window, &target, &mut found);
            prop_assert_eq!(rebuild(&window, &target, &found), target);
        }
    }

    #[test]
    fn changed_bytes_stay_on_the_diagonal() {
        let window: Vec<u8> = (0..4000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut target = window.clone();
        for at in (100..3900).step_by(20) {
            target[at] = target[at].wrapping_add(16);
        }
        let index = BaseIndex::build(&window, Effort::Balanced);
        let mut found = Vec::new();
        find_copies(&index, &window, &target, &mut found);
        // Runs of 19 bytes between changes: too short to be worth an address, found all the same.
        assert_eq!(found.len(), 191);
        assert!(found.iter().skip(1).all(|instruction| instruction.gap_len == 1));
    }
}
