//! The root key pair of a store whose operator set none: made once from the operating system's
//! randomness, kept in the data directory for its owner's eyes, printed once.

use super::{Credentials, private_file};
use s3_wire::sigv4::SecretKey;
use serde::{Deserialize, Serialize};
use std::{io, path::Path};
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "root-credentials.json";

/// A root key pair, and whether it is new.
pub struct RootPair {
    /// The key pair.
    pub credentials: Credentials,
    /// Set when it was made just now: the secret, to be printed once.
    pub printed_once: Option<Zeroizing<String>>,
}

#[derive(Serialize, Deserialize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct Stored {
    access_key_id: String,
    secret_access_key: String,
}

/// The root key pair in effect: the one that was configured; without one and without users that of
/// the data directory, made at the first start.
///
/// # Errors
/// As [`load_or_create`].
pub fn in_effect(configured: Option<Credentials>, has_users: bool, data: &Path) -> io::Result<Option<RootPair>> {
    match configured {
        Some(credentials) => Ok(Some(RootPair { credentials, printed_once: None })),
        None if has_users => Ok(None),
        None => load_or_create(data).map(Some),
    }
}

/// Reads the key pair of a data directory; makes directory (0700), key pair and file (0600) on the
/// first start.
///
/// # Errors
/// The file cannot be read or written, is not what this module writes, or may be read by others.
pub fn load_or_create(data: &Path) -> io::Result<RootPair> {
    let path = data.join(FILE_NAME);
    if let Some(text) = private_file::read(&path)? {
        let stored: Stored =
            serde_json::from_slice(&text).map_err(|error| private_file::invalid(&path, &error.to_string()))?;
        if stored.access_key_id.is_empty() || stored.secret_access_key.len() < 8 {
            return Err(private_file::invalid(&path, "there is no usable key pair in it"));
        }
        return Ok(RootPair { credentials: credentials(&stored), printed_once: None });
    }
    let stored = make()?;
    private_file::create(data, FILE_NAME, &Zeroizing::new(serde_json::to_vec_pretty(&stored)?))?;
    let printed_once = Some(Zeroizing::new(stored.secret_access_key.clone()));
    Ok(RootPair { credentials: credentials(&stored), printed_once })
}

fn credentials(stored: &Stored) -> Credentials {
    Credentials {
        access_key_id: stored.access_key_id.clone(),
        secret: SecretKey::new(stored.secret_access_key.as_str()),
    }
}

/// A key pair of S3's usual shape: 20 characters and 40 characters (200 bits).
fn make() -> io::Result<Stored> {
    Ok(Stored { access_key_id: format!("DW{}", random_text::<18>()?), secret_access_key: random_text::<40>()? })
}

/// `N` characters of base32 from the operating system's randomness.
pub(in crate::auth) fn random_text<const N: usize>() -> io::Result<String> {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut random = Zeroizing::new([0_u8; N]);
    crypto::fill_random(&mut *random).map_err(io::Error::other)?;
    Ok(random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn a_key_pair_is_made_once_and_kept_for_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let first = load_or_create(&data).unwrap();
        let secret = first.printed_once.unwrap();
        assert_eq!((first.credentials.access_key_id.len(), secret.len()), (20, 40));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&data), mode(&data.join(FILE_NAME))), (0o700, 0o600));
        let again = load_or_create(&data).unwrap();
        assert!(again.printed_once.is_none());
        assert_eq!(again.credentials.access_key_id, first.credentials.access_key_id);
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_damaged_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        load_or_create(directory.path()).unwrap();
        let path = directory.path().join(FILE_NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(load_or_create(directory.path()).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "{\"access_key_id\":\"\",\"secret_access_key\":\"\"}").unwrap();
        assert!(load_or_create(directory.path()).is_err());
    }
}
