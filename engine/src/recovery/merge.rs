//! Joining two histories: a catalog and its store went on separately from one state
//! (docs/guide/disaster.md).
//!
//! ```text
//! … common ─┬─ the store's journal ──► restored as by a rebuild ─┐
//!           └─ the catalog's journal ─► made again behind it ────┴─► settled key by key ─► a new lineage
//! ```
//!
//! The store's side is the record that others rely on, so it is restored first. The catalog's side
//! follows with new numbers. Where both wrote a key the later writer by sequence has it, and the
//! other's version is kept beside it. The catalog that forked is only read: a merge that was
//! interrupted begins anew.

use super::{
    branches::{Branches, PAGE, Touch, mutation_of, touched},
    lost::{KEY_LEN_MAX, LostMutation, QUARANTINE, lost_mutation},
};
use crate::{
    blobs::open::blob_name,
    bucket::{BucketHandle, BucketState, RowPlace, digest_of},
    config::{BucketSettings, Encryption},
    deployment::keyring::{Keyring, random},
    error::EngineError,
    resources::{clock::now_ms, ids::version_id},
};
use catalog::{
    BlobKey, BlobRow, BlobState, BucketId, Catalog, CatalogError, Content, DeleteVersionCommit, Extent, JournalEntry,
    Mutation, MutationText, NewBlob, Precondition, PutCommit, Seq, UnixMs, VersionId, VersionLock, Versioning,
};
use futures::{StreamExt, TryStreamExt, stream};
use object_format::BlobId;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use storage_backends::Backend;

/// Blobs that a backend is asked for at once.
const ASKED_AT_ONCE: usize = 32;

/// Which side a key's current version comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The journal in the store.
    Store,
    /// The catalog that forked.
    Catalog,
}

/// A key that both sides wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Bucket.
    pub bucket: String,
    /// Key.
    pub key: String,
    /// Whose version is current.
    pub current: Side,
    /// The key of the other one; the key itself where its bucket keeps versions.
    pub other_key: String,
}

/// What each side had written of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Keys that the store's journal wrote.
    pub store: u64,
    /// Keys that the catalog wrote.
    pub catalog: u64,
}

/// What a merge did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// The last mutation that both have.
    pub common: Seq,
    /// Keys written behind it, by bucket.
    pub buckets: BTreeMap<String, Written>,
    /// Keys that both sides wrote.
    pub conflicts: Vec<Conflict>,
    /// Buckets whose settings both sides changed, and whose are in force.
    pub settings: BTreeMap<String, Side>,
    /// Deletions in the catalog of keys that the store's side wrote: the write stays.
    pub deletions_left_out: u64,
    /// Mutations of the catalog that do not fit behind the store's.
    pub left_out: Vec<LostMutation>,
}

/// A key that both sides wrote, while it is settled.
struct Open {
    bucket: BucketHandle,
    key: String,
    current: Side,
    /// The catalog's side deleted it in the end.
    is_deleted: bool,
    /// Where the store's version waits, and its id.
    waits: String,
    store_version: VersionId,
}

/// Makes the catalog's side again behind the store's, in a catalog that is being filled.
pub(super) struct Merge<'a> {
    pub(super) catalog: &'a dyn Catalog,
    /// The catalog that forked.
    pub(super) fork: &'a dyn Catalog,
    pub(super) backends: &'a BTreeMap<String, Arc<dyn Backend>>,
    pub(super) keyring: &'a Keyring,
    pub(super) branches: &'a Branches,
}

/// What is known while the catalog's side is followed.
#[derive(Default)]
struct Followed {
    /// Keys that the catalog's side only deleted, and the store's side has.
    kept: HashSet<(BucketId, String)>,
    /// Blobs of mutations that were left out: a later one may stand on them.
    behind: HashMap<BlobKey, NewBlob>,
}

impl Merge<'_> {
    pub(super) async fn run(&self) -> Result<Merged, EngineError> {
        let mut merged = Merged { common: self.branches.common, ..Merged::default() };
        let mut followed = Followed::default();
        let mut open = Vec::new();
        for (place, mine) in &self.branches.own.touches {
            let Some(theirs) = self.branches.store.touches.get(place).filter(|theirs| theirs.is_write) else {
                continue;
            };
            match mine.wrote {
                true => open.extend(self.open(place, mine, theirs).await?),
                false => drop(followed.kept.insert(place.clone())),
            }
        }
        let mut done = self.branches.common;
        loop {
            let page = self.fork.journal(done, PAGE).await?;
            let Some(last) = page.last() else { break };
            done = last.seq;
            let gone = self.gone_of(&page).await?;
            for entry in &page {
                self.follow(entry, &gone, &mut followed, &mut merged).await?;
            }
        }
        if done != self.branches.own.end {
            return Err(EngineError::Conflict);
        }
        for conflict in open {
            self.settle(conflict, &mut merged).await?;
        }
        self.count(&mut merged).await?;
        Ok(merged)
    }

    /// Notes a key that both sides wrote, and keeps the store's version where the catalog's would
    /// take its place.
    async fn open(
        &self,
        place: &(BucketId, String),
        mine: &Touch,
        theirs: &Touch,
    ) -> Result<Option<Open>, EngineError> {
        let (id, key) = place;
        let Some(content) = self.catalog.content(*id, key).await? else { return Ok(None) };
        let bucket = self.bucket(*id).await?;
        let current = if mine.is_write && mine.last > theirs.last { Side::Catalog } else { Side::Store };
        let waits = match current {
            Side::Catalog => self.free_key(*id, key, &content).await?,
            Side::Store => format!("{QUARANTINE}{}", hex::encode(content.version.id.0)),
        };
        if bucket.row.versioning != Versioning::Enabled {
            self.put_copy(&bucket, &content, &waits).await?;
        }
        let (key, store_version) = (key.clone(), content.version.id);
        Ok(Some(Open { bucket, key, current, is_deleted: !mine.is_write, waits, store_version }))
    }

    /// A key for a version that is not to be current.
    async fn free_key(&self, bucket: BucketId, key: &str, content: &Content) -> Result<String, EngineError> {
        let wanted = format!("{QUARANTINE}{key}");
        let own = self.branches.own.touches.contains_key(&(bucket, wanted.clone()));
        if wanted.len() <= KEY_LEN_MAX && !own && self.catalog.current(bucket, &wanted).await?.is_none() {
            return Ok(wanted);
        }
        Ok(format!("{QUARANTINE}{}", hex::encode(content.version.id.0)))
    }

    /// One mutation of the catalog's side.
    async fn follow(
        &self,
        entry: &JournalEntry,
        gone: &HashSet<BlobKey>,
        followed: &mut Followed,
        merged: &mut Merged,
    ) -> Result<(), EngineError> {
        let mut mutation = mutation_of(entry)?;
        if is_housekeeping(&mutation) {
            return Ok(());
        }
        if let Some((bucket, key, false)) = touched(&mutation)
            && followed.kept.contains(&(bucket, key.to_owned()))
        {
            merged.deletions_left_out += 1;
            return Ok(());
        }
        if let Mutation::SetBucketSettings { bucket, settings, .. } = &mut mutation
            && !self.may_set(*bucket, settings).await?
        {
            return Ok(());
        }
        if self.is_shredded(&mutation).await? {
            if !is_improvement(&mutation) {
                let why = "it is sealed with a key that the store's side removed";
                merged.left_out.push(lost_mutation(entry, why.to_owned()));
            }
            return Ok(());
        }
        let brought = brought(&mutation).to_vec();
        let lacks = brought.iter().find(|blob| gone.contains(&blob.row.id));
        let made = match lacks {
            Some(blob) => {
                Err(EngineError::Integrity(format!("its bytes are gone from the store ({})", BlobId(blob.row.id.0))))
            }
            None => self.make_standing(&mutation, entry.at_ms, followed).await,
        };
        match made {
            Ok(()) => Ok(()),
            Err(EngineError::Integrity(why)) => {
                if !is_improvement(&mutation) {
                    merged.left_out.push(lost_mutation(entry, why));
                }
                followed.behind.extend(brought.into_iter().map(|blob| (blob.row.id, blob)));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a mutation brings what is sealed with a key that the store's side removed: nobody
    /// could open it.
    async fn is_shredded(&self, mutation: &Mutation) -> Result<bool, EngineError> {
        let shredded = &self.branches.store.shredded;
        let Some(seals) = mutation.seals().filter(|seals| shredded.contains(&seals.bucket)) else { return Ok(false) };
        let keys = self.catalog.keys(seals.bucket).await?;
        let lacks_id = seals.ids.iter().any(|id| keys.iter().all(|key| key.id != *id));
        Ok(lacks_id || seals.epochs.iter().any(|epoch| keys.iter().all(|key| key.epoch != *epoch)))
    }

    /// Whether the catalog's settings of a bucket are put in the place of the store's: the later
    /// ones by sequence are in force. Keysets of either side stay named.
    async fn may_set(&self, bucket: BucketId, settings: &mut serde_json::Value) -> Result<bool, EngineError> {
        let Some(theirs) = self.branches.store.settings.get(&bucket) else { return Ok(true) };
        if self.branches.own.settings.get(&bucket) < Some(theirs) {
            return Ok(false);
        }
        let row = self.catalog.buckets().await?.into_iter().find(|row| row.id == bucket);
        let stored = row.as_ref().and_then(|row| row.settings.get("keysets")?.as_array());
        let mut keysets = stored.cloned().unwrap_or_default();
        let own = settings.get("keysets").and_then(|keysets| keysets.as_array()).cloned().unwrap_or_default();
        keysets.extend(own.into_iter().filter(|copy| stored.is_none_or(|stored| !stored.contains(copy))));
        if !keysets.is_empty() {
            settings["keysets"] = keysets.into();
        }
        Ok(true)
    }

    /// Of the blobs that these mutations bring, those whose bytes the store has not any more: its
    /// own side knew of no need for them.
    async fn gone_of(&self, entries: &[JournalEntry]) -> Result<HashSet<BlobKey>, EngineError> {
        let mut rows = Vec::new();
        for entry in entries {
            rows.extend(brought(&mutation_of(entry)?).iter().map(|blob| blob.row.clone()));
        }
        let asked = rows.into_iter().map(|row| async move { Ok((self.has_bytes(&row).await?, row.id)) });
        let answers: Result<Vec<(bool, BlobKey)>, EngineError> =
            stream::iter(asked).buffer_unordered(ASKED_AT_ONCE).try_collect().await;
        Ok(answers?.into_iter().filter(|(there, _)| !there).map(|(_, id)| id).collect())
    }

    async fn has_bytes(&self, row: &BlobRow) -> Result<bool, EngineError> {
        if row.inline.is_some() || row.original.is_some() {
            return Ok(true);
        }
        let backend = self.backends.get(&row.backend);
        let backend =
            backend.ok_or_else(|| EngineError::Other(format!("backend {:?} is not configured", row.backend)))?;
        Ok(backend.head(&blob_name(BlobId(row.id.0))?).await?.is_some())
    }

    /// Makes a mutation; what it stands on lives again when the store's side let it die and its
    /// bytes are there.
    async fn make_standing(&self, mutation: &Mutation, at_ms: UnixMs, followed: &Followed) -> Result<(), EngineError> {
        let mut held = Vec::new();
        for blob in self.dying(&stands_on(mutation), followed).await? {
            held.extend(self.hold(blob).await?);
        }
        let made = self.make(mutation.clone(), at_ms).await;
        for (bucket, key) in held {
            if let Some(content) = self.catalog.content(bucket, &key).await? {
                self.remove(&content).await?;
            }
        }
        made
    }

    /// Of these blobs, those that are dying or were left out, with the bases they need before them.
    async fn dying(&self, ids: &[BlobKey], followed: &Followed) -> Result<Vec<NewBlob>, EngineError> {
        let rows: HashMap<BlobKey, BlobRow> =
            self.catalog.blobs(ids).await?.into_iter().map(|row| (row.id, row)).collect();
        let mut found = Vec::new();
        for id in ids {
            let blob = match rows.get(id) {
                Some(row) if row.state == BlobState::Live => continue,
                Some(row) => {
                    let bases = self.catalog.bases_of(*id).await?;
                    NewBlob { row: row.clone(), bases, deferred: false, heat_bytes: 0 }
                }
                None => match followed.behind.get(id) {
                    Some(blob) => blob.clone(),
                    None => continue,
                },
            };
            if !self.has_bytes(&blob.row).await? {
                continue;
            }
            let bases = blob.bases.clone();
            // First, so that it lets go of its bases before they are held.
            if rows.contains_key(id) {
                self.make(Mutation::Purge { blob: *id, now_ms: now_ms() }, now_ms()).await?;
            }
            found.extend(Box::pin(self.dying(&bases, followed)).await?);
            found.push(blob);
        }
        Ok(found)
    }

    /// Brings a blob to life under a key of its own; the key, unless there is nothing in the blob.
    async fn hold(&self, blob: NewBlob) -> Result<Option<(BucketId, String)>, EngineError> {
        let (id, size, bucket) = (blob.row.id, blob.row.plain_len, blob.row.bucket);
        if size == 0 {
            return Ok(None);
        }
        let key = format!("{QUARANTINE}{}", hex::encode(random::<16>()?));
        let extents = vec![Extent { blob: id, offset: 0, len: size }];
        let row = BlobRow { state: BlobState::Live, copy: None, ..blob.row };
        let commit = PutCommit {
            bucket,
            key: key.clone(),
            id: version_id()?,
            size,
            facts: Vec::new(),
            extents_digest: digest_of(&extents),
            precondition: Precondition::None,
            new_blobs: vec![NewBlob { row, ..blob }],
            extents,
            lock: VersionLock::default(),
            notices: Vec::new(),
            now_ms: now_ms(),
            epoch: BlobId(id.0).epoch(),
        };
        let put = Mutation::Put { commit: Box::new(commit), modified_ms: now_ms(), named: false };
        match self.make(put, now_ms()).await {
            Ok(()) => Ok(Some((bucket, key))),
            // What stands on it says so.
            Err(EngineError::Integrity(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives a key to the side that wrote it last, and the other's version a key of its own.
    async fn settle(&self, open: Open, merged: &mut Merged) -> Result<(), EngineError> {
        let Open { bucket, key, current, is_deleted, waits, store_version } = open;
        let id = bucket.row.id;
        let keeps_versions = bucket.row.versioning == Versioning::Enabled;
        let own = self.catalog.content(id, &key).await?;
        if own.as_ref().is_some_and(|own| own.version.id == store_version) {
            // Nothing of the catalog's side came here: it was left out, which is said there.
            if !keeps_versions && let Some(waiting) = self.catalog.content(id, &waits).await? {
                self.remove(&waiting).await?;
            }
            return Ok(());
        }
        let mut other_key = if keeps_versions { key.clone() } else { waits.clone() };
        if current == Side::Store {
            let store = match keeps_versions {
                true => self.catalog.version(id, &key, store_version).await?,
                false => self.catalog.content(id, &waits).await?,
            };
            let lost = || EngineError::Other(format!("the store's version of {key} is not where it was kept"));
            let store = store.ok_or_else(lost)?;
            if let Some(own) = own.filter(|_| !is_deleted && !keeps_versions) {
                other_key = self.free_key(id, &key, &own).await?;
                self.put_copy(&bucket, &own, &other_key).await?;
            }
            self.put_copy(&bucket, &store, &key).await?;
            if !keeps_versions {
                self.remove(&store).await?;
            }
        }
        match is_deleted {
            true => merged.deletions_left_out += 1,
            false => merged.conflicts.push(Conflict { bucket: bucket.row.name.clone(), key, current, other_key }),
        }
        Ok(())
    }

    /// A version again under another key, or again as the newest of its own.
    async fn put_copy(&self, bucket: &BucketHandle, content: &Content, key: &str) -> Result<(), EngineError> {
        let version = &content.version;
        let id = version_id()?;
        let place = |key, id: VersionId| RowPlace { key, id: id.0, part: None, extents_digest: version.extents_digest };
        let facts = bucket.open_facts(place(&version.key, version.id), &version.facts)?;
        let commit = PutCommit {
            bucket: bucket.row.id,
            key: key.to_owned(),
            id,
            size: version.size,
            facts: bucket.seal_facts(place(key, id), facts.into_owned())?,
            extents_digest: version.extents_digest,
            precondition: Precondition::None,
            new_blobs: Vec::new(),
            extents: content.extents.clone(),
            lock: VersionLock::default(),
            notices: Vec::new(),
            now_ms: version.modified_ms,
            epoch: 0,
        };
        let named = bucket.row.versioning == Versioning::Enabled;
        self.make(Mutation::Put { commit: Box::new(commit), modified_ms: version.modified_ms, named }, now_ms()).await
    }

    async fn remove(&self, content: &Content) -> Result<(), EngineError> {
        let version = &content.version;
        let commit = DeleteVersionCommit {
            bucket: version.bucket,
            key: version.key.clone(),
            version: version.reference(),
            precondition: Precondition::None,
            hide: false,
            bypass_governance: false,
            notices: Vec::new(),
            now_ms: now_ms(),
            epoch: 0,
        };
        self.make(Mutation::DeleteVersion { commit: Box::new(commit), removed: version.id }, now_ms()).await
    }

    /// The next mutation of the catalog that is being filled.
    ///
    /// # Errors
    /// [`EngineError::Integrity`] when it does not fit.
    async fn make(&self, mutation: Mutation, at_ms: UnixMs) -> Result<(), EngineError> {
        let seq = self.catalog.last_seq().await? + 1;
        let mutation = MutationText::of(&mutation).map_err(|error| EngineError::Other(error.to_string()))?;
        match self.catalog.replay_behind_hole(JournalEntry { seq, at_ms, mutation }).await {
            Err(CatalogError::Invalid(why)) => Err(EngineError::Integrity(why)),
            outcome => Ok(outcome?),
        }
    }

    async fn bucket(&self, id: BucketId) -> Result<BucketHandle, EngineError> {
        let row = self.catalog.buckets().await?.into_iter().find(|bucket| bucket.id == id);
        let row = row.ok_or(EngineError::NoBucket)?;
        let settings: BucketSettings = serde_json::from_value(row.settings.clone())
            .map_err(|error| EngineError::Other(format!("settings of bucket {}: {error}", row.name)))?;
        let keys = match settings.encryption {
            Encryption::Off => None,
            Encryption::Aes256 => Some(self.keyring.keys_of(&row, self.catalog).await?),
        };
        Ok(BucketHandle::new(BucketState::recovered(row, settings, keys)))
    }

    async fn count(&self, merged: &mut Merged) -> Result<(), EngineError> {
        let names: BTreeMap<BucketId, String> =
            self.catalog.buckets().await?.into_iter().map(|bucket| (bucket.id, bucket.name)).collect();
        let (store, own) = (&self.branches.store, &self.branches.own);
        for (branch, side) in [(store, Side::Store), (own, Side::Catalog)] {
            for (bucket, _) in branch.touches.iter().filter(|(_, touch)| touch.is_write).map(|(place, _)| place) {
                let Some(name) = names.get(bucket) else { continue };
                let written = merged.buckets.entry(name.clone()).or_default();
                match side {
                    Side::Store => written.store += 1,
                    Side::Catalog => written.catalog += 1,
                }
            }
        }
        for (bucket, own) in &own.settings {
            if let (Some(theirs), Some(name)) = (store.settings.get(bucket), names.get(bucket)) {
                merged.settings.insert(name.clone(), if own < theirs { Side::Store } else { Side::Catalog });
            }
        }
        Ok(())
    }
}

/// The blobs that a mutation brings.
fn brought(mutation: &Mutation) -> &[NewBlob] {
    match mutation {
        Mutation::Put { commit, .. } => &commit.new_blobs,
        Mutation::PutPart { commit } => &commit.new_blobs,
        Mutation::Rewrite { commit } => &commit.new_blobs,
        _ => &[],
    }
}

/// The blobs that must be there before a mutation.
fn stands_on(mutation: &Mutation) -> Vec<BlobKey> {
    let extents: &[Extent] = match mutation {
        Mutation::Put { commit, .. } => &commit.extents,
        Mutation::PutPart { commit } => &commit.part.extents,
        _ => return Vec::new(),
    };
    let new = brought(mutation);
    let named = extents.iter().map(|extent| extent.blob).chain(new.iter().flat_map(|blob| blob.bases.iter().copied()));
    let named: BTreeSet<BlobKey> = named.filter(|id| new.iter().all(|blob| blob.row.id != *id)).collect();
    named.into_iter().collect()
}

/// What a process writes for itself: writers, settings, what its collector did.
fn is_housekeeping(mutation: &Mutation) -> bool {
    matches!(
        mutation,
        Mutation::OpenEpoch { .. }
            | Mutation::CloseEpochs { .. }
            | Mutation::PutSetting { .. }
            | Mutation::Sweep { .. }
            | Mutation::Untrash { .. }
            | Mutation::NoticesDone { .. }
            | Mutation::Purge { .. }
    )
}

/// What nobody misses when it does not fit any more.
fn is_improvement(mutation: &Mutation) -> bool {
    matches!(
        mutation,
        Mutation::Rewrite { .. }
            | Mutation::Undefer { .. }
            | Mutation::Cool { .. }
            | Mutation::Quarantine { .. }
            | Mutation::EndQuarantine { .. }
            | Mutation::Copy { .. }
            | Mutation::Delete { .. }
            | Mutation::Abort { .. }
            | Mutation::ForgetCompletedUploads { .. }
            | Mutation::RewrapKeys { .. }
    )
}
