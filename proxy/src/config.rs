//! The configuration: the only place where files and environment are read.
//!
//! A flag wins over the environment, the environment over the file, the file over the defaults.
//! What is wrong is refused with the path of the key; nothing is guessed.
//! `docs/reference/configuration.md` is the page for operators.

mod backends;
mod environment;
mod error;
mod file;
mod modes;
mod server;
mod values;
mod warnings;

pub use environment::Environment;
pub use error::ConfigError;
pub use file::LogFormat;

use crate::{
    auth::{Credentials, Policy, UserConfig},
    stores::{CatalogConfig, StoresConfig},
};
use engine::{BucketSettings, ConvertConfig, Encryption, EngineConfig, FAN_IN_MAX, SafetyConfig, ScrubConfig};
use file::{
    File,
    backend::{Backend, Local},
};
use modes::{Holds, Modes};
use object_format::Kek;
use s3_wire::{BucketName, Domains, sigv4::SecretKey};
use secrecy::{ExposeSecret, SecretString};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};
use values::{ByteSize, Interval, SecretText};
use zeroize::Zeroizing;

/// Everything `serve` is told.
pub struct ServeConfig {
    /// Listeners and HTTP.
    pub server: ServerConfig,
    /// Storage.
    pub engine: EngineConfig,
    /// Where it keeps what it stores.
    pub stores: StoresConfig,
    /// The root key pair, when it was set explicitly.
    pub root: Option<Credentials>,
    /// Users of the file.
    pub users: Vec<UserConfig>,
    /// Logging.
    pub log: LogConfig,
    /// What is odd but not wrong, for the log.
    pub warnings: Vec<String>,
    /// The whole configuration in effect as TOML, without secrets.
    pub shown: String,
}

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
    /// Names of keys for `aws:kms`, all derived from the keyring's.
    pub kms_keys: Vec<String>,
    /// Whether URLs presigned with Signature Version 2 are accepted.
    pub presign_v2: bool,
    /// PEM files of the S3 listener's certificate chain and key; `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// What the admin listener asks for; `None`: the token in the data directory.
    pub admin_token: Option<SecretString>,
    /// A token for calls that change nothing.
    pub admin_read_token: Option<SecretString>,
    /// Names by which operators reach the admin listener, besides loopback and its address.
    pub admin_hosts: Vec<String>,
    /// Whether the admin listener speaks TLS, with the certificate of `tls`.
    pub admin_tls: bool,
    /// Directories that callers of the admin listener may eject into.
    pub eject_roots: Vec<PathBuf>,
    /// How long a connection may take to send a request's head.
    pub head_timeout: Duration,
    /// How long a peer may neither send what it announced nor take what it asked for.
    pub stall_timeout: Duration,
    /// How long requests may go on after SIGTERM.
    pub drain_timeout: Duration,
    /// Most open connections.
    pub connections_max: usize,
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
}

/// Logging.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Directives such as `info` or `deltaweir=debug,info`.
    pub filter: String,
    /// Text or JSON.
    pub format: LogFormat,
}

/// Flags; each wins over its environment variable.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--data`
    pub data: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--admin-listen`
    pub admin_listen: Option<String>,
    /// `--admin-over-http`
    pub admin_over_http: Option<bool>,
    /// `--catalog`
    pub catalog: Option<String>,
    /// `--log`
    pub log: Option<String>,
}

/// A secret as it is given on a command line: `env:NAME`, `file:PATH`, or itself.
///
/// # Errors
/// [`ConfigError`] at `flag` when it is not there.
pub fn secret_of(flag: &str, text: &str, environment: &Environment) -> Result<SecretString, ConfigError> {
    SecretText::from(text.to_owned()).resolve(flag, environment, Path::new("."))
}

/// A number of bytes such as `4GiB`.
///
/// # Errors
/// In words, when it is none.
pub fn bytes_of(text: &str) -> Result<u64, String> {
    let size = values::ByteSize::parse(text);
    size.map(|size| size.0).ok_or_else(|| format!("{text:?} is no number of bytes: expected one such as 4GiB"))
}

impl ServeConfig {
    /// Reads everything: the file (if any is named), then the environment, then the flags.
    ///
    /// # Errors
    /// The first thing that is wrong, with the path of its key. A configuration is never partly
    /// used (C119).
    pub fn load(overrides: &Overrides, environment: &Environment) -> Result<Self, ConfigError> {
        let path = overrides.config.clone().or_else(|| environment.get("DELTAWEIR_CONFIG").map(PathBuf::from));
        let Some(path) = path else { return Self::from_text("", Path::new(""), overrides, environment) };
        let text = std::fs::read_to_string(&path)
            .map_err(|error| ConfigError::whole(format!("cannot read {}: {error}", path.display())))?;
        let modes = Modes::default();
        let holds = if File::parse(&text)?.holds_secrets() { Holds::Secret } else { Holds::Settings };
        modes.check("--config", &path, holds)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut config = Self::from_text(&text, directory, overrides, environment)?;
        config.warnings.splice(0..0, modes.into_warnings());
        Ok(config)
    }

    /// As [`ServeConfig::load`] for the text of a file; `file:` references and TLS files are
    /// relative to `directory`.
    ///
    /// # Errors
    /// As there.
    pub fn from_text(
        text: &str,
        directory: &Path,
        overrides: &Overrides,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        let mut file = File::parse(text)?;
        override_file(&mut file, overrides, environment)?;
        let mut shown = file.clone();
        shown.storage.catalog = without_password(&file.storage.catalog);
        let shown = toml::to_string_pretty(&shown).map_err(|error| ConfigError::whole(error.to_string()))?;
        let modes = Modes::default();
        let reader = Reader { file: &file, environment, directory, modes: &modes };
        let root = reader.root()?;
        let users = reader.users(root.as_ref())?;
        let server = reader.server(root.is_some() || !users.is_empty())?;
        Ok(Self {
            engine: reader.engine()?,
            stores: reader.all_stores()?,
            log: LogConfig { filter: file.log.filter.clone(), format: file.log.format },
            warnings: reader.warnings().into_iter().chain(modes.into_warnings()).collect(),
            server,
            root,
            users,
            shown,
        })
    }
}

/// Every variable the program reads, but those that `env:` names.
const VARIABLES: &[&str] = &[
    "DELTAWEIR_CONFIG",
    "DELTAWEIR_DATA",
    "DELTAWEIR_LISTEN",
    "DELTAWEIR_ADMIN_LISTEN",
    "DELTAWEIR_ADMIN_OVER_HTTP",
    "DELTAWEIR_ACCESS_KEY_ID",
    "DELTAWEIR_SECRET_ACCESS_KEY",
    "DELTAWEIR_KEK",
    "DELTAWEIR_CATALOG",
    "DELTAWEIR_ADMIN_TOKEN",
    "DELTAWEIR_LOG",
];

fn override_file(file: &mut File, flags: &Overrides, environment: &Environment) -> Result<(), ConfigError> {
    let pick = |flag: &Option<String>, name: &str| flag.clone().or_else(|| environment.get(name).map(str::to_owned));
    let data = flags.data.clone().or_else(|| environment.get("DELTAWEIR_DATA").map(PathBuf::from));
    if let Some(data) = data {
        file.storage.data = data;
    }
    if let Some(listen) = pick(&flags.listen, "DELTAWEIR_LISTEN") {
        file.server.listen = listen;
    }
    if let Some(listen) = pick(&flags.admin_listen, "DELTAWEIR_ADMIN_LISTEN") {
        file.server.admin_listen = listen;
    }
    if let Some(plain) = flags.admin_over_http {
        file.server.admin_over_http = plain;
    } else if let Some(plain) = environment.get("DELTAWEIR_ADMIN_OVER_HTTP") {
        let wrong = |_| ConfigError::at("DELTAWEIR_ADMIN_OVER_HTTP", "expected true or false");
        file.server.admin_over_http = plain.parse().map_err(wrong)?;
    }
    if let Some(catalog) = pick(&flags.catalog, "DELTAWEIR_CATALOG") {
        file.storage.catalog = catalog;
    }
    if let Some(filter) = pick(&flags.log, "DELTAWEIR_LOG") {
        file.log.filter = filter;
    }
    if let Some(token) = environment.get("DELTAWEIR_ADMIN_TOKEN") {
        file.server.admin_token = Some(SecretText::from(token.to_owned()));
    }
    if let Some(kek) = environment.get("DELTAWEIR_KEK") {
        file.storage.kek = Some(SecretText::from(kek.to_owned()));
    }
    let named = |name: &str| {
        file.storage.backend == name
            || file.backup.backend.as_deref() == Some(name)
            || file.buckets.values().any(|b| b.backend.as_deref() == Some(name))
    };
    if named("local") && !file.backends.contains_key("local") {
        file.backends.insert("local".into(), Backend::Local(Local { path: file.storage.data.join("blobs") }));
    }
    Ok(())
}

/// A file with everything it refers to.
struct Reader<'a> {
    file: &'a File,
    environment: &'a Environment,
    directory: &'a Path,
    modes: &'a Modes,
}

impl Reader<'_> {
    fn secret(&self, key: &str, text: &SecretText) -> Result<SecretString, ConfigError> {
        if let Some(path) = text.file(self.directory) {
            self.modes.check(key, &path, Holds::Secret)?;
        }
        text.resolve(key, self.environment, self.directory)
    }

    fn root(&self) -> Result<Option<Credentials>, ConfigError> {
        let id = self.environment.get("DELTAWEIR_ACCESS_KEY_ID");
        let secret = self.environment.get("DELTAWEIR_SECRET_ACCESS_KEY");
        match (id, secret) {
            (None, None) => Ok(None),
            (Some(id), Some(secret)) => {
                check_access_key("DELTAWEIR_ACCESS_KEY_ID", id)?;
                check_secret("DELTAWEIR_SECRET_ACCESS_KEY", secret)?;
                Ok(Some(Credentials { access_key_id: id.to_owned(), secret: SecretKey::new(secret) }))
            }
            (Some(_), None) => {
                Err(ConfigError::at("DELTAWEIR_SECRET_ACCESS_KEY", "the access key id is set without it"))
            }
            (None, Some(_)) => {
                Err(ConfigError::at("DELTAWEIR_ACCESS_KEY_ID", "the secret access key is set without it"))
            }
        }
    }

    fn users(&self, root: Option<&Credentials>) -> Result<Vec<UserConfig>, ConfigError> {
        let mut names = BTreeSet::from(["root".to_owned()]);
        let mut keys: BTreeSet<String> = root.map(|root| root.access_key_id.clone()).into_iter().collect();
        let mut users = Vec::new();
        for (index, user) in self.file.users.iter().enumerate() {
            let key = |name: &str| format!("users[{index}].{name}");
            if user.name.is_empty() || !names.insert(user.name.clone()) {
                return Err(ConfigError::at(&key("name"), "a user needs a name of its own (\"root\" is taken)"));
            }
            if let Some(id) = &user.canonical_id
                && (id.len() != 64 || !id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
            {
                return Err(ConfigError::at(&key("canonical_id"), "expected 64 lower-case hex digits"));
            }
            let id = self.secret(&key("access_key_id"), &user.access_key_id)?;
            check_access_key(&key("access_key_id"), id.expose_secret())?;
            if !keys.insert(id.expose_secret().to_owned()) {
                return Err(ConfigError::at(&key("access_key_id"), "another user has the same"));
            }
            let secret = self.secret(&key("secret_access_key"), &user.secret_access_key)?;
            check_secret(&key("secret_access_key"), secret.expose_secret())?;
            users.push(UserConfig {
                name: user.name.clone(),
                canonical_id: user.canonical_id.clone(),
                email: user.email.clone(),
                credentials: Credentials {
                    access_key_id: id.expose_secret().to_owned(),
                    secret: SecretKey::new(secret.expose_secret()),
                },
                policy: self.policy(&key("policy"), &user.policy)?,
            });
        }
        Ok(users)
    }

    fn policy(&self, key: &str, name: &str) -> Result<Policy, ConfigError> {
        match name {
            "admin" => Ok(Policy::Admin),
            "readwrite" => Ok(Policy::ReadWrite),
            "readonly" => Ok(Policy::ReadOnly),
            _ => {
                let path = name.strip_prefix("file:").ok_or_else(|| {
                    ConfigError::at(key, "expected \"admin\", \"readwrite\", \"readonly\" or \"file:policy.json\"")
                })?;
                let path = self.directory.join(path);
                self.modes.check(key, &path, Holds::Settings)?;
                let text = std::fs::read(&path)
                    .map_err(|error| ConfigError::at(key, format!("cannot read {}: {error}", path.display())))?;
                let document = access::Document::identity(&text)
                    .map_err(|error| ConfigError::at(key, format!("{}: {error}", path.display())))?;
                Ok(Policy::Document(document))
            }
        }
    }

    fn engine(&self) -> Result<EngineConfig, ConfigError> {
        let file = self.file;
        let known = |key: &str, name: &str| {
            if file.backends.contains_key(name) {
                return Ok(());
            }
            Err(ConfigError::at(key, format!("there is no [backends.{name}]")))
        };
        known("storage.backend", &file.storage.backend)?;
        let defaults = BucketSettings {
            compression: file.defaults.compression,
            encryption: file.defaults.encryption,
            effort: file.defaults.effort,
            backend: file.storage.backend.clone(),
            read_through: None,
            keysets: Vec::new(),
            configurations: BTreeMap::new(),
        };
        let mut buckets = BTreeMap::new();
        for (name, bucket) in &file.buckets {
            let key = format!("buckets.{name}");
            BucketName::new(name.as_str()).map_err(|_| ConfigError::at(&key, "not a valid bucket name"))?;
            if let Some(backend) = &bucket.backend {
                known(&format!("{key}.backend"), backend)?;
            }
            if let Some(store) = &bucket.read_through {
                let name = store.split('/').next().unwrap_or_default();
                if !file.stores.contains_key(name) {
                    let message = format!("there is no [stores.{name}]");
                    return Err(ConfigError::at(&format!("{key}.read_through"), message));
                }
            }
            let settings = BucketSettings {
                compression: bucket.compression.unwrap_or(defaults.compression),
                encryption: bucket.encryption.unwrap_or(defaults.encryption),
                effort: bucket.effort.unwrap_or(defaults.effort),
                backend: bucket.backend.clone().unwrap_or_else(|| defaults.backend.clone()),
                read_through: bucket.read_through.clone(),
                keysets: Vec::new(),
                configurations: BTreeMap::new(),
            };
            buckets.insert(name.clone(), settings);
        }
        let limits = &file.limits;
        if limits.memory_bytes_max.0 < MEMORY_BYTES_MIN {
            return Err(ConfigError::at("limits.memory_bytes_max", "expected at least \"64MiB\""));
        }
        if limits.codec_threads == Some(0) {
            return Err(ConfigError::at("limits.codec_threads", "expected at least 1"));
        }
        if file.gc.interval.0 < Duration::from_secs(1) {
            return Err(ConfigError::at("gc.interval", "expected at least \"1s\""));
        }
        if file.lifecycle.day.0.is_zero() || file.lifecycle.day.0 > Duration::from_secs(86_400) {
            return Err(ConfigError::at("lifecycle.day", "expected more than 0 and at most \"1d\""));
        }
        if file.gc.unfinished_age.0 < Duration::from_secs(1) {
            return Err(ConfigError::at("gc.unfinished_age", "expected at least \"1s\""));
        }
        if file.storage.base_copies > FAN_IN_MAX {
            return Err(ConfigError::at(
                "storage.base_copies",
                format!("expected 0 (never) or 1 to {FAN_IN_MAX}: no base has more deltas"),
            ));
        }
        if file.scrub.interval.is_some_and(|interval| interval.0 < Duration::from_secs(1)) {
            return Err(ConfigError::at("scrub.interval", "expected at least \"1s\""));
        }
        if !(file.scrub.percent > 0.0 && file.scrub.percent <= 100.0) {
            return Err(ConfigError::at("scrub.percent", "expected more than 0 and at most 100"));
        }
        if file.scrub.bytes_per_second.is_some_and(|rate| rate.0 == 0) {
            return Err(ConfigError::at("scrub.bytes_per_second", "expected at least 1; left out, there is no limit"));
        }
        let backup = &file.backup;
        if let Some(backend) = &backup.backend {
            known("backup.backend", backend)?;
        }
        if backup.journal_seconds > 3600 {
            return Err(ConfigError::at("backup.journal_seconds", "expected 0 to 3600"));
        }
        if !backup.interval.0.is_zero() && backup.interval.0 < Duration::from_secs(60) {
            return Err(ConfigError::at("backup.interval", "expected \"0s\" (never by itself) or at least \"1m\""));
        }
        if file.convert.interval.0 < Duration::from_secs(1) {
            return Err(ConfigError::at("convert.interval", "expected at least \"1s\""));
        }
        if (1..catalog::SCATTERED_EXTENTS_MIN).contains(&u64::from(file.convert.merge_extents)) {
            return Err(ConfigError::at(
                "convert.merge_extents",
                format!("expected 0 (never) or at least {}", catalog::SCATTERED_EXTENTS_MIN),
            ));
        }
        Ok(EngineConfig {
            data: file.storage.data.clone(),
            defaults,
            buckets,
            memory_bytes_max: limits.memory_bytes_max.0,
            spool_bytes_max: limits.spool_bytes_max.0,
            kek: self.kek()?,
            codec_threads: limits.codec_threads,
            gc_grace: file.gc.grace.0,
            unfinished_age: file.gc.unfinished_age.0,
            gc_interval: file.gc.interval.0,
            gc_trash: file.gc.trash.0,
            base_copies: file.storage.base_copies,
            second_copies: file.storage.second_copies,
            scrub: ScrubConfig {
                interval: file.scrub.interval.map(|interval| interval.0),
                percent: file.scrub.percent,
                bytes_per_second: file.scrub.bytes_per_second.map(|rate| rate.0),
            },
            writer_lease: file.storage.writer_lease.0,
            upload_age_max: limits.upload_age_max.0,
            open_uploads_per_user_max: limits.open_uploads_per_user_max,
            lifecycle_day: file.lifecycle.day.0,
            safety: SafetyConfig {
                backend: backup.backend.clone().unwrap_or_else(|| file.storage.backend.clone()),
                journal_interval: Duration::from_secs(backup.journal_seconds.into()),
                backup_interval: Some(backup.interval.0).filter(|interval| !interval.is_zero()),
                backup_retention: backup.retention.0,
                accept_older_catalog: false,
                encrypts: file.defaults.encryption == Encryption::Aes256
                    || file.buckets.values().any(|bucket| bucket.encryption == Some(Encryption::Aes256)),
            },
            eject_roots: file.eject.roots.clone(),
            schedule_jobs: true,
            convert: ConvertConfig {
                defer: file.convert.defer,
                defer_age_max: file.convert.defer_age_max.0,
                interval: file.convert.interval.0,
                bytes_per_second_max: file.convert.bytes_per_second_max.0,
                hot_reads: file.convert.hot_reads,
                merge_extents: file.convert.merge_extents,
                free_bytes_min: file.convert.free_bytes_min.0,
            },
        })
    }

    fn all_stores(&self) -> Result<StoresConfig, ConfigError> {
        Ok(StoresConfig {
            catalog: self.catalog()?,
            backends: self.backends("backends", &self.file.backends)?,
            stores: self.stores()?,
            sync: self.file.storage.sync,
            reserve_bytes: engine::DISK_RESERVE_BYTES,
        })
    }

    fn catalog(&self) -> Result<CatalogConfig, ConfigError> {
        let storage = &self.file.storage;
        let password = storage.catalog_password.as_ref();
        let password = password.map(|text| self.secret("storage.catalog_password", text)).transpose()?;
        if storage.catalog == "sqlite" {
            return match password {
                None => Ok(CatalogConfig::Sqlite),
                Some(_) => Err(ConfigError::at("storage.catalog_password", "the sqlite catalog has no password")),
            };
        }
        if !is_shared(&storage.catalog) {
            return Err(ConfigError::at("storage.catalog", "expected \"sqlite\" or a postgres:// URL"));
        }
        if !(1..=500).contains(&storage.catalog_connections) {
            return Err(ConfigError::at("storage.catalog_connections", "expected 1 to 500"));
        }
        if storage.writer_lease.0 < Duration::from_secs(1) {
            return Err(ConfigError::at("storage.writer_lease", "expected at least \"1s\""));
        }
        let url = storage.catalog.clone().into();
        Ok(CatalogConfig::Postgres { url, password, connections_max: storage.catalog_connections })
    }

    fn kek(&self) -> Result<Option<Kek>, ConfigError> {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let Some(text) = &self.file.storage.kek else { return Ok(None) };
        let text = self.secret("storage.kek", text)?;
        let wrong = || ConfigError::at("storage.kek", "expected the base64 of 32 bytes");
        let bytes = Zeroizing::new(STANDARD.decode(text.expose_secret().trim()).map_err(|_| wrong())?);
        let secret = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| wrong())?;
        Ok(Some(Kek::new(secret)))
    }
}

/// Whether a catalog is one that several processes can share.
fn is_shared(catalog: &str) -> bool {
    catalog.starts_with("postgres://") || catalog.starts_with("postgresql://")
}

/// A URL `scheme://user:password@host/…` without its password.
fn without_password(url: &str) -> String {
    let parts = url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)));
    match parts {
        Some((scheme, (who, place))) => {
            let user = who.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:[redacted]@{place}")
        }
        None => url.to_owned(),
    }
}

/// Less than this cannot hold one upload's base window and one segment's work.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// An access key stands in `Credential=KEY/date/…` and in logs.
fn check_access_key(key: &str, id: &str) -> Result<(), ConfigError> {
    if (3..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() && !b"/,=\"\\".contains(&b)) {
        return Ok(());
    }
    Err(ConfigError::at(key, "expected 3 to 128 visible ASCII characters without / , = \" \\"))
}

fn check_secret(key: &str, secret: &str) -> Result<(), ConfigError> {
    if (8..=256).contains(&secret.len()) {
        return Ok(());
    }
    Err(ConfigError::at(key, "expected 8 to 256 bytes"))
}

/// A duration as the file writes it: `30d`, `250ms`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    Interval::parse(text).map(|interval| interval.0)
}

/// A number of bytes as the file writes it: `50MiB`, `10MB`, `17`.
pub fn parse_size(text: &str) -> Option<u64> {
    ByteSize::parse(text).map(|size| size.0)
}

#[cfg(test)]
mod tests;
