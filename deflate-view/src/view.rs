//! A segment of units, made from pieces and read by range: what stands between a format's segment
//! of coding 3 or 5 and the units in it. Deltas and zstd frames are the caller's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::base::{BaseBytes, Openings, UnitBase, WindowReads, footprint_of, joined};
use crate::gaps::GAP_RUNS_MAX;
use crate::nest::{ParsesOfUnit, decode_unit, encode_unit_keeping};
use crate::recognise::recognise_own;
use crate::segment::{OPENED_LEN_MAX, OPENING_LEN_MAX, Opening, OpeningPlaces, SegmentForm, StoredSegment, UNITS_MAX};
use crate::{
    BasePart, Index, Malformed, Opened, ReplayId, Run, SearchWork, StepCounts, StoredUnit, UNIT_LEN_MAX, Unit,
};

/// What decoding costs, as measured (docs/decisions/0069-the-price-of-reading.md). They are
/// constants, so that what is stored does not depend on the machine. These two are in tenths of a
/// nanosecond.
const OPENED_BYTE_TENTHS: u64 = 5;
const TEXT_BYTE_TENTHS: u64 = 3;
/// Nanoseconds.
const STEP_NS: u64 = 12;
const MISSED_STEP_NS: u64 = 145;
/// A step of which the base says nothing or something wrong, and for which an encoder is asked.
const SEARCHED_STEP_NS: u64 = 40;

/// A stored unit and what it is read from.
pub struct StoredPiece {
    /// Bytes of the object.
    pub object_len: u32,
    digest: [u8; 16],
    bytes: Vec<u8>,
    has_gaps: bool,
    parts: Vec<BasePart>,
    window_reads: WindowReads,
    /// How well its steps were predicted.
    pub counts: StepCounts,
    /// Bytes of its parse, and about how many of them are headers of blocks.
    pub parse_bytes: (usize, usize),
    /// About how many nanoseconds decoding it takes (docs/decisions/0069-the-price-of-reading.md).
    pub reading_ns: u64,
    /// About how many the looks of one search of the encoder took; `None` where it was not asked.
    pub search_ns: Option<u64>,
}

/// Which encoder to replay, and what it may cost.
#[derive(Clone, Copy, Debug)]
pub struct Replaying {
    /// The encoder.
    pub id: ReplayId,
    /// Nanoseconds of decoding ([`StoredPiece::reading_ns`]) that a byte saved may cost: where
    /// replays cost more, a unit is written without them. `None` for any time.
    pub ns_per_byte_max: Option<u64>,
    /// [`StoredPiece::search_ns`] of a unit before this one, or less, or 0: an encoder is not asked
    /// where that would cost more than it can spare.
    pub search_ns: u64,
    /// When the unit is seen to give its object's bytes back.
    pub check: UnitCheck,
}

/// When a unit that was encoded is decoded and compared. One of the two has to happen before it
/// takes the place of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitCheck {
    /// At once. With memory for what the encoder says ([`Unit::answers_bytes_max`]) it need not be
    /// asked again for that.
    AtOnce {
        /// There is such memory.
        keeps_answers: bool,
    },
    /// By the caller, who reads back all that was stored.
    ReadBack,
}

impl UnitCheck {
    fn keeps_answers(self) -> bool {
        self == Self::AtOnce { keeps_answers: true }
    }
}

/// What a unit's text was encoded to.
pub struct UnitDelta<'a> {
    /// The delta, which was seen to give the text back.
    pub delta: &'a [u8],
    /// What it copied.
    pub runs: &'a [Run],
    /// Its footprint.
    pub parts: Vec<BasePart>,
}

impl StoredPiece {
    /// The stored unit, after it gave its object's bytes `own` back where that is checked at once;
    /// `None` when it did not.
    pub fn of(unit: &Unit, of_text: &UnitDelta<'_>, base: &UnitBase, replaying: Replaying, own: &[u8]) -> Option<Self> {
        let (CostedParses { parses, ns }, search_ns) = chosen_parses(unit, of_text, base, replaying)?;
        let ParsesOfUnit { nested, parse } = &parses;
        let UnitDelta { delta, runs, parts } = of_text;
        let stored = parses.stored(unit, parts.clone(), delta);
        let is_checked = replaying.check != UnitCheck::ReadBack;
        if is_checked && parses.decode(&stored, &unit.text, runs, base.parse()).ok()? != own {
            return None;
        }
        let mut bytes = Vec::new();
        stored.write(&mut bytes);
        // What a reader would refuse is not written.
        if bytes.len() > UNIT_LEN_MAX || StoredUnit::read(&bytes).is_err() {
            return None;
        }
        let texts = unit.text.len() + stored.nested.map_or(0, |nested| nested.outer_len);
        let mut counts = parse.counts;
        if let Some(nested) = nested {
            counts.add(nested.counts);
        }
        Some(Self {
            object_len: own.len() as u32,
            digest: xxh3_128(own).to_le_bytes(),
            counts,
            parse_bytes: (parses.len(), parses.header_len()),
            reading_ns: (opened_len(parts) * OPENED_BYTE_TENTHS + texts as u64 * TEXT_BYTE_TENTHS) / 10 + ns,
            search_ns,
            has_gaps: !stored.gaps.is_empty(),
            parts: stored.parts,
            window_reads: base.window_reads.clone(),
            bytes,
        })
    }

    /// Bytes of the stored unit.
    pub fn stored_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Parses with what decoding them costs.
struct CostedParses {
    parses: ParsesOfUnit,
    ns: u64,
}

impl CostedParses {
    /// `replays` are the encoder of the unit's streams, and that of those in their text.
    fn of(
        unit: &Unit,
        of_text: &UnitDelta<'_>,
        base: &UnitBase,
        (replays, keeps): ((ReplayId, ReplayId), bool),
    ) -> Option<Self> {
        let is_base_nested = of_text.parts.iter().any(|part| matches!(part, BasePart::Nested { .. }));
        let parses = encode_unit_keeping(unit, base.parse(), of_text.runs, (replays, keeps), is_base_nested)?;
        let ns_of = |counts: &StepCounts, replay: ReplayId| {
            let searches = counts.searched * SEARCHED_STEP_NS + replay.searches_ns(counts.work);
            counts.steps * STEP_NS + counts.missed * MISSED_STEP_NS + searches
        };
        let nested = parses.nested.as_ref().map_or(0, |nested| ns_of(&nested.counts, replays.1));
        let ns = ns_of(&parses.parse.counts, replays.0) + nested;
        Some(Self { parses, ns })
    }

    /// Bytes they take, with the time they take as bytes.
    fn cost(&self, ns_per_byte: u64) -> u64 {
        self.parses.len() as u64 + self.ns / ns_per_byte
    }

    /// Whether an encoder could make these parses cheaper, which were made without one. It searches
    /// as often, and at best nothing is left of the parse but its headers.
    fn may_gain_by(&self, search_ns: u64, ns_per_byte: u64) -> bool {
        let parse = &self.parses.parse;
        let spared = parse.counts.missed * MISSED_STEP_NS / ns_per_byte + parse.bytes.len() as u64;
        let searches = parse.counts.searched * search_ns / ns_per_byte;
        searches + (parse.header_bytes as u64) < spared
    }
}

/// The parses with replays or those without, whichever cost least in bytes and time; and what one
/// search takes.
fn chosen_parses(
    unit: &Unit,
    of_text: &UnitDelta<'_>,
    base: &UnitBase,
    replaying: Replaying,
) -> Option<(CostedParses, Option<u64>)> {
    let none = ReplayId::default();
    let nested = if unit.nested_parts() > 0 { recognise_own(unit) } else { none };
    let with = |replays| CostedParses::of(unit, of_text, base, (replays, replaying.check.keeps_answers()));
    let Some(ns_per_byte) = replaying.ns_per_byte_max.map(|most| most.max(1)) else {
        return Some((with((replaying.id, nested))?, None));
    };
    let mut best = with((none, none))?;
    if unit.nested_parts() == 0 && !best.may_gain_by(replaying.search_ns, ns_per_byte) {
        return Some((best, None));
    }
    // Compressed bytes in compressed bytes are literals, which need no encoder.
    let mut search_ns = None;
    let mut tried = vec![(none, nested), (replaying.id, nested)];
    tried.dedup();
    tried.retain(|replays| *replays != (none, none));
    for replays in tried {
        let other = with(replays)?;
        if replays.0 != none {
            let counts = other.parses.parse.counts;
            // What it enters depends on how far its searches lie apart.
            let looks = SearchWork { entered: 0, ..counts.work };
            search_ns = replaying.id.searches_ns(looks).checked_div(counts.searched);
        }
        if other.cost(ns_per_byte) < best.cost(ns_per_byte) {
            best = other;
        }
    }
    Some((best, search_ns))
}

/// Plain bytes that are opened for some parts.
fn opened_len(parts: &[BasePart]) -> u64 {
    let of_part = |part: &BasePart| match *part {
        BasePart::Object { .. } => 0,
        BasePart::Plain { len, .. } => u64::from(len),
        BasePart::Nested { nested_len, plain_at, len, .. } => u64::from(nested_len) + plain_at + u64::from(len),
    };
    parts.iter().map(of_part).sum()
}

/// A window with zeros in place of what is not read; all of it where nobody knows.
fn window_as_read(window: &[u8], reads: Option<&[Range<usize>]>) -> Vec<u8> {
    let Some(reads) = reads else { return window.to_vec() };
    let mut kept = vec![0; window.len()];
    for range in reads {
        kept[range.clone()].copy_from_slice(&window[range.clone()]);
    }
    kept
}

/// A segment of units as it is stored.
pub struct StoredView {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// How they are to be read.
    pub form: SegmentForm,
    /// The base bytes it is read from: ascending, disjoint.
    pub footprint: Vec<Range<u64>>,
    /// How well its steps were predicted.
    pub counts: StepCounts,
    /// About how many nanoseconds decoding it takes ([`StoredPiece::reading_ns`]).
    pub reading_ns: u64,
}

impl StoredView {
    /// Puts units together over the base with these `openings`; `compress` makes one zstd frame.
    /// What no match reads of a window is zeros in it.
    /// `None` when they break a limit of the format.
    pub fn of(
        pieces: Vec<StoredPiece>,
        (openings, index): (&Openings, &Index),
        compress: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
    ) -> Option<Self> {
        let (mut used, mut needed): (BTreeSet<usize>, Vec<Range<u64>>) = Default::default();
        let mut counts = StepCounts::default();
        for piece in &pieces {
            for part in &piece.parts {
                if let BasePart::Object { at, len } = *part {
                    needed.push(at..at + u64::from(len));
                }
                used.extend(openings.segment().openings_of(part).ok()?);
            }
            counts.add(piece.counts);
        }
        let reading_ns = pieces.iter().map(|piece| piece.reading_ns).sum();
        let of_segment: Vec<Opening> = used.iter().map(|number| openings.get(*number).clone()).collect();
        let lens = || of_segment.iter().map(|opening| opening.plain_len as usize);
        if pieces.len() > UNITS_MAX || lens().any(|len| len > OPENING_LEN_MAX) || lens().sum::<usize>() > OPENED_LEN_MAX
        {
            return None;
        }
        needed.extend(of_segment.iter().map(Opening::bytes));
        let footprint = footprint_of(needed)?;
        let windows: Vec<u8> = used
            .iter()
            .flat_map(|number| {
                let reads = pieces.iter().find_map(|piece| piece.window_reads.get(number));
                window_as_read(openings.window(*number, index), reads.map(Vec::as_slice))
            })
            .collect();
        let frame = if windows.is_empty() { Vec::new() } else { compress(&windows)? };
        let gapped: BTreeMap<_, _> =
            of_segment.iter().filter_map(|one| Some((one.stream_at, one.gaps.as_ref()?))).collect();
        if gapped.values().map(|gaps| gaps.runs()).sum::<usize>() > GAP_RUNS_MAX {
            return None;
        }
        let has_gaps = !gapped.is_empty() || pieces.iter().any(|piece| piece.has_gaps);
        let form = if has_gaps { SegmentForm::Gapped } else { SegmentForm::Whole };
        let units: Vec<_> = pieces.into_iter().map(|piece| (piece.object_len, piece.digest, piece.bytes)).collect();
        let bytes = StoredSegment::write(&units, &of_segment, &frame, form);
        Some(Self { bytes, form, footprint, counts, reading_ns })
    }
}

/// A segment's stored bytes with all that decoding its units needs but the base.
pub struct SegmentView {
    stored: Vec<u8>,
    segment: StoredSegment,
    /// The windows of its openings, and where in them each begins.
    windows: Vec<u8>,
    windows_at: Vec<usize>,
    form: SegmentForm,
}

/// What a range of a segment needs.
pub struct Plan {
    /// The units that cover it.
    pub units: Vec<usize>,
    /// Base ranges they need.
    pub needed: Vec<Range<u64>>,
    /// Where the first of them begins in the segment.
    pub start: u32,
    /// Plain bytes that are opened for them, once for each unit, and bytes of their parts. Where a
    /// stream has gaps, also the bytes it is read from and the runs of its table.
    pub work_bytes: u64,
}

impl SegmentView {
    /// Takes stored bytes apart: which units cover `within`, and the base ranges they need, all of
    /// which must lie in `footprint`. `decompress` unpacks one zstd frame to exactly the given
    /// length.
    ///
    /// # Errors
    /// [`Malformed`] for what the format document tells a decoder to refuse.
    pub fn plan(
        stored: Vec<u8>,
        (plain_len, form): (u32, SegmentForm),
        within: &Range<u32>,
        footprint: &[Range<u64>],
        decompress: impl FnOnce(&[u8], &mut [u8]) -> Result<(), Malformed>,
    ) -> Result<(Self, Plan), Malformed> {
        let segment = StoredSegment::read(&stored, plain_len, form)?;
        let (mut units, mut needed, mut at, mut start) = (Vec::new(), Vec::new(), 0, None);
        let (mut needs_windows, mut work_bytes) = (false, 0u64);
        let mut places = OpeningPlaces::default();
        for (number, unit) in segment.units.iter().enumerate() {
            let end = at + unit.object_len;
            if end > within.start && at < within.end {
                start.get_or_insert(at);
                units.push(number);
                let mut opened = 0..0;
                for part in form.unit(&stored[unit.place.clone()])?.parts {
                    work_bytes += u64::from(part.len());
                    match part {
                        BasePart::Object { at, len } => needed.push(at..at + u64::from(len)),
                        BasePart::Plain { .. } | BasePart::Nested { .. } => {
                            if let BasePart::Nested { plain_at, len, .. } = part {
                                work_bytes += plain_at + u64::from(len);
                            }
                            let numbers = segment.openings_of(&part)?;
                            for number in numbers.clone().filter(|number| !opened.contains(number)) {
                                let opening = &segment.openings[number];
                                needs_windows |= opening.plain_at > 0;
                                needed.push(places.bytes(opening));
                                work_bytes += opening.work();
                            }
                            opened = numbers;
                        }
                    }
                }
            }
            at = end;
        }
        let needed = joined(needed, 0);
        let covers = |range: &Range<u64>| footprint.iter().any(|run| run.start <= range.start && range.end <= run.end);
        if !needed.iter().all(covers) {
            return Err(Malformed("base bytes outside of the footprint"));
        }
        let mut windows = Vec::new();
        if needs_windows {
            windows = vec![0; segment.windows_len()];
            decompress(&stored[segment.windows.clone()], &mut windows)?;
        }
        let windows_at = segment.openings.iter().scan(0, |at, opening| {
            *at += opening.window_len();
            Some(*at - opening.window_len())
        });
        let windows_at = windows_at.collect();
        let plan = Plan { units, needed, start: start.unwrap_or(0), work_bytes };
        Ok((Self { stored, segment, windows, windows_at, form }, plan))
    }

    /// How many units there are.
    pub fn units(&self) -> usize {
        self.segment.units.len()
    }

    /// The object's bytes of one unit, their digest not yet checked. `open` gives the text of an
    /// opening from its window and its bytes, `decode` fills the text from footprint and delta and
    /// says what was copied.
    ///
    /// # Errors
    /// [`Malformed`] for what the format document tells a decoder to refuse.
    pub fn unit(
        &self,
        number: usize,
        view: &BaseBytes,
        mut open: impl FnMut(&Opening, &[u8], &[u8]) -> Result<Arc<Opened>, Malformed>,
        decode: impl FnOnce(&[u8], &[u8], &mut [u8]) -> Result<Vec<Run>, Malformed>,
    ) -> Result<Vec<u8>, Malformed> {
        let unit = &self.segment.units[number];
        let stored = self.form.unit(&self.stored[unit.place.clone()])?;
        if stored.object_len != unit.object_len as usize {
            return Err(Malformed("a unit of another length"));
        }
        let opened = |number: usize| {
            let opening = &self.segment.openings[number];
            let at = self.windows_at[number];
            let window = self.windows.get(at..at + opening.window_len()).unwrap_or_default();
            open(opening, window, view.get(opening.bytes())?)
        };
        let base = UnitBase::to_read(&stored.parts, &self.segment, view, opened)?;
        let mut text = vec![0; stored.text_len];
        let runs = decode(&base.bytes, stored.delta, &mut text)?;
        decode_unit(&stored, &text, &runs, base.parse())
    }

    /// Whether these bytes of a unit have its digest.
    pub fn is_unit(&self, number: usize, plain: &[u8]) -> bool {
        xxh3_128(plain).to_le_bytes() == self.segment.units[number].digest
    }
}
