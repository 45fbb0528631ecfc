//! Making a catalog again: a backup's rows, the journal behind it, and for `rebuild` the manifests
//! of blobs that neither knows.

use super::{
    backup::BackupInfo,
    branches::branches,
    document::IndexDocument,
    links::Links,
    lost::{Hole, LostMutation, lost_mutation},
    merge::{Merge, Merged},
    names::{BackupName, Lineage, journal_name},
    options::{RecoveryOptions, RecoveryProgress},
    provided::learn_from_keysets,
    recovered::{self, Recovered, highest_epoch},
    safety::{LINEAGE_SETTING, SWEEP_FLOOR, SWEEP_FLOOR_SETTING, Safety, SweepFloor},
    ship::new_lineage,
    vault::Vault,
};
use crate::{
    blobs::stores::Stores,
    config::EngineConfig,
    deployment::{
        keyring::Keyring,
        ownership::{DEPLOYMENT_SETTING, Deployment, Strangers},
    },
    error::EngineError,
    metrics::Metrics,
    resources::{
        clock::now_ms,
        files::make_private_dir,
        pool::{CodecPool, PoolKind},
    },
};
use catalog::{Catalog, CatalogError, JournalEntry, Mutation, Remains, Seq, UnixMs};
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use std::{collections::BTreeMap, pin::pin, sync::Arc};
use storage_backends::{Backend, BlobName};

/// Mutations that are made again in one transaction of the catalog.
const REPLAY_BATCH: usize = 256;

/// Parts of a backup that are read ahead of the one that is written.
const PARTS_AHEAD: usize = 2;

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
    /// Of those, mutations that only a catalog that was set aside knew.
    pub unshipped: u64,
    /// The last mutation of backup and journal.
    pub last_seq: Seq,
    /// When that was, by its writer's clock: what was acknowledged later than this is only in
    /// manifests.
    pub last_ms: Option<UnixMs>,
    /// What made the replay end before the journal's end.
    pub damage: Option<String>,
    /// What is missing in the middle of the journal.
    pub holes: Vec<Hole>,
    /// What lay behind a hole and could not be made again.
    pub lost_mutations: Vec<LostMutation>,
    /// Current objects in the catalog that was made.
    pub objects: u64,
    /// Uploads that are open in it: one of them may have been completed after the journal's end.
    pub open_uploads: u64,
    /// What was joined.
    pub merged: Option<Merged>,
    /// What manifests told.
    pub recovered: Option<Recovered>,
    /// Why the anchor outside of the store does not know what was made, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_warning: Option<String>,
}

/// A store without a catalog.
struct Recovery {
    catalog: Arc<dyn Catalog>,
    backends: BTreeMap<String, Arc<dyn Backend>>,
    keyring: Arc<Keyring>,
    safety: Safety,
    /// The same over a catalog that forked.
    fork: Option<Safety>,
}

/// Makes a catalog again: the one of `stores`, which are opened once the keys are. It must be
/// empty, or left over from a recovery that was interrupted.
///
/// # Errors
/// [`EngineError`] in words: a catalog that holds something, a backup or journal blob that is
/// damaged (by name), a KEK that does not fit. The same call may be repeated.
pub async fn recover(
    mut config: EngineConfig,
    stores: impl Future<Output = Result<Stores, EngineError>>,
    options: &RecoveryOptions,
    metrics: Arc<Metrics>,
    progress: &RecoveryProgress,
) -> Result<RecoveryReport, EngineError> {
    let fork = options.fork.as_ref().map(|fork| fork.0.clone());
    let opening = Recovery::open(&mut config, stores, options.accept_unsealed_until, fork, metrics);
    let recovery = Box::pin(opening).await?;
    recovery.run(&config, options, progress).await
}

/// Whether the catalog of `stores` and its store went on separately from one state, and can be
/// merged. Changes nothing.
///
/// # Errors
/// [`EngineError`] in words when they did not, or cannot.
pub async fn check_fork(
    mut config: EngineConfig,
    stores: impl Future<Output = Result<Stores, EngineError>>,
    accept_unsealed_until: Option<Seq>,
    metrics: Arc<Metrics>,
) -> Result<(), EngineError> {
    let recovery = Box::pin(Recovery::open(&mut config, stores, accept_unsealed_until, None, metrics)).await?;
    let lineage = recovery.safety.vault.newest_lineage(None).await?;
    let lineage = lineage.ok_or_else(nothing_to_merge_with)?;
    branches(&recovery.safety, lineage).await.map(drop)
}

fn nothing_to_merge_with() -> EngineError {
    EngineError::Other("the store has no journal to merge the catalog with".into())
}

fn not_empty() -> EngineError {
    EngineError::Other(
        "the catalog holds buckets: a store is made again in an empty one. If this is what the last recovery made, serve it; \
         else move it away first"
            .into(),
    )
}

/// Whether a catalog's journal has its first mutation: nothing was shipped and trimmed.
fn begins_here(remains: &Remains) -> bool {
    remains.entries.first().is_some_and(|first| first.seq == 1)
}

/// Whether some backend holds a wrapped key: something in the store is sealed.
async fn holds_keysets(backends: &BTreeMap<String, Arc<dyn Backend>>) -> Result<bool, EngineError> {
    for backend in backends.values() {
        if backend.list("keyset/").try_next().await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Every backup that `backend` holds, oldest first; needs no catalog. The backend is opened once
/// the keys are.
///
/// # Errors
/// What the backend says; an index that cannot be read, by name.
pub async fn list_backups(
    mut config: EngineConfig,
    backend: impl Future<Output = Result<Arc<dyn Backend>, EngineError>>,
    metrics: Arc<Metrics>,
) -> Result<Vec<BackupInfo>, EngineError> {
    make_private_dir(&config.data)?;
    let keyring = Arc::new(Keyring::open_existing(&config.data.clone(), config.take_keys(), &metrics)?);
    let backend = backend.await?;
    learn_from_keysets(&keyring, [&backend]).await?;
    let pool = Arc::new(CodecPool::new(1, PoolKind::Codec, &metrics)?);
    Vault::new(backend, keyring, pool, metrics).backups().await
}

impl Recovery {
    async fn open(
        config: &mut EngineConfig,
        stores: impl Future<Output = Result<Stores, EngineError>>,
        accept_unsealed_until: Option<Seq>,
        fork: Option<Arc<dyn Catalog>>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, EngineError> {
        make_private_dir(&config.data)?;
        let keyring = Arc::new(Keyring::open_existing(&config.data.clone(), config.take_keys(), &metrics)?);
        let Stores { catalog, backends, anchor, .. } = stores.await?;
        learn_from_keysets(&keyring, backends.values()).await?;
        keyring.choose_provided().await?;
        let backend = backends.get(&config.safety.backend).cloned();
        let backend = backend
            .ok_or_else(|| EngineError::Other(format!("backend {:?} is not configured", config.safety.backend)))?;
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let pool = Arc::new(CodecPool::new(threads, PoolKind::Codec, &metrics)?);
        let is_sealed = keyring.is_configured()
            || config.safety.encrypts
            || keyring.was_sealed()
            || holds_keysets(&backends).await?;
        let over = |catalog: Arc<dyn Catalog>| {
            let (backend, keyring, pool) = (backend.clone(), keyring.clone(), pool.clone());
            let safety = Safety::new(config.safety.clone(), catalog, backend, keyring, pool, None, metrics.clone());
            let safety = safety.anchored(anchor.clone())?;
            if is_sealed {
                safety.vault.trust.only_sealed();
            }
            if let Some(seq) = accept_unsealed_until {
                safety.vault.trust.accept_unsealed_until(seq);
            }
            Ok::<_, EngineError>(safety)
        };
        let (safety, fork) = (over(catalog.clone())?, fork.map(over).transpose()?);
        Ok(Self { catalog, backends, keyring, safety, fork })
    }

    async fn run(
        &self,
        config: &EngineConfig,
        options: &RecoveryOptions,
        progress: &RecoveryProgress,
    ) -> Result<RecoveryReport, EngineError> {
        let mut report = RecoveryReport::default();
        let named: Option<BackupName> = options.backup.as_deref().map(str::parse).transpose()?;
        let lineage = match named {
            Some(name) => Some(name.lineage),
            None => self.safety.vault.newest_lineage(None).await?,
        };
        report.lineage = lineage.map(|lineage| lineage.to_string());
        let remains = options.remains.as_ref();
        if lineage.is_none() && !options.manifests && !remains.is_some_and(begins_here) {
            return Err(EngineError::Other(format!(
                "backend {:?} holds neither journal nor backups that can be trusted; `deltaweir rebuild` recovers what blobs say of \
                 themselves",
                self.safety.config.backend
            )));
        }
        // Before anything is changed. What an earlier run has made to its end is not made again:
        // the store knows its lineage by then, which looks as if somebody had taken it over.
        if !self.catalog.is_importing().await? && !self.catalog.buckets().await?.is_empty() {
            return Err(not_empty());
        }
        let branches = match (&self.fork, lineage) {
            (Some(fork), Some(lineage)) => Some((fork, branches(fork, lineage).await?)),
            (Some(_), None) => return Err(nothing_to_merge_with()),
            (None, _) => None,
        };
        self.catalog.begin_import().await.map_err(|error| match error {
            CatalogError::NotEmpty => not_empty(),
            other => other.into(),
        })?;
        if let Some(lineage) = lineage {
            self.read_lineage(lineage, named, options, &mut report, progress).await?;
        }
        if let Some(remains) = remains {
            self.add_unshipped(lineage, remains, &mut report).await?;
        }
        if let Some((fork, branches)) = &branches {
            let (catalog, backends, keyring) = (&*self.catalog, &self.backends, &*self.keyring);
            let merge = Merge { catalog, fork: &*fork.catalog, backends, keyring, branches };
            report.merged = Some(merge.run().await?);
        }
        report.last_seq = self.end_of(lineage, options).await?;
        let highest = highest_epoch(&self.backends).await?;
        if options.manifests {
            let sources = recovered::Sources {
                catalog: &self.catalog,
                backends: &self.backends,
                keyring: &self.keyring,
                config,
                // What lies in a hole was acknowledged, however long ago.
                last_ms: report.holes.first().map_or(report.last_ms, |hole| hole.after_ms),
            };
            report.recovered = Some(recovered::recover_manifests(sources, options, progress).await?);
        }
        // Known whole from here on: one more run begins from the start, but nothing of it is
        // missing.
        let floor = SweepFloor { epoch: highest, until_ms: now_ms() + SWEEP_FLOOR.as_millis() as i64 };
        self.put_setting(SWEEP_FLOOR_SETTING, &floor).await?;
        // It has the place from here on: what still runs with the old catalog stops collecting.
        let deployment = Deployment::new()?;
        self.put_setting(DEPLOYMENT_SETTING, &deployment).await?;
        // The last change that counts: a catalog that is further has announced its lineage.
        let start = self.catalog.last_seq().await? + 1;
        let next = new_lineage(lineage, start)?;
        self.put_setting(LINEAGE_SETTING, &next).await?;
        deployment.own(&self.backends, Strangers::Replace).await?;
        self.catalog.end_import(highest).await?;
        self.announce(&mut report).await?;
        for bucket in self.catalog.stats().await? {
            report.objects += bucket.objects;
            report.open_uploads += bucket.uploads;
        }
        Ok(report)
    }

    /// The last mutation of what was made again. Refuses one before what the anchor outside of the
    /// store knows.
    async fn end_of(&self, lineage: Option<Lineage>, options: &RecoveryOptions) -> Result<Seq, EngineError> {
        let outside = &self.safety.outside;
        let anchor = outside.read().await?;
        let last = self.catalog.last_seq().await?;
        match outside.why_behind(&anchor, lineage.map(|lineage| (lineage, last))) {
            Some(why) if !options.accept_less_than_anchor => Err(EngineError::Other(format!(
                "{why}: the store was set back, or lost its newest documents. Nothing was restored; `--accept-less-than-anchor` takes \
                 what is here"
            ))),
            _ => Ok(last),
        }
    }

    /// Lets the store, and the anchor outside of it, hear of the new lineage. The catalog is whole
    /// by then, and stays when the anchor cannot be written.
    async fn announce(&self, report: &mut RecoveryReport) -> Result<(), EngineError> {
        self.keyring.name_provided(&*self.catalog).await?;
        let begun = self.safety.ensure_lineage().await?;
        report.new_lineage = begun.to_string();
        let shipped = self.catalog.journal_marks().await?.shipped;
        if let Err(error) = self.safety.outside.set(begun, shipped).await {
            report.anchor_warning = Some(format!(
                "{error}. The catalog is whole. Mend what is wrong with its place, then serve the store, which writes it. If `serve` \
                 refuses this catalog because of the anchor, remove the file, or the store's documents: the server makes it anew"
            ));
        }
        Ok(())
    }

    /// Backup and journal of a lineage.
    async fn read_lineage(
        &self,
        lineage: Lineage,
        named: Option<BackupName>,
        options: &RecoveryOptions,
        report: &mut RecoveryReport,
        progress: &RecoveryProgress,
    ) -> Result<(), EngineError> {
        let backup = match named {
            Some(name) => Some(name),
            None => self.safety.vault.newest_backup(lineage).await?,
        };
        let begin = match backup {
            Some(name) => {
                let index = self.safety.vault.index(&name).await?;
                self.import(&name, &index, progress).await?;
                report.last_ms = Some(index.taken_ms);
                report.backup = Some(super::backup::info(&name, &index));
                (name.cut + 1, Links::behind(index.head))
            }
            None => (self.first_of(lineage).await?, Links::at_start(lineage)?),
        };
        match self.replay(lineage, begin, options, report, progress).await {
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

    /// What the store has behind a journal blob that is not there: `None` at the journal's end.
    async fn hole_at(&self, lineage: Lineage, next: Seq, report: &RecoveryReport) -> Result<Option<Hole>, EngineError> {
        let firsts = self.safety.vault.journal_firsts(lineage).await?;
        let behind = self.safety.vault.trusted_first(lineage, firsts.range(next..)).await?;
        Ok(behind.map(|first| Hole { first: next, last: first - 1, after_ms: report.last_ms }))
    }

    /// What a catalog that was set aside had not shipped yet.
    async fn add_unshipped(
        &self,
        lineage: Option<Lineage>,
        remains: &Remains,
        report: &mut RecoveryReport,
    ) -> Result<(), EngineError> {
        let setting = remains.settings.get(LINEAGE_SETTING).and_then(|setting| setting.get("name")?.as_str());
        let aside = |own: &str| format!("the catalog that was set aside is of lineage {own}");
        match (setting, lineage.map(|lineage| lineage.to_string())) {
            (Some(own), Some(stored)) if own != stored => {
                return Err(EngineError::Other(format!("{}, and the store has gone on as {stored}", aside(own))));
            }
            // What it had shipped lies before what is left of its journal.
            (Some(own), None) if !begins_here(remains) => {
                return Err(EngineError::Other(format!(
                    "{}, and the store has no document of any lineage that can be trusted: what was shipped of its journal is missing. \
                     Put these blobs back; or `deltaweir rebuild` makes a catalog of what blobs say of themselves",
                    aside(own)
                )));
            }
            _ => {}
        }
        let before = report.replayed;
        let done = self.catalog.last_seq().await?;
        let mut follow: Vec<JournalEntry> = remains.entries.iter().filter(|entry| entry.seq > done).cloned().collect();
        let is_next = |(entry, seq): &(&JournalEntry, Seq)| entry.seq == *seq;
        let behind = follow.split_off(follow.iter().zip(done + 1..).take_while(is_next).count());
        for batch in follow.chunks(REPLAY_BATCH) {
            self.catalog.replay(batch.to_vec()).await?;
            report.replayed += batch.len() as u64;
            report.last_ms = report.last_ms.max(batch.last().map(|entry| entry.at_ms));
        }
        if let Some(next) = behind.first() {
            let first = done + 1 + Seq::try_from(follow.len()).unwrap_or(0);
            report.holes.push(Hole { first, last: next.seq - 1, after_ms: report.last_ms });
            self.replay_behind_hole(behind, report).await?;
        }
        report.unshipped = report.replayed - before;
        Ok(())
    }

    /// Mutations behind a hole, one by one: what cannot be made without the missing ones is
    /// reported.
    async fn replay_behind_hole(
        &self,
        entries: Vec<JournalEntry>,
        report: &mut RecoveryReport,
    ) -> Result<(), EngineError> {
        for entry in entries {
            let lost = |why: String| lost_mutation(&entry, why);
            match self.catalog.replay_behind_hole(entry.clone()).await {
                Ok(()) => report.replayed += 1,
                Err(CatalogError::Invalid(why)) => report.lost_mutations.push(lost(why)),
                Err(error) => return Err(error.into()),
            }
            report.last_ms = report.last_ms.max(Some(entry.at_ms));
        }
        Ok(())
    }

    /// Where a lineage's journal begins, for one that has no backup.
    async fn first_of(&self, lineage: Lineage) -> Result<Seq, EngineError> {
        match self.safety.vault.start_of(lineage).await? {
            None => Err(EngineError::Other(format!("there is no lineage {lineage}"))),
            Some(0) => Ok(1),
            Some(_) => {
                Err(EngineError::Integrity(format!("lineage {lineage} has lost the backup that it begins with")))
            }
        }
    }

    async fn import(
        &self,
        name: &BackupName,
        index: &IndexDocument,
        progress: &RecoveryProgress,
    ) -> Result<(), EngineError> {
        let damaged = |part: usize, why: &str| {
            EngineError::Integrity(format!(
                "part {part} of backup {name} {why}; another backup may be named with `--backup`"
            ))
        };
        let read = async |(number, entry)| {
            let part = u32::try_from(number).map_err(|_| EngineError::TooLarge)?;
            let pieces = self.safety.vault.part(name, part, entry).await.map_err(|error| match error {
                EngineError::Integrity(why) => damaged(number, &why),
                other => other,
            })?;
            pieces.ok_or_else(|| damaged(number, "is missing"))
        };
        let mut rows = 0;
        let mut parts = pin!(stream::iter(index.parts.iter().enumerate()).map(read).buffered(PARTS_AHEAD));
        let mut next = parts.try_next().await?;
        while let Some(pieces) = next {
            rows += pieces.iter().map(|piece| piece.rows.len() as u64).sum::<u64>();
            // The next one is read while this one is written.
            let (imported, following) = tokio::join!(self.catalog.import(pieces), parts.try_next());
            imported?;
            next = following?;
            progress("rows restored", rows);
        }
        match rows == index.rows {
            true => Ok(()),
            false => Err(damaged(index.parts.len(), &format!("ends {rows} rows of {}", index.rows))),
        }
    }

    /// The chain of journal blobs from the one named by `next`, up to the name that is not there.
    /// One listing tells an end from a hole.
    async fn replay(
        &self,
        lineage: Lineage,
        (mut next, mut links): (Seq, Links),
        options: &RecoveryOptions,
        report: &mut RecoveryReport,
        progress: &RecoveryProgress,
    ) -> Result<(), EngineError> {
        let done = self.catalog.last_seq().await?;
        let mut sealed = false;
        loop {
            let name = journal_name(lineage, next)?;
            let Some(blob) = self.safety.vault.journal(lineage, next).await? else {
                let Some(hole) = self.hole_at(lineage, next, report).await? else { return Ok(()) };
                next = hole.last + 1;
                links = Links::default();
                // The backup has what lies before its own last mutation.
                if hole.last > done {
                    if !options.accept_hole {
                        return Err(missing(lineage, &name, &hole)?);
                    }
                    report.holes.push(Hole { first: hole.first.max(done + 1), ..hole });
                }
                continue;
            };
            if sealed && !blob.sealed {
                return Err(EngineError::Integrity(format!("{name} is not sealed, and those before it are")));
            }
            links.follow(&name, &blob)?;
            sealed = blob.sealed;
            let entries = blob.entries;
            next = entries.last().map_or(next, |entry| entry.seq) + 1;
            if !report.holes.is_empty() {
                self.replay_behind_hole(entries.into_iter().filter(|entry| entry.seq > done).collect(), report).await?;
                continue;
            }
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
        }
    }

    async fn put_setting<T: Serialize>(&self, name: &str, value: &T) -> Result<(), EngineError> {
        let value = serde_json::to_value(value).map_err(|error| EngineError::Other(error.to_string()))?;
        recovered::record(&*self.catalog, Mutation::PutSetting { name: name.into(), value, creates: false }).await
    }
}

/// Why a recovery does not go on: a blob is missing and the journal goes on behind it.
fn missing(lineage: Lineage, name: &BlobName, hole: &Hole) -> Result<EngineError, EngineError> {
    let next = journal_name(lineage, hole.last + 1)?;
    Ok(EngineError::Integrity(format!(
        "{name} is missing, and the journal goes on with {next}: mutations {} to {} are lost. If the backend keeps versions, put it back; \
         `--accept-hole` goes on behind it and lists what could not be made again",
        hole.first, hole.last
    )))
}
