//! Names of files and hosts that no file and no host can have.

use super::{error::ConfigError, file::backend::Backend, reader::Reader};
use std::path::Path;

impl Reader<'_> {
    /// Refuses paths without a character, which would name a directory that nobody meant, and hosts
    /// that no request can name.
    pub(super) fn check_names(&self) -> Result<(), ConfigError> {
        let file = self.file;
        let paths = [
            ("storage.data", Some(&file.storage.data)),
            ("storage.keyring", file.storage.keyring.as_ref()),
            ("backup.anchor", file.backup.anchor.as_ref()),
            ("audit.path", file.audit.path.as_ref()),
            ("access_log.path", file.access_log.path.as_ref()),
        ];
        for (key, path) in paths {
            path.map_or(Ok(()), |path| check_path(key, path))?;
        }
        file.eject.roots.iter().try_for_each(|root| check_path("eject.roots", root))?;
        for (name, backend) in &file.backends {
            if let Backend::Local(local) = backend {
                check_path(&format!("backends.{name}.path"), &local.path)?;
            }
        }
        for (key, hosts) in [("server.domains", &file.server.domains), ("server.admin_hosts", &file.server.admin_hosts)]
        {
            if let Some(wrong) = hosts.iter().find(|host| !is_host(host)) {
                let message =
                    format!("expected host names such as \"s3.example.com\", without scheme and port, not {wrong:?}");
                return Err(ConfigError::at(key, message));
            }
        }
        Ok(())
    }
}

fn check_path(key: &str, path: &Path) -> Result<(), ConfigError> {
    if path.as_os_str().is_empty() { Err(ConfigError::at(key, "the path is empty")) } else { Ok(()) }
}

/// Whether a request's `Host` can be this: a name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !text.trim_matches('.').is_empty()
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        }
    }
}
