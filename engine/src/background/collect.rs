//! Collecting what nobody needs: dying blobs by their tombstones, files of closed epochs that no
//! row knows ([`super::sweep`]), uploads that nobody went on with. Blobs die by tombstones, never
//! by a listing (E6), and nothing is removed on the catalog's word alone: it must be shown to be
//! the newest state of its store first.

use crate::{
    Engine,
    background::{copies::copy_name, jobs::JobRun},
    blobs::open::blob_name,
    error::EngineError,
    recovery,
    resources::clock::now_ms,
};
use catalog::{BlobKey, CatalogError, Tombstone, UnixMs};
use futures::{StreamExt, stream};
use object_format::BlobId;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

/// Tombstones taken from the catalog at a time.
const BATCH: usize = 1024;
/// Files that are removed at a time: their directories are flushed, and their rows committed,
/// together.
pub(crate) const AT_ONCE: usize = 64;
/// How long a completed upload is remembered, so that Complete is idempotent.
const COMPLETED_UPLOADS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// How the job `gc` is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CollectParameters {
    /// Do not wait for the grace of blobs that died lately.
    pub now: bool,
    /// Remove at once what sweeps found and put on the list.
    pub empty_trash: bool,
    /// Take everything off that list and leave it where it is; nothing is collected.
    pub undo: bool,
    /// Look through every closed epoch again, not only those that were not looked through.
    pub sweep: bool,
}

/// What the job `uploads` did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Expiry {
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
    /// Files of closed epochs that no row knew, removed.
    pub orphan_blobs: u64,
    /// Their stored bytes.
    pub orphan_bytes: u64,
    /// Files of closed epochs that no row knows, found now and put on the list of what is to be
    /// removed.
    #[serde(default)]
    pub trashed_files: u64,
    /// Their stored bytes.
    #[serde(default)]
    pub trashed_bytes: u64,
    /// Files that were taken off that list and stay.
    #[serde(default)]
    pub kept_files: u64,
    /// Files on that list now.
    #[serde(default)]
    pub trash_files: u64,
    /// Their stored bytes.
    #[serde(default)]
    pub trash_bytes: u64,
    /// Blobs that could not be deleted; they are tried again.
    pub errors: u64,
}

impl Engine {
    /// Collects: tombstones older than the grace (all when `now`), files of closed epochs without a
    /// row. One collection at a time in the whole deployment; this waits for one that is under way.
    ///
    /// # Errors
    /// [`EngineError`] when the catalog or a listing fails, or when catalog and store contradict
    /// each other; what was done until then stays done.
    pub async fn collect(self: &Arc<Self>, now: bool) -> Result<Collection, EngineError> {
        self.collect_as(CollectParameters { now, ..CollectParameters::default() }).await
    }

    /// The same as `parameters` say.
    ///
    /// # Errors
    /// As [`Engine::collect`].
    pub async fn collect_as(self: &Arc<Self>, parameters: CollectParameters) -> Result<Collection, EngineError> {
        let report = self.run_job("gc", json!(parameters)).await?;
        serde_json::from_value(report).map_err(|error| EngineError::Other(error.to_string()))
    }

    /// The job `gc`.
    pub(crate) async fn collect_once(
        &self,
        run: &JobRun,
        parameters: CollectParameters,
    ) -> Result<Collection, EngineError> {
        let mut report = Collection::default();
        let outcome = match parameters.undo {
            true => self.keep_trash(run, &mut report).await,
            false => self.collect_into(run, parameters, &mut report).await,
        };
        if let Ok(sum) = self.catalog.trash_sum().await {
            (report.trash_files, report.trash_bytes) = (sum.files, sum.stored_bytes);
            self.metrics.gc_trash_files.set(i64::try_from(sum.files).unwrap_or(i64::MAX));
            self.metrics.gc_trash_bytes.set(i64::try_from(sum.stored_bytes).unwrap_or(i64::MAX));
        }
        self.metrics.gc_runs_total.inc();
        self.metrics.gc_deleted_blobs_total.inc_by(report.deleted_blobs + report.orphan_blobs);
        self.metrics.gc_reclaimed_bytes_total.inc_by(report.reclaimed_bytes + report.orphan_bytes);
        self.metrics.gc_errors_total.inc_by(report.errors + u64::from(outcome.is_err()));
        outcome.map(|()| report)
    }

    async fn collect_into(
        &self,
        run: &JobRun,
        parameters: CollectParameters,
        report: &mut Collection,
    ) -> Result<(), EngineError> {
        let owned = self.owned_backends().await?;
        report.errors += (self.blobs.backends().count() - owned.len()) as u64;
        self.or_refuse(self.may_delete().await)?;
        self.close_stale_writers().await?;
        let due = Due::of(self, parameters).await?;
        // Whoever has nothing to remove asks for no blob.
        if !due.anything() {
            return Ok(());
        }
        self.or_refuse(self.agree_to_delete(run).await)?;
        self.purge_tombstones(run, due.delay_ms, &owned, report).await?;
        self.sweep_closed_epochs(run, &due.epochs, &owned, report).await?;
        self.empty_trash(run, due.trash_before, &owned, report).await
    }

    /// That the catalog is whole, and the newest state of its store.
    async fn agree_to_delete(&self, run: &JobRun) -> Result<(), EngineError> {
        self.soundness.proven(run.token()).await?;
        self.may_delete().await
    }

    /// Counts and logs that nothing is removed, when that is what came out.
    pub(super) fn or_refuse<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        outcome.inspect_err(|error| {
            self.metrics.gc_refusals_total.inc();
            tracing::error!(%error, "the collector removes nothing");
        })
    }

    /// The job `uploads`.
    pub(crate) async fn expire_uploads_once(&self, run: &JobRun) -> Result<Expiry, EngineError> {
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
        delay_ms: i64,
        owned: &BTreeSet<String>,
        report: &mut Collection,
    ) -> Result<(), EngineError> {
        let mut passed: HashSet<BlobKey> = HashSet::new();
        loop {
            // A purged delta turns its bases into tombstones of this moment: go on until a round
            // finds nothing new.
            let limit = passed.len() + BATCH;
            let tombstones = self.catalog.tombstones(now_ms() - delay_ms + 1, limit).await?;
            let fresh: Vec<Tombstone> =
                tombstones.into_iter().filter(|tombstone| passed.insert(tombstone.blob)).collect();
            if fresh.is_empty() {
                return Ok(());
            }
            // No catalog that can be made again may need what is purged: its end must be in the
            // shipped journal (E21).
            self.safety.ship_once().await?;
            let purges = fresh.into_iter().map(|tombstone| async move {
                let purged = match run.check() {
                    Ok(()) => self.purge_one(&tombstone, owned).await,
                    Err(stopped) => Err(stopped),
                };
                (tombstone, purged)
            });
            let mut purges = stream::iter(purges).buffer_unordered(AT_ONCE);
            while let Some((tombstone, purged)) = purges.next().await {
                match purged {
                    Ok(true) => {
                        passed.remove(&tombstone.blob);
                        report.deleted_blobs += 1;
                        report.reclaimed_bytes += tombstone.stored_len * (1 + u64::from(tombstone.copy.is_some()));
                        run.progress(report.deleted_blobs, None);
                    }
                    Ok(false) => report.pinned_blobs += 1,
                    Err(error @ EngineError::Stopped(_)) => return Err(error),
                    Err(error) => {
                        tracing::warn!(%error, blob = %BlobId(tombstone.blob.0), "a dead blob could not be deleted; it is tried again");
                        report.errors += 1;
                    }
                }
            }
        }
    }

    /// [`Engine::purge`] of what may be deleted.
    async fn purge_one(&self, tombstone: &Tombstone, owned: &BTreeSet<String>) -> Result<bool, EngineError> {
        if tombstone.needed {
            return Err(EngineError::Integrity(
                "the catalog calls it dead, and something in the catalog needs it: it stays".into(),
            ));
        }
        let is_stored = tombstone.original.is_none() && !tombstone.inline;
        if is_stored && !owned.contains(&tombstone.backend) {
            return Err(EngineError::Unavailable(format!("backend {:?} does not say whose it is", tombstone.backend)));
        }
        self.may_delete().await?;
        self.purge(tombstone).await
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
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

/// What waits for a collection.
struct Due {
    /// Tombstones of this age go.
    delay_ms: i64,
    has_tombstones: bool,
    /// Closed epochs to look through.
    epochs: BTreeSet<u32>,
    /// Files on the list since before this go.
    trash_before: UnixMs,
    has_trash: bool,
}

impl Due {
    async fn of(engine: &Engine, parameters: CollectParameters) -> Result<Self, EngineError> {
        let catalog = &engine.catalog;
        // Pins are of one process. Where others may be reading, only time tells that they are done
        // (docs/guide/replicas.md).
        let grace = if parameters.now && engine.alone { 0 } else { millis(engine.config.gc_grace) };
        let delay_ms = grace.max(engine.safety.purge_delay_ms());
        let floor = recovery::sweep_floor(&**catalog).await?.map_or(0, |floor| floor.epoch);
        let epochs = match parameters.sweep {
            true => catalog.closed_epochs().await?,
            false => catalog.unswept_epochs().await?,
        };
        let oldest_ms = catalog.trash_sum().await?.oldest_ms;
        let full = engine.blobs.backends().any(|(name, _)| engine.is_full(name));
        let trash_before = match parameters.empty_trash || full {
            true => UnixMs::MAX,
            false => now_ms() - millis(engine.config.gc_trash),
        };
        Ok(Self {
            delay_ms,
            has_tombstones: !catalog.tombstones(now_ms() - delay_ms + 1, 1).await?.is_empty(),
            epochs: epochs.into_iter().filter(|epoch| *epoch > floor).collect(),
            trash_before,
            has_trash: oldest_ms.is_some_and(|oldest| oldest < trash_before),
        })
    }

    fn anything(&self) -> bool {
        self.has_tombstones || self.has_trash || !self.epochs.is_empty()
    }
}
