//! A body that its quota does not allow is refused before it is read.

use super::{publish::Publisher, stage::Destination};
use crate::{bucket::BucketHandle, error::EngineError};
use catalog::{CatalogError, Growth, Versioning};

/// Shorter bodies are refused when they are committed: reading them costs less than a question.
const ASKED_FROM_BYTES: u64 = 1 << 20;

impl Publisher {
    /// Asks whether a body of so many bytes would be within the quotas, as things stand.
    ///
    /// # Errors
    /// [`EngineError::QuotaExceeded`], or what the catalog says.
    pub async fn check_room(
        &self,
        bucket: &BucketHandle,
        destination: &Destination,
        bytes: u64,
    ) -> Result<(), EngineError> {
        if bytes < ASKED_FROM_BYTES {
            return Ok(());
        }
        let id = bucket.row.id;
        let is_version = matches!(destination, Destination::Object { .. });
        let growth = Growth { bytes, replaces: None, is_version };
        let refused = match self.catalog.has_room(id, growth).await {
            Err(CatalogError::QuotaExceeded(whose)) => EngineError::QuotaExceeded(whose),
            answered => return Ok(answered?),
        };
        // Perhaps it takes the place of something that is as large.
        let replaces = match (destination, bucket.row.versioning) {
            (Destination::Part { upload, number, .. }, _) => {
                self.catalog.part(*upload, *number).await?.map(|part| part.size)
            }
            (Destination::Object { key }, Versioning::Off) => {
                self.catalog.current(id, key).await?.map(|version| version.size)
            }
            (Destination::Object { .. }, Versioning::Enabled) => None,
            // Which version it replaces is known when it is committed.
            (Destination::Object { .. }, Versioning::Suspended) => return Ok(()),
        };
        match replaces {
            None => Err(refused),
            replaces => Ok(self.catalog.has_room(id, Growth { replaces, ..growth }).await?),
        }
    }
}
