//! Signing keys and the chain of chunk signatures.

use std::fmt;

/// The credential scope of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `YYYYMMDD`
    pub date: String,
    /// The region.
    pub region: String,
}

/// Verifies the chain of chunk signatures of one streaming upload. Holds the signing key; wiped on drop.
#[derive(Clone)]
pub struct ChunkSigner {
    _private: (),
}

impl fmt::Debug for ChunkSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkSigner(…)")
    }
}
