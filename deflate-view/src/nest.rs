//! Units of form 2: streams in the plain text of streams, and the two parses one behind the other.
//!
//! Part of the format (docs/format/deflate-view-v1.md §3.1).

use crate::Malformed;
use crate::answers::Answers;
use crate::predict::{Base, RawRun, Run};
use crate::stored::{BasePart, NestedParse, StoredUnit};
use crate::unit::Unit;
use crate::unit_code::{EncodedParse, ReplayId, decode_with_raws, encode_parse_keeping, encode_raw};

/// The runs of a text, as far as they lie in raw bytes, as runs of the text that these are part of.
///
/// Part of the format (docs/format/deflate-view-v1.md §3.1).
pub(crate) fn outer_runs(raws: &[RawRun], runs: &[Run]) -> Vec<Run> {
    let mut of_outer = Vec::new();
    let mut next = 0;
    for raw in raws {
        let end = raw.text_at + raw.len;
        next += runs[next..].partition_point(|run| run.at + run.len <= raw.text_at);
        for run in runs[next..].iter().take_while(|run| run.at < end) {
            let start = run.at.max(raw.text_at);
            let len = (run.at + run.len).min(end) - start;
            let at = raw.outer_at + (start - raw.text_at);
            of_outer.push(Run { at, len, base: run.base + (start - run.at), is_equal: run.is_equal });
        }
    }
    of_outer
}

/// The parses of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsesOfUnit {
    /// That of streams in the plain text of streams, in a unit of form 2.
    pub nested: Option<EncodedParse>,
    /// That of streams of the object.
    pub parse: EncodedParse,
}

impl ParsesOfUnit {
    /// The stored unit that these are the parses of.
    pub fn stored<'a>(&'a self, unit: &Unit, parts: Vec<BasePart>, delta: &'a [u8]) -> StoredUnit<'a> {
        let outer_len = unit.outermost().text.len();
        StoredUnit {
            object_len: unit.len(),
            text_len: unit.text.len(),
            parts,
            delta,
            parse: &self.parse.bytes,
            gaps: unit.outermost().gaps.clone(),
            nested: self.nested.as_ref().map(|nested| NestedParse { outer_len, parse: &nested.bytes }),
        }
    }

    /// The object's bytes that they give with a unit's text, as a reader would have them. Searches
    /// of a replayed encoder are not made again where its answers were kept.
    pub(crate) fn decode(
        &self,
        stored: &StoredUnit<'_>,
        text: &[u8],
        runs: &[Run],
        base: Base<'_>,
    ) -> Result<Vec<u8>, Malformed> {
        let of_nested = self.nested.as_ref().and_then(|nested| nested.answers.as_ref());
        decode_unit_with(stored, text, runs, base, (of_nested, self.parse.answers.as_ref()))
    }

    /// Bytes of all of them.
    pub(crate) fn len(&self) -> usize {
        self.parse.bytes.len() + self.nested.as_ref().map_or(0, |nested| nested.bytes.len())
    }

    /// About how many of them are headers of blocks.
    pub(crate) fn header_len(&self) -> usize {
        self.parse.header_bytes + self.nested.as_ref().map_or(0, |nested| nested.header_bytes)
    }
}

/// A unit's parses, predicted from `base` through `runs`, both those of its text; the encoders are
/// those of its streams and of the nested ones. `None` when they do not give the unit back.
pub fn encode_unit(
    unit: &Unit,
    base: Base<'_>,
    runs: &[Run],
    replays: (ReplayId, ReplayId),
    is_base_nested: bool,
) -> Option<ParsesOfUnit> {
    encode_unit_keeping(unit, base, runs, (replays, false), is_base_nested)
}

/// The same; where `keeps` is true, what the encoders said is kept for [`ParsesOfUnit::decode`].
pub(crate) fn encode_unit_keeping(
    unit: &Unit,
    base: Base<'_>,
    runs: &[Run],
    ((replay, nested_replay), keeps): ((ReplayId, ReplayId), bool),
    is_base_nested: bool,
) -> Option<ParsesOfUnit> {
    let (replay, nested_replay) = ((replay, keeps), (nested_replay, keeps));
    let outer = unit.outermost();
    let has_nested = unit.nested_parts() > 0;
    if !has_nested && !is_base_nested {
        return Some(ParsesOfUnit { nested: None, parse: encode_parse_keeping(unit, base, runs, replay) });
    }
    let nested = match has_nested {
        true => encode_parse_keeping(unit, base, runs, nested_replay),
        false => encode_raw(unit.text.len()),
    };
    let decoded =
        decode_with_raws((&nested.bytes, nested.answers.as_ref()), &unit.text, base, runs, outer.text.len()).ok()?;
    if decoded.object != outer.text {
        return None;
    }
    let parse = encode_parse_keeping(outer, base, &outer_runs(&decoded.raws, runs), replay);
    Some(ParsesOfUnit { nested: Some(nested), parse })
}

/// The object's bytes of a stored unit whose text and runs its delta gave.
///
/// # Errors
/// As [`crate::decode_parse`].
pub fn decode_unit(stored: &StoredUnit<'_>, text: &[u8], runs: &[Run], base: Base<'_>) -> Result<Vec<u8>, Malformed> {
    decode_unit_with(stored, text, runs, base, (None, None))
}

/// The same of a unit whose parses were just encoded, with what the encoders of the nested one and
/// of its own said.
fn decode_unit_with(
    stored: &StoredUnit<'_>,
    text: &[u8],
    runs: &[Run],
    base: Base<'_>,
    (of_nested, own): (Option<&Answers>, Option<&Answers>),
) -> Result<Vec<u8>, Malformed> {
    let decoded = match stored.nested {
        None => decode_with_raws((stored.parse, own), text, base, runs, stored.object_len)?,
        Some(nested) => {
            let outer = decode_with_raws((nested.parse, of_nested), text, base, runs, nested.outer_len)?;
            let runs = outer_runs(&outer.raws, runs);
            decode_with_raws((stored.parse, own), &outer.object, base, &runs, stored.object_len)?
        }
    };
    if stored.gaps.is_empty() { Ok(decoded.object) } else { stored.gaps.put_into(&decoded.object) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_text_are_runs_of_what_its_raw_bytes_are_part_of() {
        let run = |at, len, base, is_equal| Run { at, len, base, is_equal };
        let raws = [
            RawRun { text_at: 0, outer_at: 0, len: 10 },
            RawRun { text_at: 100, outer_at: 40, len: 20 },
            RawRun { text_at: 120, outer_at: 60, len: 5 },
        ];
        let runs = [run(2, 4, 7, true), run(8, 100, 200, false), run(112, 10, 500, true)];
        let expected = [
            run(2, 4, 7, true),
            run(8, 2, 200, false),
            run(40, 8, 292, false),
            run(52, 8, 500, true),
            run(60, 2, 508, true),
        ];
        assert_eq!(outer_runs(&raws, &runs), expected);
        assert!(outer_runs(&[], &runs).is_empty() && outer_runs(&raws, &[]).is_empty());
    }
}
