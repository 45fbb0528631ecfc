//! Making a catalog again: a backup's rows, the journal behind it, and for `rebuild` the manifests of blobs that neither knows.

use super::{
    super::{
        EngineConfig,
        error::EngineError,
        keyring::Keyring,
        make_private_dir, now_ms, open_backend, open_catalog,
        ownership::{DEPLOYMENT_SETTING, Deployment, Strangers},
        pool::{CodecPool, PoolKind},
    },
    LINEAGE_SETTING, SWEEP_FLOOR, SWEEP_FLOOR_SETTING, Safety, SweepFloor,
    backup::BackupInfo,
    document::{IndexDocument, LineageDocument, decode_journal, decode_part},
    names::{BackupName, Lineage, journal_name, lineage_name},
    recovered::{self, Recovered, highest_epoch},
    ship::new_lineage,
    vault::Vault,
};
use crate::metrics::Metrics;
use catalog::{Catalog, CatalogError, JournalEntry, Mutation, Seq, UnixMs};
use object_format::BlobKind;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, sync::Arc};
use storage_backends::Backend;

/// Mutations that are made again in one transaction of the catalog.
const REPLAY_BATCH: usize = 256;

/// Is told how far a recovery is.
pub type Progress = dyn Fn(&str, u64) + Send + Sync;

/// What is to be made of the store's remains.
#[derive(Clone, Debug)]
pub struct RecoveryOptions {
    /// The backup to begin with; the newest when absent.
    pub backup: Option<String>,
    /// Look into the manifests of blobs that neither backup nor journal knows.
    pub manifests: bool,
    /// Put what only manifests know under its own key where that holds nothing, instead of in quarantine.
    pub in_place: bool,
    /// End the replay at a journal blob that is damaged, instead of giving up.
    pub stop_at_damage: bool,
    /// The ETag of a multipart object from those of its parts in order, which is S3's business; `None` when one of them is none.
    pub etag_of_parts: fn(&[String]) -> Option<String>,
}

/// What a recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecoveryReport {
    /// The lineage that was read, if the backend has one.
    pub lineage: Option<String>,
    /// The lineage that the catalog goes on in.
    pub new_lineage: String,
    /// The backup it began with.
    pub backup: Option<BackupInfo>,
    /// Mutations made again from the journal.
    pub replayed: u64,
    /// The last mutation of backup and journal.
    pub last_seq: Seq,
    /// When that was, by its writer's clock: what was acknowledged later than this is only in manifests.
    pub last_ms: Option<UnixMs>,
    /// What made the replay end before the journal's end.
    pub damage: Option<String>,
    /// Current objects in the catalog that was made.
    pub objects: u64,
    /// Uploads that are open in it: one of them may have been completed after the journal's end.
    pub open_uploads: u64,
    /// What manifests told.
    pub recovered: Option<Recovered>,
}

/// A store without a catalog.
struct Recovery {
    catalog: Arc<dyn Catalog>,
    backends: BTreeMap<String, Arc<dyn Backend>>,
    keyring: Arc<Keyring>,
    safety: Safety,
}

/// Makes the catalog that `config` names again. It must be empty, or left over from a recovery that was interrupted.
///
/// # Errors
/// [`EngineError`] in words: a catalog that holds something, a backup or journal blob that is damaged (by name), a KEK that does not fit. The
/// same call may be repeated.
pub async fn recover(
    mut config: EngineConfig,
    options: &RecoveryOptions,
    metrics: Arc<Metrics>,
    progress: &Progress,
) -> Result<RecoveryReport, EngineError> {
    make_private_dir(&config.data)?;
    let keyring = Arc::new(Keyring::open_existing(&config.data, config.kek.take())?);
    let mut backends = BTreeMap::new();
    for (name, backend) in &config.backends {
        backends.insert(name.clone(), open_backend(name, backend, config.sync, &metrics).await?);
    }
    let catalog = open_catalog(&config, &metrics).await?;
    let backend = backends.get(&config.safety.backend).cloned();
    let backend =
        backend.ok_or_else(|| EngineError::Other(format!("backend {:?} is not configured", config.safety.backend)))?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let pool = Arc::new(CodecPool::new(threads, PoolKind::Codec, &metrics)?);
    let safety = Safety::new(config.safety.clone(), catalog.clone(), backend, keyring.clone(), pool, None, metrics);
    let recovery = Recovery { catalog, backends, keyring, safety };
    recovery.run(&config, options, progress).await
}

/// Every backup that the configured backend holds, oldest first; needs no catalog.
///
/// # Errors
/// What the backend says; an index that cannot be read, by name.
pub async fn list_backups(mut config: EngineConfig, metrics: Arc<Metrics>) -> Result<Vec<BackupInfo>, EngineError> {
    make_private_dir(&config.data)?;
    let keyring = Arc::new(Keyring::open_existing(&config.data, config.kek.take())?);
    let named = config.backends.get(&config.safety.backend);
    let named =
        named.ok_or_else(|| EngineError::Other(format!("backend {:?} is not configured", config.safety.backend)))?;
    let backend = open_backend(&config.safety.backend, named, config.sync, &metrics).await?;
    let pool = Arc::new(CodecPool::new(1, PoolKind::Codec, &metrics)?);
    Vault::new(backend, keyring, pool).backups().await
}

impl Recovery {
    async fn run(
        &self,
        config: &EngineConfig,
        options: &RecoveryOptions,
        progress: &Progress,
    ) -> Result<RecoveryReport, EngineError> {
        let mut report = RecoveryReport::default();
        let named: Option<BackupName> = options.backup.as_deref().map(str::parse).transpose()?;
        let lineage = match named {
            Some(name) => Some(name.lineage),
            None => self.safety.vault.newest_lineage().await?,
        };
        report.lineage = lineage.map(|lineage| lineage.to_string());
        if lineage.is_none() && !options.manifests {
            return Err(EngineError::Other(format!(
                "backend {:?} holds neither journal nor backups; `deltaweir rebuild` recovers what blobs say of themselves",
                self.safety.config.backend
            )));
        }
        self.catalog.begin_import().await.map_err(|error| match error {
            CatalogError::NotEmpty => EngineError::Other(
                "the catalog holds buckets: a store is made again in an empty one. If this is what the last recovery made, \
                 serve it; else move it away first"
                    .into(),
            ),
            other => other.into(),
        })?;
        if let Some(lineage) = lineage {
            self.read_lineage(lineage, named, options, &mut report, progress).await?;
        }
        report.last_seq = self.catalog.last_seq().await?;
        let highest = highest_epoch(&self.backends).await?;
        if options.manifests {
            let sources = recovered::Sources {
                catalog: &self.catalog,
                backends: &self.backends,
                keyring: &self.keyring,
                config,
                last_ms: report.last_ms,
            };
            report.recovered = Some(recovered::recover_manifests(sources, options, progress).await?);
        }
        // Known whole from here on: one more run begins from the start, but nothing of it is missing.
        let floor = SweepFloor { epoch: highest, until_ms: now_ms() + SWEEP_FLOOR.as_millis() as i64 };
        self.put_setting(SWEEP_FLOOR_SETTING, &floor).await?;
        let start = self.catalog.last_seq().await? + 1;
        let next = new_lineage(lineage, start)?;
        self.put_setting(LINEAGE_SETTING, &next).await?;
        // A deployment of its own, which has the place from here on: what still runs over it with the old catalog stops collecting.
        let deployment = Deployment::new()?;
        self.put_setting(DEPLOYMENT_SETTING, &deployment).await?;
        deployment.own(&self.backends, Strangers::Replace).await?;
        self.catalog.end_import(highest).await?;
        report.new_lineage = self.safety.ensure_lineage().await?.to_string();
        for bucket in self.catalog.stats().await? {
            report.objects += bucket.objects;
            report.open_uploads += bucket.uploads;
        }
        Ok(report)
    }

    /// Backup and journal of a lineage.
    async fn read_lineage(
        &self,
        lineage: Lineage,
        named: Option<BackupName>,
        options: &RecoveryOptions,
        report: &mut RecoveryReport,
        progress: &Progress,
    ) -> Result<(), EngineError> {
        let backup = match named {
            Some(name) => Some(name),
            None => self.safety.vault.backups_of(lineage).await?.pop(),
        };
        let next = match backup {
            Some(name) => {
                let index = self.safety.vault.index(&name).await?;
                self.import(&name, &index, progress).await?;
                report.last_ms = Some(index.taken_ms);
                report.backup = Some(super::backup::info(&name, &index));
                name.cut + 1
            }
            None => self.first_of(lineage).await?,
        };
        match self.replay(lineage, next, report, progress).await {
            Err(EngineError::Integrity(why)) if options.stop_at_damage => {
                report.damage = Some(why);
                Ok(())
            }
            Err(EngineError::Integrity(why)) => Err(EngineError::Integrity(format!(
                "{why}. Everything behind it would be lost, so nothing was restored; `--stop-at-damage` goes without it"
            ))),
            outcome => outcome,
        }
    }

    /// Where a lineage's journal begins, for one that has no backup.
    async fn first_of(&self, lineage: Lineage) -> Result<Seq, EngineError> {
        let name = lineage_name(lineage)?;
        let blob = self.safety.vault.get(&name, BlobKind::Journal).await?;
        let blob = blob.ok_or_else(|| EngineError::Other(format!("there is no lineage {lineage}")))?;
        match LineageDocument::decode(&blob.document)?.start {
            0 => Ok(1),
            _ => Err(EngineError::Integrity(format!("lineage {lineage} has lost the backup that it begins with"))),
        }
    }

    async fn import(&self, name: &BackupName, index: &IndexDocument, progress: &Progress) -> Result<(), EngineError> {
        let damaged = |part: usize, why: &str| {
            EngineError::Integrity(format!(
                "part {part} of backup {name} {why}; another backup may be named with `--backup`"
            ))
        };
        let mut rows = 0;
        for (number, entry) in index.parts.iter().enumerate() {
            let part = u32::try_from(number).map_err(|_| EngineError::TooLarge)?;
            let blob = self.safety.vault.get(&name.part(part)?, BlobKind::Backup).await;
            let blob = blob.map_err(|error| match error {
                EngineError::Integrity(why) => damaged(number, &why),
                other => other,
            })?;
            let document = blob.ok_or_else(|| damaged(number, "is missing"))?.document;
            if <[u8; 32]>::from(Sha256::digest(&document)) != entry.digest {
                return Err(damaged(number, "is another one"));
            }
            for piece in decode_part(&document, name, part)? {
                rows += piece.rows.len() as u64;
                self.catalog.import(piece).await?;
            }
            progress("rows restored", rows);
        }
        match rows == index.rows {
            true => Ok(()),
            false => Err(damaged(index.parts.len(), &format!("ends {rows} rows of {}", index.rows))),
        }
    }

    /// The chain of journal blobs from the one named by `next`, up to the name that is not there.
    async fn replay(
        &self,
        lineage: Lineage,
        mut next: Seq,
        report: &mut RecoveryReport,
        progress: &Progress,
    ) -> Result<(), EngineError> {
        let done = self.catalog.last_seq().await?;
        let mut sealed = false;
        loop {
            let name = journal_name(lineage, next)?;
            let Some(blob) = self.safety.vault.get(&name, BlobKind::Journal).await? else { return Ok(()) };
            if sealed && !blob.sealed {
                return Err(EngineError::Integrity(format!("{name} is not sealed, and those before it are")));
            }
            sealed = blob.sealed;
            let entries = decode_journal(&blob.document, next)
                .map_err(|error| EngineError::Integrity(format!("{name} is damaged: {error}")))?;
            for batch in entries.chunks(REPLAY_BATCH) {
                let batch: Vec<JournalEntry> = batch.iter().filter(|entry| entry.seq > done).cloned().collect();
                let Some(last) = batch.last().map(|entry| entry.at_ms) else { continue };
                let count = batch.len() as u64;
                self.catalog.replay(batch).await.map_err(|error| match error {
                    CatalogError::Invalid(why) => EngineError::Integrity(format!("{name}: {why}")),
                    other => other.into(),
                })?;
                report.replayed += count;
                report.last_ms = report.last_ms.max(Some(last));
            }
            progress("mutations made again", report.replayed);
            next = entries.last().map_or(next, |entry| entry.seq) + 1;
        }
    }

    async fn put_setting<T: Serialize>(&self, name: &str, value: &T) -> Result<(), EngineError> {
        let value = serde_json::to_value(value).map_err(|error| EngineError::Other(error.to_string()))?;
        recovered::record(&*self.catalog, Mutation::PutSetting { name: name.into(), value, creates: false }).await
    }
}
