//! MD5 of bodies that arrive at the same time, side by side: one body's MD5 cannot be computed in
//! parallel, and is a good part of a plain upload's work.

use crate::{error::EngineError, resources::pool::CodecPool};
use bytes::Bytes;
use hash_lanes::{Md5, update_all};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::oneshot;

/// Shorter bytes are hashed where they are: a hop to another thread costs more than lanes save.
pub(crate) const LANES_LEN_MIN: usize = 64 << 10;

/// Bytes that each stream advances by before those that came meanwhile may join.
const STEP: usize = 32 << 10;

/// Hashes streams together.
pub(crate) struct Md5Lanes {
    pool: Arc<CodecPool>,
    lanes: usize,
    queue: Mutex<Queue>,
    /// Most streams that advanced together.
    widest: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Stretch>,
    /// Threads that take from it until it is empty, or are about to.
    workers: usize,
}

/// Bytes that a stream's MD5 takes next.
struct Stretch {
    md5: Md5,
    bytes: Bytes,
    /// How many it has taken.
    taken: usize,
    answer: oneshot::Sender<Md5>,
}

impl Md5Lanes {
    /// On the threads of a pool.
    pub(crate) fn new(pool: Arc<CodecPool>) -> Self {
        let lanes = hash_lanes::lanes();
        Self { pool, lanes, queue: Mutex::default(), widest: AtomicUsize::new(0) }
    }

    /// Feeds a stream its next bytes, together with others that are there; waits for none to come.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the thread ended.
    pub(crate) async fn update(self: &Arc<Self>, md5: Md5, bytes: Bytes) -> Result<Md5, EngineError> {
        let (answer, hashed) = oneshot::channel();
        if self.enqueue(Stretch { md5, bytes, taken: 0, answer }) {
            let mut worker = Worker { lanes: self.clone(), has_ended: false };
            let pool = self.pool.clone();
            drop(tokio::spawn(async move { pool.run(move |_| worker.work()).await }));
        }
        hashed.await.map_err(|_| EngineError::Other("hashing was stopped".into()))
    }

    /// Puts it into the queue; whether it needs one more worker.
    fn enqueue(&self, stretch: Stretch) -> bool {
        let mut queue = self.queue();
        queue.waiting.push_back(stretch);
        let needs_one = queue.workers == 0 || queue.waiting.len() >= self.lanes;
        queue.workers += usize::from(needs_one);
        needs_one
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it holds the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Advances what waits, until nothing does.
struct Worker {
    lanes: Arc<Md5Lanes>,
    /// Its end is counted already.
    has_ended: bool,
}

impl Worker {
    fn work(&mut self) {
        let mut streams: Vec<Stretch> = Vec::with_capacity(self.lanes.lanes);
        while self.join(&mut streams) {
            self.lanes.widest.fetch_max(streams.len(), Ordering::Relaxed);
            let next = |stream: &mut Stretch| {
                let end = stream.bytes.len().min(stream.taken + STEP);
                std::mem::replace(&mut stream.taken, end)..end
            };
            let mut steps: Vec<(&mut Md5, &[u8])> = Vec::with_capacity(streams.len());
            for stream in &mut streams {
                let range = next(stream);
                steps.push((&mut stream.md5, &stream.bytes[range]));
            }
            update_all(&mut steps);
            let (done, under_way): (Vec<_>, Vec<_>) =
                streams.into_iter().partition(|stream| stream.taken == stream.bytes.len());
            streams = under_way;
            for Stretch { md5, answer, .. } in done {
                // Whoever asked may be gone.
                let _ = answer.send(md5);
            }
            streams.retain(|stream| !stream.answer.is_closed());
        }
    }

    /// Fills the lanes from the queue. With nothing to do this worker ends: `false`, and the next
    /// stretch finds that by the same lock.
    fn join(&mut self, streams: &mut Vec<Stretch>) -> bool {
        let mut queue = self.lanes.queue();
        let free = (self.lanes.lanes - streams.len()).min(queue.waiting.len());
        streams.extend(queue.waiting.drain(..free));
        if streams.is_empty() {
            queue.workers -= 1;
            self.has_ended = true;
        }
        !self.has_ended
    }
}

impl Drop for Worker {
    /// A worker that never came to run, or panicked: what waits for it hears so.
    fn drop(&mut self) {
        if !self.has_ended {
            let mut queue = self.lanes.queue();
            queue.workers -= 1;
            if queue.workers == 0 {
                queue.waiting.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{metrics::Metrics, resources::pool::PoolKind};
    use futures::future::join_all;

    fn lanes() -> Arc<Md5Lanes> {
        let pool = CodecPool::new(2, PoolKind::Hash, &Metrics::new()).expect("threads");
        Arc::new(Md5Lanes::new(Arc::new(pool)))
    }

    fn alone(bytes: &[u8]) -> [u8; 16] {
        let mut md5 = Md5::new();
        md5.update(bytes);
        md5.finalize()
    }

    #[tokio::test]
    async fn streams_that_arrive_together_advance_together_and_get_their_own_digests() {
        let lanes = lanes();
        // The threads are busy while these arrive.
        let gate = Arc::new(std::sync::Barrier::new(3));
        let busy: Vec<_> = (0..2)
            .map(|_| {
                let (pool, gate) = (lanes.pool.clone(), gate.clone());
                tokio::spawn(async move { pool.run(move |_| gate.wait().is_leader()).await })
            })
            .collect();
        let texts: Vec<Bytes> = (0..7).map(|n: u8| vec![n; 100_000 + usize::from(n) * 999].into()).collect();
        let hashing = texts.iter().map(|text| {
            let (lanes, text) = (lanes.clone(), text.clone());
            async move { lanes.update(Md5::new(), text).await }
        });
        let hashing = tokio::spawn(join_all(hashing.collect::<Vec<_>>()));
        while lanes.queue().waiting.len() < texts.len() {
            tokio::task::yield_now().await;
        }
        tokio::task::spawn_blocking(move || gate.wait()).await.expect("all came");
        for (md5, text) in hashing.await.expect("no panic").into_iter().zip(&texts) {
            assert_eq!(md5.expect("hashed").finalize(), alone(text));
        }
        join_all(busy).await;
        assert_eq!(lanes.widest.load(Ordering::Relaxed), texts.len().min(lanes.lanes), "the lanes were used");
        assert_eq!(lanes.queue().workers, 0);
    }

    #[tokio::test]
    async fn a_client_that_goes_away_leaves_the_others_whole() {
        let lanes = lanes();
        for _ in 0..20 {
            let text = Bytes::from(vec![7; 300_000]);
            let gone = tokio::spawn({
                let (lanes, text) = (lanes.clone(), text.clone());
                async move { lanes.update(Md5::new(), text).await }
            });
            let stays = lanes.update(Md5::new(), text.clone());
            gone.abort();
            assert_eq!(stays.await.expect("hashed").finalize(), alone(&text));
        }
        while lanes.queue().workers > 0 {
            tokio::task::yield_now().await;
        }
    }
}
