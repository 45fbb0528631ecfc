//! Who runs a job (`catalog/src/relational/jobs.rs`, `engine/src/background/jobs/run.rs`):
//! processes that take, renew, save under and release a lease, stop for as long as they like, and
//! end.
//!
//! A lease is advice: two may run at once, after one was stopped for longer than its lease. What is
//! promised is that the row follows its latest holder, and that nobody else's work overwrites it.

use crate::Protocol;
use stateright::{Model, Property};

const PROCESSES: usize = 3;
const LEASE: u8 = 2;

/// The model and its bounds.
#[derive(Clone, Debug)]
pub struct Lease {
    mutant: Option<Mutant>,
    clock_max: u8,
    fences_max: u8,
}

/// One step left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Saves without showing its fence.
    SavesWithoutFence,
    /// Renews without showing its fence.
    RenewsWithoutFence,
    /// Releases without showing its fence.
    ReleasesWithoutFence,
    /// Takes a lease that is not over.
    TakesWhatIsHeld,
    /// The fence does not grow with a taking.
    FenceStays,
    /// A closed epoch's holder still saves.
    ClosedEpochsSave,
}

/// The row and the processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    now: u8,
    row: Row,
    processes: [Process; PROCESSES],
    harm: Harm,
    taken_over: bool,
    taken_from_the_closed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    holder: Option<usize>,
    fence: u8,
    expires: u8,
    /// How far the job has come.
    cursor: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    /// The fence of the lease it believes to hold.
    fence: Option<u8>,
    /// Where its own work is.
    cursor: u8,
    /// Its epoch is closed.
    closed: bool,
}

/// What must never happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Harm {
    /// The cursor went back.
    undone: bool,
    /// A row was changed by somebody who was not its latest holder, or whose epoch was closed.
    stranger: bool,
    /// Two were told that they hold it under the same fence.
    twins: bool,
    /// It was taken from somebody who had it.
    robbed: bool,
}

/// One step of a process, or of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Action {
    Tick,
    CloseEpoch(usize),
    Take(usize),
    Renew(usize),
    Work(usize),
    Save(usize),
    Release(usize),
}

impl Lease {
    fn without(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// `held` of a row: somebody's time is not over and their epoch is open.
    fn is_held(state: &State) -> bool {
        state.row.holder.is_some_and(|holder| !state.processes[holder].closed) && state.row.expires > state.now
    }

    fn may_take(&self, state: &State, process: usize) -> bool {
        !state.processes[process].closed && (!Self::is_held(state) || self.without(Mutant::TakesWhatIsHeld))
    }

    /// The condition of every change of a holder: the fence it shows, and its open epoch.
    fn is_holder(&self, state: &State, process: usize, unasked: Mutant) -> bool {
        let Some(fence) = state.processes[process].fence else { return false };
        let shows = state.row.fence == fence || self.without(unasked);
        let open = state.row.holder.is_some_and(|holder| !state.processes[holder].closed)
            || self.without(Mutant::ClosedEpochsSave);
        state.row.holder.is_some() && shows && open
    }

    /// Notes a change by somebody who is not the latest holder.
    fn note_change(state: &mut State, process: usize) {
        let is_latest = state.row.holder == Some(process) && state.processes[process].fence == Some(state.row.fence);
        state.harm.stranger |= !is_latest || state.processes[process].closed;
    }
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.clock_max {
            actions.push(Action::Tick);
        }
        for (number, process) in state.processes.iter().enumerate() {
            if !process.closed {
                actions.push(Action::CloseEpoch(number));
            }
            match process.fence {
                None if state.row.fence < self.fences_max => actions.push(Action::Take(number)),
                None => {}
                Some(_) => {
                    if process.cursor < state.row.cursor.saturating_add(1) {
                        actions.push(Action::Work(number));
                    }
                    actions.extend([Action::Renew(number), Action::Save(number), Action::Release(number)]);
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::CloseEpoch(number) => state.processes[number].closed = true,
            Action::Take(number) => {
                if !self.may_take(last, number) {
                    return None;
                }
                state.harm.robbed |= Self::is_held(last);
                state.taken_over |= last.row.holder.is_some();
                state.taken_from_the_closed |=
                    last.row.holder.is_some_and(|holder| last.processes[holder].closed) && last.row.expires > last.now;
                let grows = u8::from(!self.without(Mutant::FenceStays) || last.row.fence == 0);
                state.row = Row {
                    holder: Some(number),
                    fence: last.row.fence + grows,
                    expires: last.now + LEASE,
                    cursor: last.row.cursor,
                };
                let fence = state.row.fence;
                state.harm.twins |= last.processes.iter().any(|process| process.fence == Some(fence));
                state.processes[number].fence = Some(fence);
                state.processes[number].cursor = last.row.cursor;
            }
            Action::Renew(number) => {
                if self.is_holder(last, number, Mutant::RenewsWithoutFence) {
                    Self::note_change(&mut state, number);
                    state.row.expires = last.now + LEASE;
                } else {
                    state.processes[number].fence = None;
                }
            }
            Action::Work(number) => state.processes[number].cursor += 1,
            Action::Save(number) => {
                if self.is_holder(last, number, Mutant::SavesWithoutFence) {
                    Self::note_change(&mut state, number);
                    state.row.cursor = last.processes[number].cursor;
                    state.harm.undone |= state.row.cursor < last.row.cursor;
                } else {
                    state.processes[number].fence = None;
                }
            }
            Action::Release(number) => {
                if self.is_holder(last, number, Mutant::ReleasesWithoutFence) {
                    Self::note_change(&mut state, number);
                    state.row.holder = None;
                }
                state.processes[number].fence = None;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("saved work is not undone", |_, state: &State| !state.harm.undone),
            Property::always("only the latest holder changes the row", |_, state: &State| !state.harm.stranger),
            Property::always("no two hold it under one fence", |_, state: &State| !state.harm.twins),
            Property::always("nobody takes what is held", |_, state: &State| !state.harm.robbed),
            Property::sometimes("a lease that is over is taken over", |_, state: &State| state.taken_over),
            Property::sometimes("a closed epoch's lease is taken before its time", |_, state: &State| {
                state.taken_from_the_closed
            }),
            Property::sometimes("the job gets on", |_, state: &State| state.row.cursor >= 2),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.row.cursor <= 2
    }
}

impl Protocol for Lease {
    type Mutant = Mutant;
    const MUTANTS: &'static [Mutant] = &[
        Mutant::SavesWithoutFence,
        Mutant::RenewsWithoutFence,
        Mutant::ReleasesWithoutFence,
        Mutant::TakesWhatIsHeld,
        Mutant::FenceStays,
        Mutant::ClosedEpochsSave,
    ];

    fn new(whole: bool, mutant: Option<Mutant>) -> Self {
        let (clock_max, fences_max) = if whole { (5, 4) } else { (3, 2) };
        Self { mutant, clock_max, fences_max }
    }
}
