//! How an encoder cut a plain text: blocks, and in them literals and matches.

use std::sync::Arc;

use crate::alphabet::{CodeLengths, LENGTH_SYMBOLS};

/// "From `at` on, `len` bytes are those `distance` before." What lies between two matches is
/// literals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Position in the plain text.
    pub at: u32,
    /// Bytes: 3 to 258, or what is left of a match that begins before the text does.
    pub len: u16,
    distance_less_one: u16,
}

impl Match {
    /// A match of `distance` (1 to 32,768).
    pub fn new(at: u32, len: u16, distance: u32) -> Self {
        Self { at, len, distance_less_one: distance.wrapping_sub(1) as u16 }
    }

    /// How far back it reaches, in bytes: 1 to 32,768, of what nobody made up 65,536 at most.
    #[inline(always)]
    pub fn distance(&self) -> u32 {
        u32::from(self.distance_less_one) + 1
    }

    /// The position behind its last byte.
    #[inline(always)]
    pub fn end(&self) -> u32 {
        self.at + u32::from(self.len)
    }
}

/// What kind of block, and what its header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes as they are: the bits before the next full byte, and the length field.
    Stored {
        padding: u8,
        len: u16,
    },
    Fixed,
    Dynamic(Arc<Header>),
}

/// The header of a block with codes of its own, down to the way its lengths were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) lengths: CodeLengths,
    /// Lengths of the codes for code lengths, by symbol, and how many were written.
    pub(crate) length_lengths: [u8; LENGTH_SYMBOLS],
    pub(crate) length_count: usize,
    pub(crate) runs: Vec<LengthRun>,
}

/// One symbol of the code lengths: a length, or how often one is repeated (16: the last, 17 and 18:
/// zero).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LengthRun {
    pub(crate) symbol: u8,
    /// The bits behind symbols 16, 17 and 18.
    pub(crate) extra: u8,
}

impl LengthRun {
    /// How many lengths it stands for.
    pub(crate) fn count(self) -> usize {
        match self.symbol {
            16 | 17 => 3 + usize::from(self.extra),
            18 => 11 + usize::from(self.extra),
            _ => 1,
        }
    }

    /// Bits behind the symbol.
    pub(crate) fn extra_bits(self) -> u32 {
        match self.symbol {
            16 => 2,
            17 => 3,
            18 => 7,
            _ => 0,
        }
    }
}

/// One block of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) is_last: bool,
    pub(crate) kind: Kind,
    /// Its matches among those of the parse.
    pub(crate) matches: std::ops::Range<usize>,
    /// Its bytes in the plain text.
    pub(crate) plain: std::ops::Range<usize>,
    /// Bits of the stream before its header, and before what follows the header.
    pub(crate) header_bit: u64,
    pub(crate) body_bit: u64,
    /// Bits of the stream before what follows the block; set when the block has ended.
    pub(crate) end_bit: Option<u64>,
}

/// The parse of a run of plain text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parse {
    pub(crate) blocks: Vec<Block>,
    pub(crate) matches: Vec<Match>,
    /// Where in the text the positions of matches count from; no match lies before it.
    pub(crate) origin: u32,
}
