//! A segment's planes as they are stored.

use std::cell::RefCell;

use super::words::{self, WIDTH_MAX, Width, WordLayout};
use crate::error::DecodeError;
use crate::room;
use crate::whole;
use crate::zstd::Settings;

/// Bytes before the table of planes. Part of the format.
const HEADER_LEN: usize = 4;
/// Bytes of a plane's entry in the table. Part of the format.
const ENTRY_LEN: usize = 4;
/// Bytes of a plane, at least, on which matches are tried.
const MATCH_TRIAL_LEN: usize = 32 << 10;

thread_local! {
    /// Planes of the segment at hand: at most its length, kept with the thread.
    static PLANES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes that this module keeps for the calling thread.
pub fn memory_bytes() -> usize {
    PLANES.with_borrow(Vec::capacity)
}

/// Gives back what this module keeps for the calling thread.
pub fn forget() {
    PLANES.take();
}

/// Appends the planes of `plain` in given words to `out`; `None` with `out` as it was when they are
/// not shorter than `len_max`, or there is no word.
pub fn compress_as(plain: &[u8], words: WordLayout, level: i32, len_max: usize, out: &mut Vec<u8>) -> Option<usize> {
    let (place, count) = words.place(plain.len())?;
    let (start, width) = (out.len(), words.width as usize);
    out.extend_from_slice(&[width as u8, u8::from(words.rotated), words.head as u8, 0]);
    let table = out.len();
    out.resize(table + ENTRY_LEN * width, 0);
    out.extend_from_slice(&plain[..place.start]);
    PLANES.with_borrow_mut(|planes| {
        let planes = room::of(planes, place.len());
        words::split(words, &plain[place.clone()], planes);
        for (plane, at) in planes.chunks_exact(count).zip((table..).step_by(ENTRY_LEN)) {
            let before = out.len();
            put_plane(plane, level, out);
            let len = u32::try_from(out.len() - before).unwrap_or(u32::MAX);
            out[at..at + ENTRY_LEN].copy_from_slice(&len.to_le_bytes());
        }
    });
    out.extend_from_slice(&plain[place.end..]);
    let len = out.len() - start;
    if len >= len_max {
        out.truncate(start);
        return None;
    }
    Some(len)
}

/// Appends one plane: a frame, or the plane itself where a frame saves less than a thirty-second.
fn put_plane(plane: &[u8], level: i32, out: &mut Vec<u8>) {
    if whole::looks_incompressible(plane) {
        out.extend_from_slice(plane);
        return;
    }
    let most = plane.len() - plane.len() / 32;
    let settings = if matches_pay(plane, level) { Settings::at_level(level) } else { Settings::LITERALS };
    if whole::compress_with(plane, settings, most, out).is_none() {
        out.extend_from_slice(plane);
    }
}

/// What an exponent repeats is chance: matches take more than the literals they replace, and the
/// entropy coder alone is faster both ways. Where numbers are smooth, matches win. A run of the
/// plane's middle tells.
fn matches_pay(plane: &[u8], level: i32) -> bool {
    let len = plane.len().min(MATCH_TRIAL_LEN.max(plane.len() / 8));
    let run = &plane[(plane.len() - len) / 2..][..len];
    let len_of = |settings| whole::compress_with(run, settings, len, &mut Vec::new()).unwrap_or(len);
    let literals = len_of(Settings::LITERALS);
    len_of(Settings::at_level(level)) <= literals - literals / 64
}

/// Fills `plain` from its planes.
///
/// # Errors
/// [`DecodeError`] for anything that docs/format/blob-v1.md §6.3 refuses.
pub fn decompress(stored: &[u8], plain: &mut [u8]) -> Result<(), DecodeError> {
    let (words, mut rest) = read_header(stored)?;
    let width = words.width as usize;
    let (place, count) = words.place(plain.len()).ok_or(DecodeError("planes of a segment without a word"))?;
    let (table, after) =
        rest.split_at_checked(ENTRY_LEN * width).ok_or(DecodeError("the table of planes ends early"))?;
    let (head, after) = after.split_at_checked(place.start).ok_or(PLANES_END_EARLY)?;
    rest = after;
    PLANES.with_borrow_mut(|scratch| {
        let mut room = room::of(scratch, place.len());
        let mut planes = [&[][..]; WIDTH_MAX];
        for (plane, entry) in planes.iter_mut().zip(table.as_chunks::<ENTRY_LEN>().0) {
            let len = u32::from_le_bytes(*entry) as usize;
            if len == 0 || len > count {
                return Err(DecodeError("a plane's stored length is none it can have"));
            }
            let (stored, after) = rest.split_at_checked(len).ok_or(PLANES_END_EARLY)?;
            rest = after;
            if len == count {
                *plane = stored;
                continue;
            }
            let (here, left) = std::mem::take(&mut room).split_at_mut(count);
            whole::decompress(stored, here)?;
            (*plane, room) = (here, left);
        }
        if rest.len() != plain.len() - place.end {
            return Err(DecodeError("planes and what is around them have another length"));
        }
        words::merge(words, &planes, &mut plain[place.clone()]);
        Ok(())
    })?;
    plain[..place.start].copy_from_slice(head);
    plain[place.end..].copy_from_slice(rest);
    Ok(())
}

const PLANES_END_EARLY: DecodeError = DecodeError("planes end early");

fn read_header(stored: &[u8]) -> Result<(WordLayout, &[u8]), DecodeError> {
    let (&[width, rotated, head, zero], rest) =
        stored.split_first_chunk::<HEADER_LEN>().ok_or(DecodeError("planes without a header"))?;
    let width = match width {
        2 => Width::Two,
        4 => Width::Four,
        8 => Width::Eight,
        _ => return Err(DecodeError("planes of words that do not exist")),
    };
    if rotated > 1 || usize::from(head) >= width as usize || zero != 0 {
        return Err(DecodeError("an impossible header of planes"));
    }
    Ok((WordLayout { width, head: head.into(), rotated: rotated == 1 }, rest))
}
