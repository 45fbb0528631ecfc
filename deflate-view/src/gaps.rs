//! Bytes that a container puts between the pieces of a stream: where they lie, and streams with and
//! without them.
//!
//! How they are written is part of the format (docs/format/deflate-view-v1.md §13).

use std::borrow::Cow;
use std::ops::Range;

use crate::Malformed;
use crate::numbers::{put, take_up_to};

/// Most runs of gaps in one table. Part of the format.
pub const GAP_RUNS_MAX: usize = 1 << 16;
/// Most bytes of a piece, or of a gap. Part of the format.
pub(crate) const PIECE_LEN_MAX: usize = (1 << 31) - 1;
/// Most times that a piece and a gap follow each other. Part of the format.
const TIMES_MAX: usize = (1 << 31) - 1;

/// So many times a piece of a stream, then a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct GapRun {
    piece: u32,
    gap: u32,
    times: u32,
}

impl GapRun {
    fn step(self) -> u64 {
        u64::from(self.piece) + u64::from(self.gap)
    }
}

/// Where gaps lie among some bytes: after pieces whose lengths are counted from the first byte on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gaps {
    runs: Vec<GapRun>,
}

impl Gaps {
    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Bytes of all of them.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.gap) * u64::from(run.times)).sum()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.times)).sum()
    }

    /// How many runs of equal ones.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// How many there would be with such a gap.
    pub(crate) fn runs_with(&self, piece: u32, gap: u32) -> usize {
        let is_another = self.runs.last().is_none_or(|run| (run.piece, run.gap) != (piece, gap));
        self.runs.len() + usize::from(is_another)
    }

    /// Another gap, `piece` bytes after the one before.
    pub(crate) fn push(&mut self, piece: u32, gap: u32) {
        match self.runs.last_mut() {
            Some(run) if (run.piece, run.gap) == (piece, gap) && run.times < TIMES_MAX as u32 => run.times += 1,
            _ => self.runs.push(GapRun { piece, gap, times: 1 }),
        }
    }

    /// Gaps at these places, which ascend and do not overlap.
    pub(crate) fn at(places: impl Iterator<Item = Range<u64>>) -> Self {
        let (mut gaps, mut last) = (Self::default(), 0);
        for place in places {
            gaps.push((place.start - last) as u32, (place.end - place.start) as u32);
            last = place.end;
        }
        gaps
    }

    /// Where the byte lies, the gaps counted, before which there are so many without them.
    pub(crate) fn place_of(&self, joined: u64) -> u64 {
        let (mut before, mut gaps) = (0, 0);
        for run in &self.runs {
            let times = u64::from(run.times);
            let passed = (joined - before).checked_div(run.piece.into()).map_or(times, |passed| passed.min(times));
            gaps += passed * u64::from(run.gap);
            if passed < times {
                break;
            }
            before += times * u64::from(run.piece);
        }
        joined + gaps
    }

    /// Where so many bytes without gaps end.
    pub(crate) fn end_of(&self, joined: u64) -> u64 {
        joined.checked_sub(1).map_or(0, |last| self.place_of(last) + 1)
    }

    /// Bytes before a place, without the gaps.
    pub(crate) fn joined_before(&self, place: u64) -> u64 {
        let (mut at, mut joined) = (0, 0);
        for run in &self.runs {
            let passed = ((place - at) / run.step()).min(run.times.into());
            at += passed * run.step();
            joined += passed * u64::from(run.piece);
            if passed < u64::from(run.times) {
                return joined + (place - at).min(run.piece.into());
            }
        }
        joined + place - at
    }

    /// The gaps, or parts of them, within a range.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let mut at = 0;
        let runs = self.runs.iter().map(move |run| {
            at += run.step() * u64::from(run.times);
            (at - run.step() * u64::from(run.times), *run)
        });
        let (start, end) = (range.start, range.end);
        runs.take_while(move |(at, _)| *at < end)
            .flat_map(move |(at, run)| {
                let first = (start.saturating_sub(at) / run.step()).min(run.times.into());
                let places = (first..run.times.into()).map(move |number| at + number * run.step());
                places.take_while(move |place| *place < end).map(move |place| {
                    let gap = place + u64::from(run.piece);
                    gap.max(start)..(gap + u64::from(run.gap)).min(end)
                })
            })
            .filter(|gap| gap.start < gap.end)
    }

    /// Those up to a place.
    pub(crate) fn before(&self, place: u64) -> Self {
        self.part(0..place)
    }

    /// Those within a range, counted from its start.
    pub(crate) fn part(&self, range: Range<u64>) -> Self {
        Self::at(self.within(range.clone()).map(|gap| gap.start - range.start..gap.end - range.start))
    }

    /// Whether a gap comes before every other byte.
    pub(crate) fn begins(&self) -> bool {
        self.runs.first().is_some_and(|run| run.piece == 0)
    }

    /// Bytes from a place on without the gaps.
    pub(crate) fn joined<'a>(&self, place: u64, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        without(self.within(place..place + bytes.len() as u64), place, bytes).0
    }

    /// Puts gaps into bytes that are without them, but at whose end they stand: the reverse of what
    /// `Gapped::unit` does.
    ///
    /// # Errors
    /// [`Malformed`] when there are not so many bytes.
    pub(crate) fn put_into(&self, joined: &[u8]) -> Result<Vec<u8>, Malformed> {
        let split = usize::try_from(self.len()).ok().and_then(|len| joined.len().checked_sub(len));
        let (mut pieces, mut gaps) = joined.split_at(split.ok_or(Malformed("gaps past their bytes"))?);
        let mut out = Vec::with_capacity(joined.len());
        for run in &self.runs {
            for _ in 0..run.times {
                let piece = pieces.split_off(..run.piece as usize).ok_or(Malformed("gaps past their bytes"))?;
                let gap = gaps.split_off(..run.gap as usize).ok_or(Malformed("gaps past their bytes"))?;
                out.extend_from_slice(piece);
                out.extend_from_slice(gap);
            }
        }
        out.extend_from_slice(pieces);
        Ok(out)
    }

    /// Bytes that equal gaps have in common, and others do not.
    pub fn name(&self) -> Vec<u8> {
        let mut name = Vec::new();
        self.write(&mut name);
        name
    }

    /// Appends the table.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put(out, self.runs.len() as u64);
        for run in &self.runs {
            put(out, run.piece.into());
            put(out, run.gap.into());
            put(out, run.times.into());
        }
    }

    /// Takes a table of gaps among at most `len` bytes apart.
    ///
    /// # Errors
    /// [`Malformed`] for what the format document tells a decoder to refuse.
    pub(crate) fn read(rest: &mut &[u8], len: u64) -> Result<Self, Malformed> {
        let count = take_up_to(rest, GAP_RUNS_MAX)?;
        let mut gaps = Self { runs: Vec::with_capacity(count.min(1024)) };
        let mut end = 0u64;
        for number in 0..count {
            let piece = take_up_to(rest, PIECE_LEN_MAX)? as u32;
            let gap = take_up_to(rest, PIECE_LEN_MAX)? as u32;
            let times = take_up_to(rest, TIMES_MAX)? as u32;
            let is_first = number == 0 && times == 1;
            if gap == 0 || times == 0 || (piece == 0 && !is_first) {
                return Err(Malformed("a gap of impossible length"));
            }
            let run = GapRun { piece, gap, times };
            // Below 2 to the power of 63.
            end = end.saturating_add(run.step() * u64::from(times));
            if end > len {
                return Err(Malformed("gaps past their bytes"));
            }
            gaps.runs.push(run);
        }
        if gaps.is_empty() { Err(Malformed("a table of no gaps")) } else { Ok(gaps) }
    }
}

/// A table of gaps to look many places up in.
pub(crate) struct GapPlaces {
    /// Of each run: the bytes before it without gaps, those of the gaps before it, and the run.
    runs: Vec<(u64, u64, GapRun)>,
}

impl GapPlaces {
    pub(crate) fn of(gaps: &Gaps) -> Self {
        let (mut before, mut between) = (0, 0);
        let one = |run: &GapRun| {
            let place = (before, between, *run);
            before += u64::from(run.piece) * u64::from(run.times);
            between += u64::from(run.gap) * u64::from(run.times);
            place
        };
        Self { runs: gaps.runs.iter().map(one).collect() }
    }

    /// What [`Gaps::place_of`] says.
    pub(crate) fn place_of(&self, joined: u64) -> u64 {
        let after = self.runs.partition_point(|(before, ..)| *before <= joined);
        let Some((before, between, run)) = after.checked_sub(1).map(|at| self.runs[at]) else { return joined };
        let times = u64::from(run.times);
        let passed = (joined - before).checked_div(run.piece.into()).map_or(times, |passed| passed.min(times));
        joined + between + passed * u64::from(run.gap)
    }
}

/// Bytes from `start` on without the gaps in them, and the bytes of these.
pub(crate) fn without(gaps: impl Iterator<Item = Range<u64>>, start: u64, bytes: &[u8]) -> (Cow<'_, [u8]>, Vec<u8>) {
    let mut gaps = gaps.peekable();
    if gaps.peek().is_none() {
        return (Cow::Borrowed(bytes), Vec::new());
    }
    let (mut joined, mut between, mut at) = (Vec::with_capacity(bytes.len()), Vec::new(), 0);
    for gap in gaps {
        let gap = (gap.start - start) as usize..(gap.end - start) as usize;
        joined.extend_from_slice(&bytes[at..gap.start]);
        between.extend_from_slice(&bytes[gap.clone()]);
        at = gap.end;
    }
    joined.extend_from_slice(&bytes[at..]);
    (Cow::Owned(joined), between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Gaps {
        /// Up to the end of the last gap.
        fn end(&self) -> u64 {
            self.runs.iter().map(|run| run.step() * u64::from(run.times)).sum()
        }
    }

    fn gaps() -> impl Strategy<Value = Gaps> {
        let run = (1u32..50, 1u32..9, 1u32..6).prop_map(|(piece, gap, times)| GapRun { piece, gap, times });
        prop::collection::vec(run, 1..6).prop_map(|runs| Gaps { runs })
    }

    proptest! {
        #[test]
        fn places_with_and_without_gaps_are_counted_as_one_by_one(gaps in gaps(), tail in 0u64..40) {
            let end = gaps.end() + tail;
            let is_gap: Vec<bool> = {
                let mut all = vec![false; end as usize];
                gaps.within(0..end).for_each(|gap| all[gap.start as usize..gap.end as usize].fill(true));
                all
            };
            prop_assert_eq!(is_gap.iter().filter(|gap| **gap).count() as u64, gaps.len());
            let mut joined = 0;
            for place in 0..end {
                prop_assert_eq!(gaps.joined_before(place), joined);
                if !is_gap[place as usize] {
                    prop_assert_eq!(gaps.place_of(joined), place);
                    prop_assert_eq!(GapPlaces::of(&gaps).place_of(joined), place);
                    joined += 1;
                    prop_assert_eq!(gaps.end_of(joined), place + 1);
                }
            }
            for start in (0..end).step_by(7) {
                let clipped: Vec<bool> = {
                    let mut all = vec![false; end as usize];
                    let mid = (start + 11).min(end);
                    gaps.within(start..mid).for_each(|gap| all[gap.start as usize..gap.end as usize].fill(true));
                    all
                };
                let expected = |at: usize| is_gap[at] && (start..start + 11).contains(&(at as u64));
                prop_assert!((0..end as usize).all(|at| clipped[at] == expected(at)));
            }
        }

        #[test]
        fn gaps_come_back(gaps in gaps(), tail in 0u64..40) {
            let bytes: Vec<u8> = (0..gaps.end() + tail).map(|at| at as u8).collect();
            let (joined, between) = without(gaps.within(0..bytes.len() as u64), 0, &bytes);
            prop_assert_eq!(&gaps.joined(0, &bytes), &joined);
            let joined = [&joined[..], &between].concat();
            prop_assert_eq!(gaps.put_into(&joined), Ok(bytes.clone()));
            let mut written = Vec::new();
            gaps.write(&mut written);
            prop_assert_eq!(Gaps::read(&mut &written[..], gaps.end()), Ok(gaps.clone()));
            prop_assert!(Gaps::read(&mut &written[..], gaps.end() - 1).is_err());
            let before = gaps.before(gaps.end() - 1);
            prop_assert_eq!(before.len(), gaps.len() - 1);
        }

        #[test]
        fn no_table_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), len in any::<u64>()) {
            if let Ok(gaps) = Gaps::read(&mut &bytes[..], len % 5000) {
                let _ = gaps.put_into(&bytes);
                prop_assert!(gaps.within(0..u64::MAX).count() as u64 == gaps.count());
            }
        }
    }
}
