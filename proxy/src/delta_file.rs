//! A whole file as a difference to another one: what `deltaweir delta` reads and writes.
//!
//! No server, no catalog, no blobs: two files and a third. The format is
//! `docs/format/delta-file-v1.md`; the document rules. Files may have any length: the base is read
//! at the places that are needed, never as a whole.
//!
//! ```text
//! base ── tiles ──┐
//! target region ──┴─ window ── index ── segments (in parallel) ──┬─ the shorter ── file
//! both ── streams ── text window ── units (in parallel) ─────────┘
//! ```

mod coder;
mod decode;
mod encode;
mod error;
mod format;
mod info;
mod inspect;
mod source;
mod tiles;
mod views;

pub use decode::{Opened, open};
pub use encode::encode;
pub use error::DeltaFileError;
pub use info::info;
pub use inspect::{Inspected, StreamFound, inspect};

use error::{Result, io_error};
use std::io;

/// Is told how many bytes were worked through since the last call.
pub type OnProgress<'a> = &'a (dyn Fn(u64) + Sync);

/// Most bytes of memory that encoding or decoding may take, about: what decides how many threads
/// work.
const MEMORY_BYTES_MAX: usize = 832 << 20;

/// Threads that share [`MEMORY_BYTES_MAX`] when `shared_bytes` are taken once and `bytes_each` by
/// every thread.
fn threads(shared_bytes: usize, bytes_each: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (MEMORY_BYTES_MAX.saturating_sub(shared_bytes) / bytes_each).clamp(1, cores)
}

fn pool(threads: usize) -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| io_error("threads")(io::Error::other(error)))
}
