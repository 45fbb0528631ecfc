//! Files below one directory, however somebody arranges links in it: no component of a path is a
//! symbolic link, and none leads out.
//!
//! `openat2` says this to the kernel. Kernels before 5.6 and some sandboxes lack it; there each
//! component is opened from the one before.

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::{Errno, retry_on_intr},
};
use std::{
    ffi::OsStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Component, Path},
};

/// The last component of a path and the directory it stands in.
pub struct Entry<'a> {
    parent: Option<OwnedFd>,
    root: BorrowedFd<'a>,
    name: &'a OsStr,
}

impl Entry<'_> {
    /// The directory.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.parent.as_ref().map_or(self.root, AsFd::as_fd)
    }

    /// The name in it.
    pub fn name(&self) -> &OsStr {
        self.name
    }
}

/// Opens `path` below `root`; the root itself when it is empty.
///
/// # Errors
/// As the system says; a link in the way is [`Errno::LOOP`].
pub fn open(root: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match retry_on_intr(|| rustix::fs::openat2(&root, path, flags, mode, resolve)) {
        // A link where a directory is asked for is told as no directory: the other way tells which.
        Err(Errno::NOSYS | Errno::PERM | Errno::NOTDIR) => by_component(root, path, flags, mode),
        opened => Ok(opened?),
    }
}

/// Finds the directory that holds the last component of `path`, which need not be there.
///
/// # Errors
/// As for [`open`].
pub fn entry<'a>(root: BorrowedFd<'a>, path: &'a Path) -> io::Result<Entry<'a>> {
    let Some(Component::Normal(name)) = path.components().next_back() else { return Err(Errno::INVAL.into()) };
    let parent = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => Some(open(root, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?),
        None => None,
    };
    Ok(Entry { parent, root, name })
}

/// What stands at `path`, without following it.
///
/// # Errors
/// As for [`open`].
pub fn stat(root: BorrowedFd<'_>, path: &Path) -> io::Result<Stat> {
    if path.as_os_str().is_empty() {
        return Ok(rustix::fs::fstat(root)?);
    }
    let entry = entry(root, path)?;
    Ok(rustix::fs::statat(entry.directory(), entry.name(), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Opens one component after the other, none of them a link.
fn by_component(root: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let mut directory: Option<OwnedFd> = None;
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => OsStr::new("."),
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return Err(Errno::XDEV.into()),
        };
        let at = directory.as_ref().map_or(root.as_fd(), AsFd::as_fd);
        let is_last = components.peek().is_none();
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (flags, mode) = if is_last { (flags, mode) } else { (through, Mode::empty()) };
        let opened = retry_on_intr(|| rustix::fs::openat(at, name, flags, mode)).map_err(|error| match error {
            // Said of a link, too, where a directory is asked for: a link is not something absent.
            Errno::NOTDIR if is_link(at, name) => Errno::LOOP,
            error => error,
        })?;
        if is_last {
            return Ok(opened);
        }
        directory = Some(opened);
    }
    Err(Errno::INVAL.into())
}

fn is_link(directory: BorrowedFd<'_>, name: &OsStr) -> bool {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn no_component_may_be_a_link_or_lead_out_with_openat2_and_without() {
        let (outside, root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "s").unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        fs::write(root.path().join("d/file"), "f").unwrap();
        symlink(outside.path(), root.path().join("away")).unwrap();
        symlink("d", root.path().join("near")).unwrap();
        symlink("file", root.path().join("d/link")).unwrap();
        let directory = fs::File::open(root.path()).unwrap();
        type Open = fn(&fs::File, &Path, OFlags, Mode) -> io::Result<OwnedFd>;
        let ways: [Open; 2] = [
            |root, path, flags, mode| open(root, path, flags, mode),
            |root, path, flags, mode| by_component(root, path, flags | OFlags::NOFOLLOW, mode),
        ];
        let up = format!("../{}/secret", outside.path().file_name().unwrap().display());
        let absolute = outside.path().join("secret");
        for way in ways {
            let opened = |path: &str| way(&directory, Path::new(path), OFlags::RDONLY, Mode::empty());
            assert!(opened("d/file").is_ok() && opened("d").is_ok());
            for path in ["away/secret", "near/file", "d/link", "away", &up, absolute.to_str().unwrap(), "d/../d/file"] {
                // Inside the root, `..` is harmless, and the kernel lets it pass.
                assert!(opened(path).is_err() || path == "d/../d/file", "{path}");
            }
            for path in ["away/secret", "near/file", "d/link"] {
                assert_eq!(Errno::from_io_error(&opened(path).unwrap_err()), Some(Errno::LOOP), "{path}");
            }
        }
        for path in ["away/secret", "near/file"] {
            assert!(entry(directory.as_fd(), Path::new(path)).is_err(), "{path}");
            assert!(stat(directory.as_fd(), Path::new(path)).is_err(), "{path}");
        }
        assert!(stat(directory.as_fd(), Path::new("d/file")).is_ok());
    }
}
