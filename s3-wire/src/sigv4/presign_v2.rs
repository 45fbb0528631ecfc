//! Presigned URLs of AWS Signature Version 2: what boto3, s3fs, django-storages, s3cmd and aws-cli
//! v1 make by default for `us-east-1`.
//!
//! Weaker than version 4: HMAC-SHA1, a host that is not signed, no scope and no limit to a URL's
//! life. So it is accepted in the query alone, for GET, HEAD and PUT alone, and only where the
//! operator's setting says so.
//!
//! Source: "Signing and authenticating REST requests" (Amazon S3 User Guide, Signature Version 2).

use super::{
    Presented, SecretKey, SignatureKind,
    presented::{PayloadClaim, Proof, Request, is_access_key_id},
};
use crate::{
    error::{ErrorCode, Result, S3Error},
    headers::{decimal, single},
    operation::is_subresource,
    timestamp,
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use crypto::{HmacSha1, KeyInit, Mac};
use http::Method;
use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

impl Request<'_> {
    /// Reads such a URL and checks all that needs no secret.
    ///
    /// # Errors
    /// `AccessDenied` for other methods, a parameter that is missing or repeated, an expired URL,
    /// and signed chunks.
    pub(super) fn present_v2(&self) -> Result<Presented> {
        if ![Method::GET, Method::HEAD, Method::PUT].contains(self.method) {
            return Err(S3Error::with_message(
                ErrorCode::AccessDenied,
                "A URL presigned with Signature Version 2 is accepted for GET, HEAD and PUT. Please use AWS4-HMAC-SHA256.",
            ));
        }
        let denied = |message: String| S3Error::with_message(ErrorCode::AccessDenied, message);
        let needed = |name: &'static str| {
            self.target.query.single(name).ok().flatten().ok_or_else(|| {
                denied(
                    "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters, once."
                        .to_owned(),
                )
            })
        };
        let (access_key_id, signature, expires) = (needed("AWSAccessKeyId")?, needed("Signature")?, needed("Expires")?);
        let expires_at = decimal(expires)
            .and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
            .ok_or_else(|| denied(format!("Invalid date (should be seconds since epoch): {expires}")))?;
        if self.now > expires_at {
            return Err(denied("Request has expired".to_owned())
                .field("Expires", timestamp::iso8601(expires_at))
                .field("ServerTime", timestamp::iso8601(self.now)));
        }
        if !is_access_key_id(access_key_id) {
            return Err(denied("The AWSAccessKeyId is not valid.".to_owned()));
        }
        // A line of its own in a value would be read as another signed header.
        if self.target.query.pairs().any(|(name, value)| name.contains(is_line_break) || value.contains(is_line_break))
        {
            return Err(denied("A URL of Signature Version 2 cannot sign line breaks.".to_owned()));
        }
        let payload =
            single(self.headers, "x-amz-content-sha256")?.map_or(Ok(PayloadClaim::Unsigned), PayloadClaim::parse)?;
        if matches!(payload, PayloadClaim::StreamingSigned { .. }) {
            return Err(denied("A URL of Signature Version 2 cannot sign chunks.".to_owned()));
        }
        Ok(Presented {
            access_key_id: access_key_id.to_owned(),
            session_token: self.target.query.single("x-amz-security-token")?.map(str::to_owned),
            kind: SignatureKind::PresignedV2,
            signed_at: self.now,
            signature: signature.to_owned(),
            payload,
            string_to_sign: self.string_to_sign_v2(expires)?,
            proof: Proof::V2,
        })
    }

    /// The string to sign; `date` is the moment of expiry in a URL. Headers that a signer moved
    /// into the query are signed as headers, as botocore does it.
    pub(super) fn string_to_sign_v2(&self, date: &str) -> Result<String> {
        let of_either = |name: &'static str| -> Result<String> {
            match single(self.headers, name)? {
                Some(value) => Ok(value.to_owned()),
                None => Ok(self.target.query.single(name)?.unwrap_or_default().to_owned()),
            }
        };
        let mut out =
            format!("{}\n{}\n{}\n{date}\n", self.method, of_either("content-md5")?, of_either("content-type")?);
        for (name, values) in self.amz_headers() {
            out.push_str(&format!("{name}:{}\n", values.join(",")));
        }
        let resource = &self.target.raw_resource;
        out.push_str(resource);
        if resource.len() > 1 && resource.rfind('/') == Some(0) {
            // A bucket is signed with a slash behind it, whether the URL has one or not.
            out.push('/');
        }
        let mut subresources: Vec<(&str, &str)> =
            self.target.query.pairs().filter(|(name, _)| is_signed_v2(name)).collect();
        subresources.sort_unstable();
        for (index, (name, value)) in subresources.into_iter().enumerate() {
            out.push(if index == 0 { '?' } else { '&' });
            out.push_str(name);
            if !value.is_empty() {
                out.push('=');
                out.push_str(value);
            }
        }
        Ok(out)
    }

    /// Every `x-amz-*` of headers and query by its lower-case name. A header that a client sends
    /// although its signer moved it into the query counts once.
    fn amz_headers(&self) -> BTreeMap<String, Vec<String>> {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let in_head = self.headers.iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
        });
        let in_query =
            self.target.query.pairs().map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
        for (name, value) in in_head.filter(|(name, _)| name.starts_with("x-amz-")) {
            headers.entry(name).or_default().push(value);
        }
        for (name, value) in in_query.filter(|(name, _)| name.starts_with("x-amz-")) {
            headers.entry(name).or_insert_with(|| vec![value]);
        }
        headers
    }
}

fn is_line_break(character: char) -> bool {
    character == '\n' || character == '\r'
}

/// Whether a parameter is part of the signed resource. Every sub-resource is, those of later years
/// too: an unsigned `?acl` may not be added to a URL that was made for the object.
fn is_signed_v2(name: &str) -> bool {
    matches!(name, "partNumber" | "versionId") || name.starts_with("response-") || is_subresource(name)
}

/// The signature of a string: base64 of its HMAC-SHA1.
pub(super) fn sign_v2(secret: &SecretKey, string_to_sign: &str) -> String {
    let mut mac =
        <HmacSha1 as KeyInit>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes keys of any length");
    mac.update(string_to_sign.as_bytes());
    BASE64_STANDARD.encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        address::{Domains, Target},
        sigv4::{Identity, Verifier},
    };
    use http::Request as HttpRequest;

    const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn authenticate(accepts: bool, method: &str, uri: &str, headers: &[(&str, &str)]) -> Result<Identity> {
        let mut request = HttpRequest::builder().method(method).uri(uri).header("host", "johnsmith.s3.amazonaws.com");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        let target = Target::parse(&parts, &Domains::new(["s3.amazonaws.com"])).unwrap();
        let store = |id: &str| (id == KEY).then(|| SecretKey::new(SECRET));
        let now = UNIX_EPOCH + Duration::from_secs(1_175_139_000);
        Verifier::new("us-east-1").presign_v2(accepts).authenticate(&parts.method, &target, &parts.headers, now, &store)
    }

    /// The example of AWS's documentation, "Query string request authentication alternative".
    const EXAMPLE: &str = "/photos/puppy.jpg?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=NpgCjnDzrM%2BWFzoENXmpNDUsSn8%3D&Expires=1175139620";

    #[test]
    fn the_url_of_awss_documentation_verifies() {
        assert!(matches!(authenticate(true, "GET", EXAMPLE, &[]), Ok(Identity::Authenticated(_))));
        let error = authenticate(false, "GET", EXAMPLE, &[]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
    }

    #[test]
    fn whatever_is_added_to_a_url_breaks_it() {
        let added =
            ["&acl", "&attributes=", "&versionId=v", "&x-amz-acl=private", "&response-expires=1", "&partNumber=2"];
        for added in added {
            let error = authenticate(true, "GET", &format!("{EXAMPLE}{added}"), &[]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::SignatureDoesNotMatch, "{added}");
        }
        for (method, headers) in [
            ("HEAD", &[][..]),
            ("PUT", &[]),
            ("GET", &[("x-amz-copy-source", "a/b")]),
            ("GET", &[("content-type", "a/b")]),
        ] {
            let error = authenticate(true, method, EXAMPLE, headers).unwrap_err();
            assert_eq!(error.code(), ErrorCode::SignatureDoesNotMatch, "{method} {headers:?}");
        }
        let other = EXAMPLE.replace("puppy", "kitten");
        assert_eq!(authenticate(true, "GET", &other, &[]).unwrap_err().code(), ErrorCode::SignatureDoesNotMatch);
    }

    #[test]
    fn a_value_of_several_lines_is_no_header_that_was_signed() {
        let signed = "PUT\n\n\n1175139620\nx-amz-checksum-crc32:AAAAAA==\nx-amz-object-lock-mode:COMPLIANCE\n/johnsmith/photos/puppy.jpg";
        let signature =
            sign_v2(&SecretKey::new(SECRET), signed).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        let url = format!("/photos/puppy.jpg?AWSAccessKeyId={KEY}&Expires=1175139620&Signature={signature}");
        let honest = "&x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-object-lock-mode=COMPLIANCE";
        assert!(matches!(authenticate(true, "PUT", &format!("{url}{honest}"), &[]), Ok(Identity::Authenticated(_))));
        let folded = "&x-amz-checksum-crc32=AAAAAA%3D%3D%0Ax-amz-object-lock-mode:COMPLIANCE";
        let error = authenticate(true, "PUT", &format!("{url}{folded}"), &[]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::AccessDenied);
    }

    #[test]
    fn expired_incomplete_and_foreign_urls_are_refused() {
        for (uri, code) in [
            (EXAMPLE.replace("1175139620", "1175138999"), ErrorCode::AccessDenied),
            (EXAMPLE.replace("&Expires=1175139620", ""), ErrorCode::AccessDenied),
            (EXAMPLE.replace("Expires=1175139620", "Expires=soon"), ErrorCode::AccessDenied),
            (format!("{EXAMPLE}&Expires=1175139620"), ErrorCode::AccessDenied),
            (EXAMPLE.replace("7EXAMPLE", "7NOBODYS"), ErrorCode::InvalidAccessKeyId),
            (format!("{EXAMPLE}&x-amz-security-token=t"), ErrorCode::InvalidToken),
        ] {
            assert_eq!(authenticate(true, "GET", &uri, &[]).unwrap_err().code(), code, "{uri}");
        }
        for method in ["DELETE", "POST"] {
            assert_eq!(authenticate(true, method, EXAMPLE, &[]).unwrap_err().code(), ErrorCode::AccessDenied);
        }
    }
}
