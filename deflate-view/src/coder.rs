//! The binary arithmetic coder of the parse, and the adaptive models over it.
//!
//! Part of the format (docs/format/deflate-view-v1.md §4): parses already stored cannot be read
//! with other numbers.
//!
//! Both directions go through one trait, so that what is written and what is read cannot differ: a
//! coder is told the bit, number or symbol that an encoder has, and gives back the one that counts.
//! A decoder does not look at what it is told.

use std::hint::select_unpredictable;

use crate::Malformed;

/// How sure a model is at most: the probability of either bit is at least 16 of 65,536.
const PROBABILITY_MIN: u32 = 16;
/// After so many bits a model's rate stays.
const SEEN_MAX: u8 = 30;

/// The probability of a one, of 65,536, and how many bits it has been learnt from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    one: u16,
    seen: u8,
}

impl Model {
    pub(crate) const NEW: Self = Self { one: 1 << 15, seen: 0 };

    #[inline(always)]
    fn probability(self) -> u32 {
        u32::from(self.one).clamp(PROBABILITY_MIN, 65_536 - PROBABILITY_MIN)
    }

    #[inline(always)]
    fn learn(&mut self, bit: bool) {
        // 1/2, 1/4, 1/4, 1/8 … 1/32 of the way.
        let rate = 8 - (self.seen + 1).leading_zeros();
        if bit {
            self.one += (u16::MAX - self.one) >> rate;
        } else {
            self.one -= self.one >> rate;
        }
        self.seen += u8::from(self.seen < SEEN_MAX);
    }

    /// The same without a branch on the bit.
    #[inline(always)]
    fn learn_unforeseen(&mut self, bit: bool) {
        let rate = 8 - (self.seen + 1).leading_zeros();
        let ones = u16::from(bit).wrapping_neg();
        // What is missing to all ones shrinks with a one, what is there with a zero.
        let shrunk = self.one ^ ones;
        self.one = (shrunk - (shrunk >> rate)) ^ ones;
        self.seen += u8::from(self.seen < SEEN_MAX);
    }
}

/// Either direction.
pub(crate) trait Coder {
    /// One bit with a model.
    fn bit(&mut self, model: &mut Model, bit: bool) -> bool;

    /// `count` bits (at most 16) that no model knows anything of.
    fn plain(&mut self, count: u32, value: u32) -> u32;

    /// A symbol of `bits` bits, highest first, with a model for every place in the tree: `models`
    /// has 2 to the power of `bits` of them.
    fn tree(&mut self, models: &mut [Model], bits: u32, symbol: u32) -> u32;

    /// A number: how many bits it has, then those below the highest, two of them with a model.
    fn number(&mut self, models: &mut Numbers, value: u32) -> u32 {
        let bits = self.tree(&mut models.bits, 6, 32 - value.leading_zeros()).min(32);
        if bits < 2 {
            return bits;
        }
        let mut below = bits - 1;
        let mut number = 1u32;
        let mut node = 1;
        for _ in 0..below.min(2) {
            below -= 1;
            let bit = self.bit(&mut models.top[bits as usize][node], value >> below & 1 == 1);
            node = node << 1 | usize::from(bit);
            number = number << 1 | u32::from(bit);
        }
        while below > 0 {
            let taken = below.min(16);
            below -= taken;
            number = number << taken | self.plain(taken, value >> below & ((1 << taken) - 1));
        }
        number
    }
}

/// The models of one kind of number.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    bits: [Model; 64],
    top: [[Model; 4]; 33],
}

impl Numbers {
    pub(crate) const NEW: Self = Self { bits: [Model::NEW; 64], top: [[Model::NEW; 4]; 33] };
}

/// Writes.
#[derive(Debug)]
pub(crate) struct Encoder {
    low: u32,
    high: u32,
    out: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { low: 0, high: u32::MAX, out: Vec::new() }
    }

    /// Bytes written so far.
    pub(crate) fn written(&self) -> usize {
        self.out.len()
    }

    #[inline(always)]
    fn narrow(&mut self, middle: u32, bit: bool) {
        if bit {
            self.high = middle;
        } else {
            self.low = middle + 1;
        }
        self.shift();
    }

    /// The same for a bit that is as likely one as the other: a branch on it would be wrong half of
    /// the time.
    #[inline(always)]
    fn narrow_unforeseen(&mut self, middle: u32, bit: bool) {
        (self.low, self.high) = either_half(self.low, self.high, middle, bit);
        self.shift();
    }

    #[inline(always)]
    fn shift(&mut self) {
        while (self.low ^ self.high) >> 24 == 0 {
            self.out.push((self.high >> 24) as u8);
            self.low <<= 8;
            self.high = self.high << 8 | 255;
        }
    }

    /// The bytes: what tells the rest of the range takes four.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.out.extend_from_slice(&self.low.to_be_bytes());
        self.out
    }
}

/// Where a range is cut for a one.
#[inline(always)]
fn middle(low: u32, high: u32, probability: u32) -> u32 {
    let range = u64::from(high - low);
    low + ((range * u64::from(probability)) >> 16) as u32
}

/// The half of a range that a bit means, chosen without a branch.
#[inline(always)]
fn either_half(low: u32, high: u32, middle: u32, bit: bool) -> (u32, u32) {
    (select_unpredictable(bit, low, middle.wrapping_add(1)), select_unpredictable(bit, middle, high))
}

/// Where a range is cut for a bit that no model knows anything of.
#[inline(always)]
fn half(low: u32, high: u32) -> u32 {
    low + ((high - low) >> 1)
}

impl Coder for Encoder {
    #[inline(always)]
    fn bit(&mut self, model: &mut Model, bit: bool) -> bool {
        self.narrow(middle(self.low, self.high, model.probability()), bit);
        model.learn(bit);
        bit
    }

    #[inline(always)]
    fn tree(&mut self, models: &mut [Model], bits: u32, symbol: u32) -> u32 {
        let mut node = 1usize;
        for at in (0..bits).rev() {
            let (model, bit) = (&mut models[node], symbol >> at & 1 == 1);
            self.narrow_unforeseen(middle(self.low, self.high, model.probability()), bit);
            model.learn_unforeseen(bit);
            node = node << 1 | usize::from(bit);
        }
        symbol
    }

    fn plain(&mut self, count: u32, value: u32) -> u32 {
        for at in (0..count).rev() {
            self.narrow_unforeseen(half(self.low, self.high), value >> at & 1 == 1);
        }
        value
    }
}

/// Reads. Past the end it reads zeros; [`Decoder::is_past_end`] tells.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    low: u32,
    high: u32,
    value: u32,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { low: 0, high: u32::MAX, value: 0, bytes, at: 0 };
        for _ in 0..4 {
            decoder.shift();
        }
        decoder
    }

    #[inline(always)]
    fn shift(&mut self) {
        self.value = self.value << 8 | u32::from(self.bytes.get(self.at).copied().unwrap_or_default());
        self.at += 1;
    }

    #[inline(always)]
    fn narrow(&mut self, middle: u32) -> bool {
        let bit = self.value <= middle;
        if bit {
            self.high = middle;
        } else {
            self.low = middle + 1;
        }
        while (self.low ^ self.high) >> 24 == 0 {
            self.low <<= 8;
            self.high = self.high << 8 | 255;
            self.shift();
        }
        bit
    }

    /// The same for a bit that is as likely one as the other: a branch on it would be wrong half of
    /// the time.
    #[inline(always)]
    fn narrow_unforeseen(&mut self, middle: u32) -> bool {
        let bit = self.value <= middle;
        (self.low, self.high) = either_half(self.low, self.high, middle, bit);
        while (self.low ^ self.high) >> 24 == 0 {
            self.low <<= 8;
            self.high = self.high << 8 | 255;
            self.shift();
        }
        bit
    }

    /// More was read than there is: it means nothing.
    pub(crate) fn is_past_end(&self) -> bool {
        self.at > self.bytes.len()
    }

    /// # Errors
    /// When bytes are left over, or some were missing.
    pub(crate) fn finish(&self) -> Result<(), Malformed> {
        match self.at.cmp(&self.bytes.len()) {
            std::cmp::Ordering::Less => Err(Malformed("bytes after a parse")),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(Malformed("a parse ends early")),
        }
    }
}

impl Coder for Decoder<'_> {
    #[inline(always)]
    fn bit(&mut self, model: &mut Model, _: bool) -> bool {
        let bit = self.narrow(middle(self.low, self.high, model.probability()));
        model.learn(bit);
        bit
    }

    #[inline(always)]
    fn tree(&mut self, models: &mut [Model], bits: u32, _: u32) -> u32 {
        let mut node = 1usize;
        for _ in 0..bits {
            let model = &mut models[node];
            let bit = self.narrow_unforeseen(middle(self.low, self.high, model.probability()));
            model.learn_unforeseen(bit);
            node = node << 1 | usize::from(bit);
        }
        node as u32 - (1 << bits)
    }

    #[inline(always)]
    fn plain(&mut self, count: u32, _: u32) -> u32 {
        let mut value = 0;
        for _ in 0..count {
            value = value << 1 | u32::from(self.narrow_unforeseen(half(self.low, self.high)));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all<C: Coder>(coder: &mut C, values: &[(u32, bool)]) -> Vec<(u32, bool)> {
        let mut numbers = Numbers::NEW;
        let mut model = Model::NEW;
        let one = |(value, bit): &(u32, bool)| (coder.number(&mut numbers, *value), coder.bit(&mut model, *bit));
        values.iter().map(one).collect()
    }

    proptest! {
        #[test]
        fn numbers_and_bits_come_back(values in prop::collection::vec((any::<u32>(), 0u32..33, any::<bool>()), 0..300)) {
            let values: Vec<(u32, bool)> =
                values.into_iter().map(|(value, shift, bit)| (value.checked_shr(shift).unwrap_or(0), bit)).collect();
            let mut encoder = Encoder::new();
            all(&mut encoder, &values);
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            prop_assert_eq!(all(&mut decoder, &values.iter().map(|_| (0, false)).collect::<Vec<_>>()), values);
            prop_assert_eq!(decoder.finish(), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn a_bit_means_the_same_with_a_branch_and_without_one(
            (low, range, bit) in (any::<u32>(), any::<u32>(), any::<bool>()), (one, seen) in (any::<u16>(), 0..=SEEN_MAX),
        ) {
            let high = low.saturating_add(range);
            prop_assert_eq!(half(low, high), middle(low, high, 1 << 15));
            let mut models = [Model { one, seen }; 2];
            let [branching, straight] = &mut models;
            let cut = middle(low, high, branching.probability());
            branching.learn(bit);
            straight.learn_unforeseen(bit);
            prop_assert_eq!((branching.one, branching.seen), (straight.one, straight.seen));
            prop_assume!(bit || cut < high);
            let mut encoders = [(); 2].map(|()| Encoder { low, high, out: Vec::new() });
            let [branching, straight] = &mut encoders;
            branching.narrow(cut, bit);
            straight.narrow_unforeseen(cut, bit);
            prop_assert_eq!((branching.low, branching.high), (straight.low, straight.high));
            prop_assert_eq!(&branching.out, &straight.out);
        }
    }

    #[test]
    fn what_is_always_so_costs_next_to_nothing() {
        let mut encoder = Encoder::new();
        let mut model = Model::NEW;
        for _ in 0..100_000 {
            encoder.bit(&mut model, true);
        }
        assert!(encoder.finish().len() < 20);
    }
}
