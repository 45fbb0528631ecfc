//! How long a body is and how it is framed, from the headers.

use crate::{
    checksum::ChecksumAlgorithm,
    error::{ErrorCode, Result, S3Error},
    headers::{decimal, single},
    sigv4::PayloadMode,
};
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
    /// `MissingContentLength` when no length is known in advance; `InvalidArgument` for lengths
    /// that are not decimal numbers below 2^64; `IncompleteBody` for lengths that contradict each
    /// other; `InvalidRequest` for a trailer the framing or S3 does not have (C11).
    pub fn from_headers(headers: &HeaderMap, payload: &PayloadMode) -> Result<Self> {
        Self::new(headers, payload, None)
    }

    /// Reads the framing of a document, which may be left out: a request without `Content-Length`
    /// whose body is known to be empty (`http_body::Body::is_end_stream`) has length 0.
    ///
    /// # Errors
    /// As [`Framing::from_headers`].
    pub fn of_document(headers: &HeaderMap, payload: &PayloadMode, body_is_empty: bool) -> Result<Self> {
        Self::new(headers, payload, body_is_empty.then_some(0))
    }

    fn new(headers: &HeaderMap, payload: &PayloadMode, otherwise: Option<u64>) -> Result<Self> {
        let wire_len = length(headers, "content-length")?;
        let missing = || S3Error::new(ErrorCode::MissingContentLength).closing();
        let trailer = announced_trailer(headers)?;
        let (decoded_len, may_have_trailer) = match payload {
            PayloadMode::Unsigned | PayloadMode::Signed(_) => (wire_len.or(otherwise).ok_or_else(missing)?, false),
            PayloadMode::StreamingSigned { trailer, .. } => {
                (decoded(headers, wire_len)?.ok_or_else(missing)?, *trailer)
            }
            PayloadMode::StreamingUnsignedTrailer => (decoded(headers, wire_len)?.ok_or_else(missing)?, true),
        };
        if trailer.is_some() && !may_have_trailer {
            let message = "x-amz-trailer needs an x-amz-content-sha256 with a trailer.";
            return Err(S3Error::with_message(ErrorCode::InvalidRequest, message).closing());
        }
        Ok(Self { payload: payload.clone(), decoded_len, wire_len, trailer })
    }
}

/// `x-amz-decoded-content-length`.
fn decoded(headers: &HeaderMap, wire_len: Option<u64>) -> Result<Option<u64>> {
    // S3 says of one that is no number what it says of none.
    let missing = || S3Error::new(ErrorCode::MissingContentLength).closing();
    let decoded_len = length(headers, "x-amz-decoded-content-length").map_err(|_| missing())?;
    if let (Some(decoded_len), Some(wire_len)) = (decoded_len, wire_len)
        && decoded_len >= wire_len
    {
        let message = "x-amz-decoded-content-length is not less than Content-Length.";
        return Err(S3Error::with_message(ErrorCode::IncompleteBody, message).closing());
    }
    Ok(decoded_len)
}

fn length(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>> {
    let invalid = |text: &str| S3Error::invalid_argument(name, text, "The length is not a decimal number.").closing();
    match single(headers, name).map_err(S3Error::closing)? {
        None => Ok(None),
        Some(text) => decimal(text).map(Some).ok_or_else(|| invalid(text)),
    }
}

fn announced_trailer(headers: &HeaderMap) -> Result<Option<ChecksumAlgorithm>> {
    let Some(name) = single(headers, "x-amz-trailer").map_err(S3Error::closing)? else { return Ok(None) };
    let known = ChecksumAlgorithm::ALL.into_iter().find(|algorithm| algorithm.header().eq_ignore_ascii_case(name));
    known.map(Some).ok_or_else(|| {
        let message = "The value specified in the x-amz-trailer header is not supported";
        S3Error::with_message(ErrorCode::InvalidRequest, message).closing()
    })
}
