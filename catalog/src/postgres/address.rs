//! The address of a database: a `postgres://` URL, with what libpq calls `sslmode` and
//! `sslrootcert`.

use crate::{CatalogError, Result};
use percent_encoding::percent_decode_str;
use std::{net::IpAddr, path::PathBuf};
use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

/// Where the database is and how its server proves who it is.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) security: Security,
}

/// Whether the connection is encrypted. There is no encryption to a server that does not prove its
/// name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Security {
    /// Plain: only to this machine unless `sslmode=disable` says otherwise.
    Plain,
    /// TLS, the server's certificate checked against these roots and the host's name.
    Verified {
        /// A PEM file; `None` for the system's roots.
        roots: Option<PathBuf>,
    },
}

impl Address {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`CatalogError::Invalid`] with what is wrong; never with the URL itself, which may hold a
    /// password.
    pub(super) fn parse(url: &str) -> Result<Self> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(CatalogError::Invalid("the catalog's address does not begin with postgres://".into()));
        }
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut kept) = (None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| CatalogError::Invalid(format!("{name} is not UTF-8")))?;
            match name {
                "sslmode" => mode = Some(value.into_owned()),
                "sslrootcert" => roots = Some(PathBuf::from(value.into_owned())),
                _ => kept.push(pair),
            }
        }
        let mut config: Config = format!("{url}?{}", kept.join("&"))
            .parse()
            .map_err(|error: tokio_postgres::Error| CatalogError::Invalid(format!("the catalog's address: {error}")))?;
        let hosts = config.get_hosts();
        // An empty name is a host to the driver; only an address beside it would be connected to.
        let nameless = |host: &Host| matches!(host, Host::Tcp(name) if name.is_empty());
        if config.get_hostaddrs().is_empty() && (hosts.is_empty() || hosts.iter().any(nameless)) {
            return Err(CatalogError::Invalid("the catalog's address names no host".into()));
        }
        let security = match mode.as_deref() {
            Some("disable") => Security::Plain,
            Some("verify-full") => Security::Verified { roots },
            Some(other) => {
                return Err(CatalogError::Invalid(format!(
                    "sslmode={other} does not check the server's name; use verify-full, or disable"
                )));
            }
            None if roots.is_none() && config.get_hosts().iter().all(is_local) => Security::Plain,
            None => Security::Verified { roots },
        };
        config.ssl_mode(match security {
            Security::Plain => SslMode::Disable,
            Security::Verified { .. } => SslMode::Require,
        });
        if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
            return Err(CatalogError::Invalid(
                "target_session_attrs=read-only names a standby; the catalog is read and written on the primary alone"
                    .into(),
            ));
        }
        // A standby may lag, and everything that is read must be current: a server in recovery is
        // passed over, whichever host is tried first.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_application_name().is_none() {
            config.application_name("deltaweir");
        }
        Ok(Address { config, security })
    }
}

/// Whether packets to this host stay on the machine.
fn is_local(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn security(url: &str) -> Security {
        Address::parse(url).map(|address| address.security).unwrap()
    }

    #[test]
    fn only_this_machine_is_spoken_to_in_plain_unless_asked_for() {
        let verified = Security::Verified { roots: None };
        for url in ["postgres://u@localhost/d", "postgresql://u@127.0.0.1:1/d", "postgres://u@%2Fvar%2Frun/d"] {
            assert_eq!(security(url), Security::Plain, "{url}");
        }
        for url in ["postgres://u@db/d", "postgres://u@10.0.0.1/d", "postgres://u@localhost,db/d"] {
            assert_eq!(security(url), verified, "{url}");
        }
        assert_eq!(security("postgres://u@db/d?sslmode=disable"), Security::Plain);
        assert_eq!(security("postgres://u@localhost/d?sslmode=verify-full"), verified);
        let roots = Some(PathBuf::from("/etc/my ca.pem"));
        assert_eq!(security("postgres://u@localhost/d?sslrootcert=/etc/my%20ca.pem"), Security::Verified { roots });
    }

    #[test]
    fn a_mode_that_does_not_check_the_name_is_refused() {
        for mode in ["prefer", "require", "allow", "verify-ca", ""] {
            let outcome = Address::parse(&format!("postgres://u@db/d?sslmode={mode}"));
            assert!(matches!(outcome, Err(CatalogError::Invalid(_))), "{mode}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused_without_showing_its_password() {
        for url in ["", "sqlite", "mysql://u@h/d", "postgres://u:hunter2@h:port/d", "postgres://u:hunter2@h/d?what=1"] {
            match Address::parse(url) {
                Err(CatalogError::Invalid(why)) => assert!(!why.contains("hunter2"), "{why}"),
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("{url}"),
            }
        }
    }

    #[test]
    fn only_a_primary_is_spoken_to_whatever_the_address_says() {
        for asked in ["", "&target_session_attrs=any", "&target_session_attrs=read-write", "&load_balance_hosts=random"]
        {
            let address = Address::parse(&format!("postgres://u@a,b/d?sslmode=disable{asked}")).unwrap();
            assert_eq!(address.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite, "{asked}");
        }
        let outcome = Address::parse("postgres://u@a,b/d?target_session_attrs=read-only");
        assert!(matches!(outcome, Err(CatalogError::Invalid(_))));
    }

    #[test]
    fn other_parameters_reach_the_driver() {
        let address = Address::parse("postgres://u:p%40ss@h:7/d?sslmode=disable&options=-c%20x%3D1").unwrap();
        assert_eq!(address.config.get_password(), Some(b"p@ss".as_slice()));
        assert_eq!(address.config.get_options(), Some("-c x=1"));
        assert_eq!(address.config.get_ports(), [7]);
    }
}
