//! Headers that describe content, stored with an object and returned with it.

use crate::{address::Query, error::Result};
use http::HeaderMap;

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
    pub fn from_headers(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }

    /// Writes them into a response. A missing type becomes `binary/octet-stream`, as S3 sends it.
    pub fn write(&self, _headers: &mut HeaderMap) {
        unimplemented!()
    }
}

/// `response-content-type` and its kin on GET and HEAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseOverrides(ContentHeaders);

impl ResponseOverrides {
    /// Reads the parameters.
    ///
    /// # Errors
    /// `InvalidRequest` when there are any and the request is anonymous (C68); `InvalidArgument` for control characters (C67).
    pub fn from_query(_query: &Query, _anonymous: bool) -> Result<Self> {
        unimplemented!()
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.0 == ContentHeaders::default()
    }

    /// The headers to answer with: these where given, the object's elsewhere.
    pub fn apply(self, _stored: ContentHeaders) -> ContentHeaders {
        unimplemented!()
    }
}
