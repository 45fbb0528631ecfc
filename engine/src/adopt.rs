//! How a bucket comes in, and out again.

pub(crate) mod eject;
pub(crate) mod import;

/// Most bytes of a key here, as in S3.
const KEY_LEN_MAX: usize = 1024;
