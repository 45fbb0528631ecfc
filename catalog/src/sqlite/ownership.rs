//! One process at a time: an advisory lock on a file beside the database.
//!
//! SQLite itself would let several processes in. This catalog's group commit and its epochs are
//! those of one process (E22), so a second one is refused at the door. The lock goes with the
//! process, however it ends; the file stays.

use crate::{CatalogError, Result};
use std::{
    ffi::OsString,
    fs::{File, OpenOptions, TryLockError},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The ownership of a database file, while this lives.
pub(super) struct Ownership {
    _file: File,
}

impl Ownership {
    pub(super) fn take(database: &Path) -> Result<Self> {
        let path = lock_path(database);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| CatalogError::Unavailable(format!("{}: {error}", path.display())))?;
        match file.try_lock() {
            Ok(()) => Ok(Ownership { _file: file }),
            Err(TryLockError::WouldBlock) => Err(CatalogError::InUse),
            Err(TryLockError::Error(error)) => {
                Err(CatalogError::Unavailable(format!("cannot lock {}: {error}", path.display())))
            }
        }
    }
}

fn lock_path(database: &Path) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(".lock");
    PathBuf::from(name)
}
