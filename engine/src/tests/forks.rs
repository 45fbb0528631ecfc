//! A catalog that is not the newest state of its store any more, or whose store is gone, while the
//! process runs (E21, E22).

use super::*;
use catalog::{JournalLink, JournalMarks};
use std::path::PathBuf;
use storage_backends::{BlobName, put_bytes};

/// Copies what a catalog and its keys are, without the blobs.
pub(super) fn copy_data(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        if entry.file_type().expect("a type").is_file() && entry.file_name() != "catalog.lock" {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

/// An engine over the catalog in `dir` and the blobs in `blobs`, which others may have too. No job
/// runs by itself.
pub(super) async fn over(
    dir: TempDir,
    blobs: PathBuf,
    journal_interval: Duration,
) -> Result<super::Deployment, EngineError> {
    let metrics = Metrics::new();
    let mut config = config(dir.path(), 512 << 20);
    config.safety.journal_interval = journal_interval;
    config.schedule_jobs = false;
    config.gc_grace = Duration::ZERO;
    let mut stores = stores(dir.path(), &metrics).await?;
    let local = LocalBackend::open(blobs.clone(), LocalOptions::default()).await?;
    stores.backends.insert("local".into(), Arc::new(local));
    stores.directories.insert("local".into(), blobs);
    let engine = Engine::open(config, stores, metrics.clone()).await?;
    Ok(super::Deployment { engine, metrics, dir })
}

/// Two processes whose catalogs were one a moment ago, over one store: a primary and the standby
/// that was promoted.
pub(super) async fn split(
    journal_interval: Duration,
    name: &str,
    keys: &[&str],
) -> (TempDir, super::Deployment, super::Deployment) {
    let blobs = TempDir::new().expect("a temporary directory");
    let hour = Duration::from_secs(3600);
    let first = over(TempDir::new().expect("a directory"), blobs.path().into(), hour).await.expect("opens");
    let bucket = first.bucket(name).await;
    for key in keys {
        first.put(&bucket, key, &content(9000, 1)).await;
    }
    let standby = TempDir::new().expect("a directory");
    let primary = first.stop().await;
    copy_data(primary.path(), standby.path());
    let primary = over(primary, blobs.path().into(), journal_interval).await.expect("opens");
    let standby = over(standby, blobs.path().into(), journal_interval).await.expect("opens");
    (blobs, primary, standby)
}

async fn try_put(deployment: &super::Deployment, key: &str, content: &[u8]) -> Result<PublishedVersion, EngineError> {
    let bucket = deployment.bucket("off").await;
    let body = futures::stream::iter([Ok::<_, Infallible>(Bytes::copy_from_slice(content))]);
    let destination = Destination::Object { key: key.into() };
    let staged = deployment
        .engine
        .stager
        .stage(&bucket, destination, Some(content.len() as u64), body, ContentDigest::default())
        .await;
    let staged = staged.map_err(|error| match error {
        StoreError::Engine(error) => error,
        StoreError::Body(never) => match never {},
    })?;
    deployment.engine.publisher.publish(&bucket, key, staged, VersionFacts::default(), Precondition::None).await
}

/// Waits until every look that was taken is too old to rest on.
async fn until_looks_are_old() {
    tokio::time::sleep(Duration::from_millis(5100)).await;
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, EngineError>) -> String {
    match outcome {
        Err(EngineError::NotCurrent(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_lacks_what_the_journal_has_takes_no_write_and_deletes_nothing() {
    let (_blobs, primary, standby) = split(Duration::from_secs(3600), "off", &["before"]).await;
    try_put(&standby, "early", b"as long as nobody can see the fork").await.expect("stored");
    let bucket = primary.bucket("off").await;
    for number in 0..40 {
        primary.put(&bucket, &format!("lost-{number}"), &content(9000, 2 + number)).await;
    }
    primary.engine.ship_journal().await.expect("shipped");
    let files = primary.engine.foundation.safety.may_delete().await;
    files.expect("the primary is the store's catalog");
    until_looks_are_old().await;

    let why = refusal(try_put(&standby, "late", b"x").await);
    assert!(why.contains("two catalogs went on from one state") && why.contains("deltaweir"), "{why}");
    let delta = standby.bucket("off").await;
    refusal(standby.engine.changes.delete(&delta, "before", Precondition::None, None).await);
    refusal(standby.engine.buckets.create_bucket("another", "owner").await.map(|_| ()));
    refusal(standby.engine.foundation.safety.may_delete().await);
    refusal(standby.engine.probe().await);
    refusal(standby.engine.ship_journal().await);
    assert_eq!(standby.engine.refused_because(), Some("the catalog and its store tell different stories"));
    assert_eq!(standby.metrics.writes_refused.with_label_values(&["beside"]).get(), 1);
    // However many mutations of its own it makes: numbers alone would hide it.
    let collected = standby.engine.collect(true).await.expect_err("the collector stops");
    assert!(collected.to_string().contains("two catalogs"), "{collected}");
    let here = standby.get(&delta, "before", 0..9000).await;
    assert!(here == content(9000, 1), "reads go on");
    for number in 0..40 {
        let read = primary.get(&bucket, &format!("lost-{number}"), 0..9000).await;
        assert!(read == content(9000, 2 + number), "{number}");
    }
    try_put(&primary, "on", b"the other one goes on").await.expect("stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_acknowledged_is_shipped_no_write_of_a_fork_is_acknowledged_at_all() {
    let (_blobs, primary, standby) = split(Duration::ZERO, "off", &["before"]).await;
    try_put(&primary, "new", b"acknowledged, so shipped").await.expect("stored");
    let outcome = try_put(&standby, "late", b"x").await;
    let why = outcome.expect_err("its journal blob has another's name").to_string();
    assert!(why.contains("two catalogs write to one store") || why.contains("went on from one state"), "{why}");
    let why = refusal(try_put(&standby, "later", b"x").await);
    assert!(why.contains("two catalogs"), "{why}");
    assert_eq!(standby.engine.refused_because(), Some("the catalog and its store tell different stories"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_back_while_a_blob_is_shipped_loses_no_row_of_what_follows() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "before", &content(9000, 1)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let copy = collecting::copy_of_catalog(deployment.dir.path());
    deployment.put(&bucket, "shipped", &content(9000, 2)).await;
    let catalog = deployment.engine.catalog();
    let marks = catalog.journal_marks().await.expect("marks");
    let read = catalog.journal(marks.shipped, 100).await.expect("rows");
    // What the shipper holds is on its way to the store; meanwhile the database fails over.
    collecting::put_back(deployment.dir.path(), &copy);
    deployment.put(&bucket, "after", &content(9000, 3)).await;
    let rows = catalog.journal(marks.shipped, 100).await.expect("rows");
    assert_eq!(rows.last().map(|row| row.seq), read.last().map(|row| row.seq));
    let trimmed = catalog.trim_journal(read.last().expect("a row"), JournalLink([0; 32])).await;
    assert!(matches!(trimmed, Err(catalog::CatalogError::Conflict)), "{trimmed:?}");
    assert_eq!(catalog.journal(marks.shipped, 100).await.expect("rows"), rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_back_while_a_backup_cleans_up_keeps_the_journal_that_shows_it() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    let mut numbers = Vec::new();
    for key in ["before", "after"] {
        deployment.put(&bucket, key, &content(9000, 1)).await;
        deployment.engine.ship_journal().await.expect("shipped");
        numbers.push(deployment.engine.catalog().last_seq().await.expect("a number"));
        if key == "before" {
            collecting::copy_of_catalog(deployment.dir.path());
        }
    }
    collecting::put_back(deployment.dir.path(), &deployment.dir.path().join("copy.sqlite"));
    let removed = deployment.engine.foundation.safety.remove_journal_before(numbers[1] + 1).await;
    assert!(removed.expect("may be removed") > 0, "what the catalog has may go");
    let place = deployment.dir.path().join("blobs");
    let backend = LocalBackend::open(place, LocalOptions::default()).await.expect("opens");
    let left: Vec<_> = backend.list("journal/").try_collect().await.expect("listed");
    assert_eq!(left.len(), 1, "{left:?}");
    let first = left[0].name.as_str().rsplit('/').next().and_then(|first| i64::from_str_radix(first, 16).ok());
    assert_eq!(first, Some(numbers[0] + 1), "it follows what the catalog has");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_copy_is_refused_at_the_start_also_after_it_has_caught_up_in_numbers() {
    let (blobs, primary, standby) = split(Duration::from_secs(3600), "off", &["before"]).await;
    for number in 0..20 {
        try_put(&standby, &format!("unseen-{number}"), b"nobody can see the fork yet").await.expect("stored");
    }
    try_put(&primary, "new", b"only here").await.expect("stored");
    primary.engine.ship_journal().await.expect("shipped");
    let shipped: JournalMarks = primary.engine.catalog().journal_marks().await.expect("marks");
    let marks = standby.engine.catalog().journal_marks().await.expect("marks");
    assert!(marks.last > shipped.last, "it has more mutations than the store's journal");
    let dir = standby.stop().await;
    let why = over(dir, blobs.path().into(), Duration::from_secs(3600)).await.err().expect("refused").to_string();
    assert!(why.contains("two catalogs went on from one state") && why.contains("--accept-older-catalog"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_was_replaced_takes_no_write_until_the_right_one_is_back() {
    let place = TempDir::new().expect("a temporary directory");
    let (mounted, away) = (place.path().join("mounted"), place.path().join("away"));
    let hour = Duration::from_secs(3600);
    let deployment = over(TempDir::new().expect("a directory"), mounted.clone(), hour).await.expect("opens");
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "k", &content(9000, 1)).await;

    std::fs::rename(&mounted, &away).expect("unmounted");
    std::fs::create_dir(&mounted).expect("an empty mount point");
    // At once: asking a directory costs nothing, so it is not rested on an older look.
    let why = refusal(try_put(&deployment, "lost", b"x").await);
    assert!(why.contains("another directory than the one that was opened"), "{why}");
    refusal(deployment.engine.changes.delete(&bucket, "k", Precondition::None, None).await);
    refusal(deployment.engine.probe().await);
    assert_eq!(deployment.engine.refused_because(), Some("a backend is not this deployment's"));
    assert!(deployment.engine.collect(true).await.is_err());
    assert!(std::fs::read_dir(&mounted).expect("readable").next().is_none(), "nothing was written there");

    std::fs::remove_dir(&mounted).expect("empty");
    std::fs::rename(&away, &mounted).expect("mounted again");
    let again = async {
        while try_put(&deployment, "again", b"x").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.expect("writes go on by themselves");
    assert!(deployment.get(&bucket, "k", 0..9000).await == content(9000, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_forked_makes_no_backup_that_stands_before_the_journal_of_another() {
    let (_blobs, primary, standby) = split(Duration::from_secs(3600), "off", &["before"]).await;
    // Nobody can see the fork yet, and the backup has begun: its snapshot has a mutation that the
    // journal has not.
    try_put(&standby, "key", b"of the fork").await.expect("stored");
    let before = standby.engine.foundation.safety.backups().await.expect("listed").len();
    let bucket = primary.bucket("off").await;
    primary.put(&bucket, "key", &content(9000, 2)).await;
    primary.engine.ship_journal().await.expect("shipped");
    refusal(standby.engine.foundation.safety.backup_unshipped().await);
    assert_eq!(standby.engine.foundation.safety.backups().await.expect("listed").len(), before, "it is none");
    primary.engine.foundation.safety.backup_unshipped().await.expect("this one is of the journal's history");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_write_after_a_directory_answers_again_is_taken() {
    let place = TempDir::new().expect("a temporary directory");
    let (mounted, away) = (place.path().join("mounted"), place.path().join("away"));
    let hour = Duration::from_secs(3600);
    let deployment = over(TempDir::new().expect("a directory"), mounted.clone(), hour).await.expect("opens");
    deployment.bucket("off").await;
    for round in 0..3 {
        std::fs::rename(&mounted, &away).expect("away");
        refusal(try_put(&deployment, "lost", b"x").await);
        std::fs::rename(&away, &mounted).expect("back");
        // A write looks no more often than this, and it does not wait until somebody else looks.
        tokio::time::sleep(Duration::from_millis(300)).await;
        try_put(&deployment, &format!("round-{round}"), b"x").await.expect("the first write is taken");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_probe_finds_out_stops_writes_and_collections_that_have_nothing_to_remove() {
    let place = TempDir::new().expect("a temporary directory");
    let hour = Duration::from_secs(3600);
    let deployment = over(TempDir::new().expect("a directory"), place.path().into(), hour).await.expect("opens");
    deployment.engine.probe().await.expect("ready");
    deployment.engine.collect(false).await.expect("there is nothing to remove");
    let theirs = LocalBackend::open(place.path(), LocalOptions::default()).await.expect("opens");
    let record = br#"{"format": "deltaweir owner 1", "deployment": "another", "since_ms": 1}"#;
    let name = BlobName::new(format!("owner/{:016x}", 2)).expect("a name");
    put_bytes(&theirs, &name, Bytes::from_static(record)).await.expect("taken over");
    let why = deployment.engine.probe().await.expect_err("it is another's").to_string();
    assert!(why.contains("belongs to another deployment"), "{why}");
    assert_eq!(deployment.engine.refused_because(), Some("a backend is not this deployment's"));
    let why = deployment.engine.collect(false).await.expect_err("it stops").to_string();
    assert!(why.contains("belongs to another deployment"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_knows_blobs_does_not_start_over_an_empty_place() {
    let place = TempDir::new().expect("a temporary directory");
    let hour = Duration::from_secs(3600);
    let deployment = over(TempDir::new().expect("a directory"), place.path().join("right"), hour).await.expect("opens");
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "k", &content(9000, 1)).await;
    let dir = deployment.stop().await;
    let (kept, config_dir) = (TempDir::new().expect("a directory"), dir);
    copy_data(config_dir.path(), kept.path());
    let why = over(config_dir, place.path().join("wrong"), hour).await.err().expect("refused").to_string();
    assert!(why.contains("journal") || why.contains("ownership record"), "{why}");
    assert!(why.contains("--accept-older-catalog"), "{why}");
    over(kept, place.path().join("right"), hour).await.expect("opens over its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_hides_no_fork_that_is_younger_than_its_retention() {
    let (_blobs, primary, standby) = split(Duration::from_secs(3600), "off", &["before"]).await;
    let bucket = primary.bucket("off").await;
    primary.put(&bucket, "lost", &content(9000, 2)).await;
    primary.engine.ship_journal().await.expect("shipped");
    let backup = primary.engine.foundation.safety.backup().await.expect("a backup").backup;
    // It catches up with the numbers of the other one, whose journal the backup has by now, unless
    // it looks before that.
    while standby.engine.catalog().last_seq().await.expect("answers") <= backup.seq
        && try_put(&standby, "early", b"as long as nobody can see the fork").await.is_ok()
    {}
    refusal(standby.engine.ship_journal().await);
    refusal(try_put(&standby, "late", b"x").await);
}
