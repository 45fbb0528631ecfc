//! Segments of numbers, stored without a base as byte planes (docs/format/blob-v1.md §6.3).
//!
//! A file of floats hardly shrinks in zstd: in each word a byte of sign and exponent, which takes
//! few values, stands beside bytes of mantissa, which take all. Words are taken apart, so that
//! plane `k` has byte `k` of every word. Each plane is stored by itself: a zstd frame where it
//! shrinks, else as it is, which costs a reader nothing.
//!
//! ```text
//! word, little endian    | mantissa 0 | mantissa 1 | e mantissa 2 | s exponent |
//! rotated left by a bit  | m0 and s   | mantissa 1 | mantissa 2   | exponent   |
//! ```

mod coding;
mod guess;
mod words;

pub use coding::{compress_as, decompress, forget, memory_bytes};
pub use guess::{guess, guess_surely};
pub use words::{Width, WordLayout};

/// Appends the planes of `plain` to `out`, in the words that a sample of it suggests. `None` with
/// `out` as it was when the sample suggests none that would be shorter than `len_max`, or they are
/// not.
///
/// Finding nothing costs some hundredths of a millisecond, whatever the length.
pub fn compress(plain: &[u8], level: i32, len_max: usize, out: &mut Vec<u8>) -> Option<usize> {
    compress_as(plain, guess(plain, len_max)?, level, len_max, out)
}
