//! The hash of one word: multiply-and-fold over eight-byte halves, as in wyhash and xxh3. Not part
//! of the format, not keyed.

/// Multipliers with about as many ones as zeros in every byte (the wyhash primes and one of the
/// same kind).
const MULTIPLIERS: [u64; 4] =
    [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];
/// 2^64 divided by the golden ratio: spreads the folded value into the upper bits, which choose the
/// table slot.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a word of 16 or 32 bytes.
#[inline(always)]
pub(crate) fn hash<const WORD: usize>(word: &[u8; WORD]) -> u64 {
    const { assert!(WORD == 16 || WORD == 32) };
    let (halves, _) = word.as_chunks::<8>();
    let mut value =
        fold(u64::from_le_bytes(halves[0]) ^ MULTIPLIERS[0], u64::from_le_bytes(halves[1]) ^ MULTIPLIERS[1]);
    if WORD == 32 {
        value = value.rotate_left(17)
            ^ fold(u64::from_le_bytes(halves[2]) ^ MULTIPLIERS[2], u64::from_le_bytes(halves[3]) ^ MULTIPLIERS[3]);
    }
    value.wrapping_mul(GOLDEN)
}
