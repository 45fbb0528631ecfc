//! How far two byte strings agree: forwards, backwards, and as a mask of 64 positions.
//!
//! The first two are plain safe code that compiles to wide loads. The mask exists per instruction
//! set behind [`EqualMask`]; what uses it is a [`Scan`], which [`dispatch`] compiles once for each:
//! one binary is fast everywhere, and the choice costs a branch per segment.

/// Bytes one mask compares.
pub(crate) const MASK_LEN: usize = 64;

/// How many leading bytes of `left` and `right` are equal.
#[inline(always)]
pub(crate) fn common_prefix_len(left: &[u8], right: &[u8]) -> usize {
    let len = left.len().min(right.len());
    let (left, right) = (&left[..len], &right[..len]);
    let (left_blocks, left_rest) = left.as_chunks::<32>();
    let (right_blocks, right_rest) = right.as_chunks::<32>();
    for (block, (l, r)) in left_blocks.iter().zip(right_blocks).enumerate() {
        let difference: [u64; 4] = std::array::from_fn(|word| word_of(l, word) ^ word_of(r, word));
        if difference[0] | difference[1] | difference[2] | difference[3] != 0 {
            let word = difference.iter().position(|&word| word != 0).unwrap_or(0);
            return block * 32 + word * 8 + (difference[word].trailing_zeros() >> 3) as usize;
        }
    }
    let equal = left_rest.iter().zip(right_rest).take_while(|(l, r)| l == r).count();
    left_blocks.len() * 32 + equal
}

/// How many trailing bytes of `left` and `right` are equal.
#[inline(always)]
pub(crate) fn common_suffix_len(left: &[u8], right: &[u8]) -> usize {
    let len = left.len().min(right.len());
    let (left, right) = (&left[left.len() - len..], &right[right.len() - len..]);
    let (left_rest, left_words) = left.as_rchunks::<8>();
    let (right_rest, right_words) = right.as_rchunks::<8>();
    for (word, (l, r)) in left_words.iter().rev().zip(right_words.iter().rev()).enumerate() {
        let difference = u64::from_le_bytes(*l) ^ u64::from_le_bytes(*r);
        if difference != 0 {
            return word * 8 + (difference.leading_zeros() >> 3) as usize;
        }
    }
    let equal = left_rest.iter().rev().zip(right_rest.iter().rev()).take_while(|(l, r)| l == r).count();
    left_words.len() * 8 + equal
}

#[inline(always)]
fn word_of(block: &[u8; 32], word: usize) -> u64 {
    let (words, _) = block.as_chunks::<8>();
    u64::from_le_bytes(words[word])
}

/// Compares [`MASK_LEN`] bytes at once. A value of an implementing type proves that the processor
/// can do it.
pub(crate) trait EqualMask: Copy {
    /// Bit `i` is set when byte `i` of both is equal.
    fn equal_mask(self, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64;
}

#[cfg(target_arch = "aarch64")]
use arm::Neon;
#[cfg(all(test, target_arch = "x86_64"))]
use x86::{Avx2, Avx512, Sse2};

/// Distance at which differences repeat in a table of pointers that all moved alike.
const POINTER_LEN: usize = 8;

/// Bit `i` is set when the difference of byte `i` equals that eight bytes before; the first eight
/// bits are not.
#[inline(always)]
pub(crate) fn repeated_mask(mask: impl EqualMask, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
    let difference: [u8; MASK_LEN] = std::array::from_fn(|at| left[at].wrapping_sub(right[at]));
    let mut later = [0; MASK_LEN];
    later[..MASK_LEN - POINTER_LEN].copy_from_slice(&difference[POINTER_LEN..]);
    mask.equal_mask(&difference, &later) << POINTER_LEN
}

/// A pass over two byte strings that compares with masks.
pub(crate) trait Scan: Sized {
    /// Runs the pass. Implementations are `#[inline(always)]`, so that each is compiled for the
    /// instruction set of its mask.
    fn run<M: EqualMask>(self, mask: M);
}

/// Runs `scan` with the best mask this processor has.
pub(crate) fn dispatch(scan: impl Scan) {
    #[cfg(target_arch = "x86_64")]
    x86::dispatch(scan);
    #[cfg(target_arch = "aarch64")]
    scan.run(Neon);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    scan.run(Portable);
}

/// Runs a scan from `make` with every mask this processor has, the portable one first.
#[cfg(test)]
pub(crate) fn with_every_mask<S: Scan>(mut make: impl FnMut() -> S) {
    make().run(Portable);
    #[cfg(target_arch = "x86_64")]
    {
        make().run(Sse2);
        if let Some(mask) = Avx2::detect() {
            make().run(mask);
        }
        if let Some(mask) = Avx512::detect() {
            make().run(mask);
        }
    }
    #[cfg(target_arch = "aarch64")]
    make().run(Neon);
}

/// Plain 64-bit arithmetic: eight bytes at a time on any processor.
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
impl EqualMask for Portable {
    #[inline(always)]
    fn equal_mask(self, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
        const LOW_SEVEN: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let (left, _) = left.as_chunks::<8>();
        let (right, _) = right.as_chunks::<8>();
        let mut mask = 0;
        for (word, (l, r)) in left.iter().zip(right).enumerate() {
            let difference = u64::from_le_bytes(*l) ^ u64::from_le_bytes(*r);
            // The top bit of every byte that is zero, and of no other: seven-bit sums cannot carry
            // into the next byte.
            let zero_bytes = !(((difference & LOW_SEVEN) + LOW_SEVEN) | difference | LOW_SEVEN);
            mask |= ((zero_bytes >> 7).wrapping_mul(GATHER) >> 56) << (8 * word);
        }
        mask
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{EqualMask, MASK_LEN, Scan};
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm256_cmpeq_epi8,
        _mm256_loadu_si256, _mm256_movemask_epi8, _mm512_cmpeq_epi8_mask, _mm512_loadu_si512,
    };

    #[allow(unsafe_code)]
    pub(super) fn dispatch(scan: impl Scan) {
        if let Some(mask) = Avx512::detect() {
            // SAFETY: `detect` has found what the function is compiled for.
            unsafe { run_avx512(scan, mask) }
        } else if let Some(mask) = Avx2::detect() {
            // SAFETY: as above.
            unsafe { run_avx2(scan, mask) }
        } else {
            scan.run(Sse2);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx2,bmi1,bmi2")]
    fn run_avx512(scan: impl Scan, mask: Avx512) {
        scan.run(mask);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn run_avx2(scan: impl Scan, mask: Avx2) {
        scan.run(mask);
    }

    /// Four 16-byte compares. Part of the x86-64 baseline, so always there.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Sse2;

    impl EqualMask for Sse2 {
        #[inline(always)]
        #[allow(unsafe_code)]
        fn equal_mask(self, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
            let mut mask = 0;
            for lane in 0..4 {
                // SAFETY: SSE2 belongs to every x86-64 processor. `lane * 16 + 16 <= 64` bytes
                // exist behind both references, and the loads are the unaligned kind.
                let equal = unsafe {
                    let l = _mm_loadu_si128(left.as_ptr().add(lane * 16).cast::<__m128i>());
                    let r = _mm_loadu_si128(right.as_ptr().add(lane * 16).cast::<__m128i>());
                    _mm_movemask_epi8(_mm_cmpeq_epi8(l, r))
                };
                mask |= u64::from(equal as u32) << (16 * lane);
            }
            mask
        }
    }

    /// Two 32-byte compares. Made only by [`Avx2::detect`].
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Avx2(());

    impl Avx2 {
        /// Proof that this processor has AVX2, BMI1 and BMI2, if it does.
        pub(crate) fn detect() -> Option<Self> {
            let all = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            all.then_some(Self(()))
        }
    }

    impl EqualMask for Avx2 {
        #[inline(always)]
        #[allow(unsafe_code)]
        fn equal_mask(self, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
            // SAFETY: `self` exists only where `detect` has found AVX2.
            unsafe { equal_mask_avx2(left, right) }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    #[allow(unsafe_code)]
    fn equal_mask_avx2(left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
        let mut mask = 0;
        for lane in 0..2 {
            // SAFETY: `lane * 32 + 32 <= 64` bytes exist behind both references, and the loads are
            // the unaligned kind.
            let (l, r) = unsafe {
                (
                    _mm256_loadu_si256(left.as_ptr().add(lane * 32).cast::<__m256i>()),
                    _mm256_loadu_si256(right.as_ptr().add(lane * 32).cast::<__m256i>()),
                )
            };
            mask |= u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(l, r)) as u32) << (32 * lane);
        }
        mask
    }

    /// One 64-byte compare, whose result is the mask. Made only by [`Avx512::detect`].
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Avx512(());

    impl Avx512 {
        /// Proof that this processor has AVX-512 F and BW and what [`Avx2`] needs, if it does.
        pub(crate) fn detect() -> Option<Self> {
            let all = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            (all && Avx2::detect().is_some()).then_some(Self(()))
        }
    }

    impl EqualMask for Avx512 {
        #[inline(always)]
        #[allow(unsafe_code)]
        fn equal_mask(self, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
            // SAFETY: `self` exists only where `detect` has found AVX-512 F and BW.
            unsafe { equal_mask_avx512(left, right) }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    #[allow(unsafe_code)]
    fn equal_mask_avx512(left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
        // SAFETY: 64 bytes exist behind both references, and the loads are the unaligned kind.
        let (l, r) = unsafe {
            (_mm512_loadu_si512(left.as_ptr().cast::<__m512i>()), _mm512_loadu_si512(right.as_ptr().cast::<__m512i>()))
        };
        _mm512_cmpeq_epi8_mask(l, r)
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{EqualMask, MASK_LEN};
    use std::arch::aarch64::{vandq_u8, vceqq_u8, vgetq_lane_u64, vld1q_u8, vpaddq_u8, vreinterpretq_u64_u8};

    /// Four 16-byte compares, folded to one bit a byte by pairwise sums. Part of the AArch64
    /// baseline, so always there.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Neon;

    /// The bit of each byte within its eight.
    const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

    impl EqualMask for Neon {
        #[inline(always)]
        #[allow(unsafe_code)]
        fn equal_mask(self, left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
            // SAFETY: NEON belongs to every AArch64 processor that Rust's targets with an operating
            // system run on. `lane * 16 + 16 <= 64` bytes exist behind both references and 16
            // behind `BITS`; these loads need no alignment.
            unsafe {
                let bits = vld1q_u8(BITS.as_ptr());
                let lane = |lane: usize| {
                    let l = vld1q_u8(left.as_ptr().add(lane * 16));
                    let r = vld1q_u8(right.as_ptr().add(lane * 16));
                    vandq_u8(vceqq_u8(l, r), bits)
                };
                // Distinct bits never carry: after three rounds of pairwise sums every byte holds
                // the bits of eight.
                let halves = vpaddq_u8(vpaddq_u8(lane(0), lane(1)), vpaddq_u8(lane(2), lane(3)));
                vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(halves, halves)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    fn mask_byte_by_byte(left: &[u8; MASK_LEN], right: &[u8; MASK_LEN]) -> u64 {
        (0..MASK_LEN).fold(0, |mask, at| mask | u64::from(left[at] == right[at]) << at)
    }

    fn block() -> impl Strategy<Value = [u8; MASK_LEN]> {
        // Few values and all values: equal bytes are common in the one and the sign bits vary in
        // the other.
        prop_oneof![
            prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x7f, 0x80, 0xff]), MASK_LEN),
            prop::collection::vec(any::<u8>(), MASK_LEN)
        ]
        .prop_map(|bytes| bytes.try_into().expect("the vector has 64 bytes"))
    }

    /// Takes one mask, and adds it to those of others.
    struct One<'a> {
        left: &'a [u8; MASK_LEN],
        right: &'a [u8; MASK_LEN],
        masks: &'a RefCell<Vec<u64>>,
    }

    impl Scan for One<'_> {
        #[inline(always)]
        fn run<M: EqualMask>(self, mask: M) {
            self.masks.borrow_mut().push(mask.equal_mask(self.left, self.right));
        }
    }

    proptest! {
        #[test]
        fn every_mask_agrees_with_the_byte_loop(left in block(), right in block()) {
            let expected = mask_byte_by_byte(&left, &right);
            let masks = RefCell::new(Vec::new());
            with_every_mask(|| One { left: &left, right: &right, masks: &masks });
            dispatch(One { left: &left, right: &right, masks: &masks });
            let masks = masks.into_inner();
            prop_assert!(masks.len() >= 3 && masks.iter().all(|&mask| mask == expected), "{expected:x} {masks:x?}");
        }

        #[test]
        fn common_lengths_agree_with_the_byte_loop(
            left in prop::collection::vec(any::<u8>(), 0..200), change in any::<prop::sample::Index>(), extra in 0usize..70,
        ) {
            let mut right = left.clone();
            if !right.is_empty() {
                let at = change.index(right.len());
                right[at] ^= 0x40;
            }
            right.resize(right.len() + extra, 3);
            let forwards = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
            prop_assert_eq!(common_prefix_len(&left, &right), forwards);
            let backwards = left.iter().rev().zip(right.iter().rev()).take_while(|(l, r)| l == r).count();
            prop_assert_eq!(common_suffix_len(&left, &right), backwards);
            right.truncate(left.len());
            let backwards = left.iter().rev().zip(right.iter().rev()).take_while(|(l, r)| l == r).count();
            prop_assert_eq!(common_suffix_len(&left, &right), backwards);
        }
    }
}
