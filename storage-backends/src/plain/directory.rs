//! A directory of files as a store of plain objects: keys are relative paths.
//!
//! Only regular files are objects; symbolic links are not followed. A file's ETag is made of its
//! length and the time of its last change in nanoseconds, so that a file written anew is another
//! content.

use super::{PlainEntry, PlainObject, PlainRead, PlainRemoval, PlainStore, unnamable};
use crate::{BackendError, ErrorKind, Result};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use std::{
    fs::{self, File, Metadata},
    io::{self, ErrorKind as Io},
    ops::Range,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
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

    fn path_of(&self, key: &str) -> Result<PathBuf> {
        let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if key.split('/').all(is_name) {
            Ok(self.root.join(key))
        } else {
            Err(unnamable(key, "it is no path of a file"))
        }
    }

    async fn with_file<T: Send + 'static>(
        &self,
        key: &str,
        work: impl FnOnce(&Path) -> io::Result<Option<T>> + Send + 'static,
    ) -> Result<Option<T>> {
        let (path, root) = (self.path_of(key)?, self.root.clone());
        let work = spawn_blocking(move || {
            work(&path).or_else(|error| match error.kind() {
                // Only these say that there is no such file, and only while the directory itself is
                // there: it may not be mounted.
                Io::NotFound | Io::NotADirectory if root.is_dir() => Ok(None),
                _ => Err(failed("read", &path, error)),
            })
        });
        work.await.map_err(|error| BackendError::with_source(ErrorKind::Other, "a file task ended", error))?
    }
}

#[async_trait]
impl PlainStore for PlainDirectory {
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>> {
        let (entries, listed) = mpsc::channel(ENTRIES_AHEAD);
        let walk = Walk { prefix: prefix.to_owned(), after: after.map(str::to_owned), entries };
        let root = self.root.clone();
        spawn_blocking(move || {
            if let Err(error) = walk.below(&root, "") {
                // Whoever stopped listening does not want to know.
                let _ = walk.entries.blocking_send(Err(error));
            }
        });
        stream::unfold(listed, |mut listed| async move { Some((listed.recv().await?, listed)) }).boxed()
    }

    async fn head(&self, key: &str) -> Result<Option<PlainObject>> {
        let of_file = |path: &Path| {
            let found = fs::symlink_metadata(path)?;
            Ok(found.is_file().then(|| PlainObject {
                len: found.len(),
                etag: etag_of(&found),
                modified: found.modified().ok(),
                ..PlainObject::default()
            }))
        };
        self.with_file(key, of_file).await
    }

    async fn read(&self, key: &str, etag: &str, range: Range<u64>) -> Result<PlainRead> {
        let open = |path: &Path| {
            if !fs::symlink_metadata(path)?.is_file() {
                return Ok(None);
            }
            let no_follow = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0);
            Ok(Some(File::options().read(true).custom_flags(no_follow).open(path)?))
        };
        let Some(file) = self.with_file(key, open).await? else { return Ok(PlainRead::Absent) };
        let (path, etag) = (self.path_of(key)?, etag.to_owned());
        let found = file.metadata().map_err(|error| failed("read", &path, error))?;
        if etag_of(&found) != etag {
            return Ok(PlainRead::Changed);
        }
        if range.start > range.end || range.end > found.len() {
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
                let found = file.metadata().map_err(|error| failed("read", &path, error))?;
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
        let remove = move |path: &Path| {
            let found = fs::symlink_metadata(path)?;
            if !found.is_file() || etag_of(&found) != etag {
                return Ok(Some(PlainRemoval::Changed));
            }
            fs::remove_file(path)?;
            if let Some(directory) = path.parent() {
                File::open(directory)?.sync_all()?;
            }
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
    /// Lists `directory`, whose keys begin with `base` (empty, or with a `/` at its end). Ends
    /// early when nobody listens.
    fn below(&self, directory: &Path, base: &str) -> Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory).map_err(|error| failed("list", directory, error))? {
            let entry = entry.map_err(|error| failed("list", directory, error))?;
            let kind = entry.file_type().map_err(|error| failed("list", directory, error))?;
            // A directory sorts where its keys do.
            let mut name = entry.file_name().as_bytes().to_vec();
            if kind.is_dir() {
                name.push(b'/');
            }
            if kind.is_dir() || kind.is_file() {
                names.push((name, entry.path()));
            }
        }
        names.sort_unstable();
        for (name, path) in names {
            if self.entries.is_closed() {
                return Ok(());
            }
            let Ok(name) = String::from_utf8(name) else {
                self.send(Err(unnamable(&path.to_string_lossy(), "its name is no UTF-8")));
                continue;
            };
            let key = format!("{base}{name}");
            match name.ends_with('/') {
                true if self.may_hold(&key) => self.below(&path, &key)?,
                false if key.starts_with(&self.prefix) && self.after.as_ref().is_none_or(|after| key > *after) => {
                    match fs::symlink_metadata(&path) {
                        Ok(found) => self.send(Ok(PlainEntry { key, len: found.len(), etag: Some(etag_of(&found)) })),
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

fn etag_of(found: &Metadata) -> String {
    let changed_ns = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
    format!("{changed_ns:x}-{:x}", found.len())
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
