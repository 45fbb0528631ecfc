//! Places of a text by the hash of their first bytes, each linked to the one before it, and the
//! walk over them for the longest match.
//!
//! Part of the format (docs/format/deflate-view-v1.md §7): which places are looked at, and in which
//! order, decides what a replayed encoder says.

use std::ops::Range;

use crate::alphabet::WINDOW_LEN;

/// Chains of three bytes: zlib's at its usual memory level.
pub(crate) const THREE_HASHES: usize = 1 << 15;
const SIX_HASHES: usize = 1 << 15;
/// With fewer looks left, a walk takes every place.
const LEAP_TRIES_MIN: usize = 8;
/// Bytes of a match that are looked at for those whose chain leads furthest.
const LEAP_OFFSETS_MAX: usize = 64;
/// Places may be entered so far behind the one whose match is looked for: the window still holds
/// every place before it that zlib looks at.
const LEAP_AHEAD_MAX: usize = 200;

/// A match found: nothing when `len` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) len: usize,
    pub(crate) distance: usize,
}

/// Where a walk looks, and what it accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes that a match can have.
    pub(crate) room: usize,
    /// Bytes that it has to beat.
    pub(crate) least: usize,
    /// A match this long ends the walk.
    pub(crate) nice: usize,
    /// Places that are looked at, at most.
    pub(crate) tries: usize,
    /// No place before this one, once one has been looked at.
    pub(crate) near: usize,
    /// No place before this one.
    pub(crate) far: usize,
    /// How far back a match of four bytes or less may reach.
    pub(crate) short_reach: usize,
}

/// The place entered last with some hash.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// The place plus one; 0 is none.
    next: u32,
    /// How many there were before it.
    rank: u16,
}

/// A place in its chain.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// How far before it the one with the same hash lies; 0 is too far.
    before: u16,
    /// How many of the chain were entered before it, modulo 65,536.
    rank: u16,
}

/// The chains of a text, of its last 32 KiB at any time.
#[derive(Debug)]
pub(crate) struct Chains {
    heads: Vec<Head>,
    links: Box<[Link; WINDOW_LEN]>,
    /// Those of longer runs of bytes, for leaps.
    sixes: Option<Sixes>,
}

/// Places by the hash of six bytes. They are no part of the format: they lead to the same matches
/// sooner.
#[derive(Debug)]
struct Sixes {
    /// The place entered last plus one; 0 is none.
    heads: Box<[u32; SIX_HASHES]>,
    /// How far before a place the one with the same hash lies; 0 is too far.
    links: Box<[u16; WINDOW_LEN]>,
}

impl Sixes {
    fn new() -> Self {
        Self { heads: Box::new([0; SIX_HASHES]), links: Box::new([0; WINDOW_LEN]) }
    }

    #[inline(always)]
    fn hash(text: &[u8], at: usize) -> usize {
        let word = match text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            Some(eight) => u64::from_le_bytes(*eight),
            None => text[at..].iter().take(6).rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        ((word << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SIX_HASHES.trailing_zeros())) as usize
    }

    #[inline(always)]
    fn enter(&mut self, text: &[u8], places: Range<usize>) {
        for place in places {
            let next = place as u32 + 1;
            let head = &mut self.heads[Self::hash(text, place) % SIX_HASHES];
            let distance = next.wrapping_sub(*head);
            self.links[place % WINDOW_LEN] = if distance > WINDOW_LEN as u32 { 0 } else { distance as u16 };
            *head = next;
        }
    }

    fn last(&self, hash: usize) -> Option<usize> {
        (self.heads[hash % SIX_HASHES] as usize).checked_sub(1)
    }

    #[inline(always)]
    fn previous(&self, place: usize) -> Option<usize> {
        match usize::from(self.links[place % WINDOW_LEN]) {
            0 => None,
            distance => place.checked_sub(distance),
        }
    }
}

impl Chains {
    /// Chains of so many hashes, with all that leaps need or without.
    pub(crate) fn new(hashes: usize, leaps: bool) -> Self {
        let links = Box::new([Link::default(); WINDOW_LEN]);
        Self { heads: vec![Head::default(); hashes], links, sixes: leaps.then(Sixes::new) }
    }

    /// Enters all of `places` by zlib's hash of three bytes; those of a text that ends at `end`.
    pub(crate) fn enter_all(&mut self, text: &[u8], places: Range<usize>, end: usize) {
        let three_end = places.end.min((end + 1).saturating_sub(3));
        let bytes = text.get(places.start..three_end + 2).filter(|_| places.start < three_end);
        if let (Some(bytes), Some(heads)) = (bytes, self.heads.first_chunk_mut::<THREE_HASHES>()) {
            let mut hash = usize::from(bytes[0]) << 5 ^ usize::from(bytes[1]);
            for (place, &byte) in (places.start..three_end).zip(&bytes[2..]) {
                hash = (hash << 5 ^ usize::from(byte)) % THREE_HASHES;
                link(&mut heads[hash], &mut self.links, place);
            }
        }
        if let Some(sixes) = &mut self.sixes {
            sixes.enter(text, places.start..places.end.min((end + 1).saturating_sub(6)));
        }
    }

    /// Enters a place. Places come in ascending order.
    #[inline(always)]
    pub(crate) fn enter(&mut self, place: usize, hash: usize) {
        link(&mut self.heads[hash], &mut self.links, place);
    }

    #[inline(always)]
    fn link(&self, place: usize) -> Link {
        self.links[place % WINDOW_LEN]
    }

    /// The place entered last with this hash.
    fn last(&self, hash: usize) -> Option<usize> {
        (self.heads[hash].next as usize).checked_sub(1)
    }

    /// The place before `place` in its chain, while it is near enough.
    #[inline(always)]
    fn previous(&self, place: usize) -> Option<usize> {
        match usize::from(self.link(place).before) {
            0 => None,
            distance => place.checked_sub(distance),
        }
    }

    /// The place entered last with this hash that lies before `at`: one behind it belongs to a step
    /// that is not yet made.
    fn last_before(&self, hash: usize, at: usize) -> Option<usize> {
        let mut place = self.last(hash)?;
        while place >= at {
            place = self.previous(place)?;
        }
        Some(place)
    }

    /// Walks the chain of the bytes at `at`, whose hash this is, and takes what is longer than
    /// anything before. Counts the places that it looks at.
    pub(crate) fn walk(&self, text: &[u8], at: usize, hash: usize, bounds: Bounds, looks: &mut u64) -> Found {
        let mut best = Found { len: bounds.least, distance: 0 };
        let Some(mut place) = self.last_before(hash, at) else { return Found::default() };
        let mut limit = bounds.far;
        let mut last = last_two(text, at + best.len);
        for _ in 0..bounds.tries {
            *looks += 1;
            if place < limit {
                break;
            }
            if last_two(text, place + best.len) == last {
                let len = common(text, place, at, bounds.room);
                if len > best.len && (len > 4 || at - place <= bounds.short_reach) {
                    best = Found { len, distance: at - place };
                    if len >= bounds.nice {
                        break;
                    }
                    last = last_two(text, at + len);
                }
            }
            limit = bounds.near;
            let Some(previous) = self.previous(place) else { break };
            place = previous;
        }
        if best.distance == 0 { Found::default() } else { best }
    }

    /// The same over zlib's chains, in which every place of the window before `entered` is. A match
    /// longer than the best so far has that one's bytes, too: the chain of the rarest of them leads
    /// to it past most places that a walk would look at.
    pub(crate) fn leap(&self, text: &[u8], at: usize, bounds: Bounds, entered: usize, looks: &mut u64) -> Found {
        let hash = hash_of_three(text, at);
        let Some(sixes) = self.sixes.as_ref().filter(|_| entered <= at + LEAP_AHEAD_MAX) else {
            return self.walk(text, at, hash, bounds, looks);
        };
        let first = self.last_before(hash, at).filter(|place| *place >= bounds.far && bounds.tries > 0);
        let Some(first) = first else { return Found::default() };
        // How many places a walk looks at before this one.
        let first_rank = self.link(first).rank;
        let looks_before = |place: usize| usize::from(first_rank.wrapping_sub(self.link(place).rank));
        let mut best = Found { len: bounds.least, distance: 0 };
        let mut last = last_two(text, at + best.len);
        // The places looked at are `place - chain.offset`, for each `place` of that chain.
        let (mut place, mut chain) = (first, Chain::WALK);
        let mut start = self.rarest_start(sixes, text, at, bounds.least);
        // Looks left, in the chain of `at` and by leaps: twice those of a walk at most.
        let (mut left, mut leaps_left) = (bounds.tries, bounds.tries);
        loop {
            if let Some((rare, head)) = start.filter(|(rare, _)| place + rare.offset < entered) {
                // From here on every place has these bytes of it in their chain.
                start = None;
                let mut there = head;
                while there.is_some_and(|there| there > place + rare.offset) {
                    *looks += 1;
                    there = there.and_then(|there| self.previous_in(sixes, rare, there));
                }
                let Some(there) = there else { break };
                (place, chain) = (there, rare);
            }
            *looks += 1;
            let Some(candidate) = place.checked_sub(chain.offset) else { break };
            if candidate < bounds.near && candidate != first {
                break;
            }
            if last_two(text, candidate + best.len) == last {
                let len = common(text, candidate, at, bounds.room);
                if len > best.len {
                    let before = looks_before(candidate);
                    if before >= bounds.tries {
                        break;
                    }
                    best = Found { len, distance: at - candidate };
                    if len >= bounds.nice {
                        break;
                    }
                    last = last_two(text, at + len);
                    start = None;
                    left = bounds.tries - before;
                    let leaps = left >= LEAP_TRIES_MIN && leaps_left > 0;
                    chain = if leaps { self.rarest_within(sixes, candidate, len, entered) } else { Chain::WALK };
                    place = candidate + chain.offset;
                }
            }
            if chain != Chain::WALK && leaps_left == 0 {
                // Not rare enough: on as a walk, from the best match or from the start.
                place = if best.distance == 0 { first } else { at - best.distance };
                (chain, left) = (Chain::WALK, bounds.tries - looks_before(place));
            }
            let looks_left = if chain == Chain::WALK { &mut left } else { &mut leaps_left };
            *looks_left -= 1;
            if left == 0 {
                break;
            }
            let Some(previous) = self.previous_in(sixes, chain, place) else { break };
            place = previous;
        }
        if best.distance == 0 { Found::default() } else { best }
    }

    #[inline(always)]
    fn previous_in(&self, sixes: &Sixes, chain: Chain, place: usize) -> Option<usize> {
        if chain.is_six { sixes.previous(place) } else { self.previous(place) }
    }

    /// The chain of some bytes that every match of more than `least` bytes at `at` has, and the
    /// place entered last in it. `None` when these are the first three.
    #[inline(always)]
    fn rarest_start(&self, sixes: &Sixes, text: &[u8], at: usize, least: usize) -> Option<(Chain, Option<usize>)> {
        if least >= 5 {
            // Those that lie last are least likely to be in the match that has to be beaten.
            let offset = least - 5;
            return Some((Chain { is_six: true, offset }, sixes.last(Sixes::hash(text, at + offset))));
        }
        let offset = least.checked_sub(2).filter(|offset| *offset > 0)?;
        Some((Chain { is_six: false, offset }, self.last(hash_of_three(text, at + offset))))
    }

    /// Of a match of `len` bytes at `candidate`, the bytes whose chain leads furthest back.
    #[inline(always)]
    fn rarest_within(&self, sixes: &Sixes, candidate: usize, len: usize, entered: usize) -> Chain {
        let mut rarest = Chain::WALK;
        let is_six = len >= 6;
        let offsets = (len - if is_six { 5 } else { 2 }).min(entered - candidate).min(LEAP_OFFSETS_MAX);
        let mut most = 0;
        for offset in 0..offsets {
            let place = (candidate + offset) % WINDOW_LEN;
            let reach = if is_six { sixes.links[place] } else { self.links[place].before };
            // 0 is too far to be found: more than every distance.
            let reach = reach.wrapping_sub(1);
            if reach >= most {
                most = reach;
                rarest = Chain { is_six, offset };
            }
        }
        rarest
    }
}

/// The chain of the bytes at an offset of what is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain {
    is_six: bool,
    offset: usize,
}

impl Chain {
    /// The one that a walk follows.
    const WALK: Self = Self { is_six: false, offset: 0 };
}

/// Puts a place at the head of a chain.
#[inline(always)]
fn link(head: &mut Head, links: &mut [Link; WINDOW_LEN], place: usize) {
    let next = place as u32 + 1;
    let distance = next.wrapping_sub(head.next);
    let before = if distance > WINDOW_LEN as u32 { 0 } else { distance as u16 };
    let rank = head.rank.wrapping_add(1);
    links[place % WINDOW_LEN] = Link { before, rank };
    *head = Head { next, rank };
}

/// zlib's hash of three bytes.
#[inline(always)]
pub(crate) fn hash_of_three(text: &[u8], at: usize) -> usize {
    let [one, two, three] = text[at..].first_chunk::<3>().map_or([0; 3], |three| three.map(usize::from));
    (one << 10 ^ two << 5 ^ three) % THREE_HASHES
}

/// The byte at `end` and the one before it.
#[inline(always)]
fn last_two(text: &[u8], end: usize) -> u16 {
    text.get(end - 1..).and_then(<[u8]>::first_chunk::<2>).map_or(0, |two| u16::from_le_bytes(*two))
}

/// How many bytes from `left` and `right` on are equal, at most `most`.
#[inline(always)]
pub(crate) fn common(text: &[u8], left: usize, right: usize, most: usize) -> usize {
    let (left, right) = (&text[left..left + most], &text[right..right + most]);
    let mut at = 0;
    while let (Some(one), Some(other)) = (left[at..].first_chunk::<8>(), right[at..].first_chunk::<8>()) {
        let differs = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differs != 0 {
            return at + (differs.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + left[at..].iter().zip(&right[at..]).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Text of few letters, and of pieces that come again: long chains, and matches of any length.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::collection::vec(0u8..4, 1..60);
        (prop::collection::vec(piece, 2..12), prop::collection::vec((0usize..12, 1usize..40), 1..80)).prop_map(
            |(pieces, order)| {
                let all = order
                    .iter()
                    .flat_map(|(piece, times)| pieces[piece % pieces.len()].iter().copied().cycle().take(times * 3));
                all.chain([7; 300]).collect()
            },
        )
    }

    proptest! {
        #[test]
        fn a_leap_finds_what_a_walk_finds(
            text in text(),
            at in any::<prop::sample::Index>(),
            (ahead, start, least) in (0usize..3, 0usize..40, 2usize..40),
            (room, nice, tries) in (3usize..=258, 3usize..=258, 0usize..200),
        ) {
            let len = text.len() - 300;
            let at = at.index(len);
            let (start, entered) = (start.min(at), (at + ahead).min(len));
            let room = room.min(text.len() - at);
            prop_assume!(least < room);
            let mut chains = Chains::new(THREE_HASHES, true);
            chains.enter_all(&text, start..at, text.len());
            chains.enter_all(&text, at..entered, text.len());
            let far = start.max(at.saturating_sub(300));
            let bounds = Bounds {
                room, least, tries, far, nice: nice.min(room), near: far + usize::from(far > start),
                short_reach: WINDOW_LEN,
            };
            let walked = chains.walk(&text, at, hash_of_three(&text, at), bounds, &mut 0);
            prop_assert_eq!(chains.leap(&text, at, bounds, entered, &mut 0), walked);
        }
    }

    #[test]
    fn leaps_find_what_walks_find_all_along_a_text_longer_than_the_window() {
        let mut state = 7u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let words: Vec<Vec<u8>> = (0..300).map(|_| (0..1 + next(14)).map(|_| 97 + next(9) as u8).collect()).collect();
        let mut text = Vec::new();
        while text.len() < 200_000 {
            text.extend_from_slice(&words[next(300) as usize]);
            text.extend(std::iter::repeat_n(b' ', next(60) as usize / 10));
        }
        let end = text.len();
        let mut chains = Chains::new(THREE_HASHES, true);
        let (mut entered, mut leapt) = (0, 0);
        for at in (0..end - 300).step_by(97) {
            chains.enter_all(&text, entered..at + 1, end);
            entered = at + 1;
            let far = at.saturating_sub(32_506);
            for (least, tries) in [(2, 4096), (2, 128), (5, 1024), (11, 40)] {
                let bounds = Bounds { room: 258, least, nice: 258, tries, near: far + 1, far, short_reach: WINDOW_LEN };
                let walked = chains.walk(&text, at, hash_of_three(&text, at), bounds, &mut 0);
                assert_eq!(chains.leap(&text, at, bounds, entered, &mut 0), walked, "at {at}, more than {least}");
                leapt += usize::from(walked.len > 0);
            }
        }
        assert!(leapt > 4000, "{leapt}");
    }
}
