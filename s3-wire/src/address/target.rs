//! The target of a request.

use super::{BucketName, Domains, ObjectKey, Query, percent};
use crate::error::{ErrorCode, Result, S3Error};
use http::{header, request::Parts};

/// Bucket, key and parameters of one request.
#[derive(Clone, Debug)]
pub struct Target {
    /// The bucket, unless the request is about the service.
    pub bucket: Option<BucketName>,
    /// The key, when the request is about an object.
    pub key: Option<ObjectKey>,
    /// The parameters.
    pub query: Query,
    /// The decoded path (virtual-host style: without the bucket), what the signature covers and
    /// `Resource` shows.
    pub path: String,
    /// The path as sent, not decoded, with the bucket before it in virtual-host style: what
    /// Signature Version 2 covers.
    pub raw_resource: String,
    /// The one `Host` (or `:authority`) of the request as sent.
    pub host: String,
}

impl Target {
    /// Reads the request line and `Host`. The raw path is split and decoded once; nothing is
    /// normalised.
    ///
    /// # Errors
    /// `InvalidURI` for broken escapes and invalid UTF-8, `InvalidBucketName`, `KeyTooLongError`,
    /// and `BadRequest` for a missing, repeated or contradicting `Host` (C17, C65).
    pub fn parse(parts: &Parts, domains: &Domains) -> Result<Self> {
        let host = host_of(parts)?;
        let raw_path = parts.uri.path();
        let Some(raw_rest) = raw_path.strip_prefix('/') else {
            return Err(S3Error::new(ErrorCode::InvalidURI));
        };
        // Split before decoding: an encoded slash is a byte of a name, never the border between two
        // (C37).
        let virtual_bucket = domains.bucket_of(&host);
        let raw_resource = match &virtual_bucket {
            Some(bucket) => format!("/{bucket}{raw_path}"),
            None => raw_path.to_owned(),
        };
        let (bucket, raw_key) = match virtual_bucket {
            Some(bucket) => (Some(BucketName::new(bucket)?), raw_rest),
            None if raw_rest.is_empty() => (None, ""),
            None => {
                let (raw_bucket, raw_key) = raw_rest.split_once('/').unwrap_or((raw_rest, ""));
                (Some(BucketName::new(percent::decode(raw_bucket)?)?), raw_key)
            }
        };
        let key = match percent::decode(raw_key)? {
            key if key.is_empty() => None,
            key => Some(ObjectKey::new(key)?),
        };
        let path = percent::decode(raw_path)?;
        let query = Query::parse(parts.uri.query().unwrap_or(""))?;
        Ok(Self { bucket, key, query, path, raw_resource, host })
    }

    /// The path-style resource of the request (`/bucket/key`), for error documents and logs.
    pub fn resource(&self) -> String {
        match (&self.bucket, &self.key) {
            (None, _) => "/".to_owned(),
            (Some(bucket), None) => format!("/{bucket}"),
            (Some(bucket), Some(key)) => format!("/{bucket}/{key}"),
        }
    }
}

/// The one host name of a request: `Host`, or `:authority` of HTTP/2. Where both are given they
/// must agree.
fn host_of(parts: &Parts) -> Result<String> {
    let bad = |message: &'static str| S3Error::with_message(ErrorCode::BadRequest, message).closing();
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let header = match hosts.next() {
        None => None,
        Some(host) => Some(host.to_str().map_err(|_| bad("The Host header is not valid."))?),
    };
    if hosts.next().is_some() {
        return Err(bad("The request has more than one Host header."));
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let host = match (header, authority) {
        (Some(header), Some(authority)) if !header.eq_ignore_ascii_case(authority) => {
            return Err(bad("The Host header contradicts the request target."));
        }
        (Some(host), _) | (None, Some(host)) => host,
        (None, None) => return Err(bad("The request has no Host header.")),
    };
    let plausible = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    if host.is_empty() || host.len() > 512 || !host.bytes().all(plausible) {
        return Err(bad("The Host header is not valid."));
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{super::vectors, *};
    use http::Request;
    use proptest::prelude::*;

    fn parse(uri: &str, hosts: &[&str]) -> Result<Target> {
        let mut request = Request::builder().uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        Target::parse(&request.body(()).unwrap().into_parts().0, &Domains::new(["s3.test"]))
    }

    fn names(target: &Target) -> (Option<&str>, Option<&str>) {
        (target.bucket.as_ref().map(BucketName::as_str), target.key.as_ref().map(ObjectKey::as_str))
    }

    #[test]
    fn path_style_and_virtual_host_style_name_the_same_object() {
        let path_style = parse("/a.bucket/some/k%C3%A9y%2B1?x=1", &["s3.test:9000"]).unwrap();
        let virtual_host = parse("/some/k%C3%A9y%2B1?x=1", &["a.bucket.s3.test:9000"]).unwrap(); // C75
        assert_eq!(names(&path_style), (Some("a.bucket"), Some("some/kéy+1")));
        assert_eq!(names(&path_style), names(&virtual_host));
        assert_eq!(path_style.path, "/a.bucket/some/kéy+1");
        assert_eq!(virtual_host.path, "/some/kéy+1");
        assert_eq!(path_style.resource(), virtual_host.resource());
    }

    #[test]
    fn every_encoded_key_is_read_alike_in_path_style_and_virtual_host_style() {
        for (raw, key) in vectors::encoded_keys() {
            for (uri, host) in [(format!("/a.bucket/{raw}"), "s3.test"), (format!("/{raw}"), "a.bucket.s3.test")] {
                let target = parse(&uri, &[host]).unwrap();
                assert_eq!(names(&target), (Some("a.bucket"), Some(key)), "{uri}");
            }
        }
    }

    #[test]
    fn the_border_between_bucket_and_key_is_the_first_raw_slash() {
        for (uri, expected) in [
            ("/", (None, None)),
            ("/abc", (Some("abc"), None)),
            ("/abc/", (Some("abc"), None)),
            ("/abc//", (Some("abc"), Some("/"))),
            ("/abc//key", (Some("abc"), Some("/key"))),
            ("/abc/a/../b", (Some("abc"), Some("a/../b"))),
            ("/abc/%2e%2E/%2e%2e%2Fx", (Some("abc"), Some("../../x"))), // C36
            ("/abc/..", (Some("abc"), Some(".."))),
            ("/abc/a%5Cb.", (Some("abc"), Some("a\\b."))),
            ("/abc/%252F", (Some("abc"), Some("%2F"))), // C25
            ("/%61bc/%6B", (Some("abc"), Some("k"))),
            ("/abc/käse", (Some("abc"), Some("käse"))),
        ] {
            assert_eq!(names(&parse(uri, &["localhost"]).unwrap()), expected, "{uri}");
        }
    }

    #[test]
    fn targets_that_name_nothing_are_refused() {
        let long = format!("/abc/{}", "k".repeat(1025));
        for (uri, code) in [
            ("//abc/key", ErrorCode::InvalidBucketName),
            ("/abc%2Fkey", ErrorCode::InvalidBucketName), // C37
            ("/../abc/key", ErrorCode::InvalidBucketName),
            ("/Abc/key", ErrorCode::InvalidBucketName),
            ("/abc/%", ErrorCode::InvalidURI),
            ("/abc/%ff", ErrorCode::InvalidURI), // C74
            ("/abc/k?prefix=%e9", ErrorCode::InvalidURI),
            ("/abc/%00", ErrorCode::InvalidArgument), // C36
            (long.as_str(), ErrorCode::KeyTooLongError),
            ("*", ErrorCode::InvalidURI),
        ] {
            assert_eq!(parse(uri, &["localhost"]).unwrap_err().code(), code, "{uri}");
        }
        assert_eq!(parse("/k", &[".s3.test"]).unwrap_err().code(), ErrorCode::InvalidBucketName);
    }

    #[test]
    fn exactly_one_host_is_needed() {
        // C17, C65
        for hosts in [&[][..], &["a", "a"], &["a", "b"], &[""], &["a/b"], &["a@b"], &["a b"]] {
            let error = parse("/abc", hosts).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRequest, "{hosts:?}");
            assert!(error.close_connection());
        }
        assert_eq!(parse("http://one/abc", &["two"]).unwrap_err().code(), ErrorCode::BadRequest);
        assert_eq!(parse("http://one/abc", &["ONE"]).unwrap().host, "ONE");
        assert_eq!(parse("http://one:9000/abc", &[]).unwrap().host, "one:9000");
    }

    proptest! {
        #[test]
        fn every_key_survives_the_way_through_a_url(key in "\\PC{1,200}") {
            let uri = format!("/abc/{}", percent::encode_path(&key));
            let target = parse(&uri, &["localhost"]).unwrap();
            prop_assert_eq!(names(&target), (Some("abc"), Some(key.as_str())));
        }
    }
}
