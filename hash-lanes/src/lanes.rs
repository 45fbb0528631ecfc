//! Which instructions this processor has, and many states advanced by them.

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};
use crate::{
    rounds::{BLOCK, State},
    scalar,
};

/// Most streams that advance together.
pub const LANES_MAX: usize = 16;

/// How many streams advance together on this processor: 16 with AVX-512, 8 with AVX2, else a
/// few.
pub fn lanes() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if avx512::is_there() {
            return avx512::LANES;
        }
        if avx2::is_there() {
            return avx2::LANES;
        }
    }
    scalar::BESIDE_MAX
}

/// Advances as many states as there are runs by as many blocks as the shortest run has whole.
/// Returns the bytes each has taken.
///
/// Few go side by side without vectors: a vector takes the same time however few lanes it has.
pub(crate) fn advance(states: &mut [State], runs: &[&[u8]]) -> usize {
    debug_assert_eq!(states.len(), runs.len());
    let blocks = runs.iter().map(|run| run.len() / BLOCK).min().unwrap_or(0);
    let len = blocks * BLOCK;
    #[cfg(target_arch = "x86_64")]
    {
        if (LANES_MIN..=avx512::LANES).contains(&states.len()) && avx512::is_there() {
            avx512::advance(states, runs, len);
            return len;
        }
        if states.len() >= LANES_MIN && avx2::is_there() {
            for (states, runs) in states.chunks_mut(avx2::LANES).zip(runs.chunks(avx2::LANES)) {
                match states.len() {
                    0..LANES_MIN => scalar::advance_each(states, runs, len),
                    _ => avx2::advance(states, runs, len),
                }
            }
            return len;
        }
    }
    scalar::advance_each(states, runs, len);
    len
}

/// Fewest streams for which vectors are faster.
#[cfg(target_arch = "x86_64")]
const LANES_MIN: usize = scalar::BESIDE_MAX + 1;
