//! Uploads in parts to a backend that a process left behind: no listing of blobs shows their parts,
//! and the store keeps and charges them.
//!
//! A blob's id carries the epoch of its writer. An upload under a name of an open epoch is a living
//! process's own, however old it is. One of a closed epoch can never be committed (E4); it is
//! aborted once it is old enough. Names without an epoch (journal, backups, keys) go by their age.
//!
//! A client's own multipart upload that is never completed ends in [`super::abandoned_uploads`].

use crate::{
    background::jobs::run::JobRun, blobs::copy_name::parse_copy_name, deployment::writer::Writer, error::EngineError,
    metrics::Metrics, recovery::Safety,
};
use catalog::Catalog;
use object_format::BlobId;
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};
use storage_backends::{BlobName, UnfinishedUploads};

/// What the job `leftovers` did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Leftovers {
    /// Uploads aborted.
    aborted: u64,
    /// Backends that could not be asked; the next run asks them again.
    errors: u64,
}

/// Aborts what a process left behind.
pub(crate) struct LeftoverUploads {
    pub(crate) age_min: Duration,
    pub(crate) unfinished: BTreeMap<String, Arc<dyn UnfinishedUploads>>,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) safety: Arc<Safety>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) metrics: Arc<Metrics>,
}

impl LeftoverUploads {
    /// The job `leftovers`.
    pub(crate) async fn abort_leftovers_once(&self, run: &JobRun) -> Result<Leftovers, EngineError> {
        let owned = self.safety.owned_backends().await?;
        self.writer.close_stale().await?;
        let closed: HashSet<u32> = self.catalog.closed_epochs().await?.into_iter().collect();
        let is_nobodys = |name: &BlobName| epoch_of(name).is_none_or(|epoch| closed.contains(&epoch));
        let mut report = Leftovers::default();
        for (name, uploads) in &self.unfinished {
            run.check()?;
            if !owned.contains(name) {
                report.errors += 1;
                continue;
            }
            match uploads.abort(self.age_min, &is_nobodys).await {
                Ok(aborted) => {
                    report.aborted += aborted;
                    self.metrics.backend_uploads_aborted_total.with_label_values(&[name]).inc_by(aborted);
                    if aborted > 0 {
                        tracing::info!(backend = name, aborted, "abandoned uploads were aborted");
                    }
                }
                Err(error) => {
                    report.errors += 1;
                    tracing::warn!(%error, backend = name, "abandoned uploads could not be aborted");
                }
            }
            run.progress(report.aborted, None);
        }
        Ok(report)
    }
}

/// The writer's epoch in a blob's name, where it has one.
fn epoch_of(name: &BlobName) -> Option<u32> {
    if let Some((_, copy)) = parse_copy_name(name) {
        return Some(copy.epoch());
    }
    let (directory, id) = name.as_str().split_once('/')?;
    let id = BlobId::parse(id).filter(|_| matches!(directory, "blobs" | "keyset"))?;
    Some(id.epoch())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blobs_their_copies_and_keysets_name_their_writer() {
        let epoch = |name: &str| epoch_of(&BlobName::new(name).unwrap());
        let id = "0000002aaaaaaaaaaaaaaaaaaaaaaaaa";
        assert_eq!(epoch(&format!("blobs/{id}")), Some(42));
        assert_eq!(epoch(&format!("keyset/{id}")), Some(42));
        assert_eq!(epoch(&format!("copies/00000001aaaaaaaaaaaaaaaaaaaaaaaa-{id}")), Some(42));
        for other in ["journal/00000001-0badcafe/0000000000000001", "keyset/store-0a-1", "backup/x", "blobs"] {
            assert_eq!(epoch(other), None, "{other}");
        }
    }
}
