//! Asking a store: the server that has it open, through its socket, or the engine itself when there
//! is none; or a server on another machine.

pub(super) use super::call::Call;
use super::{
    audit_log,
    call::{ANSWER_BYTES_MAX, answer_of},
    outcome::Failure,
    remote::Remote,
};
use crate::{
    admin::{AdminService, Asked, Caller, Scope, Told},
    auth::{Accounts, FileAccounts, root},
    config::{ConfigError, RemoteConfig, ServeConfig},
    engine::Engine,
    metrics::Metrics,
    server::socket_path,
    stores::{BackendConfig, CATALOG_FILE, CatalogConfig, StoresConfig, open_engine},
};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use s3_wire::Query;
use serde_json::Value;
use std::{
    fs::File,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{net::UnixStream, sync::watch};

/// A store.
pub(super) enum Store {
    /// Of this machine: where its data directory is, and how to open it where no server runs. A
    /// server is asked without the rest of its configuration, whose secrets may be known to it
    /// alone.
    Here { data: PathBuf, load: Box<dyn FnOnce() -> Result<ServeConfig, ConfigError> + Send> },
    /// Of a server on another machine.
    Elsewhere(Box<RemoteConfig>),
}

/// Who answers for a store.
pub(super) enum Answerer {
    /// The server that has it open, by its socket; the path leads through the open directory.
    Server { socket: PathBuf, _directory: File },
    /// This process, which opened it.
    Opened { engine: Arc<Engine>, api: Arc<AdminService>, _running: watch::Sender<bool> },
    /// A server on another machine.
    Remote(Remote),
}

impl Store {
    pub(super) fn of(config: ServeConfig) -> Self {
        Self::Here { data: config.engine.data.clone(), load: Box::new(move || Ok(config)) }
    }

    /// One whose configuration is not read before it is needed.
    pub(super) fn at(data: PathBuf, load: impl FnOnce() -> Result<ServeConfig, ConfigError> + Send + 'static) -> Self {
        Self::Here { data, load: Box::new(load) }
    }

    /// Makes one call.
    pub(super) async fn ask(self, call: Call) -> Result<Value, Failure> {
        let answerer = self.connect().await?;
        let answer = answerer.ask(&call).await;
        answerer.close().await;
        answer
    }

    /// Finds who answers: the server when one runs, else the store is opened here.
    pub(super) async fn connect(self) -> Result<Answerer, Failure> {
        let (data, load) = match self {
            Self::Here { data, load } => (data, load),
            Self::Elsewhere(remote) => return Ok(Answerer::Remote(Remote::new(*remote)?)),
        };
        let no_store = || Failure(format!("there is no store at {}", data.display()));
        if !data.is_dir() {
            return Err(no_store());
        }
        let (_directory, socket) = socket_path(&data)?;
        match UnixStream::connect(&socket).await {
            Ok(_) => Ok(Answerer::Server { socket, _directory }),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                let config = load()?;
                if is_nowhere(&data, &config.stores) {
                    return Err(no_store());
                }
                open(config).await
            }
            Err(error) => Err(Failure(format!("the server's admin socket: {error}"))),
        }
    }
}

/// True when opening a store would make it, which `serve` alone may: elsewhere the directory is a
/// typing error.
fn is_nowhere(data: &Path, stores: &StoresConfig) -> bool {
    let is_new = |backend: &BackendConfig| matches!(backend, BackendConfig::Local { path } if !path.exists());
    let alone = matches!(stores.catalog, CatalogConfig::Sqlite);
    alone && !data.join(CATALOG_FILE).exists() && stores.backends.values().all(is_new)
}

/// Whether a server has the store of this data directory open.
pub(super) async fn is_served(data: &Path) -> bool {
    let Ok((_directory, socket)) = socket_path(data) else { return false };
    UnixStream::connect(&socket).await.is_ok()
}

/// Opens the store in this process, without its background jobs.
async fn open(mut config: ServeConfig) -> Result<Answerer, Failure> {
    config.engine.schedule_jobs = false;
    let data = config.engine.data.clone();
    let metrics = Metrics::new()?;
    let audit = config.audit.map(|config| audit_log::open(config, &data, &metrics)).transpose()?;
    let engine = Box::pin(open_engine(config.engine, &config.stores, metrics.engine.clone())).await?;
    let (running, stopping) = watch::channel(false);
    let root = root::in_effect(config.root, !config.users.is_empty(), &data)?.map(|pair| pair.credentials);
    let file = FileAccounts { root, users: config.users, roles: config.roles };
    let accounts = Accounts::open(engine.accounts.clone(), file).await?;
    let api = AdminService::new(engine.clone(), metrics, accounts, None, stopping);
    api.preview_in(&data);
    if let Some(log) = audit {
        api.audit_to(log);
    }
    if let Some(prices) = config.prices {
        api.price_by(prices);
    }
    Ok(Answerer::Opened { engine, api, _running: running })
}

impl Answerer {
    /// Makes one call.
    pub(super) async fn ask(&self, call: &Call) -> Result<Value, Failure> {
        match self {
            Self::Server { socket, .. } => ask_server(UnixStream::connect(socket).await?, call).await,
            Self::Remote(remote) => remote.ask(call).await,
            Self::Opened { api, .. } => {
                let query = Query::parse(&call.query).map_err(|error| Failure(error.to_string()))?;
                let mut told = Told::of_call(&call.path, &query, &call.body);
                let answer = api.call(Scope::Owner, &call.method, &call.path, &query, call.body.clone()).await;
                let status = answer.as_ref().map_or_else(|error| error.status, |_| StatusCode::OK);
                answer.iter().for_each(|value| told.answered(value));
                let (method, path, query) = (&call.method, call.path.as_str(), Some(call.query.as_str()));
                let asked = Asked { caller: Caller::Owner, who: None, method, path, query };
                api.write_down(asked, status, told).await;
                answer.map_err(|error| Failure(error.message))
            }
        }
    }

    /// Whether what was started goes on when this command ends.
    pub(super) fn outlives_us(&self) -> bool {
        !matches!(self, Self::Opened { .. })
    }

    /// Ends what this process opened, in good order.
    pub(super) async fn close(self) {
        if let Self::Opened { engine, .. } = self {
            engine.shutdown().await;
        }
    }
}

async fn ask_server(stream: UnixStream, call: &Call) -> Result<Value, Failure> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let body = if call.body.is_null() { Bytes::new() } else { call.body.to_string().into() };
    let request = Request::builder()
        .method(call.method.clone())
        .uri(format!("{}?{}", call.path, call.query))
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes();
    driver.abort();
    answer_of(status, &body)
}
