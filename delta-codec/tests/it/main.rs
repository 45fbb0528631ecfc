//! The codec from outside: round trips, hostile deltas, the paths an encoder should take, and the
//! vectors of the format.

mod hostile;
#[path = "../../src/noise.rs"]
mod noise;
mod paths;
mod planes;
mod round_trip;
mod vectors;

use delta_codec::{
    BaseIndex, BaseRange, DecodeError, Decoder, Effort, EncodeJob, Encoded, Encoder, FootprintLimits, WindowUnit,
};
use noise::noise;

/// Every effort.
const EFFORTS: [Effort; 4] = [Effort::Fast, Effort::Balanced, Effort::High, Effort::Max];

/// The first byte of a delta whose sub runs are bytes, and of one in which they are words
/// (docs/format/delta-v1.md §3).
const FORM_STREAMS: u8 = 1;
const FORM_WORDS: u8 = 2;
const FORM_PREDICTED: u8 = 3;
const FORM_PREDICTED_ARM64: u8 = 4;

/// A window that is stored raw, in one piece.
fn raw_layout(window_len: usize) -> Vec<WindowUnit> {
    let plain_len = u32::try_from(window_len).expect("windows are below 4 GiB");
    if plain_len == 0 { Vec::new() } else { vec![WindowUnit { plain_len, stored_len: plain_len, divisible: true }] }
}

/// The delta of `target` against `window`, however long it becomes.
fn encode(
    window: &[u8],
    layout: &[WindowUnit],
    target: &[u8],
    effort: Effort,
    limits: FootprintLimits,
) -> (Encoded, Vec<u8>) {
    let index = BaseIndex::build(window, effort);
    let job = EncodeJob { window, index: &index, layout, target, effort, limits, delta_len_max: usize::MAX };
    let mut delta = Vec::new();
    let encoded = Encoder::new().encode(&job, &mut delta).expect("a delta of any length is welcome");
    (encoded, delta)
}

/// The bytes the decoder must be given.
fn gather(window: &[u8], ranges: &[BaseRange]) -> Vec<u8> {
    let slice = |range: &BaseRange| &window[range.offset as usize..][..range.len as usize];
    ranges.iter().flat_map(slice).copied().collect()
}

/// Decodes twice, the second time from a footprint in pieces, which must make no difference.
fn decode(footprint: &[u8], delta: &[u8], target_len: usize) -> Result<Vec<u8>, DecodeError> {
    let mut target = vec![0xa5; target_len];
    let outcome = Decoder::new().decode(footprint, delta, &mut target);
    let (front, rest) = footprint.split_at(footprint.len() / 3);
    let (middle, back) = rest.split_at(rest.len().min(1000));
    let mut again = vec![0x5a; target_len];
    let in_pieces = Decoder::new().decode_pieces(&[front, middle, &[], back], delta, &mut again);
    assert_eq!(in_pieces, outcome);
    assert!(outcome.is_err() || again == target, "a footprint in pieces decodes to something else");
    outcome.map(|()| target)
}

/// Code that calls functions all over itself, then a table of their addresses; `insert` bytes come
/// in before one function in seven, and every reference still means the same function.
fn program(functions: usize, insert: usize) -> Vec<u8> {
    const LEN: usize = 12 * 21;
    let place = |function: usize| function * LEN + function.div_ceil(7) * insert;
    // None of them begins a reference.
    let other: Vec<u8> = noise(functions * 12 * 16, 7).iter().map(|byte| 0x90 | byte & 0x3f).collect();
    let mut other = other.chunks(16);
    let mut bytes = Vec::new();
    for function in 0..functions {
        bytes.resize(place(function), 0x90);
        for call in 0..12 {
            bytes.extend_from_slice(other.next().expect("sixteen for each call"));
            bytes.push(0xe8);
            let (from, to) = (bytes.len() + 4, place((function * 7919 + call * 104_729) % functions));
            bytes.extend_from_slice(&(to as i32 - from as i32).to_le_bytes());
        }
    }
    bytes.resize((place(functions) + 4096).next_multiple_of(4096), 0);
    for entry in 0..functions {
        bytes.extend_from_slice(&(place(entry * 31 % functions) as u64 + 0x40_0000).to_le_bytes());
    }
    bytes
}

/// As [`program`], of AArch64 code whose first byte lies at the beginning of a page of memory, but
/// `before` bytes into the file. Half of the references are branches; the others are made by two
/// instructions, and lead to one of forty places.
fn arm64_program(functions: usize, insert: usize, before: usize) -> Vec<u8> {
    const CALLS: usize = 12;
    const WORDS: usize = CALLS * 15;
    let place = |function: usize| function * WORDS * 4 + function.div_ceil(7) * insert;
    let mut other = noise(functions * WORDS, 7).into_iter();
    let mut bytes = noise(before, before as u64);
    for function in 0..functions {
        bytes.resize(before + place(function), 0x1f);
        for call in 0..CALLS {
            // ORR of any registers.
            for _ in 0..12 {
                let registers = u32::from(other.next().unwrap_or(0) & 31) << 16;
                bytes.extend_from_slice(&(0xaa00_03e0 | registers | call as u32).to_le_bytes());
            }
            let (from, to) = (bytes.len() - before, place((function * 7919 + call * 104_729) % functions));
            let branch = 0x9400_0000 | (to as i32 - from as i32) as u32 >> 2 & 0x03ff_ffff;
            bytes.extend_from_slice(&branch.to_le_bytes());
            let (from, to) = (from + 4, place((function * 104_729 + call * 7919) % 40 * functions / 40));
            let pages = (to / 4096) as i32 - (from / 4096) as i32;
            let page = 0x9000_0000 | (pages as u32 & 3) << 29 | (pages as u32 >> 2 & 0x7_ffff) << 5 | call as u32;
            bytes.extend_from_slice(&page.to_le_bytes());
            let low = (to % 4096) as u32;
            // An ADD, or a load of eight bytes where the address is a multiple of that.
            let load = if low.is_multiple_of(8) { 0xf940_0000 | low >> 3 << 10 } else { 0x9100_0000 | low << 10 };
            bytes.extend_from_slice(&(load | (call as u32) << 5 | 20).to_le_bytes());
        }
    }
    bytes
}
