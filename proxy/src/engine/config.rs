//! What the engine is told at start. `crate::config` alone makes one of these from files and environment.

use super::keyring::KeysetCopy;
use object_format::Kek;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

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
    /// A bucket of an S3 store.
    S3 {
        /// Endpoint URL; `None` for AWS itself.
        endpoint: Option<String>,
        /// Bucket.
        bucket: String,
        /// Key prefix, empty or ending in `/`.
        prefix: String,
        /// Region.
        region: String,
        /// Access key id; `None`: from the environment's usual chain.
        access_key_id: Option<String>,
        /// Secret access key.
        secret_access_key: Option<SecretString>,
    },
}

/// Everything the engine is told.
pub struct EngineConfig {
    /// Spool, embedded catalog, keyring.
    pub data: PathBuf,
    /// `sqlite`, or a PostgreSQL URL.
    pub catalog: String,
    /// By name.
    pub backends: BTreeMap<String, BackendConfig>,
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
    /// How often the collector runs.
    pub gc_interval: Duration,
    /// How old an open upload may become.
    pub upload_age_max: Duration,
}
