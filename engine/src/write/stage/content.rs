//! A blob on its way: everything but its manifest.

use crate::{
    bases::{
        account::ChoiceAccount,
        choose::Choice,
        plan::{BaseOutcome, INLINE_LEN_MAX},
        similar::RegionSketch,
    },
    blobs::{piece::BasePiece, pins::Pin, upload::Outlet},
    bucket::BucketHandle,
    deployment::keyring::random,
    error::EngineError,
    resources::budget::Permit,
    write::{encode::EncodedSegment, views::BaseView},
};
use catalog::FormBytes;
use object_format::{BlobId, BlobKind, BlobSpec, BlobWriter, Coding, Seal, Segment, Suite, ViewRange};
use std::{ops::Range, sync::Arc};

/// Shorter pieces wait for the next one. A backend that gathers parts copies short pieces together,
/// and a copy holds no permit (I8).
pub(super) const PIECE_LEN_MIN: usize = 64 << 10;

/// A blob but for its manifest. It is handed on behind a pointer: its writer alone is half a
/// kilobyte.
pub(crate) struct UnfinishedBlob {
    pub(crate) id: BlobId,
    pub(crate) writer: BlobWriter,
    /// Sealed bytes not sent on yet.
    pub(crate) tail: Vec<u8>,
    /// What they hold of the budget once the blob is on its way.
    pub(crate) tail_permit: Option<Permit>,
    /// `None` while the blob is short enough to live in the catalog.
    pub(crate) outlet: Option<Outlet>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) footprints: Vec<Vec<BasePiece>>,
    /// The base view where it is settled, and what it is of; otherwise it follows from the
    /// footprints.
    pub(crate) view: Option<(Vec<ViewRange>, Arc<BaseView>)>,
    pub(crate) forms: FormBytes,
    pub(crate) plain_len: u64,
    /// What its regions resemble; empty where that does not matter.
    pub(crate) sketches: Vec<RegionSketch>,
    /// The bases of its regions and how they were chosen; holds the bases against collection.
    pub(crate) choices: Vec<Arc<Choice>>,
    pub(crate) base_outcome: BaseOutcome,
    /// It is to be encoded better later.
    pub(crate) deferred: bool,
    /// Keeps base blobs from being collected until the commit has its edges; the windows themselves
    /// go as soon as their segments are encoded.
    pub(crate) pins: Vec<Arc<Vec<Pin>>>,
}

impl UnfinishedBlob {
    /// A blob of which nothing has been written.
    pub(super) fn begin(id: BlobId, bucket: &BucketHandle, kind: BlobKind) -> Result<Box<Self>, EngineError> {
        let seal = match bucket.domain_key() {
            Some(key) => Seal::Aes256Gcm { key, salt: random()? },
            None => Seal::None,
        };
        let mut tail = Vec::new();
        let writer = BlobWriter::new(BlobSpec { id, kind, seal }, &mut tail);
        Ok(Box::new(Self {
            id,
            writer,
            tail,
            tail_permit: None,
            outlet: None,
            segments: Vec::new(),
            footprints: Vec::new(),
            view: None,
            forms: FormBytes::default(),
            plain_len: 0,
            sketches: Vec::new(),
            choices: Vec::new(),
            base_outcome: BaseOutcome::None,
            deferred: false,
            pins: Vec::new(),
        }))
    }

    /// How its bases were chosen.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &ChoiceAccount> {
        self.choices.iter().map(|choice| &choice.account)
    }

    /// Keys of the bases that were chosen, each once.
    pub(crate) fn base_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        for base in self.choices.iter().flat_map(|choice| &choice.bases) {
            if !keys.contains(&base.object.key) {
                keys.push(base.object.key.clone());
            }
        }
        keys
    }

    pub(super) fn note(&mut self, encoded: &EncodedSegment) {
        let plain_len = u64::from(encoded.plain_len);
        let stored_len = encoded.stored.as_ref().map_or(plain_len, |stored| stored.len() as u64);
        match encoded.coding {
            Coding::Raw => self.forms.raw_plain += plain_len,
            Coding::Zstd | Coding::Planes => {
                self.forms.zstd_plain += plain_len;
                self.forms.zstd_stored += stored_len;
            }
            Coding::Delta | Coding::View | Coding::GappedView => {
                self.forms.delta_plain += plain_len;
                self.forms.delta_stored += stored_len;
            }
        }
        self.plain_len += plain_len;
        self.segments.push(Segment {
            plain_len: encoded.plain_len,
            stored_offset: self.writer.payload_len(),
            stored_len: u32::try_from(stored_len).unwrap_or(u32::MAX),
            coding: encoded.coding,
            digest: encoded.digest,
            footprint: encoded.view_footprint.clone(),
        });
        self.footprints.push(encoded.footprint.clone());
    }

    /// Seals a segment's stored bytes. What leaves as it came is not copied: where in `stored` that
    /// lies, behind the tail.
    pub(super) fn seal(mut self: Box<Self>, stored: &[u8]) -> Result<(Box<Self>, Range<usize>), EngineError> {
        // What may end in the catalog is put together.
        if self.writer.header().suite == Suite::None && self.plain_len > INLINE_LEN_MAX {
            let mut in_place = self.writer.push_in_place(stored, &mut self.tail)?;
            if !in_place.is_empty() && self.tail.len() < PIECE_LEN_MIN {
                // Only the header is this short.
                let end = in_place.end.min(in_place.start + PIECE_LEN_MIN);
                self.tail.extend_from_slice(&stored[in_place.start..end]);
                in_place.start = end;
            }
            return Ok((self, in_place));
        }
        self.tail.reserve(stored.len() + stored.len() / 1024 + 256);
        self.writer.push(stored, &mut self.tail)?;
        Ok((self, 0..0))
    }
}
