//! Shipping: journal rows leave the catalog for the backend as sealed blobs, in one chain (docs/format/journal-v1.md §4).

use super::{
    super::{error::EngineError, keyring::random, now_ms},
    LINEAGE_SETTING, LineageSetting, Safety,
    document::{LineageDocument, decode_journal, encode_journal},
    names::{Lineage, journal_name, lineage_name},
};
use catalog::{CatalogError, Gate, JournalEntry, JournalMarks, Seq};
use object_format::BlobKind;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{sync::atomic::Ordering, time::Duration};
use storage_backends::BlobName;
use tokio_util::sync::CancellationToken;

/// Rows are read this many at a time: one of a large multipart upload takes a few MiB.
const PAGE: usize = 32;
/// A blob takes this many bytes of rows, and one page more.
const BLOB_BYTES: usize = 4 << 20;
/// How long a change waits for its entry to be shipped when it may not be acknowledged before.
const ACKNOWLEDGE_WAIT: Duration = Duration::from_secs(30);

/// When changes wait for their entries, those that nobody waits for are shipped so often.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// After a shipment that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

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
    pub(in super::super) async fn ship_once(&self) -> Result<Shipped, EngineError> {
        let _one_at_a_time = self.shipping.lock().await;
        let outcome = self.ship().await;
        if outcome.is_err() {
            self.metrics.journal_errors_total.inc();
        }
        outcome
    }

    async fn ship(&self) -> Result<Shipped, EngineError> {
        let lineage = self.ensure_lineage().await?;
        let target = self.catalog.last_seq().await?;
        let mut report = Shipped::default();
        loop {
            let marks = self.catalog.journal_marks().await?;
            report.seq = marks.shipped;
            self.note_shipped(marks.shipped);
            if marks.shipped >= target {
                return Ok(report);
            }
            let Some(entries) = self.next_entries(marks).await? else { continue };
            let Some(last) = entries.last().map(|entry| entry.seq) else { continue };
            let count = entries.len() as u64;
            report.stored_bytes += self.write(lineage, entries, marks.cut > marks.shipped).await?;
            report.blobs += 1;
            report.entries += count;
            self.catalog.trim_journal(last).await?;
            self.metrics.journal_shipped_entries_total.inc_by(count);
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
            bytes += page.iter().map(|entry| entry.mutation.to_string().len()).sum::<usize>();
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
        Ok(if follows && !entries.is_empty() { Some(entries) } else { None })
    }

    /// Writes a blob; its stored length. `tried`: somebody was about to write it before.
    async fn write(&self, lineage: Lineage, entries: Vec<JournalEntry>, tried: bool) -> Result<u64, EngineError> {
        let first = entries.first().map_or(0, |entry| entry.seq);
        let name = journal_name(lineage, first)?;
        // What is there already is not written again (I1), as far as that can be known.
        if tried && self.holds_entries(&name, &entries).await? {
            return Ok(0);
        }
        let key = self.sealing_key(&entries).await?;
        let put = self.vault.put(&name, BlobKind::Journal, key, encode_journal(&entries)?).await;
        match put {
            Ok(stored_len) => Ok(stored_len),
            // Another shipper was faster, or ours was stored and we did not hear of it.
            Err(_) if self.holds_entries(&name, &entries).await? => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Whether the blob is there; an error when it holds something else.
    async fn holds_entries(&self, name: &BlobName, entries: &[JournalEntry]) -> Result<bool, EngineError> {
        let Some(found) = self.vault.get(name, BlobKind::Journal).await? else { return Ok(false) };
        let first = entries.first().map_or(0, |entry| entry.seq);
        if decode_journal(&found.document, first)? == entries {
            return Ok(true);
        }
        Err(EngineError::Integrity(format!(
            "{name} holds other mutations than this catalog: two catalogs write to one store"
        )))
    }

    fn note_shipped(&self, seq: Seq) {
        self.shipped.send_if_modified(|shipped| {
            let newer = seq > *shipped;
            *shipped = seq.max(*shipped);
            newer
        });
    }

    /// Waits until everything that is committed now is in the backend.
    ///
    /// # Errors
    /// [`CatalogError::Unknown`] when that takes too long: what was committed stays, and is shipped later.
    async fn wait_shipped(&self) -> Result<(), CatalogError> {
        let unknown =
            |why: String| CatalogError::Unknown(format!("committed, but not in the backend's journal: {why}"));
        let seq = self.catalog.last_seq().await.map_err(|error| unknown(error.to_string()))?;
        let mut shipped = self.shipped.subscribe();
        self.wanted.notify_one();
        let waited = tokio::time::timeout(ACKNOWLEDGE_WAIT, shipped.wait_for(|shipped| *shipped >= seq)).await;
        match waited {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(unknown("the shipper has ended".into())),
            Err(_) => Err(unknown("it takes too long".into())),
        }
    }

    /// Ships in time until `stopping`.
    pub(in super::super) async fn keep_shipping(&self, stopping: &CancellationToken) {
        let mut pause = self.pause();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = self.wanted.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = match self.ship_once().await {
                Ok(_) => self.pause(),
                Err(error) => {
                    tracing::error!(%error, "the journal could not be shipped; it is tried again");
                    RETRY_PAUSE.min(self.pause())
                }
            };
        }
    }

    /// Between two shipments that nobody waits for.
    fn pause(&self) -> Duration {
        if self.config.journal_interval.is_zero() { IDLE_PAUSE } else { self.config.journal_interval }
    }

    /// Sets the gauges of what is not shipped yet.
    pub(in super::super) async fn measure(&self) {
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
        if self.announced.load(Ordering::Relaxed) == lineage.generation() {
            return Ok(lineage);
        }
        let name = lineage_name(lineage)?;
        if !self.vault.holds(&name).await? {
            if setting.start > 0 {
                // A lineage that does not begin with the store stands on a backup of its own.
                self.write_backup(lineage).await?;
            }
            let parent = setting.parent.as_deref().map(str::parse).transpose()?;
            let document = LineageDocument { start: setting.start, parent };
            self.vault.put(&name, BlobKind::Journal, self.sealing_key(&[]).await?, document.encode()).await?;
        }
        self.announced.store(lineage.generation(), Ordering::Relaxed);
        Ok(lineage)
    }

    /// The lineage of a new store. Its random bits follow from the catalog's first mutation, so that replicas which start
    /// together begin the same one.
    async fn begin_first_lineage(&self) -> Result<LineageSetting, EngineError> {
        let first = self.catalog.journal(0, 1).await?;
        let first = first.first().ok_or_else(|| EngineError::Other("the catalog has no first mutation".into()))?;
        let digest = Sha256::digest(format!("{} {} {}", first.seq, first.at_ms, first.mutation));
        let random = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
        self.set_lineage(LineageSetting { name: Lineage::after(None, random).to_string(), parent: None, start: 0 })
            .await
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
        let value = serde_json::to_value(&setting).map_err(|error| EngineError::Other(error.to_string()))?;
        self.catalog.put_setting(LINEAGE_SETTING, value).await?;
        Ok(setting)
    }
}

/// A lineage that follows `parent`.
pub(super) fn new_lineage(parent: Option<Lineage>, start: Seq) -> Result<LineageSetting, EngineError> {
    let lineage = Lineage::after(parent, u32::from_le_bytes(random()?));
    Ok(LineageSetting { name: lineage.to_string(), parent: parent.map(|parent| parent.to_string()), start })
}

#[async_trait::async_trait]
impl Gate for Safety {
    async fn pass(&self) -> Result<(), CatalogError> {
        self.wait_shipped().await
    }
}
