//! Recorded mutations, made again in a catalog that is being filled (I11).
//!
//! The rules are those of the first time, but two: what the catalog chose then is taken from the
//! record, and nobody asks whether the writer's epoch is open, since the record is the answer.

use super::{
    buckets,
    change::{Decision, Outcome, only},
    decide::decide,
    session::{Session, statement},
    snapshot, writers,
};
use crate::{
    CatalogError, Result,
    mutation::Mutation,
    types::{JournalEntry, Precondition, Seq},
};

/// Makes `entries` again, in order.
pub(crate) async fn replay<S: Session>(session: &mut S, entries: &[JournalEntry]) -> Result<Outcome> {
    snapshot::must_be_importing(session).await?;
    for entry in entries {
        one(session, entry).await.map_err(|error| match unfit(error) {
            CatalogError::Invalid(why) => {
                CatalogError::Invalid(format!("mutation {} cannot be made again: {why}", entry.seq))
            }
            passing => passing,
        })?;
    }
    Ok(Outcome::Done)
}

/// Takes every number up to `seq`.
pub(crate) async fn skip<S: Session>(session: &mut S, seq: Seq) -> Result<Outcome> {
    snapshot::must_be_importing(session).await?;
    session
        .run(vec![statement!("UPDATE counters SET value = $1 WHERE name = 'mutations' AND value < $2", seq, seq)])
        .await?;
    Ok(Outcome::Done)
}

/// See [`Catalog::replay_behind_hole`](crate::Catalog::replay_behind_hole).
pub(crate) async fn behind_hole<S: Session>(session: &mut S, entry: &JournalEntry) -> Result<Outcome> {
    skip(session, entry.seq).await?;
    let mut mutation = recorded(entry)?;
    // It went through then: what it was bound to held, whether what it held of is known or not.
    match &mut mutation {
        Mutation::Put { commit, .. } => commit.precondition = Precondition::None,
        Mutation::Complete { commit, .. } => commit.precondition = Precondition::None,
        Mutation::Delete { commit, .. } => commit.precondition = Precondition::None,
        Mutation::DeleteVersion { commit, .. } => commit.precondition = Precondition::None,
        _ => {}
    }
    let made = match &mut mutation {
        Mutation::OpenEpoch { epoch, closes } => Ok(writers::reopen(*epoch, closes)),
        Mutation::CreateBucket { bucket } => buckets::recreate(session, bucket).await,
        mutation => decide(session, entry.seq, mutation).await,
    };
    let Decision { writes, .. } = made.map_err(unfit)?;
    session.run(writes).await.map_err(unfit)?;
    Ok(Outcome::Done)
}

/// A mutation that does not fit is told from what passes, and from a catalog whose own rows are
/// damaged: that says nothing of the mutation.
fn unfit(error: CatalogError) -> CatalogError {
    use CatalogError::{Damaged, Full, Unavailable, Unknown};
    match error {
        error @ (Full | Unavailable(_) | Unknown(_) | Damaged(_)) => error,
        other => CatalogError::Invalid(other.to_string()),
    }
}

fn recorded(entry: &JournalEntry) -> Result<Mutation> {
    entry.mutation.read().map_err(|error| CatalogError::Invalid(error.to_string()))
}

async fn one<S: Session>(session: &mut S, entry: &JournalEntry) -> Result<()> {
    let recorded = recorded(entry)?;
    let answers = session
        .run(vec![statement!("UPDATE counters SET value = value + 1 WHERE name = 'mutations' RETURNING value")])
        .await?;
    let seq = only(&answers, 0)?.int(0)?;
    if seq != entry.seq {
        return Err(CatalogError::Invalid(format!("the next mutation is {seq}")));
    }
    let mut made = recorded.clone();
    let Decision { outcome, writes, .. } = match &made {
        Mutation::OpenEpoch { epoch, closes } => writers::reopen(*epoch, closes),
        Mutation::CreateBucket { bucket } => buckets::recreate(session, bucket).await?,
        _ => decide(session, seq, &mut made).await?,
    };
    if matches!(outcome, Outcome::Unchanged) || made != recorded {
        return Err(CatalogError::Invalid("it gives something else now".into()));
    }
    session.run(writes).await?;
    Ok(())
}
