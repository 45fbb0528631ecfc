//! Storage classes: accepted, echoed, without effect on where bytes lie.

use crate::error::Result;
use http::HeaderMap;

/// One of S3's classes that keep objects readable at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum StorageClass {
    /// `STANDARD`
    #[default]
    Standard,
    /// `REDUCED_REDUNDANCY`
    ReducedRedundancy,
    /// `STANDARD_IA`
    StandardIa,
    /// `ONEZONE_IA`
    OnezoneIa,
    /// `INTELLIGENT_TIERING`
    IntelligentTiering,
    /// `GLACIER_IR`
    GlacierIr,
}

impl StorageClass {
    /// Reads `x-amz-storage-class`; absent is `STANDARD`.
    ///
    /// # Errors
    /// `InvalidStorageClass`.
    pub fn from_headers(_headers: &HeaderMap) -> Result<Self> {
        unimplemented!()
    }

    /// Reads a name.
    pub fn parse(_name: &str) -> Option<Self> {
        unimplemented!()
    }

    /// The name.
    pub fn as_str(self) -> &'static str {
        unimplemented!()
    }

    /// The value of the response header: S3 leaves `STANDARD` out.
    pub fn response_value(self) -> Option<&'static str> {
        (self != Self::Standard).then(|| self.as_str())
    }
}
