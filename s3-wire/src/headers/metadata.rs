//! User metadata: `x-amz-meta-*`.

use crate::error::Result;
use http::HeaderMap;

/// User metadata: names in lower case without the `x-amz-meta-` prefix, sorted; values as text. At most 2 KiB in names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserMetadata(Vec<(String, String)>);

impl UserMetadata {
    /// Reads the headers. RFC 2047 encoded words are decoded; raw UTF-8 is taken as it is; repeated headers are joined with a comma.
    ///
    /// # Errors
    /// `MetadataTooLarge` (C69); `InvalidArgument` for values that are not UTF-8 or decode to control characters (C67).
    pub fn from_headers(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
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
    pub fn write(&self, _headers: &mut HeaderMap) {
        unimplemented!()
    }
}
