//! Groups that read and decide before they have their turn.
//!
//! All processes change a shared catalog in turns. A group that takes its turn first holds it while
//! its answers travel. One that takes it last sends what it writes behind the lock, and `COMMIT`
//! behind that, so it holds its turn for as long as the database works. Between reading and turn,
//! another process may change what was read. So each change looks at the stripe of its key first
//! (`relational/stripes.rs`), and counts itself there, in its turn, by a statement that fails if
//! anybody else was counted meanwhile. Then nothing of the group is committed, and it is made again
//! as one that has its turn first. Numbers are given in the turn: writes name the last one that was
//! given, and what a change gave is told once its number is known.
//!
//! That is enough only for changes of which the stripe tells everything: puts of new content and
//! deletions. Whether content dies that lost a reference, and what a bucket holds, is decided by
//! statements among the writes.

use super::{
    asking::{ChangeSession, ChangeStep, Inquiry, Late, answer, go_on, make_one},
    foresight::Foresight,
    session::{CommitError, PostgresSession, server_run},
    together,
};
use crate::{
    CatalogError, Result,
    mutation::Mutation,
    relational::{
        change::{Change, Outcome, only},
        session::{LATE, Session, statement},
        stripes, versions,
    },
    types::{Seq, ServerRun},
};
use std::collections::HashMap;
use tokio::sync::mpsc;

/// What becomes of a group that tried to have its turn at its end.
pub(super) enum End {
    Committed(Vec<Result<Outcome>>, ServerRun),
    /// It is not for such groups after all. Nothing was written.
    NotMade,
    /// The database carried out nothing of it: something that was read has changed, or another
    /// statement failed.
    Refused(CatalogError),
    /// Outcomes that have no number yet.
    InDoubt(Vec<Result<Outcome>>, String),
}

/// Whether a group may have its turn at its end: everything that its changes decide by is under
/// their keys, and nothing is asked among the writes.
pub(super) fn may_be_made<'a>(
    foresight: &Foresight,
    changes: impl ExactSizeIterator<Item = &'a Change> + Clone,
) -> bool {
    let is_for_stripes = |change: &Change| match change {
        Change::Journaled(Mutation::Put { commit, .. }) => {
            commit.notices.is_empty()
                && versions::content_of_put(commit).existing().is_empty()
                && !foresight.is_limited(commit.bucket)
        }
        Change::Journaled(Mutation::Delete { commit, .. }) => commit.notices.is_empty(),
        _ => false,
    };
    changes.clone().all(is_for_stripes) && together::count_of_first(changes.clone()) == changes.len()
}

/// Takes the turn and so many numbers; the last of them, and the run of the server. It takes none
/// outside of a transaction.
const TAKE: &str = concat!(
    "UPDATE counters SET value = value + $1 WHERE name = 'mutations' AND pg_current_xact_id_if_assigned() IS NOT NULL \
     RETURNING value, ",
    server_run!()
);

/// The end of a transaction. If a statement before it failed, the first of these commands fails,
/// too, and the server skips the other one.
const COMMIT: &str = "SET LOCAL statement_timeout = 0; COMMIT";

/// Makes `changes` inside the session's transaction, in which nothing is locked that others wait
/// for, and commits them.
///
/// # Errors
/// What a read met. Nothing was written then.
pub(super) async fn make(
    session: &mut PostgresSession,
    foresight: &Foresight,
    changes: Vec<&mut Change>,
    writer: &[u8],
) -> Result<End> {
    let (asking, mut asked) = mpsc::unbounded_channel();
    let mut counted: HashMap<i64, i64> = HashMap::new();
    let last = changes.len() - 1;
    let mut steps = Vec::with_capacity(changes.len());
    for (of, change) in changes.into_iter().enumerate() {
        let (bucket, stripe) = match &*change {
            Change::Journaled(mutation @ Mutation::Put { commit, .. }) => (commit.bucket, stripes::of(mutation)),
            Change::Journaled(mutation @ Mutation::Delete { commit, .. }) => (commit.bucket, stripes::of(mutation)),
            _ => return Ok(End::NotMade),
        };
        let Some(stripe) = stripe else { return Ok(End::NotMade) };
        let in_stripe = counted.entry(stripe).or_default();
        let late = Late { bucket, stripe, before: *in_stripe, after: (last - of) as i64, counted: (0, 0) };
        *in_stripe += 1;
        let session = ChangeSession::new(of, foresight, change, asking.clone()).with_turn_at_end(late);
        steps.push(ChangeStep::Waits(Box::pin(make_one(session, change))));
    }
    let mut waiting: Vec<Inquiry> = Vec::new();
    loop {
        go_on(&mut steps).await;
        waiting.extend(std::iter::from_fn(|| asked.try_recv().ok()));
        if waiting.is_empty() || steps.iter().any(ChangeStep::is_refused) {
            return Ok(End::NotMade);
        }
        let (mut now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut waiting).into_iter().partition(|one| one.is_read);
        if !now.is_empty() {
            waiting = later;
            let statements = now.iter_mut().flat_map(|request| std::mem::take(&mut request.statements)).collect();
            answer(now, session.run(statements).await?);
            continue;
        }
        if later.len() != steps.len() {
            return Ok(End::NotMade);
        }
        return Ok(write(session, steps, later, writer).await);
    }
}

/// Takes the turn, writes everything and commits. The number of the last mutation stays in the row
/// of the `writer`.
async fn write(
    session: &mut PostgresSession,
    mut steps: Vec<ChangeStep<'_>>,
    mut now: Vec<Inquiry>,
    writer: &[u8],
) -> End {
    now.sort_by_key(|request| request.of);
    let mut statements = vec![statement!(TAKE, steps.len() as i64)];
    statements.extend(now.iter_mut().flat_map(|request| std::mem::take(&mut request.statements)));
    let sign = statement!("UPDATE commit_groups SET seq = $1 WHERE writer = $2", LATE, writer);
    statements.push(sign.numbered(LATE, &[1]).counted_back(0));
    let (answers, doubt) = match session.run_and_commit(statements, COMMIT).await {
        Ok(answers) => (answers, None),
        Err(CommitError::None(error)) => return End::Refused(error),
        Err(CommitError::InDoubt(reason)) => (Vec::new(), Some(reason)),
    };
    let taken = only(&answers, 0).and_then(|row| Ok((row.int(0)?, row.int(1)?)));
    // None of them looks at an answer: each says what it is if this went through.
    answer(now, Vec::new());
    go_on(&mut steps).await;
    let lost = || Err(CatalogError::Other("a change did not end with its writes".into()));
    let outcomes = steps.into_iter().map(|step| step.end().unwrap_or_else(lost)).collect();
    match (doubt, taken) {
        (Some(reason), _) => End::InDoubt(outcomes, reason),
        (None, Ok((last, run))) => End::Committed(numbered(outcomes, last), run),
        (None, Err(error)) => End::InDoubt(outcomes, error.to_string()),
    }
}

/// Outcomes of a group whose last mutation has the number `last`, with the numbers that they lack.
/// All of such a group were made, one after the other.
pub(super) fn numbered(outcomes: Vec<Result<Outcome>>, last: Seq) -> Vec<Result<Outcome>> {
    let first = last + 1 - outcomes.len() as Seq;
    outcomes.into_iter().zip(first..).map(|(outcome, number)| outcome.map(|outcome| outcome.numbered(number))).collect()
}
