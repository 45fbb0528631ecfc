//! One blob, written and opened: the types of its parts in one place.

pub use crate::{
    error::FormatError,
    geometry::{CHUNK_LEN, CHUNKS_MAX, PLAIN_LEN_MAX, SEGMENT_LEN},
    header::{BlobId, BlobKind, HEADER_LEN, Header, MAGIC, Suite, VERSION},
    opener::BlobOpener,
    page::{ChunkCheck, PAGE_LEN_MAX, PagePlace},
    root::{ObjectFacts, ROOT_LEN_MAX, Root, RootPlace},
    segment::{
        Coding, FOOTPRINT_LEN_MAX, FOOTPRINT_RANGES_MAX, Segment, VIEW_RANGES_MAX, ViewAddress, ViewRange,
        segment_digest,
    },
    trailer::TRAILER_LEN,
    writer::{BlobSpec, BlobWriter, Finished, Seal},
};
