//! The configuration: the only place where files and environment are read.
//!
//! A flag wins over the environment, the environment over the file, the file over the defaults.
//! What is wrong is refused with the path of the key; nothing is guessed.
//! `docs/reference/configuration.md` is the page for operators.

mod access_log;
mod audit;
mod backends;
mod environment;
mod error;
mod file;
mod key_providers;
mod lines;
mod machine;
mod modes;
mod named_keys;
mod names;
mod notifications;
mod oidc;
mod prices;
mod reader;
mod remote;
mod server;
mod storage;
mod traces;
mod values;
mod warnings;

pub use access_log::AccessLogConfig;
pub use audit::AuditConfig;
pub use environment::Environment;
pub use error::ConfigError;
pub use file::{ClientCerts, LogFormat};
pub(crate) use machine::MachineMemory;
pub use named_keys::NamedKeys;
pub use oidc::OidcConfig;
pub(crate) use oidc::is_trustworthy;
pub use prices::Prices;
pub use remote::{RemoteConfig, RemoteFlags};
pub use server::{ServerConfig, TlsClients, TlsFiles};

use crate::{
    auth::{self, Credentials, Policy, RoleConfig, UserConfig, Written},
    server::TracesConfig,
    stores::{CatalogConfig, StoresConfig},
    webhooks::WebhookConfig,
};
use catalog::PostgresCatalog;
use engine::EngineConfig;
use file::{
    File,
    backend::{Backend, Local},
};
use modes::{Holds, Modes};
use reader::Reader;
use s3_wire::sigv4::SecretKey;
use secrecy::{ExposeSecret, SecretString};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use values::{ByteSize, Interval, SecretText, is_shared, without_password};

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
    /// Roles of the file.
    pub roles: Vec<RoleConfig>,
    /// Who is told of changes, by name.
    pub webhooks: BTreeMap<String, WebhookConfig>,
    /// Logging.
    pub log: LogConfig,
    /// The access log, where it has lines of its own.
    pub access_log: Option<AccessLogConfig>,
    /// Where traces go; `None`: there are none.
    pub traces: Option<TracesConfig>,
    /// The audit log; `None`: there is none.
    pub audit: Option<AuditConfig>,
    /// Who vouches for operators of the console, besides the token.
    pub oidc: Option<OidcConfig>,
    /// What the store costs, where the operator says so.
    pub prices: Option<Prices>,
    /// What is odd but not wrong, for the log.
    pub warnings: Vec<String>,
    /// The whole configuration in effect as TOML, without secrets.
    pub shown: String,
    /// The file that it was read from, if any was named.
    pub file: Option<PathBuf>,
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
        let Some((path, text, warnings)) = read_file(overrides, environment)? else {
            return Self::from_text("", Path::new(""), overrides, environment);
        };
        let directory = path.parent().unwrap_or(Path::new(""));
        let config = Self::from_text(&text, directory, overrides, environment);
        let mut config = config.map_err(|error| error.in_file(&path, &text))?;
        config.warnings.splice(0..0, warnings);
        config.file = Some(path);
        Ok(config)
    }

    /// The data directory, and nothing else: no secret that the file refers to has to be there.
    ///
    /// # Errors
    /// The file cannot be read, is no configuration, or everybody may write it.
    pub fn data_directory(overrides: &Overrides, environment: &Environment) -> Result<PathBuf, ConfigError> {
        let text = read_file(overrides, environment)?.map(|(_, text, _)| text).unwrap_or_default();
        // Read without an error already.
        let mut file = File::parse(&text)?;
        override_file(&mut file, overrides, environment)?;
        Ok(file.storage.data)
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
        reader.check_names()?;
        let root = reader.root()?;
        let users = reader.users(root.as_ref())?;
        let roles = reader.roles()?;
        let kms_keys = reader.named_keys()?;
        let server = reader.server(root.is_some() || !users.is_empty(), kms_keys.clone())?;
        Ok(Self {
            engine: reader.engine(kms_keys)?,
            stores: reader.all_stores()?,
            webhooks: reader.webhooks()?,
            log: LogConfig { filter: file.log.filter.clone(), format: file.log.format },
            access_log: reader.access_log()?,
            traces: reader.traces()?,
            audit: reader.audit()?,
            oidc: reader.oidc()?,
            prices: reader.prices()?,
            warnings: reader.warnings().into_iter().chain(modes.into_warnings()).collect(),
            server,
            root,
            users,
            roles,
            shown,
            file: None,
        })
    }

    /// What is wrong with a key that could be read: with its line, where the file has it.
    pub fn wrong(&self, key: &str, message: impl Into<String>) -> ConfigError {
        let error = ConfigError::at(key, message);
        match self.file.as_ref().and_then(|path| Some((path, std::fs::read_to_string(path).ok()?))) {
            Some((path, text)) => error.in_file(path, &text),
            None => error,
        }
    }
}

/// Reads any text as a configuration's shape, opening nothing that it names: refused, or what is
/// shown of it says the same again. For fuzz targets.
pub(crate) fn show_anything(text: &str) {
    let Ok(file) = File::parse(text) else { return };
    let shown = toml::to_string_pretty(&file).expect("a configuration is TOML");
    let again = File::parse(&shown).expect("what is shown is a configuration");
    assert_eq!(toml::to_string_pretty(&again).expect("so is that"), shown);
}

/// The configuration file's path and text, and what is odd about who may read it; `None` when none
/// is named.
fn read_file(
    overrides: &Overrides,
    environment: &Environment,
) -> Result<Option<(PathBuf, String, Vec<String>)>, ConfigError> {
    let path = overrides.config.clone().or_else(|| environment.get("DELTAWEIR_CONFIG").map(PathBuf::from));
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| ConfigError::whole(format!("cannot read {}: {error}", path.display())))?;
    let modes = Modes::default();
    let file = File::parse(&text).map_err(|error| error.in_file(&path, &text))?;
    let holds = if file.holds_secrets() { Holds::Secret } else { Holds::Settings };
    modes.check("--config", &path, holds)?;
    Ok(Some((path, text, modes.into_warnings())))
}

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

/// A policy's file, and the line of what is wrong in it: where it is no JSON, else where the word
/// stands that the error names.
fn in_policy(path: &Path, text: &str, error: &str) -> String {
    let line = match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Err(error) => Some(error.line()),
        Ok(_) => error.rsplit(": ").next().and_then(|word| {
            let word = format!("\"{word}\"");
            text.lines().position(|line| line.contains(&word)).map(|before| before + 1)
        }),
    };
    line.map_or_else(|| path.display().to_string(), |line| format!("{}:{line}", path.display()))
}

impl Reader<'_> {
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
            check_canonical_id(&key("canonical_id"), user.canonical_id.as_deref())?;
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

    fn roles(&self) -> Result<Vec<RoleConfig>, ConfigError> {
        let mut names = BTreeSet::new();
        let mut roles = Vec::new();
        for (index, role) in self.file.roles.iter().enumerate() {
            let key = |name: &str| format!("roles[{index}].{name}");
            let fits = |c: char| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c);
            if !(1..=64).contains(&role.name.len()) || !role.name.chars().all(fits) || !names.insert(&role.name) {
                let expected = "expected 1 to 64 letters, digits and _ + = , . @ -, another than other roles have";
                return Err(ConfigError::at(&key("name"), expected));
            }
            check_canonical_id(&key("canonical_id"), role.canonical_id.as_deref())?;
            // Users of the catalog may take it on as well; they come and go while the file stays.
            if role.users.iter().any(String::is_empty) {
                return Err(ConfigError::at(&key("users"), "a user has a name"));
            }
            let duration_s = role.duration_max.0.as_secs();
            if !(s3_wire::sts::ROLE_DURATION_S..=s3_wire::sts::ROLE_DURATION_S_MAX).contains(&duration_s) {
                return Err(ConfigError::at(&key("duration_max"), "expected \"1h\" to \"12h\""));
            }
            roles.push(RoleConfig {
                name: role.name.clone(),
                canonical_id: role.canonical_id.clone(),
                users: role.users.iter().cloned().collect(),
                duration_max: role.duration_max.0,
                policy: self.policy(&key("policy"), &role.policy)?,
            });
        }
        Ok(roles)
    }

    fn policy(&self, key: &str, name: &str) -> Result<Policy, ConfigError> {
        match Policy::built_in(name) {
            Some(policy) => Ok(policy),
            None => {
                let path = name.strip_prefix("file:").ok_or_else(|| {
                    ConfigError::at(key, "expected \"admin\", \"readwrite\", \"readonly\" or \"file:policy.json\"")
                })?;
                let path = self.directory.join(path);
                self.modes.check(key, &path, Holds::Settings)?;
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| ConfigError::at(key, format!("cannot read {}: {error}", path.display())))?;
                let written = Written::parse(&text)
                    .map_err(|error| ConfigError::at(key, format!("{}: {error}", in_policy(&path, &text, &error))))?;
                Ok(Policy::Document(Arc::new(written)))
            }
        }
    }

    fn all_stores(&self) -> Result<StoresConfig, ConfigError> {
        let stores = StoresConfig {
            catalog: self.catalog()?,
            backends: self.backends("backends", &self.file.backends)?,
            stores: self.stores()?,
            anchor: self.anchor_store()?,
            sync: self.file.storage.sync,
            reserve_bytes: engine::DISK_RESERVE_BYTES,
        };
        match stores.beside_anchor() {
            Some(backend) => Err(ConfigError::at(
                "backup.anchor",
                format!("that store lies where [backends.{backend}] does: whoever sets one back has both"),
            )),
            None => Ok(stores),
        }
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
        let checked = PostgresCatalog::check_address(&storage.catalog);
        checked.map_err(|error| ConfigError::at("storage.catalog", error.to_string()))?;
        if !(1..=500).contains(&storage.catalog_connections) {
            return Err(ConfigError::at("storage.catalog_connections", "expected 1 to 500"));
        }
        if storage.writer_lease.0 < Duration::from_secs(1) {
            return Err(ConfigError::at("storage.writer_lease", "expected at least \"1s\""));
        }
        let url = storage.catalog.clone().into();
        Ok(CatalogConfig::Postgres { url, password, connections_max: storage.catalog_connections })
    }
}

fn check_canonical_id(key: &str, id: Option<&str>) -> Result<(), ConfigError> {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    match id {
        Some(id) if id.len() != 64 || !id.bytes().all(is_digit) => {
            Err(ConfigError::at(key, "expected 64 lower-case hex digits"))
        }
        _ => Ok(()),
    }
}

fn check_access_key(key: &str, id: &str) -> Result<(), ConfigError> {
    auth::check_access_key(id).map_err(|why| ConfigError::at(key, why))
}

fn check_secret(key: &str, secret: &str) -> Result<(), ConfigError> {
    auth::check_secret(secret).map_err(|why| ConfigError::at(key, why))
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
