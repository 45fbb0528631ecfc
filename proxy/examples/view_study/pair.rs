//! One pair: what is stored today, what a view would store, and both ways' times.

use std::collections::HashSet;
use std::time::Duration;

use deflate_view::{BaseBytes, Malformed, Opening, ScanLimits, Scanner, SegmentView, StepCounts, identity};
use delta_codec::{Decoder, Encoder, FootprintLimits, SEGMENT_LEN_MAX, WINDOW_LEN_MAX, whole};
use serde_json::{Value, json};

use crate::base::{Base, Texts};
use crate::clock::Clock;
use crate::encoding::{Encoding, Segment, Window, runs_of};

/// Times that everything is decoded; of each unit the fastest counts.
const ROUNDS: usize = 3;

/// What is stored without a view: delta, zstd or raw, by segments.
fn today(base: &[u8], target: &[u8]) -> usize {
    let base = &base[..base.len().min(WINDOW_LEN_MAX)];
    let window = Window::over(base);
    let mut encoder = Encoder::new();
    let one = |segment: &[u8]| {
        let most = (segment.len(), FootprintLimits::default());
        let delta = window.encode(base, segment, &mut encoder, most).map_or(segment.len(), |(delta, _)| delta.len());
        let mut frame = Vec::new();
        match whole::compress(segment, 1, delta, &mut frame) {
            Some(len) => len,
            None => delta,
        }
    };
    target.chunks(SEGMENT_LEN_MAX).map(one).sum()
}

/// Measures one pair.
pub(crate) fn measure(object: &[u8], target: &[u8], ns_per_byte_max: Option<u64>) -> Value {
    let today_bytes = today(object, target);
    let started = Clock::start();
    // Nested streams stay closed: what is measured is one level.
    let limits = ScanLimits { nested: false, ..ScanLimits::default() };
    let mut base_index = Scanner::index(object, limits);
    base_index.retain_openable();
    let base_scan = started.elapsed();
    let started = Clock::start();
    let target_index = Scanner::index(target, limits);
    let target_scan = started.elapsed();
    let of_base: HashSet<_> = base_index.streams.iter().map(identity).collect();
    let kept: HashSet<_> = target_index.streams.iter().map(identity).filter(|id| of_base.contains(id)).collect();
    let opened = target_index.streams.iter().filter(|stream| !kept.contains(&identity(stream))).collect();
    let base = Base::new(object, &base_index, &kept);
    let mut encoding = Encoding::new(&base, ns_per_byte_max);
    let segments = encoding.segments(target, opened);
    let mut decoded = Decoded::default();
    for _ in 0..ROUNDS {
        decoded.keep_faster(decode(&base.bytes, target, &segments));
    }
    let view_bytes: usize = segments.iter().map(Segment::stored_len).sum();
    let (times, sums) = (&encoding.times, &encoding.sums);
    let encode = target_scan + times.view + times.cut + times.delta + times.open + times.recognise + times.parse;
    let sum = |of: fn(&StepCounts) -> u64| -> u64 {
        segments.iter().filter_map(|segment| Some(of(&segment.view.as_ref()?.counts))).sum()
    };
    let (encode_s, decode_s) = (encode.as_secs_f64(), decoded.all().as_secs_f64());
    let reading_ns: u64 = segments.iter().filter_map(|segment| Some(segment.view.as_ref()?.reading_ns)).sum();
    let mb = target.len() as f64 / 1e6;
    json!({
        "target_bytes": target.len(),
        "today_bytes": today_bytes,
        "view_bytes": view_bytes.min(today_bytes),
        "delta_bytes": sums.delta,
        "parse_bytes": sums.parse,
        "header_bytes": sums.headers,
        "text_bytes": sums.text,
        "streams": target_index.streams.len(),
        "steps": sum(|counts| counts.steps),
        "missed": sum(|counts| counts.missed),
        "replayed": sum(|counts| counts.replayed),
        "searched": sum(|counts| counts.searched),
        "entered": sum(|counts| counts.work.entered),
        "looks": sum(|counts| counts.work.looks),
        "replay": sums.replays,
        "base_opened_bytes": decoded.opened_bytes,
        "encode_s": encode_s,
        "decode_s": decode_s,
        "encode_mb_s": mb / encode_s.max(1e-9),
        "decode_mb_s": mb / decode_s.max(1e-9),
        "base_scan_s": base_scan.as_secs_f64(),
        "target_scan_s": target_scan.as_secs_f64(),
        "base_view_s": times.view.as_secs_f64(),
        "cut_s": times.cut.as_secs_f64(),
        "delta_s": times.delta.as_secs_f64(),
        "unit_open_s": times.open.as_secs_f64(),
        "parse_s": times.parse.as_secs_f64(),
        "recognise_s": times.recognise.as_secs_f64(),
        "plan_s": decoded.plan.as_secs_f64(),
        "open_base_s": decoded.open().as_secs_f64(),
        "decode_delta_s": decoded.delta().as_secs_f64(),
        "decode_parse_s": decoded.parse().as_secs_f64(),
        "segments": segments.len(),
        "views": segments.iter().filter(|segment| segment.view.is_some()).count(),
        "reading_s": reading_ns as f64 / 1e9,
    })
}

/// What decoding one unit took.
#[derive(Clone, Copy, Default)]
struct UnitTimes {
    open: Duration,
    delta: Duration,
    parse: Duration,
    opened_bytes: u64,
}

impl UnitTimes {
    fn all(&self) -> Duration {
        self.open + self.delta + self.parse
    }
}

/// What decoding took, by segments and units.
#[derive(Default)]
struct Decoded {
    plan: Duration,
    segments: Vec<Vec<UnitTimes>>,
    opened_bytes: u64,
}

impl Decoded {
    fn sum(&self, of: impl Fn(&UnitTimes) -> Duration) -> Duration {
        self.segments.iter().flatten().map(of).sum()
    }

    fn open(&self) -> Duration {
        self.sum(|unit| unit.open)
    }

    fn delta(&self) -> Duration {
        self.sum(|unit| unit.delta)
    }

    fn parse(&self) -> Duration {
        self.sum(|unit| unit.parse)
    }

    fn all(&self) -> Duration {
        self.plan + self.sum(UnitTimes::all)
    }

    /// Of each unit the faster one.
    fn keep_faster(&mut self, other: Self) {
        if self.segments.is_empty() {
            *self = other;
            return;
        }
        self.plan = self.plan.min(other.plan);
        for (kept, new) in self.segments.iter_mut().flatten().zip(other.segments.iter().flatten()) {
            if new.all() < kept.all() {
                *kept = *new;
            }
        }
    }
}

fn decompress(frame: &[u8], windows: &mut [u8]) -> Result<(), Malformed> {
    whole::decompress(frame, windows).map_err(|error| Malformed(error.0))
}

/// Decodes and compares every segment; one that is no view is taken as it is, in no time.
fn decode(base: &BaseBytes, target: &[u8], segments: &[Segment]) -> Decoded {
    let (mut texts, mut decoder, mut decoded) = (Texts::default(), Decoder::new(), Decoded::default());
    for segment in segments {
        let mut units = Vec::new();
        if let Some(view) = &segment.view {
            let len = segment.object.len() as u32;
            let stored = view.bytes.clone();
            let started = Clock::start();
            let planned = SegmentView::plan(stored, (len, view.form), &(0..len), &view.footprint, decompress);
            let (segment_view, _) = planned.expect("what was written reads");
            decoded.plan += started.elapsed();
            let mut at = segment.object.start;
            for number in 0..segment_view.units() {
                let mut times = UnitTimes::default();
                let opened_before = texts.opened_bytes;
                let started = Clock::start();
                let open = |opening: &Opening, window: &[u8], bytes: &[u8]| {
                    let started = Clock::start();
                    let opened = texts.open(opening, window, bytes);
                    times.open += started.elapsed();
                    opened
                };
                let mut delta_s = Duration::ZERO;
                let plain = segment_view.unit(number, base, open, |base, delta, text| {
                    let started = Clock::start();
                    decoder.decode(base, delta, text).expect("what was encoded decodes");
                    let runs = runs_of(&decoder);
                    delta_s = started.elapsed();
                    Ok(runs)
                });
                let plain = plain.expect("what was encoded decodes");
                assert!(segment_view.is_unit(number, &plain), "a unit is not what it was");
                times.delta = delta_s;
                times.parse = started.elapsed() - times.open - times.delta;
                times.opened_bytes = texts.opened_bytes - opened_before;
                assert!(plain == target[at..at + plain.len()], "an object is not what it was");
                at += plain.len();
                units.push(times);
            }
        }
        decoded.segments.push(units);
    }
    decoded.opened_bytes = texts.opened_bytes;
    decoded
}
