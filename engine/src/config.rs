//! What the engine is told at start. `proxy/src/config/storage.rs` makes one of these; the defaults
//! are in `proxy/src/config/file.rs`.

use crate::deployment::{
    keyring::{Given, KeysetCopy, provider::KeyProviders},
    veil::ContentKeys,
};
use object_format::Kek;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
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

impl EffortSetting {
    /// What an idle machine makes of it.
    pub(crate) fn without_load(self) -> Self {
        if self == Self::Auto { Self::Balanced } else { self }
    }
}

/// Among whose content new content of a bucket looks for bases and duplicates, whoever writes it
/// (docs/decisions/0036-compartments.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// What the writer may read.
    Policy,
    /// The whole bucket's.
    Bucket,
    /// What lies below the same first path element.
    Prefix,
    /// The same writer's.
    Strict,
}

/// Who is told how an object is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageHeaders {
    /// Administrators.
    #[default]
    Administrators,
    /// Everybody who may read the object; sizes are rounded up for those who are no administrators.
    Readers,
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
    /// What clients and operators configured, by name (`tagging`, `isolation`): kept as it is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub configurations: BTreeMap<String, serde_json::Value>,
    /// Among whose content bases and duplicates are looked for; `None`: among what the writer may
    /// read. The configuration's to say, unless [`Self::configurations`] do.
    #[serde(skip)]
    pub isolation: Option<Isolation>,
    /// Who is told how an object is stored. The configuration's to say, unless
    /// [`Self::configurations`] do.
    #[serde(skip)]
    pub storage_headers: StorageHeaders,
}

/// Memory of a temporary store.
const TEMPORARY_MEMORY_BYTES: u64 = 512 << 20;

impl EngineConfig {
    /// What it gives of KEKs; keys are taken out of it.
    pub(crate) fn take_keys(&mut self) -> Given {
        Given { kek: self.kek.take(), file: self.keyring.take(), providers: self.key_providers.clone() }
    }

    /// A store below `directory` that lives as long as one command: new buckets get `settings` on
    /// the backend `local`, and the effort does not depend on what else the machine does.
    pub fn temporary(directory: &Path, settings: BucketSettings) -> Self {
        let day = Duration::from_secs(86_400);
        Self {
            data: directory.to_owned(),
            defaults: BucketSettings {
                backend: "local".into(),
                read_through: None,
                keysets: Vec::new(),
                configurations: BTreeMap::new(),
                ..settings
            },
            buckets: BTreeMap::new(),
            memory_bytes_max: TEMPORARY_MEMORY_BYTES,
            spool_bytes_max: TEMPORARY_MEMORY_BYTES,
            kek: None,
            keyring: None,
            key_providers: KeyProviders::default(),
            content_keys: None,
            codec_threads: None,
            gc_grace: day,
            unfinished_age: day,
            gc_interval: day,
            gc_trash: day,
            base_copies: 0,
            second_copies: SecondCopies::None,
            scrub: ScrubConfig::default(),
            writer_lease: day,
            upload_age_max: day,
            open_uploads_per_user_max: 10_000,
            lifecycle_day: day,
            schedule_jobs: false,
            effort_by_load: false,
            eject_roots: Vec::new(),
            safety: SafetyConfig {
                backend: "local".into(),
                journal_interval: day,
                backup_interval: None,
                backup_retention: day,
                anchor: None,
                accept_older_catalog: false,
                encrypts: false,
            },
            notify: NotifyConfig::default(),
            convert: ConvertConfig { defer: false, free_bytes_min: 0, ..ConvertConfig::default() },
        }
    }
}

/// Which backends keep what more than [`OBJECTS_PER_FILE_MAX`] objects need twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecondCopies {
    /// Directories: a file of a local disk is lost sooner than an object of a cloud.
    #[default]
    Local,
    /// Every one.
    All,
    /// None.
    None,
}

/// What the loss of one file may cost where second copies are kept.
pub const OBJECTS_PER_FILE_MAX: u64 = 16;

/// Everything the engine is told.
pub struct EngineConfig {
    /// Spool, embedded catalog, keyring.
    pub data: PathBuf,
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
    /// A file of KEKs that may be other processes', too; otherwise the one in `data`.
    pub keyring: Option<PathBuf>,
    /// Who keeps KEKs that are not here as they are.
    pub key_providers: KeyProviders,
    /// Who encrypts single objects that are there already; `None`: nobody here can.
    pub content_keys: Option<Arc<dyn ContentKeys>>,
    /// Threads of the codec pool; `None`: one per core.
    pub codec_threads: Option<usize>,
    /// How long a dying blob waits before its purge, at least: as long as backups are retained, if
    /// that is longer.
    pub gc_grace: Duration,
    /// How old an upload in parts to a backend is before it counts as left behind.
    pub unfinished_age: Duration,
    /// How often the collector runs.
    pub gc_interval: Duration,
    /// How long a file that no row knows stays on the list of what is to be removed.
    pub gc_trash: Duration,
    /// How many deltas must need a base before it gets a second copy; 0: none ever does (E8).
    pub base_copies: u64,
    /// Where packs, and whatever else many objects need, have a second copy.
    pub second_copies: SecondCopies,
    /// What the scrub does when nobody asks for it.
    pub scrub: ScrubConfig,
    /// How long a process may be silent before others may close its writer epoch; only where
    /// several share a catalog.
    pub writer_lease: Duration,
    /// How old an open upload may become.
    pub upload_age_max: Duration,
    /// Multipart uploads that one owner may have open.
    pub open_uploads_per_user_max: u64,
    /// How long a day of lifecycle rules is: 24 hours, or less for tests.
    pub lifecycle_day: Duration,
    /// How journal and backups are kept.
    pub safety: SafetyConfig,
    /// Directories that `eject` may write below when the content is sealed, or when the caller does
    /// not own the store.
    pub eject_roots: Vec<PathBuf>,
    /// Whether background jobs run on their own; a command that opens the store for a moment leaves
    /// them to servers.
    pub schedule_jobs: bool,
    /// Whether the effort `auto` looks at the load; otherwise an upload is encoded as on an idle
    /// machine.
    pub effort_by_load: bool,
    /// What the converter may do.
    pub convert: ConvertConfig,
    /// Who is told of changes.
    pub notify: NotifyConfig,
}

/// Who is told of changes in buckets, and how long it is tried.
#[derive(Clone, Debug)]
pub struct NotifyConfig {
    /// Names of webhooks that this process delivers to.
    pub webhooks: BTreeSet<String>,
    /// Most events that wait for one webhook; later ones are lost.
    pub waiting_max: u64,
    /// How long an event waits before it is given up.
    pub keep: Duration,
    /// The region that events name.
    pub region: String,
}

impl Default for NotifyConfig {
    fn default() -> Self {
        Self {
            webhooks: BTreeSet::new(),
            waiting_max: 100_000,
            keep: Duration::from_secs(4 * 86_400),
            region: "us-east-1".into(),
        }
    }
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
    /// A version of so many extents is rewritten to fewer when they are small; 0: never. At least
    /// [`catalog::SCATTERED_EXTENTS_MIN`] otherwise.
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

/// How the job `scrub` runs when nobody says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrubConfig {
    /// How often it runs on its own; `None`: never.
    pub interval: Option<Duration>,
    /// How much it looks at every time, in percent of all blobs; the next run goes on with others.
    pub percent: f64,
    /// How fast it reads at most; `None`: as fast as it goes.
    pub bytes_per_second: Option<u64>,
}

impl Default for ScrubConfig {
    fn default() -> Self {
        Self { interval: None, percent: 100.0, bytes_per_second: None }
    }
}

/// Where an anchor outside of the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorPlace {
    /// A file.
    File(PathBuf),
    /// Documents in another store, which [`Stores`](crate::Stores) has open.
    Store {
        /// What an operator calls the store.
        name: String,
        /// Where the documents' names begin.
        prefix: String,
    },
}

/// How journal and backups are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetyConfig {
    /// The backend that keeps them.
    pub backend: String,
    /// How long after a change its journal entry is in the backend. Zero: before the change is
    /// acknowledged.
    pub journal_interval: Duration,
    /// How often a backup is made; `None`: when somebody asks for one.
    pub backup_interval: Option<Duration>,
    /// How long backups are kept; the newest is kept whatever its age.
    pub backup_retention: Duration,
    /// What says outside of the store how far the journal was.
    pub anchor: Option<AnchorPlace>,
    /// Serve a catalog although the backend holds a later state of it.
    pub accept_older_catalog: bool,
    /// The configuration asks for encryption somewhere: journal and backups are sealed from the
    /// first.
    pub encrypts: bool,
}
