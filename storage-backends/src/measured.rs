//! Tells an [`Observer`] about every request, byte and outcome.

use crate::{Backend, BlobName, ByteStream, Direction, Listed, Observer, Op, Outcome, PutReceipt, Result};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use std::{
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::Instant;

/// A backend whose requests are reported. Each request is reported once: when its call returns, or
/// when its stream ends.
pub struct Measured<B> {
    pub(crate) inner: B,
    pub(crate) observer: Arc<dyn Observer>,
}

impl<B> Measured<B> {
    /// Wraps `inner`; `observer` usually carries the backend's configured name.
    pub fn new(inner: B, observer: Arc<dyn Observer>) -> Self {
        Self { inner, observer }
    }

    /// Runs a call that is over when it returns.
    pub(crate) async fn call<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T>>,
        outcome: impl Fn(&T) -> Outcome,
    ) -> Result<T> {
        let mut request = Request::new(op, self.observer.clone());
        let result = call.await;
        request.end(outcome_of(&result, outcome));
        result
    }
}

#[async_trait]
impl<B: Backend> Backend for Measured<B> {
    async fn put(&self, name: &BlobName, body: ByteStream, len: Option<u64>) -> Result<PutReceipt> {
        let mut request = Request::new(Op::Put, self.observer.clone());
        let body = Timed {
            inner: body,
            since: None,
            waited_ns: request.foreign_ns.clone(),
            observer: self.observer.clone(),
            seen: |piece: &Bytes, observer: &dyn Observer| observer.bytes(Direction::Written, piece.len() as u64),
            request: None,
        };
        let result = self.inner.put(name, body.boxed(), len).await;
        request.end(outcome_of(&result, |_| Outcome::Ok));
        result
    }

    async fn get(&self, name: &BlobName, range: Range<u64>) -> Result<Option<ByteStream>> {
        let mut request = Request::new(Op::Get, self.observer.clone());
        let result = self.inner.get(name, range).await;
        match result {
            Ok(Some(stream)) => {
                let seen = |piece: &Bytes, observer: &dyn Observer| observer.bytes(Direction::Read, piece.len() as u64);
                Ok(Some(request.follow(stream, seen)))
            }
            result => {
                request.end(outcome_of(&result, |_| Outcome::Absent));
                result
            }
        }
    }

    fn request_len(&self) -> u32 {
        self.inner.request_len()
    }

    async fn head(&self, name: &BlobName) -> Result<Option<u64>> {
        self.call(Op::Head, self.inner.head(name), found).await
    }

    fn head_at_once(&self, name: &BlobName) -> Option<Result<Option<u64>>> {
        let began = Instant::now();
        let result = self.inner.head_at_once(name)?;
        self.observer.request(Op::Head, outcome_of(&result, found), began.elapsed());
        Some(result)
    }

    async fn delete(&self, name: &BlobName) -> Result<()> {
        self.call(Op::Delete, self.inner.delete(name), |()| Outcome::Ok).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<Listed>> {
        Request::new(Op::List, self.observer.clone()).follow(self.inner.list(prefix), |_: &Listed, _| ())
    }

    async fn probe(&self) -> Result<()> {
        self.call(Op::Probe, self.inner.probe(), |()| Outcome::Ok).await
    }
}

fn found(len: &Option<u64>) -> Outcome {
    if len.is_some() { Outcome::Ok } else { Outcome::Absent }
}

pub(crate) fn outcome_of<T>(result: &Result<T>, outcome: impl Fn(&T) -> Outcome) -> Outcome {
    match result {
        Ok(value) => outcome(value),
        Err(error) => Outcome::Failed(error.kind()),
    }
}

/// One request; reported when it ends, or as the outcome it has by default when it is dropped
/// before.
pub(crate) struct Request {
    op: Op,
    observer: Arc<dyn Observer>,
    /// How long it has been waited for until `since`.
    busy: Duration,
    /// Since when it is waited for, while it is.
    since: Option<Instant>,
    /// Time inside `busy` that was the caller's doing.
    foreign_ns: Arc<AtomicU64>,
    outcome_when_dropped: Option<Outcome>,
}

impl Request {
    pub(crate) fn new(op: Op, observer: Arc<dyn Observer>) -> Self {
        Self {
            op,
            observer,
            busy: Duration::ZERO,
            since: Some(Instant::now()),
            foreign_ns: Arc::default(),
            outcome_when_dropped: Some(Outcome::Abandoned),
        }
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        if self.outcome_when_dropped.take().is_some() {
            self.pause();
            let foreign = Duration::from_nanos(self.foreign_ns.load(Ordering::Relaxed));
            self.observer.request(self.op, outcome, self.busy.saturating_sub(foreign));
        }
    }

    fn pause(&mut self) {
        self.busy += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// Stays open until `items` end; from now on a reader that goes away is no failure.
    pub(crate) fn follow<T: Send + 'static>(
        mut self,
        items: BoxStream<'static, Result<T>>,
        seen: fn(&T, &dyn Observer),
    ) -> BoxStream<'static, Result<T>> {
        self.pause();
        self.outcome_when_dropped = Some(Outcome::Ok);
        let observer = self.observer.clone();
        Timed { inner: items, since: None, waited_ns: Arc::default(), observer, seen, request: Some(self) }.boxed()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(outcome) = self.outcome_when_dropped {
            self.end(outcome);
        }
    }
}

/// A stream that adds up how long its items were waited for.
struct Timed<T> {
    inner: BoxStream<'static, Result<T>>,
    since: Option<Instant>,
    waited_ns: Arc<AtomicU64>,
    observer: Arc<dyn Observer>,
    seen: fn(&T, &dyn Observer),
    /// The request that ends with this stream.
    request: Option<Request>,
}

impl<T: Send + 'static> Stream for Timed<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let this = &mut *self;
        let since = *this.since.get_or_insert_with(Instant::now);
        let item = ready!(this.inner.poll_next_unpin(cx));
        this.since = None;
        let waited = since.elapsed();
        this.waited_ns.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Some(request) = &mut this.request {
            request.busy += waited;
            match &item {
                Some(Ok(_)) => {}
                Some(Err(error)) => request.end(Outcome::Failed(error.kind())),
                None => request.end(Outcome::Ok),
            }
        }
        if let Some(Ok(item)) = &item {
            (this.seen)(item, this.observer.as_ref());
        }
        Poll::Ready(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Fault, FaultSchedule, Faulty, MemoryBackend, body_of, collect};
    use std::sync::Mutex;

    #[derive(Default)]
    struct Log {
        requests: Mutex<Vec<(Op, Outcome, Duration)>>,
        read: AtomicU64,
        written: AtomicU64,
    }

    impl Log {
        fn outcomes(&self) -> Vec<(Op, Outcome)> {
            self.requests.lock().unwrap().iter().map(|(op, outcome, _)| (*op, *outcome)).collect()
        }
    }

    impl Observer for Log {
        fn request(&self, op: Op, outcome: Outcome, busy: Duration) {
            self.requests.lock().unwrap().push((op, outcome, busy));
        }
        fn bytes(&self, direction: Direction, count: u64) {
            let counter = if direction == Direction::Read { &self.read } else { &self.written };
            counter.fetch_add(count, Ordering::Relaxed);
        }
        fn retry(&self, _: Op, _: ErrorKind) {}
    }

    fn name() -> BlobName {
        BlobName::new("blobs/a").unwrap()
    }

    #[tokio::test]
    async fn every_request_is_reported_once_with_its_outcome_and_bytes() {
        let log = Arc::new(Log::default());
        let backend = Measured::new(MemoryBackend::new(), log.clone());
        assert!(backend.head(&name()).await.unwrap().is_none());
        backend.put(&name(), body_of(Bytes::from(vec![0; 200_000])), None).await.unwrap();
        collect(backend.get(&name(), 10..150_010).await.unwrap().unwrap(), 150_000).await.unwrap();
        assert!(backend.get(&name(), 0..200_001).await.is_err());
        assert_eq!(backend.list("").count().await, 1);
        backend.delete(&name()).await.unwrap();
        assert!(backend.get(&name(), 0..1).await.unwrap().is_none());
        backend.probe().await.unwrap();
        let expected = [
            (Op::Head, Outcome::Absent),
            (Op::Put, Outcome::Ok),
            (Op::Get, Outcome::Ok),
            (Op::Get, Outcome::Failed(ErrorKind::Invalid)),
            (Op::List, Outcome::Ok),
            (Op::Delete, Outcome::Ok),
            (Op::Get, Outcome::Absent),
            (Op::Probe, Outcome::Ok),
        ];
        assert_eq!(log.outcomes(), expected);
        assert_eq!(log.written.load(Ordering::Relaxed), 200_000);
        assert_eq!(log.read.load(Ordering::Relaxed), 150_000);
    }

    #[tokio::test]
    async fn a_stream_that_breaks_is_a_failed_request_and_one_that_is_left_is_not() {
        let log = Arc::new(Log::default());
        let memory = MemoryBackend::new();
        memory.put(&name(), body_of(Bytes::from(vec![0; 200_000])), None).await.unwrap();
        let faulty = Faulty::new(memory, FaultSchedule::At { call: 0, fault: Fault::Reset });
        let backend = Measured::new(faulty, log.clone());
        let broken = backend.get(&name(), 0..200_000).await.unwrap().unwrap();
        assert!(collect(broken, 200_000).await.is_err());
        let mut left = backend.get(&name(), 0..200_000).await.unwrap().unwrap();
        left.next().await.unwrap().unwrap();
        drop(left);
        assert_eq!(log.outcomes(), [(Op::Get, Outcome::Failed(ErrorKind::Transient)), (Op::Get, Outcome::Ok)]);
    }

    #[tokio::test]
    async fn the_time_a_client_takes_is_not_the_backends() {
        let log = Arc::new(Log::default());
        let backend = Measured::new(MemoryBackend::new(), log.clone());
        let client_pause = Duration::from_millis(300);
        let slow = futures::stream::once(async move {
            tokio::time::sleep(client_pause).await;
            Ok(Bytes::from(vec![0; 100]))
        });
        backend.put(&name(), slow.boxed(), None).await.unwrap();
        let stream = backend.get(&name(), 0..100).await.unwrap().unwrap();
        tokio::time::sleep(client_pause).await;
        collect(stream, 100).await.unwrap();
        let requests = log.requests.lock().unwrap();
        assert_eq!(requests.len(), 2);
        assert!(requests.iter().all(|(_, _, busy)| *busy < client_pause), "{requests:?}");
    }

    #[tokio::test]
    async fn an_upload_that_is_given_up_is_reported_as_abandoned() {
        let log = Arc::new(Log::default());
        let backend = Measured::new(MemoryBackend::new(), log.clone());
        let name = name();
        let upload = backend.put(&name, futures::stream::pending().boxed(), None);
        assert!(futures::poll!(upload).is_pending());
        assert_eq!(log.outcomes(), [(Op::Put, Outcome::Abandoned)]);
    }
}
