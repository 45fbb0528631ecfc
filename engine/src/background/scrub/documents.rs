//! The first phase of a scrub: the documents that a recovery will need. Who loses the catalog finds
//! out too late that they were damaged; a living catalog can write them again.
//!
//! ```text
//! owner records ─► this process's memory, where the place holds our blobs
//! lineage document ─► the catalog's setting
//! keysets ─► the other copy, or the keys in memory
//! newest backup, journal behind it ─► a new backup
//! ```

use super::ScrubPace;
use crate::{
    background::jobs::run::JobRun,
    blobs::open::{Blobs, blob_name, fetch},
    deployment::{
        documents::{Found, Look},
        keyring::{
            Keyring, KeysetCopy,
            copies::{KeysetFiles, KeysetLook},
        },
        ownership::Places,
    },
    error::EngineError,
    metrics::Metrics,
    recovery::{Reader, Safety},
};
use async_trait::async_trait;
use catalog::{Catalog, VerifyPlace};
use object_format::{BlobId, HEADER_LEN, Header};
use serde::{Deserialize, Serialize};

/// Rows of blobs that are taken from the catalog at a time.
const PAGE: usize = 256;
/// So many blobs of a backend are looked for before its directory is not believed to be ours.
const LOOKED_FOR_MAX: usize = 64;

/// What was found, in documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DocumentCounts {
    ok: u64,
    /// Damaged or missing, and written again.
    restored: u64,
    /// Damaged or missing, and could not be.
    damaged: u64,
    /// Could not be asked for.
    unreachable: u64,
}

/// Looks at all of them, once.
pub(super) struct Documents<'e> {
    pub(super) catalog: &'e dyn Catalog,
    pub(super) blobs: &'e Blobs,
    pub(super) keyring: &'e Keyring,
    pub(super) safety: &'e Safety,
    pub(super) metrics: &'e Metrics,
    pub(super) run: &'e JobRun,
    pub(super) pace: &'e ScrubPace,
    pub(super) counts: DocumentCounts,
}

/// Counts what backup and journal give, at the scrub's pace.
struct Paced<'e>(&'e JobRun, &'e ScrubPace);

#[async_trait]
impl Reader for Paced<'_> {
    async fn read(&self, stored_len: u64) -> Result<(), EngineError> {
        self.1.spend(stored_len).await;
        self.0.check()
    }
}

impl Documents<'_> {
    /// Every kind of them. Owner records and lineage come first: nothing else is written to a place
    /// that is not known to be ours. Then keysets: what is sealed cannot be read without.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] when the run is to end. Whatever else goes wrong is counted.
    pub(super) async fn all(mut self) -> Result<DocumentCounts, EngineError> {
        self.run.note("documents of recovery");
        let done = self.owner_records().await;
        self.settle("owner", done)?;
        if self.counts.damaged + self.counts.unreachable > 0 {
            self.run.note("");
            return Ok(self.counts);
        }
        let done = self.lineage().await;
        self.settle("lineage", done)?;
        let done = self.store_keysets().await;
        self.settle("keyset", done)?;
        let done = self.bucket_keysets().await;
        self.settle("keyset", done)?;
        let done = self.history().await;
        self.settle("backup", done)?;
        self.run.note("");
        Ok(self.counts)
    }

    fn settle(&mut self, kind: &str, done: Result<(), EngineError>) -> Result<(), EngineError> {
        self.run.check()?;
        if let Err(error) = done {
            self.note(kind, "", Found::Unreachable(error.to_string()));
        }
        Ok(())
    }

    fn note(&mut self, kind: &str, document: &str, found: Found) {
        match found {
            Found::Well => self.count(kind, "ok", 1),
            Found::Restored(why) => {
                tracing::warn!(
                    kind,
                    document,
                    why,
                    "a document that a recovery needs was missing or damaged: it is written again"
                );
                self.count(kind, "restored", 1);
            }
            Found::Damaged(why) => {
                tracing::error!(kind, document, why, "a document that a recovery needs is damaged or missing");
                self.count(kind, "damaged", 1);
            }
            Found::Unreachable(why) => {
                tracing::warn!(kind, document, why, "a document that a recovery needs could not be verified now");
                self.count(kind, "unreachable", 1);
            }
        }
    }

    fn count(&mut self, kind: &str, outcome: &str, documents: u64) {
        let counted = &self.metrics.scrub_recovery_documents_total;
        counted.with_label_values(&[kind, outcome]).inc_by(documents);
        match outcome {
            "ok" => self.counts.ok += documents,
            "restored" => self.counts.restored += documents,
            "damaged" => self.counts.damaged += documents,
            _ => self.counts.unreachable += documents,
        }
    }

    async fn store_keysets(&mut self) -> Result<(), EngineError> {
        match self.safety.store_keysets().await? {
            Some(files) => self.keysets(files).await,
            None => Ok(()),
        }
    }

    async fn bucket_keysets(&mut self) -> Result<(), EngineError> {
        for bucket in self.catalog.buckets().await? {
            self.run.check()?;
            let copies = KeysetCopy::of(&bucket);
            if copies.is_empty() {
                continue;
            }
            let done = async {
                let files = self.keyring.keyset_files(&bucket, self.catalog, self.blobs).await?;
                self.keysets(files).await
            };
            let done = done.await;
            self.settle("keyset", done)?;
        }
        Ok(())
    }

    async fn keysets(&mut self, files: KeysetFiles) -> Result<(), EngineError> {
        let keyring = self.keyring;
        let looks = files.look(keyring).await;
        let is_bad = |look: &KeysetLook| matches!(&look.found, Ok(Look::Damaged(_) | Look::Missing));
        if looks.iter().any(is_bad) {
            self.safety.may_delete().await?;
        }
        for (name, found) in files.mend(keyring, looks).await {
            self.note("keyset", name.as_str(), found);
        }
        Ok(())
    }

    async fn owner_records(&mut self) -> Result<(), EngineError> {
        let safety = self.safety;
        let Some(places) = safety.places() else { return Ok(()) };
        for name in places.names() {
            let done = self.owner_records_of(places, &name).await;
            self.settle("owner", done)?;
        }
        Ok(())
    }

    async fn owner_records_of(&mut self, places: &Places, name: &str) -> Result<(), EngineError> {
        let records = places.records(name).await?;
        self.count("owner", "ok", records.well);
        if records.lost.is_empty() {
            return Ok(());
        }
        // A disk that is not mounted has no records either.
        if !self.holds_our_blobs(name).await? {
            return Err(EngineError::NotCurrent(format!(
                "backend {name:?} has lost its ownership record, and the blobs that the catalog knows: another place is mounted there"
            )));
        }
        for (record, found) in places.write_records(name, records.lost).await {
            self.note("owner", record.as_str(), found);
        }
        Ok(())
    }

    /// Whether a backend holds a blob that the catalog knows in it, if it knows any: ids are
    /// random, so no other place does.
    async fn holds_our_blobs(&self, backend_name: &str) -> Result<bool, EngineError> {
        if !self.catalog.has_blobs_in(backend_name).await? {
            return Ok(true);
        }
        let backend = self.blobs.backend(backend_name)?;
        let (mut place, mut looked_for) = (None, 0);
        loop {
            let page = self.catalog.to_verify(place, PAGE).await?;
            let Some(last) = page.last() else { return Ok(false) };
            place = Some(VerifyPlace { fan_in: last.fan_in, blob: last.row.id });
            for row in page.into_iter().map(|blob| blob.row) {
                self.run.check()?;
                if row.backend != backend_name || row.inline.is_some() || row.original.is_some() {
                    continue;
                }
                let id = BlobId(row.id.0);
                let header = fetch(&**backend, &blob_name(id)?, 0..HEADER_LEN as u64).await;
                match header.and_then(|header| Ok(Header::decode(&header)?)) {
                    Ok(header) if header.blob_id == id => return Ok(true),
                    Ok(_) | Err(EngineError::Integrity(_)) => looked_for += 1,
                    Err(error) => return Err(error),
                }
                if looked_for == LOOKED_FOR_MAX {
                    return Ok(false);
                }
            }
        }
    }

    async fn lineage(&mut self) -> Result<(), EngineError> {
        for (name, found) in self.safety.mend_lineage().await? {
            self.note("lineage", name.as_str(), found);
        }
        Ok(())
    }

    async fn history(&mut self) -> Result<(), EngineError> {
        let (history, outcome) = self.safety.mend_history(&Paced(self.run, self.pace)).await?;
        self.count("backup", "ok", history.backup_documents);
        self.count("journal", "ok", history.journal_blobs);
        if let Some(outcome) = outcome {
            let kind = if history.backup_damage.is_some() { "backup" } else { "journal" };
            self.note(kind, "", outcome);
        }
        Ok(())
    }
}
