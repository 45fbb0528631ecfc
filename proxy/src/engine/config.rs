//! What the engine is told at start. `crate::config` alone makes one of these from files and environment.

use super::{keyring::KeysetCopy, safety::SafetyConfig, scrub::ScrubConfig};
use object_format::Kek;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use storage_backends::{
    AzureConfig, BackendError, CloudBackend, GcsConfig, PlainStore, PlainWriter, RetryPolicy, S3Config,
};

/// How a bucket's content is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Raw; exact duplicates are still kept once.
    Off,
    /// zstd per segment.
    Zstd,
    /// Deltas against similar content, else zstd, else raw.
    Delta,
}

/// Whether a bucket's blobs are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// Suite 0.
    Off,
    /// Suite 1, AES-256-GCM.
    Aes256,
}

/// How much CPU time encoding may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffortSetting {
    /// Chosen per upload from the codec queue.
    Auto,
    /// Always fast.
    Fast,
    /// Always balanced.
    Balanced,
    /// Always high.
    High,
    /// Always max.
    Max,
}

/// What a bucket was created with; kept in its catalog row, where it wins over the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketSettings {
    /// Reduction.
    pub compression: Compression,
    /// Sealing.
    pub encryption: Encryption,
    /// Effort.
    pub effort: EffortSetting,
    /// Name of the backend its blobs go to.
    pub backend: String,
    /// Where a key that the catalog lacks is looked up: a store's name, or `NAME/prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_through: Option<String>,
    /// Copies of its wrapped domain key; set by the engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keysets: Vec<KeysetCopy>,
}

/// Where blobs can go.
#[derive(Clone, Debug)]
pub enum BackendConfig {
    /// A directory.
    Local {
        /// Its path.
        path: PathBuf,
    },
    /// A bucket of a cloud.
    Cloud(Box<CloudConfig>),
}

/// A bucket of a cloud and how patient we are with it.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    /// Where it is and who asks.
    pub store: CloudStore,
    /// How often calls are repeated.
    pub retry: RetryPolicy,
}

/// Whose protocol a bucket speaks.
#[derive(Clone, Debug)]
pub enum CloudStore {
    /// AWS S3, or a store that speaks like it.
    S3(S3Config),
    /// Google Cloud Storage.
    Gcs(GcsConfig),
    /// Azure Blob Storage.
    Azure(AzureConfig),
}

impl CloudStore {
    /// As a store of blobs. Sends nothing.
    ///
    /// # Errors
    /// [`storage_backends::ErrorKind::Invalid`] when the configuration contradicts itself.
    pub fn open(&self) -> Result<CloudBackend, BackendError> {
        match self.clone() {
            Self::S3(config) => config.open(),
            Self::Gcs(config) => config.open(),
            Self::Azure(config) => config.open(),
        }
    }

    /// As a store of plain objects. Sends nothing.
    ///
    /// # Errors
    /// As [`CloudStore::open`].
    pub fn open_plain(&self) -> Result<Arc<dyn PlainStore>, BackendError> {
        Ok(match self.clone() {
            Self::S3(config) => Arc::new(config.open_plain()?),
            Self::Gcs(config) => Arc::new(config.open()?.plain()),
            Self::Azure(config) => Arc::new(config.open()?.plain()),
        })
    }

    /// As a store that plain objects are written to. Sends nothing.
    ///
    /// # Errors
    /// As [`CloudStore::open`].
    pub(super) fn open_writer(&self) -> Result<Arc<dyn PlainWriter>, BackendError> {
        Ok(match self.clone() {
            Self::S3(config) => Arc::new(config.open_plain()?),
            Self::Gcs(config) => Arc::new(config.open()?.plain()),
            Self::Azure(config) => Arc::new(config.open()?.plain()),
        })
    }

    /// Where its names begin.
    pub(super) fn prefix(&self) -> &str {
        match self {
            Self::S3(config) => &config.prefix,
            Self::Gcs(config) => &config.prefix,
            Self::Azure(config) => &config.prefix,
        }
    }

    /// Whether both are the same bucket, whatever their prefixes.
    pub(super) fn is_bucket_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::S3(one), Self::S3(other)) => (&one.endpoint, &one.bucket) == (&other.endpoint, &other.bucket),
            (Self::Gcs(one), Self::Gcs(other)) => (&one.endpoint, &one.bucket) == (&other.endpoint, &other.bucket),
            (Self::Azure(one), Self::Azure(other)) => {
                (&one.endpoint, &one.account, &one.container) == (&other.endpoint, &other.account, &other.container)
            }
            _ => false,
        }
    }
}

/// Memory of a temporary store.
const TEMPORARY_MEMORY_BYTES: u64 = 512 << 20;

impl EngineConfig {
    /// A store below `directory` that lives as long as one command: new buckets get `settings`, nothing is flushed for durability, and the
    /// effort does not depend on what else the machine does.
    pub fn temporary(directory: &Path, settings: BucketSettings) -> Self {
        let effort = match settings.effort {
            EffortSetting::Auto => EffortSetting::Balanced,
            effort => effort,
        };
        let backend = BackendConfig::Local { path: directory.join("blobs") };
        let day = Duration::from_secs(86_400);
        Self {
            data: directory.to_owned(),
            catalog: CatalogConfig::Sqlite,
            backends: BTreeMap::from([("local".to_owned(), backend)]),
            stores: BTreeMap::new(),
            sync: false,
            defaults: BucketSettings {
                effort,
                backend: "local".into(),
                read_through: None,
                keysets: Vec::new(),
                ..settings
            },
            buckets: BTreeMap::new(),
            memory_bytes_max: TEMPORARY_MEMORY_BYTES,
            spool_bytes_max: 0,
            kek: None,
            codec_threads: None,
            gc_grace: day,
            unfinished_age: day,
            gc_interval: day,
            base_copies: 0,
            scrub: ScrubConfig::default(),
            writer_lease: day,
            upload_age_max: day,
            schedule_jobs: false,
            safety: SafetyConfig {
                backend: "local".into(),
                journal_interval: day,
                backup_interval: None,
                backup_retention: day,
                accept_older_catalog: false,
            },
            convert: ConvertConfig { defer: false, free_bytes_min: 0, ..ConvertConfig::default() },
        }
    }
}

/// Where the catalog is.
#[derive(Clone, Debug)]
pub enum CatalogConfig {
    /// In the data directory, owned by one process.
    Sqlite,
    /// In a database that several processes share.
    Postgres {
        /// Its URL, perhaps with a password.
        url: SecretString,
        /// The password, when it is not in the URL.
        password: Option<SecretString>,
        /// Most connections that read; one more writes.
        connections_max: usize,
    },
}

/// Everything the engine is told.
pub struct EngineConfig {
    /// Spool, embedded catalog, keyring.
    pub data: PathBuf,
    /// Where the catalog is.
    pub catalog: CatalogConfig,
    /// By name.
    pub backends: BTreeMap<String, BackendConfig>,
    /// Stores of plain objects by name: content is adopted from them, and written to them by those who leave.
    pub stores: BTreeMap<String, BackendConfig>,
    /// False: leave flushing to the operating system.
    pub sync: bool,
    /// Settings for new buckets without their own.
    pub defaults: BucketSettings,
    /// Settings for new buckets by name.
    pub buckets: BTreeMap<String, BucketSettings>,
    /// One budget for every buffered byte, base window and codec job (I8).
    pub memory_bytes_max: u64,
    /// Most bytes of spool files.
    pub spool_bytes_max: u64,
    /// From the environment; otherwise the keyring file in `data`, made on first start.
    pub kek: Option<Kek>,
    /// Threads of the codec pool; `None`: one per core.
    pub codec_threads: Option<usize>,
    /// How long a dying blob waits before its purge.
    pub gc_grace: Duration,
    /// How old an upload in parts to a backend is before it counts as left behind.
    pub unfinished_age: Duration,
    /// How often the collector runs.
    pub gc_interval: Duration,
    /// How many deltas must need a base before it gets a second copy; 0: none ever does (E8).
    pub base_copies: u64,
    /// What the scrub does when nobody asks for it.
    pub scrub: ScrubConfig,
    /// How long a process may be silent before others may close its writer epoch; only where several share a catalog.
    pub writer_lease: Duration,
    /// How old an open upload may become.
    pub upload_age_max: Duration,
    /// How journal and backups are kept.
    pub safety: SafetyConfig,
    /// Whether background jobs run on their own; a command that opens the store for a moment leaves them to servers.
    pub schedule_jobs: bool,
    /// What the converter may do.
    pub convert: ConvertConfig,
}

/// What the background converter may do.
#[derive(Clone, Debug)]
pub struct ConvertConfig {
    /// Uploads may be stored now and encoded better later.
    pub defer: bool,
    /// How long content waits for idle cores before it is encoded although there are none.
    pub defer_age_max: Duration,
    /// How often the converter looks for work.
    pub interval: Duration,
    /// How fast it reads content, in bytes per second; 0: as fast as it goes.
    pub bytes_per_second_max: u64,
    /// A delta that is read so often within about ten minutes is made whole; 0: never.
    pub hot_reads: u32,
    /// A version of so many extents is rewritten to fewer when they are small; 0: never. At least [`catalog::SCATTERED_EXTENTS_MIN`] otherwise.
    pub merge_extents: u32,
    /// The file system of a local backend keeps so many bytes free.
    pub free_bytes_min: u64,
}

impl Default for ConvertConfig {
    fn default() -> Self {
        Self {
            defer: true,
            defer_age_max: Duration::from_secs(15 * 60),
            interval: Duration::from_secs(5),
            bytes_per_second_max: 0,
            hot_reads: 16,
            // As many ranges as a view may have (I2).
            merge_extents: 256,
            free_bytes_min: 1 << 30,
        }
    }
}
