//! Changes of one group that have nothing to do with each other, in as many journeys as one of
//! them takes.
//!
//! A change asks the database, decides, and asks again. Changes that go together ask at the same
//! time: the next statements of all of them travel as one, in the order of the group. Nothing is
//! written before all of them have read what they decide by, and then everything at once. So
//! numbers and writes have the order of the group.
//!
//! What one of them reads was read before another one wrote. So only those go together that would
//! have read the same behind the others: puts and deletions of different keys, and different parts,
//! that name no content of before and leave no notices. Two decisions depend on more than their
//! key, and are made by a statement among the writes: whether content that lost a reference dies
//! (`blobs::release`), and whether a quota is exceeded (`quotas::Charge`).

use super::session::{PostgresSession, clock_ms, run_noting_server};
use crate::{
    CatalogError, Result,
    admission::Content,
    mutation::Mutation,
    relational::{
        apply::apply,
        change::{Change, Outcome, now_ms},
        session::{Row, Session, Statement},
    },
    snapshot::TableRows,
    types::{BucketId, ServerRun, UnixMs, UploadId},
};
use std::{
    collections::HashSet,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
};

/// How many of `changes`, from the first on, can be made together; at least one, if there is one.
pub(super) fn count_of_first<'a>(changes: impl Iterator<Item = &'a Change>) -> usize {
    let mut places = HashSet::new();
    let mut count = 0;
    for change in changes {
        match Place::of(change) {
            Some(place) if places.insert(place) => count += 1,
            _ => return count.max(1),
        }
    }
    count
}

/// All that a change decides by and no change of another place writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place<'a> {
    Key(BucketId, &'a str),
    Part(UploadId, u32),
}

impl<'a> Place<'a> {
    /// `None` for a change that another one may make a difference to, wherever it is.
    fn of(change: &'a Change) -> Option<Self> {
        let Change::Journaled(mutation) = change else { return None };
        if !mutation.notices().is_empty() {
            return None;
        }
        let (place, bucket, epoch, new_blobs, extents, size) = match mutation {
            Mutation::Put { commit, .. } => {
                let place = Place::Key(commit.bucket, &commit.key);
                (place, commit.bucket, commit.epoch, &commit.new_blobs, &commit.extents, commit.size)
            }
            Mutation::PutPart { commit } => {
                let place = Place::Part(commit.upload, commit.part.number);
                (place, commit.bucket, commit.epoch, &commit.new_blobs, &commit.part.extents, commit.part.size)
            }
            Mutation::Delete { commit, .. } => return Some(Place::Key(commit.bucket, &commit.key)),
            _ => return None,
        };
        Content { bucket, epoch, new_blobs, extents, size }.existing().is_empty().then_some(place)
    }
}

/// Makes `changes` inside the session's transaction, and says what came of each: nothing of one
/// that was under way when another did not go on. The caller rolls back to where it began unless
/// all of them changed something.
pub(super) async fn make(session: &mut PostgresSession, changes: Vec<&mut Change>) -> Vec<Option<Result<Outcome>>> {
    let (asking, mut asked) = mpsc::unbounded_channel();
    let begin = |(of, change)| {
        let session = Asking { of, requests: 0, asking: asking.clone() };
        Step::UnderWay(Box::pin(make_one(session, change)))
    };
    let mut steps: Vec<Step<'_>> = changes.into_iter().enumerate().map(begin).collect();
    let mut waiting: Vec<Request> = Vec::new();
    loop {
        // What they wait for is there or is not: none of them may pause for another task.
        let all_go_on = poll_fn(|context| {
            steps.iter_mut().for_each(|step| step.go_on(context));
            Poll::Ready(())
        });
        unconstrained(all_go_on).await;
        waiting.extend(std::iter::from_fn(|| asked.try_recv().ok()));
        if steps.iter().any(Step::is_refused) || waiting.is_empty() {
            break;
        }
        let some_read = waiting.iter().any(|request| request.is_read);
        let (mut now, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|request| request.is_read || !some_read);
        waiting = later;
        now.sort_by_key(|request| request.of);
        let statements: Vec<_> = now.iter_mut().flat_map(|request| std::mem::take(&mut request.statements)).collect();
        match session.run(statements).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for request in now {
                    let own = answers.by_ref().take(request.count).collect();
                    // Its change waits for this.
                    let _ = request.answer.send(Ok(own));
                }
            }
            // Which of them it was about is found out one by one.
            Err(error) => drop(now.swap_remove(0).answer.send(Err(error))),
        }
    }
    steps.into_iter().map(Step::end).collect()
}

async fn make_one(mut session: Asking, change: &mut Change) -> Result<Outcome> {
    apply(&mut session, change).await
}

/// A change on its way.
enum Step<'a> {
    UnderWay(Pin<Box<dyn Future<Output = Result<Outcome>> + Send + 'a>>),
    Ended(Result<Outcome>),
}

impl Step<'_> {
    /// Goes on as far as it can without an answer.
    fn go_on(&mut self, context: &mut Context<'_>) {
        if let Step::UnderWay(change) = self
            && let Poll::Ready(outcome) = change.as_mut().poll(context)
        {
            *self = Step::Ended(outcome);
        }
    }

    /// Whether it has come to its end without a change.
    fn is_refused(&self) -> bool {
        matches!(self, Step::Ended(Ok(Outcome::Unchanged) | Err(_)))
    }

    fn end(self) -> Option<Result<Outcome>> {
        match self {
            Step::Ended(outcome) => Some(outcome),
            Step::UnderWay(_) => None,
        }
    }
}

/// What a change wants to know or to have written before it goes on.
struct Request {
    /// The change's place in the group.
    of: usize,
    /// Whether it decides by this. The first thing that each asks for is its number.
    is_read: bool,
    statements: Vec<Statement>,
    count: usize,
    answer: oneshot::Sender<Result<Vec<Vec<Row>>>>,
}

/// The session of one change: hands its statements to [`make`], which sends them.
struct Asking {
    of: usize,
    requests: usize,
    asking: mpsc::UnboundedSender<Request>,
}

impl Session for Asking {
    const EXCLUSIVE: bool = PostgresSession::EXCLUSIVE;
    const ROUND_TRIPS: bool = PostgresSession::ROUND_TRIPS;
    const NEXT_NUMBER: &str = PostgresSession::NEXT_NUMBER;

    async fn run(&mut self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        if statements.is_empty() {
            return Ok(Vec::new());
        }
        let given_up = || CatalogError::Other("a change was given up because of another one".into());
        let is_read = self.requests == 0 || statements.iter().all(|statement| statement.sql.starts_with("SELECT"));
        self.requests += 1;
        let (answer, answered) = oneshot::channel();
        let count = statements.len();
        let request = Request { of: self.of, is_read, statements, count, answer };
        self.asking.send(request).map_err(|_| given_up())?;
        answered.await.map_err(|_| given_up())?
    }

    async fn clock_ms(&mut self) -> Result<UnixMs> {
        clock_ms(self).await
    }

    async fn run_noting_server(&mut self, statements: Vec<Statement>) -> Result<(Vec<Vec<Row>>, ServerRun)> {
        run_noting_server(self, statements).await
    }

    fn now_ms(&self) -> UnixMs {
        now_ms()
    }

    async fn hand_over(&mut self, to: &mpsc::Sender<TableRows>, rows: TableRows) -> bool {
        to.send(rows).await.is_ok()
    }
}
