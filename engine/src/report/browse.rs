//! Objects as operators look through them: pages of keys with their form and cost, the versions of
//! a key, and what a version says of itself. One page of the catalog each.

use super::Reports;
use crate::{bucket::BucketHandle, error::EngineError};
use catalog::{ListEntry, ListQuery, Version, VersionEntry, VersionRef, VersionsQuery};
use serde_json::{Value, json};

/// Most entries of a page.
pub const PAGE_MAX: usize = 1000;

/// Which page of keys.
#[derive(Clone, Debug)]
pub struct Page {
    /// Only keys that start with this.
    pub prefix: String,
    /// Keys with this behind the prefix are rolled up.
    pub delimiter: Option<String>,
    /// Where the page before ended.
    pub after: Option<String>,
    /// Entries, 1 to [`PAGE_MAX`].
    pub limit: usize,
}

impl Reports {
    /// The body of `GET /api/v1/objects`; `None` when there is no such bucket. The catalog reads as
    /// many rows as the page has entries.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails or a row cannot be opened.
    pub async fn objects(&self, bucket: &str, page: Page) -> Result<Option<Value>, EngineError> {
        let Some(handle) = self.buckets.bucket(bucket).await? else { return Ok(None) };
        let Page { prefix, delimiter, after, limit } = page;
        let limit = limit.clamp(1, PAGE_MAX);
        let query = ListQuery { bucket: handle.row.id, prefix, delimiter, after, limit };
        let found = self.catalog.list(&query).await?;
        let mut entries = Vec::with_capacity(found.entries.len());
        for entry in found.entries {
            entries.push(match entry {
                ListEntry::CommonPrefix(prefix) => json!({ "prefix": prefix }),
                ListEntry::Key(version) => self.entry(&handle, &version)?,
            });
        }
        Ok(Some(json!({ "bucket": bucket, "prefix": query.prefix, "entries": entries, "next": found.next })))
    }

    /// The body of `GET /api/v1/versions`: the newest versions of one key, delete markers included;
    /// `None` when there is no such bucket.
    ///
    /// # Errors
    /// As [`Reports::objects`].
    pub async fn versions(&self, bucket: &str, key: &str, limit: usize) -> Result<Option<Value>, EngineError> {
        let Some(handle) = self.buckets.bucket(bucket).await? else { return Ok(None) };
        let query = VersionsQuery {
            bucket: handle.row.id,
            prefix: key.to_owned(),
            delimiter: None,
            key_after: None,
            version_after: None,
            limit: limit.clamp(1, PAGE_MAX),
        };
        let page = self.catalog.list_versions(&query).await?;
        let more = page.next.is_some_and(|(last, _)| last == key);
        let mut versions = Vec::new();
        for entry in page.entries {
            let VersionEntry::Version { version, latest } = entry else { continue };
            if version.key != key {
                break;
            }
            let mut value = match version.marker {
                true => json!({
                    "delete_marker": true,
                    "version": version.reference().to_string(),
                    "last_modified_ms": version.modified_ms,
                }),
                false => self.entry(&handle, &version)?,
            };
            value["latest"] = json!(latest);
            versions.push(value);
        }
        Ok(Some(json!({ "bucket": bucket, "key": key, "versions": versions, "more": more })))
    }

    /// The body of `GET /api/v1/object`: what a version says of itself, its content aside; `None`
    /// when there is no such version.
    ///
    /// # Errors
    /// As [`Reports::objects`].
    pub async fn object(
        &self,
        bucket: &str,
        key: &str,
        version: Option<VersionRef>,
    ) -> Result<Option<Value>, EngineError> {
        let Some(handle) = self.buckets.bucket(bucket).await? else { return Ok(None) };
        let row = match version {
            None => self.catalog.current(handle.row.id, key).await?,
            Some(version) => {
                self.catalog.named_version(handle.row.id, key, version).await?.map(|content| content.version)
            }
        };
        let Some(row) = row.filter(|row| !row.marker) else { return Ok(None) };
        let facts = self.read.open_facts(&handle, &row)?;
        let mut value = self.entry(&handle, &row)?;
        value["bucket"] = json!(bucket);
        value["headers"] = json!(facts.headers);
        value["metadata"] = json!(facts.user_metadata);
        value["tags"] = json!(facts.tags);
        value["checksums"] = json!(facts.checksums);
        value["checksum_type"] = json!(facts.checksum_type);
        value["storage_class"] = json!(facts.storage_class);
        value["parts"] = json!(facts.parts.len());
        value["encryption"] = json!(facts.encryption.map(|encryption| encryption.algorithm));
        value["lock"] = json!(row.lock);
        value["owner"] = json!(facts.owner);
        Ok(Some(value))
    }

    /// A version as a line of a page.
    fn entry(&self, handle: &BucketHandle, version: &Version) -> Result<Value, EngineError> {
        let facts = self.read.open_facts(handle, version)?;
        Ok(json!({
            "key": version.key,
            "version": version.reference().to_string(),
            "size": version.size,
            "stored_bytes": facts.storage.stored_bytes,
            "form": facts.storage.form.as_str(),
            "reason": facts.storage.reason,
            "etag": facts.etag,
            "last_modified_ms": version.modified_ms,
            "content_type": facts.headers.get("content-type"),
        }))
    }
}
