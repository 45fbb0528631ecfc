//! Second copies of blobs that many deltas need (hazard E8).
//!
//! A copy has an id of its own, made by its writer in its writer's epoch: what was written and never named by a row is garbage as soon as
//! that epoch is closed, as with blobs (E4).

use super::{
    apply::Decision,
    rows,
    session::{Lock, Session, Statement, Value, statement},
};
use crate::{CatalogError, Result, types::*};

pub(crate) async fn wanted<S: Session>(
    session: &mut S,
    fan_in_min: u64,
    after: Option<BlobKey>,
    limit: usize,
) -> Result<Vec<BlobRow>> {
    let sql = concat!(
        "SELECT ",
        rows::blob_columns!(),
        " FROM (SELECT base FROM edges WHERE base > $1 GROUP BY base HAVING count(*) >= $2) n JOIN blobs b ON b.id = n.base \
         WHERE b.state = 0 AND b.form = 0 AND b.copy_id IS NULL AND b.damage IS NULL AND b.inline_bytes IS NULL \
         AND b.original IS NULL ORDER BY b.id LIMIT $3"
    );
    // No id is shorter than 16 bytes, so the empty one stands before the first.
    let after = after.map_or(Value::Bytes(Vec::new()), |blob| blob.0.into());
    let fan_in_min = i64::try_from(fan_in_min).unwrap_or(i64::MAX);
    let found = session.query(statement!(sql, after, fan_in_min, limit as i64)).await?;
    found.iter().map(|row| rows::blob(row, 0)).collect()
}

pub(crate) async fn set<S: Session>(session: &mut S, commit: &CopyCommit) -> Result<Decision> {
    if commit.copy.0[..4] != commit.epoch.to_be_bytes() || commit.replaces == Some(commit.copy) {
        return Err(CatalogError::Invalid("a copy's id is new and begins with its writer's epoch".into()));
    }
    let sql = "SELECT copy_id FROM blobs WHERE id = $1 AND state = 0 AND form = 0 AND inline_bytes IS NULL AND original IS NULL";
    let found = session.first(Statement::locking(sql, vec![commit.blob.0.into()], Lock::Update)).await?;
    let Some(row) = found else { return Err(CatalogError::Conflict) };
    if rows::optional_blob(&row, 0)? != commit.replaces {
        return Err(CatalogError::Conflict);
    }
    Decision::done(vec![statement!("UPDATE blobs SET copy_id = $1 WHERE id = $2", commit.copy.0, commit.blob.0)])
}
