//! What a client claims about its bytes.

use super::{Checksum, ChecksumAlgorithm, DigestSet, DigestValues};
use crate::{body::Trailers, error::Result, sigv4::PayloadMode};
use http::HeaderMap;

/// Everything a request says about the digest of its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// `Content-MD5`.
    pub content_md5: Option<[u8; 16]>,
    /// `x-amz-content-sha256` of a signed payload.
    pub sha256: Option<[u8; 32]>,
    /// The `x-amz-checksum-*` of the request.
    pub checksum: ChecksumClaim,
}

/// What a request says about its additional checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumClaim {
    /// Nothing.
    #[default]
    None,
    /// Compute this one and store it (`x-amz-sdk-checksum-algorithm` without a value).
    Requested(ChecksumAlgorithm),
    /// The value will be in the trailer.
    Trailer(ChecksumAlgorithm),
    /// The value.
    Value(Checksum),
}

impl Claims {
    /// Reads the claims of a payload (PutObject, UploadPart, documents).
    ///
    /// # Errors
    /// `InvalidDigest` for a malformed `Content-MD5`; `InvalidRequest` for malformed values, for two checksum headers, and for a header and
    /// a trailer at once (C78).
    pub fn from_headers(_headers: &HeaderMap, _payload: &PayloadMode) -> Result<Self> {
        unimplemented!()
    }

    /// Takes the trailer's value in.
    ///
    /// # Errors
    /// `MalformedTrailerError` when the announced checksum did not come.
    pub fn settle(&mut self, _trailers: &Trailers) -> Result<()> {
        unimplemented!()
    }

    /// The digests needed to verify these claims.
    pub fn digests(&self) -> DigestSet {
        unimplemented!()
    }

    /// The algorithm whose value is stored with the object, if the client asked for any.
    pub fn stored_algorithm(&self) -> Option<ChecksumAlgorithm> {
        unimplemented!()
    }

    /// Compares what was claimed with what was received.
    ///
    /// # Errors
    /// `BadDigest`, `XAmzContentSHA256Mismatch`; `InternalError` when a digest that [`Claims::digests`] asked for is missing: a claim is never
    /// passed unverified.
    pub fn verify(&self, _values: &DigestValues) -> Result<()> {
        unimplemented!()
    }
}
