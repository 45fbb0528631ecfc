//! How a bucket comes in, and out again.

pub(crate) mod eject;
pub(crate) mod import;
