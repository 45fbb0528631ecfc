//! The embedded catalog: SQLite in write-ahead mode, owned by one process.
//!
//! ```text
//! change ──► bounded queue ──► one writer thread: BEGIN, a savepoint per change, COMMIT (fsync) ──► answers
//! read   ──► a pooled connection on a blocking thread, in a read transaction of its own
//! ```
//!
//! A commit's answer is sent after the log is on disk. What waits in the queue meanwhile goes into
//! the next commit together, so the cost of flushing is shared by however many wait for it.

mod connection;
mod ownership;
mod readers;
mod remains;
#[cfg(test)]
mod tests;
mod writer;

use crate::{
    CatalogError, CommitObserver, Gate, Result, SpareSpace,
    relational::{
        change::{Change, Outcome},
        engine::{Consistency, Engine, Question},
        kept_buckets::KeptBuckets,
    },
};
pub use remains::{Remains, read_remains, set_aside};

use connection::SqliteSession;
use ownership::Ownership;
use readers::Readers;
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};
use writer::Writer;

/// How the embedded catalog is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Flush every commit before it is acknowledged. `false` leaves that to the operating system:
    /// the last commits may be lost with the machine (not with the process), the database stays
    /// whole.
    pub sync: bool,
    /// Most reads at a time, each with a connection and a blocking thread; more wait.
    pub readers_max: usize,
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
        SqliteOptions { sync: true, readers_max: 8, group_max: 128, bytes_max: None, observer: None, spare: None }
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

/// The embedded catalog.
///
/// Dropping it waits for the changes that are queued and gives the ownership up.
pub struct SqliteCatalog {
    // Dropped in this order: no connection outlives the ownership.
    writer: Writer,
    readers: Arc<Readers>,
    gate: OnceLock<Arc<dyn Gate>>,
    _ownership: Arc<Ownership>,
}

/// What the parts of one open catalog share.
#[derive(Clone)]
struct Place {
    path: PathBuf,
    options: SqliteOptions,
}

impl SqliteCatalog {
    /// Opens the catalog in the file `path`, creating it when it is not there; the directory must
    /// be. Brings an older schema up to date.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] when another process (or another value in this one) has it open,
    /// [`CatalogError::NewerSchema`] when a newer program wrote it, [`CatalogError::Full`] and
    /// [`CatalogError::Unavailable`] as the file system says.
    pub async fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self> {
        let place = Place { path: path.as_ref().to_owned(), options };
        tokio::task::spawn_blocking(move || Self::open_blocking(place))
            .await
            .map_err(|error| CatalogError::Other(error.to_string()))?
    }

    fn open_blocking(place: Place) -> Result<Self> {
        let ownership = Arc::new(Ownership::take(&place.path)?);
        let session = connection::open_and_migrate(&place)?;
        let readers = Arc::new(Readers::new(place.clone(), Arc::clone(&ownership)));
        let writer = Writer::start(place, session, Arc::clone(&readers))?;
        Ok(SqliteCatalog { writer, readers, gate: OnceLock::new(), _ownership: ownership })
    }

    /// What reading has cost so far.
    pub fn read_work(&self) -> ReadWork {
        self.readers.work()
    }
}

impl Engine for SqliteCatalog {
    type Session = SqliteSession;

    fn gate(&self) -> &OnceLock<Arc<dyn Gate>> {
        &self.gate
    }

    fn kept_buckets(&self) -> Option<&KeptBuckets> {
        Some(self.readers.kept_buckets())
    }

    async fn change(&self, change: Change) -> Result<Outcome> {
        self.writer.change(change).await
    }

    async fn read<T: Send + 'static>(
        &self,
        consistency: Consistency,
        question: Question<SqliteSession, T>,
    ) -> Result<T> {
        Readers::ask(&self.readers, consistency, question).await
    }
}
