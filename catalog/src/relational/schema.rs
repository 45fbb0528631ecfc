//! The one schema of both databases, as versioned migrations.
//!
//! `{int}`, `{bytes}`, `{table}` and `{index_table}` stand for what the databases name differently.
//! Keys are bytes, so that every index orders them byte by byte whatever collation the database
//! has. Migrations are never edited after a release, only followed by others.

use crate::{CatalogError, Result};

/// How a database names things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    pub(crate) int: &'static str,
    pub(crate) bytes: &'static str,
    /// What stands after a table's closing parenthesis.
    pub(crate) table: &'static str,
    /// The same for a table that is its primary key and nothing else: it need not be stored twice.
    pub(crate) index_table: &'static str,
}

/// A database older than this needs [`super::checksum_walk::fill`] once it is up to date.
pub(crate) const CHECKSUMS_VERSION: i64 = 15;

/// A shared database older than this needs the rows of [`super::stripes::fill`].
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the embedded catalog has no use for stripes"))]
pub(crate) const STRIPES_VERSION: i64 = 22;

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
        sql.replace("{int}", dialect.int)
            .replace("{bytes}", dialect.bytes)
            .replace("{table}", dialect.table)
            .replace("{index_table}", dialect.index_table)
    };
    Ok(MIGRATIONS.iter().enumerate().skip(done).map(|(index, sql)| (index as i64 + 1, render(sql))).collect())
}

const MIGRATIONS: &[&str] = &[
    FIRST,
    ADOPTING,
    DEFERRALS,
    HOOKS,
    VERIFICATION,
    JOBS,
    PACKS,
    COPIES,
    SCATTERED,
    GROUPS,
    HEAT,
    VERSIONING,
    TRASH,
    LOCKS,
    CHECKSUMS,
    NOTICES,
    COMPARTMENTS,
    ACCOUNTS,
    USAGE,
    BOUND_WRAPS,
    JOURNAL_HEAD,
    STRIPES,
];

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

const ADOPTING: &str = "
-- Where content that is no blob of ours lies (key, ETag, whether it is ours to remove), as JSON.
ALTER TABLE blobs ADD COLUMN original TEXT;

-- Keys that clients deleted in buckets that read through to a store which may still have them.
CREATE TABLE hidden_keys (
  bucket {int} NOT NULL REFERENCES buckets (id),
  key {bytes} NOT NULL,
  PRIMARY KEY (bucket, key)
){table};
";

/// Blobs that were stored in a hurry and wait to be encoded better.
const DEFERRALS: &str = "
CREATE TABLE deferrals (
  blob {bytes} PRIMARY KEY REFERENCES blobs (id),
  since_ms {int} NOT NULL
){table};
CREATE INDEX deferrals_by_age ON deferrals (since_ms, blob);
";

/// What whole blobs resemble (docs/reference/catalog.md, "Hooks"). Every sketched region of a blob
/// has a number, consecutive within the blob and never used again; a posting is a hook and a
/// region's number, nothing else, because there are two dozen per region. Neither table has foreign
/// keys: a parent's deletion would look for children by a column without an index.
const HOOKS: &str = "
ALTER TABLE blobs ADD COLUMN first_region {int};
CREATE TABLE sketched_regions (
  number {int} PRIMARY KEY,
  blob {bytes} NOT NULL,
  region {int} NOT NULL CHECK (region >= 0),
  hooks {bytes} NOT NULL
){table};
CREATE TABLE hooks (
  hook {int} NOT NULL,
  number {int} NOT NULL,
  PRIMARY KEY (hook, number)
){index_table};
INSERT INTO counters (name, value) VALUES ('region', 0);
";

/// When a blob was last found well, and what is wrong with one that was not: such a blob is in
/// quarantine.
const VERIFICATION: &str = "
ALTER TABLE blobs ADD COLUMN verified_ms {int} NOT NULL DEFAULT 0;
ALTER TABLE blobs ADD COLUMN quarantined_ms {int};
ALTER TABLE blobs ADD COLUMN damage TEXT;
CREATE INDEX blobs_quarantined ON blobs (id) WHERE damage IS NOT NULL;
";

/// Leases of background jobs.
const JOBS: &str = "
-- holder is null while nobody runs the job; fence counts takings; paused and cancelled are wishes of operators.
CREATE TABLE jobs (
  name TEXT PRIMARY KEY,
  holder {int} REFERENCES writers (epoch),
  fence {int} NOT NULL,
  expires_ms {int},
  started_ms {int},
  ended_ms {int},
  paused {int} NOT NULL CHECK (paused IN (0, 1)),
  cancelled {int} NOT NULL CHECK (cancelled IN (0, 1)),
  state TEXT NOT NULL
){table};
";

/// Blobs that hold the contents of many small objects.
const PACKS: &str = "
ALTER TABLE blobs ADD COLUMN pack {int} NOT NULL DEFAULT 0 CHECK (pack IN (0, 1));
CREATE INDEX blobs_packs ON blobs (id) WHERE pack = 1 AND state = 0;
";

/// Second copies of blobs that many deltas need.
const COPIES: &str = "
ALTER TABLE blobs ADD COLUMN copy_id {bytes};
";

/// Versions of [`SCATTERED_EXTENTS_MIN`](crate::SCATTERED_EXTENTS_MIN) extents and more: those that
/// have an extent of this ordinal.
const SCATTERED: &str = "
CREATE INDEX extents_scattered ON extents (version) WHERE ordinal = 31;
";

/// What each process that writes to a shared catalog last committed. It is how a process finds out
/// whether a commit that was not answered was carried out. Transaction ids cannot say: a database
/// that crashes gives out again those that its log does not have.
const GROUPS: &str = "
CREATE TABLE commit_groups (
  writer {bytes} PRIMARY KEY,
  number {int} NOT NULL,
  at_ms {int} NOT NULL
){table};
";

/// Whole blobs that stand in the place of deltas which were read often, and what that costs.
const HEAT: &str = "
CREATE TABLE heat (
  blob {bytes} PRIMARY KEY REFERENCES blobs (id),
  grown_bytes {int} NOT NULL CHECK (grown_bytes > 0)
){table};
";

/// Buckets that keep versions. Every version of before is the null version of its key. The indexes
/// hold what is not current, so a bucket that keeps no versions pays for neither; both begin where
/// `versions_current` ends.
const VERSIONING: &str = "
-- 0: never kept versions, 1: keeps them, 2: suspended.
ALTER TABLE buckets ADD COLUMN versioning {int} NOT NULL DEFAULT 0 CHECK (versioning IN (0, 1, 2));
ALTER TABLE versions ADD COLUMN named {int} NOT NULL DEFAULT 0 CHECK (named IN (0, 1));
ALTER TABLE versions ADD COLUMN marker {int} NOT NULL DEFAULT 0 CHECK (marker IN (0, 1));
CREATE INDEX versions_noncurrent ON versions (bucket, key, seq DESC) WHERE current = 0;
CREATE UNIQUE INDEX versions_null ON versions (bucket, key) WHERE current = 0 AND named = 0;
";

/// Which closed epochs were looked through for files that no row knows, and the files that were
/// found: they are removed later.
const TRASH: &str = "
ALTER TABLE writers ADD COLUMN swept {int} NOT NULL DEFAULT 0 CHECK (swept IN (0, 1));
CREATE TABLE trash (
  backend TEXT NOT NULL,
  name TEXT NOT NULL,
  stored_len {int} NOT NULL CHECK (stored_len >= 0),
  since_ms {int} NOT NULL,
  PRIMARY KEY (backend, name)
){table};
CREATE INDEX trash_by_age ON trash (since_ms);
";

/// Buckets whose versions can be locked, and the locks: 1 governance, 2 compliance, and 4 more for
/// a legal hold, or 8 for one that was ended.
const LOCKS: &str = "
ALTER TABLE buckets ADD COLUMN object_lock {int} NOT NULL DEFAULT 0 CHECK (object_lock IN (0, 1));
ALTER TABLE versions ADD COLUMN lock {int} NOT NULL DEFAULT 0 CHECK (lock IN (0, 1, 2, 4, 5, 6, 8, 9, 10));
ALTER TABLE versions ADD COLUMN retain_until_ms {int};
";

/// Checksums of the rows that decide which bytes are read or removed ([`super::checksums`]).
const CHECKSUMS: &str = "
ALTER TABLE blobs ADD COLUMN checksum {int};
ALTER TABLE versions ADD COLUMN checksum {int};
ALTER TABLE edges ADD COLUMN checksum {int};
ALTER TABLE parts ADD COLUMN checksum {int};
ALTER TABLE journal ADD COLUMN checksum {int};
";

/// What others are told of changes, until somebody has told them. Notices have no foreign key: they
/// outlive the bucket they tell of.
const NOTICES: &str = "
CREATE TABLE notices (
  lane TEXT NOT NULL,
  seq {int} NOT NULL,
  ordinal {int} NOT NULL,
  key {bytes} NOT NULL,
  version {bytes},
  at_ms {int} NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (lane, seq, ordinal)
){table};
-- waiting counts the rows of notices; lost those that were given up, or not left because too many waited.
CREATE TABLE notice_lanes (
  lane TEXT PRIMARY KEY,
  waiting {int} NOT NULL CHECK (waiting >= 0),
  lost {int} NOT NULL CHECK (lost >= 0)
){table};
";

/// Parts of a bucket whose content is kept apart. What was there before belongs to none.
const COMPARTMENTS: &str = "
ALTER TABLE blobs ADD COLUMN compartment {bytes};
";

/// Users, groups, policies and access keys: what a row says is sealed. The primary key makes an
/// access key one user's in the whole deployment. The counter holds the number of the mutation that
/// changed any of them last.
const ACCOUNTS: &str = "
-- kind: 1 user, 2 group, 3 policy, 4 access key.
CREATE TABLE accounts (
  kind {int} NOT NULL CHECK (kind BETWEEN 1 AND 4),
  name TEXT NOT NULL,
  sealed {bytes} NOT NULL,
  PRIMARY KEY (kind, name)
){table};
INSERT INTO counters (name, value) VALUES ('accounts', 0);
";

/// What each bucket holds, and the first count of it: as [`super::quotas::RECOUNT`] has it.
const USAGE: &str = "
CREATE TABLE usage (bucket {int} PRIMARY KEY, bytes {int} NOT NULL, objects {int} NOT NULL){table};
INSERT INTO usage (bucket, bytes, objects)
SELECT t.bucket, CAST(sum(t.bytes) AS BIGINT), CAST(sum(t.objects) AS BIGINT) FROM
(SELECT v.bucket, v.size AS bytes, 1 AS objects FROM versions v WHERE v.marker = 0
UNION ALL SELECT u.bucket, p.size, 0 FROM parts p JOIN uploads u ON u.id = p.upload) t GROUP BY t.bucket;
";

/// Wraps of keys that open for their bucket only, and journal rows of rotations. No table changes,
/// but an earlier program can read neither, so it is to refuse the catalog.
const BOUND_WRAPS: &str = "
-- Nothing to change.
";

/// The journal's newest document: what the next one carries of it. It counts while `seq` is where
/// the journal has been shipped to; an earlier program ships on and does not change it.
const JOURNAL_HEAD: &str = "
CREATE TABLE journal_head (
  one {int} PRIMARY KEY CHECK (one = 1),
  seq {int} NOT NULL,
  link {bytes} NOT NULL
){table};
";

/// What tells that nothing under a key has changed since it was read ([`super::stripes`]). An
/// earlier program would not count its mutations there, so the number that each of them takes is
/// where it does not find it.
const STRIPES: &str = "
CREATE TABLE stripes (stripe {int} PRIMARY KEY, changes {int} NOT NULL){table};
-- The number of the group's last mutation.
ALTER TABLE commit_groups ADD COLUMN seq {int};
UPDATE counters SET name = 'mutations' WHERE name = 'seq';
";
