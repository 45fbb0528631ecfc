//! The body of a request, which may not stall, and the body of an answer.

use bytes::Bytes;
use futures::stream::BoxStream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use s3_wire::{ErrorCode, S3Error, body::BoxError};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// Less than this, on average and beyond the first `stall_timeout`, is a peer that holds a place
/// without using it.
const BYTES_PER_SECOND_MIN: u64 = 1024;

/// The body of a request as it comes from the connection. Only time spent waiting for the peer
/// counts against it, never time in which nobody asked for more.
pub struct RequestBody<B = Incoming> {
    inner: B,
    received: Arc<AtomicU64>,
    stall_timeout: Duration,
    /// Waiting since, and until when at most.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    waited: Duration,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Reading,
    Ended,
    Failed,
}

impl<B: Body<Data = Bytes> + Unpin> RequestBody<B> {
    /// Wraps a body; `received` counts its bytes.
    pub fn new(inner: B, stall_timeout: Duration, received: Arc<AtomicU64>) -> Self {
        let state = if inner.is_end_stream() { State::Ended } else { State::Reading };
        Self { inner, received, stall_timeout, waiting: None, waited: Duration::ZERO, state }
    }

    /// Whether every byte has been read.
    pub fn ended(&self) -> bool {
        self.state == State::Ended || self.inner.is_end_stream()
    }

    /// Whether not a single byte of it has come.
    pub fn received_nothing(&self) -> bool {
        self.received.load(Ordering::Relaxed) == 0
    }

    /// Reads and forgets at most `bytes_max` bytes, as long as they keep coming; whether that was
    /// all of it.
    pub async fn drain(&mut self, bytes_max: u64) -> bool
    where
        B::Error: Into<BoxError>,
    {
        let mut left = bytes_max;
        let until = Instant::now() + DRAIN_TIME_MAX;
        while !self.ended() {
            let next = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx));
            let deadline = until.min(Instant::now() + DRAIN_PAUSE_MAX);
            match tokio::time::timeout_at(deadline, next).await {
                Ok(Some(Ok(frame))) => {
                    let len = frame.data_ref().map_or(0, |data| data.len() as u64);
                    match left.checked_sub(len) {
                        Some(rest) => left = rest,
                        None => return false,
                    }
                }
                Ok(None) => return true,
                Ok(Some(Err(_))) | Err(_) => return false,
            }
        }
        true
    }
}

/// A peer that pauses this long while its refused body is drained gets its answer now.
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(250);
/// And one that keeps sending gets it after this.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match this.state {
            State::Ended => return Poll::Ready(None),
            State::Failed => return Poll::Ready(Some(Err("the body failed before".into()))),
            State::Reading => {}
        }
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        if polled.is_pending() {
            let received = this.received.load(Ordering::Relaxed);
            let allowed = this.stall_timeout + Duration::from_secs(received / BYTES_PER_SECOND_MIN);
            let wait_max = this.stall_timeout.min(allowed.saturating_sub(this.waited));
            let now = Instant::now();
            let (_, sleep) =
                this.waiting.get_or_insert_with(|| (now, Box::pin(tokio::time::sleep_until(now + wait_max))));
            ready!(sleep.as_mut().poll(cx));
            this.state = State::Failed;
            return Poll::Ready(Some(Err(S3Error::new(ErrorCode::RequestTimeout).closing().into())));
        }
        if let Some((since, _)) = this.waiting.take() {
            this.waited += since.elapsed();
        }
        polled.map(|next| match next {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.received.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                this.state = State::Failed;
                Some(Err(error.into()))
            }
            None => {
                this.state = State::Ended;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// What an operation answers with.
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// Bytes as they are read. With a length, a stream that ends short or gives more is an error,
    /// so the connection is cut and never ends as if complete (I4).
    Stream {
        /// The exact number of bytes, when known.
        len: Option<u64>,
        /// The bytes.
        stream: BoxStream<'static, Result<Bytes, BoxError>>,
    },
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{Stream, StreamExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};

    type Pieces = StreamBody<BoxStream<'static, Result<Frame<Bytes>, BoxError>>>;

    fn request(pieces: impl Stream<Item = &'static [u8]> + Send + 'static) -> RequestBody<Pieces> {
        let frames = pieces.map(|piece| Ok(Frame::data(Bytes::from_static(piece)))).boxed();
        RequestBody::new(StreamBody::new(frames), Duration::from_secs(60), Arc::default())
    }

    fn slow(piece: &'static [u8], every: Duration) -> impl Stream<Item = &'static [u8]> + Send {
        stream::unfold((), move |()| async move {
            tokio::time::sleep(every).await;
            Some((piece, ()))
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_coming_fails_after_the_stall_timeout() {
        let mut body = request(stream::iter([&b"abc"[..]]).chain(stream::pending()));
        assert!(body.received_nothing());
        assert!(body.frame().await.unwrap().is_ok());
        let started = Instant::now();
        assert!(body.frame().await.unwrap().is_err());
        assert_eq!(started.elapsed().as_secs(), 60);
        assert!(!body.ended() && !body.drain(1 << 20).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_fails_though_it_never_stops() {
        let mut body = request(slow(b"x", Duration::from_secs(20)).boxed());
        let started = Instant::now();
        while body.frame().await.unwrap().is_ok() {}
        assert!(started.elapsed() <= Duration::from_secs(81));
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_reads_does_not_count() {
        let mut body = request(stream::iter([&b"abc"[..], b"def"]));
        assert!(body.frame().await.unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(body.frame().await.unwrap().is_ok());
        assert!(body.frame().await.is_none());
        assert!(body.ended());
    }

    #[tokio::test(start_paused = true)]
    async fn draining_ends_at_its_bound_and_at_the_first_pause() {
        assert!(request(stream::iter([&b"abc"[..], b"def"])).drain(6).await);
        assert!(!request(stream::iter([&b"abc"[..], b"def"])).drain(5).await);
        let started = Instant::now();
        assert!(!request(stream::iter([&b"abc"[..]]).chain(stream::pending())).drain(1 << 20).await);
        assert!(started.elapsed() < Duration::from_secs(1));
        let started = Instant::now();
        assert!(!request(slow(b"x", Duration::from_millis(100)).boxed()).drain(1 << 20).await);
        assert!(started.elapsed() < Duration::from_secs(6));
    }
}
