//! The recount: every rule of the catalog as a question whose answer should be empty (E5).
//!
//! Foreign keys and constraints make several of these impossible; they are asked all the same,
//! since a catalog that was restored, edited by hand or damaged by its disk is what the recount is
//! for.

use super::{
    checksum_walk,
    session::{Session, Value, statement},
};
use crate::{Result, types::Seq};

/// A broken rule, and the statement that names up to [`SHOWN_MAX`] rows that break it.
pub(crate) struct Rule {
    pub(crate) broken: &'static str,
    sql: &'static str,
}

/// Most rows named per rule.
const SHOWN_MAX: i64 = 100;

pub(crate) async fn check<S: Session>(session: &mut S) -> Result<Vec<String>> {
    let questions = RULES.iter().map(|rule| statement!(rule.sql, SHOWN_MAX)).collect();
    let answers = session.run(questions).await?;
    let mut broken = Vec::new();
    for (rule, rows) in RULES.iter().zip(&answers) {
        for row in rows {
            let name = match row.0.first() {
                Some(Value::Int(number)) => number.to_string(),
                Some(Value::Text(text)) => text.clone(),
                Some(Value::Bytes(bytes)) => hex::encode(bytes),
                Some(Value::Null) | None => "?".to_owned(),
            };
            broken.push(format!("{}: {name}", rule.broken));
        }
    }
    broken.extend(check_journal(session).await?);
    Ok(broken)
}

/// Rows that are not what was written, and what an embedded database finds wrong with itself: its
/// pages, indexes that say another thing than their tables, rows that name what is not there.
pub(crate) async fn storage<S: Session>(session: &mut S) -> Result<Vec<String>> {
    let mut broken = checksum_walk::verify(session, SHOWN_MAX as usize).await?;
    broken.extend(session.disagreements(SHOWN_MAX as usize).await?);
    Ok(broken)
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        broken: "a version names a bucket that is not there",
        sql: "SELECT v.seq FROM versions v WHERE NOT EXISTS \
              (SELECT 1 FROM buckets b WHERE b.id = v.bucket AND b.name IS NOT NULL) LIMIT $1",
    },
    Rule {
        broken: "a version's extents do not add up to its size",
        sql: "SELECT v.seq FROM versions v WHERE v.size <> \
              (SELECT COALESCE(CAST(sum(e.plain_len) AS BIGINT), 0) FROM extents e WHERE e.version = v.seq) LIMIT $1",
    },
    Rule {
        broken: "a version's extents are not numbered from 0 without gaps",
        sql: "SELECT e.version FROM extents e GROUP BY e.version \
              HAVING min(e.ordinal) <> 0 OR max(e.ordinal) <> count(*) - 1 LIMIT $1",
    },
    Rule {
        broken: "extents belong to a version that is not there",
        sql: "SELECT DISTINCT e.version FROM extents e WHERE NOT EXISTS (SELECT 1 FROM versions v WHERE v.seq = e.version) LIMIT $1",
    },
    Rule {
        broken: "a version names a blob that is not there",
        sql: "SELECT e.blob FROM extents e WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = e.blob) LIMIT $1",
    },
    Rule {
        broken: "a version names a blob that is dying",
        sql: "SELECT e.blob FROM extents e JOIN blobs b ON b.id = e.blob WHERE b.state <> 0 LIMIT $1",
    },
    Rule {
        broken: "a version names a blob of another bucket",
        sql: "SELECT e.blob FROM extents e JOIN blobs b ON b.id = e.blob JOIN versions v ON v.seq = e.version \
              WHERE b.bucket <> v.bucket LIMIT $1",
    },
    Rule {
        broken: "an extent of a version lies outside its blob",
        sql: "SELECT e.blob FROM extents e JOIN blobs b ON b.id = e.blob WHERE e.plain_offset + e.plain_len > b.plain_len LIMIT $1",
    },
    Rule {
        broken: "a key has two current versions",
        sql: "SELECT v.key FROM versions v WHERE v.current = 1 GROUP BY v.bucket, v.key HAVING count(*) > 1 LIMIT $1",
    },
    Rule {
        broken: "a key has two null versions",
        sql: "SELECT v.key FROM versions v WHERE v.named = 0 GROUP BY v.bucket, v.key HAVING count(*) > 1 LIMIT $1",
    },
    Rule {
        broken: "a version that is newer than the current one of its key is not current",
        sql: "SELECT o.seq FROM versions o JOIN versions c ON c.bucket = o.bucket AND c.key = o.key AND c.current = 1 \
              WHERE o.current = 0 AND o.seq > c.seq LIMIT $1",
    },
    Rule {
        broken: "a key's newest version has content and is not current",
        sql: "SELECT o.seq FROM versions o WHERE o.current = 0 AND o.marker = 0 AND NOT EXISTS \
              (SELECT 1 FROM versions c WHERE c.bucket = o.bucket AND c.key = o.key AND c.current = 1) AND NOT EXISTS \
              (SELECT 1 FROM versions n WHERE n.bucket = o.bucket AND n.key = o.key AND n.current = 0 AND n.seq > o.seq) LIMIT $1",
    },
    Rule {
        broken: "a delete marker is current, or has content",
        sql: "SELECT v.seq FROM versions v WHERE v.marker = 1 AND (v.current = 1 OR v.size <> 0) LIMIT $1",
    },
    Rule {
        broken: "a bucket that never kept versions has one",
        sql: "SELECT v.seq FROM versions v JOIN buckets b ON b.id = v.bucket \
              WHERE b.versioning = 0 AND (v.named = 1 OR v.current = 0) LIMIT $1",
    },
    Rule {
        broken: "a bucket with object lock does not keep versions",
        sql: "SELECT b.id FROM buckets b WHERE b.object_lock = 1 AND b.versioning <> 1 LIMIT $1",
    },
    Rule {
        broken: "a version is locked in a bucket without object lock, or is a delete marker",
        sql: "SELECT v.seq FROM versions v JOIN buckets b ON b.id = v.bucket \
              WHERE v.lock <> 0 AND (b.object_lock = 0 OR v.marker = 1) LIMIT $1",
    },
    Rule {
        broken: "a part's extents do not add up to its size",
        sql: "SELECT p.upload FROM parts p WHERE p.size <> (SELECT COALESCE(CAST(sum(e.plain_len) AS BIGINT), 0) \
              FROM part_extents e WHERE e.upload = p.upload AND e.number = p.number) LIMIT $1",
    },
    Rule {
        broken: "a part's extents are not numbered from 0 without gaps",
        sql: "SELECT e.upload FROM part_extents e GROUP BY e.upload, e.number \
              HAVING min(e.ordinal) <> 0 OR max(e.ordinal) <> count(*) - 1 LIMIT $1",
    },
    Rule {
        broken: "a part belongs to an upload that is not open",
        sql: "SELECT p.upload FROM parts p WHERE NOT EXISTS \
              (SELECT 1 FROM uploads u WHERE u.id = p.upload AND u.completed_ms IS NULL) LIMIT $1",
    },
    Rule {
        broken: "extents belong to a part that is not there",
        sql: "SELECT e.upload FROM part_extents e WHERE NOT EXISTS \
              (SELECT 1 FROM parts p WHERE p.upload = e.upload AND p.number = e.number) LIMIT $1",
    },
    Rule {
        broken: "a part names a blob that is not there",
        sql: "SELECT e.blob FROM part_extents e WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = e.blob) LIMIT $1",
    },
    Rule {
        broken: "a part names a blob that is dying",
        sql: "SELECT e.blob FROM part_extents e JOIN blobs b ON b.id = e.blob WHERE b.state <> 0 LIMIT $1",
    },
    Rule {
        broken: "a part names a blob of another bucket",
        sql: "SELECT e.blob FROM part_extents e JOIN blobs b ON b.id = e.blob JOIN uploads u ON u.id = e.upload \
              WHERE b.bucket <> u.bucket LIMIT $1",
    },
    Rule {
        broken: "an extent of a part lies outside its blob",
        sql: "SELECT e.blob FROM part_extents e JOIN blobs b ON b.id = e.blob \
              WHERE e.plain_offset + e.plain_len > b.plain_len LIMIT $1",
    },
    Rule {
        broken: "an upload is in a bucket that is not there",
        sql: "SELECT u.id FROM uploads u WHERE NOT EXISTS \
              (SELECT 1 FROM buckets b WHERE b.id = u.bucket AND b.name IS NOT NULL) LIMIT $1",
    },
    Rule {
        broken: "a live blob has no reference",
        sql: "SELECT b.id FROM blobs b WHERE b.state = 0 \
              AND NOT EXISTS (SELECT 1 FROM extents e WHERE e.blob = b.id) \
              AND NOT EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = b.id) \
              AND NOT EXISTS (SELECT 1 FROM edges d WHERE d.base = b.id) LIMIT $1",
    },
    Rule {
        broken: "a dying blob has no tombstone",
        sql: "SELECT b.id FROM blobs b WHERE b.state = 1 AND NOT EXISTS (SELECT 1 FROM tombstones t WHERE t.blob = b.id) LIMIT $1",
    },
    Rule {
        broken: "a tombstone stands on a blob that is not dying",
        sql: "SELECT t.blob FROM tombstones t WHERE NOT EXISTS \
              (SELECT 1 FROM blobs b WHERE b.id = t.blob AND b.state = 1) LIMIT $1",
    },
    Rule {
        broken: "a tombstone stands on a blob that is referenced",
        sql: "SELECT t.blob FROM tombstones t WHERE EXISTS (SELECT 1 FROM extents e WHERE e.blob = t.blob) \
              OR EXISTS (SELECT 1 FROM part_extents p WHERE p.blob = t.blob) \
              OR EXISTS (SELECT 1 FROM edges d WHERE d.base = t.blob) LIMIT $1",
    },
    Rule {
        broken: "a blob that is not there waits to be encoded better",
        sql: "SELECT q.blob FROM deferrals q WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = q.blob) LIMIT $1",
    },
    Rule {
        broken: "a delta has no base",
        sql: "SELECT b.id FROM blobs b WHERE b.form = 1 AND NOT EXISTS (SELECT 1 FROM edges d WHERE d.delta = b.id) LIMIT $1",
    },
    Rule {
        broken: "a whole blob has a base",
        sql: "SELECT b.id FROM blobs b WHERE b.form = 0 AND EXISTS (SELECT 1 FROM edges d WHERE d.delta = b.id) LIMIT $1",
    },
    Rule {
        broken: "a base is not live and whole",
        sql: "SELECT d.base FROM edges d WHERE NOT EXISTS \
              (SELECT 1 FROM blobs b WHERE b.id = d.base AND b.state = 0 AND b.form = 0) LIMIT $1",
    },
    Rule {
        broken: "a base lies in an original",
        sql: "SELECT d.base FROM edges d JOIN blobs b ON b.id = d.base WHERE b.original IS NOT NULL LIMIT $1",
    },
    Rule {
        broken: "content in an original is stored as well",
        sql: "SELECT b.id FROM blobs b WHERE b.original IS NOT NULL \
              AND (b.form <> 0 OR b.stored_len <> 0 OR b.inline_bytes IS NOT NULL OR b.digest IS NOT NULL) LIMIT $1",
    },
    Rule {
        broken: "what is no blob in a backend has a second copy",
        sql: "SELECT b.id FROM blobs b WHERE b.copy_id IS NOT NULL \
              AND (b.inline_bytes IS NOT NULL OR b.original IS NOT NULL) LIMIT $1",
    },
    Rule {
        broken: "a hidden key is in a bucket that is not there",
        sql: "SELECT h.key FROM hidden_keys h WHERE NOT EXISTS \
              (SELECT 1 FROM buckets b WHERE b.id = h.bucket AND b.name IS NOT NULL) LIMIT $1",
    },
    Rule {
        broken: "a base is of another domain than its delta",
        sql: "SELECT d.delta FROM edges d JOIN blobs a ON a.id = d.delta JOIN blobs b ON b.id = d.base \
              WHERE a.bucket <> b.bucket OR a.key_epoch <> b.key_epoch OR a.backend <> b.backend LIMIT $1",
    },
    Rule {
        broken: "an edge belongs to a delta that is not there",
        sql: "SELECT d.delta FROM edges d WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = d.delta) LIMIT $1",
    },
    Rule {
        broken: "a blob's bucket is not there",
        sql: "SELECT b.id FROM blobs b WHERE NOT EXISTS (SELECT 1 FROM buckets k WHERE k.id = b.bucket) LIMIT $1",
    },
    Rule {
        broken: "a live blob is in a deleted bucket",
        sql: "SELECT b.id FROM blobs b JOIN buckets k ON k.id = b.bucket WHERE k.name IS NULL AND b.state = 0 LIMIT $1",
    },
    Rule {
        broken: "a deleted bucket has nothing left and is kept",
        sql: "SELECT k.id FROM buckets k WHERE k.name IS NULL AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.bucket = k.id) LIMIT $1",
    },
    Rule {
        broken: "an inline blob's length is not its stored length",
        sql: "SELECT b.id FROM blobs b WHERE b.inline_bytes IS NOT NULL AND length(b.inline_bytes) <> b.stored_len LIMIT $1",
    },
    Rule {
        broken: "a sketched region is of a blob that is not there, or that does not know it",
        sql: "SELECT r.number FROM sketched_regions r WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = r.blob \
              AND b.form = 0 AND b.first_region + r.region = r.number) LIMIT $1",
    },
    Rule {
        broken: "a lane of notices does not count what waits in it",
        sql: "SELECT l.lane FROM notice_lanes l WHERE l.waiting <> (SELECT count(*) FROM notices n WHERE n.lane = l.lane) LIMIT $1",
    },
    Rule {
        broken: "a notice waits in a lane that is not there",
        sql: "SELECT n.lane FROM notices n WHERE NOT EXISTS (SELECT 1 FROM notice_lanes l WHERE l.lane = n.lane) LIMIT $1",
    },
    Rule {
        broken: "what a bucket is said to hold is not what it holds",
        sql: "SELECT b.id FROM buckets b LEFT JOIN usage u ON u.bucket = b.id LEFT JOIN \
              (SELECT t.bucket, sum(t.bytes) AS bytes, sum(t.objects) AS objects FROM \
              (SELECT v.bucket, v.size AS bytes, 1 AS objects FROM versions v WHERE v.marker = 0 \
              UNION ALL SELECT o.bucket, p.size, 0 FROM parts p JOIN uploads o ON o.id = p.upload) t GROUP BY t.bucket) s \
              ON s.bucket = b.id WHERE COALESCE(u.bytes, 0) <> COALESCE(s.bytes, 0) \
              OR COALESCE(u.objects, 0) <> COALESCE(s.objects, 0) LIMIT $1",
    },
    Rule {
        broken: "a hook leads to a region that is not there",
        sql: "SELECT h.number FROM hooks h WHERE NOT EXISTS (SELECT 1 FROM sketched_regions r WHERE r.number = h.number) LIMIT $1",
    },
];

/// Journal rows are consecutive up to the last mutation, and no version is newer than that.
async fn check_journal<S: Session>(session: &mut S) -> Result<Vec<String>> {
    let answers = session
        .run(vec![
            statement!("SELECT value FROM counters WHERE name = 'mutations'"),
            statement!("SELECT count(*), COALESCE(min(seq), 0), COALESCE(max(seq), 0) FROM journal"),
            statement!("SELECT COALESCE(max(seq), 0) FROM versions"),
        ])
        .await?;
    let mut broken = Vec::new();
    let last: Seq = super::change::only(&answers, 0)?.int(0)?;
    let journal = super::change::only(&answers, 1)?;
    let (count, first, newest) = (journal.int(0)?, journal.int(1)?, journal.int(2)?);
    if count > 0 && (newest != last || newest - first + 1 != count) {
        broken
            .push(format!("the journal holds {count} rows from {first} to {newest}, and the last mutation is {last}"));
    }
    let version = super::change::only(&answers, 2)?.int(0)?;
    if version > last {
        broken.push(format!("version {version} is newer than the last mutation, {last}"));
    }
    Ok(broken)
}
