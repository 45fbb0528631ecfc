//! A server of this process with a store of its own.

use deltaweir::{
    admin::{Access, AdminService},
    auth::{Accounts, FileAccounts, admin_token},
    config::{Environment, Overrides, ServeConfig},
    engine::{self, Engine, EngineConfig, EngineError},
    metrics::Metrics,
    server::{S3Service, Server},
    stores::{StoresConfig, open_engine},
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle};

pub(crate) const ACCESS_KEY: &str = "AKTEST";
pub(crate) const SECRET: &str = "a-secret-for-tests";

/// The engine over the stores that the configuration names.
pub(crate) async fn open(
    config: EngineConfig,
    stores: StoresConfig,
    metrics: Arc<engine::Metrics>,
) -> Result<Arc<Engine>, EngineError> {
    open_engine(config, &stores, metrics).await
}

/// A server that is up. Dropped, its store goes.
pub(crate) struct Running {
    pub(crate) s3: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) engine: Arc<Engine>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    task: JoinHandle<bool>,
    directory: TempDir,
}

impl Running {
    /// Starts one with these lines of configuration more.
    pub(crate) async fn start(config: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), config, open).await
    }

    /// Starts one over the store in `directory`, with the engine that `open` gives.
    pub(crate) async fn start_in<Opening>(
        directory: TempDir,
        config: &str,
        open: impl FnOnce(EngineConfig, StoresConfig, Arc<engine::Metrics>) -> Opening,
    ) -> Self
    where
        Opening: Future<Output = Result<Arc<Engine>, EngineError>>,
    {
        Self::try_start_in(directory, config, open).await.unwrap()
    }

    /// As [`Running::start_in`].
    ///
    /// # Errors
    /// Why the engine does not open.
    pub(crate) async fn try_start_in<Opening>(
        directory: TempDir,
        config: &str,
        open: impl FnOnce(EngineConfig, StoresConfig, Arc<engine::Metrics>) -> Opening,
    ) -> Result<Self, EngineError>
    where
        Opening: Future<Output = Result<Arc<Engine>, EngineError>>,
    {
        let data = directory.path().join("data");
        let environment = Environment::from([
            ("DELTAWEIR_DATA", data.to_str().unwrap()),
            ("DELTAWEIR_LISTEN", "127.0.0.1:0"),
            ("DELTAWEIR_ADMIN_LISTEN", "127.0.0.1:0"),
            ("DELTAWEIR_ACCESS_KEY_ID", ACCESS_KEY),
            ("DELTAWEIR_SECRET_ACCESS_KEY", SECRET),
        ]);
        let config = ServeConfig::from_text(config, Path::new(""), &Overrides::default(), &environment).unwrap();
        let metrics = Metrics::new().unwrap();
        let mut server = Server::bind(config.server.clone()).await.unwrap();
        let engine = open(config.engine, config.stores, metrics.engine.clone()).await?;
        server.bind_socket(&data).unwrap();
        let (s3, admin) = (server.s3_address().unwrap(), server.admin_address().unwrap());
        let (stop, stopping) = watch::channel(false);
        let file = FileAccounts { root: config.root, users: config.users, roles: config.roles };
        let accounts = Accounts::open(engine.accounts.clone(), file).await.unwrap();
        let service = S3Service::new(&config.server, engine.clone(), metrics.clone(), accounts.clone());
        let token = config.server.admin_token.clone();
        let token = token.unwrap_or_else(|| admin_token::load_or_create(&data).unwrap());
        let access = Access::new(&config.server, &token);
        let api = AdminService::new(engine.clone(), metrics.clone(), accounts.clone(), Some(access), stopping.clone());
        api.show_requests(service.recent());
        api.show_log(Arc::default());
        let task = tokio::spawn(server.run(service, api, stopping));
        Ok(Self { s3, admin, engine, accounts, metrics, stop, task, directory })
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Says what SIGTERM says.
    pub(crate) fn begin_to_stop(&self) {
        self.stop.send(true).unwrap();
    }

    /// Waits for the end; whether every request ended in time.
    pub(crate) async fn end(self) -> bool {
        let in_time = self.task.await.unwrap();
        self.engine.shutdown().await;
        in_time
    }

    /// Stops it and gives its directory, for the next one.
    pub(crate) async fn leave(self) -> TempDir {
        self.begin_to_stop();
        self.task.await.unwrap();
        self.engine.shutdown().await;
        self.directory
    }
}
