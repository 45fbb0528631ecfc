//! Shipping: journal rows leave the catalog for the backend as sealed blobs, in one chain
//! (docs/format/journal-v1.md §4). A change is shipped within `backup.journal_seconds`; with 0, it
//! is shipped before it is acknowledged.

use super::{
    currency::{Refusal, StaleReason},
    document::{LineageDocument, decode_journal, encode_journal},
    links::{link_of, link_of_lineage},
    names::{Lineage, journal_name, lineage_name, sealed_lineage_name},
    safety::{LINEAGE_SETTING, LineageSetting, Safety},
    vouch::does_not_open,
};
use crate::{deployment::keyring::random, error::EngineError, resources::clock::now_ms};
use catalog::{CatalogError, Gate, JournalEntry, JournalLink, JournalMarks, Seq, ServerRun};
use crypto::{Digest, Sha256};
use object_format::{BlobKind, DomainKey};
use serde::Serialize;
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use storage_backends::BlobName;
use tokio_util::sync::CancellationToken;

/// Rows are read this many at a time: one of a large multipart upload takes a few MiB.
const PAGE: usize = 32;
/// A blob takes this many bytes of rows, and one page more.
const BLOB_BYTES: usize = 4 << 20;
/// How long a change waits for its entry to be shipped when it may not be acknowledged before.
const ACKNOWLEDGE_WAIT: Duration = Duration::from_secs(30);

/// How often a change that waits asks whether writes have come to be refused.
const REFUSAL_EVERY: Duration = Duration::from_millis(200);

/// When changes wait for their entries, those that nobody waits for are shipped so often.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// Between shipments to a full disk that nobody waits for: only deletions go on there, and a
/// collection ships what it needs.
const FULL_PAUSE: Duration = Duration::from_secs(60);
/// How often a blob is written anew because the disk was full.
const FULL_ROUNDS: usize = 4;
/// After a shipment that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long a process that ends waits for the anchor outside of the store.
const ANCHOR_WAIT: Duration = Duration::from_secs(2);

/// What a shipment did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shipped {
    /// Entries that are in the backend now and were not before.
    pub entries: u64,
    /// Blobs written.
    pub blobs: u64,
    /// Their stored bytes.
    pub stored_bytes: u64,
    /// The last sequence number that is in the backend.
    pub seq: Seq,
}

impl Safety {
    /// Ships everything that was committed before the call.
    ///
    /// # Errors
    /// What catalog or backend say; what was shipped until then stays shipped.
    pub(crate) async fn ship_once(&self) -> Result<Shipped, EngineError> {
        let _one_at_a_time = self.shipping.lock().await;
        // Nothing goes to a store that is not known to be this catalog's.
        self.check_not_refused()?;
        let outcome = self.ship().await;
        match outcome {
            Ok((report, run)) => {
                self.shipped.end(report.seq, run);
                Ok(report)
            }
            Err(error) => {
                self.metrics.journal_errors_total.inc();
                Err(error)
            }
        }
    }

    /// What was done, and the run of the database's server that says so.
    async fn ship(&self) -> Result<(Shipped, ServerRun), EngineError> {
        let lineage = self.ensure_lineage().await?;
        let target = self.catalog.last_seq().await?;
        let mut report = Shipped::default();
        loop {
            let marks = self.catalog.journal_marks().await?;
            report.seq = marks.shipped;
            if marks.shipped >= target {
                // What was shipped may have brought the store's first key.
                self.ensure_lineage().await?;
                // Not waited for: a disk elsewhere that hangs holds up no shipment.
                self.outside.raise(lineage, marks.shipped);
                return Ok((report, marks.run));
            }
            self.may_delete().await?;
            let Some(entries) = self.next_entries(marks).await? else { continue };
            let Some(last) = entries.last().cloned() else { continue };
            let count = entries.len() as u64;
            let (stored_len, link) = self.write(lineage, entries, self.head(lineage, &marks).await?).await?;
            report.stored_bytes += stored_len;
            report.blobs += 1;
            report.entries += count;
            match self.catalog.trim_journal(&last, link).await {
                Ok(_) => {}
                // It has gone back while the blob was on its way: the store knows what it has lost.
                Err(CatalogError::Conflict) => {
                    let name = journal_name(lineage, last.seq - count as Seq + 1)?;
                    return Err(self.two_histories(&name));
                }
                Err(error) => return Err(error.into()),
            }
            self.metrics.journal_shipped_entries_total.inc_by(count);
        }
    }

    /// Waits a moment for what is to be noted outside of the store.
    pub(crate) async fn settle_anchor(&self) {
        if !self.outside.settle(ANCHOR_WAIT).await {
            tracing::warn!(
                "the anchor outside of the store does not answer and stays behind; the next start raises it"
            );
        }
    }

    /// The rows of the next blob; `None` when another shipper was faster.
    async fn next_entries(&self, marks: JournalMarks) -> Result<Option<Vec<JournalEntry>>, EngineError> {
        let (after, mut bytes) = (marks.shipped, 0);
        let mut entries: Vec<JournalEntry> = Vec::new();
        let mut decided = if marks.cut > after { Some(marks.cut) } else { None };
        loop {
            let from = entries.last().map_or(after, |entry| entry.seq);
            if decided.is_some_and(|cut| from >= cut) {
                break;
            }
            let page = self.catalog.journal(from, PAGE).await?;
            let ended = page.len() < PAGE;
            bytes += page.iter().map(|entry| entry.mutation.as_str().len()).sum::<usize>();
            entries.extend(page);
            if decided.is_none() && (ended || bytes > BLOB_BYTES) {
                let Some(last) = entries.last() else { return Ok(None) };
                decided = Some(self.catalog.cut_journal(after, last.seq).await?);
            } else if ended && decided.is_some_and(|cut| entries.last().is_none_or(|last| last.seq < cut)) {
                return Ok(None);
            }
        }
        entries.retain(|entry| decided.is_some_and(|cut| entry.seq <= cut));
        let follows = entries.iter().map(|entry| entry.seq).eq((after + 1..).take(entries.len()));
        // Rows can go between two pages: what was read of a blob that another shipper has written
        // and trimmed meanwhile is its beginning only, and no other history.
        let is_whole = entries.last().map(|last| last.seq) == decided;
        Ok(if follows && is_whole { Some(entries) } else { None })
    }

    /// The link that the next document carries: that of the last one shipped, or of the lineage's
    /// own document. `None` when an earlier program has shipped the last one.
    pub(super) async fn head(
        &self,
        lineage: Lineage,
        marks: &JournalMarks,
    ) -> Result<Option<JournalLink>, EngineError> {
        if marks.head.is_some() {
            return Ok(marks.head);
        }
        match self.lineage_setting().await? {
            Some(setting) if setting.start == marks.shipped && setting.name == lineage.to_string() => {
                link_of_lineage(lineage, &setting.document()?).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Writes a blob behind the document `before`; its stored length, 0 where it was there, and its
    /// link.
    async fn write(
        &self,
        lineage: Lineage,
        entries: Vec<JournalEntry>,
        before: Option<JournalLink>,
    ) -> Result<(u64, JournalLink), EngineError> {
        let first = entries.first().map_or(0, |entry| entry.seq);
        let name = journal_name(lineage, first)?;
        // What is there already is not written again (I1). Where another catalog has written, it is
        // the only copy of what that one acknowledged, and not every store creates exclusively: so
        // it is asked each time.
        if let Some(link) = self.holds_entries(&name, &entries).await? {
            return Ok((0, link));
        }
        let key = self.sealing_key(&entries).await?;
        let document = encode_journal(&entries, before)?;
        let mut put = self.vault.put(&name, BlobKind::Journal, key.clone(), document.clone()).await;
        for _ in 0..FULL_ROUNDS {
            // A full disk gives back of its reserve for this, until there is enough or nothing is
            // left.
            if !matches!(put, Err(EngineError::Full)) {
                break;
            }
            put = self.vault.put(&name, BlobKind::Journal, key.clone(), document.clone()).await;
        }
        match put {
            Ok(stored_len) => Ok((stored_len, link_of(&name, &document))),
            // Another shipper was faster, or ours was stored and we did not hear of it.
            Err(error) => Ok((0, self.holds_entries(&name, &entries).await?.ok_or(error)?)),
        }
    }

    /// The link of the blob that is there, `None` when none is; an error when it holds something
    /// else.
    async fn holds_entries(
        &self,
        name: &BlobName,
        entries: &[JournalEntry],
    ) -> Result<Option<JournalLink>, EngineError> {
        let Some(found) = self.vault.read(name, BlobKind::Journal).await? else { return Ok(None) };
        if self.vault.trust.check(name, found.is_sealed(), &found.document).is_err() {
            // It is not ours, or of another process that had not heard of the store's keys. The
            // rows are still in the catalog.
            self.vault.backend().delete(name).await?;
            return Ok(None);
        }
        let first = entries.first().map_or(0, |entry| entry.seq);
        if decode_journal(&found.document, first)?.entries == entries {
            return Ok(Some(link_of(name, &found.document)));
        }
        Err(self.two_histories(name))
    }

    /// Refuses writes and deletions from now on, because a blob of the journal holds what the
    /// catalog does not.
    fn two_histories(&self, name: &BlobName) -> EngineError {
        let why = format!("{name} holds other mutations than this catalog: two catalogs write to one store");
        self.currency.refuse(Refusal::advised(StaleReason::Beside, &why));
        EngineError::NotCurrent(why)
    }

    /// Waits until everything that is committed now, in this run of the database's server, is in
    /// the backend.
    ///
    /// # Errors
    /// [`CatalogError::Unknown`] when that takes too long: what was committed stays, and is shipped
    /// later. The same when it is another run by now: numbers say nothing across runs, since the
    /// database may have gone back and given them again.
    async fn wait_shipped(&self, run: ServerRun) -> Result<(), CatalogError> {
        let unknown =
            |why: String| CatalogError::Unknown(format!("committed, but not in the backend's journal: {why}"));
        let went_back = || unknown("the database's server is another one, or was started again".into());
        let marks = self.catalog.journal_marks().await.map_err(|error| unknown(error.to_string()))?;
        if marks.run != run {
            return Err(went_back());
        }
        // Rounds of before say nothing: the catalog may have gone back since, and its numbers with
        // it.
        let before = self.shipped.last().number;
        self.wanted.notify_one();
        let done = async {
            loop {
                let ended = tokio::time::timeout(
                    REFUSAL_EVERY,
                    self.shipped
                        .wait_for(|round| round.number > before && (round.run != run || round.seq >= marks.last)),
                );
                match (ended.await, self.refusal()) {
                    (Ok(round), _) if round.run == run => return Ok(()),
                    (Ok(_), _) => return Err(went_back()),
                    (Err(_), Some(refusal)) => return Err(unknown(refusal.why)),
                    (Err(_), None) => {}
                }
            }
        };
        let waited = tokio::time::timeout(ACKNOWLEDGE_WAIT, done).await;
        waited.unwrap_or_else(|_| Err(unknown("it takes too long".into())))
    }

    /// Ships in time until `stopping`.
    pub(crate) async fn keep_shipping(&self, stopping: &CancellationToken) {
        let mut pause = self.pause();
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = self.wanted.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = match self.ship_once().await {
                Ok(_) => self.pause(),
                // Said when it was found out.
                Err(EngineError::NotCurrent(_)) => RETRY_PAUSE.min(self.pause()),
                Err(error) => {
                    tracing::error!(%error, "the journal could not be shipped; it is tried again");
                    RETRY_PAUSE.min(self.pause())
                }
            };
        }
    }

    /// Between two shipments that nobody waits for.
    fn pause(&self) -> Duration {
        let pause = if self.config.journal_interval.is_zero() { IDLE_PAUSE } else { self.config.journal_interval };
        let is_full = self.reserve.get().is_some_and(|reserve| reserve.is_spent());
        if is_full { pause.max(FULL_PAUSE) } else { pause }
    }

    /// Sets the gauges of what is not shipped yet.
    pub(crate) async fn measure(&self) {
        let measured = async {
            let marks = self.catalog.journal_marks().await?;
            let oldest = self.catalog.journal(marks.shipped, 1).await?.pop();
            Ok::<_, CatalogError>((marks.last - marks.shipped, oldest.map_or(0, |entry| now_ms() - entry.at_ms)))
        };
        match measured.await {
            Ok((entries, age_ms)) => {
                self.metrics.journal_lag_entries.set(entries);
                self.metrics.journal_lag_seconds.set(age_ms.max(0) / 1000);
            }
            Err(error) => tracing::warn!(%error, "the journal's gauges could not be read from the catalog"),
        }
    }

    /// The catalog's lineage, made and announced when it has none yet.
    pub(super) async fn ensure_lineage(&self) -> Result<Lineage, EngineError> {
        let setting = match self.lineage_setting().await? {
            Some(setting) => setting,
            None => self.begin_first_lineage().await?,
        };
        let lineage: Lineage = setting.name.parse()?;
        let key = self.sealing_key(&[]).await?;
        let known = |generation: &AtomicU32| generation.load(Ordering::Relaxed) == lineage.generation();
        if known(&self.announced) && (key.is_none() || known(&self.sealed)) {
            return Ok(lineage);
        }
        let name = lineage_name(lineage)?;
        let document = setting.document()?;
        if !self.vault.holds(&name).await? {
            if setting.start > 0 {
                // A lineage that does not begin with the store stands on a backup of its own.
                self.write_backup(lineage).await?;
            }
            self.announce(&name, key.clone(), document).await?;
        }
        self.announced.store(lineage.generation(), Ordering::Relaxed);
        if key.is_some() {
            self.seal_lineage(lineage, document, key).await?;
        }
        Ok(lineage)
    }

    async fn announce(
        &self,
        name: &BlobName,
        key: Option<Arc<DomainKey>>,
        document: LineageDocument,
    ) -> Result<(), EngineError> {
        match self.vault.put(name, BlobKind::Journal, key, document.encode()).await {
            Ok(_) => Ok(()),
            // Somebody else has announced it meanwhile, or our answer was lost: there is one
            // document it can be.
            Err(_) if self.vault.holds(name).await? => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A lineage that began before the store had keys is announced again, sealed, and stands on a
    /// sealed backup from then on: nothing that is not sealed needs to be believed any more.
    async fn seal_lineage(
        &self,
        lineage: Lineage,
        document: LineageDocument,
        key: Option<Arc<DomainKey>>,
    ) -> Result<(), EngineError> {
        let (name, copy) = (lineage_name(lineage)?, sealed_lineage_name(lineage)?);
        if !self.is_sealed(&name).await? && !self.is_sealed(&copy).await? {
            self.write_backup(lineage).await?;
            self.announce_sealed(&copy, key, document).await?;
        }
        self.sealed.store(lineage.generation(), Ordering::Relaxed);
        Ok(())
    }

    /// Writes the sealed document where another replica has not done so while the backup was
    /// written.
    async fn announce_sealed(
        &self,
        copy: &BlobName,
        key: Option<Arc<DomainKey>>,
        document: LineageDocument,
    ) -> Result<(), EngineError> {
        if self.is_sealed(copy).await? {
            return Ok(());
        }
        if self.vault.holds(copy).await? {
            // What lies there is not ours, and would keep ours from being written.
            self.vault.backend().delete(copy).await?;
        }
        self.announce(copy, key, document).await?;
        match self.is_sealed(copy).await? {
            true => Ok(()),
            false => {
                Err(EngineError::Unavailable(format!("{copy} is not what was written there; it is written again")))
            }
        }
    }

    /// Whether there is a sealed document of this name. One that does not open is none.
    async fn is_sealed(&self, name: &BlobName) -> Result<bool, EngineError> {
        match self.vault.read(name, BlobKind::Journal).await {
            Ok(found) => Ok(found.is_some_and(|found| found.is_sealed())),
            Err(error) if does_not_open(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The lineage of a new store: whoever comes first gives the catalog one, and the others take
    /// it. Who saw none a moment ago may find the journal shipped and trimmed by now.
    async fn begin_first_lineage(&self) -> Result<LineageSetting, EngineError> {
        if let Some(first) = self.catalog.journal(0, 1).await?.first() {
            let digest = Sha256::digest(format!("{} {} {}", first.seq, first.at_ms, first.mutation.value()));
            let random = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
            let name = Lineage::after(None, random)?.to_string();
            let setting = LineageSetting { name, parent: None, start: 0 };
            match self.catalog.create_setting(LINEAGE_SETTING, value_of(&setting)?).await {
                Ok(()) => return Ok(setting),
                Err(CatalogError::Exists) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let theirs = self.lineage_setting().await?;
        theirs.ok_or_else(|| EngineError::Other("the catalog has neither a lineage nor a first mutation".into()))
    }

    pub(super) async fn lineage_setting(&self) -> Result<Option<LineageSetting>, EngineError> {
        let Some(setting) = self.catalog.setting(LINEAGE_SETTING).await? else { return Ok(None) };
        let understood = serde_json::from_value(setting);
        understood.map(Some).map_err(|error| EngineError::Other(format!("the catalog's setting lineage: {error}")))
    }

    /// Gives the catalog a lineage; the backend learns of it by [`Self::ensure_lineage`].
    pub(super) async fn begin_lineage(
        &self,
        parent: Option<Lineage>,
        start: Seq,
    ) -> Result<LineageSetting, EngineError> {
        self.set_lineage(new_lineage(parent, start)?).await
    }

    async fn set_lineage(&self, setting: LineageSetting) -> Result<LineageSetting, EngineError> {
        self.catalog.put_setting(LINEAGE_SETTING, value_of(&setting)?).await?;
        Ok(setting)
    }
}

fn value_of(setting: &LineageSetting) -> Result<serde_json::Value, EngineError> {
    serde_json::to_value(setting).map_err(|error| EngineError::Other(error.to_string()))
}

/// A lineage that follows `parent`.
pub(super) fn new_lineage(parent: Option<Lineage>, start: Seq) -> Result<LineageSetting, EngineError> {
    let lineage = Lineage::after(parent, u32::from_le_bytes(random()?))?;
    Ok(LineageSetting { name: lineage.to_string(), parent: parent.map(|parent| parent.to_string()), start })
}

/// What the catalog holds of [`Safety`], which holds the catalog: neither keeps the other alive.
struct Door(Weak<Safety>);

impl Safety {
    /// The gate that the catalog's changes pass.
    pub(crate) fn gate(self: &Arc<Self>) -> Arc<dyn Gate> {
        Arc::new(Door(Arc::downgrade(self)))
    }
}

#[async_trait::async_trait]
impl Gate for Door {
    async fn admit(&self) -> Result<(), CatalogError> {
        let safety = self.0.upgrade().ok_or_else(|| CatalogError::Refused("the engine has ended".into()))?;
        safety.may_write().await.map_err(|error| CatalogError::Refused(error.to_string()))
    }

    async fn pass(&self, run: ServerRun) -> Result<(), CatalogError> {
        let safety = self.0.upgrade().ok_or_else(|| CatalogError::Unknown("the engine has ended".into()))?;
        if safety.config.journal_interval.is_zero() {
            safety.wait_shipped(run).await?;
        }
        // Between the admission and here a commit may have waited for long.
        let may = safety.may_write().await;
        may.map_err(|error| CatalogError::Unknown(format!("committed, but not to be acknowledged: {error}")))
    }

    fn damaged(&self, why: &str) {
        if let Some(safety) = self.0.upgrade() {
            safety.note_damage(why);
        }
    }
}
