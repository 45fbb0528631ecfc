//! A piece of a base, as readers and encoders name it.

use object_format::BlobId;
use std::ops::Range;

/// Most plain bytes of one blob: S3's limit for one PUT and one part.
pub(crate) const BLOB_PLAIN_LEN_MAX: u64 = 5 << 30;

/// A run of one whole blob's plain content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BasePiece {
    /// The whole blob.
    pub(crate) blob: BlobId,
    /// First plain byte in that blob.
    pub(crate) offset: u64,
    /// Bytes; never 0.
    pub(crate) len: u64,
    /// The blob's base tag (E10).
    pub(crate) base_tag: [u8; 16],
}

impl BasePiece {
    /// These bytes of a blob whose base tag is not known yet.
    pub(crate) fn of(blob: BlobId, range: Range<u64>) -> Self {
        Self { blob, offset: range.start, len: range.end - range.start, base_tag: [0; 16] }
    }

    /// Its end in its blob.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }
}
