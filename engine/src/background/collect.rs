//! Collecting what nobody needs: dying blobs by their tombstones, files of closed epochs that no
//! row knows ([`super::sweep`]). Blobs die by tombstones, never by a listing (E6), and
//! nothing is removed on the catalog's word alone: it must be shown to be the newest state of its
//! store first.
//!
//! A blob is kept for `gc.grace` after its last reference went, or for `backup.retention` where
//! that is longer and backups are made: a backup may still name it.

use crate::{
    background::{
        collection::Collection,
        jobs::run::JobRun,
        remnants::Remnants,
        soundness::Soundness,
        sweep::{Sweeper, or_refuse},
    },
    blobs::{
        copy_name::copy_name,
        open::{Blobs, blob_name},
        originals::Originals,
        pins::Pins,
    },
    deployment::writer::Writer,
    error::EngineError,
    metrics::Metrics,
    recovery::{self, Safety},
    resources::{
        clock::{millis, now_ms},
        disks::Disks,
    },
};
use catalog::{BlobKey, Catalog, CatalogError, Tombstone, UnixMs};
use futures::{StreamExt, stream};
use object_format::BlobId;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

/// Tombstones taken from the catalog at a time.
const BATCH: usize = 1024;
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

/// Deletes what nobody needs.
pub(crate) struct Collector {
    /// How long a dead blob is kept, at least.
    pub(crate) grace: Duration,
    /// How long a file without a row stays on the trash list.
    pub(crate) trash_kept: Duration,
    pub(crate) alone: bool,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) originals: Arc<Originals>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) soundness: Arc<Soundness>,
    pub(crate) remnants: Arc<Remnants>,
    pub(crate) sweeper: Sweeper,
    pub(crate) writer: Arc<Writer>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Collector {
    /// The job `gc`.
    pub(crate) async fn collect_once(
        &self,
        run: &JobRun,
        parameters: CollectParameters,
    ) -> Result<Collection, EngineError> {
        let mut report = Collection::default();
        let outcome = match parameters.undo {
            true => self.sweeper.keep_trash(run, &mut report).await,
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
        or_refuse(&self.metrics, self.safety.check_not_refused())?;
        // Runs by the clock ask the stores for nothing while there is nothing to remove: requests
        // are money. Who asks by hand also learns whether the catalog is the newest.
        let by_the_clock = parameters == CollectParameters::default();
        if by_the_clock && !Due::of(self, parameters).await?.anything() && !self.writer.others_are_stale().await? {
            return Ok(());
        }
        let owned = self.safety.owned_backends().await?;
        report.errors += (self.blobs.backends().count() - owned.len()) as u64;
        or_refuse(&self.metrics, self.safety.may_delete().await)?;
        self.writer.close_stale().await?;
        let due = Due::of(self, parameters).await?;
        // Whoever has nothing to remove asks for no blob.
        if !due.anything() {
            return Ok(());
        }
        or_refuse(&self.metrics, self.agree_to_delete(run).await)?;
        self.purge_tombstones(run, due.delay_ms, &owned, report).await?;
        self.sweeper.sweep_closed_epochs(run, &due.epochs, &owned, report).await?;
        self.sweeper.empty_trash(run, due.trash_before, &owned, report).await?;
        if let Err(error) = self.remnants.overwrite_due().await {
            tracing::warn!(%error, "free space of the catalog is not overwritten for now");
            report.errors += 1;
        }
        Ok(())
    }

    /// That the catalog is whole, and the newest state of its store.
    async fn agree_to_delete(&self, run: &JobRun) -> Result<(), EngineError> {
        self.soundness.proven(run.token()).await?;
        self.safety.may_delete().await
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
            let tombstones = self.catalog.tombstones(dead_before(delay_ms), limit).await?;
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
            let mut purges = stream::iter(purges).buffer_unordered(self.sweeper.at_once(owned));
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
                        tracing::warn!(%error, blob = %BlobId(tombstone.blob.0), "a dead blob could not be deleted for now");
                        report.errors += 1;
                    }
                }
            }
        }
    }

    /// [`Collector::purge`] of what may be deleted.
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
        self.safety.may_delete().await?;
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

/// Tombstones from before this moment have waited so long. Whoever does not wait takes all of them:
/// one is from the future where the clock was set back since.
fn dead_before(delay_ms: i64) -> UnixMs {
    if delay_ms == 0 { UnixMs::MAX } else { now_ms() - delay_ms + 1 }
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
    /// Whether the catalog's free space is to be overwritten.
    has_remnants: bool,
}

impl Due {
    async fn of(collector: &Collector, parameters: CollectParameters) -> Result<Self, EngineError> {
        let catalog = &collector.catalog;
        // Pins are of one process. Where others may be reading, only time tells that they are done
        // (docs/guide/replicas.md).
        let grace = if parameters.now && collector.alone { 0 } else { millis(collector.grace) };
        let delay_ms = grace.max(collector.safety.purge_delay_ms());
        let floor = recovery::sweep_floor(&**catalog).await?.map_or(0, |floor| floor.epoch);
        let epochs = match parameters.sweep {
            true => catalog.closed_epochs().await?,
            false => catalog.unswept_epochs().await?,
        };
        let oldest_ms = catalog.trash_sum().await?.oldest_ms;
        let full = collector.blobs.backends().any(|(name, _)| collector.disks.is_full(name));
        let trash_before = match parameters.empty_trash || full {
            true => UnixMs::MAX,
            false => now_ms() - millis(collector.trash_kept),
        };
        Ok(Self {
            delay_ms,
            has_tombstones: !catalog.tombstones(dead_before(delay_ms), 1).await?.is_empty(),
            epochs: epochs.into_iter().filter(|epoch| *epoch > floor).collect(),
            trash_before,
            has_trash: oldest_ms.is_some_and(|oldest| oldest < trash_before),
            has_remnants: collector.remnants.is_due().await?,
        })
    }

    fn anything(&self) -> bool {
        self.has_tombstones || self.has_trash || self.has_remnants || !self.epochs.is_empty()
    }
}
