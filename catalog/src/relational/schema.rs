//! The one schema of both databases, as versioned migrations.
//!
//! `{int}`, `{bytes}` and `{table}` stand for what the databases name differently. Keys are bytes, so that every index orders them
//! byte by byte whatever collation the database has. Migrations are never edited after a release, only followed by others.

use crate::{CatalogError, Result};

/// How a database names things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    pub(crate) int: &'static str,
    pub(crate) bytes: &'static str,
    /// What stands after a table's closing parenthesis.
    pub(crate) table: &'static str,
}

/// The schema version this program writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The migrations a database of version `found` needs, in order, each with the version it leads to.
///
/// # Errors
/// [`CatalogError::NewerSchema`] when the database was written by a newer program.
pub(crate) fn missing(found: i64, dialect: Dialect) -> Result<Vec<(i64, String)>> {
    let done = usize::try_from(found).map_err(|_| CatalogError::Other(format!("schema version {found}")))?;
    if found > VERSION {
        return Err(CatalogError::NewerSchema { found, known: VERSION });
    }
    let render = |sql: &str| {
        sql.replace("{int}", dialect.int).replace("{bytes}", dialect.bytes).replace("{table}", dialect.table)
    };
    Ok(MIGRATIONS.iter().enumerate().skip(done).map(|(index, sql)| (index as i64 + 1, render(sql))).collect())
}

const MIGRATIONS: &[&str] = &[FIRST];

const FIRST: &str = "
-- Last values given out: seq (mutations), bucket (ids), epoch (writers). They live in rows and not in sequences because a
-- transaction that is rolled back must give its numbers back.
CREATE TABLE counters (name TEXT PRIMARY KEY, value {int} NOT NULL){table};
INSERT INTO counters (name, value) VALUES ('seq', 0), ('bucket', 0), ('epoch', 0);

CREATE TABLE writers (
  epoch {int} PRIMARY KEY,
  seen_ms {int} NOT NULL,
  closed {int} NOT NULL CHECK (closed IN (0, 1))
){table};

CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL){table};

-- The name is null when the bucket is deleted and blobs of it wait for their purge.
CREATE TABLE buckets (
  id {int} PRIMARY KEY,
  name TEXT UNIQUE,
  owner TEXT NOT NULL,
  created_ms {int} NOT NULL,
  settings TEXT NOT NULL
){table};

CREATE TABLE keys (
  id {bytes} PRIMARY KEY,
  bucket {int} NOT NULL REFERENCES buckets (id),
  epoch {int} NOT NULL,
  kek {bytes} NOT NULL,
  wrapped {bytes} NOT NULL,
  UNIQUE (bucket, epoch)
){table};

CREATE TABLE blobs (
  id {bytes} PRIMARY KEY,
  bucket {int} NOT NULL REFERENCES buckets (id),
  key_epoch {int} NOT NULL,
  backend TEXT NOT NULL,
  form {int} NOT NULL CHECK (form IN (0, 1)),
  state {int} NOT NULL CHECK (state IN (0, 1)),
  plain_len {int} NOT NULL CHECK (plain_len >= 0),
  stored_len {int} NOT NULL CHECK (stored_len >= 0),
  root_offset {int} NOT NULL,
  root_len {int} NOT NULL,
  root_tag {bytes} NOT NULL,
  digest {bytes},
  raw_plain {int} NOT NULL,
  zstd_plain {int} NOT NULL,
  zstd_stored {int} NOT NULL,
  delta_plain {int} NOT NULL,
  delta_stored {int} NOT NULL,
  inline_bytes {bytes}
){table};
CREATE INDEX blobs_by_bucket ON blobs (bucket);
CREATE INDEX blobs_by_digest ON blobs (bucket, digest) WHERE digest IS NOT NULL AND state = 0;

CREATE TABLE edges (
  delta {bytes} NOT NULL REFERENCES blobs (id),
  base {bytes} NOT NULL REFERENCES blobs (id),
  PRIMARY KEY (delta, base)
){table};
CREATE INDEX edges_by_base ON edges (base);

-- seq is the version's place in the order of mutations and thereby among the versions of its key. The bucket is no foreign
-- key because deleting a bucket would then read every version; commits check it, and so does the recount.
CREATE TABLE versions (
  seq {int} PRIMARY KEY,
  bucket {int} NOT NULL,
  key {bytes} NOT NULL,
  id {bytes} NOT NULL UNIQUE,
  current {int} NOT NULL CHECK (current IN (0, 1)),
  modified_ms {int} NOT NULL,
  size {int} NOT NULL CHECK (size >= 0),
  facts {bytes} NOT NULL,
  extents_digest {bytes} NOT NULL
){table};
CREATE UNIQUE INDEX versions_current ON versions (bucket, key) WHERE current = 1;

CREATE TABLE extents (
  version {int} NOT NULL REFERENCES versions (seq),
  ordinal {int} NOT NULL,
  blob {bytes} NOT NULL REFERENCES blobs (id),
  plain_offset {int} NOT NULL CHECK (plain_offset >= 0),
  plain_len {int} NOT NULL CHECK (plain_len > 0),
  PRIMARY KEY (version, ordinal)
){table};
CREATE INDEX extents_by_blob ON extents (blob);

-- completed_ms is null while the upload is open.
CREATE TABLE uploads (
  id {bytes} PRIMARY KEY,
  bucket {int} NOT NULL REFERENCES buckets (id),
  key {bytes} NOT NULL,
  created_ms {int} NOT NULL,
  owner TEXT NOT NULL,
  facts {bytes} NOT NULL,
  version {bytes},
  parts_digest {bytes},
  completed_ms {int}
){table};
CREATE INDEX uploads_by_bucket ON uploads (bucket);
CREATE INDEX uploads_open ON uploads (bucket, key, created_ms, id) WHERE completed_ms IS NULL;
CREATE INDEX uploads_open_by_age ON uploads (created_ms) WHERE completed_ms IS NULL;
CREATE INDEX uploads_completed ON uploads (completed_ms) WHERE completed_ms IS NOT NULL;

CREATE TABLE parts (
  upload {bytes} NOT NULL REFERENCES uploads (id),
  number {int} NOT NULL CHECK (number BETWEEN 1 AND 10000),
  id {bytes} NOT NULL,
  size {int} NOT NULL CHECK (size >= 0),
  modified_ms {int} NOT NULL,
  facts {bytes} NOT NULL,
  PRIMARY KEY (upload, number)
){table};

CREATE TABLE part_extents (
  upload {bytes} NOT NULL,
  number {int} NOT NULL,
  ordinal {int} NOT NULL,
  blob {bytes} NOT NULL REFERENCES blobs (id),
  plain_offset {int} NOT NULL CHECK (plain_offset >= 0),
  plain_len {int} NOT NULL CHECK (plain_len > 0),
  PRIMARY KEY (upload, number, ordinal),
  FOREIGN KEY (upload, number) REFERENCES parts (upload, number)
){table};
CREATE INDEX part_extents_by_blob ON part_extents (blob);

CREATE TABLE tombstones (
  blob {bytes} PRIMARY KEY REFERENCES blobs (id),
  since_ms {int} NOT NULL
){table};
CREATE INDEX tombstones_by_age ON tombstones (since_ms);

CREATE TABLE journal (
  seq {int} PRIMARY KEY,
  at_ms {int} NOT NULL,
  mutation TEXT NOT NULL
){table};
";
