//! The run: whose turn it is, and what goes wrong when.

use crate::{
    asked::{Client, Known, Pending},
    clock::{Clock, Trace},
    dice::{Dice, SharedDice},
    history::Event,
    operations::Answer,
    points::Points,
    replica::{JobPace, Replica, Shared},
    report::Report,
    store::Store,
    weather::{Mutant, Way},
};
use catalog::SimulatedDatabase;
use std::{
    cell::Cell,
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

/// Replicas of the deployment.
const REPLICAS: usize = 3;
/// Clients at a time.
const CLIENTS: usize = 5;
/// Longest turn, in milliseconds: how far replicas' clocks are apart at most.
const TURN_MS_MAX: u64 = 70;
/// How long a fork may go unseen.
pub(crate) const FORK_SEEN_MS: i64 = 12_000;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// How long things go wrong.
    pub simulated: Duration,
    /// A bug on purpose.
    pub mutant: Option<Mutant>,
    /// Whether the lines of the trace are kept.
    pub keeps_trace: bool,
    /// Clocks jump, listings are old, and some requests reach the store twice.
    pub is_rough: bool,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was found.
    pub report: Report,
    /// Digest of everything that happened, in hex.
    pub hash: String,
    /// Everything that happened, if it was kept.
    pub trace: Vec<String>,
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the panics of this thread, of tasks that nobody waits for included.
fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
}

/// By how much a clock goes wrong.
fn skew_ms(dice: &mut Dice) -> i64 {
    i64::try_from(dice.below(4000)).unwrap_or(0) - 2000
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) dice: Dice,
    pub(crate) shared: Shared,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) clients: Vec<Client>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) answers: Arc<Mutex<Vec<(u64, Answer)>>>,
    /// What was done to each key, by bucket and key.
    pub(crate) histories: BTreeMap<(usize, String), Vec<Event>>,
    /// Versions that were acknowledged.
    pub(crate) known: Vec<Known>,
    /// Questions and answers so far.
    pub(crate) moment: u64,
    pub(crate) next_content: u64,
    pub(crate) calm: Arc<AtomicBool>,
    /// The newest copy of the database, and the moment it was made.
    standby: Option<(PathBuf, u64)>,
    /// Since when, in milliseconds, the database is an older one than the store's.
    pub(crate) forked_ms: Option<i64>,
    /// Until which moment answers may rest on an older database.
    pub(crate) doubtful_until: u64,
    pub(crate) files: u64,
    is_rough: bool,
    pub(crate) report: Report,
    pub(crate) directory: TempDir,
}

/// Runs a plan to its end.
pub fn run(plan: &Plan) -> Outcome {
    World::new(plan, JobPace::Hurried).run(|world| {
        world.calm.store(false, Ordering::Relaxed);
        let end = i64::try_from(plan.simulated.as_millis()).unwrap_or(i64::MAX);
        while world.shared.clock.since_begin_ms() < end {
            world.step();
        }
    })
}

impl World {
    pub(crate) fn new(plan: &Plan, pace: JobPace) -> Self {
        Self::of(plan, pace, REPLICAS)
    }

    /// With one replica.
    pub(crate) fn alone(plan: &Plan, pace: JobPace) -> Self {
        Self::of(plan, pace, 1)
    }

    /// From the first start to the end, with `goes_wrong` in between.
    pub(crate) fn run(mut self, goes_wrong: impl FnOnce(&mut Self)) -> Outcome {
        count_panics();
        let panics = PANICS.get();
        self.begin();
        goes_wrong(&mut self);
        self.end();
        let Self { shared, mut replicas, mut report, .. } = self;
        for replica in &mut replicas {
            replica.kill();
        }
        report.faults = shared.store.faults();
        report.wrong += shared.store.overwritten();
        report.panics = PANICS.get() - panics;
        report.events = shared.trace.count();
        Outcome { report, hash: shared.trace.hash(), trace: shared.trace.lines() }
    }

    fn of(plan: &Plan, pace: JobPace, replicas: usize) -> Self {
        let Plan { seed, mutant, is_rough, .. } = *plan;
        let mut dice = Dice::new(seed, 1);
        let directory = tempfile::tempdir().expect("there is room for a directory");
        let clock = Arc::<Clock>::default();
        let trace = Arc::new(if plan.keeps_trace { Trace::kept() } else { Trace::default() });
        let calm = Arc::new(AtomicBool::new(true));
        let points = Arc::<Points>::default();
        let world = (clock.clone(), trace.clone(), points.clone());
        let store = Store::new(Dice::new(seed, 2), world, calm.clone(), mutant, is_rough);
        let database = SimulatedDatabase::open(directory.path().join("catalog-0")).expect("a database is made");
        // Where nothing is to be lost with the database, the journal is shipped first.
        let journal_interval = if dice.permille(750) { Duration::ZERO } else { Duration::from_secs(2) };
        let shared = Shared { clock, trace, points, store, database, journal_interval, pace };
        let replicas = (0..replicas)
            .map(|replica| {
                let way = Way {
                    replica,
                    clock: shared.clock.clone(),
                    trace: shared.trace.clone(),
                    points: shared.points.clone(),
                    dice: SharedDice::new(seed, 10 + replica as u64),
                    calm: calm.clone(),
                    skew_ms: Arc::new(AtomicI64::new(skew_ms(&mut dice))),
                    mutant,
                };
                Replica::new(seed, directory.path(), &shared, way)
            })
            .collect();
        Self {
            seed,
            dice,
            shared,
            replicas,
            clients: (0..CLIENTS).map(Client::new).collect(),
            pending: Vec::new(),
            answers: Arc::default(),
            histories: BTreeMap::new(),
            known: Vec::new(),
            moment: 0,
            next_content: 1,
            calm,
            standby: None,
            forked_ms: None,
            doubtful_until: 0,
            files: 0,
            is_rough,
            report: Report::default(),
            directory,
        }
    }

    /// The first start, when nothing goes wrong yet.
    fn begin(&mut self) {
        self.replicas[0].boot();
        self.until("the first start", |world| world.replicas[0].engine().is_some());
        self.make_buckets();
        for replica in &mut self.replicas[1..] {
            replica.boot();
        }
        self.until("all start", |world| world.replicas.iter().all(|replica| replica.engine().is_some()));
    }

    /// Some time with whatever it brings.
    fn step(&mut self) {
        let by = self.dice.between(1, TURN_MS_MAX);
        self.trouble(by);
        self.ask_as_clients();
        self.turn(Duration::from_millis(by));
    }

    /// Some time in which nothing goes wrong.
    pub(crate) fn go_on(&mut self) {
        let by = self.dice.between(1, TURN_MS_MAX);
        self.ask_as_clients();
        self.turn(Duration::from_millis(by));
    }

    /// Whether something that happens about every `seconds` happens within `ms`.
    pub(crate) fn happens(&mut self, ms: u64, seconds: u64) -> bool {
        self.dice.below(seconds * 1000) < ms
    }

    pub(crate) fn note(&self, what: &str) {
        self.shared.trace.note(&self.shared.clock, what);
    }

    /// What goes wrong with processes and the database within `ms`.
    fn trouble(&mut self, ms: u64) {
        let now = self.shared.clock.since_begin_ms();
        for number in 0..self.replicas.len() {
            if self.replicas[number].stopped_until_ms > now {
                continue;
            }
            if !self.replicas[number].is_up() {
                self.replicas[number].boot();
            } else if self.happens(ms, 75) {
                self.crash(number);
                let rest = i64::try_from(self.dice.between(100, 20_000)).unwrap_or(0);
                self.replicas[number].stopped_until_ms = now + rest;
            } else if self.happens(ms, 90) {
                self.report.stalls += 1;
                let rest = self.dice.between(300, 25_000);
                self.note(&format!("{number} stands still for {rest}"));
                self.replicas[number].stopped_until_ms = now + i64::try_from(rest).unwrap_or(0);
            } else if let Some(why) = self.replicas[number].failed() {
                self.note(&format!("{number} did not start: {why}"));
                self.replicas[number].kill();
                self.replicas[number].stopped_until_ms = now + 1000;
            }
        }
        if self.is_rough && self.happens(ms, 20) {
            let (number, skew_ms) = (self.dice.place(self.replicas.len()), skew_ms(&mut self.dice));
            self.note(&format!("the clock of {number} goes wrong by {skew_ms}"));
            self.replicas[number].set_clock(skew_ms);
        }
        if self.happens(ms, 4) {
            self.copy_database();
        }
        if self.forked_ms.is_none() && self.shared.journal_interval.is_zero() && self.happens(ms, 150) {
            self.fail_over();
        }
        if self.forked_ms.is_some_and(|since| now - since > FORK_SEEN_MS) {
            self.repair();
        }
    }

    pub(crate) fn crash(&mut self, number: usize) {
        self.note(&format!("{number} dies"));
        self.report.crashes += 1;
        self.replicas[number].kill();
        self.shared.store.dies(number);
        self.lose_pending_of(number);
    }

    /// A path for another database.
    pub(crate) fn database_file(&mut self) -> PathBuf {
        self.files += 1;
        self.directory.path().join(format!("catalog-{}", self.files))
    }

    /// The standby catches up, as far as it ever will.
    fn copy_database(&mut self) {
        if self.forked_ms.is_some() {
            return;
        }
        let file = self.database_file();
        self.shared.database.copy_to(&file).expect("a copy is made");
        if let Some((old, _)) = self.standby.replace((file, self.moment)) {
            drop(std::fs::remove_file(old));
        }
    }

    fn fail_over(&mut self) {
        let Some((file, moment)) = self.standby.take() else { return };
        self.note("the database goes back");
        self.report.failovers += 1;
        self.shared.database.go_on_from(file).expect("the standby opens");
        self.forked_ms = Some(self.shared.clock.since_begin_ms());
        self.forget_reads_since(moment);
    }

    /// Everybody who is up has a turn of `by`, in an order that the seed decides.
    pub(crate) fn turn(&mut self, by: Duration) {
        let now = self.shared.clock.since_begin_ms();
        let mut order: Vec<usize> = (0..self.replicas.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, self.dice.place(at + 1));
        }
        for number in order {
            match self.replicas[number].stopped_until_ms > now {
                true => self.replicas[number].misses(by),
                false => self.replicas[number].turn(by, &self.shared.clock),
            }
        }
        self.shared.clock.advance(by);
        self.take_answers();
    }

    /// Lets time go by until something holds; whether it came to.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> bool {
        let end = self.shared.clock.since_begin_ms() + 240_000;
        while !holds(self) {
            if self.shared.clock.since_begin_ms() > end {
                self.unexpected(format!("stuck: {what}"));
                return false;
            }
            let by = self.dice.between(20, TURN_MS_MAX);
            self.turn(Duration::from_millis(by));
        }
        true
    }

    /// Something is as it must not be.
    pub(crate) fn unexpected(&mut self, what: String) {
        self.report.unexpected += 1;
        self.remember(what);
    }

    pub(crate) fn remember(&mut self, what: String) {
        self.note(&what);
        if self.report.notes.len() < 20 {
            self.report.notes.push(format!("seed {}: {what}", self.seed));
        }
    }
}
