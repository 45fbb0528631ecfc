//! A connection that may not hold its place without using it: bytes must come before the first
//! request is complete, and what is written must be taken.

use super::least_rate::{LeastRate, Reader};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// Wraps a stream with two deadlines. hyper's own header timer starts only when it knows the
/// protocol, so a peer that sends a part of the HTTP/2 preface, or nothing, would otherwise stay
/// for ever.
pub(super) struct GuardedIo<S> {
    inner: S,
    first_request: Arc<AtomicBool>,
    head_deadline: Option<Pin<Box<Sleep>>>,
    stall_timeout: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    reader: Option<Reader>,
}

impl<S> GuardedIo<S> {
    /// Wraps a stream. Whoever sees the first complete request sets `first_request`.
    pub(super) fn new(
        inner: S,
        head_timeout: Duration,
        stall_timeout: Duration,
        first_request: Arc<AtomicBool>,
    ) -> Self {
        let head_deadline = Some(Box::pin(tokio::time::sleep(head_timeout)));
        Self { inner, first_request, head_deadline, stall_timeout, stalled: None, reader: None }
    }

    /// Lets a reader go that takes less than this while others wait.
    pub(super) fn least_rate(mut self, least: Option<LeastRate>) -> Self {
        self.reader = least.map(Reader::new);
        self
    }

    fn watch_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = &polled {
            self.stalled = None;
            if let (Some(reader), Ok(done)) = (&mut self.reader, done) {
                reader.took(bytes(done) as u64);
            }
            return polled;
        }
        if self.reader.as_mut().is_some_and(|reader| reader.poll_blocked(cx).is_ready()) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer hardly reads, and others wait")));
        }
        let deadline = Instant::now() + self.stall_timeout;
        let sleep = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for GuardedIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
        if let Some(deadline) = &mut this.head_deadline {
            if this.first_request.load(Ordering::Relaxed) {
                this.head_deadline = None;
            } else if polled.is_pending() && deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request came")));
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GuardedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch_write(cx, polled, |written| *written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watch_write(cx, polled, |written| *written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch_write(cx, polled, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch_write(cx, polled, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_no_request_is_let_go_at_the_head_timeout() {
        let (mut peer, ours) = duplex(64);
        let mut io = GuardedIo::new(ours, 30 * SECOND, 60 * SECOND, Arc::default());
        peer.write_all(b"P").await.unwrap();
        assert_eq!(io.read_u8().await.unwrap(), b'P');
        let started = Instant::now();
        assert_eq!(io.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_request_the_connection_may_be_idle() {
        let (mut peer, ours) = duplex(64);
        let first_request = Arc::new(AtomicBool::new(true));
        let mut io = GuardedIo::new(ours, 30 * SECOND, 60 * SECOND, first_request);
        let write_late = async {
            tokio::time::sleep(3600 * SECOND).await;
            peer.write_all(b"x").await.unwrap();
        };
        let (read, ()) = tokio::join!(io.read_u8(), write_late);
        assert_eq!(read.unwrap(), b'x');
    }

    /// Whether a reader of so many bytes a second is let go within a minute, two being the least.
    async fn lets_a_reader_go(bytes_per_second: usize, others_wait: bool) -> bool {
        let (mut peer, ours) = duplex(4);
        let let_go = prometheus::IntCounter::new("let_go", "readers").unwrap();
        let others_wait = Arc::new(move || others_wait);
        let least = LeastRate { bytes_per_second: 2, others_wait, let_go: let_go.clone() };
        let mut io = GuardedIo::new(ours, 30 * SECOND, 60 * SECOND, Arc::default()).least_rate(Some(least));
        let reads = async {
            for _ in 0..60 {
                tokio::time::sleep(SECOND).await;
                let _ = peer.read(&mut vec![0; bytes_per_second]).await;
            }
        };
        let ended = tokio::select! {
            written = io.write_all(&[7; 1000]) => written.is_err(),
            () = reads => false,
        };
        assert_eq!(let_go.get(), u64::from(ended));
        ended
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_hardly_reads_is_let_go_while_others_wait_and_only_then() {
        assert!(lets_a_reader_go(1, true).await);
        assert!(!lets_a_reader_go(1, false).await);
        assert!(!lets_a_reader_go(4, true).await, "one that takes more than the least goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_let_go_at_the_stall_timeout() {
        let (_peer, ours) = duplex(4);
        let mut io = GuardedIo::new(ours, 30 * SECOND, 60 * SECOND, Arc::default());
        let started = Instant::now();
        assert_eq!(io.write_all(b"0123456789").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed().as_secs(), 60);
    }
}
