//! What a client claims about its bytes.

use super::{Checksum, ChecksumAlgorithm, DigestSet, DigestValues};
use crate::{
    body::Trailers,
    error::{ErrorCode, Result, S3Error},
    headers::{is_given, single},
    sigv4::PayloadMode,
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
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
    /// Compute this one and store it (an algorithm is named without a value).
    Requested(ChecksumAlgorithm),
    /// The value will be in the trailer.
    Trailer(ChecksumAlgorithm),
    /// The value.
    Value(Checksum),
}

impl Claims {
    /// Reads the claims of a payload (PutObject, UploadPart, DeleteObjects, CreateBucket).
    ///
    /// # Errors
    /// `InvalidDigest` for a malformed `Content-MD5`; `InvalidRequest` for malformed values, for
    /// two checksum headers, for a header and a trailer at once, and for an algorithm that
    /// contradicts the value (C78); `NotImplemented` for a checksum header this server does not
    /// have.
    pub fn from_headers(headers: &HeaderMap, payload: &PayloadMode) -> Result<Self> {
        let checksum = checksum_claim(headers)?;
        Ok(Self { checksum, ..Self::without_checksum(headers, payload)? })
    }

    /// Reads the claims of CompleteMultipartUpload's document, whose `x-amz-checksum-*` are about
    /// the object and not about the document.
    ///
    /// # Errors
    /// `InvalidDigest` for a malformed `Content-MD5`.
    pub fn without_checksum(headers: &HeaderMap, payload: &PayloadMode) -> Result<Self> {
        let content_md5 = match single(headers, "content-md5")? {
            None => None,
            Some(text) => Some(
                BASE64_STANDARD
                    .decode(text)
                    .ok()
                    .and_then(|md5| md5.try_into().ok())
                    .ok_or_else(|| S3Error::new(ErrorCode::InvalidDigest).field("Content-MD5", text))?,
            ),
        };
        let sha256 = match payload {
            PayloadMode::Signed(sha256) => Some(*sha256),
            _ => None,
        };
        Ok(Self { content_md5, sha256, checksum: ChecksumClaim::None })
    }

    /// Takes the trailer's value in, once the body has ended.
    ///
    /// # Errors
    /// `MalformedTrailerError` when the announced checksum did not come.
    pub fn settle(&mut self, trailers: &Trailers) -> Result<()> {
        if let ChecksumClaim::Trailer(algorithm) = self.checksum {
            let came = trailers.checksum.filter(|checksum| checksum.algorithm() == algorithm);
            self.checksum = ChecksumClaim::Value(came.ok_or_else(|| S3Error::new(ErrorCode::MalformedTrailerError))?);
        }
        Ok(())
    }

    /// The digests needed to verify these claims.
    pub fn digests(&self) -> DigestSet {
        let mut set = DigestSet::EMPTY;
        if self.content_md5.is_some() {
            set = set.with_md5();
        }
        if self.sha256.is_some() {
            set = set.with(ChecksumAlgorithm::Sha256);
        }
        self.stored_algorithm().map_or(set, |algorithm| set.with(algorithm))
    }

    /// The algorithm whose value is stored with the object, if the client named any.
    pub fn stored_algorithm(&self) -> Option<ChecksumAlgorithm> {
        match self.checksum {
            ChecksumClaim::None => None,
            ChecksumClaim::Requested(algorithm) | ChecksumClaim::Trailer(algorithm) => Some(algorithm),
            ChecksumClaim::Value(checksum) => Some(checksum.algorithm()),
        }
    }

    /// Compares what was claimed with what was received.
    ///
    /// # Errors
    /// `BadDigest`, `XAmzContentSHA256Mismatch`; `InternalError` when a digest that
    /// [`Claims::digests`] asked for is missing, or the trailer was not settled: a claim is never
    /// passed unverified.
    pub fn verify(&self, values: &DigestValues) -> Result<()> {
        let unverified = || S3Error::new(ErrorCode::InternalError);
        if let Some(claimed) = self.sha256 {
            let computed = values.sha256.ok_or_else(unverified)?;
            if computed != claimed {
                return Err(S3Error::new(ErrorCode::XAmzContentSHA256Mismatch) // C12
                    .field("ClientComputedContentSHA256", hex::encode(claimed))
                    .field("S3ComputedContentSHA256", hex::encode(computed)));
            }
        }
        if let Some(claimed) = self.content_md5 {
            let computed = values.md5.ok_or_else(unverified)?;
            if computed != claimed {
                return Err(S3Error::with_message(
                    ErrorCode::BadDigest,
                    "The Content-MD5 you specified did not match what we received.",
                )
                .field("ExpectedDigest", hex::encode(claimed))
                .field("CalculatedDigest", BASE64_STANDARD.encode(computed)));
            }
        }
        match self.checksum {
            ChecksumClaim::None | ChecksumClaim::Requested(_) => Ok(()),
            ChecksumClaim::Trailer(_) => Err(unverified()),
            ChecksumClaim::Value(claimed) => {
                let computed = values.checksum(claimed.algorithm()).ok_or_else(unverified)?;
                if computed == claimed {
                    return Ok(());
                }
                let name = claimed.algorithm().as_str();
                let message = format!("The {name} you specified did not match the calculated checksum.");
                Err(S3Error::with_message(ErrorCode::BadDigest, message))
            }
        }
    }
}

/// Names that start like a checksum header and carry no value.
const NOT_VALUES: [&str; 3] = ["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

const SEVERAL: &str = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";

fn checksum_claim(headers: &HeaderMap) -> Result<ChecksumClaim> {
    let invalid = |message: &'static str| S3Error::with_message(ErrorCode::InvalidRequest, message);
    let mut claim = match single(headers, "x-amz-trailer")? {
        Some(name) => {
            let known = ChecksumAlgorithm::ALL.into_iter().find(|a| a.header().eq_ignore_ascii_case(name));
            let unsupported = || invalid("The value specified in the x-amz-trailer header is not supported");
            ChecksumClaim::Trailer(known.ok_or_else(unsupported)?)
        }
        None => ChecksumClaim::None,
    };
    if ChecksumAlgorithm::ALL.iter().filter(|known| is_given(headers, known.header())).count() > 1 {
        return Err(invalid(SEVERAL));
    }
    for name in headers.keys().map(|name| name.as_str()) {
        if !name.starts_with("x-amz-checksum-") || NOT_VALUES.contains(&name) {
            continue;
        }
        let Some(algorithm) = ChecksumAlgorithm::ALL.into_iter().find(|algorithm| algorithm.header() == name) else {
            return Err(S3Error::new(ErrorCode::NotImplemented).field("Header", name));
        };
        if claim != ChecksumClaim::None {
            return Err(invalid(SEVERAL));
        }
        let text = single(headers, algorithm.header())?.unwrap_or_default();
        let value = Checksum::parse(algorithm, text)?;
        if value.parts().is_some() {
            return Err(invalid("A composite checksum cannot be claimed for one payload."));
        }
        claim = ChecksumClaim::Value(value);
    }
    for name in ["x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"] {
        let Some(text) = single(headers, name)? else { continue };
        let named = ChecksumAlgorithm::parse(text)?;
        match claim {
            ChecksumClaim::None => claim = ChecksumClaim::Requested(named),
            ChecksumClaim::Requested(other) | ChecksumClaim::Trailer(other) if other == named => {}
            ChecksumClaim::Value(value) if value.algorithm() == named => {}
            _ => return Err(invalid("Value for x-amz-sdk-checksum-algorithm header is invalid.")),
        }
    }
    Ok(claim)
}

#[cfg(test)]
mod tests {
    use super::{super::Digests, *};
    use http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn verify(claims: &Claims, payload: &[u8]) -> Result<()> {
        let mut digests = Digests::new(claims.digests());
        digests.update(payload);
        claims.verify(&digests.finish())
    }

    /// Right values for the payload `123456789`.
    const RIGHT: [(&str, &str); 6] = [
        ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ];

    #[test]
    fn a_right_claim_passes_and_a_wrong_one_does_not() {
        // C78
        for pair in RIGHT {
            let claims = Claims::from_headers(&headers(&[pair]), &PayloadMode::Unsigned).unwrap();
            assert!(verify(&claims, b"123456789").is_ok(), "{pair:?}");
            assert_eq!(verify(&claims, b"12345678").unwrap_err().code(), ErrorCode::BadDigest, "{pair:?}");
        }
    }

    #[test]
    fn a_signed_payload_hash_is_compared() {
        // C12
        let sha256 = [7; 32];
        let claims = Claims::from_headers(&HeaderMap::new(), &PayloadMode::Signed(sha256)).unwrap();
        assert_eq!(verify(&claims, b"x").unwrap_err().code(), ErrorCode::XAmzContentSHA256Mismatch);
    }

    #[test]
    fn a_claim_is_never_passed_unverified() {
        for pair in RIGHT {
            let claims = Claims::from_headers(&headers(&[pair]), &PayloadMode::Unsigned).unwrap();
            assert_eq!(claims.verify(&DigestValues::default()).unwrap_err().code(), ErrorCode::InternalError);
        }
        let mut claims =
            Claims::from_headers(&headers(&[("x-amz-trailer", "x-amz-checksum-crc32")]), &PayloadMode::Unsigned)
                .unwrap();
        assert_eq!(verify(&claims, b"").unwrap_err().code(), ErrorCode::InternalError);
        assert_eq!(claims.settle(&Trailers::default()).unwrap_err().code(), ErrorCode::MalformedTrailerError);
        let checksum = Checksum::parse(ChecksumAlgorithm::Crc32, "y/Q5Jg==").unwrap();
        claims.settle(&Trailers { checksum: Some(checksum) }).unwrap();
        assert!(verify(&claims, b"123456789").is_ok());
    }

    #[test]
    fn contradicting_and_malformed_claims_are_refused() {
        // C78
        let refused: &[(&[(&'static str, &'static str)], ErrorCode)] = &[
            (&[RIGHT[1], RIGHT[2]], ErrorCode::InvalidRequest),
            (&[RIGHT[1], ("x-amz-trailer", "x-amz-checksum-crc32")], ErrorCode::InvalidRequest),
            (&[RIGHT[1], RIGHT[1]], ErrorCode::InvalidArgument),
            (&[RIGHT[1], ("x-amz-sdk-checksum-algorithm", "SHA1")], ErrorCode::InvalidRequest),
            (&[("x-amz-sdk-checksum-algorithm", "MD4")], ErrorCode::InvalidRequest),
            (&[("x-amz-checksum-crc32", "y/Q5Jg==-2")], ErrorCode::InvalidRequest),
            (&[("x-amz-checksum-crc32", "")], ErrorCode::InvalidRequest),
            (&[("x-amz-checksum-sha3", "AAAA")], ErrorCode::NotImplemented),
            (&[("x-amz-trailer", "x-amz-meta-a")], ErrorCode::InvalidRequest),
            (&[("content-md5", "AAAA")], ErrorCode::InvalidDigest),
            (&[("content-md5", "not base64")], ErrorCode::InvalidDigest),
        ];
        for (pairs, code) in refused {
            let error = Claims::from_headers(&headers(pairs), &PayloadMode::Unsigned).unwrap_err();
            assert_eq!(error.code(), *code, "{pairs:?}");
        }
    }

    #[test]
    fn a_named_algorithm_is_computed_and_stored() {
        let claims =
            Claims::from_headers(&headers(&[("x-amz-sdk-checksum-algorithm", "crc64nvme")]), &PayloadMode::Unsigned)
                .unwrap();
        assert_eq!(claims.stored_algorithm(), Some(ChecksumAlgorithm::Crc64Nvme));
        assert!(claims.digests().contains(ChecksumAlgorithm::Crc64Nvme));
        assert!(verify(&claims, b"x").is_ok());
    }

    #[test]
    fn a_completes_object_checksum_is_not_about_its_document() {
        let claims = Claims::without_checksum(&headers(&[RIGHT[0], RIGHT[1]]), &PayloadMode::Unsigned).unwrap();
        assert_eq!(claims.checksum, ChecksumClaim::None);
        assert!(claims.content_md5.is_some());
    }
}
