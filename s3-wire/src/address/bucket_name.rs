//! Bucket names and their rules.

use crate::error::{ErrorCode, Result, S3Error};
use std::fmt;

/// A name that keeps S3's rules for general purpose buckets: 3–63 of `a-z0-9.-`; every label
/// between dots starts and ends with a letter or digit; not shaped like an IPv4 address; none of
/// the prefixes and suffixes S3 reserves.
///
/// Source: Amazon S3 User Guide, "General purpose bucket naming rules".
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

fn well_formed(name: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
    };
    (3..=63).contains(&name.len())
        && name.split('.').all(label)
        && name.parse::<std::net::Ipv4Addr>().is_err()
        && !(name.split('.').count() == 4 && name.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        && !RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        && !RESERVED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// `xn--` would be a punycode label in virtual-host addressing; the others name access points and
/// other kinds of buckets.
const RESERVED_PREFIXES: [&str; 2] = ["xn--", "sthree-"];
const RESERVED_SUFFIXES: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_within_the_rules_are_taken() {
        for name in ["abc", "a.b.c", "my-bucket", "0-9", "1.2.3", "192.168.5.4.5", "a--b", &"a".repeat(63)] {
            assert!(BucketName::new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_against_the_rules_are_refused() {
        // C75
        let long = "a".repeat(64);
        for name in [
            "",
            "ab",
            &long,
            "Abc",
            "a_b_c",
            "-abc",
            "abc-",
            ".abc",
            "abc.",
            "a..b",
            "a.-b",
            "a-.b",
            "192.168.5.4",
            "999.1.1.1",
            "xn--abc",
            "sthree-x",
            "abc-s3alias",
            "abc--ol-s3",
            "a/b",
            "a b c",
            "äbc",
            "abc\0",
            "a%2fb",
        ] {
            let error = BucketName::new(name).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidBucketName, "{name}");
            assert_eq!(error.get_field("BucketName"), Some(name));
        }
    }

    proptest! {
        #[test]
        fn a_name_taken_is_always_a_safe_label_and_path_component(name in "[a-z0-9A-Z./\\-_%]{0,70}") {
            if let Ok(name) = BucketName::new(name) {
                prop_assert!(!name.as_str().contains(".."));
                prop_assert!(name.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-'));
            }
        }
    }
}
