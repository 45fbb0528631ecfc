//! What keeps keys in memory from other programs and from disks: no dumps, no tracer, and no swap
//! where the operator asks for that.

use super::{outcome::Outcome, print::bytes};
use rustix::{
    mm::{MlockAllFlags, mlockall},
    process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit},
    thread::{CapabilitySet, capabilities},
};
use std::io;

/// A dump would hold every key and secret there is (C115), also one of a command that opens the
/// store. The limit is for dumps to files; one that goes to a program ignores it, and asks whether
/// the process may be dumped. What may not is not traced by other programs of the same user either.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn keep_from_others() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Keeps every page of this process out of swap, also those that it takes later: keys, and what was
/// made of them, lie in many places. A page is locked when it is first used, so memory that is only
/// reserved takes none.
///
/// # Errors
/// In words, where this process may not lock as much as it will take.
pub(super) fn keep_from_swap() -> Outcome {
    check_lockable()?;
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|error| format!("server.lock_memory: the kernel refuses: {error}").into())
}

/// Whether this process may lock any number of bytes. With a bound, memory would end in the middle
/// of a request.
///
/// # Errors
/// In words, where it may not.
pub(super) fn check_lockable() -> Outcome {
    let unlimited = Rlimit { current: None, maximum: None };
    let may_lock = |sets: rustix::thread::CapabilitySets| sets.effective.contains(CapabilitySet::IPC_LOCK);
    if capabilities(None).is_ok_and(may_lock) || setrlimit(Resource::Memlock, unlimited).is_ok() {
        return Ok(());
    }
    let most = getrlimit(Resource::Memlock).maximum.map_or_else(|| "less than all".to_owned(), bytes);
    Err(format!(
        "server.lock_memory: this process may lock {most} of memory. Let it lock all: LimitMEMLOCK=infinity of the unit, \
         --ulimit memlock=-1 of a container, or CAP_IPC_LOCK"
    )
    .into())
}
