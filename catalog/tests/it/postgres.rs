//! The shared catalog, against a real PostgreSQL.

use crate::{
    cluster::Cluster,
    wire::{Fault, Wire},
};
use catalog::{
    BlobState, Catalog, CatalogError, PostgresCatalog, PostgresOptions, Precondition, PutCommit,
    conformance::{Factory, LISTING_STATEMENTS, desk::Desk},
};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, Instant},
};

pub(crate) static CLUSTER: LazyLock<Cluster> = LazyLock::new(Cluster::start);

/// A schema per catalog, by the catalog's address.
#[derive(Default)]
struct Schemas(Mutex<HashMap<usize, String>>);

impl Schemas {
    async fn open(&self, schema: String) -> Arc<PostgresCatalog> {
        let catalog = Arc::new(open(&CLUSTER.url(&schema)).await);
        self.0.lock().unwrap().insert(Arc::as_ptr(&catalog) as usize, schema);
        catalog
    }
}

async fn open(url: &str) -> PostgresCatalog {
    open_with(url, PostgresOptions { readers_max: 4, ..PostgresOptions::default() }).await
}

pub(crate) async fn open_with(url: &str, options: PostgresOptions) -> PostgresCatalog {
    PostgresCatalog::open(url, options).await.unwrap()
}

impl Factory for Schemas {
    type Catalog = PostgresCatalog;

    async fn fresh(&self) -> Arc<PostgresCatalog> {
        self.open(CLUSTER.schema().await).await
    }

    async fn after_crash(&self, catalog: Arc<PostgresCatalog>) -> Arc<PostgresCatalog> {
        let schema = self.0.lock().unwrap().remove(&(Arc::as_ptr(&catalog) as usize)).unwrap();
        drop(catalog);
        self.open(schema).await
    }
}

catalog::conformance_tests!(Schemas::default());

/// Two replicas of one store, the second by another address.
pub(crate) async fn replicas(first: &str, second: &str) -> (Desk<PostgresCatalog>, Desk<PostgresCatalog>) {
    let first = Desk::new(Arc::new(open(first).await)).await;
    let catalog = Arc::new(open(second).await);
    let epoch = catalog.open_epoch().await.unwrap();
    let second = Desk { catalog, bucket: first.bucket.clone(), epoch };
    (first, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_migrate_once() {
    let url = CLUSTER.url(&CLUSTER.schema().await);
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url.clone();
        opening.spawn(async move { open(&url).await.probe().await.unwrap() });
    }
    assert_eq!(opening.join_all().await.len(), 8);
}

#[tokio::test]
async fn a_schema_of_a_newer_program_is_refused() {
    let schema = CLUSTER.schema().await;
    drop(open(&CLUSTER.url(&schema)).await);
    CLUSTER.client(&schema).await.execute("INSERT INTO schema_version VALUES (1000)", &[]).await.unwrap();
    match PostgresCatalog::open(&CLUSTER.url(&schema), PostgresOptions::default()).await {
        Err(CatalogError::NewerSchema { found, known }) => assert!(found == 1000 && known < 1000),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_have_one_order_and_one_winner() {
    let url = CLUSTER.url(&CLUSTER.schema().await);
    let (first, second) = replicas(&url, &url).await;
    let before = first.catalog.last_seq().await.unwrap();
    for round in 0..4 {
        let mut puts = tokio::task::JoinSet::new();
        for writer in 0..64 {
            let desk = if writer % 2 == 0 { first.clone() } else { second.clone() };
            puts.spawn(async move {
                let commit = desk.commit(&format!("k{round}"), vec![desk.whole(10)]);
                desk.catalog.put(PutCommit { precondition: Precondition::Absent, ..commit }).await
            });
        }
        let outcomes = puts.join_all().await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        for error in outcomes.into_iter().filter_map(|outcome| outcome.err()) {
            assert!(matches!(error, CatalogError::PreconditionFailed), "{error}");
        }
        assert_eq!(first.content(&format!("k{round}")).await, second.content(&format!("k{round}")).await);
    }
    assert_eq!(first.catalog.last_seq().await.unwrap(), before + 4);
    first.assert_sound().await;
}

/// What one acknowledges, the other sees, and a delta never meets the end of its base (E3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delta_on_one_replica_and_the_end_of_its_base_on_another_do_not_pass_each_other() {
    let url = CLUSTER.url(&CLUSTER.schema().await);
    let (first, second) = replicas(&url, &url).await;
    for _ in 0..24 {
        let base = first.put("base").await;
        let (put, removed) = tokio::join!(
            second.catalog.put(second.commit("delta", vec![second.delta(10, &[base])])),
            first.delete("base")
        );
        assert!(removed.is_some());
        let state = first.state(base).await;
        match put {
            Ok(_) => assert_eq!(state, Some(BlobState::Live)),
            Err(CatalogError::BaseGone) => assert_eq!(state, Some(BlobState::Dying)),
            Err(error) => panic!("{error}"),
        }
    }
    second.assert_sound().await;
}

#[tokio::test]
async fn a_replica_whose_lease_ran_out_is_fenced_and_the_others_are_not() {
    let url = CLUSTER.url(&CLUSTER.schema().await);
    let (first, second) = replicas(&url, &url).await;
    assert_eq!(first.catalog.closed_epochs().await.unwrap(), [0u32; 0], "a new writer closes nobody's epoch");
    let writers = first.catalog.open_writers().await.unwrap();
    assert_eq!(writers.iter().map(|writer| writer.epoch).collect::<Vec<_>>(), [first.epoch, second.epoch]);
    assert!(writers.iter().all(|writer| (0..60_000).contains(&writer.silent_ms)), "{writers:?}");
    let until = Instant::now() + Duration::from_secs(20);
    let closed = loop {
        second.catalog.heartbeat(second.epoch).await.unwrap();
        let closed = second.catalog.close_stale_epochs(300).await.unwrap();
        if !closed.is_empty() {
            break closed;
        }
        assert!(Instant::now() < until, "the silent replica's epoch stays open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(closed, [first.epoch]);
    assert!(matches!(first.catalog.heartbeat(first.epoch).await, Err(CatalogError::Fenced)));
    let late = first.catalog.put(first.commit("k", vec![first.whole(10)])).await;
    assert!(matches!(late, Err(CatalogError::Fenced)));
    second.put("k").await;
    second.assert_sound().await;
}

/// Neither lost nor made twice, whichever side of the commit the wire was cut on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_found_out() {
    let schema = CLUSTER.schema().await;
    let wire = Wire::to(CLUSTER.port()).await;
    let (desk, other) = replicas(&CLUSTER.url_by(wire.port, &schema), &CLUSTER.url(&schema)).await;
    for (fault, key) in [(Fault::CutAfter, "after"), (Fault::CutBefore, "before"), (Fault::CutAmid, "amid")] {
        let (struck, before) = (wire.struck(), other.catalog.last_seq().await.unwrap());
        wire.arm(fault);
        let committed = desk.catalog.put(desk.commit(key, vec![desk.whole(10)])).await.unwrap();
        assert_eq!(wire.struck(), struck + 1, "{fault:?} did not happen");
        assert_eq!(committed.seq, before + 1);
        assert_eq!(other.content(key).await.version.seq, committed.seq);
        assert_eq!(other.catalog.last_seq().await.unwrap(), committed.seq);
    }
    other.assert_sound().await;
}

async fn crash_and_start_again(cluster: &Arc<Cluster>) {
    let cluster = Arc::clone(cluster);
    tokio::task::spawn_blocking(move || {
        cluster.crash();
        cluster.start_again();
    })
    .await
    .unwrap();
}

async fn next_transaction_id(client: &tokio_postgres::Client) -> i64 {
    let sql = "SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT)";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// A database that crashes forgets the transactions its log does not have, and gives their ids to
/// others: what another process commits under such an id is not this one's commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_a_crash_took_is_not_mistaken_for_another_one() {
    let cluster = tokio::task::spawn_blocking(|| Arc::new(Cluster::start())).await.unwrap();
    let client = cluster.client("public").await;
    // Only what must be in the log gets there, but for what crosses the end of one of its pages.
    for quiet in [
        "wal_level = minimal",
        "max_wal_senders = 0",
        "wal_writer_delay = '10s'",
        "full_page_writes = off",
        "bgwriter_lru_maxpages = 0",
        "autovacuum = off",
    ] {
        client.batch_execute(&format!("ALTER SYSTEM SET {quiet}")).await.unwrap();
    }
    crash_and_start_again(&cluster).await;
    let wire = Wire::to(cluster.port()).await;
    let (desk, other) = replicas(&cluster.url_by(wire.port, "public"), &cluster.url("public")).await;
    for round in 0..16 {
        let client = cluster.client("public").await;
        let first_id = next_transaction_id(&client).await;
        let struck = wire.struck();
        wire.arm(Fault::CutBeforeForGood);
        let key = format!("lost{round}");
        let lost = {
            let (desk, key) = (desk.clone(), key.clone());
            tokio::spawn(async move { desk.catalog.put(desk.commit(&key, vec![desk.whole(10)])).await })
        };
        let under_way = "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL";
        while wire.struck() == struck || client.query_one(under_way, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let last_id = next_transaction_id(&client).await - 1;
        assert!(last_id >= first_id);
        crash_and_start_again(&cluster).await;
        let client = cluster.client("public").await;
        let were_given_back = next_transaction_id(&client).await == first_id;
        while next_transaction_id(&client).await <= last_id {
            other.put("other").await;
        }
        wire.mend();
        let lost = lost.await.unwrap().unwrap();
        assert_eq!(desk.content(&key).await.version.seq, lost.seq, "what was acknowledged is there");
        if were_given_back {
            desk.assert_sound().await;
            return;
        }
    }
    panic!("no crash gave transaction ids back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_committed_last_is_kept_for_a_day_of_silence() {
    let schema = CLUSTER.schema().await;
    let (first, second) = replicas(&CLUSTER.url(&schema), &CLUSTER.url(&schema)).await;
    let client = CLUSTER.client(&schema).await;
    let kept = async || -> i64 { client.query_one("SELECT count(*) FROM commit_groups", &[]).await.unwrap().get(0) };
    first.put("k").await;
    second.put("k").await;
    assert_eq!(kept().await, 2, "a row for each process, whatever it commits");
    client.execute("UPDATE commit_groups SET at_ms = at_ms - 86300000", &[]).await.unwrap();
    open(&CLUSTER.url(&schema)).await.open_epoch().await.unwrap();
    assert_eq!(kept().await, 3);
    client.execute("UPDATE commit_groups SET at_ms = at_ms - 200000", &[]).await.unwrap();
    open(&CLUSTER.url(&schema)).await.open_epoch().await.unwrap();
    assert_eq!(kept().await, 2, "the two that were silent for a day are forgotten");
    first.put("k").await;
    assert_eq!(kept().await, 3, "and known again with their next commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_cannot_be_found_out_is_unknown() {
    let schema = CLUSTER.schema().await;
    let wire = Wire::to(CLUSTER.port()).await;
    let options = PostgresOptions { patience: Duration::from_millis(500), ..PostgresOptions::default() };
    let catalog = open_with(&CLUSTER.url_by(wire.port, &schema), options).await;
    let desk = Desk::new(Arc::new(catalog)).await;
    wire.arm(Fault::CutAfterForGood);
    let commit = desk.commit("k", vec![desk.whole(10)]);
    let outcome = desk.catalog.put(commit.clone()).await;
    assert!(matches!(outcome, Err(CatalogError::Unknown(_))), "{outcome:?}");
    let outcome = desk.catalog.put(desk.commit("next", vec![])).await;
    assert!(matches!(outcome, Err(CatalogError::Unavailable(_))), "{outcome:?}");
    assert!(matches!(desk.catalog.probe().await, Err(CatalogError::Unavailable(_))));
    // Read back by id, as the contract says.
    let other = open(&CLUSTER.url(&schema)).await;
    assert!(other.version(desk.bucket.id, "k", commit.id).await.unwrap().is_some());
}

/// A replica that is stopped in the middle of a transaction costs the others no more than the stall
/// limit, and does not commit late (E23).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_replica_does_not_hold_the_others() {
    let schema = CLUSTER.schema().await;
    let wire = Wire::to(CLUSTER.port()).await;
    let options = PostgresOptions { stall_timeout: Duration::from_millis(400), ..PostgresOptions::default() };
    let stalled = Desk::new(Arc::new(open_with(&CLUSTER.url_by(wire.port, &schema), options).await)).await;
    let catalog = Arc::new(open(&CLUSTER.url(&schema)).await);
    let epoch = catalog.open_epoch().await.unwrap();
    let other = Desk { catalog, bucket: stalled.bucket.clone(), epoch };
    wire.arm(Fault::Stall);
    let late = {
        let stalled = stalled.clone();
        tokio::spawn(async move { stalled.catalog.put(stalled.commit("k", vec![stalled.whole(10)])).await })
    };
    while wire.struck() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let began = Instant::now();
    other.put("k").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let (first, second) = (other.content("k").await.version.seq, late.await.unwrap().unwrap().seq);
    assert_eq!(second, first + 1, "it was carried out once more, after the other");
    other.assert_sound().await;
}

/// Reads wait for the database; changes go through or fail, and what was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_database_is_ridden_out() {
    let cluster = tokio::task::spawn_blocking(|| Arc::new(Cluster::start())).await.unwrap();
    let desk = Desk::new(Arc::new(open(&cluster.url("public")).await)).await;
    desk.put("before").await;
    let writing = {
        let desk = desk.clone();
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            for number in 0..200 {
                let commit = desk.commit(&format!("k{number:03}"), vec![desk.whole(10)]);
                acknowledged.push((commit.key.clone(), desk.catalog.put(commit).await.unwrap().seq));
                desk.content("before").await;
            }
            acknowledged
        })
    };
    while desk.catalog.current(desk.bucket.id, "k020").await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    crash_and_start_again(&cluster).await;
    let acknowledged = writing.await.unwrap();
    assert_eq!(acknowledged.len(), 200);
    assert!(acknowledged.windows(2).all(|pair| pair[0].1 + 1 == pair[1].1), "each was made once");
    for (key, seq) in acknowledged {
        assert_eq!(desk.content(&key).await.version.seq, seq);
    }
    desk.assert_sound().await;
}

#[tokio::test]
async fn a_database_that_is_not_there_is_unavailable() {
    let options = PostgresOptions { patience: Duration::from_millis(50), ..PostgresOptions::default() };
    let outcome = PostgresCatalog::open("postgres://postgres@127.0.0.1:1/postgres", options).await.err();
    assert!(matches!(outcome, Some(CatalogError::Unavailable(_))), "{outcome:?}");
}

/// The server proves its name or is not spoken to.
#[tokio::test]
async fn a_server_is_trusted_for_its_name_and_its_signer_only() {
    let schema = CLUSTER.schema().await;
    let address = |host: &str, roots: &std::path::Path| {
        format!(
            "postgres://postgres@{host}:{}/postgres?sslmode=verify-full&sslrootcert={}&application_name=tls-{schema}\
             &options=-csearch_path%3D{schema}",
            CLUSTER.port(),
            roots.display()
        )
    };
    let catalog = open(&address("localhost", &CLUSTER.roots())).await;
    catalog.open_epoch().await.unwrap();
    let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a ON a.pid = s.pid \
                     WHERE a.application_name = $1 AND s.ssl";
    let name = format!("tls-{schema}");
    let row = CLUSTER.client(&schema).await.query_one(encrypted, &[&name]).await.unwrap();
    assert!(row.get::<_, i64>(0) >= 1, "the connection is encrypted");

    let hasty = PostgresOptions { patience: Duration::from_millis(200), ..PostgresOptions::default() };
    let refused = async |url: &str, why: &str| match PostgresCatalog::open(url, hasty.clone()).await {
        Err(CatalogError::Unavailable(reason)) => assert!(reason.contains(why), "{reason}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{url} was trusted"),
    };
    refused(&address("127.0.0.1", &CLUSTER.roots()), "not valid for name").await;
    let other_roots = tempfile::tempdir().unwrap();
    let path = other_roots.path().join("other.pem");
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-subj", "/CN=somebody else", "-newkey", "rsa:2048", "-nodes", "-keyout", "/dev/null"])
        .arg("-out")
        .arg(&path)
        .output()
        .unwrap();
    assert!(made.status.success());
    refused(&address("localhost", &path), "UnknownIssuer").await;
}

/// Whatever the planner thinks of the table: the plan walks the index, with nothing to sort.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_of_many_keys_walk_their_index() {
    let schema = CLUSTER.schema().await;
    let desk = Desk::new(Arc::new(open(&CLUSTER.url(&schema)).await)).await;
    let bucket = desk.bucket.id.0;
    let client = CLUSTER.client(&schema).await;
    client
        .batch_execute(&format!(
            "INSERT INTO versions (seq, bucket, key, id, current, modified_ms, size, facts, extents_digest)
             SELECT 1000 + i, {bucket}, convert_to('d' || i % 3 || '/' || reverse(lpad(i::text, 8, '0')), 'UTF8'), int8send(i) || int8send(i), 1, 0, 0, '', decode(repeat('00', 32), 'hex')
             FROM generate_series(1::bigint, 1000000) i;
             INSERT INTO versions (seq, bucket, key, id, current, modified_ms, size, facts, extents_digest, named)
             SELECT 2000000 + i, {bucket}, convert_to('d' || i % 3 || '/h' || i % 30, 'UTF8'), int8send(-i) || int8send(i), 0, 0, 0, '', decode(repeat('00', 32), 'hex'), 1
             FROM generate_series(1::bigint, 200000) i;
             INSERT INTO uploads (id, bucket, key, created_ms, owner, facts)
             SELECT int8send(i) || int8send(i), {bucket}, convert_to('u/' || i % 5000, 'UTF8'), i, '', '' FROM generate_series(1::bigint, 50000) i;"
        ))
        .await
        .unwrap();
    let cases = [
        (LISTING_STATEMENTS[0], "bigint, bytea, bytea, bigint", "{bucket}, 'd1/', '\\xff', 1001", "versions_current"),
        (
            LISTING_STATEMENTS[1],
            "bigint, bytea, bigint, bytea, bytea, bigint",
            "{bucket}, 'u/', 0, '', '\\xff', 1001",
            "uploads_open",
        ),
        (
            LISTING_STATEMENTS[2],
            "bigint, bytea, bytea, bytea, bigint, bigint",
            "{bucket}, 'd1/', '\\xff', 'no such delimiter', 1, 1001",
            "versions_current",
        ),
        (
            LISTING_STATEMENTS[3],
            "bigint, bytea, bytea, bigint",
            "{bucket}, 'd1/', '\\xff', 1001",
            "versions_noncurrent",
        ),
        (
            LISTING_STATEMENTS[4],
            "bigint, bytea, bigint, bigint",
            "{bucket}, 'd1/h1', 2150000, 1001",
            "versions_noncurrent",
        ),
        (
            LISTING_STATEMENTS[5],
            "bigint, bytea, bytea, bytea, bigint, bigint, bytea, bigint",
            "{bucket}, 'd1/', '\\xff', 'no such delimiter', 1, 1001, '', 0",
            "versions_noncurrent",
        ),
        (
            LISTING_STATEMENTS[6],
            "bigint, bytea, bigint, bytea, bytea, bytea, bigint, bigint",
            "{bucket}, 'u/', 0, '', '\\xff', 'no such delimiter', 1, 1001",
            "uploads_open",
        ),
    ];
    for analyzed in [false, true] {
        if analyzed {
            client.batch_execute("ANALYZE versions; ANALYZE uploads").await.unwrap();
        }
        for mode in ["force_custom_plan", "force_generic_plan"] {
            for (sql, types, arguments, index) in cases {
                client
                    .batch_execute(&format!(
                        "DEALLOCATE ALL; SET plan_cache_mode = {mode}; PREPARE l ({types}) AS {sql}"
                    ))
                    .await
                    .unwrap();
                let arguments = arguments.replace("{bucket}", &bucket.to_string());
                let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE l ({arguments})");
                let rows = client.simple_query(&explain).await.unwrap();
                let plan: Vec<_> = rows
                    .iter()
                    .filter_map(|message| match message {
                        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
                        _ => None,
                    })
                    .collect();
                let plan = plan.join("\n");
                assert!(plan.contains(&format!("using {index}")), "{mode}, analyzed {analyzed}:\n{plan}");
                assert!(plan.contains("actual rows=1001"), "{plan}");
                // The walk and the merge of two indexes sort and end their own thousand rows;
                // nothing sorts or filters the table.
                let wasted = plan.contains("Sort") || plan.contains("Rows Removed");
                let merges = [2, 3, 5, 6].map(|index| LISTING_STATEMENTS[index]);
                assert!(!wasted || merges.contains(&sql), "{mode}:\n{plan}");
                assert!(!plan.contains("Seq Scan"), "{mode}:\n{plan}");
            }
        }
    }
    let query = catalog::ListQuery {
        bucket: desk.bucket.id,
        prefix: String::new(),
        delimiter: Some("/".into()),
        after: None,
        limit: 1000,
    };
    let began = Instant::now();
    assert_eq!(desk.catalog.list(&query).await.unwrap().entries.len(), 3);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?} for three prefixes", began.elapsed());
    let walk = LISTING_STATEMENTS[2];
    client
        .batch_execute(&format!("DEALLOCATE ALL; PREPARE l (bigint, bytea, bytea, bytea, bigint, bigint) AS {walk}"))
        .await
        .unwrap();
    let plan = plan_of(&client, &format!("{bucket}, '', '\\xff', '/', 1, 1001")).await;
    assert_eq!(plan["Actual Rows"], 3);
    assert!((1..100).contains(&pages_of(&plan)), "{} pages for three prefixes", pages_of(&plan));

    // Of all versions, rolled up: a run behind a common prefix reads as little at the end of the
    // bucket as at its front.
    let run = LISTING_STATEMENTS[3];
    client.batch_execute(&format!("DEALLOCATE ALL; PREPARE l (bigint, bytea, bytea, bigint) AS {run}")).await.unwrap();
    for first in ["", "d0/\u{ff}", "d2/99999", "d2/h29"] {
        let plan = plan_of(&client, &format!("{bucket}, convert_to('{first}', 'UTF8'), '\\xff', 4")).await;
        assert_eq!(plan["Actual Rows"], 4, "from {first:?}");
        let rows_read: i64 = leaves(&plan).iter().map(|leaf| leaf["Actual Rows"].as_f64().unwrap() as i64).sum();
        assert!((4..=8).contains(&rows_read), "{rows_read} rows from {first:?}");
        assert!((1..40).contains(&pages_of(&plan)), "{} pages from {first:?}", pages_of(&plan));
    }

    // And a whole page of it is one statement, which reads a few rows for each entry.
    let walk = LISTING_STATEMENTS[5];
    let types = "bigint, bytea, bytea, bytea, bigint, bigint, bytea, bigint";
    client.batch_execute(&format!("DEALLOCATE ALL; PREPARE l ({types}) AS {walk}")).await.unwrap();
    for (arguments, entries) in [
        ("'', '\\xff', '/', 1, 1001, '', 0", 3),
        ("'d2/', '\\xff', '/', 4, 101, '', 0", 101),
        ("convert_to('d2/h29', 'UTF8') || '\\x00', '\\xff', '/', 4, 101, 'd2/h29', 2150000", 101),
    ] {
        let plan = plan_of(&client, &format!("{bucket}, {arguments}")).await;
        assert_eq!(plan["Actual Rows"], entries, "{arguments}");
        let rows_read = rows_read(&plan);
        let bound = 4.0 * f64::from(entries) + 4.0;
        assert!(rows_read >= f64::from(entries) && rows_read <= bound, "{rows_read} rows for {arguments}");
    }
}

/// A page of open uploads with a delimiter is one statement, which reads a few rows for each entry
/// however many uploads a common prefix holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_uploads_past_common_prefixes_reads_a_few_rows_for_each_entry() {
    let schema = CLUSTER.schema().await;
    let desk = Desk::new(Arc::new(open(&CLUSTER.url(&schema)).await)).await;
    let bucket = desk.bucket.id.0;
    let client = CLUSTER.client(&schema).await;
    client
        .batch_execute(&format!(
            "INSERT INTO uploads (id, bucket, key, created_ms, owner, facts)
             SELECT int8send(i) || int8send(i), {bucket}, convert_to('p' || i % 1500 || '/' || i, 'UTF8'), i, '', ''
             FROM generate_series(1::bigint, 60000) i;
             ANALYZE uploads"
        ))
        .await
        .unwrap();
    let types = "bigint, bytea, bigint, bytea, bytea, bytea, bigint, bigint";
    client.batch_execute(&format!("PREPARE l ({types}) AS {}", LISTING_STATEMENTS[6])).await.unwrap();
    for (from, rest, entries) in [("''", 1, 1001), ("'p9/' || '\\xff'::bytea", 1, 110), ("'p7/'", 4, 40)] {
        let end = if rest == 1 { "'\\xff'" } else { "'p7/' || '\\xff'::bytea" };
        let plan = plan_of(&client, &format!("{bucket}, {from}, 0, '', {end}, '/', {rest}, 1001")).await;
        assert_eq!(plan["Actual Rows"], entries, "from {from}");
        let read = rows_read(&plan);
        assert!(read >= f64::from(entries) && read <= 2.0 * f64::from(entries) + 2.0, "{read} rows from {from}");
    }
}

/// The nodes of a plan that read an index of a table.
fn scans(plan: &serde_json::Value) -> Vec<&serde_json::Value> {
    let own = plan["Node Type"].as_str().is_some_and(|kind| kind.starts_with("Index")).then_some(plan);
    own.into_iter().chain(plan["Plans"].as_array().into_iter().flatten().flat_map(scans)).collect()
}

/// The rows that those nodes read.
fn rows_read(plan: &serde_json::Value) -> f64 {
    let of = |scan: &serde_json::Value| scan["Actual Rows"].as_f64().unwrap() * scan["Actual Loops"].as_f64().unwrap();
    scans(plan).into_iter().map(of).sum()
}

/// The plan of the prepared statement `l`, as it was carried out.
async fn plan_of(client: &tokio_postgres::Client, arguments: &str) -> serde_json::Value {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE l ({arguments})");
    let plan: serde_json::Value = client.query_one(&explain, &[]).await.unwrap().get(0);
    plan[0]["Plan"].clone()
}

fn pages_of(plan: &serde_json::Value) -> i64 {
    plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
}

/// The nodes of a plan that read a table or an index.
fn leaves(plan: &serde_json::Value) -> Vec<&serde_json::Value> {
    match plan["Plans"].as_array() {
        Some(below) => below.iter().flat_map(leaves).collect(),
        None => vec![plan],
    }
}
