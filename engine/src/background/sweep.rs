//! Sweeping closed epochs: files of theirs that no row knows are garbage, because no writer can
//! commit them any more (E4).
//!
//! ```text
//! epoch closed ─► one listing ─► no row, not in backup or journal ─► on the list (trash) ─► a day later: looked up again ─► removed
//! ```
//!
//! A listing finds them, the catalog has no row for them, and the store's own record (newest backup
//! and journal) does not name them: all three, or they stay. A file that the record names and the
//! catalog does not is a catalog that lost rows: nothing is removed then. An epoch is looked
//! through once; the catalog remembers that. What a paused writer stores later than that, and what
//! a store's listing did not show yet, stays until `deltaweir gc --sweep`.

use crate::{
    background::{
        collection::{AT_ONCE, AT_ONCE_IN_LISTS, Collection},
        jobs::run::JobRun,
    },
    blobs::{
        copy_name::parse_copy_name,
        open::Blobs,
        pins::{Pins, Purge},
    },
    deployment::keyring::KeysetCopy,
    error::EngineError,
    metrics::Metrics,
    recovery::{self, Safety, Suspects},
    resources::{clock::now_ms, disks::Disks},
};
use catalog::{BlobKey, Catalog, TrashFile, UnixMs};
use futures::{StreamExt, stream};
use object_format::BlobId;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use storage_backends::{Backend, BlobName, Listed};

/// Listed names that are looked up in the catalog at a time.
const LOOKUP: usize = 512;
/// Files named in an error.
const SHOWN_MAX: usize = 5;
/// Files that are listed, or taken off the list, in one transaction.
const PAGE: usize = 1000;
/// A store with more files that nothing knows than crashes can leave is another catalog's store.
const ORPHANS_MAX: usize = 1_000_000;

/// A file that no row knows.
#[derive(Clone, Debug)]
struct Orphan {
    backend: String,
    file: Listed,
}

/// Finds files that no row knows.
pub(crate) struct Sweeper {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) pins: Arc<Pins>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Sweeper {
    /// Looks through closed epochs once, and puts the files of theirs that nothing knows on the
    /// list of what is to be removed.
    pub(crate) async fn sweep_closed_epochs(
        &self,
        run: &JobRun,
        epochs: &BTreeSet<u32>,
        owned: &BTreeSet<String>,
        report: &mut Collection,
    ) -> Result<(), EngineError> {
        if epochs.is_empty() {
            return Ok(());
        }
        // Copies and keysets are few, and can lose their row long after their epoch: all of them
        // are looked at every time.
        let closed: BTreeSet<u32> = self.catalog.closed_epochs().await?.into_iter().collect();
        let closed: BTreeSet<u32> = match recovery::sweep_floor(&*self.catalog).await? {
            Some(floor) => closed.into_iter().filter(|epoch| *epoch > floor.epoch).collect(),
            None => closed,
        };
        let mut orphans = Vec::new();
        for (name, backend) in self.blobs.backends().filter(|(name, _)| owned.contains(*name)) {
            let mut found = self.unknown(run, &**backend, &blobs_of(epochs), epochs).await?;
            found.extend(self.unknown(run, &**backend, "copies/", &closed).await?);
            found.extend(self.unknown(run, &**backend, "keyset/", &closed).await?);
            orphans.extend(found.into_iter().map(|file| Orphan { backend: name.clone(), file }));
            if orphans.len() > ORPHANS_MAX {
                return Err(EngineError::Integrity(format!(
                    "more than {ORPHANS_MAX} files of the store are unknown to the catalog: it is not this store's catalog, or has lost rows"
                )));
            }
        }
        let names: Vec<BlobName> = orphans.iter().map(|orphan| orphan.file.name.clone()).collect();
        self.agree_on(&names).await?;
        let since_ms = now_ms();
        let before = self.catalog.trash_sum().await?;
        for page in orphans.chunks(PAGE) {
            run.check()?;
            let found = page.iter().map(|Orphan { backend, file }| TrashFile {
                backend: backend.clone(),
                name: file.name.as_str().to_owned(),
                stored_len: file.stored_len,
                since_ms,
            });
            self.catalog.note_sweep(&[], found.collect()).await?;
        }
        let after = self.catalog.trash_sum().await?;
        report.trashed_files += after.files.saturating_sub(before.files);
        report.trashed_bytes += after.stored_bytes.saturating_sub(before.stored_bytes);
        // What could not be asked is looked through the next time.
        if owned.len() == self.blobs.backends().count() {
            let epochs: Vec<u32> = epochs.iter().copied().collect();
            self.catalog.note_sweep(&epochs, Vec::new()).await?;
        }
        Ok(())
    }

    /// That the store's own record names none of them.
    async fn agree_on(&self, names: &[BlobName]) -> Result<(), EngineError> {
        let mut suspects = Suspects::default();
        for name in names {
            suspects.add(name);
        }
        let named = or_refuse(&self.metrics, self.safety.named_in_store(&suspects).await)?;
        let contradicted: Vec<&str> = names.iter().filter(|name| named.contains(name)).map(BlobName::as_str).collect();
        if contradicted.is_empty() {
            return Ok(());
        }
        or_refuse(
            &self.metrics,
            Err(EngineError::Integrity(format!(
                "the journal in the store needs {} files that the catalog does not know ({}): the catalog has lost rows, and nothing is removed. \
             `deltaweir rebuild` makes it again from the store",
                contradicted.len(),
                contradicted[..contradicted.len().min(SHOWN_MAX)].join(", "),
            ))),
        )
    }

    /// Removes files that are on the list since before `before_ms`, each looked up once more.
    pub(crate) async fn empty_trash(
        &self,
        run: &JobRun,
        before_ms: UnixMs,
        owned: &BTreeSet<String>,
        report: &mut Collection,
    ) -> Result<(), EngineError> {
        let due = self.catalog.trash(before_ms, ORPHANS_MAX).await?;
        let due: Vec<(BlobName, TrashFile)> = due
            .into_iter()
            .filter(|file| owned.contains(&file.backend))
            .filter_map(|file| Some((BlobName::new(file.name.as_str()).ok()?, file)))
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        // A catalog that goes back before the list, and before the end of the epochs it is of, must
        // be seen to have gone back: a writer that slept could commit there what is removed here.
        self.safety.ship_once().await?;
        let names: Vec<BlobName> = due.iter().map(|(name, _)| name.clone()).collect();
        self.agree_on(&names).await?;
        for (page, names) in due.chunks(PAGE).zip(names.chunks(PAGE)) {
            run.check()?;
            self.safety.may_delete().await?;
            let known = self.known_of(names).await?;
            let (kept, gone): (Vec<_>, Vec<_>) = page.iter().cloned().partition(|(name, _)| known.contains(name));
            // Somebody may still read what a catalog knew that has gone back since.
            let claims = self.claim(gone.iter().filter_map(|(name, _)| blob_of(name)));
            let gone: Vec<_> = gone
                .into_iter()
                .filter(|(name, _)| blob_of(name).is_none_or(|blob| claims.contains_key(&blob)))
                .collect();
            let mut off = Vec::new();
            for (_, file) in kept {
                tracing::error!(file = file.name, "a file on the trash list has a catalog row: it is kept");
                off.push(file);
            }
            let removals = gone.into_iter().map(|(name, file)| async move {
                let removed = match self.blobs.backend(&file.backend) {
                    Ok(backend) => backend.delete(&name).await.map_err(EngineError::from),
                    Err(error) => Err(error),
                };
                (file, removed)
            });
            let mut removals = stream::iter(removals).buffer_unordered(self.at_once(owned));
            while let Some((file, removed)) = removals.next().await {
                match removed {
                    Ok(()) => {
                        report.orphan_blobs += 1;
                        report.orphan_bytes += file.stored_len;
                        off.push(file);
                    }
                    Err(error) => {
                        tracing::warn!(%error, file = file.name, "an unreferenced file could not be removed for now");
                        report.errors += 1;
                    }
                }
            }
            self.catalog.untrash(off).await?;
            run.progress(report.deleted_blobs + report.orphan_blobs, None);
        }
        Ok(())
    }

    /// How many files are removed at a time.
    pub(crate) fn at_once(&self, owned: &BTreeSet<String>) -> usize {
        if owned.iter().any(|backend| self.disks.is_local(backend)) { AT_ONCE } else { AT_ONCE_IN_LISTS }
    }

    /// Claims blobs for removal; those that somebody holds are left out.
    fn claim(&self, blobs: impl Iterator<Item = BlobKey>) -> HashMap<BlobKey, Purge> {
        let blobs: BTreeSet<BlobKey> = blobs.collect();
        blobs.into_iter().filter_map(|blob| Some((blob, self.pins.purge(BlobId(blob.0))?))).collect()
    }

    /// Takes everything off the list; it stays where it is.
    pub(crate) async fn keep_trash(&self, run: &JobRun, report: &mut Collection) -> Result<(), EngineError> {
        loop {
            run.check()?;
            let page = self.catalog.trash(UnixMs::MAX, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            report.kept_files += self.catalog.untrash(page).await?;
        }
    }

    /// Which of these files a row names.
    async fn known_of(&self, names: &[BlobName]) -> Result<HashSet<BlobName>, EngineError> {
        let ids: Vec<BlobKey> = names.iter().filter_map(blob_of).collect();
        let rows: HashMap<BlobKey, Option<BlobKey>> =
            self.catalog.blobs(&ids).await?.into_iter().map(|row| (row.id, row.copy)).collect();
        let keysets = match names.iter().any(|name| name.as_str().starts_with("keyset/")) {
            true => self.named_keysets().await?,
            false => HashSet::new(),
        };
        let is_known = |name: &&BlobName| match (parse_copy_name(name), name.as_str().split_once('/')) {
            (Some((blob, copy)), _) => rows.get(&BlobKey(blob.0)) == Some(&Some(BlobKey(copy.0))),
            (None, Some(("blobs", _))) => blob_of(name).is_none_or(|id| rows.contains_key(&id)),
            (None, Some(("keyset", id))) => BlobId::parse(id).is_none_or(|id| keysets.contains(&id)),
            // Nothing that a sweep lists.
            _ => true,
        };
        Ok(names.iter().filter(is_known).cloned().collect())
    }

    /// The files below a prefix that no row names, of writers whose epoch is closed: a blob that
    /// has no row, a second copy that its blob's row does not name, a keyset that no bucket names.
    async fn unknown(
        &self,
        run: &JobRun,
        backend: &dyn Backend,
        prefix: &str,
        closed: &BTreeSet<u32>,
    ) -> Result<Vec<Listed>, EngineError> {
        let mut unknown = Vec::new();
        let mut listing = backend.list(prefix).ready_chunks(LOOKUP);
        while let Some(listed) = listing.next().await {
            run.check()?;
            let listed: Vec<Listed> = listed.into_iter().collect::<Result<_, _>>()?;
            let is_closed = |file: &Listed| writer_of(&file.name).is_some_and(|epoch| closed.contains(&epoch));
            let candidates: Vec<Listed> = listed.into_iter().filter(is_closed).collect();
            let names: Vec<BlobName> = candidates.iter().map(|file| file.name.clone()).collect();
            let known = self.known_of(&names).await?;
            unknown.extend(candidates.into_iter().filter(|file| !known.contains(&file.name)));
        }
        Ok(unknown)
    }

    async fn named_keysets(&self) -> Result<HashSet<BlobId>, EngineError> {
        let buckets = self.catalog.buckets().await?;
        Ok(buckets.iter().flat_map(KeysetCopy::of).filter_map(|copy| BlobId::parse(&copy.id)).collect())
    }
}

/// The blob whose row names a file, if it is a blob or a second copy of one.
fn blob_of(name: &BlobName) -> Option<BlobKey> {
    match parse_copy_name(name) {
        Some((blob, _)) => Some(BlobKey(blob.0)),
        None => name.as_str().strip_prefix("blobs/").and_then(BlobId::parse).map(|id| BlobKey(id.0)),
    }
}

/// The epoch of the writer that made a file; none when its name is not one that a sweep may judge.
fn writer_of(name: &BlobName) -> Option<u32> {
    let id = match parse_copy_name(name) {
        Some((_, copy)) => Some(copy),
        None => name
            .as_str()
            .split_once('/')
            .filter(|(kind, _)| matches!(*kind, "blobs" | "keyset"))
            .and_then(|(_, id)| BlobId::parse(id)),
    };
    id.map(|id| id.epoch())
}

/// What the names of blobs of these epochs begin with: a blob's id begins with its epoch, so a
/// listing need not pass the others.
fn blobs_of(epochs: &BTreeSet<u32>) -> String {
    let hex = |epoch: Option<&u32>| epoch.map_or_else(String::new, |epoch| format!("{epoch:08x}"));
    let (first, last) = (hex(epochs.first()), hex(epochs.last()));
    let common = first.bytes().zip(last.bytes()).take_while(|(a, b)| a == b).count();
    format!("blobs/{}", &first[..common])
}

/// Counts and logs that nothing is removed, when that is what came out.
pub(super) fn or_refuse<T>(metrics: &Metrics, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
    outcome.inspect_err(|error| {
        metrics.gc_refusals_total.inc();
        tracing::error!(%error, "the collector removes nothing");
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_begins_where_all_its_epochs_do() {
        let prefix = |epochs: &[u32]| blobs_of(&epochs.iter().copied().collect());
        assert_eq!(prefix(&[0x2a]), "blobs/0000002a");
        assert_eq!(prefix(&[0x2a, 0x2b]), "blobs/0000002");
        assert_eq!(prefix(&[1, 0x2b, 0x2c]), "blobs/000000");
        assert_eq!(prefix(&[1, 0xffff_ffff]), "blobs/");
        assert_eq!(prefix(&[]), "blobs/");
        assert!(BlobId::new(0x2a, [0; 12]).to_string().starts_with("0000002a"));
    }
}
