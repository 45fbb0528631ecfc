//! Blobs and their life: the one place where references are checked, counted and ended (E3, E4, E5,
//! E6).
//!
//! A reference is a row in `extents`, `part_extents` or `edges`. Whoever removes such rows ends
//! with [`release`] for each blob they named, in the same transaction: it looks for any row that is
//! left, and where there is none the blob is dying and has its tombstone.

use super::{
    change::Decision,
    checksums, hooks, rows,
    session::{Lock, Row, Session, Statement, signed, statement},
};
use crate::{
    CatalogError, Result,
    admission::{Content, Known},
    types::*,
};
use std::collections::{BTreeMap, BTreeSet};

/// The statements that read and lock the existing blobs of a commit, in order of id.
pub(crate) fn lock_existing(content: &Content<'_>) -> Vec<Statement> {
    let one = |blob: BlobKey| {
        Statement::locking(
            "SELECT id, bucket, key_epoch, backend, form, state, plain_len, CASE WHEN original IS NULL THEN 0 ELSE 1 END, \
             CASE WHEN damage IS NULL THEN 0 ELSE 1 END FROM blobs WHERE id = $1",
            vec![blob.0.into()],
            Lock::Share,
        )
    };
    content.existing().into_iter().map(one).collect()
}

/// What [`lock_existing`] found.
pub(crate) fn known(answers: &[Vec<Row>]) -> Result<BTreeMap<BlobKey, Known>> {
    let mut known = BTreeMap::new();
    for row in answers.iter().flatten() {
        let facts = Known {
            bucket: BucketId(row.int(1)?),
            key_epoch: row.small(2)?,
            backend: row.text(3)?.to_owned(),
            form: rows::form(row.int(4)?)?,
            state: rows::state(row.int(5)?)?,
            plain_len: row.unsigned(6)?,
            foreign: row.int(7)? != 0,
            quarantined: row.int(8)? != 0,
        };
        known.insert(BlobKey(row.array(0)?), facts);
    }
    Ok(known)
}

/// Rows and edges of the blobs that a commit brings, and their places in the queue. Rows first: an
/// edge may name a base that comes along.
pub(crate) fn insert(new_blobs: &[NewBlob], now_ms: UnixMs) -> Result<Vec<Statement>> {
    let mut writes = new_blobs.iter().map(|blob| rows::insert_blob(&blob.row)).collect::<Result<Vec<_>>>()?;
    for NewBlob { row, bases, deferred, heat_bytes } in new_blobs {
        for base in bases {
            let sum = checksums::of_edge(&row.id.0, &base.0);
            writes.push(statement!(
                "INSERT INTO edges (delta, base, checksum) VALUES ($1, $2, $3)",
                row.id.0,
                base.0,
                sum
            ));
        }
        if *deferred {
            writes.push(statement!("INSERT INTO deferrals (blob, since_ms) VALUES ($1, $2)", row.id.0, now_ms));
        }
        if *heat_bytes > 0 {
            let grown = signed(*heat_bytes)?;
            writes.push(statement!("INSERT INTO heat (blob, grown_bytes) VALUES ($1, $2)", row.id.0, grown));
        }
    }
    Ok(writes)
}

/// How a blob dies unless something still references it.
pub(crate) const LET_DIE: &str = "UPDATE blobs SET state = 1 WHERE id = $1 AND state = 0 \
    AND NOT EXISTS (SELECT 1 FROM extents e WHERE e.blob = $1) \
    AND NOT EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = $1) \
    AND NOT EXISTS (SELECT 1 FROM edges d WHERE d.base = $1)";

/// The blob that a statement of [`release`] may let die.
#[cfg(feature = "postgres")]
pub(crate) fn dying(statement: &Statement) -> Option<BlobKey> {
    match statement.params.first() {
        Some(super::session::Value::Bytes(id)) if statement.sql == LET_DIE => {
            id.as_slice().try_into().ok().map(BlobKey)
        }
        _ => None,
    }
}

/// Lets a blob die unless something still references it.
pub(crate) fn release(blob: BlobKey, now_ms: UnixMs) -> [Statement; 2] {
    [
        statement!(LET_DIE, blob.0),
        statement!(
            "INSERT INTO tombstones (blob, since_ms) SELECT b.id, CAST($1 AS BIGINT) FROM blobs b \
             WHERE b.id = $2 AND b.state = 1 ON CONFLICT (blob) DO NOTHING",
            now_ms,
            blob.0
        ),
    ]
}

/// [`release`] for each of `blobs` that is not among `kept`, each once.
pub(crate) fn release_all(
    blobs: impl IntoIterator<Item = BlobKey>,
    kept: &BTreeSet<BlobKey>,
    now_ms: UnixMs,
) -> Vec<Statement> {
    let gone: BTreeSet<_> = blobs.into_iter().filter(|blob| !kept.contains(blob)).collect();
    gone.into_iter().flat_map(|blob| release(blob, now_ms)).collect()
}

pub(crate) async fn purge<S: Session>(session: &mut S, blob: BlobKey, now_ms: UnixMs) -> Result<Decision> {
    let answers = session
        .run(vec![
            Statement::locking(
                "SELECT bucket, first_region FROM blobs WHERE id = $1 AND state = 1",
                vec![blob.0.into()],
                Lock::Update,
            ),
            statement!("SELECT delta, base, checksum FROM edges WHERE delta = $1", blob.0),
        ])
        .await?;
    let Some(row) = answers[0].first() else { return Err(CatalogError::Conflict) };
    let bucket = BucketId(row.int(0)?);
    let mut writes = match row.optional_int(1)? {
        Some(first) => hooks::forget(session, blob, first).await?,
        None => Vec::new(),
    };
    writes.extend([
        statement!("DELETE FROM tombstones WHERE blob = $1", blob.0),
        statement!("DELETE FROM deferrals WHERE blob = $1", blob.0),
        statement!("DELETE FROM heat WHERE blob = $1", blob.0),
        statement!("DELETE FROM edges WHERE delta = $1", blob.0),
        statement!("DELETE FROM blobs WHERE id = $1", blob.0),
    ]);
    writes.extend(release_all(rows::bases(&answers[1])?, &BTreeSet::new(), now_ms));
    writes.extend(forget_deleted_bucket(bucket));
    Decision::done(writes)
}

pub(crate) async fn rows_of<S: Session>(session: &mut S, ids: &[BlobKey]) -> Result<Vec<BlobRow>> {
    let ids: BTreeSet<_> = ids.iter().copied().collect();
    let one =
        |id: BlobKey| statement!(concat!("SELECT ", rows::blob_columns!(), " FROM blobs b WHERE b.id = $1"), id.0);
    let answers = session.run(ids.into_iter().map(one).collect()).await?;
    answers.iter().flatten().map(|row| rows::blob(row, 0)).collect()
}

pub(crate) async fn lie_in<S: Session>(session: &mut S, backend: &str) -> Result<bool> {
    let row = session
        .first(statement!(
            "SELECT 1 FROM blobs WHERE backend = $1 AND original IS NULL AND inline_bytes IS NULL LIMIT 1",
            backend
        ))
        .await?;
    Ok(row.is_some())
}

/// Where an exact duplicate may be looked for.
#[derive(Clone, Debug)]
pub(crate) struct DuplicateQuery {
    pub(crate) domain: Domain,
    pub(crate) digest: [u8; 32],
    pub(crate) plain_len: u64,
}

/// Blobs with a content that new versions may reference.
macro_rules! of_content {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            rows::blob_columns!(),
            " FROM blobs b WHERE b.bucket = $1 AND b.digest = $2 AND b.digest IS NOT NULL AND b.state = 0 AND b.damage IS NULL \
             AND b.key_epoch = $3 AND b.backend = $4 AND b.plain_len = $5 AND b.compartment IS NOT DISTINCT FROM $6 ",
            $rest
        )
    };
}

/// Whether there is one, or several.
pub(crate) const ANY_DUPLICATES: &str = of_content!("LIMIT 2");
/// Which one of several. SQLite makes a table to order them in, so it is asked only then.
pub(crate) const BEST_DUPLICATE: &str = of_content!("ORDER BY b.form, b.id LIMIT 1");

pub(crate) async fn duplicate<S: Session>(session: &mut S, query: &DuplicateQuery) -> Result<Option<BlobRow>> {
    let Ok(plain_len) = i64::try_from(query.plain_len) else { return Ok(None) };
    let domain = &query.domain;
    let asking = |sql| {
        statement!(
            sql,
            domain.bucket.0,
            query.digest,
            domain.key_epoch,
            domain.backend.as_str(),
            plain_len,
            domain.compartment.map(|compartment| compartment.0),
        )
    };
    let found = session.query(asking(ANY_DUPLICATES)).await?;
    let row = match found.len() {
        0 | 1 => found.into_iter().next(),
        _ => session.first(asking(BEST_DUPLICATE)).await?,
    };
    row.as_ref().map(|row| rows::blob(row, 0)).transpose()
}

pub(crate) async fn bases_of<S: Session>(session: &mut S, blob: BlobKey) -> Result<Vec<BlobKey>> {
    let sql = "SELECT delta, base, checksum FROM edges WHERE delta = $1 ORDER BY base";
    rows::bases(&session.query(statement!(sql, blob.0)).await?)
}

pub(crate) async fn fan_in<S: Session>(session: &mut S, blob: BlobKey) -> Result<u64> {
    match session.first(statement!("SELECT count(*) FROM edges WHERE base = $1", blob.0)).await? {
        Some(row) => row.unsigned(0),
        None => Ok(0),
    }
}

pub(crate) async fn packs<S: Session>(session: &mut S, after: BlobKey, limit: usize) -> Result<Vec<PackUse>> {
    let rows = session
        .query(statement!(
            "SELECT b.id, b.bucket, b.plain_len, CAST((SELECT COALESCE(sum(r.plain_len), 0) FROM \
             (SELECT plain_offset, plain_len FROM extents WHERE blob = b.id \
             UNION SELECT plain_offset, plain_len FROM part_extents WHERE blob = b.id) r) AS BIGINT) \
             FROM blobs b WHERE b.pack = 1 AND b.state = 0 AND b.id > $1 ORDER BY b.id LIMIT $2",
            after.0,
            limit as i64,
        ))
        .await?;
    let pack = |row: &Row| {
        Ok(PackUse {
            blob: BlobKey(row.array(0)?),
            bucket: BucketId(row.int(1)?),
            plain_len: row.unsigned(2)?,
            live_len: row.unsigned(3)?,
        })
    };
    rows.iter().map(pack).collect()
}

pub(crate) async fn deltas_sum<S: Session>(session: &mut S, blob: BlobKey) -> Result<DeltasSum> {
    let sum = statement!(
        "SELECT count(*), COALESCE(CAST(sum(b.plain_len) AS BIGINT), 0), \
         COALESCE(CAST(sum(b.stored_len * 1000000 / b.plain_len) AS BIGINT), 0), \
         COALESCE(min(b.stored_len * 1000000 / b.plain_len), 0) \
         FROM edges e JOIN blobs b ON b.id = e.delta WHERE e.base = $1 AND b.plain_len > 0",
        blob.0
    );
    let Some(row) = session.first(sum).await? else { return Ok(DeltasSum::default()) };
    Ok(DeltasSum {
        deltas: row.unsigned(0)?,
        plain_bytes: row.unsigned(1)?,
        shares_ppm: row.unsigned(2)?,
        least_share_ppm: row.unsigned(3)?,
    })
}

pub(crate) async fn tombstones<S: Session>(session: &mut S, before_ms: UnixMs, limit: usize) -> Result<Vec<Tombstone>> {
    let rows = session
        .query(statement!(
            concat!(
                "SELECT t.since_ms, CASE WHEN b.state <> 1 OR EXISTS (SELECT 1 FROM extents e WHERE e.blob = b.id) \
                 OR EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = b.id) \
                 OR EXISTS (SELECT 1 FROM edges d WHERE d.base = b.id) THEN 1 ELSE 0 END, ",
                rows::blob_columns!(),
                " FROM tombstones t JOIN blobs b ON b.id = t.blob WHERE t.since_ms < $1 ORDER BY t.since_ms, t.blob LIMIT $2"
            ),
            before_ms,
            limit as i64,
        ))
        .await?;
    let tombstone = |row: &Row| {
        let blob = rows::blob(row, 2)?;
        Ok(Tombstone {
            blob: blob.id,
            backend: blob.backend,
            inline: blob.inline.is_some(),
            stored_len: blob.stored_len,
            since_ms: row.int(0)?,
            original: blob.original,
            copy: blob.copy,
            needed: row.int(1)? != 0,
        })
    };
    rows.iter().map(tombstone).collect()
}

/// Removes what a deleted bucket still has once its last blob is purged; does nothing before.
pub(crate) fn forget_deleted_bucket(bucket: BucketId) -> [Statement; 2] {
    [
        statement!(
            "DELETE FROM keys WHERE bucket = $1 \
             AND EXISTS (SELECT 1 FROM buckets d WHERE d.id = $1 AND d.name IS NULL) \
             AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.bucket = $1)",
            bucket.0
        ),
        statement!(
            "DELETE FROM buckets WHERE id = $1 AND name IS NULL \
             AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.bucket = $1)",
            bucket.0
        ),
    ]
}
