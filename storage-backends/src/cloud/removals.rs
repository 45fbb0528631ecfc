//! Removals that are asked for at the same time travel together: a store that takes lists of names
//! (S3's `DeleteObjects`, Azure's batch) is asked once for as many as it takes.
//!
//! ```text
//! delete ─► queue ─► the first one goes alone; what waits meanwhile goes as one list ─► each is told what became of its own
//! ```
//!
//! An answer about a single name of a list says too little to be believed (I10): what a list did
//! not remove is asked for alone.

use super::{
    bucket::Bucket,
    queue::{LISTS_AT_ONCE, Removals},
    refusal::failure,
};
use crate::{BackendError, ErrorKind, Op, Result};
use futures::{StreamExt, stream};
use object_store::path::Path;
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};
use tokio::sync::oneshot;

/// Names that are asked for alone at a time, when a list did not remove them.
const ALONE_AT_ONCE: usize = 16;

impl Bucket {
    /// Removes the object at `path`, if there is one, together with others where the store can.
    pub(crate) async fn remove(self: &Arc<Self>, path: Path) -> Result<()> {
        let Some(removals) = self.removals.as_ref().filter(|one| !one.is_refused.load(Ordering::Relaxed)) else {
            return self.delete(&path).await;
        };
        let (answer, removed) = oneshot::channel();
        let needs_worker = {
            let mut queue = removals.queue();
            queue.waiting.push((path, answer));
            let is_full = queue.waiting.len() >= removals.names_max && queue.workers < LISTS_AT_ONCE;
            let needs_worker = queue.workers == 0 || is_full;
            queue.workers += usize::from(needs_worker);
            needs_worker
        };
        if needs_worker {
            let worker = Worker(self.clone());
            tokio::spawn(async move { worker.work().await });
        }
        let gone = |_| Err(BackendError::new(ErrorKind::Transient, "the removal was given up"));
        removed.await.unwrap_or_else(gone)
    }

    /// Asks for a list; which of its names are gone.
    async fn remove_together(&self, removals: &Removals, paths: &[Path]) -> Result<HashSet<Path>> {
        let ask = || async {
            let asked = stream::iter(paths.to_vec()).map(Ok).boxed();
            let told: Vec<object_store::Result<Path>> = removals.store.delete_stream(asked).collect().await;
            let mut gone = HashSet::new();
            for answer in told {
                match answer {
                    Ok(path) => drop(gone.insert(path)),
                    Err(error) => match failure("remove", &format!("{} objects", paths.len()), error) {
                        // The store's answer to all of it.
                        (Some(refused), error) => {
                            if matches!(refused.status.as_u16(), 400 | 404 | 405 | 411 | 501) {
                                removals.is_refused.store(true, Ordering::Relaxed);
                                tracing::info!(%error, "the store takes no lists of removals: each is asked for alone");
                                return Ok(gone);
                            }
                            return Err(error);
                        }
                        (None, error) if error.is_transient() => return Err(error),
                        // About a single name.
                        (None, error) => tracing::debug!(%error, "a list did not remove an object"),
                    },
                }
            }
            Ok(gone)
        };
        match self.repeats.get() {
            Some(repeats) => repeats.repeat(Op::Delete, ask).await,
            None => ask().await,
        }
    }
}

/// Takes from the queue until it is empty.
struct Worker(Arc<Bucket>);

impl Worker {
    async fn work(&self) {
        let Some(removals) = &self.0.removals else { return };
        loop {
            // Whoever asks in this moment comes along.
            tokio::task::yield_now().await;
            let next: Vec<_> = {
                let mut queue = removals.queue();
                let len = queue.waiting.len().min(removals.names_max);
                queue.waiting.drain(..len).collect()
            };
            if next.is_empty() {
                return;
            }
            self.remove(removals, next).await;
        }
    }

    async fn remove(&self, removals: &Removals, next: Vec<(Path, oneshot::Sender<Result<()>>)>) {
        let bucket = &self.0;
        let paths: Vec<Path> = next.iter().map(|(path, _)| path.clone()).collect();
        let gone = match paths.as_slice() {
            [_] => Ok(HashSet::new()),
            paths => bucket.remove_together(removals, paths).await,
        };
        // Whoever asked may be gone.
        match gone {
            Ok(gone) => {
                let (told, alone): (Vec<_>, Vec<_>) = next.into_iter().partition(|(path, _)| gone.contains(path));
                for (_, answer) in told {
                    let _ = answer.send(Ok(()));
                }
                let one_by_one = |(path, answer): (Path, oneshot::Sender<_>)| async move {
                    let _ = answer.send(bucket.delete(&path).await);
                };
                stream::iter(alone).for_each_concurrent(ALONE_AT_ONCE, one_by_one).await;
            }
            Err(error) => {
                for (_, answer) in next {
                    let again = BackendError::new(error.kind(), error.to_string());
                    let _ = answer.send(Err(again.with_retry_after(error.retry_after())));
                }
            }
        }
    }
}

impl Drop for Worker {
    /// One that never came to its end: what waits for it hears so.
    fn drop(&mut self) {
        if let Some(removals) = &self.0.removals {
            let mut queue = removals.queue();
            queue.workers -= 1;
            if queue.workers == 0 {
                queue.waiting.clear();
            }
        }
    }
}
