//! What a server that nobody asks for anything asks its store for. Requests to a cloud are money.

use crate::{
    content::Content,
    operations::{self, Operation},
    replica::{BUCKETS, JobPace},
    world::{Plan, World},
};
use engine::Engine;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How long it has nothing to do before it counts as idle: what was removed waits a quarter of an
/// hour for its collection.
const SETTLED_MS: u64 = 30 * 60_000;
/// What is counted.
const HOUR_MS: u64 = 60 * 60_000;
/// Nobody waits for an answer meanwhile.
const TURN: Duration = Duration::from_millis(250);
/// What a store can be asked for.
const REQUESTS: [&str; 6] = ["put", "get", "head", "delete", "list", "probe"];

/// Requests of one server to its store in an hour without clients, by kind. It has stored, replaced
/// and removed something before, and runs every job as often as servers do. It is asked whether it
/// is ready each time after `probed_every`.
pub fn requests_of_an_idle_hour(seed: u64, probed_every: Option<Duration>) -> BTreeMap<String, u64> {
    let plan = Plan { seed, simulated: Duration::ZERO, mutant: None, keeps_trace: true, is_rough: false };
    let mut world = World::new(&plan, JobPace::Usual);
    world.replicas[0].boot();
    world.until("the start", |world| world.replicas[0].engine().is_some());
    world.make_buckets();
    for number in 0..12 {
        let operation = match number % 6 {
            5 => Operation::Delete,
            _ => Operation::Put { content: Content::of(number), if_absent: false, pause: Duration::ZERO },
        };
        let (bucket, key) = (BUCKETS[number as usize % 3].to_owned(), format!("k-{}", number % 3));
        let answer = world.within(0, "a change", |engine| operations::perform(engine, bucket, key, operation));
        assert!(answer.is_some(), "the server answers");
    }
    world.idle_for(SETTLED_MS, probed_every);
    let before = requests(&world);
    world.idle_for(HOUR_MS, probed_every);
    let mut made = requests(&world);
    made.iter_mut().for_each(|(kind, count)| *count -= before.get(kind).copied().unwrap_or(0));
    world.replicas[0].kill();
    made
}

impl World {
    fn idle_for(&mut self, ms: u64, probed_every: Option<Duration>) {
        let now = self.shared.clock.since_begin_ms();
        let end = now + i64::try_from(ms).unwrap_or(0);
        let step = probed_every.map_or(i64::MAX, |every| i64::try_from(every.as_millis()).unwrap_or(i64::MAX));
        let mut next = now.saturating_add(step);
        while self.shared.clock.since_begin_ms() < end {
            self.turn(TURN);
            if self.shared.clock.since_begin_ms() >= next {
                next += step;
                let ready = self.within(0, "a probe", |engine: Arc<Engine>| async move { engine.probe().await });
                assert!(matches!(ready, Some(Ok(()))), "it is ready");
            }
        }
    }
}

/// Requests so far, by kind: the trace has a line for each, `when replica kind …`.
fn requests(world: &World) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in world.shared.trace.lines() {
        let kind = line.split(' ').nth(2).unwrap_or_default();
        if REQUESTS.contains(&kind) {
            *found.entry(kind.to_owned()).or_default() += 1;
        }
    }
    found
}
