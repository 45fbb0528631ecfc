//! Deaths at one call: the process that makes the n-th call of a run to its store or its database
//! dies there, before the call is carried out or once it has been.

use crate::{
    replica::JobPace,
    world::{Outcome, Plan, World},
};
use std::{
    future::pending,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// How long a process stays away.
const REST_MS: i64 = 500;

/// Where a process dies.
///
/// Calls are counted from 1 on, each twice: when it is made, and when it has been carried out and
/// not been answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Which of the points; 0: none, they are only counted.
    pub at: u64,
}

/// The points of a run so far.
#[derive(Debug, Default)]
pub(crate) struct Points {
    is_counting: AtomicBool,
    count: AtomicU64,
    dies_at: AtomicU64,
    is_dead: AtomicBool,
}

impl Points {
    /// A point: whoever dies here goes no further, and nobody else of its process does.
    pub(crate) async fn pass(&self) {
        if self.is_dead.load(Ordering::Relaxed) {
            return pending().await;
        }
        if !self.is_counting.load(Ordering::Relaxed) {
            return;
        }
        let at = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if at == self.dies_at.load(Ordering::Relaxed) {
            self.is_dead.store(true, Ordering::Relaxed);
            pending().await
        }
    }

    fn count_from_now_on(&self, death: Death) {
        self.dies_at.store(death.at, Ordering::Relaxed);
        self.is_counting.store(true, Ordering::Relaxed);
    }

    /// Whether its process is to be taken away.
    fn take_death(&self) -> bool {
        self.is_dead.swap(false, Ordering::Relaxed)
    }
}

/// Runs a plan with one process, in which nothing goes wrong but its death. How many points there
/// were comes with what was found; a run that dies has those after its death, too.
pub fn run_to_a_point(plan: &Plan, death: Death) -> (Outcome, u64) {
    let world = World::alone(plan, JobPace::Hurried);
    let points = world.shared.points.clone();
    let outcome = world.run(|world| {
        world.shared.points.count_from_now_on(death);
        let end = i64::try_from(plan.simulated.as_millis()).unwrap_or(i64::MAX);
        while world.shared.clock.since_begin_ms() < end {
            world.step_alone();
        }
        world.shared.points.is_counting.store(false, Ordering::Relaxed);
        world.bury();
    });
    (outcome, points.count.load(Ordering::Relaxed))
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
