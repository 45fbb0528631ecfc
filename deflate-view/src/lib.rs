//! Deflate streams inside any bytes, as plain text and parse, and back, bit for bit. Pure and sync,
//! no I/O.
//!
//! A deflate stream is a *plain text* and a *parse*: blocks, the codes as written, and for each
//! step "a literal" or "a match (length, distance)". Writing bits from both is a bijection: no
//! encoder has to be known. The parse is *predicted* from the parse of a base at the bytes the text
//! was copied from; where that fails, a known encoder is *replayed* at that step, and where that
//! fails too, the step is written out.
//!
//! ```text
//! object ── Scanner ── Index ── Cutter ── Unit ─┬─ text ── delta (the caller's) ── runs ─┐
//! base ──── Scanner ── Index ── open ── Opened ─┴────────────────────── Base ── encode_parse ── parse
//!
//! parse + text + runs + Base ── decode_parse ── the object's bytes
//! ```
//!
//! A [`Unit`] is at most 4 MiB of an object and at most 4 MiB of text, and is decoded alone. The
//! format is `docs/format/deflate-view-v1.md`; the document rules, this crate follows.

mod alphabet;
mod answers;
mod base;
mod chains;
mod checksum;
mod coder;
mod containers;
mod copying;
mod cut;
mod gapped;
mod gaps;
mod headers;
mod inflate;
mod lookup;
mod nest;
mod numbers;
mod open;
mod parse;
mod pieces;
mod predict;
mod reading;
mod recognise;
mod replay;
mod scan;
mod segment;
mod steps;
mod stored;
mod stream;
mod text;
mod unit;
mod unit_code;
mod view;
mod write;
mod zlib_codes;

use thiserror::Error;

pub use base::{BaseBytes, FOOTPRINT_RANGES_MAX, Openings, TextMap, UnitBase, footprint_of, identity, joined};
pub use containers::{Container, may_hold_streams};
pub use cut::{AHEAD_LEN, CutLimits, Cutter};
pub use gaps::{GAP_RUNS_MAX, Gaps};
pub use nest::{ParsesOfUnit, decode_unit, encode_unit};
pub use open::{Opened, bytes_to_open, open};
pub use parse::Match;
pub use predict::{Base, Run};
pub use recognise::recognise;
pub use replay::SearchWork;
pub use scan::{ScanLimits, Scanner, TextSink};
pub use segment::{
    OPENED_LEN_MAX, OPENING_LEN_MAX, OPENINGS_MAX, Opening, SegmentForm, SegmentUnit, StoredSegment, UNITS_MAX,
};
pub use steps::StepCounts;
pub use stored::{BasePart, FOOTPRINT_LEN_MAX, NESTED_LEN_MAX, NestedParse, PARTS_MAX, StoredUnit};
pub use stream::{Index, POINT_SPACING, Point, Stream};
pub use text::WindowText;
pub use unit::{TEXT_LEN_MAX, UNIT_LEN_MAX, Unit};
pub use unit_code::{EncodedParse, ReplayId, decode_parse, encode_parse};
pub use view::{Plan, Replaying, SegmentView, StoredPiece, StoredView, UnitCheck, UnitDelta};

/// Why bytes are not of the form they should have. Always an error, never a guess (I7).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("malformed: {0}")]
pub struct Malformed(pub &'static str);
