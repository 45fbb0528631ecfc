//! What encodes segments on a thread, lent for a segment at a time.

use delta_codec::{Decoder, Encoder};
use std::sync::{Mutex, PoisonError};

/// What a thread keeps between segments.
#[derive(Default)]
pub(super) struct Coder {
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
    pub(super) decoded: Vec<u8>,
}

/// Runs `work` with what belongs to this thread of the pool.
pub(super) fn with_own<S, T>(states: &[Mutex<S>], work: impl FnOnce(&mut S) -> T) -> T {
    let own = &states[rayon::current_thread_index().unwrap_or(0) % states.len()];
    // A thread that panicked has ended the program's work already: what it left behind is only
    // buffers.
    work(&mut own.lock().unwrap_or_else(PoisonError::into_inner))
}
