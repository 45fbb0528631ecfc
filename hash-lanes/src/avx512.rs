//! Sixteen streams at once, a 32-bit lane each.

use crate::rounds::{BLOCK, State, T, steps};
use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_rol_epi32, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_ternarylogic_epi32, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

/// Streams that advance together.
pub(crate) const LANES: usize = 16;

/// Truth tables of the four functions over (b, c, d): bit `4 b + 2 c + d` is the result.
const F: i32 = 0b1100_1010;
const G: i32 = 0b1110_0100;
const H: i32 = 0b1001_0110;
const I: i32 = 0b0011_1001;

/// Whether this processor has what [`advance`] needs.
pub(crate) fn is_there() -> bool {
    std::arch::is_x86_feature_detected!("avx512f")
}

/// Advances each of at most [`LANES`] states by the first `len` bytes of its run; a multiple of a
/// block. Call it only where it [`is_there`].
pub(crate) fn advance(states: &mut [State], runs: &[&[u8]], len: usize) {
    assert!(is_there() && states.len() == runs.len() && states.len() <= LANES);
    let mut lanes = [[0; LANES]; 4];
    for (lane, state) in states.iter().enumerate() {
        for (word, value) in lanes.iter_mut().zip(state) {
            word[lane] = *value;
        }
    }
    // Lanes without a stream compute what the first one's do; nobody looks at them.
    let mut of_lanes = [&runs[0][..len]; LANES];
    for (of_lane, run) in of_lanes.iter_mut().zip(runs) {
        *of_lane = &run[..len];
    }
    // SAFETY: the assertion above says that the processor has AVX-512F.
    #[allow(unsafe_code)]
    unsafe {
        advance_lanes(&mut lanes, &of_lanes);
    }
    for (lane, state) in states.iter_mut().enumerate() {
        for (word, value) in lanes.iter().zip(state) {
            *value = word[lane];
        }
    }
}

// Neither here nor below does a closure go to `map`, whose own code may not use these instructions:
// where it is not compiled into its caller, each vector takes the way through memory.
#[target_feature(enable = "avx512f")]
fn advance_lanes(lanes: &mut [[u32; LANES]; 4], runs: &[&[u8]; LANES]) {
    let [a, b, c, d] = &*lanes;
    let (mut a, mut b) = (load(a.as_ptr().cast()), load(b.as_ptr().cast()));
    let (mut c, mut d) = (load(c.as_ptr().cast()), load(d.as_ptr().cast()));
    for block in 0..runs[0].len() / BLOCK {
        let words = words_of(runs, block * BLOCK);
        let before = (a, b, c, d);
        macro_rules! step {
            ($function:ident, $a:ident, $b:ident, $c:ident, $d:ident, $word:literal, $rotation:literal, $t:expr) => {
                let sum = _mm512_add_epi32($a, _mm512_add_epi32(words[$word], _mm512_set1_epi32(T[$t].cast_signed())));
                let sum = _mm512_add_epi32(sum, function!($function, $b, $c, $d));
                $a = _mm512_add_epi32(_mm512_rol_epi32::<$rotation>(sum), $b);
            };
        }
        macro_rules! function {
            (f, $b:ident, $c:ident, $d:ident) => {
                _mm512_ternarylogic_epi32::<F>($b, $c, $d)
            };
            (g, $b:ident, $c:ident, $d:ident) => {
                _mm512_ternarylogic_epi32::<G>($b, $c, $d)
            };
            (h, $b:ident, $c:ident, $d:ident) => {
                _mm512_ternarylogic_epi32::<H>($b, $c, $d)
            };
            (i, $b:ident, $c:ident, $d:ident) => {
                _mm512_ternarylogic_epi32::<I>($b, $c, $d)
            };
        }
        steps!(step, a, b, c, d);
        a = _mm512_add_epi32(a, before.0);
        b = _mm512_add_epi32(b, before.1);
        c = _mm512_add_epi32(c, before.2);
        d = _mm512_add_epi32(d, before.3);
    }
    for (word, value) in lanes.iter_mut().zip([a, b, c, d]) {
        // SAFETY: the place has the 64 bytes of a vector; the store asks for no alignment.
        #[allow(unsafe_code)]
        unsafe {
            _mm512_storeu_si512(word.as_mut_ptr().cast(), value);
        }
    }
}

/// Sixteen words of each lane's block at `at`: vector `n` holds word `n` of every lane.
#[target_feature(enable = "avx512f")]
#[inline]
fn words_of(runs: &[&[u8]; LANES], at: usize) -> [__m512i; 16] {
    let mut rows = [_mm512_setzero_si512(); 16];
    for (row, run) in rows.iter_mut().zip(runs) {
        let block: &[u8; BLOCK] = run[at..].first_chunk().expect("runs are whole blocks of one length");
        *row = load(block.as_ptr());
    }
    transposed(rows)
}

/// The 64 bytes at a place that has them; from an array's or a block's first byte only.
#[target_feature(enable = "avx512f")]
#[inline]
fn load(place: *const u8) -> __m512i {
    // SAFETY: both callers give the first byte of 64 that they borrow; the load asks for no
    // alignment.
    #[allow(unsafe_code)]
    unsafe {
        _mm512_loadu_si512(place.cast())
    }
}

/// Rows become columns: first pairs and quadruples within 128 bits, then the four quarters.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed(rows: [__m512i; 16]) -> [__m512i; 16] {
    let mut pairs = rows;
    for four in 0..8 {
        let (upper, lower) = (rows[2 * four], rows[2 * four + 1]);
        pairs[2 * four] = _mm512_unpacklo_epi32(upper, lower);
        pairs[2 * four + 1] = _mm512_unpackhi_epi32(upper, lower);
    }
    // Quad `4 r + w` holds word `w`, `4 + w`, `8 + w` and `12 + w` of the lanes `4 r` to `4 r + 3`.
    let mut quads = pairs;
    for row in 0..4 {
        let (low, high) = (pairs[4 * row], pairs[4 * row + 1]);
        let (next_low, next_high) = (pairs[4 * row + 2], pairs[4 * row + 3]);
        quads[4 * row] = _mm512_unpacklo_epi64(low, next_low);
        quads[4 * row + 1] = _mm512_unpackhi_epi64(low, next_low);
        quads[4 * row + 2] = _mm512_unpacklo_epi64(high, next_high);
        quads[4 * row + 3] = _mm512_unpackhi_epi64(high, next_high);
    }
    let mut columns = quads;
    for word in 0..4 {
        let (q0, q1, q2, q3) = (quads[word], quads[4 + word], quads[8 + word], quads[12 + word]);
        let (even_01, odd_01) = (_mm512_shuffle_i32x4::<0x88>(q0, q1), _mm512_shuffle_i32x4::<0xdd>(q0, q1));
        let (even_23, odd_23) = (_mm512_shuffle_i32x4::<0x88>(q2, q3), _mm512_shuffle_i32x4::<0xdd>(q2, q3));
        columns[word] = _mm512_shuffle_i32x4::<0x88>(even_01, even_23);
        columns[8 + word] = _mm512_shuffle_i32x4::<0xdd>(even_01, even_23);
        columns[4 + word] = _mm512_shuffle_i32x4::<0x88>(odd_01, odd_23);
        columns[12 + word] = _mm512_shuffle_i32x4::<0xdd>(odd_01, odd_23);
    }
    columns
}
