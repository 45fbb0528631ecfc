//! Headers that describe content, stored with an object and returned with it.

use crate::{
    address::Query,
    error::{ErrorCode, Result, S3Error},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The content headers of an object, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentHeaders {
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Encoding`, without `aws-chunked`.
    pub content_encoding: Option<String>,
    /// `Content-Disposition`.
    pub content_disposition: Option<String>,
    /// `Content-Language`.
    pub content_language: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// `Expires`.
    pub expires: Option<String>,
}

impl ContentHeaders {
    /// Reads the headers of a request.
    ///
    /// # Errors
    /// `InvalidArgument` for values that are not UTF-8 or too long (1 KiB each).
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        let mut content = Self::default();
        for (name, field) in content.fields_mut() {
            *field = joined(headers, &name)?;
        }
        content.content_encoding = content.content_encoding.and_then(without_aws_chunked);
        Ok(content)
    }

    fn fields(&self) -> [(HeaderName, &Option<String>); 6] {
        [
            (header::CONTENT_TYPE, &self.content_type),
            (header::CONTENT_ENCODING, &self.content_encoding),
            (header::CONTENT_DISPOSITION, &self.content_disposition),
            (header::CONTENT_LANGUAGE, &self.content_language),
            (header::CACHE_CONTROL, &self.cache_control),
            (header::EXPIRES, &self.expires),
        ]
    }

    fn fields_mut(&mut self) -> [(HeaderName, &mut Option<String>); 6] {
        [
            (header::CONTENT_TYPE, &mut self.content_type),
            (header::CONTENT_ENCODING, &mut self.content_encoding),
            (header::CONTENT_DISPOSITION, &mut self.content_disposition),
            (header::CONTENT_LANGUAGE, &mut self.content_language),
            (header::CACHE_CONTROL, &mut self.cache_control),
            (header::EXPIRES, &mut self.expires),
        ]
    }

    /// Writes them into a response. A missing type becomes `binary/octet-stream`, as S3 sends it. A
    /// value that cannot be a header is left out, never split (C67).
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("binary/octet-stream"));
        for (name, field) in self.fields() {
            let value = field.as_ref().and_then(|text| HeaderValue::from_bytes(text.as_bytes()).ok());
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }
}

/// `response-content-type` and its kin on GET and HEAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseOverrides(ContentHeaders);

impl ResponseOverrides {
    /// Reads the parameters.
    ///
    /// # Errors
    /// `InvalidRequest` when there are any and the request is anonymous (C68); `InvalidArgument`
    /// for control characters (C67).
    pub fn from_query(query: &Query, anonymous: bool) -> Result<Self> {
        let mut overrides = ContentHeaders::default();
        for ((_, field), parameter) in overrides.fields_mut().into_iter().zip(OVERRIDES) {
            let Some(text) = query.single(parameter)? else { continue };
            if text.len() > VALUE_BYTES_MAX || HeaderValue::from_bytes(text.as_bytes()).is_err() {
                return Err(S3Error::invalid_argument(parameter, text, "The value cannot be a header."));
            }
            *field = Some(text.to_owned());
        }
        let overrides = Self(overrides);
        if anonymous && !overrides.is_empty() {
            return Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Request specific response headers cannot be used for anonymous GET requests.",
            ));
        }
        Ok(overrides)
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.0 == ContentHeaders::default()
    }

    /// The headers to answer with: these where given, the object's elsewhere.
    pub fn apply(self, mut stored: ContentHeaders) -> ContentHeaders {
        let mut overrides = self.0;
        for ((_, stored), (_, given)) in stored.fields_mut().into_iter().zip(overrides.fields_mut()) {
            if given.is_some() {
                *stored = given.take();
            }
        }
        stored
    }
}

/// The most bytes of one value.
const VALUE_BYTES_MAX: usize = 1024;

/// The parameters, in the order of the fields.
const OVERRIDES: [&str; 6] = [
    "response-content-type",
    "response-content-encoding",
    "response-content-disposition",
    "response-content-language",
    "response-cache-control",
    "response-expires",
];

/// The values of a header, joined as RFC 9110 §5.3 allows.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>> {
    let mut text: Option<String> = None;
    let mut len = 0;
    for value in headers.get_all(name) {
        len += value.len();
        let invalid = || S3Error::invalid_argument("header", name.as_str(), "The header is not UTF-8 or too long.");
        let value =
            std::str::from_utf8(value.as_bytes()).ok().filter(|_| len <= VALUE_BYTES_MAX).ok_or_else(invalid)?;
        match &mut text {
            None => text = Some(value.to_owned()),
            Some(text) => {
                text.push_str(", ");
                text.push_str(value);
            }
        }
    }
    Ok(text)
}

/// `aws-chunked` is the framing of one request and not a property of the content.
fn without_aws_chunked(encoding: String) -> Option<String> {
    let kept: Vec<&str> = encoding
        .split(',')
        .filter(|coding| !coding.trim().is_empty() && !coding.trim().eq_ignore_ascii_case("aws-chunked"))
        .collect();
    (!kept.is_empty()).then(|| kept.join(",").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn content_headers_are_kept_as_sent_but_for_the_framing() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-encoding", "aws-chunked, gzip"),
            ("content-disposition", "attachment; filename=\"käse\""),
            ("content-language", "de"),
            ("cache-control", "no-cache"),
            ("expires", "never"),
        ] {
            headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers.append("cache-control", HeaderValue::from_static("no-store"));
        let content = ContentHeaders::from_headers(&headers).unwrap();
        assert_eq!(content.content_encoding.as_deref(), Some("gzip"));
        assert_eq!(content.cache_control.as_deref(), Some("no-cache, no-store"));
        let mut response = HeaderMap::new();
        content.write(&mut response);
        assert_eq!(response["content-disposition"].as_bytes(), "attachment; filename=\"käse\"".as_bytes());
        assert_eq!(ContentHeaders::from_headers(&response).unwrap(), content);
        headers.insert("content-encoding", HeaderValue::from_static("AWS-Chunked"));
        assert_eq!(ContentHeaders::from_headers(&headers).unwrap().content_encoding, None);
    }

    #[test]
    fn a_missing_type_and_a_value_that_would_split_the_response() {
        // C67
        let content = ContentHeaders { expires: Some("x\r\nEvil: 1".into()), ..ContentHeaders::default() };
        let mut response = HeaderMap::new();
        content.write(&mut response);
        assert_eq!(response["content-type"], "binary/octet-stream");
        assert_eq!(response.len(), 1);
    }

    #[test]
    fn overrides_are_for_signed_requests_only() {
        // C68
        let query = Query::parse("response-content-type=text/html&response-expires=x").unwrap();
        assert_eq!(ResponseOverrides::from_query(&query, true).unwrap_err().code(), ErrorCode::InvalidRequest);
        let stored = ContentHeaders {
            content_type: Some("a/b".into()),
            content_language: Some("de".into()),
            ..Default::default()
        };
        let applied = ResponseOverrides::from_query(&query, false).unwrap().apply(stored);
        assert_eq!(applied.content_type.as_deref(), Some("text/html"));
        assert_eq!(applied.content_language.as_deref(), Some("de"));
        assert_eq!(applied.expires.as_deref(), Some("x"));
        assert!(ResponseOverrides::from_query(&Query::default(), true).unwrap().is_empty());
    }

    #[test]
    fn an_override_that_would_split_the_response_is_refused() {
        // C67
        for value in ["a%0d%0aEvil:1", "a%00", "a%0a", &"a".repeat(1025)] {
            let query = Query::parse(&format!("response-content-disposition={value}")).unwrap();
            let error = ResponseOverrides::from_query(&query, false).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{value}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_can_be_written(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let headers = [(header::CONTENT_DISPOSITION, value.clone())].into_iter().collect();
            if let Ok(content) = ContentHeaders::from_headers(&headers) {
                let mut response = HeaderMap::new();
                content.write(&mut response);
                prop_assert_eq!(&response[header::CONTENT_DISPOSITION], &value);
            }
        }
    }
}
