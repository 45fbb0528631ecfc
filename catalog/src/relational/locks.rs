//! Sets locks of versions; `versions.rs` obeys them.

use super::{
    buckets,
    change::Decision,
    checksums, columns, rows,
    session::{Lock, Session, Statement, statement},
};
use crate::{CatalogError, Result, types::LockCommit};

pub(crate) async fn set<S: Session>(session: &mut S, commit: &LockCommit) -> Result<Decision> {
    let answers = session
        .run(vec![
            buckets::lock_bucket(commit.bucket),
            Statement::locking(
                concat!(
                    "SELECT ",
                    rows::version_columns!(),
                    " FROM versions v WHERE v.id = $1 AND v.bucket = $2 AND v.key = $3 AND v.marker = 0"
                ),
                vec![commit.id.0.into(), commit.bucket.0.into(), rows::key(&commit.key)],
                Lock::Update,
            ),
        ])
        .await?;
    let Some(bucket) = answers[0].first() else { return Err(CatalogError::NoBucket) };
    if bucket.int(2)? == 0 {
        return Err(CatalogError::BucketState);
    }
    let Some(version) = answers[1].first() else { return Decision::unchanged() };
    let mut version = rows::version(version)?;
    let changed = version.lock.changed(commit.change, commit.now_ms, commit.bypass_governance);
    version.lock = changed.ok_or(CatalogError::Locked)?;
    let (lock, retain_until_ms) = columns::lock_columns(&version.lock);
    Decision::done(vec![statement!(
        "UPDATE versions SET lock = $1, retain_until_ms = $2, checksum = $3 WHERE seq = $4",
        lock,
        retain_until_ms,
        checksums::of_version(&version),
        version.seq,
    )])
}
