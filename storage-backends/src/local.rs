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
mod store;
#[cfg(test)]
mod tests;
mod upload;

use crate::{Backend, BlobName, ByteStream, Listed, PutReceipt, Result};
use async_trait::async_trait;
use disk::{Disk, Posix};
use futures::stream::BoxStream;
use layout::TEMP_DIR;
use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
pub use store::LocalOptions;
use store::{Store, blocking, disk_error};

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
    /// [`Denied`](crate::ErrorKind::Denied) and [`Full`](crate::ErrorKind::Full) as the file system
    /// says; [`Other`](crate::ErrorKind::Other) for the rest.
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
        store.has_unnamed_files = upload::links_unnamed_files(&store);
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
        blocking(move || store.head(&name)).await
    }

    fn head_at_once(&self, name: &BlobName) -> Option<Result<Option<u64>>> {
        self.store.disk.is_at_hand().then(|| self.store.head(name))
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
