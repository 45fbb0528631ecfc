//! Listeners, connections and their end. What a request means begins in [`service`].

pub mod body;
mod io;
mod record;
pub mod service;
mod tls;

pub use body::{AnswerBody, RequestBody, ResponseBody};
pub use record::RequestRecord;
pub use service::S3Service;

use crate::{admin::AdminService, config::ServerConfig};
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use io::GuardedIo;
use std::{
    convert::Infallible,
    io::{Error, ErrorKind, Result},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener},
    sync::{Semaphore, watch},
};
use tokio_rustls::TlsAcceptor;

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
/// Connections of the admin listeners.
const ADMIN_CONNECTIONS_MAX: usize = 64;

/// Name of the admin socket in the data directory.
pub const ADMIN_SOCKET: &str = "admin.sock";

/// The admin socket; its file goes with it.
struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // One that stays behind is taken for what it is at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listeners that are bound but not yet served.
pub struct Server {
    config: ServerConfig,
    s3: TcpListener,
    admin: TcpListener,
    socket: Option<AdminSocket>,
    tls: Option<TlsAcceptor>,
}

impl Server {
    /// Binds the S3 and admin listeners and reads the certificate: what can go wrong goes wrong before the store is opened.
    ///
    /// # Errors
    /// An address that is taken or not ours; a certificate that cannot be used.
    pub async fn bind(config: ServerConfig) -> Result<Self> {
        let bind = async |key: &str, address: SocketAddr| {
            let listener = TcpListener::bind(address).await;
            listener.map_err(|error| Error::new(error.kind(), format!("{key} = {address}: {error}")))
        };
        let s3 = bind("server.listen", config.listen).await?;
        let admin = bind("server.admin_listen", config.admin_listen).await?;
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        Ok(Self { config, s3, admin, socket: None, tls })
    }

    /// Binds the admin socket in the data directory, for its owner alone. The caller holds the store, so a socket that is there is a left-over.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn bind_socket(&mut self, data: &Path) -> Result<()> {
        let path = data.join(ADMIN_SOCKET);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (_directory, short) = socket_path(data)?;
        let listener = UnixListener::bind(short)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        self.socket = Some(AdminSocket { listener, path });
        Ok(())
    }

    /// Where the S3 listener is.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn s3_address(&self) -> Result<SocketAddr> {
        self.s3.local_addr()
    }

    /// Where the admin listener is.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn admin_address(&self) -> Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Whether the S3 listener speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Serves until `stop` says true, then lets S3 requests end within the drain timeout; whether all of them did. The admin listener
    /// and socket go on answering until then: `/readyz` says that the server is stopping.
    pub async fn run(self, s3: Arc<S3Service>, admin: Arc<AdminService>, stop: watch::Receiver<bool>) -> bool {
        let Self { config, s3: s3_listener, admin: admin_listener, socket, tls } = self;
        let (end_admin, admin_stop) = watch::channel(false);
        let serve_s3 = async {
            let in_time = serve_s3(&config, s3_listener, tls, s3, stop).await;
            // The other side may have ended already, which is what this asks for.
            let _ = end_admin.send(true);
            in_time
        };
        let (in_time, ()) = tokio::join!(serve_s3, serve_admin(&config, admin_listener, socket, admin, admin_stop));
        in_time
    }
}

async fn serve_s3(
    config: &ServerConfig,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: Arc<S3Service>,
    stop: watch::Receiver<bool>,
) -> bool {
    let graceful = GracefulShutdown::new();
    let connections = Connections { builder: builder(config.head_timeout), graceful: &graceful, config, stop };
    let handler = |peer: Option<IpAddr>| {
        let service = service.clone();
        move |request| service.clone().answer(peer, request)
    };
    let rejected = service.metrics().rejected_total.with_label_values(&["connections"]);
    let accept = TcpAccept { listener: &listener, tls };
    connections.accept(accept, config.connections_max, &handler, || rejected.inc()).await;
    // From here new connections are refused by the operating system.
    drop(listener);
    tracing::info!(connections = graceful.count(), "draining");
    let in_time = tokio::time::timeout(config.drain_timeout, graceful.shutdown()).await.is_ok();
    if !in_time {
        tracing::warn!(requests = service.requests_under_way(), "requests were cut off at the drain timeout");
    }
    in_time
}

async fn serve_admin(
    config: &ServerConfig,
    listener: TcpListener,
    socket: Option<AdminSocket>,
    service: Arc<AdminService>,
    stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let connections = Connections { builder: builder(config.head_timeout), graceful: &graceful, config, stop };
    let trusted = |trusted: bool| {
        let service = service.clone();
        move |_: Option<IpAddr>| {
            let service = service.clone();
            move |request| service.clone().answer(trusted, request)
        }
    };
    let (direct, over_socket) = (trusted(false), trusted(true));
    let accept = TcpAccept { listener: &listener, tls: None };
    tokio::join!(connections.accept(accept, ADMIN_CONNECTIONS_MAX, &direct, || ()), async {
        if let Some(socket) = &socket {
            let accept = UnixAccept { listener: &socket.listener };
            connections.accept(accept, ADMIN_CONNECTIONS_MAX, &over_socket, || ()).await;
        }
    });
    drop((listener, socket));
    // The API's answers are short: one that is still under way has this long.
    let _ = tokio::time::timeout(ADMIN_DRAIN_TIMEOUT, graceful.shutdown()).await;
}

/// How long answers of the admin API have when the server ends.
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A path to the admin socket that is short enough for a socket address (108 bytes) however deep the data directory lies. It goes
/// through the directory's descriptor and is good while that is kept.
///
/// # Errors
/// The directory cannot be opened.
pub fn socket_path(data: &Path) -> Result<(std::fs::File, PathBuf)> {
    let directory = std::fs::File::open(data)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(ADMIN_SOCKET);
    Ok((directory, path))
}

fn builder(head_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
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

trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// Where connections come from, and what has to happen before HTTP.
trait Accept {
    type Raw: Send + 'static;
    fn accept(&self) -> impl Future<Output = Result<(Self::Raw, Option<IpAddr>)>>;
    /// Makes a byte stream of a connection; runs in the connection's own task.
    fn prepare(
        &self,
    ) -> impl FnOnce(Self::Raw) -> futures::future::BoxFuture<'static, Result<Box<dyn Stream>>> + Send + 'static;
}

struct TcpAccept<'a> {
    listener: &'a TcpListener,
    tls: Option<TlsAcceptor>,
}

impl Accept for TcpAccept<'_> {
    type Raw = TcpStream;

    async fn accept(&self) -> Result<(TcpStream, Option<IpAddr>)> {
        let (stream, peer) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, Some(peer.ip())))
    }

    fn prepare(
        &self,
    ) -> impl FnOnce(TcpStream) -> futures::future::BoxFuture<'static, Result<Box<dyn Stream>>> + Send + 'static {
        let tls = self.tls.clone();
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

struct UnixAccept<'a> {
    listener: &'a UnixListener,
}

impl Accept for UnixAccept<'_> {
    type Raw = tokio::net::UnixStream;

    async fn accept(&self) -> Result<(Self::Raw, Option<IpAddr>)> {
        Ok((self.listener.accept().await?.0, None))
    }

    fn prepare(
        &self,
    ) -> impl FnOnce(Self::Raw) -> futures::future::BoxFuture<'static, Result<Box<dyn Stream>>> + Send + 'static {
        |stream| Box::pin(async move { Ok(Box::new(stream) as Box<dyn Stream>) })
    }
}

/// What every connection of this process shares.
struct Connections<'a> {
    builder: auto::Builder<TokioExecutor>,
    graceful: &'a GracefulShutdown,
    config: &'a ServerConfig,
    stop: watch::Receiver<bool>,
}

impl Connections<'_> {
    /// Accepts until told to stop. Each connection is a task of its own; the one over the limit is closed at once.
    async fn accept<A, M, H, F, B>(&self, accept: A, connections_max: usize, make_handler: &M, refused: impl Fn())
    where
        A: Accept,
        M: Fn(Option<IpAddr>) -> H,
        H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = http::Response<B>> + Send + 'static,
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<s3_wire::body::BoxError>,
    {
        let places = Arc::new(Semaphore::new(connections_max));
        let mut stop = self.stop.clone();
        loop {
            let accepted = tokio::select! {
                _ = stop.wait_for(|stop| *stop) => return,
                accepted = accept.accept() => accepted,
            };
            let (raw, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, or a peer that was gone before we looked: neither is a reason to stop.
                    tracing::warn!(error = %error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                refused();
                continue;
            };
            let prepare = accept.prepare();
            let handler = make_handler(peer);
            let builder = self.builder.clone();
            let watcher = self.graceful.watcher();
            let (head_timeout, stall_timeout) = (self.config.head_timeout, self.config.stall_timeout);
            tokio::spawn(async move {
                let _place = place;
                let stream = match tokio::time::timeout(head_timeout, prepare(raw)).await {
                    Ok(Ok(stream)) => stream,
                    Ok(Err(error)) => return tracing::debug!(error = %error, "TLS handshake failed"),
                    Err(_) => return tracing::debug!("TLS handshake took too long"),
                };
                let first_request = Arc::new(AtomicBool::new(false));
                let io = GuardedIo::new(stream, head_timeout, stall_timeout, first_request.clone());
                let service = service_fn(move |request| {
                    first_request.store(true, Ordering::Relaxed);
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let connection = builder.serve_connection(TokioIo::new(io), service).into_owned();
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!(error = %error, "a connection ended early");
                }
            });
        }
    }
}
