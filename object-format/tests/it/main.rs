//! Blobs from outside: written and opened through the public interface only.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test itself")]

mod keys;
mod parsers;
mod refusals;
mod round_trip;
mod samples;
mod tamper;
#[path = "../../examples/blob_vectors/vectors/mod.rs"]
mod vectors;
mod vectors_read;
