//! Documents of the journal follow the very documents that lie before them.

use super::{collecting::*, *};
use crate::recovery::Suspects;
use object_format::BlobId;

const LEN: usize = 20_000;
const DOES_NOT_FOLLOW: &str = "does not follow the document before it";

/// A store with a document for each of these objects.
async fn with_documents(bucket: &str, keys: &[&str]) -> Deployment {
    let deployment = Deployment::with_jobs(|_, _| Vec::new(), |_| {}).await;
    let bucket = deployment.bucket(bucket).await;
    for (seed, key) in (1..).zip(keys) {
        deployment.put(&bucket, key, &content(LEN, seed)).await;
        deployment.engine.ship_journal().await.expect("shipped");
    }
    deployment
}

fn safety(deployment: &Deployment) -> &crate::recovery::Safety {
    &deployment.engine.foundation.safety
}

async fn without_catalog(deployment: Deployment) -> TempDir {
    let dir = deployment.stop().await;
    for suffix in ["", "-wal", "-shm"] {
        let path = dir.path().join(format!("catalog.sqlite{suffix}"));
        assert!(!path.exists() || std::fs::remove_file(path).is_ok());
    }
    dir
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_in_the_place_of_another_is_refused_though_it_is_the_stores_own() {
    for bucket in ["off", "sealed"] {
        let deployment = with_documents(bucket, &["first", "second", "third"]).await;
        let documents = safety(&deployment).documents().await;
        assert!(documents.len() >= 3 && documents.iter().all(|(_, is_linked)| *is_linked), "{documents:?}");
        // The last but one: the one behind it says what lay there.
        let first = documents[documents.len() - 2].0;
        safety(&deployment).exchange_document(first, |entries, _| entries[0].at_ms += 1).await;
        let mut suspects = Suspects::default();
        let orphan = crate::blobs::open::blob_name(BlobId::new(1, [3; 12])).expect("a name");
        assert!(suspects.add(&orphan));
        let why = safety(&deployment).named_in_store(&suspects).await.expect_err("not proven").to_string();
        assert!(why.contains(DOES_NOT_FOLLOW), "{why}");

        let dir = without_catalog(deployment).await;
        let why = recovered(dir.path(), &recovery(false, false)).await.expect_err("it is refused").to_string();
        assert!(why.contains(DOES_NOT_FOLLOW) && why.contains("--stop-at-damage"), "{why}");
        let mut options = recovery(false, false);
        options.stop_at_damage = true;
        let report = recovered(dir.path(), &options).await.expect("recovered");
        assert!(report.damage.is_some_and(|why| why.contains(DOES_NOT_FOLLOW)), "told");
        assert_eq!(report.objects, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_names_what_the_journal_behind_it_follows() {
    let deployment = with_documents("sealed", &["first"]).await;
    safety(&deployment).backup().await.expect("backed up");
    let behind = safety(&deployment).documents().await.len();
    let bucket = deployment.bucket("sealed").await;
    deployment.put(&bucket, "second", &content(LEN, 7)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let documents = safety(&deployment).documents().await;
    assert!(documents.len() > behind);
    let first = documents[behind].0;
    safety(&deployment).exchange_document(first, |_, before| *before = Some(catalog::JournalLink([9; 32]))).await;
    let dir = without_catalog(deployment).await;
    let why = recovered(dir.path(), &recovery(false, false)).await.expect_err("it is refused").to_string();
    assert!(why.contains(DOES_NOT_FOLLOW), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_program_ships_has_no_link_and_neither_has_the_document_behind_it() {
    let deployment = with_documents("sealed", &["first", "second"]).await;
    let count = safety(&deployment).documents().await.len();
    // An earlier program ships on and leaves the head alone.
    database(deployment.dir.path()).execute("UPDATE journal_head SET seq = seq - 1", []).expect("set");
    let bucket = deployment.bucket("sealed").await;
    for (seed, key) in [(5, "third"), (6, "fourth")] {
        deployment.put(&bucket, key, &content(LEN, seed)).await;
        deployment.engine.ship_journal().await.expect("shipped");
    }
    let documents = safety(&deployment).documents().await;
    let links: Vec<bool> = documents[count..].iter().map(|(_, is_linked)| *is_linked).collect();
    assert_eq!(links, [false, true]);
    let dir = without_catalog(deployment).await;
    let report = recovered(dir.path(), &recovery(false, false)).await.expect("recovered");
    assert_eq!(report.objects, 4);
    // A lineage that follows another begins with its own document.
    let deployment = Deployment::reopened(dir, |_, _| Vec::new(), |_| {}).await;
    let bucket = deployment.bucket("sealed").await;
    deployment.put(&bucket, "fifth", &content(LEN, 8)).await;
    deployment.engine.ship_journal().await.expect("shipped");
    let documents = safety(&deployment).documents().await;
    assert!(!documents.is_empty() && documents.iter().all(|(_, is_linked)| *is_linked), "{documents:?}");
}
