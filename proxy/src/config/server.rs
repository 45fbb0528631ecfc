//! The listeners' part of the configuration: what may be reached from where, and what it then
//! needs.

use super::{
    error::ConfigError,
    file::{ClientCerts, Limits},
    modes::Holds,
    named_keys::NamedKeys,
    reader::Reader,
    values::SecretText,
};
use crate::{auth::admin_token, peers::TrustedProxies};
use s3_wire::Domains;
use secrecy::{ExposeSecret as _, SecretString};
use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

/// Listeners and HTTP.
#[derive(Clone)]
pub struct ServerConfig {
    /// The S3 listener.
    pub listen: SocketAddr,
    /// The admin listener.
    pub admin_listen: SocketAddr,
    /// Region of signatures and bucket locations.
    pub region: String,
    /// Domains of virtual-host addressing.
    pub domains: Domains,
    /// Whether answers carry `x-deltaweir-*`.
    pub storage_headers: bool,
    /// Whether customers may send keys of their own over plain HTTP.
    pub sse_c_over_http: bool,
    /// Keys for `aws:kms`.
    pub kms_keys: NamedKeys,
    /// Names of webhooks that buckets may tell of changes.
    pub webhooks: Vec<String>,
    /// Whether URLs presigned with Signature Version 2 are accepted.
    pub presign_v2: bool,
    /// Whether Signature Version 2 is accepted in the `Authorization` header.
    pub header_v2: bool,
    /// PEM files of the S3 listener's certificate chain and key; `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// What the admin listener asks for; `None`: the token in the data directory.
    pub admin_token: Option<SecretString>,
    /// A token for calls that change nothing.
    pub admin_read_token: Option<SecretString>,
    /// Names by which operators reach the admin listener, besides loopback and its address.
    pub admin_hosts: Vec<String>,
    /// Proxies that are believed where a request comes from.
    pub trusted_proxies: TrustedProxies,
    /// How many of the newest requests are kept in memory.
    pub recent_requests: usize,
    /// Whether the admin listener speaks TLS, with the certificate of `tls`.
    pub admin_tls: bool,
    /// Directories that callers of the admin listener may eject into.
    pub eject_roots: Vec<PathBuf>,
    /// Names of the stores that `import` and `eject` know.
    pub stores: Vec<String>,
    /// Whether no page of the process may go to swap.
    pub lock_memory: bool,
    /// How long a connection may take to send a request's head.
    pub head_timeout: Duration,
    /// How long a peer may neither send what it announced nor take what it asked for.
    pub stall_timeout: Duration,
    /// How long requests may go on after SIGTERM.
    pub drain_timeout: Duration,
    /// Most open connections.
    pub connections_max: usize,
    /// Most of them from one peer that is no trusted proxy; `None`: three quarters.
    pub connections_per_peer_max: Option<usize>,
    /// Most requests at once; the next is answered 503 SlowDown.
    pub requests_max: usize,
    /// Most of them from one user, or from one peer that does not sign.
    pub requests_per_user_max: usize,
    /// Most of those that send content.
    pub uploads_per_user_max: usize,
    /// What a reader must take while others wait; 0: nothing.
    pub download_bytes_per_second_min: u64,
    /// Failed authentications of one peer that are answered per second; the others wait.
    pub failures_per_second: NonZeroU32,
}

/// PEM files of a TLS listener.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// Certificates of clients; `None`: no listener asks for them.
    pub clients: Option<TlsClients>,
}

/// Whose certificates the listeners ask for.
#[derive(Clone, Debug)]
pub struct TlsClients {
    /// A PEM file: who may sign them.
    pub ca: PathBuf,
    /// A PEM file: which of them are revoked, if lists are kept.
    pub crl: Option<PathBuf>,
    /// What the S3 listener asks for.
    pub s3: ClientCerts,
    /// What the admin listener asks for.
    pub admin: ClientCerts,
}

impl Reader<'_> {
    /// `explicit`: somebody set credentials, so the server may be reached from elsewhere.
    pub(super) fn server(&self, explicit: bool, kms_keys: NamedKeys) -> Result<ServerConfig, ConfigError> {
        let server = &self.file.server;
        let address = |key: &str, text: &str| {
            let port = text.strip_prefix("localhost:");
            let text = port.map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
            text.parse::<SocketAddr>()
                .map_err(|_| ConfigError::at(key, format!("expected an address such as 127.0.0.1:9000, not {text:?}")))
        };
        let listen = address("server.listen", &server.listen)?;
        let admin_listen = address("server.admin_listen", &server.admin_listen)?;
        if listen == admin_listen && listen.port() != 0 {
            return Err(ConfigError::at("server.admin_listen", "the S3 listener has the same address"));
        }
        if !listen.ip().is_loopback() && !explicit {
            return Err(ConfigError::at(
                "server.listen",
                format!(
                    "{listen} can be reached from other machines: set DELTAWEIR_ACCESS_KEY_ID and \
                     DELTAWEIR_SECRET_ACCESS_KEY (the pair of root-credentials.json will do) or [[users]] first"
                ),
            ));
        }
        let (admin_token, admin_read_token) = self.tokens()?;
        if server.region.is_empty() || !server.region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err(ConfigError::at("server.region", "expected letters, digits and hyphens"));
        }
        let admin_tls = !admin_listen.ip().is_loopback() && !server.admin_over_http;
        let tls = self.tls_files(admin_tls)?;
        self.check_admin_listener(admin_listen, admin_token.is_some(), tls.is_some())?;
        let failures_per_second = NonZeroU32::new(self.file.limits.auth_failures_per_second)
            .ok_or_else(|| ConfigError::at("limits.auth_failures_per_second", "expected at least 1"))?;
        let limits = self.checked_limits()?;
        for (key, value) in [("head_timeout", server.head_timeout), ("stall_timeout", server.stall_timeout)] {
            if value.0 < Duration::from_secs(1) {
                return Err(ConfigError::at(&format!("server.{key}"), "expected at least \"1s\""));
            }
        }
        Ok(ServerConfig {
            listen,
            admin_listen,
            region: server.region.clone(),
            domains: Domains::new(&server.domains),
            storage_headers: server.storage_headers,
            sse_c_over_http: server.sse_c_over_http.unwrap_or(listen.ip().is_loopback()),
            lock_memory: server.lock_memory,
            kms_keys,
            webhooks: self.file.notifications.webhooks.keys().cloned().collect(),
            presign_v2: server.presign_v2.unwrap_or(listen.ip().is_loopback()),
            header_v2: server.header_v2.unwrap_or(listen.ip().is_loopback() && server.trusted_proxies.is_empty()),
            tls,
            admin_token,
            admin_read_token,
            admin_hosts: server.admin_hosts.clone(),
            trusted_proxies: self.trusted_proxies()?,
            recent_requests: self.recent_requests()?,
            admin_tls,
            eject_roots: self.file.eject.roots.clone(),
            stores: self.file.stores.keys().cloned().collect(),
            head_timeout: server.head_timeout.0,
            stall_timeout: server.stall_timeout.0,
            drain_timeout: server.drain_timeout.0,
            connections_max: limits.connections_max,
            connections_per_peer_max: limits.connections_per_peer_max,
            requests_max: limits.requests_max,
            requests_per_user_max: limits.requests_per_user_max,
            uploads_per_user_max: limits.uploads_per_user_max,
            download_bytes_per_second_min: limits.download_bytes_per_second_min.0,
            failures_per_second,
        })
    }

    /// Limits that are numbers of things.
    fn checked_limits(&self) -> Result<&Limits, ConfigError> {
        let limits = &self.file.limits;
        for (key, value) in [
            ("connections_max", limits.connections_max),
            ("connections_per_peer_max", limits.connections_per_peer_max.unwrap_or(1)),
            ("requests_max", limits.requests_max),
            ("requests_per_user_max", limits.requests_per_user_max),
            ("uploads_per_user_max", limits.uploads_per_user_max),
        ] {
            if !(1..=1_000_000).contains(&value) {
                return Err(ConfigError::at(&format!("limits.{key}"), "expected 1 to 1000000"));
            }
        }
        Ok(limits)
    }

    /// Refuses an admin listener that others can reach without a token, or that would show them the
    /// token.
    fn check_admin_listener(&self, address: SocketAddr, token: bool, tls: bool) -> Result<(), ConfigError> {
        let missing = match () {
            () if address.ip().is_loopback() => return Ok(()),
            () if !token => "set server.admin_token or DELTAWEIR_ADMIN_TOKEN first",
            () if !tls && !self.file.server.admin_over_http => {
                "set tls_cert and tls_key, or server.admin_over_http = true, which sends the token in the clear"
            }
            () => return Ok(()),
        };
        let message = format!("{address} can be reached from other machines: {missing}");
        Err(ConfigError::at("server.admin_listen", message))
    }

    /// The certificate of the listeners, when there is one.
    fn tls_files(&self, admin_tls: bool) -> Result<Option<TlsFiles>, ConfigError> {
        let server = &self.file.server;
        match (&server.tls_cert, &server.tls_key) {
            (None, None) => self.tls_clients(None).map(|_| None),
            (Some(cert), Some(key)) => {
                let clients = self.tls_clients(Some(admin_tls))?;
                let files = TlsFiles { cert: self.directory.join(cert), key: self.directory.join(key), clients };
                self.modes.check("server.tls_key", &files.key, Holds::Secret)?;
                self.modes.check("server.tls_cert", &files.cert, Holds::Settings)?;
                Ok(Some(files))
            }
            (None, Some(_)) => Err(ConfigError::at("server.tls_cert", "tls_key is set without it")),
            (Some(_), None) => Err(ConfigError::at("server.tls_key", "tls_cert is set without it")),
        }
    }

    /// Whose certificates the listeners ask for. `admin_tls`: whether the admin listener speaks
    /// TLS; `None`: neither does.
    fn tls_clients(&self, admin_tls: Option<bool>) -> Result<Option<TlsClients>, ConfigError> {
        let server = &self.file.server;
        let (s3, admin) = (server.tls_client_certs, server.admin_client_certs);
        for (key, asked, tls) in [
            ("server.tls_client_certs", s3, admin_tls.is_some()),
            ("server.admin_client_certs", admin, admin_tls == Some(true)),
        ] {
            if asked != ClientCerts::Off && !tls {
                return Err(ConfigError::at(
                    key,
                    "this listener speaks plain HTTP, so nobody can show it a certificate",
                ));
            }
        }
        if server.tls_client_crl.is_some() && server.tls_client_ca.is_none() {
            return Err(ConfigError::at(
                "server.tls_client_crl",
                "there is no tls_client_ca whose certificates these are",
            ));
        }
        match (&server.tls_client_ca, s3 != ClientCerts::Off || admin != ClientCerts::Off) {
            (None, false) => Ok(None),
            (Some(ca), true) => {
                let ca = self.directory.join(ca);
                self.modes.check("server.tls_client_ca", &ca, Holds::Settings)?;
                let crl = server.tls_client_crl.as_ref().map(|crl| self.directory.join(crl));
                if let Some(crl) = &crl {
                    self.modes.check("server.tls_client_crl", crl, Holds::Settings)?;
                }
                Ok(Some(TlsClients { ca, crl, s3, admin }))
            }
            (None, true) => {
                Err(ConfigError::at("server.tls_client_ca", "which certificates count? Name who signs them"))
            }
            (Some(_), false) => {
                let message = "no listener asks for certificates: set tls_client_certs or admin_client_certs";
                Err(ConfigError::at("server.tls_client_ca", message))
            }
        }
    }

    /// The token that may change things, and the one that may not.
    fn tokens(&self) -> Result<(Option<SecretString>, Option<SecretString>), ConfigError> {
        let server = &self.file.server;
        let write = self.token("server.admin_token", server.admin_token.as_ref())?;
        let read = self.token("server.admin_read_token", server.admin_read_token.as_ref())?;
        match (&write, &read) {
            (Some(write), Some(read)) if write.expose_secret() == read.expose_secret() => {
                let message = "it is server.admin_token: whoever has it would change things";
                Err(ConfigError::at("server.admin_read_token", message))
            }
            _ => Ok((write, read)),
        }
    }

    fn token(&self, key: &str, token: Option<&SecretText>) -> Result<Option<SecretString>, ConfigError> {
        let token = token.map(|token| self.secret(key, token)).transpose()?;
        if token.as_ref().is_none_or(|token| admin_token::is_token(token.expose_secret())) {
            return Ok(token);
        }
        Err(ConfigError::at(
            key,
            "expected at least 32 visible ASCII characters, such as those of openssl rand -hex 32",
        ))
    }
}
