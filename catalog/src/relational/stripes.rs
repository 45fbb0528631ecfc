//! What tells that nothing under a key has changed since it was read.
//!
//! Where the database is a journey away, a change reads before it has its turn, and finds out in
//! its turn whether what it read still holds (docs/reference/postgres.md). Keys are spread over
//! stripes by a hash. A mutation adds one to the stripe of its key, and one that may concern any
//! key to a stripe that every change looks at. Rows of stripes are never removed.

use super::session::{Statement, statement};
use crate::{mutation::Mutation, types::BucketId};
use xxhash_rust::xxh3::Xxh3;

/// How many stripes keys are spread over: of eight groups of four keys that are under way at once,
/// one in forty meets another one in a stripe.
const STRIPES: u32 = 4096;

/// The stripe of all keys.
const ALL: i64 = 0;

/// The stripe of a key, from 1 on.
fn of_key(bucket: BucketId, key: &str) -> i64 {
    let mut hash = Xxh3::new();
    hash.update(&bucket.0.to_le_bytes());
    hash.update(key.as_bytes());
    1 + i64::from(hash.digest() as u32 % STRIPES)
}

/// The stripe that a mutation adds one to, if it can make a difference to what is read for another
/// one. What is not known not to concern other keys concerns all.
pub(crate) fn of(mutation: &Mutation) -> Option<i64> {
    let (bucket, key) = match mutation {
        Mutation::Put { commit, .. } => (commit.bucket, &commit.key),
        Mutation::Delete { commit, .. } => (commit.bucket, &commit.key),
        Mutation::DeleteVersion { commit, .. } => (commit.bucket, &commit.key),
        Mutation::Rewrite { commit } => (commit.bucket, &commit.key),
        Mutation::SetLock { commit } => (commit.bucket, &commit.key),
        Mutation::Complete { commit, .. } => (commit.bucket, &commit.key),
        // No key has what an upload holds before it is completed.
        Mutation::CreateUpload { .. } | Mutation::PutPart { .. } | Mutation::Abort { .. } => return None,
        _ => return Some(ALL),
    };
    Some(of_key(bucket, key))
}

/// Makes the rows: each stripe, and nothing counted.
#[cfg(feature = "postgres")]
pub(crate) fn fill() -> Statement {
    statement!(
        "INSERT INTO stripes (stripe, changes) \
         WITH RECURSIVE n (stripe) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT n.stripe + 1 FROM n WHERE n.stripe < $1) \
         SELECT n.stripe, 0 FROM n ON CONFLICT (stripe) DO NOTHING",
        STRIPES,
    )
}

/// Counts a mutation, which has its turn.
pub(crate) fn count(stripe: i64) -> Statement {
    statement!("UPDATE stripes SET changes = changes + 1 WHERE stripe = $1", stripe)
}

/// Counts what may concern any key and is no mutation.
pub(crate) fn count_all() -> Statement {
    count(ALL)
}

/// Reads how many changes a stripe had, and the stripe of all.
#[cfg(feature = "postgres")]
pub(crate) fn read(stripe: i64) -> Statement {
    statement!("SELECT s.changes, a.changes FROM stripes s JOIN stripes a ON a.stripe = 0 WHERE s.stripe = $1", stripe)
}

/// Counts a mutation as [`count`] does if there were as many changes until now as `changes` says,
/// of its stripe and of all. Else the statement fails, since a count is never null.
#[cfg(feature = "postgres")]
pub(crate) fn count_after(stripe: i64, changes: (i64, i64)) -> Statement {
    statement!(
        "UPDATE stripes SET changes = CASE WHEN changes = $1 \
         AND (SELECT a.changes FROM stripes a WHERE a.stripe = 0) = $2 THEN changes + 1 END WHERE stripe = $3",
        changes.0,
        changes.1,
        stripe,
    )
}
