//! Byte planes: any bytes in any words come back, numbers become planes and other bytes do not,
//! and whatever is no segment of planes is refused.

use proptest::prelude::*;

use super::noise;
use delta_codec::planes::{self, Width, WordLayout};
use delta_codec::{SEGMENT_LEN_MAX, whole};

const WIDTHS: [Width; 3] = [Width::Two, Width::Four, Width::Eight];

/// Every way to see words.
fn ways() -> impl Iterator<Item = WordLayout> {
    WIDTHS.into_iter().flat_map(|width| {
        (0..width as usize).flat_map(move |head| [false, true].map(|rotated| WordLayout { width, head, rotated }))
    })
}

fn any_words() -> impl Strategy<Value = WordLayout> {
    (0usize..3, any::<bool>(), 0usize..8).prop_map(|(width, rotated, head)| {
        let width = WIDTHS[width];
        WordLayout { width, head: head % width as usize, rotated }
    })
}

/// Made-up weights: the sum of four uniform numbers, about 0.
fn weights(count: usize, seed: u64) -> Vec<f64> {
    let bytes = noise(count * 16, seed);
    let part = |draw: &[u8; 4]| f64::from(u32::from_le_bytes(*draw)) / f64::from(u32::MAX) - 0.5;
    bytes.as_chunks::<16>().0.iter().map(|draw| draw.as_chunks().0.iter().map(part).sum::<f64>() * 0.03).collect()
}

fn fp32(count: usize, seed: u64) -> Vec<u8> {
    weights(count, seed).into_iter().flat_map(|value| (value as f32).to_le_bytes()).collect()
}

fn bf16(count: usize, seed: u64) -> Vec<u8> {
    fp32(count, seed).chunks_exact(4).flat_map(|word| [word[2], word[3]]).collect()
}

fn fp64(count: usize, seed: u64) -> Vec<u8> {
    // Sums of so few bits end in zeros.
    let low = noise(count * 4, seed + 1);
    let whole = |(value, low): (f64, &[u8; 4])| {
        f64::from_bits(value.to_bits() ^ u64::from(u32::from_le_bytes(*low))).to_le_bytes()
    };
    weights(count, seed).into_iter().zip(low.as_chunks().0).flat_map(whole).collect()
}

fn zstd_len(plain: &[u8]) -> usize {
    whole::compress(plain, 1, plain.len(), &mut Vec::new()).unwrap_or(plain.len())
}

/// What is stored of `plain`, which has been read again.
fn stored(plain: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![7, 7];
    let len = planes::compress(plain, 1, zstd_len(plain), &mut bytes)?;
    assert_eq!(bytes.len(), len + 2, "appended to what was there");
    assert_eq!(comes_back(&bytes[2..], plain.len()), plain);
    Some(bytes.split_off(2))
}

fn comes_back(stored: &[u8], plain_len: usize) -> Vec<u8> {
    let mut plain = vec![0xa5; plain_len];
    planes::decompress(stored, &mut plain).expect("what was taken apart comes together");
    plain
}

#[test]
fn weights_take_no_more_than_the_published_figures() {
    let share = |plain: &[u8]| stored(plain).expect("planes").len() as f64 / plain.len() as f64;
    for (width, plain, share_max) in
        [(2, bf16(1 << 21, 1), 0.67), (4, fp32(1 << 20, 2), 0.84), (8, fp64(1 << 19, 3), 0.90)]
    {
        let (found, zstd) = (share(&plain), zstd_len(&plain) as f64 / plain.len() as f64);
        assert!(found <= share_max && zstd > found + 0.05, "{width}: {found} of planes, {zstd} of zstd");
        assert_eq!(stored(&plain).expect("planes")[0], width);
    }
}

#[test]
fn words_are_found_wherever_the_first_one_begins_and_whatever_is_left_at_the_end() {
    for (width, plain) in [(2, bf16(60_000, 4)), (4, fp32(60_000, 5))] {
        for head in 0..width {
            for tail in 0..width {
                let shifted = [&noise(head, 6), &plain[..], &noise(tail, 7)].concat();
                let stored = stored(&shifted).unwrap_or_else(|| panic!("{width} {head} {tail}"));
                assert!(stored.len() < shifted.len() / 100 * 86, "{width} {head} {tail}: {}", stored.len());
                assert_eq!((stored[0], stored[1], stored[2]), (width as u8, 1, head as u8), "the exponent is a byte");
            }
        }
    }
}

#[test]
fn text_and_noise_and_short_content_are_no_numbers() {
    let text = b"It is a truth universally acknowledged, that a single man in possession. ".repeat(1000);
    let letters: Vec<u8> = noise(1 << 20, 8).into_iter().map(|byte| b' ' + byte % 64).collect();
    for plain in [&text, &letters, &noise(1 << 20, 9), &fp32(500, 10), &Vec::new()] {
        assert_eq!(planes::guess(plain, zstd_len(plain)), None);
    }
}

#[test]
fn what_is_not_shorter_than_it_must_be_leaves_nothing_behind() {
    let plain = fp32(50_000, 11);
    let words = WordLayout { width: Width::Four, head: 0, rotated: true };
    let mut out = vec![1, 2, 3];
    let len = planes::compress_as(&plain, words, 1, usize::MAX, &mut out).expect("any length is welcome");
    out.truncate(3);
    assert_eq!(planes::compress_as(&plain, words, 1, len, &mut out), None);
    assert_eq!(planes::compress_as(&plain[..3], words, 1, usize::MAX, &mut out), None, "no word");
    let outside = WordLayout { head: 4, ..words };
    assert_eq!(planes::compress_as(&plain, outside, 1, usize::MAX, &mut out), None, "no such head");
    assert_eq!(out, [1, 2, 3]);
}

#[test]
fn every_effort_and_a_full_segment_come_back() {
    let plain = bf16(SEGMENT_LEN_MAX / 2, 12);
    for level in [1, 3, 19] {
        let mut bytes = Vec::new();
        let len = planes::compress(&plain, level, plain.len(), &mut bytes).expect("planes");
        assert!(len < plain.len() / 100 * 68, "level {level}: {len}");
        assert_eq!(comes_back(&bytes, plain.len()), plain);
    }
}

#[test]
fn smooth_numbers_are_matched_and_exponents_only_counted() {
    // A ramp: its planes repeat, which an entropy coder alone cannot use.
    let ramp: Vec<u8> = (0..200_000u32).flat_map(|at| (1.0 + at as f32 / 65536.0).to_le_bytes()).collect();
    let words = WordLayout { width: Width::Four, head: 0, rotated: false };
    let mut bytes = Vec::new();
    let len = planes::compress_as(&ramp, words, 1, usize::MAX, &mut bytes).expect("planes");
    assert!(len < ramp.len() / 8, "{len}");
    assert_eq!(comes_back(&bytes, ramp.len()), ramp);
}

#[test]
fn other_lengths_than_the_segments_are_refused() {
    let plain = fp32(5000, 13);
    let words = WordLayout { width: Width::Four, head: 1, rotated: true };
    let mut bytes = Vec::new();
    planes::compress_as(&plain, words, 1, usize::MAX, &mut bytes).expect("planes");
    for len in [0, 1, 4, plain.len() - 1, plain.len() + 1, plain.len() + 4, SEGMENT_LEN_MAX] {
        assert!(planes::decompress(&bytes, &mut vec![0; len]).is_err(), "{len}");
    }
    for cut in 0..bytes.len() {
        assert!(planes::decompress(&bytes[..cut], &mut vec![0; plain.len()]).is_err(), "cut to {cut}");
    }
    bytes.push(0);
    assert!(planes::decompress(&bytes, &mut vec![0; plain.len()]).is_err());
}

proptest! {
    #[test]
    fn any_bytes_come_back_in_any_words(words in any_words(), plain in prop::collection::vec(any::<u8>(), 0..300), copies in 1usize..40) {
        let plain = plain.repeat(copies);
        let mut bytes = Vec::new();
        match planes::compress_as(&plain, words, 1, usize::MAX, &mut bytes) {
            Some(len) => {
                prop_assert_eq!(len, bytes.len());
                prop_assert_eq!(comes_back(&bytes, plain.len()), plain);
            }
            None => prop_assert!(plain.len() < words.head + words.width as usize),
        }
    }

    #[test]
    fn numbers_come_back_whatever_was_guessed(seed in any::<u32>(), head in 0usize..8, count in 2000usize..9000, which in 0usize..3) {
        let numbers = [bf16, fp32, fp64][which](count, seed.into());
        let plain = [noise(head, 1), numbers].concat();
        stored(&plain);
    }

    #[test]
    fn changed_planes_never_panic(way in 0usize..28, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let plain = fp32(3000, 14);
        let mut bytes = Vec::new();
        planes::compress_as(&plain, ways().nth(way).expect("a way"), 1, usize::MAX, &mut bytes).expect("planes");
        for (at, byte) in changes {
            let at = at.index(bytes.len().min(200));
            bytes[at] = byte;
        }
        let _ = planes::decompress(&bytes, &mut vec![0; plain.len()]);
    }

    #[test]
    fn made_up_planes_never_panic(head in prop::collection::vec(0u8..9, 4), bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..120), len in 0usize..200) {
        let _ = planes::decompress(&[head, bytes].concat(), &mut vec![0; len]);
    }
}
