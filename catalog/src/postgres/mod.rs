//! The catalog of several processes: PostgreSQL.
//!
//! ```text
//! change ──► bounded queue ──► one writer task, one connection: BEGIN, reads, lock the number's row, writes, COMMIT ──► answers
//! read   ──► a pooled connection; several statements in a repeatable-read transaction
//! ```
//!
//! Every transaction that changes anything locks the row that holds the last sequence number before
//! it writes, and holds it until it is committed. So mutations of all processes are carried out one
//! group after the other: the order of numbers is the order of commits, no two can deadlock, and
//! each rests on everything before it, because it has the lock when it reads ([`together`]) or
//! finds out under the lock that nothing of that has changed ([`late`]). A process's changes that
//! wait share a group, and those of different keys share its journeys, which is what makes that
//! fast enough (docs/reference/postgres.md).

mod address;
mod asking;
mod errors;
mod foresight;
mod gather;
mod late;
mod migrate;
mod options;
mod pool;
mod replication;
mod session;
mod tls;
mod together;
mod writer;

use crate::{
    Gate, Result,
    relational::{
        change::{Change, Outcome},
        engine::{Consistency, Engine, Question},
    },
    types::ServerRun,
};
use address::Address;
pub use options::PostgresOptions;
use pool::{Patience, Pool, Use};
use session::PostgresSession;
use std::sync::{Arc, OnceLock};
use writer::Writer;

/// The shared catalog.
///
/// Changes that are queued when it is dropped are still carried out as long as the runtime lives.
pub struct PostgresCatalog {
    writer: Writer,
    readers: Pool,
    gate: OnceLock<Arc<dyn Gate>>,
}

impl PostgresCatalog {
    /// Whether `url` is the address of a database; asks none.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] with what is wrong; never with the URL itself.
    pub fn check_address(url: &str) -> Result<()> {
        Address::parse(url).map(drop)
    }

    /// Connects to the database at `url` (docs/reference/postgres.md, "Address") and brings its
    /// schema up to date. Needs a Tokio runtime.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`](crate::CatalogError::Invalid) for an address that is none,
    /// [`CatalogError::NewerSchema`](crate::CatalogError::NewerSchema) when a newer program wrote
    /// the catalog, [`CatalogError::Unavailable`](crate::CatalogError::Unavailable) when the
    /// database cannot be reached.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self> {
        let mut address = Address::parse(url)?;
        if let Some(password) = &options.password {
            address.config.password(password);
        }
        let readers = Pool::new(&address, &options, Use::Reading)?;
        let writing = Pool::new(&address, &options, Use::Writing)?.before(&readers);
        migrate::migrate(&writing).await?;
        Ok(PostgresCatalog { writer: Writer::start(writing, options)?, readers, gate: OnceLock::new() })
    }
}

impl Engine for PostgresCatalog {
    type Session = PostgresSession;

    fn gate(&self) -> &OnceLock<Arc<dyn Gate>> {
        &self.gate
    }

    async fn carry_out(&self, change: Change) -> Result<(Outcome, ServerRun)> {
        self.writer.change(change).await
    }

    async fn failover_warning(&self) -> Result<Option<String>> {
        self.read(Consistency::Statement, Box::new(|session| Box::pin(replication::warning(session)))).await
    }

    async fn read<T: Send + 'static>(
        &self,
        consistency: Consistency,
        question: Question<PostgresSession, T>,
    ) -> Result<T> {
        let mut patience = Patience::new(&self.readers);
        loop {
            match ask(&self.readers, consistency, &question).await {
                Err(error) => patience.wait_after(error).await?,
                answered => return answered,
            }
        }
    }
}

async fn ask<T>(pool: &Pool, consistency: Consistency, question: &Question<PostgresSession, T>) -> Result<T> {
    let mut session = pool.session().await?;
    match consistency {
        Consistency::Point | Consistency::Statement => question(&mut session).await,
        Consistency::Snapshot => {
            session.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
            let answer = question(&mut session).await?;
            session.end("COMMIT").await?;
            Ok(answer)
        }
    }
}
