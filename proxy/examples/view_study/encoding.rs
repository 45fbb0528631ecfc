//! A target as segments of units, as the store's converter makes them.

use std::ops::Range;
use std::time::Duration;

use deflate_view::{
    AHEAD_LEN, CutLimits, Cutter, ReplayId, Replaying, Run, StoredPiece, StoredView, Stream, UNIT_LEN_MAX, Unit,
    UnitCheck, UnitDelta, WindowText, recognise,
};
use delta_codec::{
    BaseIndex, Decoder, Effort, EncodeJob, Encoder, FootprintLimits, SEGMENT_LEN_MAX, WINDOW_LEN_MAX, WindowUnit, whole,
};

use crate::base::{Base, Texts};
use crate::clock::Clock;

pub(crate) const EFFORT: Effort = Effort::Balanced;
/// As in the store (`engine/src/write/stage/views.rs`).
const UNIT_TEXT_LEN_MAX: usize = 2 << 20;
const UNIT_TEXT_LEN_MIN: usize = 256 << 10;
const UNIT_NS_MAX: u64 = 45_000_000;
const UNIT_RANGES_MAX: usize = 3;
const LOOK_AHEAD: usize = AHEAD_LEN - UNIT_LEN_MAX;

/// A window of a base, ready to be encoded against.
pub(crate) struct Window {
    index: BaseIndex,
    layout: Vec<WindowUnit>,
}

impl Window {
    pub(crate) fn over(bytes: &[u8]) -> Self {
        let index = BaseIndex::build(bytes, EFFORT);
        let len = bytes.len() as u32;
        let layout =
            if len == 0 { vec![] } else { vec![WindowUnit { plain_len: len, stored_len: len, divisible: true }] };
        Self { index, layout }
    }

    /// The delta, and what of the window it is made from.
    pub(crate) fn encode(
        &self,
        window: &[u8],
        target: &[u8],
        encoder: &mut Encoder,
        (len_max, limits): (usize, FootprintLimits),
    ) -> Option<(Vec<u8>, Vec<Range<u64>>)> {
        let job = EncodeJob {
            window,
            index: &self.index,
            layout: &self.layout,
            target,
            effort: EFFORT,
            limits,
            delta_len_max: len_max,
        };
        let mut delta = Vec::new();
        let encoded = encoder.encode(&job, &mut delta)?;
        let ranges = encoded.footprint.iter().map(|range| range.offset..range.offset + u64::from(range.len));
        Some((delta, ranges.collect()))
    }
}

/// Times of the steps of encoding.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) view: Duration,
    pub(crate) cut: Duration,
    pub(crate) delta: Duration,
    pub(crate) open: Duration,
    pub(crate) recognise: Duration,
    pub(crate) parse: Duration,
}

/// What the units consist of.
#[derive(Default)]
pub(crate) struct Sums {
    pub(crate) delta: usize,
    pub(crate) parse: usize,
    pub(crate) headers: usize,
    pub(crate) text: usize,
    pub(crate) replays: Vec<u8>,
}

/// A segment: a view where it is worth reading, else as long as it is alone.
pub(crate) struct Segment {
    pub(crate) object: Range<usize>,
    pub(crate) view: Option<StoredView>,
    pub(crate) alone_len: usize,
}

impl Segment {
    pub(crate) fn stored_len(&self) -> usize {
        self.view.as_ref().map_or(self.alone_len, |view| view.bytes.len())
    }
}

/// Encodes a target.
pub(crate) struct Encoding<'a> {
    base: &'a Base<'a>,
    text: WindowText,
    window: Window,
    encoder: Encoder,
    decoder: Decoder,
    texts: Texts,
    replay: Option<ReplayId>,
    search_ns: u64,
    ns_per_byte_max: Option<u64>,
    pub(crate) times: Times,
    pub(crate) sums: Sums,
}

impl<'a> Encoding<'a> {
    pub(crate) fn new(base: &'a Base<'a>, ns_per_byte_max: Option<u64>) -> Self {
        let started = Clock::start();
        let mut texts = Texts::default();
        let mut text = WindowText::new(usize::MAX);
        base.load(&mut texts, &mut text, 0);
        let window = Window::over(text.bytes());
        let times = Times { view: started.elapsed(), ..Times::default() };
        let (encoder, decoder) = (Encoder::new(), Decoder::new());
        let sums = Sums::default();
        Self { base, text, window, encoder, decoder, texts, replay: None, search_ns: 0, ns_per_byte_max, times, sums }
    }

    /// All segments.
    pub(crate) fn segments(&mut self, target: &[u8], opened: Vec<&Stream>) -> Vec<Segment> {
        let limits = CutLimits { text_len_max: UNIT_TEXT_LEN_MAX, ..CutLimits::default() };
        let mut cutter = Cutter::new(opened, target.len() as u64, limits);
        let mut segments = Vec::new();
        for start in (0..target.len()).step_by(SEGMENT_LEN_MAX) {
            let end = target.len().min(start + SEGMENT_LEN_MAX);
            let ahead = &target[..target.len().min(end + LOOK_AHEAD)];
            self.move_window(start, target.len());
            let mut pieces = Vec::new();
            loop {
                let started = Clock::start();
                let unit = cutter.next_until(&ahead[cutter.position() as usize..], end as u64);
                self.times.cut += started.elapsed();
                let Some(unit) = unit.expect("streams that were found") else { break };
                let piece = self.unit(&unit, target);
                let is_slow = self.ns_per_byte_max.is_some() && piece.reading_ns > UNIT_NS_MAX;
                if is_slow && cutter.halve_text(UNIT_TEXT_LEN_MIN) && start == 0 {
                    cutter.begin_anew();
                    pieces.clear();
                    continue;
                }
                pieces.push(piece);
            }
            segments.push(self.segment(start..end, &target[start..end], pieces));
        }
        segments
    }

    fn move_window(&mut self, at: usize, len: usize) {
        let started = Clock::start();
        let of_base = self.base.map.len();
        let place = (at as f64 / len as f64 * of_base as f64) as u64;
        if let Some(start) = self.text.start_near(place, of_base.min(WINDOW_LEN_MAX as u64), of_base) {
            self.base.load(&mut self.texts, &mut self.text, start);
            self.window = Window::over(self.text.bytes());
        }
        self.times.view += started.elapsed();
    }

    fn unit(&mut self, unit: &Unit, target: &[u8]) -> StoredPiece {
        let started = Clock::start();
        let limits = FootprintLimits { ranges_max: UNIT_RANGES_MAX, ..FootprintLimits::default() };
        let encoded = self.window.encode(self.text.bytes(), &unit.text, &mut self.encoder, (usize::MAX, limits));
        let (delta, ranges) = encoded.expect("a delta of any length");
        self.times.delta += started.elapsed();
        let started = Clock::start();
        let mut parts = Vec::new();
        let of_text = |range: Range<u64>| range.start + self.text.start()..range.end + self.text.start();
        let ranges: Vec<_> = ranges.into_iter().map(of_text).collect();
        ranges.iter().for_each(|range| self.base.map.parts(range.clone(), self.base.index, &mut parts));
        let kept = self.text.footprint(&ranges, &parts, &self.base.openings);
        let footprint = kept.unwrap_or_else(|| self.base.footprint(&parts, &mut self.texts));
        self.times.open += started.elapsed();
        let started = Clock::start();
        let mut text = vec![0; unit.text.len()];
        self.decoder.decode(&footprint.bytes, &delta, &mut text).expect("what was encoded decodes");
        assert!(text == unit.text, "a text is not what it was");
        let runs = runs_of(&self.decoder);
        self.times.delta += started.elapsed();
        let started = Clock::start();
        let parsed = unit.parts() > 0;
        let id = self.replay.unwrap_or_else(|| if parsed { recognise(unit) } else { ReplayId::default() });
        self.replay = parsed.then_some(id);
        self.times.recognise += started.elapsed();
        self.sums.delta += delta.len();
        self.sums.text += unit.text.len();
        if !self.sums.replays.contains(&id.number()) {
            self.sums.replays.push(id.number());
        }
        let own = &target[unit.object.start as usize..unit.object.end as usize];
        let of_text = UnitDelta { delta: &delta, runs: &runs, parts };
        let started = Clock::start();
        let (ns_per_byte_max, search_ns) = (self.ns_per_byte_max, self.search_ns);
        let replaying = Replaying { id, ns_per_byte_max, search_ns, check: UnitCheck::AtOnce { keeps_answers: true } };
        let piece = StoredPiece::of(unit, &of_text, &footprint, replaying, own).expect("a unit gives its bytes back");
        self.times.parse += started.elapsed();
        self.search_ns = piece.search_ns.unwrap_or(search_ns / 2);
        self.sums.parse += piece.parse_bytes.0;
        self.sums.headers += piece.parse_bytes.1;
        piece
    }

    fn segment(&self, object: Range<usize>, own: &[u8], pieces: Vec<StoredPiece>) -> Segment {
        let compress = |windows: &[u8]| {
            let mut frame = Vec::new();
            whole::compress(windows, 9, usize::MAX, &mut frame).map(|_| frame)
        };
        let alone_len = whole::compress(own, 1, own.len(), &mut Vec::new()).unwrap_or(own.len());
        let is_worth = |view: &StoredView| {
            let saved = alone_len.saturating_sub(view.bytes.len()) as u64;
            view.bytes.len() <= alone_len / 10 * 9
                && self.ns_per_byte_max.is_none_or(|most| view.reading_ns <= saved.saturating_mul(most))
        };
        let view = StoredView::of(pieces, (&self.base.openings, self.base.index), compress).filter(is_worth);
        Segment { object, view, alone_len }
    }
}

pub(crate) fn runs_of(decoder: &Decoder) -> Vec<Run> {
    let one = |run: delta_codec::CopiedRun| Run { at: run.at, len: run.len, base: run.source, is_equal: run.is_equal };
    decoder.copied_runs().map(one).collect()
}
