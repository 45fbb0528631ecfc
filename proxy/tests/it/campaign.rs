//! Campaign B10: clients of the real server over a store that fails in every way a network store
//! does. Nothing may be lost, nothing wrong, no error may be read as absence, no blob be
//! overwritten.
//!
//! ```text
//! clients ─ HTTP ─ server ─ engine ─ Retrying ─ Limited ─ Measured ─ (a bug on purpose) ─ Faulty ─ a store that overwrites
//! ```
//!
//! `cargo test` runs a slice. `CAMPAIGN_OPS` and `CAMPAIGN_SEED` make it as long as wanted and
//! replay it (`make test-all` runs 100,000 operations, `tests/campaigns/test_faulty_backend.py`);
//! the seed fixes what each client does and which call of the store fails how.

pub(crate) mod client;
pub(crate) mod model;
mod store;

use crate::{running::Running, wire::Wire};
use catalog::{SqliteCatalog, SqliteOptions};
use client::{Client, Tally};
use deltaweir::engine::{CollectParameters, Engine, EngineError, Stores};
use futures::{StreamExt as _, future::join_all};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    env,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use storage_backends::{
    Backend, Concurrency, Direction, ErrorKind, Fault, FaultRates, FaultSchedule, Faulty, Limited, Measured, Observer,
    Op, Outcome, RetryPolicy, Retrying,
};
use store::{Mutant, Mutated, Overwriting};
use tempfile::TempDir;

/// Clients at a time.
const CLIENTS: u64 = 12;
/// Starts of the server: between two of them it stops, and blobs of the earlier one become garbage
/// unless a row knows them.
const STARTS: u64 = 3;
/// Requests of the slice that every `cargo test` runs.
const SLICE_OPS: u64 = 3000;
/// Requests within which a bug must show.
const MUTANT_OPS: u64 = 1200;

const BUCKETS: [&str; 3] = ["delta", "sealed", "plain"];
const CONFIG: &str = "
[defaults]
compression = \"off\"
[buckets.delta]
compression = \"delta\"
[buckets.sealed]
compression = \"delta\"
encryption = \"aes256\"
";

/// Panics of this process, of tasks that nobody waits for included.
static PANICS: AtomicU64 = AtomicU64::new(0);

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            before(info);
        }));
    });
}

#[derive(Default)]
struct Repetitions(AtomicU64);

impl Observer for Repetitions {
    fn request(&self, _: Op, _: Outcome, _: Duration) {}
    fn bytes(&self, _: Direction, _: u64) {}
    fn retry(&self, _: Op, _: ErrorKind) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A store that fails, under the wrappers that production has.
struct FailingStore {
    faulty: Arc<Faulty<Overwriting>>,
    bottom: Overwriting,
    repetitions: Arc<Repetitions>,
    backend: Arc<dyn Backend>,
}

impl FailingStore {
    fn new(mutant: Mutant) -> Self {
        let bottom = Overwriting::default();
        let faulty = Arc::new(Faulty::new(bottom.clone(), FaultSchedule::Never));
        let repetitions = Arc::new(Repetitions::default());
        let policy = RetryPolicy {
            pause_first: Duration::from_micros(50),
            pause_max: Duration::from_millis(2),
            retry_after_max: Duration::from_millis(2),
            budget_tokens_max: 10_000,
            budget_tokens_per_s: 10_000.0,
            ..RetryPolicy::default()
        };
        let measured = Measured::new(Mutated { inner: faulty.clone(), mutant }, repetitions.clone());
        let limited = Limited::new(measured, Concurrency::default());
        let backend = Arc::new(Retrying::new(limited, policy, repetitions.clone()));
        Self { faulty, bottom, repetitions, backend }
    }

    /// The server over this store, which is well meanwhile.
    ///
    /// # Errors
    /// Why it does not serve. With a bug that forgets what recovery needs, the next start finds it.
    async fn serve(&self, directory: TempDir) -> Result<Running, EngineError> {
        Running::try_start_in(directory, CONFIG, |config, _, metrics| async move {
            // A power cut is not what fails here.
            let options = SqliteOptions { sync: false, ..SqliteOptions::default() };
            std::fs::create_dir_all(&config.data).unwrap();
            let catalog = SqliteCatalog::open(config.data.join("catalog.sqlite"), options).await?;
            let backends = BTreeMap::from([(config.defaults.backend.clone(), self.backend.clone())]);
            Engine::open(config, Stores::new(Arc::new(catalog), backends), metrics).await
        })
        .await
    }
}

/// What a run found.
struct Findings {
    tally: Tally,
    faults: BTreeMap<String, u64>,
    repetitions: u64,
    overwritten: u64,
    orphans: u64,
    broken_rules: Vec<String>,
    panics: u64,
}

impl Findings {
    /// Whether anything is as it must not be.
    fn is_bad(&self) -> bool {
        let tally = &self.tally;
        let counts = [tally.lost, tally.torn, tally.resurrected, tally.wrong, tally.absent, tally.unexpected];
        counts.iter().sum::<u64>() + self.overwritten + self.orphans + self.panics > 0 || !self.broken_rules.is_empty()
    }

    fn line(&self, seed: u64, mutants_detected: Option<bool>) -> Value {
        json!({
            "campaign": "B10",
            "seed": seed,
            "ops": self.tally.ops,
            "acked": self.tally.acked,
            "refused": self.tally.refused,
            "faults": self.faults,
            "retries": self.repetitions,
            "lost": self.tally.lost,
            "torn": self.tally.torn,
            "resurrected": self.tally.resurrected,
            "wrong": self.tally.wrong,
            "error_read_as_absent": self.tally.absent,
            "unexpected": self.tally.unexpected,
            "overwritten": self.overwritten,
            "orphans": self.orphans,
            "broken_rules": self.broken_rules,
            "panics": self.panics,
            "mutant_detected": mutants_detected,
            "notes": self.tally.notes,
        })
    }
}

async fn campaign(seed: u64, ops: u64, mutant: Mutant) -> Findings {
    count_panics();
    let panics_before = PANICS.load(Ordering::Relaxed);
    let store = FailingStore::new(mutant);
    let mut found = Found::default();
    if let Err(error) = run(&store, seed, ops, &mut found).await {
        found.broken_rules.push(format!("the store is well and is not served: {error}"));
    }
    let Found { mut tally, broken_rules, integrity_errors } = found;
    let orphans = store.bottom.blobs().list("blobs/").count().await as u64;
    if integrity_errors > 0 {
        // What passes must not look like damage: it would be an error read as absence, one layer
        // up.
        tally.unexpected += integrity_errors;
        tally.notes.push(format!("{integrity_errors} requests met damage where there is none"));
    }
    Findings {
        tally,
        faults: Fault::ALL.into_iter().map(|fault| (format!("{fault:?}"), store.faulty.injected(fault))).collect(),
        repetitions: store.repetitions.0.load(Ordering::Relaxed),
        overwritten: store.bottom.overwritten(),
        orphans,
        broken_rules,
        panics: PANICS.load(Ordering::Relaxed) - panics_before,
    }
}

/// What clients and catalog say of a run.
#[derive(Default)]
struct Found {
    tally: Tally,
    broken_rules: Vec<String>,
    integrity_errors: u64,
}

/// Clients at work over a failing store through [`STARTS`] starts, then every key read again, then
/// the store collected.
///
/// # Errors
/// Why the server did not start again over a store that is well.
async fn run(store: &FailingStore, seed: u64, ops: u64, found: &mut Found) -> Result<(), EngineError> {
    let mut running = store.serve(tempfile::tempdir().unwrap()).await?;
    let mut wire = Wire::to(running.s3).await;
    for bucket in BUCKETS {
        assert_eq!(wire.call("PUT", &format!("/{bucket}"), b"").await.status, 200);
    }
    drop(wire);
    let bucket_of = |number: u64| BUCKETS[(number % BUCKETS.len() as u64) as usize];
    let mut clients: Vec<Client> =
        (0..CLIENTS).map(|number| Client::new(seed, number, bucket_of(number), running.s3)).collect();
    for start in 0..STARTS {
        if start > 0 {
            running = store.serve(running.leave().await).await?;
        }
        store.faulty.reschedule(FaultSchedule::Seeded { seed, rates: FaultRates::BAD_DAY });
        let (address, engine) = (running.s3, running.engine.clone());
        let work = clients
            .into_iter()
            .map(|client| tokio::spawn(client.run(address, engine.clone(), ops.div_ceil(CLIENTS * STARTS))));
        clients = join_all(work).await.into_iter().map(|client| client.expect("a client ends")).collect();
        drop(engine);
        store.faulty.reschedule(FaultSchedule::Never);
        found.integrity_errors += running.metrics.integrity_errors_total.get();
    }
    let address = running.s3;
    running.engine.drop_caches();
    let settled = clients.into_iter().map(|client| tokio::spawn(client.settle(address)));
    for client in join_all(settled).await {
        found.tally.add(&client.expect("a client ends").tally);
    }
    found.broken_rules.extend(running.engine.catalog().check().await?);
    // What the last start left without a row is garbage to the next one. Earlier epochs are looked
    // through again: their only listing may have been a stale one.
    running = store.serve(running.leave().await).await?;
    for _ in 0..2 {
        let everything =
            CollectParameters { now: true, empty_trash: true, sweep: true, ..CollectParameters::default() };
        if let Err(error) = running.engine.collect_as(everything).await {
            found.broken_rules.push(format!("the store is well and cannot be collected: {error}"));
        }
    }
    found.broken_rules.extend(running.engine.catalog().check().await?);
    drop(running.leave().await);
    Ok(())
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_failing_store_loses_nothing_and_lies_about_nothing_and_bugs_are_found() {
    let (ops, seed) = (number("CAMPAIGN_OPS", SLICE_OPS), number("CAMPAIGN_SEED", 20_261_120));
    let findings = campaign(seed, ops, Mutant::None).await;
    let mut undetected = Vec::new();
    for mutant in Mutant::BUGS {
        if !campaign(seed, MUTANT_OPS, mutant).await.is_bad() {
            undetected.push(mutant);
        }
    }
    let line = findings.line(seed, Some(undetected.is_empty()));
    println!("{line}");
    assert!(!findings.is_bad(), "{line:#}");
    assert_eq!(undetected, [], "these bugs went by unseen");
    assert!(findings.tally.ops >= ops && findings.tally.acked > ops / 10, "{line:#}");
    assert!(findings.faults.values().all(|count| *count > 0), "a fault that never happened proves nothing: {line:#}");
    assert!(findings.repetitions > 0, "{line:#}");
}
