//! A store in which nothing happens costs the same however much is in it: counted in what the
//! database really did.

use super::*;

/// Steps of SQLite's virtual machine that a round of the periodic work takes, at first and when
/// nothing has happened since.
struct Costs {
    first: u64,
    idle: u64,
    after_a_change: u64,
}

/// A deployment without a schedule, and its catalog, which counts what the database does.
async fn counted(specs: impl FnOnce(&EngineConfig, &Workers) -> Vec<JobSpec>) -> (Deployment, Arc<SqliteCatalog>) {
    let dir = TempDir::new().expect("a temporary directory");
    let metrics = Metrics::new();
    let sqlite = SqliteCatalog::open(dir.path().join("catalog.sqlite"), SqliteOptions::default()).await;
    let sqlite = Arc::new(sqlite.expect("opens"));
    let mut stores = stores_over(dir.path(), &metrics, sqlite.clone()).await.expect("stores open");
    stores.alone = true;
    let quiet = EngineConfig { schedule_jobs: false, base_copies: 2, ..config(dir.path(), 512 << 20) };
    let engine = Engine::open_with(quiet, stores, metrics.clone(), specs).await.expect("opens");
    (Deployment { engine, metrics, dir }, sqlite)
}

async fn costs_with(objects: usize) -> Costs {
    let (deployment, sqlite) = counted(registry::all).await;
    let bucket = deployment.bucket("off").await;
    for number in 0..objects {
        // Empty ones are versions that packing passes over; the others have blobs.
        deployment.put(&bucket, &format!("empty/{number:06}"), b"").await;
        deployment.put(&bucket, &format!("short/{number:06}"), &content(100, number as u64)).await;
    }
    let round = async || {
        let before = sqlite.read_work().vm_steps;
        let engine = &deployment.engine;
        engine.reports.refresh_counts().await.expect("counted");
        engine.workers.converter.show_deferred().await.expect("shown");
        assert_eq!(engine.workers.packer.backlog().await.expect("looked"), 0);
        engine.workers.converter.backlog().await.expect("looked");
        sqlite.read_work().vm_steps - before
    };
    // A shipment reads, too: none is under way in the rounds.
    deployment.engine.ship_journal().await.expect("shipped");
    // On a busy machine a count by the clock took long, and put off the next one.
    let last = sqlite.last_seq().await.expect("read");
    deployment.engine.foundation.looks.note_slow_count(last - 1);
    let first = round().await;
    let idle = round().await;
    assert_eq!(idle, round().await, "idle rounds are all alike");
    deployment.put(&bucket, "one-more", b"").await;
    deployment.engine.ship_journal().await.expect("shipped");
    // A recount is not due so soon; the others look at what is new.
    let after_a_change = round().await;
    deployment.stop().await;
    Costs { first, idle, after_a_change }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_round_of_the_periodic_work_reads_the_same_with_ten_objects_and_with_a_thousand() {
    let (few, many) = (costs_with(10).await, costs_with(1000).await);
    println!("steps: idle {} and {}, first {} and {}", few.idle, many.idle, few.first, many.first);
    assert!(many.first > few.first + 10_000, "the first round looks through all of it: {} steps", many.first);
    assert!(many.idle <= few.idle + 50, "{} steps with a thousand objects, {} with ten", many.idle, few.idle);
    assert!(many.after_a_change <= few.after_a_change + 200, "{} and {}", many.after_a_change, few.after_a_change);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_waits_for_no_count_of_a_store_that_takes_long_to_count() {
    let (deployment, sqlite) = counted(|_, _| Vec::new()).await;
    let bucket = deployment.bucket("off").await;
    for number in 0..20 {
        deployment.put(&bucket, &format!("key/{number:06}"), &content(100, number)).await;
    }
    let (reports, catalog) = (&deployment.engine.reports, deployment.engine.catalog());
    let objects = |told: &(_, serde_json::Value, serde_json::Value)| told.1["totals"]["objects"].as_u64();
    reports.stats().await.expect("counted");
    deployment.put(&bucket, "one-more", b"").await;
    deployment.engine.ship_journal().await.expect("shipped");
    deployment.engine.foundation.looks.note_slow_count(catalog.last_seq().await.expect("read") - 1);
    let before = sqlite.read_work().vm_steps;
    let told = reports.counted().await.expect("told");
    let steps = sqlite.read_work().vm_steps - before;
    assert_eq!((objects(&told), steps), (Some(20), 0), "what was counted before is told");
    reports.refresh_counts().await.expect("counted");
    assert_eq!(objects(&reports.counted().await.expect("told")), Some(21), "the gauges' count is the next one");
    deployment.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_keys_tells_them_without_a_look_at_its_blobs() {
    let (deployment, sqlite) = counted(|_, _| Vec::new()).await;
    let bucket = deployment.bucket("off").await;
    let steps = async || {
        let asked = async || {
            let before = sqlite.read_work().vm_steps;
            assert!(deployment.engine.keys.list().await.expect("told").keys.is_empty());
            sqlite.read_work().vm_steps - before
        };
        // The least of many: gauges are set meanwhile, now and then.
        let mut least = asked().await;
        for _ in 0..20 {
            least = least.min(asked().await);
        }
        least
    };
    let without = steps().await;
    for number in 0..50 {
        deployment.put(&bucket, &format!("key/{number:06}"), &content(100, number)).await;
    }
    assert_eq!(steps().await, without);
    deployment.stop().await;
}

/// Jobs that run by an interval and read everything each time, because that is what they are for.
const READ_EVERYTHING: [&str; 2] = ["backup", "scrub"];

/// Steps that a run of each job takes when nothing has happened since its last one.
async fn costs_of_jobs_with(objects: usize) -> BTreeMap<&'static str, u64> {
    let mut names = Vec::new();
    let all = |config: &EngineConfig, workers: &Workers| {
        let specs = registry::all(config, workers);
        names.extend(specs.iter().filter_map(JobSpec::name_if_periodic));
        specs
    };
    let (deployment, sqlite) = counted(all).await;
    let (plain, similar) = (deployment.bucket("off").await, deployment.bucket("delta").await);
    for number in 0..objects {
        // Too large to be packed, and to lie in the catalog.
        deployment.put(&plain, &format!("large/{number:06}"), &content(66_000, number as u64)).await;
    }
    let base = content(200_000, 1);
    deployment.put(&similar, "base", &base).await;
    deployment.put(&similar, "delta", &base).await;
    let mut costs = BTreeMap::new();
    for name in names.into_iter().filter(|name| !READ_EVERYTHING.contains(name)) {
        let run = async || {
            let before = sqlite.read_work().vm_steps;
            deployment.engine.jobs.run_job(name, serde_json::Value::Null).await.expect("runs");
            sqlite.read_work().vm_steps - before
        };
        run().await;
        deployment.engine.workers.packer.backlog().await.expect("looked");
        // The least of three: gauges are set meanwhile, now and then.
        costs.insert(name, run().await.min(run().await).min(run().await));
    }
    deployment.stop().await;
    costs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_runs_by_an_interval_reads_the_same_with_ten_objects_and_with_three_hundred_when_nothing_changed() {
    let (few, many) = (costs_of_jobs_with(10).await, costs_of_jobs_with(300).await);
    println!("steps: {few:?} and {many:?}");
    assert!(few.contains_key("converter") && few.contains_key("gc") && few.contains_key("pack"), "{few:?}");
    for (name, steps) in &many {
        assert!(*steps <= few[name] + 300, "{name}: {steps} steps with three hundred objects, {} with ten", few[name]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bases_are_looked_through_for_copies_only_after_a_change() {
    let deployment = Deployment::with_jobs(|_, _| Vec::new(), |config| config.base_copies = 1).await;
    let engine = &deployment.engine;
    let seq = engine.foundation.catalog.last_seq().await.expect("read");
    assert!(!engine.foundation.looks.are_copied(seq));
    engine.foundation.looks.note_copied(seq);
    assert!(engine.foundation.looks.are_copied(seq));
    let bucket = deployment.bucket("delta").await;
    deployment.put(&bucket, "key", &content(9_000, 1)).await;
    assert!(!engine.foundation.looks.are_copied(engine.foundation.catalog.last_seq().await.expect("read")));
}
