//! Bytes that arrive more slowly than memory can wait for: a segment that finds no place in the
//! budget is filled in a file.
//!
//! Such a file has no name, lies in the data directory, and is sealed under a key that only this
//! process's memory has (docs/decisions/0007-no-spool.md).
//!
//! Spooling has a thread of its own. A thousand bodies that come slowly would otherwise take a
//! thread each from those that the catalog and the backends wait on; and the buffers that segments
//! come back in would lie in as many parts of the allocator's memory, each of which keeps what it
//! once needed.

use crate::{
    deployment::keyring::random,
    error::EngineError,
    metrics::Metrics,
    resources::{
        budget::Arriving,
        buffers::{Shelf, lent},
        pool::{CodecPool, PoolKind},
    },
};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::Bytes;
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::time::Instant;

/// Bytes of a tag.
const TAG_LEN: usize = 16;
/// What a segment has room for at first, and the least by which it grows.
const ROOM_MIN: usize = 128 << 10;
/// By how much the room of a segment grows that fills slowly.
const ROOM_GROWTH: usize = 4;
/// A segment that fills as fast gets its whole room at once: it needs it within a second.
const FAST_BYTES_PER_SECOND: u64 = 4 << 20;
/// How much must have come before that is judged: a few bytes may have waited in the socket.
const FAST_BYTES_MIN: usize = 512 << 10;

/// Where bodies wait on disk.
pub(crate) struct Spool {
    directory: PathBuf,
    bytes_max: u64,
    used: AtomicU64,
    thread: CodecPool,
    metrics: Arc<Metrics>,
}

impl Spool {
    /// # Errors
    /// [`EngineError::Other`] when its thread cannot be started.
    pub(crate) fn new(directory: &Path, bytes_max: u64, metrics: Arc<Metrics>) -> Result<Self, EngineError> {
        let gauge = |state: &str, bytes: i64| metrics.spool_bytes.with_label_values(&[state]).set(bytes);
        gauge("limit", i64::try_from(bytes_max).unwrap_or(i64::MAX));
        gauge("used", 0);
        let thread = CodecPool::new(1, PoolKind::Spool, &metrics)?;
        Ok(Self { directory: directory.to_owned(), bytes_max, used: AtomicU64::new(0), thread, metrics })
    }

    /// Does `work` on the spool's thread.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        self.thread.run(move |_| work()).await?.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::Full,
            _ => EngineError::Unavailable(format!("a body cannot be spooled: {error}")),
        })
    }

    fn take(&self, bytes: u64) -> Result<(), EngineError> {
        let fits = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map_err(|_| EngineError::Busy("spool"))?;
        self.metrics.spool_bytes.with_label_values(&["used"]).add(i64::try_from(bytes).unwrap_or(i64::MAX));
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.metrics.spool_bytes.with_label_values(&["used"]).sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

/// The bytes of a segment that have come so far.
///
/// The room they have in memory is charged, not their number: pages to which nothing was written
/// yet hold memory too, where another segment lay in them before.
pub(crate) struct Arrived {
    len: usize,
    len_max: usize,
    began: Option<Instant>,
    held: Held,
    /// Where a segment that comes fast finds its buffer.
    shelf: Arc<Shelf>,
}

enum Held {
    /// With the place that they take in the budget.
    Memory {
        plain: Vec<u8>,
        place: Arriving,
    },
    File(SpoolFile),
}

impl Arrived {
    /// None yet, of at most `len_max`.
    pub(crate) fn new(len_max: usize, place: Arriving, shelf: Arc<Shelf>) -> Self {
        Self { len: 0, len_max, began: None, held: Held::Memory { plain: Vec::new(), place }, shelf }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// [`EngineError::Busy`] when the spool is full too; [`EngineError::Full`] when its disk is.
    pub(crate) async fn push(&mut self, piece: Bytes, spool: &Arc<Spool>) -> Result<(), EngineError> {
        if piece.is_empty() {
            return Ok(());
        }
        let began = *self.began.get_or_insert_with(Instant::now);
        self.len += piece.len();
        match &mut self.held {
            Held::Memory { plain, place } => {
                if has_room(plain, place, (self.len, self.len_max, began), &self.shelf) {
                    plain.extend_from_slice(&piece);
                    return Ok(());
                }
                let mut file = Box::pin(SpoolFile::open(spool.clone())).await?;
                if !plain.is_empty() {
                    Box::pin(file.append(std::mem::take(plain))).await?;
                }
                place.clear();
                Box::pin(file.append(piece.to_vec())).await?;
                self.held = Held::File(file);
                Ok(())
            }
            Held::File(file) => Box::pin(file.append(piece.to_vec())).await,
        }
    }

    /// All of them, in memory. Whoever calls this holds a permit for them. The buffer of a whole
    /// segment goes back to the shelf after the last reader.
    pub(crate) async fn into_memory(self) -> Result<Bytes, EngineError> {
        let plain = match self.held {
            Held::Memory { mut plain, .. } => {
                // The permit is for what has come.
                if plain.capacity() - plain.len() > ROOM_MIN {
                    plain.shrink_to_fit();
                }
                plain
            }
            Held::File(file) => Box::pin(file.read()).await?,
        };
        Ok(lent(plain, None, &self.shelf))
    }
}

/// Makes room for `len` bytes, unless there is no place for it in the budget.
fn has_room(
    plain: &mut Vec<u8>,
    place: &mut Arriving,
    (len, len_max, began): (usize, usize, Instant),
    shelf: &Shelf,
) -> bool {
    if len <= plain.capacity() {
        return true;
    }
    let is_fast =
        len > FAST_BYTES_MIN && len as u64 >= FAST_BYTES_PER_SECOND * began.elapsed().as_millis() as u64 / 1000;
    let least = len.next_multiple_of(ROOM_MIN);
    let wanted = if is_fast { len_max } else { plain.capacity() * ROOM_GROWTH };
    // Twice at least: what has come is copied with every growth.
    let rooms = [wanted, plain.capacity() * 2].map(|room| room.max(least).min(len_max.max(len)));
    let Some(room) = rooms.into_iter().find(|room| place.grow_to(*room as u64)) else { return false };
    match shelf.take_kept(room) {
        Some(mut kept) => {
            kept.clear();
            kept.extend_from_slice(plain);
            *plain = kept;
        }
        None => plain.reserve_exact(room - plain.len()),
    }
    true
}

/// A file without a name, of sealed chunks.
struct SpoolFile {
    spool: Arc<Spool>,
    file: Arc<File>,
    key: Arc<LessSafeKey>,
    /// Plain bytes of each chunk.
    chunks: Vec<usize>,
    stored_len: u64,
}

impl SpoolFile {
    async fn open(spool: Arc<Spool>) -> Result<Self, EngineError> {
        let key = UnboundKey::new(&AES_256_GCM, &random::<32>()?);
        let key = key.map_err(|_| EngineError::Other("a spool file has no key".into()))?;
        let directory = spool.directory.clone();
        let file = spool.run(move || unnamed_file(&directory)).await?;
        let key = Arc::new(LessSafeKey::new(key));
        Ok(Self { spool, file: Arc::new(file), key, chunks: Vec::new(), stored_len: 0 })
    }

    async fn append(&mut self, mut chunk: Vec<u8>) -> Result<(), EngineError> {
        let stored = (chunk.len() + TAG_LEN) as u64;
        self.spool.take(stored)?;
        let (number, at) = (self.chunks.len(), self.stored_len);
        self.chunks.push(chunk.len());
        self.stored_len += stored;
        let (file, key) = (self.file.clone(), self.key.clone());
        let work = move || {
            chunk.reserve_exact(TAG_LEN);
            key.seal_in_place_append_tag(nonce(number), Aad::empty(), &mut chunk).map_err(io::Error::other)?;
            file.write_all_at(&chunk, at)
        };
        self.spool.run(work).await
    }

    async fn read(self) -> Result<Vec<u8>, EngineError> {
        let (file, key, chunks) = (self.file.clone(), self.key.clone(), self.chunks.clone());
        let work = move || {
            let mut plain = Vec::with_capacity(chunks.iter().sum());
            let (mut at, mut chunk) = (0, Vec::new());
            for (number, len) in chunks.into_iter().enumerate() {
                chunk.resize(len + TAG_LEN, 0);
                file.read_exact_at(&mut chunk, at)?;
                at += chunk.len() as u64;
                let opened = key.open_in_place(nonce(number), Aad::empty(), &mut chunk);
                plain.extend_from_slice(opened.map_err(|_| io::Error::other("a spool file was changed"))?);
            }
            Ok(plain)
        };
        self.spool.run(work).await
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        self.spool.give_back(self.stored_len);
    }
}

/// No two chunks of a file have the same; each file has a key of its own.
fn nonce(number: usize) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&(number as u64).to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn unnamed_file(directory: &Path) -> io::Result<File> {
    let options = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600).custom_flags(flags);
        options
    };
    let tmpfile = i32::try_from(rustix::fs::OFlags::TMPFILE.bits()).map_err(io::Error::other)?;
    match options(tmpfile).open(directory) {
        Err(error) if matches!(error.raw_os_error(), Some(code) if code == rustix::io::Errno::OPNOTSUPP.raw_os_error()) =>
        {
            let random: [u8; 8] = random().map_err(|error| io::Error::other(error.to_string()))?;
            let path = directory.join(format!("spool-{}", hex::encode(random)));
            let file = options(0).create_new(true).open(&path)?;
            std::fs::remove_file(path)?;
            Ok(file)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::budget::MemoryBudget;

    #[tokio::test]
    async fn what_finds_no_place_in_memory_comes_back_from_a_sealed_file() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = Metrics::new();
        let spool = Arc::new(Spool::new(dir.path(), 1 << 20, metrics.clone()).unwrap());
        // Nothing was set aside for arriving bytes.
        let budget = MemoryBudget::new(64 << 20, metrics.clone());
        let mut arrived = Arrived::new(300_000, budget.arriving(), Arc::default());
        let piece = |byte: u8| Bytes::from(vec![byte; 100_000]);
        for byte in 1..=3 {
            arrived.push(piece(byte), &spool).await.unwrap();
        }
        let Held::File(file) = &arrived.held else { panic!("it is in memory") };
        let mut stored = vec![0; 300_000];
        file.file.read_exact_at(&mut stored, 0).unwrap();
        assert!(!stored.windows(16).any(|window| window == [1; 16]), "it lies there in the clear");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it has no name");
        assert_eq!(metrics.spool_bytes.with_label_values(&["used"]).get(), 300_048);
        let plain = arrived.into_memory().await.unwrap();
        assert!(plain.chunks(100_000).zip(1..).all(|(chunk, byte)| chunk.iter().all(|found| *found == byte)));
        assert_eq!((plain.len(), metrics.spool_bytes.with_label_values(&["used"]).get()), (300_000, 0));
    }

    #[tokio::test]
    async fn a_spool_has_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Spool::new(dir.path(), 1000, Metrics::new()).unwrap());
        let budget = MemoryBudget::new(64 << 20, Metrics::new());
        let mut arrived = Arrived::new(2000, budget.arriving(), Arc::default());
        arrived.push(Bytes::from(vec![1; 900]), &spool).await.unwrap();
        let refused = arrived.push(Bytes::from(vec![1; 900]), &spool).await.unwrap_err();
        assert!(matches!(refused, EngineError::Busy("spool")), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_segment_has_no_more_room_in_memory_than_it_is_charged_for() {
        const LEN: usize = 4 << 20;
        let dir = tempfile::tempdir().unwrap();
        for (piece_ms, growths) in [(1000, 4), (0, 3)] {
            let metrics = Metrics::new();
            let used = || metrics.memory_budget_bytes.with_label_values(&["used"]).get() as usize;
            let spool = Arc::new(Spool::new(dir.path(), 1 << 30, metrics.clone()).unwrap());
            let budget = MemoryBudget::new(64 << 20, metrics.clone());
            budget.divide(0);
            let mut arrived = Arrived::new(LEN, budget.arriving(), Arc::default());
            let mut rooms = std::collections::BTreeSet::new();
            while arrived.len() < LEN {
                arrived
                    .push(Bytes::from_static(&[7; 8000]).slice(..8000.min(LEN - arrived.len())), &spool)
                    .await
                    .unwrap();
                let Held::Memory { plain, .. } = &arrived.held else { panic!("it is spooled") };
                assert!(plain.capacity() <= used(), "{} of {} charged", plain.capacity(), used());
                rooms.insert(plain.capacity());
                tokio::time::advance(std::time::Duration::from_millis(piece_ms)).await;
            }
            assert_eq!(rooms.len(), growths, "{rooms:?}");
            assert_eq!(rooms.last(), Some(&LEN));
            let plain = arrived.into_memory().await.unwrap();
            assert!(plain.len() == LEN && plain.iter().all(|byte| *byte == 7));
        }
    }

    #[tokio::test]
    async fn a_segment_that_comes_fast_lies_in_the_buffer_of_the_one_before() {
        const LEN: usize = 4 << 20;
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Spool::new(dir.path(), 1 << 30, Metrics::new()).unwrap());
        let budget = MemoryBudget::new(64 << 20, Metrics::new());
        budget.divide(0);
        let shelf = Arc::<Shelf>::default();
        shelf.keep(1);
        let arrives = async |byte: u8| {
            let mut arrived = Arrived::new(LEN, budget.arriving(), shelf.clone());
            for _ in 0..16 {
                arrived.push(vec![byte; LEN / 16].into(), &spool).await.unwrap();
            }
            arrived.into_memory().await.unwrap()
        };
        let first = arrives(1).await;
        let place = first.as_ptr();
        let reader = first.clone();
        drop(first);
        assert_eq!(shelf.bytes(), 0, "somebody reads it");
        drop(reader);
        assert_eq!(shelf.bytes(), LEN as u64);
        let second = arrives(2).await;
        assert_eq!((second.as_ptr(), shelf.bytes()), (place, 0));
        assert!(second.len() == LEN && second.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn bodies_are_spooled_while_every_thread_that_others_may_wait_on_is_taken() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_time().build().unwrap();
        let (free, taken) = std::sync::mpsc::channel::<()>();
        let waits = runtime.spawn_blocking(move || taken.recv());
        let plain = runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let spool = Arc::new(Spool::new(dir.path(), 1 << 20, Metrics::new()).unwrap());
            let budget = MemoryBudget::new(64 << 20, Metrics::new());
            let body = async {
                let mut arrived = Arrived::new(2000, budget.arriving(), Arc::default());
                arrived.push(Bytes::from(vec![1; 900]), &spool).await.unwrap();
                arrived.into_memory().await.unwrap()
            };
            tokio::time::timeout(std::time::Duration::from_secs(60), body).await
        });
        drop(free);
        assert!(runtime.block_on(waits).unwrap().is_err(), "it waited all the while");
        assert_eq!(plain.expect("nobody else's thread was waited for"), [1; 900].as_slice());
    }
}
