//! Deflate streams that were found in an object.

use std::sync::Arc;

use crate::containers::Container;
use crate::gaps::Gaps;

/// Plain bytes between two access points.
pub const POINT_SPACING: u64 = 1 << 20;
/// Where reading may begin inside a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Plain bytes of the stream before it.
    pub plain_at: u64,
    /// Bits of the stream before the header of its block, and before itself.
    pub block_bit: u64,
    /// Bits of the stream before the next step.
    pub bit: u64,
    /// The plain bytes before it, up to 32 KiB.
    pub window: Vec<u8>,
}

/// A deflate stream in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Who said so.
    pub container: Container,
    /// The object's bytes before it.
    pub start: u64,
    /// The object's bytes up to its last.
    pub end: u64,
    /// Its plain bytes.
    pub plain_len: u64,
    /// XXH3-64 of its own bytes, without gaps: equal streams have equal digests.
    pub digest: u64,
    /// Access points about every [`POINT_SPACING`] plain bytes, the start not among them.
    pub points: Vec<Point>,
    /// Streams in its plain text, in order and disjoint, their places counted in it. They have no
    /// access points, and no streams in theirs.
    pub nested: Vec<Stream>,
    /// What its container puts between its pieces, in bytes from `start` on; none where it lies in
    /// one piece. A nested stream has none.
    pub gaps: Option<Arc<Gaps>>,
}

impl Stream {
    /// Where the byte of the object lies before which the stream has so many bytes.
    pub(crate) fn place_of(&self, at: u64) -> u64 {
        self.start + self.gaps.as_ref().map_or(at, |gaps| gaps.place_of(at))
    }

    /// Where so many bytes of the stream end, or the stream itself.
    pub(crate) fn place_after(&self, len: u64) -> u64 {
        (self.start + self.gaps.as_ref().map_or(len, |gaps| gaps.end_of(len))).min(self.end)
    }
}

/// The streams of an object, in order and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// The streams.
    pub streams: Vec<Stream>,
    /// Bytes of the object.
    pub len: u64,
}
