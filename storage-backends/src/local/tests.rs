//! What the local backend promises beyond the conformance suite: order of its system calls, faults,
//! modes, left-overs.

use super::*;
use crate::{ErrorKind, body_of, collect, conformance, get_all, put_bytes};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use rustix::io::Errno;
use std::{
    ffi::OsString,
    fs::File,
    os::unix::fs::{MetadataExt, PermissionsExt},
    sync::atomic::{AtomicU64, Ordering},
};

/// The real disk, with every call noted and one kind of call failing on demand.
struct Watched {
    disk: Posix,
    calls: Mutex<Vec<&'static str>>,
    /// This call fails, and every one of its kind after it.
    fail: Mutex<Option<(&'static str, Errno)>>,
    fail_after: AtomicU64,
    no_unnamed_files: bool,
}

impl Watched {
    fn new(root: &Path) -> Arc<Self> {
        Arc::new(Self {
            disk: Posix::open(root).unwrap(),
            calls: Mutex::default(),
            fail: Mutex::default(),
            fail_after: AtomicU64::new(0),
            no_unnamed_files: false,
        })
    }

    fn without_unnamed_files(root: &Path) -> Arc<Self> {
        let watched = Arc::into_inner(Self::new(root)).unwrap();
        Arc::new(Self { no_unnamed_files: true, ..watched })
    }

    fn fail(&self, call: &'static str, errno: Errno, after: u64) {
        self.fail_after.store(after, Ordering::SeqCst);
        *self.fail.lock().unwrap() = Some((call, errno));
    }

    fn heal(&self) {
        *self.fail.lock().unwrap() = None;
    }

    fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn note(&self, call: &'static str) -> io::Result<()> {
        self.calls.lock().unwrap().push(call);
        match *self.fail.lock().unwrap() {
            Some((failing, errno)) if failing == call => {
                let counted =
                    self.fail_after.try_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if counted.is_ok() { Ok(()) } else { Err(errno.into()) }
            }
            _ => Ok(()),
        }
    }
}

impl Disk for Watched {
    fn create_unnamed(&self) -> io::Result<File> {
        if self.no_unnamed_files {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.note("create")?;
        self.disk.create_unnamed()
    }
    fn create_named(&self, path: &Path) -> io::Result<File> {
        self.note("create")?;
        self.disk.create_named(path)
    }
    fn write_at(&self, file: &File, pieces: &[Bytes], offset: u64) -> io::Result<()> {
        self.note("write")?;
        self.disk.write_at(file, pieces, offset)
    }
    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.note("sync file")?;
        self.disk.sync_file(file)
    }
    fn link(&self, file: &File, to: &Path) -> io::Result<()> {
        self.note("name")?;
        self.disk.link(file, to)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note("name")?;
        self.disk.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.note("sync dir")?;
        self.disk.sync_dir(dir)
    }
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.note("make dir")?;
        self.disk.make_dir(dir)
    }
    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        self.note("open")?;
        self.disk.open(path)
    }
    fn read_at(&self, file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.note("read")?;
        self.disk.read_at(file, offset, len)
    }
    fn stat(&self, path: &Path) -> io::Result<disk::Stat> {
        self.note("stat")?;
        self.disk.stat(path)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.note("unlink")?;
        self.disk.unlink(path)
    }
    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.remove_dir(dir)
    }
    fn entries(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.note("entries")?;
        self.disk.entries(dir)
    }
    fn is_left_over(&self, path: &Path) -> io::Result<bool> {
        self.disk.is_left_over(path)
    }
}

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn open(disk: &Arc<Watched>, sync: bool) -> LocalBackend {
    let backend = LocalBackend::open_on(disk.clone(), LocalOptions { sync }).unwrap();
    assert_eq!(backend.store.has_unnamed_files, !disk.no_unnamed_files, "the test's disk decides which way is taken");
    disk.take_calls();
    backend
}

fn both_ways(root: &Path) -> [Arc<Watched>; 2] {
    [Watched::new(&root.join("unnamed")), Watched::without_unnamed_files(&root.join("named"))]
}

/// Waits until work that dropped values do on the blocking pool has been done: until `done` holds.
async fn eventually(done: impl Fn() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await.expect("it happens in time");
}

fn temp_files(root: &Path) -> usize {
    std::fs::read_dir(root.join(TEMP_DIR)).unwrap().count()
}

#[tokio::test]
async fn the_local_backend_conforms() {
    let root = tempfile::tempdir().unwrap();
    for (i, sync) in [true, false].into_iter().enumerate() {
        let backend = LocalBackend::open(root.path().join(i.to_string()), LocalOptions { sync }).await.unwrap();
        let shared: Arc<dyn Backend> = Arc::new(backend);
        conformance::run(|| async { shared.clone() }, conformance::ALL_PROMISES).await;
    }
    let named: Arc<dyn Backend> = Arc::new(open(&Watched::without_unnamed_files(&root.path().join("named")), true));
    conformance::run(|| async { named.clone() }, conformance::ALL_PROMISES).await;
    eventually(|| temp_files(&root.path().join("named")) == 0).await;
}

/// I9: nothing is reported before file, directory and new directories are durable.
#[tokio::test]
async fn the_file_is_synced_before_it_has_a_name_and_its_directory_before_put_returns() {
    let root = tempfile::tempdir().unwrap();
    for disk in both_ways(root.path()) {
        let backend = open(&disk, true);
        put_bytes(&backend, &name("blobs/0abc"), Bytes::from_static(b"x")).await.unwrap();
        let first = [
            "create",
            "write",
            "sync file", // the bytes
            "make dir",
            "sync dir",
            "make dir",
            "sync dir",
            "make dir",
            "sync dir", // blobs/ +bc/ +a/, each in its parent
            "name",
            "sync dir",
        ];
        assert_eq!(disk.take_calls(), first);
        put_bytes(&backend, &name("blobs/1abc"), Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(disk.take_calls(), ["create", "write", "sync file", "name", "sync dir"]);
        backend.delete(&name("blobs/1abc")).await.unwrap();
        assert_eq!(disk.take_calls(), ["unlink", "sync dir"]);
    }
}

#[tokio::test]
async fn a_directory_made_by_an_earlier_process_is_synced_before_it_is_relied_on() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    put_bytes(&open(&disk, true), &name("a"), Bytes::new()).await.unwrap();
    let again = open(&disk, true);
    put_bytes(&again, &name("ba"), Bytes::new()).await.unwrap();
    assert_eq!(disk.take_calls().iter().filter(|call| **call == "sync dir").count(), 3);
}

#[tokio::test]
async fn without_sync_nothing_is_forced_to_the_medium() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    let backend = open(&disk, false);
    put_bytes(&backend, &name("a"), Bytes::from_static(b"x")).await.unwrap();
    backend.delete(&name("a")).await.unwrap();
    assert!(!disk.take_calls().iter().any(|call| call.starts_with("sync")));
}

/// Every call of a put fails once, in turn: an error, no visible blob, no left-over file, and a
/// working store afterwards.
#[tokio::test]
async fn a_put_with_any_failed_system_call_is_an_error_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    for (way, disk) in ["unnamed", "named"].into_iter().zip(both_ways(root.path())) {
        let backend = open(&disk, true);
        let mut case = 0;
        for (call, times) in
            [("create", 1), ("write", 3), ("sync file", 1), ("make dir", 3), ("name", 1), ("sync dir", 4)]
        {
            for after in 0..times {
                for errno in [Errno::IO, Errno::NOSPC] {
                    case += 1;
                    let name = name(&format!("fresh-{case}/{case:04x}"));
                    disk.fail(call, errno, after);
                    let body = stream::iter((0..3).map(|i| Ok(Bytes::from(vec![i; 1 << 20])))).boxed();
                    let error = backend.put(&name, body, None).await.expect_err(call);
                    let kind = if errno == Errno::NOSPC { ErrorKind::Full } else { ErrorKind::Other };
                    assert_eq!(error.kind(), kind, "{call} {after}: {error}");
                    disk.heal();
                    let place = layout::place(&name);
                    eventually(|| disk.disk.stat(&place.file).is_err()).await;
                    eventually(|| temp_files(&root.path().join(way)) == 0).await;
                    assert_eq!(backend.head(&name).await.unwrap(), None, "{call} {after}");
                    put_bytes(&backend, &name, Bytes::from_static(b"again")).await.unwrap();
                }
            }
        }
        assert_eq!(case, 26);
    }
}

#[tokio::test]
async fn a_disk_error_is_never_absence() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    let backend = open(&disk, true);
    let name = name("blobs/abcd");
    put_bytes(&backend, &name, Bytes::from(vec![1; 2 << 20])).await.unwrap();
    for errno in [Errno::IO, Errno::ACCESS, Errno::MFILE, Errno::LOOP, Errno::NOTDIR] {
        disk.fail("open", errno, 0);
        assert!(backend.get(&name, 0..1).await.is_err());
        disk.fail("stat", errno, 0);
        assert!(backend.head(&name).await.is_err());
        disk.fail("entries", errno, 0);
        assert!(backend.list("").try_collect::<Vec<_>>().await.is_err());
        disk.fail("unlink", errno, 0);
        assert!(backend.delete(&name).await.is_err());
    }
    disk.heal();
    assert_eq!(backend.head(&name).await.unwrap(), Some(2 << 20));
}

#[tokio::test]
async fn a_read_error_in_the_middle_is_an_error_not_an_end() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    let backend = open(&disk, true);
    let name = name("blobs/abcd");
    put_bytes(&backend, &name, Bytes::from(vec![1; 6 << 20])).await.unwrap();
    disk.fail("read", Errno::IO, 2);
    let stream = backend.get(&name, 0..6 << 20).await.unwrap().unwrap();
    let items: Vec<_> = stream.collect().await;
    assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 2);
    assert!(items.last().unwrap().is_err() && items.len() == 3);
}

#[tokio::test]
async fn a_file_cut_short_on_disk_is_corrupt_not_short() {
    let root = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(root.path(), LocalOptions::default()).await.unwrap();
    let name = name("blobs/abcd");
    put_bytes(&backend, &name, Bytes::from(vec![1; 6 << 20])).await.unwrap();
    let mut stream = backend.get(&name, 0..6 << 20).await.unwrap().unwrap();
    stream.next().await.unwrap().unwrap();
    let file = File::options().write(true).open(root.path().join(layout::place(&name).file)).unwrap();
    file.set_len(1 << 20).unwrap();
    assert_eq!(collect(stream, 6 << 20).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_root_removed_under_a_running_store_is_an_error_not_an_empty_store() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("store");
    let backend = LocalBackend::open(&path, LocalOptions::default()).await.unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    assert!(backend.head(&name("a")).await.is_err());
    assert!(backend.get(&name("a"), 0..1).await.is_err());
    assert!(backend.delete(&name("a")).await.is_err());
    assert!(backend.list("blobs/").try_collect::<Vec<_>>().await.is_err());
    assert!(backend.probe().await.is_err());
}

#[tokio::test]
async fn a_removed_fan_out_directory_is_made_again() {
    let root = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(root.path(), LocalOptions::default()).await.unwrap();
    put_bytes(&backend, &name("blobs/abcd"), Bytes::new()).await.unwrap();
    std::fs::remove_dir_all(root.path().join("blobs")).unwrap();
    put_bytes(&backend, &name("blobs/bbcd"), Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(get_all(&backend, &name("blobs/bbcd"), 1).await.unwrap().unwrap(), "x");
}

#[tokio::test]
async fn the_directories_of_a_backup_go_with_its_last_part_and_those_of_blobs_stay() {
    let root = tempfile::tempdir().unwrap();
    for disk in both_ways(root.path()) {
        let backend = open(&disk, true);
        let [blob, first, second, other] =
            ["blobs/0abc", "backup-part/l-1/a/00000000", "backup-part/l-1/a/00000001", "backup-part/l-1/b/00000000"]
                .map(name);
        for name in [&blob, &first, &second, &other] {
            put_bytes(&backend, name, Bytes::from_static(b"x")).await.unwrap();
        }
        let entries = |dir: &str| disk.disk.entries(Path::new(dir)).unwrap().len();
        backend.delete(&first).await.unwrap();
        assert_eq!((entries("backup-part/l-1"), entries("backup-part/l-1/a")), (2, 1), "a part is left");
        backend.delete(&second).await.unwrap();
        assert_eq!(entries("backup-part/l-1"), 1, "another backup is left");
        backend.delete(&other).await.unwrap();
        assert_eq!(entries("backup-part"), 0);
        backend.delete(&blob).await.unwrap();
        assert_eq!(entries("blobs/+bc/+a"), 0);
        put_bytes(&backend, &second, Bytes::from_static(b"again")).await.unwrap();
        assert_eq!(backend.head(&second).await.unwrap(), Some(5));
    }
}

#[tokio::test]
async fn the_store_is_private_to_its_user() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("made/deep");
    let backend = LocalBackend::open(&path, LocalOptions::default()).await.unwrap();
    put_bytes(&backend, &name("blobs/abcd"), Bytes::from_static(b"x")).await.unwrap();
    let mode = |relative: &str| std::fs::metadata(path.join(relative)).unwrap().permissions().mode() & 0o777;
    for dir in ["", "..", TEMP_DIR, "blobs", "blobs/+cd", "blobs/+cd/+b"] {
        assert_eq!(mode(dir), 0o700, "{dir:?}");
    }
    assert_eq!(mode("blobs/+cd/+b/abcd"), 0o600);
}

#[tokio::test]
async fn a_symbolic_link_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let secret = tempfile::NamedTempFile::new().unwrap();
    let backend = LocalBackend::open(root.path(), LocalOptions::default()).await.unwrap();
    put_bytes(&backend, &name("blobs/abcd"), Bytes::from_static(b"x")).await.unwrap();
    let link = root.path().join("blobs/+cd/+b/bbcd");
    std::os::unix::fs::symlink(secret.path(), &link).unwrap();
    assert!(backend.get(&name("blobs/bbcd"), 0..0).await.is_err());
    assert!(backend.head(&name("blobs/bbcd")).await.is_err());
    assert_eq!(backend.list("").count().await, 1);
    assert_eq!(put_bytes(&backend, &name("blobs/bbcd"), Bytes::new()).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_linked_directory_is_neither_read_nor_written_nor_emptied() {
    // C129: whoever may write below the root does not make us touch files elsewhere.
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let backend = LocalBackend::open(root.path(), LocalOptions::default()).await.unwrap();
    let (here, there) = (name("blobs/abcd"), name("blobs/bbcd"));
    put_bytes(&backend, &here, Bytes::from_static(b"x")).await.unwrap();
    let directory = root.path().join("blobs/+cd/+b");
    std::fs::rename(&directory, outside.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("moved"), &directory).unwrap();
    assert!(backend.head(&here).await.is_err());
    assert!(backend.get(&here, 0..1).await.is_err());
    assert!(backend.delete(&here).await.is_err());
    assert!(put_bytes(&backend, &there, Bytes::from_static(b"y")).await.is_err());
    let left: Vec<_> =
        std::fs::read_dir(outside.path().join("moved")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["abcd"]);
}

#[tokio::test]
async fn temporary_files_of_the_dead_are_removed_and_those_of_the_living_stay() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::without_unnamed_files(root.path());
    let backend = open(&disk, true);
    std::fs::write(root.path().join(TEMP_DIR).join("0123"), b"from a crash").unwrap();

    let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
    let (finish, may_finish) = tokio::sync::oneshot::channel();
    let body = stream::iter([Ok(Bytes::from(vec![1; 1 << 20]))])
        .chain(stream::once(async move {
            begun.send(()).await.unwrap();
            may_finish.await.unwrap();
            Ok(Bytes::from_static(b"end"))
        }))
        .boxed();
    let upload = tokio::spawn(async move { backend.put(&name("blobs/abcd"), body, None).await });
    has_begun.recv().await.unwrap();
    eventually(|| temp_files(root.path()) == 2).await;

    // A second process on the same store, for example a scrub beside the server.
    let second = open(&disk, true);
    assert_eq!(temp_files(root.path()), 1);
    finish.send(()).unwrap();
    upload.await.unwrap().unwrap();
    assert_eq!(second.head(&name("blobs/abcd")).await.unwrap(), Some((1 << 20) + 3));
    assert_eq!(temp_files(root.path()), 0);
}

#[tokio::test]
async fn a_put_given_up_while_it_is_made_durable_leaves_no_blob() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    let backend = open(&disk, true);
    let name = name("blobs/abcd");
    {
        let mut upload = std::pin::pin!(put_bytes(&backend, &name, Bytes::from_static(b"x")));
        assert!(futures::poll!(&mut upload).is_pending());
        // The disk's part is complete, and nobody has asked for the answer yet.
        eventually(|| disk.calls.lock().unwrap().ends_with(&["name", "sync dir"])).await;
    }
    eventually(|| disk.disk.stat(&layout::place(&name).file).is_err()).await;
    assert_eq!(backend.head(&name).await.unwrap(), None);
}

#[tokio::test]
async fn a_small_blob_is_written_once_and_a_large_one_in_batches() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    let backend = open(&disk, true);
    let writes = || disk.take_calls().iter().filter(|call| **call == "write").count();
    let tiny = stream::iter((0..1000).map(|_| Ok(Bytes::from_static(&[7; 100])))).boxed();
    backend.put(&name("a"), tiny, None).await.unwrap();
    assert_eq!(writes(), 1);
    let chunks = stream::iter((0..160).map(|_| Ok(Bytes::from(vec![7; 65_536])))).boxed();
    backend.put(&name("b"), chunks, None).await.unwrap();
    assert_eq!(writes(), 11);
    assert_eq!(std::fs::metadata(root.path().join("+b/+/b")).unwrap().size(), 160 * 65_536);
}

#[tokio::test]
async fn what_is_no_longer_than_a_segment_and_its_chunks_is_read_once_into_one_piece() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    let backend = open(&disk, true);
    let name = name("blobs/abcd");
    put_bytes(&backend, &name, Bytes::from(vec![1; 6 << 20])).await.unwrap();
    for (range, pieces) in [(0..1 << 20, 1), (1..(4 << 20) + (128 << 10), 1), (0..6 << 20, 12)] {
        disk.take_calls();
        let stream = backend.get(&name, range.clone()).await.unwrap().unwrap();
        let lens: Vec<usize> = stream.map(|piece| piece.unwrap().len()).collect().await;
        let reads = disk.take_calls().iter().filter(|call| **call == "read").count();
        assert_eq!((lens.len(), reads), (pieces, pieces));
        assert_eq!(lens.iter().sum::<usize>() as u64, range.end - range.start);
    }
}

#[tokio::test]
async fn a_probe_notices_a_disk_that_is_full_or_broken() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    let backend = open(&disk, true);
    backend.probe().await.unwrap();
    disk.fail("write", Errno::NOSPC, 0);
    assert_eq!(backend.probe().await.unwrap_err().kind(), ErrorKind::Full);
    disk.fail("read", Errno::IO, 0);
    assert_eq!(backend.probe().await.unwrap_err().kind(), ErrorKind::Other);
    disk.fail("create", Errno::ROFS, 0);
    assert_eq!(backend.probe().await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_full_disk_still_reads_and_deletes() {
    let root = tempfile::tempdir().unwrap();
    let disk = Watched::new(root.path());
    let backend = open(&disk, true);
    let (a, b) = (name("blobs/abcd"), name("blobs/bbcd"));
    put_bytes(&backend, &a, Bytes::from_static(b"x")).await.unwrap();
    disk.fail("write", Errno::DQUOT, 0);
    assert_eq!(backend.put(&b, body_of(Bytes::from_static(b"y")), None).await.unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(get_all(&backend, &a, 1).await.unwrap().unwrap(), "x");
    backend.delete(&a).await.unwrap();
}

#[tokio::test]
async fn a_length_is_told_at_once_only_where_the_file_system_is_of_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(dir.path(), LocalOptions::default()).await.unwrap();
    put_bytes(&backend, &name("blobs/a"), Bytes::from_static(b"abc")).await.unwrap();
    for (blob, len) in [("blobs/a", Some(3)), ("blobs/b", None)] {
        assert_eq!(backend.head_at_once(&name(blob)).expect("a file system of this machine").unwrap(), len);
        assert_eq!(backend.head(&name(blob)).await.unwrap(), len);
    }
    // The store's directory was moved away: that is no absence.
    std::fs::rename(dir.path().join("blobs"), dir.path().join("gone")).unwrap();
    assert_eq!(backend.head_at_once(&name("blobs/a")).expect("the same").unwrap(), None);
    let elsewhere = dir.path().with_extension("moved");
    std::fs::rename(dir.path(), &elsewhere).unwrap();
    assert!(backend.head_at_once(&name("blobs/a")).expect("the same").is_err());
    std::fs::rename(&elsewhere, dir.path()).unwrap();

    // Another disk, of which nobody knows where it is.
    let unknown = open(&Watched::new(dir.path()), true);
    assert!(unknown.head_at_once(&name("gone/a")).is_none());
    // Programs are behind /proc, as a network is behind others.
    assert!(disk::is_on_this_machine(dir.path()) && !disk::is_on_this_machine(Path::new("/proc")));
}
