//! What `serve` would refuse of a configuration that can be read: found before anything is opened
//! or written.

use super::{outcome::Failure, serve::filter_of};
use crate::{
    config::ServeConfig,
    engine::{AnchorPlace, check_keyring_file, keyring_file},
    metrics::Metrics,
    server::Certificate,
    stores::BackendConfig,
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
            let keys = "server.tls_cert, server.tls_key, server.tls_client_ca, server.tls_client_crl";
            config.wrong(keys, error.to_string())
        })?;
    }
    check_stores(config)?;
    let keyring = keyring_file(&config.engine.data, config.engine.keyring.as_deref());
    // One in a data directory that this user may not look into is the server's alone to judge.
    if config.engine.keyring.is_some() || keyring.exists() {
        check_keyring_file(&keyring).map_err(|error| config.wrong("storage.keyring", error.to_string()))?;
    }
    if let Some(AnchorPlace::File(anchor)) = &config.engine.safety.anchor {
        let directory = anchor.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        if !directory.is_dir() {
            return Err(config.wrong("backup.anchor", format!("there is no directory {}", directory.display())).into());
        }
    }
    if let Some(path) = config.access_log.as_ref().and_then(|log| log.path.as_deref()) {
        let directory = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
        if !directory.is_dir() {
            return Err(config
                .wrong("access_log.path", format!("there is no directory {}", directory.display()))
                .into());
        }
    }
    Ok(())
}

/// Prepares each store as opening it would. Nothing is sent.
fn check_stores(config: &ServeConfig) -> Result<(), Failure> {
    for (name, backend) in &config.stores.backends {
        if let BackendConfig::Cloud(cloud) = backend {
            let opened = cloud.store.open();
            opened.map_err(|error| config.wrong(&format!("backends.{name}"), error.to_string()))?;
        }
    }
    config.stores.originals(&Metrics::new()?.engine)?;
    Ok(())
}
