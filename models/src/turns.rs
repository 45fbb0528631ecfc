//! How replicas change a shared catalog that read before they have their turn
//! (`catalog/src/postgres/late.rs`, `catalog/src/postgres/writer.rs`): what they read may change
//! before their turn, epochs may be closed, and a connection may break at any time.
//!
//! A turn is one step here, since the lock on the number makes it one. Everything before it is a
//! step of its own.

use crate::Protocol;
use stateright::{Model, Property};

const PROCESSES: usize = 2;
const KEYS: usize = 2;

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Turns {
    mutant: Option<Mutant>,
    /// Changes that are begun.
    changes_max: u8,
}

/// One step left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The key is read before what was counted in its stripe.
    ReadsBeforeItLooks,
    /// The turn does not look at the stripe.
    StripeIsNotChecked,
    /// The turn does not look at the stripe of all.
    AllIsNotChecked,
    /// A change that has its turn first is not counted.
    TurnFirstCountsNothing,
    /// Closing an epoch is not counted.
    ClosingCountsNothing,
    /// Whoever asks what became of a commit does not wait for its end.
    AsksWithoutWaiting,
    /// What is in doubt counts as not committed.
    DoubtIsNo,
}

/// The database and the processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// What each key has: the number of the change that wrote it.
    keys: [u8; KEYS],
    counted: [u8; KEYS],
    counted_all: u8,
    number: u8,
    begun: u8,
    processes: [Process; PROCESSES],
    harm: Harm,
    seen: Seen,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    /// Its epoch is closed.
    closed: bool,
    doing: Doing,
    /// Of its last group that was committed.
    committed: u8,
    /// Its groups so far.
    groups: u8,
    /// What the database has of it and has not carried out.
    sent: Option<Read>,
    /// How often its change was made.
    made: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Doing {
    #[default]
    Nothing,
    /// Reads, before its turn.
    Reading(Read),
    /// Has sent what it writes.
    Waiting(usize),
    /// Lost its connection.
    Doubting(usize),
    /// Goes on with its turn first.
    TurnFirst(usize),
}

/// What was read before a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Read {
    key: usize,
    counted: Option<(u8, u8)>,
    value: Option<u8>,
    is_open: Option<bool>,
}

/// What must never happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Harm {
    /// A change rests on what was not there any more in its turn.
    stale: bool,
    /// A closed epoch changed something.
    closed: bool,
    /// A change was made twice.
    twice: bool,
    /// A change was told done and was not made.
    lost: bool,
}

/// What must happen in some history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    late: bool,
    overtaken: bool,
    found: bool,
    made_again: bool,
}

/// One step of a process or of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Action {
    Begin(usize, usize),
    Look(usize),
    ReadKey(usize),
    ReadEpoch(usize),
    Send(usize),
    CarryOut(usize),
    Cut(usize),
    Ask(usize),
    TurnFirst(usize),
    CloseEpoch(usize),
}

impl Turns {
    fn without(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The turn of what was read before it.
    fn carry_out(&self, state: &mut State, number: usize, read: &Read) {
        let (counted, all) = read.counted.unwrap_or_default();
        let is_same = counted == state.counted[read.key] || self.without(Mutant::StripeIsNotChecked);
        let is_same_for_all = all == state.counted_all || self.without(Mutant::AllIsNotChecked);
        let waits = state.processes[number].doing == Doing::Waiting(read.key);
        if is_same && is_same_for_all {
            state.harm.stale |= read.value != Some(state.keys[read.key]);
            state.seen.late = true;
            commit(state, number, read.key, true);
            if waits {
                end(state, number);
            }
        } else {
            state.seen.overtaken = true;
            if waits {
                state.processes[number].doing = Doing::TurnFirst(read.key);
            }
        }
    }
}

/// Makes a process's change of a key.
fn commit(state: &mut State, number: usize, key: usize, is_counted: bool) {
    state.number += 1;
    state.keys[key] = state.number;
    state.counted[key] += u8::from(is_counted);
    let process = &mut state.processes[number];
    process.committed = process.groups;
    process.made += 1;
    state.harm.closed |= process.closed;
    state.harm.twice |= process.made > 1;
}

/// Tells a process that its change is made.
fn end(state: &mut State, number: usize) {
    let process = &mut state.processes[number];
    state.harm.lost |= process.made == 0;
    process.doing = Doing::Nothing;
}

impl Model for Turns {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, process) in state.processes.iter().enumerate() {
            if !process.closed {
                actions.push(Action::CloseEpoch(number));
            }
            if process.sent.is_some() {
                actions.push(Action::CarryOut(number));
            }
            match &process.doing {
                Doing::Nothing if state.begun < self.changes_max && process.sent.is_none() => {
                    actions.extend((0..KEYS).map(|key| Action::Begin(number, key)));
                }
                Doing::Nothing => {}
                Doing::Reading(read) => {
                    let may_read = read.counted.is_some() || self.without(Mutant::ReadsBeforeItLooks);
                    if read.counted.is_none() {
                        actions.push(Action::Look(number));
                    }
                    if may_read && read.value.is_none() {
                        actions.push(Action::ReadKey(number));
                    }
                    if may_read && read.is_open.is_none() {
                        actions.push(Action::ReadEpoch(number));
                    }
                    if read.counted.is_some() && read.value.is_some() && read.is_open.is_some() {
                        actions.push(Action::Send(number));
                    }
                }
                Doing::Waiting(_) => actions.push(Action::Cut(number)),
                Doing::Doubting(_) => {
                    if process.sent.is_none() || self.without(Mutant::AsksWithoutWaiting) {
                        actions.push(Action::Ask(number));
                    }
                }
                Doing::TurnFirst(_) => actions.push(Action::TurnFirst(number)),
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin(number, key) => {
                state.begun += 1;
                let process = &mut state.processes[number];
                (process.made, process.groups) = (0, process.groups + 1);
                process.doing = Doing::Reading(Read { key, ..Read::default() });
            }
            Action::Look(number) | Action::ReadKey(number) | Action::ReadEpoch(number) => {
                let is_open = !last.processes[number].closed;
                let Doing::Reading(read) = &mut state.processes[number].doing else { return None };
                match action {
                    Action::Look(_) => read.counted = Some((last.counted[read.key], last.counted_all)),
                    Action::ReadKey(_) => read.value = Some(last.keys[read.key]),
                    _ => read.is_open = Some(is_open),
                }
            }
            Action::Send(number) => {
                let process = &mut state.processes[number];
                let Doing::Reading(read) = std::mem::take(&mut process.doing) else { return None };
                process.doing = match read.is_open {
                    Some(true) => Doing::Waiting(read.key),
                    // What is refused by what was read is asked again in a turn.
                    _ => Doing::TurnFirst(read.key),
                };
                process.sent = Some(read).filter(|read| read.is_open == Some(true));
            }
            Action::CarryOut(number) => {
                let read = state.processes[number].sent.take()?;
                self.carry_out(&mut state, number, &read);
            }
            Action::Cut(number) => {
                let Doing::Waiting(key) = last.processes[number].doing else { return None };
                state.processes[number].doing = Doing::Doubting(key);
            }
            Action::Ask(number) => {
                let process = &last.processes[number];
                let Doing::Doubting(key) = process.doing else { return None };
                if process.committed == process.groups && !self.without(Mutant::DoubtIsNo) {
                    state.seen.found = true;
                    end(&mut state, number);
                } else {
                    state.seen.made_again = true;
                    let process = &mut state.processes[number];
                    process.groups += 1;
                    process.doing = Doing::TurnFirst(key);
                }
            }
            Action::TurnFirst(number) => {
                let Doing::TurnFirst(key) = last.processes[number].doing else { return None };
                if last.processes[number].closed {
                    state.processes[number].doing = Doing::Nothing;
                } else {
                    commit(&mut state, number, key, !self.without(Mutant::TurnFirstCountsNothing));
                    end(&mut state, number);
                }
            }
            Action::CloseEpoch(number) => {
                state.processes[number].closed = true;
                state.counted_all += u8::from(!self.without(Mutant::ClosingCountsNothing));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what a change decided by is there in its turn", |_, state: &State| !state.harm.stale),
            Property::always("a closed epoch changes nothing", |_, state: &State| !state.harm.closed),
            Property::always("no change is made twice", |_, state: &State| !state.harm.twice),
            Property::always("what was told done was made", |_, state: &State| !state.harm.lost),
            Property::sometimes("a change reads before its turn", |_, state: &State| state.seen.late),
            Property::sometimes("what it read has changed", |_, state: &State| state.seen.overtaken),
            Property::sometimes("a commit in doubt is found", |_, state: &State| state.seen.found),
            Property::sometimes("a commit in doubt is made again", |_, state: &State| state.seen.made_again),
        ]
    }
}

impl Protocol for Turns {
    type Mutant = Mutant;
    const MUTANTS: &'static [Mutant] = &[
        Mutant::ReadsBeforeItLooks,
        Mutant::StripeIsNotChecked,
        Mutant::AllIsNotChecked,
        Mutant::TurnFirstCountsNothing,
        Mutant::ClosingCountsNothing,
        Mutant::AsksWithoutWaiting,
        Mutant::DoubtIsNo,
    ];

    fn new(whole: bool, mutant: Option<Mutant>) -> Self {
        Self { mutant, changes_max: if whole { 5 } else { 3 } }
    }
}
