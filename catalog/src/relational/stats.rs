//! Sums per bucket, by recounting. Cost: one pass over versions, extents and blobs.

use super::session::{Row, Session, statement};
use crate::{CatalogError, Result, types::*};
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
        match row.int(1)? {
            0 => (bucket.noncurrent_versions, bucket.noncurrent_bytes) = (row.unsigned(2)?, row.unsigned(3)?),
            _ => bucket.delete_markers = row.unsigned(2)?,
        }
    }
    Ok(by_name(sums.into_values()))
}

/// Stored bytes by why they are kept: each blob is in exactly one class, so the classes add up
/// (`class` as [`add_blobs`] reads it). A second copy is overhead while its blob lives, and dies
/// with it.
const BLOB_SUMS: &str = "
    SELECT b.bucket,
      CASE WHEN b.state = 1 THEN 'tombstoned' WHEN b.inline_bytes IS NOT NULL THEN 'inline'
           WHEN r.referrers = 1 THEN 'exclusive' WHEN r.referrers > 1 THEN 'shared' ELSE 'base only' END AS class,
      b.form,
      CAST(sum(b.stored_len) AS BIGINT),
      CAST(sum(b.raw_plain) AS BIGINT),
      CAST(sum(b.zstd_plain) AS BIGINT),
      CAST(sum(b.zstd_stored) AS BIGINT),
      CAST(sum(b.delta_plain) AS BIGINT),
      CAST(sum(b.delta_stored) AS BIGINT),
      CAST(sum(CASE WHEN b.original IS NULL THEN 0 ELSE b.plain_len END) AS BIGINT),
      count(b.copy_id),
      CAST(sum(CASE WHEN b.copy_id IS NULL THEN 0 ELSE b.stored_len END) AS BIGINT),
      CAST(sum(CASE WHEN r.current = 0 THEN b.stored_len ELSE 0 END) AS BIGINT)
    FROM blobs b LEFT JOIN (
      SELECT n.blob, CAST(sum(n.referrers) AS BIGINT) AS referrers, max(n.current) AS current FROM (
        SELECT e.blob, count(DISTINCT e.version) AS referrers, max(v.current) AS current
        FROM extents e JOIN versions v ON v.seq = e.version GROUP BY e.blob
        UNION ALL
        SELECT d.blob, count(*), 1 FROM (SELECT DISTINCT p.blob, p.upload, p.number FROM part_extents p) d GROUP BY d.blob
      ) n GROUP BY n.blob
    ) r ON r.blob = b.id
    GROUP BY 1, 2, 3";

fn add_blobs(bucket: &mut BucketStats, row: &Row) -> Result<()> {
    let (stored, copies) = (row.unsigned(3)?, row.unsigned(11)?);
    let class = match row.text(1)? {
        "tombstoned" => {
            bucket.stored.tombstoned += stored + copies;
            return Ok(());
        }
        "inline" => &mut bucket.stored.inline,
        "exclusive" => &mut bucket.stored.exclusive,
        "shared" => &mut bucket.stored.shared,
        "base only" => &mut bucket.stored.base_only,
        other => return Err(CatalogError::Other(format!("unknown class of bytes: {other}"))),
    };
    *class += stored;
    match row.int(2)? {
        0 => bucket.whole_bytes += stored,
        _ => bucket.delta_bytes += stored,
    }
    bucket.forms.raw_plain += row.unsigned(4)?;
    bucket.forms.zstd_plain += row.unsigned(5)?;
    bucket.forms.zstd_stored += row.unsigned(6)?;
    bucket.forms.delta_plain += row.unsigned(7)?;
    bucket.forms.delta_stored += row.unsigned(8)?;
    bucket.foreign_bytes += row.unsigned(9)?;
    bucket.copies += row.unsigned(10)?;
    bucket.copy_bytes += copies;
    bucket.noncurrent_stored += row.unsigned(12)?;
    bucket.stored.overhead += copies;
    Ok(())
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
