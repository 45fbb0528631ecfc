//! How the embedded catalog is opened, and what is counted of it.

use crate::{CommitObserver, SpareSpace};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// How the embedded catalog is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Flush every commit before it is acknowledged. `false` leaves that to the operating system:
    /// the last commits may be lost with the machine (not with the process), the database stays
    /// whole.
    pub sync: bool,
    /// Most reads at a time, each with a connection and a blocking thread; more wait.
    pub readers_max: usize,
    /// A read of few rows is answered on the thread that asks, until some in a row take longer than
    /// this: then their pages are not in memory.
    pub read_at_once_max: Duration,
    /// Most changes of one commit.
    pub group_max: usize,
    /// Most bytes of the database file; past it changes fail with [`CatalogError::Full`] and reads
    /// go on. `None`: as the disk allows.
    pub bytes_max: Option<u64>,
    /// Is told of commits.
    pub observer: Option<Arc<dyn CommitObserver>>,
    /// What is given back when the disk is full, so that changes which make space go on.
    pub spare: Option<Arc<dyn SpareSpace>>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions {
            sync: true,
            readers_max: 8,
            read_at_once_max: Duration::from_millis(1),
            group_max: 128,
            bytes_max: None,
            observer: None,
            spare: None,
        }
    }
}

/// What reading has cost since the catalog was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadWork {
    /// Statements run.
    pub statements: u64,
    /// Rows they gave.
    pub rows: u64,
    /// Instructions of SQLite's virtual machine: what was really done, whether it gave rows or not.
    pub vm_steps: u64,
    /// Statements that were compiled again, by the writing connection too: a schema that changed,
    /// or a plan that rests on bound values.
    pub reprepares: u64,
}

/// What the parts of one open catalog share.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) options: SqliteOptions,
}
