//! The next step of a parse, predicted from the parse of the base at the bytes that the text was
//! copied from.

use std::ops::Range;

use crate::alphabet::{MATCH_LEN_MAX, MATCH_LEN_MIN};
use crate::chains::common;
use crate::parse::Match;
use crate::replay::Step;

/// "The text's bytes from `at` on were made from those of the base from `base` on."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Position in the text.
    pub at: u32,
    /// Bytes, at least one.
    pub len: u32,
    /// Position in the base.
    pub base: u32,
    /// Both sides are equal; otherwise they only lie beside each other.
    pub is_equal: bool,
}

impl Run {
    fn end(&self) -> u32 {
        self.at + self.len
    }
}

/// Bytes of a text that are bytes of the text it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawRun {
    /// Position in the text.
    pub(crate) text_at: u32,
    /// Position in what it stands for.
    pub(crate) outer_at: u32,
    /// Bytes.
    pub(crate) len: u32,
}

impl RawRun {
    /// Appends it; one that goes on where the last one ended is part of that.
    pub(crate) fn add_to(self, raws: &mut Vec<Self>) {
        match raws.last_mut() {
            Some(last) if (last.text_at + last.len, last.outer_at + last.len) == (self.text_at, self.outer_at) => {
                last.len += self.len;
            }
            _ => raws.push(self),
        }
    }
}

/// The parse of the base: its matches in ascending order, and where the base is plain text of a
/// deflate stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Base<'a> {
    /// Matches, by position in the base.
    pub matches: &'a [Match],
    /// Ascending, disjoint ranges of the base that were opened.
    pub opened: &'a [Range<u32>],
}

/// What a prediction was made from. The numbers are part of the format
/// (docs/format/deflate-view-v1.md §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No parse of a base lies beside this byte.
    Nothing = 0,
    /// A literal there.
    Literal = 1,
    /// A match that begins there, of bytes that are the same here.
    SameMatch = 2,
    /// A match that begins there.
    Match = 3,
    /// A match that began before it.
    Inside = 4,
    /// A match there whose distance matches nothing here.
    NoMatch = 5,
}

/// How many reasons there are.
pub(crate) const REASONS: usize = 6;

/// The bytes of a stream in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) start: usize,
    /// Behind the last byte that is known.
    pub(crate) end: usize,
    /// The stream begins at `start`.
    pub(crate) is_from_start: bool,
}

/// Walks text and base side by side; positions in the text never go back.
#[derive(Debug)]
pub(crate) struct Predictor<'a> {
    base: Base<'a>,
    runs: &'a [Run],
    run: usize,
    next_match: usize,
    opened: usize,
    /// Where in the base the last prediction was made.
    last: u32,
    /// The run at hand, and where in the text bytes of it lie beside one opened range.
    here: Run,
    within: Range<usize>,
}

impl<'a> Predictor<'a> {
    pub(crate) fn new(base: Base<'a>, runs: &'a [Run]) -> Self {
        let here = Run { at: 0, len: 0, base: 0, is_equal: false };
        Self { base, runs, run: 0, next_match: 0, opened: 0, last: 0, here, within: 0..0 }
    }

    /// The step that the base suggests for `at`.
    #[inline(always)]
    pub(crate) fn predict(&mut self, text: &[u8], extent: &Extent, at: usize) -> (Reason, Step) {
        let Some(place) = self.place_of(at) else {
            return (Reason::Nothing, Step::Literal);
        };
        let run = self.here;
        let Some(found) = self.base.matches.get(self.next_match).filter(|found| found.at <= place) else {
            return (Reason::Literal, Step::Literal);
        };
        let distance = found.distance() as usize;
        let begins = found.at == place;
        if distance > at - extent.start {
            return (Reason::NoMatch, Step::Literal);
        }
        if begins && run.is_equal && at - distance >= run.at as usize {
            let end = at + usize::from(found.len);
            let is_whole = end < run.end() as usize
                || (end == run.end() as usize && (usize::from(found.len) == MATCH_LEN_MAX || end == extent.end));
            if is_whole && end <= extent.end {
                return (Reason::SameMatch, Step::Match { len: found.len, distance: distance as u32 });
            }
        }
        let most = MATCH_LEN_MAX.min(extent.end - at);
        match common(text, at - distance, at, most) {
            0..MATCH_LEN_MIN => (Reason::NoMatch, Step::Literal),
            len => {
                let reason = if begins { Reason::Match } else { Reason::Inside };
                (reason, Step::Match { len: len as u16, distance: distance as u32 })
            }
        }
    }

    /// Takes the steps from `from` on that are predicted without a look at the text: literals, and
    /// matches that begin and end inside a run that is equal. At most `steps` of them, none past
    /// `limit`. Appends the matches, and returns where it stopped and how many steps it took;
    /// [`Predictor::predict`] says the same to each of them.
    pub(crate) fn follow(
        &mut self,
        extent: &Extent,
        from: usize,
        limit: usize,
        steps: u32,
        matches: &mut Vec<Match>,
    ) -> (usize, u32) {
        let Some(first) = self.place_of(from).filter(|_| self.here.is_equal) else {
            return (from, 0);
        };
        let run = self.here;
        // All places count from the base; `shift` leads to the text.
        let shift = (from as u32).wrapping_sub(first);
        let in_base = |place: usize| (place as u32).wrapping_sub(shift);
        let run_end = in_base(run.end() as usize);
        let end = in_base(self.within.end.min(limit));
        let match_end = in_base(limit.min(extent.end)).min(run_end - 1);
        let source_start = in_base((run.at as usize).max(extent.start).min(from));
        let (mut at, mut left) = (first, steps);
        let mut rest = self.base.matches[self.next_match..].iter();
        while at < end && left > 0 {
            let next = rest.as_slice().first();
            let literals_end = next.map_or(end, |next| next.at.min(end));
            if literals_end > at {
                let literals = (literals_end - at).min(left);
                at += literals;
                left -= literals;
                if left == 0 || at == end {
                    break;
                }
            }
            let Some(next) = next else { break };
            // One that began before it is looked up in the text.
            if next.at != at || next.distance() > at.wrapping_sub(source_start) || next.end() > match_end {
                break;
            }
            matches.push(Match::new(at.wrapping_add(shift), next.len, next.distance()));
            at = next.end();
            left -= 1;
            rest.next();
        }
        self.next_match = self.base.matches.len() - rest.len();
        self.last = at;
        (at.wrapping_add(shift) as usize, steps - left)
    }

    /// The place in the base beside `at`, and the first match that ends behind it; `None` where the
    /// base is not opened, or says nothing.
    #[inline(always)]
    fn place_of(&mut self, at: usize) -> Option<u32> {
        if !self.within.contains(&at) {
            self.seek(at)?;
        }
        let place = self.here.base + (at as u32 - self.here.at);
        let matches = self.base.matches;
        if place < self.last {
            self.next_match = matches.partition_point(|found| found.end() <= place);
        }
        while matches.get(self.next_match).is_some_and(|found| found.end() <= place) {
            self.next_match += 1;
        }
        self.last = place;
        Some(place)
    }

    /// Finds the run that holds `at`, and the opened range beside it.
    #[inline(never)]
    fn seek(&mut self, at: usize) -> Option<()> {
        while self.runs.get(self.run).is_some_and(|run| run.end() as usize <= at) {
            self.run += 1;
        }
        let run = *self.runs.get(self.run).filter(|run| run.at as usize <= at)?;
        let place = run.base + (at as u32 - run.at);
        let Base { matches, opened } = self.base;
        if place < self.last || place - self.last > 1 << 12 {
            self.next_match = matches.partition_point(|found| found.end() <= place);
            self.opened = opened.partition_point(|range| range.end <= place);
        } else {
            while opened.get(self.opened).is_some_and(|range| range.end <= place) {
                self.opened += 1;
            }
        }
        self.last = place;
        let range = opened.get(self.opened).filter(|range| range.start <= place)?;
        // No bytes before `at` are asked for again but those of the same run.
        let in_text = |place: u32| (run.at + (place.clamp(run.base, run.base + run.len) - run.base)) as usize;
        (self.here, self.within) = (run, in_text(range.start)..in_text(range.end));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn raw_bytes_that_lie_end_to_end_on_both_sides_are_one_run() {
        let raw = |text_at, outer_at, len| RawRun { text_at, outer_at, len };
        let mut raws = Vec::new();
        [raw(0, 0, 5), raw(5, 5, 2), raw(7, 9, 1), raw(9, 10, 1)].into_iter().for_each(|raw| raw.add_to(&mut raws));
        assert_eq!(raws, [raw(0, 0, 7), raw(7, 9, 1), raw(9, 10, 1)]);
    }

    proptest! {
        #[test]
        fn what_is_followed_is_what_is_predicted_step_by_step(
            gaps in prop::collection::vec((0u32..6, 1u16..40, 1u32..200), 1..200),
            runs in prop::collection::vec((0u32..20, 1u32..400, 0u32..3000, any::<bool>()), 1..30),
            opened in prop::collection::vec((0u32..30, 1u32..900), 1..10),
            (start, steps) in (0usize..100, 1u32..60),
        ) {
            let text = vec![0u8; 6000];
            let mut at = 0;
            let matches: Vec<Match> = gaps
                .into_iter()
                .map(|(gap, len, distance)| {
                    at += gap + u32::from(len);
                    Match::new(at - u32::from(len), len, distance)
                })
                .collect();
            let mut at = 0;
            let opened: Vec<Range<u32>> = opened
                .into_iter()
                .map(|(gap, len)| {
                    at += gap + len;
                    at - len..at
                })
                .collect();
            let mut at = 0;
            let runs: Vec<Run> = runs
                .into_iter()
                .map(|(gap, len, base, is_equal)| {
                    at += gap + len;
                    Run { at: at - len, len, base, is_equal }
                })
                .filter(|run| run.end() < 5000)
                .collect();
            let base = Base { matches: &matches, opened: &opened };
            let extent = Extent { start, end: 5200, is_from_start: true };
            let (mut follower, mut walker) = (Predictor::new(base, &runs), Predictor::new(base, &runs));
            let (mut at, limit) = (start, 5100);
            while at < limit {
                let mut followed = Vec::new();
                let (until, taken) = follower.follow(&extent, at, limit, steps, &mut followed);
                let mut stepped = Vec::new();
                for _ in 0..taken {
                    let (_, step) = walker.predict(&text, &extent, at);
                    if let Step::Match { len, distance } = step {
                        stepped.push(Match::new(at as u32, len, distance));
                    }
                    at += step.len();
                }
                prop_assert_eq!((until, &followed), (at, &stepped));
                prop_assert!(taken <= steps && at <= limit);
                let (reason, step) = walker.predict(&text, &extent, at);
                prop_assert_eq!(follower.predict(&text, &extent, at), (reason, step));
                at += step.len();
            }
        }
    }
}
