//! A directory that blobs lie in, and work on it.

use super::{
    disk::Disk,
    layout::{TEMP_DIR, place},
};
use crate::{BackendError, BlobName, ErrorKind, Result};
use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Directories of so many components, fan-out included, are of one thing: `backup-part/LINEAGE/ID`.
const OWN_DIRS_MIN: usize = 5;

/// How a [`LocalBackend`](super::LocalBackend) treats its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalOptions {
    /// Force every blob, and every directory entry, to the medium before the call that made it
    /// returns. `false` leaves this to the operating system: a power cut can then lose acknowledged
    /// blobs. For comparisons only.
    pub sync: bool,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self { sync: true }
    }
}

/// What all calls share.
pub(super) struct Store {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: LocalOptions,
    /// `O_TMPFILE` works here, and a file made by it can be given a name.
    pub(super) has_unnamed_files: bool,
    /// Directories whose own entry is known to be durable. Not what exists on disk: an entry that
    /// an earlier process made may never have been synced.
    pub(super) known_dirs: Mutex<HashSet<PathBuf>>,
}

impl Store {
    /// Makes `dir` and its parents below the root, each entry durable before this returns.
    pub(super) fn ensure_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.as_os_str().is_empty() || self.known_dirs().contains(dir) {
            return Ok(());
        }
        let parent = dir.parent().unwrap_or(Path::new(""));
        self.ensure_dir(parent)?;
        self.disk.make_dir(dir)?;
        self.sync_dir(parent)?;
        self.known_dirs().insert(dir.to_owned());
        Ok(())
    }

    /// Makes `dir` again after somebody removed it from under us.
    pub(super) fn restore_dir(&self, dir: &Path) -> io::Result<()> {
        for dir in dir.ancestors() {
            self.known_dirs().remove(dir);
        }
        self.ensure_dir(dir)
    }

    /// Removes the directories of names that nobody uses again, such as those of a backup's parts,
    /// once they are empty. Others are kept: the next blob needs them.
    pub(super) fn prune(&self, dir: &Path) {
        if dir.components().count() < OWN_DIRS_MIN {
            return;
        }
        for dir in dir.ancestors().take_while(|dir| dir.components().count() > 1) {
            self.known_dirs().remove(dir);
            // One that is not empty is needed. That an empty one comes back after a power cut does
            // no harm.
            if self.disk.remove_dir(dir).is_err() {
                return;
            }
        }
    }

    pub(super) fn known_dirs(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.known_dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.options.sync { self.disk.sync_dir(dir) } else { Ok(()) }
    }

    /// Confirms that the directory that is open is still the one at its path: what is written
    /// elsewhere, nobody finds again.
    pub(super) fn in_place(&self) -> Result<()> {
        self.disk.check_root().map_err(|error| disk_error("find", &"the store's directory", error))
    }

    /// The stored length of a blob; `None` when it is not there.
    pub(super) fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        let stat = self.disk.stat(&place(name).file);
        self.in_place()?;
        match stat {
            Ok(stat) if stat.is_file => Ok(Some(stat.len)),
            Ok(_) => Err(BackendError::new(ErrorKind::Corrupt, format!("{name} is not a regular file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.absent().map(|()| None),
            Err(error) => Err(disk_error("stat", name, error)),
        }
    }

    /// Confirms that "no such file" speaks of one blob and not of the whole store: a root that was
    /// removed under a running process would otherwise make every blob look absent (I10).
    pub(super) fn absent(&self) -> Result<()> {
        match self.disk.stat(Path::new(TEMP_DIR)) {
            Ok(stat) if stat.is_dir => Ok(()),
            Ok(_) => Err(BackendError::new(ErrorKind::Other, "the store's own directory was replaced")),
            Err(error) => Err(disk_error("find the store's own directory", &TEMP_DIR, error)),
        }
    }

    /// Removes temporary files without a living owner. What cannot be removed is logged and stays
    /// until the next start.
    pub(super) fn sweep(&self) {
        let temp_dir = Path::new(TEMP_DIR);
        let entries = self.disk.entries(temp_dir).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot look for left-over temporary files");
            Vec::new()
        });
        for entry in entries {
            let path = temp_dir.join(entry);
            match self.disk.is_left_over(&path) {
                Ok(false) => {}
                Ok(true) => match self.disk.unlink(&path) {
                    Ok(()) => tracing::info!(path = %path.display(), "removed a left-over temporary file"),
                    Err(error) => tracing::warn!(%error, path = %path.display(), "cannot remove a temporary file"),
                },
                Err(error) => tracing::warn!(%error, path = %path.display(), "cannot inspect a temporary file"),
            }
        }
    }
}

/// Runs `work` on the blocking pool. Dropping the future does not stop `work`; its result is then
/// dropped on the pool.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    finished(tokio::task::spawn_blocking(work).await)
}

/// The result of work on the blocking pool; work that was lost is an error.
pub(super) fn finished<T>(joined: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    joined.unwrap_or_else(|error| Err(BackendError::with_source(ErrorKind::Other, "disk work was cut off", error)))
}

/// An I/O error with what was attempted, for the log, and the kind the caller decides by.
pub(super) fn disk_error(attempt: &str, what: &dyn std::fmt::Display, error: io::Error) -> BackendError {
    BackendError::with_source(kind_of(&error), format!("cannot {attempt} {what}: {error}"), error)
}

fn kind_of(error: &io::Error) -> ErrorKind {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => ErrorKind::Full,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ErrorKind::Denied,
        // Out of descriptors or memory, or a network file system that reconnects: it passes.
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::STALE | Errno::TIMEDOUT) => {
            ErrorKind::Transient
        }
        _ => ErrorKind::Other,
    }
}
