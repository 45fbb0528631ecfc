//! This process as a writer: its epoch, the lease on it, and what happens when it loses it (E4,
//! E23).
//!
//! Where several processes share a catalog, one that is not heard of for
//! [`EngineConfig::writer_lease`](crate::EngineConfig) may have its epoch closed by another one's
//! collector. From then on nothing it began can be committed: content carries the epoch in its
//! blob's id, and its commit is bound to that epoch, not to the current one. The process answers
//! 503 to those writes, takes a new epoch and goes on.

use crate::{Engine, error::EngineError};
use catalog::{BlobKey, Catalog, CatalogError, NewBlob};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// Between signs of life, at most; a tenth of the lease otherwise.
const HEARTBEAT_MAX: Duration = Duration::from_secs(5);

/// The epoch this process writes in.
pub(crate) struct Writer {
    epoch: AtomicU32,
    /// Somebody was told that it is closed.
    suspected: Notify,
}

impl Writer {
    /// Takes a new epoch.
    pub(crate) async fn open(catalog: &dyn Catalog) -> Result<Self, EngineError> {
        Ok(Self { epoch: AtomicU32::new(catalog.open_epoch().await?), suspected: Notify::new() })
    }
}

impl Engine {
    /// The epoch of what begins now.
    pub(crate) fn epoch(&self) -> u32 {
        self.writer.epoch.load(Ordering::Acquire)
    }

    /// The epoch a commit of new blobs is bound to: that of the oldest of them, because a blob of a
    /// closed epoch may have been collected already. Without blobs, the current one.
    pub(crate) fn epoch_of(&self, blobs: &[NewBlob]) -> u32 {
        blobs.iter().map(|blob| epoch_in(blob.row.id)).min().unwrap_or_else(|| self.epoch())
    }

    /// Looks at an outcome: one that says that the epoch is closed makes this process look for
    /// itself at once.
    pub(crate) fn note_fenced<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        if matches!(outcome, Err(EngineError::Fenced)) {
            self.writer.suspected.notify_one();
        }
        outcome
    }

    /// Gives signs of life until the process ends, and takes a new epoch when the old one was
    /// closed meanwhile.
    pub(crate) async fn keep_writing(self: Arc<Self>) {
        let pause = (self.config.writer_lease / 10).min(HEARTBEAT_MAX);
        loop {
            tokio::select! {
                () = self.stopping.cancelled() => return,
                () = self.writer.suspected.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            let epoch = self.epoch();
            match self.catalog.heartbeat(epoch).await {
                Ok(()) => {}
                Err(CatalogError::Fenced) => match self.catalog.open_epoch().await {
                    Ok(next) => {
                        self.writer.epoch.store(next, Ordering::Release);
                        self.metrics.writer_epochs_lost_total.inc();
                        tracing::warn!(
                            epoch,
                            next,
                            "this process was not heard of and lost its writer epoch; it has a new one"
                        );
                    }
                    Err(error) => {
                        tracing::warn!(%error, epoch, "the writer epoch is closed and no new one can be had yet")
                    }
                },
                Err(error) => tracing::warn!(%error, "the catalog did not take a sign of life"),
            }
        }
    }

    /// Closes the epochs of writers that are not heard of any more.
    pub(crate) async fn close_stale_writers(&self) -> Result<(), EngineError> {
        let lease_ms = i64::try_from(self.config.writer_lease.as_millis()).unwrap_or(i64::MAX / 4);
        let closed = self.catalog.close_stale_epochs(lease_ms).await?;
        if !closed.is_empty() {
            tracing::warn!(?closed, "writers that were not heard of are fenced");
        }
        Ok(())
    }

    /// Gives the epoch up at the end of the process: what it left behind is garbage at once.
    pub(crate) async fn close_epoch(&self) {
        if let Err(error) = self.catalog.close_epochs(&[self.epoch()]).await {
            tracing::warn!(%error, "the writer epoch stays open until its lease is over");
        }
    }
}

/// The epoch a blob was made in.
fn epoch_in(blob: BlobKey) -> u32 {
    object_format::BlobId(blob.0).epoch()
}
