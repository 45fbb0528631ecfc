//! Parameters of listings.

use crate::{address::Query, error::Result};

/// The most entries of a page.
pub const PAGE_MAX: u32 = 1000;

/// Parameters of ListObjects and ListObjectsV2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListObjectsParams {
    /// Only keys that start so.
    pub prefix: String,
    /// Groups keys; not empty when given.
    pub delimiter: Option<String>,
    /// 0–1000.
    pub max_keys: u32,
    /// Version 1: keys after this one.
    pub marker: String,
    /// Version 2: keys after this one, unless a token is given.
    pub start_after: Option<String>,
    /// Version 2: the opaque token of the previous page; the caller checks it.
    pub continuation_token: Option<String>,
    /// Version 2: whether owners are listed. Version 1 always lists them.
    pub fetch_owner: bool,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
}

/// Parameters of ListMultipartUploads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListUploadsParams {
    /// Only keys that start so.
    pub prefix: String,
    /// Groups keys.
    pub delimiter: Option<String>,
    /// 0–1000.
    pub max_uploads: u32,
    /// Uploads after this key (and upload).
    pub key_marker: String,
    /// Only with a key marker.
    pub upload_id_marker: String,
    /// `encoding-type=url`.
    pub encoding_type_url: bool,
}

impl ListObjectsParams {
    /// Reads the parameters of version 1 (`list-type` absent) or 2.
    ///
    /// # Errors
    /// `InvalidArgument` for numbers out of range, an unknown encoding, an empty token.
    pub fn from_query(_query: &Query) -> Result<Self> {
        unimplemented!()
    }
}

impl ListUploadsParams {
    /// Reads the parameters.
    ///
    /// # Errors
    /// As for objects.
    pub fn from_query(_query: &Query) -> Result<Self> {
        unimplemented!()
    }
}
