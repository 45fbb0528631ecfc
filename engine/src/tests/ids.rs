//! Ids of what is stored.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn versions_and_small_blobs_that_come_later_have_ids_that_sort_later() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("plain").await;
    let (mut versions, mut blobs) = (Vec::new(), Vec::new());
    for number in 0..6 {
        let len = if number % 2 == 0 { 100 } else { 300_000 };
        let key = format!("object-{number}");
        let version = deployment.put(&bucket, &key, &content(len, number)).await.version_id;
        let stored = deployment.engine.catalog().version(bucket.row.id, &key, version).await.expect("catalog");
        versions.push(version);
        blobs.extend(stored.expect("stored").blobs.iter().filter(|row| row.inline.is_some()).map(|row| row.id));
        // Versions of one millisecond have no order.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert!(versions.is_sorted_by(|before, after| before < after), "{versions:?}");
    assert!(blobs.len() == 3 && blobs.is_sorted_by(|before, after| before < after), "{blobs:?}");
}
