//! Answers: the common headers, documents, errors.

use crate::{error::S3Error, xml::Document};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
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

/// Adds `x-amz-request-id`, `x-amz-id-2`, `Date` and `Server`.
pub fn add_common_headers(_headers: &mut HeaderMap, _ids: &RequestIds, _now: SystemTime) {
    unimplemented!()
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}

/// An answer with a document.
pub fn document(_status: StatusCode, _document: &impl Document) -> Response<Bytes> {
    unimplemented!()
}

/// An error answer: the document (none for HEAD and 304), `Connection: close` where the error asks for it.
pub fn error(_error: S3Error, _method: &Method, _resource: &str, _ids: &RequestIds) -> Response<Bytes> {
    unimplemented!()
}
