//! Wrapped domain keys.

use super::{
    buckets::{claim_bucket, lock_bucket},
    change::{Decision, only},
    session::{Lock, Row, Session, Statement, statement},
};
use crate::{
    CatalogError, Result,
    mutation::{SEALED_ROW_VERSION, Seals},
    types::*,
};

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

/// Removes keys that nothing is sealed with.
pub(crate) async fn remove<S: Session>(session: &mut S, bucket: BucketId, epochs: &[u32]) -> Result<Decision> {
    let claimed = session.query(claim_bucket(bucket)).await?;
    if claimed.is_empty() {
        return Err(CatalogError::NoBucket);
    }
    let mut writes = Vec::new();
    for key in of_bucket(session, bucket).await?.iter().filter(|key| epochs.contains(&key.epoch)) {
        if !dependents_of(session, key).await?.is_none() {
            return Err(CatalogError::BucketState);
        }
        writes.push(statement!("DELETE FROM keys WHERE bucket = $1 AND epoch = $2", bucket.0, key.epoch));
    }
    if writes.is_empty() { Decision::unchanged() } else { Decision::done(writes) }
}

/// What could not be opened any more without the key of an epoch.
pub(crate) async fn dependents<S: Session>(session: &mut S, bucket: BucketId, epoch: u32) -> Result<KeyDependents> {
    match of_bucket(session, bucket).await?.iter().find(|key| key.epoch == epoch) {
        Some(key) => dependents_of(session, key).await,
        None => Ok(KeyDependents::default()),
    }
}

/// The same of a key. A blob of its bucket that another one needs counts like any.
async fn dependents_of<S: Session>(session: &mut S, key: &WrappedKey) -> Result<KeyDependents> {
    let (bucket, epoch) = (key.bucket, key.epoch);
    let start: Vec<u8> = [SEALED_ROW_VERSION].into_iter().chain(key.id).collect();
    let answers = session
        .run(vec![
            statement!(
                // A base that only dying deltas need dies after them.
                "SELECT CASE WHEN b.state = 0 AND (EXISTS (SELECT 1 FROM extents x WHERE x.blob = b.id) \
                   OR EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = b.id) \
                   OR EXISTS (SELECT 1 FROM edges e JOIN blobs d ON d.id = e.delta WHERE e.base = b.id AND d.state = 0)) \
                   THEN 0 ELSE 1 END, COUNT(*), CAST(SUM(b.plain_len) AS BIGINT) FROM blobs b \
                 WHERE b.bucket = $1 AND b.key_epoch = $2 AND b.key_epoch <> 0 AND b.original IS NULL GROUP BY 1",
                bucket.0,
                epoch
            ),
            statement!(
                "SELECT COUNT(*) FROM versions WHERE bucket = $1 AND substr(facts, 1, 17) = $2",
                bucket.0,
                start.as_slice()
            ),
            statement!(
                "SELECT COUNT(*) FROM uploads WHERE bucket = $1 AND substr(facts, 1, 17) = $2",
                bucket.0,
                start.as_slice()
            ),
            statement!(
                "SELECT COUNT(*) FROM parts p JOIN uploads u ON u.id = p.upload \
                 WHERE u.bucket = $1 AND substr(p.facts, 1, 17) = $2",
                bucket.0,
                start.as_slice()
            ),
        ])
        .await?;
    let mut found = KeyDependents::default();
    for row in &answers[0] {
        match row.int(0)? {
            0 => (found.blobs, found.plain_bytes) = (row.unsigned(1)?, row.unsigned(2)?),
            _ => found.dying = row.unsigned(1)?,
        }
    }
    found.versions = only(&answers, 1)?.unsigned(0)?;
    found.uploads = only(&answers, 2)?.unsigned(0)? + only(&answers, 3)?.unsigned(0)?;
    Ok(found)
}

/// Asks for the keys that something is sealed with.
pub(crate) fn present(seals: &Seals) -> Statement {
    statement!("SELECT id, epoch FROM keys WHERE bucket = $1", seals.bucket.0)
}

/// Refuses what is sealed with a key that is not there: it could not be opened.
pub(crate) fn check_present(seals: &Seals, rows: &[Row]) -> Result<()> {
    let (mut ids, mut epochs) = (seals.ids.clone(), seals.epochs.clone());
    for row in rows {
        ids.remove(&row.array(0)?);
        epochs.remove(&row.small(1)?);
    }
    if ids.is_empty() && epochs.is_empty() { Ok(()) } else { Err(CatalogError::KeyGone) }
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
