//! Versions: put, delete, rewrite.

use super::{
    apply::{Decision, Outcome, only},
    blobs, buckets, rows,
    session::{Lock, Row, Session, Statement, signed, statement},
};
use crate::{CatalogError, Result, admission::Content, types::*};
use std::collections::BTreeSet;

/// How many statements [`lock_current`] gives.
pub(crate) const CURRENT_STATEMENTS: usize = 3;

/// The statements that read and lock a key's current version, name the blobs it references, and tell whether the key is hidden.
pub(crate) fn lock_current(bucket: BucketId, key: &str) -> [Statement; CURRENT_STATEMENTS] {
    [
        Statement::locking(
            concat!(
                "SELECT ",
                rows::version_columns!(),
                " FROM versions v WHERE v.bucket = $1 AND v.key = $2 AND v.current = 1"
            ),
            vec![bucket.0.into(), rows::key(key)],
            Lock::Update,
        ),
        statement!(
            "SELECT DISTINCT e.blob FROM extents e JOIN versions v ON e.version = v.seq \
             WHERE v.bucket = $1 AND v.key = $2 AND v.current = 1",
            bucket.0,
            rows::key(key),
        ),
        hidden_key(bucket, key),
    ]
}

fn hidden_key(bucket: BucketId, key: &str) -> Statement {
    statement!("SELECT 1 FROM hidden_keys WHERE bucket = $1 AND key = $2", bucket.0, rows::key(key))
}

pub(crate) async fn hidden<S: Session>(session: &mut S, bucket: BucketId, key: &str) -> Result<bool> {
    Ok(session.first(hidden_key(bucket, key)).await?.is_some())
}

/// A key's current version as a commit finds it.
pub(crate) struct Current {
    pub(crate) version: Option<Version>,
    pub(crate) blobs: Vec<BlobKey>,
    hidden: bool,
}

impl Current {
    /// Reads the answers of [`lock_current`], which begin at `first`.
    pub(crate) fn read(answers: &[Vec<Row>], first: usize) -> Result<Current> {
        Ok(Current {
            version: answers[first].first().map(rows::version).transpose()?,
            blobs: rows::blob_keys(&answers[first + 1])?,
            hidden: !answers[first + 2].is_empty(),
        })
    }

    pub(crate) fn check(&self, precondition: Precondition) -> Result<()> {
        precondition.check(self.version.as_ref().map(|version| version.id), self.hidden)
    }

    /// Last-Modified of the version that follows: never before its predecessor's (I12).
    pub(crate) fn clamp(&self, now_ms: UnixMs) -> UnixMs {
        self.version.as_ref().map_or(now_ms, |version| version.modified_ms.max(now_ms))
    }

    /// Removes the version and its extents; its blobs are still to be released.
    pub(crate) fn remove(&self) -> Vec<Statement> {
        let Some(version) = &self.version else { return Vec::new() };
        vec![
            statement!("DELETE FROM extents WHERE version = $1", version.seq),
            statement!("DELETE FROM versions WHERE seq = $1", version.seq),
        ]
    }
}

pub(crate) fn insert(version: &Version) -> Result<Statement> {
    Ok(statement!(
        "INSERT INTO versions (bucket, key, id, seq, modified_ms, size, facts, extents_digest, current) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1)",
        version.bucket.0,
        rows::key(&version.key),
        version.id.0,
        version.seq,
        version.modified_ms,
        signed(version.size)?,
        version.facts.as_slice(),
        version.extents_digest,
    ))
}

fn insert_extents(version: Seq, extents: &[Extent]) -> Result<Vec<Statement>> {
    let one = |(ordinal, extent): (usize, &Extent)| {
        Ok(statement!(
            "INSERT INTO extents (version, ordinal, blob, plain_offset, plain_len) VALUES ($1, $2, $3, $4, $5)",
            version,
            ordinal as i64,
            extent.blob.0,
            signed(extent.offset)?,
            signed(extent.len)?,
        ))
    };
    extents.iter().enumerate().map(one).collect()
}

pub(crate) async fn put<S: Session>(
    session: &mut S,
    seq: Seq,
    commit: &PutCommit,
    modified_ms: &mut UnixMs,
) -> Result<Decision> {
    let content = Content {
        bucket: commit.bucket,
        epoch: commit.epoch,
        new_blobs: &commit.new_blobs,
        extents: &commit.extents,
        size: commit.size,
    };
    content.check_shape()?;
    let mut reads = vec![buckets::lock_bucket(commit.bucket)];
    reads.extend(lock_current(commit.bucket, &commit.key));
    reads.extend(blobs::lock_existing(&content));
    let answers = session.run(reads).await?;
    if answers[0].is_empty() {
        return Err(CatalogError::NoBucket);
    }
    let current = Current::read(&answers, 1)?;
    current.check(commit.precondition)?;
    content.check_references(blobs::known(&answers[1 + CURRENT_STATEMENTS..])?)?;

    *modified_ms = current.clamp(commit.now_ms);
    let version = Version {
        bucket: commit.bucket,
        key: commit.key.clone(),
        id: commit.id,
        seq,
        modified_ms: *modified_ms,
        size: commit.size,
        facts: commit.facts.clone(),
        extents_digest: commit.extents_digest,
    };
    let kept: BTreeSet<_> = commit.extents.iter().map(|extent| extent.blob).collect();
    let mut writes = blobs::insert(&commit.new_blobs, commit.now_ms)?;
    writes.extend(current.remove());
    writes.push(insert(&version)?);
    writes.extend(insert_extents(seq, &commit.extents)?);
    writes.extend(blobs::release_all(current.blobs, &kept, commit.now_ms));
    Ok(Decision { outcome: Outcome::Committed(Committed { seq, modified_ms: *modified_ms }), writes })
}

pub(crate) async fn delete<S: Session>(
    session: &mut S,
    commit: &DeleteCommit,
    removed: &mut VersionId,
) -> Result<Decision> {
    let mut reads = vec![buckets::lock_bucket(commit.bucket)];
    reads.extend(lock_current(commit.bucket, &commit.key));
    let answers = session.run(reads).await?;
    if answers[0].is_empty() {
        return Err(CatalogError::NoBucket);
    }
    let mut current = Current::read(&answers, 1)?;
    current.check(commit.precondition)?;
    let mut writes = current.remove();
    if commit.hide && !current.hidden {
        writes.push(statement!(
            "INSERT INTO hidden_keys (bucket, key) VALUES ($1, $2)",
            commit.bucket.0,
            rows::key(&commit.key)
        ));
    }
    let Some(version) = current.version.take() else {
        return if writes.is_empty() { Decision::unchanged() } else { Decision::done(writes) };
    };
    *removed = version.id;
    writes.extend(blobs::release_all(current.blobs, &BTreeSet::new(), commit.now_ms));
    Ok(Decision { outcome: Outcome::Removed(Box::new(version)), writes })
}

pub(crate) async fn rewrite<S: Session>(session: &mut S, commit: &RewriteCommit) -> Result<Decision> {
    let content = Content {
        bucket: commit.bucket,
        epoch: commit.epoch,
        new_blobs: &commit.new_blobs,
        extents: &commit.new_extents,
        size: commit.old_extents.iter().fold(0, |sum, extent| sum.saturating_add(extent.len)),
    };
    content.check_shape()?;
    let mut reads = vec![
        Statement::locking(
            "SELECT seq FROM versions WHERE id = $1 AND bucket = $2 AND key = $3",
            vec![commit.id.0.into(), commit.bucket.0.into(), rows::key(&commit.key)],
            Lock::Update,
        ),
        statement!(
            "SELECT e.blob, e.plain_offset, e.plain_len FROM extents e JOIN versions v ON e.version = v.seq \
             WHERE v.id = $1 ORDER BY e.ordinal",
            commit.id.0
        ),
    ];
    reads.extend(blobs::lock_existing(&content));
    let answers = session.run(reads).await?;
    if answers[0].is_empty() {
        return Err(CatalogError::Conflict);
    }
    let seq = only(&answers, 0)?.int(0)?;
    let extents = answers[1].iter().map(|row| rows::extent(row, 0)).collect::<Result<Vec<_>>>()?;
    if extents != commit.old_extents {
        return Err(CatalogError::Conflict);
    }
    content.check_references(blobs::known(&answers[2..])?)?;

    let kept: BTreeSet<_> = commit.new_extents.iter().map(|extent| extent.blob).collect();
    let mut writes = blobs::insert(&commit.new_blobs, commit.now_ms)?;
    writes.push(statement!("DELETE FROM extents WHERE version = $1", seq));
    writes.extend(insert_extents(seq, &commit.new_extents)?);
    writes.push(statement!(
        "UPDATE versions SET facts = $1, extents_digest = $2 WHERE seq = $3",
        commit.facts.as_slice(),
        commit.extents_digest,
        seq,
    ));
    writes.extend(blobs::release_all(extents.iter().map(|extent| extent.blob), &kept, commit.now_ms));
    Decision::done(writes)
}
