//! Multipart uploads that no client completed or aborted: the job `uploads` aborts each one that is
//! older than `limits.upload_age_max`, which frees its parts. A lifecycle rule may abort sooner
//! ([`super::lifecycle`]); [`super::leftovers`] aborts what a dead process left at a backend.

use crate::{
    background::jobs::run::JobRun,
    deployment::writer::Writer,
    error::EngineError,
    resources::clock::{millis, now_ms},
};
use catalog::Catalog;
use serde::Serialize;
use std::{sync::Arc, time::Duration};

/// Uploads taken from the catalog at a time.
const BATCH: usize = 1024;
/// How long a completed upload is remembered, so that Complete is idempotent.
const COMPLETED_UPLOADS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// What the job `uploads` did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Expiry {
    /// Uploads aborted because of their age.
    expired: u64,
    /// Completed ones that are not remembered any more.
    forgotten: u64,
}

/// Aborts uploads past their age.
pub(crate) struct UploadExpiry {
    pub(crate) age_max: Duration,
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) writer: Arc<Writer>,
}

impl UploadExpiry {
    /// The job `uploads`.
    pub(crate) async fn expire_uploads_once(&self, run: &JobRun) -> Result<Expiry, EngineError> {
        let mut report = Expiry::default();
        let before = now_ms() - millis(self.age_max);
        loop {
            let stale = self.catalog.stale_uploads(before, BATCH).await?;
            if stale.is_empty() {
                break;
            }
            for upload in stale {
                run.check()?;
                let aborted = self.catalog.abort(upload.bucket, &upload.key, upload.id, self.writer.epoch()).await?;
                report.expired += u64::from(aborted);
                run.progress(report.expired, None);
            }
        }
        let kept = now_ms() - millis(COMPLETED_UPLOADS_KEPT);
        report.forgotten = self.catalog.forget_completed_uploads(kept).await?;
        Ok(report)
    }
}
