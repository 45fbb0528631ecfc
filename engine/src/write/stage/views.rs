//! Staging over a base whose deflate streams are opened: the segments become deflate views where
//! that is worth it (docs/decisions/0020-deflate-views.md).

use super::{
    StagedBody, Stager,
    body::{BodyReader, ContentDigest, HashLane},
    content::UnfinishedBlob,
    encoding::{AbortOnDrop, Encoded, Encoder, emit, joined_content},
};
use crate::{
    bases::{
        alone::Alone,
        choose::Choice,
        plan::{self, BaseOutcome},
    },
    blobs::{base_reader::BaseReader, views::copied_runs},
    bucket::BucketHandle,
    error::EngineError,
    read::object::OpenObject,
    resources::{pace::Pace, pool::Scratch},
    write::{
        encode::EncodedSegment,
        scans::Scanned,
        views::{BaseView, BaseViews, TextWindow},
    },
};
use bytes::Bytes;
use deflate_view::{
    AHEAD_LEN, BasePart, CutLimits, Cutter, ReplayId, Replaying, SegmentForm, StoredPiece, StoredView, Stream, TextMap,
    UNIT_LEN_MAX, Unit, UnitBase, UnitCheck, UnitDelta, WindowText, recognise,
};
use delta_codec::{Effort, EncodeJob, FootprintLimits, whole};
use futures::StreamExt;
use object_format::{BlobKind, Coding, SEGMENT_LEN, ViewAddress, blob::segment_digest};
use std::{ops::Range, sync::Arc};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Memory beside the window: a unit with its text, base and matches, and the segments around it.
const WORK_BYTES: u64 = 64 << 20;
/// Text of a unit: half of the most there can be. A short range costs half as much to read, and
/// the stored form grows by one to four hundredths.
const UNIT_TEXT_LEN_MAX: usize = 2 << 20;
/// The same where a unit of the most would take too long to read: halved until it does not, but no
/// further than this.
const UNIT_TEXT_LEN_MIN: usize = 256 << 10;
/// Nanoseconds that a unit may take to read: a short range reads two of them at most.
const UNIT_NS_MAX: u64 = 45_000_000;
/// Ranges of the base's text that a unit copies from. Each opens up to a mebibyte that the unit may
/// need little of, and adds a window to the segment: more of them make it larger and slower to
/// read.
const UNIT_RANGES_MAX: usize = 3;
/// Bytes behind a segment that the cutter looks at.
const LOOK_AHEAD: usize = AHEAD_LEN - UNIT_LEN_MAX;

/// How content is encoded over a base whose streams are opened.
#[derive(Clone, Copy)]
pub(crate) struct ViewManner<'a> {
    /// How hard the codec tries.
    pub(crate) effort: Effort,
    /// How fast content may be read for it.
    pub(crate) pace: &'a Pace,
    /// When units are seen to give their bytes back.
    pub(crate) check: UnitCheck,
}

/// Encodes one object's segments, in order.
struct ViewEncoder<'a> {
    encoder: &'a Encoder,
    views: &'a BaseViews,
    bucket: &'a BucketHandle,
    base: Arc<BaseView>,
    map: Arc<TextMap>,
    effort: Effort,
    check: UnitCheck,
    /// `None` while a job of the pool has it.
    cutter: Option<Cutter<Arc<Stream>>>,
    window: Option<Arc<TextWindow>>,
    replay: Option<ReplayId>,
    /// What a search of it took, in the unit that told last.
    search_ns: u64,
    /// Nanoseconds of decoding that a byte saved may cost.
    ns_per_byte_max: Option<u64>,
    /// Bytes of the object before the next segment, and in all.
    at: u64,
    len: u64,
}

impl Stager {
    /// Encodes content over a base whose streams are opened. `None` when no segment is worth it, or
    /// there is no memory for it just now.
    ///
    /// # Errors
    /// As [`Stager::stage`].
    pub(crate) async fn stage_in_view(
        self: &Arc<Self>,
        views: &BaseViews,
        bucket: &BucketHandle,
        source: &OpenObject,
        (target, base): (&Scanned, Arc<BaseView>),
        manner: ViewManner<'_>,
    ) -> Result<Option<StagedBody<()>>, EngineError> {
        let Some(_work) = self.budget.try_acquire(WORK_BYTES) else { return Ok(None) };
        let size = source.info.version.size;
        let mut encoder = ViewEncoder::new((&self.encoder, views), bucket, target, base.clone(), manner, size);
        let content = UnfinishedBlob::begin(self.encoder.writer.blob_id()?, bucket, BlobKind::Delta)?;
        let (encoded, receiver) = mpsc::channel(1);
        let mut emitting = AbortOnDrop(tokio::spawn(emit(self.encoder.clone(), bucket.clone(), content, receiver)));
        let mut hashing = HashLane::new(self.hash_pool.clone(), self.md5_lanes.clone(), ContentDigest::default());
        let mut reader = BodyReader::new(views.read.read(source, 0..size).boxed());
        let mut next = Bytes::from(reader.fill_memory(SEGMENT_LEN).await?);
        while !next.is_empty() {
            manner.pace.take(next.len() as u64).await;
            let plain = next;
            next = reader.fill_memory(SEGMENT_LEN).await?.into();
            hashing.push(plain.clone()).await?;
            let Some(segment) = encoder.segment(&plain, &next).await? else { return Ok(None) };
            let permit = self.budget.acquire(2 * plain.len() as u64).await?;
            let job = tokio::spawn(async move { Ok(Encoded { segment, plain, permit, pins: None }) });
            if encoded.send(Some(job)).await.is_err() {
                break;
            }
        }
        let _ = encoded.send(None).await;
        let mut content = joined_content(&mut emitting).await?;
        let ((), sha256) = hashing.finish().await?;
        if !content.segments.iter().any(|segment| segment.coding.has_base()) {
            return Ok(None);
        }
        // Held until the commit has its edges.
        content.view = Some((base.ranges.clone(), base.clone()));
        let mut choice = Choice::settled(std::slice::from_ref(&base.object));
        choice.account.candidates.clone_from(&base.candidates);
        content.choices = vec![Arc::new(choice)];
        content.base_outcome = BaseOutcome::Tried;
        Ok(Some(StagedBody { digests: (), sha256, plain_len: content.plain_len, content }))
    }
}

impl<'a> ViewEncoder<'a> {
    fn new(
        (encoder, views): (&'a Encoder, &'a BaseViews),
        bucket: &'a BucketHandle,
        target: &Scanned,
        base: Arc<BaseView>,
        manner: ViewManner<'_>,
        len: u64,
    ) -> Self {
        let (opened, kept) = target.index.divided(&base.scanned.index.identities());
        let streams = &encoder.metrics.view_streams_total;
        streams.with_label_values(&["opened"]).inc_by(opened.len() as u64);
        streams.with_label_values(&["same"]).inc_by((target.index.streams.len() - opened.len()) as u64);
        let nested = opened.iter().map(|stream| stream.nested.len()).sum::<usize>();
        streams.with_label_values(&["nested"]).inc_by(nested as u64);
        let gapped = opened.iter().filter(|stream| stream.gaps.is_some()).count();
        streams.with_label_values(&["gapped"]).inc_by(gapped as u64);
        Self {
            encoder,
            views,
            bucket,
            map: Arc::new(TextMap::new(&base.scanned.index, &kept)),
            base,
            // The window's index and the unit's text are all the memory there is for it.
            effort: manner.effort.min(Effort::High),
            check: manner.check,
            cutter: Some(Cutter::new(
                opened.into_iter().map(Arc::new).collect(),
                len,
                CutLimits { text_len_max: UNIT_TEXT_LEN_MAX, ..CutLimits::default() },
            )),
            window: None,
            replay: None,
            search_ns: 0,
            ns_per_byte_max: plan::view_ns_per_byte_max(bucket.settings.effort),
            at: 0,
            len,
        }
    }

    /// The next segment, in whichever coding is shortest; `None` when the streams are not what they
    /// were.
    async fn segment(&mut self, plain: &Bytes, next: &[u8]) -> Result<Option<EncodedSegment>, EngineError> {
        let (start, end) = (self.at, self.at + plain.len() as u64);
        self.at = end;
        let mut ahead = plain.to_vec();
        ahead.extend_from_slice(&next[..next.len().min(LOOK_AHEAD)]);
        let ahead = Arc::new(ahead);
        let window = self.window_near(start).await?;
        let mut pieces: Option<Vec<StoredPiece>> = Some(Vec::new());
        loop {
            let Some(mut cutter) = self.cutter.take() else { return Ok(None) };
            let bytes = ahead.clone();
            let cut = self.encoder.pool.run(move |_| {
                let from = (cutter.position() - start) as usize;
                let unit = cutter.next_until(&bytes[from.min(bytes.len())..], end);
                (cutter, unit)
            });
            let (cutter, unit) = cut.await?;
            self.cutter = Some(cutter);
            match unit {
                Ok(None) => break,
                Ok(Some(unit)) => {
                    let Some(window) = &window else { return Ok(None) };
                    let piece = match &pieces {
                        Some(_) => self.unit(unit, start, &ahead, window.clone()).await?,
                        None => None,
                    };
                    let is_slow = piece.as_ref().is_some_and(|piece| piece.reading_ns > UNIT_NS_MAX);
                    if is_slow && self.ns_per_byte_max.is_some() && self.shorter_units(start) {
                        pieces = Some(Vec::new());
                        continue;
                    }
                    pieces = pieces.zip(piece).map(|(mut pieces, piece)| {
                        pieces.push(piece);
                        pieces
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "deflate streams could not be divided; stored without a view");
                    return Ok(None);
                }
            }
        }
        let (metrics, compression_effort, bytes) = (self.encoder.metrics.clone(), self.effort, plain.clone());
        let encode =
            move |scratch: &mut Scratch| Alone::encode(&bytes, compression_effort, &mut scratch.plain, Some(&metrics));
        let alone = self.encoder.pool.run(encode).await?;
        Ok(Some(self.choose(plain, pieces.and_then(|pieces| self.view_of(pieces)), alone)))
    }

    /// Halves the text of the units behind. True where the object begins with them anew, since its
    /// first segment is at hand.
    fn shorter_units(&mut self, start: u64) -> bool {
        let Some(cutter) = &mut self.cutter else { return false };
        let begins_anew = cutter.halve_text(UNIT_TEXT_LEN_MIN) && start == 0;
        if begins_anew {
            cutter.begin_anew();
        }
        begins_anew
    }

    /// The coding that takes least, a view only where what it saves is worth the time of reading
    /// it.
    fn choose(&self, plain: &[u8], view: Option<StoredView>, alone: Option<Alone>) -> EncodedSegment {
        let otherwise = alone.as_ref().map_or(plain.len(), |alone| alone.bytes.len().min(plain.len())) as u64;
        let view = view.filter(|view| {
            let stored = view.bytes.len() as u64;
            plan::view_is_worth_reading(otherwise, stored, view.reading_ns, self.ns_per_byte_max)
        });
        let digest = segment_digest(plain);
        let plain_len = u32::try_from(plain.len()).unwrap_or(u32::MAX);
        let done = |coding, stored, view_footprint| EncodedSegment {
            plain_len,
            coding,
            stored,
            digest,
            footprint: Vec::new(),
            view_footprint,
            found: None,
        };
        let view_len = view.as_ref().map(|view| view.bytes.len());
        let alone_len = alone.as_ref().map(|alone| (alone.coding, alone.bytes.len()));
        match plan::pick_view(plain.len(), view_len, alone_len) {
            Coding::View | Coding::GappedView => {
                let Some(StoredView { bytes, form, footprint, counts, .. }) = view else {
                    return done(Coding::Raw, None, Vec::new());
                };
                let steps = &self.encoder.metrics.view_steps_total;
                for (result, count) in [
                    ("predicted", counts.steps - counts.missed),
                    ("replayed", counts.replayed),
                    ("written", counts.missed - counts.replayed),
                ] {
                    steps.with_label_values(&[result]).inc_by(count);
                }
                let address = |run: &Range<u64>| ViewAddress { offset: run.start, len: (run.end - run.start) as u32 };
                let coding = match form {
                    SegmentForm::Whole => Coding::View,
                    SegmentForm::Gapped => Coding::GappedView,
                };
                done(coding, Some(bytes), footprint.iter().map(address).collect())
            }
            coding @ (Coding::Zstd | Coding::Planes) => done(coding, alone.map(|alone| alone.bytes), Vec::new()),
            Coding::Raw | Coding::Delta => done(Coding::Raw, None, Vec::new()),
        }
    }

    /// The text of the base around where the segment presumably came from; `None` when there is no
    /// memory for it.
    async fn window_near(&mut self, at: u64) -> Result<Option<Arc<TextWindow>>, EngineError> {
        let most = self.encoder.bases.windows().whole_len_max().min(self.map.len());
        let place = u64::try_from(u128::from(at) * u128::from(self.map.len()) / u128::from(self.len.max(1)));
        let place = place.unwrap_or(0);
        let start = match &self.window {
            Some(window) => window.text.start_near(place, most, self.map.len()),
            None => Some(WindowText::start_for(place, most, self.map.len())),
        };
        if let Some(start) = start {
            // No job has it any more.
            let last = self.window.take().and_then(Arc::into_inner);
            let of = (self.views, self.bucket);
            let window = self.base.window_from(of, &self.map, (start, most), self.effort, last).await?;
            self.window = window.map(Arc::new);
        }
        Ok(self.window.clone())
    }

    /// One unit; `None` when it cannot be stored.
    async fn unit(
        &mut self,
        unit: Unit,
        start: u64,
        ahead: &Arc<Vec<u8>>,
        window: Arc<TextWindow>,
    ) -> Result<Option<StoredPiece>, EngineError> {
        let (base, map, effort) = (self.base.clone(), self.map.clone(), self.effort);
        let metrics = self.encoder.metrics.clone();
        metrics.view_text_bytes_total.inc_by(unit.text.len() as u64);
        let delta = self.encoder.pool.run(move |scratch| {
            let started = Instant::now();
            let delta = delta_of(scratch, &unit, &window, effort);
            metrics.encode_seconds.with_label_values(&["view"]).observe(started.elapsed().as_secs_f64());
            let (delta, ranges) = delta?;
            let mut parts = Vec::new();
            ranges.iter().for_each(|range| map.parts(range.clone(), &base.scanned.index, &mut parts));
            let of_unit = window.text.footprint(&ranges, &parts, &base.openings);
            Some((unit, delta, parts, of_unit))
        });
        let Some((unit, delta, parts, of_unit)) = delta.await? else { return Ok(None) };
        let of_unit = match of_unit {
            Some(of_unit) => of_unit,
            None => match self.opened(&parts).await? {
                Some(of_unit) => of_unit,
                None => return Ok(None),
            },
        };
        let (replay, search_ns, metrics) = (self.replay, self.search_ns, self.encoder.metrics.clone());
        let (ahead, ns_per_byte_max) = (ahead.clone(), self.ns_per_byte_max);
        // Without memory for them the encoder is asked twice; raw bytes have no encoder.
        let check = self.check;
        let is_asked = check != UnitCheck::ReadBack && unit.parts() > 0 && replay != Some(ReplayId::default());
        let answers = is_asked.then(|| self.views.budget.try_acquire(unit.answers_bytes_max() as u64)).flatten();
        let stored = self.encoder.pool.run(move |scratch| {
            let own = &ahead[(unit.object.start - start) as usize..(unit.object.end - start) as usize];
            let replay =
                replay.unwrap_or_else(|| if unit.parts() > 0 { recognise(&unit) } else { ReplayId::default() });
            let replay_kept = (unit.parts() > 0).then_some(replay);
            let check = match check {
                UnitCheck::AtOnce { .. } => UnitCheck::AtOnce { keeps_answers: answers.is_some() },
                UnitCheck::ReadBack => UnitCheck::ReadBack,
            };
            let replaying = Replaying { id: replay, ns_per_byte_max, search_ns, check };
            let piece = stored_piece(scratch, &unit, (&delta, parts), &of_unit, replaying, own);
            if piece.is_none() {
                // I6: never stored; a person should look.
                metrics.checksum_failures_total.with_label_values(&["encoder"]).inc();
                tracing::error!(
                    object_at = unit.object.start,
                    "a unit did not decode to its original; stored without it"
                );
            }
            Some((piece?, replay_kept))
        });
        let Some((piece, replay)) = stored.await? else { return Ok(None) };
        self.replay = replay;
        self.search_ns = piece.search_ns.unwrap_or(self.search_ns / 2);
        Ok(Some(piece))
    }

    /// The footprint of a unit that the window has not all of; `None` when a part is in no opening.
    async fn opened(&self, parts: &[BasePart]) -> Result<Option<UnitBase>, EngineError> {
        let Ok(needed) = self.base.openings.bytes_of(parts) else { return Ok(None) };
        let bases = BaseReader::new(&self.base.rows, self.bucket.domain_key());
        let view = self.encoder.blobs.view_bytes(&self.base.ranges, needed, &bases).await?;
        let (base, texts, parts) = (self.base.clone(), self.encoder.blobs.texts().clone(), parts.to_vec());
        let opening = self.encoder.pool.run(move |_| {
            let opened = |number: usize| {
                let opening = base.openings.get(number);
                texts.open(opening, base.window(number), view.get(opening.bytes())?)
            };
            UnitBase::of(&parts, base.openings.segment(), &view, opened).ok()
        });
        opening.await
    }

    /// A segment's units together; `None` when they break a limit of the format.
    fn view_of(&self, pieces: Vec<StoredPiece>) -> Option<StoredView> {
        let compress = |windows: &[u8]| {
            let mut frame = Vec::new();
            whole::compress(windows, plan::zstd_level(Effort::High), usize::MAX, &mut frame).map(|_| frame)
        };
        StoredView::of(pieces, (&self.base.openings, &self.base.scanned.index), compress)
    }
}

/// A unit's text as a delta over the window, and which of the base's text it needs.
fn delta_of(
    scratch: &mut Scratch,
    unit: &Unit,
    window: &TextWindow,
    effort: Effort,
) -> Option<(Vec<u8>, Vec<Range<u64>>)> {
    let job = EncodeJob {
        window: window.text.bytes(),
        index: &window.index,
        layout: &window.layout,
        target: &unit.text,
        effort,
        limits: FootprintLimits { ranges_max: UNIT_RANGES_MAX, ..FootprintLimits::default() },
        delta_len_max: usize::MAX,
    };
    let mut delta = Vec::new();
    let encoded = scratch.encoder.encode(&job, &mut delta)?;
    let range = |run: &delta_codec::BaseRange| {
        let start = window.text.start() + run.offset;
        start..start + u64::from(run.len)
    };
    Some((delta, encoded.footprint.iter().map(range).collect()))
}

/// The stored unit, after its delta gave its text back, and after it gave its object's bytes back
/// where that is checked at once (I6).
fn stored_piece(
    scratch: &mut Scratch,
    unit: &Unit,
    (delta, parts): (&[u8], Vec<BasePart>),
    base: &UnitBase,
    replaying: Replaying,
    own: &[u8],
) -> Option<StoredPiece> {
    let mut text = vec![0; unit.text.len()];
    scratch.decoder.decode(&base.bytes, delta, &mut text).ok().filter(|()| text == unit.text)?;
    let runs = copied_runs(scratch);
    StoredPiece::of(unit, &UnitDelta { delta, runs: &runs, parts }, base, replaying, own)
}
