//! What an object resembles, in a kilobyte: a few hashes of its content, chosen by the content
//! itself.
//!
//! A gear hash rolls over the last 64 bytes; where its top ten bits are zero (about one position in
//! 1024) it is a *sample*. Samples go through a keyed hash, and the smallest results are kept: the
//! 32 smallest as *hooks* for an inverted index, the 128 smallest as a *ranking* sketch to compare
//! the candidates that the hooks find. Moved, inserted or removed content leaves all samples in
//! place but those it touches. The numbers are `docs/format/sketch-v1.md`.

use crate::error::DecodeError;

/// Most hooks of one sketch. Part of the format (docs/format/sketch-v1.md).
pub const HOOKS_MAX: usize = 32;
/// Most values of one ranking sketch. Part of the format.
pub const RANKING_MAX: usize = 128;

/// Fewer values than this tell nothing about what two contents share.
pub const EVIDENCE_MIN: usize = 6;

/// The hash covers this many bytes: older ones have been shifted out of its 64 bits.
const REACH: usize = 64;
/// A hash below this is a sample: one in 1024.
const SAMPLE_BELOW: u64 = 1 << 54;
/// Lanes that are hashed side by side, and the least bytes of one lane for which that pays.
const LANES: usize = 4;
const LANE_LEN_MIN: usize = 16 * REACH;

/// The gear table: the first 256 values of splitmix64 from 0. Part of the format.
const GEAR: [u64; 256] = {
    let mut table = [0; 256];
    let mut state = 0u64;
    let mut at = 0;
    while at < 256 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[at] = value ^ (value >> 31);
        at += 1;
    }
    table
};

/// Sketches a stream of bytes of any length, however it is cut. Memory is constant (4 KiB), cost
/// one pass.
#[derive(Clone, Debug)]
pub struct Sketcher {
    key: [u64; 2],
    hash: u64,
    /// The last sample: constant content yields the same one at every position.
    last_sample: u64,
    /// Keyed samples, the smallest so far among them; at most twice [`RANKING_MAX`].
    smallest: Vec<u64>,
    /// Nothing from here on is among the smallest.
    bound: u64,
}

impl Sketcher {
    /// A sketcher that has seen nothing.
    ///
    /// Sketches are comparable only under the same key. With a secret key hooks tell nothing about
    /// content to whoever does not have it; without one they are a fingerprint anybody can compute.
    pub fn new(key: Option<[u8; 16]>) -> Self {
        let key = u128::from_le_bytes(key.unwrap_or_default());
        Self {
            key: [key as u64, (key >> 64) as u64],
            hash: 0,
            last_sample: u64::MAX,
            smallest: Vec::with_capacity(2 * RANKING_MAX),
            bound: u64::MAX,
        }
    }

    /// Goes on with the next bytes of the stream.
    pub fn update(&mut self, bytes: &[u8]) {
        let lane_len = bytes.len() / LANES;
        if lane_len < LANE_LEN_MIN {
            self.update_one_lane(bytes);
        } else {
            let (even, rest) = bytes.split_at(lane_len * LANES);
            self.update_lanes(even, lane_len);
            self.update_one_lane(rest);
        }
    }

    fn update_one_lane(&mut self, bytes: &[u8]) {
        let mut hash = self.hash;
        for &byte in bytes {
            hash = roll(hash, byte);
            if hash < SAMPLE_BELOW {
                self.sample(hash);
            }
        }
        self.hash = hash;
    }

    /// As [`Self::update_one_lane`] on four parts at once: a hash depends on [`REACH`] bytes only,
    /// so each part begins with the hash of those before it.
    fn update_lanes(&mut self, bytes: &[u8], lane_len: usize) {
        let (first, rest) = bytes.split_at(lane_len);
        let (second, rest) = rest.split_at(lane_len);
        let (third, fourth) = rest.split_at(lane_len);
        let after = |lane: &[u8]| lane[lane_len - REACH..].iter().fold(0, |hash, &byte| roll(hash, byte));
        let mut hashes = [self.hash, after(first), after(second), after(third)];
        for (((&a, &b), &c), &d) in first.iter().zip(second).zip(third).zip(fourth) {
            hashes = [roll(hashes[0], a), roll(hashes[1], b), roll(hashes[2], c), roll(hashes[3], d)];
            if hashes[0].min(hashes[1]).min(hashes[2].min(hashes[3])) < SAMPLE_BELOW {
                for hash in hashes.into_iter().filter(|&hash| hash < SAMPLE_BELOW) {
                    self.sample(hash);
                }
            }
        }
        self.hash = hashes[3];
    }

    #[cold]
    fn sample(&mut self, hash: u64) {
        if hash == self.last_sample {
            return;
        }
        self.last_sample = hash;
        let value = siphash24(self.key, hash);
        if value < self.bound {
            self.smallest.push(value);
            if self.smallest.len() == 2 * RANKING_MAX {
                self.keep_smallest();
            }
        }
    }

    fn keep_smallest(&mut self) {
        self.smallest.sort_unstable();
        self.smallest.dedup();
        self.smallest.truncate(RANKING_MAX);
        if self.smallest.len() == RANKING_MAX {
            self.bound = self.smallest[RANKING_MAX - 1];
        }
    }

    /// The sketch of all bytes so far.
    pub fn finish(mut self) -> Sketch {
        self.keep_smallest();
        Sketch { ranking: self.smallest }
    }
}

#[inline(always)]
fn roll(hash: u64, byte: u8) -> u64 {
    (hash << 1).wrapping_add(GEAR[usize::from(byte)])
}

/// SipHash-2-4 of one little-endian 64-bit word (Aumasson, Bernstein 2012).
fn siphash24(key: [u64; 2], word: u64) -> u64 {
    let mut v = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let round = |v: &mut [u64; 4]| {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    };
    // The message, then the padding block: eight bytes long, nothing left over.
    for block in [word, 8 << 56] {
        v[3] ^= block;
        round(&mut v);
        round(&mut v);
        v[0] ^= block;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// The smallest keyed samples of some content, ascending and distinct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    ranking: Vec<u64>,
}

impl Sketch {
    /// The sketch of all of some contents, of which each has one under the same key.
    pub fn joined<'a>(sketches: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut ranking: Vec<u64> = sketches.into_iter().flat_map(|sketch| sketch.ranking.iter().copied()).collect();
        ranking.sort_unstable();
        ranking.dedup();
        ranking.truncate(RANKING_MAX);
        Self { ranking }
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.ranking.capacity() * size_of::<u64>()
    }

    /// At most [`HOOKS_MAX`] values for an inverted index: two objects with much content in common
    /// share some.
    ///
    /// Which ones is decided by the upper bits of the samples and the value is the lower ones, so
    /// that hooks of large objects do not crowd at small numbers. Content of less than some KiB may
    /// have none.
    pub fn hooks(&self) -> Vec<u32> {
        let mut hooks: Vec<u32> = self.ranking.iter().take(HOOKS_MAX).map(|&value| value as u32).collect();
        hooks.sort_unstable();
        hooks.dedup();
        hooks
    }

    /// The ranking sketch: at most [`RANKING_MAX`] values, ascending.
    pub fn ranking(&self) -> &[u64] {
        &self.ranking
    }

    /// How much of both contents together is in both: an estimate between 0 and 1, off by about
    /// 0.04 (one standard deviation) when both have a full sketch. 0 when either has none.
    ///
    /// The smallest values of the union are a fair sample of it; the share of them that stand in
    /// both sketches is the estimate (Broder 1997).
    pub fn overlap(&self, other: &Sketch) -> f64 {
        let (mut left, mut right) = (self.ranking.as_slice(), other.ranking.as_slice());
        let (mut both, mut union) = (0u32, 0u32);
        while let ([l, left_rest @ ..], [r, right_rest @ ..]) = (left, right)
            && (union as usize) < RANKING_MAX
        {
            union += 1;
            both += u32::from(l == r);
            if l <= r {
                left = left_rest;
            }
            if r <= l {
                right = right_rest;
            }
        }
        // A sketch that is not full holds all there is: what is left of the other one is in the
        // union, too.
        union = (union as usize + left.len() + right.len()).min(RANKING_MAX) as u32;
        if union == 0 { 0.0 } else { f64::from(both) / f64::from(union) }
    }

    /// How much of this content is also in `other`, whatever else that holds: an estimate between 0
    /// and 1. `None` when the sketches have fewer than [`EVIDENCE_MIN`] values to tell it by.
    ///
    /// Below the greatest value of either sketch both are complete, so of this content's values
    /// there the share that `other` has, too, is the estimate. Unlike [`Self::overlap`] it does not
    /// fall when `other` is longer.
    pub fn share_in(&self, other: &Sketch) -> Option<f64> {
        let bound = self.ranking.last()?.min(other.ranking.last()?);
        let seen = self.ranking.partition_point(|value| value <= bound);
        let both = self.ranking[..seen].iter().filter(|value| other.ranking.binary_search(value).is_ok()).count();
        (seen >= EVIDENCE_MIN).then(|| both as f64 / seen as f64)
    }

    /// The sketch of the `len` smallest values: of the same content, less exact.
    #[must_use]
    pub fn shortened(&self, len: usize) -> Sketch {
        Sketch { ranking: self.ranking[..self.ranking.len().min(len)].to_vec() }
    }

    /// The values, eight bytes each, little-endian: at most 1 KiB.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.ranking.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// The inverse of [`Sketch::to_bytes`].
    ///
    /// # Errors
    /// [`DecodeError`] when the length is not a multiple of eight or above 1 KiB, or the values do
    /// not ascend.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (values, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || values.len() > RANKING_MAX {
            return Err(DecodeError("a sketch of impossible length"));
        }
        let ranking: Vec<u64> = values.iter().map(|value| u64::from_le_bytes(*value)).collect();
        if !ranking.is_sorted_by(|left, right| left < right) {
            return Err(DecodeError("a sketch whose values do not ascend"));
        }
        Ok(Self { ranking })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::noise;
    use proptest::prelude::*;

    fn sketch(bytes: &[u8]) -> Sketch {
        let mut sketcher = Sketcher::new(None);
        sketcher.update(bytes);
        sketcher.finish()
    }

    #[test]
    fn siphash_agrees_with_its_authors() {
        // The reference key 00 … 0f and message 00 … 07 (SipHash paper, test vectors of the
        // reference implementation).
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(siphash24(key, 0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn how_the_stream_is_cut_does_not_matter(seed in any::<u64>(), cuts in prop::collection::vec(0usize..60_000, 0..8)) {
            let bytes = noise(60_000, seed);
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut sketcher = Sketcher::new(None);
            let mut at = 0;
            for cut in cuts {
                sketcher.update(&bytes[at..cut]);
                at = cut;
            }
            sketcher.update(&bytes[at..]);
            let mut one_lane = Sketcher::new(None);
            one_lane.update_one_lane(&bytes);
            prop_assert_eq!(&sketcher.finish(), &one_lane.clone().finish());
            prop_assert_eq!(sketch(&bytes), one_lane.finish());
        }

        #[test]
        fn bytes_come_back(seed in any::<u64>(), len in 0usize..300_000) {
            let sketch = sketch(&noise(len, seed));
            prop_assert_eq!(Sketch::from_bytes(&sketch.to_bytes()), Ok(sketch));
        }

        #[test]
        fn any_bytes_are_a_sketch_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(sketch) = Sketch::from_bytes(&bytes) {
                prop_assert_eq!(sketch.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn a_sketch_is_full_from_some_hundred_kilobytes_on() {
        let sketch = sketch(&noise(400_000, 1));
        assert_eq!((sketch.hooks().len(), sketch.ranking().len()), (HOOKS_MAX, RANKING_MAX));
        assert_eq!(sketch.to_bytes().len(), 1024);
    }

    #[test]
    fn overlap_estimates_what_is_shared() {
        let one = noise(2_000_000, 2);
        assert_eq!(sketch(&one).overlap(&sketch(&one)), 1.0);
        for share in [0.25, 0.5, 0.9] {
            let kept = (one.len() as f64 * share) as usize;
            let other = [&noise(one.len() - kept, 3), &one[..kept]].concat();
            let truth = share / (2.0 - share);
            let estimate = sketch(&one).overlap(&sketch(&other));
            assert!((estimate - truth).abs() < 0.15, "{estimate} for {truth}");
        }
        assert_eq!(sketch(&one).overlap(&sketch(&noise(2_000_000, 4))), 0.0);
    }

    #[test]
    fn what_is_in_a_much_longer_content_is_seen_to_be_there() {
        let part = noise(1_000_000, 7);
        let longer = [noise(6_000_000, 8), part.clone(), noise(5_000_000, 9)].concat();
        let share = sketch(&part).share_in(&sketch(&longer)).expect("evidence");
        assert!(share > 0.99, "{share}");
        assert!(sketch(&part).overlap(&sketch(&longer)) < 0.2);
        assert_eq!(sketch(&part).share_in(&sketch(&noise(3_000_000, 10))), Some(0.0));
        assert_eq!(sketch(&part[..2000]).share_in(&sketch(&longer)), None, "two values are no evidence");
        assert_eq!(sketch(&part).shortened(40).share_in(&sketch(&part)), Some(1.0));
        assert_eq!(sketch(&part).shortened(40).ranking(), &sketch(&part).ranking()[..40]);
    }

    #[test]
    fn an_edited_object_shares_hooks_with_what_it_was() {
        let mut bytes = noise(1_000_000, 5);
        let before = sketch(&bytes).hooks();
        for at in (0..900_000).step_by(50_000) {
            bytes.splice(at..at + 100, noise(150, at as u64));
        }
        let after = sketch(&bytes).hooks();
        let shared = before.iter().filter(|hook| after.contains(hook)).count();
        assert!(shared >= HOOKS_MAX * 3 / 4, "{shared}");
    }

    #[test]
    fn another_key_gives_other_hooks() {
        let bytes = noise(500_000, 6);
        let keyed = |key: u8| {
            let mut sketcher = Sketcher::new(Some([key; 16]));
            sketcher.update(&bytes);
            sketcher.finish()
        };
        assert_eq!(keyed(1), keyed(1));
        assert_eq!(keyed(1).overlap(&keyed(2)), 0.0);
        assert!(keyed(1).hooks().iter().all(|hook| !keyed(2).hooks().contains(hook)));
    }

    #[test]
    fn constant_and_short_content_has_few_samples() {
        assert!(sketch(&vec![0; 1 << 20]).ranking().len() <= 64);
        assert_eq!(sketch(&[]).hooks(), []);
        assert_eq!(sketch(&[]).overlap(&sketch(&[])), 0.0);
    }
}
