//! The shape of the file. Every key, its default, nothing else: an unknown key is refused with its
//! path.

pub(super) mod access_log;
mod audit;
pub(super) mod backend;
pub(super) mod key_providers;
mod notifications;
mod oidc;
mod prices;
mod traces;

use super::{
    error::ConfigError,
    machine::MachineMemory,
    values::{ByteSize, Interval, SecretText, without_password},
};
use access_log::AccessLog;
use audit::Audit;
use backend::Backend;
use engine::{Compression, ConvertConfig, EffortSetting, Encryption, Isolation, SecondCopies, StorageHeaders};
use key_providers::Provider;
use notifications::Notifications;
use oidc::Oidc;
use prices::Prices;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};
use traces::TraceSettings;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) server: Server,
    pub(super) storage: Storage,
    pub(super) backends: BTreeMap<String, Backend>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) stores: BTreeMap<String, Backend>,
    pub(super) defaults: Defaults,
    pub(super) buckets: BTreeMap<String, Bucket>,
    pub(super) users: Vec<User>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) roles: Vec<Role>,
    pub(super) limits: Limits,
    pub(super) gc: Gc,
    pub(super) kms: Kms,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) key_providers: BTreeMap<String, Provider>,
    pub(super) lifecycle: Lifecycle,
    pub(super) notifications: Notifications,
    pub(super) scrub: Scrub,
    pub(super) backup: Backup,
    pub(super) eject: Eject,
    pub(super) convert: Convert,
    pub(super) log: Log,
    pub(super) access_log: AccessLog,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) traces: Option<TraceSettings>,
    pub(super) audit: Audit,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) oidc: Option<Oidc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prices: Option<Prices>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Server {
    pub(super) listen: String,
    pub(super) admin_listen: String,
    pub(super) region: String,
    pub(super) domains: Vec<String>,
    pub(super) storage_headers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) presign_v2: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) header_v2: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sse_c_over_http: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls_key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls_client_ca: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls_client_crl: Option<PathBuf>,
    pub(super) tls_client_certs: ClientCerts,
    pub(super) admin_client_certs: ClientCerts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admin_token: Option<SecretText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admin_read_token: Option<SecretText>,
    pub(super) admin_hosts: Vec<String>,
    pub(super) trusted_proxies: Vec<String>,
    pub(super) admin_over_http: bool,
    pub(super) lock_memory: bool,
    pub(super) head_timeout: Interval,
    pub(super) stall_timeout: Interval,
    pub(super) drain_timeout: Interval,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:9000".into(),
            admin_listen: "127.0.0.1:9001".into(),
            region: "us-east-1".into(),
            domains: Vec::new(),
            storage_headers: true,
            presign_v2: None,
            header_v2: None,
            sse_c_over_http: None,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tls_client_crl: None,
            tls_client_certs: ClientCerts::Off,
            admin_client_certs: ClientCerts::Off,
            admin_token: None,
            admin_read_token: None,
            admin_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            admin_over_http: false,
            lock_memory: false,
            head_timeout: Interval(Duration::from_secs(30)),
            stall_timeout: Interval(Duration::from_secs(60)),
            drain_timeout: Interval(Duration::from_secs(30)),
        }
    }
}

/// Whether a TLS listener asks its clients for certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCerts {
    /// It does not.
    #[default]
    Off,
    /// Whoever has none is served; one that is shown must be good.
    Optional,
    /// Whoever has none is served nothing.
    Required,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Storage {
    pub(super) data: PathBuf,
    pub(super) catalog: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) catalog_password: Option<SecretText>,
    pub(super) catalog_connections: usize,
    pub(super) writer_lease: Interval,
    pub(super) backend: String,
    pub(super) sync: bool,
    pub(super) base_copies: u64,
    pub(super) second_copies: SecondCopies,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kek: Option<SecretText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keyring: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_provider: Option<String>,
    pub(super) key_lifetime: Interval,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            data: "./deltaweir-data".into(),
            catalog: "sqlite".into(),
            catalog_password: None,
            catalog_connections: 16,
            writer_lease: Interval(Duration::from_secs(60)),
            backend: "local".into(),
            sync: true,
            base_copies: 16,
            second_copies: SecondCopies::default(),
            kek: None,
            keyring: None,
            key_provider: None,
            key_lifetime: Interval(Duration::from_secs(3600)),
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Defaults {
    pub(super) compression: Compression,
    pub(super) encryption: Encryption,
    pub(super) effort: EffortSetting,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) isolation: Option<Isolation>,
    pub(super) storage_headers: StorageHeaders,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            compression: Compression::Delta,
            encryption: Encryption::Off,
            effort: EffortSetting::Auto,
            isolation: None,
            storage_headers: StorageHeaders::default(),
        }
    }
}

/// What a bucket of this name is created with; what is left out comes from `defaults` and
/// `storage.backend`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Bucket {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) compression: Option<Compression>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encryption: Option<Encryption>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effort: Option<EffortSetting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) read_through: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) isolation: Option<Isolation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) storage_headers: Option<StorageHeaders>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct User {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) canonical_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) email: Option<String>,
    pub(super) access_key_id: SecretText,
    pub(super) secret_access_key: SecretText,
    pub(super) policy: String,
}

/// What users may take on for a time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Role {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) canonical_id: Option<String>,
    pub(super) users: Vec<String>,
    #[serde(default = "hour")]
    pub(super) duration_max: Interval,
    pub(super) policy: String,
}

fn hour() -> Interval {
    Interval(Duration::from_secs(3600))
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) memory_bytes_max: ByteSize,
    pub(super) spool_bytes_max: ByteSize,
    pub(super) connections_max: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) connections_per_peer_max: Option<usize>,
    pub(super) requests_max: usize,
    pub(super) requests_per_user_max: usize,
    pub(super) uploads_per_user_max: usize,
    pub(super) open_uploads_per_user_max: u64,
    pub(super) download_bytes_per_second_min: ByteSize,
    pub(super) auth_failures_per_second: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) codec_threads: Option<usize>,
    pub(super) upload_age_max: Interval,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes_max: ByteSize(MachineMemory::found().default_budget()),
            spool_bytes_max: ByteSize(16 << 30),
            connections_max: 4096,
            connections_per_peer_max: None,
            requests_max: 1024,
            requests_per_user_max: 768,
            uploads_per_user_max: 512,
            open_uploads_per_user_max: 10_000,
            download_bytes_per_second_min: ByteSize(16 << 10),
            auth_failures_per_second: 20,
            codec_threads: None,
            upload_age_max: Interval(Duration::from_secs(7 * 86_400)),
        }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Gc {
    pub(super) grace: Interval,
    pub(super) unfinished_age: Interval,
    pub(super) interval: Interval,
    pub(super) trash: Interval,
}

impl Default for Gc {
    fn default() -> Self {
        Self {
            grace: Interval(Duration::from_secs(15 * 60)),
            unfinished_age: Interval(Duration::from_secs(86_400)),
            interval: Interval(Duration::from_secs(60)),
            trash: Interval(Duration::from_secs(86_400)),
        }
    }
}

/// Keys that requests may name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Kms {
    pub(super) keys: BTreeMap<String, KmsKey>,
}

/// Where such a key comes from.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum KmsKey {
    One(KmsKeySource),
    /// The first one encrypts, all of them decrypt.
    Several(Vec<KmsKeySource>),
}

/// One source of a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum KmsKeySource {
    /// It is derived from the keyring's key and its name.
    Keyring(KeyringWord),
    /// It is derived from a secret of its own and its name.
    Own(SecretText),
}

/// The word that names the keyring.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyringWord {
    Keyring,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Lifecycle {
    pub(super) day: Interval,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self { day: Interval(Duration::from_secs(86_400)) }
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Scrub {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interval: Option<Interval>,
    pub(super) percent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_second: Option<ByteSize>,
}

impl Default for Scrub {
    fn default() -> Self {
        Self { interval: None, percent: 100.0, bytes_per_second: None }
    }
}

/// Journal and backups.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Backup {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) backend: Option<String>,
    pub(super) journal_seconds: u32,
    pub(super) interval: Interval,
    pub(super) retention: Interval,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) anchor: Option<PathBuf>,
}

impl Default for Backup {
    fn default() -> Self {
        Self {
            backend: None,
            journal_seconds: 5,
            interval: Interval(Duration::ZERO),
            retention: Interval(Duration::from_secs(7 * 86_400)),
            anchor: None,
        }
    }
}

/// Where content may be written as plain files.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Eject {
    pub(super) roots: Vec<PathBuf>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Convert {
    pub(super) defer: bool,
    pub(super) defer_age_max: Interval,
    pub(super) interval: Interval,
    pub(super) bytes_per_second_max: ByteSize,
    pub(super) hot_reads: u32,
    pub(super) merge_extents: u32,
    pub(super) free_bytes_min: ByteSize,
}

impl Default for Convert {
    fn default() -> Self {
        let ConvertConfig {
            defer,
            defer_age_max,
            interval,
            bytes_per_second_max,
            hot_reads,
            merge_extents,
            free_bytes_min,
        } = ConvertConfig::default();
        Self {
            defer,
            defer_age_max: Interval(defer_age_max),
            interval: Interval(interval),
            bytes_per_second_max: ByteSize(bytes_per_second_max),
            hot_reads,
            merge_extents,
            free_bytes_min: ByteSize(free_bytes_min),
        }
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Log {
    pub(super) filter: String,
    pub(super) format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".into(), format: LogFormat::Text }
    }
}

impl File {
    /// Reads a document. Errors name the key by its path from the top.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        let table = text.parse::<toml::Table>().map_err(|error| ConfigError::whole(error.to_string().trim_end()))?;
        table.try_into().map_err(|error: toml::de::Error| described(&error))
    }

    /// Whether some secret stands in it as itself.
    pub(super) fn holds_secrets(&self) -> bool {
        let password = without_password(&self.storage.catalog) != self.storage.catalog;
        password || toml::Value::try_from(self).is_ok_and(|shown| shows_a_secret("", &shown))
    }
}

/// Whether something below a key is redacted, but names of key pairs, which are no secret.
fn shows_a_secret(key: &str, value: &toml::Value) -> bool {
    match value {
        toml::Value::String(text) => text == "[redacted]" && key != "access_key_id",
        toml::Value::Array(values) => values.iter().any(|value| shows_a_secret(key, value)),
        toml::Value::Table(table) => table.iter().any(|(key, value)| shows_a_secret(key, value)),
        _ => false,
    }
}

/// A toml error of a table has the path of the enclosing keys at its end: "… in `server`".
fn described(error: &toml::de::Error) -> ConfigError {
    let text = error.to_string();
    let path = text.lines().rev().find_map(|line| line.strip_prefix("in `")?.strip_suffix('`')).unwrap_or_default();
    let message = error.message().trim_end();
    match message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((name, known)) => {
            let key = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            ConfigError::at(&key, format!("unknown key{known}"))
        }
        None if path.is_empty() => ConfigError::whole(message),
        None => ConfigError::at(path, message),
    }
}
