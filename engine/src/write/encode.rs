//! One segment, encoded: delta, zstd, planes or raw, whichever is best; a delta or planes only
//! after they gave the original back (I6).

use crate::{
    bases::{
        alone::Alone,
        moved::{CopiedBytes, middle_of},
        plan,
        region::Region,
        window::Window,
    },
    blobs::piece::BasePiece,
    config::Compression,
    deployment::veil::Veil,
    error::EngineError,
    metrics::Metrics,
    resources::pool::Scratch,
};
use bytes::Bytes;
use delta_codec::{BaseRange, Effort, EncodeJob, Encoder, FootprintLimits};
use object_format::{BlobId, Coding, ViewAddress, blob::segment_digest};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};
use tokio::time::Instant;

/// Blobs a footprint may cross into beyond the codec's own ranges: the codec gets so many ranges
/// less.
const RANGES_KEPT_FOR_CROSSINGS: usize = 4;

/// How the trials of one upload's base went, over all its regions.
#[derive(Default)]
pub(crate) struct Trials {
    helped: AtomicBool,
    useless: AtomicU32,
    /// The least a segment has taken alone, in thousandths, plus one; 0 while it has not been
    /// tried.
    alone_permille: AtomicU32,
}

impl Trials {
    /// False when the first trials gained nothing: the base is of another family.
    fn go_on(&self) -> bool {
        self.helped.load(Ordering::Relaxed) || self.useless.load(Ordering::Relaxed) < plan::USELESS_TRIALS_MAX
    }

    fn alone_permille(&self) -> Option<u32> {
        self.alone_permille.load(Ordering::Relaxed).checked_sub(1)
    }

    fn note_alone(&self, plain_len: usize, alone_len: Option<usize>) {
        let permille = alone_len.map_or(1000, |len| len.saturating_mul(1000) / plain_len.max(1));
        let shown = u32::try_from(permille).unwrap_or(u32::MAX - 1) + 1;
        let keep = |old: u32| Some(if old == 0 { shown } else { old.min(shown) });
        let _ = self.alone_permille.fetch_update(Ordering::Relaxed, Ordering::Relaxed, keep);
    }

    fn note(&self, helped: bool) {
        if helped {
            self.helped.store(true, Ordering::Relaxed);
        } else {
            self.useless.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How a segment may be encoded.
#[derive(Clone)]
pub(crate) struct SegmentPlan {
    /// The bucket's compression.
    pub(crate) compression: Compression,
    /// The upload's effort.
    pub(crate) effort: Effort,
    /// What to differ from.
    pub(crate) region: Option<Arc<Region>>,
    /// How the upload's base has done so far.
    pub(crate) trials: Arc<Trials>,
}

/// An encoded segment.
pub(crate) struct EncodedSegment {
    /// Plain bytes.
    pub(crate) plain_len: u32,
    /// How its stored bytes are to be read.
    pub(crate) coding: Coding,
    /// The stored bytes; `None` when they are the plain bytes.
    pub(crate) stored: Option<Vec<u8>>,
    /// Digest of the plain bytes.
    pub(crate) digest: [u8; 16],
    /// Base bytes a delta needs, in order.
    pub(crate) footprint: Vec<BasePiece>,
    /// Base bytes a deflate view needs: addresses in the view that its blob has.
    pub(crate) view_footprint: Vec<ViewAddress>,
    /// Where its content was found, less its place in the segment ([`middle_of`]).
    pub(crate) found: Option<(BlobId, i64)>,
}

impl EncodedSegment {
    /// True when it took bytes of its own that a base might have spared.
    pub(crate) fn misses_base(&self) -> bool {
        let stored = self.stored.as_ref().map_or(self.plain_len as usize, Vec::len);
        self.coding != Coding::Delta && plan::tells_of_a_base(self.plain_len as usize, stored)
    }
}

/// A segment that begins at `at`, under its veil.
pub(crate) fn under(veil: Option<Arc<dyn Veil>>, at: u64, plain: Bytes) -> Result<Bytes, EngineError> {
    let Some(veil) = veil else { return Ok(plain) };
    let mut bytes = plain.to_vec();
    veil.apply(at, &mut bytes)?;
    Ok(bytes.into())
}

/// Encodes one segment. Runs on the codec pool.
pub(crate) fn encode_segment(
    scratch: &mut Scratch,
    plain: &[u8],
    segment: &SegmentPlan,
    metrics: &Metrics,
) -> EncodedSegment {
    tracing::trace!(target: "path", "encode_segment()");
    let digest = segment_digest(plain);
    let plain_len = u32::try_from(plain.len()).unwrap_or(u32::MAX);
    let mut found = None;
    let done = |coding, stored, footprint| EncodedSegment {
        plain_len,
        coding,
        stored,
        digest,
        footprint,
        view_footprint: Vec::new(),
        found: None,
    };
    if segment.compression == Compression::Off {
        return done(Coding::Raw, None, Vec::new());
    }
    let delta = segment
        .region
        .as_ref()
        .filter(|_| segment.trials.go_on())
        .and_then(|region| encode_delta(scratch, plain, region, segment.effort, metrics, &mut found));
    if segment.effort == Effort::Max {
        // Its work memory is lent for as long as the blob takes; a thread keeps none of it.
        scratch.encoder = Encoder::new();
    }
    let of_base = segment.region.as_ref().and_then(|region| region.alone_permille);
    let alone_permille = segment.trials.alone_permille().into_iter().chain(of_base).min();
    if let Some((bytes, footprint)) = delta.as_ref()
        && plan::delta_settles_it(plain.len(), bytes.len(), alone_permille)
    {
        segment.trials.note(true);
        let footprint = footprint.clone();
        return EncodedSegment { found, ..done(Coding::Delta, delta.map(|(bytes, _)| bytes), footprint) };
    }
    let alone = Alone::encode(plain, segment.effort, &mut scratch.plain, Some(metrics));
    let alone_len = alone.as_ref().map(|alone| (alone.coding, alone.bytes.len()));
    segment.trials.note_alone(plain.len(), alone_len.map(|(_, len)| len));
    let coding = plan::pick_coding(plain.len(), delta.as_ref().map(|(bytes, _)| bytes.len()), alone_len);
    if segment.region.is_some() {
        segment.trials.note(coding == Coding::Delta);
    }
    match (coding, delta, alone) {
        (Coding::Delta, Some((bytes, footprint)), _) => {
            EncodedSegment { found, ..done(Coding::Delta, Some(bytes), footprint) }
        }
        (Coding::Zstd | Coding::Planes, _, Some(alone)) => done(alone.coding, Some(alone.bytes), Vec::new()),
        _ => done(Coding::Raw, None, Vec::new()),
    }
}

/// A delta that has been decoded and compared, with the base bytes it needs; and where most of it
/// was found, which nobody asks where the window has all of its base.
fn encode_delta(
    scratch: &mut Scratch,
    plain: &[u8],
    region: &Region,
    effort: Effort,
    metrics: &Metrics,
    found: &mut Option<(BlobId, i64)>,
) -> Option<(Vec<u8>, Vec<BasePiece>)> {
    let started = Instant::now();
    let window = &region.window;
    let limits = FootprintLimits::default();
    let job = EncodeJob {
        window: &window.plain,
        index: window.index(effort),
        layout: &window.layout,
        target: plain,
        effort,
        limits: FootprintLimits { ranges_max: limits.ranges_max - RANGES_KEPT_FOR_CROSSINGS, ..limits },
        delta_len_max: plain.len() - plain.len() / 8,
    };
    let mut bytes = Vec::new();
    let encoded = scratch.encoder.encode(&job, &mut bytes);
    window.has_served(plain.len());
    metrics.encode_seconds.with_label_values(&["delta"]).observe(started.elapsed().as_secs_f64());
    let Some(encoded) = encoded else {
        metrics.wasted_encode_seconds_total.inc_by(started.elapsed().as_secs_f64());
        return None;
    };
    let footprint = window.pieces_of(&encoded.footprint);
    if footprint.len() > super::view::FOOTPRINT_RUNS_MAX {
        return None;
    }
    if !gives_back(scratch, plain, &bytes, &window.plain, &encoded.footprint) {
        // I6: never stored; a person should look.
        metrics.checksum_failures_total.with_label_values(&["encoder"]).inc();
        tracing::error!(
            plain_len = plain.len(),
            delta_len = bytes.len(),
            "a delta did not decode to its original; stored without it"
        );
        return None;
    }
    if region.is_part {
        *found = place_in(scratch, window, &encoded.footprint, plain);
    }
    Some((bytes, footprint))
}

/// Where the content of the delta that was decoded last lies in the base.
fn place_in(scratch: &Scratch, window: &Window, footprint: &[BaseRange], plain: &[u8]) -> Option<(BlobId, i64)> {
    let mut ranges = Vec::with_capacity(footprint.len());
    let mut before = 0;
    for range in footprint {
        ranges.push((before, range.offset));
        before += u64::from(range.len);
    }
    let copied = |run: delta_codec::CopiedRun| {
        let bytes = plain.get(run.at as usize..(run.at + run.len) as usize)?;
        // Zeros are found anywhere.
        let (first, rest) = bytes.split_first()?;
        if rest.iter().all(|byte| byte == first) {
            return None;
        }
        let source = u64::from(run.source);
        let (before, offset) = *ranges.get(ranges.partition_point(|(before, _)| *before <= source).checked_sub(1)?)?;
        let (blob, offset) = window.place_of(offset + (source - before))?;
        Some(CopiedBytes { at: run.at.into(), len: run.len.into(), blob, offset })
    };
    middle_of(plain.len() as u64, scratch.decoder.copied_runs().filter_map(copied))
}

fn gives_back(scratch: &mut Scratch, plain: &[u8], delta: &[u8], window: &[u8], footprint: &[BaseRange]) -> bool {
    let slice = |run: &BaseRange| {
        let start = usize::try_from(run.offset).ok()?;
        window.get(start..start.checked_add(run.len as usize)?)
    };
    let Some(base) = footprint.iter().map(slice).collect::<Option<Vec<_>>>() else { return false };
    let Scratch { decoder, plain: decoded, .. } = scratch;
    decoded.resize(plain.len(), 0);
    decoder.decode_pieces(&base, delta, decoded).is_ok() && decoded == plain
}
