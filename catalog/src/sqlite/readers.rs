//! Reads: a bounded pool of connections, used on blocking threads, and by whoever asks for little.

use super::{
    at_once::{AtOnce, ROWS_MAX},
    connection::{self, SqliteSession, finish},
    errors::is_of_connection,
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
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};
use tokio::sync::Semaphore;

pub(super) struct Readers {
    place: Place,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<SqliteSession>>,
    /// Held shared while a connection is in use, exclusively while all must be closed.
    in_use: RwLock<()>,
    kept_buckets: KeptBuckets,
    at_once: AtOnce,
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
            at_once: AtOnce::new(place.options.read_at_once_max),
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
        if consistency == Consistency::Point
            && let Some(answer) = readers.ask_at_once(&question)
        {
            return answer;
        }
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

    /// The answer of a read of few rows, on this thread; `None` when that would have to wait, or
    /// there are more rows.
    fn ask_at_once<T>(&self, question: &Question<SqliteSession, T>) -> Option<Result<T>> {
        let asked = Instant::now();
        if !self.at_once.may(asked) {
            return None;
        }
        let _permit = self.permits.try_acquire().ok()?;
        let _in_use = self.in_use.try_read().ok()?;
        let mut session = self.idle().pop()?;
        session.rows_max = ROWS_MAX;
        let answer = self.counted(&mut session, |session| finish(question(session)));
        session.rows_max = usize::MAX;
        let gave_up = std::mem::take(&mut session.gave_up);
        let ended = Instant::now();
        self.at_once.took(ended - asked, ended);
        if gave_up {
            self.idle().push(session);
            return None;
        }
        self.keep(session, &answer);
        // What looks damaged is asked again, by another connection.
        match answer {
            Err(CatalogError::Damaged(_)) => None,
            answer => Some(answer),
        }
    }

    fn ask_blocking<T>(&self, consistency: Consistency, question: &Question<SqliteSession, T>) -> Result<T> {
        let _in_use = self.in_use.read().unwrap_or_else(PoisonError::into_inner);
        let pooled = self.idle().pop();
        match self.ask_on(pooled, consistency, question) {
            // Damage is believed when a connection that has read nothing yet finds it as well: a
            // page that the disk did not give once looks the same.
            Err(CatalogError::Damaged(why)) => {
                tracing::warn!(why, "the catalog looks damaged, and is read again");
                self.ask_on(None, consistency, question)
            }
            answer => answer,
        }
    }

    fn ask_on<T>(
        &self,
        pooled: Option<SqliteSession>,
        consistency: Consistency,
        question: &Question<SqliteSession, T>,
    ) -> Result<T> {
        let mut session = match pooled {
            Some(session) => session,
            None => connection::open_reading(&self.place.path)?,
        };
        let answer = self.counted(&mut session, |session| match consistency {
            Consistency::Point | Consistency::Statement => Ok(finish(question(session))),
            Consistency::Snapshot => {
                session.command("BEGIN")?;
                let answer = finish(question(session));
                // A connection whose read transaction cannot be ended is dropped, not pooled: `?`
                // returns first.
                session.command("COMMIT")?;
                Ok(answer)
            }
        })?;
        self.keep(session, &answer);
        answer
    }

    /// Runs a read, and counts what it cost.
    fn counted<T>(&self, session: &mut SqliteSession, read: impl FnOnce(&mut SqliteSession) -> T) -> T {
        let before = session.work;
        let answer = read(session);
        self.statements.fetch_add(session.work.statements - before.statements, Ordering::Relaxed);
        self.rows.fetch_add(session.work.rows - before.rows, Ordering::Relaxed);
        self.vm_steps.fetch_add(session.work.vm_steps - before.vm_steps, Ordering::Relaxed);
        self.note_reprepares(session.work.reprepares - before.reprepares);
        answer
    }

    /// Keeps a connection for the next read, unless what it answered says that it is not fit for
    /// one.
    fn keep<T>(&self, session: SqliteSession, answer: &Result<T>) {
        let is_fit = |error: &CatalogError| !is_of_connection(error) && !matches!(error, CatalogError::Other(_));
        if answer.as_ref().err().is_none_or(is_fit) {
            self.idle().push(session);
        }
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

    /// Gives a connection to the next read.
    #[cfg(test)]
    pub(super) fn pool(&self, session: SqliteSession) {
        self.idle().push(session);
    }

    fn idle(&self) -> MutexGuard<'_, Vec<SqliteSession>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
