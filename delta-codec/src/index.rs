//! The sampled block index: which words stand at every k-th position of a window.
//!
//! An array of 32-bit entries without chains: 10 check bits, never all 0, so that 0 means empty,
//! and a 22-bit block number. The first occurrence of a word wins, because the window is filled
//! from its end. Nothing rolls: the base is hashed only where it is indexed, and the target is
//! hashed at any position.

use crate::effort::{BLOCK_BITS, Effort, WordLen};
use crate::prefetch::prefetch;
use crate::word;

/// The bits of an entry that name a block.
const BLOCK_MASK: u32 = (1 << BLOCK_BITS) - 1;
/// Bits of the hash kept beside the block, so that a probe seldom touches the base in vain.
const CHECK_MASK: u32 = (1 << (32 - BLOCK_BITS)) - 1;
/// Smallest and largest table, as powers of two.
const SLOT_BITS_MIN: u32 = 8;
const SLOT_BITS_MAX: u32 = 23;
/// From this size on a table is worth large pages, of which it has to hold some whole ones.
#[cfg(target_os = "linux")]
const HUGE_TABLE_LEN_MIN: usize = 4 << 20;

/// The sampled block index of one window at one effort's word size. Immutable and shareable: one
/// base serves many uploads.
#[derive(Debug)]
pub struct BaseIndex {
    slots: Vec<u32>,
    slot_shift: u32,
    stride: usize,
    word_len: WordLen,
}

/// The dimensions of an index, which follow from the window's length alone.
struct Shape {
    stride: usize,
    blocks: usize,
    slot_bits: u32,
}

impl Shape {
    fn of(window_len: usize, effort: Effort) -> Self {
        let tuning = effort.tuning();
        let mut stride = tuning.stride;
        while window_len.div_ceil(stride) > tuning.blocks_max {
            stride *= 2;
        }
        let blocks = window_len.checked_sub(tuning.word_len.bytes()).map_or(0, |last_start| last_start / stride + 1);
        // A fuller table loses a word now and then, a larger one costs a cache miss more often.
        let slots = (blocks + blocks / 3).next_power_of_two();
        let slot_bits = slots.trailing_zeros().clamp(SLOT_BITS_MIN, SLOT_BITS_MAX);
        Self { stride, blocks, slot_bits }
    }
}

impl BaseIndex {
    /// Indexes `window` for encoders of `effort`. O(window length / stride), one cache miss per
    /// indexed word.
    ///
    /// At most [`crate::WINDOW_LEN_MAX`] bytes can be encoded against; a longer window is indexed
    /// all the same, ever more sparsely.
    pub fn build(window: &[u8], effort: Effort) -> Self {
        let shape = Shape::of(window.len(), effort);
        let mut index = Self {
            slots: vec![0; 1 << shape.slot_bits],
            slot_shift: 64 - shape.slot_bits,
            stride: shape.stride,
            word_len: effort.tuning().word_len,
        };
        advise_huge_pages(&mut index.slots);
        match index.word_len {
            WordLen::Sixteen => index.fill::<16>(window, shape.blocks),
            WordLen::ThirtyTwo => index.fill::<32>(window, shape.blocks),
        }
        index
    }

    fn fill<const WORD: usize>(&mut self, window: &[u8], blocks: usize) {
        for block in (0..blocks).rev() {
            if let Some(word) = window[block * self.stride..].first_chunk::<WORD>() {
                let hash = word::hash(word);
                self.slots[(hash >> self.slot_shift) as usize] = check_of(hash) << BLOCK_BITS | block as u32;
            }
        }
    }

    /// Where in the window a word of this hash was seen first, if its slot was not taken by another
    /// word. A guess: the bytes must be compared.
    #[inline(always)]
    pub(crate) fn look_up(&self, hash: u64) -> Option<usize> {
        let entry = self.slots[(hash >> self.slot_shift) as usize];
        (entry >> BLOCK_BITS == check_of(hash)).then(|| ((entry & BLOCK_MASK) as usize).wrapping_mul(self.stride))
    }

    /// Starts to fetch what [`BaseIndex::look_up`] of this hash will read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.slots, (hash >> self.slot_shift) as usize);
    }

    pub(crate) fn word_len(&self) -> WordLen {
        self.word_len
    }

    /// Bytes of memory this index holds.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.slots.capacity() * size_of::<u32>()
    }

    /// Bytes of memory an index of a window of `window_len` bytes will hold; at most 32 MiB and a
    /// few words.
    pub fn memory_bytes_for(window_len: usize, effort: Effort) -> usize {
        size_of::<Self>() + (size_of::<u32>() << Shape::of(window_len, effort).slot_bits)
    }
}

/// Asks for large pages behind a table that is touched all over: with small ones nearly every
/// access also misses the processor's table of pages.
fn advise_huge_pages(slots: &mut [u32]) {
    #[cfg(target_os = "linux")]
    if size_of_val(slots) >= HUGE_TABLE_LEN_MIN {
        use rustix::mm::{Advice, madvise};
        let bytes = slots.as_mut_ptr().cast::<u8>();
        let skipped = bytes.align_offset(rustix::param::page_size());
        let len = size_of_val(slots) - skipped;
        // SAFETY: the range begins `skipped` bytes into the slice, which is longer than a page, and
        // ends with it. The advice changes no content, and nothing is promised about it: a kernel
        // may refuse.
        #[allow(unsafe_code)]
        let _ = unsafe { madvise(bytes.add(skipped).cast(), len, Advice::LinuxHugepage) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = slots;
}

/// The check bits of a hash. Odd, so that an empty slot matches none: one comparison that almost
/// always fails, which a processor can predict.
#[inline(always)]
fn check_of(hash: u64) -> u32 {
    hash as u32 & CHECK_MASK | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORTS: [Effort; 4] = [Effort::Fast, Effort::Balanced, Effort::High, Effort::Max];

    #[test]
    fn memory_is_at_most_32_mib_for_any_window() {
        for effort in EFFORTS {
            for bits in 0..45 {
                for len in [(1usize << bits) - 1, 1 << bits, (1 << bits) + 1] {
                    assert!(BaseIndex::memory_bytes_for(len, effort) <= (32 << 20) + 64, "{effort:?} {len}");
                }
            }
        }
    }

    #[test]
    fn memory_is_what_was_foretold() {
        for effort in EFFORTS {
            for len in [0, 1, 15, 16, 17, 33, 4096, 1_000_000] {
                let window = vec![7u8; len];
                assert_eq!(BaseIndex::build(&window, effort).memory_bytes(), BaseIndex::memory_bytes_for(len, effort));
            }
        }
    }

    #[test]
    fn the_first_occurrence_of_a_word_wins() {
        let mut window = vec![0u8; 1024];
        window[256..272].copy_from_slice(b"sixteen letters!");
        window[512..528].copy_from_slice(b"sixteen letters!");
        let index = BaseIndex::build(&window, Effort::Balanced);
        assert_eq!(index.look_up(word::hash(b"sixteen letters!")), Some(256));
        assert_eq!(index.look_up(word::hash(&[0; 16])), Some(0));
    }
}
