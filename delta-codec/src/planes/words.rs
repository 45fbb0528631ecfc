//! Words taken apart into planes and put together again.

use super::{WIDTH_MAX, Width, Words};

/// Words whose bytes stay in the nearest cache while each plane passes over them.
const BLOCK_WORDS: usize = 2048;

/// Writes the planes of `bytes`, which are whole words, one after another into `planes`, which is
/// as long.
pub(super) fn split(words: Words, bytes: &[u8], planes: &mut [u8]) {
    match words.width {
        Width::Two => two::split(bytes, words.rotated, planes),
        Width::Four => four::split(bytes, words.rotated, planes),
        Width::Eight => eight::split(bytes, words.rotated, planes),
    }
}

/// The opposite of [`split`]: `planes` has a plane for each byte of a word, each with a byte for
/// each word.
pub(super) fn merge(words: Words, planes: &[&[u8]; WIDTH_MAX], bytes: &mut [u8]) {
    match words.width {
        Width::Two => two::merge(planes, words.rotated, bytes),
        Width::Four => four::merge(planes, words.rotated, bytes),
        Width::Eight => eight::merge(planes, words.rotated, bytes),
    }
}

macro_rules! of_width {
    ($name:ident, $word:ty, $width:literal) => {
        mod $name {
            use super::{BLOCK_WORDS, WIDTH_MAX};

            pub(super) fn split(bytes: &[u8], rotated: bool, planes: &mut [u8]) {
                let (words, _) = bytes.as_chunks::<$width>();
                let by = u32::from(rotated);
                for (number, block) in words.chunks(BLOCK_WORDS).enumerate() {
                    for (place, plane) in planes.chunks_exact_mut(words.len()).enumerate() {
                        let shift = 8 * place as u32;
                        let plane = &mut plane[number * BLOCK_WORDS..][..block.len()];
                        for (byte, word) in plane.iter_mut().zip(block) {
                            *byte = (<$word>::from_le_bytes(*word).rotate_left(by) >> shift) as u8;
                        }
                    }
                }
            }

            pub(super) fn merge(planes: &[&[u8]; WIDTH_MAX], rotated: bool, bytes: &mut [u8]) {
                let (words, _) = bytes.as_chunks_mut::<$width>();
                let by = u32::from(rotated);
                let planes: [&[u8]; $width] = std::array::from_fn(|place| &planes[place][..words.len()]);
                for (at, word) in words.iter_mut().enumerate() {
                    let mut whole: $word = 0;
                    for place in 0..$width {
                        whole |= <$word>::from(planes[place][at]) << (8 * place);
                    }
                    *word = whole.rotate_right(by).to_le_bytes();
                }
            }
        }
    };
}

of_width!(two, u16, 2);
of_width!(four, u32, 4);
of_width!(eight, u64, 8);
