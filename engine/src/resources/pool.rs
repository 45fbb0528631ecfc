//! The codec pool: CPU work leaves the async threads here and nowhere else.

use crate::{
    error::EngineError,
    metrics::{Histogram, IntGauge, Metrics},
    resources::{buffers::Shelf, machine::is_made_up},
};
use bytes::Bytes;
use crypto::{Digest as _, Sha256};
use delta_codec::{Decoder, Encoder, planes, whole};
use futures::{Stream, TryStreamExt as _};
use std::{
    cell::{Cell, RefCell},
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;

/// What a codec thread keeps between jobs.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Encoder with its work buffers.
    pub(crate) encoder: Encoder,
    /// Decoder with its work buffers.
    pub(crate) decoder: Decoder,
    /// Room to decode into for comparison.
    pub(crate) plain: Vec<u8>,
}

/// Memory that one codec thread's encoder and decoder take: what jobs of the usual effort leave.
pub(crate) const CODEC_THREAD_BYTES: u64 = 12 << 20;
/// A thread that keeps more than this after a job gives all of it back: zstd's strongest levels
/// take several times as much, and the thread would keep it for good.
const KEPT_BYTES_MAX: u64 = 2 * CODEC_THREAD_BYTES;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    /// What this thread has added to [`KEPT_BYTES`].
    static KEPT_HERE: Cell<u64> = const { Cell::new(0) };
}

/// Bytes that all threads together keep between two jobs.
static KEPT_BYTES: AtomicU64 = AtomicU64::new(0);

/// Bytes that threads keep between two jobs: work buffers and contexts of their codecs.
pub(crate) fn kept_bytes() -> u64 {
    KEPT_BYTES.load(Ordering::Relaxed)
}

impl Scratch {
    /// Bytes that the calling thread keeps: these, and what `delta_codec` keeps beside them.
    fn memory_bytes(&self) -> u64 {
        let here = self.encoder.memory_bytes() + self.decoder.memory_bytes() + self.plain.capacity();
        (here + whole::memory_bytes() + planes::memory_bytes()) as u64
    }

    /// Takes note of what is kept after a job, and gives it all back if that is too much.
    fn settle(&mut self) {
        if self.memory_bytes() > KEPT_BYTES_MAX {
            *self = Self::default();
            whole::forget();
            planes::forget();
        }
        let now = self.memory_bytes();
        let before = KEPT_HERE.replace(now);
        // Modulo 2^64: the sum over all threads is what they keep.
        KEPT_BYTES.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// What a pool is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// Encoding, decoding, sealing.
    Codec,
    /// Hashing bodies as they arrive.
    Hash,
    /// Writing bodies that wait on disk, and reading them back.
    Spool,
}

/// Threads for encoding, decoding, sealing; for hashing; or for spooling.
pub(crate) struct CodecPool {
    /// `None` on a machine that is made up: jobs run where they are asked for.
    threads: Option<rayon::ThreadPool>,
    /// Smoothed time jobs wait before they run, in microseconds.
    queue_us: AtomicU64,
    busy: IntGauge,
    /// Time that jobs ran, all together.
    worked_us: Arc<AtomicU64>,
    /// Buffers for what is decoded.
    shelf: Arc<Shelf>,
    /// Where waiting times go; only the codec pool's are shown.
    queue_seconds: Option<Histogram>,
}

/// Content up to this many bytes is encoded, hashed and decoded where it is: the way to another
/// thread and back takes longer.
pub(crate) const HERE_LEN_MAX: u64 = 8 << 10;

impl CodecPool {
    /// A pool of `threads` threads.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the threads cannot be started.
    pub(crate) fn new(threads: usize, kind: PoolKind, metrics: &Metrics) -> Result<Self, EngineError> {
        let (name, state) = match kind {
            PoolKind::Codec => ("codec", "busy"),
            PoolKind::Hash => ("hash", "hashing"),
            PoolKind::Spool => ("spool", "spooling"),
        };
        let start = || {
            rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(move |index| format!("{name}-{index}"))
                .build()
                .map_err(|error| EngineError::Other(format!("cannot start codec threads: {error}")))
        };
        Ok(Self {
            threads: (!is_made_up()).then(start).transpose()?,
            queue_us: AtomicU64::new(0),
            worked_us: Arc::default(),
            shelf: Arc::default(),
            busy: metrics.codec_threads.with_label_values(&[state]),
            queue_seconds: (kind == PoolKind::Codec).then(|| metrics.codec_queue_seconds.clone()),
        })
    }

    /// How many threads it has.
    pub(crate) fn threads(&self) -> usize {
        self.threads.as_ref().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// Where its decoded segments find buffers.
    pub(crate) fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// How long jobs have lately waited for a thread; nothing while one is free.
    pub(crate) fn queue_time(&self) -> Duration {
        match self.busy() < self.threads() {
            true => Duration::ZERO,
            false => Duration::from_micros(self.queue_us.load(Ordering::Relaxed)),
        }
    }

    /// How long jobs have run since the start, on all threads together.
    pub(crate) fn worked(&self) -> Duration {
        Duration::from_micros(self.worked_us.load(Ordering::Relaxed))
    }

    /// How many threads are at work.
    pub(crate) fn busy(&self) -> usize {
        usize::try_from(self.busy.get()).unwrap_or(0)
    }

    /// Runs a job on the pool and gives what it returned.
    ///
    /// # Errors
    /// [`EngineError::Other`] when the job panicked; the thread starts afresh with empty buffers.
    pub(crate) async fn run<T, F>(&self, job: F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Scratch) -> T + Send + 'static,
    {
        let (answer, receiver) = tokio::sync::oneshot::channel();
        let (busy, queue_seconds) = (self.busy.clone(), self.queue_seconds.clone());
        let worked_us = self.worked_us.clone();
        let queued = Instant::now();
        let waited = Arc::new(AtomicU64::new(0));
        let waited_by_job = waited.clone();
        let work = move || {
            let wait = queued.elapsed();
            waited_by_job.store(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
            if let Some(queue_seconds) = queue_seconds {
                queue_seconds.observe(wait.as_secs_f64());
            }
            busy.inc();
            let started = Instant::now();
            let outcome = with_scratch(job);
            busy.dec();
            worked_us.fetch_add(u64::try_from(started.elapsed().as_micros()).unwrap_or(0), Ordering::Relaxed);
            // The receiver may be gone: a cancelled request no longer wants the answer.
            let _ = answer.send(outcome);
        };
        match &self.threads {
            Some(threads) => threads.spawn(work),
            None => work(),
        }
        let outcome = receiver.await;
        self.smooth(waited.load(Ordering::Relaxed));
        match outcome {
            Ok(Ok(value)) => Ok(value),
            _ => Err(panicked()),
        }
    }

    /// Runs a job on `len` bytes: where it is called while they are at most [`HERE_LEN_MAX`], else
    /// as [`CodecPool::run`].
    ///
    /// # Errors
    /// As [`CodecPool::run`].
    pub(crate) async fn run_on<T, F>(&self, len: u64, job: F) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Scratch) -> T + Send + 'static,
    {
        if len > HERE_LEN_MAX {
            return Box::pin(self.run(job)).await;
        }
        with_scratch(job).map_err(|_| panicked())
    }

    /// Takes everything a stream gives into a SHA-256, piece by piece in order.
    ///
    /// # Errors
    /// The stream's own error; that of [`CodecPool::run`].
    pub(crate) async fn hash_all<E: From<EngineError>>(
        &self,
        mut digest: Sha256,
        mut pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<Sha256, E> {
        while let Some(bytes) = pieces.try_next().await? {
            digest = self.run(move |_| digest.chain_update(bytes)).await?;
        }
        Ok(digest)
    }

    fn smooth(&self, wait_us: u64) {
        let _ = self.queue_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some((old * 7 + wait_us) / 8));
    }
}

/// Runs a job with this thread's scratch; one that panics leaves an empty one.
fn with_scratch<T>(job: impl FnOnce(&mut Scratch) -> T) -> std::thread::Result<T> {
    SCRATCH.with_borrow_mut(|scratch| {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| job(scratch)));
        if outcome.is_err() {
            *scratch = Scratch::default();
        }
        scratch.settle();
        outcome
    })
}

fn panicked() -> EngineError {
    EngineError::Other("a codec job panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_format::SEGMENT_LEN;

    #[tokio::test]
    async fn a_thread_gives_back_what_a_job_of_the_strongest_level_took() {
        let pool = CodecPool::new(1, PoolKind::Codec, &Metrics::new()).expect("a thread");
        let of_level = |level: i32| {
            pool.run(move |scratch| {
                whole::compress(&vec![7; SEGMENT_LEN], level, SEGMENT_LEN, &mut Vec::new());
                scratch.memory_bytes()
            })
        };
        let kept = || pool.run(|scratch| scratch.memory_bytes());
        let usual = of_level(1).await.expect("no panic");
        assert_eq!(kept().await.expect("no panic"), usual, "the next job needs it again");
        assert!(of_level(19).await.expect("no panic") > KEPT_BYTES_MAX);
        assert!(kept().await.expect("no panic") < usual);
    }
}
