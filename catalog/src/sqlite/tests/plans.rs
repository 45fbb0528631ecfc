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

#[tokio::test]
async fn counting_what_is_shared_or_past_reads_no_row_of_what_is_neither() {
    use crate::relational::stats::{PAST_SUMS, SHARED_SUMS};
    let shared = plan_of(SHARED_SUMS).await;
    assert!(shared.contains(&"SCAN e USING COVERING INDEX extents_by_blob".to_owned()), "{shared:#?}");
    let past = plan_of(PAST_SUMS).await;
    assert!(past.contains(&"SCAN v USING COVERING INDEX versions_noncurrent".to_owned()), "{past:#?}");
    for steps in [shared, past] {
        let scans = steps.iter().filter(|step| step.starts_with("SCAN"));
        let of_all = |step: &&String| {
            step.starts_with("SCAN b ") || step.starts_with("SCAN c USING") || step.as_str() == "SCAN e"
        };
        assert_eq!(scans.filter(of_all).count(), 0, "{steps:#?}");
    }
}

#[tokio::test]
async fn bases_and_what_wants_a_copy_are_looked_for_along_indexes_that_hold_no_other_blob() {
    use crate::relational::{
        conversion::KEPT_BASES,
        copies::{BY_VERSIONS, THROUGH_DELTAS},
    };
    let cases = [
        (KEPT_BASES, "SEARCH d USING COVERING INDEX edges_by_base (base>?)"),
        (BY_VERSIONS, "SEARCH e USING COVERING INDEX extents_by_blob (blob>?)"),
        (THROUGH_DELTAS, "SEARCH d USING INDEX edges_by_base (base>?)"),
    ];
    for (sql, first) in cases {
        let steps = plan_of(sql).await;
        assert_eq!(steps[0], first, "{steps:#?}");
        assert!(steps.iter().all(|step| !step.contains("SCAN") && !step.contains("FOR ORDER BY")), "{steps:#?}");
    }
}
