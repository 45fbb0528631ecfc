//! What `serve` would refuse of a configuration that can be read: found before anything is opened
//! or written.

use super::{outcome::Failure, serve::filter_of};
use crate::{
    config::ServeConfig,
    engine::{check_keyring_file, keyring_file},
    metrics::Metrics,
    server::Certificate,
    stores::{BackendConfig, StoresConfig},
};
use std::path::Path;

/// Looks at everything that `serve` needs besides its store.
///
/// # Errors
/// [`Failure`] with the key, at the first thing that `serve` would end with.
pub(super) fn check(config: &ServeConfig) -> Result<(), Failure> {
    filter_of(&config.log)?;
    if let Some(files) = &config.server.tls {
        Certificate::read(files).map_err(|error| {
            Failure(format!("server.tls_cert, server.tls_key, server.tls_client_ca, server.tls_client_crl: {error}"))
        })?;
    }
    check_stores(&config.stores)?;
    let keyring = keyring_file(&config.engine.data, config.engine.keyring.as_deref());
    // One in a data directory that this user may not look into is the server's alone to judge.
    if config.engine.keyring.is_some() || keyring.exists() {
        check_keyring_file(&keyring).map_err(|error| Failure(format!("storage.keyring: {error}")))?;
    }
    if let Some(anchor) = &config.engine.safety.anchor {
        let directory = anchor.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        if !directory.is_dir() {
            return Err(Failure(format!("backup.anchor: there is no directory {}", directory.display())));
        }
    }
    if let Some(path) = config.access_log.as_ref().and_then(|log| log.path.as_deref()) {
        let directory = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        if !directory.is_dir() {
            return Err(Failure(format!("access_log.path: there is no directory {}", directory.display())));
        }
    }
    Ok(())
}

/// Prepares each store as opening it would. Nothing is sent.
fn check_stores(stores: &StoresConfig) -> Result<(), Failure> {
    for (name, backend) in &stores.backends {
        if let BackendConfig::Cloud(cloud) = backend {
            cloud.store.open().map_err(|error| Failure(format!("backends.{name}: {error}")))?;
        }
    }
    stores.originals(&Metrics::new()?.engine)?;
    Ok(())
}
