//! What clients did and were told, and whether some order of it explains every answer: each key is
//! a register, and histories of one key are checked as Wing and Gong do (*Testing and Verifying
//! Concurrent Objects*, 1993), with states that were visited remembered (Lowe, 2017).

use std::collections::{BTreeSet, HashSet};

/// States that are visited before a history counts as undecided.
const STATES_MAX: usize = 400_000;

/// What a key holds: the number of its content.
pub(crate) type Held = Option<u64>;

/// What was done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It was written, or with `None` removed.
    Write(Held),
    /// It was written because it held nothing.
    WriteIfAbsent(u64),
    /// A write that wants it to hold nothing was refused.
    Refused,
    /// It was read.
    Read(Held),
}

/// One act, from the moment it was asked for to the moment its end was known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) act: Act,
    pub(crate) asked: u64,
    /// `None`: nobody knows whether it was done, nor when.
    pub(crate) answered: Option<u64>,
}

/// What a history says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An order explains it.
    Explained,
    /// None does.
    Impossible,
    /// It was not found out.
    Undecided,
}

/// Whether some order explains the history of one key, which held nothing at first.
pub(crate) fn judge(events: &[Event]) -> Verdict {
    let seen: BTreeSet<u64> = events
        .iter()
        .filter_map(|event| match event.act {
            Act::Read(held) => held,
            _ => None,
        })
        .collect();
    // Who was refused has seen that there was something, and not what.
    let refused = events.iter().filter(|event| event.act == Act::Refused).filter_map(|event| event.answered).max();
    // A write of which nobody knows whether it was done, and that nobody can have seen, was not.
    let mut events: Vec<Event> = events
        .iter()
        .filter(|event| match event.act {
            Act::Write(Some(content)) | Act::WriteIfAbsent(content) => {
                event.answered.is_some() || seen.contains(&content) || refused.is_some_and(|at| event.asked < at)
            }
            _ => true,
        })
        .copied()
        .collect();
    events.sort_by_key(|event| event.asked);
    let mut search = Search { events: &events, visited: HashSet::new() };
    let words = events.len().div_ceil(64);
    match search.go_on(&mut vec![0; words], 0, None) {
        true => Verdict::Explained,
        false if search.visited.len() >= STATES_MAX => Verdict::Undecided,
        false => Verdict::Impossible,
    }
}

struct Search<'a> {
    events: &'a [Event],
    visited: HashSet<(Vec<u64>, Held)>,
}

impl Search<'_> {
    /// Whether what is not in `done` yet can follow when the key holds `held`. All before `first`
    /// is done.
    fn go_on(&mut self, done: &mut Vec<u64>, mut first: usize, held: Held) -> bool {
        while first < self.events.len() && is_set(done, first) {
            first += 1;
        }
        let open = (first..self.events.len()).filter(|at| !is_set(done, *at));
        let Some(deadline) = open.clone().filter_map(|at| self.events[at].answered).min() else {
            // What is left need not have been done.
            return true;
        };
        if self.visited.len() >= STATES_MAX || !self.visited.insert((done.clone(), held)) {
            return false;
        }
        // Whatever was asked for after the first answer of those that are open comes after it.
        let next: Vec<usize> = open.take_while(|at| self.events[*at].asked <= deadline).collect();
        for at in next {
            let Some(then) = after(self.events[at].act, held) else { continue };
            set(done, at, true);
            if self.go_on(done, first, then) {
                return true;
            }
            set(done, at, false);
        }
        false
    }
}

/// What a key holds after an act, if the act is possible.
fn after(act: Act, held: Held) -> Option<Held> {
    match act {
        Act::Write(content) => Some(content),
        Act::WriteIfAbsent(content) => held.is_none().then_some(Some(content)),
        Act::Refused => held.is_some().then_some(held),
        Act::Read(found) => (found == held).then_some(held),
    }
}

fn is_set(words: &[u64], at: usize) -> bool {
    words[at / 64] >> (at % 64) & 1 == 1
}

fn set(words: &mut [u64], at: usize, on: bool) {
    let bit = 1 << (at % 64);
    if on {
        words[at / 64] |= bit;
    } else {
        words[at / 64] &= !bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(act: Act, asked: u64, answered: impl Into<Option<u64>>) -> Event {
        Event { act, asked, answered: answered.into() }
    }

    #[test]
    fn an_order_that_explains_every_answer_is_found_and_an_impossible_one_is_told() {
        use Act::{Read, Refused, Write, WriteIfAbsent};
        let write = |content, asked, answered: u64| event(Write(Some(content)), asked, answered);
        let read = |held, asked, answered: u64| event(Read(held), asked, answered);
        let explained = |events: &[Event]| assert_eq!(judge(events), Verdict::Explained, "{events:?}");
        let impossible = |events: &[Event]| assert_eq!(judge(events), Verdict::Impossible, "{events:?}");
        explained(&[]);
        explained(&[write(1, 0, 1), read(Some(1), 2, 3)]);
        impossible(&[write(1, 0, 1), read(None, 2, 3)]);
        // Two at once, in either order.
        explained(&[write(1, 0, 5), write(2, 0, 5), read(Some(1), 6, 7)]);
        impossible(&[write(1, 0, 5), write(2, 0, 5), read(Some(1), 6, 7), read(Some(2), 8, 9)]);
        // Stale: seen new, then old.
        impossible(&[write(1, 0, 1), write(2, 2, 9), read(Some(2), 3, 4), read(Some(1), 5, 6)]);
        // A write whose end nobody knows may have been done, late, or never; not done and undone.
        let unknown = event(Write(Some(2)), 2, None);
        explained(&[write(1, 0, 1), unknown, read(Some(1), 3, 4), read(Some(2), 5, 6)]);
        impossible(&[write(1, 0, 1), unknown, read(Some(2), 3, 4), read(Some(1), 5, 6)]);
        // A deletion that was acknowledged stays one.
        let deletion = event(Write(None), 2, 3);
        impossible(&[write(1, 0, 1), deletion, read(Some(1), 4, 5)]);
        explained(&[write(1, 0, 1), event(Write(None), 2, None), read(None, 4, 5)]);
        // Conditions.
        impossible(&[event(WriteIfAbsent(1), 0, 1), event(WriteIfAbsent(2), 2, 3)]);
        explained(&[event(WriteIfAbsent(1), 0, 5), event(Refused, 0, 5)]);
        impossible(&[event(Refused, 0, 1)]);
        // Who was refused had seen a write of which nobody else knows.
        explained(&[event(Write(Some(1)), 0, None), event(Refused, 1, 2), write(2, 3, 4), read(Some(2), 5, 6)]);
        impossible(&[event(Write(Some(1)), 3, None), event(Refused, 1, 2)]);
    }
}
