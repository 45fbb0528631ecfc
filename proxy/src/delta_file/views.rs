//! Segments as deflate views: the streams of both files opened, the target's text a delta over the
//! base's (docs/format/deflate-view-v1.md §12).

use super::{
    coder::{Coder, with_own},
    error::{DeltaFileError, Result},
    format::VIEW_WORK_BYTES_MAX,
    source::Source,
};
use deflate_view::{
    AHEAD_LEN, BaseBytes, BasePart, CutLimits, Cutter, Index, Malformed, Opened, Opening, Openings, ReplayId,
    Replaying, Run, ScanLimits, Scanner, SegmentForm, SegmentView, StoredPiece, StoredView, Stream, TextMap,
    UNIT_LEN_MAX, Unit, UnitBase, UnitCheck, UnitDelta, WindowText, joined, recognise,
};
use delta_codec::{BaseIndex, Decoder, Effort, EncodeJob, FootprintLimits, WINDOW_LEN_MAX, WindowUnit, whole};
use rayon::prelude::*;
use std::{
    collections::{HashSet, VecDeque},
    ops::Range,
    sync::{Arc, Mutex},
};

/// Streams of a file that are opened; those behind them are raw.
const STREAMS_MAX: usize = 1 << 16;
/// Access points of a base, 32 KiB of memory each; streams that would need more stay closed.
const POINTS_MAX: usize = 2048;
/// Bytes of a file that are scanned at a time.
const SCAN_LEN: usize = 4 << 20;
/// Text of a base that is opened at a time.
const LOAD_LEN: u64 = 4 << 20;
/// Ranges of a base that lie no farther apart are read as one.
const GAP_READ: u64 = 128 << 10;
/// Bytes behind a segment that the cutter looks at.
const LOOK_AHEAD: u64 = (AHEAD_LEN - UNIT_LEN_MAX) as u64;
/// Units that are cut before they are encoded at once: 4 MiB of text each at most.
const UNITS_AT_ONCE: usize = 8;
/// Openings whose text a thread keeps: a few MiB each at most.
const RECENT_MAX: usize = 4;
/// What another form has shrunk to less than one part in so many needs no view.
const WORTH_TRYING: usize = 50;

/// A scanner for one of the files; access points are noted only for a base.
pub(super) fn scanner(is_base: bool) -> Scanner {
    let points_max = if is_base { POINTS_MAX } else { 0 };
    Scanner::new(ScanLimits { streams_max: STREAMS_MAX, points_max, ..ScanLimits::default() })
}

/// The streams of a file.
pub(super) fn scan(source: &Source, is_base: bool, mut progress: impl FnMut(u64)) -> Result<Index> {
    let mut scanner = scanner(is_base);
    source.for_each_piece(SCAN_LEN, |_, piece| {
        scanner.feed(piece);
        progress(piece.len() as u64);
        Ok(())
    })?;
    Ok(scanner.finish())
}

/// Bytes of a base in as few reads as there can be.
pub(super) fn read_base(base: &Source, needed: Vec<Range<u64>>) -> Result<BaseBytes> {
    let read = |range: Range<u64>| {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        base.read_at(&mut bytes, range.start)?;
        Ok((range.start, bytes))
    };
    Ok(BaseBytes(joined(needed, GAP_READ).into_iter().map(read).collect::<Result<_>>()?))
}

/// Texts that were opened last.
#[derive(Default)]
pub(super) struct Recent(VecDeque<((u64, u64), Arc<Opened>)>);

impl Recent {
    /// The text of an opening.
    pub(super) fn open(
        &mut self,
        opening: &Opening,
        window: &[u8],
        bytes: &[u8],
    ) -> std::result::Result<Arc<Opened>, Malformed> {
        let name = (opening.stream_at, opening.plain_at);
        if let Some((_, hit)) = self.0.iter().find(|(other, _)| *other == name) {
            return Ok(hit.clone());
        }
        let opened = Arc::new(opening.open(window, bytes)?);
        self.0.truncate(RECENT_MAX - 1);
        self.0.push_front((name, opened.clone()));
        Ok(opened)
    }
}

/// What was copied in the delta that a decoder decoded last.
pub(super) fn copied_runs(decoder: &Decoder) -> Vec<Run> {
    let one = |run: delta_codec::CopiedRun| Run { at: run.at, len: run.len, base: run.source, is_equal: run.is_equal };
    decoder.copied_runs().map(one).collect()
}

/// Text of a base, ready to be encoded against.
struct TextWindow {
    text: WindowText,
    index: BaseIndex,
    layout: Vec<WindowUnit>,
}

/// Where the base turns out to be another one than it was.
fn changed(_: Malformed) -> DeltaFileError {
    DeltaFileError::Changed("the base")
}

/// A base with its streams opened, those left alone that the target has as they are.
pub(super) struct OpenedBase<'a> {
    source: &'a Source,
    index: Index,
    openings: Openings,
    map: TextMap,
    effort: Effort,
    window: Option<TextWindow>,
}

impl<'a> OpenedBase<'a> {
    /// Of a base with these streams, for targets that have `kept` as they are.
    pub(super) fn new(source: &'a Source, mut index: Index, kept: &HashSet<(u64, u64)>, effort: Effort) -> Self {
        index.retain_openable();
        let (openings, map) = (Openings::of(&index), TextMap::new(&index, kept));
        // The window's index and the unit's text are all the memory there is for it.
        Self { source, index, openings, map, effort: effort.min(Effort::High), window: None }
    }

    /// Moves the window to where a target's byte `at` of `len` presumably came from.
    pub(super) fn move_window(&mut self, at: u64, len: u64) -> Result<()> {
        let most = self.map.len().min(WINDOW_LEN_MAX as u64);
        let place = u128::from(at) * u128::from(self.map.len()) / u128::from(len.max(1));
        let place = u64::try_from(place).unwrap_or(0);
        let text = self.window.as_ref().map(|window| &window.text);
        let start = match text {
            Some(text) => text.start_near(place, most, self.map.len()),
            None => Some(WindowText::start_for(place, most, self.map.len())),
        };
        let Some(start) = start else { return Ok(()) };
        let mut text = match self.window.take() {
            Some(window) => window.text,
            None => WindowText::new(WINDOW_LEN_MAX / 2),
        };
        text.move_to((start, most), &self.map, (&self.openings, &self.index));
        while text.end() < start + most {
            let mut parts = Vec::new();
            self.map.parts(text.end()..(start + most).min(text.end() + LOAD_LEN), &self.index, &mut parts);
            let (view, mut recent) = (self.bytes_of(&parts)?, Recent::default());
            let opened = |number| self.open(number, &view, &mut recent);
            text.load(&parts, &self.openings, &view, opened).map_err(changed)?;
        }
        let index = BaseIndex::build(text.bytes(), self.effort);
        let unit = WindowUnit { plain_len: most as u32, stored_len: most as u32, divisible: true };
        let layout = if most == 0 { Vec::new() } else { vec![unit] };
        self.window = Some(TextWindow { text, index, layout });
        Ok(())
    }

    /// The base's bytes that some parts are read from.
    fn bytes_of(&self, parts: &[BasePart]) -> Result<BaseBytes> {
        read_base(self.source, self.openings.bytes_of(parts).map_err(changed)?)
    }

    /// The text of an opening.
    fn open(
        &self,
        number: usize,
        view: &BaseBytes,
        recent: &mut Recent,
    ) -> std::result::Result<Arc<Opened>, Malformed> {
        let opening = self.openings.get(number);
        recent.open(opening, self.openings.window(number, &self.index), view.get(opening.bytes())?)
    }

    fn footprint(&self, parts: &[BasePart]) -> Result<UnitBase> {
        let (view, mut recent) = (self.bytes_of(parts)?, Recent::default());
        let opened = |number| self.open(number, &view, &mut recent);
        UnitBase::of(parts, self.openings.segment(), &view, opened).map_err(changed)
    }

    /// A unit over the window, after it gave its object's bytes `own` back; `None` when it did not
    /// or there is no window.
    pub(super) fn unit(
        &self,
        coder: &mut Coder,
        unit: &Unit,
        replay: ReplayId,
        own: &[u8],
    ) -> Result<Option<StoredPiece>> {
        let Some(window) = &self.window else { return Ok(None) };
        let job = EncodeJob {
            window: window.text.bytes(),
            index: &window.index,
            layout: &window.layout,
            target: &unit.text,
            effort: self.effort,
            limits: FootprintLimits::default(),
            delta_len_max: usize::MAX,
        };
        let mut delta = Vec::new();
        let Some(encoded) = coder.encoder.encode(&job, &mut delta) else { return Ok(None) };
        let of_text = |run: &delta_codec::BaseRange| {
            let start = window.text.start() + run.offset;
            start..start + u64::from(run.len)
        };
        let ranges: Vec<_> = encoded.footprint.iter().map(of_text).collect();
        let mut parts = Vec::new();
        ranges.iter().for_each(|range| self.map.parts(range.clone(), &self.index, &mut parts));
        let base = match window.text.footprint(&ranges, &parts, &self.openings) {
            Some(base) => base,
            None => self.footprint(&parts)?,
        };
        coder.decoded.resize(unit.text.len(), 0);
        let decoded = coder.decoder.decode(&base.bytes, &delta, &mut coder.decoded);
        if decoded.is_err() || coder.decoded != unit.text {
            return Ok(None);
        }
        let runs = copied_runs(&coder.decoder);
        let replaying = Replaying {
            id: replay,
            ns_per_byte_max: None,
            search_ns: 0,
            check: UnitCheck::AtOnce { keeps_answers: true },
        };
        Ok(StoredPiece::of(unit, &UnitDelta { delta: &delta, runs: &runs, parts }, &base, replaying, own))
    }
}

/// Walks a target segment by segment.
pub(super) struct ViewEncoder<'a> {
    base: OpenedBase<'a>,
    target: &'a Source,
    opened: Vec<Arc<Stream>>,
    /// `None` once the streams were found to be others than before.
    cutter: Option<Cutter<Arc<Stream>>>,
    replay: Option<ReplayId>,
}

impl<'a> ViewEncoder<'a> {
    /// `None` when the target has no stream but such as the base has, too.
    pub(super) fn new(base: &'a Source, of_base: Index, target: &'a Source, effort: Effort) -> Result<Option<Self>> {
        let found = scan(target, false, |_| {})?;
        let (opened, kept) = found.divided(&of_base.identities());
        if opened.is_empty() {
            return Ok(None);
        }
        let opened: Vec<_> = opened.into_iter().map(Arc::new).collect();
        let cutter = Cutter::new(opened.clone(), target.len(), CutLimits::default());
        let base = OpenedBase::new(base, of_base, &kept, effort);
        Ok(Some(Self { base, target, opened, cutter: Some(cutter), replay: None }))
    }

    /// The segment `plain` at `start`; segments are asked for in order. `None` when it does not
    /// save a tenth of the `stored_len` bytes that it takes otherwise.
    pub(super) fn segment(
        &mut self,
        start: u64,
        plain: &[u8],
        stored_len: usize,
        (pool, coders): (&rayon::ThreadPool, &[Mutex<Coder>]),
    ) -> Result<Option<StoredView>> {
        let end = start + plain.len() as u64;
        let first = self.opened.partition_point(|stream| stream.end <= start);
        let has_stream = self.opened.get(first).is_some_and(|stream| stream.start < end);
        let mut is_wanted = has_stream && stored_len > plain.len() / WORTH_TRYING;
        if self.cutter.is_none() {
            return Ok(None);
        }
        if is_wanted {
            self.base.move_window(start, self.target.len())?;
        }
        let mut ahead = vec![0; (self.target.len().min(end + LOOK_AHEAD) - start) as usize];
        self.target.read_at(&mut ahead, start)?;
        let mut pieces = Vec::new();
        loop {
            let Some(units) = self.cut(start, end, &ahead) else { return Ok(None) };
            if units.is_empty() {
                break;
            }
            if !is_wanted {
                continue;
            }
            let replay = self.replay_of(&units);
            let base = &self.base;
            let encode = |unit: &Unit| {
                let own = &ahead[(unit.object.start - start) as usize..(unit.object.end - start) as usize];
                with_own(coders, |coder| base.unit(coder, unit, replay, own))
            };
            let encoded: Vec<_> = pool.install(|| units.par_iter().map(encode).collect::<Result<_>>())?;
            is_wanted = encoded.iter().all(Option::is_some);
            pieces.extend(encoded.into_iter().flatten());
        }
        if !is_wanted {
            return Ok(None);
        }
        let compress = |windows: &[u8]| {
            let mut frame = Vec::new();
            whole::compress(windows, 3, usize::MAX, &mut frame).map(|_| frame)
        };
        let view = StoredView::of(pieces, (&self.base.openings, &self.base.index), compress);
        let pays = |view: &StoredView| view.bytes.len() <= stored_len / 10 * 9 && work_bytes(view, plain.len());
        Ok(view.filter(pays))
    }

    /// The next units up to `end`; `None` when the streams are not what they were.
    fn cut(&mut self, start: u64, end: u64, ahead: &[u8]) -> Option<Vec<Unit>> {
        let mut units = Vec::new();
        while units.len() < UNITS_AT_ONCE {
            let cutter = self.cutter.as_mut()?;
            let from = ((cutter.position() - start) as usize).min(ahead.len());
            match cutter.next_until(&ahead[from..], end) {
                Ok(Some(unit)) => units.push(unit),
                Ok(None) => break,
                Err(_) => {
                    self.cutter = None;
                    return None;
                }
            }
        }
        Some(units)
    }

    /// The encoder to replay in some units: what was recognised last, until bytes lie between that
    /// are no stream.
    fn replay_of(&mut self, units: &[Unit]) -> ReplayId {
        if units.iter().any(|unit| unit.parts() == 0) {
            self.replay = None;
        }
        let first = units.iter().find(|unit| unit.parts() > 0);
        let known = self.replay.or_else(|| first.map(recognise));
        self.replay = known;
        known.unwrap_or_default()
    }
}

/// Whether a decoder may do the work that a view asks for.
fn work_bytes(view: &StoredView, plain_len: usize) -> bool {
    let len = plain_len as u32;
    let planned = SegmentView::plan(view.bytes.clone(), (len, view.form), &(0..len), &view.footprint, decompress);
    planned.is_ok_and(|(_, plan)| plan.work_bytes <= VIEW_WORK_BYTES_MAX)
}

/// The windows of a segment, unpacked.
fn decompress(frame: &[u8], windows: &mut [u8]) -> std::result::Result<(), Malformed> {
    whole::decompress(frame, windows).map_err(|error| Malformed(error.0))
}

/// Decodes a segment of coding 3 or 5 into `plain`; `footprint` lies in the base. The digest of
/// each unit is checked.
pub(super) fn decode(
    base: &Source,
    (stored, form): (Vec<u8>, SegmentForm),
    footprint: &[Range<u64>],
    plain: &mut [u8],
    decoder: &mut Decoder,
) -> Result<()> {
    let malformed = |error: Malformed| DeltaFileError::Malformed(error.0);
    let len = plain.len() as u32;
    let (view, plan) = SegmentView::plan(stored, (len, form), &(0..len), footprint, decompress).map_err(malformed)?;
    if plan.work_bytes > VIEW_WORK_BYTES_MAX {
        return Err(DeltaFileError::Malformed("a view that asks for too much work"));
    }
    let bytes = read_base(base, plan.needed)?;
    let mut recent = Recent::default();
    let mut rest = plain;
    for number in plan.units {
        let open = |opening: &Opening, window: &[u8], bytes: &[u8]| recent.open(opening, window, bytes);
        let unit = view.unit(number, &bytes, open, |base, delta, text| {
            decoder.decode(base, delta, text).map_err(|error| Malformed(error.0))?;
            Ok(copied_runs(decoder))
        });
        let unit = unit.map_err(malformed)?;
        if !view.is_unit(number, &unit) {
            return Err(DeltaFileError::Malformed("a unit does not have its digest"));
        }
        let (own, others) =
            rest.split_at_mut_checked(unit.len()).ok_or(DeltaFileError::Malformed("units past their segment"))?;
        own.copy_from_slice(&unit);
        rest = others;
    }
    Ok(())
}
