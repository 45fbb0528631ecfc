//! The numbers of the format (docs/format/delta-v1.md §2): minimal LEB128 below 2^32, and zigzag
//! for signed ones.

use crate::error::DecodeError;

/// Longest varint anywhere.
const LEN_MAX: usize = 5;
/// Longest varint inside an instruction stream.
const INSTRUCTION_LEN_MAX: usize = 4;

const ENDS_EARLY: DecodeError = DecodeError("a number ends early");

/// Appends `value`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The unsigned form of a signed number: 0, -1, 1, -2, 2 … become 0, 1, 2, 3, 4 …
#[inline]
pub(crate) fn zigzag(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

/// The inverse of [`zigzag`].
#[inline]
pub(crate) fn unzigzag(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

/// Reads bytes and numbers from the front of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError("the delta ends early"))?;
        self.rest = rest;
        Ok(first)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError("the delta ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next number.
    pub(crate) fn number(&mut self) -> Result<u32, DecodeError> {
        self.number_of(LEN_MAX)
    }

    /// The next number of an instruction stream: at most 28 bits.
    #[inline]
    pub(crate) fn instruction_number(&mut self) -> Result<u32, DecodeError> {
        match self.rest.split_first() {
            Some((&first, rest)) if first < 0x80 => {
                self.rest = rest;
                Ok(u32::from(first))
            }
            _ => self.number_of(INSTRUCTION_LEN_MAX),
        }
    }

    fn number_of(&mut self, len_max: usize) -> Result<u32, DecodeError> {
        let mut value = 0u64;
        for (at, &byte) in self.rest.iter().take(len_max).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                if byte == 0 && at > 0 {
                    return Err(DecodeError("a number is not minimal"));
                }
                self.rest = &self.rest[at + 1..];
                return u32::try_from(value).map_err(|_| DecodeError("a number is too large"));
            }
        }
        Err(if self.rest.len() < len_max { ENDS_EARLY } else { DecodeError("a number is too long") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value in any::<u32>(), shift in 0u32..32) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.number(), Ok(value));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn signed_numbers_come_back(value in any::<i32>()) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }

        #[test]
        fn a_number_has_one_spelling(bytes in prop::collection::vec(any::<u8>(), 0..7)) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = reader.number() {
                let mut again = Vec::new();
                put(&mut again, value);
                prop_assert_eq!(again.as_slice(), &bytes[..bytes.len() - reader.rest.len()]);
            }
        }
    }

    #[test]
    fn what_is_not_minimal_or_too_large_or_cut_is_refused() {
        let number = |bytes: &[u8]| Reader::new(bytes).number();
        assert_eq!(number(&[0x80, 0x00]), Err(DecodeError("a number is not minimal")));
        assert_eq!(number(&[0xff, 0xff, 0xff, 0xff, 0x10]), Err(DecodeError("a number is too large")));
        assert_eq!(number(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(u32::MAX));
        assert_eq!(number(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]), Err(DecodeError("a number is too long")));
        assert_eq!(number(&[0x80]), Err(ENDS_EARLY));
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x01]).instruction_number(),
            Err(DecodeError("a number is too long"))
        );
    }
}
