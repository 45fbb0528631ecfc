//! The one thread that writes, and its group commit.

use super::{
    connection::{self, NotBegun, SqliteSession, finish},
    errors::{catalog_error, is_of_connection},
    gather::{Awaited, NextGroup},
    options::Place,
    readers::Readers,
    scour::Scouring,
};
use crate::{
    CatalogError, Result,
    relational::{
        apply::apply,
        change::{Change, Outcome},
        read,
    },
    types::Seq,
};
use rusqlite::ErrorCode;
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};
use tokio::sync::{mpsc, oneshot};

#[cfg(test)]
mod tests;

/// Changes that may wait; who comes later waits before the queue.
const QUEUE_MAX: usize = 1024;

/// A change and where its outcome goes.
struct Job {
    change: Change,
    answer: oneshot::Sender<Result<Outcome>>,
}

/// What waits in the queue.
enum Order {
    Change(Job),
    /// A step of overwriting what rows that are gone have left.
    Scour(Scouring, oneshot::Sender<Result<Scouring>>),
}

/// The caller's side of the writer thread.
pub(super) struct Writer {
    /// `None` only while dropping.
    queue: Option<mpsc::Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    awaited: Arc<Awaited>,
    #[cfg(test)]
    pub(super) fault: Arc<std::sync::Mutex<Option<CommitFault>>>,
}

/// An I/O error for the next commit to meet.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) enum CommitFault {
    /// The transaction did not reach the log.
    Lost,
    /// It did, but the flush was reported as failed.
    Kept,
}

impl Writer {
    pub(super) fn start(place: Place, session: SqliteSession, readers: Arc<Readers>) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        #[cfg(test)]
        let fault = Arc::default();
        let awaited = Arc::<Awaited>::default();
        let committer = Committer {
            place,
            session: Some(session),
            is_uncertain: false,
            readers,
            awaited: Arc::clone(&awaited),
            #[cfg(test)]
            fault: Arc::clone(&fault),
        };
        let thread = thread::Builder::new()
            .name("catalog-writer".into())
            .spawn(move || committer.run(jobs))
            .map_err(|error| CatalogError::Unavailable(format!("no thread for the writer: {error}")))?;
        Ok(Writer {
            queue: Some(queue),
            thread: Some(thread),
            awaited,
            #[cfg(test)]
            fault,
        })
    }

    pub(super) async fn change(&self, change: Change) -> Result<Outcome> {
        let (answer, outcome) = oneshot::channel();
        self.order(Order::Change(Job { change, answer })).await?;
        outcome.await.map_err(|_| CatalogError::Unknown("the catalog's writer ended during a change".into()))?
    }

    /// The next step.
    pub(super) async fn scour(&self, scouring: Scouring) -> Result<Scouring> {
        let (answer, next) = oneshot::channel();
        self.order(Order::Scour(scouring, answer)).await?;
        next.await.map_err(|_| ended())?
    }

    async fn order(&self, order: Order) -> Result<()> {
        self.queue.as_ref().ok_or_else(ended)?.send(order).await.map_err(|_| ended())?;
        if self.awaited.comes()
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
        Ok(())
    }
}

fn ended() -> CatalogError {
    CatalogError::Unavailable("the catalog's writer has ended".into())
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the catalog's writer thread panicked");
        }
    }
}

/// The thread's side.
struct Committer {
    place: Place,
    /// `None` where the database has to be opened again.
    session: Option<SqliteSession>,
    /// Whether the log may hold what nobody was told of: it is opened while nobody reads.
    is_uncertain: bool,
    readers: Arc<Readers>,
    awaited: Arc<Awaited>,
    #[cfg(test)]
    fault: Arc<std::sync::Mutex<Option<CommitFault>>>,
}

impl Committer {
    fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let (mut next, mut next_group) = (None, NextGroup::default());
        while let Some(first) = next.take().or_else(|| orders.blocking_recv()) {
            let mut group = Vec::new();
            match first {
                Order::Change(job) => group.push(job),
                Order::Scour(scouring, answer) => {
                    let _ = answer.send(self.scour(scouring));
                    continue;
                }
            }
            let most = self.place.options.group_max;
            let take = |group: &mut Vec<Job>| {
                while next.is_none()
                    && group.len() < most
                    && let Ok(order) = orders.try_recv()
                {
                    match order {
                        Order::Change(job) => group.push(job),
                        other => next = Some(other),
                    }
                }
                next.is_none() && group.len() < most
            };
            next_group.gather(&mut group, &self.awaited, take);
            let (changes, began) = (group.len(), Instant::now());
            self.commit_group(group);
            next_group.ended(changes, orders.len(), began.elapsed());
            if let Some(session) = &mut self.session {
                self.readers.note_reprepares(std::mem::take(&mut session.work.reprepares));
            }
        }
        // The last connection to close folds the log into the database; only one that writes can.
        let session = self.session.take();
        self.readers.with_all_closed(|| drop(session));
    }

    /// Makes a group durable and answers it. Nothing is answered before the commit, refusals
    /// included: they may rest on a change of the same group.
    fn commit_group(&mut self, mut group: Vec<Job>) {
        let mut may_relieve = true;
        while let Err(error) = self.ensure_open() {
            // Opening makes files; a full disk has no place for them.
            if !may_relieve || !self.place.options.spare.as_ref().is_some_and(|spare| spare.give_back()) {
                return answer_all(group, || repeat(&error));
            }
            may_relieve = false;
        }
        let mut hope = Hope { space: self.place.options.spare.is_some(), connection: true };
        while !group.is_empty() {
            if self.is_short_of_space() {
                group = refuse_growth(group);
            }
            let began = Instant::now();
            match self.try_group(&mut group, hope) {
                // Once without a slice too: the log is folded, which may be enough. What nothing
                // helps fails alone.
                Err(CatalogError::Full) if hope.space => hope.space = self.relieve(),
                Ok(Applied::LockedOut(error)) => return answer_all(group, || repeat(&error)),
                Ok(Applied::Unfit(error)) => {
                    tracing::warn!(%error, "the catalog's writer opens it again");
                    hope.connection = false;
                    self.session = None;
                    if let Err(error) = self.ensure_open() {
                        return answer_all(group, || repeat(&error));
                    }
                }
                Ok(Applied::All { outcomes, changes }) => {
                    if changes > 0
                        && let Some(observer) = &self.place.options.observer
                    {
                        observer.committed(changes, began.elapsed());
                    }
                    if outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).any(is_of_connection) {
                        self.session = None;
                    }
                    for (job, outcome) in group.into_iter().zip(outcomes) {
                        // Whoever is not there any more does not want to know.
                        let _ = job.answer.send(outcome);
                    }
                    return;
                }
                // SQLite gave the whole transaction up because of one change: the others have
                // another try without it.
                Ok(Applied::AbortedBy { index, error }) => {
                    let _ = group.remove(index).answer.send(Err(error));
                }
                Err(error) => {
                    // The next group finds out whether another connection can do more.
                    if is_of_connection(&error) {
                        self.session = None;
                    }
                    return answer_all(group, || repeat(&error));
                }
            }
        }
    }

    /// One step in a transaction of its own. It changes nothing that anybody reads, so nobody needs
    /// to know what became of one that failed.
    fn scour(&mut self, scouring: Scouring) -> Result<Scouring> {
        self.ensure_open()?;
        let session = self.session.as_mut().ok_or_else(not_open)?;
        if !scouring.is_in_transaction() {
            return scouring.cut_log(session);
        }
        session.fill(false, self.place.options.sync)?;
        session.begin_writing().map_err(|(NotBegun::Locked(error) | NotBegun::Failed(error))| error)?;
        let stepped = scouring.step(session).and_then(|next| self.commit().map_err(catalog_error).map(|()| next));
        if stepped.is_err() {
            // Opened again, whatever this connection has met.
            self.session = None;
            self.is_uncertain = true;
        }
        stepped
    }

    /// Whether what is free is for changes that make space.
    fn is_short_of_space(&self) -> bool {
        self.place.options.spare.as_ref().is_some_and(|spare| spare.is_spent())
    }

    /// Makes what space there is to be had: some of what was kept for this, and the log from its
    /// beginning. Whether more may be to be had.
    fn relieve(&mut self) -> bool {
        let Some(spare) = &self.place.options.spare else { return false };
        let more = spare.give_back();
        if let Some(session) = &self.session {
            if !session.connection.is_autocommit()
                && let Err(error) = session.execute("ROLLBACK")
            {
                tracing::warn!(%error, "a transaction that did not fit on the disk could not be rolled back");
            }
            if let Err(error) = session.fold_log() {
                tracing::warn!(%error, "the catalog's write-ahead log could not be checkpointed");
            }
        }
        more
    }

    /// Applies and commits. A change that fails where there is hope ends the whole group; otherwise
    /// it fails alone.
    ///
    /// A savepoint for each change would copy every page that the change writes, and it is needed
    /// only where a change fails after it wrote. So a group is tried without them first.
    fn try_group(&mut self, group: &mut [Job], hope: Hope) -> Result<Applied> {
        let session = self.session.as_mut().ok_or_else(not_open)?;
        let filling = !group.is_empty() && group.iter().all(|job| job.change.is_filling());
        session.fill(filling, self.place.options.sync)?;
        // What an import did before is not flushed: after an error nobody knows that it is there.
        let hope = Hope { connection: hope.connection && !filling, ..hope };
        let changes_buckets = group.iter().any(|job| job.change.may_change_buckets());
        // Until what it did can be seen, or is gone.
        let readers = Arc::clone(&self.readers);
        let _changing = changes_buckets.then(|| readers.kept_buckets().changing());
        let applied = match self.apply_all(group, hope, Undo::Group)? {
            Some(applied) => applied,
            None => match self.apply_all(group, hope, Undo::Change)? {
                Some(applied) => applied,
                None => return Err(CatalogError::Other("a change could not be undone by itself".into())),
            },
        };
        let Applied::All { changes, .. } = applied else { return Ok(applied) };
        let session = self.session.as_mut().ok_or_else(not_open)?;
        if changes == 0 {
            session.execute("ROLLBACK")?;
            return Ok(applied);
        }
        let last = match finish(read::last_seq(session)) {
            Err(error) if hope.connection && is_of_connection(&error) => return Ok(Applied::Unfit(error)),
            last => last?,
        };
        match self.commit() {
            Ok(()) if filling => {
                let folded = self.session.as_mut().ok_or_else(not_open)?.fold_what_was_filled();
                if folded.is_err() {
                    self.session = None;
                    self.is_uncertain = true;
                }
                folded.map(|()| applied)
            }
            Ok(()) => Ok(applied),
            Err(error) => {
                self.after_failed_commit(error, last)?;
                // Rows of a backup change no number, so nobody can say whether they are there, nor
                // what was not flushed before them.
                if filling {
                    return Err(CatalogError::Unavailable("a commit failed: the import must be begun again".into()));
                }
                Ok(applied)
            }
        }
    }

    /// Begins a transaction and applies a group in it. `None`: a change was refused after it had
    /// written, the transaction is gone, and each change needs its own savepoint.
    fn apply_all(&mut self, group: &mut [Job], hope: Hope, undo: Undo) -> Result<Option<Applied>> {
        let session = self.session.as_mut().ok_or_else(not_open)?;
        match session.begin_writing() {
            Err(NotBegun::Locked(error)) => return Ok(Some(Applied::LockedOut(error))),
            Err(NotBegun::Failed(error)) if hope.connection && is_of_connection(&error) => {
                return Ok(Some(Applied::Unfit(error)));
            }
            Err(NotBegun::Failed(error)) => return Err(error),
            Ok(()) => {}
        }
        let mut outcomes = Vec::with_capacity(group.len());
        let mut changes = 0;
        for (index, job) in group.iter_mut().enumerate() {
            session.wrote = false;
            if undo == Undo::Change {
                session.command("SAVEPOINT change")?;
            }
            let outcome = match finish(apply(session, &mut job.change)) {
                Err(error) if hope.connection && is_of_connection(&error) => return Ok(Some(Applied::Unfit(error))),
                outcome => outcome,
            };
            if session.connection.is_autocommit() {
                let error = outcome.err().unwrap_or_else(|| CatalogError::Other("the transaction has ended".into()));
                return match error {
                    CatalogError::Full if hope.space => Err(error),
                    error => Ok(Some(Applied::AbortedBy { index, error })),
                };
            }
            if hope.space && matches!(outcome, Err(CatalogError::Full)) {
                session.execute("ROLLBACK")?;
                return Err(CatalogError::Full);
            }
            let refused = matches!(outcome, Ok(Outcome::Unchanged) | Err(_));
            match undo {
                Undo::Group if refused && session.wrote => {
                    session.execute("ROLLBACK")?;
                    return Ok(None);
                }
                Undo::Change if refused => session.command("ROLLBACK TO change")?,
                _ => {}
            }
            if undo == Undo::Change {
                session.command("RELEASE change")?;
            }
            changes += usize::from(!refused);
            outcomes.push(outcome);
        }
        Ok(Some(Applied::All { outcomes, changes }))
    }

    fn commit(&mut self) -> rusqlite::Result<()> {
        let Some(session) = &self.session else { return Err(rusqlite::Error::InvalidQuery) };
        #[cfg(test)]
        if let Some(fault) = self.fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
            session.connection.execute_batch(match fault {
                CommitFault::Lost => "ROLLBACK",
                CommitFault::Kept => "COMMIT",
            })?;
            return Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC),
                None,
            ));
        }
        session.connection.prepare_cached("COMMIT")?.raw_execute().map(drop)
    }

    /// Finds out what became of a transaction whose commit failed, whose last number would have
    /// been `last`.
    ///
    /// After a failed flush the system may have dropped what it could not write and report success
    /// the next time; nothing this process remembers can be believed. So everything is closed, the
    /// log is read again from the file, and its pages are written to the database and flushed
    /// there. What is in the catalog after that is durable; what is not never was.
    fn after_failed_commit(&mut self, error: rusqlite::Error, last: Seq) -> Result<()> {
        if matches!(error.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy)) {
            if let Some(session) = &self.session
                && !session.connection.is_autocommit()
            {
                session.execute("ROLLBACK")?;
            }
            return Err(catalog_error(error));
        }
        tracing::error!(%error, "a commit to the catalog failed; the catalog is reopened");
        let reason = error.to_string();
        self.session = None;
        self.is_uncertain = true;
        self.reopen().map_err(|reopening| CatalogError::Unknown(format!("{reason}; then {reopening}")))?;
        let Some(session) = self.session.as_mut() else { return Err(CatalogError::Unknown(reason)) };
        let found = finish(read::last_seq(session)).map_err(|_| CatalogError::Unknown(reason.clone()))?;
        if found >= last { Ok(()) } else { Err(CatalogError::Unavailable(reason)) }
    }

    fn ensure_open(&mut self) -> Result<()> {
        // A transaction is open although no group is: a rollback failed on the way out.
        if self.session.take_if(|session| !session.connection.is_autocommit()).is_some() {
            self.is_uncertain = true;
        }
        if self.session.is_some() {
            return Ok(());
        }
        let open = |committer: &mut Self| match committer.is_uncertain {
            true => committer.reopen(),
            // Nothing was committed that was not answered, so readers stay as they are.
            false => {
                committer.session = Some(connection::open_writing(&committer.place)?);
                Ok(())
            }
        };
        match open(self) {
            // Believed when it is found twice.
            Err(CatalogError::Damaged(_)) => open(self),
            opened => opened,
        }
    }

    fn reopen(&mut self) -> Result<()> {
        let place = &self.place;
        let session = self.readers.with_all_closed(|| {
            let session = connection::open_writing(place)?;
            let busy: i64 = session
                .connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
                .map_err(catalog_error)?;
            if busy == 0 { Ok(session) } else { Err(CatalogError::Unavailable("the log is in use".into())) }
        })?;
        self.session = Some(session);
        self.is_uncertain = false;
        Ok(())
    }
}

fn not_open() -> CatalogError {
    CatalogError::Unavailable("the catalog could not be opened again".into())
}

/// What may still help a group that fails: it is tried again then.
#[derive(Clone, Copy)]
struct Hope {
    /// Space that is kept for it.
    space: bool,
    /// Another connection: this one may have met a passing error of the disk, or lack of
    /// descriptors.
    connection: bool,
}

/// What is undone when a change is refused after it wrote something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    /// What it wrote.
    Change,
    /// The transaction.
    Group,
}

/// How far a group came.
enum Applied {
    /// Committed, or refused, each for itself.
    All { outcomes: Vec<Result<Outcome>>, changes: usize },
    /// Not at all: this change made SQLite roll the transaction back.
    AbortedBy { index: usize, error: CatalogError },
    /// Not at all: the connection failed, and another one may not.
    Unfit(CatalogError),
    /// Not at all: another process has the database locked, and was waited for. Another connection
    /// would wait as long again.
    LockedOut(CatalogError),
}

/// Answers the changes of a group that would take space, and gives the others.
fn refuse_growth(group: Vec<Job>) -> Vec<Job> {
    let (growth, others): (Vec<Job>, Vec<Job>) = group.into_iter().partition(|job| job.change.takes_space());
    answer_all(growth, || CatalogError::Full);
    others
}

fn answer_all(group: Vec<Job>, error: impl Fn() -> CatalogError) {
    for job in group {
        let _ = job.answer.send(Err(error()));
    }
}

/// The error of a whole group, for one of its changes.
fn repeat(error: &CatalogError) -> CatalogError {
    match error {
        CatalogError::Full => CatalogError::Full,
        CatalogError::Damaged(what) => CatalogError::Damaged(what.clone()),
        CatalogError::Unavailable(reason) => CatalogError::Unavailable(reason.clone()),
        CatalogError::Unknown(reason) => CatalogError::Unknown(reason.clone()),
        other => CatalogError::Other(other.to_string()),
    }
}
