//! What a bucket's lifecycle rules would remove now, without removing it.

use super::Reports;
use crate::{
    background::lifecycle::{
        judge::{Due, Judge, Key},
        rules::Calendar,
    },
    error::EngineError,
    resources::clock::now_ms,
};
use catalog::{VersionEntry, VersionsQuery};
use serde_json::{Value, json};

/// Versions that are looked at for one answer, the last key's others aside.
const LOOKED_MAX: u64 = 10_000;
/// Versions read at once.
const PAGE: usize = 1000;

impl Reports {
    /// The body of `GET /api/v1/lifecycle`: versions that the job `lifecycle` would remove if it
    /// ran now, at most `limit` and a key's others. It looks at 10,000 versions; `next` says where
    /// another call goes on. `None` when there is no such bucket.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails, or the rules or a row cannot be read.
    pub async fn expiring(
        &self,
        bucket: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Option<Value>, EngineError> {
        let Some(handle) = self.buckets.bucket(bucket).await? else { return Ok(None) };
        let Some(rules) = handle.lifecycle()? else {
            return Ok(Some(json!({ "bucket": bucket, "rules": 0, "due": [], "looked_at": 0, "next": null })));
        };
        let count = rules.rules.len();
        let judge = Judge { read: &self.read, bucket: &handle, rules, calendar: Calendar::of(self.day) };
        let mut query = VersionsQuery {
            bucket: handle.row.id,
            prefix: judge.rules.prefix().to_owned(),
            delimiter: None,
            key_after: after,
            version_after: None,
            limit: PAGE,
        };
        let (mut key, mut due, mut looked_at, now_ms): (Option<Key>, Vec<Due>, u64, _) = (None, vec![], 0, now_ms());
        let next = 'pages: loop {
            let page = self.catalog.list_versions(&query).await?;
            for entry in page.entries {
                let VersionEntry::Version { version, latest } = entry else { continue };
                let ended = key.as_ref().filter(|key| key.name != version.key);
                if let Some(ended) = ended.filter(|_| due.len() >= limit || looked_at >= LOOKED_MAX) {
                    break 'pages Some(ended.name.clone());
                }
                looked_at += 1;
                judge.judge(&mut key, version, latest, now_ms, &mut due)?;
            }
            let Some((name, version)) = page.next else { break None };
            (query.key_after, query.version_after) = (Some(name), version);
        };
        due.extend(key.and_then(|key| judge.lone_marker(key, now_ms)));
        let due: Vec<Value> = due.iter().map(due_json).collect();
        Ok(Some(json!({ "bucket": bucket, "rules": count, "due": due, "looked_at": looked_at, "next": next })))
    }
}

fn due_json(due: &Due) -> Value {
    let (what, version) = match due {
        Due::Current { version, .. } => ("current", version),
        Due::Noncurrent { version, .. } => ("noncurrent", version),
        Due::Marker { version } => ("delete-marker", version),
    };
    json!({
        "what": what,
        "key": version.key,
        "version": version.reference().to_string(),
        "size": version.size,
        "last_modified_ms": version.modified_ms,
        "locked": !version.lock.is_none(),
    })
}
