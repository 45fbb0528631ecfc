//! The system calls of the local backend behind one small trait, so that a test can count them and
//! make one fail.
//!
//! Every path is relative to the root directory, whose descriptor is held open: the root cannot be
//! swapped under a running process, and [`Disk::check_root`] tells when it was swapped at its path.
//! Nothing here follows a symbolic link, wherever in a path it stands. All calls block.

use crate::beneath;
use bytes::Bytes;
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags},
    io::{Errno, retry_on_intr},
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, IoSlice},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// What the local backend asks of the operating system.
pub(super) trait Disk: Send + Sync + 'static {
    /// Opens a new, empty, private file that has no name and vanishes when closed.
    fn create_unnamed(&self) -> io::Result<File>;
    /// Creates a new, empty, private file under a name that must not exist, and locks it.
    fn create_named(&self, path: &Path) -> io::Result<File>;
    /// Writes all of `pieces`, one after the other, from `offset` on.
    fn write_at(&self, file: &File, pieces: &[Bytes], offset: u64) -> io::Result<()>;
    /// Forces a file's bytes and length to the medium.
    fn sync_file(&self, file: &File) -> io::Result<()>;
    /// Gives a file made by [`Disk::create_unnamed`] a name that must not exist.
    fn link(&self, file: &File, to: &Path) -> io::Result<()>;
    /// Renames to a name that must not exist.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Forces a directory's entries to the medium.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes one private directory; one that exists is fine.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Opens a regular file for reading and tells its length.
    fn open(&self, path: &Path) -> io::Result<(File, u64)>;
    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>>;
    /// What stands at `path`, without following it.
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// Removes a file's name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory that is empty.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// The names in a directory, `.` and `..` left out.
    fn entries(&self, dir: &Path) -> io::Result<Vec<OsString>>;
    /// An error when the root's path leads to another directory than the one that is open, or
    /// nowhere: a disk was unmounted or mounted over it, or somebody moved it away.
    fn check_root(&self) -> io::Result<()> {
        Ok(())
    }
    /// Whether calls that only look names up may be made where no thread may wait: the root lies on
    /// a file system of this machine, and so does every directory on the way to it.
    fn is_at_hand(&self) -> bool {
        false
    }
    /// Whether no living process holds the lock of [`Disk::create_named`] on this file.
    fn is_left_over(&self, path: &Path) -> io::Result<bool>;
}

/// Facts about one directory entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    pub(super) is_dir: bool,
    pub(super) is_file: bool,
    pub(super) len: u64,
    pub(super) modified: Option<SystemTime>,
}

/// The real system calls below one root directory.
pub(super) struct Posix {
    root: OwnedFd,
    path: PathBuf,
    /// Device and inode of the open root.
    identity: (u64, u64),
    is_at_hand: bool,
}

impl Posix {
    /// Opens the root, making it and its parents when they are missing, and syncs what it made.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        make_durable_dirs(root)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let path = std::path::absolute(root)?;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let identity = identity(&rustix::fs::fstat(&root)?);
        let is_at_hand = path.ancestors().all(is_on_this_machine);
        Ok(Self { root, path, identity, is_at_hand })
    }

    fn open_beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
        Ok(File::from(beneath::open(&self.root, path, flags, mode)?))
    }

    fn entry<'a>(&'a self, path: &'a Path) -> io::Result<beneath::Entry<'a>> {
        beneath::entry(self.root.as_fd(), path)
    }
}

impl Disk for Posix {
    fn create_unnamed(&self) -> io::Result<File> {
        let dir = Path::new(super::layout::TEMP_DIR);
        self.open_beneath(dir, OFlags::TMPFILE | OFlags::RDWR, FILE_MODE)
    }

    fn create_named(&self, path: &Path) -> io::Result<File> {
        let file = self.open_beneath(path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, FILE_MODE)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // File systems without locks: the start-up sweep then takes the file for left over, and
            // the upload it belonged to fails at its rename. Nothing is lost.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(file),
            Err(error) => Err(error.into()),
        }
    }

    fn write_at(&self, file: &File, pieces: &[Bytes], mut offset: u64) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left: &mut [IoSlice<'_>] = &mut slices;
        IoSlice::advance_slices(&mut left, 0); // drops leading empty pieces
        while !left.is_empty() {
            let batch = &left[..left.len().min(IOVEC_MAX)];
            let written = retry_on_intr(|| rustix::io::pwritev(file, batch, offset))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            offset += written as u64;
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(())
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        // Not repeated when interrupted or failed: after a failed fsync the kernel may have dropped
        // the dirty pages, and a second fsync that succeeds would prove nothing.
        Ok(rustix::fs::fsync(file)?)
    }

    fn link(&self, file: &File, to: &Path) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        // linkat with AT_EMPTY_PATH needs a capability; the way through /proc does not.
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        let to = self.entry(to)?;
        Ok(retry_on_intr(|| {
            rustix::fs::linkat(rustix::fs::CWD, from.as_str(), to.directory(), to.name(), AtFlags::SYMLINK_FOLLOW)
        })?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (source, target) = (self.entry(from)?, self.entry(to)?);
        let (old, old_name) = (source.directory(), source.name());
        let (new, new_name) = (target.directory(), target.name());
        match rustix::fs::renameat_with(old, old_name, new, new_name, RenameFlags::NOREPLACE) {
            // File systems without renameat2 (NFS among them): a hard link is exclusive everywhere.
            Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(old, old_name, new, new_name, AtFlags::empty())?;
                // The blob is in place; a second name that stays behind is the next sweep's
                // business.
                self.unlink(from).or(Ok(()))
            }
            result => Ok(result?),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = self.open_beneath(dir, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
        Ok(rustix::fs::fsync(&dir)?)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        let entry = self.entry(dir)?;
        match rustix::fs::mkdirat(entry.directory(), entry.name(), DIR_MODE) {
            Err(Errno::EXIST) => Ok(()),
            result => Ok(result?),
        }
    }

    fn open(&self, path: &Path) -> io::Result<(File, u64)> {
        // NONBLOCK: opening a pipe that somebody put there must not wait for its other end.
        let file = self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
        let stat = Stat::from(rustix::fs::fstat(&file)?);
        if !stat.is_file {
            return Err(io::Error::other("not a regular file"));
        }
        Ok((file, stat.len))
    }

    fn read_at(&self, file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            let wanted = len - bytes.len();
            let got = match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            if got == 0 || got >= wanted {
                break;
            }
        }
        bytes.truncate(len); // the allocator may have given more room than asked for
        Ok(bytes)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(beneath::stat(self.root.as_fd(), path)?.into())
    }

    fn check_root(&self) -> io::Result<()> {
        if identity(&rustix::fs::stat(&self.path)?) == self.identity {
            return Ok(());
        }
        Err(io::Error::other(format!("{} is another directory than the one that was opened", self.path.display())))
    }

    fn is_at_hand(&self) -> bool {
        self.is_at_hand
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let entry = self.entry(path)?;
        Ok(rustix::fs::unlinkat(entry.directory(), entry.name(), AtFlags::empty())?)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let entry = self.entry(dir)?;
        Ok(rustix::fs::unlinkat(entry.directory(), entry.name(), AtFlags::REMOVEDIR)?)
    }

    fn entries(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let dir = self.open_beneath(dir, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(dir)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    fn is_left_over(&self, path: &Path) -> io::Result<bool> {
        let file = self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<rustix::fs::Stat> for Stat {
    fn from(stat: rustix::fs::Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let modified = u64::try_from(stat.st_mtime).ok().map(|s| SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        Self { is_dir: kind.is_dir(), is_file: kind.is_file(), len: stat.st_size.unsigned_abs(), modified }
    }
}

/// Makes `root` and its missing parents, each with its parent synced, so that the root itself
/// survives a power cut.
fn make_durable_dirs(root: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let missing: Vec<PathBuf> = root
        .ancestors()
        .take_while(|dir| !dir.as_os_str().is_empty() && !dir.is_dir())
        .map(Path::to_path_buf)
        .collect();
    for dir in missing.iter().rev() {
        match std::fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            result => result?,
        }
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// Whether a path leads to a file system whose names are in this machine's memory once they were
/// looked up. Networks and programs are behind others, and what nobody knows counts as one of them.
pub(super) fn is_on_this_machine(path: &Path) -> bool {
    let Ok(found) = rustix::fs::statfs(path) else { return false };
    u32::try_from(found.f_type & 0xffff_ffff).is_ok_and(|kind| ON_THIS_MACHINE.contains(&kind))
}

fn identity(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, tmpfs and overlayfs, by what `statfs` says they are.
const ON_THIS_MACHINE: [u32; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e, 0x0102_1994, 0x794c_7630];
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const DIR_MODE: Mode = Mode::from_raw_mode(0o700);
/// Linux takes at most this many pieces in one vectored write.
const IOVEC_MAX: usize = 1024;
