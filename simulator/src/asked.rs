//! What clients wait for, and what they know.

use crate::operations::Operation;
use catalog::VersionRef;
use tokio::task::AbortHandle;

/// One client: asks for one thing at a time.
pub(crate) struct Client {
    pub(crate) next_ms: i64,
    pub(crate) waits_for: Option<u64>,
}

impl Client {
    pub(crate) fn new(_: usize) -> Self {
        Self { next_ms: 0, waits_for: None }
    }
}

/// Something that is asked for.
pub(crate) struct Pending {
    pub(crate) id: u64,
    pub(crate) replica: usize,
    pub(crate) bucket: usize,
    pub(crate) key: String,
    pub(crate) operation: Operation,
    pub(crate) asked: u64,
    pub(crate) handle: AbortHandle,
}

/// A version that was acknowledged.
pub(crate) struct Known {
    pub(crate) key: String,
    pub(crate) version: VersionRef,
    pub(crate) content: u64,
    /// Somebody asked for its removal.
    pub(crate) may_be_gone: bool,
    /// Somebody was told that it is removed.
    pub(crate) is_gone: bool,
}
