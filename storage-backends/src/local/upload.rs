//! The path of a `put`: batches, the temporary file, the durable name.

use super::{
    disk::Disk,
    layout,
    store::{Store, blocking, disk_error, finished},
};
use crate::{
    BackendError, BlobName, ByteStream, ErrorKind, PutReceipt, Result,
    batches::{Batch, Batches},
};
use bytes::Bytes;
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::task::JoinHandle;

/// Stores `body` as the blob `name`, durably, in the order of I9.
pub(super) async fn put(store: &Arc<Store>, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
    let mut batches = Batches::eager(body, BATCH_BYTES, len);
    let mut writing: Option<JoinHandle<Result<Temp>>> = None;
    loop {
        // The previous batch is being written while this one arrives.
        let batch = batches.next().await?;
        let temp = match writing.take() {
            Some(writing) => Some(finished(writing.await)?),
            None => None,
        };
        let (store, name) = (store.clone(), name.clone());
        if batch.is_last {
            let published = blocking(move || append(&store, temp, batch)?.publish(&store, name)).await?;
            return Ok(published.keep());
        }
        writing = Some(tokio::task::spawn_blocking(move || append(&store, temp, batch)));
    }
}

/// Writes, reads back and removes a few bytes.
pub(super) fn probe(store: &Arc<Store>) -> Result<()> {
    let temp = append(store, None, Batch { pieces: vec![Bytes::from_static(PROBE)], ..Batch::default() })?;
    let read =
        store.disk.read_at(&temp.0.file, 0, PROBE.len()).map_err(|error| disk_error("read", &"a probe", error))?;
    if read == PROBE { Ok(()) } else { Err(BackendError::new(ErrorKind::Corrupt, "a probe was not read as written")) }
}

/// Whether a file that has no name yet can be given one here.
pub(super) fn links_unnamed_files(store: &Store) -> bool {
    let Ok(path) = temp_path() else { return false };
    let tried = store.disk.create_unnamed().and_then(|file| store.disk.link(&file, &path));
    tried.is_ok() && store.disk.unlink(&path).is_ok()
}

/// A fresh path for a temporary file.
pub(super) fn temp_path() -> Result<PathBuf> {
    let random = getrandom::u64()
        .map_err(|error| BackendError::with_source(ErrorKind::Other, "the OS gives no random numbers", error))?;
    Ok(Path::new(layout::TEMP_DIR).join(format!("{random:016x}")))
}

/// Writes a batch at the end of the temporary file, which is made for the first one.
fn append(store: &Arc<Store>, temp: Option<Temp>, batch: Batch) -> Result<Temp> {
    let mut temp = match temp {
        Some(temp) => temp,
        None => Temp::create(store)?,
    };
    let file = &mut temp.0;
    store.disk.write_at(&file.file, &batch.pieces, file.len).map_err(|error| disk_error("write", &"a blob", error))?;
    file.len += batch.len;
    Ok(temp)
}

/// A file that is not a blob yet. Dropping it removes it, on the blocking pool: freeing gigabytes
/// takes a while.
struct Temp(OnPool<TempFile>);

struct TempFile {
    disk: Arc<dyn Disk>,
    file: File,
    /// Its temporary name, when it has one.
    path: Option<PathBuf>,
    len: u64,
}

impl Temp {
    fn create(store: &Store) -> Result<Self> {
        let path = if store.has_unnamed_files { None } else { Some(temp_path()?) };
        let file = match &path {
            None => store.disk.create_unnamed(),
            Some(path) => store.disk.create_named(path),
        }
        .map_err(|error| disk_error("make", &"a temporary file", error))?;
        Ok(Self(OnPool::new(TempFile { disk: store.disk.clone(), file, path, len: 0 })))
    }

    /// Makes the file durable, then its name, and only then reports it. A failed sync is not tried
    /// again, since the kernel may have dropped the pages: the file goes and the upload fails.
    fn publish(mut self, store: &Store, name: BlobName) -> Result<NamedFile> {
        let place = layout::place(&name);
        let temp = &mut *self.0;
        if store.options.sync {
            store.disk.sync_file(&temp.file).map_err(|error| disk_error("sync", &name, error))?;
        }
        store.ensure_dir(&place.dir).map_err(|error| disk_error("make the directory of", &name, error))?;
        match temp.name(&place.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                store.restore_dir(&place.dir).and_then(|()| temp.name(&place.file))
            }
            result => result,
        }
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => BackendError::new(ErrorKind::Corrupt, format!("{name} exists already")),
            _ => disk_error("name", &name, error),
        })?;
        temp.path = None;
        let published = NamedFile(OnPool::new(Unpublish {
            disk: store.disk.clone(),
            file: Some(place.file),
            stored_len: temp.len,
        }));
        // On failure `published` is dropped, and with it the name.
        store.sync_dir(&place.dir).map_err(|error| disk_error("sync the directory of", &name, error))?;
        Ok(published)
    }
}

impl TempFile {
    fn name(&self, to: &Path) -> io::Result<()> {
        match &self.path {
            None => self.disk.link(&self.file, to),
            Some(path) => self.disk.rename(path, to),
        }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = self.disk.unlink(path)
        {
            tracing::warn!(%error, path = %path.display(), "a temporary file stays until the next start");
        }
    }
}

/// A named blob that nobody has been told about. Dropping it, because the directory could not be
/// synced or because the caller went away, removes the name again.
struct NamedFile(OnPool<Unpublish>);

struct Unpublish {
    disk: Arc<dyn Disk>,
    /// `None` once the blob is the caller's.
    file: Option<PathBuf>,
    stored_len: u64,
}

impl NamedFile {
    fn keep(mut self) -> PutReceipt {
        self.0.file = None;
        PutReceipt { stored_len: self.0.stored_len }
    }
}

impl Drop for Unpublish {
    fn drop(&mut self) {
        if let Some(file) = &self.file
            && let Err(error) = self.disk.unlink(file)
        {
            tracing::warn!(%error, path = %file.display(), "an unacknowledged blob stays; garbage collection removes it");
        }
    }
}

/// A value whose drop blocks, and therefore happens on the blocking pool wherever there is one.
struct OnPool<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> OnPool<T> {
    fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: Send + 'static> std::ops::Deref for OnPool<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("the value is taken by drop alone")
    }
}

impl<T: Send + 'static> std::ops::DerefMut for OnPool<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the value is taken by drop alone")
    }
}

impl<T: Send + 'static> Drop for OnPool<T> {
    fn drop(&mut self) {
        if let (Some(value), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            // A runtime that is shutting down drops the task instead, and with it the value: the
            // same, one thread earlier.
            drop(runtime.spawn_blocking(move || drop(value)));
        }
    }
}

/// One write: large enough for sequential speed, small enough that two of them per upload are
/// little memory.
const BATCH_BYTES: usize = 1 << 20;
const PROBE: &[u8] = b"deltaweir probe\n";
