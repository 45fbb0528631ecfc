//! Three engines over one catalog and one store, on one thread and one made-up clock, all from a
//! seed: the same seed gives the same run, to the last request (docs/decisions/0039-simulator.md).
//!
//! ```text
//! clients ─► replica 0, 1, 2: an engine in a runtime of its own, whose clock stands while anything can be done
//!                │      ├─► the way to the database: delays, broken connections ─► one catalog, which may go back
//!                │      └─► the way to the store: errors, lost and late requests, torn listings ─► one store
//!                └─ dies, stands still, is started again
//! ```
//!
//! The engines are the real ones. What they take from a machine (time, chance, threads) is handed
//! in through [`engine::stand_in`]. At the end every answer that a client got has to be explained
//! by some order of what was done, everything acknowledged has to be there, and nothing may be
//! left.

mod asked;
mod clients;
mod clock;
mod content;
mod deaths;
mod dice;
mod ending;
mod history;
mod idle;
mod operations;
mod points;
mod repair;
mod replica;
mod report;
mod store;
mod weather;
mod world;

pub use deaths::{Death, run_to_a_point};
pub use idle::requests_of_an_idle_hour;
pub use report::Report;
pub use weather::Mutant;
pub use world::{Outcome, Plan, run};
