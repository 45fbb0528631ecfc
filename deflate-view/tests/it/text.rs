//! Windows over the text of a base.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use deflate_view::{
    BaseBytes, BasePart, Index, Malformed, Openings, ScanLimits, Scanner, TextMap, UnitBase, WindowText,
};

use crate::kit::{Random, vectors};

/// A base with its streams found.
struct Opened {
    bytes: BaseBytes,
    index: Index,
    openings: Openings,
    map: TextMap,
}

impl Opened {
    fn new(object: &[u8]) -> Self {
        let index = Scanner::index(object, ScanLimits::default());
        let (openings, map) = (Openings::of(&index), TextMap::new(&index, &HashSet::new()));
        Self { bytes: BaseBytes(vec![(0, object.to_vec())]), index, openings, map }
    }

    fn parts(&self, ranges: &[Range<u64>]) -> Vec<BasePart> {
        let mut parts = Vec::new();
        ranges.iter().for_each(|range| self.map.parts(range.clone(), &self.index, &mut parts));
        parts
    }

    fn open(&self, number: usize) -> Result<Arc<deflate_view::Opened>, Malformed> {
        let opening = self.openings.get(number);
        let bytes = self.bytes.get(opening.bytes())?;
        opening.open(self.openings.window(number, &self.index), bytes).map(Arc::new)
    }

    fn base(&self, parts: &[BasePart]) -> UnitBase {
        let opened = |number| self.open(number);
        UnitBase::of(parts, self.openings.segment(), &self.bytes, opened).expect("parts of this base")
    }

    /// Moves a window and fills it, `step` bytes at a time.
    fn fill(&self, window: &mut WindowText, range: Range<u64>, step: u64) {
        window.move_to((range.start, range.end - range.start), &self.map, (&self.openings, &self.index));
        while window.end() < range.end {
            let next = window.end()..range.end.min(window.end() + step);
            let parts = self.parts(std::slice::from_ref(&next));
            let opened = |number| self.open(number);
            window.load(&parts, &self.openings, &self.bytes, opened).expect("parts of this base");
        }
    }
}

#[test]
fn what_a_window_has_of_a_text_is_what_is_opened_for_it_wherever_the_window_has_moved() {
    let mut random = Random(57);
    let (mut kept, mut nested) = (0, 0);
    for container in vectors("container") {
        let opened = Opened::new(&container.bytes);
        let len = opened.map.len();
        let mut window = WindowText::new(usize::MAX);
        for _ in 0..12 {
            let start = random.below(len as usize) as u64;
            let end = len.min(start + 1 + random.below(60_000) as u64);
            opened.fill(&mut window, start..end, 1 + random.below(9_000) as u64);
            assert_eq!((window.start(), window.end()), (start, window.end().max(end)));
            let ranges: Vec<_> = (0..1 + random.below(3))
                .map(|_| {
                    let from = start + random.below((end - start) as usize) as u64;
                    from..(from + 1 + random.below(20_000) as u64).min(end)
                })
                .collect();
            let parts = opened.parts(&ranges);
            let expected = opened.base(&parts);
            match window.footprint(&ranges, &parts, &opened.openings) {
                Some(base) => {
                    assert!(base == expected, "{} {ranges:?}", container.name);
                    kept += base.parse().matches.len();
                }
                None => {
                    assert!(parts.iter().any(|part| matches!(part, BasePart::Nested { .. })), "{}", container.name);
                    nested += 1;
                }
            }
        }
    }
    assert!(kept > 1000, "{kept} matches were kept; {nested} footprints have nested parts");
}

#[test]
fn matches_without_room_and_text_before_the_window_are_opened_again() {
    let containers = vectors("container");
    let object = &containers.iter().max_by_key(|container| container.bytes.len()).expect("a container").bytes;
    let opened = Opened::new(object);
    let all = 0..opened.map.len();
    let parts = opened.parts(std::slice::from_ref(&all));
    let mut window = WindowText::new(0);
    opened.fill(&mut window, all.clone(), 1 << 20);
    assert!(window.footprint(std::slice::from_ref(&all), &parts, &opened.openings).is_none());
    let mut window = WindowText::new(usize::MAX);
    opened.fill(&mut window, 1..all.end, 1 << 20);
    assert!(window.footprint(std::slice::from_ref(&all), &parts, &opened.openings).is_none());
}

#[test]
fn a_window_moves_by_half_of_it_and_has_a_quarter_on_either_side() {
    let (most, len) = (4000, 20_000);
    let mut window = WindowText::new(0);
    let (opened, mut moves) = (Opened::new(&vec![7; len as usize]), 0);
    for place in 0..len {
        if let Some(start) = window.start_near(place, most, len) {
            opened.fill(&mut window, start..start + most, 1500);
            moves += 1;
        }
        assert!(window.start() == 0 || window.start() + most / 4 <= place, "{place}");
        assert!(window.end() == len || place + most / 4 <= window.end(), "{place}");
    }
    assert_eq!(moves, 9);
}
