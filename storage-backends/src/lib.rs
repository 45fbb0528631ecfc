//! Where sealed bytes rest: the [`Backend`] trait, its implementations and the wrappers around them.
//!
//! A backend stores *blobs*: immutable byte strings under names that are never used twice. It knows nothing of S3
//! keys, deltas, seals or the catalog. What a backend must promise stands on [`Backend`]; comfort (collecting a
//! stream, reading a whole blob) lives in functions beside the trait, never in it.

mod backend;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod local;
mod memory;
mod whole;

pub use backend::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, PutReceipt, Result};
pub use local::{LocalBackend, LocalOptions};
pub use memory::MemoryBackend;
pub use whole::{body_of, collect, get_all, put_bytes};
