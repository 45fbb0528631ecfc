//! Accepting connections and serving them: each is a task of its own with a place that it can lose
//! while it is idle.

use super::{
    heads::CheckedHeads,
    io::GuardedIo,
    least_rate::LeastRate,
    tls::{Certificate, Listener},
};
use crate::{
    config::ServerConfig,
    peers::{Ends, Place, Places, TrustedProxies},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use std::{
    convert::Infallible,
    io::{Error, ErrorKind, Result},
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener},
    sync::watch,
};

/// Most bytes of a request's head; the next gets 431 (C80).
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 200;
/// Bytes of one HTTP/2 stream that may be under way unread.
const H2_STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// The same for a connection.
const H2_CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Most requests at once on one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 128;

pub(super) fn builder(head_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Hyper counts it between two requests as well.
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
        .initial_connection_window_size(H2_CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(H2_STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(Some(head_timeout))
        .keep_alive_timeout(head_timeout);
    builder
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// Where connections come from, and what has to happen before HTTP.
pub(super) trait Accept {
    type Raw: Send + 'static;
    fn accept(&self) -> impl Future<Output = Result<(Self::Raw, Ends)>>;
    /// Makes a byte stream of a connection; runs in the connection's own task.
    fn prepare(
        &self,
    ) -> impl FnOnce(Self::Raw) -> futures::future::BoxFuture<'static, Result<Box<dyn Stream>>> + Send + 'static;
}

pub(super) struct TcpAccept<'a> {
    pub(super) listener: &'a TcpListener,
    pub(super) tls: Option<(Arc<Certificate>, Listener)>,
}

impl Accept for TcpAccept<'_> {
    type Raw = TcpStream;

    async fn accept(&self) -> Result<(TcpStream, Ends)> {
        let (stream, peer) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        let local = Some(stream.local_addr()?.ip().to_canonical());
        Ok((stream, Ends { peer: Some(peer.ip()), local, reserve: false }))
    }

    fn prepare(
        &self,
    ) -> impl FnOnce(TcpStream) -> futures::future::BoxFuture<'static, Result<Box<dyn Stream>>> + Send + 'static {
        let tls = self.tls.as_ref().map(|(certificate, listener)| certificate.acceptor(*listener));
        move |stream| {
            Box::pin(async move {
                Ok(match tls {
                    None => Box::new(stream) as Box<dyn Stream>,
                    Some(tls) => Box::new(tls.accept(stream).await?),
                })
            })
        }
    }
}

/// A socket whose callers must run as the user of this process, or as root.
pub(super) struct UnixAccept<'a> {
    pub(super) listener: &'a UnixListener,
}

impl Accept for UnixAccept<'_> {
    type Raw = tokio::net::UnixStream;

    async fn accept(&self) -> Result<(Self::Raw, Ends)> {
        Ok((self.listener.accept().await?.0, Ends::default()))
    }

    fn prepare(
        &self,
    ) -> impl FnOnce(Self::Raw) -> futures::future::BoxFuture<'static, Result<Box<dyn Stream>>> + Send + 'static {
        |stream| {
            Box::pin(async move {
                let caller = stream.peer_cred()?.uid();
                if caller != 0 && caller != rustix::process::geteuid().as_raw() {
                    return Err(Error::new(ErrorKind::PermissionDenied, format!("the caller's user id is {caller}")));
                }
                Ok(Box::new(stream) as Box<dyn Stream>)
            })
        }
    }
}

/// Where a listener's connections find a place.
pub(super) struct Budget {
    /// For everything.
    pub(super) places: Arc<Places>,
    /// For health alone, once the others are taken.
    pub(super) reserve: Option<Arc<Places>>,
    /// Peers whose connections are those of many clients: no share bounds them.
    pub(super) trusted: TrustedProxies,
}

impl Budget {
    fn take(&self, ends: &mut Ends) -> Option<Place> {
        let peer = ends.peer.filter(|peer| !self.trusted.trusts(peer.to_canonical()));
        self.places.take(peer).or_else(|| {
            ends.reserve = true;
            self.reserve.as_ref()?.take(peer)
        })
    }
}

/// What every connection of a listener shares.
pub(super) struct Connections<'a> {
    pub(super) builder: auto::Builder<TokioExecutor>,
    pub(super) graceful: &'a GracefulShutdown,
    pub(super) config: &'a ServerConfig,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) least_rate: Option<LeastRate>,
}

impl Connections<'_> {
    /// Accepts until told to stop. Each connection is a task of its own; one that finds no place is
    /// closed at once.
    pub(super) async fn accept<A, M, H, F, B>(&self, accept: A, budget: &Budget, make_handler: &M, refused: impl Fn())
    where
        A: Accept,
        M: Fn(Ends) -> H,
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<s3_wire::body::BoxError>,
    {
        let mut stop = self.stop.clone();
        loop {
            let accepted = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                accepted = accept.accept() => accepted,
            };
            let (raw, mut ends) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, or a peer that was gone before we looked: neither is a
                    // reason to stop.
                    tracing::warn!(error = %error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(place) = budget.take(&mut ends) else {
                refused();
                continue;
            };
            let prepare = accept.prepare();
            tokio::spawn(self.serve(async move { prepare(raw).await }, Arc::new(place), make_handler(ends)));
        }
    }

    /// Serves one connection until either side ends it or it has to make room.
    fn serve<P, H, F, B>(&self, prepare: P, place: Arc<Place>, handler: H) -> impl Future<Output = ()> + Send + 'static
    where
        P: Future<Output = Result<Box<dyn Stream>>> + Send + 'static,
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<s3_wire::body::BoxError>,
    {
        let (builder, least_rate) = (self.builder.clone(), self.least_rate.clone());
        let watcher = self.graceful.watcher();
        let (head_timeout, stall_timeout) = (self.config.head_timeout, self.config.stall_timeout);
        async move {
            let closing = place.closing();
            let stream = tokio::select! {
                () = closing.cancelled() => return,
                prepared = tokio::time::timeout(head_timeout, prepare) => match prepared {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(error)) => return tracing::debug!(error = %error, "a connection did not begin"),
                    Err(_) => return tracing::debug!("TLS handshake took too long"),
                },
            };
            let first_request = Arc::new(AtomicBool::new(false));
            let io = GuardedIo::new(stream, head_timeout, stall_timeout, first_request.clone()).least_rate(least_rate);
            let service = service_fn(move |request| {
                first_request.store(true, Ordering::Relaxed);
                let under_way = place.request();
                let answer = handler(request);
                // The request is under way until its body has been sent, so the guard goes with the
                // body.
                async move {
                    let answer = answer.await.map(|body| {
                        body.map_err(move |error| {
                            let _until_sent = &under_way;
                            error
                        })
                    });
                    Ok::<_, Infallible>(answer)
                }
            });
            let connection = builder.serve_connection(TokioIo::new(CheckedHeads::new(io)), service).into_owned();
            tokio::select! {
                () = closing.cancelled() => tracing::debug!("an idle connection made room"),
                ended = watcher.watch(connection) => if let Err(error) = ended {
                    tracing::debug!(error = %error, "a connection ended early");
                },
            }
        }
    }
}
