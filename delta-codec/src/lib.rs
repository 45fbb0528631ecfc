//! Small differences between byte strings: `(base window, target segment) -> delta` and back. Pure
//! and sync, no I/O.
//!
//! A *target* of any length is cut into segments of at most [`SEGMENT_LEN_MAX`] bytes. Each segment
//! is encoded alone against a *window* (a contiguous run of base bytes, at most [`WINDOW_LEN_MAX`])
//! with the help of the window's [`BaseIndex`]. The encoder chooses which parts of the window the
//! delta may need, its *footprint*: a few ranges with bounded stored cost. A delta speaks only of
//! its footprint: offsets inside the delta are positions in the concatenation of the footprint's
//! ranges, so a decoder needs those bytes and nothing else.
//!
//! ```text
//! window ── BaseIndex ──┐
//! target ───────────── matcher ── gaps filled ── footprint ── streams ── delta
//! ```
//!
//! The format is `docs/format/delta-v1.md`; the document rules, this crate follows.

mod across;
mod arm64;
mod compare;
mod context;
mod decode;
mod effort;
mod encode;
mod error;
mod fill;
mod fine;
mod footprint;
mod format;
mod frame;
mod index;
mod instruction;
mod learn;
mod matcher;
#[cfg(test)]
mod noise;
mod pieces;
pub mod planes;
mod predict;
mod prefetch;
mod recognise;
mod room;
pub mod sketch;
mod stream;
mod summary;
mod varint;
pub mod whole;
mod word;
mod words;
mod zstd;

pub use decode::{CopiedRun, Decoder};
pub use effort::Effort;
pub use encode::{EncodeJob, Encoded, Encoder};
pub use error::DecodeError;
pub use footprint::{BaseRange, FootprintLimits, WindowUnit};
pub use index::BaseIndex;
pub use summary::{DeltaSummary, summarize};

/// Most bytes of target in one segment. Part of the format (docs/format/delta-v1.md §1): a decoder
/// refuses more.
pub const SEGMENT_LEN_MAX: usize = 4 << 20;
/// Most bytes of base one segment is encoded against.
pub const WINDOW_LEN_MAX: usize = 128 << 20;
/// Most bytes of base one segment may need. Part of the format (docs/format/delta-v1.md §1): a
/// decoder refuses more.
pub const FOOTPRINT_LEN_MAX: usize = 32 << 20;
