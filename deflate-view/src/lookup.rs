//! Tables that turn the next bits of a stream into a symbol, its base value and its extra bits.

use crate::Malformed;
use crate::alphabet::{
    CodeLengths, DISTANCE_BASE, DISTANCE_EXTRA, DISTANCE_SYMBOLS, END_OF_BLOCK, LENGTH_BASE, LENGTH_EXTRA,
    LITLEN_SYMBOLS, codes,
};

/// Bits that the first look-up takes.
const LITLEN_BITS: u32 = 11;
const DISTANCE_BITS: u32 = 9;
/// Entries of both at most. Codes ascend with their lengths, so that behind a first look-up there
/// are as many entries as codes, but for the few where one length follows on another.
const LITLEN_ENTRIES: usize = 1 << 12;
const DISTANCE_ENTRIES: usize = 1 << 10;

/// One entry: the bits of its code with its extra bits (6 bits), its kind (2), the bits of its code
/// (4), its value (16).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(u32);

impl Entry {
    const INVALID: Self = Self(3 << 6);
    const END: Self = Self(3 << 6 | 1 << 16);

    fn new(kind: u32, bits: u32, extra: u32, value: u32) -> Self {
        Self((bits + extra) | kind << 6 | bits << 8 | value << 16)
    }

    /// To entries for so many more bits, from `start` on.
    fn link(more: u32, start: usize) -> Self {
        Self(more | 2 << 6 | (start as u32) << 16)
    }

    /// Bits of the code and those behind it.
    #[inline(always)]
    pub(crate) fn all_bits(self) -> u32 {
        self.0 & 63
    }

    #[inline(always)]
    pub(crate) fn is_literal(self) -> bool {
        self.0 & 0xc0 == 0
    }

    /// A length or a distance: a value, and extra bits to add to it.
    #[inline(always)]
    pub(crate) fn is_value(self) -> bool {
        self.0 & 0xc0 == 0x40
    }

    #[inline(always)]
    fn is_link(self) -> bool {
        self.0 & 0xc0 == 0x80
    }

    /// The end of the block; what is neither this nor a literal nor a value has no meaning.
    #[inline(always)]
    pub(crate) fn is_end(self) -> bool {
        self.0 & 0xc0 == 0xc0 && self.value() == 1
    }

    /// The bits of the code without those behind it.
    #[inline(always)]
    fn code_bits(self) -> u32 {
        self.0 >> 8 & 15
    }

    #[inline(always)]
    pub(crate) fn has_extra_bits(self) -> bool {
        self.all_bits() != self.code_bits()
    }

    #[inline(always)]
    pub(crate) fn value(self) -> u32 {
        self.0 >> 16
    }

    /// The value with the extra bits, `next` being the code and what follows it.
    #[inline(always)]
    pub(crate) fn value_with(self, next: u64) -> usize {
        let extra = (next & ((1 << self.all_bits()) - 1)) >> self.code_bits();
        (self.value() as usize).wrapping_add(extra as usize)
    }
}

/// The entries of one code: those of the first `BITS` bits, and behind them those of longer codes.
#[derive(Clone, Debug)]
struct Lookup<const BITS: u32, const ENTRIES: usize> {
    entries: Box<[Entry; ENTRIES]>,
}

impl<const BITS: u32, const ENTRIES: usize> Lookup<BITS, ENTRIES> {
    fn new() -> Self {
        Self { entries: Box::new([Entry::INVALID; ENTRIES]) }
    }

    fn build(&mut self, lengths: &[u8], entry: impl Fn(usize, u32) -> Entry) -> Result<(), Malformed> {
        let mut code = [0u16; 288];
        codes(lengths, &mut code[..lengths.len()]).ok_or(Malformed("more codes than there are"))?;
        let entries = &mut self.entries[..];
        let mut end = 1usize << BITS;
        entries[..end].fill(Entry::INVALID);
        let first = end - 1;
        // How many more bits the longest code behind each first look-up has.
        let mut longest = [0u8; 1 << LITLEN_BITS];
        for (&len, &code) in lengths.iter().zip(&code).filter(|(len, _)| u32::from(**len) > BITS) {
            let longest = &mut longest[usize::from(code) & first];
            *longest = (len - BITS as u8).max(*longest);
        }
        for (symbol, (&len, &code)) in lengths.iter().zip(&code).enumerate() {
            let (len, code) = (u32::from(len), usize::from(code));
            if len == 0 {
                continue;
            }
            let entry = entry(symbol, len);
            if len <= BITS {
                entries[code..=first].iter_mut().step_by(1 << len).for_each(|place| *place = entry);
                continue;
            }
            let more = u32::from(longest[code & first]);
            if !entries[code & first].is_link() {
                entries[code & first] = Entry::link(more, end);
                let behind = entries.get_mut(end..end + (1 << more)).ok_or(Malformed("a code of too many parts"))?;
                behind.fill(Entry::INVALID);
                end += 1 << more;
            }
            let start = entries[code & first].value() as usize;
            let rest = start + (code >> BITS);
            entries[rest..start + (1 << more)].iter_mut().step_by(1 << (len - BITS)).for_each(|place| *place = entry);
        }
        Ok(())
    }

    #[inline(always)]
    fn find(&self, next: u64) -> Entry {
        let entry = self.entries[(next & ((1 << BITS) - 1)) as usize % ENTRIES];
        if entry.is_link() {
            let more = next >> BITS & ((1 << entry.all_bits()) - 1);
            return self.entries[(entry.value() as usize).wrapping_add(more as usize) % ENTRIES];
        }
        entry
    }
}

/// Both codes of a block.
#[derive(Clone, Debug)]
pub(crate) struct Lookups {
    litlen: Lookup<LITLEN_BITS, LITLEN_ENTRIES>,
    distance: Lookup<DISTANCE_BITS, DISTANCE_ENTRIES>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self { litlen: Lookup::new(), distance: Lookup::new() }
    }
}

impl Lookups {
    /// Makes these the look-ups of `lengths`.
    pub(crate) fn set(&mut self, lengths: &CodeLengths) -> Result<(), Malformed> {
        self.litlen.build(&lengths.litlen[..lengths.litlen_count], |symbol, len| match symbol {
            0..END_OF_BLOCK => Entry::new(0, len, 0, symbol as u32),
            END_OF_BLOCK => Entry(Entry::END.0 | len | len << 8),
            257..LITLEN_SYMBOLS => {
                Entry::new(1, len, LENGTH_EXTRA[symbol - 257].into(), LENGTH_BASE[symbol - 257].into())
            }
            _ => Entry::INVALID,
        })?;
        self.distance.build(&lengths.distance[..lengths.distance_count], |symbol, len| match symbol {
            0..DISTANCE_SYMBOLS => Entry::new(1, len, DISTANCE_EXTRA[symbol].into(), DISTANCE_BASE[symbol].into()),
            _ => Entry::INVALID,
        })
    }

    #[inline(always)]
    pub(crate) fn litlen(&self, next: u64) -> Entry {
        self.litlen.find(next)
    }

    #[inline(always)]
    pub(crate) fn distance(&self, next: u64) -> Entry {
        self.distance.find(next)
    }
}
