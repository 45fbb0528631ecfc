//! Groups that read before they have their turn commit only what nothing was changed under.

use crate::{
    postgres::{CLUSTER, open_with, replicas},
    wire::Wire,
};
use catalog::{
    Catalog, CatalogError, PostgresCatalog, PostgresOptions, Precondition, PutCommit, UnixMs, Versioning,
    conformance::desk::{Desk, NOW},
};
use std::{sync::Arc, time::Duration};
use tokio_postgres::Client;

/// What every writing process waits for; ends with the transaction.
const TURN: &str = "BEGIN; SELECT value FROM counters WHERE name = 'mutations' FOR UPDATE";

/// Waits until as many sessions of `name` wait for a lock.
async fn waiting(client: &Client, name: &str, count: i64) {
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND cardinality(pg_blocking_pids(pid)) > 0";
    for _ in 0..3000 {
        let found: i64 = client.query_one(sql, &[&name]).await.unwrap().get(0);
        if found == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("there were never {count} that waited");
}

/// Two replicas that have written, the first over a wire, and a client that can take the turn.
async fn two() -> (Desk<PostgresCatalog>, Wire, Desk<PostgresCatalog>, Client, String) {
    let schema = CLUSTER.schema().await;
    let wire = Wire::to(CLUSTER.port()).await;
    let named = |url: String| format!("{url}&application_name={schema}");
    let (one, other) = replicas(&named(CLUSTER.url_by(wire.port, &schema)), &named(CLUSTER.url(&schema))).await;
    for desk in [&one, &other] {
        for _ in 0..2 {
            desk.put("warm").await;
            desk.delete("warm").await;
        }
    }
    (one, wire, other, CLUSTER.client(&schema).await, schema)
}

/// A put that another process keeps from its turn has read everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_and_a_deletion_read_before_their_turn() {
    let (desk, wire, _other, client, name) = two().await;
    for is_put in [true, false] {
        client.batch_execute(TURN).await.unwrap();
        let before = wire.journeys();
        let desk = desk.clone();
        let change = tokio::spawn(async move {
            match is_put {
                true => drop(desk.put("k").await),
                false => drop(desk.delete("k").await.unwrap()),
            }
        });
        waiting(&client, &name, 1).await;
        assert_eq!(wire.journeys() - before, 2, "what it reads was answered, and what it writes is on its way");
        client.batch_execute("COMMIT").await.unwrap();
        change.await.unwrap();
        assert_eq!(wire.journeys() - before, 2, "nothing else is asked");
    }
}

/// Two replicas find no object under a key. One creates it; the other, which is bound to finding
/// none, finds out in its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_found_a_key_free_one_creates_it() {
    let (one, wire, other, client, name) = two().await;
    let absent = |desk: &Desk<PostgresCatalog>| {
        let commit = desk.commit("k", vec![desk.whole(10)]);
        (desk.clone(), PutCommit { precondition: Precondition::Absent, ..commit })
    };
    client.batch_execute(TURN).await.unwrap();
    let (desk, commit) = absent(&other);
    let first = tokio::spawn(async move { desk.catalog.put(commit).await });
    waiting(&client, &name, 1).await;
    let ((desk, commit), before) = (absent(&one), wire.journeys());
    let second = tokio::spawn(async move { desk.catalog.put(commit).await });
    waiting(&client, &name, 2).await;
    client.batch_execute("COMMIT").await.unwrap();
    let made = first.await.unwrap().unwrap();
    let refused = second.await.unwrap();
    assert!(matches!(refused, Err(CatalogError::PreconditionFailed)), "{refused:?}");
    assert!(wire.journeys() - before > 2, "it was made again with its turn first");
    assert_eq!(one.catalog.current(one.bucket.id, "k").await.unwrap().unwrap().seq, made.seq);
    assert_eq!(one.catalog.last_seq().await.unwrap(), made.seq, "the refused put took no number");
    one.assert_sound().await;
}

/// A put that read that its epoch is open commits nothing once it is closed, nor does one that
/// found a bucket which is gone since, or which keeps versions since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_concerns_every_key_is_looked_at_in_the_turn() {
    let (one, _wire, other, client, name) = two().await;
    let gone = one.with_bucket("gone").await;
    let keeping = one.with_bucket("keeping").await;
    let closing = Desk { epoch: one.catalog.open_epoch().await.unwrap(), ..one.clone() };
    keeping.put("k").await;
    let mut outcomes = Vec::new();
    for desk in [&closing, &gone, &keeping] {
        // What the put is about to read is changed by a group that waits for its turn before it.
        client.batch_execute(TURN).await.unwrap();
        let (catalog, bucket, epoch) = (other.catalog.clone(), desk.bucket.clone(), desk.epoch);
        let is_closing = epoch == closing.epoch;
        let change = tokio::spawn(async move {
            match bucket.name.as_str() {
                _ if is_closing => drop(catalog.close_epochs(&[epoch]).await.unwrap()),
                "gone" => assert!(catalog.delete_bucket(bucket.id).await.unwrap()),
                _ => catalog.set_versioning(bucket.id, Versioning::Enabled).await.unwrap(),
            }
        });
        waiting(&client, &name, 1).await;
        let (desk, commit) = (desk.clone(), desk.commit("k", vec![desk.whole(10)]));
        let put = tokio::spawn(async move { desk.catalog.put(commit).await });
        waiting(&client, &name, 2).await;
        client.batch_execute("COMMIT").await.unwrap();
        change.await.unwrap();
        outcomes.push(put.await.unwrap());
    }
    assert!(matches!(outcomes[0], Err(CatalogError::Fenced)), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(CatalogError::NoBucket)), "{outcomes:?}");
    assert!(matches!(&outcomes[2], Ok(committed) if committed.named), "{outcomes:?}");
    one.assert_sound().await;
}

/// Replicas that count under the same keys, each by what it read, count everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_of_several_replicas_is_lost() {
    const ROUNDS: u64 = 15;
    let (one, _wire, other, _client, _name) = two().await;
    let mut counting = tokio::task::JoinSet::new();
    for desk in [&one, &one, &other, &other] {
        for key in ["a", "b"] {
            let desk = desk.clone();
            counting.spawn(async move {
                for _ in 0..ROUNDS {
                    loop {
                        let found = desk.catalog.current(desk.bucket.id, key).await.unwrap();
                        let precondition =
                            found.as_ref().map_or(Precondition::Absent, |found| Precondition::Current(found.id));
                        let size = found.map_or(0, |found| found.size) + 1;
                        let commit = PutCommit { precondition, ..desk.commit(key, vec![desk.whole(size)]) };
                        match desk.catalog.put(commit).await {
                            Ok(_) => break,
                            Err(CatalogError::PreconditionFailed) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    }
    counting.join_all().await;
    for key in ["a", "b"] {
        assert_eq!(one.content(key).await.version.size, 4 * ROUNDS, "{key}");
    }
    one.assert_sound().await;
}

/// What three replicas do at once is what the journal says that they did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_several_replicas_give_what_they_give_in_the_order_of_the_journal() {
    let (one, _wire, two, _client, schema) = two().await;
    let options = PostgresOptions { readers_max: 4, ..PostgresOptions::default() };
    let third = Arc::new(open_with(&CLUSTER.url(&schema), options.clone()).await);
    let three = Desk { epoch: third.open_epoch().await.unwrap(), catalog: third, bucket: one.bucket.clone() };
    let versioned = one.with_bucket("versioned").await.bucket;
    one.catalog.set_versioning(versioned.id, Versioning::Enabled).await.unwrap();
    let mut random = 0x2545_f491_u32;
    let mut next = move |below: u32| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random % below
    };
    for round in 0..20 {
        let mut changes = tokio::task::JoinSet::new();
        for number in 0..36 {
            let mut desk = [&one, &two, &three][next(3) as usize].clone();
            if next(2) == 0 {
                desk.bucket = versioned.clone();
            }
            let key = format!("k{}", next(if round % 2 == 0 { 4 } else { 60 }));
            let (kind, is_bound) = (next(8), next(4) == 0);
            changes.spawn(async move {
                let put = match kind {
                    0..=4 => desk.commit(&key, vec![desk.whole(10)]),
                    5 => {
                        let base = desk.put(&format!("base{number}")).await;
                        desk.commit(&key, vec![desk.delta(10, &[base])])
                    }
                    _ => return drop(desk.delete(&key).await),
                };
                let precondition = if is_bound { Precondition::Absent } else { Precondition::None };
                let put = PutCommit { precondition, now_ms: NOW + UnixMs::from(number), ..put };
                match desk.catalog.put(put).await {
                    Ok(_) | Err(CatalogError::PreconditionFailed | CatalogError::BaseGone) => {}
                    Err(error) => panic!("{error}"),
                }
            });
        }
        changes.join_all().await;
    }
    one.assert_sound().await;
    let journal = one.catalog.journal(0, 10_000).await.unwrap();
    let again = open_with(&CLUSTER.url(&CLUSTER.schema().await), options).await;
    let again = Desk { catalog: Arc::new(again), bucket: one.bucket.clone(), epoch: one.epoch };
    again.catalog.begin_import().await.unwrap();
    again.catalog.replay(journal).await.unwrap();
    assert_eq!(again.rows().await, one.rows().await);
}

/// A process that begins forgets those that were silent for days, but does not wait for one that
/// has just come back and waits for its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_after_days_is_not_waited_for() {
    let (desk, _wire, _other, client, name) = two().await;
    let wire = Wire::to(CLUSTER.port()).await;
    // If two waited for each other, it would soon be the one that is given up.
    let settings = format!("{name}%20-cdeadlock_timeout%3D10ms");
    let url = format!("{}&application_name={name}", CLUSTER.url_by(wire.port, &settings));
    let mut journeys = Vec::new();
    for is_met in [false, true] {
        let options = PostgresOptions { readers_max: 4, ..PostgresOptions::default() };
        let catalog = Arc::new(open_with(&url, options).await);
        desk.put("k").await;
        client.batch_execute("UPDATE commit_groups SET at_ms = 0").await.unwrap();
        client.batch_execute(TURN).await.unwrap();
        let before = wire.journeys();
        let beginning = tokio::spawn(async move { catalog.open_epoch().await.unwrap() });
        waiting(&client, &name, 1).await;
        let desk = desk.clone();
        let met = is_met.then(|| tokio::spawn(async move { desk.put("k").await }));
        if is_met {
            waiting(&client, &name, 2).await;
        }
        client.batch_execute("COMMIT").await.unwrap();
        beginning.await.unwrap();
        if let Some(met) = met {
            met.await.unwrap();
        }
        journeys.push(wire.journeys() - before);
    }
    assert_eq!(journeys[0], journeys[1], "it was not given up for the sake of the other");
}
