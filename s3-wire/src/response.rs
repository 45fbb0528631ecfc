//! Answers: the common headers, documents, errors.

use crate::{
    error::{ErrorCode, S3Error},
    timestamp,
    xml::Document,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use std::time::SystemTime;

/// The ids of one request: in every answer and every log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestIds {
    /// `x-amz-request-id`: 16 hex digits.
    pub request_id: String,
    /// `x-amz-id-2`: opaque, names the host or process.
    pub host_id: String,
}

impl RequestIds {
    /// Ids from 64 random bits and the host's id.
    pub fn new(random: u64, host_id: impl Into<String>) -> Self {
        Self { request_id: format!("{random:016X}"), host_id: host_id.into() }
    }
}

/// `Server`: what, and not which version.
const SERVER: &str = "deltaweir";

/// Adds `x-amz-request-id`, `x-amz-id-2`, `Date` and `Server`.
pub fn add_common_headers(headers: &mut HeaderMap, ids: &RequestIds, now: SystemTime) {
    let mut add = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    };
    add(HeaderName::from_static("x-amz-request-id"), &ids.request_id);
    add(HeaderName::from_static("x-amz-id-2"), &ids.host_id);
    add(header::DATE, &timestamp::http_date(now));
    add(header::SERVER, SERVER);
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}

/// An answer with a document.
pub fn document(status: StatusCode, document: &impl Document) -> Response<Bytes> {
    let mut response = Response::new(document.to_bytes());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// An error answer: the document (none for HEAD and 304), `Connection: close` where the error asks
/// for it, and the headers that belong to some codes: `Content-Range: bytes */size` for 416,
/// `Retry-After` for 503, those the error itself carries.
///
/// `Connection` is a header of HTTP/1.1; on HTTP/2 the server resets the stream instead and leaves
/// it out.
pub fn error(error: S3Error, method: &Method, resource: &str, ids: &RequestIds) -> Response<Bytes> {
    let error = error.resource(resource).request_id(&ids.request_id, &ids.host_id);
    let mut response = match error.code() {
        ErrorCode::NotModified => empty(error.status()),
        _ if method == Method::HEAD => empty(error.status()),
        _ => document(error.status(), &error),
    };
    let headers = response.headers_mut();
    if error.close_connection() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in error.headers() {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    if let (ErrorCode::InvalidRange, Some(size)) = (error.code(), error.get_field("ActualObjectSize"))
        && let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}"))
    {
        headers.insert(header::CONTENT_RANGE, value);
    }
    if matches!(error.code(), ErrorCode::SlowDown | ErrorCode::ServiceUnavailable) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    fn ids() -> RequestIds {
        RequestIds::new(0xab, "host")
    }

    #[test]
    fn every_answer_names_its_request() {
        let mut headers = HeaderMap::new();
        add_common_headers(&mut headers, &ids(), UNIX_EPOCH + Duration::from_secs(1_369_353_600));
        assert_eq!(headers["x-amz-request-id"], "00000000000000AB");
        assert_eq!(headers["x-amz-id-2"], "host");
        assert_eq!(headers["date"], "Fri, 24 May 2013 00:00:00 GMT");
        assert_eq!(headers["server"], "deltaweir");
    }

    #[test]
    fn an_error_is_a_document_except_where_there_is_no_body() {
        let answer = |code, method| error(S3Error::new(code).field("Key", "a<b"), &method, "/b/a<b", &ids());
        let response = answer(ErrorCode::NoSuchKey, Method::GET);
        assert_eq!(response.status(), 404);
        let body = std::str::from_utf8(response.body()).unwrap();
        assert_eq!(
            body,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.\
             </Message><Key>a&lt;b</Key><Resource>/b/a&lt;b</Resource><RequestId>00000000000000AB</RequestId><HostId>host</HostId></Error>"
        );
        assert!(answer(ErrorCode::NoSuchKey, Method::HEAD).body().is_empty());
        assert!(answer(ErrorCode::NotModified, Method::GET).body().is_empty());
        assert_eq!(answer(ErrorCode::SlowDown, Method::GET).headers()["retry-after"], "1");
    }

    #[test]
    fn framing_errors_close_and_range_errors_say_the_size() {
        let response = error(S3Error::new(ErrorCode::IncompleteBody).closing(), &Method::PUT, "/b/k", &ids());
        assert_eq!(response.headers()["connection"], "close"); // C66
        let range = S3Error::new(ErrorCode::InvalidRange).field("ActualObjectSize", "9");
        let response = error(range, &Method::GET, "/b/k", &ids());
        assert_eq!(response.status(), 416);
        assert_eq!(response.headers()["content-range"], "bytes */9");
        assert!(!response.headers().contains_key("connection"));
    }
}
