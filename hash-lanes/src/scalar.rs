//! On any processor: one stream, or a few whose steps stand side by side. A step waits for the one
//! before, and a processor that can do six things at once does those of other streams meanwhile.

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

/// Most streams whose steps stand side by side: more have no room in the registers.
pub(crate) const BESIDE_MAX: usize = 4;

/// Advances each state by the first `len` bytes of its run; a multiple of a block.
pub(crate) fn advance_each(states: &mut [State], runs: &[&[u8]], len: usize) {
    for (states, runs) in states.chunks_mut(BESIDE_MAX).zip(runs.chunks(BESIDE_MAX)) {
        match (states, runs) {
            ([a, b], [x, y]) => [*a, *b] = beside([*a, *b], [x, y], len),
            ([a, b, c], [x, y, z]) => [*a, *b, *c] = beside([*a, *b, *c], [x, y, z], len),
            ([a, b, c, d], [x, y, z, w]) => [*a, *b, *c, *d] = beside([*a, *b, *c, *d], [x, y, z, w], len),
            (states, runs) => states.iter_mut().zip(runs).for_each(|(state, run)| advance(state, &run[..len])),
        }
    }
}

/// `N` states, each after the first `len` bytes of its run.
fn beside<const N: usize>(states: [State; N], runs: [&[u8]; N], len: usize) -> [State; N] {
    let runs = runs.map(|run| run[..len].as_chunks::<BLOCK>().0);
    let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|word| states.map(|state| state[word]));
    for block in 0..len / BLOCK {
        let words = runs.map(|blocks| blocks[block].as_chunks::<4>().0);
        let before = [a, b, c, d];
        macro_rules! step {
            ($function:ident, $a:ident, $b:ident, $c:ident, $d:ident, $word:literal, $rotation:literal, $t:expr) => {
                for n in 0..N {
                    let sum = $a[n].wrapping_add(u32::from_le_bytes(words[n][$word]).wrapping_add(T[$t]));
                    $a[n] = sum.wrapping_add($function($b[n], $c[n], $d[n])).rotate_left($rotation).wrapping_add($b[n]);
                }
            };
        }
        steps!(step, a, b, c, d);
        for (word, before) in [&mut a, &mut b, &mut c, &mut d].into_iter().zip(before) {
            for (after, before) in word.iter_mut().zip(before) {
                *after = after.wrapping_add(before);
            }
        }
    }
    std::array::from_fn(|n| [a[n], b[n], c[n], d[n]])
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
