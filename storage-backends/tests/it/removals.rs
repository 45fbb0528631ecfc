//! Removals that are asked for together are sent together.

use crate::scripted::{Answer, Scripted, answer, error};
use futures::future::join_all;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use storage_backends::{
    Backend, BlobName, CloudBackend, ErrorKind, Repeats, RetryPolicy, S3Config, S3Credentials, Unobserved,
};

fn s3(store: &Scripted) -> CloudBackend {
    let credentials = S3Credentials::Static {
        access_key_id: "key".to_owned(),
        secret_access_key: "secret".into(),
        session_token: None,
    };
    let config = S3Config { endpoint: Some(store.endpoint.clone()), ..S3Config::new("bucket", credentials) };
    config.open().expect("valid")
}

async fn remove(backend: &CloudBackend, count: usize) -> Vec<storage_backends::Result<()>> {
    let names: Vec<BlobName> =
        (0..count).map(|number| BlobName::new(format!("blobs/{number}")).expect("a name")).collect();
    join_all(names.iter().map(|name| backend.delete(name))).await
}

fn list_of_removals(head: &str) -> bool {
    head.starts_with("post /bucket?delete ")
}

/// What a list did: everything but these names. S3 names what is gone as well; one will do.
fn removed_all_but(names: &[&str]) -> Answer {
    let errors: String = names
        .iter()
        .map(|name| format!("<Error><Key>{name}</Key><Code>AccessDenied</Code><Message>scripted</Message></Error>"))
        .collect();
    answer("200 OK", &[], format!("<DeleteResult><Deleted><Key>blobs/0</Key></Deleted>{errors}</DeleteResult>"))
}

/// How many lists, and how many single names, a store was asked for.
fn asked(store: &Scripted) -> (usize, usize) {
    let heads = store.heads();
    let lists = heads.iter().filter(|head| list_of_removals(head)).count();
    let alone = heads.iter().filter(|head| head.starts_with("delete ")).count();
    assert_eq!(lists + alone, heads.len(), "{heads:?}");
    (lists, alone)
}

#[tokio::test]
async fn a_thousand_removals_are_one_request() {
    let store = Scripted::start(|_| removed_all_but(&[])).await;
    let outcomes = remove(&s3(&store), 1000).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(asked(&store), (1, 0));
}

#[tokio::test]
async fn three_thousand_removals_are_three_requests_and_one_is_its_own() {
    let store = Scripted::start(|head| match list_of_removals(head) {
        true => removed_all_but(&[]),
        false => answer("204 No Content", &[], ""),
    })
    .await;
    let backend = s3(&store);
    assert!(remove(&backend, 1).await.iter().all(Result::is_ok));
    assert_eq!(asked(&store), (0, 1));
    assert!(remove(&backend, 3000).await.iter().all(Result::is_ok));
    assert_eq!(asked(&store), (3, 1));
}

#[tokio::test]
async fn what_a_list_did_not_remove_is_asked_for_alone_and_believed_then() {
    let store = Scripted::start(|head| match head {
        head if list_of_removals(head) => removed_all_but(&["blobs/3", "blobs/5"]),
        head if head.contains("blobs/3") => answer("204 No Content", &[], ""),
        _ => error("403 Forbidden", "AccessDenied"),
    })
    .await;
    let outcomes = remove(&s3(&store), 10).await;
    for (number, outcome) in outcomes.into_iter().enumerate() {
        match number {
            5 => assert_eq!(outcome.expect_err("it stays").kind(), ErrorKind::Denied),
            _ => outcome.expect("it is gone"),
        }
    }
    assert_eq!(asked(&store), (1, 2));
}

#[tokio::test]
async fn a_store_that_takes_no_lists_is_asked_for_one_once() {
    let store = Scripted::start(|head| match list_of_removals(head) {
        true => error("501 Not Implemented", "NotImplemented"),
        false => answer("204 No Content", &[], ""),
    })
    .await;
    let backend = s3(&store);
    for _ in 0..2 {
        assert!(remove(&backend, 20).await.iter().all(Result::is_ok));
    }
    assert_eq!(asked(&store), (1, 40));
}

#[tokio::test]
async fn a_list_that_is_refused_for_the_moment_is_sent_again_and_an_error_is_everybodys() {
    let lists = Arc::new(AtomicU64::new(0));
    let seen = lists.clone();
    let store = Scripted::start(move |_| match seen.fetch_add(1, Ordering::Relaxed) {
        0 => error("503 Service Unavailable", "SlowDown"),
        _ => removed_all_but(&[]),
    })
    .await;
    let backend = s3(&store);
    backend.repeat_with(Repeats::new(RetryPolicy::default(), Arc::new(Unobserved)));
    assert!(remove(&backend, 50).await.iter().all(Result::is_ok));
    assert_eq!(lists.load(Ordering::Relaxed), 2);

    let store = Scripted::start(|_| error("503 Service Unavailable", "SlowDown")).await;
    let outcomes = remove(&s3(&store), 50).await;
    assert!(outcomes.into_iter().all(|outcome| outcome.expect_err("refused").kind() == ErrorKind::Throttled));
    assert_eq!(asked(&store), (1, 0), "nobody storms a store that asks for fewer requests");
}
