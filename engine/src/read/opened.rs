//! Blobs that one read has opened and no cache keeps.

use crate::{
    blobs::open::{Blobs, Manifest},
    error::EngineError,
};
use catalog::BlobRow;
use object_format::DomainKey;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The last manifest that came with its row: a read needs it twice.
#[derive(Default)]
pub(super) struct OpenedRow(Mutex<Option<Arc<Manifest>>>);

impl OpenedRow {
    /// The manifest of a row, opened once where it came with it.
    pub(super) async fn manifest(
        &self,
        blobs: &Blobs,
        row: &BlobRow,
        key: Option<&DomainKey>,
    ) -> Result<Arc<Manifest>, EngineError> {
        if row.inline.is_none() {
            return blobs.manifest(row, key).await;
        }
        let opened = self.last().clone().filter(|opened| opened.id.0 == row.id.0);
        if let Some(opened) = opened {
            return Ok(opened);
        }
        let manifest = blobs.manifest(row, key).await?;
        *self.last() = Some(manifest.clone());
        Ok(manifest)
    }

    fn last(&self) -> MutexGuard<'_, Option<Arc<Manifest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
