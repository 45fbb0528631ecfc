//! What one stored blob is: header, payload chunks, manifest, trailer, and the keys that seal them. Pure: takes and gives
//! bytes, no I/O, no clock; randomness is passed in.
//!
//! ```text
//! | header 160 B | payload chunks of 64 KiB (+16 B tag each when sealed) | table pages | root | trailer |
//! ```
//!
//! The format is `docs/format/blob-v1.md`; the document rules, this crate follows.

pub mod blob;
pub mod keys;
pub mod row;

pub use blob::{
    BlobId, BlobKind, BlobOpener, BlobSpec, BlobWriter, CHUNK_LEN, ChunkCheck, Coding, Finished, FormatError, HEADER_LEN,
    Header, ObjectFacts, PagePlace, Root, RootPlace, SEGMENT_LEN, Seal, Segment, Suite, TRAILER_LEN, ViewAddress,
    ViewRange,
};
pub use keys::{DomainKey, KeyId, Kek};
