//! Gdelta (Tan et al., "The design of fast delta encoding for delta compression based storage
//! systems", ACM TOS 2023), as its paper describes it.
//!
//! A gear hash over words of 64 bytes, rolled two bytes per lookup of a combined table, fills an
//! array without chains from every position of the base; the target skips faster the longer nothing
//! matched (N = 2); a hit grows both ways. The stages are the paper's ablations: A inter-match
//! only, B an entropy stage per delta, C the entropy stage over batches of 4 MiB. A delta is one 64
//! KiB chunk of the target against the whole base.

use crate::instructions::{Entropy, Writer, execute};
use crate::{Codec, Encoded, Form, Piece, cpu_s};

const WORD: usize = 64;
const SKIP_SHIFT: usize = 2;
const CHUNK: usize = 64 << 10;
const BATCH: usize = 4 << 20;
/// At most 2^24 slots, as large a table as the base has bytes below that.
const SLOT_BITS_MAX: u32 = 24;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Matching,
    EntropyPerDelta,
    EntropyPerBatch,
}

pub(crate) struct Gdelta {
    stage: Stage,
    entropy: Entropy,
}

impl Gdelta {
    pub(crate) fn new(stage: Stage) -> Self {
        Self { stage, entropy: Entropy::new() }
    }
}

/// The gear table, and for each pair of bytes the sum that two steps add.
struct Gear {
    one: [u64; 256],
    two: Vec<u64>,
}

impl Gear {
    fn new() -> Self {
        let mut state = 0u64;
        let one = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let value = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            value ^ (value >> 31)
        });
        let pair = |pair: usize| (one[pair & 255] << 1).wrapping_add(one[pair >> 8]);
        Self { one, two: (0..65_536).map(pair).collect() }
    }

    fn word(&self, word: &[u8]) -> u64 {
        word.chunks_exact(2).fold(0, |hash: u64, pair| {
            (hash << 2).wrapping_add(self.two[usize::from(pair[0]) | usize::from(pair[1]) << 8])
        })
    }

    fn roll(&self, hash: u64, byte: u8) -> u64 {
        (hash << 1).wrapping_add(self.one[usize::from(byte)])
    }
}

struct Index {
    slots: Vec<u32>,
    shift: u32,
    gear: Gear,
}

impl Index {
    fn build(base: &[u8]) -> Self {
        let gear = Gear::new();
        let bits = base.len().next_power_of_two().trailing_zeros().clamp(12, SLOT_BITS_MAX);
        let (mut slots, shift) = (vec![0; 1 << bits], 64 - bits);
        if base.len() >= WORD {
            let mut hash = gear.word(&base[..WORD]);
            slots[(hash >> shift) as usize] = 1;
            for (at, pair) in base[WORD..].chunks_exact(2).enumerate() {
                let between = gear.roll(hash, pair[0]);
                slots[(between >> shift) as usize] = 2 * at as u32 + 2;
                hash = (hash << 2).wrapping_add(gear.two[usize::from(pair[0]) | usize::from(pair[1]) << 8]);
                slots[(hash >> shift) as usize] = 2 * at as u32 + 3;
            }
        }
        Self { slots, shift, gear }
    }

    fn encode(&self, base: &[u8], target: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new();
        let (mut at, mut covered, mut misses) = (0, 0, 0usize);
        let mut rolled: Option<(usize, u64)> = None;
        while at + WORD <= target.len() {
            let hash = match rolled {
                Some((from, hash)) if at - from < WORD => {
                    target[from + WORD..at + WORD].iter().fold(hash, |hash, &byte| self.gear.roll(hash, byte))
                }
                _ => self.gear.word(&target[at..at + WORD]),
            };
            rolled = Some((at, hash));
            let slot = self.slots[(hash >> self.shift) as usize];
            if slot > 0 && base[slot as usize - 1..].starts_with(&target[at..at + WORD]) {
                let source = slot as usize - 1;
                let forward = base[source..].iter().zip(&target[at..]).take_while(|(b, t)| b == t).count();
                let backward = base[..source]
                    .iter()
                    .rev()
                    .zip(target[covered..at].iter().rev())
                    .take_while(|(b, t)| b == t)
                    .count();
                writer.push(&target[covered..at - backward], forward + backward, source - backward);
                at += forward;
                covered = at;
                misses = 0;
                rolled = None;
            } else {
                at += 1 + (misses >> SKIP_SHIFT);
                misses += 1;
            }
        }
        writer.push(&target[covered..], 0, 0);
        writer.out
    }
}

impl Codec for Gdelta {
    fn encode(&mut self, base: &[u8], target: &[u8]) -> Encoded {
        let start = cpu_s();
        let index = Index::build(base);
        let index_cpu_s = cpu_s() - start;
        let mut pieces: Vec<Piece> = Vec::new();
        let piece_of = |target_len, bytes| Piece { target_len, bytes, footprint: Vec::new(), form: Form::Delta };
        for batch in target.chunks(BATCH) {
            let deltas = batch.chunks(CHUNK).map(|chunk| (chunk.len(), index.encode(base, chunk)));
            match self.stage {
                Stage::Matching => pieces.extend(deltas.map(|(len, delta)| piece_of(len, delta))),
                Stage::EntropyPerDelta => {
                    pieces.extend(deltas.map(|(len, delta)| piece_of(len, self.entropy.pack(&delta))))
                }
                Stage::EntropyPerBatch => {
                    let joined: Vec<u8> = deltas
                        .flat_map(|(_, delta)| [(delta.len() as u32).to_le_bytes().to_vec(), delta].concat())
                        .collect();
                    pieces.push(piece_of(batch.len(), self.entropy.pack(&joined)));
                }
            }
        }
        let index_bytes = index.slots.len() * size_of::<u32>() + (index.gear.two.len() + 256) * size_of::<u64>();
        Encoded { pieces, index_bytes, index_cpu_s }
    }

    fn decode(&mut self, base: &[u8], encoded: &Encoded, target: &mut Vec<u8>) {
        target.clear();
        for piece in &encoded.pieces {
            match self.stage {
                Stage::Matching => execute(base, &piece.bytes, piece.target_len, target),
                Stage::EntropyPerDelta => execute(base, &self.entropy.unpack(&piece.bytes), piece.target_len, target),
                Stage::EntropyPerBatch => {
                    let joined = self.entropy.unpack(&piece.bytes);
                    let (mut at, end) = (0, target.len() + piece.target_len);
                    while target.len() < end {
                        let len =
                            u32::from_le_bytes([joined[at], joined[at + 1], joined[at + 2], joined[at + 3]]) as usize;
                        execute(base, &joined[at + 4..at + 4 + len], CHUNK.min(end - target.len()), target);
                        at += 4 + len;
                    }
                }
            }
        }
    }
}
