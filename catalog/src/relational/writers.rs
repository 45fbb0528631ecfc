//! Writers and their epochs. A closed epoch never opens again; what it had in flight fails at the
//! commit (E4, E23).

use super::{
    change::{Decision, Outcome, only},
    session::{Lock, Row, Session, Statement, statement},
};
use crate::{
    CatalogError, Result,
    types::{OpenWriter, UnixMs},
};

pub(crate) async fn open<S: Session>(session: &mut S, epoch: &mut u32, closes: &mut Vec<u32>) -> Result<Decision> {
    let now_ms = session.clock_ms().await?;
    let answers = session
        .run(vec![
            statement!("UPDATE counters SET value = value + 1 WHERE name = 'epoch' RETURNING value"),
            Statement::locking("SELECT epoch FROM writers WHERE closed = 0", vec![], Lock::Update),
        ])
        .await?;
    *epoch = only(&answers, 0)?.small(0)?;
    closes.clear();
    if S::EXCLUSIVE {
        for row in &answers[1] {
            closes.push(row.small(0)?);
        }
        closes.sort_unstable();
    }
    let mut writes: Vec<_> = closes.iter().map(|closed| close_one(*closed)).collect();
    writes.push(statement!("INSERT INTO writers (epoch, seen_ms, closed) VALUES ($1, $2, 0)", *epoch, now_ms));
    Ok(Decision::of(Outcome::Epoch(*epoch), writes))
}

/// Opens the epoch that a record says was opened, and closes those that it says were closed by
/// that.
pub(crate) fn reopen(epoch: u32, closes: &[u32]) -> Decision {
    let mut writes: Vec<_> = closes.iter().map(|closed| close_one(*closed)).collect();
    writes.push(statement!("UPDATE counters SET value = $1 WHERE name = 'epoch'", epoch));
    writes.push(statement!("INSERT INTO writers (epoch, seen_ms, closed) VALUES ($1, 0, 0)", epoch));
    Decision::of(Outcome::Epoch(epoch), writes)
}

/// Closes those of `epochs` that are open, and leaves only them in it.
pub(crate) async fn close<S: Session>(session: &mut S, epochs: &mut Vec<u32>) -> Result<Decision> {
    let mut open = Vec::new();
    for epoch in epochs.iter() {
        let row = session
            .first(Statement::locking(
                "SELECT epoch FROM writers WHERE epoch = $1 AND closed = 0",
                vec![(*epoch).into()],
                Lock::Update,
            ))
            .await?;
        open.extend(row.map(|row| row.small(0)).transpose()?);
    }
    open.sort_unstable();
    open.dedup();
    *epochs = open;
    if epochs.is_empty() {
        return Decision::unchanged();
    }
    let writes = epochs.iter().map(|epoch| close_one(*epoch)).collect();
    Ok(Decision::of(Outcome::Epochs(epochs.clone()), writes))
}

fn close_one(epoch: u32) -> Statement {
    statement!("UPDATE writers SET closed = 1 WHERE epoch = $1", epoch)
}

/// Records that a writer is alive.
pub(crate) async fn heartbeat<S: Session>(session: &mut S, epoch: u32) -> Result<Outcome> {
    let now_ms = session.clock_ms().await?;
    let seen = session
        .first(statement!(
            "UPDATE writers SET seen_ms = $1 WHERE epoch = $2 AND closed = 0 RETURNING epoch",
            now_ms,
            epoch
        ))
        .await?;
    seen.map(|_| Outcome::Done).ok_or(CatalogError::Fenced)
}

/// Open epochs that were not heard of for `lease_ms`. An epoch of an exclusive database ends when
/// the next begins.
pub(crate) async fn stale<S: Session>(session: &mut S, lease_ms: UnixMs) -> Result<Vec<u32>> {
    if S::EXCLUSIVE {
        return Ok(Vec::new());
    }
    let now_ms = session.clock_ms().await?;
    let rows = session
        .query(statement!(
            "SELECT epoch FROM writers WHERE closed = 0 AND seen_ms < $1 ORDER BY epoch",
            now_ms.saturating_sub(lease_ms)
        ))
        .await?;
    rows.iter().map(|row| row.small(0)).collect()
}

/// Writers whose epochs are open, and how long ago each was heard of. Nobody asks the one of an
/// exclusive database for a sign of life: it is there now.
pub(crate) async fn open_ones<S: Session>(session: &mut S) -> Result<Vec<OpenWriter>> {
    let now_ms = session.clock_ms().await?;
    let rows = session.query(statement!("SELECT epoch, seen_ms FROM writers WHERE closed = 0 ORDER BY epoch")).await?;
    let writer = |row: &Row| {
        let silent_ms = if S::EXCLUSIVE { 0 } else { now_ms.saturating_sub(row.int(1)?).max(0) };
        Ok(OpenWriter { epoch: row.small(0)?, silent_ms })
    };
    rows.iter().map(writer).collect()
}

pub(crate) async fn closed<S: Session>(session: &mut S) -> Result<Vec<u32>> {
    let rows = session.query(statement!("SELECT epoch FROM writers WHERE closed = 1 ORDER BY epoch")).await?;
    rows.iter().map(|row| row.small(0)).collect()
}
