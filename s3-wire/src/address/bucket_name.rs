//! Bucket names and their rules.

use crate::error::{ErrorCode, Result, S3Error};
use std::fmt;

/// A name that keeps S3's rules for general purpose buckets: 3–63 of `a-z0-9.-`, starting and ending with a letter or digit, no `..`,
/// not shaped like an IPv4 address, none of the reserved prefixes and suffixes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketName(String);

impl BucketName {
    /// Checks and takes a name.
    ///
    /// # Errors
    /// `InvalidBucketName` when it breaks a rule.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        if well_formed(&name) {
            Ok(Self(name))
        } else {
            Err(S3Error::new(ErrorCode::InvalidBucketName).field("BucketName", name))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn well_formed(_name: &str) -> bool {
    unimplemented!()
}

impl fmt::Debug for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
