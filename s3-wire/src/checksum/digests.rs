//! Several digests over one stream of bytes.

use super::{Checksum, ChecksumAlgorithm};

/// Which digests to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestSet {
    bits: u8,
}

impl DigestSet {
    /// None.
    pub const EMPTY: Self = Self { bits: 0 };
    /// MD5 alone: what the ETag needs.
    pub const MD5: Self = Self { bits: 1 << 7 };

    /// With one algorithm more.
    #[must_use]
    pub fn with(self, _algorithm: ChecksumAlgorithm) -> Self {
        unimplemented!()
    }

    /// With MD5.
    #[must_use]
    pub fn with_md5(self) -> Self {
        Self { bits: self.bits | Self::MD5.bits }
    }

    /// Whether the algorithm is in the set.
    pub fn contains(self, _algorithm: ChecksumAlgorithm) -> bool {
        unimplemented!()
    }

    /// Whether MD5 is in the set.
    pub fn contains_md5(self) -> bool {
        self.bits & Self::MD5.bits != 0
    }

    /// The members of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { bits: self.bits | other.bits }
    }

    /// The members of this set that are not in the other: to split work between threads.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self { bits: self.bits & !other.bits }
    }
}

/// Incremental digests.
#[derive(Clone)]
pub struct Digests {
    _set: DigestSet,
}

/// Finished digests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigestValues {
    /// MD5.
    pub md5: Option<[u8; 16]>,
    /// SHA-256.
    pub sha256: Option<[u8; 32]>,
    /// SHA-1.
    pub sha1: Option<[u8; 20]>,
    /// CRC-32.
    pub crc32: Option<u32>,
    /// CRC-32C.
    pub crc32c: Option<u32>,
    /// CRC-64/NVME.
    pub crc64nvme: Option<u64>,
}

impl Digests {
    /// Starts the digests of a set.
    pub fn new(set: DigestSet) -> Self {
        Self { _set: set }
    }

    /// Adds bytes.
    pub fn update(&mut self, _bytes: &[u8]) {
        unimplemented!()
    }

    /// The values.
    pub fn finish(self) -> DigestValues {
        unimplemented!()
    }
}

impl DigestValues {
    /// The value of one algorithm as a checksum, if it was computed.
    pub fn checksum(&self, _algorithm: ChecksumAlgorithm) -> Option<Checksum> {
        unimplemented!()
    }

    /// The values of two disjoint sets together.
    #[must_use]
    pub fn merge(self, _other: Self) -> Self {
        unimplemented!()
    }
}
