//! Blobs as files on a local disk, durable when `put` returns (I9).
//!
//! ```text
//! body ─ batches of 1 MiB ─▶ unnamed file in +tmp ─▶ fsync file ─▶ link, never replacing ─▶ fsync directory ─▶ Ok
//! ```
//!
//! All file work happens on the runtime's blocking pool; while one batch is written the next one is
//! read from the body, so that the network and the disk overlap. A body that fits one batch costs
//! one trip to the pool. Where the file system has no `O_TMPFILE` the file has a random name below
//! `+tmp/` until it is renamed; `open` removes what a crash left there.
//!
//! The directory belongs to deltaweir alone: directories are 0700, files 0600, and no symbolic link
//! below the root is followed.

mod disk;
mod download;
mod layout;
mod listing;
#[cfg(test)]
mod tests;
mod upload;

use crate::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, PutReceipt, Result};
use async_trait::async_trait;
use disk::{Disk, Posix};
use futures::stream::BoxStream;
use layout::TEMP_DIR;
use std::{
    collections::HashSet,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Directories of so many components, fan-out included, are of one thing: `backup-part/LINEAGE/ID`.
const OWN_DIRS_MIN: usize = 5;

/// How a [`LocalBackend`] treats its files.
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

/// A directory of blobs.
#[derive(Clone)]
pub struct LocalBackend {
    store: Arc<Store>,
}

impl LocalBackend {
    /// Opens the store in the directory `root`, which is made when it is missing, and removes the
    /// temporary files that a crash left behind. Files of uploads that still run in another process
    /// stay.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] and [`ErrorKind::Full`] as the file system says; [`ErrorKind::Other`]
    /// for the rest.
    pub async fn open(root: impl Into<PathBuf>, options: LocalOptions) -> Result<Self> {
        let root = root.into();
        blocking(move || {
            let disk =
                Posix::open(&root).map_err(|error| disk_error("open the directory of", &root.display(), error))?;
            Self::open_on(Arc::new(disk), options)
        })
        .await
    }

    fn open_on(disk: Arc<dyn Disk>, options: LocalOptions) -> Result<Self> {
        let mut store = Store { disk, options, has_unnamed_files: false, known_dirs: Mutex::default() };
        store.ensure_dir(Path::new(TEMP_DIR)).map_err(|error| disk_error("make", &TEMP_DIR, error))?;
        store.sweep();
        store.has_unnamed_files = store.links_unnamed_files();
        Ok(Self { store: Arc::new(store) })
    }
}

#[async_trait]
impl Backend for LocalBackend {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        upload::put(&self.store, name, body, len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        download::get(&self.store, name, range).await
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        let (store, name) = (self.store.clone(), name.clone());
        blocking(move || {
            let stat = store.disk.stat(&layout::place(&name).file);
            store.in_place()?;
            match stat {
                Ok(stat) if stat.is_file => Ok(Some(stat.len)),
                Ok(_) => Err(BackendError::new(ErrorKind::Corrupt, format!("{name} is not a regular file"))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => store.absent().map(|()| None),
                Err(error) => Err(disk_error("stat", &name, error)),
            }
        })
        .await
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        let (store, name) = (self.store.clone(), name.clone());
        blocking(move || {
            let place = layout::place(&name);
            match store.disk.unlink(&place.file) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => store.absent()?,
                Err(error) => return Err(disk_error("remove", &name, error)),
            }
            // Also when the file was gone: an earlier removal may have failed between its unlink
            // and its sync.
            match store.sync_dir(&place.dir) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(disk_error("sync the removal of", &name, error));
                }
                _ => {}
            }
            store.prune(&place.dir);
            Ok(())
        })
        .await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        listing::list(&self.store, prefix)
    }

    /// Writes a few bytes to a file, reads them back and removes it.
    async fn probe(&self) -> Result<()> {
        let store = self.store.clone();
        blocking(move || store.in_place().and_then(|()| upload::probe(&store))).await
    }
}

/// What all calls share.
struct Store {
    disk: Arc<dyn Disk>,
    options: LocalOptions,
    /// `O_TMPFILE` works here, and a file made by it can be given a name.
    has_unnamed_files: bool,
    /// Directories whose own entry is known to be durable. Not what exists on disk: an entry that
    /// an earlier process made may never have been synced.
    known_dirs: Mutex<HashSet<PathBuf>>,
}

impl Store {
    /// Makes `dir` and its parents below the root, each entry durable before this returns.
    fn ensure_dir(&self, dir: &Path) -> io::Result<()> {
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
    fn restore_dir(&self, dir: &Path) -> io::Result<()> {
        for dir in dir.ancestors() {
            self.known_dirs().remove(dir);
        }
        self.ensure_dir(dir)
    }

    /// Removes the directories of names that nobody uses again, such as those of a backup's parts,
    /// once they are empty. Others are kept: the next blob needs them.
    fn prune(&self, dir: &Path) {
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

    fn known_dirs(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        self.known_dirs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if self.options.sync { self.disk.sync_dir(dir) } else { Ok(()) }
    }

    /// Confirms that the directory that is open is still the one at its path: what is written
    /// elsewhere, nobody finds again.
    fn in_place(&self) -> Result<()> {
        self.disk.check_root().map_err(|error| disk_error("find", &"the store's directory", error))
    }

    /// Confirms that "no such file" speaks of one blob and not of the whole store: a root that was
    /// removed under a running process would otherwise make every blob look absent (I10).
    fn absent(&self) -> Result<()> {
        match self.disk.stat(Path::new(TEMP_DIR)) {
            Ok(stat) if stat.is_dir => Ok(()),
            Ok(_) => Err(BackendError::new(ErrorKind::Other, "the store's own directory was replaced")),
            Err(error) => Err(disk_error("find the store's own directory", &TEMP_DIR, error)),
        }
    }

    /// Removes temporary files without a living owner. What cannot be removed is logged and stays
    /// until the next start.
    fn sweep(&self) {
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

    fn links_unnamed_files(&self) -> bool {
        let Ok(path) = upload::temp_path() else { return false };
        let tried = self.disk.create_unnamed().and_then(|file| self.disk.link(&file, &path));
        tried.is_ok() && self.disk.unlink(&path).is_ok()
    }
}

/// Runs `work` on the blocking pool. Dropping the future does not stop `work`; its result is then
/// dropped on the pool.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    finished(tokio::task::spawn_blocking(work).await)
}

/// The result of work on the blocking pool; work that was lost is an error.
fn finished<T>(joined: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    joined.unwrap_or_else(|error| Err(BackendError::with_source(ErrorKind::Other, "disk work was cut off", error)))
}

/// An I/O error with what was attempted, for the log, and the kind the caller decides by.
fn disk_error(attempt: &str, what: &dyn std::fmt::Display, error: io::Error) -> BackendError {
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
