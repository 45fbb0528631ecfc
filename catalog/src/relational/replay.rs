//! Recorded mutations, made again in a catalog that is being filled (I11).
//!
//! The rules are those of the first time, but two: what the catalog chose then is taken from the record, and nobody asks whether the writer's
//! epoch is open, since the record is the answer.

use super::{
    apply::{Decision, Outcome, decide, only},
    buckets,
    session::{Session, statement},
    snapshot, writers,
};
use crate::{CatalogError, Result, mutation::Mutation, types::JournalEntry};

/// Makes `entries` again, in order.
pub(crate) async fn replay<S: Session>(session: &mut S, entries: &[JournalEntry]) -> Result<Outcome> {
    snapshot::must_be_importing(session).await?;
    for entry in entries {
        one(session, entry).await.map_err(|error| match error {
            error @ (CatalogError::Full | CatalogError::Unavailable(_) | CatalogError::Unknown(_)) => error,
            other => CatalogError::Invalid(format!("mutation {} cannot be made again: {other}", entry.seq)),
        })?;
    }
    Ok(Outcome::Done)
}

async fn one<S: Session>(session: &mut S, entry: &JournalEntry) -> Result<()> {
    let recorded: Mutation =
        serde_json::from_value(entry.mutation.clone()).map_err(|error| CatalogError::Invalid(error.to_string()))?;
    let answers = session
        .run(vec![statement!("UPDATE counters SET value = value + 1 WHERE name = 'seq' RETURNING value")])
        .await?;
    let seq = only(&answers, 0)?.int(0)?;
    if seq != entry.seq {
        return Err(CatalogError::Invalid(format!("the next mutation is {seq}")));
    }
    let mut made = recorded.clone();
    let Decision { outcome, writes } = match &made {
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
