//! Words taken apart into planes and put together again.

use std::ops::Range;

/// Most bytes of a word. Part of the format (docs/format/blob-v1.md §6.3).
pub(super) const WIDTH_MAX: usize = 8;

/// Words whose bytes stay in the nearest cache while each plane passes over them.
const BLOCK_WORDS: usize = 2048;

/// How many bytes a word has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// bf16, fp16, 16-bit samples.
    Two = 2,
    /// fp32.
    Four = 4,
    /// fp64.
    Eight = 8,
}

/// How words lie in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordLayout {
    /// Bytes of a word.
    pub width: Width,
    /// Bytes before the first word; less than the width.
    pub head: usize,
    /// Whether words are rotated left by one bit, which puts a float's exponent into one byte and
    /// its sign to the other end.
    pub rotated: bool,
}

impl WordLayout {
    /// Where the words of `plain_len` bytes are, and how many; `None` when there is none.
    pub(super) fn place(self, plain_len: usize) -> Option<(Range<usize>, usize)> {
        let width = self.width as usize;
        let count = plain_len.checked_sub(self.head)? / width;
        (self.head < width && count > 0).then(|| (self.head..self.head + count * width, count))
    }
}

/// Writes the planes of `bytes`, which are whole words, one after another into `planes`, which is
/// as long.
pub(super) fn split(words: WordLayout, bytes: &[u8], planes: &mut [u8]) {
    match words.width {
        Width::Two => two::split(bytes, words.rotated, planes),
        Width::Four => four::split(bytes, words.rotated, planes),
        Width::Eight => eight::split(bytes, words.rotated, planes),
    }
}

/// The opposite of [`split`]: `planes` has a plane for each byte of a word, each with a byte for
/// each word.
pub(super) fn merge(words: WordLayout, planes: &[&[u8]; WIDTH_MAX], bytes: &mut [u8]) {
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
