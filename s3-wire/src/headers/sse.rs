//! Server-side encryption asked for by header.

use crate::error::Result;
use http::HeaderMap;

/// Whether the request asks for encryption at rest (`x-amz-server-side-encryption: AES256`).
///
/// # Errors
/// `NotImplemented` for `aws:kms` and `aws:kms:dsse`, `InvalidEncryptionAlgorithmError` for anything else.
pub fn requested_encryption(_headers: &HeaderMap) -> Result<bool> {
    unimplemented!()
}
