//! From plain text and parse back to the bits of a deflate stream.

use crate::Malformed;
use crate::alphabet::{
    CodeLengths, DISTANCE_BASE, DISTANCE_EXTRA, END_OF_BLOCK, LENGTH_BASE, LENGTH_EXTRA, LENGTH_ORDER, LENGTH_SYMBOLS,
    codes, distance_symbol, length_symbol,
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

    /// Appends at most 48 bits. There has to be room.
    #[inline(always)]
    fn put_unchecked(&mut self, value: u64, count: u32) {
        self.held |= value << self.count;
        self.count += count;
        if self.count >= 32 {
            if let Some(place) = self.bytes.get_mut(self.len..self.len + 4) {
                place.copy_from_slice(&(self.held as u32).to_le_bytes());
            }
            self.len += 4;
            self.held >>= 32;
            self.count -= 32;
        }
    }

    /// Appends at most 32 bits.
    pub(crate) fn put(&mut self, value: u64, count: u32) {
        self.make_room(8);
        self.put_unchecked(value, count);
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

/// The codes of a block, ready to be written.
#[derive(Debug)]
pub(crate) struct Codes {
    /// Code and length of every literal and of the end.
    literals: [(u16, u8); 257],
    /// Code of every match length with its extra bits, and their length; by length.
    lengths: [(u32, u8); 259],
    distances: [(u16, u8); 32],
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
        let mut all = Self { literals: [(0, 0); 257], lengths: [(0, 0); 259], distances: [(0, 0); 32] };
        for (symbol, place) in all.literals.iter_mut().enumerate() {
            *place = (litlen[symbol], lengths.litlen[symbol]);
        }
        for (len, place) in all.lengths.iter_mut().enumerate().skip(3) {
            let symbol = length_symbol(len);
            let bits = lengths.litlen[257 + symbol];
            let extra = len as u32 - u32::from(LENGTH_BASE[symbol]);
            *place = (u32::from(litlen[257 + symbol]) | extra << bits, bits + LENGTH_EXTRA[symbol]);
        }
        for (symbol, place) in all.distances.iter_mut().enumerate() {
            *place = (distance[symbol], lengths.distance[symbol]);
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
        u32::from(self.lengths[usize::from(step.len)].1)
            + u32::from(self.distances[symbol].1)
            + u32::from(DISTANCE_EXTRA[symbol])
    }

    /// Writes `plain[from..to]`, of which `matches` are matches and the rest literals.
    pub(crate) fn write(&self, plain: &[u8], from: usize, to: usize, matches: &[Match], out: &mut BitWriter) {
        let mut at = from;
        for step in matches {
            self.write_literals(&plain[at..step.at as usize], out);
            out.make_room(8);
            let (code, bits) = self.lengths[usize::from(step.len)];
            let distance = step.distance() as usize;
            let symbol = distance_symbol(distance);
            let (distance_code, distance_bits) = self.distances[symbol];
            let extra = (distance - usize::from(DISTANCE_BASE[symbol])) as u64;
            out.put_unchecked(code.into(), bits.into());
            let value = u64::from(distance_code) | extra << distance_bits;
            out.put_unchecked(value, u32::from(distance_bits) + u32::from(DISTANCE_EXTRA[symbol]));
            at = step.end() as usize;
        }
        self.write_literals(&plain[at..to], out);
    }

    #[inline(always)]
    fn write_literals(&self, literals: &[u8], out: &mut BitWriter) {
        out.make_room(literals.len() * 2 + 8);
        for &byte in literals {
            let (code, bits) = self.literals[usize::from(byte)];
            out.put_unchecked(code.into(), bits.into());
        }
    }

    pub(crate) fn write_end(&self, out: &mut BitWriter) {
        let (code, bits) = self.literals[END_OF_BLOCK];
        out.put(code.into(), bits.into());
    }
}

/// How often each symbol stands in these steps, the end of the block not counted.
pub(crate) fn count(plain: &[u8], from: usize, to: usize, matches: &[Match]) -> Counts {
    let mut counts = Counts::new();
    let mut at = from;
    for step in matches {
        count_literals(&plain[at..step.at as usize], &mut counts);
        counts.litlen[257 + length_symbol(usize::from(step.len))] += 1;
        counts.distance[distance_symbol(step.distance() as usize)] += 1;
        at = step.end() as usize;
    }
    count_literals(&plain[at..to], &mut counts);
    counts
}

#[inline(always)]
fn count_literals(literals: &[u8], counts: &mut Counts) {
    for &byte in literals {
        counts.litlen[usize::from(byte)] += 1;
    }
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
