//! Segments that are deflate views (docs/format/deflate-view-v1.md §12): the units that cover a
//! range are decoded over just the base bytes they name.
//!
//! ```text
//! stored bytes -> units that cover the range -> base bytes they name -> plain text opened (and kept) -> units decoded and compared
//! ```

use crate::{
    blobs::{
        base_reader::{BaseReader, pieces_of},
        open::{Blobs, Manifest, damaged},
        texts::OpenedTexts,
    },
    error::EngineError,
    metrics::Metrics,
    resources::pool::Scratch,
};
use bytes::Bytes;
use deflate_view::{BaseBytes, Malformed, Opening, Run, SegmentForm, SegmentView, joined};
use futures::{StreamExt, TryStreamExt, future};
use object_format::{Coding, Segment, ViewAddress, ViewRange, blob::segment_digest};
use std::{ops::Range, sync::Arc};
use tokio::time::Instant;

/// Ranges of a base that lie no farther apart are read as one.
const GAP_READ: u64 = 128 << 10;
/// Base ranges that are read at the same time.
const READS_AT_ONCE: usize = 8;

/// What was copied in the delta that the scratch's decoder decoded last.
pub(crate) fn copied_runs(scratch: &Scratch) -> Vec<Run> {
    let one = |run: delta_codec::CopiedRun| Run { at: run.at, len: run.len, base: run.source, is_equal: run.is_equal };
    scratch.decoder.copied_runs().map(one).collect()
}

fn too_short() -> EngineError {
    damaged("segment shorter than its row says")
}

/// A segment taken apart, and the base bytes that were read for it.
struct Decoding {
    segment: SegmentView,
    base: BaseBytes,
}

impl Blobs {
    /// Bytes `within` of a view's segment for whoever downloads them; `decode` gives these. All of
    /// a segment is kept for the next one: its streams take tens of times as long to put together
    /// as to send.
    pub(crate) async fn view_piece(
        &self,
        manifest: &Manifest,
        (index, segment): (u64, &Segment),
        within: Range<u32>,
        decode: impl Future<Output = Result<Vec<u8>, EngineError>>,
    ) -> Result<Bytes, EngineError> {
        if let Some(kept) = self.kept_segment("view", manifest, index).await {
            let cut = within.start as usize..within.end as usize;
            return (cut.end <= kept.len()).then(|| kept.slice(cut)).ok_or_else(too_short);
        }
        if within == (0..segment.plain_len) {
            return self.keep_segment(manifest, index, decode).await;
        }
        decode.await.map(Bytes::from)
    }

    /// Bytes `within` of a segment that is a deflate view, the digests of its units checked, or
    /// that of the segment where all of it is read (I4).
    pub(crate) async fn view_range(
        &self,
        manifest: &Manifest,
        segment: &Segment,
        within: Range<u32>,
        bases: &BaseReader<'_>,
    ) -> Result<Vec<u8>, EngineError> {
        let stored = Vec::from(self.stored_bytes(manifest, segment).await?);
        let (plain_len, range) = ((segment.plain_len, form_of(segment.coding)), within.clone());
        let run = |run: &ViewAddress| run.offset..run.offset + u64::from(run.len);
        let footprint: Vec<Range<u64>> = segment.footprint.iter().map(run).collect();
        let planned = self.pool.run(move |_| SegmentView::plan(stored, plain_len, &range, &footprint, decompress));
        let (view, plan) = planned.await?.map_err(|error| damaged(error.0))?;
        let base = self.view_bytes(&manifest.root.view, plan.needed, bases).await?;
        let decoding = Arc::new(Decoding { segment: view, base });
        let units = plan.units.iter().map(|number| {
            let (decoding, number) = (decoding.clone(), *number);
            let (texts, metrics) = (self.texts().clone(), self.metrics.clone());
            async move {
                self.pool.run(move |scratch| decode_unit(scratch, &decoding, number, &texts, &metrics)).await?
            }
        });
        let units: Vec<Vec<u8>> = future::try_join_all(units).await?;
        let plain = units.concat();
        if plan.units.len() == decoding.segment.units() && segment_digest(&plain) != segment.digest {
            self.metrics.checksum_failures_total.with_label_values(&["segment"]).inc();
            return Err(damaged("segment digest").of_blob(manifest.id));
        }
        let cut = (within.start - plan.start) as usize..(within.end - plan.start) as usize;
        match plain.get(cut.clone()) {
            Some(_) if cut == (0..plain.len()) => Ok(plain),
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(too_short()),
        }
    }

    /// Ranges of a base view, which lie in whole blobs.
    pub(crate) async fn view_bytes(
        &self,
        view: &[ViewRange],
        ranges: Vec<Range<u64>>,
        bases: &BaseReader<'_>,
    ) -> Result<BaseBytes, EngineError> {
        let reads = joined(ranges, GAP_READ).into_iter().map(|range| async move {
            let len = u32::try_from(range.end - range.start).map_err(|_| EngineError::TooLarge)?;
            let run = ViewAddress { offset: range.start, len };
            let mut bytes = Vec::with_capacity(len as usize);
            for piece in pieces_of(view, &[run])? {
                let base = bases.manifest(self, &piece).await?;
                for slice in self.base_bytes(&base, piece.offset..piece.end()).await? {
                    bytes.extend_from_slice(&slice);
                }
            }
            Ok::<_, EngineError>((range.start, bytes))
        });
        Ok(BaseBytes(futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?))
    }
}

/// How the bytes of a segment that is a view are to be read.
fn form_of(coding: Coding) -> SegmentForm {
    if coding == Coding::GappedView { SegmentForm::Gapped } else { SegmentForm::Whole }
}

/// The windows of a segment, unpacked.
fn decompress(frame: &[u8], windows: &mut [u8]) -> Result<(), Malformed> {
    delta_codec::whole::decompress(frame, windows).map_err(|error| Malformed(error.0))
}

/// One unit, its digest checked. Runs on the codec pool.
fn decode_unit(
    scratch: &mut Scratch,
    decoding: &Decoding,
    number: usize,
    texts: &OpenedTexts,
    metrics: &Metrics,
) -> Result<Vec<u8>, EngineError> {
    let started = Instant::now();
    let Decoding { segment, base } = decoding;
    let open = |opening: &Opening, window: &[u8], bytes: &[u8]| texts.open(opening, window, bytes);
    let decoded = segment.unit(number, base, open, |base, delta, text| {
        scratch.decoder.decode(base, delta, text).map_err(|error| Malformed(error.0))?;
        Ok(copied_runs(scratch))
    });
    let plain = decoded.map_err(|error| damaged(error.0))?;
    if !segment.is_unit(number, &plain) {
        metrics.checksum_failures_total.with_label_values(&["segment"]).inc();
        return Err(damaged("the digest of a unit"));
    }
    metrics.decode_seconds.with_label_values(&["view"]).observe(started.elapsed().as_secs_f64());
    Ok(plain)
}
