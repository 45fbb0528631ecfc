//! The trailer: where the root is, for readers without a catalog row (docs/format/blob-v1.md §9).

use crate::{
    error::FormatError,
    fields::{Fields, PutFields},
    header::{HEADER_LEN, VERSION},
    root::{ROOT_LEN_MAX, RootPlace},
};
use crypto::aead::TAG_LEN;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the trailer. Part of the format.
pub const TRAILER_LEN: usize = 64;
const END_MAGIC: [u8; 8] = *b"DWB1END\n";
const CHECKED_LEN: usize = 48;

/// Appends the trailer of a blob that will then have `stored_len` bytes.
pub(crate) fn encode(place: &RootPlace, stored_len: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_u64(place.offset);
    out.put_u32(place.len);
    out.put_u32(0);
    out.put(&place.tag);
    out.put_u64(stored_len);
    out.put(&[VERSION, 0, 0, 0, 0, 0, 0, 0]);
    let check = xxh3_64(&out[start..]);
    out.put_u64(check);
    out.put(&END_MAGIC);
}

/// Reads the trailer of a blob of `stored_len` bytes.
pub(crate) fn decode(bytes: &[u8], stored_len: u64) -> Result<RootPlace, FormatError> {
    let mut fields = Fields::new(bytes);
    let mut checked = Fields::new(fields.take(CHECKED_LEN)?);
    if fields.u64()? != xxh3_64(&bytes[..CHECKED_LEN]) || fields.array()? != END_MAGIC {
        return Err(FormatError::Malformed("no trailer where one should be"));
    }
    fields.end()?;
    let (offset, len) = (checked.u64()?, checked.u32()?);
    checked.zero(4)?;
    let place = RootPlace { offset, len, tag: checked.array()? };
    let stored = checked.u64()?;
    if checked.u8()? != VERSION {
        return Err(FormatError::Malformed("unknown version"));
    }
    checked.zero(7)?;
    if stored != stored_len {
        return Err(FormatError::Malformed("the blob has another length than its trailer says"));
    }
    check_place(&place)?;
    let end = offset.checked_add(u64::from(len)).and_then(|end| end.checked_add(TRAILER_LEN as u64));
    match end == Some(stored_len) {
        true => Ok(place),
        false => Err(FormatError::Malformed("the root does not end where the trailer begins")),
    }
}

/// Checks a root's place alone, wherever it came from.
pub(crate) fn check_place(place: &RootPlace) -> Result<(), FormatError> {
    if place.len as usize > ROOT_LEN_MAX {
        return Err(FormatError::TooLarge("1 MiB of root"));
    }
    match place.offset >= HEADER_LEN as u64 && place.len as usize >= TAG_LEN {
        true => Ok(()),
        false => Err(FormatError::Malformed("a root where none can be")),
    }
}
