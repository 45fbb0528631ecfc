//! Space for the moment when a disk is full: a reserve that is given back to those who make space,
//! and a guard that stops uploads before the last bytes go.
//!
//! ```text
//! free space   …──────────────┬─ guard (8 MiB, 128 inodes) ─┬─ reserve (16 MiB in 64 files) ─┐
//! uploads      go on          │ refused                     │ refused                        │
//! catalog, journal, deletes   go on ────────────────────────┴ go on: the reserve is removed ─┘
//! ```
//!
//! A deletion needs space before it frees any: a row in the catalog's log, an entry in the journal.
//! So the reserve is kept for them, in files of its own: removing those gives bytes *and* inodes.
//! It is given back a slice at a time, because whatever else fills the disk takes what is free, and
//! made again when there is room for it and for the guard.

use crate::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, PutReceipt, Result};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use rustix::fs::{FallocateFlags, Mode, OFlags, StatVfs, fallocate, statvfs};
use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Files of a reserve: each gives an inode back besides its bytes.
const FILES: u64 = 64;
/// Files that are given back at a time: 1 MiB, and the inodes of one blob whose directories are
/// new.
const SLICE_FILES: usize = 4;
/// Uploads are refused while less than this is free.
const GUARD_BYTES: u64 = 8 << 20;
/// And while fewer inodes are free; at most a sixteenth of those that there are.
const GUARD_INODES: u64 = 128;
/// With less than this nothing can be written: the reserve is given back.
const EXHAUSTED_BYTES: u64 = 1 << 20;
const EXHAUSTED_INODES: u64 = 8;
/// Free space is asked for this often, and more often when it runs out.
const MEASURED_EVERY: Duration = Duration::from_secs(1);
/// A stream of bytes asks before each so many.
const ASKED_EVERY: u64 = 1 << 20;

/// What is free where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    bytes: u64,
    /// `None` where a file system makes inodes as it needs them.
    inodes: Option<u64>,
    inodes_in_all: u64,
}

impl Room {
    /// `None` when the file system does not say: then nothing is refused because of it.
    fn of(path: &Path) -> Option<Self> {
        let figures: StatVfs = statvfs(path).ok()?;
        Some(Self {
            bytes: figures.f_bavail.saturating_mul(figures.f_frsize),
            inodes: (figures.f_files > 0).then_some(figures.f_favail),
            inodes_in_all: figures.f_files,
        })
    }

    /// Whether so many bytes and inodes fit and the guard stays.
    fn holds(&self, bytes: u64, inodes: u64) -> bool {
        let guard = GUARD_INODES.min(self.inodes_in_all / 16);
        self.bytes >= bytes.saturating_add(GUARD_BYTES) && self.inodes.is_none_or(|free| free >= inodes + guard)
    }

    fn is_exhausted(&self) -> bool {
        self.bytes < EXHAUSTED_BYTES || self.inodes.is_some_and(|free| free < EXHAUSTED_INODES)
    }
}

/// The reserve of one file system.
pub struct Reserve {
    /// Any directory of the file system.
    root: PathBuf,
    /// The directory of the reserve's files; nothing else lies in it.
    folder: PathBuf,
    bytes: u64,
    spent: AtomicBool,
    /// Whether an upload was refused at the last look.
    refuses: AtomicBool,
    /// What was free when, and what was let in since.
    measured: Mutex<Option<(Instant, Room, u64)>>,
    /// One change at a time.
    changing: Mutex<()>,
}

impl Reserve {
    /// A reserve of `bytes` in files below `root`, which need not exist yet. Writes nothing; what
    /// an earlier process made counts, and is removed at once when the disk is so full that nothing
    /// could be written.
    pub fn open(root: &Path, bytes: u64) -> Self {
        let folder = root.join("+reserve");
        let held = held_bytes(&folder);
        let reserve = Self {
            root: root.to_owned(),
            folder,
            bytes,
            spent: AtomicBool::new(held < bytes),
            refuses: AtomicBool::new(false),
            measured: Mutex::default(),
            changing: Mutex::default(),
        };
        reserve.relieve();
        reserve
    }

    /// Bytes it is to hold.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are there now.
    pub fn held(&self) -> u64 {
        held_bytes(&self.folder)
    }

    /// Whether some of it was given back, or it was never made: what is free is for those who make
    /// space.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Acquire)
    }

    /// Whether uploads are refused, as far as the last look tells.
    pub fn refuses(&self) -> bool {
        self.is_spent() || self.refuses.load(Ordering::Relaxed)
    }

    /// Gives a slice of it to the file system. True when there was one. Blocks.
    pub fn give_back(&self) -> bool {
        let _one = self.change();
        if !self.spent.swap(true, Ordering::AcqRel) {
            tracing::warn!(root = %self.root.display(), "the disk is full: its reserve is used, uploads are refused");
        }
        let gave = remove_slice(&self.folder);
        if !gave {
            tracing::error!(root = %self.root.display(), "the disk is full, and nothing is left of its reserve");
        }
        gave
    }

    /// Gives a slice back when next to nothing else is free. Blocks.
    pub fn relieve(&self) {
        if Room::of(&self.root).is_some_and(|room| room.is_exhausted()) && self.held() > 0 {
            self.give_back();
        }
    }

    /// Makes the reserve when there is room for it. True when it is there. Blocks.
    pub fn make(&self) -> bool {
        let _one = self.change();
        // What an interrupted attempt left is part of it; another process on the same disk may have
        // given it back.
        let held = held_bytes(&self.folder);
        if held >= self.bytes {
            self.spent.store(false, Ordering::Release);
            return true;
        }
        self.spent.store(true, Ordering::Release);
        let Some(room) = Room::of(&self.root) else { return false };
        if !room.holds(self.bytes.saturating_sub(held), FILES) {
            return false;
        }
        if let Err(error) = make_files(&self.folder, self.bytes) {
            tracing::warn!(%error, root = %self.root.display(), "a disk's reserve could not be made");
            return false;
        }
        self.spent.store(false, Ordering::Release);
        tracing::info!(root = %self.root.display(), bytes = self.bytes, "the disk's reserve is in place");
        true
    }

    /// Whether an upload may take `bytes` more. Looks at the file system once a second, and each
    /// time when it is nearly full.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] when it may not.
    pub async fn admit(self: &Arc<Self>, bytes: u64) -> Result<()> {
        if !self.is_spent() && self.admits_without_a_look(bytes) {
            return Ok(());
        }
        let reserve = self.clone();
        let admitted = tokio::task::spawn_blocking(move || reserve.look(bytes)).await;
        match admitted {
            Ok(true) => Ok(()),
            Ok(false) => Err(full()),
            Err(error) => Err(BackendError::with_source(ErrorKind::Other, "disk work was cut off", error)),
        }
    }

    fn admits_without_a_look(&self, bytes: u64) -> bool {
        let mut measured = self.measured();
        let Some((at, room, taken)) = measured.as_mut() else { return false };
        *taken = taken.saturating_add(bytes);
        at.elapsed() < MEASURED_EVERY && room.holds(taken.saturating_add(7 * GUARD_BYTES), taken.div_ceil(4096))
    }

    fn look(&self, bytes: u64) -> bool {
        let made = self.make();
        let room = Room::of(&self.root);
        *self.measured() = room.map(|room| (Instant::now(), room, bytes));
        // How short a delta will be, nobody knows: what an upload takes is asked for as it comes.
        let admits = made && room.is_none_or(|room| room.holds(0, 0));
        self.refuses.store(!admits, Ordering::Relaxed);
        admits
    }

    fn measured(&self) -> MutexGuard<'_, Option<(Instant, Room, u64)>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full() -> BackendError {
    BackendError::new(ErrorKind::Full, "the disk is full but for what deletions need")
}

fn held_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|file| file.len()).sum()
}

/// True when something was removed.
fn remove_slice(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let files = entries.filter_map(io::Result::ok).take(SLICE_FILES);
    let removed = files.filter(|entry| std::fs::remove_file(entry.path()).is_ok()).count();
    // A journaling file system hands freed blocks out when the removal is in its journal.
    if let Err(error) = File::open(folder).and_then(|folder| folder.sync_all()) {
        tracing::debug!(%error, "the removal of a reserve was not flushed");
    }
    removed > 0
}

fn make_files(folder: &Path, bytes: u64) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for number in 0..FILES {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = folder.join(format!("{number:02}"));
        let mut file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        let len = bytes / FILES;
        use rustix::io::Errno;
        match fallocate(&file, FallocateFlags::empty(), 0, len) {
            Ok(()) => {}
            // Not zeros: a file system that compresses would keep nothing for them.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let mut noise = vec![0; usize::try_from(len).unwrap_or(0)];
                getrandom::fill(&mut noise).map_err(io::Error::other)?;
                file.write_all(&noise)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Says of a name whether its blob may take the last bytes: it belongs to what makes space, or to
/// what must not be lost.
pub type MayTakeTheLast = fn(&BlobName) -> bool;

/// A backend on a disk that can be full: blobs are refused before the last bytes go, and what may
/// take those gets the reserve.
pub struct Guarded<B> {
    inner: B,
    /// That of its own disk.
    own: Arc<Reserve>,
    /// That of another one that is needed too, such as the catalog's.
    other: Option<Arc<Reserve>>,
    may_take_the_last: MayTakeTheLast,
}

impl<B> Guarded<B> {
    /// Guards `inner`, which lies where `own` does.
    pub fn new(inner: B, own: Arc<Reserve>, other: Option<Arc<Reserve>>, may_take_the_last: MayTakeTheLast) -> Self {
        let other = other.filter(|other| !Arc::ptr_eq(other, &own));
        Self { inner, own, other, may_take_the_last }
    }
}

#[async_trait]
impl<B: Backend> Backend for Guarded<B> {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let own = self.own.clone();
        if (self.may_take_the_last)(name) {
            let cut_off = |error| BackendError::with_source(ErrorKind::Other, "disk work was cut off", error);
            let before = own.clone();
            tokio::task::spawn_blocking(move || before.relieve()).await.map_err(cut_off)?;
            let stored = self.inner.put(name, body, len).await;
            if stored.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full) {
                // Its body is consumed: the caller repeats it, and then there is space.
                tokio::task::spawn_blocking(move || own.give_back()).await.map_err(cut_off)?;
            }
            return stored;
        }
        own.admit(len.unwrap_or(0)).await?;
        if let Some(other) = &self.other {
            other.admit(0).await?;
        }
        let mut unasked = 0;
        let refused = Arc::new(AtomicBool::new(false));
        let refusal = refused.clone();
        let watched = body.and_then(move |piece: Bytes| {
            unasked += piece.len() as u64;
            let ask = (len.is_none() && unasked >= ASKED_EVERY).then(|| std::mem::take(&mut unasked));
            let (own, refusal) = (own.clone(), refusal.clone());
            async move {
                if let Some(bytes) = ask {
                    let admitted = own.admit(bytes).await;
                    refusal.store(admitted.is_err(), Ordering::Relaxed);
                    admitted?;
                }
                Ok(piece)
            }
        });
        let stored = self.inner.put(name, watched.boxed(), len).await;
        stored.map_err(|error| match error.kind() {
            // The disk failed, not the caller's body, although it was said through the body.
            ErrorKind::Body if refused.load(Ordering::Relaxed) => full(),
            _ => error,
        })
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        self.inner.get(name, range).await
    }

    fn head_at_once(&self, name: &BlobName) -> Option<Result<Option<u64>>> {
        self.inner.head_at_once(name)
    }

    fn request_len(&self) -> u32 {
        self.inner.request_len()
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        self.inner.head(name).await
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.inner.delete(name).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        self.inner.list(prefix)
    }

    async fn probe(&self) -> Result<()> {
        self.inner.probe().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryBackend, put_bytes};

    const MIB: u64 = 1 << 20;

    fn room(bytes: u64, inodes: Option<u64>) -> Room {
        Room { bytes, inodes, inodes_in_all: 1 << 20 }
    }

    #[test]
    fn a_reserve_takes_its_bytes_and_gives_them_back_and_an_opened_one_knows_what_there_is() {
        let root = tempfile::tempdir().unwrap();
        let reserve = Reserve::open(root.path(), 16 * MIB);
        assert!(reserve.is_spent() && reserve.refuses());
        assert!(reserve.make() && !reserve.is_spent());
        assert_eq!(held_bytes(&reserve.folder), 16 * MIB);
        assert_eq!(std::fs::read_dir(&reserve.folder).unwrap().count() as u64, FILES);
        let again = Reserve::open(root.path(), 16 * MIB);
        assert!(!again.is_spent());
        assert!(again.give_back() && again.is_spent());
        assert_eq!(again.held(), 15 * MIB, "a slice at a time");
        assert_eq!((0..).take_while(|_| again.give_back()).count(), 15);
        assert_eq!(again.held(), 0);
        assert!(again.make() && !again.is_spent());
    }

    #[test]
    fn bytes_and_inodes_both_run_out() {
        assert!(room(9 * MIB, None).holds(0, 0) && !room(7 * MIB, None).holds(0, 0));
        assert!(!room(24 * MIB, Some(1000)).holds(17 * MIB, 0));
        assert!(room(24 * MIB, Some(128)).holds(0, 0) && !room(24 * MIB, Some(127)).holds(0, 0));
        assert!(room(0, None).is_exhausted() && room(24 * MIB, Some(7)).is_exhausted());
        assert!(!room(24 * MIB, Some(8)).is_exhausted());
        let few = Room { inodes_in_all: 320, ..room(24 * MIB, Some(20)) };
        assert!(few.holds(0, 0) && !few.holds(0, 1), "a small file system keeps a sixteenth");
    }

    #[tokio::test]
    async fn what_may_take_the_last_goes_where_an_upload_is_refused() {
        let name = |name: &str| BlobName::new(name).unwrap();
        // No disk has room for this reserve: it stays spent.
        let root = tempfile::tempdir().unwrap();
        let full = Arc::new(Reserve::open(root.path(), u64::MAX / 2));
        let guarded =
            Guarded::new(MemoryBackend::new(), full, None, |name: &BlobName| name.as_str().starts_with("journal/"));
        let refused = put_bytes(&guarded, &name("blobs/abcd"), Bytes::from_static(b"x")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full);
        put_bytes(&guarded, &name("journal/abcd"), Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(guarded.head(&name("journal/abcd")).await.unwrap(), Some(1));
        assert_eq!(guarded.head(&name("blobs/abcd")).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_disk_that_fills_up_under_a_body_is_full_and_no_failed_body() {
        let root = tempfile::tempdir().unwrap();
        let reserve = Arc::new(Reserve::open(root.path(), MIB));
        let guarded = Guarded::new(MemoryBackend::new(), reserve.clone(), None, |_| false);
        let filled = futures::stream::once(async move {
            while reserve.give_back() {}
            // Nothing can be reserved any more.
            std::fs::remove_dir_all(&reserve.folder).unwrap();
            std::fs::write(&reserve.folder, b"").unwrap();
            Ok(Bytes::from(vec![0; usize::try_from(ASKED_EVERY).unwrap()]))
        });
        let name = BlobName::new("blobs/abcd").unwrap();
        let refused = guarded.put(&name, filled.boxed(), None).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
        let broken = futures::stream::once(async { Err(BackendError::new(ErrorKind::Body, "gone")) });
        let refused = guarded.put(&name, broken.boxed(), Some(1)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full, "before the body is asked for anything");
    }
}
