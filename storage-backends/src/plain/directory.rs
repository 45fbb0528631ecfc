//! A directory of files as a store of plain objects: keys are relative paths.
//!
//! Only regular files are objects; symbolic links are not followed, wherever in a path they stand.
//! A file's ETag is made of its
//! length and the time of its last change in nanoseconds, so that a file written anew is another
//! content.

use super::{PlainEntry, PlainObject, PlainRead, PlainRemoval, PlainStore, unnamable};
use crate::{BackendError, ErrorKind, Result, beneath};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat};
use std::{
    fs::File,
    io::{self, ErrorKind as Io},
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{ffi::OsStringExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tokio::{sync::mpsc, task::spawn_blocking};

/// Bytes of a file that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Entries listed ahead of the reader.
const ENTRIES_AHEAD: usize = 256;

/// A directory of files.
#[derive(Clone, Debug)]
pub struct PlainDirectory {
    root: PathBuf,
}

impl PlainDirectory {
    /// The files below `root`. Looks at nothing: a directory that is not there is an error of every
    /// call.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The path of a key's file below the root.
    fn path_of(key: &str) -> Result<PathBuf> {
        let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if key.split('/').all(is_name) {
            Ok(PathBuf::from(key))
        } else {
            Err(unnamable(key, "it is no path of a file"))
        }
    }

    /// Does something with the root and a path below it.
    async fn with_file<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(BorrowedFd<'_>, &Path) -> io::Result<Option<T>> + Send + 'static,
    ) -> Result<Option<T>> {
        let (path, root) = (Self::path_of(key)?, self.root.clone());
        let work = spawn_blocking(move || {
            // A root that is not there is an error and no absent file: it may not be mounted.
            let opened = open_root(&root)?;
            work(opened.as_fd(), &path).or_else(|error| match error.kind() {
                Io::NotFound | Io::NotADirectory => Ok(None),
                _ => Err(failed("read", &root.join(&path), error)),
            })
        });
        work.await.map_err(|error| BackendError::with_source(ErrorKind::Other, "a file task ended", error))?
    }
}

fn open_root(root: &Path) -> Result<File> {
    let opened = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    opened.map(File::from).map_err(|error| failed("open", root, error.into()))
}

#[async_trait]
impl PlainStore for PlainDirectory {
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>> {
        let (entries, listed) = mpsc::channel(ENTRIES_AHEAD);
        let walk = Walk { prefix: prefix.to_owned(), after: after.map(str::to_owned), entries };
        let root = self.root.clone();
        spawn_blocking(move || {
            let walked = open_root(&root).and_then(|opened| walk.below(opened.as_fd(), Path::new(""), ""));
            if let Err(error) = walked {
                // Whoever stopped listening does not want to know.
                let _ = walk.entries.blocking_send(Err(error));
            }
        });
        stream::unfold(listed, |mut listed| async move { Some((listed.recv().await?, listed)) }).boxed()
    }

    async fn head(&self, key: &str) -> Result<Option<PlainObject>> {
        let of_file = |root: BorrowedFd<'_>, path: &Path| {
            let found = beneath::stat(root, path)?;
            Ok(is_file(&found).then(|| PlainObject {
                len: len_of(&found),
                etag: etag_of(&found),
                modified: modified(&found),
                ..PlainObject::default()
            }))
        };
        self.with_file(key, of_file).await
    }

    async fn read(&self, key: &str, etag: &str, range: Range<u64>) -> Result<PlainRead> {
        let open = |root: BorrowedFd<'_>, path: &Path| {
            if !is_file(&beneath::stat(root, path)?) {
                return Ok(None);
            }
            Ok(Some(File::from(beneath::open(root, path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?)))
        };
        let Some(file) = self.with_file(key, open).await? else { return Ok(PlainRead::Absent) };
        let (path, etag) = (self.root.join(Self::path_of(key)?), etag.to_owned());
        let found = fstat(&file).map_err(|error| failed("read", &path, error.into()))?;
        if !is_file(&found) || etag_of(&found) != etag {
            return Ok(PlainRead::Changed);
        }
        if range.start > range.end || range.end > len_of(&found) {
            let message = format!("bytes {}..{} do not lie inside {}", range.start, range.end, path.display());
            return Err(BackendError::new(ErrorKind::Invalid, message));
        }
        let pieces = stream::try_unfold((file, path, etag, range), |(file, path, etag, range)| async move {
            if range.is_empty() {
                return Ok(None);
            }
            let end = range.end.min(range.start + PIECE_BYTES);
            let read = spawn_blocking(move || {
                let mut piece = vec![0; usize::try_from(end - range.start).unwrap_or(0)];
                file.read_exact_at(&mut piece, range.start).map_err(|error| failed("read", &path, error))?;
                // Looked at after the bytes: a change that could have touched them shows.
                let found = fstat(&file).map_err(|error| failed("read", &path, error.into()))?;
                if etag_of(&found) != etag {
                    let message = format!("{} was changed while it was read", path.display());
                    return Err(BackendError::new(ErrorKind::Corrupt, message));
                }
                Ok((Bytes::from(piece), (file, path, etag, end..range.end)))
            });
            let read =
                read.await.map_err(|error| BackendError::with_source(ErrorKind::Other, "a file task ended", error))?;
            read.map(Some)
        });
        Ok(PlainRead::Bytes(pieces.boxed()))
    }

    async fn remove(&self, key: &str, etag: &str) -> Result<PlainRemoval> {
        let etag = etag.to_owned();
        let remove = move |root: BorrowedFd<'_>, path: &Path| {
            let entry = beneath::entry(root, path)?;
            let found = rustix::fs::statat(entry.directory(), entry.name(), AtFlags::SYMLINK_NOFOLLOW)?;
            if !is_file(&found) || etag_of(&found) != etag {
                return Ok(Some(PlainRemoval::Changed));
            }
            rustix::fs::unlinkat(entry.directory(), entry.name(), AtFlags::empty())?;
            let parent = path.parent().unwrap_or(Path::new(""));
            rustix::fs::fsync(beneath::open(root, parent, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?)?;
            Ok(Some(PlainRemoval::Gone))
        };
        Ok(self.with_file(key, remove).await?.unwrap_or(PlainRemoval::Gone))
    }
}

/// One listing.
struct Walk {
    prefix: String,
    after: Option<String>,
    entries: mpsc::Sender<Result<PlainEntry>>,
}

impl Walk {
    /// Lists `directory` below `root`, whose keys begin with `base` (empty, or with a `/` at its
    /// end). Ends early when nobody listens.
    fn below(&self, root: BorrowedFd<'_>, directory: &Path, base: &str) -> Result<()> {
        let unlistable = |error: io::Error| failed("list", directory, error);
        for name in sorted_names(root, directory).map_err(unlistable)? {
            if self.entries.is_closed() {
                return Ok(());
            }
            let Ok(name) = String::from_utf8(name).map_err(|name| {
                let path = directory.join(std::ffi::OsString::from_vec(name.into_bytes()));
                self.send(Err(unnamable(&path.to_string_lossy(), "its name is no UTF-8")));
            }) else {
                continue;
            };
            let key = format!("{base}{name}");
            let path = directory.join(&name);
            match name.ends_with('/') {
                true if self.may_hold(&key) => self.below(root, &path, &key)?,
                false if key.starts_with(&self.prefix) && self.after.as_ref().is_none_or(|after| key > *after) => {
                    match beneath::stat(root, &path) {
                        Ok(found) => {
                            self.send(Ok(PlainEntry { key, len: len_of(&found), etag: Some(etag_of(&found)) }));
                        }
                        // Removed since the directory was read.
                        Err(error) if error.kind() == Io::NotFound => {}
                        Err(error) => return Err(failed("list", &path, error)),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a key that begins with `directory` can be among those asked for.
    fn may_hold(&self, directory: &str) -> bool {
        let in_prefix = directory.starts_with(&self.prefix) || self.prefix.starts_with(directory);
        in_prefix && self.after.as_ref().is_none_or(|after| directory > after.as_str() || after.starts_with(directory))
    }

    fn send(&self, entry: Result<PlainEntry>) {
        // Whoever stopped listening is noticed at the next entry.
        let _ = self.entries.blocking_send(entry);
    }
}

/// The names of the regular files of a directory, and of the directories with a `/` at their end:
/// a directory sorts where its keys do.
fn sorted_names(root: BorrowedFd<'_>, directory: &Path) -> io::Result<Vec<Vec<u8>>> {
    let opened = beneath::open(root, directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let mut name = entry.file_name().to_bytes().to_vec();
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let found = rustix::fs::statat(&opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(found.st_mode)
            }
            kind => kind,
        };
        match kind {
            FileType::Directory if matches!(name.as_slice(), b"." | b"..") => {}
            FileType::Directory => {
                name.push(b'/');
                names.push(name);
            }
            FileType::RegularFile => names.push(name),
            _ => {}
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn is_file(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_file()
}

fn len_of(found: &Stat) -> u64 {
    found.st_size.unsigned_abs()
}

fn modified(found: &Stat) -> Option<SystemTime> {
    let seconds = u64::try_from(found.st_mtime).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, u32::try_from(found.st_mtime_nsec).ok()?))
}

fn etag_of(found: &Stat) -> String {
    let changed_ns = i128::from(found.st_mtime) * 1_000_000_000 + i128::from(found.st_mtime_nsec);
    format!("{changed_ns:x}-{:x}", len_of(found))
}

fn failed(attempt: &str, path: &Path, error: io::Error) -> BackendError {
    let kind = match error.kind() {
        Io::PermissionDenied => ErrorKind::Denied,
        Io::UnexpectedEof => ErrorKind::Corrupt,
        _ => ErrorKind::Other,
    };
    BackendError::with_source(kind, format!("cannot {attempt} {}: {error}", path.display()), error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt;
    use proptest::prelude::*;
    use std::{fs, os::unix::ffi::OsStrExt as _};

    fn store(files: &[&str]) -> (tempfile::TempDir, PlainDirectory) {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let store = PlainDirectory::new(root.path().to_owned());
        (root, store)
    }

    async fn keys(store: &PlainDirectory, prefix: &str, after: Option<&str>) -> Vec<String> {
        store.list(prefix, after).map_ok(|entry| entry.key).try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn a_path_that_leaves_the_directory_is_no_key() {
        let (_root, store) = store(&["a"]);
        for key in ["../a", "a/../a", "/a", "a//b", ".", "", "a/", "a\0"] {
            assert_eq!(store.head(key).await.unwrap_err().kind(), ErrorKind::Invalid, "{key:?}");
        }
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_is_an_error_and_not_an_absent_file() {
        let (root, _) = store(&["a"]);
        let gone = PlainDirectory::new(root.path().join("not mounted"));
        assert!(gone.head("a").await.is_err());
        assert!(gone.read("a", "e", 0..1).await.is_err());
        assert!(gone.remove("a", "e").await.is_err());
        assert!(gone.list("", None).next().await.unwrap().is_err());
    }

    #[tokio::test]
    async fn links_and_directories_are_no_objects() {
        let (root, store) = store(&["d/a"]);
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("link")).unwrap();
        assert_eq!(keys(&store, "", None).await, ["d/a"]);
        assert_eq!((store.head("link").await.unwrap(), store.head("d").await.unwrap()), (None, None));
        assert!(matches!(store.read("link", "e", 0..1).await.unwrap(), PlainRead::Absent));
    }

    #[tokio::test]
    async fn nothing_is_reached_through_a_linked_directory() {
        // C129
        let (outside, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("away")).unwrap();
        let store = PlainDirectory::new(root.path().to_owned());
        let etag = PlainDirectory::new(outside.path().to_owned()).head("secret").await.unwrap().unwrap().etag;
        assert!(store.head("away/secret").await.is_err());
        assert!(store.read("away/secret", &etag, 0..1).await.is_err());
        assert!(store.remove("away/secret", &etag).await.is_err());
        assert!(keys(&store, "", None).await.is_empty() && outside.path().join("secret").exists());
    }

    #[tokio::test]
    async fn a_name_that_is_no_utf8_is_told_and_the_listing_goes_on() {
        let (root, store) = store(&["a", "z"]);
        fs::write(root.path().join(std::ffi::OsStr::from_bytes(b"m\xff")), "").unwrap();
        let listed: Vec<_> = store.list("", None).collect().await;
        let kinds: Vec<_> =
            listed.iter().map(|item| item.as_ref().map(|e| e.key.as_str()).map_err(|e| e.kind())).collect();
        assert_eq!(kinds, [Ok("a"), Err(ErrorKind::Invalid), Ok("z")]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_listing_is_in_byte_order_and_goes_on_anywhere(
            names in prop::collection::btree_set("[a.!/0]{1,6}", 1..12), prefix in "[a./]{0,2}", after in "[a./0]{0,3}"
        ) {
            // What cannot be a path, or is a path of another's directory, is no file.
            let mut files: Vec<String> = Vec::new();
            for name in names {
                let good = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
                let clashes = files.iter().any(|f| f.starts_with(&format!("{name}/")) || name.starts_with(&format!("{f}/")));
                if good && !clashes {
                    files.push(name);
                }
            }
            files.sort();
            let (_root, store) = store(&files.iter().map(String::as_str).collect::<Vec<_>>());
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let expected: Vec<String> =
                files.into_iter().filter(|f| f.starts_with(&prefix) && f.as_str() > after.as_str()).collect();
            prop_assert_eq!(runtime.block_on(keys(&store, &prefix, Some(&after))), expected);
        }
    }
}
