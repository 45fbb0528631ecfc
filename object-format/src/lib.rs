//! What one stored blob is: header, payload chunks, manifest, trailer, and the keys that seal them.
//! Pure: takes and gives bytes, no I/O, no clock; randomness is passed in.
//!
//! ```text
//! | header 160 B | payload chunks of 64 KiB (+16 B tag each when sealed) | table pages | root | trailer 64 B |
//! ```
//!
//! The format is `docs/format/blob-v1.md`; the document rules, this crate follows. [`BlobWriter`]
//! writes a blob, [`BlobOpener`] opens its parts for range reads, [`row`] seals what the catalog
//! keeps of encrypted buckets, [`keyset`] stores the wrapped keys beside the blobs, [`inspect`]
//! describes a blob and [`whole`] opens one that is in memory.

pub mod blob;
mod error;
mod fields;
mod geometry;
mod header;
pub mod inspect;
pub mod keys;
pub mod keyset;
mod opener;
mod page;
pub mod provided;
mod root;
pub mod row;
mod segment;
mod trailer;
mod unit;
pub mod whole;
mod writer;

pub use blob::{
    BlobId, BlobKind, BlobOpener, BlobSpec, BlobWriter, CHUNK_LEN, ChunkCheck, Coding, Finished, FormatError,
    HEADER_LEN, Header, ObjectFacts, PagePlace, Root, RootPlace, SEGMENT_LEN, Seal, Segment, Suite, TRAILER_LEN,
    ViewAddress, ViewRange, segment_digest,
};
pub use keys::{DomainKey, Kek, KeyId, Roots};
pub use provided::KekOrigin;
