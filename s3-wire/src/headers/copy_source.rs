//! Where a copy comes from.

use crate::{
    address::{BucketName, ObjectKey},
    error::Result,
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
    /// Reads the header: `bucket/key` or `/bucket/key`, percent-encoded, with an optional `?versionId=`. Decoded exactly once; `..` is key bytes (C33).
    ///
    /// # Errors
    /// `InvalidArgument` when it is absent, empty, has no key, is a URL or an access point, or is not UTF-8; `InvalidBucketName`.
    pub fn from_headers(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }
}

/// `x-amz-copy-source-range`: `bytes=first-last`, both required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySourceRange {
    first: u64,
    last: u64,
}

impl CopySourceRange {
    /// Reads the header.
    ///
    /// # Errors
    /// `InvalidArgument` when it is not well-formed.
    pub fn from_headers(_headers: &HeaderMap) -> Result<Option<Self>> {
        unimplemented!()
    }

    /// The bytes meant in a source of `size` bytes.
    ///
    /// # Errors
    /// `InvalidRange` unless it lies inside the source (no clamping, unlike GET).
    pub fn resolve(self, _size: u64) -> Result<Range<u64>> {
        unimplemented!()
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
    pub fn from_headers(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }
}
