//! Eight streams at once, a 32-bit lane each.

use crate::rounds::{BLOCK, State, T, steps};
use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_andnot_si256, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_si256, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
    _mm256_xor_si256,
};

/// Streams that advance together.
pub(crate) const LANES: usize = 8;

/// Whether this processor has what [`advance`] needs.
pub(crate) fn is_there() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
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
    // SAFETY: the assertion above says that the processor has AVX2.
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

// No closure goes to `map`, as in `avx512.rs`.
#[target_feature(enable = "avx2")]
fn advance_lanes(lanes: &mut [[u32; LANES]; 4], runs: &[&[u8]; LANES]) {
    let [a, b, c, d] = &*lanes;
    let (mut a, mut b) = (load(a.as_ptr().cast()), load(b.as_ptr().cast()));
    let (mut c, mut d) = (load(c.as_ptr().cast()), load(d.as_ptr().cast()));
    let ones = _mm256_set1_epi32(-1);
    for block in 0..runs[0].len() / BLOCK {
        let (at, before) = (block * BLOCK, (a, b, c, d));
        let [low, high] = [words_of(runs, at), words_of(runs, at + BLOCK / 2)];
        macro_rules! step {
            ($function:ident, $a:ident, $b:ident, $c:ident, $d:ident, $word:literal, $rotation:literal, $t:expr) => {
                let word = if $word < 8 { low[$word % 8] } else { high[$word % 8] };
                let sum = _mm256_add_epi32($a, _mm256_add_epi32(word, _mm256_set1_epi32(T[$t].cast_signed())));
                let sum = _mm256_add_epi32(sum, function!($function, $b, $c, $d));
                let turned =
                    _mm256_or_si256(_mm256_slli_epi32::<$rotation>(sum), _mm256_srli_epi32::<{ 32 - $rotation }>(sum));
                $a = _mm256_add_epi32(turned, $b);
            };
        }
        macro_rules! function {
            (f, $b:ident, $c:ident, $d:ident) => {
                _mm256_xor_si256($d, _mm256_and_si256($b, _mm256_xor_si256($c, $d)))
            };
            (g, $b:ident, $c:ident, $d:ident) => {
                _mm256_or_si256(_mm256_and_si256($b, $d), _mm256_andnot_si256($d, $c))
            };
            (h, $b:ident, $c:ident, $d:ident) => {
                _mm256_xor_si256($b, _mm256_xor_si256($c, $d))
            };
            (i, $b:ident, $c:ident, $d:ident) => {
                _mm256_xor_si256($c, _mm256_or_si256($b, _mm256_xor_si256($d, ones)))
            };
        }
        steps!(step, a, b, c, d);
        a = _mm256_add_epi32(a, before.0);
        b = _mm256_add_epi32(b, before.1);
        c = _mm256_add_epi32(c, before.2);
        d = _mm256_add_epi32(d, before.3);
    }
    for (word, value) in lanes.iter_mut().zip([a, b, c, d]) {
        // SAFETY: the place has the 32 bytes of a vector; the store asks for no alignment.
        #[allow(unsafe_code)]
        unsafe {
            _mm256_storeu_si256(word.as_mut_ptr().cast(), value);
        }
    }
}

/// Eight words of each lane's run at `at`: vector `n` holds word `n` of every lane.
#[target_feature(enable = "avx2")]
#[inline]
fn words_of(runs: &[&[u8]; LANES], at: usize) -> [__m256i; 8] {
    let mut rows = [_mm256_setzero_si256(); 8];
    for (row, run) in rows.iter_mut().zip(runs) {
        let half: &[u8; BLOCK / 2] = run[at..].first_chunk().expect("runs are whole blocks of one length");
        *row = load(half.as_ptr());
    }
    transposed(rows)
}

/// The 32 bytes at a place that has them; from an array's or half a block's first byte only.
#[target_feature(enable = "avx2")]
#[inline]
fn load(place: *const u8) -> __m256i {
    // SAFETY: both callers give the first byte of 32 that they borrow; the load asks for no
    // alignment.
    #[allow(unsafe_code)]
    unsafe {
        _mm256_loadu_si256(place.cast())
    }
}

/// Rows become columns: first pairs and quadruples within 128 bits, then the halves.
#[target_feature(enable = "avx2")]
#[inline]
fn transposed(rows: [__m256i; 8]) -> [__m256i; 8] {
    let mut pairs = rows;
    for two in 0..4 {
        let (upper, lower) = (rows[2 * two], rows[2 * two + 1]);
        pairs[2 * two] = _mm256_unpacklo_epi32(upper, lower);
        pairs[2 * two + 1] = _mm256_unpackhi_epi32(upper, lower);
    }
    let mut quads = pairs;
    for half in 0..2 {
        let (low, high) = (pairs[4 * half], pairs[4 * half + 1]);
        let (next_low, next_high) = (pairs[4 * half + 2], pairs[4 * half + 3]);
        quads[4 * half] = _mm256_unpacklo_epi64(low, next_low);
        quads[4 * half + 1] = _mm256_unpackhi_epi64(low, next_low);
        quads[4 * half + 2] = _mm256_unpacklo_epi64(high, next_high);
        quads[4 * half + 3] = _mm256_unpackhi_epi64(high, next_high);
    }
    let mut columns = quads;
    for word in 0..4 {
        columns[word] = _mm256_permute2x128_si256::<0x20>(quads[word], quads[4 + word]);
        columns[4 + word] = _mm256_permute2x128_si256::<0x31>(quads[word], quads[4 + word]);
    }
    columns
}
