//! Buckets, their keys, and settings.

use super::{
    blobs,
    change::{Decision, Outcome, only},
    quotas, rows,
    session::{Lock, Session, Statement, statement},
};
use crate::{CatalogError, Result, types::*};
use std::collections::BTreeSet;

const COLUMNS: &str = concat!("SELECT ", rows::bucket_columns!(), " FROM buckets WHERE name IS NOT NULL");

pub(crate) async fn create<S: Session>(session: &mut S, bucket: &mut Bucket) -> Result<Decision> {
    let answers = session
        .run(vec![
            statement!("UPDATE counters SET value = value + 1 WHERE name = 'bucket' RETURNING value"),
            statement!("SELECT id FROM buckets WHERE name = $1", bucket.name.as_str()),
        ])
        .await?;
    if !answers[1].is_empty() {
        return Err(CatalogError::Exists);
    }
    bucket.id = BucketId(only(&answers, 0)?.int(0)?);
    Ok(Decision::of(Outcome::Bucket(bucket.clone()), vec![insert(bucket)]))
}

/// Creates the bucket that a record says was created, under the id it got.
pub(crate) async fn recreate<S: Session>(session: &mut S, bucket: &Bucket) -> Result<Decision> {
    let taken = statement!("SELECT id FROM buckets WHERE name = $1 OR id = $2", bucket.name.as_str(), bucket.id.0);
    if session.first(taken).await?.is_some() {
        return Err(CatalogError::Exists);
    }
    let id = bucket.id.0;
    let counted = statement!("UPDATE counters SET value = $1 WHERE name = 'bucket' AND value < $2", id, id);
    Ok(Decision::of(Outcome::Bucket(bucket.clone()), vec![counted, insert(bucket)]))
}

fn insert(bucket: &Bucket) -> Statement {
    statement!(
        "INSERT INTO buckets (id, name, owner, created_ms, settings, versioning, object_lock) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        bucket.id.0,
        bucket.name.as_str(),
        bucket.owner.as_str(),
        bucket.created_ms,
        bucket.settings.to_string().as_str(),
        rows::versioning_column(bucket.versioning),
        i64::from(bucket.object_lock),
    )
}

/// Finds a bucket that is not deleted, and keeps it from being deleted, and from keeping versions
/// otherwise, while the transaction lasts. Gives its id, its versioning and whether it has object
/// lock.
pub(crate) fn lock_bucket(bucket: BucketId) -> Statement {
    Statement::locking(
        "SELECT id, versioning, object_lock FROM buckets WHERE id = $1 AND name IS NOT NULL",
        vec![bucket.0.into()],
        Lock::Share,
    )
}

/// Finds a bucket that is not deleted, and keeps everybody else from changing it while the
/// transaction lasts. Gives its id.
pub(crate) fn claim_bucket(bucket: BucketId) -> Statement {
    Statement::locking("SELECT id FROM buckets WHERE id = $1 AND name IS NOT NULL", vec![bucket.0.into()], Lock::Update)
}

pub(crate) async fn set_versioning<S: Session>(
    session: &mut S,
    bucket: BucketId,
    versioning: Versioning,
) -> Result<Decision> {
    if versioning.is_off() {
        return Err(CatalogError::Invalid("a bucket that kept versions cannot become one that never did".into()));
    }
    let found = Statement::locking(
        "SELECT versioning, object_lock FROM buckets WHERE id = $1 AND name IS NOT NULL",
        vec![bucket.0.into()],
        Lock::Update,
    );
    let Some(found) = session.first(found).await? else { return Err(CatalogError::NoBucket) };
    if rows::versioning(found.int(0)?)? == versioning {
        return Decision::unchanged();
    }
    if found.int(1)? != 0 {
        return Err(CatalogError::BucketState);
    }
    let column = rows::versioning_column(versioning);
    Decision::done(vec![statement!("UPDATE buckets SET versioning = $1 WHERE id = $2", column, bucket.0)])
}

pub(crate) async fn enable_object_lock<S: Session>(session: &mut S, bucket: BucketId) -> Result<Decision> {
    let found = Statement::locking(
        "SELECT versioning, object_lock FROM buckets WHERE id = $1 AND name IS NOT NULL",
        vec![bucket.0.into()],
        Lock::Update,
    );
    let Some(found) = session.first(found).await? else { return Err(CatalogError::NoBucket) };
    if found.int(1)? != 0 {
        return Decision::unchanged();
    }
    if rows::versioning(found.int(0)?)? != Versioning::Enabled {
        return Err(CatalogError::BucketState);
    }
    Decision::done(vec![statement!("UPDATE buckets SET object_lock = 1 WHERE id = $1", bucket.0)])
}

pub(crate) async fn set_settings<S: Session>(
    session: &mut S,
    bucket: BucketId,
    settings: &serde_json::Value,
    expected: Option<&serde_json::Value>,
) -> Result<Decision> {
    let found = Statement::locking(
        "SELECT settings FROM buckets WHERE id = $1 AND name IS NOT NULL",
        vec![bucket.0.into()],
        Lock::Share,
    );
    let Some(found) = session.first(found).await? else { return Err(CatalogError::NoBucket) };
    if let Some(expected) = expected
        && found.json(0)? != *expected
    {
        return Err(CatalogError::Conflict);
    }
    let text = settings.to_string();
    Decision::done(vec![statement!("UPDATE buckets SET settings = $1 WHERE id = $2", text.as_str(), bucket.0)])
}

pub(crate) async fn delete<S: Session>(session: &mut S, bucket: BucketId, now_ms: UnixMs) -> Result<Decision> {
    let answers = session
        .run(vec![
            claim_bucket(bucket),
            statement!("SELECT seq FROM versions WHERE bucket = $1 AND current = 1 LIMIT 1", bucket.0),
            // No part can be added once these are locked.
            Statement::locking(
                "SELECT id FROM uploads WHERE bucket = $1 AND completed_ms IS NULL",
                vec![bucket.0.into()],
                Lock::Update,
            ),
            statement!(
                "SELECT DISTINCT e.blob FROM part_extents e JOIN uploads u ON u.id = e.upload WHERE u.bucket = $1",
                bucket.0
            ),
            statement!("SELECT seq FROM versions WHERE bucket = $1 AND current = 0 LIMIT 1", bucket.0),
        ])
        .await?;
    if answers[0].is_empty() {
        return Decision::unchanged();
    }
    if !answers[1].is_empty() || !answers[4].is_empty() {
        return Err(CatalogError::NotEmpty);
    }
    let mut writes = vec![
        statement!("DELETE FROM part_extents WHERE upload IN (SELECT id FROM uploads WHERE bucket = $1)", bucket.0),
        statement!("DELETE FROM parts WHERE upload IN (SELECT id FROM uploads WHERE bucket = $1)", bucket.0),
        statement!("DELETE FROM uploads WHERE bucket = $1", bucket.0),
        statement!("DELETE FROM hidden_keys WHERE bucket = $1", bucket.0),
        statement!("UPDATE buckets SET name = NULL WHERE id = $1", bucket.0),
    ];
    writes.extend(blobs::release_all(rows::blob_keys(&answers[3])?, &BTreeSet::new(), now_ms));
    writes.extend(quotas::forget(bucket));
    writes.extend(blobs::forget_deleted_bucket(bucket));
    Decision::done(writes)
}

pub(crate) async fn by_name<S: Session>(session: &mut S, name: &str) -> Result<Option<Bucket>> {
    let row = session
        .first(statement!(concat!("SELECT ", rows::bucket_columns!(), " FROM buckets WHERE name = $1"), name))
        .await?;
    row.as_ref().map(rows::bucket).transpose()
}

pub(crate) async fn all<S: Session>(session: &mut S) -> Result<Vec<Bucket>> {
    let rows = session.query(statement!(COLUMNS)).await?;
    let mut buckets = rows.iter().map(rows::bucket).collect::<Result<Vec<_>>>()?;
    // Sorted here: the order of text is the database's choice, the order of bytes is ours.
    buckets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(buckets)
}

pub(crate) async fn put_setting<S: Session>(
    session: &mut S,
    name: &str,
    value: &serde_json::Value,
    creates: bool,
) -> Result<Decision> {
    if creates && setting(session, name).await?.is_some() {
        return Err(CatalogError::Exists);
    }
    let text = value.to_string();
    Decision::done(vec![statement!(
        "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        name,
        text.as_str(),
    )])
}

pub(crate) async fn setting<S: Session>(session: &mut S, name: &str) -> Result<Option<serde_json::Value>> {
    let row = session.first(statement!("SELECT value FROM settings WHERE name = $1", name)).await?;
    row.as_ref().map(|row| row.json(0)).transpose()
}
