//! A window over a base's text: its bytes, and what opening them told besides, so that a unit that
//! is encoded over the window takes its footprint from there and nothing is opened twice.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::base::{UnitBase, matches_of, window_reads, within};
use crate::open::append_matches;
use crate::{BaseBytes, BasePart, Index, Malformed, Match, Opened, Openings, TextMap};

/// Bytes of a text in a row that move along it.
pub struct WindowText {
    start: u64,
    bytes: Vec<u8>,
    /// Matches of openings that the bytes were opened from, by number.
    matches: BTreeMap<usize, Vec<Match>>,
    matches_bytes: usize,
    matches_bytes_max: usize,
}

impl WindowText {
    /// Empty, with room for so many bytes of matches: openings whose matches are more are opened
    /// again where they are needed.
    pub fn new(matches_bytes_max: usize) -> Self {
        let matches = BTreeMap::new();
        Self { start: 0, bytes: Vec::new(), matches, matches_bytes: 0, matches_bytes_max }
    }

    /// Where a window of `most` of a text's `len` bytes begins that is to be used from `place` on:
    /// as far ahead as it may be, so that it moves as rarely as it may.
    pub fn start_for(place: u64, most: u64, len: u64) -> u64 {
        place.saturating_sub(most / 4).min(len - most)
    }

    /// Where it has to begin now; `None` where `place` lies a quarter of it or more from either
    /// end, or that is the text's own.
    pub fn start_near(&self, place: u64, most: u64, len: u64) -> Option<u64> {
        let (quarter, last) = (most / 4, len - most);
        let is_behind = self.start == 0 || self.start + quarter <= place;
        let is_before = self.start == last || place + quarter <= self.end();
        let is_whole = self.bytes.len() as u64 == most;
        (!(is_whole && is_behind && is_before)).then(|| Self::start_for(place, most, len))
    }

    /// Moves it to begin at `start`, with room for `most` bytes: those from there on stay, those
    /// before it are forgotten, and others come by [`WindowText::load`].
    pub fn move_to(&mut self, (start, most): (u64, u64), map: &TextMap, (openings, index): (&Openings, &Index)) {
        if (self.start..self.end()).contains(&start) {
            self.bytes.drain(..(start - self.start) as usize);
            let mut parts = Vec::new();
            map.parts(start..start + self.bytes.len() as u64, index, &mut parts);
            let mut used = parts.iter().filter_map(|part| openings.segment().openings_of(part).ok());
            let first = used.find(|numbers| !numbers.is_empty()).map_or(usize::MAX, |numbers| numbers.start);
            self.matches = self.matches.split_off(&first);
        } else {
            self.bytes.clear();
            self.matches.clear();
        }
        self.start = start;
        self.bytes.reserve_exact((most as usize).saturating_sub(self.bytes.len()));
        self.matches_bytes = self.matches.values().map(|matches| size_of_val(matches.as_slice())).sum();
    }

    /// Where it begins in the text.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where it ends in the text.
    pub fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the text that follows, whose `parts` these are; `opened` gives the text of an
    /// opening by its number.
    ///
    /// # Errors
    /// As [`UnitBase::of`].
    pub fn load(
        &mut self,
        parts: &[BasePart],
        openings: &Openings,
        view: &BaseBytes,
        mut opened: impl FnMut(usize) -> Result<Arc<Opened>, Malformed>,
    ) -> Result<(), Malformed> {
        for part in parts {
            match *part {
                BasePart::Plain { plain_at, len, .. } => {
                    for number in openings.segment().openings_of(part)? {
                        let opened = opened(number)?;
                        self.keep(number, &opened.matches);
                        self.bytes.extend_from_slice(&opened.plain[within(openings.get(number), plain_at, len)]);
                    }
                }
                BasePart::Object { .. } | BasePart::Nested { .. } => {
                    let one = UnitBase::of(std::slice::from_ref(part), openings.segment(), view, &mut opened)?;
                    self.bytes.extend_from_slice(&one.bytes);
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, opening: usize, matches: &[Match]) {
        let bytes = size_of_val(matches);
        if !self.matches.contains_key(&opening) && self.matches_bytes + bytes <= self.matches_bytes_max {
            self.matches_bytes += bytes;
            self.matches.insert(opening, matches.to_vec());
        }
    }

    /// The same as [`UnitBase::of`] for `ranges` of the text, whose `parts` these are. `None` when
    /// some of it was not kept, or a part is nested.
    pub fn footprint(&self, ranges: &[Range<u64>], parts: &[BasePart], openings: &Openings) -> Option<UnitBase> {
        let mut base = UnitBase::default();
        base.matches.reserve(matches_of(parts));
        let mut at = 0u32;
        for part in parts {
            let start = at;
            match *part {
                BasePart::Object { len, .. } => at += len,
                BasePart::Plain { plain_at, len, .. } => {
                    for number in openings.segment().openings_of(part).ok()? {
                        let range = within(openings.get(number), plain_at, len);
                        let own = self.matches.get(&number)?;
                        let opening = openings.get(number);
                        if opening.plain_at > 0 {
                            let reads = || window_reads(own, opening.window_len());
                            base.window_reads.entry(number).or_insert_with(reads);
                        }
                        append_matches(own, range.clone(), at, &mut base.matches);
                        at += range.len() as u32;
                    }
                    base.opened.push(start..at);
                }
                BasePart::Nested { .. } => return None,
            }
        }
        base.bytes.reserve_exact(at as usize);
        for range in ranges {
            let from = range.start.checked_sub(self.start)? as usize;
            base.bytes.extend_from_slice(self.bytes.get(from..from + (range.end - range.start) as usize)?);
        }
        (base.bytes.len() == at as usize).then_some(base)
    }
}
