//! How much memory this process may take, as the system says it, and the budget that follows from
//! it when nobody names one.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The budget where there is plenty.
const BUDGET: u64 = 1 << 30;
/// Less than this cannot hold one upload's base window and one segment's work.
pub(super) const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// Memory of the machine, and of the cgroup that this process is in, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineMemory {
    pub(crate) machine: Option<u64>,
    pub(crate) group: Option<u64>,
}

impl MachineMemory {
    /// As `/proc` and `/sys/fs/cgroup` say it; `None` where they say nothing.
    pub(crate) fn found() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self {
            machine: fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text)),
            group: group_limit(Path::new("/sys/fs/cgroup"), &own),
        }
    }

    /// The smaller of both: with more the process is ended.
    pub(crate) fn limit(self) -> Option<u64> {
        [self.machine, self.group].into_iter().flatten().min()
    }

    /// The default of `limits.memory_bytes_max`: 1 GiB, or half of the memory where that is less.
    /// Code, connections and the allocator need the other half.
    pub(super) fn default_budget(self) -> u64 {
        self.limit().map_or(BUDGET, |limit| (limit / 2).clamp(MEMORY_BYTES_MIN, BUDGET))
    }
}

/// `MemTotal` in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of a process's group and those above it; `None` where there is none. `own` is
/// `/proc/self/cgroup`.
fn group_limit(root: &Path, own: &str) -> Option<u64> {
    let limit = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let unified = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let group = root.join(unified.unwrap_or_default());
    let groups = group.ancestors().take_while(|group| group.starts_with(root));
    let second = groups.filter_map(|group| limit(group.join("memory.max"))).min();
    // Version 1 has a tree for each resource.
    let first = own.lines().find_map(|line| line.split_once(":memory:/").map(|(_, path)| path));
    let memory = root.join("memory");
    let group = first.map(|path| memory.join(path));
    let groups = group.iter().flat_map(|group| group.ancestors()).take_while(|group| group.starts_with(&memory));
    let first = groups.filter_map(|group| limit(group.join("memory.limit_in_bytes"))).min();
    [second, first].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_groups_limit_is_the_least_of_its_own_and_those_above_it() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(group_limit(root.path(), "0::/a/b\n"), Some(1000));
        assert_eq!(group_limit(root.path(), "0::/\n"), None);
        write("memory/c/memory.limit_in_bytes", "77\n");
        write("memory/c/d/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(group_limit(root.path(), "3:cpu:/x\n9:memory:/c\n"), Some(77));
        assert_eq!(group_limit(root.path(), "9:memory:/c/d\n0::/\n"), Some(77));
        assert_eq!(total("MemFree: 1 kB\nMemTotal:   2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn the_default_budget_leaves_half_of_a_small_machine_and_of_a_small_group_alone() {
        let budget = |machine, group| MachineMemory { machine, group }.default_budget();
        assert_eq!(budget(Some(32 << 30), None), 1 << 30);
        assert_eq!(budget(Some(32 << 30), Some(512 * MIB)), 256 * MIB);
        assert_eq!(budget(Some(1 << 30), Some(u64::MAX)), 512 * MIB);
        assert_eq!(budget(Some(100 * MIB), None), 64 * MIB);
        assert_eq!(budget(None, None), 1 << 30);
    }
}
