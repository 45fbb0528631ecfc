//! `Range`.

use crate::error::Result;
use http::HeaderMap;
use std::ops::Range;

/// One range of bytes as asked for, before the size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// `bytes=first-last`, both included.
    FromTo(u64, u64),
    /// `bytes=first-`
    From(u64),
    /// `bytes=-len`
    Suffix(u64),
}

impl ByteRange {
    /// Reads `Range`. `None` when there is none, or one that RFC 9110 tells a server to ignore: another unit, not well-formed, or several ranges (S3
    /// answers those with the whole object).
    pub fn from_headers(_headers: &HeaderMap) -> Option<Self> {
        unimplemented!()
    }

    /// The bytes meant in an object of `size` bytes, end exclusive, not empty.
    ///
    /// # Errors
    /// `InvalidRange` with `RangeRequested` and `ActualObjectSize`.
    pub fn resolve(self, _size: u64) -> Result<Range<u64>> {
        unimplemented!()
    }
}

/// `bytes first-last/size`, the value of `Content-Range`.
pub fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1))
}
