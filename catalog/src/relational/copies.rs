//! Second copies of blobs that many deltas or objects need (hazard E8).
//!
//! A copy has an id of its own, made by its writer in its writer's epoch: what was written and
//! never named by a row is garbage as soon as that epoch is closed, as with blobs (E4).

use super::{
    blobs,
    change::Decision,
    checksums, rows,
    session::{Lock, Session, Statement, Value, statement},
};
use crate::{CatalogError, Result, types::*};
use std::collections::BTreeSet;

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

/// What [`shared`] answers with for whatever is not a live blob in a backend, or has a copy.
macro_rules! wants_copy {
    ($blob:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM blobs b WHERE b.id = ",
            $blob,
            " AND b.backend = $3 AND b.state = 0 AND b.copy_id IS NULL AND b.damage IS NULL AND b.inline_bytes IS NULL AND b.original IS NULL)"
        )
    };
}

/// Blobs that so many versions name, behind `$1`. References are counted in the index; which
/// versions they are of is looked up only where there are enough of them.
pub(crate) const BY_VERSIONS: &str = concat!(
    "SELECT e.blob FROM extents e WHERE e.blob > $1 GROUP BY e.blob HAVING count(*) >= $2 AND ",
    wants_copy!("e.blob"),
    " AND (SELECT count(DISTINCT o.version) FROM extents o WHERE o.blob = e.blob) >= $2 ORDER BY e.blob LIMIT $4"
);

/// The same for bases: what versions name of their deltas counts for them.
pub(crate) const THROUGH_DELTAS: &str = concat!(
    "SELECT d.base FROM edges d JOIN extents e ON e.blob = d.delta WHERE d.base > $1 GROUP BY d.base \
     HAVING count(*) + (SELECT count(*) FROM extents o WHERE o.blob = d.base) >= $2 AND ",
    wants_copy!("d.base"),
    " AND (SELECT count(DISTINCT n.version) FROM edges x JOIN extents n ON n.blob = x.delta WHERE x.base = d.base) \
     + (SELECT count(DISTINCT o.version) FROM extents o WHERE o.blob = d.base) >= $2 ORDER BY d.base LIMIT $4"
);

/// Both run along an index and hold nothing but a page, however many objects there are.
pub(crate) async fn shared<S: Session>(
    session: &mut S,
    backend: &str,
    objects_min: u64,
    after: Option<BlobKey>,
    limit: usize,
) -> Result<Vec<BlobRow>> {
    // No id is shorter than 16 bytes, so the empty one stands before the first.
    let after = after.map_or(Value::Bytes(Vec::new()), |blob| blob.0.into());
    let objects_min = i64::try_from(objects_min).unwrap_or(i64::MAX);
    let ask = |sql| statement!(sql, after.clone(), objects_min, backend, limit as i64);
    let answers = session.run(vec![ask(BY_VERSIONS), ask(THROUGH_DELTAS)]).await?;
    let mut found = BTreeSet::new();
    for rows in &answers {
        found.extend(rows::blob_keys(rows)?);
    }
    let page: Vec<BlobKey> = found.into_iter().take(limit).collect();
    blobs::rows_of(session, &page).await
}

pub(crate) async fn set<S: Session>(session: &mut S, commit: &CopyCommit) -> Result<Decision> {
    if commit.copy.0[..4] != commit.epoch.to_be_bytes() || commit.replaces == Some(commit.copy) {
        return Err(CatalogError::Invalid("a copy's id is new and begins with its writer's epoch".into()));
    }
    let sql = concat!(
        "SELECT ",
        rows::blob_columns!(),
        " FROM blobs b WHERE b.id = $1 AND b.state = 0 AND b.inline_bytes IS NULL AND b.original IS NULL"
    );
    let found = session.first(Statement::locking(sql, vec![commit.blob.0.into()], Lock::Update)).await?;
    let Some(row) = found else { return Err(CatalogError::Conflict) };
    let mut row = rows::blob(&row, 0)?;
    if row.copy != commit.replaces {
        return Err(CatalogError::Conflict);
    }
    row.copy = Some(commit.copy);
    Decision::done(vec![statement!(
        "UPDATE blobs SET copy_id = $1, checksum = $2 WHERE id = $3",
        commit.copy.0,
        checksums::of_blob(&row)?,
        commit.blob.0
    )])
}
