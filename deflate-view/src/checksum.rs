//! The check behind a zlib stream (RFC 1950 §8.2).

const MODULUS: u32 = 65_521;
/// Bytes after which the sums have to be reduced: the most that cannot overflow.
const ROUND_LEN: usize = 5552;

/// Adler-32 of bytes that come one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adler {
    sum: u32,
    sums: u32,
}

impl Default for Adler {
    fn default() -> Self {
        Self { sum: 1, sums: 0 }
    }
}

impl Adler {
    /// The next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for round in bytes.chunks(ROUND_LEN) {
            // Sixteen at a time: what each adds to the second sum is known beforehand.
            let words = round.chunks_exact(16);
            let rest = words.remainder();
            for word in words {
                let (mut sum, mut weighted) = (0u32, 0u32);
                for (at, &byte) in word.iter().enumerate() {
                    sum = sum.wrapping_add(byte.into());
                    weighted = weighted.wrapping_add(u32::from(byte).wrapping_mul(16 - at as u32));
                }
                self.sums = self.sums.wrapping_add(self.sum.wrapping_mul(16)).wrapping_add(weighted);
                self.sum = self.sum.wrapping_add(sum);
            }
            for &byte in rest {
                self.sum = self.sum.wrapping_add(byte.into());
                self.sums = self.sums.wrapping_add(self.sum);
            }
            self.sum %= MODULUS;
            self.sums %= MODULUS;
        }
    }

    /// The check of all of them.
    pub(crate) fn value(self) -> u32 {
        self.sums << 16 | self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_that_of_zlib() {
        let of = |pieces: &[&[u8]]| {
            let mut adler = Adler::default();
            pieces.iter().for_each(|piece| adler.update(piece));
            adler.value()
        };
        assert_eq!(of(&[]), 1);
        assert_eq!(of(&[b"Wikipedia"]), 0x11e6_0398);
        let long = vec![0xff; 70_000];
        let expected = |bytes: &[u8]| {
            let (mut sum, mut sums) = (1u64, 0u64);
            for &byte in bytes {
                sum = (sum + u64::from(byte)) % 65_521;
                sums = (sums + sum) % 65_521;
            }
            (sums << 16 | sum) as u32
        };
        assert_eq!(of(&[&long]), expected(&long));
        assert_eq!(of(&[&long[..7], &long[7..6000], &long[6000..]]), expected(&long));
    }
}
