//! Changes of one group that have nothing to do with each other, in as many journeys as one of
//! them takes.
//!
//! A change asks the database, decides, and asks again. Changes that go together ask at the same
//! time: the next statements of all of them travel as one, in the order of the group. Nothing is
//! written before all of them have read what they decide by, and then everything at once. So
//! numbers and writes have the order of the group. What a change will read travels with what asks
//! for its number, and `COMMIT` with the last writes when nothing else is to be done.
//!
//! What one of them reads was read before another one wrote. So only those go together that would
//! have read the same behind the others: puts and deletions of different keys, and different parts,
//! that leave no notices, and what begins and ends other uploads. Three decisions depend on more
//! than that. Whether content that lost a reference dies (`blobs::release`), and whether a quota is
//! exceeded (`quotas::Charge`), is said by a statement among the writes. Content of before must
//! live to be referenced: where one change names what another one may let die, all are taken back
//! before anything is written, and that one is made alone.

use super::{
    foresight::{Foreseen, Foresight},
    session::{CommitError, PostgresSession, clock_ms, run_noting_server},
};
use crate::{
    CatalogError, Result,
    mutation::Mutation,
    relational::{
        apply::apply,
        blobs,
        change::{Change, Outcome, now_ms},
        multipart,
        session::{Row, Session, Statement},
        versions,
    },
    snapshot::TableRows,
    types::{BlobKey, BucketId, ServerRun, UnixMs, UploadId},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
};

/// Puts those first that can be made together; order is kept among them, among the others, and
/// where one touches what another one does. Nobody has had an answer to any of them, so none of
/// them comes after another one.
pub(super) fn sort<T>(group: &mut Vec<T>, change: impl Fn(&T) -> &Change) {
    let mut places = TakenPlaces::default();
    let are_first: Vec<bool> = group.iter().map(|job| places.take(change(job))).collect();
    let (first, others): (Vec<_>, Vec<_>) = group.drain(..).zip(are_first).partition(|(_, is_first)| *is_first);
    group.extend(first.into_iter().chain(others).map(|(job, _)| job));
}

/// How many of `changes`, from the first on, can be made together; at least one, if there is one.
pub(super) fn count_of_first<'a>(changes: impl Iterator<Item = &'a Change>) -> usize {
    let mut places = TakenPlaces::default();
    let mut count = 0;
    for change in changes {
        if !places.take(change) {
            return count.max(1);
        }
        count += 1;
    }
    count
}

/// All that changes decide by and no change of another place writes.
#[derive(Default)]
struct TakenPlaces<'a> {
    keys: HashSet<(BucketId, &'a str)>,
    parts: HashSet<(UploadId, u32)>,
    uploads_of_parts: HashSet<UploadId>,
    /// With all their parts.
    uploads: HashSet<UploadId>,
}

impl<'a> TakenPlaces<'a> {
    /// Takes a change's places. False if one is taken already, or if another change may make a
    /// difference to this one wherever it is.
    fn take(&mut self, change: &'a Change) -> bool {
        let Change::Journaled(mutation) = change else { return false };
        let is_free = match mutation {
            Mutation::Put { commit, .. } => self.keys.insert((commit.bucket, &commit.key)),
            Mutation::Delete { commit, .. } => self.keys.insert((commit.bucket, &commit.key)),
            Mutation::DeleteVersion { commit, .. } => self.keys.insert((commit.bucket, &commit.key)),
            Mutation::PutPart { commit } => {
                self.uploads_of_parts.insert(commit.upload);
                self.parts.insert((commit.upload, commit.part.number)) & !self.uploads.contains(&commit.upload)
            }
            Mutation::CreateUpload { upload } => self.take_upload(upload.id),
            Mutation::Abort { upload, .. } => self.take_upload(*upload),
            Mutation::Complete { commit, .. } => {
                self.keys.insert((commit.bucket, &commit.key)) & self.take_upload(commit.upload)
            }
            _ => false,
        };
        is_free && mutation.notices().is_empty()
    }

    fn take_upload(&mut self, upload: UploadId) -> bool {
        self.uploads.insert(upload) & !self.uploads_of_parts.contains(&upload)
    }
}

/// The content of before that a change names.
fn named_by(change: &Change) -> BTreeSet<BlobKey> {
    match change {
        Change::Journaled(Mutation::Put { commit, .. }) => versions::content_of_put(commit).existing(),
        Change::Journaled(Mutation::PutPart { commit }) => multipart::content_of_part(commit).existing(),
        _ => BTreeSet::new(),
    }
}

/// Those of the changes that name content which another one of them may let die.
fn clashing(named: &[BTreeSet<BlobKey>], writing: &[Request]) -> Vec<usize> {
    let mut dying: HashMap<BlobKey, Vec<usize>> = HashMap::new();
    for request in writing {
        for blob in request.statements.iter().filter_map(blobs::dying) {
            dying.entry(blob).or_default().push(request.of);
        }
    }
    let clashes = |of: &usize| {
        let by = named[*of].iter().filter_map(|blob| dying.get(blob)).flatten();
        by.into_iter().any(|by| by != of)
    };
    (0..named.len()).filter(clashes).collect()
}

/// What came of changes that were made together.
pub(super) struct GroupEnds {
    /// Of each: nothing of one that was under way when another did not go on.
    pub(super) ends: Vec<Option<Result<Outcome>>>,
    pub(super) commit: Commit,
    /// Those that cannot be made beside the others after all. Then nothing is written.
    pub(super) clashing: Vec<usize>,
}

/// What became of the transaction.
pub(super) enum Commit {
    /// It goes on.
    NotAsked,
    Done,
    /// The server carried out nothing of the transaction.
    Refused(CatalogError),
    InDoubt(String),
}

/// Makes `changes` inside the session's transaction. Where `end` is given, it ends with the last
/// writes if they are known to be the last of all. Else the caller rolls back to where it began
/// unless all of them changed something.
pub(super) async fn make(
    session: &mut PostgresSession,
    foresight: &Foresight,
    changes: Vec<&mut Change>,
    end: Option<&'static str>,
) -> GroupEnds {
    let (asking, mut asked) = mpsc::unbounded_channel();
    let mut steps = Vec::with_capacity(changes.len());
    let named: Vec<_> = changes.iter().map(|change| named_by(change)).collect();
    let mut clashes = Vec::new();
    for (of, change) in changes.into_iter().enumerate() {
        let session = Asking::new(of, foresight, change, asking.clone());
        steps.push(Step::UnderWay(Box::pin(make_one(session, change))));
    }
    let mut commit = Commit::NotAsked;
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
        if !some_read {
            clashes = clashing(&named, &now);
        }
        if !clashes.is_empty() {
            break;
        }
        let statements: Vec<_> = now.iter_mut().flat_map(|request| std::mem::take(&mut request.statements)).collect();
        if let Some(end) = end
            && now.len() == steps.len()
            && now.iter().all(|request| request.is_last)
        {
            commit = match session.run_and_commit(statements, end).await {
                Ok(()) => Commit::Done,
                Err(CommitError::InDoubt(reason)) => Commit::InDoubt(reason),
                Err(CommitError::None(error)) => {
                    commit = Commit::Refused(error);
                    break;
                }
            };
            // None of them looks at an answer: each says what it is if this went through.
            now.into_iter().for_each(|request| drop(request.answer.send(Ok(Vec::new()))));
            continue;
        }
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
    GroupEnds { ends: steps.into_iter().map(Step::end).collect(), commit, clashing: clashes }
}

async fn make_one(mut session: Asking<'_>, change: &mut Change) -> Result<Outcome> {
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
    /// Whether nothing of it is looked at by its change, which then is made.
    is_last: bool,
    statements: Vec<Statement>,
    count: usize,
    answer: oneshot::Sender<Result<Vec<Vec<Row>>>>,
}

/// The session of one change: hands its statements to [`make`], which sends them.
struct Asking<'a> {
    of: usize,
    has_asked: bool,
    asking: mpsc::UnboundedSender<Request>,
    foresight: &'a Foresight,
    /// What will be asked after the first statements, and travels with them.
    ahead: Vec<Statement>,
    foreseen: Foreseen,
}

impl<'a> Asking<'a> {
    fn new(of: usize, foresight: &'a Foresight, change: &Change, asking: mpsc::UnboundedSender<Request>) -> Self {
        let (ahead, foreseen) = (foresight.reads(change), Foreseen::default());
        Asking { of, has_asked: false, asking, foresight, ahead, foreseen }
    }

    async fn ask(&mut self, statements: Vec<Statement>, is_read: bool, is_last: bool) -> Result<Vec<Vec<Row>>> {
        let given_up = || CatalogError::Other("a change was given up because of another one".into());
        self.has_asked = true;
        let (answer, answered) = oneshot::channel();
        let count = statements.len();
        let request = Request { of: self.of, is_read, is_last, statements, count, answer };
        self.asking.send(request).map_err(|_| given_up())?;
        answered.await.map_err(|_| given_up())?
    }
}

impl Session for Asking<'_> {
    const EXCLUSIVE: bool = PostgresSession::EXCLUSIVE;
    const ROUND_TRIPS: bool = PostgresSession::ROUND_TRIPS;
    const NEXT_NUMBER: &'static str = PostgresSession::NEXT_NUMBER;

    async fn run(&mut self, statements: Vec<Statement>) -> Result<Vec<Vec<Row>>> {
        if statements.is_empty() {
            return Ok(Vec::new());
        }
        if !self.has_asked {
            let (first, ahead) = (statements.len(), std::mem::take(&mut self.ahead));
            let asked = statements.into_iter().chain(ahead.iter().cloned()).collect();
            let mut answers = self.ask(asked, true, false).await?;
            self.foreseen = Foreseen::of(ahead, answers.split_off(first));
            return Ok(answers);
        }
        if let Some(answers) = self.foreseen.answers(&statements) {
            return Ok(answers);
        }
        self.foresight.learn(&statements);
        let is_read = statements.iter().all(|statement| statement.sql.starts_with("SELECT"));
        self.ask(statements, is_read, false).await
    }

    async fn run_last(&mut self, statements: Vec<Statement>) -> Result<()> {
        self.ask(statements, false, true).await.map(drop)
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
