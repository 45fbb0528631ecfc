//! Hooks on their way to the catalog: told after the acknowledgement, written in batches. They are
//! advice: what is lost here costs a base that is not found, nothing else.

use catalog::{BlobHooks, Catalog};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Blobs whose hooks may wait; what comes when it is full is not remembered.
const QUEUE_MAX: usize = 4096;
/// Blobs whose hooks are written together.
const BATCH_MAX: usize = 256;
/// How long the first one waits for company.
const COMPANY: Duration = Duration::from_millis(100);

/// Takes hooks and writes them when there is time.
pub(crate) struct HookQueue {
    queue: mpsc::Sender<BlobHooks>,
    state: Arc<State>,
    writing: TaskTracker,
    closing: CancellationToken,
}

#[derive(Default)]
struct State {
    waiting: AtomicUsize,
    written: Notify,
}

impl HookQueue {
    /// Starts the task that writes.
    pub(crate) fn start(catalog: Arc<dyn Catalog>) -> Self {
        let (queue, hooks) = mpsc::channel(QUEUE_MAX);
        let (state, writing, closing) = (Arc::<State>::default(), TaskTracker::new(), CancellationToken::new());
        writing.spawn(write(catalog, hooks, state.clone(), closing.clone()));
        writing.close();
        Self { queue, state, writing, closing }
    }

    /// Remembers what a blob resembles, soon. Never waits.
    pub(crate) fn tell(&self, hooks: BlobHooks) {
        self.state.waiting.fetch_add(1, Ordering::Relaxed);
        if self.queue.try_send(hooks).is_err() {
            self.state.done(1);
        }
    }

    /// Waits until everything told before is written or given up.
    pub(crate) async fn settle(&self) {
        loop {
            let written = self.state.written.notified();
            if self.state.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            written.await;
        }
    }

    /// Writes what is left and ends.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.writing.wait().await;
    }
}

impl State {
    fn done(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        self.written.notify_waiters();
    }
}

async fn write(
    catalog: Arc<dyn Catalog>,
    mut hooks: mpsc::Receiver<BlobHooks>,
    state: Arc<State>,
    closing: CancellationToken,
) {
    loop {
        let first = tokio::select! {
           biased;
            first = hooks.recv() => first,
            () = closing.cancelled() => None,
        };
        let Some(first) = first else { return };
        tokio::select! {
            biased;
            () = tokio::time::sleep(COMPANY) => {}
            () = closing.cancelled() => {}
        }
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(next) = hooks.try_recv()
        {
            batch.push(next);
        }
        let count = batch.len();
        if let Err(error) = catalog.remember_hooks(batch).await {
            tracing::warn!(%error, blobs = count, "hooks could not be written: content search misses these blobs");
        }
        state.done(count);
    }
}
