//! Collecting what nobody needs: dying blobs by their tombstones, blobs of closed epochs that no row knows, uploads that
//! nobody went on with. Blobs die by tombstones, never by a listing (E6).

use super::{
    CatalogConfig, Engine, EngineError,
    blobs::blob_name,
    copies::{copy_name, parse_copy_name},
    jobs::JobRun,
    keyring::keyset_name,
    now_ms, parse_blob_id, safety,
};
use catalog::{BlobKey, CatalogError, Tombstone};
use futures::StreamExt;
use object_format::BlobId;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};
use storage_backends::Backend;

/// Tombstones taken from the catalog at a time.
const BATCH: usize = 256;
/// Listed names that are looked up in the catalog at a time.
const LOOKUP: usize = 512;
/// How long a completed upload is remembered, so that Complete is idempotent.
const COMPLETED_UPLOADS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// How the job `gc` is asked for.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CollectParameters {
    /// Do not wait for the grace of blobs that died lately.
    pub(super) now: bool,
}

/// What the job `uploads` did.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Expiry {
    /// Uploads aborted because of their age.
    expired: u64,
    /// Completed ones that are not remembered any more.
    forgotten: u64,
}

/// What one collection did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Collection {
    /// Blobs purged from tombstones.
    pub deleted_blobs: u64,
    /// Their stored bytes, those of second copies among them.
    pub reclaimed_bytes: u64,
    /// Tombstoned blobs left alone because they are being read.
    pub pinned_blobs: u64,
    /// Blobs and second copies of closed epochs that no row knew.
    pub orphan_blobs: u64,
    /// Their stored bytes.
    pub orphan_bytes: u64,
    /// Blobs that could not be deleted; they are tried again.
    pub errors: u64,
}

impl Engine {
    /// Collects: tombstones older than the grace (all when `now`), blobs of closed epochs without a row. One collection at a time in the
    /// whole deployment; this waits for one that is under way.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog or a listing fails; what was done until then stays done.
    pub async fn collect(self: &Arc<Self>, now: bool) -> Result<Collection, EngineError> {
        let report = self.run_job("gc", json!(CollectParameters { now })).await?;
        serde_json::from_value(report).map_err(|error| EngineError::Other(error.to_string()))
    }

    /// The job `gc`.
    pub(super) async fn collect_once(
        &self,
        run: &JobRun,
        parameters: CollectParameters,
    ) -> Result<Collection, EngineError> {
        let mut report = Collection::default();
        let outcome = self.collect_into(run, parameters.now, &mut report).await;
        self.metrics.gc_runs_total.inc();
        self.metrics.gc_deleted_blobs_total.inc_by(report.deleted_blobs + report.orphan_blobs);
        self.metrics.gc_reclaimed_bytes_total.inc_by(report.reclaimed_bytes + report.orphan_bytes);
        self.metrics.gc_errors_total.inc_by(report.errors + u64::from(outcome.is_err()));
        outcome.map(|()| report)
    }

    async fn collect_into(&self, run: &JobRun, now: bool, report: &mut Collection) -> Result<(), EngineError> {
        let owned = self.owned_backends().await?;
        report.errors += (self.blobs.backends().count() - owned.len()) as u64;
        self.close_stale_writers().await?;
        self.purge_tombstones(run, now, &owned, report).await?;
        self.sweep_closed_epochs(run, &owned, report).await
    }

    /// The job `uploads`.
    pub(super) async fn expire_uploads_once(&self, run: &JobRun) -> Result<Expiry, EngineError> {
        let mut report = Expiry::default();
        let before = now_ms() - millis(self.config.upload_age_max);
        loop {
            let stale = self.catalog.stale_uploads(before, BATCH).await?;
            if stale.is_empty() {
                break;
            }
            for upload in stale {
                run.check()?;
                let aborted = self.catalog.abort(upload.bucket, &upload.key, upload.id, self.epoch()).await?;
                report.expired += u64::from(aborted);
                run.progress(report.expired, None);
            }
        }
        let kept = now_ms() - millis(COMPLETED_UPLOADS_KEPT);
        report.forgotten = self.catalog.forget_completed_uploads(kept).await?;
        Ok(report)
    }

    async fn purge_tombstones(
        &self,
        run: &JobRun,
        now: bool,
        owned: &BTreeSet<String>,
        report: &mut Collection,
    ) -> Result<(), EngineError> {
        // Pins are of one process. Where others may be reading, only time tells that they are done (docs/guide/replicas.md).
        let alone = matches!(self.config.catalog, CatalogConfig::Sqlite);
        let grace = if now && alone { 0 } else { millis(self.config.gc_grace) };
        let grace = grace.max(self.safety.purge_delay_ms());
        let mut passed: HashSet<BlobKey> = HashSet::new();
        loop {
            // A purged delta may turn its bases into tombstones: go on until a round finds nothing new.
            let limit = passed.len() + BATCH;
            let tombstones = self.catalog.tombstones(now_ms() - grace + 1, limit).await?;
            let fresh: Vec<Tombstone> =
                tombstones.into_iter().filter(|tombstone| passed.insert(tombstone.blob)).collect();
            if fresh.is_empty() {
                return Ok(());
            }
            // No catalog that can be made again may need what is purged: its end must be in the shipped journal (E21).
            self.safety.ship_once().await?;
            for tombstone in fresh {
                run.check()?;
                run.progress(report.deleted_blobs, None);
                let is_stored = tombstone.original.is_none() && !tombstone.inline;
                if is_stored && !owned.contains(&tombstone.backend) {
                    report.errors += 1;
                    continue;
                }
                match self.purge(&tombstone).await {
                    Ok(true) => {
                        passed.remove(&tombstone.blob);
                        report.deleted_blobs += 1;
                        report.reclaimed_bytes += tombstone.stored_len * (1 + u64::from(tombstone.copy.is_some()));
                    }
                    Ok(false) => report.pinned_blobs += 1,
                    Err(error) => {
                        tracing::warn!(%error, blob = %BlobId(tombstone.blob.0), "a dead blob could not be deleted; it is tried again");
                        report.errors += 1;
                    }
                }
            }
        }
    }

    /// Deletes a dying blob, bytes first; `false` while it is being read.
    async fn purge(&self, tombstone: &Tombstone) -> Result<bool, EngineError> {
        let id = BlobId(tombstone.blob.0);
        let Some(_claim) = self.pins.purge(id) else { return Ok(false) };
        if let Some(original) = &tombstone.original {
            self.originals.release(&tombstone.backend, original).await?;
        } else if !tombstone.inline {
            let backend = self.blobs.backend(&tombstone.backend)?;
            backend.delete(&blob_name(id)?).await?;
            if let Some(copy) = tombstone.copy {
                backend.delete(&copy_name(id, copy)?).await?;
            }
        }
        match self.catalog.purge(tombstone.blob, now_ms()).await {
            Ok(()) | Err(CatalogError::Conflict) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Blobs of epochs that are closed are complete or garbage: no writer can commit them any more (E4).
    async fn sweep_closed_epochs(
        &self,
        run: &JobRun,
        owned: &BTreeSet<String>,
        report: &mut Collection,
    ) -> Result<(), EngineError> {
        let floor = safety::sweep_floor(&*self.catalog).await?.map_or(0, |floor| floor.epoch);
        let closed = self.catalog.closed_epochs().await?;
        let closed: HashSet<u32> = closed.into_iter().filter(|epoch| *epoch > floor).collect();
        if closed.is_empty() {
            return Ok(());
        }
        let keysets = self.named_keysets().await?;
        for (_, backend) in self.blobs.backends().filter(|(name, _)| owned.contains(*name)) {
            let mut listing = backend.list("blobs/").ready_chunks(LOOKUP);
            while let Some(listed) = listing.next().await {
                run.check()?;
                let mut candidates = Vec::new();
                for blob in listed {
                    let blob = blob?;
                    match blob.name.as_str().strip_prefix("blobs/").and_then(parse_blob_id) {
                        Some(id) if closed.contains(&id.epoch()) => candidates.push((id, blob.stored_len)),
                        _ => {}
                    }
                }
                let ids: Vec<BlobKey> = candidates.iter().map(|(id, _)| BlobKey(id.0)).collect();
                let known: HashSet<BlobKey> = self.catalog.blobs(&ids).await?.into_iter().map(|row| row.id).collect();
                for (id, stored_len) in candidates.into_iter().filter(|(id, _)| !known.contains(&BlobKey(id.0))) {
                    backend.delete(&blob_name(id)?).await?;
                    report.orphan_blobs += 1;
                    report.orphan_bytes += stored_len;
                }
            }
            self.sweep_copies(run, &**backend, &closed, report).await?;
            let mut listing = backend.list("keyset/");
            while let Some(blob) = listing.next().await {
                run.check()?;
                let blob = blob?;
                let id = blob.name.as_str().strip_prefix("keyset/").and_then(parse_blob_id);
                if let Some(id) = id.filter(|id| closed.contains(&id.epoch()) && !keysets.contains(id)) {
                    backend.delete(&keyset_name(id)?).await?;
                    report.orphan_blobs += 1;
                    report.orphan_bytes += blob.stored_len;
                }
            }
        }
        Ok(())
    }

    /// The same of second copies: one that its blob's row does not name is garbage once its writer's epoch is closed.
    async fn sweep_copies(
        &self,
        run: &JobRun,
        backend: &dyn Backend,
        closed: &HashSet<u32>,
        report: &mut Collection,
    ) -> Result<(), EngineError> {
        let mut listing = backend.list("copies/").ready_chunks(LOOKUP);
        while let Some(listed) = listing.next().await {
            run.check()?;
            let mut candidates = Vec::new();
            for listed in listed {
                let listed = listed?;
                match parse_copy_name(&listed.name) {
                    Some((blob, copy)) if closed.contains(&copy.epoch()) => {
                        candidates.push((BlobKey(blob.0), BlobKey(copy.0), listed));
                    }
                    _ => {}
                }
            }
            let ids: Vec<BlobKey> = candidates.iter().map(|(blob, ..)| *blob).collect();
            let rows = self.catalog.blobs(&ids).await?;
            let named: HashSet<_> = rows.into_iter().filter_map(|row| Some((row.id, row.copy?))).collect();
            for (_, _, listed) in candidates.into_iter().filter(|(blob, copy, _)| !named.contains(&(*blob, *copy))) {
                backend.delete(&listed.name).await?;
                report.orphan_blobs += 1;
                report.orphan_bytes += listed.stored_len;
            }
        }
        Ok(())
    }

    async fn named_keysets(&self) -> Result<HashSet<BlobId>, EngineError> {
        let buckets = self.catalog.buckets().await?;
        Ok(buckets.iter().flat_map(super::report::keysets_of).filter_map(|copy| parse_blob_id(&copy.id)).collect())
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}
