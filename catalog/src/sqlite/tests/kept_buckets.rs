//! Rows of buckets that are kept are those of the database.

use super::*;
use crate::types::Versioning;
use serde_json::json;
use std::sync::atomic::{AtomicU64, Ordering};

async fn number_of(catalog: &SqliteCatalog) -> u64 {
    catalog.bucket("b").await.unwrap().unwrap().settings["number"].as_u64().unwrap_or(0)
}

#[tokio::test]
async fn a_bucket_is_asked_of_the_database_once_until_buckets_change() {
    let directory = tempfile::tempdir().unwrap();
    let desk = Desk::new(Arc::new(open(&directory).await)).await;
    let (catalog, name) = (&desk.catalog, desk.bucket.name.as_str());
    let statements = async || {
        let before = catalog.read_work().statements;
        for _ in 0..10 {
            assert!(catalog.bucket(name).await.unwrap().is_some());
        }
        catalog.read_work().statements - before
    };
    assert!(statements().await <= 1);
    desk.put("key").await;
    desk.delete("key").await;
    assert_eq!(statements().await, 0, "objects come and go");
    catalog.set_versioning(desk.bucket.id, Versioning::Enabled).await.unwrap();
    assert_eq!(statements().await, 1);
    for _ in 0..2 {
        assert_eq!(catalog.bucket("nowhere").await.unwrap(), None);
    }
}

#[tokio::test]
async fn every_change_of_a_bucket_is_seen_by_whoever_asks_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    let id = bucket(&catalog).await;
    let row = async || catalog.bucket("b").await.unwrap();
    assert_eq!(row().await.unwrap().settings, json!({}));
    catalog.set_bucket_settings(id, json!({"number": 1})).await.unwrap();
    assert_eq!(number_of(&catalog).await, 1);
    catalog.set_versioning(id, Versioning::Enabled).await.unwrap();
    assert_eq!(row().await.unwrap().versioning, Versioning::Enabled);
    catalog.enable_object_lock(id).await.unwrap();
    assert!(row().await.unwrap().object_lock);
    assert!(catalog.delete_bucket(id).await.unwrap());
    assert_eq!(row().await, None);
    let again = bucket(&catalog).await;
    assert_ne!(again, id);
    assert_eq!(row().await.map(|row| row.id), Some(again));
}

#[tokio::test]
async fn a_change_whose_commit_failed_is_seen_as_the_database_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let catalog = open(&directory).await;
    let id = bucket(&catalog).await;
    for (number, fault) in [(1, CommitFault::Lost), (2, CommitFault::Kept)] {
        let before = number_of(&catalog).await;
        *catalog.writer.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        let changed = catalog.set_bucket_settings(id, json!({"number": number})).await;
        let expected = if changed.is_ok() { number } else { before };
        assert_eq!(number_of(&catalog).await, expected, "{fault:?}");
    }
    assert_eq!(number_of(&catalog).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_beside_a_writer_never_see_an_older_row_than_what_was_acknowledged_before_they_asked() {
    const CHANGES: u64 = 200;
    let directory = tempfile::tempdir().unwrap();
    let options = SqliteOptions { sync: false, ..SqliteOptions::default() };
    let catalog = Arc::new(open_with(&directory, options).await);
    let id = bucket(&catalog).await;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let (catalog, acknowledged) = (catalog.clone(), acknowledged.clone());
            tokio::spawn(async move {
                let (mut seen, mut asked) = (0, 0u64);
                while seen < CHANGES {
                    let least = acknowledged.load(Ordering::SeqCst).max(seen);
                    let found = number_of(&catalog).await;
                    assert!(found >= least, "{found} after {least}");
                    (seen, asked) = (found, asked + 1);
                    tokio::task::yield_now().await;
                }
                asked
            })
        })
        .collect();
    for number in 1..=CHANGES {
        catalog.set_bucket_settings(id, json!({"number": number})).await.unwrap();
        acknowledged.store(number, Ordering::SeqCst);
    }
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
}
