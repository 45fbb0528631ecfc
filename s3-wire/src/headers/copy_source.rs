//! Where a copy comes from.

use super::{decimal, single};
use crate::{
    address::{BucketName, ObjectKey, percent},
    error::{Result, S3Error},
};
use http::HeaderMap;
use std::ops::Range;

/// `x-amz-copy-source`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    /// The source's bucket.
    pub bucket: BucketName,
    /// The source's key.
    pub key: ObjectKey,
    /// The source's version, if named.
    pub version_id: Option<String>,
}

impl CopySource {
    /// Reads the header: `bucket/key` or `/bucket/key`, percent-encoded, with an optional
    /// `?versionId=`. Unlike a request target it is decoded first, exactly once, and then split at
    /// the first slash: clients that encode the whole text (`%2Fbucket%2Fkey`) name the same
    /// object. Only a literal `?versionId=` names a version; an encoded one is part of the key, and
    /// so is `..` (C33).
    ///
    /// # Errors
    /// `InvalidArgument` when it is absent, empty, has no key, is a URL or an access point, names
    /// another parameter, or is not UTF-8; `InvalidBucketName`.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        let text = single(headers, HEADER)?.unwrap_or_default();
        Self::parse(text).ok_or_else(|| {
            let message = "Copy Source must mention the source bucket and key: sourcebucket/sourcekey";
            S3Error::invalid_argument(HEADER, text, message)
        })?
    }

    /// `None` when the text is not of the form; an error of its own when only a name in it is
    /// wrong.
    fn parse(text: &str) -> Option<Result<Self>> {
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        let path = percent::decode(path).ok()?;
        let scheme =
            path.split_once("://").is_some_and(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphanumeric()));
        if scheme || path.starts_with("arn:") {
            return None;
        }
        let (bucket, key) = path.strip_prefix('/').unwrap_or(&path).split_once('/')?;
        if key.is_empty() {
            return None;
        }
        let version_id = match query {
            None => None,
            Some(query) => {
                let version = percent::decode(query.strip_prefix("versionId=")?).ok()?;
                Some(version).filter(|version| !version.is_empty() && !version.contains('&')).map(Some)?
            }
        };
        let names = BucketName::new(bucket).and_then(|bucket| Ok((bucket, ObjectKey::new(key)?)));
        Some(names.map(|(bucket, key)| Self { bucket, key, version_id }))
    }
}

const HEADER: &str = "x-amz-copy-source";

/// `x-amz-copy-source-range`: `bytes=first-last`, both required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySourceRange {
    first: u64,
    last: u64,
}

const RANGE: &str = "x-amz-copy-source-range";

impl CopySourceRange {
    /// Reads the header.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not well-formed.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>> {
        let Some(text) = single(headers, RANGE)? else { return Ok(None) };
        let parse = || {
            let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
            Some(Self { first: decimal(first)?, last: decimal(last)? })
        };
        parse().filter(|range| range.first <= range.last).map(Some).ok_or_else(|| {
            let message = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy";
            S3Error::invalid_argument(RANGE, text, message)
        })
    }

    /// The bytes meant in a source of `size` bytes.
    ///
    /// # Errors
    /// `InvalidArgument` unless it lies inside the source (no clamping, unlike GET).
    pub fn resolve(self, size: u64) -> Result<Range<u64>> {
        if self.last < size {
            Ok(self.first..self.last + 1)
        } else {
            let range = format!("bytes={}-{}", self.first, self.last);
            let message = format!("Range specified is not valid for source object of size: {size}");
            Err(S3Error::invalid_argument(RANGE, range, message))
        }
    }
}

/// `x-amz-metadata-directive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MetadataDirective {
    /// Take the source's metadata.
    #[default]
    Copy,
    /// Take the request's.
    Replace,
}

impl MetadataDirective {
    /// Reads the header.
    ///
    /// # Errors
    /// `InvalidArgument` for another word.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        match single(headers, "x-amz-metadata-directive")? {
            None | Some("COPY") => Ok(Self::Copy),
            Some("REPLACE") => Ok(Self::Replace),
            Some(other) => {
                Err(S3Error::invalid_argument("x-amz-metadata-directive", other, "Unknown metadata directive."))
            }
        }
    }
}

/// `x-amz-tagging-directive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TaggingDirective {
    /// Take the source's tags.
    #[default]
    Copy,
    /// Take the request's.
    Replace,
}

impl TaggingDirective {
    /// Reads the header.
    ///
    /// # Errors
    /// `InvalidArgument` for another word.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        match single(headers, "x-amz-tagging-directive")? {
            None | Some("COPY") => Ok(Self::Copy),
            Some("REPLACE") => Ok(Self::Replace),
            Some(other) => {
                Err(S3Error::invalid_argument("x-amz-tagging-directive", other, "Unknown tagging directive."))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{address::vectors, error::ErrorCode};
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        [(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())].into_iter().collect()
    }

    fn source(value: &str) -> Result<(String, String, Option<String>)> {
        let source = CopySource::from_headers(&headers(HEADER, value))?;
        Ok((source.bucket.as_str().to_owned(), source.key.into_string(), source.version_id))
    }

    #[test]
    fn every_encoded_key_names_its_source() {
        for (raw, key) in vectors::encoded_keys() {
            for value in
                [format!("abc/{raw}"), format!("/abc/{raw}"), format!("abc%2F{raw}"), format!("%2Fabc%2f{raw}")]
            {
                assert_eq!(source(&value).unwrap(), ("abc".to_owned(), key.to_owned(), None), "{value}");
            }
            let value = format!("abc/{raw}?versionId=v1");
            assert_eq!(source(&value).unwrap(), ("abc".to_owned(), key.to_owned(), Some("v1".to_owned())), "{value}");
        }
    }

    #[test]
    fn the_source_is_decoded_once_and_then_split() {
        for (value, bucket, key, version) in [
            ("abc/key", "abc", "key", None),
            ("/abc/key", "abc", "key", None),
            ("abc/a%2Fb", "abc", "a/b", None),
            ("abc/a%252Fb", "abc", "a%2Fb", None),
            ("abc%2Fkey", "abc", "key", None),
            ("%61bc%2Fa/b", "abc", "a/b", None),
            ("abc/käse", "abc", "käse", None),
            ("abc/k?versionId=v%2F1", "abc", "k", Some("v/1")),
            ("abc/k%3FversionId=v", "abc", "k?versionId=v", None),
            ("abc//k", "abc", "/k", None),
            ("abc/../other/key", "abc", "../other/key", None), // C33
            ("abc/x://y", "abc", "x://y", None),
        ] {
            let expected = (bucket.to_owned(), key.to_owned(), version.map(str::to_owned));
            assert_eq!(source(value).unwrap(), expected, "{value}");
        }
    }

    #[test]
    fn what_names_no_object_is_refused() {
        // C33
        for value in [
            "",
            "/",
            "abc",
            "abc/",
            "/abc/",
            "%2F",
            "abc%2F",
            "%2Fabc%2F",
            "abc%252Fkey",
            "http%3A%2F%2Fhost%2Fabc%2Fkey",
            "arn%3Aaws:s3:::abc/key",
            "http://host/abc/key",
            "https://s3.example.com/abc/key",
            "arn:aws:s3:::abc/key",
            "abc/%",
            "abc/%ff",
            "abc/k?versionId=",
            "abc/k?acl",
            "abc/k?versionId=a&b=c",
            "abc/k?",
        ] {
            assert_eq!(source(value).unwrap_err().code(), ErrorCode::InvalidArgument, "{value}");
        }
        assert_eq!(source("//abc/key").unwrap_err().code(), ErrorCode::InvalidBucketName);
        assert_eq!(source("../abc/key").unwrap_err().code(), ErrorCode::InvalidBucketName);
        assert_eq!(source("Abc/key").unwrap_err().code(), ErrorCode::InvalidBucketName);
        assert_eq!(source(&format!("abc/{}", "k".repeat(1025))).unwrap_err().code(), ErrorCode::KeyTooLongError);
        assert_eq!(CopySource::from_headers(&HeaderMap::new()).unwrap_err().code(), ErrorCode::InvalidArgument);
        let mut twice = headers(HEADER, "abc/a");
        twice.append(HEADER, HeaderValue::from_static("abc/b"));
        assert_eq!(CopySource::from_headers(&twice).unwrap_err().code(), ErrorCode::InvalidArgument);
    }

    #[test]
    fn a_source_range_lies_inside_or_is_refused() {
        let range = |text: &str| CopySourceRange::from_headers(&headers("x-amz-copy-source-range", text));
        assert_eq!(range("bytes=0-9").unwrap().unwrap().resolve(10).unwrap(), 0..10);
        assert_eq!(range("bytes=0-10").unwrap().unwrap().resolve(10).unwrap_err().code(), ErrorCode::InvalidArgument);
        let huge = range("bytes=0-18446744073709551615").unwrap().unwrap();
        assert_eq!(huge.resolve(u64::MAX).unwrap_err().code(), ErrorCode::InvalidArgument);
        for text in
            ["", "bytes=", "bytes=1-", "bytes=-1", "bytes=2-1", "0-1", "bytes=0-18446744073709551616", "bytes=0-1,2-3"]
        {
            assert_eq!(range(text).unwrap_err().code(), ErrorCode::InvalidArgument, "{text}");
        }
        assert_eq!(CopySourceRange::from_headers(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn a_directive_is_one_of_two_words() {
        let directive = |text: &str| MetadataDirective::from_headers(&headers("x-amz-metadata-directive", text));
        assert_eq!(directive("COPY").unwrap(), MetadataDirective::Copy);
        assert_eq!(directive("REPLACE").unwrap(), MetadataDirective::Replace);
        assert_eq!(directive("replace").unwrap_err().code(), ErrorCode::InvalidArgument);
        let directive = |text: &str| TaggingDirective::from_headers(&headers("x-amz-tagging-directive", text));
        assert_eq!(directive("COPY").unwrap(), TaggingDirective::Copy);
        assert_eq!(directive("REPLACE").unwrap(), TaggingDirective::Replace);
        assert_eq!(directive("").unwrap_err().code(), ErrorCode::InvalidArgument);
    }

    proptest! {
        #[test]
        fn every_key_survives_the_way_through_the_header(key in "\\PC{1,200}") {
            let header = format!("abc/{}", percent::encode_path(&key));
            prop_assert_eq!(source(&header).unwrap().1, key);
        }

        #[test]
        fn reading_never_panics(text in "[ -~]{0,60}") {
            let _ = source(&text);
            let _ = CopySourceRange::from_headers(&headers("x-amz-copy-source-range", &text));
        }
    }
}
