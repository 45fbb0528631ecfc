//! A catalog and its store that went on separately from one state: where they parted, and what each
//! side did since.

use super::{
    anchor::Chain,
    links::Links,
    names::{Lineage, journal_name},
    safety::Safety,
};
use crate::error::EngineError;
use catalog::{Bucket, BucketId, JournalEntry, JournalMarks, Mutation, Seq, UnixMs, VersionRef};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of a journal that are read at a time.
pub(super) const PAGE: usize = 256;
/// What an operator can do where two branches cannot be merged.
const ELSE: &str = "`deltaweir rebuild` into an empty catalog restores the store's side";

/// What one side did last to a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    /// Number and time of its last write or deletion.
    pub(super) last: (Seq, UnixMs),
    /// Whether that was a write.
    pub(super) is_write: bool,
    /// Whether any was.
    pub(super) wrote: bool,
}

/// What one side did behind the last state that both have; contents are not kept.
#[derive(Debug, Default)]
pub(super) struct Branch {
    /// Its last mutation.
    pub(super) end: Seq,
    /// Keys it wrote or deleted.
    pub(super) touches: BTreeMap<(BucketId, String), Touch>,
    /// The last mutation of a bucket's settings.
    pub(super) settings: BTreeMap<BucketId, Seq>,
    created: Vec<Bucket>,
    deleted: BTreeSet<BucketId>,
    /// Buckets and epochs of the domain keys it made.
    keys: BTreeSet<(BucketId, u32)>,
    /// Buckets of which it removed domain keys.
    pub(super) shredded: BTreeSet<BucketId>,
}

impl Branch {
    fn note(&mut self, entry: &JournalEntry) -> Result<(), EngineError> {
        let mutation = mutation_of(entry)?;
        self.end = entry.seq;
        if let Some((bucket, key, is_write)) = touched(&mutation) {
            let place = (bucket, key.to_owned());
            let wrote = is_write || self.touches.get(&place).is_some_and(|before| before.wrote);
            self.touches.insert(place, Touch { last: (entry.seq, entry.at_ms), is_write, wrote });
        }
        match mutation {
            Mutation::CreateBucket { bucket } => self.created.push(bucket),
            Mutation::DeleteBucket { bucket, .. } => drop(self.deleted.insert(bucket)),
            Mutation::SetBucketSettings { bucket, .. } => drop(self.settings.insert(bucket, entry.seq)),
            Mutation::PutKey { key } => drop(self.keys.insert((key.bucket, key.epoch))),
            Mutation::RemoveKeys { bucket, .. } => drop(self.shredded.insert(bucket)),
            _ => {}
        }
        Ok(())
    }
}

/// Both sides behind the last state they share.
#[derive(Debug)]
pub(super) struct Branches {
    /// The last mutation that both have.
    pub(super) common: Seq,
    /// The journal in the store.
    pub(super) store: Branch,
    /// The catalog that forked.
    pub(super) own: Branch,
}

/// Compares a catalog with the store's newest lineage, and notes what each has alone.
///
/// # Errors
/// [`EngineError::Other`] in words when there is nothing to merge, or it cannot be merged.
pub(super) async fn branches(fork: &Safety, lineage: Lineage) -> Result<Branches, EngineError> {
    let refuse = |why: String| EngineError::Other(why);
    if fork.catalog.is_importing().await? {
        return Err(refuse("the catalog was never made to its end: it is not one that forked".into()));
    }
    let setting = fork.lineage_setting().await?;
    let setting = setting.ok_or_else(|| refuse("the catalog has no history that could be merged".into()))?;
    if setting.name.parse::<Lineage>()? != lineage {
        return Err(refuse(format!(
            "the catalog is of lineage {}, and the store has gone on as {lineage}: another catalog has taken the store over, and \
             these are not two branches of one history",
            setting.name
        )));
    }
    let JournalMarks { shipped, head, .. } = fork.catalog.journal_marks().await?;
    let firsts = fork.vault.journal_firsts(lineage).await?;
    let common = match fork.compare_chain(lineage).await? {
        Chain::Differs { common, .. } => common,
        Chain::Agrees => {
            let backup = fork.vault.newest_backup(lineage).await?.map_or(0, |newest| newest.cut);
            let behind = fork.vault.trusted_first(lineage, firsts.range(shipped + 1..)).await?;
            // What it had shipped and had not trimmed yet is no other history.
            if behind.is_none_or(|first| first == shipped + 1) && backup <= shipped {
                return Err(refuse(
                    "the catalog is the newest state of its store: there is nothing to merge, serve it".into(),
                ));
            }
            return Err(refuse(format!(
                "the store's journal does not reach back to mutation {}, where this catalog ends: nobody can say what they share. {ELSE}",
                shipped + 1
            )));
        }
    };
    let mut store = Branch::default();
    let mut next = shipped + 1;
    let mut links = Links::behind(head);
    while let Some(blob) = fork.vault.journal(lineage, next).await? {
        links.follow(&journal_name(lineage, next)?, &blob)?;
        next = blob.entries.last().map_or(next, |entry| entry.seq) + 1;
        blob.entries.iter().filter(|entry| entry.seq > common).try_for_each(|entry| store.note(entry))?;
    }
    if let Some(behind) = fork.vault.trusted_first(lineage, firsts.range(next..)).await? {
        return Err(EngineError::Integrity(format!("the store's journal has a hole from {next} to {}", behind - 1)));
    }
    let mut own = Branch { end: common, ..Branch::default() };
    loop {
        let page = fork.catalog.journal(own.end, PAGE).await?;
        if page.is_empty() {
            break;
        }
        page.iter().try_for_each(|entry| own.note(entry))?;
    }
    let branches = Branches { common, store, own };
    branches.refuse_twins()?;
    branches.refuse_deleted_buckets()?;
    Ok(branches)
}

impl Branches {
    /// Numbers of buckets are given out in order, and sealed rows are bound to them; of a bucket's
    /// keys only one can open what it holds.
    fn refuse_twins(&self) -> Result<(), EngineError> {
        for own in &self.own.created {
            if let Some(twin) = self.store.created.iter().find(|twin| twin.id == own.id || twin.name == own.name) {
                return Err(EngineError::Other(format!(
                    "both sides created a bucket after they parted ({} in the catalog, {} in the store's journal) under one number or name, \
                     and cannot be merged. {ELSE}",
                    own.name, twin.name
                )));
            }
        }
        match self.own.keys.intersection(&self.store.keys).next() {
            Some((bucket, _)) => Err(EngineError::Other(format!(
                "both sides made a key of bucket number {} after they parted, and cannot be merged. {ELSE}",
                bucket.0
            ))),
            None => Ok(()),
        }
    }

    /// A bucket that was deleted is not made again with its keys: somebody should look.
    fn refuse_deleted_buckets(&self) -> Result<(), EngineError> {
        let wrote = |bucket: BucketId| self.own.touches.iter().any(|((of, _), touch)| *of == bucket && touch.is_write);
        match self.store.deleted.iter().find(|bucket| wrote(**bucket)) {
            Some(bucket) => Err(EngineError::Other(format!(
                "the store's side deleted bucket number {}, and the catalog's side wrote to it: they cannot be merged. {ELSE}",
                bucket.0
            ))),
            None => Ok(()),
        }
    }
}

/// A mutation as it was recorded.
///
/// # Errors
/// [`EngineError::Integrity`] for one of another version of this program.
pub(super) fn mutation_of(entry: &JournalEntry) -> Result<Mutation, EngineError> {
    entry
        .mutation
        .read()
        .map_err(|error| EngineError::Integrity(format!("mutation {} is not understood: {error}", entry.seq)))
}

/// The key whose newest version a mutation writes (`true`) or takes away.
pub(super) fn touched(mutation: &Mutation) -> Option<(BucketId, &str, bool)> {
    match mutation {
        Mutation::Put { commit, .. } => Some((commit.bucket, &commit.key, true)),
        Mutation::Complete { commit, .. } => Some((commit.bucket, &commit.key, true)),
        Mutation::Delete { commit, .. } => Some((commit.bucket, &commit.key, false)),
        // Whichever is the null version is meant, not one that both sides know by its id.
        Mutation::DeleteVersion { commit, .. } if matches!(commit.version, VersionRef::Null) => {
            Some((commit.bucket, &commit.key, false))
        }
        _ => None,
    }
}
