//! Headers that change what a request means and that this server does not implement.

use crate::error::{ErrorCode, Result, S3Error};
use http::HeaderMap;

/// Refuses requests whose meaning depends on a header we would otherwise ignore: multi-factor
/// authentication, an append… Call it for every request with the effective headers,
/// before the operation runs.
///
/// # Errors
/// `NotImplemented` naming the header.
pub fn refuse_unsupported(headers: &HeaderMap) -> Result<()> {
    for (name, value) in headers {
        let name = name.as_str();
        let refused = REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || REFUSED_UNLESS
                .iter()
                .any(|(refused, harmless)| *refused == name && !harmless.iter().any(|h| *value == **h));
        if refused {
            return Err(S3Error::with_message(
                ErrorCode::NotImplemented,
                "A header you provided implies functionality that is not implemented.",
            )
            .field("Header", name));
        }
    }
    Ok(())
}

/// Every header that starts so.
const REFUSED_PREFIXES: [&str; 1] = ["x-amz-rename-source"];

/// These, except with a value that says what is the case anyway.
const REFUSED_UNLESS: [(&str, &[&str]); 2] = [("x-amz-mfa", &[]), ("x-amz-write-offset-bytes", &[])];

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn checked(name: &'static str, value: &'static str) -> Option<ErrorCode> {
        let headers = [(HeaderName::from_static(name), HeaderValue::from_static(value))].into_iter().collect();
        refuse_unsupported(&headers).err().map(|error| error.code())
    }

    #[test]
    fn a_header_that_would_change_the_meaning_is_refused() {
        // C3
        for (name, _) in REFUSED_UNLESS {
            assert_eq!(checked(name, "something"), Some(ErrorCode::NotImplemented), "{name}");
        }
        assert_eq!(checked("x-amz-rename-source", "k"), Some(ErrorCode::NotImplemented));
    }

    #[test]
    fn a_value_that_says_what_is_the_case_anyway_passes() {
        assert_eq!(checked("x-amz-meta-a", "b"), None);
        assert_eq!(checked("x-amz-request-payer", "requester"), None);
        assert_eq!(checked("x-amz-server-side-encryption", "AES256"), None);
    }
}
