//! This process as a writer: its epoch, the lease on it, and what happens when it loses it (E4,
//! E23).
//!
//! Where several processes share a catalog, one that is not heard of for
//! [`EngineConfig::writer_lease`](crate::EngineConfig) may have its epoch closed by another one's
//! collector, or by its job `leftovers`. From then on nothing it began can be committed: content
//! carries the epoch in its blob's id, and its commit is bound to that epoch, not to the current
//! one. The process answers 503 to those writes, takes a new epoch and goes on.

use crate::{
    error::EngineError,
    metrics::Metrics,
    resources::{
        ids::{Moments, ascending},
        machine::random,
    },
};
use catalog::{BlobKey, Catalog, CatalogError, Committed, Content, NewBlob, PutCommit, VersionId};
use object_format::BlobId;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Between signs of life, at most; a tenth of the lease otherwise.
const HEARTBEAT_MAX: Duration = Duration::from_secs(5);

/// This process as a writer of the catalog.
pub(crate) struct Writer {
    catalog: Arc<dyn Catalog>,
    lease: Duration,
    epoch: AtomicU32,
    moments: Moments,
    /// Somebody was told that the epoch is closed.
    suspected: Notify,
    /// Commits under way: they end before the process does.
    commits: TaskTracker,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// Takes a new epoch.
    pub(crate) async fn open(
        catalog: Arc<dyn Catalog>,
        lease: Duration,
        metrics: Arc<Metrics>,
    ) -> Result<Self, EngineError> {
        let epoch = AtomicU32::new(catalog.open_epoch().await?);
        Ok(Self {
            catalog,
            lease,
            epoch,
            moments: Moments::default(),
            suspected: Notify::new(),
            commits: TaskTracker::new(),
            metrics,
        })
    }

    /// The epoch of what begins now.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// An id for a new blob of the present epoch.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the operating system has no random bytes.
    pub(crate) fn blob_id(&self) -> Result<BlobId, EngineError> {
        Ok(BlobId::new(self.epoch(), random()?))
    }

    /// The same for what comes in great numbers, small content and adopted objects: it sorts behind
    /// those that were made before (`ids.rs`).
    ///
    /// # Errors
    /// As [`Writer::blob_id`].
    pub(crate) fn small_blob_id(&self) -> Result<BlobId, EngineError> {
        Ok(BlobId::new(self.epoch(), ascending(self.moments.next())?))
    }

    /// The epoch a commit of new blobs is bound to: that of the oldest of them, because a blob of a
    /// closed epoch may have been collected already. Without blobs, the current one.
    pub(crate) fn epoch_of(&self, blobs: &[NewBlob]) -> u32 {
        blobs.iter().map(|blob| epoch_in(blob.row.id)).min().unwrap_or_else(|| self.epoch())
    }

    /// Runs a commit to its end even when the caller's future is dropped.
    pub(crate) fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, EngineError>> + Send {
        // Behind a pointer before it is anybody's: what becomes a task is moved ten times, and all
        // of a commit is kilobytes.
        let work = self.commits.spawn(Box::pin(work));
        async move {
            let lost = |error| Err(EngineError::Other(format!("a commit ended without an answer: {error}")));
            self.note_fenced(work.await.unwrap_or_else(lost))
        }
    }

    /// Whether no commit is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.commits.is_empty()
    }

    /// Waits until every commit under way has ended; none begins any more.
    pub(crate) async fn finish(&self) {
        self.commits.close();
        self.commits.wait().await;
    }

    /// Looks at an outcome: one that says that the epoch is closed makes this process look for
    /// itself at once.
    pub(crate) fn note_fenced<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        if matches!(outcome, Err(EngineError::Fenced)) {
            self.suspected.notify_one();
        }
        outcome
    }

    /// Commits a version; an unknown outcome is read back by version id before it is believed (I9).
    pub(crate) async fn commit_put(&self, commit: PutCommit) -> Result<Committed, CatalogError> {
        tracing::trace!(target: "path", "commit_put()");
        let (bucket, key, id) = (commit.bucket, commit.key.clone(), commit.id);
        match self.catalog.put(commit).await {
            Err(CatalogError::Unknown(why)) => self.read_back(bucket, &key, id, why).await,
            outcome => outcome,
        }
    }

    pub(crate) async fn read_back(
        &self,
        bucket: catalog::BucketId,
        key: &str,
        id: VersionId,
        why: String,
    ) -> Result<Committed, CatalogError> {
        match self.catalog.version(bucket, key, id).await {
            Ok(Some(Content { version, .. })) => {
                Ok(Committed { seq: version.seq, modified_ms: version.modified_ms, named: version.named })
            }
            // Not there now does not mean that it never comes: the client is told to try again, and
            // the blob stays.
            Ok(None) | Err(_) => Err(CatalogError::Unknown(why)),
        }
    }

    /// Gives signs of life until the process ends, and takes a new epoch when the old one was
    /// closed meanwhile.
    pub(crate) async fn keep_writing(self: Arc<Self>, stopping: CancellationToken) {
        let pause = (self.lease / 10).min(HEARTBEAT_MAX);
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = self.suspected.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            let epoch = self.epoch();
            match self.catalog.heartbeat(epoch).await {
                Ok(()) => {}
                Err(CatalogError::Fenced) => match self.catalog.open_epoch().await {
                    Ok(next) => {
                        self.epoch.store(next, Ordering::Release);
                        self.metrics.writer_epochs_lost_total.inc();
                        tracing::warn!(
                            epoch,
                            next,
                            "this process was silent too long and lost its writer epoch; it has a new one"
                        );
                    }
                    Err(error) => {
                        tracing::warn!(%error, epoch, "the writer epoch is closed and no new one is available yet")
                    }
                },
                Err(error) => tracing::warn!(%error, "the catalog did not accept this writer's heartbeat"),
            }
        }
    }

    /// Whether some writer is not heard of any more. Closes nothing.
    pub(crate) async fn others_are_stale(&self) -> Result<bool, EngineError> {
        let writers = self.catalog.open_writers().await?;
        Ok(writers.iter().any(|writer| writer.silent_ms > self.lease_ms()))
    }

    fn lease_ms(&self) -> i64 {
        i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX / 4)
    }

    /// Closes the epochs of writers that are not heard of any more.
    pub(crate) async fn close_stale(&self) -> Result<(), EngineError> {
        let closed = self.catalog.close_stale_epochs(self.lease_ms()).await?;
        if !closed.is_empty() {
            tracing::warn!(?closed, "silent writers are fenced: their epochs are closed");
        }
        Ok(())
    }

    /// Gives the epoch up at the end of the process: what it left behind is garbage at once.
    pub(crate) async fn close(&self) {
        if let Err(error) = self.catalog.close_epochs(&[self.epoch()]).await {
            tracing::warn!(%error, "the writer epoch stays open until its lease is over");
        }
    }
}

/// The epoch a blob was made in.
fn epoch_in(blob: BlobKey) -> u32 {
    BlobId(blob.0).epoch()
}
