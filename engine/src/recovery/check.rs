//! Whether a recovery would find what it needs: the lineage document, the newest backup and the
//! journal behind it, read as a recovery reads them. What it would not find is written again while
//! the catalog is alive: a lineage document under its name, anything else by a new backup, which
//! needs nothing of what was before it.

use super::{
    anchor::Chain,
    document::LineageDocument,
    links::Links,
    names::{BackupName, Lineage, journal_name, lineage_name, sealed_lineage_name},
    safety::Safety,
    vouch::overtaken_too_often,
};
use crate::{
    deployment::documents::{Found, Look, look, verdict},
    error::EngineError,
};
use async_trait::async_trait;
use catalog::{JournalLink, Mutation, Seq};
use futures::TryStreamExt;
use object_format::BlobKind;
use serde_json::json;
use std::{ops::RangeInclusive, sync::atomic::Ordering};
use storage_backends::BlobName;

/// The setting that says why a backup was made: something before it was damaged. It also
/// gives the new backup a place of its own behind the one it replaces.
const MENDED_SETTING: &str = "recovery_mended";
/// How often the record is read anew because another process has replaced it meanwhile.
const ROUNDS_MAX: usize = 4;

/// Is told of every document that was read, and says whether to go on.
#[async_trait]
pub(crate) trait Reader: Sync {
    /// # Errors
    /// [`EngineError::Stopped`] when the reader is to end.
    async fn read(&self, stored_len: u64) -> Result<(), EngineError>;
}

/// What a look at backup and journal came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HistoryCheck {
    /// Documents of the newest backup that are well.
    pub(crate) backup_documents: u64,
    /// Journal blobs that are well.
    pub(crate) journal_blobs: u64,
    /// The first of the backup's that is not, in words.
    pub(crate) backup_damage: Option<String>,
    /// The first journal blob that is not, in words.
    pub(crate) journal_damage: Option<String>,
    newest: Option<BackupName>,
}

impl HistoryCheck {
    fn is_well(&self) -> bool {
        self.backup_damage.is_none() && self.journal_damage.is_none()
    }
}

impl Safety {
    /// Looks at the document of the catalog's lineage, and writes it again when it is not well.
    ///
    /// # Errors
    /// What keeps it from being known; nothing was written then, or what was is found by the next
    /// look.
    pub(crate) async fn mend_lineage(&self) -> Result<Vec<(BlobName, Found)>, EngineError> {
        let Some(setting) = self.lineage_setting().await? else { return Ok(Vec::new()) };
        let lineage: Lineage = setting.name.parse()?;
        let expected = setting.document()?;
        let (name, copy) = (lineage_name(lineage)?, sealed_lineage_name(lineage)?);
        let is_sealed = self.sealing_key(&[]).await?.is_some();
        let mut outcomes = Vec::new();
        let mut found = self.look_at_lineage(&name, expected, false).await?;
        if let Some(why) = found.why() {
            let written = self.write_lineage(lineage, &name, expected, &found).await;
            found = self.look_at_lineage(&name, expected, false).await?;
            outcomes.push((name, verdict(why, written, Ok(found_as(&found)))));
        } else {
            outcomes.push((name, Found::Well));
        }
        if is_sealed && found.good() == Some(&false) {
            // It began before the store had keys: its sealed copy is what counts.
            let found = self.look_at_lineage(&copy, expected, true).await?;
            let outcome = match found.why() {
                None => Found::Well,
                Some(why) => {
                    let written = self.write_sealed_lineage(&copy, &found).await;
                    verdict(why, written, self.look_at_lineage(&copy, expected, true).await)
                }
            };
            outcomes.push((copy, outcome));
        }
        Ok(outcomes)
    }

    /// Whether it is sealed, if it is good.
    async fn look_at_lineage(
        &self,
        name: &BlobName,
        expected: LineageDocument,
        sealed_only: bool,
    ) -> Result<Look<bool>, EngineError> {
        let read = || async {
            let Some(found) = self.vault.read(name, BlobKind::Journal).await? else { return Ok(None) };
            if sealed_only && !found.is_sealed() {
                return Err(EngineError::Integrity(format!("{name} is not sealed")));
            }
            match LineageDocument::decode(&found.document)? == expected {
                true => Ok(Some(found.is_sealed())),
                false => Err(EngineError::Integrity(format!("{name} says another thing than the catalog"))),
            }
        };
        look(read).await
    }

    async fn write_lineage(
        &self,
        lineage: Lineage,
        name: &BlobName,
        expected: LineageDocument,
        found: &Look<bool>,
    ) -> Result<(), EngineError> {
        match found {
            Look::Good(_) => return Ok(()),
            Look::Damaged(_) => {
                self.may_delete().await?;
                self.vault.backend().delete(name).await?;
            }
            // Without it the store does not say that it is this catalog's.
            Look::Missing => self.prove_own_without_lineage(lineage).await?,
        }
        let key = self.sealing_key(&[]).await?;
        self.vault.put(name, BlobKind::Journal, key, expected.encode()).await.map(drop)
    }

    async fn write_sealed_lineage(&self, name: &BlobName, found: &Look<bool>) -> Result<(), EngineError> {
        if matches!(found, Look::Damaged(_)) {
            self.may_delete().await?;
            self.vault.backend().delete(name).await?;
        }
        self.sealed.store(0, Ordering::Relaxed);
        self.ensure_lineage().await.map(drop)
    }

    /// That a store which has lost the document of the catalog's lineage is the catalog's all the
    /// same: its owner records say so, its journal has nothing that the catalog lacks, and no
    /// catalog has gone on in another lineage.
    async fn prove_own_without_lineage(&self, mine: Lineage) -> Result<(), EngineError> {
        if let Some(places) = self.places() {
            places.lost().await?.map_or(Ok(()), |lost| Err(lost.why))?;
        }
        if let Chain::Differs { why, .. } = self.compare_chain(mine).await? {
            return Err(EngineError::NotCurrent(why));
        }
        for prefix in ["lineage/", "lineage-sealed/", "backup/", "journal/"] {
            let mut listing = self.vault.backend().list(prefix);
            while let Some(listed) = listing.try_next().await? {
                let of = listed.name.as_str().split('/').nth(1).and_then(|of| of.parse::<Lineage>().ok());
                if of.is_some_and(|of| of != mine && of.generation() >= mine.generation()) {
                    return Err(EngineError::NotCurrent(format!("{} is of a catalog that went on", listed.name)));
                }
            }
        }
        Ok(())
    }

    /// Reads the newest backup and the journal behind it, and makes a backup at once when a
    /// recovery could not: what it found, and what became of it.
    ///
    /// # Errors
    /// What keeps it from being known.
    pub(crate) async fn mend_history(&self, reader: &dyn Reader) -> Result<(HistoryCheck, Option<Found>), EngineError> {
        // What was just mended may be why writes were refused.
        self.may_delete().await?;
        // What a recovery would read now is in the store.
        self.ship_once().await?;
        let mut rounds = 1;
        let seen = loop {
            let seen = self.read_history(reader).await?;
            let lineage = self.ensure_lineage().await?;
            // Another process has made a backup, and removed what was before it.
            if seen.is_well() || !self.vault.is_overtaken(lineage, seen.newest).await? {
                break seen;
            }
            if rounds == ROUNDS_MAX {
                return Err(overtaken_too_often());
            }
            rounds += 1;
        };
        let damage = seen.backup_damage.clone().or_else(|| seen.journal_damage.clone());
        let Some(why) = damage else { return Ok((seen, None)) };
        Ok((seen, Some(self.back_up_anew(why, reader).await?)))
    }

    async fn back_up_anew(&self, why: String, reader: &dyn Reader) -> Result<Found, EngineError> {
        tracing::warn!(why, "a recovery could not read the newest backup or journal: a new backup is made");
        let made = async {
            self.catalog.put_setting(MENDED_SETTING, json!({ "why": why })).await?;
            self.backup().await
        };
        if let Err(error) = made.await {
            return Ok(Found::Damaged(format!("{why}; no backup could be made: {error}")));
        }
        let after = self.read_history(reader).await?;
        Ok(match after.backup_damage.or(after.journal_damage) {
            None => Found::Restored(why),
            Some(still) => Found::Damaged(format!("{why}; a backup was made, and {still}")),
        })
    }

    /// Reads what a recovery of this moment would read.
    async fn read_history(&self, reader: &dyn Reader) -> Result<HistoryCheck, EngineError> {
        let lineage = self.ensure_lineage().await?;
        let setting = self.lineage_setting().await?;
        let setting = setting.ok_or_else(|| EngineError::Other("the catalog has no lineage".into()))?;
        let mut history = HistoryCheck { newest: self.vault.newest_backup(lineage).await?, ..HistoryCheck::default() };
        // Read behind the backup: what it lacks is shipped.
        let end = self.catalog.journal_marks().await?.shipped;
        let (next, links) = match history.newest {
            Some(name) => {
                let head = self.read_backup_of(&name, &mut history, reader).await?;
                (name.cut + 1, Links::behind(head))
            }
            None if setting.start == 0 => (1, Links::at_start(lineage)?),
            None => {
                history.backup_damage = Some(format!("lineage {lineage} has lost the backup that it begins with"));
                return Ok(history);
            }
        };
        self.read_journal(lineage, next..=end, links, &mut history, reader).await?;
        Ok(history)
    }

    /// Reads a backup; the link that the journal behind it carries.
    async fn read_backup_of(
        &self,
        name: &BackupName,
        history: &mut HistoryCheck,
        reader: &dyn Reader,
    ) -> Result<Option<JournalLink>, EngineError> {
        let index = look(|| async {
            match self.vault.index(name).await {
                Ok(index) => Ok(Some(index)),
                // Whoever took it away meanwhile has made a newer one.
                Err(error) if self.vault.holds(&name.index()?).await? => Err(error),
                Err(_) => Ok(None),
            }
        });
        let index = match index.await? {
            Look::Good(index) => index,
            bad => {
                history.backup_damage = bad.why().map(|why| format!("backup {name}: {why}"));
                return Ok(None);
            }
        };
        let _memory = match &self.budget {
            Some(budget) => Some(budget.acquire(super::backup::PART_MEMORY).await?),
            None => None,
        };
        let mut rows = 0;
        for (number, entry) in (0..).zip(&index.parts) {
            let part = look(|| async {
                let part = self.vault.part(name, number, entry).await?;
                Ok(part.map(|pieces| pieces.iter().map(|piece| piece.rows.len() as u64).sum::<u64>()))
            });
            match part.await? {
                Look::Good(more) => rows += more,
                bad => {
                    history.backup_damage = bad.why().map(|why| format!("part {number} of backup {name}: {why}"));
                    return Ok(None);
                }
            }
            history.backup_documents += 1;
            reader.read(entry.stored_len).await?;
        }
        history.backup_documents += 1;
        if rows != index.rows {
            history.backup_damage = Some(format!("backup {name} ends {rows} rows of {}", index.rows));
        }
        Ok(index.head)
    }

    async fn read_journal(
        &self,
        lineage: Lineage,
        range: RangeInclusive<Seq>,
        mut links: Links,
        history: &mut HistoryCheck,
        reader: &dyn Reader,
    ) -> Result<(), EngineError> {
        let (mut next, end) = range.into_inner();
        let mut sealed = false;
        while next <= end {
            let name = journal_name(lineage, next)?;
            let read = || async {
                let Some(blob) = self.vault.journal(lineage, next).await? else { return Ok(None) };
                for entry in &blob.entries {
                    let read = entry.mutation.read::<Mutation>();
                    read.map_err(|error| EngineError::Integrity(format!("{name}: {}: {error}", entry.seq)))?;
                }
                if sealed && !blob.sealed {
                    return Err(EngineError::Integrity(format!("{name} is not sealed, and those before it are")));
                }
                Ok(Some(blob))
            };
            let blob = match look(read).await? {
                Look::Good(blob) => blob,
                bad => {
                    history.journal_damage = bad.why().map(|why| format!("{name}: {why}"));
                    return Ok(());
                }
            };
            if let Err(error) = links.follow(&name, &blob) {
                history.journal_damage = Some(error.to_string());
                return Ok(());
            }
            sealed = blob.sealed;
            next = blob.entries.last().map_or(next, |entry| entry.seq) + 1;
            history.journal_blobs += 1;
            reader.read(blob.stored_len).await?;
        }
        Ok(())
    }
}

fn found_as(found: &Look<bool>) -> Look<()> {
    match found {
        Look::Good(_) => Look::Good(()),
        Look::Damaged(why) => Look::Damaged(why.clone()),
        Look::Missing => Look::Missing,
    }
}
