//! Headers that signers move into the query of a presigned URL.

use crate::{
    address::Query,
    checksum::ChecksumAlgorithm,
    error::{Result, S3Error},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::borrow::Cow;

/// The headers an operation must see: those of the request and the `x-amz-*` ones that SDKs move
/// into the query of a presigned URL (`x-amz-acl=…`, `x-amz-meta-…`). S3 reads both alike; a server
/// that read only the header block would silently drop what the signer asked for (C3). The
/// signature itself is checked over the request as it was sent.
///
/// The value of a checksum is left where it is: the JavaScript SDK presigns a PUT before it knows
/// the body and moves the checksum of an empty one (`x-amz-checksum-crc32=AAAAAA==`) into the
/// query. It is no claim about the body that comes.
///
/// # Errors
/// `InvalidArgument` when the same name comes twice with different values, or cannot be a header.
pub fn effective<'h>(query: &Query, headers: &'h HeaderMap) -> Result<Cow<'h, HeaderMap>> {
    let mut merged = Cow::Borrowed(headers);
    for (name, value) in query.pairs() {
        let lower = name.to_ascii_lowercase();
        let is_checksum = ChecksumAlgorithm::ALL.into_iter().any(|algorithm| algorithm.header() == lower);
        if !lower.starts_with("x-amz-") || SIGNATURE_PARAMETERS.contains(&lower.as_str()) || is_checksum {
            continue;
        }
        let refused = || S3Error::invalid_argument("query", name, "The parameter is not valid as a header.");
        let header = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| refused())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| refused())?;
        match merged.get(&header) {
            None => {
                merged.to_mut().insert(header, value);
            }
            Some(present) if *present == value => {}
            Some(_) => return Err(S3Error::invalid_argument("query", name, "The value is given twice.")),
        }
    }
    Ok(merged)
}

/// What belongs to the signature and is not a header of the operation.
const SIGNATURE_PARAMETERS: [&str; 8] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_moved_into_the_query_are_seen() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-meta-a", HeaderValue::from_static("1"));
        let query =
            Query::parse("X-Amz-Acl=public-read&X-Amz-Date=d&prefix=p&x-amz-meta-a=1&x-amz-meta-b=%C3%A9").unwrap();
        let effective = effective(&query, &headers).unwrap();
        assert_eq!(effective["x-amz-acl"], "public-read");
        assert_eq!(effective["x-amz-meta-b"].as_bytes(), "é".as_bytes());
        assert_eq!(effective.len(), 3);
    }

    #[test]
    fn a_checksum_in_the_query_is_no_claim_about_the_body() {
        let query = Query::parse("x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32").unwrap();
        let merged = effective(&query, &HeaderMap::new()).unwrap().into_owned();
        assert_eq!(merged.len(), 1);
        assert_eq!(merged["x-amz-sdk-checksum-algorithm"], "CRC32");
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-checksum-crc32", HeaderValue::from_static("y/Q5Jg=="));
        assert_eq!(effective(&query, &headers).unwrap()["x-amz-checksum-crc32"], "y/Q5Jg==");
    }

    #[test]
    fn a_contradiction_or_an_injection_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-acl", HeaderValue::from_static("private"));
        for raw in
            ["x-amz-acl=public-read", "x-amz-meta-a=1&x-amz-meta-a=2", "x-amz-meta-a=%0d%0aEvil:1", "x-amz-%0a=1"]
        {
            assert!(effective(&Query::parse(raw).unwrap(), &headers).is_err(), "{raw}");
        }
    }

    #[test]
    fn a_request_without_them_is_not_copied() {
        assert!(matches!(effective(&Query::parse("prefix=a").unwrap(), &HeaderMap::new()), Ok(Cow::Borrowed(_))));
    }
}
