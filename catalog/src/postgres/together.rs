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
    asking::{ChangeSession, ChangeStep, Inquiry, answer, go_on, make_one},
    foresight::Foresight,
    session::{CommitError, PostgresSession},
};
use crate::{
    CatalogError, Result,
    mutation::Mutation,
    relational::{
        blobs,
        change::{Change, Outcome},
        multipart,
        session::Session,
        versions,
    },
    types::{BlobKey, BucketId, UploadId},
};
use std::collections::{BTreeSet, HashMap, HashSet};
use tokio::sync::mpsc;

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
fn clashing(named: &[BTreeSet<BlobKey>], writing: &[Inquiry]) -> Vec<usize> {
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
        let session = ChangeSession::new(of, foresight, change, asking.clone());
        steps.push(ChangeStep::Waits(Box::pin(make_one(session, change))));
    }
    let mut commit = Commit::NotAsked;
    let mut waiting: Vec<Inquiry> = Vec::new();
    loop {
        go_on(&mut steps).await;
        waiting.extend(std::iter::from_fn(|| asked.try_recv().ok()));
        if steps.iter().any(ChangeStep::is_refused) || waiting.is_empty() {
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
                Ok(_) => Commit::Done,
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
            Ok(answers) => answer(now, answers),
            // Which of them it was about is found out one by one.
            Err(error) => drop(now.swap_remove(0).answer.send(Err(error))),
        }
    }
    GroupEnds { ends: steps.into_iter().map(ChangeStep::end).collect(), commit, clashing: clashes }
}
