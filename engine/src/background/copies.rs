//! Second copies (E8): one damaged file must not cost the hundreds of objects that differ from it,
//! or lie in it.
//!
//! ```text
//! catalog: blobs that `base_copies` deltas or 17 objects need, without a copy ─► stored bytes to a second name ─► verified there ─► one row says so
//! ```
//!
//! A copy is the same stored bytes under `copies/BLOB-COPY` in the same backend. Its id is its
//! writer's, like a blob's: one that no row came to name is garbage as soon as that writer's epoch
//! is closed (E4), and one that is damaged is replaced by another under a new name, never mended.
//! Readers turn to it where the blob itself is damaged ([`Reads::Either`]), and the scrub writes
//! the blob anew from it (docs/decisions/0015-base-copies.md).

use crate::{
    background::{
        jobs::run::JobRun,
        looks::Looks,
        scrub::{pace::ScrubPace, verify::Verifier},
    },
    blobs::{
        caches::CacheBytes,
        copy_name::copy_name,
        open::{Blobs, Reads, blob_name, damaged},
        pins::Pins,
    },
    bucket::{BucketHandle, Buckets},
    config::{OBJECTS_PER_FILE_MAX, SecondCopies},
    deployment::{keyring::random, writer::Writer},
    error::EngineError,
    metrics::Metrics,
    recovery::Safety,
    resources::{budget::MemoryBudget, disks::Disks, pool::CodecPool},
};
use catalog::{BlobKey, BlobRow, BlobState, BucketId, Catalog, CatalogError, CopyCommit};
use object_format::BlobId;
use serde::Serialize;
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};
use storage_backends::{Backend, BlobName};

/// Blobs taken from the catalog at a time: every page counts the edges or extents behind it.
const PAGE: usize = 1000;
/// What a blob on its way from one name to the other holds of the memory budget.
const ON_THE_WAY_BYTES: u64 = 8 << 20;
/// How often the blob is written before a restoration is left to the next scrub.
const RESTORE_ATTEMPTS: usize = 3;

/// What the job `copies` did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Copying {
    /// Copies made.
    copied: u64,
    /// Their stored bytes.
    bytes: u64,
    /// Blobs that were not copied because what was read is not what was stored; the scrub finds out
    /// what it is.
    damaged: u64,
    /// Blobs that could not be copied for another reason; the next run tries again.
    errors: u64,
}

/// How an attempt to copy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// The row names the copy.
    Made,
    /// What was read and written is not what the catalog and the blob's own tables say, and was
    /// removed again: what is wrong, in words.
    Damaged(String),
    /// The blob died, or somebody else copied it.
    Overtaken,
}

/// Makes second copies, and blobs from them.
pub(crate) struct Copier {
    pub(crate) base_copies: u64,
    pub(crate) second_copies: SecondCopies,
    pub(crate) bytes_per_second: Option<u64>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) buckets: Arc<Buckets>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) budget: Arc<MemoryBudget>,
    pub(crate) hash_pool: Arc<CodecPool>,
    pub(crate) looks: Arc<Looks>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Copier {
    /// The job `copies`.
    pub(crate) async fn copy_bases_once(self: &Arc<Self>, run: &JobRun) -> Result<Copying, EngineError> {
        if self.base_copies == 0 && self.second_copies == SecondCopies::None {
            return Ok(Copying::default());
        }
        // A look counts every edge and every extent.
        let seq = self.catalog.last_seq().await?;
        if self.looks.are_copied(seq) {
            return Ok(Copying::default());
        }
        let mut found = 0;
        let mut round = Round {
            copier: self,
            run,
            pace: ScrubPace::new(self.bytes_per_second, run.token().clone()),
            buckets: HashMap::new(),
            report: Copying::default(),
        };
        let mut after = None;
        loop {
            let page = match self.base_copies {
                0 => Vec::new(),
                fan_in_min => self.catalog.to_copy(fan_in_min, after, PAGE).await?,
            };
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            found += page.len();
            round.copy(page).await?;
        }
        let names: Vec<String> = self.blobs.backends().map(|(name, _)| name.to_owned()).collect();
        for backend in names.iter().filter(|name| self.keeps_second_copies(name)) {
            let mut after = None;
            loop {
                let page = self.catalog.to_copy_shared(backend, OBJECTS_PER_FILE_MAX + 1, after, PAGE).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.id);
                found += page.len();
                round.copy(page).await?;
            }
        }
        if found == 0 {
            self.looks.note_copied(seq);
        }
        Ok(round.report)
    }

    /// Whether a backend keeps twice what many objects need.
    pub(crate) fn keeps_second_copies(&self, backend: &str) -> bool {
        match self.second_copies {
            SecondCopies::Local => self.disks.is_local(backend),
            SecondCopies::All => true,
            SecondCopies::None => false,
        }
    }

    /// Writes a blob's stored bytes under a new second name, verifies what lies there, and lets the
    /// row name it in the place of the copy that `row` has. I9: the copy is durable before the row,
    /// and what no row names is removed.
    ///
    /// # Errors
    /// [`EngineError`] when catalog or backend fail; the row is as it was.
    pub(crate) async fn copy_blob(
        &self,
        bucket: &BucketHandle,
        row: &BlobRow,
        pace: &ScrubPace,
    ) -> Result<Copied, EngineError> {
        let id = BlobId(row.id.0);
        let Some(_pin) = self.pins.pin([id]) else { return Ok(Copied::Overtaken) };
        // What named it may be out of date: a blob that was purged before it was pinned is not a
        // damaged one.
        let now = self.catalog.blobs(&[row.id]).await?.pop();
        if now.is_none_or(|now| now.state != BlobState::Live) {
            return Ok(Copied::Overtaken);
        }
        let epoch = self.writer.epoch();
        let copy = BlobKey(BlobId::new(epoch, random()?).0);
        let backend = self.blobs.backend(&row.backend)?;
        let name = copy_name(id, copy)?;
        let written = self.write_and_verify(bucket, row, copy, &name, pace).await;
        let damage = match written {
            Ok(None) => None,
            Ok(Some(what)) => Some(what),
            Err(error) => {
                discard(&**backend, &name).await;
                return Err(error);
            }
        };
        let count = |result: &str| self.metrics.base_copies_made_total.with_label_values(&[result]).inc();
        if let Some(what) = damage {
            discard(&**backend, &name).await;
            count("damaged");
            return Ok(Copied::Damaged(what));
        }
        let named = self.catalog.set_copy(CopyCommit { blob: row.id, replaces: row.copy, copy, epoch }).await;
        match named {
            Ok(()) => {}
            // It may have gone through, now or later: what the row does not name is the
            // collector's.
            Err(CatalogError::Unknown(why)) => {
                let now = self.catalog.blobs(&[row.id]).await?.pop();
                if now.and_then(|now| now.copy) != Some(copy) {
                    return Err(CatalogError::Unknown(why).into());
                }
            }
            Err(CatalogError::Conflict) => {
                discard(&**backend, &name).await;
                return Ok(Copied::Overtaken);
            }
            Err(error) => {
                discard(&**backend, &name).await;
                return self.writer.note_fenced(Err(error.into()));
            }
        }
        match row.copy {
            None => count("made"),
            Some(old) => {
                count("replaced");
                discard(&**backend, &copy_name(id, old)?).await;
            }
        }
        Ok(Copied::Made)
    }

    /// What is wrong with the copy that was written, in words; `None` when it is what was stored
    /// once.
    async fn write_and_verify(
        &self,
        bucket: &BucketHandle,
        row: &BlobRow,
        copy: BlobKey,
        name: &BlobName,
        pace: &ScrubPace,
    ) -> Result<Option<String>, EngineError> {
        let backend = self.blobs.backend(&row.backend)?;
        {
            let _permit = self.budget.acquire(ON_THE_WAY_BYTES).await?;
            let from = blob_name(BlobId(row.id.0))?;
            match backend.head(&from).await? {
                Some(len) if len == row.stored_len => {}
                Some(len) => return Ok(Some(format!("it has {len} bytes instead of {}", row.stored_len))),
                None => return Ok(Some("it is missing".to_owned())),
            }
            let Some(body) = backend.get(&from, 0..row.stored_len).await? else {
                return Ok(Some("it is missing".to_owned()));
            };
            backend.put(name, body, Some(row.stored_len)).await?;
        }
        let row = BlobRow { copy: Some(copy), ..row.clone() };
        let blobs = self.blobs.afresh(Reads::Copy, CacheBytes::NONE);
        let found =
            Verifier { catalog: &*self.catalog, budget: &self.budget, hash_pool: &self.hash_pool, blobs: &blobs, pace }
                .verify(bucket, &row)
                .await?;
        Ok(found.map(|damage| damage.what))
    }

    /// Writes a damaged blob anew under its own name from its second copy, which the caller has
    /// just found well. A blob is written once under its id and never changed (I1): what it gets
    /// back are the bytes that were written there, so nobody can tell but by the damage that is
    /// gone. The caller verifies what lies there then.
    ///
    /// # Errors
    /// [`EngineError`], in words, when the copy cannot be read, or the backend does not let the
    /// damaged bytes be removed or written; the blob may be missing under its own name then, and
    /// the copy is there.
    pub(crate) async fn restore_blob(&self, row: &BlobRow) -> Result<(), EngineError> {
        let id = BlobId(row.id.0);
        let copy = row.copy.ok_or_else(|| damaged("it has no second copy"))?;
        if !self.safety.owned_backends().await?.contains(&row.backend) {
            return Err(EngineError::Unavailable(format!(
                "backend {:?} does not say whose it is: nothing is removed from it",
                row.backend
            )));
        }
        let backend = self.blobs.backend(&row.backend)?;
        let (from, to) = (copy_name(id, copy)?, blob_name(id)?);
        let _permit = self.budget.acquire(ON_THE_WAY_BYTES).await?;
        let mut attempt = 1;
        loop {
            // The copy is open before anything is removed.
            let body = backend.get(&from, 0..row.stored_len).await?;
            let body = body.ok_or_else(|| damaged("its second copy is missing"))?;
            backend.delete(&to).await?;
            match backend.put(&to, body, Some(row.stored_len)).await {
                Ok(_) => break,
                Err(error) if attempt == RESTORE_ATTEMPTS => return Err(error.into()),
                Err(error) => tracing::warn!(%error, blob = %id, "a blob could not be rewritten; trying again"),
            }
            attempt += 1;
        }
        // Another process's collector may have purged it meanwhile: what is dead stays so.
        let now = self.catalog.blobs(&[row.id]).await?.pop();
        if now.is_none_or(|now| now.state != BlobState::Live) {
            backend.delete(&to).await?;
        }
        Ok(())
    }
}

/// One run of the job `copies`.
struct Round<'e> {
    copier: &'e Copier,
    run: &'e JobRun,
    pace: ScrubPace,
    buckets: HashMap<BucketId, Option<BucketHandle>>,
    report: Copying,
}

impl Round<'_> {
    async fn bucket(&mut self, id: BucketId) -> Result<Option<BucketHandle>, EngineError> {
        Ok(match self.buckets.entry(id) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(self.copier.buckets.bucket_by_id(id).await?).clone(),
        })
    }

    async fn copy(&mut self, page: Vec<BlobRow>) -> Result<(), EngineError> {
        for row in page {
            self.run.check()?;
            let Some(bucket) = self.bucket(row.bucket).await? else { continue };
            let mut copied = self.copier.copy_blob(&bucket, &row, &self.pace).await;
            if matches!(copied, Err(EngineError::NoKey(_))) {
                // Another process has opened an epoch since the bucket was asked for.
                self.buckets.remove(&row.bucket);
                let Some(bucket) = self.bucket(row.bucket).await? else { continue };
                copied = self.copier.copy_blob(&bucket, &row, &self.pace).await;
            }
            match copied {
                Ok(Copied::Made) => {
                    self.report.copied += 1;
                    self.report.bytes += row.stored_len;
                }
                Ok(Copied::Overtaken) => {}
                Ok(Copied::Damaged(what)) => {
                    self.report.damaged += 1;
                    tracing::error!(blob = %BlobId(row.id.0), what, "a damaged blob was not copied; a scrub lists affected objects");
                }
                Err(error @ (EngineError::Unavailable(_) | EngineError::Fenced | EngineError::Stopped(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    self.report.errors += 1;
                    self.copier.metrics.base_copies_made_total.with_label_values(&["failed"]).inc();
                    tracing::warn!(%error, blob = %BlobId(row.id.0), "a blob could not be copied; the next run tries again");
                }
            }
            self.run.progress(self.report.copied, None);
        }
        Ok(())
    }
}

/// Removes a copy that no row names. One that cannot be removed now is removed by the collector
/// once its writer's epoch is closed.
async fn discard(backend: &dyn Backend, name: &BlobName) {
    if let Err(error) = backend.delete(name).await {
        tracing::warn!(%error, %name, "an unreferenced copy could not be removed; it is left to the collector");
    }
}
