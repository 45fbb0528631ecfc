//! Content-defined words: Ddelta (Xia et al., Performance Evaluation 2014) and Edelta (Xia et al.,
//! HotStorage 2015).
//!
//! Both cut base and target into short words where a gear hash says so, look the target's words up
//! in a table of the base's, and grow what matches. Ddelta cuts the whole target into words first
//! and grows matches byte by byte at their ends; Edelta goes on growing a match past the words it
//! covers and cuts again only from its end, which is where its speed comes from.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::instructions::{Writer, execute};
use crate::{Codec, Encoded, Form, Piece, cpu_s};

/// Words are cut where the hash's top five bits are zero: 32 bytes on average; at least 8 and at
/// most 128 bytes.
const CUT_BELOW: u64 = 1 << 59;
const WORD_MIN: usize = 8;
const WORD_MAX: usize = 128;
/// Pieces of target, as for the other codecs that restart.
const SEGMENT: usize = 4 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    EveryWord,
    Enlarging,
}

pub(crate) struct Words {
    search: Search,
    gear: [u64; 256],
}

impl Words {
    pub(crate) fn new(search: Search) -> Self {
        let gear = std::array::from_fn(|byte| xxh3_64(&[byte as u8]));
        Self { search, gear }
    }

    /// Length of the first word of `bytes`.
    fn word_len(&self, bytes: &[u8]) -> usize {
        let mut hash = 0u64;
        for (at, &byte) in bytes.iter().take(WORD_MAX).enumerate() {
            hash = (hash << 1).wrapping_add(self.gear[usize::from(byte)]);
            if at + 1 >= WORD_MIN && hash < CUT_BELOW {
                return at + 1;
            }
        }
        bytes.len().min(WORD_MAX)
    }

    fn index(&self, base: &[u8]) -> HashMap<u64, u32> {
        let mut index = HashMap::with_capacity(base.len() / 24);
        let mut at = 0;
        while at < base.len() {
            let len = self.word_len(&base[at..]);
            index.entry(xxh3_64(&base[at..at + len])).or_insert(at as u32);
            at += len;
        }
        index
    }

    fn encode_segment(&self, base: &[u8], index: &HashMap<u64, u32>, target: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new();
        // `covered` is where the last match ended, `at` where the next word begins: in Ddelta it
        // may be before `covered`.
        let (mut at, mut covered) = (0, 0);
        while at < target.len() {
            let len = self.word_len(&target[at..]);
            let word = &target[at..at + len];
            let hit = if at >= covered { index.get(&xxh3_64(word)).map(|&source| source as usize) } else { None };
            let Some(source) = hit.filter(|&source| base[source..].starts_with(word)) else {
                at += len;
                continue;
            };
            let forward = base[source..].iter().zip(&target[at..]).take_while(|(b, t)| b == t).count();
            let backward =
                base[..source].iter().rev().zip(target[covered..at].iter().rev()).take_while(|(b, t)| b == t).count();
            writer.push(&target[covered..at - backward], forward + backward, source - backward);
            covered = at + forward;
            at = if self.search == Search::Enlarging { covered } else { at + len };
        }
        writer.push(&target[covered..], 0, 0);
        writer.out
    }
}

impl Codec for Words {
    fn encode(&mut self, base: &[u8], target: &[u8]) -> Encoded {
        let start = cpu_s();
        let index = self.index(base);
        let index_cpu_s = cpu_s() - start;
        let piece = |segment: &[u8]| Piece {
            target_len: segment.len(),
            bytes: self.encode_segment(base, &index, segment),
            footprint: Vec::new(),
            form: Form::Delta,
        };
        let pieces = target.chunks(SEGMENT).map(piece).collect();
        // hashbrown keeps a slot of 16 bytes and a control byte for each place of its capacity,
        // which is 7/8 of its slots.
        Encoded { pieces, index_bytes: index.capacity() * 8 / 7 * 17, index_cpu_s }
    }

    fn decode(&mut self, base: &[u8], encoded: &Encoded, target: &mut Vec<u8>) {
        target.clear();
        for piece in &encoded.pieces {
            execute(base, &piece.bytes, piece.target_len, target);
        }
    }
}
