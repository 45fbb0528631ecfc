//! The steps of a block as flags (the prediction is right) and residue (what it should have been).
//!
//! Part of the format (docs/format/deflate-view-v1.md §6).

use crate::Malformed;
use crate::alphabet::{DISTANCE_BASE, DISTANCE_EXTRA, DISTANCE_SYMBOLS, distance_symbol};
use crate::answers::{Answering, Answers};
use crate::coder::{Coder, Decoder, Encoder, Model, Numbers};
use crate::parse::Match;
use crate::predict::{Base, Extent, Predictor, REASONS, Reason, Run};
use crate::replay::{SearchWork, Step};

/// After so many right predictions the number of further ones is written.
const STREAK: u32 = 16;
/// Steps that an encoder compares at once with those predicted: at first, and at most.
const AHEAD_MIN: u32 = 64;
const AHEAD_MAX: u32 = 4096;
/// Predictions that are remembered, one bit each.
const HISTORY: usize = 16;

/// The models of flags and residue.
#[derive(Debug)]
struct Models {
    right: [[[Model; HISTORY]; 5]; REASONS],
    run: Numbers,
    replay_right: [[[Model; HISTORY]; 2]; REASONS],
    literal: [Model; REASONS],
    same_distance: [Model; 2],
    len: [[Model; 256]; 3],
    distance: [[Model; 32]; 4],
}

impl Models {
    const NEW: Self = Self {
        right: [[[Model::NEW; HISTORY]; 5]; REASONS],
        run: Numbers::NEW,
        replay_right: [[[Model::NEW; HISTORY]; 2]; REASONS],
        literal: [Model::NEW; REASONS],
        same_distance: [Model::NEW; 2],
        len: [[Model::NEW; 256]; 3],
        distance: [[Model::NEW; 32]; 4],
    };
}

/// What a step was predicted to be.
#[derive(Clone, Copy, Debug)]
struct Guess {
    reason: Reason,
    step: Step,
}

/// How many of something the steps were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// Steps in all.
    pub steps: u64,
    /// Predicted wrongly from the base.
    pub missed: u64,
    /// Of these, predicted rightly by the replayed encoder.
    pub replayed: u64,
    /// Times that the replayed encoder was asked, or would have been if there was one.
    pub searched: u64,
    /// Places that it entered into its chains for that, and places that it looked at.
    pub work: SearchWork,
}

impl StepCounts {
    /// Counts others, too.
    pub fn add(&mut self, others: Self) {
        self.steps += others.steps;
        self.missed += others.missed;
        self.replayed += others.replayed;
        self.searched += others.searched;
        self.work.entered += others.work.entered;
        self.work.looks += others.work.looks;
    }
}

/// Where the steps of a block end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepsEnd {
    /// After so many.
    Count(u32),
    /// At this position of the text.
    Position(usize),
}

/// Codes the steps of one unit.
#[derive(Debug)]
pub(crate) struct Steps<'a> {
    text: &'a [u8],
    predictor: Predictor<'a>,
    asked: Answering<'a>,
    extent: Extent,
    models: Box<Models>,
    history: usize,
    replay_history: usize,
    streak: u32,
    /// Room for matches that are predicted ahead.
    ahead: Vec<Match>,
    pub(crate) counts: StepCounts,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(text: &'a [u8], base: Base<'a>, runs: &'a [Run], asked: Answering<'a>) -> Self {
        Self {
            text,
            predictor: Predictor::new(base, runs),
            asked,
            extent: Extent { start: 0, end: 0, is_from_start: true },
            models: Box::new(Models::NEW),
            history: 0,
            replay_history: 0,
            streak: 0,
            ahead: Vec::new(),
            counts: StepCounts::default(),
        }
    }

    /// Begins a stream.
    pub(crate) fn begin(&mut self, extent: Extent) {
        self.extent = extent;
        self.asked.begin(extent.start, extent.end, extent.is_from_start);
    }

    /// What the replayed encoder said, if that is kept.
    pub(crate) fn into_answers(self) -> Option<Answers> {
        self.asked.into_answers()
    }

    /// Whether the encoder was asked just as it was before, where its answers were kept.
    pub(crate) fn is_as_before(&self) -> bool {
        self.asked.is_as_before()
    }

    /// Codes the steps that make `text[from..to]`: `all` are the stream's matches, from `first` on
    /// those of this block.
    pub(crate) fn encode(&mut self, coder: &mut Encoder, from: usize, to: usize, all: &[Match], first: usize) {
        let (mut at, mut next) = (from, first);
        let mut after_literal = is_after_literal(self.extent.start, from, &all[..first]);
        // Right predictions that are told by their number, and how many to look for at once.
        let mut run = None;
        let mut ahead_max = AHEAD_MIN;
        while at < to {
            if run.is_none() && self.streak >= STREAK {
                run = Some(0);
                ahead_max = AHEAD_MIN;
            }
            if let Some(run) = &mut run {
                let (until, steps, matched) = self.agreed(at, to, ahead_max, &all[next..]);
                if steps > 0 {
                    *run += steps;
                    self.counts.steps += u64::from(steps);
                    (at, next) = (until, next + matched);
                    after_literal = is_after_literal(self.extent.start, at, &all[..next]);
                    ahead_max = (ahead_max * 2).min(AHEAD_MAX);
                    continue;
                }
            }
            let actual = match all.get(next) {
                Some(found) if found.at as usize == at => Step::Match { len: found.len, distance: found.distance() },
                _ => Step::Literal,
            };
            let guess = self.guess(at, &all[..next], after_literal);
            match &mut run {
                Some(run) if guess.step == actual => {
                    *run += 1;
                    self.counts.steps += 1;
                }
                None if guess.step == actual => {
                    self.flag(coder, &guess, true);
                    self.right();
                }
                told => {
                    let second = self.second(&guess, at, &all[..next], after_literal);
                    if let Some(run) = told.take() {
                        coder.number(&mut self.models.run, run);
                    } else {
                        self.flag(coder, &guess, false);
                    }
                    self.wrong(coder, &guess, second, actual);
                }
            }
            next += usize::from(actual != Step::Literal);
            after_literal = actual == Step::Literal;
            at += actual.len();
        }
        if let Some(run) = run {
            coder.number(&mut self.models.run, run);
        }
    }

    /// How far the actual steps from `at` on are those that [`Predictor::follow`] gives: until
    /// where, how many steps, and how many of them are matches.
    fn agreed(&mut self, at: usize, to: usize, steps_max: u32, actual: &[Match]) -> (usize, u32, usize) {
        self.ahead.clear();
        let (until, steps) = self.predictor.follow(&self.extent, at, to, steps_max, &mut self.ahead);
        let equal = self.ahead.iter().zip(actual).take_while(|(one, other)| one == other).count();
        let differing = [self.ahead.get(equal), actual.get(equal)].into_iter().flatten();
        let differs = differing.fold(until, |least, found| least.min(found.at as usize));
        if differs == until {
            return (until, steps, equal);
        }
        let matched: usize = self.ahead[..equal].iter().map(|found| usize::from(found.len)).sum();
        (differs, (differs - at - matched + equal) as u32, equal)
    }

    /// The other way: appends the matches of a block that begins at `from`, and returns where it
    /// ends, at most `limit`.
    ///
    /// # Errors
    /// [`Malformed`] for steps that the text does not allow.
    pub(crate) fn decode(
        &mut self,
        coder: &mut Decoder<'_>,
        from: usize,
        limit: usize,
        end: StepsEnd,
        all: &mut Vec<Match>,
    ) -> Result<usize, Malformed> {
        let (mut at, mut count) = (from, 0);
        let mut after_literal = is_after_literal(self.extent.start, from, all);
        let mut run = 0;
        let mut in_run = false;
        loop {
            let is_over = match end {
                StepsEnd::Count(wanted) => count >= wanted,
                StepsEnd::Position(position) => at >= position,
            };
            if is_over {
                break;
            }
            if !in_run && self.streak >= STREAK {
                run = coder.number(&mut self.models.run, 0);
                in_run = true;
            }
            if in_run && run > 1 {
                let left = match end {
                    StepsEnd::Count(wanted) => wanted - count,
                    StepsEnd::Position(_) => u32::MAX,
                };
                let until = if let StepsEnd::Position(position) = end { position.min(limit) } else { limit };
                let (next, taken) = self.predictor.follow(&self.extent, at, until, run.min(left), all);
                if taken > 0 {
                    run -= taken;
                    count += taken;
                    self.counts.steps += u64::from(taken);
                    at = next;
                    after_literal = is_after_literal(self.extent.start, at, all);
                    continue;
                }
            }
            let guess = self.guess(at, all, after_literal);
            let step = if in_run && run > 0 {
                run -= 1;
                self.counts.steps += 1;
                guess.step
            } else if !in_run && self.flag(coder, &guess, false) {
                self.right();
                guess.step
            } else {
                in_run = false;
                if coder.is_past_end() {
                    return Err(Malformed("a parse ends early"));
                }
                let second = self.second(&guess, at, all, after_literal);
                self.wrong(coder, &guess, second, Step::Literal)
            };
            if let Step::Match { len, distance } = step {
                if distance as usize > at - self.extent.start {
                    return Err(Malformed("a match before its stream"));
                }
                all.push(Match::new(at as u32, len, distance));
            }
            at += step.len();
            if at > limit {
                return Err(Malformed("a step past its text"));
            }
            after_literal = step == Step::Literal;
            count += 1;
        }
        if run > 0 { Err(Malformed("a run past its block")) } else { Ok(at) }
    }

    #[inline]
    fn guess(&mut self, at: usize, all: &[Match], after_literal: bool) -> Guess {
        let (reason, step) = self.predictor.predict(self.text, &self.extent, at);
        if reason != Reason::Nothing {
            return Guess { reason, step };
        }
        let searched = self.ask(at, all, after_literal);
        Guess { reason, step: searched.unwrap_or(step) }
    }

    /// What the replayed encoder says to a step that was predicted wrongly.
    fn second(&mut self, guess: &Guess, at: usize, all: &[Match], after_literal: bool) -> Option<Step> {
        // Where the base says nothing it has been asked already.
        if guess.reason == Reason::Nothing {
            return None;
        }
        self.ask(at, all, after_literal).filter(|step| *step != guess.step)
    }

    fn ask(&mut self, at: usize, all: &[Match], after_literal: bool) -> Option<Step> {
        let step = self.asked.guess(self.text, at, all, after_literal);
        self.counts.searched += 1;
        self.counts.work = self.asked.work();
        step
    }

    fn flag<C: Coder>(&mut self, coder: &mut C, guess: &Guess, is_right: bool) -> bool {
        let len = match guess.step {
            Step::Literal => 0,
            Step::Match { len: 3, .. } => 1,
            Step::Match { len: 4, .. } => 2,
            Step::Match { len: 5..=8, .. } => 3,
            Step::Match { .. } => 4,
        };
        coder.bit(&mut self.models.right[guess.reason as usize][len][self.history % HISTORY], is_right)
    }

    fn right(&mut self) {
        self.history = self.history << 1 | 1;
        self.streak += 1;
        self.counts.steps += 1;
    }

    /// The step in place of one that was predicted wrongly.
    fn wrong<C: Coder>(&mut self, coder: &mut C, guess: &Guess, second: Option<Step>, actual: Step) -> Step {
        self.history <<= 1;
        self.streak = 0;
        self.counts.steps += 1;
        self.counts.missed += 1;
        if let Some(second) = second {
            let context = self.replay_history % HISTORY;
            let is_literal = usize::from(second == Step::Literal);
            let model = &mut self.models.replay_right[guess.reason as usize][is_literal][context];
            let is_right = coder.bit(model, second == actual);
            self.replay_history = self.replay_history << 1 | usize::from(is_right);
            if is_right {
                self.counts.replayed += 1;
                return second;
            }
        }
        let models = &mut *self.models;
        let may_be_literal = guess.step != Step::Literal && second != Some(Step::Literal);
        if may_be_literal && coder.bit(&mut models.literal[guess.reason as usize], actual == Step::Literal) {
            return Step::Literal;
        }
        let (len, distance) = match actual {
            Step::Match { len, distance } => (len, distance),
            Step::Literal => (3, 1),
        };
        let mut known = None;
        for (place, suggested) in [Some(guess.step), second].into_iter().enumerate() {
            if let (None, Some(Step::Match { distance: suggested, .. })) = (known, suggested)
                && coder.bit(&mut models.same_distance[place], suggested == distance)
            {
                known = Some((place + 1, suggested));
            }
        }
        let (context, _) = known.unwrap_or_default();
        let len = 3 + coder.tree(&mut models.len[context], 8, u32::from(len - 3));
        let distance = match known {
            Some((_, distance)) => distance,
            None => code_distance(coder, &mut models.distance[(len as usize - 3).min(3)], distance),
        };
        Step::Match { len: len as u16, distance }
    }
}

fn is_after_literal(start: usize, at: usize, before: &[Match]) -> bool {
    at > start && before.last().is_none_or(|found| (found.end() as usize) < at)
}

fn code_distance<C: Coder>(coder: &mut C, models: &mut [Model], distance: u32) -> u32 {
    let symbol = coder.tree(models, 5, distance_symbol(distance as usize) as u32) as usize;
    let symbol = symbol.min(DISTANCE_SYMBOLS - 1);
    let base = u32::from(DISTANCE_BASE[symbol]);
    base + coder.plain(DISTANCE_EXTRA[symbol].into(), distance.wrapping_sub(base))
}
