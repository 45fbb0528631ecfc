use super::*;
use crate::{
    address::{Domains, Target},
    error::{ErrorCode, Result, S3Error},
    timestamp::parse_compact,
};
use aws_credential_types::Credentials;
use aws_sigv4::{
    http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation, SigningSettings,
        UriPathNormalizationMode, sign,
    },
    sign::v4,
};
use crypto::{Digest as _, Sha256};
use http::{HeaderValue, Request, request::Parts};
use proptest::prelude::*;
use std::time::{Duration, SystemTime};

const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The moment of AWS's examples.
fn then() -> SystemTime {
    parse_compact("20130524T000000Z").unwrap()
}

fn store(access_key: &str) -> Option<SecretKey> {
    match access_key {
        ACCESS_KEY => Some(SecretKey::new(SECRET)),
        "EMPTY" => Some(SecretKey::new("")),
        _ => None,
    }
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn authenticate_at(parts: &Parts, now: SystemTime) -> Result<Identity> {
    let target = Target::parse(parts, &Domains::new(["s3.amazonaws.com"]))?;
    Verifier::new("us-east-1").authenticate(&parts.method, &target, &parts.headers, now, &store)
}

fn authenticate(parts: &Parts) -> Result<Identity> {
    authenticate_at(parts, then())
}

fn code(result: Result<Identity>) -> Option<ErrorCode> {
    result.err().map(|error| error.code())
}

/// A request of AWS's documentation, with the signature published there.
fn example(method: &str, uri: &str, headers: &[(&str, &str)], signed_headers: &str, signature: &str) -> Parts {
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20130524/us-east-1/s3/aws4_request,SignedHeaders={signed_headers},Signature={signature}"
    );
    let mut parts = request(method, uri, headers);
    parts.headers.insert("authorization", HeaderValue::from_str(&authorization).unwrap());
    parts
}

fn documented_examples() -> Vec<Parts> {
    let host = ("host", "examplebucket.s3.amazonaws.com");
    let date = ("x-amz-date", "20130524T000000Z");
    let empty = ("x-amz-content-sha256", EMPTY_SHA256);
    vec![
        example(
            "GET",
            "/test.txt",
            &[host, ("range", "bytes=0-9"), empty, date],
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        example(
            "PUT",
            "/test$file.text",
            &[
                host,
                ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                ("x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"),
                date,
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ],
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        example(
            "GET",
            "/?lifecycle",
            &[host, empty, date],
            "host;x-amz-content-sha256;x-amz-date",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        example(
            "GET",
            "/?max-keys=2&prefix=J",
            &[host, empty, date],
            "host;x-amz-content-sha256;x-amz-date",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ]
}

const PRESIGNED: &str = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\
                         &X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host\
                         &X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

#[test]
fn the_signatures_of_awss_documentation_verify() {
    for parts in documented_examples() {
        let identity = authenticate(&parts).unwrap();
        assert_eq!(identity.access_key_id(), Some(ACCESS_KEY), "{}", parts.uri);
    }
    let presigned = request("GET", PRESIGNED, &[("host", "examplebucket.s3.amazonaws.com")]);
    let Identity::Authenticated(who) = authenticate(&presigned).unwrap() else { panic!("not anonymous") };
    assert_eq!(who.kind, SignatureKind::Presigned);
    assert!(matches!(who.payload, PayloadMode::Unsigned));
    assert_eq!(who.signed_at, then());
}

#[test]
fn changing_anything_that_is_signed_breaks_the_signature() {
    for original in documented_examples() {
        let mut method = original.clone();
        method.method = http::Method::DELETE; // C21
        let mut path = original.clone();
        path.uri = "/other".parse().unwrap();
        let mut query = original.clone();
        query.uri = format!("{}{}versionId=1", original.uri, if original.uri.query().is_some() { "&" } else { "?" })
            .parse()
            .unwrap();
        let mut host = original.clone();
        host.headers.insert("host", HeaderValue::from_static("other.s3.amazonaws.com")); // C19
        let mut hash = original.clone();
        hash.headers.insert("x-amz-content-sha256", HeaderValue::from_static("UNSIGNED-PAYLOAD"));
        for changed in [method, path, query, host, hash] {
            assert_eq!(
                code(authenticate(&changed)),
                Some(ErrorCode::SignatureDoesNotMatch),
                "{} {}",
                changed.method,
                changed.uri
            );
        }
    }
}

#[test]
fn a_presigned_get_is_good_for_nothing_else() {
    // C21
    let host = [("host", "examplebucket.s3.amazonaws.com")];
    for (method, uri) in [
        ("PUT", PRESIGNED.to_owned()),
        ("HEAD", PRESIGNED.to_owned()),
        ("GET", format!("{PRESIGNED}&versionId=1")),
        ("GET", format!("{PRESIGNED}&acl")),
        ("GET", format!("{PRESIGNED}&response-content-type=text/html")),
        ("GET", PRESIGNED.replace("test.txt", "other.txt")),
        ("GET", PRESIGNED.replace("Expires=86400", "Expires=86401")),
    ] {
        assert_eq!(
            code(authenticate(&request(method, &uri, &host))),
            Some(ErrorCode::SignatureDoesNotMatch),
            "{method} {uri}"
        );
    }
    let elsewhere = request("GET", PRESIGNED, &[("host", "other.s3.amazonaws.com")]);
    assert_eq!(code(authenticate(&elsewhere)), Some(ErrorCode::SignatureDoesNotMatch)); // C19
}

#[test]
fn a_mismatch_shows_what_we_signed() {
    let mut parts = documented_examples().remove(0);
    parts.headers.insert("range", HeaderValue::from_static("bytes=0-10"));
    let error = authenticate(&parts).unwrap_err();
    assert!(error.get_field("CanonicalRequest").unwrap().contains("range:bytes=0-10\n"));
    assert!(
        error
            .get_field("StringToSign")
            .unwrap()
            .starts_with("AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/")
    );
}

#[test]
fn an_unsigned_amz_header_is_refused_wherever_the_signature_is() {
    // C1, C2, C3
    let presigned = request("GET", PRESIGNED, &[("host", "examplebucket.s3.amazonaws.com")]);
    for original in documented_examples().into_iter().chain([presigned]) {
        for name in [
            "x-amz-copy-source",
            "x-amz-acl",
            "x-amz-tagging",
            "x-amz-meta-a",
            "x-amz-website-redirect-location",
            "x-amz-security-token",
        ] {
            let mut parts = original.clone();
            parts.headers.insert(name, HeaderValue::from_static("x"));
            let error = authenticate(&parts).unwrap_err();
            assert_eq!(error.code(), ErrorCode::AccessDenied, "{name}");
            assert_eq!(error.get_field("HeadersNotSigned"), Some(name));
        }
    }
}

#[test]
fn the_two_inert_headers_sdks_leave_unsigned_pass_with_a_presigned_url_only() {
    for name in ["x-amz-checksum-mode", "x-amz-user-agent"] {
        let mut parts = request("GET", PRESIGNED, &[("host", "examplebucket.s3.amazonaws.com")]);
        parts.headers.insert(name, HeaderValue::from_static("ENABLED"));
        assert_eq!(code(authenticate(&parts)), None);
        let mut parts = documented_examples().remove(0);
        parts.headers.insert(name, HeaderValue::from_static("ENABLED"));
        assert_eq!(code(authenticate(&parts)), Some(ErrorCode::AccessDenied));
    }
}

#[test]
fn expiry_is_exact_to_the_second() {
    // C13
    let parts = request("GET", PRESIGNED, &[("host", "examplebucket.s3.amazonaws.com")]);
    let at = |seconds: u64| code(authenticate_at(&parts, then() + Duration::from_secs(seconds)));
    assert_eq!(at(0), None);
    assert_eq!(at(86_399), None);
    assert_eq!(at(86_400), None);
    assert_eq!(at(86_401), Some(ErrorCode::AccessDenied));
    assert_eq!(code(authenticate_at(&parts, then() - Duration::from_secs(900))), None);
    assert_eq!(code(authenticate_at(&parts, then() - Duration::from_secs(901))), Some(ErrorCode::AccessDenied));
}

#[test]
fn skew_is_at_most_fifteen_minutes_either_way() {
    // C14
    let parts = documented_examples().remove(0);
    for (offset, expected) in [(900, None), (901, Some(ErrorCode::RequestTimeTooSkewed))] {
        let offset = Duration::from_secs(offset);
        assert_eq!(code(authenticate_at(&parts, then() + offset)), expected);
        assert_eq!(code(authenticate_at(&parts, then() - offset)), expected);
    }
}

#[test]
fn malformed_presigned_urls_are_refused() {
    let host = [("host", "examplebucket.s3.amazonaws.com")];
    let query_error = ErrorCode::AuthorizationQueryParametersError;
    for (from, to, expected) in [
        // C13
        ("Expires=86400", "Expires=0", ErrorCode::AccessDenied),
        ("Expires=86400", "Expires=-1", query_error),
        ("Expires=86400", "Expires=604801", query_error),
        ("Expires=86400", "Expires=1.5", query_error),
        ("Expires=86400", "Expires=%2B1", query_error),
        ("Expires=86400", "Expires=", query_error),
        ("Expires=86400", "Expires=99999999999999999999", query_error),
        ("&X-Amz-Expires=86400", "", query_error),
        // C18
        ("Expires=86400", "Expires=86400&X-Amz-Expires=604800", query_error),
        ("&X-Amz-Signature=", "&X-Amz-Signature=x&X-Amz-Signature=", query_error),
        ("Date=2013", "Date=2013-", query_error),
        // C24
        ("SHA256&", "SHA256x&", query_error),
        ("AWS4-HMAC", "aws4-hmac", query_error),
        ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", query_error),
        ("X-Amz-Algorithm=AWS4-HMAC-SHA256&", "", query_error),
        // C15
        ("us-east-1", "eu-west-1", query_error),
        ("%2Fs3%2F", "%2Fec2%2F", query_error),
        ("aws4_request", "aws5_request", query_error),
        ("%2F20130524%2F", "%2F20130525%2F", query_error),
        // C19, C20
        ("SignedHeaders=host", "SignedHeaders=range", ErrorCode::SignatureDoesNotMatch),
        ("SignedHeaders=host", "SignedHeaders=", ErrorCode::SignatureDoesNotMatch),
        ("SignedHeaders=host", "SignedHeaders=Host", ErrorCode::SignatureDoesNotMatch),
        ("SignedHeaders=host", "SignedHeaders=host;host", ErrorCode::SignatureDoesNotMatch),
        ("&X-Amz-Signature=aeeed9", "&X-Amz-Signature=AEEED9", ErrorCode::SignatureDoesNotMatch),
        // C23
        ("X-Amz-Algorithm=AWS4-HMAC-SHA256", "AWSAccessKeyId=a&Signature=b&Expires=1", ErrorCode::InvalidRequest),
    ] {
        let uri = PRESIGNED.replacen(from, to, 1);
        assert_ne!(uri, PRESIGNED);
        assert_eq!(code(authenticate(&request("GET", &uri, &host))), Some(expected), "{to}");
    }
}

#[test]
fn malformed_authorization_headers_are_refused() {
    let original = documented_examples().remove(0);
    let authorization = original.headers["authorization"].to_str().unwrap().to_owned();
    let malformed = ErrorCode::AuthorizationHeaderMalformed;
    for (from, to, expected) in [
        // C23, C24
        (authorization.as_str(), "AWS AKIAIOSFODNN7EXAMPLE:c2ln", ErrorCode::InvalidRequest),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256x", ErrorCode::InvalidRequest),
        ("AWS4-HMAC-SHA256", "aws4-hmac-sha256", ErrorCode::InvalidRequest),
        ("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256", ErrorCode::InvalidRequest),
        (authorization.as_str(), "Basic abc", ErrorCode::InvalidArgument),
        (authorization.as_str(), "Bearer abc", ErrorCode::InvalidArgument),
        (authorization.as_str(), "", ErrorCode::AccessDenied),
        (authorization.as_str(), "AWS4-HMAC-SHA256", ErrorCode::InvalidArgument),
        (authorization.as_str(), "AWS4-HMAC-SHA256 Credential=a", malformed),
        (",Signature=", ",Signature=a,Signature=", malformed),
        (",SignedHeaders=", ",Signed=", malformed),
        (",Signature=", ",", malformed),
        // C15
        ("us-east-1", "eu-west-1", malformed),
        ("/s3/", "/sts/", malformed),
        ("aws4_request", "aws4_request2", malformed),
        ("/20130524/", "/20130523/", malformed),
        ("AKIAIOSFODNN7EXAMPLE/", "", malformed),
        ("AKIAIOSFODNN7EXAMPLE/", "/", malformed),
        // C19
        ("SignedHeaders=host;range", "SignedHeaders=range", ErrorCode::AccessDenied),
        // C20
        ("host;range;", "range;host;", ErrorCode::SignatureDoesNotMatch),
        ("host;range;", "Host;range;", ErrorCode::SignatureDoesNotMatch),
        ("host;range;", "host;if-match;range;", ErrorCode::SignatureDoesNotMatch),
        ("host;range;", "host;range;;", ErrorCode::SignatureDoesNotMatch),
        // C22
        ("AKIAIOSFODNN7EXAMPLE", "UNKNOWN", ErrorCode::InvalidAccessKeyId),
        ("AKIAIOSFODNN7EXAMPLE", "EMPTY", ErrorCode::InvalidAccessKeyId),
        ("bdb41", "bdb42", ErrorCode::SignatureDoesNotMatch),
        ("bdb41", "bdb4", ErrorCode::SignatureDoesNotMatch),
    ] {
        let mut parts = original.clone();
        let changed = HeaderValue::from_str(&authorization.replacen(from, to, 1)).unwrap();
        parts.headers.insert("authorization", changed);
        assert_eq!(code(authenticate(&parts)), Some(expected), "{to}");
    }
}

#[test]
fn a_wrong_region_names_the_right_one() {
    let mut parts = documented_examples().remove(0);
    let authorization = parts.headers["authorization"].to_str().unwrap().replace("us-east-1", "eu-west-1");
    parts.headers.insert("authorization", HeaderValue::from_str(&authorization).unwrap());
    assert_eq!(authenticate(&parts).unwrap_err().get_field("Region"), Some("us-east-1"));
}

#[test]
fn two_answers_to_who_are_you_are_refused() {
    // C16, C17
    let original = documented_examples().remove(0);
    let mut both = original.clone();
    both.uri = PRESIGNED.parse().unwrap();
    assert_eq!(code(authenticate(&both)), Some(ErrorCode::InvalidArgument));
    for name in ["authorization", "x-amz-date", "x-amz-content-sha256"] {
        let mut twice = original.clone();
        let value = twice.headers[name].clone();
        twice.headers.append(name, value);
        assert_eq!(code(authenticate(&twice)), Some(ErrorCode::InvalidArgument), "{name}");
    }
}

#[test]
fn a_header_signature_needs_a_date_and_a_payload_hash() {
    let original = documented_examples().remove(0);
    let mut undated = original.clone();
    undated.headers.remove("x-amz-date");
    assert_eq!(code(authenticate(&undated)), Some(ErrorCode::AccessDenied));
    for (hash, expected) in [
        ("", ErrorCode::InvalidArgument),
        ("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", ErrorCode::InvalidArgument),
        ("E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855", ErrorCode::InvalidArgument),
        ("unsigned-payload", ErrorCode::InvalidArgument),
    ] {
        let mut parts = original.clone();
        parts.headers.insert("x-amz-content-sha256", HeaderValue::from_static(hash));
        assert_eq!(code(authenticate(&parts)), Some(expected), "{hash}");
    }
}

#[test]
fn a_fabricated_signature_is_refused_whatever_the_payload_framing() {
    // C4, C5, C7
    for mode in [
        "UNSIGNED-PAYLOAD",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
    ] {
        let mut parts = documented_examples().remove(1);
        parts.headers.insert("x-amz-content-sha256", HeaderValue::from_static(mode));
        assert_eq!(code(authenticate(&parts)), Some(ErrorCode::SignatureDoesNotMatch), "{mode}");
        let uri = PRESIGNED.replace("aeeed9", "aeeed8") + "&X-Amz-Content-Sha256=" + mode;
        let parts = request("PUT", &uri, &[("host", "examplebucket.s3.amazonaws.com")]);
        assert_eq!(code(authenticate(&parts)), Some(ErrorCode::SignatureDoesNotMatch), "{mode} in the query");
    }
}

#[test]
fn anonymous_requests_have_a_framing_but_no_signed_one() {
    let identity = |mode: Option<&'static str>| {
        let mut parts = request("PUT", "/bucket/key", &[("host", "localhost")]);
        if let Some(mode) = mode {
            parts.headers.insert("x-amz-content-sha256", HeaderValue::from_static(mode));
        }
        authenticate(&parts)
    };
    assert!(matches!(identity(None), Ok(Identity::Anonymous { payload: PayloadMode::Unsigned })));
    let trailer = identity(Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"));
    assert!(matches!(trailer, Ok(Identity::Anonymous { payload: PayloadMode::StreamingUnsignedTrailer })));
    assert_eq!(code(identity(Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"))), Some(ErrorCode::InvalidRequest)); // C7
}

/// Signs a request as the AWS SDKs do.
fn sign_as_sdk(parts: &mut Parts, body: SignableBody<'_>, presign: bool, token: Option<&str>) {
    let credentials = Credentials::new(ACCESS_KEY, SECRET, token.map(str::to_owned), None, "test").into();
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    if presign {
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(Duration::from_secs(60));
    }
    let params = v4::SigningParams::builder()
        .identity(&credentials)
        .region("us-east-1")
        .name("s3")
        .time(then())
        .settings(settings)
        .build()
        .unwrap()
        .into();
    let host = parts.headers["host"].to_str().unwrap().to_owned();
    let uri = format!("http://{host}{}", parts.uri);
    let headers: Vec<_> =
        parts.headers.iter().map(|(n, v)| (n.as_str(), std::str::from_utf8(v.as_bytes()).unwrap())).collect();
    let signable = SignableRequest::new(parts.method.as_str(), &uri, headers.into_iter(), body).unwrap();
    let (instructions, _) = sign(signable, &params).unwrap().into_parts();
    let mut signed = Request::from_parts(parts.clone(), ());
    *signed.uri_mut() = uri.parse().unwrap();
    instructions.apply_to_request_http1x(&mut signed);
    *parts = signed.into_parts().0;
    parts.uri = parts.uri.path_and_query().unwrap().as_str().parse().unwrap();
}

proptest! {
    #[test]
    fn whatever_an_sdk_signs_verifies(
        key in "[a-zA-Z0-9 !*'()+~/._=&%?é𝕜-]{1,40}",
        prefix in "[a-zA-Z0-9 +/*~é&=-]{0,12}",
        meta in "[a-z]([a-z ,;=\"]{0,20}[a-z])?",
        presign: bool,
    ) {
        let path = crate::address::percent::encode_path(&key).into_owned();
        let prefix = crate::address::percent::encode(&prefix).into_owned();
        let mut parts = request("PUT", &format!("/bucket/{path}?prefix={prefix}&x-id=PutObject"), &[("host", "localhost:9000"), ("x-amz-meta-note", &meta)]);
        let body = if presign { SignableBody::UnsignedPayload } else { SignableBody::Bytes(b"payload") };
        sign_as_sdk(&mut parts, body, presign, None);
        let identity = authenticate(&parts);
        prop_assert!(identity.is_ok(), "{:?} {:?}", identity, parts);
        let target = Target::parse(&parts, &Domains::default()).unwrap();
        let decoded = target.key.unwrap();
        prop_assert_eq!(decoded.as_str(), key.as_str());
        parts.headers.insert("x-amz-meta-note", HeaderValue::from_static("changed!"));
        prop_assert_eq!(code(authenticate(&parts)), Some(ErrorCode::SignatureDoesNotMatch));
    }

    #[test]
    fn arbitrary_authorization_never_panics_and_never_passes(text in "[ -~]{0,120}", fields in "(Credential=[A-Z/0-9a-z_-]{0,40},? ?)?(SignedHeaders=[a-z;-]{0,30},)?(Signature=[0-9a-f]{0,64})?") {
        for value in [text.clone(), format!("AWS4-HMAC-SHA256 {fields}"), format!("AWS4-HMAC-SHA256 {text}")] {
            let parts = request("GET", "/bucket/key", &[("host", "localhost"), ("authorization", &value), ("x-amz-date", "20130524T000000Z"), ("x-amz-content-sha256", EMPTY_SHA256)]);
            prop_assert!(authenticate(&parts).is_err());
        }
    }

    #[test]
    fn arbitrary_presigned_parameters_never_panic_and_never_pass(values in proptest::collection::vec("[A-Za-z0-9%+/;-]{0,30}", 6)) {
        let names = ["Algorithm=AWS4-HMAC-SHA256&a", "Credential", "Date", "Expires", "SignedHeaders", "Signature"];
        let query: Vec<_> = names.iter().zip(&values).map(|(n, v)| format!("X-Amz-{n}={v}")).collect();
        if let Ok(uri) = format!("/bucket/key?{}", query.join("&")).parse::<http::Uri>() {
            let mut parts = request("GET", "/", &[("host", "localhost")]);
            parts.uri = uri;
            prop_assert!(authenticate(&parts).is_err());
        }
    }
}

#[test]
fn over_encoded_and_under_encoded_paths_are_the_same_key() {
    // C25: signed over `~` and `(`, sent escaped.
    let mut parts = request("GET", "/bucket/a~b%28c%29", &[("host", "localhost")]);
    sign_as_sdk(&mut parts, SignableBody::Bytes(b""), false, None);
    for uri in ["/bucket/a%7Eb(c)", "/bucket/%61~b%28c%29"] {
        parts.uri = uri.parse().unwrap();
        assert_eq!(code(authenticate(&parts)), None, "{uri}");
    }
    parts.uri = "/bucket/a~b%2528c%2529".parse().unwrap();
    assert_eq!(code(authenticate(&parts)), Some(ErrorCode::SignatureDoesNotMatch));
}

#[test]
fn a_session_token_must_be_signed_and_known() {
    // C26
    for presign in [false, true] {
        let mut parts = request("GET", "/bucket/key", &[("host", "localhost")]);
        sign_as_sdk(&mut parts, SignableBody::Bytes(b""), presign, Some("token"));
        assert_eq!(code(authenticate(&parts)), Some(ErrorCode::InvalidToken), "presigned: {presign}");
    }
    struct Sessions;
    impl CredentialStore for Sessions {
        fn secret(&self, _: &str, session_token: Option<&str>) -> std::result::Result<SecretKey, NoSecret> {
            match session_token {
                Some("token") => Ok(SecretKey::new(SECRET)),
                Some("old") => Err(NoSecret::Expired),
                _ => Err(NoSecret::Unknown),
            }
        }
    }
    let mut parts = request("GET", "/bucket/key", &[("host", "localhost")]);
    sign_as_sdk(&mut parts, SignableBody::Bytes(b""), false, Some("token"));
    let target = Target::parse(&parts, &Domains::default()).unwrap();
    let verifier = Verifier::new("us-east-1");
    assert!(verifier.authenticate(&parts.method, &target, &parts.headers, then(), &Sessions).is_ok());
    for (token, expected) in [("other", ErrorCode::InvalidToken), ("old", ErrorCode::ExpiredToken)] {
        parts.headers.insert("x-amz-security-token", HeaderValue::from_static(token));
        let identity = verifier.authenticate(&parts.method, &target, &parts.headers, then(), &Sessions);
        assert_eq!(code(identity), Some(expected));
    }
}

/// A request to STS as botocore signs it: no payload header, the scope's service `sts`.
fn signed_for_sts(region: &str, service: SigningService, body: &[u8]) -> Parts {
    let date = "20130524T000000Z";
    let mut parts = request("POST", "/", &[("host", "localhost"), ("x-amz-date", date)]);
    let scope = Scope { date: date[..8].into(), region: region.into(), service };
    let canonical = format!(
        "POST\n/\n\nhost:localhost\nx-amz-date:{date}\n\nhost;x-amz-date\n{}",
        hex::encode(Sha256::digest(body))
    );
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex::encode(Sha256::digest(canonical)));
    let signature = SigningKey::derive(&SecretKey::new(SECRET), &scope).sign(&to_sign);
    let value = format!(
        "AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders=host;x-amz-date, Signature={signature}"
    );
    parts.headers.insert("authorization", HeaderValue::from_str(&value).unwrap());
    parts
}

#[test]
fn a_signature_for_sts_covers_the_body_and_is_good_for_sts_alone() {
    let store = |id: &str| (id == ACCESS_KEY).then(|| SecretKey::new(SECRET));
    let check = |parts: &Parts, body: &[u8], region: &str| {
        let target = Target::parse(parts, &Domains::default()).unwrap();
        let who = Verifier::new(region).authenticate_sts(parts, &target, body, then(), &store);
        who.map(|who| who.map(|who| who.access_key_id)).map_err(|error| error.code())
    };
    let body = b"Action=GetCallerIdentity&Version=2011-06-15";
    let parts = signed_for_sts("us-east-1", SigningService::Sts, body);
    assert_eq!(check(&parts, body, "us-east-1"), Ok(Some(ACCESS_KEY.to_owned())));
    assert_eq!(check(&parts, body, "eu-west-1"), Ok(Some(ACCESS_KEY.to_owned())), "the global endpoint's region");
    let regionless = signed_for_sts("", SigningService::Sts, body);
    assert_eq!(check(&regionless, body, "eu-west-1"), Ok(Some(ACCESS_KEY.to_owned())), "as minio-py signs");
    assert_eq!(check(&parts, b"Action=GetSessionToken", "us-east-1"), Err(ErrorCode::SignatureDoesNotMatch));
    let target = Target::parse(&parts, &Domains::default()).unwrap();
    let as_s3 = Verifier::new("us-east-1").authenticate(&parts.method, &target, &parts.headers, then(), &store);
    assert_eq!(code(as_s3), Some(ErrorCode::AuthorizationHeaderMalformed));
    for (region, service) in [("us-east-1", SigningService::S3), ("eu-west-1", SigningService::Sts)] {
        let parts = signed_for_sts(region, service, body);
        assert_eq!(check(&parts, body, "us-east-1"), Err(ErrorCode::AuthorizationHeaderMalformed));
    }
    let unsigned = request("POST", "/", &[("host", "localhost")]);
    assert_eq!(check(&unsigned, body, "us-east-1"), Ok(None));
}

#[test]
fn an_unknown_key_is_told_like_an_empty_secret() {
    // C22: the same body but for the key itself.
    let body = |key: &str| {
        let mut parts = documented_examples().remove(0);
        let authorization = parts.headers["authorization"].to_str().unwrap().replace(ACCESS_KEY, key);
        parts.headers.insert("authorization", HeaderValue::from_str(&authorization).unwrap());
        let error: S3Error = authenticate(&parts).unwrap_err();
        String::from_utf8(error.to_xml().to_vec()).unwrap().replace(key, "")
    };
    assert_eq!(body("UNKNOWN"), body("EMPTY"));
}

#[test]
fn what_was_presented_is_not_printed() {
    // C115
    let parts = request("GET", PRESIGNED, &[("host", "examplebucket.s3.amazonaws.com")]);
    let target = Target::parse(&parts, &Domains::new(["s3.amazonaws.com"])).unwrap();
    let presented =
        Verifier::new("us-east-1").present(&parts.method, &target, &parts.headers, then()).unwrap().unwrap();
    let printed = format!("{presented:?}");
    assert!(printed.contains(ACCESS_KEY) && !printed.contains("aeeed9bb"), "{printed}");
}
