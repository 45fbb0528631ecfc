//! One replica: a runtime with a clock of its own, and an engine in it. Dropping the runtime is its
//! death: whatever was under way ends where it was.

use crate::{
    clock::{Clock, Trace},
    dice::Dice,
    points::Points,
    store::Store,
    weather::{Made, Way},
};
use catalog::SimulatedDatabase;
use engine::{
    BackendMetrics, BucketSettings, Compression, ConvertConfig, EffortSetting, Encryption, Engine, EngineConfig,
    KeyProviders, Metrics, NotifyConfig, SafetyConfig, ScrubConfig, SecondCopies, StorageHeaders, Stores, stand_in,
};
use object_format::Kek;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};
use storage_backends::{Backend, Concurrency, Limited, Measured, Repeats, RetryPolicy, Retrying};
use tokio::{
    runtime::{Builder, Runtime},
    task::AbortHandle,
    time::Instant,
};

/// The name of the only backend.
const BACKEND: &str = "store";
/// Buckets by how they keep what they hold.
pub(crate) const BUCKETS: [&str; 4] = ["delta", "sealed", "plain", "versions"];

/// How often the jobs of a server run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobPace {
    /// So often that a run of minutes meets all of them.
    Hurried,
    /// As they do by default.
    Usual,
}

/// How far the start of an engine is.
#[derive(Clone)]
enum Start {
    UnderWay,
    Open(Arc<Engine>),
    Failed(String),
}

/// One replica.
pub(crate) struct Replica {
    pub(crate) number: usize,
    seed: u64,
    directory: PathBuf,
    machine: Rc<Made>,
    way: Arc<Way>,
    store: Arc<Store>,
    database: Arc<SimulatedDatabase>,
    journal_interval: Duration,
    pace: JobPace,
    runtime: Option<Runtime>,
    start: Arc<Mutex<Start>>,
    /// Time that went by while it was stopped.
    missed: Duration,
    /// When it goes on, or is started again.
    pub(crate) stopped_until_ms: i64,
    pub(crate) starts: u64,
}

/// What all replicas share.
pub(crate) struct Shared {
    pub(crate) clock: Arc<Clock>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) points: Arc<Points>,
    pub(crate) store: Arc<Store>,
    pub(crate) database: Arc<SimulatedDatabase>,
    pub(crate) journal_interval: Duration,
    pub(crate) pace: JobPace,
}

impl Replica {
    pub(crate) fn new(seed: u64, directory: &Path, shared: &Shared, way: Way) -> Self {
        let number = way.replica;
        let dice = RefCell::new(Dice::new(seed, 100 + number as u64));
        let machine = Rc::new(Made { clock: shared.clock.clone(), skew_ms: way.skew_ms.clone(), dice });
        Self {
            number,
            seed,
            directory: directory.join(format!("replica-{number}")),
            machine,
            way: Arc::new(way),
            store: shared.store.clone(),
            database: shared.database.clone(),
            journal_interval: shared.journal_interval,
            pace: shared.pace,
            runtime: None,
            start: Arc::new(Mutex::new(Start::UnderWay)),
            missed: Duration::ZERO,
            stopped_until_ms: 0,
            starts: 0,
        }
    }

    /// Its clock jumps, and goes wrong by this much from now on.
    pub(crate) fn set_clock(&self, skew_ms: i64) {
        self.way.skew_ms.store(skew_ms, Ordering::Relaxed);
    }

    /// The engine, once it serves.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        match &*self.start.lock().unwrap_or_else(PoisonError::into_inner) {
            Start::Open(engine) if self.runtime.is_some() => Some(engine.clone()),
            _ => None,
        }
    }

    /// Why its last start failed.
    pub(crate) fn failed(&self) -> Option<String> {
        match &*self.start.lock().unwrap_or_else(PoisonError::into_inner) {
            Start::Failed(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether there is a process.
    pub(crate) fn is_up(&self) -> bool {
        self.runtime.is_some()
    }

    pub(crate) fn config(&self) -> EngineConfig {
        let hurried = config(&self.directory, self.journal_interval);
        match self.pace {
            JobPace::Hurried => hurried,
            JobPace::Usual => usual(hurried),
        }
    }

    /// Its way to the store and to a database.
    pub(crate) fn stores(&self, database: &Arc<SimulatedDatabase>, metrics: &Arc<Metrics>) -> Stores {
        let observer = Arc::new(BackendMetrics { backend: BACKEND.into(), metrics: metrics.clone() });
        let policy = RetryPolicy { budget_tokens_max: 1000, budget_tokens_per_s: 100.0, ..RetryPolicy::default() };
        let repeats = Repeats::seeded(policy, observer.clone(), self.seed ^ self.number as u64);
        let measured = Measured::new(self.store.link(self.number), observer);
        let backend: Arc<dyn Backend> =
            Arc::new(Retrying::sharing(Limited::new(measured, Concurrency::default()), repeats));
        let catalog = Arc::new(database.connect(self.way.clone()));
        Stores { alone: false, ..Stores::new(catalog, BTreeMap::from([(BACKEND.to_owned(), backend)])) }
    }

    /// Starts a process.
    pub(crate) fn boot(&mut self) {
        let _machine = stand_in(self.machine.clone());
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without threads and files needs nothing");
        self.start = Arc::new(Mutex::new(Start::UnderWay));
        self.starts += 1;
        let (start, metrics) = (self.start.clone(), Metrics::new());
        let (config, stores) = (self.config(), self.stores(&self.database, &metrics));
        runtime.spawn(async move {
            let opened = match Box::pin(Engine::open(config, stores, metrics)).await {
                Ok(engine) => Start::Open(engine),
                Err(error) => Start::Failed(error.to_string()),
            };
            *start.lock().unwrap_or_else(PoisonError::into_inner) = opened;
        });
        self.runtime = Some(runtime);
        self.missed = Duration::ZERO;
    }

    /// Ends the process wherever it is.
    pub(crate) fn kill(&mut self) {
        let _machine = stand_in(self.machine.clone());
        let Some(runtime) = self.runtime.take() else { return };
        let within = runtime.enter();
        *self.start.lock().unwrap_or_else(PoisonError::into_inner) = Start::UnderWay;
        drop(within);
        drop(runtime);
    }

    /// It stands still while time goes by.
    pub(crate) fn misses(&mut self, by: Duration) {
        self.missed += by;
    }

    /// It has a turn: whatever it can do within `by`.
    pub(crate) fn turn(&mut self, by: Duration, clock: &Clock) {
        let Some(runtime) = &self.runtime else { return };
        let missed = std::mem::take(&mut self.missed);
        let _machine = stand_in(self.machine.clone());
        runtime.block_on(async {
            if !missed.is_zero() {
                tokio::time::advance(missed).await;
            }
            clock.turn(Some(Instant::now()));
            tokio::time::sleep(by).await;
            clock.turn(None);
        });
    }

    /// Starts some work in the process.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        let _machine = stand_in(self.machine.clone());
        self.runtime.as_ref().map(|runtime| runtime.spawn(work).abort_handle())
    }

    /// Runs some work to its end on the machine, as a command would beside the server; how long it
    /// took.
    pub(crate) fn command<T>(&self, clock: &Clock, work: impl Future<Output = T>) -> (T, Duration) {
        let _machine = stand_in(self.machine.clone());
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without threads and files needs nothing");
        runtime.block_on(async {
            let began = Instant::now();
            clock.turn(Some(began));
            let done = work.await;
            clock.turn(None);
            (done, began.elapsed())
        })
    }
}

fn settings(compression: Compression, encryption: Encryption) -> BucketSettings {
    BucketSettings {
        compression,
        encryption,
        // Not by how fast this machine is.
        effort: EffortSetting::Balanced,
        backend: BACKEND.into(),
        read_through: None,
        keysets: Vec::new(),
        configurations: BTreeMap::new(),
        isolation: None,
        storage_headers: StorageHeaders::default(),
    }
}

/// The same with the intervals that servers have by default.
fn usual(hurried: EngineConfig) -> EngineConfig {
    let [minute, day] = [60, 86_400].map(Duration::from_secs);
    let backup = SafetyConfig { backup_interval: None, backup_retention: 7 * day, ..hurried.safety };
    EngineConfig {
        gc_grace: 15 * minute,
        gc_interval: minute,
        gc_trash: day,
        base_copies: 16,
        scrub: ScrubConfig { interval: None, ..hurried.scrub },
        writer_lease: minute,
        upload_age_max: 7 * day,
        safety: backup,
        ..hurried
    }
}

fn config(directory: &Path, journal_interval: Duration) -> EngineConfig {
    let plain = settings(Compression::Delta, Encryption::Off);
    let buckets = BTreeMap::from([
        ("delta".to_owned(), plain.clone()),
        ("versions".to_owned(), plain.clone()),
        ("sealed".to_owned(), settings(Compression::Delta, Encryption::Aes256)),
        ("plain".to_owned(), settings(Compression::Off, Encryption::Off)),
    ]);
    let day = Duration::from_secs(86_400);
    EngineConfig {
        data: directory.to_owned(),
        defaults: plain,
        buckets,
        memory_bytes_max: 512 << 20,
        spool_bytes_max: 1 << 30,
        kek: Some(Kek::new([9; 32])),
        keyring: None,
        key_providers: KeyProviders::default(),
        content_keys: None,
        codec_threads: Some(1),
        gc_grace: Duration::from_secs(4),
        unfinished_age: day,
        gc_interval: Duration::from_secs(15),
        gc_trash: Duration::from_secs(25),
        base_copies: 3,
        second_copies: SecondCopies::All,
        scrub: ScrubConfig { interval: Some(Duration::from_secs(70)), ..ScrubConfig::default() },
        writer_lease: Duration::from_secs(8),
        upload_age_max: Duration::from_secs(90),
        open_uploads_per_user_max: 10_000,
        lifecycle_day: day,
        safety: SafetyConfig {
            backend: BACKEND.into(),
            journal_interval,
            backup_interval: Some(Duration::from_secs(45)),
            // Longer than a standby is behind.
            backup_retention: Duration::from_secs(40),
            anchor: None,
            accept_older_catalog: false,
            encrypts: true,
        },
        eject_roots: Vec::new(),
        schedule_jobs: true,
        effort_by_load: true,
        notify: NotifyConfig::default(),
        convert: ConvertConfig { free_bytes_min: 0, ..ConvertConfig::default() },
    }
}
