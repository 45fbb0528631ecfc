//! The one task of this process that writes, and its group commit. It also finds out whether a
//! commit that nobody answered was done.

use super::{
    foresight::Foresight,
    gather::{Gathering, TurnTimes},
    late,
    options::PostgresOptions,
    pool::{Patience, Pool},
    session::{CLOCK_MS, CommitError, PostgresSession, server_run},
    together::{self, Commit, GroupEnds},
};
use crate::{
    CatalogError, Result,
    relational::{
        change::{Change, Outcome, only},
        session::{Lock, Session, Statement, statement},
    },
    types::{Seq, ServerRun},
};
use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};

/// Changes that may wait; who comes later waits before the queue.
const QUEUE_MAX: usize = 1024;

/// How long the database remembers a process that commits nothing: many times as long as anybody
/// asks what became of a commit.
const SILENT_MAX_MS: i64 = 24 * 60 * 60 * 1000;

/// The row that a writing transaction holds until it has ended, and the run of the server.
const TURN: &str = concat!("SELECT value, ", server_run!(), " FROM counters WHERE name = 'mutations'");

/// How a savepoint ends whose changes stay, and one whose changes do not.
const KEEP: &str = "RELEASE SAVEPOINT change";
const TAKE_BACK: &str = "ROLLBACK TO SAVEPOINT change; RELEASE SAVEPOINT change";

/// What travels with the last writes of a group.
const KEEP_AND_COMMIT: &str = "RELEASE SAVEPOINT change; SET LOCAL statement_timeout = 0; COMMIT";

/// Groups that have their turn first after one whose turn came too late, at most. They are one
/// after the first such group, and twice as many after each that follows it.
const CAUTION_MAX: u32 = 64;

/// How often changes are made together, with fewer each time, before each is made alone.
const TRIES_TOGETHER: usize = 3;

/// A change and where its outcome goes.
struct Job {
    change: Change,
    answer: oneshot::Sender<Result<(Outcome, ServerRun)>>,
}

/// The callers' side. The task ends when this is dropped and the queue is empty.
pub(super) struct Writer {
    queue: mpsc::Sender<Job>,
}

impl Writer {
    pub(super) fn start(pool: Pool, options: PostgresOptions) -> Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|error| CatalogError::Other(format!("no randomness: {error}")))?;
        tokio::spawn(
            Committer {
                pool,
                options,
                id,
                groups: AtomicI64::new(0),
                has_forgotten: AtomicBool::new(false),
                foresight: Foresight::default(),
                overtaken: Overtaken::default(),
            }
            .run(jobs),
        );
        Ok(Writer { queue })
    }

    pub(super) async fn change(&self, change: Change) -> Result<(Outcome, ServerRun)> {
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
    /// What the database knows this task by.
    id: [u8; 16],
    /// The number of the last group it tried to commit.
    groups: AtomicI64,
    /// Whether a committed group has forgotten those that have long been silent.
    has_forgotten: AtomicBool,
    foresight: Foresight,
    overtaken: Overtaken,
}

/// How often other processes changed what a group had read before its turn.
#[derive(Default)]
struct Overtaken {
    /// Groups in a row to which that happened.
    in_a_row: AtomicU32,
    /// Groups that take their turn first for now.
    cautious: AtomicU32,
}

impl Overtaken {
    /// Whether the next group may read before its turn; asked once for each.
    fn may_read_first(&self) -> bool {
        let next = |left: u32| left.checked_sub(1);
        self.cautious.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_err()
    }

    fn happened(&self) {
        let before = self.in_a_row.fetch_add(1, Ordering::Relaxed);
        self.cautious
            .store(1_u32.checked_shl(before).map_or(CAUTION_MAX, |groups| groups.min(CAUTION_MAX)), Ordering::Relaxed);
    }

    fn did_not_happen(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
    }
}

/// Why a group was not committed, or not known to be.
enum Failure {
    /// Nothing was changed.
    Nothing(CatalogError),
    /// Nothing was changed because of one of the changes. They are made again with a commit of its
    /// own, so that the others do not suffer.
    Apart,
    /// Nothing was changed, maybe because what was read before the turn has changed. The group is
    /// made again with its turn first, on this connection if there is one.
    Overtaken(Option<Box<PostgresSession>>),
    /// The commit was sent and not answered.
    InDoubt {
        /// The group's number.
        group: i64,
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
        let mut gathering = Gathering::default();
        while let Some(first) = jobs.recv().await {
            let mut group = gathering.group(first, &mut jobs, self.options.group_max).await;
            together::sort(&mut group, |job| &job.change);
            let changes = group.len();
            let turn = self.commit_group(group).await;
            gathering.ended(changes, jobs.len(), turn);
        }
    }

    /// Makes a group durable and answers it. Nothing is answered before the commit, refusals
    /// included: they may rest on a change of the same group.
    async fn commit_group(&self, mut group: Vec<Job>) -> TurnTimes {
        let began = Instant::now();
        let mut turn = TurnTimes::default();
        match self.commit(&mut group, &mut turn).await {
            Ok((outcomes, run)) => {
                let changes = outcomes.iter().filter(|outcome| is_change(outcome)).count();
                if changes > 0
                    && let Some(observer) = &self.options.observer
                {
                    observer.committed(changes, began.elapsed());
                }
                for (job, outcome) in group.into_iter().zip(outcomes) {
                    // Whoever is not there any more does not want to know.
                    let _ = job.answer.send(outcome.map(|outcome| (outcome, run)));
                }
            }
            Err(error) => {
                for job in group {
                    let _ = job.answer.send(Err(repeat(&error)));
                }
            }
        }
        turn
    }

    /// Tries until the group is committed, or refused for good, or patience ends.
    /// `turn` tells of the last try.
    async fn commit(&self, group: &mut [Job], turn: &mut TurnTimes) -> Result<(Vec<Result<Outcome>>, ServerRun)> {
        let mut patience = Patience::new(&self.pool);
        let (mut is_apart, mut session) = (false, None);
        let mut reads_first =
            late::may_be_made(&self.foresight, group.iter().map(|job| &job.change)) && self.overtaken.may_read_first();
        loop {
            let tried = match reads_first {
                true => self.attempt_late(group, turn).await,
                false => self.attempt(session.take(), group, is_apart, turn).await,
            };
            match tried {
                Ok(committed) => return Ok(committed),
                Err(Failure::Apart) => is_apart = true,
                Err(Failure::Overtaken(left)) => (reads_first, session) = (false, left),
                Err(Failure::Nothing(error)) => patience.wait_after(error).await?,
                Err(Failure::InDoubt { group, outcomes, reason }) => {
                    tracing::warn!(group, reason, "no answer to a commit to the catalog");
                    if let Some((run, seq)) = self.run_that_has(group, &reason).await? {
                        let outcomes = match seq {
                            Some(last) => late::numbered(outcomes, last),
                            None => outcomes,
                        };
                        return Ok((outcomes, run));
                    }
                    // Whatever it was: with a commit of its own it is one change's trouble.
                    (is_apart, reads_first) = (true, false);
                    patience.wait_after(CatalogError::Unavailable(reason)).await?;
                }
            }
        }
    }

    /// Tries to read before the turn, which then is as short as the database's work. Where the
    /// group is not for that after all, it has its turn first.
    async fn attempt_late(
        &self,
        group: &mut [Job],
        turn: &mut TurnTimes,
    ) -> std::result::Result<(Vec<Result<Outcome>>, ServerRun), Failure> {
        // What is forgotten is others': that is for a turn.
        if !self.has_forgotten.load(Ordering::Relaxed) {
            return Err(Failure::Overtaken(None));
        }
        let mut session = self.pool.session().await?;
        let asked = Instant::now();
        let number = self.groups.fetch_add(1, Ordering::Relaxed) + 1;
        session.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        session.send_ahead(self.signature(number, false));
        let changes = group.iter_mut().map(|job| &mut job.change).collect();
        let made = match late::make(&mut session, &self.foresight, changes, &self.id).await {
            Ok(made) => made,
            Err(error @ CatalogError::Unavailable(_)) => return Err(Failure::Nothing(error)),
            // Which of them it is about is found out in a turn.
            Err(_) => return Err(Failure::Overtaken(None)),
        };
        let read = session.answered_ahead().map_or(Duration::ZERO, |answered| answered - asked);
        *turn = TurnTimes { came_after: asked.elapsed().saturating_sub(2 * read), held: read };
        match made {
            late::End::Committed(outcomes, run) => {
                self.overtaken.did_not_happen();
                Ok((outcomes, run))
            }
            late::End::NotMade => {
                session.give_up();
                Err(Failure::Overtaken(Some(Box::new(session))))
            }
            late::End::Refused(error @ CatalogError::Unavailable(_)) => Err(Failure::Nothing(error)),
            late::End::Refused(_) => {
                self.overtaken.happened();
                session.end("ROLLBACK").await?;
                Err(Failure::Overtaken(None))
            }
            late::End::InDoubt(outcomes, reason) => Err(Failure::InDoubt { group: number, outcomes, reason }),
        }
    }

    /// `given` is a connection to go on with. `is_apart`: nothing travels with `COMMIT`.
    async fn attempt(
        &self,
        given: Option<Box<PostgresSession>>,
        group: &mut [Job],
        is_apart: bool,
        turn: &mut TurnTimes,
    ) -> std::result::Result<(Vec<Result<Outcome>>, ServerRun), Failure> {
        let mut session = match given {
            Some(session) => *session,
            None => self.pool.session().await?,
        };
        let asked = Instant::now();
        let number = self.groups.fetch_add(1, Ordering::Relaxed) + 1;
        let forgets = !self.has_forgotten.load(Ordering::Relaxed);
        session.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        // This waits for its turn; each statement after it sees all that was committed before.
        session.send_ahead(vec![Statement::locking(TURN, vec![], Lock::Update)]);
        session.send_ahead(self.signature(number, forgets));
        let mut outcomes = Vec::with_capacity(group.len());
        let (mut left, mut commit) = (group, Commit::NotAsked);
        while !left.is_empty() {
            let count = together::count_of_first(left.iter().map(|job| &job.change));
            let (now, later) = left.split_at_mut(count);
            let end = (later.is_empty() && !is_apart).then_some(KEEP_AND_COMMIT);
            let (made, ended) = make(&mut session, &self.foresight, now, end).await?;
            outcomes.extend(made);
            (left, commit) = (later, ended);
        }
        let came = session.answered_ahead().unwrap_or(asked);
        *turn = TurnTimes { came_after: came - asked, held: came.elapsed() };
        match commit {
            Commit::Refused(error @ CatalogError::Unavailable(_)) => return Err(Failure::Nothing(error)),
            Commit::Refused(_) => return Err(Failure::Apart),
            Commit::InDoubt(reason) => return Err(Failure::InDoubt { group: number, outcomes, reason }),
            Commit::NotAsked | Commit::Done => {}
        }
        let run = only(&session.answers_ahead().await?, 0)?.int(1)?;
        if matches!(commit, Commit::Done) {
            self.has_forgotten.store(true, Ordering::Relaxed);
            return Ok((outcomes, run));
        }
        if !outcomes.iter().any(is_change) {
            session.end("ROLLBACK").await?;
            return Ok((outcomes, run));
        }
        // A statement that runs out of time while it waits for a synchronous standby is reported as
        // committed although the standby does not have it; so the commit has no limit but our own,
        // past which it is asked about.
        session.defer("SET LOCAL statement_timeout = 0");
        match session.commit("COMMIT").await {
            Ok(()) => {
                self.has_forgotten.store(true, Ordering::Relaxed);
                Ok((outcomes, run))
            }
            Err(CommitError::None(error)) => Err(Failure::Nothing(error)),
            Err(CommitError::InDoubt(reason)) => Err(Failure::InDoubt { group: number, outcomes, reason }),
        }
    }

    /// Statements that leave the group's number in its transaction. A task's first group `forgets`
    /// those that have long been silent.
    fn signature(&self, number: i64, forgets: bool) -> Vec<Statement> {
        let sign = format!(
            "INSERT INTO commit_groups (writer, number, at_ms) VALUES ($1, $2, {CLOCK_MS})
             ON CONFLICT (writer) DO UPDATE SET number = excluded.number, at_ms = excluded.at_ms, seq = NULL"
        );
        let mut statements = vec![Statement::made(sign, vec![self.id.to_vec().into(), number.into()])];
        if forgets {
            // One that has just come back holds its row, and may wait for this turn.
            let forget = format!(
                "DELETE FROM commit_groups WHERE writer IN \
                 (SELECT writer FROM commit_groups WHERE at_ms < {CLOCK_MS} - $1 FOR UPDATE SKIP LOCKED)"
            );
            statements.push(Statement::made(forget, vec![SILENT_MAX_MS.into()]));
        }
        statements
    }

    /// Asks the database whether a group whose commit was not answered is in it; the run of the
    /// server that says so, and the number of the group's last mutation if it got one at its end.
    async fn run_that_has(&self, group: i64, reason: &str) -> Result<Option<(ServerRun, Option<Seq>)>> {
        let unknown = |error: CatalogError| CatalogError::Unknown(format!("{reason}; then {error}"));
        let mut patience = Patience::new(&self.pool);
        loop {
            match self.last_committed().await {
                Ok((last, seq, run)) => return Ok((last == group).then_some((run, seq))),
                Err(error) => patience.wait_after(error).await.map_err(unknown)?,
            }
        }
    }

    /// The number of this task's last committed group, and that of its last mutation. The server
    /// may not know yet that its client has gone, so this waits for the row that the group's
    /// transaction has written and keeps until it is over; the time limit for idle transactions
    /// ends it.
    async fn last_committed(&self) -> Result<(i64, Option<Seq>, ServerRun)> {
        let mut session = self.pool.session().await?;
        session.begin("BEGIN ISOLATION LEVEL READ COMMITTED");
        let row = concat!(
            "INSERT INTO commit_groups (writer, number, at_ms) VALUES ($1, 0, 0) \
             ON CONFLICT (writer) DO UPDATE SET number = commit_groups.number RETURNING number, seq, ",
            server_run!()
        );
        let answers = session.run(vec![statement!(row, self.id.to_vec())]).await?;
        session.end("ROLLBACK").await?;
        let last = only(&answers, 0)?;
        Ok((last.int(0)?, last.optional_int(1)?, last.int(2)?))
    }
}

/// Makes changes that can be made together. Those that are refused leave nothing and take no
/// number: the others are made once more without them, and each alone if that fails, too. The last
/// of them that are made travel with `end`, if there is one.
async fn make(
    session: &mut PostgresSession,
    foresight: &Foresight,
    jobs: &mut [Job],
    end: Option<&'static str>,
) -> std::result::Result<(Vec<Result<Outcome>>, Commit), Failure> {
    let mut commit = Commit::NotAsked;
    let mut alone = HashSet::new();
    let mut ends: Vec<Option<Result<Outcome>>> = jobs.iter().map(|_| None).collect();
    for _ in 0..TRIES_TOGETHER {
        let left: Vec<usize> = (0..jobs.len()).filter(|at| ends[*at].is_none() && !alone.contains(at)).collect();
        if left.len() < 2 {
            break;
        }
        let together = jobs.iter_mut().enumerate().filter(|(at, _)| left.binary_search(at).is_ok());
        let together = together.map(|(_, job)| &mut job.change).collect();
        // The end is theirs if no other one follows.
        let end = end.filter(|_| alone.is_empty());
        let GroupEnds { ends: tried, commit: ended, clashing } = try_all(session, foresight, together, end).await?;
        alone.extend(clashing.into_iter().map(|of| left[of]));
        if let Commit::Refused(_) = ended {
            return Ok((Vec::new(), ended));
        }
        commit = ended;
        let is_over = !matches!(commit, Commit::NotAsked);
        let are_made = is_over || tried.iter().all(|end| end.as_ref().is_some_and(is_change));
        for (at, end) in left.iter().zip(tried) {
            if are_made || end.as_ref().is_some_and(is_refusal_alone) {
                ends[*at] = end;
            } else if matches!(&end, Some(Err(error)) if is_of_change(error)) {
                alone.insert(*at);
            }
        }
        if left.iter().all(|at| ends[*at].is_none() && !alone.contains(at)) {
            break;
        }
    }
    let last = ends.iter().rposition(Option::is_none);
    let mut outcomes = Vec::with_capacity(jobs.len());
    for (at, (job, ended)) in jobs.iter_mut().zip(ends).enumerate() {
        outcomes.push(match ended {
            Some(outcome) => outcome,
            None => {
                let end = end.filter(|_| last == Some(at));
                let mut alone = try_all(session, foresight, vec![&mut job.change], end).await?;
                if let Commit::Refused(_) = alone.commit {
                    return Ok((Vec::new(), alone.commit));
                }
                commit = alone.commit;
                let outcome = alone.ends.pop().flatten();
                outcome.unwrap_or_else(|| Err(CatalogError::Other("a change neither ended nor failed".into())))
            }
        });
    }
    Ok((outcomes, commit))
}

/// Makes all of `changes` or none.
async fn try_all(
    session: &mut PostgresSession,
    foresight: &Foresight,
    changes: Vec<&mut Change>,
    end: Option<&'static str>,
) -> std::result::Result<GroupEnds, Failure> {
    session.defer("SAVEPOINT change");
    let made = together::make(session, foresight, changes, end).await;
    if !matches!(made.commit, Commit::NotAsked) {
        return Ok(made);
    }
    let tried = &made.ends;
    if tried.iter().all(|end| end.as_ref().is_some_and(is_change)) {
        session.defer(KEEP);
        return Ok(made);
    }
    session.defer(TAKE_BACK);
    let failed = tried.iter().flatten().find(|outcome| outcome.is_err() && !is_refusal_alone(outcome));
    if let Some(Err(error)) = failed {
        // Where the database is lost, or there is no turn, there is nothing to go on with.
        if matches!(error, CatalogError::Unavailable(_)) || !session.has_begun() {
            return Err(Failure::Nothing(repeat(error)));
        }
        // If it failed in the database: statements are prepared before anything is sent, which a
        // transaction that failed does not take.
        if !is_of_change(error) {
            session.flush().await?;
        }
    }
    Ok(made)
}

/// Whether a change is refused whatever becomes of those that are made together with it.
fn is_refusal_alone(outcome: &Result<Outcome>) -> bool {
    use CatalogError::{Fenced, NoBucket, NoUpload, PreconditionFailed};
    matches!(outcome, Ok(Outcome::Unchanged) | Err(Fenced | NoBucket | NoUpload | PreconditionFailed))
}

/// Whether a change was refused by what was read for it, and not by the database.
fn is_of_change(error: &CatalogError) -> bool {
    use CatalogError::{BaseGone, BucketState, Conflict, KeyGone, Locked, QuotaExceeded};
    matches!(error, BaseGone | BucketState | Conflict | KeyGone | Locked | QuotaExceeded(_))
}

fn is_change(outcome: &Result<Outcome>) -> bool {
    !matches!(outcome, Ok(Outcome::Unchanged) | Err(_))
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
