//! Files in the data directory that hold a secret: for their owner's eyes, whole or absent.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};
use zeroize::Zeroizing;

/// What a file holds; `None` when there is none.
///
/// # Errors
/// It cannot be read, or others than its owner may read or write it.
pub(super) fn read(path: &Path) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    match fs::read(path) {
        Ok(content) => {
            let content = Zeroizing::new(content);
            if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
                return Err(invalid(path, "others may read it; chmod 600 it, or delete it to get a new one"));
            }
            Ok(Some(content))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file with mode 0600 into a directory, which is made with mode 0700 when it is not
/// there; durable on return.
///
/// # Errors
/// The directory cannot be written to.
pub(super) fn create(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // Written under another name first: a crash leaves either no file or a whole one.
    let new = directory.join(format!("{name}.new"));
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, directory.join(name))?;
    fs::File::open(directory)?.sync_all()
}

/// An error that names the file.
pub(super) fn invalid(path: &Path, message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {message}", path.display()))
}
