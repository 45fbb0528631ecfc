//! Sums per bucket, by recounting. Cost: one pass over versions, two over blobs, and one over the
//! index of references.

use super::session::{Row, Session, statement};
use crate::{Result, types::*};
use std::collections::BTreeMap;

pub(crate) async fn stats<S: Session>(session: &mut S) -> Result<Vec<BucketStats>> {
    let answers = session
        .run(vec![
            statement!("SELECT id, name FROM buckets WHERE name IS NOT NULL"),
            statement!(
                "SELECT bucket, count(*), COALESCE(CAST(sum(size) AS BIGINT), 0) FROM versions WHERE current = 1 GROUP BY bucket"
            ),
            statement!("SELECT bucket, count(*) FROM uploads WHERE completed_ms IS NULL GROUP BY bucket"),
            statement!(
                "SELECT u.bucket, COALESCE(CAST(sum(p.size) AS BIGINT), 0) FROM parts p JOIN uploads u ON u.id = p.upload \
                 GROUP BY u.bucket"
            ),
            statement!(BLOB_SUMS),
            statement!(BASE_ONLY_SUMS),
            statement!(SHARED_SUMS),
            statement!(PAST_SUMS),
            statement!(
                "SELECT bucket, marker, count(*), COALESCE(CAST(sum(size) AS BIGINT), 0) FROM versions WHERE current = 0 \
                 GROUP BY bucket, marker"
            ),
        ])
        .await?;
    let mut sums: BTreeMap<i64, BucketStats> = BTreeMap::new();
    for row in &answers[0] {
        sums.insert(row.int(0)?, BucketStats { name: row.text(1)?.to_owned(), ..BucketStats::default() });
    }
    for row in &answers[1] {
        let bucket = sums.entry(row.int(0)?).or_default();
        (bucket.objects, bucket.logical_bytes) = (row.unsigned(1)?, row.unsigned(2)?);
    }
    for row in &answers[2] {
        sums.entry(row.int(0)?).or_default().uploads = row.unsigned(1)?;
    }
    for row in &answers[3] {
        sums.entry(row.int(0)?).or_default().upload_bytes = row.unsigned(1)?;
    }
    for row in &answers[4] {
        add_blobs(sums.entry(row.int(0)?).or_default(), row)?;
    }
    for row in &answers[5] {
        let bucket = sums.entry(row.int(0)?).or_default();
        bucket.stored.base_only = tell_apart(bucket, row.unsigned(1)?);
    }
    for row in &answers[6] {
        let bucket = sums.entry(row.int(0)?).or_default();
        bucket.stored.shared = tell_apart(bucket, row.unsigned(1)?);
    }
    for row in &answers[7] {
        sums.entry(row.int(0)?).or_default().noncurrent_stored = row.unsigned(1)?;
    }
    for row in &answers[8] {
        let bucket = sums.entry(row.int(0)?).or_default();
        match row.int(1)? {
            0 => (bucket.noncurrent_versions, bucket.noncurrent_bytes) = (row.unsigned(2)?, row.unsigned(3)?),
            _ => bucket.delete_markers = row.unsigned(2)?,
        }
    }
    Ok(by_name(sums.into_values()))
}

/// Sums over the blobs of each bucket. An index has them by bucket, so nothing is sorted: what is
/// sorted takes the contents that lie in rows along, and holds them all.
pub(crate) const BLOB_SUMS: &str = "
    SELECT b.bucket,
      CAST(sum(CASE WHEN b.state = 0 AND b.inline_bytes IS NOT NULL THEN b.stored_len ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 AND b.inline_bytes IS NULL THEN b.stored_len ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 AND b.form = 0 THEN b.stored_len ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 AND b.form = 1 THEN b.stored_len ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 THEN b.raw_plain ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 THEN b.zstd_plain ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 THEN b.zstd_stored ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 THEN b.delta_plain ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 THEN b.delta_stored ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 AND b.original IS NOT NULL THEN b.plain_len ELSE 0 END) AS BIGINT),
      count(CASE WHEN b.state = 0 THEN b.copy_id END),
      CAST(sum(CASE WHEN b.state = 0 AND b.copy_id IS NOT NULL THEN b.stored_len ELSE 0 END) AS BIGINT),
      CAST(sum(CASE WHEN b.state = 0 THEN 0 WHEN b.copy_id IS NULL THEN b.stored_len ELSE 2 * b.stored_len END) AS BIGINT)
    FROM blobs b GROUP BY b.bucket";

/// Bytes of live blobs that neither a version nor a part names: deltas need them.
pub(crate) const BASE_ONLY_SUMS: &str = "
    SELECT b.bucket, CAST(sum(b.stored_len) AS BIGINT) FROM blobs b
    WHERE b.state = 0 AND b.inline_bytes IS NULL
      AND NOT EXISTS (SELECT 1 FROM extents e WHERE e.blob = b.id)
      AND NOT EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = b.id)
    GROUP BY b.bucket";

/// Bytes of live blobs that several versions or parts name. The index by blob tells which have more
/// than one reference, without a look at its rows; only of those a second version is looked for. A
/// content in its row is none of these, and no sum may be of it: what is grouped takes the columns
/// of its sums along.
pub(crate) const SHARED_SUMS: &str = "
    SELECT b.bucket, CAST(sum(b.stored_len) AS BIGINT)
    FROM (
      SELECT c.blob AS blob FROM (SELECT e.blob AS blob FROM extents e GROUP BY e.blob HAVING count(*) > 1) c
      WHERE EXISTS (SELECT 1 FROM extents o WHERE o.blob = c.blob
        AND o.version <> (SELECT f.version FROM extents f WHERE f.blob = c.blob LIMIT 1))
      UNION
      SELECT p.blob FROM part_extents p WHERE EXISTS (SELECT 1 FROM extents e WHERE e.blob = p.blob)
      UNION
      SELECT d.blob FROM (SELECT DISTINCT p.blob, p.upload, p.number FROM part_extents p) d
      GROUP BY d.blob HAVING count(*) > 1
    ) r CROSS JOIN blobs b WHERE b.id = r.blob AND b.state = 0 AND b.inline_bytes IS NULL GROUP BY b.bucket";

/// Bytes of live blobs that versions name, and no current one and no part. From the versions that
/// are not current to their blobs: a bucket without history costs nothing.
pub(crate) const PAST_SUMS: &str = "
    SELECT b.bucket, CAST(sum(b.stored_len) AS BIGINT)
    FROM (SELECT DISTINCT e.blob AS blob FROM versions v CROSS JOIN extents e WHERE v.current = 0 AND e.version = v.seq) r
    CROSS JOIN blobs b
    WHERE b.id = r.blob AND b.state = 0
      AND NOT EXISTS (SELECT 1 FROM extents o CROSS JOIN versions c
        WHERE o.blob = r.blob AND c.seq = o.version AND c.current = 1)
      AND NOT EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = r.blob)
    GROUP BY b.bucket";

/// What lies in backends and is not told apart yet counts as one version's own. Each live blob is
/// in exactly one class, so the classes add up. A second copy is overhead while its blob lives, and
/// dies with it.
fn add_blobs(bucket: &mut BucketStats, row: &Row) -> Result<()> {
    (bucket.stored.inline, bucket.stored.exclusive) = (row.unsigned(1)?, row.unsigned(2)?);
    (bucket.whole_bytes, bucket.delta_bytes) = (row.unsigned(3)?, row.unsigned(4)?);
    bucket.forms = FormBytes {
        raw_plain: row.unsigned(5)?,
        zstd_plain: row.unsigned(6)?,
        zstd_stored: row.unsigned(7)?,
        delta_plain: row.unsigned(8)?,
        delta_stored: row.unsigned(9)?,
    };
    bucket.foreign_bytes = row.unsigned(10)?;
    (bucket.copies, bucket.copy_bytes) = (row.unsigned(11)?, row.unsigned(12)?);
    bucket.stored.overhead = bucket.copy_bytes;
    bucket.stored.tombstoned = row.unsigned(13)?;
    Ok(())
}

/// Takes bytes that are not one version's own out of those that are.
fn tell_apart(bucket: &mut BucketStats, bytes: u64) -> u64 {
    bucket.stored.exclusive = bucket.stored.exclusive.saturating_sub(bytes);
    bytes
}

/// Sorts by name, with the dying bytes of all deleted buckets, which have none, in one.
fn by_name(sums: impl Iterator<Item = BucketStats>) -> Vec<BucketStats> {
    let mut named = Vec::new();
    let mut deleted = BucketStats::default();
    for bucket in sums {
        match bucket.name.is_empty() {
            true => deleted.stored.tombstoned += bucket.stored.tombstoned,
            false => named.push(bucket),
        }
    }
    if deleted != BucketStats::default() {
        named.push(deleted);
    }
    named.sort_by(|a, b| a.name.cmp(&b.name));
    named
}
