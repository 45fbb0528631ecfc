//! Where a deployment keeps its rows and its bytes: what a configuration says of it, and how it is
//! opened. The engine is handed what is open; it knows neither clouds nor databases by name.

use catalog::{
    Catalog, CatalogError, CommitObserver, PostgresCatalog, PostgresOptions, SpareSpace, SqliteCatalog, SqliteOptions,
};
use engine::{
    BackendMetrics, CatalogMetrics, CatalogReserve, Engine, EngineConfig, EngineError, Metrics, Originals, PlainPlace,
    Reserves, Stores, make_private_dir, may_take_the_last,
};
use secrecy::{ExposeSecret, SecretString};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};
use storage_backends::{
    AzureConfig, Backend, BackendError, CloudBackend, Concurrency, GcsConfig, Guarded, Limited, LocalBackend,
    LocalOptions, Measured, PlainDirectory, PlainStore, PlainWriter, Repeats, Reserve, RetryPolicy, Retrying, S3Config,
    UnfinishedUploads,
};

/// The embedded catalog, in the data directory.
pub(crate) const CATALOG_FILE: &str = "catalog.sqlite";

/// Every store that a configuration names.
#[derive(Clone, Debug)]
pub struct StoresConfig {
    /// Where the catalog is.
    pub catalog: CatalogConfig,
    /// Where blobs can go, by name.
    pub backends: BTreeMap<String, BackendConfig>,
    /// Stores of plain objects by name: content is adopted from them, and written to them by those
    /// who leave.
    pub stores: BTreeMap<String, BackendConfig>,
    /// The one of these that keeps an anchor, if any does.
    pub anchor: Option<String>,
    /// False: leave flushing to the operating system.
    pub sync: bool,
    /// What is kept free on each local disk for when it is full; 0: nothing.
    pub reserve_bytes: u64,
}

/// Where blobs can go.
#[derive(Clone, Debug)]
pub enum BackendConfig {
    /// A directory.
    Local {
        /// Its path.
        path: PathBuf,
    },
    /// A bucket of a cloud.
    Cloud(Box<CloudConfig>),
}

impl BackendConfig {
    /// Whether both are one bucket, or one directory lies in the other.
    fn is_beside(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local { path: one }, Self::Local { path: other }) => {
                one.starts_with(other) || other.starts_with(one)
            }
            (Self::Cloud(one), Self::Cloud(other)) => one.store.is_bucket_of(&other.store),
            _ => false,
        }
    }
}

/// A bucket of a cloud and how patient we are with it.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    /// Where it is and who asks.
    pub store: CloudStore,
    /// How often calls are repeated.
    pub retry: RetryPolicy,
}

/// Whose protocol a bucket speaks.
#[derive(Clone, Debug)]
pub enum CloudStore {
    /// AWS S3, or a store that speaks like it.
    S3(S3Config),
    /// Google Cloud Storage.
    Gcs(GcsConfig),
    /// Azure Blob Storage.
    Azure(AzureConfig),
}

impl CloudStore {
    /// As a store of blobs. Sends nothing.
    ///
    /// # Errors
    /// [`storage_backends::ErrorKind::Invalid`] when the configuration contradicts itself.
    pub fn open(&self) -> Result<CloudBackend, BackendError> {
        match self.clone() {
            Self::S3(config) => config.open(),
            Self::Gcs(config) => config.open(),
            Self::Azure(config) => config.open(),
        }
    }

    /// As a store of plain objects. Sends nothing.
    ///
    /// # Errors
    /// As [`CloudStore::open`].
    pub fn open_plain(&self) -> Result<Arc<dyn PlainStore>, BackendError> {
        Ok(match self.clone() {
            Self::S3(config) => Arc::new(config.open_plain()?),
            Self::Gcs(config) => Arc::new(config.open()?.plain()),
            Self::Azure(config) => Arc::new(config.open()?.plain()),
        })
    }

    /// As a store that plain objects are written to. Sends nothing.
    ///
    /// # Errors
    /// As [`CloudStore::open`].
    pub(crate) fn open_writer(&self) -> Result<Arc<dyn PlainWriter>, BackendError> {
        Ok(match self.clone() {
            Self::S3(config) => Arc::new(config.open_plain()?),
            Self::Gcs(config) => Arc::new(config.open()?.plain()),
            Self::Azure(config) => Arc::new(config.open()?.plain()),
        })
    }

    /// Where its names begin.
    pub(crate) fn prefix(&self) -> &str {
        match self {
            Self::S3(config) => &config.prefix,
            Self::Gcs(config) => &config.prefix,
            Self::Azure(config) => &config.prefix,
        }
    }

    /// Whether both are the same bucket, whatever their prefixes.
    pub(crate) fn is_bucket_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::S3(one), Self::S3(other)) => (&one.endpoint, &one.bucket) == (&other.endpoint, &other.bucket),
            (Self::Gcs(one), Self::Gcs(other)) => (&one.endpoint, &one.bucket) == (&other.endpoint, &other.bucket),
            (Self::Azure(one), Self::Azure(other)) => {
                (&one.endpoint, &one.account, &one.container) == (&other.endpoint, &other.account, &other.container)
            }
            _ => false,
        }
    }
}

/// Where the catalog is.
#[derive(Clone, Debug)]
pub enum CatalogConfig {
    /// In the data directory, owned by one process.
    Sqlite,
    /// In a database that several processes share.
    Postgres {
        /// Its URL, perhaps with a password.
        url: SecretString,
        /// The password, when it is not in the URL.
        password: Option<SecretString>,
        /// Most connections that read; one more writes.
        connections_max: usize,
    },
}

impl StoresConfig {
    /// A catalog and one backend, `local`, below `directory`, of which nothing is flushed for
    /// durability: for [`EngineConfig::temporary`].
    pub fn temporary(directory: &Path) -> Self {
        let backend = BackendConfig::Local { path: directory.join("blobs") };
        Self {
            catalog: CatalogConfig::Sqlite,
            backends: BTreeMap::from([("local".to_owned(), backend)]),
            stores: BTreeMap::new(),
            anchor: None,
            sync: false,
            reserve_bytes: 0,
        }
    }

    /// Opens all of them; makes what is missing on the first start. An embedded catalog lies in
    /// `data`.
    ///
    /// # Errors
    /// [`EngineError`] in words for the operator: catalog in use, unusable backend …
    pub async fn open(&self, data: &Path, metrics: &Arc<Metrics>) -> Result<Stores, EngineError> {
        make_private_dir(data)?;
        let reserves = self.reserves(data);
        let catalog = open_catalog(self, data, reserves.data.as_ref(), metrics).await?;
        let mut backends = BTreeMap::new();
        let mut directories = BTreeMap::new();
        let mut unfinished = BTreeMap::new();
        for (name, backend) in &self.backends {
            backends.insert(name.clone(), open_backend(name, backend, self.sync, &reserves, metrics).await?);
            match backend {
                BackendConfig::Local { path } => drop(directories.insert(name.clone(), path.clone())),
                BackendConfig::Cloud(cloud) => {
                    let uploads: Arc<dyn UnfinishedUploads> = Arc::new(cloud.store.open()?);
                    unfinished.insert(name.clone(), uploads);
                }
            }
        }
        let alone = matches!(self.catalog, CatalogConfig::Sqlite);
        let (originals, anchor) = (self.originals(metrics)?, self.open_anchor(metrics).await?);
        Ok(Stores { catalog, alone, backends, directories, reserves, unfinished, originals, anchor })
    }

    async fn open_anchor(&self, metrics: &Arc<Metrics>) -> Result<Option<Arc<dyn Backend>>, EngineError> {
        let Some((name, store)) = self.anchor.as_ref().and_then(|name| self.stores.get_key_value(name)) else {
            return Ok(None);
        };
        open_backend(name, store, self.sync, &Reserves::default(), metrics).await.map(Some)
    }

    /// The backend that lies where the anchor's store does, if one does: whoever sets that back has
    /// the anchor, too.
    pub(crate) fn beside_anchor(&self) -> Option<&str> {
        let store = self.stores.get(self.anchor.as_ref()?)?;
        self.backends.iter().find(|(_, backend)| backend.is_beside(store)).map(|(name, _)| name.as_str())
    }

    /// Opens one backend.
    ///
    /// # Errors
    /// [`EngineError::Other`] when none is called so; whatever opening it says.
    pub async fn open_backend(&self, name: &str, metrics: &Arc<Metrics>) -> Result<Arc<dyn Backend>, EngineError> {
        let named = self.backends.get(name);
        let named = named.ok_or_else(|| EngineError::Other(format!("backend {name:?} is not configured")))?;
        open_backend(name, named, self.sync, &Reserves::default(), metrics).await
    }

    /// The reserves of the disks that the catalog and local backends lie on, one a disk. A full one
    /// is relieved here, so that what is opened next finds space.
    fn reserves(&self, data: &Path) -> Reserves {
        let mut disks: BTreeMap<Option<u64>, Arc<Reserve>> = BTreeMap::new();
        let mut of = |path: &Path| match self.reserve_bytes {
            0 => None,
            bytes => {
                let open = || Arc::new(Reserve::open(path, bytes));
                Some(disks.entry(device_of(path)).or_insert_with(open).clone())
            }
        };
        let data = if matches!(self.catalog, CatalogConfig::Sqlite) { of(data) } else { None };
        let local = |(name, backend): (&String, &BackendConfig)| match backend {
            BackendConfig::Local { path } => Some((name.clone(), of(path)?)),
            BackendConfig::Cloud(_) => None,
        };
        Reserves { data, backends: self.backends.iter().filter_map(local).collect() }
    }

    /// Prepares every store of plain objects, and every backend as one. Asks none of them anything.
    ///
    /// # Errors
    /// [`EngineError::Other`] when a configuration contradicts itself.
    pub fn originals(&self, metrics: &Arc<Metrics>) -> Result<Originals, EngineError> {
        let mut places = BTreeMap::new();
        for (name, store) in self.stores.iter().chain(&self.backends) {
            let (writer, retry) = match store {
                BackendConfig::Cloud(cloud) => (Some(cloud.store.open_writer()?), cloud.retry),
                BackendConfig::Local { .. } => (None, RetryPolicy::default()),
            };
            let observer = Arc::new(BackendMetrics { backend: name.clone(), metrics: metrics.clone() });
            let measured = Measured::new(open_plain(store)?, observer.clone());
            let plain = Arc::new(Retrying::new(measured, retry, observer));
            let ours = self.backends.values().filter_map(|backend| below(store, backend)).collect();
            places.insert(name.clone(), PlainPlace { plain, writer, ours });
        }
        Ok(Originals::new(places))
    }
}

/// Opens the stores of a configuration and the engine over them.
///
/// # Errors
/// [`EngineError`] in words for the operator: catalog in use, newer schema, unusable backend, wrong
/// KEK …
pub async fn open_engine(
    config: EngineConfig,
    stores: &StoresConfig,
    metrics: Arc<Metrics>,
) -> Result<Arc<Engine>, EngineError> {
    let stores = stores.open(&config.data, &metrics).await?;
    Engine::open(config, stores, metrics).await
}

/// The device of the file system that a path is on, or will be on when it is made; `None` when
/// nobody knows.
fn device_of(path: &Path) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    path.ancestors().find_map(|path| path.metadata().ok()).map(|found| found.dev())
}

async fn open_catalog(
    config: &StoresConfig,
    data: &Path,
    reserve: Option<&Arc<Reserve>>,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Catalog>, EngineError> {
    let observer: Arc<dyn CommitObserver> = Arc::new(CatalogMetrics(metrics.clone()));
    match &config.catalog {
        CatalogConfig::Sqlite => {
            let spare = reserve.map(|reserve| Arc::new(CatalogReserve(reserve.clone())) as Arc<dyn SpareSpace>);
            let options =
                SqliteOptions { sync: config.sync, observer: Some(observer), spare, ..SqliteOptions::default() };
            let catalog = SqliteCatalog::open(data.join(CATALOG_FILE), options).await;
            Ok(Arc::new(catalog.map_err(|error| match error {
                CatalogError::InUse => {
                    EngineError::Other(format!("{} is in use by another deltaweir process", data.display()))
                }
                other => other.into(),
            })?))
        }
        CatalogConfig::Postgres { url, password, connections_max } => {
            let options = PostgresOptions {
                readers_max: *connections_max,
                password: password.as_ref().map(|password| password.expose_secret().to_owned()),
                observer: Some(observer),
                ..PostgresOptions::default()
            };
            Ok(Arc::new(PostgresCatalog::open(url.expose_secret(), options).await?))
        }
    }
}

async fn open_backend(
    name: &str,
    config: &BackendConfig,
    sync: bool,
    reserves: &Reserves,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Backend>, EngineError> {
    let observer = Arc::new(BackendMetrics { backend: name.to_owned(), metrics: metrics.clone() });
    match config {
        BackendConfig::Local { path } => {
            let local = LocalBackend::open(path.clone(), LocalOptions { sync }).await?;
            Ok(match reserves.backends.get(name) {
                Some(own) => {
                    let guarded = Guarded::new(local, own.clone(), reserves.data.clone(), may_take_the_last);
                    Arc::new(Measured::new(guarded, observer))
                }
                None => Arc::new(Measured::new(local, observer)),
            })
        }
        BackendConfig::Cloud(cloud) => {
            let opened = cloud.store.open()?;
            let repeats = Repeats::new(cloud.retry, observer.clone());
            opened.repeat_with(repeats.clone());
            let limited = Limited::new(Measured::new(opened, observer), Concurrency::default());
            Ok(Arc::new(Retrying::sharing(limited, repeats)))
        }
    }
}

/// A store as its configuration says, its requests neither counted nor repeated. Asks it nothing.
///
/// # Errors
/// [`EngineError::Other`] when the configuration contradicts itself.
pub fn open_plain(store: &BackendConfig) -> Result<Arc<dyn PlainStore>, EngineError> {
    Ok(match store {
        BackendConfig::Local { path } => Arc::new(PlainDirectory::new(path.clone())),
        BackendConfig::Cloud(cloud) => cloud.store.open_plain()?,
    })
}

/// Where below `store` the blobs of `backend` lie, when both are in one place.
fn below(store: &BackendConfig, backend: &BackendConfig) -> Option<String> {
    match (store, backend) {
        (BackendConfig::Local { path: store }, BackendConfig::Local { path: blobs }) => {
            let path = |path: &std::path::Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let inside = path(blobs).strip_prefix(path(store)).ok()?.to_str()?.to_owned();
            Some(if inside.is_empty() { inside } else { inside + "/" })
        }
        (BackendConfig::Cloud(store), BackendConfig::Cloud(blobs)) if store.store.is_bucket_of(&blobs.store) => {
            blobs.store.prefix().strip_prefix(store.store.prefix()).map(str::to_owned)
        }
        _ => None,
    }
}
