//! The target of a request.

use super::{BucketName, Domains, ObjectKey, Query};
use crate::error::Result;
use http::request::Parts;

/// Bucket, key and parameters of one request.
#[derive(Clone, Debug)]
pub struct Target {
    /// The bucket, unless the request is about the service.
    pub bucket: Option<BucketName>,
    /// The key, when the request is about an object.
    pub key: Option<ObjectKey>,
    /// The parameters.
    pub query: Query,
    /// The decoded path (virtual-host style: without the bucket), what the signature covers and `Resource` shows.
    pub path: String,
    /// The one `Host` (or `:authority`) of the request as sent.
    pub host: String,
}

impl Target {
    /// Reads the request line and `Host`. The raw path is split and decoded once; nothing is normalised.
    ///
    /// # Errors
    /// `InvalidURI` for broken escapes and invalid UTF-8, `InvalidBucketName`, `KeyTooLongError`, and `BadRequest` for a missing,
    /// repeated or contradicting `Host` (C17, C65).
    pub fn parse(_parts: &Parts, _domains: &Domains) -> Result<Self> {
        unimplemented!()
    }

    /// The path-style resource of the request (`/bucket/key`), for error documents and logs.
    pub fn resource(&self) -> String {
        unimplemented!()
    }
}
