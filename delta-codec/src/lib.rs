//! Small differences between byte strings: `(base window, target segment) -> delta` and back. Pure and sync, no I/O.
//!
//! A *target* of any length is cut into segments of at most [`SEGMENT_LEN_MAX`] bytes. Each segment is encoded alone against
//! a *window* (a contiguous run of base bytes, at most [`WINDOW_LEN_MAX`]) with the help of the window's [`BaseIndex`].
//! The encoder chooses which parts of the window the delta may need, its *footprint*: a few ranges with bounded
//! stored cost. A delta speaks only of its footprint: offsets inside the delta are positions in the concatenation of the footprint's
//! ranges, so a decoder needs those bytes and nothing else.
//!
//! The format is `docs/format/delta-v1.md`; the document rules, this crate follows.

use thiserror::Error;

/// Most bytes of target in one segment. Part of the format (docs/format/delta-v1.md): a decoder refuses more.
pub const SEGMENT_LEN_MAX: usize = 4 << 20;
/// Most bytes of base one segment is encoded against.
pub const WINDOW_LEN_MAX: usize = 128 << 20;

/// How much work the encoder may spend. The decoder does not care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effort {
    /// Words of 32 bytes, every 32nd position indexed, literals without context, zstd level 1.
    Fast,
    /// Words of 16 bytes, every 16th position indexed, literals with context, zstd level 1.
    Balanced,
    /// As balanced, zstd level 3.
    High,
    /// zstd level 19 and a finer second match inside the gaps; off the request path.
    Max,
}

/// One stored unit of a window: bytes that lie together in a base blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowUnit {
    /// Window bytes it covers; never 0.
    pub plain_len: u32,
    /// Bytes that must be read from the backend to have it whole.
    pub stored_len: u32,
    /// True when any 64 KiB of it can be read alone at proportional cost (stored raw); false when it is all or nothing (zstd).
    pub divisible: bool,
}

/// What a segment's footprint may cost, so that reading it back stays O(range).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FootprintLimits {
    /// Most stored base bytes, counted in whole units or 64 KiB blocks.
    pub stored_bytes_max: u64,
    /// Most coalesced ranges.
    pub ranges_max: usize,
}

impl Default for FootprintLimits {
    /// Two segments' worth of stored bytes in sixteen ranges (docs/format/delta-v1.md).
    fn default() -> Self {
        Self { stored_bytes_max: 2 * SEGMENT_LEN_MAX as u64, ranges_max: 16 }
    }
}

/// A run of window bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseRange {
    /// First byte, from the start of the window.
    pub offset: u64,
    /// Length in bytes; never 0.
    pub len: u32,
}

/// The sampled block index of one window at one effort's word size. Immutable and shareable: one base serves many uploads.
#[derive(Debug)]
pub struct BaseIndex {}

impl BaseIndex {
    /// Indexes `window` (at most [`WINDOW_LEN_MAX`] bytes) for encoders of `effort`.
    pub fn build(window: &[u8], effort: Effort) -> Self {
        let _ = (window, effort);
        todo!()
    }

    /// Bytes of memory this index holds.
    pub fn memory_bytes(&self) -> usize {
        todo!()
    }

    /// Bytes of memory an index of a window of `window_len` bytes will hold; at most 32 MiB.
    pub fn memory_bytes_for(window_len: usize, effort: Effort) -> usize {
        let _ = (window_len, effort);
        todo!()
    }
}

/// What to encode one segment from.
#[derive(Clone, Copy, Debug)]
pub struct EncodeJob<'a> {
    /// The base bytes.
    pub window: &'a [u8],
    /// Their index, built by [`BaseIndex::build`] from the same bytes with the same effort.
    pub index: &'a BaseIndex,
    /// How the window lies in the backend, in order; lengths add up to the window's.
    pub layout: &'a [WindowUnit],
    /// The segment: 1 to [`SEGMENT_LEN_MAX`] bytes.
    pub target: &'a [u8],
    /// Same as the index's.
    pub effort: Effort,
    /// Bounds of the footprint.
    pub limits: FootprintLimits,
    /// Give up when the delta would be longer than this (say, what zstd alone gives).
    pub delta_len_max: usize,
}

/// What an encoded segment needs to be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Ascending, disjoint window ranges whose concatenation is the base the decoder must be given; empty when nothing was copied.
    pub footprint: Vec<BaseRange>,
    /// Target bytes that are copied from the footprint unchanged.
    pub copied_bytes: u64,
}

/// Encodes segments. Keeps its work buffers between calls; one per thread.
#[derive(Debug, Default)]
pub struct Encoder {}

impl Encoder {
    /// An encoder with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the delta of `job.target` to `out`, or returns `None` with `out` as it was when the delta would not be smaller than
    /// `job.delta_len_max` (I7: encoding may give up).
    pub fn encode(&mut self, job: &EncodeJob<'_>, out: &mut Vec<u8>) -> Option<Encoded> {
        let _ = (job, out);
        todo!()
    }
}

/// Why a delta cannot be decoded. Always an error, never a guess (I7).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("malformed delta: {0}")]
pub struct DecodeError(pub &'static str);

/// Decodes segments. Keeps its work buffers between calls; one per thread.
#[derive(Debug, Default)]
pub struct Decoder {}

impl Decoder {
    /// A decoder with empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `target` (whose length the segment table gives) from `delta` and the concatenated bytes of its footprint.
    ///
    /// # Errors
    /// [`DecodeError`] for any input the format document tells a decoder to refuse; `target`'s content is then unspecified.
    pub fn decode(&mut self, footprint: &[u8], delta: &[u8], target: &mut [u8]) -> Result<(), DecodeError> {
        let _ = (footprint, delta, target);
        todo!()
    }
}

/// Segments stored without a base: zstd frames, and the guess whether they are worth trying.
pub mod whole {
    use super::DecodeError;

    /// Appends one zstd frame of `plain` at `level` to `out`, or returns `None` with `out` as it was when the frame would not be shorter than `len_max`.
    pub fn compress(plain: &[u8], level: i32, len_max: usize, out: &mut Vec<u8>) -> Option<usize> {
        let _ = (plain, level, len_max, out);
        todo!()
    }

    /// Fills `plain` from one zstd frame (window at most 2^27 bytes, content exactly `plain.len()`).
    ///
    /// # Errors
    /// [`DecodeError`] for anything else.
    pub fn decompress(frame: &[u8], plain: &mut [u8]) -> Result<(), DecodeError> {
        let _ = (frame, plain);
        todo!()
    }

    /// True when sampled pieces of `plain` (a few KiB, whatever its length) look random: compressing it again would gain nothing.
    pub fn looks_incompressible(plain: &[u8]) -> bool {
        let _ = plain;
        todo!()
    }
}
