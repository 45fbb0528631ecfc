//! Listings of all versions: by key, and the versions of a key newest first.
//!
//! What is current lies in one index and what is not in another, so a run takes the front of both
//! and merges them. Like a listing of keys ([`super::list`]) it seeks past common prefixes, and the
//! rows read are a small multiple of the entries given.

use super::{
    list::{RUN_FIRST, Rollup, check, directly_after},
    read::after_prefix,
    rows::{self, version_columns},
    session::{Row, Session, Value, statement},
    versions::locate,
};
use crate::{Result, relational::session::Statement, types::*};

/// A run from a key on: bucket, first key, end, limit.
pub(crate) const HISTORY_RUN: &str = concat!(
    "SELECT ",
    version_columns!(),
    " FROM (SELECT * FROM (SELECT * FROM versions WHERE bucket = $1 AND key >= $2 AND key < $3 AND current = 1 \
     ORDER BY key LIMIT $4) c \
     UNION ALL SELECT * FROM (SELECT * FROM versions WHERE bucket = $1 AND key >= $2 AND key < $3 AND current = 0 \
     ORDER BY key, seq DESC LIMIT $4) o) v ORDER BY v.key, v.seq DESC LIMIT $4"
);

/// A run inside a key: bucket, key, the version it goes on after, limit. Whatever comes after
/// another version is not current.
pub(crate) const HISTORY_OF_KEY: &str = concat!(
    "SELECT ",
    version_columns!(),
    " FROM versions v WHERE v.bucket = $1 AND v.key = $2 AND v.current = 0 AND v.seq < $3 ORDER BY v.seq DESC LIMIT $4"
);

/// A run that seeks past common prefixes by itself, one row per entry, as
/// [`VERSIONS_WALK`](super::list::VERSIONS_WALK) does for keys. Each step looks for the next
/// version of the same key, where it is in no common prefix, and for the first one behind it in
/// both indexes. Parameters: bucket, first key, end, delimiter, where the rest of the key begins
/// (from 1), limit, and the key and the version that the walk goes on after (no key and 0 for
/// none). Only for PostgreSQL.
pub(crate) const HISTORY_WALK: &str = concat!(
    "WITH RECURSIVE walk (key, seq, step) AS (
      (SELECT f.key, f.seq, CAST(1 AS BIGINT) FROM (
        (SELECT v.key, v.seq FROM versions v
         WHERE v.bucket = $1 AND v.key = $7 AND v.current = 0 AND v.seq < $8 ORDER BY v.seq DESC LIMIT 1)
        UNION ALL
        (SELECT v.key, v.seq FROM versions v
         WHERE v.bucket = $1 AND v.key >= $2 AND v.key < $3 AND v.current = 1 ORDER BY v.key LIMIT 1)
        UNION ALL
        (SELECT v.key, v.seq FROM versions v
         WHERE v.bucket = $1 AND v.key >= $2 AND v.key < $3 AND v.current = 0 ORDER BY v.key, v.seq DESC LIMIT 1)
       ) f ORDER BY f.key, f.seq DESC LIMIT 1)
      UNION ALL
      SELECT n.key, n.seq, w.step + 1 FROM walk w
      CROSS JOIN LATERAL (SELECT CAST(CAST($5 AS BIGINT) AS INTEGER) AS rest) r
      CROSS JOIN LATERAL (SELECT position(CAST($4 AS BYTEA) IN substring(w.key FROM r.rest)) AS at) f
      CROSS JOIN LATERAL (SELECT CASE f.at
          WHEN 0 THEN w.key || CAST('\\x00' AS BYTEA)
          ELSE substring(w.key FOR r.rest + f.at - 2 + length(CAST($4 AS BYTEA))) || CAST('\\xff' AS BYTEA) END AS key) b
      CROSS JOIN LATERAL (
        SELECT m.key, m.seq FROM (
          (SELECT v.key, v.seq FROM versions v
           WHERE v.bucket = $1 AND f.at = 0 AND v.key = w.key AND v.current = 0 AND v.seq < w.seq
           ORDER BY v.seq DESC LIMIT 1)
          UNION ALL
          (SELECT v.key, v.seq FROM versions v
           WHERE v.bucket = $1 AND v.key >= b.key AND v.key < $3 AND v.current = 1 ORDER BY v.key LIMIT 1)
          UNION ALL
          (SELECT v.key, v.seq FROM versions v
           WHERE v.bucket = $1 AND v.key >= b.key AND v.key < $3 AND v.current = 0 ORDER BY v.key, v.seq DESC LIMIT 1)
        ) m ORDER BY m.key, m.seq DESC LIMIT 1) n
      WHERE w.step < $6
    ) SELECT ",
    version_columns!(),
    " FROM walk w CROSS JOIN LATERAL (SELECT x.* FROM versions x WHERE x.seq = w.seq) v ORDER BY w.step"
);

/// Where a run begins.
#[derive(Clone)]
enum Start {
    /// At the newest version of this key, or of the first one behind it.
    Key(Value),
    /// Behind a version.
    Behind { key: String, seq: Seq },
}

impl Start {
    async fn run<S: Session>(&self, session: &mut S, bucket: BucketId, end: &Value, limit: usize) -> Result<Vec<Row>> {
        let limit = limit as i64;
        session
            .query(match self {
                Start::Key(key) => statement!(HISTORY_RUN, bucket.0, key.clone(), end.clone(), limit),
                Start::Behind { key, seq } => statement!(HISTORY_OF_KEY, bucket.0, rows::key(key), *seq, limit),
            })
            .await
    }
}

/// See [`Catalog::list_versions`](crate::Catalog::list_versions).
pub(crate) async fn versions<S: Session>(session: &mut S, query: &VersionsQuery) -> Result<VersionsPage> {
    check(query.limit, query.delimiter.as_deref())?;
    let rollup = Rollup { prefix: &query.prefix, delimiter: query.delimiter.as_deref() };
    let end = after_prefix(query.prefix.as_bytes());
    let mut start = first(session, query, &rollup).await?;
    if let Some(delimiter) = query.delimiter.as_deref().filter(|_| S::ROUND_TRIPS) {
        return walked(session, query, &rollup, start, (delimiter, end)).await;
    }
    let mut page = VersionsPage::default();
    let mut run = if query.delimiter.is_some() { RUN_FIRST } else { query.limit + 1 };
    loop {
        // One more than fits is looked for, to know whether there is more.
        let wanted = run.min(query.limit + 1 - page.entries.len());
        let found = start.run(session, query.bucket, &end, wanted).await?;
        let exhausted = found.len() < wanted;
        // A run inside a key never leaves it.
        let within = match &start {
            Start::Behind { key, .. } => Some(key.clone()),
            Start::Key(_) => None,
        };
        let mut last_key = within.clone();
        let mut inside = false;
        for row in &found {
            let version = rows::version(row)?;
            let rolled = rollup.common_prefix(&version.key);
            inside = rolled.is_some_and(
                |prefix| matches!(page.entries.last(), Some(VersionEntry::CommonPrefix(last)) if last == prefix),
            );
            if inside {
                continue;
            }
            if page.entries.len() == query.limit {
                page.next = page.entries.last().map(place_of);
                return Ok(page);
            }
            let entry = match rolled {
                Some(prefix) => {
                    start = Start::Key(after_prefix(prefix.as_bytes()));
                    VersionEntry::CommonPrefix(prefix.to_owned())
                }
                None => {
                    start = Start::Behind { key: version.key.clone(), seq: version.seq };
                    // A run meets a key's versions from the newest on.
                    let latest = last_key.as_ref() != Some(&version.key);
                    last_key = Some(version.key.clone());
                    VersionEntry::Version { version, latest }
                }
            };
            page.entries.push(entry);
        }
        match within {
            None if exhausted => return Ok(page),
            Some(key) if exhausted => start = Start::Key(directly_after(&key)),
            _ => {}
        }
        run = if inside { RUN_FIRST } else { run.saturating_mul(2) };
    }
}

/// A page in one statement, where each costs a round trip.
async fn walked<S: Session>(
    session: &mut S,
    query: &VersionsQuery,
    rollup: &Rollup<'_>,
    start: Start,
    (delimiter, end): (&str, Value),
) -> Result<VersionsPage> {
    let (from, within) = match start {
        Start::Key(key) => (key, None),
        Start::Behind { key, seq } => (directly_after(&key), Some((key, seq))),
    };
    let mut last_key = within.as_ref().map(|(key, _)| key.clone());
    let (key, seq) = within.unwrap_or_default();
    let (rest, limit) = (query.prefix.len() as i64 + 1, query.limit as i64 + 1);
    let bucket = query.bucket.0;
    let found = session
        .query(statement!(HISTORY_WALK, bucket, from, end, rows::key(delimiter), rest, limit, rows::key(&key), seq))
        .await?;
    let mut page = VersionsPage::default();
    for row in &found {
        if page.entries.len() == query.limit {
            page.next = page.entries.last().map(place_of);
            break;
        }
        let version = rows::version(row)?;
        page.entries.push(match rollup.common_prefix(&version.key) {
            Some(prefix) => VersionEntry::CommonPrefix(prefix.to_owned()),
            None => {
                let latest = last_key.as_ref() != Some(&version.key);
                last_key = Some(version.key.clone());
                VersionEntry::Version { version, latest }
            }
        });
    }
    Ok(page)
}

/// Where a listing begins.
async fn first<S: Session>(session: &mut S, query: &VersionsQuery, rollup: &Rollup<'_>) -> Result<Start> {
    let after = query.key_after.as_deref();
    let behind_key = Start::Key(rollup.start(after));
    let (Some(key), Some(version)) = (after, query.version_after) else { return Ok(behind_key) };
    if !key.starts_with(rollup.prefix) || rollup.common_prefix(key).is_some() {
        return Ok(behind_key);
    }
    let (place, params) = locate(query.bucket, key, version);
    Ok(match session.first(Statement::made(place.to_owned(), params)).await? {
        Some(row) => Start::Behind { key: key.to_owned(), seq: row.int(0)? },
        // Removed between the pages: to show the others of its key twice is better than not at all.
        None => Start::Key(rows::key(key)),
    })
}

/// What the next page goes on after.
fn place_of(entry: &VersionEntry) -> (String, Option<VersionRef>) {
    match entry {
        VersionEntry::Version { version, .. } => (version.key.clone(), Some(version.reference())),
        VersionEntry::CommonPrefix(prefix) => (prefix.clone(), None),
    }
}
