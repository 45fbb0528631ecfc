//! Containers that somebody damaged, and bombs.

use crate::kit::{Random, vectors, wrapped};

/// One in so many is made of bombs, the first of them early.
const BOMBS_EVERY: usize = 400;
/// Plain bytes of one bomb: what a scan without a bound on all of them lets pass.
const BOMB_PLAIN_LEN: usize = 30 << 20;

/// A damaged container.
pub(crate) struct Damaged {
    pub(crate) object: Vec<u8>,
    /// The seeds that something of is in it.
    pub(crate) of: Vec<usize>,
    /// How many bombs are in it.
    pub(crate) bombs: usize,
}

/// Makes them of short containers, every kind among these, so that many fit in little time.
pub(crate) struct Mutator {
    pub(crate) seeds: Vec<Vec<u8>>,
    bomb: Vec<u8>,
    random: Random,
}

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        let all = vectors("container").into_iter().map(|vector| vector.bytes);
        let seeds: Vec<_> = all.filter(|bytes| (1..9_500).contains(&bytes.len())).collect();
        assert!(seeds.len() >= 25);
        Self { seeds, bomb: bomb(BOMB_PLAIN_LEN), random: Random(seed) }
    }

    pub(crate) fn next(&mut self, number: usize) -> Damaged {
        let one = self.random.below(self.seeds.len());
        let mut damaged = Damaged { object: self.seeds[one].clone(), of: vec![one], bombs: 0 };
        if number % BOMBS_EVERY == 50 {
            for _ in 0..2 + self.random.below(3) {
                damaged.object.extend_from_slice(&self.bomb);
                damaged.bombs += 1;
            }
        }
        for _ in 0..=self.random.below(4) {
            self.change(&mut damaged);
            if damaged.object.is_empty() {
                damaged.object.push(0);
            }
        }
        // Every third lies in the plain text of a stream, with its bombs.
        if number % 3 == 2 {
            damaged.object = wrapped(&damaged.object, 1 + self.random.below(30_000) as u16);
        }
        damaged
    }

    /// One change. An object with bombs keeps its length.
    fn change(&mut self, damaged: &mut Damaged) {
        let random = &mut self.random;
        let (at, bytes) = (random.below(damaged.object.len()), &mut damaged.object);
        match random.below(if damaged.bombs > 0 { 3 } else { 8 }) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            // An absurd length, or none.
            2 => {
                let filled = [0, 0xff, 0x7f][random.below(3)];
                bytes.iter_mut().skip(at).take(1 << random.below(4)).for_each(|byte| *byte = filled);
            }
            3 => bytes.truncate(at.max(1)),
            // A run of another's bytes, put between or over these; a run twice.
            4 | 5 => {
                let other = random.below(self.seeds.len());
                let from = random.below(self.seeds[other].len());
                let taken = &self.seeds[other][from..self.seeds[other].len().min(from + random.below(300))];
                let over = if random.below(2) == 0 { at } else { bytes.len().min(at + taken.len()) };
                bytes.splice(at..over, taken.iter().copied());
                damaged.of.push(other);
            }
            6 => {
                let run = bytes[at..bytes.len().min(at + random.below(500))].to_vec();
                bytes.splice(at..at, run);
                damaged.of.push(damaged.of[0]);
            }
            // All of another inside this one: nested, or overlapping.
            _ => {
                let other = random.below(self.seeds.len());
                bytes.splice(at..at, self.seeds[other].iter().copied());
                damaged.of.push(other);
            }
        }
    }
}

/// A gzip member of zeros, 1,032 for each byte: one block whose codes make a match of 258 bytes two
/// bits.
fn bomb(plain_len: usize) -> Vec<u8> {
    let mut bits = Vec::new();
    let mut put = |value: usize, count: usize| bits.extend((0..count).map(|at| value >> at & 1 == 1));
    // The last block, with codes of its own: 286 lengths, one distance, 18 lengths of lengths.
    put(1 | 2 << 1, 3);
    put(29, 5);
    put(0, 5);
    put(14, 4);
    // In the order of RFC 1951: 18 has one bit, 1 and 2 have two.
    for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1] {
        put([(18, 1), (1, 2), (2, 2)].iter().find(|(of, _)| *of == symbol).map_or(0, |(_, len)| *len), 3);
    }
    // Codes, as they are written: 18 is 0, 1 is 10, 2 is 11.
    let (one, two) = ((0b01, 2), (0b11, 2));
    let mut length = |(code, count): (usize, usize)| put(code, count);
    length(two);
    [138 - 11, 117 - 11].into_iter().for_each(|extra| length((extra << 1, 8)));
    length(two);
    length(((28 - 11) << 1, 8));
    length(one);
    length(one);
    // A zero, matches of 258 at distance 1 (codes 0 and 0), the end (11); zero is 10.
    let matches = (plain_len - 1) / 258;
    length((0b01, 2));
    (0..matches).for_each(|_| length((0, 2)));
    length((0b11, 2));
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3];
    out.extend(bits.chunks(8).map(|byte| byte.iter().enumerate().map(|(at, bit)| u8::from(*bit) << at).sum::<u8>()));
    out.extend_from_slice(&[0; 8]);
    out
}
