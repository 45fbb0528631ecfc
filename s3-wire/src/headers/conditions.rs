//! `If-*`, with the precedence of RFC 9110 §13.2.2.

use crate::{error::Result, etag::ETag};
use http::HeaderMap;
use std::time::SystemTime;

/// A list of tags or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagList {
    /// `*`
    Any,
    /// Tags, with whether they are weak.
    Tags(Vec<(bool, ETag)>),
}

/// What the conditions of a read come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Serve.
    Proceed,
    /// 304, without a body.
    NotModified,
}

/// Conditions of GET and HEAD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadConditions {
    if_match: Option<TagList>,
    if_none_match: Option<TagList>,
    if_modified_since: Option<SystemTime>,
    if_unmodified_since: Option<SystemTime>,
}

/// Conditions on the source of a copy (`x-amz-copy-source-if-*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyConditions(ReadConditions);

/// Conditions of a write: on what the key holds at the moment of the commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// `If-Match: "tag"`: the current object must have this tag.
    pub if_match: Option<ETag>,
    /// `If-None-Match: *`: there must be no current object.
    pub if_none_match_any: bool,
}

impl ReadConditions {
    /// Reads the headers. Dates that are no dates are ignored, as RFC 9110 says.
    ///
    /// # Errors
    /// `InvalidArgument` for tag lists that are not well-formed or longer than 64 tags.
    pub fn from_headers(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }

    /// Whether there is any condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Decides for an object that exists.
    ///
    /// # Errors
    /// `PreconditionFailed` with its `Condition`.
    pub fn evaluate(&self, _etag: &ETag, _last_modified: SystemTime) -> Result<Outcome> {
        unimplemented!()
    }
}

impl CopyConditions {
    /// Reads the headers.
    ///
    /// # Errors
    /// As [`ReadConditions::from_headers`].
    pub fn from_headers(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }

    /// Decides for the source. A copy has no 304: what would be one is `PreconditionFailed`.
    ///
    /// # Errors
    /// `PreconditionFailed` with its `Condition`.
    pub fn evaluate(&self, _etag: &ETag, _last_modified: SystemTime) -> Result<()> {
        unimplemented!()
    }
}

impl WriteConditions {
    /// Reads the headers.
    ///
    /// # Errors
    /// `NotImplemented` for what S3 does not have on writes: `If-None-Match` with a tag, `If-Match: *`, lists, dates, both at once (C77).
    pub fn from_headers(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }

    /// Whether there is any condition.
    pub fn is_empty(&self) -> bool {
        self.if_match.is_none() && !self.if_none_match_any
    }

    /// Decides for what the key holds now.
    ///
    /// # Errors
    /// `PreconditionFailed` with its `Condition`; `NoSuchKey` for `If-Match` on a key that holds nothing.
    pub fn evaluate(&self, _current: Option<&ETag>) -> Result<()> {
        unimplemented!()
    }
}
