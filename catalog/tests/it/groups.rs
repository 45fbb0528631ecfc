//! Changes that wait share a commit, and those of different keys its journeys to the database.

use crate::{
    postgres::{CLUSTER, open_with},
    wire::Wire,
};
use catalog::{
    Catalog, CatalogError, PostgresCatalog, PostgresOptions, Precondition, PutCommit, conformance::desk::Desk,
};
use std::{future::Future, sync::Arc};

/// A replica whose way to the database counts journeys, and the wire.
async fn counted() -> (Desk<PostgresCatalog>, Wire) {
    let wire = Wire::to(CLUSTER.port()).await;
    let url = CLUSTER.url_by(wire.port, &CLUSTER.schema().await);
    let options = PostgresOptions { readers_max: 4, ..PostgresOptions::default() };
    (Desk::new(Arc::new(open_with(&url, options).await)).await, wire)
}

/// How many journeys `work` takes.
async fn journeys(wire: &Wire, work: impl Future<Output = ()>) -> u32 {
    let before = wire.journeys();
    work.await;
    wire.journeys() - before
}

/// Puts `count` objects at once: the first goes alone, and the others wait for it.
async fn put_at_once(desk: &Desk<PostgresCatalog>, name: &str, count: usize) {
    let mut puts = tokio::task::JoinSet::new();
    for number in 0..count {
        let desk = desk.clone();
        let commit = desk.commit(&format!("{name}{number}"), vec![desk.whole(10)]);
        puts.spawn(async move { desk.catalog.put(commit).await.unwrap() });
    }
    assert_eq!(puts.join_all().await.len(), count);
}

/// Another put in the group costs no other journey.
#[tokio::test]
async fn puts_of_different_keys_share_the_journeys_of_one() {
    let (desk, wire) = counted().await;
    put_at_once(&desk, "warm", 4).await;
    let one = journeys(&wire, put_at_once(&desk, "one", 1)).await;
    assert_eq!(one, 4, "begin and number, what is there, what is written, commit");
    let many = journeys(&wire, put_at_once(&desk, "many", 100)).await;
    assert!(many <= 2 * one, "{many} journeys for a put and a group of 99");
    desk.assert_sound().await;
}

/// Refusals in the group cost the others a second try and nothing else.
#[tokio::test]
async fn a_refused_put_takes_nothing_from_those_beside_it() {
    let (desk, wire) = counted().await;
    put_at_once(&desk, "taken", 4).await;
    put_at_once(&desk, "warm", 4).await;
    let before = desk.catalog.last_seq().await.unwrap();
    let (mut puts, journeys) = (tokio::task::JoinSet::new(), wire.journeys());
    for number in 0..40 {
        let desk = desk.clone();
        let (key, is_refused) = match number % 10 {
            3 => (format!("taken{}", number / 10), true),
            _ => (format!("k{number}"), false),
        };
        let commit = desk.commit(&key, vec![desk.whole(10)]);
        puts.spawn(async move {
            let outcome = desk.catalog.put(PutCommit { precondition: Precondition::Absent, ..commit }).await;
            match outcome {
                Ok(_) => assert!(!is_refused),
                Err(error) => assert!(is_refused && matches!(error, CatalogError::PreconditionFailed), "{error}"),
            }
        });
    }
    assert_eq!(puts.join_all().await.len(), 40);
    let journeys = wire.journeys() - journeys;
    assert!(journeys <= 12, "{journeys} journeys for a put and a group of 39 of which four are refused");
    let journal = desk.catalog.journal(before, 100).await.unwrap();
    assert!(journal.iter().map(|entry| entry.seq).eq(before + 1..=before + 36), "no gap is left");
    desk.assert_sound().await;
}
