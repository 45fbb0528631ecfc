//! How a cloud's store is dealt with.

use crate::{BackendError, ErrorKind, Result};
use object_store::Certificate;
use std::{fmt, time::Duration};

/// How a blob is cut into parts. One upload holds at most `part_bytes × (parts_in_flight + 1)`
/// bytes in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadOptions {
    /// A part's size in bytes: a blob up to this size is a single request. At least 5 MiB, which
    /// the stores ask for; with the 10,000 parts they allow, 8 MiB are enough for blobs of 78 GiB.
    pub part_bytes: usize,
    /// Parts of one blob uploaded at the same time, at least 1.
    pub parts_in_flight: usize,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self { part_bytes: 8 << 20, parts_in_flight: 2 }
    }
}

impl UploadOptions {
    /// The most memory one upload takes, in bytes: what a caller with a memory budget takes a
    /// permit for.
    pub fn buffered_bytes_max(&self) -> u64 {
        self.part_bytes as u64 * (self.parts_in_flight as u64 + 1)
    }
}

/// How long a silent store is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until a connection stands.
    pub connect: Duration,
    /// Between two signs of life on a connection; for an upload, from its first byte to the answer.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), silence: Duration::from_secs(120) }
    }
}

/// Certificate authorities that are trusted beside those of the machine: for a store with a
/// certificate of its owner's making.
#[derive(Clone, Default)]
pub struct TrustedCertificates(pub(super) Vec<Certificate>);

impl TrustedCertificates {
    /// Reads certificates in PEM, one or several.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when there is none in it, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self> {
        let read = Certificate::from_pem_bundle(pem);
        let read = read.map_err(|error| {
            BackendError::with_source(ErrorKind::Invalid, "the certificates cannot be read as PEM", error)
        })?;
        if read.is_empty() {
            return Err(BackendError::new(ErrorKind::Invalid, "there is no certificate in PEM"));
        }
        Ok(Self(read))
    }
}

impl fmt::Debug for TrustedCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} certificates", self.0.len())
    }
}
