//! Algorithms and values.

use crate::error::Result;

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
    bytes: [u8; 32],
    /// Number of parts of a composite checksum.
    parts: Option<u32>,
}

impl ChecksumAlgorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// The name in headers and documents: `CRC32`, `CRC32C`, `CRC64NVME`, `SHA1`, `SHA256`.
    pub fn as_str(self) -> &'static str {
        unimplemented!()
    }

    /// Reads such a name, in any case.
    ///
    /// # Errors
    /// `InvalidRequest` for an algorithm S3 does not have.
    pub fn parse(_name: &str) -> Result<Self> {
        unimplemented!()
    }

    /// `x-amz-checksum-crc32` and so on, in lower case.
    pub fn header(self) -> &'static str {
        unimplemented!()
    }

    /// `ChecksumCRC32` and so on: the element of documents.
    pub fn element(self) -> &'static str {
        unimplemented!()
    }

    /// Bytes of a value.
    pub fn value_len(self) -> usize {
        unimplemented!()
    }

    /// What a multipart upload gets when the client names no type: full object for CRC64NVME, composite otherwise.
    pub fn default_type(self) -> ChecksumType {
        unimplemented!()
    }
}

impl ChecksumType {
    /// `FULL_OBJECT` or `COMPOSITE`.
    pub fn as_str(self) -> &'static str {
        unimplemented!()
    }

    /// Reads such a name.
    ///
    /// # Errors
    /// `InvalidRequest` for anything else.
    pub fn parse(_name: &str) -> Result<Self> {
        unimplemented!()
    }
}

impl Checksum {
    /// A checksum over all bytes.
    ///
    /// Returns `None` unless `bytes` has the algorithm's length.
    pub fn full(_algorithm: ChecksumAlgorithm, _bytes: &[u8]) -> Option<Self> {
        unimplemented!()
    }

    /// A composite checksum over `parts` part checksums.
    ///
    /// Returns `None` unless `bytes` has the algorithm's length.
    pub fn composite(_algorithm: ChecksumAlgorithm, _bytes: &[u8], _parts: u32) -> Option<Self> {
        unimplemented!()
    }

    /// Reads the wire form: base64, with `-N` for a composite one.
    ///
    /// # Errors
    /// `InvalidRequest` when it is not base64 of the right length.
    pub fn parse(_algorithm: ChecksumAlgorithm, _text: &str) -> Result<Self> {
        unimplemented!()
    }

    /// The algorithm.
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// The value's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.value_len()]
    }

    /// Full object or composite.
    pub fn checksum_type(&self) -> ChecksumType {
        if self.parts.is_some() { ChecksumType::Composite } else { ChecksumType::FullObject }
    }

    /// The wire form: base64, with `-N` for a composite one.
    pub fn to_wire(&self) -> String {
        unimplemented!()
    }
}
