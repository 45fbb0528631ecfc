//! How a bucket comes in, and out again.

pub(crate) mod eject;
pub(crate) mod import;

/// The bound on keys of S3 and of Google, in bytes. Azure counts characters: no key of fewer bytes
/// is too long there.
const KEY_LEN_MAX: usize = 1024;
