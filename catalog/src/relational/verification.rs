//! What a scrub reads and what it found: the order in which blobs are verified, when each was, and
//! the quarantine.
//!
//! Quarantine is beside a blob's life, not part of it: a damaged blob is referenced, released and
//! purged like any other.

use super::{
    change::{Decision, Outcome},
    rows::{self, blob_columns},
    session::{Lock, Row, Session, Statement, Value, statement},
};
use crate::{Result, types::*};

/// How many deltas need a blob, then what [`to_verify`] tells of it.
macro_rules! columns {
    ($fan_in:literal) => {
        concat!("SELECT ", $fan_in, ", b.verified_ms, CASE WHEN b.damage IS NULL THEN 0 ELSE 1 END, ", blob_columns!())
    };
}

pub(crate) async fn to_verify<S: Session>(
    session: &mut S,
    after: Option<VerifyPlace>,
    limit: usize,
) -> Result<Vec<ToVerify>> {
    if after.is_none_or(|after| after.fan_in > 0) {
        let bases = bases_to_verify(session, after, limit).await?;
        if !bases.is_empty() {
            return Ok(bases);
        }
    }
    let after = after.filter(|after| after.fan_in == 0);
    let sql = concat!(
        columns!("0"),
        " FROM blobs b WHERE b.id > $1 AND b.state = 0 AND NOT EXISTS (SELECT 1 FROM edges d WHERE d.base = b.id) \
         ORDER BY b.id LIMIT $2"
    );
    let rows = session.query(statement!(sql, behind(after.map(|after| after.blob)), limit as i64)).await?;
    rows.iter().map(place).collect()
}

/// Bases by how many deltas need them. Counts every edge once per page, so pages are long.
async fn bases_to_verify<S: Session>(
    session: &mut S,
    after: Option<VerifyPlace>,
    limit: usize,
) -> Result<Vec<ToVerify>> {
    let fan_in = after.map_or(i64::MAX, |after| i64::try_from(after.fan_in).unwrap_or(i64::MAX));
    let sql = concat!(
        columns!("n.fan_in"),
        " FROM (SELECT base, count(*) AS fan_in FROM edges GROUP BY base) n JOIN blobs b ON b.id = n.base \
         WHERE b.state = 0 AND (n.fan_in < $1 OR (n.fan_in = $1 AND b.id > $2)) ORDER BY n.fan_in DESC, b.id LIMIT $3"
    );
    let rows = session.query(statement!(sql, fan_in, behind(after.map(|after| after.blob)), limit as i64)).await?;
    rows.iter().map(place).collect()
}

/// What every id from `after` on is greater than. No id is shorter than 16 bytes, so the empty one
/// stands before the first.
fn behind(after: Option<BlobKey>) -> Value {
    after.map_or(Value::Bytes(Vec::new()), |blob| blob.0.into())
}

fn place(row: &Row) -> Result<ToVerify> {
    Ok(ToVerify {
        fan_in: row.unsigned(0)?,
        verified_ms: row.int(1)?,
        quarantined: row.int(2)? != 0,
        row: rows::blob(row, 3)?,
    })
}

pub(crate) async fn note_verified<S: Session>(session: &mut S, blobs: &[BlobKey], at_ms: UnixMs) -> Result<Outcome> {
    let note = |blob: &BlobKey| statement!("UPDATE blobs SET verified_ms = $1 WHERE id = $2", at_ms, blob.0);
    session.run(blobs.iter().map(note).collect()).await?;
    Ok(Outcome::Done)
}

pub(crate) async fn quarantine<S: Session>(
    session: &mut S,
    blob: BlobKey,
    damage: &serde_json::Value,
    now_ms: UnixMs,
) -> Result<Decision> {
    let sql = "SELECT damage FROM blobs WHERE id = $1 AND state = 0";
    let found = session.first(Statement::locking(sql, vec![blob.0.into()], Lock::Update)).await?;
    let known = match &found {
        None => return Decision::unchanged(),
        Some(row) if row.is_null(0) => None,
        Some(row) => Some(row.json(0)?),
    };
    if known.as_ref() == Some(damage) {
        return Decision::unchanged();
    }
    Decision::done(vec![statement!(
        "UPDATE blobs SET damage = $1, quarantined_ms = COALESCE(quarantined_ms, $2) WHERE id = $3",
        damage.to_string().as_str(),
        now_ms,
        blob.0
    )])
}

pub(crate) async fn end_quarantine<S: Session>(session: &mut S, blob: BlobKey) -> Result<Decision> {
    let sql = "SELECT id FROM blobs WHERE id = $1 AND damage IS NOT NULL";
    match session.first(Statement::locking(sql, vec![blob.0.into()], Lock::Update)).await? {
        None => Decision::unchanged(),
        Some(_) => Decision::done(vec![statement!(
            "UPDATE blobs SET damage = NULL, quarantined_ms = NULL WHERE id = $1",
            blob.0
        )]),
    }
}

pub(crate) async fn quarantined<S: Session>(
    session: &mut S,
    after: Option<BlobKey>,
    limit: usize,
) -> Result<Vec<Quarantined>> {
    let sql = concat!(
        "SELECT b.quarantined_ms, b.damage, ",
        blob_columns!(),
        " FROM blobs b WHERE b.id > $1 AND b.damage IS NOT NULL AND b.state = 0 ORDER BY b.id LIMIT $2"
    );
    let rows = session.query(statement!(sql, behind(after), limit as i64)).await?;
    let one = |row: &Row| Ok(Quarantined { since_ms: row.int(0)?, damage: row.json(1)?, row: rows::blob(row, 2)? });
    rows.iter().map(one).collect()
}

pub(crate) async fn is_quarantined<S: Session>(session: &mut S, blob: BlobKey) -> Result<bool> {
    let sql = "SELECT id FROM blobs WHERE id = $1 AND damage IS NOT NULL";
    Ok(session.first(statement!(sql, blob.0)).await?.is_some())
}

pub(crate) async fn part_referrers<S: Session>(
    session: &mut S,
    blob: BlobKey,
    limit: usize,
) -> Result<Vec<PartReferrer>> {
    let sql = "SELECT u.key, p.upload, p.number, p.blob, p.plain_offset, p.plain_len FROM part_extents p \
               JOIN uploads u ON u.id = p.upload WHERE p.blob = $1 ORDER BY u.key, p.upload, p.number, p.ordinal";
    let mut referrers: Vec<PartReferrer> = Vec::new();
    for row in session.query(statement!(sql, blob.0)).await? {
        let (upload, number, extent) = (UploadId(row.array(1)?), row.small(2)?, rows::extent(&row, 3)?);
        let full = referrers.len() == limit;
        match referrers.last_mut() {
            Some(last) if (last.upload, last.number) == (upload, number) => last.extents.push(extent),
            _ if full => break,
            _ => referrers.push(PartReferrer { key: row.key(0)?, upload, number, extents: vec![extent] }),
        }
    }
    Ok(referrers)
}
