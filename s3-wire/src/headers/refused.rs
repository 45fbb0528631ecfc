//! Headers that change what a request means and that this server does not implement.

use super::check_acl;
use crate::error::{ErrorCode, Result, S3Error};
use http::HeaderMap;

/// Refuses requests whose meaning depends on a header we would otherwise ignore: customer-provided keys, object lock, tagging,
/// an expected owner… Call it for every request with the effective headers, before the operation runs.
///
/// # Errors
/// `NotImplemented` naming the header; as [`check_acl`].
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
    check_acl(headers)
}

/// Every header that starts so.
const REFUSED_PREFIXES: [&str; 6] = [
    "x-amz-copy-source-server-side-encryption-customer-",
    "x-amz-if-match-",
    "x-amz-object-lock-",
    "x-amz-rename-source",
    "x-amz-server-side-encryption-aws-kms-",
    "x-amz-server-side-encryption-customer-",
];

/// These, except with a value that says what is the case anyway.
const REFUSED_UNLESS: [(&str, &[&str]); 12] = [
    ("x-amz-bucket-object-lock-enabled", &["false", "False"]),
    ("x-amz-bypass-governance-retention", &["false", "False"]),
    ("x-amz-expected-bucket-owner", &[]),
    ("x-amz-mfa", &[]),
    ("x-amz-object-ownership", &["BucketOwnerEnforced"]),
    ("x-amz-server-side-encryption-bucket-key-enabled", &["false", "False"]),
    ("x-amz-server-side-encryption-context", &[]),
    ("x-amz-source-expected-bucket-owner", &[]),
    ("x-amz-tagging", &[]),
    ("x-amz-tagging-directive", &["COPY"]),
    ("x-amz-website-redirect-location", &[]),
    ("x-amz-write-offset-bytes", &[]),
];

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
        for name in [
            "x-amz-server-side-encryption-customer-algorithm",
            "x-amz-server-side-encryption-customer-key-md5",
            "x-amz-copy-source-server-side-encryption-customer-key",
            "x-amz-object-lock-mode",
            "x-amz-if-match-size",
        ] {
            assert_eq!(checked(name, "AES256"), Some(ErrorCode::NotImplemented), "{name}");
        }
    }

    #[test]
    fn acls_other_than_the_default_are_refused() {
        assert_eq!(checked("x-amz-acl", "private"), None);
        assert_eq!(checked("x-amz-acl", "bucket-owner-full-control"), None);
        for acl in ["public-read", "authenticated-read", "", "PRIVATE"] {
            assert_eq!(checked("x-amz-acl", acl), Some(ErrorCode::AccessControlListNotSupported), "{acl}");
        }
        assert_eq!(checked("x-amz-grant-read", "id=x"), Some(ErrorCode::AccessControlListNotSupported));
    }

    #[test]
    fn a_value_that_says_what_is_the_case_anyway_passes() {
        assert_eq!(checked("x-amz-bucket-object-lock-enabled", "false"), None);
        assert_eq!(checked("x-amz-object-ownership", "BucketOwnerEnforced"), None);
        assert_eq!(checked("x-amz-meta-a", "b"), None);
        assert_eq!(checked("x-amz-request-payer", "requester"), None);
        assert_eq!(checked("x-amz-server-side-encryption", "AES256"), None);
    }
}
