//! A directory that is written into by its open handle: what stands under a name that was looked
//! at may be another thing when it is opened, a handle is not. Below it no component is a link.

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, ErrorKind as Io},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::DirBuilderExt},
    },
    path::{Component, Path, PathBuf},
};
use storage_backends::beneath::{self, Entry};

const DIRECTORY_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A root, and what lies where below it.
struct Place {
    /// Without a link.
    root: PathBuf,
    /// As well; empty for the root itself.
    below: PathBuf,
}

/// See the module.
pub(super) struct OpenedDirectory(OwnedFd);

/// Whether a path is one of `roots` or lies below it, with every symbolic link that is there
/// followed.
pub(super) fn is_below(roots: &[PathBuf], path: &Path) -> bool {
    roots.iter().any(|root| place(root, path).is_some())
}

fn place(root: &Path, path: &Path) -> Option<Place> {
    let plain = |component: Component<'_>| matches!(component, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        return None;
    }
    let root = root.canonicalize().ok()?;
    // What is not there yet is made as named, so the nearest directory that is there tells where
    // that is. A dangling link is there.
    let there = path.ancestors().find(|ancestor| ancestor.symlink_metadata().is_ok())?;
    let real = there.canonicalize().ok()?;
    let below = real.strip_prefix(&root).ok()?.join(path.strip_prefix(there).ok()?);
    Some(Place { root, below })
}

impl OpenedDirectory {
    /// The directory `path`, made when it is not there; a link to one is none.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => flush(&File::open(path.parent().unwrap_or(path))?)?,
            Err(error) if error.kind() == Io::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// The same below one of `roots`: whatever links are put in its way meanwhile, what is opened
    /// lies there.
    pub(super) fn open_below(roots: &[PathBuf], path: &Path) -> io::Result<Self> {
        let outside = || io::Error::new(Io::PermissionDenied, "it lies below none of eject.roots");
        let place = roots.iter().find_map(|root| place(root, path)).ok_or_else(outside)?;
        Self::open_at(&place)
    }

    fn open_at(Place { root, below }: &Place) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = Self(rustix::fs::open(root, flags, Mode::empty())?);
        if below.as_os_str().is_empty() {
            return Ok(root);
        }
        root.make(below)?;
        Ok(Self(beneath::open(&root.0, below, flags, Mode::empty())?))
    }

    fn entry<'a>(&'a self, path: &'a Path) -> io::Result<Entry<'a>> {
        beneath::entry(self.0.as_fd(), path)
    }

    /// Makes a directory, or finds one.
    pub(super) fn make(&self, path: &Path) -> io::Result<()> {
        let entry = self.entry(path)?;
        match rustix::fs::mkdirat(entry.directory(), entry.name(), DIRECTORY_MODE) {
            Ok(()) => self.flush_parent(path),
            Err(Errno::EXIST) if self.kind(path)?.is_some_and(FileType::is_dir) => Ok(()),
            Err(Errno::EXIST) => Err(Errno::NOTDIR.into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the directories above a file.
    pub(super) fn make_parents(&self, file: &Path) -> io::Result<()> {
        let mut made = PathBuf::new();
        for name in file.parent().into_iter().flatten() {
            made.push(name);
            self.make(&made)?;
        }
        Ok(())
    }

    /// What stands there; `None`: nothing.
    pub(super) fn kind(&self, path: &Path) -> io::Result<Option<FileType>> {
        match beneath::stat(self.0.as_fd(), path) {
            Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
            Err(error) if error.kind() == Io::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens a file that is there.
    pub(super) fn read(&self, path: &Path) -> io::Result<File> {
        // What is no file must not keep who opens it.
        Ok(beneath::open(&self.0, path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?.into())
    }

    /// Opens a file that is not there yet.
    pub(super) fn create(&self, path: &Path) -> io::Result<File> {
        Ok(beneath::open(&self.0, path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, FILE_MODE)?.into())
    }

    /// Opens a file to write on in it.
    pub(super) fn write(&self, path: &Path) -> io::Result<File> {
        Ok(beneath::open(&self.0, path, OFlags::CREATE | OFlags::WRONLY | OFlags::NONBLOCK, FILE_MODE)?.into())
    }

    pub(super) fn remove(&self, file: &Path) -> io::Result<()> {
        let entry = self.entry(file)?;
        Ok(rustix::fs::unlinkat(entry.directory(), entry.name(), AtFlags::empty())?)
    }

    pub(super) fn is_empty(&self) -> io::Result<bool> {
        Ok(self.names(Path::new(""))?.is_empty())
    }

    /// Removes the files of a directory.
    pub(super) fn clear(&self, directory: &Path) -> io::Result<()> {
        self.names(directory)?.iter().try_for_each(|name| self.remove(&directory.join(name)))
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let opened = beneath::open(&self.0, directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).into());
            }
        }
        Ok(names)
    }

    /// Gives a file another name in place of whatever has it.
    pub(super) fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (file, place) = (self.entry(from)?, self.entry(to)?);
        rustix::fs::renameat(file.directory(), file.name(), place.directory(), place.name())?;
        self.flush_parent(to)
    }

    /// Gives a file another name, which nothing has. `false` where the file system has no such
    /// renaming.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<bool> {
        let (file, place) = (self.entry(from)?, self.entry(to)?);
        let (old, new) = (file.directory(), place.directory());
        match rustix::fs::renameat_with(old, file.name(), new, place.name(), RenameFlags::NOREPLACE) {
            Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
            outcome => outcome.map(|()| true).map_err(io::Error::from),
        }
    }

    /// Gives a file another name, which nothing has, where the file system has no such renaming
    /// (NFS and many behind FUSE). A hard link replaces nothing either. Where there are none of
    /// those, what stands there is looked for first: the directory is this run's own.
    pub(super) fn name_anew(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (file, place) = (self.entry(from)?, self.entry(to)?);
        match rustix::fs::linkat(file.directory(), file.name(), place.directory(), place.name(), AtFlags::empty()) {
            Ok(()) => self.remove(from),
            Err(error @ Errno::EXIST) => Err(error.into()),
            // rclone's mounts say EIO for what they have not.
            Err(_) => self.rename_where_nothing_is(from, to),
        }
    }

    fn rename_where_nothing_is(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.kind(to)? {
            Some(_) => Err(Io::AlreadyExists.into()),
            None => self.replace(from, to),
        }
    }

    /// Makes a name durable.
    pub(super) fn flush_parent(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().unwrap_or(Path::new(""));
        flush(&beneath::open(&self.0, parent, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?.into())
    }
}

fn flush(directory: &File) -> io::Result<()> {
    match directory.sync_all() {
        // Some network file systems cannot flush a directory: their server does.
        Err(error) if matches!(error.kind(), Io::InvalidInput | Io::Unsupported) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn temporary() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (directory.path().join("root"), directory.path().join("elsewhere"));
        fs::create_dir_all(root.join("there")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        (directory, root, elsewhere)
    }

    #[test]
    fn only_what_lies_below_a_root_is_below_it() {
        let (directory, root, elsewhere) = temporary();
        symlink(&elsewhere, root.join("out")).unwrap();
        symlink(directory.path().join("nowhere"), root.join("dangling")).unwrap();
        symlink(&root, directory.path().join("in")).unwrap();
        let is_below = |root: &Path, path: &Path| is_below(&[root.to_owned()], path);
        for good in ["root", "root/there", "root/there/a/b", "root/new", "in/new"] {
            assert!(is_below(&root, &directory.path().join(good)), "{good}");
        }
        for bad in
            ["", "elsewhere", "rootless", "root/../elsewhere", "root/out", "root/out/new", "root/dangling", "new"]
        {
            assert!(!is_below(&root, &directory.path().join(bad)), "{bad}");
            assert!(
                OpenedDirectory::open_below(std::slice::from_ref(&root), &directory.path().join(bad)).is_err(),
                "{bad}"
            );
        }
        assert!(!is_below(&root, Path::new("there")) && !is_below(&directory.path().join("nowhere"), &root));
        for good in ["root", "root/there", "root/new", "in/newer"] {
            let opened =
                OpenedDirectory::open_below(std::slice::from_ref(&root), &directory.path().join(good)).unwrap();
            opened.create(Path::new("f")).unwrap();
            assert!(directory.path().join(good).join("f").exists(), "{good}");
        }
    }

    #[test]
    fn a_link_that_comes_between_the_look_and_the_opening_leads_nowhere() {
        let (directory, root, elsewhere) = temporary();
        fs::create_dir(elsewhere.join("new")).unwrap();
        let seen = place(&root, &root.join("there/new")).unwrap();
        fs::rename(root.join("there"), directory.path().join("aside")).unwrap();
        symlink(&elsewhere, root.join("there")).unwrap();
        assert!(OpenedDirectory::open_at(&seen).is_err(), "the last directory but one is a link now");
        let seen = place(&root, &root.join("fresh")).unwrap();
        symlink(&elsewhere, root.join("fresh")).unwrap();
        assert!(OpenedDirectory::open_at(&seen).is_err(), "the last one is");
        assert_eq!(fs::read_dir(elsewhere.join("new")).unwrap().count(), 0);
    }

    #[test]
    fn what_is_opened_is_written_into_wherever_its_name_leads_by_then() {
        let (directory, root, elsewhere) = temporary();
        let opened = OpenedDirectory::open_below(std::slice::from_ref(&root), &root.join("there")).unwrap();
        fs::rename(root.join("there"), directory.path().join("aside")).unwrap();
        symlink(&elsewhere, root.join("there")).unwrap();
        opened.make(Path::new("d")).unwrap();
        opened.create(Path::new("d/file")).unwrap();
        assert!(directory.path().join("aside/d/file").exists());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        symlink(&elsewhere, directory.path().join("aside/a")).unwrap();
        for path in ["a/file", "a"] {
            assert!(opened.create(Path::new(path)).is_err() && opened.write(Path::new(path)).is_err(), "{path}");
            assert!(opened.rename(Path::new("d/file"), Path::new("a/file")).is_err());
        }
        assert_eq!(opened.make_parents(Path::new("a/b/c")).unwrap_err().kind(), Io::NotADirectory);
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[test]
    fn without_a_renaming_that_replaces_nothing_a_name_is_still_given_once() {
        for give in [OpenedDirectory::name_anew, OpenedDirectory::rename_where_nothing_is] {
            let root = tempfile::tempdir().unwrap();
            let opened = OpenedDirectory::open(root.path()).unwrap();
            let [new, other, taken] = ["new", "other", "taken"].map(Path::new);
            fs::write(root.path().join(new), "new").unwrap();
            fs::write(root.path().join(other), "other").unwrap();
            give(&opened, new, taken).unwrap();
            assert_eq!(give(&opened, other, taken).unwrap_err().kind(), Io::AlreadyExists);
            assert_eq!(fs::read(root.path().join(taken)).unwrap(), b"new");
            assert!(!root.path().join(new).exists());
            assert_eq!(fs::read(root.path().join(other)).unwrap(), b"other", "what found no place is still there");
        }
    }
}
