//! The alphabets of deflate (RFC 1951 §3.2.5 to §3.2.7) and canonical codes over them.

/// Symbols of the literal and length alphabet that can be coded.
pub(crate) const LITLEN_SYMBOLS: usize = 286;
/// Symbols of the distance alphabet that mean something.
pub(crate) const DISTANCE_SYMBOLS: usize = 30;
/// Symbols of the alphabet that code lengths are written in.
pub(crate) const LENGTH_SYMBOLS: usize = 19;
/// Ends a block.
pub(crate) const END_OF_BLOCK: usize = 256;
/// Longest code of literals, lengths and distances.
pub(crate) const CODE_LEN_MAX: usize = 15;
/// Longest code of a code length.
pub(crate) const LENGTH_CODE_LEN_MAX: usize = 7;
/// Shortest and longest match.
pub(crate) const MATCH_LEN_MIN: usize = 3;
pub(crate) const MATCH_LEN_MAX: usize = 258;
/// How far back a match may reach.
pub(crate) const WINDOW_LEN: usize = 32 << 10;

/// In this order the lengths of the codes of code lengths are written.
pub(crate) const LENGTH_ORDER: [usize; LENGTH_SYMBOLS] =
    [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// The shortest match of each length symbol from 257 on.
pub(crate) const LENGTH_BASE: [u16; 29] =
    [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
/// Bits that follow each of them.
pub(crate) const LENGTH_EXTRA: [u8; 29] =
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
/// The nearest distance of each distance symbol.
pub(crate) const DISTANCE_BASE: [u16; DISTANCE_SYMBOLS] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145,
    8193, 12289, 16385, 24577,
];
/// Bits that follow each of them.
pub(crate) const DISTANCE_EXTRA: [u8; DISTANCE_SYMBOLS] =
    [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];

/// Length symbols, less 257, by match length.
static SYMBOL_OF_LENGTH: [u8; MATCH_LEN_MAX + 1] = symbols_of_lengths();
/// Distance symbols by distance less one, up to 256, and behind them by its upper bits.
static SYMBOL_OF_DISTANCE: [u8; 512] = symbols_of_distances();

const fn symbols_of_lengths() -> [u8; MATCH_LEN_MAX + 1] {
    let mut symbols = [0; MATCH_LEN_MAX + 1];
    let mut symbol = 0;
    while symbol < 28 {
        let mut len = LENGTH_BASE[symbol] as usize;
        while len <= MATCH_LEN_MAX {
            symbols[len] = symbol as u8;
            len += 1;
        }
        symbol += 1;
    }
    symbols[MATCH_LEN_MAX] = 28;
    symbols
}

const fn symbols_of_distances() -> [u8; 512] {
    let mut symbols = [0; 512];
    let mut at = 0;
    while at < 512 {
        let less_one = if at < 256 { at } else { (at - 256) << 7 };
        let mut symbol = 0;
        while symbol < DISTANCE_SYMBOLS && DISTANCE_BASE[symbol] as usize <= less_one + 1 {
            symbols[at] = symbol as u8;
            symbol += 1;
        }
        at += 1;
    }
    symbols
}

/// The length symbol, less 257, of a match of `len` bytes (3 to 258).
#[inline(always)]
pub(crate) fn length_symbol(len: usize) -> usize {
    usize::from(SYMBOL_OF_LENGTH[len])
}

/// The distance symbol of a distance (1 to 32,768).
#[inline(always)]
pub(crate) fn distance_symbol(distance: usize) -> usize {
    let less_one = distance.wrapping_sub(1);
    // One look-up, and no branch that nobody could foresee.
    let far = 256 + ((less_one >> 7) & 255);
    usize::from(SYMBOL_OF_DISTANCE[if less_one < 256 { less_one } else { far }])
}

/// The lengths of the fixed codes (RFC 1951 §3.2.6).
pub(crate) fn fixed_lengths() -> CodeLengths {
    let mut lengths = CodeLengths { litlen: [8; 288], distance: [5; 32], litlen_count: 288, distance_count: 30 };
    lengths.litlen[144..256].fill(9);
    lengths.litlen[256..280].fill(7);
    lengths
}

/// The code lengths of a block, and how many of each alphabet its header writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeLengths {
    pub(crate) litlen: [u8; 288],
    pub(crate) distance: [u8; 32],
    pub(crate) litlen_count: usize,
    pub(crate) distance_count: usize,
}

/// The canonical codes of these lengths, first bit lowest, as a writer of deflate needs them.
/// `None` when more codes are wanted than there are.
pub(crate) fn codes(lengths: &[u8], out: &mut [u16]) -> Option<()> {
    let mut counts = [0u32; CODE_LEN_MAX + 1];
    for &len in lengths {
        counts[usize::from(len)] += 1;
    }
    counts[0] = 0;
    let mut next = [0u32; CODE_LEN_MAX + 2];
    let mut code = 0;
    for len in 1..=CODE_LEN_MAX {
        code = (code + counts[len - 1]) << 1;
        next[len] = code;
        if code + counts[len] > 1 << len {
            return None;
        }
    }
    for (&len, out) in lengths.iter().zip(out) {
        *out = 0;
        if len > 0 {
            let code = &mut next[usize::from(len)];
            *out = (*code as u16).reverse_bits() >> (16 - len);
            *code += 1;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_distance_lies_between_its_symbol_and_the_next() {
        for len in MATCH_LEN_MIN..=MATCH_LEN_MAX {
            let symbol = length_symbol(len);
            let extra = len - usize::from(LENGTH_BASE[symbol]);
            assert!(extra < 1 << LENGTH_EXTRA[symbol], "{len}");
        }
        for distance in 1..=WINDOW_LEN {
            let symbol = distance_symbol(distance);
            let extra = distance - usize::from(DISTANCE_BASE[symbol]);
            assert!(extra < 1 << DISTANCE_EXTRA[symbol], "{distance}");
        }
    }

    #[test]
    fn more_codes_than_there_are_have_no_codes() {
        let mut out = [0; 3];
        assert!(codes(&[1, 1, 1], &mut out).is_none());
        assert!(codes(&[1, 2, 2], &mut out).is_some());
        assert_eq!(out, [0b0, 0b01, 0b11]);
    }
}
