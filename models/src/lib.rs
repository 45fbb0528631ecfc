//! The protocols that decide what is deleted, what is kept and what is committed, as state machines
//! small enough to be walked through completely: [`collector`], [`lease`], [`journal`], [`turns`].
//!
//! Each model says in its own words what the code does (it names the files), has properties that
//! must hold in every state, others that must be reached in some, and mutants: the same protocol
//! with one step left out. A mutant that breaks no property shows a property that says too little.
//!
//! `cargo test -p models` walks through small bounds; `DELTAWEIR_MODELS_WHOLE=1` through a million
//! states and more (`make campaigns`).

pub mod collector;
mod history;
pub mod journal;
pub mod lease;
pub mod turns;

use stateright::{Checker, Expectation, Model};
use std::{fmt, hash::Hash};

/// What the checker asks of states.
pub trait StateOf: Clone + fmt::Debug + Hash + PartialEq + Send + Sync + 'static {}
impl<T: Clone + fmt::Debug + Hash + PartialEq + Send + Sync + 'static> StateOf for T {}

/// What it asks of actions.
pub trait ActionOf: Clone + fmt::Debug + PartialEq + Send + Sync + 'static {}
impl<T: Clone + fmt::Debug + PartialEq + Send + Sync + 'static> ActionOf for T {}

/// A model with the mutants that its properties must find.
pub trait Protocol: Model<State: StateOf, Action: ActionOf> + Send + Sync + 'static
where
    Self: Sized,
{
    /// A step that is left out.
    type Mutant: Copy + fmt::Debug + 'static;
    /// Each of them.
    const MUTANTS: &'static [Self::Mutant];

    /// The protocol, with one step left out where a mutant is given. `whole` widens the bounds.
    fn new(whole: bool, mutant: Option<Self::Mutant>) -> Self;
}

/// What a walk found.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Different states of the protocol as it is.
    pub states: usize,
    /// Properties that some state breaks, each with the shortest way there.
    pub broken: Vec<String>,
    /// Properties that must be reached by some state, and are not.
    pub unreached: Vec<&'static str>,
    /// Mutants that were tried.
    pub mutants: usize,
    /// Those that broke nothing.
    pub missed: Vec<String>,
}

/// Walks through every state of a protocol, and through those of its mutants until one breaks a
/// property.
pub fn examine<P: Protocol>(whole: bool) -> Report {
    let (states, broken, unreached) = walk(P::new(whole, None));
    let missed = P::MUTANTS
        .iter()
        .filter(|mutant| walk(P::new(false, Some(**mutant))).1.is_empty())
        .map(|mutant| format!("{mutant:?}"))
        .collect();
    Report { states, broken, unreached, mutants: P::MUTANTS.len(), missed }
}

/// The number of states, properties broken, and properties never reached.
fn walk<P: Protocol>(model: P) -> (usize, Vec<String>, Vec<&'static str>) {
    let expected: Vec<_> =
        model.properties().into_iter().map(|property| (property.name, property.expectation)).collect();
    let checker = model.checker().threads(2).spawn_bfs().join();
    let found = checker.discoveries();
    let mut broken = Vec::new();
    let mut unreached = Vec::new();
    for (name, expectation) in expected {
        match (expectation, found.get(name)) {
            (Expectation::Always, Some(path)) => {
                broken.push(format!("{name}: {:?}", path.clone().into_actions()));
            }
            (Expectation::Sometimes, None) => unreached.push(name),
            _ => {}
        }
    }
    (checker.unique_state_count(), broken, unreached)
}
