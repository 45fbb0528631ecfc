//! One pair: what is stored today, what a view would store, and both ways' times.

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use deflate_view::{
    AHEAD_LEN, Base, BasePart, CutLimits, Cutter, EncodedParse, Index, ReplayId, Run, ScanLimits, Scanner, StepCounts,
    StoredUnit, Unit, decode_parse, encode_parse, recognise,
};
use delta_codec::{
    BaseIndex, Decoder, Effort, EncodeJob, Encoder, FootprintLimits, SEGMENT_LEN_MAX, WINDOW_LEN_MAX, WindowUnit, whole,
};
use serde_json::{Value, json};

use crate::base::{Reader, View, identity};
use crate::clock::Clock;

const EFFORT: Effort = Effort::Balanced;
/// A unit as it would be stored.
struct Stored {
    object: Range<u64>,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Sums {
    delta: usize,
    parse: usize,
    headers: usize,
    table: usize,
    text: usize,
    counts: StepCounts,
    replays: Vec<u8>,
}

/// A window of a base, ready to be encoded against.
struct Window {
    range: Range<usize>,
    index: BaseIndex,
    layout: Vec<WindowUnit>,
}

impl Window {
    fn around(bytes: &[u8], middle: usize) -> Self {
        let start = middle.saturating_sub(WINDOW_LEN_MAX / 2).min(bytes.len().saturating_sub(WINDOW_LEN_MAX));
        let range = start..bytes.len().min(start + WINDOW_LEN_MAX);
        let index = BaseIndex::build(&bytes[range.clone()], EFFORT);
        let len = range.len() as u32;
        let layout =
            if len == 0 { vec![] } else { vec![WindowUnit { plain_len: len, stored_len: len, divisible: true }] };
        Self { range, index, layout }
    }

    fn encode(
        &self,
        base: &[u8],
        target: &[u8],
        encoder: &mut Encoder,
        len_max: usize,
    ) -> Option<(Vec<u8>, Vec<Range<usize>>)> {
        let job = EncodeJob {
            window: &base[self.range.clone()],
            index: &self.index,
            layout: &self.layout,
            target,
            effort: EFFORT,
            limits: FootprintLimits::default(),
            delta_len_max: len_max,
        };
        let mut delta = Vec::new();
        let encoded = encoder.encode(&job, &mut delta)?;
        let ranges = encoded.footprint.iter().map(|range| {
            let start = self.range.start + range.offset as usize;
            start..start + range.len as usize
        });
        Some((delta, ranges.collect()))
    }
}

/// What is stored without a view: delta, zstd or raw, by segments.
fn today(base: &[u8], target: &[u8]) -> usize {
    let window = Window::around(base, 0);
    let mut encoder = Encoder::new();
    let one = |segment: &[u8]| {
        let delta =
            window.encode(base, segment, &mut encoder, segment.len()).map_or(segment.len(), |(delta, _)| delta.len());
        let mut frame = Vec::new();
        match whole::compress(segment, 1, delta, &mut frame) {
            Some(len) => len,
            None => delta,
        }
    };
    target.chunks(SEGMENT_LEN_MAX).map(one).sum()
}

/// Measures one pair.
pub(crate) fn measure(base: &[u8], target: &[u8]) -> Value {
    let today_bytes = today(base, target);
    // Nested streams stay closed: what is measured is one level.
    let limits = ScanLimits { nested: false, ..ScanLimits::default() };
    let started = Clock::start();
    let base_index = Scanner::index(base, limits);
    let base_scan = started.elapsed();
    let started = Clock::start();
    let target_index = Scanner::index(target, limits);
    let target_scan = started.elapsed();
    let (stored, sums, times) = encode(base, &base_index, target, &target_index);
    let started = Clock::start();
    let (opened_bytes, parts) = decode(base, &base_index, target, &stored);
    let decode_s = started.elapsed().as_secs_f64();
    let view_bytes = sums.delta + sums.parse + sums.table;
    let encode_s = (target_scan + times.view + times.cut + times.delta + times.parse + times.recognise).as_secs_f64();
    let mb = target.len() as f64 / 1e6;
    json!({
        "target_bytes": target.len(),
        "today_bytes": today_bytes,
        "view_bytes": view_bytes.min(today_bytes),
        "delta_bytes": sums.delta,
        "parse_bytes": sums.parse,
        "header_bytes": sums.headers,
        "table_bytes": sums.table,
        "text_bytes": sums.text,
        "streams": target_index.streams.len(),
        "steps": sums.counts.steps,
        "missed": sums.counts.missed,
        "replayed": sums.counts.replayed,
        "replay": sums.replays,
        "units": stored.len(),
        "base_opened_bytes": opened_bytes,
        "encode_s": encode_s,
        "decode_s": decode_s,
        "encode_mb_s": mb / encode_s.max(1e-9),
        "decode_mb_s": mb / decode_s.max(1e-9),
        "base_scan_s": base_scan.as_secs_f64(),
        "target_scan_s": target_scan.as_secs_f64(),
        "base_view_s": times.view.as_secs_f64(),
        "cut_s": times.cut.as_secs_f64(),
        "delta_s": times.delta.as_secs_f64(),
        "parse_s": times.parse.as_secs_f64(),
        "recognise_s": times.recognise.as_secs_f64(),
        "open_base_s": parts[0].as_secs_f64(),
        "decode_delta_s": parts[1].as_secs_f64(),
        "decode_parse_s": parts[2].as_secs_f64(),
    })
}

#[derive(Default)]
struct Times {
    view: Duration,
    cut: Duration,
    delta: Duration,
    parse: Duration,
    recognise: Duration,
}

fn encode(base: &[u8], base_index: &Index, target: &[u8], target_index: &Index) -> (Vec<Stored>, Sums, Times) {
    let mut times = Times::default();
    let of_base: HashSet<_> = base_index.streams.iter().map(identity).collect();
    let kept: HashSet<_> = target_index.streams.iter().map(identity).filter(|id| of_base.contains(id)).collect();
    let started = Clock::start();
    let view = View::new(base, base_index, &kept);
    let mut window = Window::around(&view.bytes, 0);
    times.view += started.elapsed();
    let opened = target_index.streams.iter().filter(|stream| !kept.contains(&identity(stream))).collect();
    let mut cutter = Cutter::new(opened, target.len() as u64, CutLimits::default());
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    let mut replay: Option<ReplayId> = None;
    let (mut stored, mut sums) = (Vec::new(), Sums::default());
    loop {
        let at = cutter.position() as usize;
        let started = Clock::start();
        let unit = cutter.next(&target[at..target.len().min(at + AHEAD_LEN)]).expect("streams that were found");
        times.cut += started.elapsed();
        let Some(unit) = unit else { break };
        let started = Clock::start();
        if view.bytes.len() > WINDOW_LEN_MAX {
            let middle = (at as f64 / target.len() as f64 * view.bytes.len() as f64) as usize;
            if middle.abs_diff((window.range.start + window.range.end) / 2) > WINDOW_LEN_MAX / 4 {
                window = Window::around(&view.bytes, middle);
            }
        }
        let (delta, ranges) =
            window.encode(&view.bytes, &unit.text, &mut encoder, usize::MAX).expect("a delta of any length");
        let mut parts = Vec::new();
        ranges.into_iter().for_each(|range| view.parts(range, base_index, &mut parts));
        let footprint = Reader::new(base, base_index).footprint(&parts);
        let mut text = vec![0; unit.text.len()];
        decoder.decode(&footprint.bytes, &delta, &mut text).expect("what was encoded decodes");
        assert!(text == unit.text, "a text is not what it was");
        let runs = runs_of(&decoder);
        times.delta += started.elapsed();
        let id = *replay.get_or_insert_with(|| {
            let started = Clock::start();
            let id = if unit.parts() > 0 { recognise(&unit) } else { ReplayId::default() };
            times.recognise += started.elapsed();
            id
        });
        if unit.parts() == 0 {
            replay = None;
        }
        let started = Clock::start();
        let parse = encode_parse(&unit, Base { matches: &footprint.matches, opened: &footprint.opened }, &runs, id);
        times.parse += started.elapsed();
        let bytes = store(&unit, &parts, &delta, &parse, &mut sums);
        if !sums.replays.contains(&id.number()) {
            sums.replays.push(id.number());
        }
        stored.push(Stored { object: unit.object, bytes });
    }
    (stored, sums, times)
}

/// The unit's bytes; what they consist of is added to `sums`.
fn store(unit: &Unit, parts: &[BasePart], delta: &[u8], parse: &EncodedParse, sums: &mut Sums) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (object_len, text_len) = (unit.len(), unit.text.len());
    StoredUnit { object_len, text_len, parts: parts.to_vec(), delta, parse: &parse.bytes, nested: None }
        .write(&mut bytes);
    sums.delta += delta.len();
    sums.parse += parse.bytes.len();
    sums.headers += parse.header_bytes;
    sums.table += bytes.len() - delta.len() - parse.bytes.len();
    sums.text += unit.text.len();
    sums.counts.steps += parse.counts.steps;
    sums.counts.missed += parse.counts.missed;
    sums.counts.replayed += parse.counts.replayed;
    bytes
}

fn runs_of(decoder: &Decoder) -> Vec<Run> {
    let one = |run: delta_codec::CopiedRun| Run { at: run.at, len: run.len, base: run.source, is_equal: run.is_equal };
    decoder.copied_runs().map(one).collect()
}

/// Rebuilds the target from what is stored and compares it; returns how much plain text of the base
/// was opened, and the times of its three parts.
fn decode(base: &[u8], base_index: &Index, target: &[u8], stored: &[Stored]) -> (u64, [Duration; 3]) {
    let mut times = [Duration::ZERO; 3];
    let mut reader = Reader::new(base, base_index);
    let mut decoder = Decoder::new();
    let mut text = Vec::new();
    for Stored { object, bytes } in stored {
        let started = Clock::start();
        let unit = StoredUnit::read(bytes).expect("what was written reads");
        let footprint = reader.footprint(&unit.parts);
        times[0] += started.elapsed();
        let started = Clock::start();
        text.clear();
        text.resize(unit.text_len, 0);
        decoder.decode(&footprint.bytes, unit.delta, &mut text).expect("what was encoded decodes");
        let runs = runs_of(&decoder);
        times[1] += started.elapsed();
        let started = Clock::start();
        let base = Base { matches: &footprint.matches, opened: &footprint.opened };
        let (rebuilt, _) =
            decode_parse(unit.parse, &text, base, &runs, unit.object_len).expect("what was encoded decodes");
        times[2] += started.elapsed();
        assert!(rebuilt == target[object.start as usize..object.end as usize], "an object is not what it was");
    }
    (reader.opened_bytes, times)
}
