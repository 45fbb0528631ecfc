//! Leases of background jobs. None of it is a mutation: a lease is advice (E23), and what a job had
//! done is found again by doing it again.
//!
//! A lease is taken from the catalog's clock, and its number, the fence, grows with every taking.
//! Whoever renews or saves shows the fence it was given; an older one, or one whose writer's epoch
//! is closed, is refused.

use super::{
    change::{JobChange, Outcome, only},
    session::{Lock, Row, Session, Statement, statement},
};
use crate::{CatalogError, Result, types::*};

/// Clocks are set back by less than this again and again, and then agree with others.
const CLOCK_CORRECTION_MAX_MS: UnixMs = 60_000;

macro_rules! columns {
    () => {
        "j.name, j.holder, j.fence, j.expires_ms, j.started_ms, j.ended_ms, j.paused, j.cancelled, j.state, w.closed"
    };
}

/// Only the holder of the lease, and only while its epoch is open.
macro_rules! held_by {
    () => {
        "name = $2 AND fence = $3 AND holder IS NOT NULL \
         AND EXISTS (SELECT 1 FROM writers w WHERE w.epoch = holder AND w.closed = 0) RETURNING 1"
    };
}

pub(crate) async fn apply<S: Session>(session: &mut S, change: &JobChange) -> Result<Outcome> {
    let now_ms = session.clock_ms().await?;
    match change {
        JobChange::Take(take) => self::take(session, take, now_ms).await,
        JobChange::Renew { lease, lease_ms } => {
            let until = now_ms.saturating_add(*lease_ms);
            let sql = concat!("UPDATE jobs SET expires_ms = $1 WHERE ", held_by!());
            change_held(session, statement!(sql, until, lease.name.as_str(), lease.fence)).await?;
            found(session, &lease.name, now_ms).await
        }
        JobChange::Save { lease, state } => {
            let sql = concat!("UPDATE jobs SET state = $1 WHERE ", held_by!());
            change_held(session, statement!(sql, state.to_string().as_str(), lease.name.as_str(), lease.fence)).await?;
            Ok(Outcome::Done)
        }
        JobChange::Release { lease, state } => {
            let sql = concat!("UPDATE jobs SET state = $1 WHERE ", held_by!());
            change_held(session, statement!(sql, state.to_string().as_str(), lease.name.as_str(), lease.fence)).await?;
            let free = "UPDATE jobs SET holder = NULL, ended_ms = $1, cancelled = 0 WHERE name = $2";
            session.run(vec![statement!(free, now_ms, lease.name.as_str())]).await?;
            Ok(Outcome::Done)
        }
        JobChange::Wish { name, wish } => {
            let (column, value) = match wish {
                JobWish::Pause => ("UPDATE jobs SET paused = $1 WHERE name = $2", 1),
                JobWish::Resume => ("UPDATE jobs SET paused = $1 WHERE name = $2", 0),
                JobWish::Cancel => ("UPDATE jobs SET cancelled = $1 WHERE name = $2", 1),
            };
            session.run(vec![new_row(name), statement!(column, i64::from(value), name.as_str())]).await?;
            found(session, name, now_ms).await
        }
    }
}

async fn take<S: Session>(session: &mut S, take: &JobTake, now_ms: UnixMs) -> Result<Outcome> {
    let answers = session
        .run(vec![
            new_row(&take.name),
            Statement::locking("SELECT name FROM jobs WHERE name = $1", vec![take.name.as_str().into()], Lock::Update),
            Statement::locking("SELECT closed FROM writers WHERE epoch = $1", vec![take.epoch.into()], Lock::Share),
            by_name(&take.name),
        ])
        .await?;
    if answers[2].is_empty() || only(&answers, 2)?.int(0)? != 0 {
        return Err(CatalogError::Fenced);
    }
    let row = job(only(&answers, 3)?, now_ms)?;
    let rested = row.idle_ms.is_none_or(|idle| idle >= take.rest_ms);
    if row.held || !rested {
        return Ok(Outcome::Unchanged);
    }
    let taking = statement!(
        "UPDATE jobs SET holder = $1, expires_ms = $2, started_ms = $3, fence = fence + 1, cancelled = 0 WHERE name = $4",
        take.epoch,
        now_ms.saturating_add(take.lease_ms),
        now_ms,
        take.name.as_str(),
    );
    session.run(vec![taking]).await?;
    found(session, &take.name, now_ms).await
}

pub(crate) async fn all<S: Session>(session: &mut S) -> Result<Vec<JobRow>> {
    let now_ms = session.clock_ms().await?;
    let sql = concat!("SELECT ", columns!(), " FROM jobs j LEFT JOIN writers w ON w.epoch = j.holder ORDER BY j.name");
    session.query(statement!(sql)).await?.iter().map(|row| job(row, now_ms)).collect()
}

async fn change_held<S: Session>(session: &mut S, statement: Statement) -> Result<()> {
    session.first(statement).await?.map(|_| ()).ok_or(CatalogError::Fenced)
}

async fn found<S: Session>(session: &mut S, name: &str, now_ms: UnixMs) -> Result<Outcome> {
    let row = session.first(by_name(name)).await?;
    let row = row.ok_or_else(|| CatalogError::Other(format!("job {name} has no row")))?;
    Ok(Outcome::Job(Box::new(job(&row, now_ms)?)))
}

fn by_name(name: &str) -> Statement {
    let sql =
        concat!("SELECT ", columns!(), " FROM jobs j LEFT JOIN writers w ON w.epoch = j.holder WHERE j.name = $1");
    statement!(sql, name)
}

fn new_row(name: &str) -> Statement {
    statement!(
        "INSERT INTO jobs (name, fence, paused, cancelled, state) VALUES ($1, 0, 0, 0, 'null') ON CONFLICT (name) DO NOTHING",
        name
    )
}

/// How long ago a run ended; `None` where nobody can know, because the clock was set back since. A
/// job must not wait until the clock is there again.
fn idle_ms(ended_ms: UnixMs, now_ms: UnixMs) -> Option<UnixMs> {
    let idle_ms = now_ms.saturating_sub(ended_ms);
    (idle_ms >= -CLOCK_CORRECTION_MAX_MS).then_some(idle_ms.max(0))
}

fn job(row: &Row, now_ms: UnixMs) -> Result<JobRow> {
    let holder = row.optional_int(1)?;
    let (expires_ms, ended_ms) = (row.optional_int(3)?, row.optional_int(5)?);
    let open = row.optional_int(9)? == Some(0);
    Ok(JobRow {
        name: row.text(0)?.to_owned(),
        holder: holder.map(|_| row.small(1)).transpose()?,
        fence: row.int(2)?,
        held: open && expires_ms.is_some_and(|expires| expires > now_ms),
        started_ms: row.optional_int(4)?,
        ended_ms,
        idle_ms: ended_ms.and_then(|ended| idle_ms(ended, now_ms)),
        paused: row.int(6)? != 0,
        cancelled: row.int(7)? != 0,
        state: row.json(8)?,
    })
}
