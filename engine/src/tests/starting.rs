//! Replicas that start over a new store at once.

use super::{
    failovers::{Hold, Network},
    *,
};
use catalog::{Call, SimulatedDatabase};
use tokio::sync::oneshot;

/// An engine over a shared database and a shared place, with data of its own.
async fn replica(database: &Arc<SimulatedDatabase>, place: &Path, network: &Arc<Network>) -> super::Deployment {
    let dir = TempDir::new().expect("a temporary directory");
    let metrics = Metrics::new();
    let mut config = config(dir.path(), 512 << 20);
    config.schedule_jobs = false;
    let catalog = Arc::new(database.connect(network.clone()));
    let mut stores = stores_over(dir.path(), &metrics, catalog).await.expect("stores open");
    let local = LocalBackend::open(place, LocalOptions::default()).await.expect("opens");
    stores.backends.insert("local".into(), Arc::new(local));
    stores.directories.insert("local".into(), place.to_owned());
    stores.alone = false;
    let engine = Engine::open(config, stores, metrics.clone()).await.expect("opens");
    super::Deployment { engine, metrics, dir }
}

/// Whether the second of two replicas could be held up at the answer to that many of its reads
/// while it ships for the first time. Meanwhile the first one begins the store's lineage, ships and
/// trims what there is, and goes on: what it does last is shipped as well, or not yet.
async fn ships_while_held_up(reads: u32, ships_all: bool) -> bool {
    let place = TempDir::new().expect("a temporary directory");
    make_private_dir(place.path()).expect("a directory");
    let database = SimulatedDatabase::open(place.path().join("catalog.sqlite")).expect("a database");
    let blobs = place.path().join("shared");
    let network = Arc::<Network>::default();
    let first = replica(&database, &blobs, &Arc::default()).await;
    let second = replica(&database, &blobs, &network).await;
    let (left, is_held) = oneshot::channel();
    let (release, arrives) = oneshot::channel();
    *network.held.lock().expect("no panic") = Some(Hold { call: Call::Read, passes: reads, left, arrives });
    let faster = async {
        let is_held = is_held.await.is_ok();
        for ships in [true, ships_all] {
            first.put(&first.bucket("off").await, "k", &content(9000, 1)).await;
            if ships {
                first.engine.ship_journal().await.expect("shipped");
            }
        }
        // Nobody may have been held up.
        let _ = release.send(());
        is_held
    };
    let shipping = async {
        let shipped = second.engine.ship_journal().await;
        // Whoever waits for an answer that is never asked for waits no longer.
        drop(network.held.lock().expect("no panic").take());
        shipped
    };
    let (shipped, is_held) = tokio::join!(shipping, faster);
    shipped.unwrap_or_else(|error| panic!("held up at read {reads}: {error}"));
    for (number, replica) in [&first, &second].into_iter().enumerate() {
        replica.put(&replica.bucket("off").await, &format!("by-{number}"), &content(9000, 7)).await;
        let shipped = replica.engine.ship_journal().await;
        shipped.unwrap_or_else(|error| panic!("held up at read {reads}, replica {number}: {error}"));
    }
    let lineages = std::fs::read_dir(blobs.join("journal")).expect("there is a journal").count();
    assert_eq!(lineages, 1, "held up at read {reads}");
    is_held
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_together_begin_one_lineage_whoever_is_held_up_where() {
    for ships_all in [true, false] {
        let mut reads = 0;
        while Box::pin(ships_while_held_up(reads, ships_all)).await {
            reads += 1;
        }
        assert!(reads > 5, "it was held up {reads} times");
    }
}
