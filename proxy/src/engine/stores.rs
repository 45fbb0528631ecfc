//! Opens what a configuration names: the catalog, and every backend with its wrappers.

use super::{
    BackendConfig, CatalogConfig, EngineConfig, EngineError, Stores, make_private_dir,
    observe::{BackendMetrics, CatalogMetrics},
};
use crate::metrics::Metrics;
use catalog::{Catalog, CatalogError, CommitObserver, PostgresCatalog, PostgresOptions, SqliteCatalog, SqliteOptions};
use secrecy::ExposeSecret;
use std::{collections::BTreeMap, sync::Arc};
use storage_backends::{Backend, Concurrency, Limited, LocalBackend, LocalOptions, Measured, Retrying};

pub(super) async fn open_stores(config: &EngineConfig, metrics: &Arc<Metrics>) -> Result<Stores, EngineError> {
    make_private_dir(&config.data)?;
    let catalog = open_catalog(config, metrics).await?;
    let mut backends = BTreeMap::new();
    for (name, backend) in &config.backends {
        backends.insert(name.clone(), open_backend(name, backend, config.sync, metrics).await?);
    }
    Ok(Stores { catalog, backends })
}

pub(super) async fn open_catalog(
    config: &EngineConfig,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Catalog>, EngineError> {
    let observer: Arc<dyn CommitObserver> = Arc::new(CatalogMetrics(metrics.clone()));
    match &config.catalog {
        CatalogConfig::Sqlite => {
            let options = SqliteOptions { sync: config.sync, observer: Some(observer), ..SqliteOptions::default() };
            let catalog = SqliteCatalog::open(config.data.join("catalog.sqlite"), options).await;
            Ok(Arc::new(catalog.map_err(|error| match error {
                CatalogError::InUse => {
                    EngineError::Other(format!("{} is in use by another deltaweir process", config.data.display()))
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

pub(super) async fn open_backend(
    name: &str,
    config: &BackendConfig,
    sync: bool,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Backend>, EngineError> {
    let observer = Arc::new(BackendMetrics { backend: name.to_owned(), metrics: metrics.clone() });
    match config {
        BackendConfig::Local { path } => {
            let local = LocalBackend::open(path.clone(), LocalOptions { sync }).await?;
            Ok(Arc::new(Measured::new(local, observer)))
        }
        BackendConfig::Cloud(cloud) => {
            let measured = Measured::new(cloud.store.open()?, observer.clone());
            let limited = Limited::new(measured, Concurrency::default());
            Ok(Arc::new(Retrying::new(limited, cloud.retry, observer)))
        }
    }
}
