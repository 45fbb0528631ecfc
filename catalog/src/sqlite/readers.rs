//! Reads: a bounded pool of connections, used on blocking threads.

use super::{
    connection::{self, SqliteSession, finish},
    options::{Place, ReadWork},
    ownership::Ownership,
};
use crate::{
    CatalogError, Result,
    relational::{
        engine::{Consistency, Question},
        kept_buckets::KeptBuckets,
    },
};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::Semaphore;

pub(super) struct Readers {
    place: Place,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<SqliteSession>>,
    /// Held shared while a connection is in use, exclusively while all must be closed.
    in_use: RwLock<()>,
    kept_buckets: KeptBuckets,
    statements: AtomicU64,
    rows: AtomicU64,
    vm_steps: AtomicU64,
    reprepares: AtomicU64,
    // Last: a read that is still running keeps the ownership until its connection is closed.
    _ownership: Arc<Ownership>,
}

impl Readers {
    pub(super) fn new(place: Place, ownership: Arc<Ownership>) -> Self {
        Readers {
            permits: Arc::new(Semaphore::new(place.options.readers_max.max(1))),
            place,
            idle: Mutex::new(Vec::new()),
            in_use: RwLock::new(()),
            kept_buckets: KeptBuckets::default(),
            statements: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            vm_steps: AtomicU64::new(0),
            reprepares: AtomicU64::new(0),
            _ownership: ownership,
        }
    }

    pub(super) async fn ask<T: Send + 'static>(
        readers: &Arc<Self>,
        consistency: Consistency,
        question: Question<SqliteSession, T>,
    ) -> Result<T> {
        let permit = Arc::clone(&readers.permits)
            .acquire_owned()
            .await
            .map_err(|_| CatalogError::Unavailable("the catalog is closing".into()))?;
        let readers = Arc::clone(readers);
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            readers.ask_blocking(consistency, &question)
        })
        .await
        .map_err(|error| CatalogError::Other(error.to_string()))?
    }

    fn ask_blocking<T>(&self, consistency: Consistency, question: &Question<SqliteSession, T>) -> Result<T> {
        let _in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        let pooled = self.idle().pop();
        let mut session = match pooled {
            Some(session) => session,
            None => connection::open_reading(&self.place.path)?,
        };
        let before = session.work;
        let answer = match consistency {
            Consistency::Statement => finish(question(&mut session)),
            Consistency::Snapshot => {
                session.command("BEGIN")?;
                let answer = finish(question(&mut session));
                // A connection whose read transaction cannot be ended is dropped, not pooled: `?`
                // returns first.
                session.command("COMMIT")?;
                answer
            }
        };
        self.statements.fetch_add(session.work.statements - before.statements, Ordering::Relaxed);
        self.rows.fetch_add(session.work.rows - before.rows, Ordering::Relaxed);
        self.vm_steps.fetch_add(session.work.vm_steps - before.vm_steps, Ordering::Relaxed);
        self.note_reprepares(session.work.reprepares - before.reprepares);
        if !matches!(answer, Err(CatalogError::Unavailable(_) | CatalogError::Other(_))) {
            self.idle().push(session);
        }
        answer
    }

    /// Runs `reopen` while no reading connection exists.
    pub(super) fn with_all_closed<T>(&self, reopen: impl FnOnce() -> T) -> T {
        let _alone = self.in_use.write().unwrap_or_else(PoisonError::into_inner);
        // A commit whose outcome was not known may turn out to be there.
        let _changing = self.kept_buckets.changing();
        self.idle().clear();
        reopen()
    }

    pub(super) fn kept_buckets(&self) -> &KeptBuckets {
        &self.kept_buckets
    }

    /// Counts statements that a connection, the writing one included, compiled again.
    pub(super) fn note_reprepares(&self, count: u64) {
        self.reprepares.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn work(&self) -> ReadWork {
        ReadWork {
            statements: self.statements.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            vm_steps: self.vm_steps.load(Ordering::Relaxed),
            reprepares: self.reprepares.load(Ordering::Relaxed),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<SqliteSession>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
