//! Makes a backend misbehave as networks and stores do, on purpose and repeatably.
//!
//! Faults are drawn per call from a seed and the call's number, so a single-threaded run with the
//! same seed meets the same faults at the same calls. [`FaultSchedule::At`] places one fault at one
//! call, for tests that try every call in turn.

use crate::{Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, Op, PutReceipt, Result, random::Random};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use std::{
    future::Future,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// One way to fail. Calls without a body (`head`, `delete`, `probe`) meet [`Fault::Reset`] and
/// [`Fault::ShortBody`] before anything is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A 500 before anything is done.
    ServerError,
    /// A 429 or 503 before anything is done, with [`Faulty::with_pause`]'s time as its Retry-After.
    Throttled,
    /// No answer: an error after [`Faulty::with_pause`]'s time, nothing done.
    Timeout,
    /// The connection breaks in the middle: part of the body or listing, then an error. An upload
    /// stores nothing.
    Reset,
    /// A read ends early and *without an error*, as a lying store or proxy would do; an upload is
    /// reset.
    ShortBody,
    /// The store does what was asked, but its answer is lost: an error.
    CommitThenError,
    /// The network delivers the request twice; the caller sees one answer. An upload's body is held
    /// in memory for this.
    Duplicated,
    /// Bodies pass with a pause between their pieces.
    SlowBytes,
    /// A listing misses every second blob, as a store without consistent listing may. Other calls
    /// do not notice.
    StaleList,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 9] = [
        Self::ServerError,
        Self::Throttled,
        Self::Timeout,
        Self::Reset,
        Self::ShortBody,
        Self::CommitThenError,
        Self::Duplicated,
        Self::SlowBytes,
        Self::StaleList,
    ];
}

/// How often each fault happens, in calls of a thousand. When they sum to more than 1000 the later
/// ones are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    /// [`Fault::ServerError`]
    pub server_error: u32,
    /// [`Fault::Throttled`]
    pub throttled: u32,
    /// [`Fault::Timeout`]
    pub timeout: u32,
    /// [`Fault::Reset`]
    pub reset: u32,
    /// [`Fault::ShortBody`]
    pub short_body: u32,
    /// [`Fault::CommitThenError`]
    pub commit_then_error: u32,
    /// [`Fault::Duplicated`]
    pub duplicated: u32,
    /// [`Fault::SlowBytes`]
    pub slow_bytes: u32,
    /// [`Fault::StaleList`]
    pub stale_list: u32,
}

impl FaultRates {
    /// The mix of a bad day: 5 % server errors, 5 % throttling, 2 % timeouts, 2 % resets, 2 % short
    /// bodies, 1 % lost answers, 1 % duplicates, 1 % slow, 5 % stale listings.
    pub const BAD_DAY: Self = Self {
        server_error: 50,
        throttled: 50,
        timeout: 20,
        reset: 20,
        short_body: 20,
        commit_then_error: 10,
        duplicated: 10,
        slow_bytes: 10,
        stale_list: 50,
    };

    /// The fault that a number in `0..1000` stands for.
    fn pick(&self, number: u32) -> Option<Fault> {
        let rates = [
            self.server_error,
            self.throttled,
            self.timeout,
            self.reset,
            self.short_body,
            self.commit_then_error,
            self.duplicated,
            self.slow_bytes,
            self.stale_list,
        ];
        let mut end = 0u32;
        Fault::ALL.into_iter().zip(rates).find_map(|(fault, rate)| {
            end = end.saturating_add(rate);
            (number < end).then_some(fault)
        })
    }
}

/// Which calls fail. Calls are counted from 0, all operations together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultSchedule {
    /// None.
    Never,
    /// Each call by chance; the seed replays it.
    Seeded {
        /// The seed to print and to replay.
        seed: u64,
        /// How often.
        rates: FaultRates,
    },
    /// One call.
    At {
        /// The call's number.
        call: u64,
        /// What happens to it.
        fault: Fault,
    },
    /// This call and every one after it fails, as if the store had gone away.
    From {
        /// The first call's number.
        call: u64,
        /// What happens to them.
        fault: Fault,
    },
}

/// A backend that fails on schedule.
pub struct Faulty<B> {
    inner: B,
    schedule: Mutex<FaultSchedule>,
    pause: Duration,
    calls: AtomicU64,
    injected: [AtomicU64; Fault::ALL.len()],
}

impl<B: Backend> Faulty<B> {
    /// Wraps `inner`. Timeouts and slow pieces take a millisecond.
    pub fn new(inner: B, schedule: FaultSchedule) -> Self {
        Self {
            inner,
            schedule: Mutex::new(schedule),
            pause: Duration::from_millis(1),
            calls: AtomicU64::new(0),
            injected: Default::default(),
        }
    }

    /// The same with another duration for timeouts and slow pieces.
    pub fn with_pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Changes the schedule from the next call on. Calls go on being counted.
    pub fn reschedule(&self, schedule: FaultSchedule) {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = schedule;
    }

    /// How many calls were made.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How many calls met `fault`.
    pub fn injected(&self, fault: Fault) -> u64 {
        self.injected[fault as usize].load(Ordering::Relaxed)
    }

    /// What happens to the next call, and chance for its details.
    fn next_call(&self) -> (Option<Fault>, Random) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let schedule = *self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let (fault, random) = draw(schedule, call);
        if let Some(fault) = fault {
            self.injected[fault as usize].fetch_add(1, Ordering::Relaxed);
        }
        (fault, random)
    }

    /// A call without a body.
    async fn bare<T, F: Future<Output = Result<T>>>(&self, op: Op, call: impl Fn() -> F) -> Result<T> {
        let (fault, _) = self.next_call();
        match fault {
            None | Some(Fault::SlowBytes | Fault::StaleList) => call().await,
            Some(Fault::Duplicated) => {
                call().await?;
                call().await
            }
            Some(Fault::CommitThenError) => {
                call().await?;
                Err(failure(op, Fault::CommitThenError))
            }
            Some(fault) => Err(self.refuse(op, fault).await),
        }
    }

    /// The error of a fault that does nothing, after the time it takes.
    async fn refuse(&self, op: Op, fault: Fault) -> BackendError {
        if fault == Fault::Timeout {
            tokio::time::sleep(self.pause).await;
        }
        failure(op, fault).with_retry_after((fault == Fault::Throttled).then_some(self.pause))
    }
}

fn draw(schedule: FaultSchedule, call: u64) -> (Option<Fault>, Random) {
    match schedule {
        FaultSchedule::Never => (None, Random::seeded(call)),
        FaultSchedule::At { call: at, fault } => ((call == at).then_some(fault), Random::seeded(call)),
        FaultSchedule::From { call: at, fault } => ((call >= at).then_some(fault), Random::seeded(call)),
        FaultSchedule::Seeded { seed, rates } => {
            // Mixed twice, so that neighbouring seeds and calls have nothing in common.
            let random = Random::seeded(Random::seeded(seed).next() ^ Random::seeded(call).next());
            let number = u32::try_from(random.below(1000)).expect("below 1000");
            (rates.pick(number), random)
        }
    }
}

#[async_trait]
impl<B: Backend> Backend for Faulty<B> {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let (fault, random) = self.next_call();
        match fault {
            None | Some(Fault::StaleList) => self.inner.put(name, body, len).await,
            Some(fault @ (Fault::ServerError | Fault::Throttled | Fault::Timeout)) => {
                Err(self.refuse(Op::Put, fault).await)
            }
            Some(fault @ (Fault::Reset | Fault::ShortBody)) => {
                let pieces = usize::try_from(random.below(4)).expect("below 4");
                let broken = stream::iter([Err(failure(Op::Put, fault))]);
                let error = self.inner.put(name, body.take(pieces).chain(broken).boxed(), len).await;
                Err(error.err().unwrap_or_else(|| failure(Op::Put, fault))).map_err(|error| unwrapped(error, fault))
            }
            Some(Fault::CommitThenError) => {
                self.inner.put(name, body, len).await?;
                Err(failure(Op::Put, Fault::CommitThenError))
            }
            Some(Fault::Duplicated) => {
                let seen = Arc::new(Mutex::new(Vec::new()));
                let receipt = self.inner.put(name, noted(body, seen.clone()), len).await?;
                let again = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
                // The answer to the duplicate goes nowhere, whatever it says.
                drop(self.inner.put(name, stream::iter(again.into_iter().map(Ok)).boxed(), len).await);
                Ok(receipt)
            }
            Some(Fault::SlowBytes) => self.inner.put(name, slowed(body, self.pause), len).await,
        }
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        let (fault, random) = self.next_call();
        let cut = random.below(range.end.saturating_sub(range.start));
        match fault {
            None | Some(Fault::StaleList) => self.inner.get(name, range).await,
            Some(fault @ (Fault::ServerError | Fault::Throttled | Fault::Timeout)) => {
                Err(self.refuse(Op::Get, fault).await)
            }
            Some(Fault::CommitThenError) => {
                self.inner.get(name, range).await?;
                Err(failure(Op::Get, Fault::CommitThenError))
            }
            Some(Fault::Reset) => {
                let broken = stream::iter([Err(failure(Op::Get, Fault::Reset))]);
                let stream = self.inner.get(name, range).await?;
                Ok(stream.map(|stream| first_bytes(stream, cut).chain(broken).boxed()))
            }
            Some(Fault::ShortBody) => Ok(self.inner.get(name, range).await?.map(|stream| first_bytes(stream, cut))),
            Some(Fault::Duplicated) => {
                self.inner.get(name, range.clone()).await?;
                self.inner.get(name, range).await
            }
            Some(Fault::SlowBytes) => {
                let pause = self.pause;
                Ok(self.inner.get(name, range).await?.map(|stream| slowed(stream, pause)))
            }
        }
    }

    fn request_len(&self) -> u32 {
        self.inner.request_len()
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        self.bare(Op::Head, || self.inner.head(name)).await
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.bare(Op::Delete, || self.inner.delete(name)).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        let (fault, random) = self.next_call();
        let pause = self.pause;
        match fault {
            None | Some(Fault::Duplicated) => self.inner.list(prefix),
            Some(fault @ (Fault::ServerError | Fault::Throttled | Fault::CommitThenError)) => {
                let asked = (fault == Fault::Throttled).then_some(pause);
                stream::iter([Err(failure(Op::List, fault).with_retry_after(asked))]).boxed()
            }
            Some(Fault::Timeout) => stream::once(async move {
                tokio::time::sleep(pause).await;
                Err(failure(Op::List, Fault::Timeout))
            })
            .boxed(),
            Some(fault @ (Fault::Reset | Fault::ShortBody)) => {
                let items = 1 + usize::try_from(random.below(100)).expect("below 100");
                self.inner.list(prefix).take(items).chain(stream::iter([Err(failure(Op::List, fault))])).boxed()
            }
            Some(Fault::SlowBytes) => slowed(self.inner.list(prefix), pause),
            Some(Fault::StaleList) => {
                let kept = |(i, item)| async move { (i % 2 == 0).then_some(item) };
                self.inner.list(prefix).enumerate().filter_map(kept).boxed()
            }
        }
    }

    async fn probe(&self) -> Result<()> {
        self.bare(Op::Probe, || self.inner.probe()).await
    }
}

fn failure(op: Op, fault: Fault) -> BackendError {
    let kind = if fault == Fault::Throttled { ErrorKind::Throttled } else { ErrorKind::Transient };
    BackendError::new(kind, format!("injected into {op}: {fault:?}"))
}

/// A broken connection is the store's failure, not the body's, although it was injected through the
/// body.
fn unwrapped(error: BackendError, fault: Fault) -> BackendError {
    if error.kind() == ErrorKind::Body { failure(Op::Put, fault) } else { error }
}

/// The first `len` bytes of a stream.
fn first_bytes(body: ByteStream, len: u64) -> ByteStream {
    stream::unfold((body, len), |(mut body, left)| async move {
        if left == 0 {
            return None;
        }
        let piece = body.next().await?.map(|mut piece: Bytes| {
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            piece
        });
        let left = piece.as_ref().map_or(0, |piece| left - piece.len() as u64);
        Some((piece, (body, left)))
    })
    .boxed()
}

/// The same items with a pause before each.
fn slowed<T: Send + 'static>(items: BoxStream<'static, Result<T>>, pause: Duration) -> BoxStream<'static, Result<T>> {
    items
        .then(move |item| async move {
            tokio::time::sleep(pause).await;
            item
        })
        .boxed()
}

/// The same body, its pieces kept in `seen`.
fn noted(body: ByteStream, seen: Arc<Mutex<Vec<Bytes>>>) -> ByteStream {
    body.inspect(move |piece| {
        if let Ok(piece) = piece {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(piece.clone());
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryBackend, body_of, collect};

    fn name() -> BlobName {
        BlobName::new("blobs/a").unwrap()
    }

    fn at_first(memory: &MemoryBackend, fault: Fault) -> Faulty<MemoryBackend> {
        Faulty::new(memory.clone(), FaultSchedule::At { call: 0, fault })
    }

    async fn put(backend: &dyn Backend) -> Result<PutReceipt> {
        let pieces: Vec<_> = (0..8).map(|i| Ok(Bytes::from(vec![i; 1000]))).collect();
        backend.put(&name(), stream::iter(pieces).boxed(), Some(8000)).await
    }

    #[test]
    fn a_seed_replays_the_same_faults() {
        let schedule = |seed| FaultSchedule::Seeded { seed, rates: FaultRates::BAD_DAY };
        let faults = |seed| (0..1000).map(|call| draw(schedule(seed), call).0).collect::<Vec<_>>();
        assert_eq!(faults(1), faults(1));
        assert_ne!(faults(1), faults(2));
    }

    #[test]
    fn faults_come_at_their_rates() {
        let schedule = FaultSchedule::Seeded { seed: 42, rates: FaultRates::BAD_DAY };
        let count = |wanted| (0..100_000).filter(|call| draw(schedule, *call).0 == Some(wanted)).count();
        assert!((4500..5500).contains(&count(Fault::ServerError)));
        assert!((800..1200).contains(&count(Fault::CommitThenError)));
    }

    #[tokio::test]
    async fn a_failed_put_stores_nothing_unless_only_its_answer_was_lost() {
        for fault in Fault::ALL {
            let memory = MemoryBackend::new();
            let backend = at_first(&memory, fault);
            let result = put(&backend).await;
            let stored = memory.head(&name()).await.unwrap();
            match fault {
                Fault::Duplicated | Fault::SlowBytes | Fault::StaleList => {
                    assert!(result.is_ok() && stored == Some(8000))
                }
                Fault::CommitThenError => assert!(result.unwrap_err().is_transient() && stored == Some(8000)),
                _ => assert!(result.unwrap_err().is_transient() && stored.is_none(), "{fault:?}"),
            }
            assert_eq!((backend.injected(fault), backend.calls()), (1, 1));
        }
    }

    #[tokio::test]
    async fn a_short_body_ends_without_an_error_and_a_reset_one_does_not() {
        let memory = MemoryBackend::new();
        put(&memory).await.unwrap();
        let read = async |fault| {
            let backend = at_first(&memory, fault);
            collect(backend.get(&name(), 0..8000).await.unwrap().unwrap(), 8000).await
        };
        assert!(read(Fault::ShortBody).await.unwrap().len() < 8000);
        assert!(read(Fault::Reset).await.unwrap_err().is_transient());
        assert_eq!(read(Fault::SlowBytes).await.unwrap().len(), 8000);
    }

    #[tokio::test]
    async fn no_fault_makes_a_stored_blob_look_absent() {
        let memory = MemoryBackend::new();
        memory.put(&name(), body_of(Bytes::from_static(b"x")), None).await.unwrap();
        for fault in Fault::ALL {
            assert!(!matches!(at_first(&memory, fault).head(&name()).await, Ok(None)), "{fault:?}");
            assert!(!matches!(at_first(&memory, fault).get(&name(), 0..1).await, Ok(None)), "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_store_that_went_away_comes_back_when_rescheduled() {
        let backend = Faulty::new(MemoryBackend::new(), FaultSchedule::From { call: 1, fault: Fault::ServerError });
        assert!(backend.probe().await.is_ok());
        assert!(backend.probe().await.is_err() && backend.probe().await.is_err());
        backend.reschedule(FaultSchedule::Never);
        assert!(backend.probe().await.is_ok());
    }
}
