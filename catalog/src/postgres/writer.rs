//! The one task of this process that writes, and its group commit.

use super::{
    PostgresOptions,
    errors::is_refusal,
    pool::{Patience, Pool},
    session::{EndError, PostgresSession},
};
use crate::{
    CatalogError, Result,
    relational::{
        apply::{Change, Outcome, apply, only},
        session::{Lock, Session, Statement, statement},
    },
};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Changes that may wait; who comes later waits before the queue.
const QUEUE_MAX: usize = 1024;

/// Pause between questions about a transaction that is still in progress.
const OUTCOME_PAUSE: Duration = Duration::from_millis(50);

/// A change and where its outcome goes.
struct Job {
    change: Change,
    answer: oneshot::Sender<Result<Outcome>>,
}

/// The callers' side. The task ends when this is dropped and the queue is empty.
pub(super) struct Writer {
    queue: mpsc::Sender<Job>,
}

impl Writer {
    pub(super) fn start(pool: Pool, options: PostgresOptions) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(Committer { pool, options }.run(jobs));
        Writer { queue }
    }

    pub(super) async fn change(&self, change: Change) -> Result<Outcome> {
        let (answer, outcome) = oneshot::channel();
        let closed = || CatalogError::Unavailable("the catalog's writer has ended".into());
        self.queue.send(Job { change, answer }).await.map_err(|_| closed())?;
        outcome.await.map_err(|_| CatalogError::Unknown("the catalog's writer ended during a change".into()))?
    }
}

/// The task's side.
struct Committer {
    pool: Pool,
    options: PostgresOptions,
}

/// Why a group was not committed, or not known to be.
enum Failure {
    /// Nothing was changed.
    Nothing(CatalogError),
    /// The commit was sent and not answered.
    InDoubt {
        /// The transaction, as the database names it.
        transaction: String,
        /// What the group gives if it went through.
        outcomes: Vec<Result<Outcome>>,
        reason: String,
    },
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        Failure::Nothing(error)
    }
}

impl Committer {
    async fn run(self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.recv().await {
            let mut group = vec![first];
            while group.len() < self.options.group_max
                && let Ok(job) = jobs.try_recv()
            {
                group.push(job);
            }
            self.commit_group(group).await;
        }
    }

    /// Makes a group durable and answers it. Nothing is answered before the commit, refusals included: they may rest on a change of
    /// the same group.
    async fn commit_group(&self, mut group: Vec<Job>) {
        let began = Instant::now();
        match self.commit(&mut group).await {
            Ok(outcomes) => {
                let changes = outcomes.iter().filter(|outcome| is_change(outcome)).count();
                if changes > 0
                    && let Some(observer) = &self.options.observer
                {
                    observer.committed(changes, began.elapsed());
                }
                for (job, outcome) in group.into_iter().zip(outcomes) {
                    // Whoever is not there any more does not want to know.
                    let _ = job.answer.send(outcome);
                }
            }
            Err(error) => {
                for job in group {
                    let _ = job.answer.send(Err(repeat(&error)));
                }
            }
        }
    }

    /// Tries until the group is committed, or refused for good, or patience ends.
    async fn commit(&self, group: &mut [Job]) -> Result<Vec<Result<Outcome>>> {
        let mut patience = Patience::new(&self.pool);
        loop {
            match self.attempt(group).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(Failure::Nothing(error)) => patience.wait_after(error).await?,
                Err(Failure::InDoubt { transaction, outcomes, reason }) => {
                    tracing::warn!(transaction, reason, "a commit to the catalog was not answered");
                    if self.was_committed(&transaction, &reason).await? {
                        return Ok(outcomes);
                    }
                    patience.wait_after(CatalogError::Unavailable(reason)).await?;
                }
            }
        }
    }

    async fn attempt(&self, group: &mut [Job]) -> std::result::Result<Vec<Result<Outcome>>, Failure> {
        let mut session = self.pool.session().await?;
        session.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        // The second statement waits for its turn; each one after it sees all that was committed before.
        let answers = session
            .run(vec![
                statement!("SELECT CAST(pg_current_xact_id() AS TEXT)"),
                Statement::locking("SELECT value FROM counters WHERE name = 'seq'", vec![], Lock::Update),
            ])
            .await?;
        let transaction = only(&answers, 0)?.text(0)?.to_owned();
        let mut outcomes = Vec::with_capacity(group.len());
        for job in group.iter_mut() {
            session.defer("SAVEPOINT change");
            let outcome = apply(&mut session, &mut job.change).await;
            if let Err(CatalogError::Unavailable(reason)) = outcome {
                return Err(Failure::Nothing(CatalogError::Unavailable(reason)));
            }
            session.defer(match is_change(&outcome) {
                true => "RELEASE SAVEPOINT change",
                false => "ROLLBACK TO SAVEPOINT change; RELEASE SAVEPOINT change",
            });
            outcomes.push(outcome);
        }
        // A statement that runs out of time while it waits for a synchronous standby is reported as committed although the standby does
        // not have it; so the commit has no limit but our own, past which it is asked about.
        session.defer("SET LOCAL statement_timeout = 0");
        session.flush().await?;
        if !outcomes.iter().any(is_change) {
            session.end("ROLLBACK").await?;
            return Ok(outcomes);
        }
        match session.end_raw("COMMIT").await {
            Ok(()) => Ok(outcomes),
            Err(EndError::Database(error)) if is_refusal(&error) => {
                Err(Failure::Nothing(super::errors::catalog_error(&error)))
            }
            Err(error) => Err(Failure::InDoubt { transaction, outcomes, reason: error.describe() }),
        }
    }

    /// Asks the database what became of a transaction whose commit was not answered.
    async fn was_committed(&self, transaction: &str, reason: &str) -> Result<bool> {
        let unknown = |error: CatalogError| CatalogError::Unknown(format!("{reason}; then {error}"));
        let mut patience = Patience::new(&self.pool);
        loop {
            let asked = async {
                let mut session = self.pool.session().await?;
                status_of(&mut session, transaction).await
            };
            match asked.await {
                Ok(Some(status)) if status == "committed" => return Ok(true),
                Ok(Some(status)) if status == "aborted" => return Ok(false),
                // The server does not know yet that its client has gone; its time limit for idle transactions ends this.
                Ok(Some(status)) => {
                    let waited = patience.wait_after(CatalogError::Unavailable(format!("it is {status}"))).await;
                    waited.map_err(unknown)?;
                    tokio::time::sleep(OUTCOME_PAUSE).await;
                }
                Ok(None) => return Err(CatalogError::Unknown(format!("{reason}; then the transaction was forgotten"))),
                Err(error) => patience.wait_after(error).await.map_err(unknown)?,
            }
        }
    }
}

async fn status_of(session: &mut PostgresSession, transaction: &str) -> Result<Option<String>> {
    let answers =
        session.run(vec![statement!("SELECT pg_xact_status(CAST(CAST($1 AS TEXT) AS xid8))", transaction)]).await?;
    let row = only(&answers, 0)?;
    if row.is_null(0) { Ok(None) } else { row.text(0).map(|status| Some(status.to_owned())) }
}

fn is_change(outcome: &Result<Outcome>) -> bool {
    !matches!(outcome, Ok(Outcome::Unchanged) | Err(_))
}

/// The error of a whole group, for one of its changes.
fn repeat(error: &CatalogError) -> CatalogError {
    match error {
        CatalogError::Full => CatalogError::Full,
        CatalogError::Unavailable(reason) => CatalogError::Unavailable(reason.clone()),
        CatalogError::Unknown(reason) => CatalogError::Unknown(reason.clone()),
        other => CatalogError::Other(other.to_string()),
    }
}
