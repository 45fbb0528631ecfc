//! How long a body is and how it is framed, from the headers.

use crate::{checksum::ChecksumAlgorithm, error::Result, sigv4::PayloadMode};
use http::HeaderMap;

/// How to read a body.
#[derive(Clone, Debug)]
pub struct Framing {
    /// Framing and signatures.
    pub payload: PayloadMode,
    /// The exact number of payload bytes after decoding.
    pub decoded_len: u64,
    /// The exact number of bytes on the wire, when the client says so (`Content-Length`).
    pub wire_len: Option<u64>,
    /// The checksum announced by `x-amz-trailer`.
    pub trailer: Option<ChecksumAlgorithm>,
}

impl Framing {
    /// Reads the framing of a payload.
    ///
    /// # Errors
    /// `MissingContentLength` when no length is known in advance, `InvalidArgument`/`InvalidRequest` for lengths and trailers that
    /// contradict each other or are not decimal numbers in range (C11).
    pub fn from_headers(_headers: &HeaderMap, _payload: &PayloadMode) -> Result<Self> {
        unimplemented!()
    }
}
