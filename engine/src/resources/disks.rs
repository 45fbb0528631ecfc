//! How full the file systems are that this process writes to.

use crate::{
    error::EngineError,
    metrics::Metrics,
    resources::{machine::blocking, reserves::Reserves},
};
use rustix::fs::{StatVfs, statvfs};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A file system with less left than this is full: a few blobs end it. On a small one it is a
/// sixteenth of it.
const FULL_BYTES: u64 = 256 << 20;

/// The file systems that this process writes to: the data directory's and those of local backends.
pub(crate) struct Disks {
    data: PathBuf,
    directories: BTreeMap<String, PathBuf>,
    reserves: Reserves,
    metrics: Arc<Metrics>,
}

impl Disks {
    pub(crate) fn new(
        data: PathBuf,
        directories: BTreeMap<String, PathBuf>,
        reserves: Reserves,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { data, directories, reserves, metrics }
    }

    /// Sets the gauges of the data directory's file system and of every local backend's, and makes
    /// reserves where there is room. A file system that cannot be asked keeps its last figures.
    pub(crate) async fn measure(self: &Arc<Self>) {
        let disks = self.clone();
        // A network file system that hangs holds a thread that may wait, and no other.
        if blocking(move || disks.set_gauges()).await.is_none() {
            tracing::warn!("disks could not be measured");
        }
    }

    fn set_gauges(&self) {
        self.set_gauge("data", &self.data);
        for (name, path) in &self.directories {
            self.set_gauge(&format!("backend/{name}"), path);
        }
        self.reserves.make();
        for (place, reserve) in self.reserves.places() {
            self.metrics.disk_full.with_label_values(&[&place]).set(reserve.refuses().into());
            let held = i64::try_from(reserve.held()).unwrap_or(i64::MAX);
            self.metrics.disk_reserve_bytes.with_label_values(&[&place]).set(held);
        }
    }

    fn set_gauge(&self, place: &str, path: &Path) {
        match statvfs(path) {
            Ok(figures) => {
                let gauge = |state: &str, blocks: u64| {
                    self.metrics.disk_bytes.with_label_values(&[place, state]).set(bytes_of(&figures, blocks));
                };
                gauge("size", figures.f_blocks);
                // What is left to us; a file system keeps some blocks for root.
                gauge("free", figures.f_bavail);
            }
            Err(error) => tracing::warn!(%error, path = %path.display(), "free space of a file system is unknown"),
        }
    }

    /// Whether a backend is a directory of this machine.
    pub(crate) fn is_local(&self, backend: &str) -> bool {
        self.directories.contains_key(backend)
    }

    /// Whether a local backend's file system is so full that what is to be removed later goes now.
    pub(crate) fn is_full(&self, backend: &str) -> bool {
        let refuses = self.reserves.backends.get(backend).is_some_and(|reserve| reserve.refuses());
        let figures = self.directories.get(backend).and_then(|path| statvfs(path).ok());
        refuses
            || figures.is_some_and(|figures| {
                figures.f_bavail < figures.f_blocks.min(blocks_of(FULL_BYTES * 16, &figures)) / 16
            })
    }

    /// Bytes that are left to us in a local backend's file system; `None` for a backend that lies
    /// elsewhere and says itself when it is full.
    pub(crate) fn free_bytes(&self, backend: &str) -> Option<u64> {
        free_bytes_at(self.directories.get(backend)?).ok()
    }

    /// Refuses an upload before its body comes when a disk that it needs is full.
    ///
    /// # Errors
    /// [`EngineError::Full`].
    pub(crate) async fn admit_upload(&self, backend: &str) -> Result<(), EngineError> {
        self.reserves.admit(backend).await
    }
}

/// Bytes that are left to us in the file system that a path is on.
///
/// # Errors
/// What the system says.
pub fn free_bytes_at(path: &Path) -> io::Result<u64> {
    let figures = statvfs(path)?;
    Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
}

fn blocks_of(bytes: u64, figures: &StatVfs) -> u64 {
    bytes / figures.f_frsize.max(1)
}

fn bytes_of(figures: &StatVfs, blocks: u64) -> i64 {
    i64::try_from(blocks.saturating_mul(figures.f_frsize)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_a_size_and_no_more_free_than_that() {
        let figures = statvfs(std::env::temp_dir().as_path()).unwrap();
        let (size, free) = (bytes_of(&figures, figures.f_blocks), bytes_of(&figures, figures.f_bavail));
        assert!(size > 0 && (0..=size).contains(&free), "{free} of {size}");
    }
}
