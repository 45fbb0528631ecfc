//! What a recovery could not make again, and where it puts what nobody may rely on.

use catalog::{JournalEntry, Seq, UnixMs};
use serde::Serialize;

/// What the keys of recovered versions begin with.
pub(super) const QUARANTINE: &str = "deltaweir-recovered/";
/// Longest key that S3 has.
pub(super) const KEY_LEN_MAX: usize = 1024;

/// Journal blobs that are missing although later ones are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hole {
    /// The first mutation that is lost.
    pub first: Seq,
    /// The last one.
    pub last: Seq,
    /// When the last mutation before them was, by its writer's clock.
    pub after_ms: Option<UnixMs>,
}

/// A mutation behind a hole that could not be made again without what is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostMutation {
    /// Its number.
    pub seq: Seq,
    /// Its kind (docs/reference/catalog.md).
    pub kind: String,
    /// The bucket's id, where it is of one.
    pub bucket: Option<i64>,
    /// The key, where it is of one.
    pub key: Option<String>,
    /// Why.
    pub why: String,
}

/// A mutation as a report names it.
pub(super) fn lost_mutation(entry: &JournalEntry, why: String) -> LostMutation {
    let mutation = entry.mutation.value();
    let (kind, members) = mutation.as_object().and_then(|object| object.iter().next()).unzip();
    let member = |name: &str| {
        let members = members?;
        [members.pointer(&format!("/commit/{name}")), members.pointer(&format!("/upload/{name}")), members.get(name)]
            .into_iter()
            .flatten()
            .next()
            .cloned()
    };
    LostMutation {
        seq: entry.seq,
        kind: kind.cloned().unwrap_or_default(),
        bucket: member("bucket").and_then(|bucket| bucket.as_i64()),
        key: member("key").and_then(|key| key.as_str().map(str::to_owned)),
        why,
    }
}
