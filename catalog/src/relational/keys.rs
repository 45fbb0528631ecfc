//! Wrapped domain keys.

use super::{
    buckets::{claim_bucket, lock_bucket},
    change::Decision,
    session::{Lock, Row, Session, Statement, statement},
};
use crate::{CatalogError, Result, types::*};

/// Rows of keys, as [`wrapped_key`] reads them.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT id, bucket, epoch, kek, wrapped FROM keys", $rest)
    };
}

pub(crate) async fn put<S: Session>(session: &mut S, key: &WrappedKey) -> Result<Decision> {
    let answers = session
        .run(vec![
            lock_bucket(key.bucket),
            statement!(
                "SELECT id FROM keys WHERE id = $1 OR (bucket = $2 AND epoch = $3)",
                key.id,
                key.bucket.0,
                key.epoch
            ),
        ])
        .await?;
    if answers[0].is_empty() {
        return Err(CatalogError::NoBucket);
    }
    if !answers[1].is_empty() {
        return Err(CatalogError::Exists);
    }
    Decision::done(vec![statement!(
        "INSERT INTO keys (id, bucket, epoch, kek, wrapped) VALUES ($1, $2, $3, $4, $5)",
        key.id,
        key.bucket.0,
        key.epoch,
        key.kek,
        key.wrapped.as_slice(),
    )])
}

/// Replaces the wraps of keys while they are the ones that are expected, all or none.
pub(crate) async fn rewrap<S: Session>(session: &mut S, keys: &[Rewrap]) -> Result<Decision> {
    if keys.is_empty() {
        return Decision::unchanged();
    }
    let found = keys
        .iter()
        .map(|rewrap| Statement::locking(select!(" WHERE id = $1"), vec![rewrap.key.id.into()], Lock::Update));
    let answers = session.run(found.collect()).await?;
    let mut writes = Vec::new();
    for (Rewrap { before, key }, answer) in keys.iter().zip(&answers) {
        let found = answer.first().map(wrapped_key).transpose()?.ok_or(CatalogError::Conflict)?;
        if (found.bucket, found.epoch, &found.wrapped) != (key.bucket, key.epoch, before) {
            return Err(CatalogError::Conflict);
        }
        writes.push(statement!(
            "UPDATE keys SET kek = $1, wrapped = $2 WHERE id = $3",
            key.kek,
            key.wrapped.as_slice(),
            key.id
        ));
    }
    Decision::done(writes)
}

/// Removes keys on which nothing outside of their bucket depends, and nothing in it that is locked.
pub(crate) async fn remove<S: Session>(
    session: &mut S,
    bucket: BucketId,
    epochs: &[u32],
    now_ms: UnixMs,
) -> Result<Decision> {
    let answers = session
        .run(vec![
            claim_bucket(bucket),
            statement!("SELECT epoch FROM keys WHERE bucket = $1", bucket.0),
            statement!(
                "SELECT e.delta FROM edges e JOIN blobs b ON b.id = e.base JOIN blobs d ON d.id = e.delta \
                 WHERE b.bucket = $1 AND d.bucket <> b.bucket LIMIT 1",
                bucket.0
            ),
            statement!(
                "SELECT v.seq FROM extents e JOIN blobs b ON b.id = e.blob JOIN versions v ON v.seq = e.version \
                 WHERE b.bucket = $1 AND v.bucket <> b.bucket LIMIT 1",
                bucket.0
            ),
            // A legal hold, or a retention that has not ended.
            statement!(
                "SELECT seq FROM versions WHERE bucket = $1 AND (lock IN (4, 5, 6) OR retain_until_ms > $2) LIMIT 1",
                bucket.0,
                now_ms
            ),
        ])
        .await?;
    if answers[0].is_empty() {
        return Err(CatalogError::NoBucket);
    }
    if !answers[2].is_empty() || !answers[3].is_empty() {
        return Err(CatalogError::BucketState);
    }
    if !answers[4].is_empty() {
        return Err(CatalogError::Locked);
    }
    let there = answers[1].iter().map(|row| row.small(0)).collect::<Result<Vec<u32>>>()?;
    let gone = epochs.iter().filter(|epoch| there.contains(epoch));
    let writes: Vec<Statement> =
        gone.map(|epoch| statement!("DELETE FROM keys WHERE bucket = $1 AND epoch = $2", bucket.0, *epoch)).collect();
    if writes.is_empty() { Decision::unchanged() } else { Decision::done(writes) }
}

pub(crate) async fn of_bucket<S: Session>(session: &mut S, bucket: BucketId) -> Result<Vec<WrappedKey>> {
    let rows = session.query(statement!(select!(" WHERE bucket = $1 ORDER BY epoch"), bucket.0)).await?;
    rows.iter().map(wrapped_key).collect()
}

pub(crate) async fn all<S: Session>(session: &mut S) -> Result<Vec<WrappedKey>> {
    let rows = session.query(statement!(select!(""))).await?;
    let mut keys = rows.iter().map(wrapped_key).collect::<Result<Vec<_>>>()?;
    keys.sort_by_key(|key| (key.bucket, key.epoch));
    Ok(keys)
}

pub(crate) async fn uses<S: Session>(session: &mut S) -> Result<Vec<KeyUse>> {
    let rows = session
        .query(statement!("SELECT bucket, key_epoch, COUNT(*) FROM blobs GROUP BY bucket, key_epoch ORDER BY 1, 2"))
        .await?;
    let used = |row: &Row| Ok(KeyUse { bucket: BucketId(row.int(0)?), epoch: row.small(1)?, blobs: row.unsigned(2)? });
    rows.iter().map(used).collect()
}

fn wrapped_key(row: &Row) -> Result<WrappedKey> {
    Ok(WrappedKey {
        id: row.array(0)?,
        bucket: BucketId(row.int(1)?),
        epoch: row.small(2)?,
        kek: row.array(3)?,
        wrapped: row.bytes(4)?.to_vec(),
    })
}
