//! Listings: a walk over an index in byte order that seeks past common prefixes.
//!
//! Rows are read in runs. When a run ends inside a common prefix, the next begins behind it: a
//! prefix costs one seek however many keys it has. Runs start small, double while they bring new
//! entries to their end, and fall back when they do not, so the rows read are a small multiple of
//! the entries given.

use super::{
    read::after_prefix,
    rows::{self, upload_columns, version_columns},
    session::{Row, Session, Value, statement},
};
use crate::{CatalogError, Result, types::*};

/// Most entries of a page.
const LIMIT_MAX: usize = 1000;

/// Rows of a run after one that ended inside a common prefix: what such a run reads behind its
/// first row may be wasted.
pub(super) const RUN_FIRST: usize = 4;

/// A run of current versions: bucket, first key, end, limit.
pub(crate) const VERSIONS_RUN: &str = concat!(
    "SELECT ",
    version_columns!(),
    " FROM versions v WHERE v.bucket = $1 AND v.key >= $2 AND v.key < $3 AND v.current = 1 ORDER BY v.key LIMIT $4"
);

/// A run that seeks past common prefixes by itself, one row per entry, where each statement costs a
/// round trip. Each step finds the delimiter in the key that the last one gave, and goes on behind
/// the common prefix, or behind the key when there is none. Parameters: bucket, first key, end,
/// delimiter, where the rest of the key begins (from 1), limit. Only for PostgreSQL, whose
/// functions on bytes it uses.
pub(crate) const VERSIONS_WALK: &str = concat!(
    "WITH RECURSIVE walk (key, step) AS (
      (SELECT v.key, CAST(1 AS BIGINT) FROM versions v
       WHERE v.bucket = $1 AND v.key >= $2 AND v.key < $3 AND v.current = 1 ORDER BY v.key LIMIT 1)
      UNION ALL
      SELECT n.key, w.step + 1 FROM walk w
      CROSS JOIN LATERAL (SELECT CAST(CAST($5 AS BIGINT) AS INTEGER) AS rest) r
      CROSS JOIN LATERAL (SELECT position(CAST($4 AS BYTEA) IN substring(w.key FROM r.rest)) AS at) f
      CROSS JOIN LATERAL (
        SELECT v.key FROM versions v
        WHERE v.bucket = $1 AND v.key < $3 AND v.current = 1 AND v.key >= CASE f.at
          WHEN 0 THEN w.key || CAST('\\x00' AS BYTEA)
          ELSE substring(w.key FOR r.rest + f.at - 2 + length(CAST($4 AS BYTEA))) || CAST('\\xff' AS BYTEA) END
        ORDER BY v.key LIMIT 1) n
      WHERE w.step < $6
    ) SELECT ",
    version_columns!(),
    " FROM walk w CROSS JOIN LATERAL
      (SELECT x.* FROM versions x WHERE x.bucket = $1 AND x.key = w.key AND x.current = 1 LIMIT 1) v ORDER BY w.step"
);

/// A run of open uploads: bucket, the three columns of [`UploadsStart`], end, limit.
pub(crate) const UPLOADS_RUN: &str = concat!(
    "SELECT ",
    upload_columns!(),
    " FROM uploads WHERE bucket = $1 AND (key, created_ms, id) > ($2, $3, $4) AND key < $5 AND completed_ms IS NULL \
     ORDER BY key, created_ms, id LIMIT $6"
);

/// A run of open uploads that seeks past common prefixes by itself, one row per entry, as
/// [`VERSIONS_WALK`] does for keys. Parameters: bucket, the three columns of [`UploadsStart`], end,
/// delimiter, where the rest of the key begins (from 1), limit. Only for PostgreSQL.
pub(crate) const UPLOADS_WALK: &str = concat!(
    "WITH RECURSIVE walk (key, created_ms, id, step) AS (
      (SELECT u.key, u.created_ms, u.id, CAST(1 AS BIGINT) FROM uploads u
       WHERE u.bucket = $1 AND (u.key, u.created_ms, u.id) > ($2, $3, $4) AND u.key < $5 AND u.completed_ms IS NULL
       ORDER BY u.key, u.created_ms, u.id LIMIT 1)
      UNION ALL
      SELECT n.key, n.created_ms, n.id, w.step + 1 FROM walk w
      CROSS JOIN LATERAL (SELECT CAST(CAST($7 AS BIGINT) AS INTEGER) AS rest) r
      CROSS JOIN LATERAL (SELECT position(CAST($6 AS BYTEA) IN substring(w.key FROM r.rest)) AS at) f
      CROSS JOIN LATERAL (SELECT
          CASE f.at WHEN 0 THEN w.key
            ELSE substring(w.key FOR r.rest + f.at - 2 + length(CAST($6 AS BYTEA))) || CAST('\\xff' AS BYTEA) END AS key,
          CASE f.at WHEN 0 THEN w.created_ms ELSE CAST('-9223372036854775808' AS BIGINT) END AS created_ms,
          CASE f.at WHEN 0 THEN w.id ELSE CAST('' AS BYTEA) END AS id) b
      CROSS JOIN LATERAL (
        SELECT u.key, u.created_ms, u.id FROM uploads u
        WHERE u.bucket = $1 AND (u.key, u.created_ms, u.id) > (b.key, b.created_ms, b.id) AND u.key < $5
          AND u.completed_ms IS NULL
        ORDER BY u.key, u.created_ms, u.id LIMIT 1) n
      WHERE w.step < $8
    ) SELECT ",
    upload_columns!(),
    " FROM (SELECT u.*, w.step FROM walk w CROSS JOIN LATERAL (SELECT x.* FROM uploads x WHERE x.id = w.id) u) s \
     ORDER BY step"
);

/// How keys are rolled up.
pub(super) struct Rollup<'a> {
    pub(super) prefix: &'a str,
    pub(super) delimiter: Option<&'a str>,
}

impl Rollup<'_> {
    /// The common prefix that `key` falls into, delimiter included. `key` starts with the prefix.
    pub(super) fn common_prefix<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter?;
        let found = key.get(self.prefix.len()..)?.find(delimiter)?;
        key.get(..self.prefix.len() + found + delimiter.len())
    }

    /// The bytes where a listing goes on after `after`: behind its common prefix when it is in one,
    /// else directly behind it.
    pub(super) fn start(&self, after: Option<&str>) -> Value {
        match after {
            Some(after) if after >= self.prefix => {
                let rolled = if after.starts_with(self.prefix) { self.common_prefix(after) } else { None };
                rolled.map_or_else(|| directly_after(after), |prefix| after_prefix(prefix.as_bytes()))
            }
            _ => rows::key(self.prefix),
        }
    }
}

/// The smallest bytes above `key`.
pub(super) fn directly_after(key: &str) -> Value {
    let mut bytes = key.as_bytes().to_vec();
    bytes.push(0);
    Value::Bytes(bytes)
}

pub(super) fn check(limit: usize, delimiter: Option<&str>) -> Result<()> {
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(CatalogError::Invalid(format!("a page of {limit} entries")));
    }
    if delimiter == Some("") {
        return Err(CatalogError::Invalid("an empty delimiter".into()));
    }
    Ok(())
}

pub(crate) async fn versions<S: Session>(session: &mut S, query: &ListQuery) -> Result<ListPage> {
    check(query.limit, query.delimiter.as_deref())?;
    let rollup = Rollup { prefix: &query.prefix, delimiter: query.delimiter.as_deref() };
    let end = after_prefix(query.prefix.as_bytes());
    let mut start = rollup.start(query.after.as_deref());
    let mut page = ListPage::default();
    let walk = query.delimiter.as_deref().filter(|_| S::ROUND_TRIPS);
    let mut run = if query.delimiter.is_some() && walk.is_none() { RUN_FIRST } else { query.limit + 1 };
    loop {
        // One more than fits is looked for, to know whether there is more.
        let wanted = run.min(query.limit + 1 - page.entries.len());
        let (bucket, start_of_run, end, limit) = (query.bucket.0, start.clone(), end.clone(), wanted as i64);
        let found = session
            .query(match walk {
                None => statement!(VERSIONS_RUN, bucket, start_of_run, end, limit),
                Some(delimiter) => {
                    let rest = query.prefix.len() as i64 + 1;
                    statement!(VERSIONS_WALK, bucket, start_of_run, end, rows::key(delimiter), rest, limit)
                }
            })
            .await?;
        let exhausted = found.len() < wanted;
        let mut inside = false;
        for row in &found {
            let version = rows::version(row)?;
            let rolled = rollup.common_prefix(&version.key);
            inside = rolled.is_some_and(
                |prefix| matches!(page.entries.last(), Some(ListEntry::CommonPrefix(last)) if last == prefix),
            );
            if inside {
                continue;
            }
            if page.entries.len() == query.limit {
                page.next = page.entries.last().map(|entry| match entry {
                    ListEntry::Key(version) => version.key.clone(),
                    ListEntry::CommonPrefix(prefix) => prefix.clone(),
                });
                return Ok(page);
            }
            let (next, entry) = match rolled {
                Some(prefix) => (after_prefix(prefix.as_bytes()), ListEntry::CommonPrefix(prefix.to_owned())),
                None => (directly_after(&version.key), ListEntry::Key(version)),
            };
            start = next;
            page.entries.push(entry);
        }
        if exhausted {
            return Ok(page);
        }
        run = if inside { RUN_FIRST } else { run.saturating_mul(2) };
    }
}

/// A page of uploads as it fills.
struct Filling<'q> {
    query: &'q UploadsQuery,
    rollup: Rollup<'q>,
    page: UploadsPage,
    last: Option<(String, Option<UploadId>)>,
}

impl Filling<'_> {
    fn taken(&self) -> usize {
        self.page.uploads.len() + self.page.common_prefixes.len()
    }

    /// The last entry's common prefix holds this key.
    fn holds(&self, key: &str) -> bool {
        let rolled = self.rollup.common_prefix(key);
        rolled.is_some_and(|prefix| self.page.common_prefixes.last().is_some_and(|last| last == prefix))
    }

    /// Adds an upload, or its common prefix, and says what comes behind it; `None` when the page
    /// was full.
    fn add(&mut self, upload: Upload) -> Option<UploadsStart> {
        if self.taken() == self.query.limit {
            self.page.truncated = true;
            self.page.next = self.last.take();
            return None;
        }
        let Some(prefix) = self.rollup.common_prefix(&upload.key) else {
            let behind = UploadsStart::behind(&upload);
            self.last = Some((upload.key.clone(), Some(upload.id)));
            self.page.uploads.push(upload);
            return Some(behind);
        };
        self.last = Some((prefix.to_owned(), None));
        self.page.common_prefixes.push(prefix.to_owned());
        Some(UploadsStart::at_key(after_prefix(prefix.as_bytes())))
    }
}

pub(crate) async fn uploads<S: Session>(session: &mut S, query: &UploadsQuery) -> Result<UploadsPage> {
    check(query.limit, query.delimiter.as_deref())?;
    let rollup = Rollup { prefix: &query.prefix, delimiter: query.delimiter.as_deref() };
    let end = after_prefix(query.prefix.as_bytes());
    let mut start = start_of_uploads(session, query, &rollup).await?;
    let mut filling = Filling { query, rollup, page: UploadsPage::default(), last: None };
    if let Some(delimiter) = query.delimiter.as_deref().filter(|_| S::ROUND_TRIPS) {
        return uploads_walked(session, filling, start, (delimiter, end)).await;
    }
    let mut run = if query.delimiter.is_some() { RUN_FIRST } else { query.limit + 1 };
    loop {
        let wanted = run.min(query.limit + 1 - filling.taken());
        let found = uploads_from(session, query.bucket, start.clone(), end.clone(), wanted).await?;
        let exhausted = found.len() < wanted;
        let mut inside = false;
        for row in &found {
            let upload = rows::upload(row)?;
            inside = filling.holds(&upload.key);
            if inside {
                continue;
            }
            match filling.add(upload) {
                Some(behind) => start = behind,
                None => return Ok(filling.page),
            }
        }
        if exhausted {
            return Ok(filling.page);
        }
        run = if inside { RUN_FIRST } else { run.saturating_mul(2) };
    }
}

/// A page in one statement, where each costs a round trip.
async fn uploads_walked<S: Session>(
    session: &mut S,
    mut filling: Filling<'_>,
    start: UploadsStart,
    (delimiter, end): (&str, Value),
) -> Result<UploadsPage> {
    let (bucket, delimiter) = (filling.query.bucket.0, rows::key(delimiter));
    let (rest, limit) = (filling.query.prefix.len() as i64 + 1, filling.query.limit as i64 + 1);
    let UploadsStart { key, created_ms, id } = start;
    let walk = statement!(UPLOADS_WALK, bucket, key, created_ms, id, end, delimiter, rest, limit);
    for row in &session.query(walk).await? {
        if filling.add(rows::upload(row)?).is_none() {
            break;
        }
    }
    Ok(filling.page)
}

/// Where a run of uploads begins: behind this place in the order by key, creation, id.
#[derive(Clone)]
struct UploadsStart {
    key: Value,
    created_ms: UnixMs,
    id: Value,
}

impl UploadsStart {
    fn behind(upload: &Upload) -> Self {
        let id = Value::Bytes(upload.id.0.to_vec());
        UploadsStart { key: rows::key(&upload.key), created_ms: upload.created_ms, id }
    }

    /// Before every upload whose key is `key` or greater.
    fn at_key(key: Value) -> Self {
        UploadsStart { key, created_ms: UnixMs::MIN, id: Value::Bytes(Vec::new()) }
    }
}

async fn start_of_uploads<S: Session>(
    session: &mut S,
    query: &UploadsQuery,
    rollup: &Rollup<'_>,
) -> Result<UploadsStart> {
    let (Some(key), Some(id)) = (&query.key_after, query.upload_after) else {
        return Ok(UploadsStart::at_key(rollup.start(query.key_after.as_deref())));
    };
    if *key < query.prefix || rollup.start(Some(key)) != directly_after(key) {
        return Ok(UploadsStart::at_key(rollup.start(Some(key))));
    }
    let marker = session
        .first(statement!(
            "SELECT created_ms FROM uploads WHERE id = $1 AND bucket = $2 AND key = $3",
            id.0,
            query.bucket.0,
            rows::key(key)
        ))
        .await?;
    Ok(match marker {
        Some(row) => UploadsStart { key: rows::key(key), created_ms: row.int(0)?, id: Value::Bytes(id.0.to_vec()) },
        // The upload ended between the pages: to show the others of its key twice is better than
        // not at all.
        None => UploadsStart::at_key(rows::key(key)),
    })
}

async fn uploads_from<S: Session>(
    session: &mut S,
    bucket: BucketId,
    start: UploadsStart,
    end: Value,
    limit: usize,
) -> Result<Vec<Row>> {
    session.query(statement!(UPLOADS_RUN, bucket.0, start.key, start.created_ms, start.id, end, limit as i64,)).await
}
