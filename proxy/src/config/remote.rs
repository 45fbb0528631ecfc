//! What the command line needs to ask a server on another machine: where it is, the token, and
//! whom to trust.

use super::{
    environment::Environment,
    error::ConfigError,
    modes::{Holds, Modes},
};
use crate::auth::admin_token;
use reqwest::{Certificate, Identity, Url};
use secrecy::SecretString;
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// Flags about a server on another machine.
#[derive(Clone, Debug, Default)]
pub struct RemoteFlags {
    /// `--remote`
    pub url: String,
    /// `--token-file`
    pub token_file: Option<PathBuf>,
    /// `--ca-file`
    pub ca_file: Option<PathBuf>,
    /// `--client-cert`
    pub client_cert: Option<PathBuf>,
    /// `--client-key`
    pub client_key: Option<PathBuf>,
}

/// A server on another machine.
pub struct RemoteConfig {
    /// Its admin listener, without a path: `https://HOST:PORT/`, or `http` on loopback.
    pub url: Url,
    /// The admin token.
    pub token: SecretString,
    /// Who may sign its certificate; empty: whom this machine trusts.
    pub authorities: Vec<Certificate>,
    /// What this side shows to a listener that asks for certificates.
    pub identity: Option<Identity>,
    /// What is odd about the files, for whoever typed the command.
    pub warnings: Vec<String>,
}

impl RemoteConfig {
    /// Reads what the flags name. The token stands in a file, or in `DELTAWEIR_ADMIN_TOKEN`: as a
    /// flag's value everybody on this machine would see it.
    ///
    /// # Errors
    /// [`ConfigError`] at the flag: an address that would send the token in the clear, no token, a
    /// file that cannot be used.
    pub fn load(flags: &RemoteFlags, environment: &Environment) -> Result<Self, ConfigError> {
        let modes = Modes::default();
        let url = address(&flags.url).map_err(|why| ConfigError::at("--remote", why))?;
        let token = token(flags.token_file.as_deref(), environment, &modes)?;
        let authorities = flags.ca_file.as_deref().map(authorities).transpose()?.unwrap_or_default();
        let identity = match (&flags.client_cert, &flags.client_key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some(identity(cert, key, &modes)?),
            (Some(_), None) => return Err(ConfigError::at("--client-key", "--client-cert is given without it")),
            (None, Some(_)) => return Err(ConfigError::at("--client-cert", "--client-key is given without it")),
        };
        Ok(Self { url, token, authorities, identity, warnings: modes.into_warnings() })
    }
}

/// The address of an admin listener.
///
/// # Errors
/// In words, when it is none, or plain HTTP would leave this machine.
fn address(text: &str) -> Result<Url, String> {
    let expected = || format!("expected an address such as https://storage.example:9001, not {text:?}");
    let url = Url::parse(text).map_err(|_| expected())?;
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let host = url.host_str().filter(|_| bare && url.username().is_empty() && url.password().is_none());
    let host = host.ok_or_else(expected)?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(host) => Ok(url),
        "http" => Err("plain HTTP would send the token in the clear: use https:// for another machine".into()),
        _ => Err(expected()),
    }
}

fn is_loopback(host: &str) -> bool {
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn token(file: Option<&Path>, environment: &Environment, modes: &Modes) -> Result<SecretString, ConfigError> {
    let (key, text) = match (file, environment.get("DELTAWEIR_ADMIN_TOKEN")) {
        (Some(path), _) => {
            modes.check("--token-file", path, Holds::Secret)?;
            ("--token-file", Zeroizing::new(String::from_utf8_lossy(&read("--token-file", path)?).into_owned()))
        }
        (None, Some(token)) => ("DELTAWEIR_ADMIN_TOKEN", Zeroizing::new(token.to_owned())),
        (None, None) => {
            let message = "a server on another machine asks for its admin token: name a file with it, or set \
                           DELTAWEIR_ADMIN_TOKEN";
            return Err(ConfigError::at("--token-file", message));
        }
    };
    let text = text.trim_end_matches(['\r', '\n']);
    match admin_token::is_token(text) {
        true => Ok(SecretString::from(text.to_owned())),
        false => Err(ConfigError::at(key, "there is no token of 32 visible characters or more in it")),
    }
}

fn authorities(path: &Path) -> Result<Vec<Certificate>, ConfigError> {
    let found = Certificate::from_pem_bundle(&read("--ca-file", path)?);
    let found = found.map_err(|error| ConfigError::at("--ca-file", format!("{}: {error}", path.display())))?;
    match found.is_empty() {
        true => Err(ConfigError::at("--ca-file", format!("{}: there is no certificate in it", path.display()))),
        false => Ok(found),
    }
}

fn identity(cert: &Path, key: &Path, modes: &Modes) -> Result<Identity, ConfigError> {
    modes.check("--client-key", key, Holds::Secret)?;
    let mut pem = read("--client-cert", cert)?;
    pem.push(b'\n');
    pem.extend_from_slice(&read("--client-key", key)?);
    let wrong = |error| {
        let (cert, key) = (cert.display(), key.display());
        ConfigError::at("--client-cert", format!("{cert} and {key} are no certificate with its key: {error}"))
    };
    Identity::from_pem(&pem).map_err(wrong)
}

fn read(flag: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    let content = std::fs::read(path).map(Zeroizing::new);
    content.map_err(|error| ConfigError::at(flag, format!("cannot read {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn plain_http_is_for_loopback_alone() {
        for good in [
            "https://storage.example:9001",
            "https://10.1.2.3",
            "http://127.0.0.1:9001",
            "http://127.8.0.1",
            "http://localhost:9001/",
            "http://[::1]:9001",
        ] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in [
            "http://storage.example:9001",
            "http://10.1.2.3:9001",
            "http://localhost.example",
            "http://0.0.0.0:9001",
            "http://127.0.0.1.nip.io",
            "ftp://127.0.0.1",
            "storage.example:9001",
            "https://user@storage.example",
            "https://storage.example/admin",
            "https://storage.example?a",
            "",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_token_is_in_a_file_or_the_environment_and_long_enough() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let load = |file: bool, environment: Environment| {
            let token_file = file.then(|| path.clone());
            let flags = RemoteFlags { url: "https://a".into(), token_file, ..RemoteFlags::default() };
            RemoteConfig::load(&flags, &environment)
                .map(|config| config.token.expose_secret().to_owned())
                .map_err(|error| error.key().map(str::to_owned))
        };
        let set = || Environment::from([("DELTAWEIR_ADMIN_TOKEN", TOKEN)]);
        assert_eq!(load(false, Environment::default()), Err(Some("--token-file".into())));
        assert_eq!(load(false, set()), Ok(TOKEN.into()));
        assert_eq!(load(true, set()), Err(Some("--token-file".into())), "the file that was named counts");
        std::fs::write(&path, format!("x{TOKEN}\n")).unwrap();
        assert_eq!(load(true, set()), Ok(format!("x{TOKEN}")));
        std::fs::write(&path, "short").unwrap();
        assert_eq!(load(true, set()), Err(Some("--token-file".into())));
    }
}
