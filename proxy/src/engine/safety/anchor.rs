//! Is this catalog the newest state of its store? (E21, E22; docs/decisions/0009-journal-chain.md)

use super::{
    super::{error::EngineError, now_ms},
    SWEEP_FLOOR, SWEEP_FLOOR_SETTING, Safety, SweepFloor,
    document::decode_journal,
    names::{Lineage, journal_name},
    recovered::highest_epoch,
};
use catalog::Seq;
use object_format::BlobKind;
use std::{collections::BTreeMap, sync::Arc};
use storage_backends::Backend;

/// What a catalog is to the backend's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing in the backend is newer.
    Newest,
    /// The backend knows a later state: why, in words, and the lineage it belongs to.
    Older { why: String, newest: Lineage },
}

impl Safety {
    /// Refuses a catalog that is older than the store, unless it was told to accept one; then a new lineage begins.
    ///
    /// # Errors
    /// [`EngineError::Other`] that says what to do.
    pub(in super::super) async fn check_anchor(
        &self,
        backends: &BTreeMap<String, Arc<dyn Backend>>,
    ) -> Result<(), EngineError> {
        if self.catalog.is_importing().await? {
            return Err(EngineError::Other(
                "a restore or rebuild of this catalog did not end: run it again before the store is served".into(),
            ));
        }
        let Standing::Older { why, newest } = self.standing().await? else { return Ok(()) };
        if !self.config.accept_older_catalog {
            return Err(EngineError::Other(format!(
                "{why}. Serving it would lose what was acknowledged after it. Move the catalog away and run `deltaweir rebuild` \
                 (or `deltaweir restore`), which make it again from backend {:?}; or serve it as it is with \
                 `--accept-older-catalog`",
                self.config.backend
            )));
        }
        tracing::warn!(%newest, "an older catalog is accepted: {why}");
        self.leave_behind(newest, backends).await
    }

    /// Begins a lineage after `newest`, with epochs greater than any that was used, and keeps the collector from what it left behind.
    async fn leave_behind(
        &self,
        newest: Lineage,
        backends: &BTreeMap<String, Arc<dyn Backend>>,
    ) -> Result<(), EngineError> {
        let highest = highest_epoch(backends).await?;
        while self.catalog.open_epoch().await? <= highest {}
        let floor = SweepFloor { epoch: highest, until_ms: now_ms() + SWEEP_FLOOR.as_millis() as i64 };
        let value = serde_json::to_value(floor).map_err(|error| EngineError::Other(error.to_string()))?;
        self.catalog.put_setting(SWEEP_FLOOR_SETTING, value).await?;
        let start = self.catalog.journal_marks().await?.shipped.max(1);
        self.begin_lineage(Some(newest), start).await?;
        self.ensure_lineage().await.map(|_| ())
    }

    /// Compares the catalog with the newest lineage, its newest backup and the chain behind it.
    pub(super) async fn standing(&self) -> Result<Standing, EngineError> {
        let Some(newest) = self.vault.newest_lineage().await? else { return Ok(Standing::Newest) };
        let older = |why: String| Ok(Standing::Older { why, newest });
        let Some(setting) = self.lineage_setting().await? else {
            return older(format!(
                "the catalog is new, and backend {:?} belongs to a store that has one",
                self.config.backend
            ));
        };
        let mine: Lineage = setting.name.parse()?;
        if mine != newest {
            // A restore that was interrupted before the backend heard of its lineage goes on where it stopped.
            let unannounced = setting.parent.as_deref() == Some(newest.to_string().as_str());
            if unannounced {
                return Ok(Standing::Newest);
            }
            return older(format!("the catalog is of lineage {mine}, and the store has gone on as {newest}"));
        }
        let marks = self.catalog.journal_marks().await?;
        let newest_cut = self.vault.backups_of(mine).await?.last().map_or(0, |backup| backup.cut);
        let end = self.chain_end(mine, marks.shipped.max(newest_cut), marks.last).await?;
        // Read last: another replica may ship meanwhile, but only what the catalog has.
        let last = self.catalog.last_seq().await?;
        if end > last {
            return older(format!(
                "the catalog ends with mutation {last}, and the store's journal goes on to {end} at least: this is an older copy"
            ));
        }
        Ok(Standing::Newest)
    }

    /// Where the chain of journal blobs behind `after` ends; it is not followed past `enough`.
    async fn chain_end(&self, lineage: Lineage, after: Seq, enough: Seq) -> Result<Seq, EngineError> {
        let mut end = after;
        while end <= enough {
            let name = journal_name(lineage, end + 1)?;
            let Some(blob) = self.vault.get(&name, BlobKind::Journal).await? else { break };
            let entries = decode_journal(&blob.document, end + 1)?;
            end = entries.last().map_or(end + 1, |entry| entry.seq);
        }
        Ok(end)
    }
}
