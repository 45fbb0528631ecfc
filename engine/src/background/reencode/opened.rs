//! What is known of the streams of content that is being encoded anew.

use crate::{
    bases::{base::VIEW_LEN_MAX, plan::DELTA_LEN_MIN, text::TextSketch},
    bucket::BucketHandle,
    config::Compression,
    error::EngineError,
    write::scans::Scanned,
};
use catalog::{BlobKey, BlobRow};
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// Blobs that are remembered as opened.
const OPENED_MAX: usize = 16_384;

/// The blobs whose streams were opened lately although they stay as they are.
#[derive(Default)]
pub(crate) struct OpenedLately(Mutex<HashSet<BlobKey>>);

impl OpenedLately {
    /// True when a blob is asked about for the first time; when there are too many, all are
    /// forgotten.
    pub(super) fn is_first(&self, blob: BlobKey) -> bool {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.len() >= OPENED_MAX {
            opened.clear();
        }
        opened.insert(blob)
    }
}

/// What is known of the streams of some content.
#[derive(Default)]
pub(super) enum OpenedText {
    /// Nothing: nobody has looked.
    #[default]
    Unknown,
    /// There are none.
    Nothing,
    /// What their text resembles.
    Text(Box<TextSketch>),
}

impl OpenedText {
    /// Takes in what a scan found. The first that has streams counts: it is that of the whole
    /// object.
    pub(super) fn note(&mut self, scanned: &Scanned) {
        if !matches!(self, Self::Text(_)) {
            *self = if scanned.is_plain() { Self::Nothing } else { Self::Text(Box::new(scanned.text.clone())) };
        }
    }
}

/// Whether content may have streams that are opened for others.
pub(super) fn may_be_opened(bucket: &BucketHandle, old: &BlobRow) -> bool {
    bucket.settings.compression == Compression::Delta && (DELTA_LEN_MIN..=VIEW_LEN_MAX).contains(&old.plain_len)
}

/// What became of content over a base whose streams are opened; nothing where that is damaged, or
/// did not give the content back, because encoding may give up (I7). Damage of the content itself
/// is met again without a base.
pub(super) fn given_up<T>(outcome: Result<Option<T>, EngineError>) -> Result<Option<T>, EngineError> {
    match outcome {
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "content could not be encoded over the streams of a base: encoded without them");
            Ok(None)
        }
        outcome => outcome,
    }
}
