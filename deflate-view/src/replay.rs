//! What a known encoder would do next: its match search, run only where it is asked for.
//!
//! Part of the format (docs/format/deflate-view-v1.md §7): parses already stored cannot be read
//! with another search.

use std::ops::Range;

use crate::alphabet::{MATCH_LEN_MAX, MATCH_LEN_MIN, WINDOW_LEN};
use crate::chains::{Bounds, Chains, Found, THREE_HASHES, hash_of_three};
use crate::parse::Match;

/// Bytes that stock zlib keeps ahead: it looks no further back than the window less this.
const AHEAD_MIN: usize = 262;
/// A match of three bytes further back than this is not worth its bits.
const TOO_FAR: usize = 4096;
/// Go's chains, as a power of two.
const HASH_BITS_GO: u32 = 17;

/// A step of a parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Literal,
    Match { len: u16, distance: u32 },
}

impl Step {
    /// Bytes it stands for.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Literal => 1,
            Self::Match { len, .. } => usize::from(len),
        }
    }
}

/// How an encoder decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// zlib's `deflate_fast`: the first match that is found is taken, and long ones are not entered
    /// into the chains.
    Greedy,
    /// zlib's `deflate_slow`: a match waits for a better one at the next byte.
    Lazy,
    /// Go's `compress/flate` from level 4 on: lazy, over hashes of four bytes.
    Go,
}

/// An encoder that can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    style: Style,
    /// A match this long makes the search for a better one four times as short.
    good: usize,
    /// A match this long is taken at once (lazy), or the longest that is entered into the chains
    /// whole (greedy).
    lazy: usize,
    /// A match this long ends a search.
    nice: usize,
    /// Places that a search looks at.
    chain: usize,
}

impl Replay {
    /// Every encoder by its number in the format, less one.
    pub(crate) const ALL: [Self; 15] = [
        Self::new(Style::Greedy, 4, 4, 8, 4),
        Self::new(Style::Greedy, 4, 5, 16, 8),
        Self::new(Style::Greedy, 4, 6, 32, 32),
        Self::new(Style::Lazy, 4, 4, 16, 16),
        Self::new(Style::Lazy, 8, 16, 32, 32),
        Self::new(Style::Lazy, 8, 16, 128, 128),
        Self::new(Style::Lazy, 8, 32, 128, 256),
        Self::new(Style::Lazy, 32, 128, 258, 1024),
        Self::new(Style::Lazy, 32, 258, 258, 4096),
        Self::new(Style::Go, 4, 4, 16, 16),
        Self::new(Style::Go, 8, 16, 32, 32),
        Self::new(Style::Go, 8, 16, 128, 128),
        Self::new(Style::Go, 8, 32, 128, 256),
        Self::new(Style::Go, 32, 128, 258, 1024),
        Self::new(Style::Go, 32, 258, 258, 4096),
    ];

    const fn new(style: Style, good: usize, lazy: usize, nice: usize, chain: usize) -> Self {
        Self { style, good, lazy, nice, chain }
    }

    /// About how many nanoseconds this work takes, as measured
    /// (docs/decisions/0069-the-price-of-reading.md).
    pub(crate) fn searches_ns(self, work: SearchWork) -> u64 {
        let (enter_tenths, look_tenths) = if self.leaps() { (55, 37) } else { (20, 27) };
        (work.entered * enter_tenths + work.looks * look_tenths) / 10
    }

    /// Whether its chains are long enough for leaps ([`Chains::leap`]).
    fn leaps(self) -> bool {
        self.style == Style::Lazy && self.chain > 128
    }

    /// Bytes that are hashed, and the shortest match.
    fn hashed(self) -> usize {
        if self.style == Style::Go { 4 } else { 3 }
    }
}

/// The state of a replayed encoder: what of the text is in its chains.
#[derive(Debug)]
pub(crate) struct Searcher {
    replay: Replay,
    chains: Chains,
    /// The stream's bytes in the text.
    start: usize,
    end: usize,
    /// True when a stream's first byte is at `start`: zlib never finds it.
    is_from_start: bool,
    /// Everything before this place is in the chains.
    entered: usize,
    /// Steps that the greedy style has seen, whose bytes are in the chains.
    steps_entered: usize,
    /// What the search at a place has found already, with the length it had to beat.
    known: Option<(usize, Found)>,
    work: SearchWork,
}

/// What searching took, in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchWork {
    /// Places that were entered into the chains.
    pub entered: u64,
    /// Places that were looked at.
    pub looks: u64,
}

impl Searcher {
    pub(crate) fn new(replay: Replay) -> Self {
        Self {
            replay,
            chains: match replay.style {
                Style::Greedy => Chains::new(THREE_HASHES, false),
                Style::Lazy => Chains::new(THREE_HASHES, replay.leaps()),
                Style::Go => Chains::new(1 << HASH_BITS_GO, false),
            },
            start: 0,
            end: 0,
            is_from_start: true,
            entered: 0,
            steps_entered: 0,
            known: None,
            work: SearchWork::default(),
        }
    }

    /// What all searches took so far.
    pub(crate) fn work(&self) -> SearchWork {
        self.work
    }

    /// Begins a stream whose bytes known are `text[start..end]`. Places never go back.
    pub(crate) fn begin(&mut self, start: usize, end: usize, is_from_start: bool) {
        self.start = start;
        self.end = end;
        self.is_from_start = is_from_start;
        self.entered = start;
        self.steps_entered = 0;
        self.known = None;
    }

    /// What the encoder would do at `at`. `steps` are the matches of the stream so far,
    /// `after_literal` whether the step before was a literal.
    pub(crate) fn guess(&mut self, text: &[u8], at: usize, steps: &[Match], after_literal: bool) -> Step {
        match self.replay.style {
            Style::Greedy => {
                self.enter_greedily(text, at, steps);
                step_of(self.search(text, at, MATCH_LEN_MIN - 1))
            }
            Style::Lazy => self.guess_lazily(text, at, after_literal, MATCH_LEN_MIN - 1),
            Style::Go => self.guess_lazily(text, at, after_literal, 3),
        }
    }

    fn guess_lazily(&mut self, text: &[u8], at: usize, after_literal: bool, least: usize) -> Step {
        let found = match self.known.take() {
            Some((place, found)) if place == at && after_literal => found,
            _ => {
                let better = if after_literal { self.better(text, at, least) } else { None };
                better.unwrap_or_else(|| self.look(text, at, least))
            }
        };
        if found.len == 0 {
            return Step::Literal;
        }
        if found.len < self.replay.lazy {
            let next = self.look(text, at + 1, found.len);
            if next.len > found.len {
                self.known = Some((at + 1, next));
                return Step::Literal;
            }
        }
        step_of(found)
    }

    /// The match for which one at the byte before had to stand back, when there was one.
    fn better(&mut self, text: &[u8], at: usize, least: usize) -> Option<Found> {
        if at == self.start {
            return None;
        }
        let waiting = self.look(text, at - 1, least).len;
        if waiting == 0 || waiting >= self.replay.lazy {
            return None;
        }
        Some(self.look(text, at, waiting)).filter(|found| found.len > 0)
    }

    /// The search at `at` for a match longer than `least`, everything before it in the chains.
    fn look(&mut self, text: &[u8], at: usize, least: usize) -> Found {
        self.enter_until(text, at);
        match self.replay.style {
            Style::Go => self.search_as_go(text, at, least),
            _ => {
                let found = self.search(text, at, least);
                if found.len == MATCH_LEN_MIN && found.distance > TOO_FAR { Found::default() } else { found }
            }
        }
    }

    #[inline(always)]
    fn hash(&self, text: &[u8], at: usize) -> usize {
        if self.replay.style == Style::Go {
            let word = text[at..].first_chunk::<4>().map_or(0, |word| u32::from_be_bytes(*word));
            return (word.wrapping_mul(0x1e35_a7bd) >> (32 - HASH_BITS_GO)) as usize;
        }
        hash_of_three(text, at)
    }

    #[inline(always)]
    fn enter(&mut self, text: &[u8], at: usize) {
        if at + self.replay.hashed() <= self.end {
            let hash = self.hash(text, at);
            self.chains.enter(at, hash);
        }
    }

    /// The places before `at` that are to be entered now, counted as if they were.
    fn places_until(&mut self, at: usize) -> Range<usize> {
        let from = self.entered.max(at.saturating_sub(WINDOW_LEN));
        self.work.entered += at.saturating_sub(from) as u64;
        self.entered = self.entered.max(at);
        from..at
    }

    fn enter_until(&mut self, text: &[u8], at: usize) {
        let places = self.places_until(at);
        if self.replay.style == Style::Go {
            places.for_each(|place| self.enter(text, place));
        } else {
            self.chains.enter_all(text, places, self.end);
        }
    }

    /// Enters every place that is no inside of a match too long for that.
    fn enter_greedily(&mut self, text: &[u8], at: usize, steps: &[Match]) {
        let mut place = self.places_until(at).start;
        while steps.get(self.steps_entered).is_some_and(|step| (step.end() as usize) <= place) {
            self.steps_entered += 1;
        }
        while place < at {
            if let Some(step) = steps.get(self.steps_entered).filter(|step| step.at as usize <= place) {
                let is_long = usize::from(step.len) > self.replay.lazy;
                if !is_long || place == step.at as usize {
                    self.enter(text, place);
                }
                place = if is_long { step.end() as usize } else { place + 1 };
                self.steps_entered += usize::from(place >= step.end() as usize);
            } else {
                self.enter(text, place);
                place += 1;
            }
        }
    }

    /// Bytes that a match at `at` can have.
    fn room(&self, at: usize) -> usize {
        self.end.saturating_sub(at).min(MATCH_LEN_MAX)
    }

    /// zlib's `longest_match`.
    fn search(&mut self, text: &[u8], at: usize, least: usize) -> Found {
        let room = self.room(at);
        if room < MATCH_LEN_MIN || least >= room {
            return Found::default();
        }
        let tries = if least >= self.replay.good { self.replay.chain >> 2 } else { self.replay.chain };
        // zlib never finds a stream's first byte; and only the first place of a chain may be as far
        // as can be.
        let first = self.start + usize::from(self.is_from_start);
        let farthest = at.saturating_sub(WINDOW_LEN - AHEAD_MIN);
        let (near, far) = (first.max(farthest + 1), first.max(farthest));
        let nice = self.replay.nice.min(room);
        let bounds = Bounds { room, least, nice, tries, near, far, short_reach: WINDOW_LEN };
        match self.replay.style {
            Style::Lazy => self.chains.leap(text, at, bounds, self.entered, &mut self.work.looks),
            Style::Greedy | Style::Go => {
                let hash = self.hash(text, at);
                self.chains.walk(text, at, hash, bounds, &mut self.work.looks)
            }
        }
    }

    /// `findMatch` of Go's `compress/flate`. What has to be beaten is only three bytes, whatever
    /// was found before.
    fn search_as_go(&mut self, text: &[u8], at: usize, least: usize) -> Found {
        let room = self.room(at);
        if room < 4 || at < self.start {
            return Found::default();
        }
        let first = self.start.max(at.saturating_sub(WINDOW_LEN));
        let (tries, nice) = (self.replay.chain, self.replay.nice.min(room));
        let bounds = Bounds { room, least: 3, nice, tries, near: first, far: first, short_reach: TOO_FAR };
        let hash = self.hash(text, at);
        let best = self.chains.walk(text, at, hash, bounds, &mut self.work.looks);
        if best.len <= least { Found::default() } else { best }
    }
}

fn step_of(found: Found) -> Step {
    match found.len {
        0 => Step::Literal,
        len => Step::Match { len: len as u16, distance: found.distance as u32 },
    }
}
