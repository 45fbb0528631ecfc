//! What sweeps found: files in a backend that no row knows, on a list until they are removed or
//! taken off it again.

use super::{
    change::{Decision, Outcome, only},
    session::{Row, Session, signed, statement},
};
use crate::{Result, types::*};

/// Closed epochs that were not looked through since.
pub(crate) async fn unswept<S: Session>(session: &mut S) -> Result<Vec<u32>> {
    let sql = "SELECT epoch FROM writers WHERE closed = 1 AND swept = 0 ORDER BY epoch";
    session.query(statement!(sql)).await?.iter().map(|row| row.small(0)).collect()
}

/// Marks epochs as looked through and lists what was found. What is on the list already keeps its
/// date.
pub(crate) fn sweep(epochs: &[u32], found: &[TrashFile]) -> Result<Decision> {
    let mut writes = Vec::with_capacity(epochs.len() + found.len());
    for file in found {
        writes.push(statement!(
            "INSERT INTO trash (backend, name, stored_len, since_ms) VALUES ($1, $2, $3, $4) ON CONFLICT (backend, name) DO NOTHING",
            file.backend.as_str(),
            file.name.as_str(),
            signed(file.stored_len)?,
            file.since_ms,
        ));
    }
    for epoch in epochs {
        writes.push(statement!("UPDATE writers SET swept = 1 WHERE epoch = $1 AND closed = 1", *epoch));
    }
    if writes.is_empty() { Decision::unchanged() } else { Decision::done(writes) }
}

/// Takes files off the list, and leaves in `files` those that were on it.
pub(crate) async fn forget<S: Session>(session: &mut S, files: &mut Vec<TrashFile>) -> Result<Decision> {
    let one = |file: &TrashFile| {
        statement!(
            "SELECT backend, name, stored_len, since_ms FROM trash WHERE backend = $1 AND name = $2",
            file.backend.as_str(),
            file.name.as_str()
        )
    };
    let answers = session.run(files.iter().map(one).collect()).await?;
    *files = answers.iter().flatten().map(file).collect::<Result<_>>()?;
    if files.is_empty() {
        return Decision::unchanged();
    }
    let gone = |file: &TrashFile| {
        statement!("DELETE FROM trash WHERE backend = $1 AND name = $2", file.backend.as_str(), file.name.as_str())
    };
    Ok(Decision::of(Outcome::Count(files.len() as u64), files.iter().map(gone).collect()))
}

/// Files listed before `before_ms`, oldest first.
pub(crate) async fn listed<S: Session>(session: &mut S, before_ms: UnixMs, limit: usize) -> Result<Vec<TrashFile>> {
    let sql = "SELECT backend, name, stored_len, since_ms FROM trash WHERE since_ms < $1 ORDER BY since_ms, backend, name LIMIT $2";
    session.query(statement!(sql, before_ms, limit as i64)).await?.iter().map(file).collect()
}

pub(crate) async fn sum<S: Session>(session: &mut S) -> Result<TrashSum> {
    let sql = "SELECT count(*), COALESCE(CAST(sum(stored_len) AS BIGINT), 0), min(since_ms) FROM trash";
    let answers = session.run(vec![statement!(sql)]).await?;
    let row = only(&answers, 0)?;
    Ok(TrashSum { files: row.unsigned(0)?, stored_bytes: row.unsigned(1)?, oldest_ms: row.optional_int(2)? })
}

fn file(row: &Row) -> Result<TrashFile> {
    Ok(TrashFile {
        backend: row.text(0)?.to_owned(),
        name: row.text(1)?.to_owned(),
        stored_len: row.unsigned(2)?,
        since_ms: row.int(3)?,
    })
}
