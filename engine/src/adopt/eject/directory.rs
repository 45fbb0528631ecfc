//! A directory that objects are written into as files.
//!
//! ```text
//! TARGET/photos/2024/a.jpg                        an object, under its key
//! TARGET/.deltaweir-eject/manifest.jsonl          one line per object: its key, its file, and what a file cannot carry
//! TARGET/.deltaweir-eject/objects/SHA256-OF-KEY   an object whose key no file system could hold here
//! ```
//!
//! A file is written under another name, flushed, read back and compared, and then gets its own
//! name without replacing anything.

use super::{
    opened::OpenedDirectory,
    outcome::{Fate, ManifestLine, ObjectReader},
};
use crate::{error::EngineError, read::object::OpenObject};
use crypto::{Digest, Sha256};
use futures::TryStreamExt;
use std::{
    io::{self, ErrorKind as Io},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncWriteExt},
};

/// The directory inside the target that is not named by keys.
const OWN: &str = ".deltaweir-eject";
const MANIFEST: &str = "manifest.jsonl";
/// Longest name that file systems take, in bytes.
const NAME_LEN_MAX: usize = 255;
/// Longest path that the kernel takes, in bytes, with room for a few more names.
const PATH_LEN_MAX: usize = 3800;
/// Bytes of a file that are read back at a time.
const READ_BACK_BYTES: usize = 1 << 20;

/// See the module.
pub(super) struct DirectoryTarget {
    /// As it was asked for, to speak of it.
    root: PathBuf,
    opened: Arc<OpenedDirectory>,
    next_temporary: AtomicU64,
    /// Held by who gives a name where nothing but a look keeps it from being given twice.
    naming: Arc<Mutex<()>>,
}

impl DirectoryTarget {
    /// The directory `root`, made when it is not there. With `roots` it must lie below one of them.
    /// `fresh`: it must be empty; otherwise it holds what an earlier attempt wrote, whose manifest
    /// is cut to `manifest_len` bytes.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be written to, or is not empty.
    pub(super) async fn open(
        root: PathBuf,
        roots: Option<Vec<PathBuf>>,
        fresh: bool,
        manifest_len: u64,
    ) -> Result<Self, EngineError> {
        let path = root.clone();
        let prepare = tokio::task::spawn_blocking(move || {
            let opened = match roots {
                Some(roots) => OpenedDirectory::open_below(&roots, &path)?,
                None => OpenedDirectory::open(&path)?,
            };
            // An attempt that never came to its first checkpoint left nothing but what is ours or
            // is written the same again.
            let begun = opened.kind(Path::new(OWN))?.is_some();
            if fresh && !begun && !opened.is_empty()? {
                return Err(io::Error::other("it is not empty"));
            }
            let temporary = own("tmp");
            for directory in [Path::new(OWN), &own("objects"), &temporary] {
                opened.make(directory)?;
            }
            opened.clear(&temporary)?;
            let manifest = opened.write(&own(MANIFEST))?;
            if manifest.metadata()?.len() < manifest_len {
                return Err(io::Error::other("its manifest is shorter than it was"));
            }
            manifest.set_len(manifest_len)?;
            manifest.sync_all()?;
            Ok(opened)
        });
        let opened = prepare.await.map_err(io::Error::from).flatten();
        let opened = opened.map_err(|error| failed("use", &root, &error))?;
        Ok(Self { root, opened: Arc::new(opened), next_temporary: AtomicU64::new(0), naming: Arc::default() })
    }

    /// Does something with the directory beside the runtime.
    async fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(&OpenedDirectory) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let opened = self.opened.clone();
        tokio::task::spawn_blocking(move || work(&opened)).await?
    }

    /// Writes lines at the end of the manifest, which has `len` bytes so far; gives its length,
    /// durable.
    pub(super) async fn append(&self, len: u64, lines: &[ManifestLine]) -> Result<u64, EngineError> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line).map_err(|error| EngineError::Other(error.to_string()))?;
            text.push(b'\n');
        }
        let write = async {
            use tokio::io::AsyncSeekExt;
            let mut manifest = File::from_std(self.on(|opened| opened.write(&own(MANIFEST))).await?);
            manifest.seek(io::SeekFrom::Start(len)).await?;
            manifest.write_all(&text).await?;
            manifest.flush().await?;
            manifest.sync_all().await
        };
        write.await.map_err(|error| self.failed("write", &own(MANIFEST), &error))?;
        Ok(len + text.len() as u64)
    }

    /// Writes an object as a file and reads it back.
    pub(super) async fn write(
        &self,
        reader: &ObjectReader,
        key: &str,
        object: &OpenObject,
    ) -> Result<Fate, EngineError> {
        let number = self.next_temporary.fetch_add(1, Ordering::Relaxed);
        let temporary = own("tmp").join(number.to_string());
        let size = object.info.version.size;
        let mut digest = Sha256::new();
        let mut file = self.create(&temporary).await?;
        let mut body = reader.read.read(object, 0..size);
        while let Some(bytes) = body.try_next().await? {
            file.write_all(&bytes).await.map_err(|error| self.failed("write", &temporary, &error))?;
            digest = reader.hash_pool.run(move |_| digest.chain_update(&bytes)).await?;
        }
        let sha256 = hex::encode(digest.finalize());
        let end = async {
            file.flush().await?;
            let modified =
                UNIX_EPOCH + Duration::from_millis(u64::try_from(object.info.version.modified_ms).unwrap_or(0));
            let file = file.into_std().await;
            tokio::task::spawn_blocking(move || {
                // Only a convenience: the manifest has the time as well.
                let _ = file.set_modified(modified);
                file.sync_all()
            })
            .await?
        };
        end.await.map_err(|error| self.failed("write", &temporary, &error))?;
        if self.digest_of(reader, &temporary).await? != sha256 {
            return Ok(Fate::Failed("the file that was written does not read back as it was".into()));
        }
        let (file, renamed) = self.place(reader, &temporary, key, &sha256).await?;
        Ok(Fate::Written { bytes: size, line: Some(Box::new(ManifestLine::of(object, file, sha256))), renamed })
    }

    async fn create(&self, path: &Path) -> Result<File, EngineError> {
        let at = path.to_owned();
        let created = self.on(move |opened| opened.create(&at)).await;
        created.map(File::from_std).map_err(|error| self.failed("write", path, &error))
    }

    /// Gives a finished file its name: its key where a file can be called so and nothing else
    /// stands there. Gives the path below the target, and whether it is another than the key.
    async fn place(
        &self,
        reader: &ObjectReader,
        temporary: &Path,
        key: &str,
        sha256: &str,
    ) -> Result<(String, bool), EngineError> {
        if can_hold(&self.root, key) {
            let path = PathBuf::from(key);
            match self.rename(temporary, &path).await {
                Ok(()) => return Ok((key.to_owned(), false)),
                // An earlier attempt of this run wrote it, or something else is called so to this
                // file system.
                Err(error) if error.kind() == Io::AlreadyExists => {
                    let (at, file) = (path.clone(), temporary.to_owned());
                    let kind = self.on(move |opened| opened.kind(&at)).await.ok().flatten();
                    if kind.is_some_and(rustix::fs::FileType::is_file) && self.digest_of(reader, &path).await? == sha256
                    {
                        let removed = self.on(move |opened| opened.remove(&file)).await;
                        removed.map_err(|error| self.failed("remove", temporary, &error))?;
                        return Ok((key.to_owned(), false));
                    }
                }
                // A component is a file, or too long for this file system.
                Err(error) if matches!(error.kind(), Io::NotADirectory | Io::InvalidFilename) => {}
                Err(error) => return Err(self.failed("write", &path, &error)),
            }
        }
        let name = hex::encode(Sha256::digest(key.as_bytes()));
        let path = own("objects").join(&name);
        // The key's own digest: only an earlier attempt for the same key can have left something
        // there.
        let (file, place) = (temporary.to_owned(), path.clone());
        let placed = self.on(move |opened| opened.replace(&file, &place)).await;
        placed.map_err(|error| self.failed("write", &path, &error))?;
        Ok((format!("{OWN}/objects/{name}"), true))
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to, naming) = (from.to_owned(), to.to_owned(), self.naming.clone());
        self.on(move |opened| {
            opened.make_parents(&to)?;
            if !opened.rename(&from, &to)? {
                let _alone = naming.lock().unwrap_or_else(PoisonError::into_inner);
                opened.name_anew(&from, &to)?;
            }
            opened.flush_parent(&to)
        })
        .await
    }

    async fn digest_of(&self, reader: &ObjectReader, path: &Path) -> Result<String, EngineError> {
        let _permit = reader.budget.acquire(READ_BACK_BYTES as u64).await?;
        let read = async {
            let at = path.to_owned();
            let mut file = File::from_std(self.on(move |opened| opened.read(&at)).await?);
            let mut digest = Sha256::new();
            let mut piece = vec![0; READ_BACK_BYTES];
            loop {
                let len = file.read(&mut piece).await?;
                if len == 0 {
                    return Ok(hex::encode(digest.finalize()));
                }
                digest.update(&piece[..len]);
            }
        };
        read.await.map_err(|error: io::Error| self.failed("read", path, &error))
    }

    fn failed(&self, attempt: &str, below: &Path, error: &io::Error) -> EngineError {
        failed(attempt, &self.root.join(below), error)
    }
}

/// Whether a key is a path that stays inside the target and out of our own directory.
fn can_hold(root: &Path, key: &str) -> bool {
    let is_name = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= NAME_LEN_MAX && !part.contains('\0');
    key.split('/').all(is_name)
        && key.split('/').next() != Some(OWN)
        && root.as_os_str().len() + key.len() < PATH_LEN_MAX
}

/// Something in the directory that is not named by keys.
fn own(name: &str) -> PathBuf {
    Path::new(OWN).join(name)
}

fn failed(attempt: &str, path: &Path, error: &io::Error) -> EngineError {
    match error.kind() {
        Io::StorageFull | Io::QuotaExceeded => EngineError::Full,
        _ => EngineError::Other(format!("cannot {attempt} {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_that_are_no_paths_here_are_not_held() {
        let held = |key: &str| can_hold(Path::new("/t"), key);
        for key in ["a", "a/b", "..a", "a..", ".a", "a b", "é", &"x".repeat(255)] {
            assert!(held(key), "{key:?}");
        }
        let long = format!("{}/a", "x".repeat(256));
        for key in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/..",
            "../a",
            "a/./b",
            "a\0",
            ".deltaweir-eject",
            ".deltaweir-eject/x",
            &long,
        ] {
            assert!(!held(key), "{key:?}");
        }
    }

    proptest! {
        #[test]
        fn a_held_key_is_a_file_below_the_target(key in "[a./\\\\ ~-]{1,20}") {
            let root = Path::new("/target");
            if can_hold(root, &key) {
                let path = root.join(&key);
                prop_assert!(path.starts_with(root) && path != root);
                prop_assert!(path.components().all(|part| !matches!(part, std::path::Component::ParentDir)));
                prop_assert_eq!(path.to_str().unwrap(), format!("/target/{key}"));
            }
        }
    }

    #[tokio::test]
    async fn a_directory_that_holds_something_else_is_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("mine"), "x").unwrap();
        assert!(DirectoryTarget::open(root.path().to_owned(), None, true, 0).await.is_err());
        assert!(!root.path().join(OWN).exists());
    }

    #[tokio::test]
    async fn a_link_in_the_way_is_not_followed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = DirectoryTarget::open(root.path().to_owned(), None, true, 0).await.unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("a")).unwrap();
        let file = root.path().join(OWN).join("tmp/0");
        std::fs::write(&file, "x").unwrap();
        let error = target.rename(&own("tmp/0"), Path::new("a/b")).await.unwrap_err();
        assert_eq!(error.kind(), Io::NotADirectory);
        assert!(!outside.path().join("b").exists());
    }
}
