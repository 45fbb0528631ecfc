//! Reads of single versions, their neighbours, and the journal.

use super::{
    rows::{self, VERSION_SEQ, VERSION_WIDTH, blob_columns, version_columns},
    session::{Row, Session, Statement, Value, signed, statement},
    versions,
};
use crate::{Result, types::*};
use std::collections::HashSet;

pub(crate) async fn current<S: Session>(session: &mut S, bucket: BucketId, key: &str) -> Result<Option<Version>> {
    let row = session
        .first(statement!(
            concat!(
                "SELECT ",
                version_columns!(),
                " FROM versions v WHERE v.bucket = $1 AND v.key = $2 AND v.current = 1"
            ),
            bucket.0,
            rows::key(key),
        ))
        .await?;
    row.as_ref().map(rows::version).transpose()
}

/// A version with its extents and blobs: a row for each extent, the facts only in the first. They
/// are half a megabyte in an object of ten thousand parts.
macro_rules! with_extents {
    ($condition:literal) => {
        concat!(
            "SELECT v.bucket, v.key, v.id, v.seq, v.modified_ms, v.size, CASE WHEN e.ordinal > 0 THEN NULL ELSE v.facts END, \
             v.extents_digest, v.named, v.marker, v.lock, v.retain_until_ms, v.checksum, e.blob, e.plain_offset, e.plain_len, ",
            blob_columns!(),
            " FROM versions v LEFT JOIN extents e ON e.version = v.seq LEFT JOIN blobs b ON b.id = e.blob WHERE ",
            $condition,
            " ORDER BY v.seq, e.ordinal"
        )
    };
}

/// The statement of [`content`].
pub(crate) const CURRENT_CONTENT: &str = with_extents!("v.bucket = $1 AND v.key = $2 AND v.current = 1");

pub(crate) async fn content<S: Session>(session: &mut S, bucket: BucketId, key: &str) -> Result<Option<Content>> {
    one_content(session, statement!(CURRENT_CONTENT, bucket.0, rows::key(key))).await
}

pub(crate) async fn version<S: Session>(
    session: &mut S,
    bucket: BucketId,
    key: &str,
    id: VersionId,
) -> Result<Option<Content>> {
    let statement =
        statement!(with_extents!("v.id = $1 AND v.bucket = $2 AND v.key = $3"), id.0, bucket.0, rows::key(key));
    one_content(session, statement).await
}

pub(crate) async fn named_version<S: Session>(
    session: &mut S,
    bucket: BucketId,
    key: &str,
    version: VersionRef,
) -> Result<Option<Content>> {
    let (place, params) = versions::locate(bucket, key, version);
    one_content(session, Statement::made(with_extents!("v.seq IN (?)").replace('?', place), params)).await
}

pub(crate) async fn newest_marker<S: Session>(session: &mut S, bucket: BucketId, key: &str) -> Result<Option<Version>> {
    let row = session
        .first(statement!(
            concat!(
                "SELECT ",
                version_columns!(),
                " FROM versions v WHERE v.bucket = $1 AND v.key = $2 AND v.current = 0 AND NOT EXISTS \
                 (SELECT 1 FROM versions c WHERE c.bucket = $1 AND c.key = $2 AND c.current = 1) \
                 ORDER BY v.seq DESC LIMIT 1"
            ),
            bucket.0,
            rows::key(key),
        ))
        .await?;
    row.as_ref().map(rows::version).transpose()
}

/// One statement and so one snapshot: version, extents and blobs cannot be of different times.
async fn one_content<S: Session>(session: &mut S, statement: Statement) -> Result<Option<Content>> {
    Ok(contents(&session.query(statement).await?)?.into_iter().next())
}

/// The versions in the answer of a statement of [`with_extents`].
fn contents(rows: &[Row]) -> Result<Vec<Content>> {
    let mut contents: Vec<Content> = Vec::new();
    let mut named: HashSet<BlobKey> = HashSet::new();
    for row in rows {
        let seq = row.int(VERSION_SEQ)?;
        if contents.last().is_none_or(|content| content.version.seq != seq) {
            named.clear();
            contents.push(Content { version: rows::version(row)?, extents: Vec::new(), blobs: Vec::new() });
        }
        let Some(content) = contents.last_mut().filter(|_| !row.is_null(VERSION_WIDTH)) else { continue };
        let extent = rows::extent(row, VERSION_WIDTH)?;
        content.extents.push(extent);
        if named.insert(extent.blob) {
            content.blobs.push(rows::blob(row, VERSION_WIDTH + 3)?);
        }
    }
    Ok(contents)
}

pub(crate) async fn small_contents<S: Session>(
    session: &mut S,
    after: Seq,
    size_max: u64,
    limit: usize,
) -> Result<Vec<Content>> {
    let statement = statement!(
        with_extents!(
            "v.seq IN (SELECT s.seq FROM versions s WHERE s.seq > $1 AND s.size BETWEEN 1 AND $2 \
             ORDER BY s.seq LIMIT $3)"
        ),
        after,
        signed(size_max)?,
        limit as i64,
    );
    contents(&session.query(statement).await?)
}

pub(crate) async fn neighbours<S: Session>(
    session: &mut S,
    bucket: BucketId,
    prefix: &str,
    key: &str,
    limit: usize,
) -> Result<(Vec<String>, Vec<String>)> {
    let answers = session
        .run(vec![
            statement!(
                "SELECT v.key FROM versions v WHERE v.bucket = $1 AND v.key >= $2 AND v.key < $3 AND v.key < $4 AND v.current = 1 \
                 ORDER BY v.key DESC LIMIT $5",
                bucket.0,
                rows::key(prefix),
                rows::key(key),
                after_prefix(prefix.as_bytes()),
                limit as i64,
            ),
            statement!(
                "SELECT v.key FROM versions v WHERE v.bucket = $1 AND v.key > $2 AND v.key >= $3 AND v.key < $4 AND v.current = 1 \
                 ORDER BY v.key LIMIT $5",
                bucket.0,
                rows::key(key),
                rows::key(prefix),
                after_prefix(prefix.as_bytes()),
                limit as i64,
            ),
        ])
        .await?;
    let names = |rows: &[Row]| rows.iter().map(|row| row.key(0)).collect::<Result<Vec<_>>>();
    Ok((names(&answers[0])?, names(&answers[1])?))
}

/// The smallest bytes above every key that starts with `prefix`. Keys are UTF-8, and 0xFF is in no
/// UTF-8 text.
pub(crate) fn after_prefix(prefix: &[u8]) -> Value {
    let mut bytes = prefix.to_vec();
    bytes.push(0xff);
    Value::Bytes(bytes)
}

pub(crate) async fn journal<S: Session>(session: &mut S, after: Seq, limit: usize) -> Result<Vec<JournalEntry>> {
    let rows = session
        .query(statement!(
            "SELECT seq, at_ms, mutation, checksum FROM journal WHERE seq > $1 ORDER BY seq LIMIT $2",
            after,
            limit as i64
        ))
        .await?;
    rows.iter().map(rows::entry).collect()
}

pub(crate) async fn last_seq<S: Session>(session: &mut S) -> Result<Seq> {
    let row = session.first(statement!("SELECT value FROM counters WHERE name = 'mutations'")).await?;
    row.map_or(Ok(0), |row| row.int(0))
}

pub(crate) async fn probe<S: Session>(session: &mut S) -> Result<()> {
    last_seq(session).await.map(|_| ())
}
