//! The second witness before anything is deleted: what the store's own record says is needed.
//!
//! A catalog can be wrong without knowing it: put back from a copy, failed over to a replica that
//! lagged, damaged by its disk. Its journal in the store cannot go back with it. So the collector
//! asks two things: that the catalog is the newest state of its store ([`Safety::may_delete`]), and
//! that newest backup and journal name none of the files it is about to remove
//! ([`Safety::named_in_store`]).

use super::{
    document::{IndexDocument, JournalDocument, LineageDocument, decode_journal},
    links::{JournalBlob, Links, link_of},
    names::{BackupName, Lineage, journal_first, journal_name, lineage_name},
    safety::{LineageSetting, Safety},
    vouch::overtaken_too_often,
};
use crate::{blobs::copy_name::parse_copy_name, deployment::keyring::KeysetCopy, error::EngineError};
use catalog::{BlobKey, BucketId, JournalEntry, Mutation, NewBlob, Seq, TableRows, Value};
use object_format::{BlobId, BlobKind};
use std::collections::{BTreeSet, HashMap, HashSet};
use storage_backends::BlobName;

/// How often the journal's end is looked at anew because another replica ships at the same time.
const ROUNDS_MAX: usize = 8;
/// Rows of the catalog's own journal that are read at a time.
const PAGE: usize = 64;

/// Files that somebody wants to remove, by what their names say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspects {
    blobs: HashSet<BlobKey>,
    copies: HashSet<(BlobKey, BlobKey)>,
    keysets: HashSet<BlobId>,
}

impl Suspects {
    /// Adds the file of this name; `false` when no catalog would name it.
    pub(crate) fn add(&mut self, name: &BlobName) -> bool {
        match Subject::of(name) {
            Some(Subject::Blob(blob)) => drop(self.blobs.insert(blob)),
            Some(Subject::Copy(blob, copy)) => drop(self.copies.insert((blob, copy))),
            Some(Subject::Keyset(id)) => drop(self.keysets.insert(id)),
            None => return false,
        }
        true
    }

    fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.copies.is_empty() && self.keysets.is_empty()
    }

    /// Whether the file of this name is among them.
    pub(crate) fn contains(&self, name: &BlobName) -> bool {
        match Subject::of(name) {
            Some(Subject::Blob(blob)) => self.blobs.contains(&blob),
            Some(Subject::Copy(blob, copy)) => self.copies.contains(&(blob, copy)),
            Some(Subject::Keyset(id)) => self.keysets.contains(&id),
            None => false,
        }
    }
}

/// What a file's name is for.
enum Subject {
    Blob(BlobKey),
    Copy(BlobKey, BlobKey),
    Keyset(BlobId),
}

impl Subject {
    fn of(name: &BlobName) -> Option<Self> {
        if let Some((blob, copy)) = parse_copy_name(name) {
            return Some(Self::Copy(BlobKey(blob.0), BlobKey(copy.0)));
        }
        match name.as_str().split_once('/')? {
            ("blobs", id) => BlobId::parse(id).map(|id| Self::Blob(BlobKey(id.0))),
            ("keyset", id) => BlobId::parse(id).map(Self::Keyset),
            _ => None,
        }
    }
}

/// Reads the record from front to back and keeps which of the suspects it says are needed.
struct Reading<'a> {
    suspects: &'a Suspects,
    named: Suspects,
    /// Keysets by bucket, as its settings name them.
    keysets: HashMap<BucketId, Vec<BlobId>>,
}

impl<'a> Reading<'a> {
    fn new(suspects: &'a Suspects) -> Self {
        Self { suspects, named: Suspects::default(), keysets: HashMap::new() }
    }

    fn name_blob(&mut self, blob: BlobKey) {
        if self.suspects.blobs.contains(&blob) {
            self.named.blobs.insert(blob);
        }
    }

    fn name_copy(&mut self, blob: BlobKey, copy: BlobKey) {
        if self.suspects.copies.contains(&(blob, copy)) {
            self.named.copies.insert((blob, copy));
        }
    }

    fn name_all(&mut self, new_blobs: &[NewBlob]) {
        new_blobs.iter().for_each(|blob| self.name_blob(blob.row.id));
    }

    fn name_keysets(&mut self, bucket: BucketId, settings: &serde_json::Value) {
        let ids = KeysetCopy::in_settings(settings).iter().filter_map(|copy| BlobId::parse(&copy.id)).collect();
        self.keysets.insert(bucket, ids);
    }

    fn mutation(&mut self, mutation: Mutation) {
        match mutation {
            Mutation::Put { commit, .. } => self.name_all(&commit.new_blobs),
            Mutation::Rewrite { commit } => self.name_all(&commit.new_blobs),
            Mutation::PutPart { commit } => self.name_all(&commit.new_blobs),
            Mutation::Copy { commit } => {
                if let Some(replaced) = commit.replaces {
                    self.named.copies.remove(&(commit.blob, replaced));
                }
                self.name_copy(commit.blob, commit.copy);
            }
            Mutation::Purge { blob, .. } => {
                self.named.blobs.remove(&blob);
                self.named.copies.retain(|(of, _)| *of != blob);
            }
            Mutation::CreateBucket { bucket } => self.name_keysets(bucket.id, &bucket.settings),
            Mutation::SetBucketSettings { bucket, settings, .. } => self.name_keysets(bucket, &settings),
            Mutation::DeleteBucket { bucket, .. } => drop(self.keysets.remove(&bucket)),
            _ => {}
        }
    }

    fn entries(&mut self, entries: Vec<JournalEntry>) -> Result<(), EngineError> {
        for entry in entries {
            let read = entry.mutation.read();
            self.mutation(read.map_err(|error| {
                EngineError::Integrity(format!("mutation {} of the journal is not understood: {error}", entry.seq))
            })?);
        }
        Ok(())
    }

    /// Rows of a backup.
    fn rows(&mut self, piece: &TableRows) {
        let column = |name: &str| piece.columns.iter().position(|column| column == name);
        match (piece.table.as_str(), column("id"), column("copy_id"), column("settings")) {
            ("blobs", Some(id), copy, _) => {
                for row in &piece.rows {
                    let Some(blob) = key_of(row.get(id)) else { continue };
                    self.name_blob(blob);
                    if let Some(copy) = copy.and_then(|copy| key_of(row.get(copy))) {
                        self.name_copy(blob, copy);
                    }
                }
            }
            ("buckets", Some(id), _, Some(settings)) => {
                for row in &piece.rows {
                    let (Some(Value::Int(id)), Some(Value::Text(settings))) = (row.get(id), row.get(settings)) else {
                        continue;
                    };
                    self.name_keysets(BucketId(*id), &serde_json::from_str(settings).unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Suspects {
        let named = self.keysets.values().flatten().filter(|id| self.suspects.keysets.contains(*id)).copied().collect();
        self.named.keysets = named;
        self.named
    }
}

fn key_of(value: Option<&Value>) -> Option<BlobKey> {
    match value {
        Some(Value::Bytes(bytes)) => bytes.as_slice().try_into().ok().map(BlobKey),
        _ => None,
    }
}

impl Safety {
    /// That nothing follows in the store what is shipped; how far that is.
    async fn prove_end(&self, lineage: Lineage) -> Result<Seq, EngineError> {
        for _ in 0..ROUNDS_MAX {
            let shipped = self.catalog.journal_marks().await?.shipped;
            let name = journal_name(lineage, shipped + 1)?;
            let Some(blob) = self.vault.get_trusted(&name, BlobKind::Journal).await? else { return Ok(shipped) };
            // A shipper that has written and not trimmed yet, here or on another replica.
            let theirs = decode_journal(&blob.document, shipped + 1)?.entries;
            let ours = self.catalog.journal(shipped, theirs.len()).await?;
            if theirs == ours {
                return Ok(shipped);
            }
            if self.catalog.journal_marks().await?.shipped == shipped {
                return Err(other_history(&format!("{name} holds mutations that this catalog does not have")));
            }
        }
        Err(EngineError::Unavailable("the journal's end moves faster than it can be looked at".into()))
    }

    /// Which of `suspects` the newest backup and the journal behind it, in the store, say are
    /// needed. Call [`Safety::may_delete`] first. Reads both from one end to the other: call it for
    /// many at once.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] by name when the record has a hole or is damaged: then nobody can
    /// say what is needed.
    pub(crate) async fn named_in_store(&self, suspects: &Suspects) -> Result<Suspects, EngineError> {
        if suspects.is_empty() {
            return Ok(Suspects::default());
        }
        // A store that nothing was shipped to yet has no lineage; from here on it has, and the
        // record is as new as can be.
        self.ship_once().await?;
        let setting = self.lineage_setting().await?;
        let setting = setting.ok_or_else(|| EngineError::Other("the catalog has no lineage".into()))?;
        let lineage: Lineage = setting.name.parse()?;
        let mut rounds = 1;
        loop {
            let newest = self.vault.newest_backup(lineage).await?;
            let read = self.read_record(lineage, &setting, newest, suspects).await;
            // A backup that was made meanwhile has taken away what the one before it stood on.
            if read.is_ok() || !self.vault.is_overtaken(lineage, newest).await? {
                return read;
            }
            if rounds == ROUNDS_MAX {
                return Err(overtaken_too_often());
            }
            rounds += 1;
        }
    }

    /// Reads a backup and the journal behind it, and which of `suspects` they name.
    async fn read_record(
        &self,
        lineage: Lineage,
        setting: &LineageSetting,
        backup: Option<BackupName>,
        suspects: &Suspects,
    ) -> Result<Suspects, EngineError> {
        let mut reading = Reading::new(suspects);
        let (cut, mut links) = self.read_backup(lineage, setting, backup, &mut reading).await?;
        let mut next = cut + 1;
        let end = self.prove_end(lineage).await?;
        while next <= end {
            let name = journal_name(lineage, next)?;
            let blob = self.vault.journal(lineage, next).await?;
            let blob =
                blob.ok_or_else(|| EngineError::Integrity(format!("{name} is missing: the journal has a hole")))?;
            links.follow(&name, &blob)?;
            let entries = blob.entries;
            next = entries.last().map_or(next, |entry| entry.seq) + 1;
            reading.entries(entries)?;
        }
        // The catalog's own rows that are not in the store yet.
        loop {
            let page = self.catalog.journal(next - 1, PAGE).await?;
            let Some(last) = page.last() else { break };
            next = last.seq + 1;
            reading.entries(page)?;
        }
        self.refuse_what_follows(lineage).await?;
        Ok(reading.finish())
    }

    /// Reads a backup's rows; where the journal behind it begins, and what that follows.
    async fn read_backup(
        &self,
        lineage: Lineage,
        setting: &LineageSetting,
        backup: Option<BackupName>,
        reading: &mut Reading<'_>,
    ) -> Result<(Seq, Links), EngineError> {
        let Some(name) = backup else {
            return match setting.start {
                0 => Ok((0, Links::at_start(lineage)?)),
                _ => Err(EngineError::Integrity(format!("lineage {lineage} has lost the backup that it begins with"))),
            };
        };
        let index: IndexDocument = self.vault.index(&name).await?;
        for (number, entry) in (0..).zip(&index.parts) {
            let part = self.vault.part(&name, number, entry).await?;
            let lost = || EngineError::Integrity(format!("part {number} of backup {name} is missing"));
            for piece in part.ok_or_else(lost)? {
                reading.rows(&piece);
            }
        }
        Ok((name.cut, Links::behind(index.head)))
    }

    /// One listing shows journal blobs that this catalog's history has no place for.
    async fn refuse_what_follows(&self, lineage: Lineage) -> Result<(), EngineError> {
        let firsts = self.vault.journal_firsts(lineage).await?;
        // Read behind the listing: what another replica ships meanwhile is trimmed after it was
        // written.
        let marks = self.catalog.journal_marks().await?;
        let end = marks.shipped + 1;
        match self.vault.trusted_first(lineage, firsts.range(end + 1..)).await? {
            Some(first) => Err(other_history(&format!(
                "the journal in the store goes on to {first} at least, and this catalog has shipped it up to {}",
                marks.shipped
            ))),
            None => Ok(()),
        }
    }
}

impl super::vault::Vault {
    /// The journal blob that begins with `first`; `None` when there is none.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] by name when it is damaged or not to be trusted.
    pub(super) async fn journal(&self, lineage: Lineage, first: Seq) -> Result<Option<JournalBlob>, EngineError> {
        let name = journal_name(lineage, first)?;
        let Some(blob) = self.get(&name, BlobKind::Journal).await? else { return Ok(None) };
        let JournalDocument { before, entries } = decode_journal(&blob.document, first)
            .map_err(|error| EngineError::Integrity(format!("{name} is damaged: {error}")))?;
        let link = link_of(&name, &blob.document);
        Ok(Some(JournalBlob { entries, before, link, sealed: blob.is_sealed(), stored_len: blob.stored_len }))
    }

    /// First sequence numbers of a lineage's journal blobs, from one listing.
    ///
    /// # Errors
    /// What the backend says.
    pub(super) async fn journal_firsts(&self, lineage: Lineage) -> Result<BTreeSet<Seq>, EngineError> {
        let names = self.listed(&format!("journal/{lineage}/")).await?;
        Ok(names.iter().filter_map(|name| journal_first(name.as_str().rsplit('/').next()?)).collect())
    }

    /// The first of these journal blobs that is to be trusted; without keys each of them is.
    ///
    /// # Errors
    /// As [`super::vault::Vault::read`].
    pub(super) async fn trusted_first(
        &self,
        lineage: Lineage,
        firsts: impl IntoIterator<Item = &Seq>,
    ) -> Result<Option<Seq>, EngineError> {
        for first in firsts {
            let name = journal_name(lineage, *first)?;
            if !self.trust.is_only_sealed() || self.get_trusted(&name, BlobKind::Journal).await?.is_some() {
                return Ok(Some(*first));
            }
        }
        Ok(None)
    }

    /// The last sequence number before a lineage; `None` when the store has not heard of it.
    ///
    /// # Errors
    /// As [`super::vault::Vault::get`].
    pub(super) async fn start_of(&self, lineage: Lineage) -> Result<Option<Seq>, EngineError> {
        if let Some((document, _)) = self.sealed_lineage(lineage).await? {
            return Ok(Some(document.start));
        }
        let found = self.get(&lineage_name(lineage)?, BlobKind::Journal).await?;
        found.map(|found| Ok(LineageDocument::decode(&found.document)?.start)).transpose()
    }
}

fn other_history(why: &str) -> EngineError {
    EngineError::Other(format!(
        "this catalog is not the newest state of its store: {why}. Nothing is collected. It was put back from a copy, or failed over to a database that \
         lagged: stop every process of this deployment, keep a copy of the catalog, and run `deltaweir rebuild` into an empty one"
    ))
}
