//! The embedded catalog: SQLite in write-ahead mode, owned by one process.
//!
//! ```text
//! change ──► bounded queue ──► one writer thread: BEGIN, the changes, COMMIT (fsync) ──► answers
//! read   ──► a pooled connection: of few rows on the thread that asks, else on a blocking one
//! ```
//!
//! A commit's answer is sent after the log is on disk. What waits in the queue meanwhile goes into
//! the next commit together, so the cost of flushing is shared by however many wait for it.

mod agreement;
mod at_once;
mod connection;
mod errors;
mod gather;
mod options;
mod ownership;
mod readers;
mod remains;
mod scour;
#[cfg(feature = "simulated")]
pub(crate) mod simulated;
#[cfg(test)]
mod tests;
mod writer;

use crate::{
    CatalogError, Gate, Result,
    relational::{
        change::{Change, Outcome},
        engine::{Consistency, Engine, Question},
        kept_buckets::KeptBuckets,
    },
    types::{NO_SERVER, ServerRun},
};
pub use remains::{Remains, read_remains, set_aside};

use connection::SqliteSession;
use options::Place;
pub use options::{ReadWork, SqliteOptions};
use ownership::Ownership;
use readers::Readers;
use scour::Scouring;
use std::{
    path::Path,
    sync::{Arc, OnceLock},
    time::Instant,
};
use writer::Writer;

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
        let session = match connection::open_and_migrate(&place) {
            // As for a read: a disk that did not give a page once looks the same.
            Err(CatalogError::Damaged(_)) => connection::open_and_migrate(&place)?,
            opened => opened?,
        };
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

    async fn carry_out(&self, change: Change) -> Result<(Outcome, ServerRun)> {
        Ok((self.writer.change(change).await?, NO_SERVER))
    }

    async fn read<T: Send + 'static>(
        &self,
        consistency: Consistency,
        question: Question<SqliteSession, T>,
    ) -> Result<T> {
        Readers::ask(&self.readers, consistency, question).await
    }

    async fn scour_file(&self, moves_rows: bool) -> Result<bool> {
        let mut scouring = Scouring::Begin;
        while scouring != Scouring::Done {
            let began = Instant::now();
            scouring = self.writer.scour(scouring).await?.or_the_log_unless(moves_rows);
            tokio::time::sleep(scouring.pause(began.elapsed())).await;
        }
        Ok(true)
    }
}
