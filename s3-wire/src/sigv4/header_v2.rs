//! AWS Signature Version 2 in the `Authorization` header, as clients from before version 4 sign:
//! `AWS ACCESS-KEY:SIGNATURE` over the method, `Content-MD5`, `Content-Type`, the date, every
//! `x-amz-*` and the resource.
//!
//! Weaker than version 4: HMAC-SHA1, a host and a payload that are not signed, no scope. So it is
//! accepted only where the operator's setting says so. No signer of this form moves headers into
//! the query. A request that has some there is refused: otherwise whoever sees a signed header
//! could move it to where it is no claim about the body, and the signature would still be right.
//!
//! Source: "Signing and authenticating REST requests" (Amazon S3 User Guide, Signature Version 2).

use super::{
    Presented, SignatureKind,
    presented::{PayloadClaim, Proof, Request, is_access_key_id, unsupported_mechanism},
};
use crate::{
    error::{ErrorCode, Result, S3Error},
    headers::single,
    timestamp,
};

impl Request<'_> {
    /// Reads `ACCESS-KEY:SIGNATURE` and checks all that needs no secret.
    ///
    /// # Errors
    /// `InvalidRequest` for another form, which is no signature of version 2; `AccessDenied` for a
    /// date that is missing or none, and for signed chunks; `RequestTimeTooSkewed`.
    pub(super) fn present_header_v2(&self, credentials: &str) -> Result<Presented> {
        let (access_key_id, signature) = credentials
            .trim()
            .rsplit_once(':')
            .filter(|(id, signature)| is_access_key_id(id) && !signature.is_empty() && !signature.contains(' '))
            .ok_or_else(unsupported_mechanism)?;
        if let Some((name, _)) = self.target.query.pairs().find(|(name, _)| belongs_to_headers(name)) {
            let message =
                format!("Send {name} as a header: Signature Version 2 in the Authorization header signs no others");
            return Err(S3Error::with_message(ErrorCode::AccessDenied, message));
        }
        let moved = single(self.headers, "x-amz-date")?;
        let date = match moved {
            Some(_) => None,
            None => single(self.headers, "date")?,
        };
        let signed_at = moved.or(date).and_then(timestamp::parse_mail_date).ok_or_else(|| {
            let message = "AWS authentication requires a valid Date or x-amz-date header";
            S3Error::with_message(ErrorCode::AccessDenied, message)
        })?;
        self.check_skew(signed_at)?;
        let payload =
            single(self.headers, "x-amz-content-sha256")?.map_or(Ok(PayloadClaim::Unsigned), PayloadClaim::parse)?;
        if matches!(payload, PayloadClaim::StreamingSigned { .. }) {
            let message = "Signature Version 2 cannot sign chunks. Please use AWS4-HMAC-SHA256.";
            return Err(S3Error::with_message(ErrorCode::AccessDenied, message));
        }
        Ok(Presented {
            access_key_id: access_key_id.to_owned(),
            session_token: single(self.headers, "x-amz-security-token")?.map(str::to_owned),
            kind: SignatureKind::HeaderV2,
            signed_at,
            signature: signature.to_owned(),
            payload,
            // A date among the `x-amz-*` stands in for the one here.
            string_to_sign: self.string_to_sign_v2(date.unwrap_or_default())?,
            proof: Proof::V2,
        })
    }
}

/// Whether a parameter has the name of a header that is signed.
fn belongs_to_headers(parameter: &str) -> bool {
    let name = parameter.to_ascii_lowercase();
    name.starts_with("x-amz-") || name == "content-md5" || name == "content-type"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        address::{Domains, Target},
        sigv4::{Identity, SecretKey, Verifier, presign_v2::sign_v2},
    };
    use http::Request as HttpRequest;
    use std::time::Duration;

    const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const GET: &str = "qgk2+6Sv9/oM7G3qLEjTH1a1l1g=";
    const BUCKET: &str = "+sI8gP9wALklgY6pDenkhfiq2Kw=";
    const NOON: (&str, &str) = ("date", "Tue, 27 Mar 2007 19:36:42 +0000");

    /// Asks a minute after the date that a request of AWS's documentation has.
    fn authenticate(accepts: bool, request: &str, authorization: &str, headers: &[(&str, &str)]) -> Result<Identity> {
        let (method, uri) = request.split_once(' ').unwrap();
        let (host, uri) = match uri.strip_prefix("http://s3.us-west-1.amazonaws.com") {
            Some(path) => ("s3.us-west-1.amazonaws.com", path),
            None => ("awsexamplebucket1.s3.us-west-1.amazonaws.com", uri),
        };
        let mut request = HttpRequest::builder().method(method).uri(uri).header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.header("authorization", authorization).body(()).unwrap().into_parts().0;
        let target = Target::parse(&parts, &Domains::new(["s3.us-west-1.amazonaws.com"])).unwrap();
        let store = |id: &str| (id == KEY).then(|| SecretKey::new(SECRET));
        let now = timestamp::parse_mail_date(NOON.1).unwrap() + Duration::from_secs(60);
        Verifier::new("us-east-1").header_v2(accepts).authenticate(&parts.method, &target, &parts.headers, now, &store)
    }

    fn refusal(request: &str, authorization: &str, headers: &[(&str, &str)]) -> ErrorCode {
        authenticate(true, request, authorization, headers).unwrap_err().code()
    }

    #[test]
    fn requests_of_awss_documentation_verify_where_the_setting_says_so() {
        for (request, signature, headers) in [
            ("GET /photos/puppy.jpg", GET, &[NOON][..]),
            // A bucket has a slash behind it, whatever the URL has.
            ("GET http://s3.us-west-1.amazonaws.com/awsexamplebucket1", BUCKET, &[NOON]),
            ("GET http://s3.us-west-1.amazonaws.com/awsexamplebucket1/", BUCKET, &[NOON]),
            ("GET /", BUCKET, &[NOON]),
            // A date that takes the place of the standard one is signed among the headers.
            ("GET /photos/puppy.jpg", "slTy8RxUyZfcZu570o66DRKd13Y=", &[("x-amz-date", NOON.1), ("date", "no date")]),
        ] {
            let authorization = format!("AWS {KEY}:{signature}");
            let who = authenticate(true, request, &authorization, headers).unwrap();
            let Identity::Authenticated(who) = who else { panic!("anonymous") };
            assert_eq!((who.access_key_id.as_str(), who.kind), (KEY, SignatureKind::HeaderV2));
            let refused = authenticate(false, request, &authorization, headers).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn whatever_is_changed_breaks_the_signature() {
        let signed = format!("AWS {KEY}:{GET}");
        for request in ["PUT /photos/puppy.jpg", "GET /photos/kitten.jpg", "GET /photos/puppy.jpg?acl"] {
            assert_eq!(refusal(request, &signed, &[NOON]), ErrorCode::SignatureDoesNotMatch, "{request}");
        }
        for added in [("x-amz-acl", "public-read"), ("content-type", "a/b"), ("content-md5", "eA==")] {
            let headers = [NOON, added];
            assert_eq!(
                refusal("GET /photos/puppy.jpg", &signed, &headers),
                ErrorCode::SignatureDoesNotMatch,
                "{added:?}"
            );
        }
    }

    #[test]
    fn a_signed_header_cannot_be_moved_into_the_query() {
        // As a client signs it, with a claim about its body.
        let of_body = ("content-md5", "4gJE4saaMU4BqNR0kLY+lw==");
        let text = format!("PUT\n{}\n\n{}\n/awsexamplebucket1/photos/puppy.jpg", of_body.1, NOON.1);
        let signed = format!("AWS {KEY}:{}", sign_v2(&SecretKey::new(SECRET), &text));
        assert!(authenticate(true, "PUT /photos/puppy.jpg", &signed, &[NOON, of_body]).is_ok());
        for moved in [
            "content-md5=4gJE4saaMU4BqNR0kLY%2Blw%3D%3D",
            "Content-MD5=4gJE4saaMU4BqNR0kLY%2Blw%3D%3D",
            "content-type=",
            "x-amz-checksum-crc32=AAAAAA%3D%3D%0Ax-amz-object-lock-mode:COMPLIANCE",
            "X-Amz-Acl=public-read",
        ] {
            let request = format!("PUT /photos/puppy.jpg?{moved}");
            assert_eq!(refusal(&request, &signed, &[NOON]), ErrorCode::AccessDenied, "{moved}");
        }
    }

    #[test]
    fn a_customers_key_is_not_repeated_to_whoever_signed_wrongly() {
        let key = ("x-amz-server-side-encryption-customer-key", "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IDEyMzQ=");
        let signed = format!("AWS {KEY}:{GET}");
        let error = authenticate(true, "GET /photos/puppy.jpg", &signed, &[NOON, key]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::SignatureDoesNotMatch);
        assert!(!format!("{error:?}").contains(key.1), "{error:?}");
    }

    #[test]
    fn forms_dates_and_keys_that_are_none_are_refused() {
        let get = "GET /photos/puppy.jpg";
        for form in ["AWS HAHAHA", "AWS :x", "AWS AKIAIOSFODNN7EXAMPLE:", "AWS a:b c"] {
            assert_eq!(refusal(get, form, &[NOON]), ErrorCode::InvalidRequest, "{form}");
        }
        let signed = format!("AWS {KEY}:{GET}");
        assert_eq!(refusal(get, &signed, &[]), ErrorCode::AccessDenied);
        for date in ["Bad Date", "", "Tue, 07 Jul 1950 21:53:04 GMT"] {
            assert_eq!(refusal(get, &signed, &[("x-amz-date", date)]), ErrorCode::AccessDenied, "{date}");
        }
        for date in ["Tue, 07 Jul 2006 21:53:04 GMT", "Tue, 07 Jul 9999 21:53:04 GMT"] {
            assert_eq!(refusal(get, &signed, &[("x-amz-date", date)]), ErrorCode::RequestTimeTooSkewed, "{date}");
        }
        let nobody = format!("AWS AKIANOBODYHASTHIS000:{GET}");
        assert_eq!(refusal(get, &nobody, &[NOON]), ErrorCode::InvalidAccessKeyId);
        let chunks = [NOON, ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")];
        assert_eq!(refusal(get, &signed, &chunks), ErrorCode::AccessDenied);
    }
}
