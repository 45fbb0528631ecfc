//! Algorithms and values.

use crate::error::{ErrorCode, Result, S3Error};
use base64::prelude::{BASE64_STANDARD, Engine as _};

/// The algorithms of `x-amz-checksum-*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumAlgorithm {
    /// CRC-32 (ISO-HDLC), 4 bytes.
    Crc32,
    /// CRC-32C (iSCSI), 4 bytes.
    Crc32c,
    /// CRC-64/NVME, 8 bytes.
    Crc64Nvme,
    /// SHA-1, 20 bytes.
    Sha1,
    /// SHA-256, 32 bytes.
    Sha256,
    /// SHA-512, 64 bytes.
    Sha512,
    /// MD5, 16 bytes.
    Md5,
    /// XXH64, 8 bytes.
    XxHash64,
    /// XXH3 of 64 bits, 8 bytes.
    XxHash3,
    /// XXH3 of 128 bits, 16 bytes.
    XxHash128,
}

/// Whether a multipart object's checksum covers its bytes or the checksums of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumType {
    /// Over all bytes of the object.
    FullObject,
    /// Over the parts' checksums; written with `-N`.
    Composite,
}

/// One checksum of one object or part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    bytes: [u8; 64],
    /// Number of parts of a composite checksum.
    parts: Option<u32>,
}

impl ChecksumAlgorithm {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
        Self::Md5,
        Self::XxHash64,
        Self::XxHash3,
        Self::XxHash128,
    ];

    /// The name in headers and documents, such as `CRC64NVME`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Md5 => "MD5",
            Self::XxHash64 => "XXHASH64",
            Self::XxHash3 => "XXHASH3",
            Self::XxHash128 => "XXHASH128",
        }
    }

    /// Reads such a name, in any case.
    ///
    /// # Errors
    /// `InvalidRequest` for an algorithm this server does not have.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str().eq_ignore_ascii_case(name)).ok_or_else(|| {
            S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, MD5, SHA1, SHA256, SHA512, XXHASH128, XXHASH3, XXHASH64]",
            )
        })
    }

    /// `x-amz-checksum-crc32` and so on, in lower case.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
            Self::Sha512 => "x-amz-checksum-sha512",
            Self::Md5 => "x-amz-checksum-md5",
            Self::XxHash64 => "x-amz-checksum-xxhash64",
            Self::XxHash3 => "x-amz-checksum-xxhash3",
            Self::XxHash128 => "x-amz-checksum-xxhash128",
        }
    }

    /// `ChecksumCRC32` and so on: the element of documents.
    pub fn element(self) -> &'static str {
        match self {
            Self::Crc32 => "ChecksumCRC32",
            Self::Crc32c => "ChecksumCRC32C",
            Self::Crc64Nvme => "ChecksumCRC64NVME",
            Self::Sha1 => "ChecksumSHA1",
            Self::Sha256 => "ChecksumSHA256",
            Self::Sha512 => "ChecksumSHA512",
            Self::Md5 => "ChecksumMD5",
            Self::XxHash64 => "ChecksumXXHASH64",
            Self::XxHash3 => "ChecksumXXHASH3",
            Self::XxHash128 => "ChecksumXXHASH128",
        }
    }

    /// Bytes of a value.
    pub fn value_len(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme | Self::XxHash64 | Self::XxHash3 => 8,
            Self::Md5 | Self::XxHash128 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// What a multipart upload gets when the client names no type: full object for CRC64NVME,
    /// composite otherwise.
    pub fn default_type(self) -> ChecksumType {
        match self {
            Self::Crc64Nvme => ChecksumType::FullObject,
            _ => ChecksumType::Composite,
        }
    }

    /// Whether S3 has this algorithm with this type for multipart uploads: only CRCs combine to a
    /// full-object value, and CRC64NVME is never composite.
    pub fn allows(self, checksum_type: ChecksumType) -> bool {
        match (self, checksum_type) {
            (Self::Crc32 | Self::Crc32c, _) => true,
            (Self::Crc64Nvme, kind) => kind == ChecksumType::FullObject,
            (_, kind) => kind == ChecksumType::Composite,
        }
    }
}

impl ChecksumType {
    /// `FULL_OBJECT` or `COMPOSITE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }

    /// Reads such a name, in any case.
    ///
    /// # Errors
    /// `InvalidRequest` for anything else.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            name if name.eq_ignore_ascii_case("FULL_OBJECT") => Ok(Self::FullObject),
            name if name.eq_ignore_ascii_case("COMPOSITE") => Ok(Self::Composite),
            _ => Err(S3Error::with_message(
                ErrorCode::InvalidRequest,
                "Value for x-amz-checksum-type header is invalid.",
            )),
        }
    }
}

impl Checksum {
    /// A checksum over all bytes.
    ///
    /// Returns `None` unless `bytes` has the algorithm's length.
    pub fn full(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != algorithm.value_len() {
            return None;
        }
        let mut padded = [0; 64];
        padded[..bytes.len()].copy_from_slice(bytes);
        Some(Self { algorithm, bytes: padded, parts: None })
    }

    /// A composite checksum over `parts` part checksums.
    ///
    /// Returns `None` unless `bytes` has the algorithm's length.
    pub fn composite(algorithm: ChecksumAlgorithm, bytes: &[u8], parts: u32) -> Option<Self> {
        Self::full(algorithm, bytes).map(|checksum| Self { parts: Some(parts), ..checksum })
    }

    /// Reads the wire form: base64, with `-N` for a composite one.
    ///
    /// # Errors
    /// `InvalidRequest` when it is not base64 of the right length, or N is not 1–10,000.
    pub fn parse(algorithm: ChecksumAlgorithm, text: &str) -> Result<Self> {
        let read = || {
            let (value, parts) = match text.split_once('-') {
                Some((value, parts)) => {
                    let parts = crate::headers::decimal(parts).and_then(|n| u32::try_from(n).ok());
                    (value, Some(parts.filter(|n| (1..=10_000).contains(n))?))
                }
                None => (text, None),
            };
            // No value is longer than 64 bytes: 88 characters.
            let bytes = (value.len() <= 88).then(|| BASE64_STANDARD.decode(value).ok()).flatten()?;
            Self::full(algorithm, &bytes).map(|checksum| Self { parts, ..checksum })
        };
        read().ok_or_else(|| {
            S3Error::with_message(
                ErrorCode::InvalidRequest,
                format!("Value for {} header is invalid.", algorithm.header()),
            )
        })
    }

    /// The algorithm.
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// The value's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.value_len()]
    }

    /// The number of parts of a composite checksum.
    pub fn parts(&self) -> Option<u32> {
        self.parts
    }

    /// Full object or composite.
    pub fn checksum_type(&self) -> ChecksumType {
        if self.parts.is_some() { ChecksumType::Composite } else { ChecksumType::FullObject }
    }

    /// The wire form: base64, with `-N` for a composite one.
    pub fn to_wire(&self) -> String {
        let value = BASE64_STANDARD.encode(self.bytes());
        match self.parts {
            Some(parts) => format!("{value}-{parts}"),
            None => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_wire_form_is_read_back() {
        for algorithm in ChecksumAlgorithm::ALL {
            let bytes = vec![0xab; algorithm.value_len()];
            for checksum in [Checksum::full(algorithm, &bytes), Checksum::composite(algorithm, &bytes, 7)] {
                let checksum = checksum.unwrap();
                assert_eq!(Checksum::parse(algorithm, &checksum.to_wire()).unwrap(), checksum);
            }
            assert_eq!(ChecksumAlgorithm::parse(algorithm.as_str()).unwrap(), algorithm);
            assert!(Checksum::full(algorithm, &bytes[1..]).is_none());
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for text in [
            "",
            "AAAA",
            "AAAAAA=",
            "AAAAAA",
            "AAAAAA==-0",
            "AAAAAA==-10001",
            "AAAAAA==-",
            "AAAAAA==-+1",
            "AAAAAA== ",
            "AAAAAB==",
            "#AAAAA==",
        ] {
            let error = Checksum::parse(ChecksumAlgorithm::Crc32, text).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest, "{text}");
        }
        assert!(Checksum::parse(ChecksumAlgorithm::Crc32, "AAAAAA==").is_ok());
        assert!(ChecksumAlgorithm::parse("MD4").is_err());
        assert_eq!(ChecksumType::parse("full_object").unwrap(), ChecksumType::FullObject);
        assert!(ChecksumType::parse("PARTIAL").is_err());
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in any::<String>()) {
            for algorithm in ChecksumAlgorithm::ALL {
                let _ = Checksum::parse(algorithm, &text);
            }
        }
    }
}
