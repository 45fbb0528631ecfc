//! Sub runs as distances and words (docs/format/delta-v1.md §5): how far target and base are equal,
//! then the difference of four bytes as one number, and so on.
//!
//! In code that moved, what differs is addresses and offsets of four bytes. As one number their
//! difference has one spelling wherever the same thing is referenced, however its bytes carry; and
//! zstd has to look at a quarter of the bytes, because what is equal is a byte or two instead of a
//! run of zeros.

use crate::compare::{EqualMask, MASK_LEN};
use crate::error::DecodeError;
use crate::varint::{self, Reader};

/// Bytes of a word. Part of the format.
pub(crate) const WORD_LEN: usize = 4;

/// The content of the two streams under construction.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pub(crate) distances: Vec<u8>,
    pub(crate) words: Vec<u8>,
}

impl Words {
    pub(crate) fn clear(&mut self) {
        self.distances.clear();
        self.words.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.distances.len() + self.words.len()
    }

    /// Appends the sub run of the first `len` bytes of both slices, which are equally long and
    /// equal from there on. Returns how many of the bytes behind it its last word takes with it, so
    /// that the word is a whole one: at most three.
    #[inline(always)]
    pub(crate) fn push(&mut self, mask: impl EqualMask, target: &[u8], base: &[u8], len: usize) -> usize {
        // Everything before this is said.
        let mut done = 0usize;
        for chunk in (0..len).step_by(MASK_LEN) {
            let mut differing = match (chunk_of(target, chunk), chunk_of(base, chunk)) {
                (Some(left), Some(right)) => !mask.equal_mask(left, right),
                _ => !mask.equal_mask(&padded(&target[chunk..]), &padded(&base[chunk..])),
            };
            differing &= !0u64 << done.saturating_sub(chunk);
            while differing != 0 {
                let skipped = differing.trailing_zeros() as usize;
                let start = chunk + skipped;
                varint::put(&mut self.distances, (start - done) as u32);
                let word = word_at(target, start).wrapping_sub(word_at(base, start));
                self.words.extend_from_slice(&word.to_le_bytes());
                done = start + WORD_LEN;
                differing &= (!0u64).checked_shl((skipped + WORD_LEN) as u32).unwrap_or(0);
            }
        }
        if done < len {
            varint::put(&mut self.distances, (len - done) as u32);
        }
        done.min(target.len()).saturating_sub(len)
    }
}

#[inline(always)]
fn chunk_of(bytes: &[u8], at: usize) -> Option<&[u8; MASK_LEN]> {
    bytes[at..].first_chunk()
}

#[inline(always)]
fn padded(rest: &[u8]) -> [u8; MASK_LEN] {
    let mut chunk = [0; MASK_LEN];
    chunk[..rest.len()].copy_from_slice(rest);
    chunk
}

/// Four bytes as a number, with zeros for what is not there.
#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u32 {
    match bytes[at..].first_chunk() {
        Some(word) => u32::from_le_bytes(*word),
        None => bytes[at..].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)),
    }
}

/// Takes the content of the two streams, run by run.
#[derive(Debug)]
pub(crate) struct WordReader<'a> {
    distances: Reader<'a>,
    words: std::slice::Iter<'a, [u8; WORD_LEN]>,
}

impl<'a> WordReader<'a> {
    /// The length of `words` is a multiple of [`WORD_LEN`].
    pub(crate) fn new(distances: &'a [u8], words: &'a [u8]) -> Self {
        Self { distances: Reader::new(distances), words: words.as_chunks().0.iter() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.distances.is_empty() && self.words.as_slice().is_empty()
    }

    /// Makes the base bytes of a sub run those of the target.
    #[inline(always)]
    pub(crate) fn add(&mut self, run: &mut [u8]) -> Result<(), DecodeError> {
        let mut at = 0;
        while at < run.len() {
            at += self.distances.instruction_number()? as usize;
            if at == run.len() {
                return Ok(());
            }
            let rest = run.get_mut(at..).ok_or(DecodeError("a distance past the end of its sub run"))?;
            let word = u32::from_le_bytes(*self.words.next().ok_or(DecodeError("a word is missing"))?);
            let sum = word_at(rest, 0).wrapping_add(word).to_le_bytes();
            match rest.first_chunk_mut() {
                Some(bytes) => *bytes = sum,
                None => rest.copy_from_slice(&sum[..rest.len()]),
            }
            at += WORD_LEN;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Scan, with_every_mask};
    use proptest::prelude::*;

    /// Writes a run and reads it again.
    struct There<'a> {
        target: &'a [u8],
        base: &'a [u8],
        len: usize,
    }

    impl Scan for There<'_> {
        #[inline(always)]
        fn run<M: EqualMask>(self, mask: M) {
            let mut written = Words::default();
            let more = written.push(mask, self.target, self.base, self.len);
            assert!(more < WORD_LEN && self.len + more <= self.target.len());
            let mut reader = WordReader::new(&written.distances, &written.words);
            let mut run = self.base[..self.len + more].to_vec();
            assert_eq!(reader.add(&mut run), Ok(()));
            assert!(reader.is_empty());
            assert_eq!(run, self.target[..self.len + more], "{}", std::any::type_name::<M>());
        }
    }

    proptest! {
        #[test]
        fn a_run_comes_back_on_every_processor(
            base in prop::collection::vec(any::<u8>(), 1..400),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
            behind in 0usize..6,
        ) {
            let mut target = base.clone();
            changes.iter().for_each(|(at, by)| { let at = at.index(base.len()); target[at] = target[at].wrapping_add(*by); });
            let len = base.len();
            let tail = vec![7; behind];
            let (target, base) = ([target, tail.clone()].concat(), [base, tail].concat());
            with_every_mask(|| There { target: &target, base: &base, len });
        }
    }

    fn written(target: &[u8], base: &[u8], len: usize) -> (Words, usize) {
        let mut words = Words::default();
        let more = words.push(crate::compare::Portable, target, base, len);
        (words, more)
    }

    #[test]
    fn a_difference_has_one_spelling_however_it_carries() {
        let base = [0u32, 0xff, 0xffff, 0x00ff_ffff].map(u32::to_le_bytes).concat();
        let target = [0x0101u32, 0x0200, 0x1_0100, 0x0100_0100].map(u32::to_le_bytes).concat();
        let (words, more) = written(&target, &base, 16);
        assert_eq!((words.distances.as_slice(), more), (&[0, 0, 0, 0][..], 0));
        assert_eq!(words.words, [1, 1, 0, 0].repeat(4));
    }

    #[test]
    fn the_last_word_takes_bytes_of_the_copy_behind_it_as_far_as_there_are_any() {
        let (base, mut target) = ([9; 20], [9; 20]);
        target[10] = 8;
        for (available, taken) in [(20, 3), (13, 2), (12, 1), (11, 0)] {
            let (words, more) = written(&target[..available], &base[..available], 11);
            assert_eq!((words.distances.as_slice(), more), (&[10][..], taken));
            assert_eq!(words.words[0], 0xff);
        }
    }

    #[test]
    fn equal_bytes_at_the_end_are_a_distance_of_their_own() {
        let mut target = vec![0; 400];
        target[200] = 1;
        let (words, more) = written(&target, &[0; 400], 400);
        assert_eq!((words.distances.as_slice(), more), (&[200, 1, 196, 1][..], 0));
    }
}
