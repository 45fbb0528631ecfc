//! Changes that wait share a commit, and those of different keys its journeys to the database.

use crate::{
    postgres::{CLUSTER, open_with, replicas},
    wire::{Fault, Wire},
};
use catalog::{
    Catalog, CatalogError, PostgresCatalog, PostgresOptions, Precondition, PutCommit, QuotaLimits, QuotaOf, Versioning,
    conformance::desk::Desk,
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
    assert_eq!(one, 2, "begin, number and what is there; what is written and commit");
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
    assert!(journeys <= 9, "{journeys} journeys for a put and a group of 39 of which four are refused");
    let journal = desk.catalog.journal(before, 100).await.unwrap();
    assert!(journal.iter().map(|entry| entry.seq).eq(before + 1..=before + 36), "no gap is left");
    desk.assert_sound().await;
}

/// How many journeys the same work takes the second time, when the database knows the statements.
async fn journeys_again<F: Future<Output = ()>>(wire: &Wire, mut work: impl FnMut(u32) -> F) -> u32 {
    work(0).await;
    journeys(wire, work(1)).await
}

#[tokio::test]
async fn whatever_a_change_reads_it_takes_two_journeys() {
    let (desk, wire) = counted().await;
    let base = desk.put("base").await;
    let delta = journeys_again(&wire, |number| {
        let commit = desk.commit(&format!("delta{number}"), vec![desk.delta(10, &[base])]);
        async { _ = desk.catalog.put(commit).await.unwrap() }
    });
    assert_eq!(delta.await, 2, "a delta");
    let overwrite = journeys_again(&wire, |_| async { _ = desk.put("base").await });
    assert_eq!(overwrite.await, 2, "an overwrite");
    let deletion = journeys_again(&wire, |number| {
        let (desk, key) = (&desk, format!("delta{number}"));
        async move { drop(desk.delete(&key).await.unwrap()) }
    });
    assert_eq!(deletion.await, 2, "a deletion");
    let upload = desk.start_upload("upload", 1).await;
    let part = journeys_again(&wire, |number| {
        let (desk, upload) = (&desk, upload.id);
        async move { drop(desk.put_part(upload, 1 + number, 10).await) }
    });
    assert_eq!(part.await, 2, "a part");
    let versioned = desk.with_bucket("versioned").await;
    versioned.catalog.set_versioning(versioned.bucket.id, Versioning::Enabled).await.unwrap();
    versioned.put("k").await;
    let version = journeys_again(&wire, |_| async { _ = versioned.put("k").await });
    assert_eq!(version.await, 2, "a version");
    desk.assert_sound().await;
}

/// What a quota decides by is asked among the writes, so the commit waits for the answer.
#[tokio::test]
async fn a_put_under_a_quota_takes_three_journeys() {
    let (desk, wire) = counted().await;
    let limits = serde_json::json!(QuotaLimits { bytes: None, objects: Some(3) });
    desk.catalog.put_setting(&QuotaOf::Bucket(desk.bucket.id).setting(), limits).await.unwrap();
    let put = journeys_again(&wire, |number| {
        let (desk, key) = (&desk, format!("k{number}"));
        async move { _ = desk.put(&key).await }
    });
    assert_eq!(put.await, 3);
    desk.put("k2").await;
    let before = desk.catalog.last_seq().await.unwrap();
    let refused = desk.catalog.put(desk.commit("k3", vec![desk.whole(10)])).await;
    assert!(matches!(refused, Err(CatalogError::QuotaExceeded("bucket"))), "{refused:?}");
    assert_eq!(desk.catalog.last_seq().await.unwrap(), before, "nothing of it is left");
    desk.assert_sound().await;
}

/// Deltas, duplicates and parts of one group, and what has nothing to do with it, take no more.
#[tokio::test]
async fn deltas_and_parts_share_the_journeys_of_puts() {
    let (desk, wire) = counted().await;
    let base = desk.put("base").await;
    let upload = desk.start_upload("upload", 1).await.id;
    let at_once = async |name: &str| {
        let mut changes = tokio::task::JoinSet::new();
        for number in 0..40 {
            let (desk, key) = (desk.clone(), format!("{name}{number}"));
            changes.spawn(async move {
                match number % 4 {
                    0 => drop(desk.put_part(upload, 1 + number, 10).await),
                    1 => _ = desk.put(&key).await,
                    _ => drop(desk.catalog.put(desk.commit(&key, vec![desk.delta(10, &[base])])).await.unwrap()),
                }
            });
        }
        assert_eq!(changes.join_all().await.len(), 40);
    };
    at_once("warm").await;
    let journeys = journeys(&wire, at_once("k")).await;
    assert!(journeys <= 4, "{journeys} journeys for one and a group of 39");
    desk.assert_sound().await;
}

/// A delta beside the end of its base is made alone; those beside both are not.
#[tokio::test]
async fn a_delta_beside_the_end_of_its_base_takes_the_others_nothing() {
    let (desk, wire) = counted().await;
    put_at_once(&desk, "warm", 4).await;
    for round in 0..8 {
        let base = desk.put("base").await;
        let mut changes = tokio::task::JoinSet::new();
        let before = wire.journeys();
        for number in 0..40 {
            let (desk, key) = (desk.clone(), format!("k{round}-{number}"));
            changes.spawn(async move {
                match number {
                    20 => drop(desk.delete("base").await.unwrap()),
                    10 | 30 => match desk.catalog.put(desk.commit(&key, vec![desk.delta(10, &[base])])).await {
                        Ok(_) | Err(CatalogError::BaseGone) => {}
                        Err(error) => panic!("{error}"),
                    },
                    _ => _ = desk.put(&key).await,
                }
            });
        }
        changes.join_all().await;
        let journeys = wire.journeys() - before;
        assert!(round == 0 || journeys <= 12, "{journeys} journeys");
        desk.assert_sound().await;
    }
}

/// What the database refuses among writes that travel with their commit takes nothing from others.
#[tokio::test]
async fn a_write_that_fails_leaves_nothing_and_the_others_are_made() {
    let (desk, _wire) = counted().await;
    let taken = desk.whole(10);
    desk.catalog.put(desk.commit("taken", vec![taken.clone()])).await.unwrap();
    let before = desk.catalog.last_seq().await.unwrap();
    let mut puts = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (desk, key) = (desk.clone(), format!("k{number}"));
        let blob = if number == 7 { taken.clone() } else { desk.whole(10) };
        puts.spawn(async move {
            let outcome = desk.catalog.put(desk.commit(&key, vec![blob])).await;
            assert_eq!(outcome.is_err(), number == 7, "{outcome:?}");
        });
    }
    puts.join_all().await;
    assert_eq!(desk.catalog.last_seq().await.unwrap(), before + 19, "no gap is left");
    assert!(desk.catalog.current(desk.bucket.id, "k7").await.unwrap().is_none());
    desk.assert_sound().await;
}

/// A group whose writes travel with its commit is there whole, and once, or is made again whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_was_cut_off_is_made_once_and_whole() {
    let schema = CLUSTER.schema().await;
    let wire = Wire::to(CLUSTER.port()).await;
    let (desk, other) = replicas(&CLUSTER.url_by(wire.port, &schema), &CLUSTER.url(&schema)).await;
    // With deltas among them they have their turn first, and else last.
    for (with_deltas, fault, name) in [true, false].into_iter().flat_map(|with_deltas| {
        let faults = [(Fault::CutAfter, "after"), (Fault::CutBefore, "before"), (Fault::CutAmid, "amid")];
        faults.map(|(fault, name)| (with_deltas, fault, name))
    }) {
        let (struck, before) = (wire.struck(), other.catalog.last_seq().await.unwrap());
        let base = desk.put("base").await;
        wire.arm(fault);
        let mut puts = tokio::task::JoinSet::new();
        for number in 0..24 {
            let desk = desk.clone();
            let blob = if with_deltas && number % 3 == 0 { desk.delta(10, &[base]) } else { desk.whole(10) };
            let commit = desk.commit(&format!("{name}{number}"), vec![blob]);
            puts.spawn(async move { desk.catalog.put(commit).await.unwrap().seq });
        }
        let mut seqs = puts.join_all().await;
        seqs.sort_unstable();
        assert_eq!(wire.struck(), struck + 1, "{fault:?} did not happen");
        assert!(seqs.into_iter().eq(before + 2..=before + 25), "{fault:?}: each was made once");
        assert_eq!(other.catalog.last_seq().await.unwrap(), before + 25);
        for number in 0..24 {
            other.content(&format!("{name}{number}")).await;
        }
    }
    other.assert_sound().await;
}
