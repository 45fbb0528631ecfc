//! Blobs from outside: written and opened through the public interface only.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test itself")]

mod round_trip;
mod samples;
