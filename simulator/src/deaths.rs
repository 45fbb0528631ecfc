//! Deaths at one call: the process that makes the n-th call of a run to its store or its database
//! dies there, before the call is carried out or once it has been.

use crate::{
    replica::JobPace,
    world::{Outcome, Plan, World},
};

/// How long a process stays away.
const REST_MS: i64 = 500;

/// Where a process dies.
///
/// Points are counted from 1 on, from the end of the first start: where a call is made, and once
/// more where a write, or any call to the database, has been carried out and not been answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Which of the points; 0: none, they are only counted.
    pub at: u64,
}

/// Runs a plan with one process, in which nothing goes wrong but its death. How many points there
/// were comes with what was found; a run that dies has those after its death, too.
pub fn run_to_a_point(plan: &Plan, death: Death) -> (Outcome, u64) {
    let world = World::alone(plan, JobPace::Hurried);
    let points = world.shared.points.clone();
    let outcome = world.run(|world| {
        world.shared.points.begin(death.at);
        let end = i64::try_from(plan.simulated.as_millis()).unwrap_or(i64::MAX);
        while world.shared.clock.since_begin_ms() < end {
            world.step_alone();
        }
        world.shared.points.end();
        world.bury();
    });
    (outcome, points.count())
}

impl World {
    fn step_alone(&mut self) {
        self.bury();
        let now = self.shared.clock.since_begin_ms();
        if self.replicas[0].stopped_until_ms <= now && !self.replicas[0].is_up() {
            self.replicas[0].boot();
        }
        self.go_on();
    }

    /// Takes the process away if it has died.
    fn bury(&mut self) {
        if self.shared.points.take_death() {
            self.crash(0);
            self.replicas[0].stopped_until_ms = self.shared.clock.since_begin_ms() + REST_MS;
        }
    }
}
