//! What the background needs to encode stored content anew: the queue of what was stored in a
//! hurry, who references a blob, which bases only deltas need, which versions are made of many
//! extents.

use super::{
    blobs,
    change::Decision,
    rows::{self, blob_columns},
    session::{Row, Session, Value, statement},
};
use crate::{Result, types::*};

pub(crate) async fn deferred<S: Session>(session: &mut S, before_ms: UnixMs, limit: usize) -> Result<Vec<Deferred>> {
    let rows = session
        .query(statement!(
            concat!(
                "SELECT q.since_ms, ",
                blob_columns!(),
                " FROM deferrals q JOIN blobs b ON b.id = q.blob WHERE q.since_ms < $1 AND b.state = 0 \
                 AND EXISTS (SELECT 1 FROM extents e WHERE e.blob = b.id) ORDER BY q.since_ms DESC, q.blob LIMIT $2"
            ),
            before_ms,
            limit as i64,
        ))
        .await?;
    rows.iter().map(|row| Ok(Deferred { since_ms: row.int(0)?, row: rows::blob(row, 1)? })).collect()
}

/// From the queue to its blobs: SQLite takes the tables of a cross join in the order they stand in,
/// and those of another join the other way round, through every blob there is.
pub(crate) async fn deferred_sum<S: Session>(session: &mut S) -> Result<DeferredSum> {
    let row = session
        .first(statement!(
            "SELECT count(*), COALESCE(CAST(sum(b.plain_len) AS BIGINT), 0), min(q.since_ms) \
             FROM deferrals q CROSS JOIN blobs b \
             WHERE b.id = q.blob AND b.state = 0 AND EXISTS (SELECT 1 FROM extents e WHERE e.blob = b.id)"
        ))
        .await?;
    let sum = |row: Row| {
        Ok(DeferredSum { blobs: row.unsigned(0)?, plain_bytes: row.unsigned(1)?, oldest_ms: row.optional_int(2)? })
    };
    row.map_or(Ok(DeferredSum::default()), sum)
}

pub(crate) async fn undefer<S: Session>(session: &mut S, blob: BlobKey) -> Result<Decision> {
    match session.first(statement!("SELECT since_ms FROM deferrals WHERE blob = $1", blob.0)).await? {
        Some(_) => Decision::done(vec![statement!("DELETE FROM deferrals WHERE blob = $1", blob.0)]),
        None => Decision::unchanged(),
    }
}

pub(crate) async fn heated<S: Session>(session: &mut S, after: Option<BlobKey>, limit: usize) -> Result<Vec<Heated>> {
    // No id is shorter than 16 bytes, so the empty one stands before the first.
    let after = after.map_or(Value::Bytes(Vec::new()), |blob| blob.0.into());
    let rows = session
        .query(statement!(
            concat!(
                "SELECT h.grown_bytes, ",
                blob_columns!(),
                " FROM heat h JOIN blobs b ON b.id = h.blob WHERE h.blob > $1 AND b.state = 0 ORDER BY h.blob LIMIT $2"
            ),
            after,
            limit as i64,
        ))
        .await?;
    rows.iter().map(|row| Ok(Heated { heat_bytes: row.unsigned(0)?, row: rows::blob(row, 1)? })).collect()
}

/// In the order of [`deferred_sum`].
pub(crate) async fn heat_sum<S: Session>(session: &mut S) -> Result<u64> {
    let row = session
        .first(statement!(
            "SELECT COALESCE(CAST(sum(h.grown_bytes) AS BIGINT), 0) FROM heat h CROSS JOIN blobs b \
             WHERE b.id = h.blob AND b.state = 0"
        ))
        .await?;
    row.map_or(Ok(0), |row| row.unsigned(0))
}

pub(crate) async fn heat_of<S: Session>(session: &mut S, blobs: &[BlobKey]) -> Result<u64> {
    let one = |blob: &BlobKey| {
        statement!(
            "SELECT h.grown_bytes FROM heat h JOIN blobs b ON b.id = h.blob WHERE h.blob = $1 AND b.state = 0",
            blob.0
        )
    };
    let answers = session.run(blobs.iter().map(one).collect()).await?;
    answers.iter().flatten().map(|row| row.unsigned(0)).sum()
}

pub(crate) async fn cool<S: Session>(session: &mut S, blob: BlobKey) -> Result<Decision> {
    match session.first(statement!("SELECT grown_bytes FROM heat WHERE blob = $1", blob.0)).await? {
        Some(_) => Decision::done(vec![statement!("DELETE FROM heat WHERE blob = $1", blob.0)]),
        None => Decision::unchanged(),
    }
}

pub(crate) async fn referrers<S: Session>(session: &mut S, blob: BlobKey, limit: usize) -> Result<Vec<Referrer>> {
    let rows = session
        .query(statement!(
            "SELECT DISTINCT v.key, v.id FROM extents e JOIN versions v ON v.seq = e.version WHERE e.blob = $1 \
             ORDER BY v.key, v.id LIMIT $2",
            blob.0,
            limit as i64,
        ))
        .await?;
    rows.iter().map(|row| Ok(Referrer { key: row.key(0)?, id: VersionId(row.array(1)?) })).collect()
}

/// From the bases that edges name: what is no base costs nothing, however much of it there is.
pub(crate) const KEPT_BASES: &str = "SELECT d.base FROM edges d WHERE d.base > $1 GROUP BY d.base \
     HAVING NOT EXISTS (SELECT 1 FROM extents e WHERE e.blob = d.base) \
     AND NOT EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = d.base) \
     AND EXISTS (SELECT 1 FROM blobs b WHERE b.id = d.base AND b.state = 0 AND b.form = 0) ORDER BY d.base LIMIT $2";

pub(crate) async fn kept_bases<S: Session>(
    session: &mut S,
    after: Option<BlobKey>,
    limit: usize,
) -> Result<Vec<BlobRow>> {
    // No id is shorter than 16 bytes, so the empty one stands before the first.
    let after = after.map_or(Value::Bytes(Vec::new()), |blob| blob.0.into());
    let found = session.query(statement!(KEPT_BASES, after, limit as i64)).await?;
    blobs::rows_of(session, &rows::blob_keys(&found)?).await
}

pub(crate) async fn deltas_of<S: Session>(session: &mut S, base: BlobKey, limit: usize) -> Result<Vec<BlobRow>> {
    let rows = session
        .query(statement!(
            concat!(
                "SELECT ",
                blob_columns!(),
                " FROM edges d JOIN blobs b ON b.id = d.delta WHERE d.base = $1 AND b.state = 0 ORDER BY b.id LIMIT $2"
            ),
            base.0,
            limit as i64,
        ))
        .await?;
    rows.iter().map(|row| rows::blob(row, 0)).collect()
}

/// Its ordinal, one less than [`SCATTERED_EXTENTS_MIN`], stands in it as a number because only then
/// the index `extents_scattered` answers it.
pub(crate) const SCATTERED: &str = "SELECT v.bucket, v.key, v.id, v.seq, v.modified_ms, v.size, \
     (SELECT max(l.ordinal) + 1 FROM extents l WHERE l.version = v.seq) \
     FROM extents e JOIN versions v ON v.seq = e.version \
     WHERE e.ordinal = 31 AND e.version > $1 ORDER BY e.version LIMIT $2";
const _: () = assert!(SCATTERED_EXTENTS_MIN == 32);

pub(crate) async fn scattered<S: Session>(session: &mut S, after: Seq, limit: usize) -> Result<Vec<Scattered>> {
    let rows = session.query(statement!(SCATTERED, after, limit as i64)).await?;
    let one = |row: &Row| {
        Ok(Scattered {
            bucket: BucketId(row.int(0)?),
            key: row.key(1)?,
            id: VersionId(row.array(2)?),
            seq: row.int(3)?,
            modified_ms: row.int(4)?,
            size: row.unsigned(5)?,
            extents: row.unsigned(6)?,
        })
    };
    rows.iter().map(one).collect()
}

pub(crate) async fn bound_blobs<S: Session>(session: &mut S, version: VersionId) -> Result<Vec<BlobKey>> {
    let rows = session
        .query(statement!(
            "SELECT DISTINCT e.blob FROM versions v JOIN extents e ON e.version = v.seq JOIN blobs b ON b.id = e.blob \
             WHERE v.id = $1 AND (b.original IS NOT NULL OR b.damage IS NOT NULL \
             OR EXISTS (SELECT 1 FROM extents o WHERE o.blob = e.blob AND o.version <> e.version) \
             OR EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = e.blob) \
             OR EXISTS (SELECT 1 FROM edges d WHERE d.base = e.blob) \
             OR EXISTS (SELECT 1 FROM deferrals q WHERE q.blob = e.blob)) ORDER BY e.blob",
            version.0
        ))
        .await?;
    rows::blob_keys(&rows)
}
