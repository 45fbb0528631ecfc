//! This machine: memory, descriptors, disks.

use super::finding::Check;
use crate::{
    cli::{
        print::bytes,
        serve::{connections_within, descriptors_max},
    },
    config::MachineMemory,
    stores::BackendConfig,
};
use rustix::{
    fs::{Access, StatVfs, access, statvfs},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// A file system with less left than this refuses uploads before long.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// A file system with fewer inodes left cannot take many more blobs.
const FREE_INODES_MIN: u64 = 10_000;

/// The budget against the memory that there is.
pub(super) fn memory(budget: u64) -> Check {
    judge_memory(budget, MachineMemory::found())
}

fn judge_memory(budget: u64, memory: MachineMemory) -> Check {
    let MachineMemory { machine, group } = memory;
    let is_groups = machine.is_none_or(|machine| group.is_some_and(|group| group < machine));
    let whose = if is_groups { "this cgroup" } else { "this machine" };
    let Some(limit) = memory.limit() else {
        return Check::ok("memory", format!("limits.memory_bytes_max is {}", bytes(budget)));
    };
    let said = format!("limits.memory_bytes_max is {}, {whose} has {}", bytes(budget), bytes(limit));
    // The budget bounds what grows with load; code, connections and allocator come on top.
    let fitting = limit / 4 * 3;
    let remedy = format!("set limits.memory_bytes_max to at most {}MiB, or give it more memory", fitting >> 20);
    match budget {
        _ if budget > limit => Check::failed("memory", said, remedy),
        _ if budget > fitting => Check::warning("memory", said, remedy),
        _ => Check::ok("memory", said),
    }
}

/// Whether as many connections as are wanted get descriptors.
pub(super) fn open_files(wanted: usize) -> Check {
    let Some(descriptors) = descriptors_max() else { return Check::ok("open files", "there is no limit") };
    judge_open_files(descriptors, wanted)
}

fn judge_open_files(descriptors: u64, wanted: usize) -> Check {
    let remedy = "raise the limit (LimitNOFILE= of the unit, ulimit -n), or lower limits.connections_max";
    match connections_within(descriptors, wanted) {
        None => Check::failed("open files", format!("{descriptors} are too few to serve with"), remedy),
        Some(fitting) if fitting < wanted => {
            let said = format!("{descriptors} are enough for {fitting} of {wanted} connections");
            Check::warning("open files", said, remedy)
        }
        Some(_) => Check::ok("open files", format!("{descriptors} are enough for {wanted} connections")),
    }
}

/// What no mode or owner of a file changes.
const READ_ONLY: &str = "a file system that is mounted read-only";
pub(super) const REMOUNT: &str =
    "mount it read-write (mount -o remount,rw); if it was, dmesg says why the kernel made it read-only";

/// Whether what is below a path cannot be written, whoever asks.
pub(super) fn is_read_only(path: &Path) -> bool {
    access(path, Access::WRITE_OK) == Err(Errno::ROFS)
}

/// The data directory: ours, and nobody else's.
pub(super) fn data_directory(data: &Path) -> Check {
    let shown = data.display();
    let Ok(found) = fs::metadata(data) else { return to_be_made("data directory", data) };
    let own = rustix::process::geteuid().as_raw();
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    let writable = access(data, Access::WRITE_OK | Access::EXEC_OK);
    match () {
        () if !found.is_dir() => {
            Check::failed("data directory", format!("{shown} is no directory"), "set storage.data")
        }
        () if writable == Err(Errno::ROFS) => {
            Check::failed("data directory", format!("{shown} lies on {READ_ONLY}"), REMOUNT)
        }
        () if owner != own && own != 0 => {
            let said = format!("{shown} belongs to user {owner}, and this is user {own}");
            Check::failed("data directory", said, "run as its owner, or chown it")
        }
        () if writable.is_err() => {
            Check::failed("data directory", format!("{shown} cannot be written to"), "chmod u+rwx it")
        }
        () if mode & 0o077 != 0 => {
            let said = format!("{shown} has mode {mode:04o}: others may look into it");
            Check::warning("data directory", said, "chmod 700 it: keys and tokens are in it")
        }
        () => Check::ok("data directory", shown.to_string()),
    }
}

/// A directory that is not there yet can be made where its nearest parent can be written to.
pub(super) fn to_be_made(check: &str, path: &Path) -> Check {
    let parent = nearest(path);
    let said = format!("{} is not there yet", path.display());
    match access(&parent, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Check::ok(check, format!("{said}, and can be made")),
        Err(Errno::ROFS) => {
            Check::failed(check, format!("{said}, and {} lies on {READ_ONLY}", parent.display()), REMOUNT)
        }
        Err(error) => {
            let remedy = format!("make it, or let this user write to {}", parent.display());
            Check::failed(check, format!("{said}, and {} refuses: {error}", parent.display()), remedy)
        }
    }
}

/// The path itself, or the nearest directory above it that is there.
fn nearest(path: &Path) -> PathBuf {
    let there = path.ancestors().find(|path| path.is_dir()).filter(|path| *path != Path::new(""));
    there.map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Space and inodes of every file system that is written to, each once.
pub(super) fn disks(data: &Path, backends: &BTreeMap<String, BackendConfig>) -> Vec<Check> {
    let local = backends.iter().filter_map(|(name, backend)| match backend {
        BackendConfig::Local { path } => Some((format!("disk {name}"), path.as_path())),
        BackendConfig::Cloud(_) => None,
    });
    let mut seen = Vec::new();
    let mut checks = Vec::new();
    for (name, path) in [("disk data".to_owned(), data)].into_iter().chain(local) {
        let there = nearest(path);
        let device = fs::metadata(&there).map(|found| found.dev()).ok();
        if device.is_some() && seen.contains(&device) {
            continue;
        }
        seen.push(device);
        checks.push(match statvfs(&there) {
            Ok(figures) => judge_disk(&name, &Figures::of(&figures)),
            Err(error) => Check::failed(name, format!("{}: {error}", there.display()), "look at the mount"),
        });
    }
    checks
}

/// What a file system has left.
struct Figures {
    free_bytes: u64,
    size_bytes: u64,
    /// File systems that make inodes as they need them have none to tell of.
    inodes: Option<(u64, u64)>,
}

impl Figures {
    fn of(figures: &StatVfs) -> Self {
        Self {
            free_bytes: figures.f_bavail.saturating_mul(figures.f_frsize),
            size_bytes: figures.f_blocks.saturating_mul(figures.f_frsize),
            inodes: (figures.f_files > 0).then_some((figures.f_favail, figures.f_files)),
        }
    }
}

fn judge_disk(name: &str, figures: &Figures) -> Check {
    let Figures { free_bytes, size_bytes, inodes } = figures;
    let said = format!("{} of {} free", bytes(*free_bytes), bytes(*size_bytes));
    if let Some((free, all)) = inodes
        && *free < FREE_INODES_MIN
    {
        let remedy = "remove small files, or make a file system with more inodes (mkfs -N): each blob takes one";
        let said = format!("{said}, but {free} of {all} inodes");
        return if *free == 0 { Check::failed(name, said, remedy) } else { Check::warning(name, said, remedy) };
    }
    let remedy = "make room: deltaweir gc --now, a larger disk, or another backend";
    match *free_bytes {
        0 => Check::failed(name, said, remedy),
        free if free < FREE_BYTES_MIN => Check::warning(name, said, remedy),
        _ => Check::ok(name, said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::State;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_budget_is_held_against_the_smaller_of_machine_and_group() {
        let judged = |budget, machine, group| {
            let check = judge_memory(budget, MachineMemory { machine, group });
            (check.state, check.detail.contains("this cgroup"))
        };
        assert_eq!(judged(GIB, Some(8 * GIB), None), (State::Ok, false));
        assert_eq!(judged(GIB, Some(8 * GIB), Some(GIB / 2)), (State::Failed, true));
        assert_eq!(judged(7 * GIB, Some(8 * GIB), Some(64 * GIB)), (State::Warning, false));
        assert_eq!(judged(GIB, None, Some(2 * GIB)), (State::Ok, true));
        assert_eq!(judged(GIB, None, None).0, State::Ok);
        let tight = judge_memory(GIB, MachineMemory { machine: Some(GIB), group: None });
        assert!(tight.remedy.contains("at most 768MiB"));
    }

    #[test]
    fn descriptors_and_disks_are_judged_by_what_they_are_enough_for() {
        assert_eq!(judge_open_files(65, 8).state, State::Failed);
        assert_eq!(judge_open_files(128, 4096).state, State::Warning);
        assert_eq!(judge_open_files(1 << 20, 4096).state, State::Ok);
        let disk =
            |free_bytes, inodes| judge_disk("disk data", &Figures { free_bytes, size_bytes: 100 * GIB, inodes }).state;
        assert_eq!(disk(50 * GIB, Some((1 << 20, 1 << 21))), State::Ok);
        assert_eq!(disk(50 * GIB, None), State::Ok);
        assert_eq!((disk(GIB / 2, None), disk(0, None)), (State::Warning, State::Failed));
        assert_eq!((disk(50 * GIB, Some((9, 99))), disk(50 * GIB, Some((0, 99)))), (State::Warning, State::Failed));
    }

    #[test]
    fn a_directory_that_is_not_there_is_judged_by_its_nearest_parent() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(to_be_made("data directory", &root.path().join("a/b")).state, State::Ok);
        assert_eq!(nearest(&root.path().join("a/b")), root.path());
        assert_eq!(nearest(Path::new("not-there")), Path::new("."));
    }
}
