//! Whom the steps of a unit ask what an encoder would do: its replay, or what that said before.
//!
//! A unit that was just encoded is decoded to see that it gives its bytes back. Its replay would
//! search again for what it has found already. It is asked in the same order about the same places,
//! or the unit is not what it was: so its answers are kept, and each is held against the place that
//! is asked about.

use crate::parse::Match;
use crate::replay::{Replay, SearchWork, Searcher, Step};

/// Most answers that are kept of a unit, 8 bytes each; with more of them it searches again.
const KEPT_MAX: usize = 1 << 20;

/// Most bytes of memory that the answers about `steps` steps take, a list that grows and its copy
/// included.
pub(crate) fn bytes_max(steps: usize) -> usize {
    steps.min(KEPT_MAX).next_power_of_two() * size_of::<Match>() / 2 * 3
}
/// Marks an answer to a step behind a literal.
const AFTER_LITERAL: u16 = 1 << 15;

/// What a replayed encoder said, in the order in which it was asked: matches, of no length in place
/// of a literal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers(Vec<Match>);

impl Answers {
    fn of(at: usize, after_literal: bool, step: Step) -> Match {
        let (len, distance) = match step {
            Step::Literal => (0, 1),
            Step::Match { len, distance } => (len, distance),
        };
        Match::new(at as u32, len | if after_literal { AFTER_LITERAL } else { 0 }, distance)
    }

    fn step(answer: Match) -> Step {
        match answer.len & !AFTER_LITERAL {
            0 => Step::Literal,
            len => Step::Match { len, distance: answer.distance() },
        }
    }
}

/// Who answers.
#[derive(Debug)]
pub(crate) enum Answering<'a> {
    /// Nobody: there is no encoder to replay.
    Nobody,
    /// A replay.
    Replay(Box<Searcher>),
    /// A replay, whose answers are kept while they are not too many.
    Kept(Box<Searcher>, Option<Answers>),
    /// What a replay said before.
    Before { answers: &'a Answers, next: usize, is_other: bool },
}

impl<'a> Answering<'a> {
    /// A replay of `replay` as long as there is one.
    pub(crate) fn replay(replay: Option<Replay>) -> Self {
        replay.map_or(Self::Nobody, |replay| Self::Replay(Box::new(Searcher::new(replay))))
    }

    /// The same, keeping its answers.
    pub(crate) fn kept(replay: Option<Replay>) -> Self {
        replay.map_or(Self::Nobody, |replay| Self::Kept(Box::new(Searcher::new(replay)), Some(Answers::default())))
    }

    /// Answers that were kept.
    pub(crate) fn before(answers: &'a Answers) -> Self {
        Self::Before { answers, next: 0, is_other: false }
    }

    /// Begins a stream.
    pub(crate) fn begin(&mut self, start: usize, end: usize, is_from_start: bool) {
        if let Self::Replay(searcher) | Self::Kept(searcher, _) = self {
            searcher.begin(start, end, is_from_start);
        }
    }

    /// What the encoder would do at `at` ([`Searcher::guess`]); `None` where there is none.
    pub(crate) fn guess(&mut self, text: &[u8], at: usize, steps: &[Match], after_literal: bool) -> Option<Step> {
        match self {
            Self::Nobody => None,
            Self::Replay(searcher) => Some(searcher.guess(text, at, steps, after_literal)),
            Self::Kept(searcher, answers) => {
                let step = searcher.guess(text, at, steps, after_literal);
                if answers.as_ref().is_some_and(|answers| answers.0.len() >= KEPT_MAX) {
                    *answers = None;
                }
                if let Some(answers) = answers {
                    answers.0.push(Answers::of(at, after_literal, step));
                }
                Some(step)
            }
            Self::Before { answers, next, is_other } => {
                let answer = answers.0.get(*next).copied();
                *next += 1;
                let step = answer.map_or(Step::Literal, Answers::step);
                *is_other |= answer != Some(Answers::of(at, after_literal, step));
                Some(step)
            }
        }
    }

    /// What the searches of a replay took so far; nothing where there is none.
    pub(crate) fn work(&self) -> SearchWork {
        match self {
            Self::Replay(searcher) | Self::Kept(searcher, _) => searcher.work(),
            Self::Nobody | Self::Before { .. } => SearchWork::default(),
        }
    }

    /// What was kept.
    pub(crate) fn into_answers(self) -> Option<Answers> {
        if let Self::Kept(_, answers) = self { answers } else { None }
    }

    /// Whether all was asked for that was kept, and nothing else.
    pub(crate) fn is_as_before(&self) -> bool {
        match self {
            Self::Before { answers, next, is_other } => !is_other && *next == answers.0.len(),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_given_again_to_those_who_ask_the_same_and_to_nobody_else() {
        let text: Vec<u8> = (0..600u32).map(|at| (at % 37) as u8).collect();
        let places = [(0, false), (40, true), (100, false), (101, true)];
        let mut asked = Answering::kept(Some(Replay::ALL[5]));
        asked.begin(0, text.len(), true);
        let said: Vec<_> = places.iter().map(|(at, after)| asked.guess(&text, *at, &[], *after)).collect();
        assert!(said.contains(&Some(Step::Literal)) && said.iter().any(|step| *step != Some(Step::Literal)));
        let answers = asked.into_answers().expect("few answers");
        let again = |places: &[(usize, bool)]| {
            let mut asked = Answering::before(&answers);
            let said: Vec<_> = places.iter().map(|(at, after)| asked.guess(&[], *at, &[], *after)).collect();
            (said, asked.is_as_before())
        };
        assert_eq!(again(&places), (said, true));
        assert!(!again(&places[..3]).1, "one is left");
        assert!(!again(&[places[0], places[2], places[1], places[3]]).1, "another order");
        assert!(!again(&[places[0], (40, false), places[2], places[3]]).1, "behind another step");
        assert!(!again(&[&places[..], &[(200, false)]].concat()).1, "one more");
    }

    #[test]
    fn nobody_answers_for_no_encoder_and_too_many_answers_are_not_kept() {
        assert_eq!(Answering::kept(None).guess(b"abc", 0, &[], false), None);
        assert!(Answering::kept(None).into_answers().is_none());
        let mut asked = Answering::kept(Some(Replay::ALL[5]));
        asked.begin(0, 2, true);
        for _ in 0..KEPT_MAX {
            asked.guess(b"ab", 0, &[], false);
        }
        assert!(matches!(&asked, Answering::Kept(_, Some(_))));
        asked.guess(b"ab", 0, &[], false);
        assert!(asked.into_answers().is_none());
    }

    #[test]
    fn answers_take_no_more_memory_than_is_told_before() {
        for steps in [1, 5, 3000, KEPT_MAX + 7] {
            let mut asked = Answering::kept(Some(Replay::ALL[0]));
            asked.begin(0, 2, true);
            for _ in 0..steps.min(KEPT_MAX) {
                asked.guess(b"ab", 0, &[], false);
            }
            let answers = asked.into_answers().expect("few enough");
            assert!(answers.0.capacity() * size_of::<Match>() <= bytes_max(steps).max(64), "{steps}");
        }
    }
}
