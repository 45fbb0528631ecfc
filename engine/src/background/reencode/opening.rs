//! What the text of content resembles that stays whole: remembered, so that content of another name
//! finds it by what is inside.

use super::{
    Reencoder, Reform,
    opened::{OpenedText, may_be_opened},
};
use crate::{
    bases::similar::UNSKETCHED_LEN_MAX,
    bucket::BucketHandle,
    error::EngineError,
    write::scans::{ScanFor, ScanningBeside},
};
use catalog::{BlobForm, BlobRow};

impl Reencoder {
    /// Tells the catalog what the text of a whole blob resembles. It is advice: what is lost here
    /// costs a base that is not found.
    pub(super) async fn remember_text(&self, row: &BlobRow, text: OpenedText) {
        let OpenedText::Text(text) = text else { return };
        if row.form != BlobForm::Whole || row.pack || row.plain_len <= UNSKETCHED_LEN_MAX {
            return;
        }
        // Not through the queue: the next blob that is encoded anew may look for this one.
        if let Err(error) = self.catalog.remember_hooks(vec![text.hooks_of(row)]).await {
            tracing::warn!(%error, "the hooks of a text could not be written: content search misses it");
        }
    }

    /// Opens the streams of content that stays as it is. What was opened lately is known: a base is
    /// met once for each version that names it.
    pub(super) async fn open_text(
        &self,
        bucket: &BucketHandle,
        old: &BlobRow,
        reform: &Reform,
        text: &mut OpenedText,
    ) -> Result<Option<()>, EngineError> {
        if may_be_opened(bucket, old) && !old.pack && self.opened.is_first(old.id) {
            let source = self.read.open_stored(bucket, old)?;
            let scanned = self.views.scan(bucket, &source, ScanFor::Target, &reform.pace).await?;
            text.note(&scanned);
            self.views.keep_scan(&source, scanned);
        }
        Ok(Some(()))
    }

    /// A scan of content that is being read for something else, where nobody has looked yet.
    pub(super) fn scanning_beside(&self, bucket: &BucketHandle, old: &BlobRow, text: &OpenedText) -> ScanningBeside {
        let wanted = matches!(text, OpenedText::Unknown) && may_be_opened(bucket, old);
        self.views.scanning_beside(wanted.then_some(bucket))
    }
}
