//! The outside of a Zstandard frame (RFC 8878 §3.1.1): enough of it to know, before the library is
//! asked, that there is exactly one frame, that its window is bounded, and what it claims to hold.

use crate::error::DecodeError;

/// Largest window a frame may ask for. Part of the format (docs/format/delta-v1.md §4).
const WINDOW_MAX: u64 = 1 << 27;
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

const ENDS_EARLY: DecodeError = DecodeError("a zstd frame ends early");

/// Checks a frame without magic whose header says nothing but the window.
pub(crate) fn check_bare(frame: &[u8]) -> Result<(), DecodeError> {
    let (&[descriptor, window], blocks) = frame.split_first_chunk::<2>().ok_or(ENDS_EARLY)?;
    if descriptor != 0 {
        return Err(DecodeError("a zstd frame header claims more than a window"));
    }
    check_window(window_len(window))?;
    check_blocks(blocks, 0)
}

/// Checks an ordinary frame that may state its content size, which then must be `plain_len`.
pub(crate) fn check_ordinary(frame: &[u8], plain_len: usize) -> Result<(), DecodeError> {
    let rest = frame.strip_prefix(&MAGIC).ok_or(DecodeError("not a zstd frame"))?;
    let (&descriptor, rest) = rest.split_first().ok_or(ENDS_EARLY)?;
    if descriptor & 0b0000_1011 != 0 {
        return Err(DecodeError("a zstd frame header names a dictionary or uses a reserved bit"));
    }
    let single_segment = descriptor & 0b0010_0000 != 0;
    let checksum_len = if descriptor & 0b0000_0100 != 0 { 4 } else { 0 };
    let mut rest = rest;
    if !single_segment {
        let (&window, after) = rest.split_first().ok_or(ENDS_EARLY)?;
        check_window(window_len(window))?;
        rest = after;
    }
    let size_len = match (descriptor >> 6, single_segment) {
        (0, false) => 0,
        (0, true) => 1,
        (1, _) => 2,
        (2, _) => 4,
        _ => 8,
    };
    let (size, blocks) = rest.split_at_checked(size_len).ok_or(ENDS_EARLY)?;
    if size_len > 0 {
        let mut wide = [0; 8];
        wide[..size_len].copy_from_slice(size);
        let content_len = u64::from_le_bytes(wide) + if size_len == 2 { 256 } else { 0 };
        if content_len != plain_len as u64 {
            return Err(DecodeError("a zstd frame claims another content size"));
        }
        if single_segment {
            check_window(content_len)?;
        }
    }
    check_blocks(blocks, checksum_len)
}

fn window_len(descriptor: u8) -> u64 {
    let base = 1u64 << (10 + (descriptor >> 3));
    base + base / 8 * u64::from(descriptor & 7)
}

fn check_window(len: u64) -> Result<(), DecodeError> {
    if len > WINDOW_MAX { Err(DecodeError("a zstd frame asks for too large a window")) } else { Ok(()) }
}

/// Walks the blocks to the last one, after which exactly `checksum_len` bytes must be left.
fn check_blocks(mut rest: &[u8], checksum_len: usize) -> Result<(), DecodeError> {
    loop {
        let (&[low, middle, high], after) = rest.split_first_chunk::<3>().ok_or(ENDS_EARLY)?;
        let header = u32::from_le_bytes([low, middle, high, 0]);
        let stored_len = match (header >> 1) & 3 {
            0 | 2 => (header >> 3) as usize,
            1 => 1,
            _ => return Err(DecodeError("a zstd block of a reserved type")),
        };
        rest = after.get(stored_len..).ok_or(ENDS_EARLY)?;
        if header & 1 == 1 {
            break;
        }
    }
    match rest.len() == checksum_len {
        true => Ok(()),
        false => Err(DecodeError("bytes after a zstd frame, or its checksum cut off")),
    }
}
