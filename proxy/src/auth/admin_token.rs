//! The admin token of a store whose operator set none: made once from the operating system's
//! randomness and kept in the data directory for its owner's eyes.

use super::private_file;
use secrecy::SecretString;
use std::{io, path::Path};
use zeroize::Zeroizing;

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "admin-token";
/// Fewest bytes of an admin token.
pub const BYTES_MIN: usize = 32;

/// Reads the token of a data directory; makes it (64 hex digits, in a file of mode 0600) on the
/// first start.
///
/// # Errors
/// The file cannot be read or written, holds no token, or may be read by others.
pub fn load_or_create(data: &Path) -> io::Result<SecretString> {
    let path = data.join(FILE_NAME);
    if let Some(text) = private_file::read(&path)? {
        let token = std::str::from_utf8(&text).map(|text| text.trim_end_matches(['\r', '\n']));
        return match token {
            Ok(token) if is_token(token) => Ok(SecretString::from(token.to_owned())),
            _ => Err(private_file::invalid(&path, "there is no token of 32 visible characters or more in it")),
        };
    }
    let mut random = Zeroizing::new([0_u8; BYTES_MIN]);
    crypto::fill_random(&mut *random).map_err(io::Error::other)?;
    let token = Zeroizing::new(hex::encode(*random));
    private_file::create(data, FILE_NAME, token.as_bytes())?;
    Ok(SecretString::from(token.to_string()))
}

/// Whether a text can be a token: long enough, and a header can carry it.
pub fn is_token(text: &str) -> bool {
    text.len() >= BYTES_MIN && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    #[test]
    fn a_token_is_made_once_and_kept_for_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let first = load_or_create(directory.path()).unwrap();
        assert!(first.expose_secret().len() == 64 && is_token(first.expose_secret()));
        let path = directory.path().join(FILE_NAME);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load_or_create(directory.path()).unwrap().expose_secret(), first.expose_secret());
        assert_ne!(load_or_create(&directory.path().join("b")).unwrap().expose_secret(), first.expose_secret());
    }

    #[test]
    fn a_file_that_others_may_read_or_that_holds_too_little_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        load_or_create(directory.path()).unwrap();
        let path = directory.path().join(FILE_NAME);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(load_or_create(directory.path()).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "").unwrap();
        assert!(load_or_create(directory.path()).is_err());
        fs::write(&path, "0123456789abcdef0123456789 abcdef").unwrap();
        assert!(load_or_create(directory.path()).is_err());
    }
}
