//! Server-side encryption asked for by header.

use super::single;
use crate::error::{ErrorCode, Result, S3Error};
use http::HeaderMap;

/// Whether the request asks for encryption at rest (`x-amz-server-side-encryption: AES256`).
///
/// # Errors
/// `NotImplemented` for `aws:kms` and `aws:kms:dsse`, `InvalidEncryptionAlgorithmError` for anything else.
pub fn requested_encryption(headers: &HeaderMap) -> Result<bool> {
    match single(headers, "x-amz-server-side-encryption")? {
        None => Ok(false),
        Some("AES256") => Ok(true),
        Some(kms) if kms.starts_with("aws:") => Err(S3Error::new(ErrorCode::NotImplemented)
            .field("Header", "x-amz-server-side-encryption")
            .field("Value", kms)),
        Some(_) => Err(S3Error::new(ErrorCode::InvalidEncryptionAlgorithmError)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn only_aes256_is_a_yes() {
        let asked = |value: &'static str| {
            let headers = [("x-amz-server-side-encryption", value)];
            let headers = headers.map(|(n, v)| (http::HeaderName::from_static(n), HeaderValue::from_static(v)));
            requested_encryption(&headers.into_iter().collect()).map_err(|error| error.code())
        };
        assert_eq!(asked("AES256"), Ok(true));
        assert_eq!(asked("aws:kms"), Err(ErrorCode::NotImplemented));
        assert_eq!(asked("aws:kms:dsse"), Err(ErrorCode::NotImplemented));
        assert_eq!(asked("aes256"), Err(ErrorCode::InvalidEncryptionAlgorithmError));
        assert!(!requested_encryption(&HeaderMap::new()).unwrap());
    }
}
