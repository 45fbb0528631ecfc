//! Content that is known by its number.

use crate::dice::Dice;

/// Bytes at the beginning that say which content it is.
pub(crate) const HEAD_LEN: usize = 16;
/// Families of content: members of one are similar.
const FAMILIES: u64 = 4;

/// Some content: everything about it follows from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) number: u64,
    family: u64,
    len: usize,
}

impl Content {
    /// The content of a number.
    pub(crate) fn of(number: u64) -> Self {
        let mut dice = Dice::new(number, 0x00c0_ffee);
        let len = match dice.below(10) {
            0..3 => dice.between(HEAD_LEN as u64, 3_000),
            3..9 => dice.between(5_000, 40_000),
            _ => dice.between(60_000, 200_000),
        };
        Self { number, family: dice.below(FAMILIES), len: usize::try_from(len).unwrap_or(HEAD_LEN) }
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Its bytes: its number and length, then noise of the family with the member's edits.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut state = self.family.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as u8 & 0x3f
        })
        .take(self.len)
        .collect();
        for (index, byte) in bytes.iter_mut().step_by(1009).enumerate() {
            *byte = (self.number >> (8 * (index % 8))) as u8;
        }
        bytes[..8].copy_from_slice(&self.number.to_be_bytes());
        bytes[8..HEAD_LEN].copy_from_slice(&(self.len as u64).to_be_bytes());
        bytes
    }

    /// Which content some bytes are, if they are one to the last byte.
    pub(crate) fn recognised(bytes: &[u8]) -> Option<Self> {
        let head: [u8; 8] = bytes.get(..8)?.try_into().ok()?;
        let content = Self::of(u64::from_be_bytes(head));
        (content.bytes() == bytes).then_some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_recognised_and_no_byte_of_it_may_differ() {
        for number in 0..40 {
            let mut bytes = Content::of(number).bytes();
            assert_eq!(Content::recognised(&bytes), Some(Content::of(number)));
            *bytes.last_mut().expect("not empty") ^= 1;
            assert_eq!(Content::recognised(&bytes), None);
        }
        assert_ne!(Content::of(1).bytes(), Content::of(2).bytes());
    }
}
