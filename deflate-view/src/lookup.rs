//! Tables that turn the next bits of a stream into a symbol, its base value and its extra bits.

use crate::Malformed;
use crate::alphabet::{
    CodeLengths, DISTANCE_BASE, DISTANCE_EXTRA, DISTANCE_SYMBOLS, END_OF_BLOCK, LENGTH_BASE, LENGTH_EXTRA,
    LITLEN_SYMBOLS, codes,
};

/// Bits that the first look-up takes.
const LITLEN_BITS: u32 = 11;
const DISTANCE_BITS: u32 = 9;

/// One entry: the length of its code, its kind, its extra bits, its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(u32);

impl Entry {
    const INVALID: Self = Self(3 << 4);
    const END: Self = Self(3 << 4 | 1 << 16);

    fn new(kind: u32, bits: u32, extra: u32, value: u32) -> Self {
        Self(bits | kind << 4 | extra << 8 | value << 16)
    }

    /// Bits of the code.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        self.0 & 15
    }

    #[inline(always)]
    pub(crate) fn is_literal(self) -> bool {
        self.0 & 0x30 == 0
    }

    /// A length or a distance: a value, and extra bits to add to it.
    #[inline(always)]
    pub(crate) fn is_value(self) -> bool {
        self.0 & 0x30 == 0x10
    }

    #[inline(always)]
    fn is_link(self) -> bool {
        self.0 & 0x30 == 0x20
    }

    /// The end of the block; what is neither this nor a literal nor a value has no meaning.
    #[inline(always)]
    pub(crate) fn is_end(self) -> bool {
        self.0 & 0x30 == 0x30 && self.value() == 1
    }

    #[inline(always)]
    pub(crate) fn extra(self) -> u32 {
        self.0 >> 8 & 15
    }

    #[inline(always)]
    pub(crate) fn value(self) -> u32 {
        self.0 >> 16
    }
}

/// The entries of one code: those of the first bits, and behind them those of longer codes.
#[derive(Clone, Debug, Default)]
struct Lookup {
    entries: Vec<Entry>,
}

impl Lookup {
    fn build(&mut self, bits: u32, lengths: &[u8], entry: impl Fn(usize, u32) -> Entry) -> Result<(), Malformed> {
        let mut code = [0u16; 288];
        codes(lengths, &mut code[..lengths.len()]).ok_or(Malformed("more codes than there are"))?;
        self.entries.clear();
        self.entries.resize(1 << bits, Entry::INVALID);
        let first = (1usize << bits) - 1;
        // How many more bits the longest code behind each first look-up has.
        let mut longest = [0u8; 1 << LITLEN_BITS];
        for (&len, &code) in lengths.iter().zip(&code) {
            let more = u32::from(len).saturating_sub(bits) as u8;
            let longest = &mut longest[usize::from(code) & first];
            *longest = more.max(*longest);
        }
        for (symbol, (&len, &code)) in lengths.iter().zip(&code).enumerate() {
            let (len, code) = (u32::from(len), usize::from(code));
            if len == 0 {
                continue;
            }
            let entry = entry(symbol, len);
            if len <= bits {
                self.entries[code..=first].iter_mut().step_by(1 << len).for_each(|place| *place = entry);
                continue;
            }
            let more = u32::from(longest[code & first]);
            if !self.entries[code & first].is_link() {
                self.entries[code & first] = Entry::new(2, bits, more, self.entries.len() as u32);
                self.entries.resize(self.entries.len() + (1 << more), Entry::INVALID);
            }
            let start = self.entries[code & first].value() as usize;
            let rest = start + (code >> bits);
            self.entries[rest..start + (1 << more)]
                .iter_mut()
                .step_by(1 << (len - bits))
                .for_each(|place| *place = entry);
        }
        Ok(())
    }

    #[inline(always)]
    fn find(&self, bits: u32, next: u64) -> Entry {
        let entry = self.entries[(next & ((1 << bits) - 1)) as usize];
        if entry.is_link() {
            let more = next >> bits & ((1 << entry.extra()) - 1);
            return self.entries[entry.value() as usize + more as usize];
        }
        entry
    }
}

/// Both codes of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookups {
    litlen: Lookup,
    distance: Lookup,
}

impl Lookups {
    /// Makes these the look-ups of `lengths`.
    pub(crate) fn set(&mut self, lengths: &CodeLengths) -> Result<(), Malformed> {
        self.litlen.build(LITLEN_BITS, &lengths.litlen[..lengths.litlen_count], |symbol, len| match symbol {
            0..END_OF_BLOCK => Entry::new(0, len, 0, symbol as u32),
            END_OF_BLOCK => Entry(Entry::END.0 | len),
            257..LITLEN_SYMBOLS => {
                Entry::new(1, len, LENGTH_EXTRA[symbol - 257].into(), LENGTH_BASE[symbol - 257].into())
            }
            _ => Entry::INVALID,
        })?;
        self.distance.build(DISTANCE_BITS, &lengths.distance[..lengths.distance_count], |symbol, len| match symbol {
            0..DISTANCE_SYMBOLS => Entry::new(1, len, DISTANCE_EXTRA[symbol].into(), DISTANCE_BASE[symbol].into()),
            _ => Entry::INVALID,
        })
    }

    #[inline(always)]
    pub(crate) fn litlen(&self, next: u64) -> Entry {
        self.litlen.find(LITLEN_BITS, next)
    }

    #[inline(always)]
    pub(crate) fn distance(&self, next: u64) -> Entry {
        self.distance.find(DISTANCE_BITS, next)
    }
}
