//! Listeners, connections and their end. What a request means begins in [`service`].

mod access_log;
mod connections;
mod door;
mod heads;
mod io;
mod least_rate;
mod recent;
mod record;
mod response;
pub mod service;
mod sts;
mod tls;
mod traces;
mod validity;

pub use access_log::{AccessLog, Ended, LineFormat};
pub use recent::{Recent, Traffic, Wanted};
pub use record::RequestRecord;
pub use response::ResponseBody;
pub use service::S3Service;
pub use tls::Certificate;
pub use traces::{Traces, TracesConfig};
pub use validity::expiry;

use crate::{
    admin::{AdminService, Caller},
    config::ServerConfig,
    peers::{Ends, Places},
};
use connections::{Budget, Connections, TcpAccept, UnixAccept, builder};
use http::Request;
use hyper::body::Incoming;
use hyper_util::server::graceful::GracefulShutdown;
use least_rate::LeastRate;
use std::{
    io::{Error, ErrorKind, Result},
    net::SocketAddr,
    os::fd::AsRawFd as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tls::Listener;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
};

/// Connections of the admin listeners.
const ADMIN_CONNECTIONS_MAX: usize = 64;
/// More connections of the admin listener that may only ask for health, so that probes are answered
/// whoever takes the others.
const HEALTH_CONNECTIONS_MAX: usize = 16;

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
    tls: Option<Arc<Certificate>>,
}

impl Server {
    /// Binds the S3 and admin listeners and reads the certificate: what can go wrong goes wrong
    /// before the store is opened.
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
        let tls = config.tls.as_ref().map(|files| Certificate::read(files).map(Arc::new)).transpose()?;
        Ok(Self { config, s3, admin, socket: None, tls })
    }

    /// Binds the admin socket in the data directory, for its owner alone. The caller holds the
    /// store, so a socket that is there is a left-over.
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

    /// `http` or `https`: what the admin listener speaks.
    pub fn admin_scheme(&self) -> &'static str {
        if self.config.admin_tls { "https" } else { "http" }
    }

    /// Whether the S3 listener speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The certificate of the listeners, to be replaced while they serve.
    pub fn certificate(&self) -> Option<Arc<Certificate>> {
        self.tls.clone()
    }

    /// Serves until `stop` says true, then lets S3 requests end within the drain timeout; whether
    /// all of them did. The admin listener and socket go on answering until then: `/readyz` says
    /// that the server is stopping.
    pub async fn run(self, s3: Arc<S3Service>, admin: Arc<AdminService>, stop: watch::Receiver<bool>) -> bool {
        let Self { config, s3: s3_listener, admin: admin_listener, socket, tls } = self;
        let (end_admin, admin_stop) = watch::channel(false);
        let behind_door = s3.clone();
        let serve_s3 = async {
            let in_time = serve_s3(&config, s3_listener, tls.clone(), s3, stop).await;
            // The other side may have ended already, which is what this asks for.
            let _ = end_admin.send(true);
            in_time
        };
        let admin_tls = tls.clone().filter(|_| config.admin_tls);
        let serve_admin = serve_admin(&config, admin_listener, admin_tls, socket, (admin, behind_door), admin_stop);
        let (in_time, ()) = tokio::join!(serve_s3, serve_admin);
        in_time
    }
}

async fn serve_s3(
    config: &ServerConfig,
    listener: TcpListener,
    tls: Option<Arc<Certificate>>,
    service: Arc<S3Service>,
    stop: watch::Receiver<bool>,
) -> bool {
    let graceful = GracefulShutdown::new();
    let least_rate = least_rate(config, &service);
    let connections =
        Connections { builder: builder(config.head_timeout), graceful: &graceful, config, stop, least_rate };
    let handler = |ends: Ends| {
        let service = service.clone();
        move |request| service.clone().answer(ends.peer, request)
    };
    let rejected = service.metrics().rejected_total.with_label_values(&["connections"]);
    let accept = TcpAccept { listener: &listener, tls: tls.map(|tls| (tls, Listener::S3)) };
    let places = Places::new(config.connections_max, connections_per_peer(config));
    let budget = Budget { places, reserve: None, trusted: config.trusted_proxies.clone() };
    connections.accept(accept, &budget, &handler, || rejected.inc()).await;
    // From here new connections are refused by the operating system.
    drop(listener);
    tracing::info!(connections = graceful.count(), "draining");
    let in_time = tokio::time::timeout(config.drain_timeout, graceful.shutdown()).await.is_ok();
    if !in_time {
        tracing::warn!(requests = service.requests_under_way(), "requests were cut off at the drain timeout");
    }
    in_time
}

/// The share of one peer in the connections: whoever takes it leaves a quarter to the others.
fn connections_per_peer(config: &ServerConfig) -> usize {
    let share = (config.connections_max - config.connections_max / 4).max(1);
    config.connections_per_peer_max.unwrap_or(share).min(config.connections_max)
}

/// What readers must take while others wait; `None` when that is nothing.
fn least_rate(config: &ServerConfig, service: &Arc<S3Service>) -> Option<LeastRate> {
    let bytes_per_second = config.download_bytes_per_second_min;
    let let_go = service.metrics().rejected_total.with_label_values(&["slow reader"]);
    let service = service.clone();
    let least = LeastRate { bytes_per_second, others_wait: Arc::new(move || service.others_wait()), let_go };
    (bytes_per_second > 0).then_some(least)
}

async fn serve_admin(
    config: &ServerConfig,
    listener: TcpListener,
    tls: Option<Arc<Certificate>>,
    socket: Option<AdminSocket>,
    (service, s3): (Arc<AdminService>, Arc<S3Service>),
    stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let builder = builder(config.head_timeout);
    let connections = Connections { builder, graceful: &graceful, config, stop, least_rate: None };
    let direct = |ends: Ends| {
        let (service, s3, proxies) = (service.clone(), s3.clone(), config.trusted_proxies.clone());
        move |request: Request<Incoming>| {
            let peer = proxies.client_of(ends.peer, request.headers());
            door::answer(service.clone(), s3.clone(), Ends { peer, ..ends }, request)
        }
    };
    let over_socket = |_: Ends| {
        let service = service.clone();
        move |request| service.clone().answer(Caller::Owner, request)
    };
    let places = |most| Places::new(most, most);
    let budget = Budget {
        places: places(ADMIN_CONNECTIONS_MAX),
        reserve: Some(places(HEALTH_CONNECTIONS_MAX)),
        trusted: config.trusted_proxies.clone(),
    };
    let tls = tls.map(|tls| (tls, Listener::Admin));
    tokio::join!(connections.accept(TcpAccept { listener: &listener, tls }, &budget, &direct, || ()), async {
        if let Some(socket) = &socket {
            let trusted = config.trusted_proxies.clone();
            let budget = Budget { places: places(ADMIN_CONNECTIONS_MAX), reserve: None, trusted };
            connections.accept(UnixAccept { listener: &socket.listener }, &budget, &over_socket, || ()).await;
        }
    });
    drop((listener, socket));
    // The API's answers are short: one that is still under way has this long.
    let _ = tokio::time::timeout(ADMIN_DRAIN_TIMEOUT, graceful.shutdown()).await;
}

/// How long answers of the admin API have when the server ends.
const ADMIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// A path to the admin socket that is short enough for a socket address (108 bytes) however deep
/// the data directory lies. It goes through the directory's descriptor and is good while that is
/// kept.
///
/// # Errors
/// The directory cannot be opened.
pub fn socket_path(data: &Path) -> Result<(std::fs::File, PathBuf)> {
    let directory = std::fs::File::open(data)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(ADMIN_SOCKET);
    Ok((directory, path))
}
