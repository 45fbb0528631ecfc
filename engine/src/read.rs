//! Reading: an object by its key, how hot content is, and what operators are told of it.

pub(crate) mod adoption;
pub(crate) mod base_rows;
pub(crate) mod counts;
pub(crate) mod heat;
pub(crate) mod object;
mod opened;
#[cfg(feature = "mutant-stale-cache")]
pub mod stale;
