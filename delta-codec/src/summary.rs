//! What a delta consists of, read without its footprint: for people and for benchmarks.

use crate::decode::{Parsed, parse};
use crate::error::DecodeError;
use crate::stream::Packed;

/// The composition of one delta. Lengths in bytes; `_stored` as they are in the delta, the others
/// unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltaSummary {
    /// Copies from the footprint.
    pub copies: usize,
    /// The three instruction streams together, and what references are predicted from.
    pub instruction_bytes_stored: usize,
    /// Differences to base bytes: a byte for each in the sub stream, or in distances and words what
    /// these need.
    pub sub_bytes: usize,
    /// The sub stream, or distances and words together.
    pub sub_bytes_stored: usize,
    /// Target bytes given as they are.
    pub literal_bytes: usize,
    /// The literal stream.
    pub literal_bytes_stored: usize,
    /// Whether the literals are compressed over base bytes.
    pub context: bool,
}

/// Takes the delta of a segment of `target_len` bytes apart without unpacking it.
///
/// # Errors
/// [`DecodeError`] when its outside is malformed; that it can be decoded is not said.
pub fn summarize(delta: &[u8], target_len: usize) -> Result<DeltaSummary, DecodeError> {
    Ok(match parse(delta, target_len)? {
        Parsed::Copy { .. } => DeltaSummary { copies: 1, ..DeltaSummary::default() },
        Parsed::Streams(streams) => DeltaSummary {
            copies: streams.copies,
            instruction_bytes_stored: [&streams.gap_lengths, &streams.copy_lengths, &streams.diagonals]
                .into_iter()
                .chain(streams.predictor.iter().flat_map(|packed| packed.streams()))
                .map(Packed::stored_len)
                .sum(),
            sub_bytes: streams.differences.streams().map(Packed::plain_len).sum(),
            sub_bytes_stored: streams.differences.streams().map(Packed::stored_len).sum(),
            literal_bytes: streams.literals.plain_len(),
            literal_bytes_stored: streams.literals.stored_len(),
            context: streams.literals.needs_context(),
        },
    })
}
