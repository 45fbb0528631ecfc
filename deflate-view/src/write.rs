//! From plain text and parse back to the bits of a deflate stream.

use crate::Malformed;
use crate::alphabet::{
    CodeLengths, DISTANCE_BASE, DISTANCE_EXTRA, DISTANCE_SYMBOLS, END_OF_BLOCK, LENGTH_BASE, LENGTH_EXTRA,
    LENGTH_ORDER, LENGTH_SYMBOLS, codes, distance_symbol, length_symbol,
};
use crate::parse::{Header, Match};
use crate::zlib_codes::Counts;

/// Bytes that the hot loop may write before it looks at the room again.
const SLACK: usize = 16;

/// Bits, first one lowest.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that count; what is behind them is room.
    len: usize,
    held: u64,
    count: u32,
}

impl BitWriter {
    /// With room for so many bytes.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes + SLACK], ..Self::default() }
    }

    /// Bits written.
    pub(crate) fn bits(&self) -> usize {
        self.len * 8 + self.count as usize
    }

    fn make_room(&mut self, bytes: usize) {
        let wanted = self.len + bytes + SLACK;
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted.max(self.bytes.len() * 2), 0);
        }
    }

    /// Appends at most 32 bits.
    pub(crate) fn put(&mut self, value: u64, count: u32) {
        self.make_room(8);
        let mut pen = self.pen();
        pen.put(value, count);
        pen.flush();
        let state = pen.state();
        self.set(state);
    }

    /// For the hot loop. There has to be room for what it writes and 8 bytes more.
    #[inline(always)]
    fn pen(&mut self) -> Pen<'_> {
        Pen { len: self.len, held: self.held, count: self.count, bytes: &mut self.bytes }
    }

    #[inline(always)]
    fn set(&mut self, (len, held, count): (usize, u64, u32)) {
        (self.len, self.held, self.count) = (len, held, count);
    }

    /// Appends whole bytes. The bits before them have to end at a byte.
    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len() + 8);
        while self.count >= 8 {
            self.bytes[self.len] = self.held as u8;
            self.len += 1;
            self.held >>= 8;
            self.count -= 8;
        }
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Bits that are missing up to the next full byte.
    pub(crate) fn padding(&self) -> u32 {
        (8 - self.count % 8) % 8
    }

    /// Cuts off what is behind `len` bytes and ends there; false when there are fewer.
    pub(crate) fn cut(&mut self, len: usize) -> bool {
        let padding = self.padding();
        self.put(0, padding);
        self.put_bytes(&[]);
        let is_there = len <= self.len;
        self.len = self.len.min(len);
        self.held = 0;
        self.count = 0;
        is_there
    }

    /// The bytes written; the bits have to end at a byte.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.put_bytes(&[]);
        self.bytes.truncate(self.len);
        self.bytes
    }
}

/// A writer's state, in registers. What does not fit into its bytes is lost.
struct Pen<'a> {
    bytes: &'a mut [u8],
    len: usize,
    held: u64,
    count: u32,
}

impl Pen<'_> {
    /// Appends bits: at most 57 before the next [`Pen::flush`].
    #[inline(always)]
    fn put(&mut self, value: u64, count: u32) {
        self.held |= value.wrapping_shl(self.count);
        self.count = self.count.wrapping_add(count);
    }

    /// Writes whole bytes; at most 7 bits are held afterwards.
    #[inline(always)]
    fn flush(&mut self) {
        if let Some(place) = self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut::<8>) {
            *place = self.held.to_le_bytes();
        }
        self.len = self.len.wrapping_add((self.count >> 3) as usize);
        self.held = self.held.wrapping_shr(self.count & !7);
        self.count &= 7;
    }

    fn state(&self) -> (usize, u64, u32) {
        (self.len, self.held, self.count)
    }
}

/// A distance symbol: its code, how it goes on, and the first distance.
#[derive(Clone, Copy, Debug, Default)]
struct DistanceCode {
    code: u16,
    base: u16,
    /// Bits of the code, and with those behind it.
    bits: u8,
    all_bits: u8,
}

/// The codes of a block, ready to be written.
#[derive(Debug)]
pub(crate) struct Codes {
    /// Code and length of every literal and of the end.
    literals: [(u16, u8); 257],
    /// Code of every match length with its extra bits, and their length; by length.
    lengths: [(u32, u8); 259],
    distances: [DistanceCode; 32],
}

impl Codes {
    /// # Errors
    /// When there are more codes than there can be.
    pub(crate) fn new(lengths: &CodeLengths) -> Result<Self, Malformed> {
        const TOO_MANY: Malformed = Malformed("more codes than there are");
        let mut litlen = [0; 288];
        let mut distance = [0; 32];
        codes(&lengths.litlen[..lengths.litlen_count], &mut litlen).ok_or(TOO_MANY)?;
        codes(&lengths.distance[..lengths.distance_count], &mut distance).ok_or(TOO_MANY)?;
        let mut all =
            Self { literals: [(0, 0); 257], lengths: [(0, 0); 259], distances: [DistanceCode::default(); 32] };
        for (symbol, place) in all.literals.iter_mut().enumerate() {
            *place = (litlen[symbol], lengths.litlen[symbol]);
        }
        for (len, place) in all.lengths.iter_mut().enumerate().skip(3) {
            let symbol = length_symbol(len);
            let bits = lengths.litlen[257 + symbol];
            let extra = len as u32 - u32::from(LENGTH_BASE[symbol]);
            *place = (u32::from(litlen[257 + symbol]) | extra << bits, bits + LENGTH_EXTRA[symbol]);
        }
        for (symbol, place) in all.distances[..DISTANCE_SYMBOLS].iter_mut().enumerate() {
            let bits = lengths.distance[symbol];
            let all_bits = bits + DISTANCE_EXTRA[symbol];
            *place = DistanceCode { code: distance[symbol], base: DISTANCE_BASE[symbol], bits, all_bits };
        }
        Ok(all)
    }

    /// Bits of a literal.
    pub(crate) fn literal_bits(&self, byte: u8) -> u32 {
        self.literals[usize::from(byte)].1.into()
    }

    /// Bits of a match.
    pub(crate) fn match_bits(&self, step: &Match) -> u32 {
        let symbol = distance_symbol(step.distance() as usize);
        u32::from(self.lengths[usize::from(step.len)].1) + u32::from(self.distances[symbol].all_bits)
    }

    /// Writes `plain[from..to]`, of which `matches` are matches and the rest literals.
    pub(crate) fn write(&self, plain: &[u8], from: usize, to: usize, matches: &[Match], out: &mut BitWriter) {
        // A literal takes at most 15 bits, a match 48.
        let matched: usize = matches.iter().map(|step| usize::from(step.len)).sum();
        out.make_room((to - from - matched) * 2 + matches.len() * 6 + 8);
        let mut pen = out.pen();
        let mut at = from;
        for step in matches {
            self.write_before(plain, at, step.at as usize, &mut pen);
            let (code, bits) = self.lengths[usize::from(step.len)];
            let distance = step.distance();
            let of_distance = self.distances[distance_symbol(distance as usize)];
            let extra = distance.wrapping_sub(of_distance.base.into());
            let value = u64::from(of_distance.code) | u64::from(extra).wrapping_shl(of_distance.bits.into());
            pen.put(code.into(), bits.into());
            pen.put(value, of_distance.all_bits.into());
            pen.flush();
            at = step.end() as usize;
        }
        for &byte in &plain[at..to] {
            let (code, bits) = self.literals[usize::from(byte)];
            pen.put(code.into(), bits.into());
            pen.flush();
        }
        let state = pen.state();
        out.set(state);
    }

    /// Writes the literals from `at` up to the match at `to`.
    #[inline(always)]
    fn write_before(&self, plain: &[u8], mut at: usize, to: usize, pen: &mut Pen<'_>) {
        loop {
            let left = to.wrapping_sub(at);
            for (number, byte) in next_three(plain, at).into_iter().enumerate() {
                let (code, bits) = self.literals[usize::from(byte)];
                let is_one = u32::from(number < left);
                pen.put(u64::from(u32::from(code) * is_one), u32::from(bits) * is_one);
            }
            pen.flush();
            if left <= LITERALS {
                break;
            }
            at = at.wrapping_add(LITERALS);
        }
    }

    pub(crate) fn write_end(&self, out: &mut BitWriter) {
        let (code, bits) = self.literals[END_OF_BLOCK];
        out.put(code.into(), bits.into());
    }
}

/// Bytes that are looked at at once before a match, whether they are literals or not: how many are
/// is not for a branch to foresee. Most matches have no more before them.
const LITERALS: usize = 3;

/// The bytes from `at` on, where a match or its literals lie.
#[inline(always)]
fn next_three(plain: &[u8], at: usize) -> [u8; LITERALS] {
    plain.get(at..).and_then(<[u8]>::first_chunk::<LITERALS>).copied().unwrap_or_default()
}

/// How often each symbol stands in these steps, the end of the block not counted.
pub(crate) fn count(plain: &[u8], from: usize, to: usize, matches: &[Match]) -> Counts {
    let mut counts = Counts::new();
    // Literals one behind the other are counted apart: the same one twice would have to wait for
    // itself.
    let mut literals = [[0u32; 256]; LITERALS];
    let mut at = from;
    for step in matches {
        loop {
            let left = (step.at as usize).wrapping_sub(at);
            for (number, byte) in next_three(plain, at).into_iter().enumerate() {
                let place = &mut literals[number][usize::from(byte)];
                *place = place.wrapping_add(u32::from(number < left));
            }
            if left <= LITERALS {
                break;
            }
            at = at.wrapping_add(LITERALS);
        }
        let length = &mut counts.litlen[257 + length_symbol(usize::from(step.len))];
        *length = length.wrapping_add(1);
        let distance = &mut counts.distance[distance_symbol(step.distance() as usize)];
        *distance = distance.wrapping_add(1);
        at = step.end() as usize;
    }
    for (number, &byte) in plain[at..to].iter().enumerate() {
        literals[number % LITERALS][usize::from(byte)] += 1;
    }
    for (symbol, count) in counts.litlen[..256].iter_mut().enumerate() {
        *count = literals.iter().map(|counts| counts[symbol]).sum();
    }
    counts
}

/// Writes the code lengths of a dynamic block, from the counts of lengths on.
pub(crate) fn write_lengths(header: &Header, out: &mut BitWriter) -> Result<(), Malformed> {
    let mut length_codes = [0u16; LENGTH_SYMBOLS];
    codes(&header.length_lengths, &mut length_codes).ok_or(Malformed("more codes than there are"))?;
    out.put((header.lengths.litlen_count - 257) as u64, 5);
    out.put((header.lengths.distance_count - 1) as u64, 5);
    out.put((header.length_count - 4) as u64, 4);
    for &symbol in &LENGTH_ORDER[..header.length_count] {
        out.put(header.length_lengths[symbol].into(), 3);
    }
    for run in &header.runs {
        let symbol = usize::from(run.symbol);
        out.put(length_codes[symbol].into(), header.length_lengths[symbol].into());
        out.put(run.extra.into(), run.extra_bits());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alphabet::fixed_lengths;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn steps_are_counted_and_written_as_one_after_the_other(
            steps in prop::collection::vec((prop_oneof![0usize..5, 0usize..40], 3u16..=258, 1u32..=32_768), 0..60),
            (first, rest, seed) in (0usize..5, 0usize..10, any::<u64>()),
        ) {
            let (mut at, mut matches) = (first, Vec::new());
            for (literals, len, distance) in steps {
                matches.push(Match::new((at + literals) as u32, len, distance));
                at += literals + usize::from(len);
            }
            let to = at + rest;
            let plain: Vec<u8> = (0..to as u64).map(|at| (seed.wrapping_mul(at * at + 1) >> 40) as u8 & 15).collect();
            let codes = Codes::new(&fixed_lengths()).expect("codes");
            let (mut counts, mut bits) = (Counts::new(), BitWriter::default());
            let mut place = first;
            for step in matches.iter().map(Some).chain([None]) {
                for &byte in &plain[place..step.map_or(to, |step| step.at as usize)] {
                    counts.litlen[usize::from(byte)] += 1;
                    let (code, count) = codes.literals[usize::from(byte)];
                    bits.put(code.into(), count.into());
                }
                let Some(step) = step else { break };
                counts.litlen[257 + length_symbol(usize::from(step.len))] += 1;
                let symbol = distance_symbol(step.distance() as usize);
                counts.distance[symbol] += 1;
                let (code, count) = codes.lengths[usize::from(step.len)];
                bits.put(code.into(), count.into());
                bits.put(codes.distances[symbol].code.into(), codes.distances[symbol].bits.into());
                let extra = DISTANCE_EXTRA[symbol];
                bits.put((step.distance() - u32::from(DISTANCE_BASE[symbol])).into(), extra.into());
                place = step.end() as usize;
            }
            let counted = count(&plain, first, to, &matches);
            prop_assert_eq!((counted.litlen, counted.distance), (counts.litlen, counts.distance));
            let mut written = BitWriter::default();
            codes.write(&plain, first, to, &matches, &mut written);
            prop_assert_eq!(written.bits(), bits.bits());
            for out in [&mut written, &mut bits] {
                let padding = out.padding();
                out.put(0, padding);
            }
            prop_assert_eq!(written.into_bytes(), bits.into_bytes());
        }
    }
}
