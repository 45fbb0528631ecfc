//! Which encoder made a stream: found by trial, never by name.

use crate::answers::Answering;
use crate::coder::Encoder;
use crate::predict::{Base, Extent};
use crate::steps::Steps;
use crate::unit::{Item, PartKind, Unit};
use crate::unit_code::ReplayId;

/// Plain bytes that an encoder is recognised by: at first, and to decide.
const SAMPLE_LEN_FIRST: usize = 16 << 10;
const SAMPLE_LEN: usize = 96 << 10;
/// An encoder that takes a quarter and so many bytes more than the best one for the first of them
/// is not tried with the rest.
const LIKELY_SHARE: usize = 4;
const LIKELY_BYTES: usize = 16;
/// After so many of them it is asked whether another encoder took less.
const SAMPLE_PIECE_LEN: usize = 8 << 10;

/// The encoder that would have made most of these steps: the one with which a sample of them takes
/// least. None when no encoder is of use.
pub fn recognise(unit: &Unit) -> ReplayId {
    recognise_own(unit.outermost())
}

/// The same for the streams that the unit's text is opened from: the nested ones where there are
/// some.
pub(crate) fn recognise_own(unit: &Unit) -> ReplayId {
    let mut likely = Vec::new();
    let mut most = usize::MAX;
    for replay in std::iter::once(ReplayId::default()).chain(ReplayId::all()) {
        let Some(cost) = sample_cost(unit, replay, SAMPLE_LEN_FIRST, most) else { continue };
        most = most.min(cost + cost / LIKELY_SHARE + LIKELY_BYTES);
        likely.push((cost, replay));
    }
    likely.retain(|(cost, _)| *cost <= most);
    likely.sort_unstable();
    let mut best = None;
    for (_, replay) in likely {
        let most = best.map_or(usize::MAX, |(cost, _)| cost);
        let found = sample_cost(unit, replay, SAMPLE_LEN, most).map(|cost| (cost, replay));
        best = [best, found].into_iter().flatten().min();
    }
    best.map_or(ReplayId::default(), |(_, replay)| replay)
}

/// Bytes that a sample of the steps takes with an encoder; `None` as soon as they are more than
/// `most`.
fn sample_cost(unit: &Unit, replay: ReplayId, sample_len: usize, most: usize) -> Option<usize> {
    let mut coder = Encoder::new();
    let asked = Answering::replay(replay.replay().unwrap_or_default());
    let mut steps = Steps::new(&unit.text, Base::default(), &[], asked);
    let mut left = sample_len;
    for item in &unit.items {
        let Item::Part(part) = item else { continue };
        steps.begin(Extent { start: part.text_at, end: part.text_end(), is_from_start: part.lead.is_none() });
        let first = part.blocks.first().map_or(0, |block| block.matches.start);
        for block in part.blocks.iter().filter(|block| !matches!(block.kind, PartKind::Stored { .. })) {
            let own = &unit.matches[block.matches.clone()];
            let (mut at, mut next) = (block.plain.start, 0);
            while at < block.plain.end && left > 0 {
                let wanted = block.plain.end.min(at + left.min(SAMPLE_PIECE_LEN));
                let behind = next + own[next..].partition_point(|found| found.end() as usize <= wanted);
                // Up to the match that crosses the end, or with it where there is nothing else.
                let crossing = own.get(behind).filter(|found| (found.at as usize) < wanted);
                let (to, behind) = match crossing {
                    Some(found) if found.at as usize > at => (found.at as usize, behind),
                    Some(found) => (found.end() as usize, behind + 1),
                    None => (wanted, behind),
                };
                let before = block.matches.start - first;
                steps.encode(&mut coder, at, to, &unit.matches[first..block.matches.start + behind], before + next);
                left -= left.min(to - at);
                (at, next) = (to, behind);
                if coder.written() > most {
                    return None;
                }
            }
        }
    }
    Some(coder.finish().len()).filter(|cost| *cost <= most)
}
