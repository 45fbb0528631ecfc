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

use super::outcome::{Fate, ManifestLine, ObjectReader};
use crate::{error::EngineError, read::object::OpenObject};
use crypto::{Digest, Sha256};
use futures::TryStreamExt;
use rustix::{
    fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with},
    io::Errno,
};
use std::{
    io::{self, ErrorKind as Io},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};
use tokio::{
    fs::{self, File},
    io::{AsyncReadExt, AsyncWriteExt},
};

/// The directory inside the target that is not named by keys.
const OWN: &str = ".deltaweir-eject";
/// Longest name that file systems take, in bytes.
const NAME_LEN_MAX: usize = 255;
/// Longest path that the kernel takes, in bytes, with room for a few more names.
const PATH_LEN_MAX: usize = 3800;
/// Bytes of a file that are read back at a time.
const READ_BACK_BYTES: usize = 1 << 20;

/// See the module.
pub(super) struct DirectoryTarget {
    root: PathBuf,
    next_temporary: AtomicU64,
    /// Held by who gives a name where nothing but a look keeps it from being given twice.
    naming: Arc<Mutex<()>>,
}

impl DirectoryTarget {
    /// The directory `root`, made when it is not there. `fresh`: it must be empty; otherwise it
    /// holds what an earlier attempt wrote, whose manifest is cut to `manifest_len` bytes.
    ///
    /// # Errors
    /// [`EngineError::Other`] when it cannot be written to, or is not empty.
    pub(super) async fn open(root: PathBuf, fresh: bool, manifest_len: u64) -> Result<Self, EngineError> {
        let target = Self { root, next_temporary: AtomicU64::new(0), naming: Arc::default() };
        let prepare = async {
            make_directory(&target.root).await?;
            // An attempt that never came to its first checkpoint left nothing but what is ours or
            // is written the same again.
            let begun = fs::try_exists(target.own()).await?;
            if fresh && !begun && fs::read_dir(&target.root).await?.next_entry().await?.is_some() {
                return Err(io::Error::other("it is not empty"));
            }
            make_directory(&target.own()).await?;
            make_directory(&target.own().join("objects")).await?;
            let temporary = target.own().join("tmp");
            if fs::try_exists(&temporary).await? {
                fs::remove_dir_all(&temporary).await?;
            }
            make_directory(&temporary).await?;
            let manifest = target.manifest().await?;
            if manifest.metadata().await?.len() < manifest_len {
                return Err(io::Error::other("its manifest is shorter than it was"));
            }
            manifest.set_len(manifest_len).await?;
            manifest.sync_all().await
        };
        prepare.await.map_err(|error| target.failed("use", &target.root, &error))?;
        Ok(target)
    }

    fn own(&self) -> PathBuf {
        self.root.join(OWN)
    }

    async fn manifest(&self) -> io::Result<File> {
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        options.open(self.own().join("manifest.jsonl")).await
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
            let mut manifest = self.manifest().await?;
            manifest.seek(io::SeekFrom::Start(len)).await?;
            manifest.write_all(&text).await?;
            manifest.flush().await?;
            manifest.sync_all().await
        };
        write.await.map_err(|error| self.failed("write", &self.own(), &error))?;
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
        let temporary = self.own().join("tmp").join(number.to_string());
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
        let mut options = fs::OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        options.open(path).await.map_err(|error| self.failed("write", path, &error))
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
        if self.can_hold(key) {
            let path = self.root.join(key);
            match self.rename(temporary, &path).await {
                Ok(()) => return Ok((key.to_owned(), false)),
                // An earlier attempt of this run wrote it, or something else is called so to this
                // file system.
                Err(error) if error.kind() == Io::AlreadyExists => {
                    if fs::symlink_metadata(&path).await.is_ok_and(|found| found.is_file())
                        && self.digest_of(reader, &path).await? == sha256
                    {
                        fs::remove_file(temporary).await.map_err(|error| self.failed("remove", temporary, &error))?;
                        return Ok((key.to_owned(), false));
                    }
                }
                // A component is a file, or too long for this file system.
                Err(error) if matches!(error.kind(), Io::NotADirectory | Io::InvalidFilename) => {}
                Err(error) => return Err(self.failed("write", &path, &error)),
            }
        }
        let name = hex::encode(Sha256::digest(key.as_bytes()));
        let path = self.own().join("objects").join(&name);
        // The key's own digest: only an earlier attempt for the same key can have left something
        // there.
        let placed = fs::rename(temporary, &path).await;
        placed.map_err(|error| self.failed("write", &path, &error))?;
        sync_directory(&path).await.map_err(|error| self.failed("write", &path, &error))?;
        Ok((format!("{OWN}/objects/{name}"), true))
    }

    /// Whether a key is a path that stays inside the target and out of our own directory.
    fn can_hold(&self, key: &str) -> bool {
        let is_name =
            |part: &str| !matches!(part, "" | "." | "..") && part.len() <= NAME_LEN_MAX && !part.contains('\0');
        key.split('/').all(is_name)
            && key.split('/').next() != Some(OWN)
            && self.root.as_os_str().len() + key.len() < PATH_LEN_MAX
    }

    async fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if let Some(parent) = to.parent() {
            self.make_parents(parent).await?;
        }
        let (from, path, naming) = (from.to_owned(), to.to_owned(), self.naming.clone());
        let renamed =
            tokio::task::spawn_blocking(move || match renameat_with(CWD, &from, CWD, &path, RenameFlags::NOREPLACE) {
                Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
                    let _alone = naming.lock().unwrap_or_else(PoisonError::into_inner);
                    name_anew(&from, &path)
                }
                outcome => Ok(outcome?),
            });
        renamed.await??;
        sync_directory(to).await
    }

    /// Makes the directories between the target and `directory`; nothing is followed out of it.
    async fn make_parents(&self, directory: &Path) -> io::Result<()> {
        let Ok(below) = directory.strip_prefix(&self.root) else { return Err(Io::InvalidInput.into()) };
        let mut path = self.root.clone();
        for name in below {
            path.push(name);
            make_directory(&path).await?;
        }
        Ok(())
    }

    async fn digest_of(&self, reader: &ObjectReader, path: &Path) -> Result<String, EngineError> {
        let _permit = reader.budget.acquire(READ_BACK_BYTES as u64).await?;
        let read = async {
            let mut file = File::open(path).await?;
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

    fn failed(&self, attempt: &str, path: &Path, error: &io::Error) -> EngineError {
        match error.kind() {
            Io::StorageFull | Io::QuotaExceeded => EngineError::Full,
            _ => EngineError::Other(format!("cannot {attempt} {}: {error}", path.display())),
        }
    }
}

/// Gives a file another name, which nothing has, where the file system has no such renaming (NFS
/// and many behind FUSE). A hard link replaces nothing either. Where there are none of those, what
/// stands there is looked for first: the directory is this run's own.
fn name_anew(from: &Path, to: &Path) -> io::Result<()> {
    match linkat(CWD, from, CWD, to, AtFlags::empty()) {
        Ok(()) => std::fs::remove_file(from),
        Err(error @ Errno::EXIST) => Err(error.into()),
        // rclone's mounts say EIO for what they have not.
        Err(_) => rename_where_nothing_is(from, to),
    }
}

fn rename_where_nothing_is(from: &Path, to: &Path) -> io::Result<()> {
    match to.symlink_metadata() {
        Ok(_) => Err(Io::AlreadyExists.into()),
        Err(error) if error.kind() == Io::NotFound => std::fs::rename(from, to),
        Err(error) => Err(error),
    }
}

/// Makes a directory, or finds one; a link to one is none.
async fn make_directory(path: &Path) -> io::Result<()> {
    let owned = path.to_owned();
    let made = tokio::task::spawn_blocking(move || {
        std::fs::DirBuilder::new().mode(0o700).create(&owned)?;
        sync_parent(&owned)
    });
    match made.await? {
        Err(error) if error.kind() == Io::AlreadyExists => match fs::symlink_metadata(path).await?.is_dir() {
            true => Ok(()),
            false => Err(Io::NotADirectory.into()),
        },
        outcome => outcome,
    }
}

async fn sync_directory(file: &Path) -> io::Result<()> {
    let file = file.to_owned();
    tokio::task::spawn_blocking(move || sync_parent(&file)).await?
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => match std::fs::File::open(parent)?.sync_all() {
            // Some network file systems cannot flush a directory: their server does.
            Err(error) if matches!(error.kind(), Io::InvalidInput | Io::Unsupported) => Ok(()),
            outcome => outcome,
        },
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn target(root: &Path) -> DirectoryTarget {
        DirectoryTarget { root: root.to_owned(), next_temporary: AtomicU64::new(0), naming: Arc::default() }
    }

    #[test]
    fn keys_that_are_no_paths_here_are_not_held() {
        let target = target(Path::new("/t"));
        for key in ["a", "a/b", "..a", "a..", ".a", "a b", "é", &"x".repeat(255)] {
            assert!(target.can_hold(key), "{key:?}");
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
            assert!(!target.can_hold(key), "{key:?}");
        }
    }

    proptest! {
        #[test]
        fn a_held_key_is_a_file_below_the_target(key in "[a./\\\\ ~-]{1,20}") {
            let root = Path::new("/target");
            if target(root).can_hold(&key) {
                let path = root.join(&key);
                prop_assert!(path.starts_with(root) && path != root);
                prop_assert!(path.components().all(|part| !matches!(part, std::path::Component::ParentDir)));
                prop_assert_eq!(path.to_str().unwrap(), format!("/target/{key}"));
            }
        }
    }

    #[test]
    fn without_a_renaming_that_replaces_nothing_a_name_is_still_given_once() {
        for give in [name_anew, rename_where_nothing_is] {
            let root = tempfile::tempdir().unwrap();
            let [new, other, taken] = ["new", "other", "taken"].map(|name| root.path().join(name));
            std::fs::write(&new, "new").unwrap();
            std::fs::write(&other, "other").unwrap();
            give(&new, &taken).unwrap();
            assert_eq!(give(&other, &taken).unwrap_err().kind(), Io::AlreadyExists);
            assert_eq!((std::fs::read(&taken).unwrap(), new.exists()), (b"new".to_vec(), false));
            assert_eq!(std::fs::read(&other).unwrap(), b"other", "what found no place is still there");
        }
    }

    #[tokio::test]
    async fn a_directory_that_holds_something_else_is_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("mine"), "x").unwrap();
        assert!(DirectoryTarget::open(root.path().to_owned(), true, 0).await.is_err());
        assert!(!root.path().join(OWN).exists());
    }

    #[tokio::test]
    async fn a_link_in_the_way_is_not_followed() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = DirectoryTarget::open(root.path().to_owned(), true, 0).await.unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("a")).unwrap();
        let file = root.path().join(OWN).join("tmp/0");
        std::fs::write(&file, "x").unwrap();
        let error = target.rename(&file, &root.path().join("a/b")).await.unwrap_err();
        assert_eq!(error.kind(), Io::NotADirectory);
        assert!(!outside.path().join("b").exists());
    }
}
