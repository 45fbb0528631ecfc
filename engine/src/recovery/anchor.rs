//! Is this catalog the newest state of its store? (E21, E22; docs/decisions/0009-journal-chain.md)

use super::{
    currency::StaleReason,
    document::decode_journal,
    names::{Lineage, journal_name},
    recovered::highest_epoch,
    safety::{LineageSetting, SWEEP_FLOOR, SWEEP_FLOOR_SETTING, Safety, SweepFloor},
    trust::Voucher,
};
use crate::{error::EngineError, resources::clock::now_ms};
use catalog::{JournalMarks, Seq};
use object_format::BlobKind;
use std::{collections::BTreeMap, sync::Arc};
use storage_backends::Backend;

/// Rows of the catalog that are held against a journal blob at a time.
const PAGE: usize = 64;
/// How often the chain is followed anew because another process has shipped meanwhile.
const ROUNDS_MAX: usize = 16;

/// What a catalog is to the backend's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing in the backend is newer.
    Newest,
    /// The backend knows a later state: why, in words, and the lineage it belongs to; `None` when
    /// it has none at all.
    Older { why: String, reason: StaleReason, newest: Option<Lineage> },
}

impl Safety {
    /// Refuses a catalog that is older than the store, unless it was told to accept one; then a new
    /// lineage begins.
    ///
    /// # Errors
    /// [`EngineError::Other`] that says what to do.
    pub(crate) async fn check_anchor(&self, backends: &BTreeMap<String, Arc<dyn Backend>>) -> Result<(), EngineError> {
        if self.catalog.is_importing().await? {
            return Err(EngineError::Other(
                "a restore or rebuild of this catalog did not end: run it again before the store is served".into(),
            ));
        }
        // A catalog that names a store key is of a time when everything was sealed that followed.
        if let Some(key) = self.store_key_id().await? {
            self.vault.trust.only_sealed();
            self.vault.trust.name_store_key(key);
        }
        let (why, newest) = match self.standing_at_start().await? {
            Standing::Older { why, newest, .. } => (why, newest),
            // The store and its catalog agree; both may be old.
            Standing::Newest => match self.behind_outside().await? {
                None => return Ok(()),
                Some(why) => (why, self.lineage_setting().await?.map(|setting| setting.name.parse()).transpose()?),
            },
        };
        if !self.config.accept_older_catalog {
            return Err(EngineError::Other(format!(
                "{why}. Serving it would lose what was acknowledged after it. Move the catalog away, if there is one, and run `deltaweir rebuild` \
                 (or `deltaweir restore`), which make it again from backend {:?}; `deltaweir recover --merge` does so and keeps what only this \
                 catalog has; or serve it as it is with `--accept-older-catalog`",
                self.config.backend
            )));
        }
        tracing::warn!(?newest, "an older catalog is accepted: {why}");
        self.leave_behind(newest, backends).await
    }

    /// Why the catalog ends before what the anchor outside of the store knows, if it does.
    async fn behind_outside(&self) -> Result<Option<String>, EngineError> {
        // Read first: what a replica noted there, a catalog that is current has now.
        let anchor = self.outside.read().await?;
        Ok(self.outside.why_behind(&anchor, self.history().await?))
    }

    /// Begins a lineage after `newest`, with epochs greater than any that was used, and keeps the
    /// collector from what it left behind.
    async fn leave_behind(
        &self,
        newest: Option<Lineage>,
        backends: &BTreeMap<String, Arc<dyn Backend>>,
    ) -> Result<(), EngineError> {
        let highest = highest_epoch(backends).await?;
        while self.catalog.open_epoch().await? <= highest {}
        let floor = SweepFloor { epoch: highest, until_ms: now_ms() + SWEEP_FLOOR.as_millis() as i64 };
        let value = serde_json::to_value(floor).map_err(|error| EngineError::Other(error.to_string()))?;
        self.catalog.put_setting(SWEEP_FLOOR_SETTING, value).await?;
        let start = self.catalog.journal_marks().await?.shipped.max(1);
        self.begin_lineage(newest, start).await?;
        let lineage = self.ensure_lineage().await?;
        self.outside.set(lineage, self.catalog.journal_marks().await?.shipped).await
    }

    /// The lineage of the catalog and its last mutation; `None` for one that is new.
    pub(super) async fn history(&self) -> Result<Option<(Lineage, Seq)>, EngineError> {
        let Some(setting) = self.lineage_setting().await? else { return Ok(None) };
        Ok(Some((setting.name.parse()?, self.catalog.last_seq().await?)))
    }

    /// The lineage that the catalog names. The catalog says what it follows, too: a merge may have
    /// named it, under a store key that is new, and not have come to announce it.
    async fn own_lineage(&self) -> Result<Option<Lineage>, EngineError> {
        let Some(setting) = self.lineage_setting().await? else { return Ok(None) };
        let own = setting.name.parse()?;
        let parent = setting.parent.as_deref().map(str::parse).transpose()?;
        let sealed_by = self.vault.trust.store_key();
        self.vault.trust.note_voucher(own, Voucher { parent, sealed_by });
        Ok(Some(own))
    }

    /// Compares the catalog with the newest lineage and with its journal chain.
    pub(super) async fn standing(&self) -> Result<Standing, EngineError> {
        let older = |reason, newest, why: String| Ok(Standing::Older { why, reason, newest });
        let backend = &self.config.backend;
        // Read first: what the store had then, a catalog that is current has now.
        let own = self.own_lineage().await?;
        let newest = self.vault.newest_lineage(own).await?;
        let Some(setting) = self.lineage_setting().await? else {
            return match newest {
                None => Ok(Standing::Newest),
                newest => {
                    let why = format!("the catalog is new, and backend {backend:?} belongs to a store that has one");
                    older(StaleReason::Lineage, newest, why)
                }
            };
        };
        let mine: Lineage = setting.name.parse()?;
        let newest = match newest {
            Some(newest) => newest,
            None => {
                let shipped = self.catalog.journal_marks().await?.shipped;
                if !self.announced_before(&setting, shipped) {
                    return Ok(Standing::Newest);
                }
                // Another process may have announced it behind the listing, and shipped since.
                let Some(newest) = self.vault.newest_lineage(Some(mine)).await? else {
                    let why = format!(
                        "the catalog has shipped a journal up to mutation {shipped}, and backend {backend:?} holds none"
                    );
                    return older(StaleReason::Place, None, why);
                };
                newest
            }
        };
        if mine != newest {
            // A restore that was interrupted before the backend heard of its lineage goes on where
            // it stopped.
            let unannounced = setting.parent.as_deref() == Some(newest.to_string().as_str());
            if unannounced {
                return Ok(Standing::Newest);
            }
            let why = format!("the catalog is of lineage {mine}, and the store has gone on as {newest}");
            return older(StaleReason::Lineage, Some(newest), why);
        }
        Ok(match self.compare_chain(mine).await? {
            Chain::Agrees => Standing::Newest,
            Chain::Differs { reason, why, .. } => Standing::Older { why, reason, newest: Some(newest) },
        })
    }

    /// Whether the backend must have heard of the catalog's lineage.
    fn announced_before(&self, setting: &LineageSetting, shipped: Seq) -> bool {
        // A lineage that begins behind its parent's end is announced before anything is shipped in
        // it.
        shipped > setting.start
    }

    /// As [`Self::standing`], and held against the newest backup: a chain whose beginning was
    /// removed says nothing to a catalog that is older than that.
    pub(super) async fn standing_at_start(&self) -> Result<Standing, EngineError> {
        let standing = self.standing().await?;
        let (Standing::Newest, Some(setting)) = (&standing, self.lineage_setting().await?) else { return Ok(standing) };
        let mine: Lineage = setting.name.parse()?;
        let Some(newest) = self.vault.newest_whole_backup(mine).await?.map(|backup| backup.cut) else {
            return Ok(standing);
        };
        let shipped = self.catalog.journal_marks().await?.shipped;
        if newest <= shipped {
            return Ok(standing);
        }
        let why = format!(
            "the catalog has shipped its journal up to mutation {shipped}, and the store has a backup of {newest}: this is an older copy"
        );
        Ok(Standing::Older { why, reason: StaleReason::Behind, newest: Some(mine) })
    }

    /// Follows the chain of journal blobs behind what the catalog has shipped, and holds each
    /// mutation against the catalog's own, and their ends against where the catalog has decided
    /// that they end.
    pub(super) async fn compare_chain(&self, lineage: Lineage) -> Result<Chain, EngineError> {
        for _ in 0..ROUNDS_MAX {
            let marks = self.catalog.journal_marks().await?;
            let chain = self.follow_chain(lineage, marks).await?;
            if matches!(chain, Chain::Agrees) {
                return Ok(chain);
            }
            // Rows that another replica has shipped and trimmed meanwhile are missing, and an end
            // may have been decided: that is no difference.
            let now = self.catalog.journal_marks().await?;
            if (now.shipped, now.cut) == (marks.shipped, marks.cut) {
                return Ok(chain);
            }
        }
        Err(EngineError::Unavailable("the journal is shipped faster than it can be compared".into()))
    }

    async fn follow_chain(&self, lineage: Lineage, marks: JournalMarks) -> Result<Chain, EngineError> {
        let (mut end, mut blobs) = (marks.shipped, 0);
        loop {
            let name = journal_name(lineage, end + 1)?;
            let Some(blob) = self.vault.get_trusted(&name, BlobKind::Journal).await? else { break };
            blobs += 1;
            let entries = decode_journal(&blob.document, end + 1)?.entries;
            let stored = entries.last().map_or(end + 1, |entry| entry.seq);
            for expected in entries.chunks(PAGE) {
                let rows = self.catalog.journal(end, expected.len()).await?;
                let common = expected.iter().zip(&rows).take_while(|(stored, row)| stored == row).count();
                end += Seq::try_from(common).unwrap_or(0);
                if common < rows.len() {
                    let why = format!(
                        "the store's journal ({name}) has another mutation {} than the catalog: two catalogs went on from one state",
                        end + 1
                    );
                    return Ok(Chain::Differs { common: end, reason: StaleReason::Beside, why });
                }
                if common < expected.len() {
                    let why = format!(
                        "the catalog ends with mutation {end}, and the store's journal goes on to {stored} at least: this is an older copy"
                    );
                    return Ok(Chain::Differs { common: end, reason: StaleReason::Behind, why });
                }
            }
        }
        // A blob is written when the catalog has decided where it ends, and the next one when the
        // catalog has trimmed it.
        if blobs == 0 || (blobs == 1 && end == marks.cut) {
            return Ok(Chain::Agrees);
        }
        let why = format!(
            "the store's journal ends with mutation {end}, where this catalog has not decided to end a blob: it has gone back to before it did"
        );
        Ok(Chain::Differs { common: end, reason: StaleReason::Behind, why })
    }
}

/// What following the chain came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chain {
    /// Every mutation in it is the catalog's.
    Agrees,
    /// Up to `common` it is, and no further.
    Differs { common: Seq, reason: StaleReason, why: String },
}
