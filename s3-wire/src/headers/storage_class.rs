//! Storage classes: accepted, echoed, without effect on where bytes lie.

use super::single;
use crate::error::{ErrorCode, Result, S3Error};
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
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Standard,
        Self::ReducedRedundancy,
        Self::StandardIa,
        Self::OnezoneIa,
        Self::IntelligentTiering,
        Self::GlacierIr,
    ];

    /// Reads `x-amz-storage-class`; absent is `STANDARD`.
    ///
    /// # Errors
    /// `InvalidStorageClass`.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        match single(headers, "x-amz-storage-class")? {
            None => Ok(Self::Standard),
            Some(name) => Self::parse(name)
                .ok_or_else(|| S3Error::new(ErrorCode::InvalidStorageClass).field("StorageClassRequested", name)),
        }
    }

    /// Reads a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "STANDARD",
            Self::ReducedRedundancy => "REDUCED_REDUNDANCY",
            Self::StandardIa => "STANDARD_IA",
            Self::OnezoneIa => "ONEZONE_IA",
            Self::IntelligentTiering => "INTELLIGENT_TIERING",
            Self::GlacierIr => "GLACIER_IR",
        }
    }

    /// The value of the response header: S3 leaves `STANDARD` out.
    pub fn response_value(self) -> Option<&'static str> {
        (self != Self::Standard).then(|| self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_class_is_read_and_echoed_and_an_unknown_one_refused() {
        for class in StorageClass::ALL {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-storage-class", HeaderValue::from_static(class.as_str()));
            assert_eq!(StorageClass::from_headers(&headers).unwrap(), class);
        }
        for unknown in ["", "standard", "GLACIER", "DEEP_ARCHIVE"] {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-storage-class", HeaderValue::from_static(unknown));
            assert_eq!(StorageClass::from_headers(&headers).unwrap_err().code(), ErrorCode::InvalidStorageClass);
        }
        assert_eq!(StorageClass::from_headers(&HeaderMap::new()).unwrap().response_value(), None);
        assert_eq!(StorageClass::StandardIa.response_value(), Some("STANDARD_IA"));
    }
}
