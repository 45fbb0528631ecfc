//! Backups: snapshots of the whole catalog as blobs, and how long they are kept
//! (docs/format/journal-v1.md §5, §6). When one is made is in `registry.rs`.

use super::{
    document::{IndexDocument, PartEntry, PartWriter, decode_part},
    names::{BackupName, Lineage, journal_first, journal_name, lineage_name, sealed_lineage_name},
    safety::Safety,
    vault::Vault,
};
use crate::{deployment::keyring::random, error::EngineError, resources::clock::now_ms};
use catalog::{Seq, ServerRun, TableRows, UnixMs};
use crypto::{Digest, Sha256};
use futures::TryStreamExt;
use object_format::{BlobKind, DomainKey};
use serde::Serialize;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use storage_backends::BlobName;
use tokio::sync::mpsc;

/// A part is closed at this many bytes of rows.
const PART_BYTES: usize = 8 << 20;
/// Memory of a part while it is written: its rows, its document, its compressed and sealed bytes.
pub(super) const PART_MEMORY: u64 = 4 * PART_BYTES as u64;
/// Parts of a backup that was never finished are removed when they are older than this: another
/// process may be writing them.
const UNFINISHED_AGE: Duration = Duration::from_secs(86_400);

/// A backup in the backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackupInfo {
    /// What `restore --backup` takes.
    pub id: String,
    /// When it was begun.
    pub taken_ms: UnixMs,
    /// The last mutation in it.
    pub seq: i64,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its parts in the backend.
    pub stored_bytes: u64,
}

/// What a backup did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct BackupReport {
    /// The backup that was made.
    pub backup: BackupInfo,
    /// Backups removed because of their age.
    pub removed_backups: u64,
    /// Journal blobs removed because no backup that is kept needs them.
    pub removed_journal_blobs: u64,
}

/// A backup whose parts are in the backend, and whose index is not.
struct Draft {
    name: BackupName,
    /// The run of the database's server that it was begun in.
    run: ServerRun,
    key: Option<Arc<DomainKey>>,
    index: IndexDocument,
}

impl Safety {
    /// Every backup in the backend, oldest first.
    pub(crate) async fn backups(&self) -> Result<Vec<BackupInfo>, EngineError> {
        self.vault.backups().await
    }

    /// Backups that were cut before this mutation, the newest last: what the catalog held before is
    /// in them. Those of lineages before are.
    pub(crate) async fn backups_before(&self, seq: Seq) -> Result<Vec<String>, EngineError> {
        let own = self.lineage_setting().await?.map(|setting| setting.name.parse::<Lineage>()).transpose()?;
        let mut before = self.vault.backup_names("backup/").await?;
        before.retain(|name| Some(name.lineage) != own || name.cut < seq);
        Ok(before.iter().map(ToString::to_string).collect())
    }

    /// Makes a backup, then removes what is past its retention.
    ///
    /// # Errors
    /// What catalog or backend say; an unfinished backup is none.
    pub(crate) async fn backup(&self) -> Result<BackupReport, EngineError> {
        let _one_at_a_time = self.backing_up.lock().await;
        self.may_delete().await?;
        let lineage = self.ensure_lineage().await?;
        // A backup that begins where the journal has just ended has the least to replay.
        self.ship_once().await?;
        let draft = self.draft_backup(lineage).await?;
        let backup = self.prove_backup(draft).await?;
        self.may_delete().await?;
        let (removed_backups, removed_journal_blobs) = self.clean(lineage).await?;
        Ok(BackupReport { backup, removed_backups, removed_journal_blobs })
    }

    /// Makes parts a backup once the journal has all that is in them.
    async fn prove_backup(&self, draft: Draft) -> Result<BackupInfo, EngineError> {
        // What the snapshot has beyond the journal must get there. Where the catalog has gone back
        // meanwhile, the store has other mutations under these numbers, and a backup with ours
        // before that journal would be of a history that never was.
        let shipped = self.ship_once().await?.seq;
        // Numbers of another run say nothing of what the snapshot has under them.
        let run = self.catalog.journal_marks().await?.run;
        if shipped < draft.index.seq || run != draft.run {
            return Err(EngineError::NotCurrent(
                "the database went back or was started again during the backup: make it again".into(),
            ));
        }
        self.finish_backup(draft).await
    }

    /// A backup that is made while its journal waits to be shipped.
    pub(super) async fn write_backup(&self, lineage: Lineage) -> Result<BackupInfo, EngineError> {
        let draft = self.draft_backup(lineage).await?;
        self.finish_backup(draft).await
    }

    /// Writes the index that makes parts a backup.
    async fn finish_backup(&self, draft: Draft) -> Result<BackupInfo, EngineError> {
        let Draft { name, key, index, run: _ } = draft;
        self.vault.put(&name.index()?, BlobKind::Backup, key, index.encode(&name)).await?;
        Ok(info(&name, &index))
    }

    /// Streams the catalog into parts.
    async fn draft_backup(&self, lineage: Lineage) -> Result<Draft, EngineError> {
        let taken_ms = now_ms();
        // Read before the snapshot: the chain behind it reaches every mutation that the snapshot
        // lacks.
        let marks = self.catalog.journal_marks().await?;
        let (cut, run, head) = (marks.shipped, marks.run, self.head(lineage, &marks).await?);
        let name = BackupName { lineage, cut, id: u64::from_le_bytes(random()?) };
        let key = self.sealing_key(&[]).await?;
        let _memory = match &self.budget {
            Some(budget) => Some(budget.acquire(PART_MEMORY).await?),
            None => None,
        };
        let (to, rows) = mpsc::channel(1);
        let catalog = self.catalog.clone();
        let exporting = tokio::spawn(async move { catalog.export(to).await });
        let parts = self.write_parts(&name, key.clone(), rows).await;
        let exported =
            exporting.await.map_err(|error| EngineError::Other(format!("the snapshot ended early: {error}")))?;
        // A failed part stops the snapshot, so its own reason comes first.
        let (parts, exported) = (parts?, exported?);
        let (seq, schema, rows) = (exported.seq, exported.schema, exported.rows);
        let index = IndexDocument { seq, schema, taken_ms, rows, head, parts };
        Ok(Draft { name, run, key, index })
    }

    async fn write_parts(
        &self,
        name: &BackupName,
        key: Option<Arc<DomainKey>>,
        mut rows: mpsc::Receiver<TableRows>,
    ) -> Result<Vec<PartEntry>, EngineError> {
        let mut entries = Vec::new();
        let mut part = PartWriter::new(name, 0);
        let mut empty = part.len();
        while let Some(piece) = rows.recv().await {
            part.push(&piece)?;
            if part.len() >= PART_BYTES {
                let next = PartWriter::new(name, number(entries.len() + 1)?);
                let full = std::mem::replace(&mut part, next);
                entries.push(self.write_part(name, key.clone(), number(entries.len())?, full).await?);
                empty = part.len();
            }
        }
        if part.len() > empty || entries.is_empty() {
            entries.push(self.write_part(name, key, number(entries.len())?, part).await?);
        }
        Ok(entries)
    }

    async fn write_part(
        &self,
        name: &BackupName,
        key: Option<Arc<DomainKey>>,
        number: u32,
        part: PartWriter,
    ) -> Result<PartEntry, EngineError> {
        let document = part.finish();
        let digest = Sha256::digest(&document).into();
        let stored_len = self.vault.put(&name.part(number)?, BlobKind::Backup, key, document).await?;
        Ok(PartEntry { stored_len, digest })
    }

    /// Removes backups past their retention, but never the newest; journal blobs that no kept
    /// backup needs and a backup past its retention has, so that a catalog that went back by less
    /// is seen by them; lineages that are over. The catalog may go back meanwhile, so each removal
    /// asks whether it may go on.
    async fn clean(&self, lineage: Lineage) -> Result<(u64, u64), EngineError> {
        let before = now_ms() - i64::try_from(self.config.backup_retention.as_millis()).unwrap_or(i64::MAX / 4);
        let names = self.vault.backup_names("backup/").await?;
        let newest = self.vault.newest_whole_backup(lineage).await?;
        let mut removed = BTreeSet::new();
        let mut kept = BTreeSet::from_iter(newest);
        let mut past_retention = None;
        for name in names {
            let taken_ms = match self.vault.index(&name).await {
                Ok(index) => index.taken_ms,
                Err(error) => {
                    tracing::error!(%error, backup = %name, "a backup cannot be read; it is left alone");
                    kept.insert(name);
                    continue;
                }
            };
            if taken_ms < before && name.lineage == lineage {
                past_retention = past_retention.max(Some(name.cut));
            }
            if Some(name) == newest || taken_ms >= before {
                kept.insert(name);
                continue;
            }
            self.may_delete().await?;
            self.remove_backup(&name).await?;
            removed.insert(name);
        }
        // A listing may lack some of what is there: parts and journal go on the word of two.
        kept.extend(self.vault.backup_names("backup/").await?.into_iter().filter(|name| !removed.contains(name)));
        self.remove_unfinished(&kept).await?;
        let mut removed_journal_blobs = 0;
        for past in self.vault.lineages().await? {
            let oldest = kept.iter().find(|name| name.lineage == past);
            let needed_from = match oldest {
                Some(oldest) if past == lineage => oldest.cut.min(past_retention.unwrap_or(-1)) + 1,
                Some(oldest) => oldest.cut + 1,
                None if past < lineage => i64::MAX,
                None => 0,
            };
            removed_journal_blobs += self.remove_journal(past, needed_from, past == lineage).await?;
            if oldest.is_none() && past < lineage {
                self.vault.backend().delete(&lineage_name(past)?).await?;
                self.vault.backend().delete(&sealed_lineage_name(past)?).await?;
            }
        }
        Ok((removed.len() as u64, removed_journal_blobs))
    }

    /// The index goes first: what is half removed is no backup.
    async fn remove_backup(&self, name: &BackupName) -> Result<(), EngineError> {
        let parts = self.vault.index(name).await?.parts.len();
        self.vault.backend().delete(&name.index()?).await?;
        for part in 0..parts {
            self.vault.backend().delete(&name.part(number(part)?)?).await?;
        }
        Ok(())
    }

    async fn remove_unfinished(&self, kept: &BTreeSet<BackupName>) -> Result<(), EngineError> {
        let finished: BTreeSet<String> = kept.iter().map(|name| format!("{}/{:016x}", name.lineage, name.id)).collect();
        let mut listing = self.vault.backend().list("backup-part/");
        while let Some(part) = listing.try_next().await? {
            let of = part.name.as_str().strip_prefix("backup-part/").and_then(|name| name.rsplit_once('/'));
            let age = part.modified.and_then(|modified| modified.elapsed().ok());
            if of.is_some_and(|(of, _)| !finished.contains(of)) && age.is_some_and(|age| age > UNFINISHED_AGE) {
                self.vault.backend().delete(&part.name).await?;
            }
        }
        Ok(())
    }

    /// Backups begin where a blob ends, so a blob that begins before one ends before it. Of the
    /// catalog's own lineage nothing goes that the catalog has not: where it has gone back since
    /// the backup, this journal is all that shows it.
    async fn remove_journal(&self, lineage: Lineage, needed_from: i64, is_own: bool) -> Result<u64, EngineError> {
        let names = self.vault.listed(&format!("journal/{lineage}/")).await?;
        let firsts = names.iter().filter_map(|name| name.as_str().rsplit('/').next().and_then(journal_first));
        let mut firsts = Vec::from_iter(firsts.filter(|first| *first < needed_from));
        firsts.sort_unstable();
        let ends = firsts.iter().skip(1).copied().chain([needed_from]);
        let mut removed = 0;
        for (first, end) in firsts.iter().copied().zip(ends) {
            self.may_delete().await?;
            if is_own && self.catalog.last_seq().await? < end - 1 {
                tracing::warn!(first, "a journal blob holds what the catalog has not; it is left alone");
                break;
            }
            self.vault.backend().delete(&journal_name(lineage, first)?).await?;
            removed += 1;
        }
        Ok(removed)
    }
}

#[cfg(test)]
impl Safety {
    /// A backup whose snapshot was cut before anything of it was shipped.
    pub(crate) async fn backup_unshipped(&self) -> Result<BackupInfo, EngineError> {
        self.backup_while(std::future::ready(())).await
    }

    /// The same, and something happens between the snapshot and its journal's shipment.
    pub(crate) async fn backup_while(&self, happens: impl Future<Output = ()>) -> Result<BackupInfo, EngineError> {
        let draft = self.draft_backup(self.ensure_lineage().await?).await?;
        happens.await;
        self.prove_backup(draft).await
    }

    /// Cleans up the journal as after a backup that made what stands before `needed_from` needless.
    pub(crate) async fn remove_journal_before(&self, needed_from: i64) -> Result<u64, EngineError> {
        let lineage = self.ensure_lineage().await?;
        self.remove_journal(lineage, needed_from, true).await
    }
}

impl Vault {
    /// Every backup in the backend, oldest first.
    ///
    /// # Errors
    /// What the backend says; an index that cannot be read, by name.
    pub(super) async fn backups(&self) -> Result<Vec<BackupInfo>, EngineError> {
        let mut backups = Vec::new();
        for name in self.backup_names("backup/").await? {
            backups.push(info(&name, &self.index(&name).await?));
        }
        backups.sort_by_key(|backup| backup.taken_ms);
        Ok(backups)
    }

    /// Names of a lineage's backups, by where they stand in its journal.
    pub(super) async fn backups_of(&self, lineage: Lineage) -> Result<Vec<BackupName>, EngineError> {
        self.backup_names(&format!("backup/{lineage}/")).await
    }

    pub(super) async fn backup_names(&self, prefix: &str) -> Result<Vec<BackupName>, EngineError> {
        let mut names = Vec::new();
        for name in self.listed(prefix).await? {
            // What is called otherwise is not ours.
            names.extend(name.as_str().strip_prefix("backup/").and_then(|name| name.parse::<BackupName>().ok()));
        }
        names.sort_unstable();
        Ok(names)
    }

    pub(super) async fn index(&self, name: &BackupName) -> Result<IndexDocument, EngineError> {
        let blob = self.get(&name.index()?, BlobKind::Backup).await?;
        let blob = blob.ok_or_else(|| EngineError::Other(format!("there is no backup {name}")))?;
        IndexDocument::decode(&blob.document, name)
    }

    /// The rows of a backup's part; `None` when it is missing.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when it is damaged, or another one than its index names.
    pub(super) async fn part(
        &self,
        name: &BackupName,
        number: u32,
        entry: &PartEntry,
    ) -> Result<Option<Vec<TableRows>>, EngineError> {
        let Some(blob) = self.get(&name.part(number)?, BlobKind::Backup).await? else { return Ok(None) };
        if <[u8; 32]>::from(Sha256::digest(&blob.document)) != entry.digest {
            return Err(EngineError::Integrity("is another one".into()));
        }
        decode_part(&blob.document, name, number).map(Some)
    }

    /// Every lineage that the backend has a document of, by name alone.
    pub(super) async fn lineages(&self) -> Result<Vec<Lineage>, EngineError> {
        let mut lineages: Vec<Lineage> = Vec::new();
        for name in self.listed("lineage/").await? {
            lineages.extend(name.as_str().strip_prefix("lineage/").and_then(|name| name.parse::<Lineage>().ok()));
        }
        lineages.sort_unstable();
        Ok(lineages)
    }

    pub(super) async fn listed(&self, prefix: &str) -> Result<Vec<BlobName>, EngineError> {
        Ok(self.backend().list(prefix).map_ok(|blob| blob.name).try_collect().await?)
    }
}

fn number(index: usize) -> Result<u32, EngineError> {
    u32::try_from(index).map_err(|_| EngineError::TooLarge)
}

pub(super) fn info(name: &BackupName, index: &IndexDocument) -> BackupInfo {
    BackupInfo {
        id: name.to_string(),
        taken_ms: index.taken_ms,
        seq: index.seq,
        rows: index.rows,
        stored_bytes: index.parts.iter().map(|part| part.stored_len).sum(),
    }
}
