//! User metadata: `x-amz-meta-*`.

mod encoded_word;

use crate::error::{ErrorCode, Result, S3Error};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;

/// The most bytes of names (without prefix) and values together.
const METADATA_BYTES_MAX: usize = 2048;
const PREFIX: &str = "x-amz-meta-";

/// User metadata: names in lower case without the `x-amz-meta-` prefix, sorted; values as text. At
/// most 2 KiB in names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMetadata(Vec<(String, String)>);

impl UserMetadata {
    /// Reads the headers. RFC 2047 encoded words are decoded; raw UTF-8 is taken as it is; repeated
    /// headers are joined with a comma.
    ///
    /// # Errors
    /// `MetadataTooLarge` (C69); `InvalidArgument` for an empty name and for values that are not
    /// UTF-8 or decode to control characters (C67).
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        let mut pairs: BTreeMap<String, String> = BTreeMap::new();
        for (header, value) in headers {
            let Some(name) = header.as_str().strip_prefix(PREFIX) else { continue };
            let refused = |message: &'static str| S3Error::invalid_argument("x-amz-meta-", name, message);
            if name.is_empty() {
                return Err(refused("A metadata name is empty."));
            }
            let text = std::str::from_utf8(value.as_bytes()).map_err(|_| refused("A metadata value is not UTF-8."))?;
            let text = encoded_word::decode(text.trim_matches([' ', '\t']));
            if text.chars().any(|c| c.is_control() && c != '\t') {
                return Err(refused("A metadata value contains control characters."));
            }
            match pairs.get_mut(name) {
                None => {
                    pairs.insert(name.to_owned(), text);
                }
                Some(value) => {
                    value.push(',');
                    value.push_str(&text);
                }
            }
        }
        let size: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > METADATA_BYTES_MAX {
            return Err(S3Error::new(ErrorCode::MetadataTooLarge)
                .field("Size", size.to_string())
                .field("MaxSizeAllowed", METADATA_BYTES_MAX.to_string()));
        }
        Ok(Self(pairs.into_iter().collect()))
    }

    /// Takes stored pairs back.
    pub fn from_pairs(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// The pairs, sorted by name.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes them into a response; values beyond printable ASCII as RFC 2047 words, as S3 does.
    /// Stored names that cannot be a header (an import may have brought them) are counted in
    /// `x-amz-missing-meta`, as S3 does.
    pub fn write(&self, headers: &mut HeaderMap) {
        let mut missing = 0u32;
        for (name, value) in &self.0 {
            let header = HeaderName::try_from(format!("{PREFIX}{name}"));
            match (header, HeaderValue::from_str(&encoded_word::encode(value))) {
                (Ok(header), Ok(value)) => {
                    headers.insert(header, value);
                }
                _ => missing += 1,
            }
        }
        if missing > 0 {
            headers.insert("x-amz-missing-meta", HeaderValue::from(missing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pairs: &[(&'static str, &[u8])]) -> Result<UserMetadata> {
        let header = |(name, value): &(&'static str, &[u8])| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap())
        };
        UserMetadata::from_headers(&pairs.iter().map(header).collect())
    }

    #[test]
    fn names_lose_their_prefix_and_values_are_text() {
        // C69
        let metadata = read(&[
            ("x-amz-meta-b", b"plain"),
            ("x-amz-meta-a", "käse".as_bytes()),
            ("x-amz-meta-c", b"=?UTF-8?B?a8Okc2U=?= =?utf-8?q?_t=C3=A4g?="),
            ("x-amz-acl", b"private"),
        ])
        .unwrap();
        let pairs: Vec<_> = metadata.pairs().iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("a", "käse"), ("b", "plain"), ("c", "käse täg")]);
        let mut response = HeaderMap::new();
        metadata.write(&mut response);
        assert_eq!(response["x-amz-meta-a"], "=?UTF-8?B?a8Okc2U=?=");
        assert_eq!(response["x-amz-meta-b"], "plain");
    }

    #[test]
    fn repeated_headers_are_joined() {
        let mut headers = HeaderMap::new();
        headers.append("x-amz-meta-a", HeaderValue::from_static("1"));
        headers.append("x-amz-meta-a", HeaderValue::from_static("2"));
        assert_eq!(UserMetadata::from_headers(&headers).unwrap().pairs(), [("a".to_owned(), "1,2".to_owned())]);
    }

    #[test]
    fn two_kibibytes_fit_and_one_byte_more_does_not() {
        // C69
        assert!(read(&[("x-amz-meta-a", &[b'v'; 2047])]).is_ok());
        assert_eq!(read(&[("x-amz-meta-a", &[b'v'; 2048])]).unwrap_err().code(), ErrorCode::MetadataTooLarge);
    }

    #[test]
    fn what_could_split_a_header_is_refused() {
        // C67: =0D=0A, and a NUL in base64.
        for value in [&b"=?UTF-8?Q?a=0D=0AEvil:_1?="[..], b"=?UTF-8?B?AA==?=", b"\xff"] {
            assert_eq!(read(&[("x-amz-meta-a", value)]).unwrap_err().code(), ErrorCode::InvalidArgument);
        }
        assert_eq!(read(&[("x-amz-meta-", b"v")]).unwrap_err().code(), ErrorCode::InvalidArgument);
    }

    #[test]
    fn stored_pairs_that_cannot_be_headers_are_counted() {
        let metadata = UserMetadata::from_pairs(vec![("a b".into(), "1".into()), ("c".into(), "x\r\ny".into())]);
        let mut response = HeaderMap::new();
        metadata.write(&mut response);
        assert_eq!(response["x-amz-missing-meta"], "1");
        assert_eq!(response["x-amz-meta-c"], "=?UTF-8?B?eA0KeQ==?=");
    }

    proptest! {
        #[test]
        fn text_survives_storing_and_returning(value in "[^\\p{Cc}]{0,200}") {
            let metadata = UserMetadata::from_pairs(vec![("name".into(), value.trim().to_owned())]);
            let mut headers = HeaderMap::new();
            metadata.write(&mut headers);
            if value.len() < 1000 && !value.contains("=?") {
                prop_assert_eq!(UserMetadata::from_headers(&headers).unwrap(), metadata);
            }
        }

        #[test]
        fn reading_never_panics(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            if HeaderValue::from_bytes(&value).is_ok() {
                let _ = read(&[("x-amz-meta-a", &value)]);
            }
        }
    }
}
