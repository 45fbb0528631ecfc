//! `deltaweir recover --merge`: a catalog that forked from its store is joined with it.
//!
//! ```text
//! SQLite: marker file ─► catalog.sqlite moved to catalog.sqlite.forked-TIME ─► merged into a new one ─► marker removed
//! --from: the forked catalog is named, and storage.catalog is an empty one
//! ```
//!
//! The forked catalog is read and stays. The marker is there until the new one is whole, so that
//! the same command goes on after it was interrupted.

use super::{
    damaged::{begin, finish, is_made, set_aside},
    outcome::{Failure, Outcome},
    recover,
};
use crate::{
    config::ServeConfig,
    engine::{self, Fork, RecoveryOptions},
    metrics::Metrics,
    stores::{CATALOG_FILE, CatalogConfig},
};
use catalog::{Catalog, PostgresCatalog, PostgresOptions, SqliteCatalog, SqliteOptions};
use secrecy::ExposeSecret as _;
use std::{path::Path, sync::Arc};

/// What the marker is called; it holds the name of the file that is set aside.
const MARKER: &str = "catalog.sqlite.merging";
/// What a catalog that is set aside is called, before the time in milliseconds.
const ASIDE: &str = "catalog.sqlite.forked-";

/// Joins what a catalog and its store have, and prints what was done.
pub(super) async fn merge(
    load: impl Fn() -> Result<ServeConfig, Failure>,
    from: Option<String>,
    options: RecoveryOptions,
    json: bool,
) -> Outcome {
    let config = load()?;
    match (from, &config.stores.catalog) {
        (Some(from), _) => {
            let fork = open_fork(&from, &config).await?;
            let options = RecoveryOptions { fork: Some(Fork(fork)), manifests: true, ..options };
            Box::pin(recover::recover(config, options, json)).await
        }
        (None, CatalogConfig::Postgres { .. }) => {
            Err(Failure("let storage.catalog name an empty database, and name the one that forked with --from".into()))
        }
        (None, CatalogConfig::Sqlite) => merge_in_place(load, config, options, json).await,
    }
}

async fn merge_in_place(
    load: impl Fn() -> Result<ServeConfig, Failure>,
    config: ServeConfig,
    options: RecoveryOptions,
    json: bool,
) -> Outcome {
    let data = config.engine.data.clone();
    let catalog = data.join(CATALOG_FILE);
    if !data.join(MARKER).exists() {
        if !catalog.exists() {
            return Err(Failure(format!(
                "there is no catalog at {}: `deltaweir rebuild` makes one",
                catalog.display()
            )));
        }
        let looked = load()?;
        let metrics = Metrics::new()?.engine.clone();
        let stores = looked.stores.open(&data, &metrics);
        engine::check_fork(looked.engine, stores, options.accept_unsealed_until, metrics.clone()).await?;
    }
    let aside = begin(&data, MARKER, ASIDE)?;
    set_aside(&catalog, &aside).await?;
    if catalog.exists() && is_made(&catalog).await? {
        // The last run ended just before it could say so.
        return finish(&data, MARKER);
    }
    let fork = Arc::new(SqliteCatalog::open(&aside, SqliteOptions::default()).await?);
    let options = RecoveryOptions { fork: Some(Fork(fork)), manifests: true, ..options };
    let done = Box::pin(recover::recover(config, options, json)).await;
    if catalog.exists() && is_made(&catalog).await? {
        finish(&data, MARKER)?;
    }
    done
}

/// The catalog that forked: a file, or a database.
async fn open_fork(from: &str, config: &ServeConfig) -> Result<Arc<dyn Catalog>, Failure> {
    if from.starts_with("postgres://") || from.starts_with("postgresql://") {
        let password = match &config.stores.catalog {
            CatalogConfig::Postgres { password, .. } => {
                password.as_ref().map(|password| password.expose_secret().to_owned())
            }
            CatalogConfig::Sqlite => None,
        };
        let options = PostgresOptions { password, ..PostgresOptions::default() };
        return Ok(Arc::new(PostgresCatalog::open(from, options).await?));
    }
    if !Path::new(from).is_file() {
        return Err(Failure(format!("--from: there is no catalog at {from:?}")));
    }
    Ok(Arc::new(SqliteCatalog::open(from, SqliteOptions::default()).await?))
}
