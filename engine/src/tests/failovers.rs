//! A database that goes over to a copy of itself while a change waits for its acknowledgement.

use super::*;
use async_trait::async_trait;
use catalog::{Call, SimulatedDatabase, UnixMs, Weather};
use std::sync::Mutex;
use tokio::sync::oneshot;

/// A way to the database on which one answer can be held up.
#[derive(Default)]
pub(super) struct Network {
    hides_runs: bool,
    pub(super) held: Mutex<Option<Hold>>,
}

/// Says that an answer is on its way, and when it may arrive.
pub(super) struct Hold {
    /// Which answer: to a read, or else to what changed something.
    pub(super) call: Call,
    /// How many of them arrive before.
    pub(super) passes: u32,
    pub(super) left: oneshot::Sender<()>,
    pub(super) arrives: oneshot::Receiver<()>,
}

impl Network {
    fn hold(&self, call: Call, is_changed: bool) -> Option<Hold> {
        let mut held = self.held.lock().expect("no panic");
        let hold = held.as_mut().filter(|hold| hold.call == call && (call == Call::Read || is_changed))?;
        if hold.passes > 0 {
            hold.passes -= 1;
            return None;
        }
        held.take()
    }
}

#[async_trait]
impl Weather for Network {
    async fn before(&self, _call: Call) -> catalog::Result<()> {
        Ok(())
    }

    async fn after(&self, call: Call, is_changed: bool) -> catalog::Result<()> {
        if let Some(Hold { left, arrives, .. }) = self.hold(call, is_changed) {
            left.send(()).expect("the test listens");
            arrives.await.expect("the test goes on");
        }
        Ok(())
    }

    fn now_ms(&self) -> UnixMs {
        crate::resources::clock::now_ms()
    }

    fn database_ms(&self) -> UnixMs {
        self.now_ms()
    }

    fn hides_runs(&self) -> bool {
        self.hides_runs
    }
}

/// An engine over a database of its own.
async fn over_a_database(network: &Arc<Network>, journal_interval: Duration) -> (Deployment, Arc<SimulatedDatabase>) {
    let dir = TempDir::new().expect("a temporary directory");
    let metrics = Metrics::new();
    let mut config = config(dir.path(), 512 << 20);
    config.safety.journal_interval = journal_interval;
    config.schedule_jobs = false;
    make_private_dir(dir.path()).expect("a directory");
    let database = SimulatedDatabase::open(dir.path().join("catalog.sqlite")).expect("a database");
    let catalog = Arc::new(database.connect(network.clone()));
    let stores = stores_over(dir.path(), &metrics, catalog).await.expect("stores open");
    let engine = Engine::open(config, stores, metrics.clone()).await.expect("opens");
    (Deployment { engine, metrics, dir }, database)
}

/// Puts something, loses the database before the answer arrives, and goes on with an older copy of
/// it in which another change takes the same number. What the first writer is told, and whether the
/// catalog has it.
async fn put_during_a_failover(hides_runs: bool) -> (Result<PublishedVersion, EngineError>, bool) {
    let network = Arc::new(Network { hides_runs, ..Network::default() });
    let (deployment, database) = over_a_database(&network, Duration::ZERO).await;
    let copy = deployment.dir.path().join("standby.sqlite");
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "before", &content(9000, 1)).await;
    database.copy_to(&copy).expect("copied");

    let staged = deployment.stage(&bucket, Destination::Object { key: "k".into() }, &content(9000, 2)).await;
    let (left, committed) = oneshot::channel();
    let (release, arrives) = oneshot::channel();
    *network.held.lock().expect("no panic") = Some(Hold { call: Call::Change, passes: 0, left, arrives });
    let failover = async {
        committed.await.expect("it is committed");
        database.go_on_from(copy).expect("the standby opens");
        deployment.put(&bucket, "another", &content(9000, 3)).await;
        release.send(()).expect("it waits");
    };
    let publisher = &deployment.engine.publisher;
    let publishing = publisher.publish(&bucket, "k", staged, VersionFacts::default(), Precondition::None);
    let (published, ()) = tokio::join!(publishing, failover);
    let is_there = deployment.engine.read.head(&bucket, "k").await.expect("the catalog answers").is_some();
    (published, is_there)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_database_lost_in_a_failover_is_not_acknowledged() {
    let (told, is_there) = Box::pin(put_during_a_failover(false)).await;
    assert!(matches!(told, Err(EngineError::Unavailable(_))), "{told:?}");
    assert!(!is_there);

    // Where nobody is told of the failover, its number is taken for another change's.
    let (told, is_there) = Box::pin(put_during_a_failover(true)).await;
    assert!(told.is_ok() && !is_there, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_during_which_the_database_went_back_is_none_though_the_numbers_fit() {
    let (deployment, database) = over_a_database(&Arc::default(), Duration::from_secs(3600)).await;
    let copy = deployment.dir.path().join("standby.sqlite");
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "before", &content(9000, 1)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    database.copy_to(&copy).expect("copied");
    let safety = &deployment.engine.foundation.safety;
    let before = safety.backups().await.expect("listed").len();
    // The snapshot has this one, the journal gets another under its number.
    deployment.put(&bucket, "lost", &content(9000, 2)).await;
    let failover = async {
        database.go_on_from(copy).expect("the standby opens");
        for key in ["another", "and one more"] {
            deployment.put(&bucket, key, &content(9000, 3)).await;
        }
    };
    let backup = safety.backup_while(failover).await;
    assert!(matches!(backup, Err(EngineError::NotCurrent(_))), "{backup:?}");
    assert_eq!(safety.backups().await.expect("listed").len(), before, "it is none");
    safety.backup_unshipped().await.expect("the next one is of the journal's history");
}
