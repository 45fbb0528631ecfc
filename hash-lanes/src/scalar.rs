//! One stream after the other, on any processor.

use crate::rounds::{BLOCK, State, T, steps};

fn f(b: u32, c: u32, d: u32) -> u32 {
    d ^ (b & (c ^ d))
}

fn g(b: u32, c: u32, d: u32) -> u32 {
    // The two halves have no bit in common, so an addition is an OR; neither waits for the other.
    (b & d).wrapping_add(c & !d)
}

fn h(b: u32, c: u32, d: u32) -> u32 {
    b ^ c ^ d
}

fn i(b: u32, c: u32, d: u32) -> u32 {
    c ^ (b | !d)
}

/// Advances each state by the first `len` bytes of its run; a multiple of a block.
pub(crate) fn advance_each(states: &mut [State], runs: &[&[u8]], len: usize) {
    for (state, run) in states.iter_mut().zip(runs) {
        advance(state, &run[..len]);
    }
}

/// Advances a state by whole blocks.
pub(crate) fn advance(state: &mut State, run: &[u8]) {
    for block in run.as_chunks::<BLOCK>().0 {
        let (words, _) = block.as_chunks::<4>();
        let [mut a, mut b, mut c, mut d] = *state;
        macro_rules! step {
            ($function:ident, $a:ident, $b:ident, $c:ident, $d:ident, $word:literal, $rotation:literal, $t:expr) => {
                let sum = $a.wrapping_add(u32::from_le_bytes(words[$word]).wrapping_add(T[$t]));
                $a = sum.wrapping_add($function($b, $c, $d)).rotate_left($rotation).wrapping_add($b);
            };
        }
        steps!(step, a, b, c, d);
        let [a0, b0, c0, d0] = state;
        *a0 = a0.wrapping_add(a);
        *b0 = b0.wrapping_add(b);
        *c0 = c0.wrapping_add(c);
        *d0 = d0.wrapping_add(d);
    }
}
