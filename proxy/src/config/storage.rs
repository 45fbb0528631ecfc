//! The engine's part of the configuration: storage, limits and jobs.

use super::{error::ConfigError, machine::MEMORY_BYTES_MIN, modes::Holds, named_keys::NamedKeys, reader::Reader};
use engine::{
    AnchorPlace, BucketSettings, ConvertConfig, Encryption, EngineConfig, FAN_IN_MAX, SafetyConfig, ScrubConfig,
    keyring_file,
};
use object_format::Kek;
use s3_wire::BucketName;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};
use storage_backends::BlobName;

/// Before the name of a store, where a path could stand.
const STORE: &str = "store:";
/// Where an anchor's documents lie in a store, when nobody says it.
const ANCHOR_PREFIX: &str = "deltaweir-anchor";
const ANCHOR_PREFIX_LEN_MAX: usize = 100;

impl Reader<'_> {
    pub(super) fn engine(&self, kms_keys: NamedKeys) -> Result<EngineConfig, ConfigError> {
        let (file, limits) = (self.file, &self.file.limits);
        self.is_backend("storage.backend", &file.storage.backend)?;
        let defaults = BucketSettings {
            compression: file.defaults.compression,
            encryption: file.defaults.encryption,
            effort: file.defaults.effort,
            backend: file.storage.backend.clone(),
            read_through: None,
            keysets: Vec::new(),
            configurations: BTreeMap::new(),
            isolation: file.defaults.isolation,
            storage_headers: file.defaults.storage_headers,
        };
        let buckets = self.buckets(&defaults)?;
        self.check_limits()?;
        self.check_jobs()?;
        Ok(EngineConfig {
            data: file.storage.data.clone(),
            defaults,
            buckets,
            memory_bytes_max: limits.memory_bytes_max.0,
            spool_bytes_max: limits.spool_bytes_max.0,
            kek: self.kek()?,
            keyring: self.keyring()?,
            key_providers: self.key_providers()?,
            content_keys: Some(Arc::new(kms_keys)),
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
            safety: self.safety()?,
            eject_roots: file.eject.roots.clone(),
            schedule_jobs: true,
            effort_by_load: true,
            convert: self.convert()?,
            notify: self.notify()?,
        })
    }

    /// That a backend of this name is configured.
    fn is_backend(&self, key: &str, name: &str) -> Result<(), ConfigError> {
        if self.file.backends.contains_key(name) {
            return Ok(());
        }
        Err(ConfigError::at(key, format!("there is no [backends.{name}]")))
    }

    fn buckets(&self, defaults: &BucketSettings) -> Result<BTreeMap<String, BucketSettings>, ConfigError> {
        let file = self.file;
        let mut buckets = BTreeMap::new();
        for (name, bucket) in &file.buckets {
            let key = format!("buckets.{name}");
            BucketName::new(name.as_str()).map_err(|_| ConfigError::at(&key, "not a valid bucket name"))?;
            if let Some(backend) = &bucket.backend {
                self.is_backend(&format!("{key}.backend"), backend)?;
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
                isolation: bucket.isolation.or(defaults.isolation),
                storage_headers: bucket.storage_headers.unwrap_or(defaults.storage_headers),
            };
            buckets.insert(name.clone(), settings);
        }
        Ok(buckets)
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let limits = &self.file.limits;
        if limits.memory_bytes_max.0 < MEMORY_BYTES_MIN {
            return Err(ConfigError::at("limits.memory_bytes_max", "expected at least \"64MiB\""));
        }
        if limits.codec_threads == Some(0) {
            return Err(ConfigError::at("limits.codec_threads", "expected at least 1"));
        }
        Ok(())
    }

    fn check_jobs(&self) -> Result<(), ConfigError> {
        let file = self.file;
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
        Ok(())
    }

    fn safety(&self) -> Result<SafetyConfig, ConfigError> {
        let file = self.file;
        let backup = &file.backup;
        if let Some(backend) = &backup.backend {
            self.is_backend("backup.backend", backend)?;
        }
        if backup.journal_seconds > 3600 {
            return Err(ConfigError::at("backup.journal_seconds", "expected 0 to 3600"));
        }
        if !backup.interval.0.is_zero() && backup.interval.0 < Duration::from_secs(60) {
            return Err(ConfigError::at("backup.interval", "expected \"0s\" (never by itself) or at least \"1m\""));
        }
        Ok(SafetyConfig {
            backend: backup.backend.clone().unwrap_or_else(|| file.storage.backend.clone()),
            journal_interval: Duration::from_secs(backup.journal_seconds.into()),
            backup_interval: Some(backup.interval.0).filter(|interval| !interval.is_zero()),
            backup_retention: backup.retention.0,
            anchor: self.anchor()?,
            accept_older_catalog: false,
            encrypts: file.defaults.encryption == Encryption::Aes256
                || file.buckets.values().any(|bucket| bucket.encryption == Some(Encryption::Aes256)),
        })
    }

    /// A file, or the store and prefix behind `store:`.
    fn anchor(&self) -> Result<Option<AnchorPlace>, ConfigError> {
        let Some(path) = &self.file.backup.anchor else { return Ok(None) };
        let Some(store) = path.to_str().and_then(|text| text.strip_prefix(STORE)) else {
            return Ok(Some(AnchorPlace::File(self.directory.join(path))));
        };
        let (name, prefix) = store.split_once('/').unwrap_or((store, ANCHOR_PREFIX));
        let wrong = |message: String| Err(ConfigError::at("backup.anchor", message));
        if !self.file.stores.contains_key(name) {
            return wrong(format!("there is no [stores.{name}]"));
        }
        if prefix.len() > ANCHOR_PREFIX_LEN_MAX || BlobName::new(prefix).is_err() {
            return wrong(format!(
                "expected at most {ANCHOR_PREFIX_LEN_MAX} lower-case letters, digits, `-`, `_` and single `/` as prefix, not {prefix:?}"
            ));
        }
        Ok(Some(AnchorPlace::Store { name: name.to_owned(), prefix: prefix.to_owned() }))
    }

    /// The store that keeps the anchor.
    pub(super) fn anchor_store(&self) -> Result<Option<String>, ConfigError> {
        Ok(match self.anchor()? {
            Some(AnchorPlace::Store { name, .. }) => Some(name),
            Some(AnchorPlace::File(_)) | None => None,
        })
    }

    fn convert(&self) -> Result<ConvertConfig, ConfigError> {
        let file = self.file;
        if file.convert.interval.0 < Duration::from_secs(1) {
            return Err(ConfigError::at("convert.interval", "expected at least \"1s\""));
        }
        if (1..catalog::SCATTERED_EXTENTS_MIN).contains(&u64::from(file.convert.merge_extents)) {
            return Err(ConfigError::at(
                "convert.merge_extents",
                format!("expected 0 (never) or at least {}", catalog::SCATTERED_EXTENTS_MIN),
            ));
        }
        Ok(ConvertConfig {
            defer: file.convert.defer,
            defer_age_max: file.convert.defer_age_max.0,
            interval: file.convert.interval.0,
            bytes_per_second_max: file.convert.bytes_per_second_max.0,
            hot_reads: file.convert.hot_reads,
            merge_extents: file.convert.merge_extents,
            free_bytes_min: file.convert.free_bytes_min.0,
        })
    }

    /// The file of KEKs that an operator names. It is looked at wherever it is.
    fn keyring(&self) -> Result<Option<PathBuf>, ConfigError> {
        let storage = &self.file.storage;
        let path = keyring_file(&storage.data, storage.keyring.as_deref());
        self.modes.check("storage.keyring", &path, Holds::Secret)?;
        Ok(storage.keyring.clone())
    }

    fn kek(&self) -> Result<Option<Kek>, ConfigError> {
        self.file.storage.kek.as_ref().map(|text| self.key("storage.kek", text)).transpose()
    }
}
