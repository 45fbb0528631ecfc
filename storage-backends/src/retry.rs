//! Repeats what may be repeated, a bounded number of times, out of a budget that all calls to one
//! backend share.
//!
//! The budget (a token bucket, as in the AWS SDKs' standard retry mode and in gRPC's retry
//! throttling) keeps retries from multiplying the load on a store that is down: when it is spent,
//! errors are passed on at once.

use crate::{
    Backend, BackendError, BlobName, ByteStream, ErrorKind, Listed, Observer, Op, PutReceipt, Result, random::Random,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use std::{
    future::Future,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// How often and how fast to repeat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Attempts for one call, the first one included; for a `get` stream, attempts without a byte
    /// of progress.
    pub attempts_max: u32,
    /// The longest pause before the first repetition; it doubles with each further one.
    pub pause_first: Duration,
    /// The longest pause at all, except where the store asks for more.
    pub pause_max: Duration,
    /// The longest pause a store may ask for (`Retry-After`); what it asks beyond is not waited
    /// for.
    pub retry_after_max: Duration,
    /// No call is repeated later than this after it began; for a `get` stream the attempts alone
    /// count.
    pub deadline: Duration,
    /// Repetitions that all calls together may make in a burst.
    pub budget_tokens_max: u32,
    /// Repetitions per second that all calls together may make in the long run.
    pub budget_tokens_per_s: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 5,
            pause_first: Duration::from_millis(100),
            pause_max: Duration::from_secs(5),
            retry_after_max: Duration::from_secs(20),
            deadline: Duration::from_secs(60),
            budget_tokens_max: 100,
            budget_tokens_per_s: 10.0,
        }
    }
}

/// A backend whose repeatable calls are repeated after errors that pass
/// ([`BackendError::is_transient`]).
///
/// * `get` is repeated until its first byte, and a stream that is cut later goes on at the offset
///   it had reached (blobs never change, I1). A stream that ends short without an error is treated
///   as cut: what this wrapper gives is whole or an error.
/// * `head`, `delete`, `probe`, and `list` until its first item, are repeated.
/// * `put` is not: its body is consumed. What repeats the requests of a `put` is the backend below,
///   which has their bytes in memory ([`Repeats`], given to
///   [`CloudBackend::repeat_with`](crate::CloudBackend::repeat_with)).
pub struct Retrying<B> {
    pub(crate) shared: Arc<Shared<B>>,
}

pub(crate) struct Shared<B> {
    pub(crate) inner: B,
    pub(crate) repeats: Repeats,
}

/// Grants and paces the repetitions of everybody who calls one backend, out of one budget. Clones
/// share it.
#[derive(Clone)]
pub struct Repeats(Arc<Granting>);

struct Granting {
    policy: RetryPolicy,
    budget: Mutex<Budget>,
    jitter: Random,
    observer: Arc<dyn Observer>,
}

impl<B> Retrying<B> {
    /// Wraps `inner`; `observer` is told of every repetition.
    pub fn new(inner: B, policy: RetryPolicy, observer: Arc<dyn Observer>) -> Self {
        Self::sharing(inner, Repeats::new(policy, observer))
    }

    /// Wraps `inner`, out of a budget that others draw on too.
    pub fn sharing(inner: B, repeats: Repeats) -> Self {
        Self { shared: Arc::new(Shared { inner, repeats }) }
    }
}

impl Repeats {
    /// A full budget; `observer` is told of every repetition.
    pub fn new(policy: RetryPolicy, observer: Arc<dyn Observer>) -> Self {
        Self::jittered(policy, observer, Random::from_os())
    }

    /// The same whose pauses follow from a seed, for simulations.
    pub fn seeded(policy: RetryPolicy, observer: Arc<dyn Observer>, seed: u64) -> Self {
        Self::jittered(policy, observer, Random::seeded(seed))
    }

    fn jittered(policy: RetryPolicy, observer: Arc<dyn Observer>, jitter: Random) -> Self {
        let budget = Mutex::new(Budget::full(&policy, Instant::now()));
        Self(Arc::new(Granting { policy, budget, jitter, observer }))
    }

    /// Calls until it succeeds, the error is not one that passes, or attempts, budget or time are
    /// spent.
    pub(crate) async fn repeat<T, F: Future<Output = Result<T>>>(&self, op: Op, call: impl Fn() -> F) -> Result<T> {
        let (mut attempts, began) = (0, Instant::now());
        loop {
            attempts += 1;
            match call().await {
                Err(error) if began.elapsed() < self.0.policy.deadline && self.grants_repetition(attempts, &error) => {
                    self.pause(op, attempts, &error).await;
                }
                result => return result,
            }
        }
    }

    pub(crate) fn grants_repetition(&self, attempts: u32, error: &BackendError) -> bool {
        error.is_transient()
            && attempts < self.0.policy.attempts_max
            && self.0.budget.lock().unwrap_or_else(PoisonError::into_inner).take(&self.0.policy, Instant::now())
    }

    pub(crate) async fn pause(&self, op: Op, attempts: u32, error: &BackendError) {
        tracing::debug!(%op, attempts, %error, "a backend call is repeated");
        let Granting { policy, jitter, observer, .. } = &*self.0;
        observer.retry(op, error.kind());
        let asked = error.retry_after().unwrap_or_default().min(policy.retry_after_max);
        tokio::time::sleep(asked + pause(policy, attempts, jitter.next())).await;
    }
}

#[async_trait]
impl<B: Backend> Backend for Retrying<B> {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        self.shared.inner.put(name, body, len).await
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        let shared = &self.shared;
        let stream = shared.repeats.repeat(Op::Get, || shared.inner.get(name, range.clone())).await?;
        Ok(stream.map(|stream| {
            let reading = Reading { shared: shared.clone(), name: name.clone(), left: range, stream, attempts: 1 };
            stream::unfold(Some(reading), next_piece).boxed()
        }))
    }

    fn request_len(&self) -> u32 {
        self.shared.inner.request_len()
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        self.shared.repeats.repeat(Op::Head, || self.shared.inner.head(name)).await
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.shared.repeats.repeat(Op::Delete, || self.shared.inner.delete(name)).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        let (shared, prefix) = (self.shared.clone(), prefix.to_owned());
        let start = async move {
            let begin = || async {
                let mut items = shared.inner.list(&prefix).fuse();
                match items.next().await {
                    Some(Err(error)) => Err(error),
                    first => Ok(stream::iter(first).chain(items).boxed()),
                }
            };
            match shared.repeats.repeat(Op::List, begin).await {
                Ok(items) => items,
                Err(error) => stream::iter([Err(error)]).boxed(),
            }
        };
        stream::once(start).flatten().boxed()
    }

    async fn probe(&self) -> Result<()> {
        self.shared.repeats.repeat(Op::Probe, || self.shared.inner.probe()).await
    }
}

/// A `get` in progress.
struct Reading<B> {
    shared: Arc<Shared<B>>,
    name: BlobName,
    left: Range<u64>,
    stream: ByteStream,
    /// Attempts since the last byte.
    attempts: u32,
}

async fn next_piece<B: Backend>(reading: Option<Reading<B>>) -> Option<(Result<Bytes>, Option<Reading<B>>)> {
    let mut reading = reading?;
    loop {
        let left = reading.left.end - reading.left.start;
        let error = match reading.stream.next().await {
            Some(Ok(piece)) if piece.is_empty() => continue,
            Some(Ok(piece)) if piece.len() as u64 <= left => {
                reading.left.start += piece.len() as u64;
                reading.attempts = 0;
                return Some((Ok(piece), Some(reading)));
            }
            Some(Ok(_)) => {
                let message = format!("{} gave more bytes than asked for", reading.name);
                return Some((Err(BackendError::new(ErrorKind::Corrupt, message)), None));
            }
            // Everything asked for has arrived: what happens to the connection now is of no
            // interest.
            None | Some(Err(_)) if left == 0 => return None,
            None => BackendError::new(ErrorKind::Transient, format!("{} ended {left} bytes early", reading.name)),
            Some(Err(error)) => error,
        };
        match reading.resume(error).await {
            Ok(stream) => reading.stream = stream,
            Err(error) => return Some((Err(error), None)),
        }
    }
}

impl<B: Backend> Reading<B> {
    /// A new stream for what is left, or the error that stands.
    async fn resume(&mut self, mut error: BackendError) -> Result<ByteStream> {
        loop {
            self.attempts += 1;
            if !self.shared.repeats.grants_repetition(self.attempts, &error) {
                return Err(error);
            }
            self.shared.repeats.pause(Op::Get, self.attempts, &error).await;
            match self.shared.inner.get(&self.name, self.left.clone()).await {
                Ok(Some(stream)) => return Ok(stream),
                Ok(None) => {
                    let message = format!("{} vanished while it was read", self.name);
                    return Err(BackendError::new(ErrorKind::Corrupt, message));
                }
                Err(again) => error = again,
            }
        }
    }
}

/// The pause after the `attempts`-th attempt: half of the doubled step, and up to as much again by
/// chance.
fn pause(policy: &RetryPolicy, attempts: u32, random: u64) -> Duration {
    let doublings = attempts.saturating_sub(1).min(31);
    let step = policy.pause_first.saturating_mul(1 << doublings).min(policy.pause_max);
    let share = random as f64 / u64::MAX as f64;
    step.mul_f64(0.5 + share / 2.0)
}

/// A token bucket.
struct Budget {
    tokens: f64,
    filled_at: Instant,
}

impl Budget {
    fn full(policy: &RetryPolicy, now: Instant) -> Self {
        Self { tokens: f64::from(policy.budget_tokens_max), filled_at: now }
    }

    fn take(&mut self, policy: &RetryPolicy, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * policy.budget_tokens_per_s).min(f64::from(policy.budget_tokens_max));
        self.filled_at = now;
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, FaultSchedule, Faulty, MemoryBackend, Unobserved, body_of, collect};
    use std::sync::atomic::{AtomicU32, Ordering};

    const QUICK: RetryPolicy = RetryPolicy {
        attempts_max: 3,
        pause_first: Duration::from_micros(10),
        pause_max: Duration::from_micros(100),
        retry_after_max: Duration::from_millis(50),
        deadline: Duration::from_secs(60),
        budget_tokens_max: 100,
        budget_tokens_per_s: 0.0,
    };

    #[derive(Default)]
    struct Retries(AtomicU32);

    impl Observer for Retries {
        fn request(&self, _: Op, _: crate::Outcome, _: Duration) {}
        fn bytes(&self, _: crate::Direction, _: u64) {}
        fn retry(&self, _: Op, _: ErrorKind) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn name() -> BlobName {
        BlobName::new("blobs/a").unwrap()
    }

    async fn stored(bytes: usize) -> MemoryBackend {
        let memory = MemoryBackend::new();
        let bytes: Bytes = (0..bytes).map(|i| i as u8).collect::<Vec<_>>().into();
        memory.put(&name(), body_of(bytes), None).await.unwrap();
        memory
    }

    fn failing_at(memory: MemoryBackend, call: u64, fault: Fault) -> (Retrying<Faulty<MemoryBackend>>, Arc<Retries>) {
        let retries = Arc::new(Retries::default());
        let faulty = Faulty::new(memory, FaultSchedule::At { call, fault });
        (Retrying::new(faulty, QUICK, retries.clone()), retries)
    }

    #[tokio::test]
    async fn a_read_that_is_reset_in_the_middle_goes_on_where_it_was() {
        for fault in [Fault::Reset, Fault::ShortBody, Fault::Timeout, Fault::ServerError, Fault::Throttled] {
            let (backend, retries) = failing_at(stored(300_000).await, 0, fault);
            let stream = backend.get(&name(), 1000..299_000).await.unwrap().unwrap();
            let bytes = collect(stream, 298_000).await.unwrap();
            assert_eq!(bytes.len(), 298_000);
            assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == (i + 1000) as u8), "{fault:?}");
            assert_eq!(retries.0.load(Ordering::Relaxed), 1, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_put_is_never_repeated() {
        let (backend, retries) = failing_at(MemoryBackend::new(), 0, Fault::ServerError);
        let error = backend.put(&name(), body_of(Bytes::from_static(b"x")), None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transient);
        assert_eq!(retries.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_lost_reply_to_a_delete_is_repeated_and_succeeds() {
        let memory = stored(10).await;
        let (backend, retries) = failing_at(memory.clone(), 0, Fault::CommitThenError);
        backend.delete(&name()).await.unwrap();
        assert_eq!((memory.blob_count(), retries.0.load(Ordering::Relaxed)), (0, 1));
    }

    #[tokio::test]
    async fn a_listing_is_repeated_only_before_its_first_item() {
        let (backend, _) = failing_at(stored(10).await, 0, Fault::ServerError);
        assert_eq!(backend.list("").count().await, 1);
        let (backend, retries) = failing_at(stored(10).await, 0, Fault::Reset);
        let items: Vec<_> = backend.list("").collect().await;
        assert!(items.last().unwrap().is_err(), "a listing cut after its first item must not look complete");
        assert_eq!(retries.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_blob_that_vanishes_between_two_attempts_is_an_error_not_a_short_blob() {
        let memory = stored(300_000).await;
        let (backend, _) = failing_at(memory.clone(), 0, Fault::Reset);
        let stream = backend.get(&name(), 0..300_000).await.unwrap().unwrap();
        memory.delete(&name()).await.unwrap();
        assert_eq!(collect(stream, 300_000).await.unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[tokio::test]
    async fn errors_that_do_not_pass_are_not_repeated() {
        let retries = Arc::new(Retries::default());
        let backend = Retrying::new(stored(10).await, QUICK, retries.clone());
        assert!(backend.get(&name(), 0..11).await.is_err());
        assert_eq!(retries.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_call_whose_time_is_over_is_not_repeated() {
        let retries = Arc::new(Retries::default());
        let policy = RetryPolicy { deadline: Duration::ZERO, ..QUICK };
        let down = FaultSchedule::From { call: 0, fault: Fault::ServerError };
        let backend = Retrying::new(Faulty::new(MemoryBackend::new(), down), policy, retries.clone());
        assert_eq!(backend.head(&name()).await.unwrap_err().kind(), ErrorKind::Transient);
        assert_eq!(retries.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_spent_budget_passes_errors_on_at_once() {
        let down =
            FaultSchedule::Seeded { seed: 1, rates: crate::FaultRates { server_error: 1000, ..Default::default() } };
        let retries = Arc::new(Retries::default());
        let policy = RetryPolicy { budget_tokens_max: 3, ..QUICK };
        let backend = Retrying::new(Faulty::new(MemoryBackend::new(), down), policy, retries.clone());
        for _ in 0..10 {
            assert_eq!(backend.head(&name()).await.unwrap_err().kind(), ErrorKind::Transient);
        }
        assert_eq!(retries.0.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn an_error_is_never_turned_into_absence() {
        let down =
            FaultSchedule::Seeded { seed: 1, rates: crate::FaultRates { throttled: 1000, ..Default::default() } };
        let backend = Retrying::new(Faulty::new(stored(10).await, down), QUICK, Arc::new(Unobserved));
        assert!(backend.head(&name()).await.is_err());
        assert!(backend.get(&name(), 0..1).await.is_err());
    }

    #[tokio::test]
    async fn a_store_that_asks_for_time_gets_it_up_to_a_bound() {
        let retrying = Retrying::new(MemoryBackend::new(), QUICK, Arc::new(Unobserved));
        for (asked, expected) in [(Duration::from_millis(20), 20), (Duration::from_secs(3600), 50)] {
            let error = BackendError::new(ErrorKind::Throttled, "slow down").with_retry_after(Some(asked));
            let started = Instant::now();
            retrying.shared.repeats.pause(Op::Head, 1, &error).await;
            let waited = started.elapsed();
            assert!(waited >= Duration::from_millis(expected) && waited < Duration::from_secs(60), "{waited:?}");
        }
    }

    #[test]
    fn pauses_double_up_to_the_bound_and_are_jittered() {
        let policy = RetryPolicy::default();
        assert_eq!(pause(&policy, 1, 0), Duration::from_millis(50));
        assert_eq!(pause(&policy, 1, u64::MAX), Duration::from_millis(100));
        assert_eq!(pause(&policy, 3, u64::MAX), Duration::from_millis(400));
        assert_eq!(pause(&policy, 4_000_000_000, u64::MAX), policy.pause_max);
    }

    #[test]
    fn the_budget_refills_with_time_and_not_past_its_size() {
        let policy = RetryPolicy { budget_tokens_max: 2, budget_tokens_per_s: 1.0, ..QUICK };
        let start = Instant::now();
        let mut budget = Budget::full(&policy, start);
        assert!(budget.take(&policy, start) && budget.take(&policy, start) && !budget.take(&policy, start));
        assert!(budget.take(&policy, start + Duration::from_secs(1)));
        let later = start + Duration::from_secs(1000);
        assert!(budget.take(&policy, later) && budget.take(&policy, later) && !budget.take(&policy, later));
    }
}
