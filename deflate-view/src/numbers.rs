//! Numbers as stored forms have them (docs/format/deflate-view-v1.md §3). Part of the format.

use crate::Malformed;

/// Appends a number, seven bits a byte, the lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The next number, which has to be as short as it can be and below 2 to the power of 63.
pub(crate) fn take(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0;
    for at in 0..9 {
        let (&byte, behind) = rest.split_first().ok_or(Malformed("a unit ends early"))?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return if byte == 0 && at > 0 { Err(Malformed("a number is not minimal")) } else { Ok(value) };
        }
    }
    Err(Malformed("a number is too long"))
}

/// The next number, at most `most`.
pub(crate) fn take_up_to(rest: &mut &[u8], most: usize) -> Result<usize, Malformed> {
    let value = take(rest)?;
    usize::try_from(value).ok().filter(|value| *value <= most).ok_or(Malformed("a number is too large"))
}
