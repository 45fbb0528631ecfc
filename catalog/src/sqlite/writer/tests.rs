//! Groups as they are applied, made by hand: how many statements they run, and what a refusal
//! undoes.

use super::*;
use crate::{
    Catalog, SqliteCatalog, SqliteOptions,
    conformance::desk::Desk,
    mutation::Mutation,
    relational::{
        blobs,
        engine::{Consistency, Question},
        versions,
    },
    sqlite::ownership::Ownership,
    types::{Precondition, QuotaLimits, QuotaOf, VersionId},
};
use tempfile::TempDir;

/// Statements of a put of new content under a new key: the number, the writer, the bucket, three
/// about the key; the blob, the version, the extent, the number, the journal, usage and quotas.
const PUT_STATEMENTS: u64 = 13;
/// Of a deletion that finds nothing.
const NOTHING_STATEMENTS: u64 = 6;

/// A catalog whose writer is at hand.
struct Bench {
    desk: Desk<SqliteCatalog>,
    committer: Committer,
    directory: TempDir,
}

impl Bench {
    /// With room for so many objects.
    async fn new(objects: u64) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("catalog.db");
        let catalog = SqliteCatalog::open(&path, SqliteOptions::default()).await.unwrap();
        let desk = Desk::new(Arc::new(catalog)).await;
        let limits = QuotaLimits { bytes: None, objects: Some(objects) };
        let setting = QuotaOf::Bucket(desk.bucket.id).setting();
        desk.catalog.put_setting(&setting, serde_json::json!(limits)).await.unwrap();
        let Desk { catalog, bucket, epoch } = desk;
        drop(catalog);
        let place = Place { path, options: SqliteOptions::default() };
        let ownership = Arc::new(Ownership::take(&place.path).unwrap());
        let session = connection::open_writing(&place).unwrap();
        let readers = Arc::new(Readers::new(place.clone(), ownership));
        let (awaited, fault) = Default::default();
        let committer = Committer { place, session: Some(session), is_uncertain: false, readers, awaited, fault };
        // Only for what is made with it: nobody else may have the file open.
        let elsewhere = SqliteCatalog::open(directory.path().join("other.db"), SqliteOptions::default()).await;
        let desk = Desk { catalog: Arc::new(elsewhere.unwrap()), bucket, epoch };
        Bench { desk, committer, directory }
    }

    fn put(&self, key: &str) -> Change {
        let commit = Box::new(self.desk.commit(key, vec![self.desk.inline(b"content")]));
        Change::Journaled(Mutation::Put { commit, modified_ms: 0, named: false })
    }

    fn delete(&self, key: &str) -> Change {
        let (commit, removed) = (Box::new(self.desk.deletion(key)), VersionId([0; 16]));
        Change::Journaled(Mutation::Delete { commit, removed, modified_ms: None, named: false })
    }

    fn put_absent(&self, key: &str) -> Change {
        let mut commit = self.desk.commit(key, vec![self.desk.inline(b"content")]);
        commit.precondition = Precondition::Absent;
        Change::Journaled(Mutation::Put { commit: Box::new(commit), modified_ms: 0, named: false })
    }

    /// What each change of a group gives, and how many statements they took.
    fn commit(&mut self, group: Vec<Change>) -> (Vec<Result<Outcome>>, u64) {
        let work = |committer: &Committer| committer.session.as_ref().unwrap().work.statements;
        let before = work(&self.committer);
        let (jobs, answers): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|change| {
                let (answer, outcome) = oneshot::channel();
                (Job { change, answer }, outcome)
            })
            .unzip();
        self.committer.commit_group(jobs);
        let outcomes = answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect();
        (outcomes, work(&self.committer) - before)
    }

    /// The catalog as others see it, sound.
    async fn reopened(self) -> (Desk<SqliteCatalog>, TempDir) {
        let Bench { desk, committer, directory } = self;
        drop(committer);
        let path = directory.path().join("catalog.db");
        let catalog = Arc::new(SqliteCatalog::open(path, SqliteOptions::default()).await.unwrap());
        let desk = Desk { catalog, bucket: desk.bucket, epoch: desk.epoch };
        desk.assert_sound().await;
        (desk, directory)
    }
}

#[tokio::test]
async fn a_group_costs_its_statements_once_and_one_more() {
    let mut bench = Bench::new(100).await;
    let alone = vec![bench.put("a")];
    assert_eq!(bench.commit(alone).1, PUT_STATEMENTS + 1);
    let together = vec![bench.put("b"), bench.put("c"), bench.put("d")];
    assert_eq!(bench.commit(together).1, 3 * PUT_STATEMENTS + 1);
}

/// Whether SQLite makes a table of its own at each run, as it does for `DISTINCT` and for an order
/// of which only the first is wanted.
fn makes_a_table(bench: &Bench, sql: &str) -> bool {
    let session = bench.committer.session.as_ref().unwrap();
    let mut explained = session.connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
    let mut steps = explained.raw_query();
    let mut makes_one = false;
    while let Some(step) = steps.next().unwrap() {
        makes_one |= step.get::<_, String>(1).unwrap() == "OpenEphemeral";
    }
    makes_one
}

#[tokio::test]
async fn what_each_put_and_deletion_asks_takes_no_table_of_its_own() {
    let bench = Bench::new(1).await;
    let mut asked: Vec<_> = versions::lock_current(bench.desk.bucket.id, "k").map(|asked| asked.sql).into();
    asked.push(blobs::ANY_DUPLICATES.into());
    for sql in asked {
        assert!(!makes_a_table(&bench, &sql), "{sql}");
    }
    assert!(makes_a_table(&bench, blobs::BEST_DUPLICATE), "only where there are several");
}

#[tokio::test]
async fn what_is_refused_before_it_wrote_makes_no_group_again() {
    let mut bench = Bench::new(100).await;
    let group = vec![bench.put("a"), bench.delete("nothing"), bench.put_absent("a"), bench.put("b")];
    let (outcomes, statements) = bench.commit(group);
    assert!(
        matches!(
            outcomes.as_slice(),
            [Ok(Outcome::Committed(_)), Ok(Outcome::Unchanged), Err(_), Ok(Outcome::Committed(_))]
        ),
        "{outcomes:?}"
    );
    assert_eq!(statements, 2 * PUT_STATEMENTS + 2 * NOTHING_STATEMENTS + 1);
    let (desk, _directory) = bench.reopened().await;
    let before = desk.catalog.last_seq().await.unwrap();
    assert_eq!(desk.content("b").await.version.seq, before, "what was refused took no number");
}

#[tokio::test]
async fn what_is_refused_after_it_wrote_is_undone_alone() {
    let mut bench = Bench::new(2).await;
    let group = vec![
        bench.put("a"),
        bench.put("b"),
        bench.put("beyond"),
        bench.delete("nothing"),
        bench.delete("a"),
        bench.put("c"),
    ];
    let (outcomes, _) = bench.commit(group);
    assert!(
        matches!(
            outcomes.as_slice(),
            [
                Ok(Outcome::Committed(_)),
                Ok(Outcome::Committed(_)),
                Err(CatalogError::QuotaExceeded("bucket")),
                Ok(Outcome::Unchanged),
                Ok(Outcome::Deleted(_)),
                Ok(Outcome::Committed(_))
            ]
        ),
        "{outcomes:?}"
    );
    let (desk, _directory) = bench.reopened().await;
    for (key, is_there) in [("a", false), ("b", true), ("beyond", false), ("c", true)] {
        assert_eq!(desk.catalog.current(desk.bucket.id, key).await.unwrap().is_some(), is_there, "{key}");
    }
    // An epoch, a bucket, a quota, three puts and a deletion: nothing else left a trace.
    let journal = desk.catalog.journal(0, 100).await.unwrap();
    assert!(journal.iter().map(|entry| entry.seq).eq(1..=7), "{journal:?}");
}

/// A connection to a file that is no database, as SQLite opens one: without a look at it.
fn connection_to_garbage(bench: &Bench) -> SqliteSession {
    let garbage = bench.directory.path().join("garbage.db");
    std::fs::write(&garbage, [7; 4096]).unwrap();
    connection::open_reading(&garbage).unwrap()
}

#[tokio::test]
async fn a_group_whose_connection_fails_is_committed_by_another_one() {
    let mut bench = Bench::new(100).await;
    // What SQLite makes of it when descriptors run out while it opens the file.
    let cannot_write = connection::open_reading(&bench.committer.place.path).unwrap();
    let finds_damage = connection_to_garbage(&bench);
    for (key, session) in [("a", cannot_write), ("b", finds_damage)] {
        bench.committer.session = Some(session);
        let group = vec![bench.put(key), bench.delete("nothing")];
        let jobs = group.into_iter().map(|change| {
            let (answer, outcome) = oneshot::channel();
            (Job { change, answer }, outcome)
        });
        let (jobs, answers): (Vec<_>, Vec<_>) = jobs.unzip();
        bench.committer.commit_group(jobs);
        let outcomes: Vec<_> = answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect();
        assert!(outcomes.iter().all(Result::is_ok), "{key}: {outcomes:?}");
    }
    let (desk, _directory) = bench.reopened().await;
    for key in ["a", "b"] {
        desk.content(key).await;
    }
}

#[tokio::test]
async fn damage_that_one_connection_finds_and_the_next_does_not_is_none() {
    let bench = Bench::new(100).await;
    for consistency in [Consistency::Point, Consistency::Snapshot] {
        bench.committer.readers.pool(connection_to_garbage(&bench));
        let question: Question<SqliteSession, _> = Box::new(|session| Box::pin(read::last_seq(session)));
        Readers::ask(&bench.committer.readers, consistency, question).await.unwrap();
    }
}

#[tokio::test]
async fn a_database_that_another_process_has_locked_is_waited_for_once() {
    let mut bench = Bench::new(100).await;
    let foreign = rusqlite::Connection::open(&bench.committer.place.path).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    bench.committer.session.as_ref().unwrap().execute("PRAGMA busy_timeout = 7").unwrap();
    let change = bench.put("a");
    let (outcomes, _) = bench.commit(vec![change]);
    assert!(matches!(outcomes.as_slice(), [Err(CatalogError::Unavailable(_))]), "{outcomes:?}");
    let connection = &bench.committer.session.as_ref().unwrap().connection;
    let waits_ms: i64 = connection.query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap();
    assert_eq!(waits_ms, 7, "no other connection was opened, to wait as long again");
    foreign.execute_batch("ROLLBACK").unwrap();
    let change = bench.put("a");
    let (outcomes, _) = bench.commit(vec![change]);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
}

#[tokio::test]
async fn a_writer_opens_the_database_again_while_a_snapshot_is_read() {
    let mut bench = Bench::new(100).await;
    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let (ends, end) = std::sync::mpsc::channel::<()>();
    let end = std::sync::Mutex::new(end);
    let question: Question<SqliteSession, (Seq, Seq)> = Box::new(move |session| {
        let before = finish(read::last_seq(session));
        begun.send(()).unwrap();
        // Ended by a message or, when the test fails, by nobody being there to send one.
        let _ = end.lock().unwrap().recv();
        Box::pin(async move { Ok((before?, read::last_seq(session).await?)) })
    });
    let readers = bench.committer.readers.clone();
    let reading = tokio::spawn(async move { Readers::ask(&readers, Consistency::Snapshot, question).await });
    has_begun.recv().await.unwrap();
    bench.committer.session = Some(connection_to_garbage(&bench));
    let writing = tokio::task::spawn_blocking(move || {
        let change = bench.put("a");
        let (answer, mut outcome) = oneshot::channel();
        bench.committer.commit_group(vec![Job { change, answer }]);
        (bench, outcome.try_recv().unwrap())
    });
    let written = tokio::time::timeout(std::time::Duration::from_secs(60), writing).await;
    let (bench, outcome) = written.expect("the reader was not waited for").unwrap();
    assert!(matches!(outcome, Ok(Outcome::Committed(_))), "{outcome:?}");
    ends.send(()).unwrap();
    let (before, after) = reading.await.unwrap().unwrap();
    assert_eq!(before, after, "it read one state all the while");
    let (desk, _directory) = bench.reopened().await;
    assert!(desk.content("a").await.version.seq > after);
}
