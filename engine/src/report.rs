//! What operators are told: stats, explanations, inspection. JSON; the schema is
//! docs/reference/admin-api.md.

mod browse;
mod expiring;
mod history;
mod inside;
mod map;

pub use browse::{PAGE_MAX, Page};
pub(crate) use history::History;
pub use map::CELLS_MAX;

use crate::{
    background::{looks::Looks, packs},
    bases::account::accounts_of,
    blobs::open::{Blobs, Manifest},
    bucket::Buckets,
    deployment::keyring::KeysetCopy,
    error::EngineError,
    metrics::Metrics,
    read::object::{Named, ReadPath},
    resources::{budget::MemoryBudget, clock::now_ms},
    write::{past::conversions_of, views::BaseViews},
};
use catalog::{BlobKey, BlobRow, Bucket, BucketStats, Catalog, Original, StoredBytes, UnixMs, VersionRef};
use object_format::{BlobId, Suite};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};

/// `bucket` of the gauges over all buckets without gauges of their own. No bucket is called so:
/// names have no underscore.
const OTHER_BUCKETS: &str = "_other";
/// Buckets with gauges of their own besides the configured ones, so that their number is bounded.
const NAMED_BUCKETS_MAX: usize = 100;

/// What operators ask for.
pub struct Reports {
    /// Buckets that the configuration names: these become labels, however many others there are.
    pub(crate) configured: BTreeSet<String>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) read: Arc<ReadPath>,
    pub(crate) views: Arc<BaseViews>,
    /// Held while an object's content is looked into.
    pub(crate) looking_inside: Mutex<()>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) history: History,
    /// Held while everything is counted for gauges or a page.
    pub(crate) counting: Mutex<()>,
    /// How long a day of a lifecycle rule is.
    pub(crate) day: Duration,
    pub(crate) metrics: Arc<Metrics>,
}

impl Reports {
    /// Sets the gauges that take a recount, when something has changed since the last one and it is
    /// not too soon for another.
    ///
    /// # Errors
    /// What the catalog says.
    pub(crate) async fn refresh_counts(&self) -> Result<(), EngineError> {
        let _one_at_a_time = self.counting.lock().await;
        let (seq, began) = (self.catalog.last_seq().await?, Instant::now());
        if self.looks.counts_are_due(seq) {
            self.stats().await?;
            self.looks.note_counted(seq, began);
        }
        Ok(())
    }

    /// The body of `GET /api/v1/stats`: buckets, totals and backends; also sets the bucket gauges.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails.
    pub async fn stats(&self) -> Result<Value, EngineError> {
        let rows = self.catalog.buckets().await?;
        let stats = self.catalog.stats().await?;
        let named = named_buckets(&self.configured, &rows);
        let (mut totals, mut others) = (BucketStats::default(), BucketStats::default());
        let mut backends: BTreeMap<String, (u64, u64)> =
            self.blobs.backends().map(|(name, _)| (name.clone(), (0, 0))).collect();
        let mut buckets = Vec::with_capacity(stats.len());
        for mut bucket in stats {
            let row = rows.iter().find(|row| row.name == bucket.name);
            let keysets: Vec<KeysetCopy> = row.map(KeysetCopy::of).unwrap_or_default();
            bucket.stored.overhead += keysets.iter().map(|copy| copy.stored_len).sum::<u64>();
            if named.contains(bucket.name.as_str()) {
                self.set_gauges(&bucket.name, &bucket);
            } else {
                add(&mut others, &bucket);
            }
            add(&mut totals, &bucket);
            let backend = row.and_then(|row| row.settings.get("backend")).and_then(Value::as_str).unwrap_or_default();
            let outside = total_of(&bucket.stored) - bucket.stored.inline;
            if let Some((bytes, blobs)) = backends.get_mut(backend) {
                *bytes += outside;
                *blobs += keysets.len() as u64;
            }
            let mut value = bucket_json(&bucket);
            value["name"] = json!(bucket.name);
            value["settings"] = row.map_or(Value::Null, |row| row.settings.clone());
            buckets.push(value);
        }
        self.set_gauges(OTHER_BUCKETS, &others);
        self.forget_gauges(|name| name == OTHER_BUCKETS || named.contains(name));
        self.metrics.multipart_inflight.set(gauge(totals.uploads));
        self.metrics.base_copies.set(gauge(totals.copies));
        self.metrics.base_copy_bytes.set(gauge(totals.copy_bytes));
        let backends: Vec<Value> = backends
            .into_iter()
            .map(|(name, (stored_bytes, _))| json!({"name": name, "stored_bytes": stored_bytes}))
            .collect();
        let stats = json!({ "buckets": buckets, "totals": bucket_json(&totals), "backends": backends });
        self.history.note(&totals, total_of(&totals.stored), &stats);
        Ok(stats)
    }

    /// The newest counts there are: the answer of [`Reports::stats`], when it was made, and the
    /// counts before it, oldest first. Waits for a count only if counting is quick, or there is
    /// none: where there is much to count, the gauges' own count does for pages.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog fails.
    pub async fn counted(&self) -> Result<(UnixMs, Value, Value), EngineError> {
        if !self.looks.counts_are_quick()
            && let Some(told) = self.history.told()
        {
            return Ok(told);
        }
        self.refresh_counts().await?;
        if let Some(told) = self.history.told() {
            return Ok(told);
        }
        self.stats().await?;
        self.history.told().ok_or_else(|| EngineError::Other("a count left no trace".into()))
    }

    /// The body of `GET /api/v1/explain`: how a key's current version, or the one that is named, is
    /// stored and why; `None` when there is none.
    ///
    /// # Errors
    /// [`EngineError`] when catalog or backend fail.
    pub async fn explain(
        &self,
        bucket: &str,
        key: &str,
        version: Option<VersionRef>,
    ) -> Result<Option<Value>, EngineError> {
        let Some(handle) = self.buckets.bucket(bucket).await? else { return Ok(None) };
        let found = match version {
            None => self.read.open_object(&handle, key).await?.map(Named::Object),
            Some(version) => self.read.open_version(&handle, key, version).await?,
        };
        let object = match found {
            None => return Ok(None),
            Some(Named::Object(object)) => object,
            Some(Named::Marker(marker)) => {
                return Ok(Some(json!({
                    "bucket": bucket,
                    "key": key,
                    "version": marker.reference().to_string(),
                    "delete_marker": true,
                    "last_modified_ms": marker.modified_ms,
                    "stored_bytes": 0,
                })));
            }
        };
        let current = self.catalog.current(handle.row.id, key).await?;
        let mut blobs = Vec::new();
        for row in &object.content.blobs {
            if let Some(original) = &row.original {
                blobs.push(original_json(row, original));
                continue;
            }
            let manifest = self.blobs.manifest(row, handle.key_of(row)?.as_deref()).await?;
            let mut value = self.blob_json(row, &manifest).await?;
            value["fan_in"] = json!(self.catalog.fan_in(row.id).await?);
            value["hot_bytes"] = json!(self.catalog.heat_of(&[row.id]).await?);
            value["choices"] = choices_json(&manifest);
            value["conversions"] = conversions_json(&manifest);
            value["segments_by_coding"] = self.codings_json(&manifest).await?;
            value["bases"] =
                self.catalog.bases_of(row.id).await?.iter().map(|base| json!(BlobId(base.0).to_string())).collect();
            blobs.push(value);
        }
        let storage = &object.info.facts.storage;
        let extents: Vec<Value> = object
            .content
            .extents
            .iter()
            .map(
                |extent| json!({"blob": BlobId(extent.blob.0).to_string(), "offset": extent.offset, "len": extent.len}),
            )
            .collect();
        let mut told = json!({
            "bucket": bucket,
            "key": key,
            "version": object.info.version.reference().to_string(),
            "current": current.is_some_and(|current| current.id == object.info.version.id),
            "size": object.info.version.size,
            "etag": object.info.facts.etag,
            "last_modified_ms": object.info.version.modified_ms,
            "form": storage.form.as_str(),
            "reason": storage.reason,
            "stored_bytes": storage.stored_bytes,
            "bases": storage.bases,
            "settings": handle.row.settings,
            "extents": extents,
            "blobs": blobs,
            "reads": self.read.counts.told(object.info.version.id, now_ms()),
        });
        if let Some(encryption) = &object.info.facts.encryption {
            told["encryption"] = json!(encryption.algorithm);
        }
        Ok(Some(told))
    }

    /// What a blob holds, by its id in hex; `None` when the catalog does not know it.
    ///
    /// # Errors
    /// [`EngineError`] when catalog or backend fail, or the blob is damaged.
    pub async fn inspect(&self, blob: &str) -> Result<Option<Value>, EngineError> {
        let Some(id) = BlobId::parse(blob) else { return Ok(None) };
        let Some(row) = self.catalog.blobs(&[BlobKey(id.0)]).await?.into_iter().next() else { return Ok(None) };
        if let Some(original) = &row.original {
            return Ok(Some(original_json(&row, original)));
        }
        let buckets = self.catalog.buckets().await?;
        let bucket = buckets.into_iter().find(|bucket| bucket.id == row.bucket);
        let handle = match bucket {
            Some(bucket) => self.buckets.bucket(&bucket.name).await?,
            None => None,
        };
        let key = handle.as_ref().map(|handle| handle.key_of(&row)).transpose()?.flatten();
        let manifest = self.blobs.manifest(&row, key.as_deref()).await?;
        let mut value = self.blob_json(&row, &manifest).await?;
        let mut segments = Vec::new();
        for index in 0..manifest.root.segments {
            let segment = self.blobs.segment(&manifest, index).await?;
            segments.push(json!({
                "index": index,
                "plain_len": segment.plain_len,
                "stored_len": segment.stored_len,
                "coding": segment.coding.name(),
                "footprint_ranges": segment.footprint.len(),
                "footprint_bytes": segment.footprint.iter().map(|run| u64::from(run.len)).sum::<u64>(),
            }));
        }
        value["segments"] = json!(segments);
        value["bucket"] = json!(manifest.root.facts.bucket);
        value["key"] = json!(manifest.root.facts.key);
        value["view"] = manifest
            .root
            .view
            .iter()
            .map(|range| json!({"blob": range.blob.to_string(), "offset": range.offset, "len": range.len}))
            .collect();
        value["fan_in"] = json!(self.catalog.fan_in(row.id).await?);
        if row.pack {
            let members = packs::contents::members_of(&manifest.root.facts.facts)?;
            value["members"] = members
                .iter()
                .map(|member| json!({"key": member.key, "version": member.version, "offset": member.offset, "len": member.len}))
                .collect();
        }
        Ok(Some(value))
    }

    /// How many segments of a blob have which coding.
    async fn codings_json(&self, manifest: &Manifest) -> Result<Value, EngineError> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for index in 0..manifest.root.segments {
            *counts.entry(self.blobs.segment(manifest, index).await?.coding.name()).or_default() += 1;
        }
        Ok(json!(counts))
    }

    async fn blob_json(&self, row: &BlobRow, manifest: &Manifest) -> Result<Value, EngineError> {
        Ok(json!({
            "id": manifest.id.to_string(),
            "backend": row.backend,
            "inline": row.inline.is_some(),
            "copy": row.copy.map(|copy| BlobId(copy.0).to_string()),
            "form": if manifest.root.is_whole() { "whole" } else { "delta" },
            "sealed": manifest.suite() == Suite::Aes256Gcm,
            "plain_len": row.plain_len,
            "stored_len": row.stored_len,
            "payload_len": manifest.root.payload_len,
            "segments": manifest.root.segments,
            "bytes_by_coding": row.forms,
        }))
    }

    /// Takes the gauges of buckets away that are gone, or no longer among the named ones.
    fn forget_gauges(&self, keeps: impl Fn(&str) -> bool) {
        let metrics = &self.metrics;
        for gauges in [
            &metrics.bucket_objects,
            &metrics.bucket_logical_bytes,
            &metrics.bucket_noncurrent_versions,
            &metrics.bucket_delete_markers,
            &metrics.bucket_noncurrent_bytes,
            &metrics.bucket_stored_bytes,
        ] {
            gauges.retain(&keeps);
        }
    }

    fn set_gauges(&self, name: &str, bucket: &BucketStats) {
        let metrics = &self.metrics;
        metrics.bucket_objects.with_label_values(&[name]).set(gauge(bucket.objects));
        metrics.bucket_logical_bytes.with_label_values(&[name]).set(gauge(bucket.logical_bytes));
        metrics.bucket_noncurrent_versions.with_label_values(&[name]).set(gauge(bucket.noncurrent_versions));
        metrics.bucket_delete_markers.with_label_values(&[name]).set(gauge(bucket.delete_markers));
        for (kind, bytes) in [("logical", bucket.noncurrent_bytes), ("stored", bucket.noncurrent_stored)] {
            metrics.bucket_noncurrent_bytes.with_label_values(&[name, kind]).set(gauge(bytes));
        }
        let stored = &bucket.stored;
        for (kind, bytes) in [
            ("whole", bucket.whole_bytes.saturating_sub(stored.base_only)),
            ("delta", bucket.delta_bytes),
            ("base_only", stored.base_only),
            ("overhead", stored.overhead + stored.tombstoned),
        ] {
            metrics.bucket_stored_bytes.with_label_values(&[name, kind]).set(gauge(bytes));
        }
    }
}

/// Buckets with gauges of their own: the configured ones, and the oldest others. Every replica
/// finds the same ones, and a bucket keeps its name until it is gone.
fn named_buckets<'r>(configured: &'r BTreeSet<String>, rows: &'r [Bucket]) -> BTreeSet<&'r str> {
    let mut others: Vec<&Bucket> = rows.iter().filter(|row| !configured.contains(&row.name)).collect();
    others.sort_by_key(|row| row.id);
    let others = others.into_iter().take(NAMED_BUCKETS_MAX).map(|row| row.name.as_str());
    configured.iter().map(String::as_str).chain(others).collect()
}

/// What stored content would take as it came, less what it takes. Blobs that only wait for their
/// deletion are no part of it, and originals lie where they lay. Negative where more is kept than
/// came: small objects with second copies, say.
fn saved_bytes(stats: &BucketStats) -> i64 {
    let came = i128::from(stats.logical_bytes) + i128::from(stats.noncurrent_bytes) + i128::from(stats.upload_bytes);
    let taken = i128::from(total_of(&stats.stored) - stats.stored.tombstoned) + i128::from(stats.foreign_bytes);
    i64::try_from(came - taken).unwrap_or(i64::MAX)
}

fn bucket_json(stats: &BucketStats) -> Value {
    let stored = &stats.stored;
    json!({
        "objects": stats.objects,
        "logical_bytes": stats.logical_bytes,
        "noncurrent_versions": stats.noncurrent_versions,
        "noncurrent_bytes": stats.noncurrent_bytes,
        "noncurrent_stored_bytes": stats.noncurrent_stored,
        "delete_markers": stats.delete_markers,
        "uploads": stats.uploads,
        "upload_bytes": stats.upload_bytes,
        "stored": {
            "exclusive": stored.exclusive,
            "shared": stored.shared,
            "base_only": stored.base_only,
            "overhead": stored.overhead,
            "tombstoned": stored.tombstoned,
            "inline": stored.inline,
            "total": total_of(stored),
        },
        "saved_bytes": saved_bytes(stats),
        "base_copies": stats.copies,
        "base_copy_bytes": stats.copy_bytes,
        "foreign_bytes": stats.foreign_bytes,
        "whole_bytes": stats.whole_bytes,
        "delta_bytes": stats.delta_bytes,
        "bytes_by_coding": stats.forms,
    })
}

/// Content that lies in an original: where.
fn original_json(row: &BlobRow, original: &Original) -> Value {
    json!({
        "id": BlobId(row.id.0).to_string(),
        "form": "foreign",
        "plain_len": row.plain_len,
        "store": row.backend,
        "original": { "key": original.key, "etag": original.etag, "offset": original.offset, "owned": original.owned },
    })
}

fn total_of(stored: &StoredBytes) -> u64 {
    stored.exclusive + stored.shared + stored.base_only + stored.overhead + stored.tombstoned + stored.inline
}

fn add(total: &mut BucketStats, bucket: &BucketStats) {
    total.objects += bucket.objects;
    total.logical_bytes += bucket.logical_bytes;
    total.noncurrent_versions += bucket.noncurrent_versions;
    total.noncurrent_bytes += bucket.noncurrent_bytes;
    total.noncurrent_stored += bucket.noncurrent_stored;
    total.delete_markers += bucket.delete_markers;
    total.uploads += bucket.uploads;
    total.upload_bytes += bucket.upload_bytes;
    total.foreign_bytes += bucket.foreign_bytes;
    total.copies += bucket.copies;
    total.copy_bytes += bucket.copy_bytes;
    total.whole_bytes += bucket.whole_bytes;
    total.delta_bytes += bucket.delta_bytes;
    let (sum, stored) = (&mut total.stored, &bucket.stored);
    sum.exclusive += stored.exclusive;
    sum.shared += stored.shared;
    sum.base_only += stored.base_only;
    sum.overhead += stored.overhead;
    sum.tombstoned += stored.tombstoned;
    sum.inline += stored.inline;
    total.forms += bucket.forms;
}

/// What a blob's content was before, as its manifest tells it. A pack's facts are its members.
fn conversions_json(manifest: &Manifest) -> Value {
    let facts: Value = serde_json::from_slice(&manifest.root.facts.facts).unwrap_or_default();
    json!(conversions_of(&facts))
}

/// How a blob's bases were chosen, as its manifest tells it.
fn choices_json(manifest: &Manifest) -> Value {
    let facts: Value = serde_json::from_slice(&manifest.root.facts.facts).unwrap_or_default();
    json!(accounts_of(&facts))
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_buckets_have_gauges_of_their_own_and_configured_ones_always() {
        let row = |id: i64| -> Bucket {
            let made = json!({"id": id, "name": format!("b{id}"), "owner": "", "created_ms": 0, "settings": {}});
            serde_json::from_value(made).unwrap()
        };
        let rows: Vec<Bucket> = (1..=NAMED_BUCKETS_MAX as i64 + 20).rev().map(row).collect();
        let configured = BTreeSet::from(["b110".to_owned(), "not-made-yet".to_owned()]);
        let named = named_buckets(&configured, &rows);
        assert_eq!(named.len(), NAMED_BUCKETS_MAX + 2);
        assert!(named.contains("b1") && named.contains("b100") && named.contains("b110"));
        assert!(!named.contains("b101") && !named.contains("b120"));
    }
}
