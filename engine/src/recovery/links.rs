//! The links of the journal (docs/format/journal-v1.md §4): each document carries a digest of the
//! one before it, and a backup that of the one it was cut behind. A seal says that a document is
//! ours, and its name which mutations it holds; the link says that it follows the very document
//! that lies before it.

use super::{
    document::LineageDocument,
    names::{Lineage, lineage_name},
};
use crate::error::EngineError;
use catalog::{JournalEntry, JournalLink};
use crypto::{Digest, Sha256};
use storage_backends::BlobName;

/// A journal blob that was read.
pub(super) struct JournalBlob {
    pub(super) entries: Vec<JournalEntry>,
    /// The link that it carries.
    pub(super) before: Option<JournalLink>,
    /// Its own.
    pub(super) link: JournalLink,
    pub(super) sealed: bool,
    /// Its bytes in the backend.
    pub(super) stored_len: u64,
}

/// The link of a document: what the next one carries.
pub(super) fn link_of(name: &BlobName, document: &[u8]) -> JournalLink {
    let mut digest = Sha256::new();
    digest.update(b"deltaweir link v1");
    digest.update(name.as_str().as_bytes());
    digest.update([0]);
    digest.update(document);
    JournalLink(digest.finalize().into())
}

/// What the first document of a lineage carries.
pub(super) fn link_of_lineage(lineage: Lineage, document: &LineageDocument) -> Result<JournalLink, EngineError> {
    Ok(link_of(&lineage_name(lineage)?, &document.encode()))
}

/// Reads along the documents of a journal, one after another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    last: Option<JournalLink>,
}

impl Links {
    /// Behind a document; `None` where nobody knows which: then the next one is taken as it is.
    pub(super) fn behind(last: Option<JournalLink>) -> Self {
        Self { last }
    }

    /// At the beginning of the journal of a store that is new.
    pub(super) fn at_start(lineage: Lineage) -> Result<Self, EngineError> {
        let document = LineageDocument { start: 0, parent: None };
        Ok(Self { last: Some(link_of_lineage(lineage, &document)?) })
    }

    /// Goes on to the next document. One that carries no link was written by an earlier program.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when it follows another document than the last one.
    pub(super) fn follow(&mut self, name: &BlobName, blob: &JournalBlob) -> Result<(), EngineError> {
        if let (Some(last), Some(before)) = (self.last, blob.before)
            && last != before
        {
            return Err(EngineError::Integrity(format!(
                "{name} does not follow the document before it: one of the two was replaced by another"
            )));
        }
        self.last = Some(blob.link);
        Ok(())
    }
}

#[cfg(test)]
impl super::safety::Safety {
    /// Puts another document of the store's own in the place of the one that begins with `first`:
    /// what a writer from before a fork may have left there.
    pub(crate) async fn exchange_document(
        &self,
        first: catalog::Seq,
        change: impl FnOnce(&mut Vec<JournalEntry>, &mut Option<JournalLink>),
    ) {
        let lineage = self.ensure_lineage().await.expect("a lineage");
        let name = super::names::journal_name(lineage, first).expect("a name");
        let blob = self.vault.journal(lineage, first).await.expect("read").expect("is there");
        let (mut entries, mut before) = (blob.entries, blob.before);
        change(&mut entries, &mut before);
        let document = super::document::encode_journal(&entries, before).expect("encoded");
        let key = self.sealing_key(&entries).await.expect("a key");
        self.vault.backend().delete(&name).await.expect("removed");
        self.vault.put(&name, object_format::BlobKind::Journal, key, document).await.expect("stored");
    }

    /// The documents of the catalog's lineage: where each begins, and whether it carries a link.
    pub(crate) async fn documents(&self) -> Vec<(catalog::Seq, bool)> {
        let lineage = self.ensure_lineage().await.expect("a lineage");
        let mut found = Vec::new();
        for first in self.vault.journal_firsts(lineage).await.expect("listed") {
            let blob = self.vault.journal(lineage, first).await.expect("read").expect("is there");
            found.push((first, blob.before.is_some()));
        }
        found
    }
}
