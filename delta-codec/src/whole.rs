//! Segments stored without a base: zstd frames, and the guess whether they are worth trying.

use std::cell::RefCell;

use crate::error::DecodeError;
use crate::zstd::{Compressor, Decompressor, FrameKind, Settings};

thread_local! {
    static COMPRESSOR: RefCell<Compressor> = RefCell::default();
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::default();
}

/// Bytes that this module keeps for the calling thread.
pub fn memory_bytes() -> usize {
    COMPRESSOR.with_borrow(Compressor::memory_bytes) + DECOMPRESSOR.with_borrow(Decompressor::memory_bytes)
}

/// Gives back what this module keeps for the calling thread.
pub fn forget() {
    COMPRESSOR.take();
    DECOMPRESSOR.take();
}

/// Appends one zstd frame of `plain` at `level` to `out`, or returns `None` with `out` as it was
/// when the frame would not be shorter than `len_max`.
///
/// The frame is an ordinary one that states its content size. The context it is made in stays with
/// the thread.
pub fn compress(plain: &[u8], level: i32, len_max: usize, out: &mut Vec<u8>) -> Option<usize> {
    compress_with(plain, Settings::at_level(level), len_max, out)
}

/// As [`compress`] with other settings than a level's own.
pub(crate) fn compress_with(plain: &[u8], settings: Settings, len_max: usize, out: &mut Vec<u8>) -> Option<usize> {
    COMPRESSOR.with_borrow_mut(|zstd| {
        let frame = zstd.compress(FrameKind::Ordinary, plain, &[], settings, len_max.checked_sub(1)?)?;
        out.extend_from_slice(frame);
        Some(frame.len())
    })
}

/// Fills `plain` from one zstd frame (window at most 2^27 bytes, content exactly `plain.len()`).
///
/// # Errors
/// [`DecodeError`] for anything else: another size, a dictionary, a second frame, bytes after the
/// frame.
pub fn decompress(frame: &[u8], plain: &mut [u8]) -> Result<(), DecodeError> {
    DECOMPRESSOR.with_borrow_mut(|zstd| zstd.decompress(FrameKind::Ordinary, frame, &[], plain))
}

/// Bytes of one sampled piece, and how many of them there are.
const PIECE_LEN: usize = 1024;
const PIECES: usize = 8;
/// Below this length a guess costs as much as trying.
const GUESS_LEN_MIN: usize = 256;
/// The sampled order-0 entropy, as a part of that of random bytes, from which data looks random …
const RANDOM_ENTROPY_SHARE: f64 = 0.985;
/// … unless more than this many four-byte words of the sample come twice. In random bytes of this
/// amount one in a hundred samples has a single pair.
const PAIRS_MAX: usize = 2;
/// How far a sampled word is looked for outside of its piece.
const FAR_LEN: usize = 128 << 10;
const FAR_WORD_LEN: usize = 12;

/// True when sampled pieces of `plain` look random: compressing it again would gain nothing.
///
/// A sample of 8 KiB is judged by its histogram and by repeated words; if that looks random, three
/// words are looked for in the 128 KiB after them, since a period of a few KiB has a flat histogram
/// and fits no piece. Constant cost, whatever the length.
pub fn looks_incompressible(plain: &[u8]) -> bool {
    if plain.len() < GUESS_LEN_MIN {
        return false;
    }
    let mut sample = Vec::with_capacity(PIECES * PIECE_LEN);
    if plain.len() <= PIECES * PIECE_LEN {
        sample.extend_from_slice(plain);
    } else {
        for piece in 0..PIECES {
            let start = (plain.len() - PIECE_LEN) / (PIECES - 1) * piece;
            sample.extend_from_slice(&plain[start..start + PIECE_LEN]);
        }
    }
    entropy_share(&sample) >= RANDOM_ENTROPY_SHARE && pairs(&sample) <= PAIRS_MAX && !repeats_far(plain)
}

/// Order-0 entropy of `sample`, relative to what random bytes of the same amount show.
fn entropy_share(sample: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for &byte in sample {
        counts[usize::from(byte)] += 1;
    }
    let len = sample.len() as f64;
    let bits: f64 = counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| f64::from(count) * (len / f64::from(count)).log2())
        .sum();
    // A sample of n uniform bytes shows 255 / (2 n ln 2) bits less than 8, to first order.
    let random = 8.0 - 255.0 / (2.0 * len * std::f64::consts::LN_2);
    bits / len / random
}

/// How many four-byte words of the sample equal an earlier one.
fn pairs(sample: &[u8]) -> usize {
    const SLOTS_LOG: u32 = 14;
    let mut last_seen = vec![0u32; 1 << SLOTS_LOG];
    let mut pairs = 0;
    for word in sample.windows(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])) {
        let slot = &mut last_seen[(word.wrapping_mul(0x9e37_79b1) >> (32 - SLOTS_LOG)) as usize];
        pairs += usize::from(*slot == word);
        *slot = word;
    }
    pairs
}

/// Whether one of three words comes again soon after itself.
fn repeats_far(plain: &[u8]) -> bool {
    (1..4).any(|quarter| {
        let at = plain.len() / 4 * (quarter - 1);
        let end = plain.len().min(at + FAR_LEN);
        let Some((word, rest)) = plain[at..end].split_first_chunk::<FAR_WORD_LEN>() else { return false };
        memchr::memmem::find(rest, word).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::noise;

    #[test]
    fn frames_come_back_and_are_bounded() {
        let plain: Vec<u8> = b"so it goes, ".iter().copied().cycle().take(100_000).collect();
        let mut out = vec![1, 2, 3];
        let len = compress(&plain, 1, plain.len(), &mut out).expect("repetition compresses");
        assert_eq!(out.len(), len + 3);
        let mut again = vec![0; plain.len()];
        decompress(&out[3..], &mut again).expect("what was compressed decompresses");
        assert_eq!(again, plain);
        assert_eq!(compress(&plain, 1, len, &mut out), None, "not shorter than itself");
        assert_eq!(out.len(), len + 3);
    }

    #[test]
    fn noise_does_not_fit_into_less_than_itself() {
        let plain = noise(50_000, 1);
        let mut out = Vec::new();
        assert_eq!(compress(&plain, 3, plain.len(), &mut out), None);
        assert!(out.is_empty());
    }

    #[test]
    fn a_frame_of_another_size_or_with_a_tail_or_cut_is_an_error() {
        let plain = vec![5u8; 1000];
        let mut frame = Vec::new();
        compress(&plain, 1, 1000, &mut frame).expect("zeros compress");
        assert!(decompress(&frame, &mut [0; 999]).is_err());
        assert!(decompress(&frame, &mut [0; 1001]).is_err());
        assert!(decompress(&frame[..frame.len() - 1], &mut [0; 1000]).is_err());
        frame.push(0);
        assert!(decompress(&frame, &mut [0; 1000]).is_err());
        frame.pop();
        let twice = [frame.clone(), frame].concat();
        assert!(decompress(&twice, &mut [0; 2000]).is_err());
        assert!(decompress(&[], &mut []).is_err());
    }

    #[test]
    fn noise_looks_incompressible_at_any_length() {
        for len in [256, 1000, 8192, 8193, 65_536, 1_000_000] {
            assert!(looks_incompressible(&noise(len, 1)), "{len}");
        }
    }

    #[test]
    fn a_flat_histogram_is_not_enough() {
        let counting: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
        assert!(!looks_incompressible(&counting));
        let period: Vec<u8> = noise(40_000, 1).into_iter().cycle().take(1 << 20).collect();
        assert!(!looks_incompressible(&period));
    }

    #[test]
    fn text_and_zeros_and_hex_are_worth_trying() {
        assert!(!looks_incompressible(&[0; 5000]));
        assert!(!looks_incompressible(&b"The quick brown fox jumps over the lazy dog. ".repeat(50)));
        let hex: Vec<u8> = noise(100_000, 1).iter().map(|byte| b"0123456789abcdef"[usize::from(byte & 15)]).collect();
        assert!(!looks_incompressible(&hex));
        assert!(!looks_incompressible(&[]));
    }
}
