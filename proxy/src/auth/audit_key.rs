//! The key of the audit log of a store whose operator set none: made once from the operating
//! system's randomness and kept in the data directory for its owner's eyes.

use super::private_file;
use crate::audit::AuditKey;
use std::{io, path::Path};
use zeroize::Zeroizing;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "audit-key";

/// Reads the key of a data directory; `None` when there is none.
///
/// # Errors
/// The file cannot be read, holds no key, or may be read by others.
pub fn load(data: &Path) -> io::Result<Option<AuditKey>> {
    let path = data.join(FILE_NAME);
    let Some(bytes) = private_file::read(&path)? else { return Ok(None) };
    match <[u8; 32]>::try_from(bytes.as_slice()) {
        Ok(key) => Ok(Some(AuditKey::new(key))),
        Err(_) => Err(private_file::invalid(&path, "there is no key of 32 bytes in it")),
    }
}

/// Reads the key of a data directory; makes it (32 bytes, in a file of mode 0600) on the first
/// start.
///
/// # Errors
/// As [`load`], or the file cannot be written.
pub fn load_or_create(data: &Path) -> io::Result<AuditKey> {
    if let Some(key) = load(data)? {
        return Ok(key);
    }
    let mut random = Zeroizing::new([0_u8; 32]);
    crypto::fill_random(&mut *random).map_err(io::Error::other)?;
    private_file::create(data, FILE_NAME, &*random)?;
    Ok(AuditKey::new(*random))
}
