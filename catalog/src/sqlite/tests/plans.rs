//! How SQLite goes about statements that would be slow or large in another way.

use super::open;

/// The steps of a statement, as SQLite plans them.
async fn plan_of(sql: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    drop(open(&directory).await);
    let raw = rusqlite::Connection::open(directory.path().join("catalog.db")).unwrap();
    let mut plan = raw.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    // Parameters that nothing is bound to are null.
    let mut steps = plan.raw_query();
    let mut told = Vec::new();
    while let Some(step) = steps.next().unwrap() {
        told.push(step.get(3).unwrap());
    }
    told
}

#[tokio::test]
async fn looking_for_versions_of_many_extents_reads_no_others() {
    let steps = plan_of(crate::relational::conversion::SCATTERED).await;
    assert!(steps[0].contains("INDEX extents_scattered (version>?)"), "{steps:#?}");
    assert!(steps.iter().all(|step| !step.contains("SCAN") && !step.contains("TEMP B-TREE")), "{steps:#?}");
}

#[tokio::test]
async fn counting_what_is_stored_sorts_no_blobs() {
    use crate::relational::stats::{BASE_ONLY_SUMS, BLOB_SUMS};
    for sql in [BLOB_SUMS, BASE_ONLY_SUMS] {
        let steps = plan_of(sql).await;
        assert_eq!(steps[0], "SCAN b USING INDEX blobs_by_bucket", "{steps:#?}");
        assert!(steps.iter().all(|step| !step.contains("TEMP B-TREE")), "{steps:#?}");
    }
}
