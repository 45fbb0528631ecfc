//! Small objects in packs.

use super::*;
use crate::resources::clock::now_ms;

/// A JSON document as an application writes thousands of: the same members, other values.
pub(super) fn document(number: usize) -> Vec<u8> {
    let hash = hex::encode(Sha256::digest(number.to_le_bytes()));
    let items: Vec<serde_json::Value> = (0..6 + number % 9)
        .map(|item| serde_json::json!({"sku": format!("SKU-{:05}", item * 37 % 100), "quantity": item % 4 + 1, "status": "packed", "warehouse": "north"}))
        .collect();
    let text = serde_json::json!({
        "schema": "https://schemas.example.com/order/v3", "id": number, "reference": hash, "status": "captured",
        "address": {"street": "Deich 12", "city": "Delfzijl", "country": "NL"}, "items": items,
    });
    format!("{text:#}").into_bytes()
}

impl Deployment {
    pub(super) async fn put_documents(&self, bucket: &BucketHandle, numbers: Range<usize>) {
        for number in numbers {
            self.put(bucket, &format!("orders/{number}.json"), &document(number)).await;
        }
    }

    pub(super) async fn pack(&self, cursor: &mut crate::background::packs::PackCursor, gather: bool) -> Packing {
        let mut report = Packing::default();
        self.engine
            .workers
            .packer
            .pack_small_objects(cursor, now_ms(), gather, &|_| true, &mut report)
            .await
            .expect("packed");
        report
    }

    async fn stored_bytes(&self, bucket: &BucketHandle) -> u64 {
        let stats = self.engine.catalog().stats().await.expect("stats");
        let stored = stats.into_iter().find(|stats| stats.name == bucket.row.name).expect("listed").stored;
        stored.exclusive + stored.shared + stored.inline + stored.base_only
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_objects_are_packed_and_each_is_read_and_deleted_alone() {
    let deployment = Deployment::start(512 << 20).await;
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        deployment.put_documents(&bucket, 0..900).await;
        let large = content(MIB, 7);
        deployment.put(&bucket, "orders/large", &large).await;
        let noise: Vec<u8> = (0..40u32).flat_map(|n| Sha256::digest(n.to_le_bytes()).to_vec()).collect();
        deployment.put(&bucket, "orders/noise", &noise).await;
        let before = deployment.engine.read.head(&bucket, "orders/7.json").await.expect("read").expect("exists");
        let alone = deployment.stored_bytes(&bucket).await;

        let mut cursor = crate::background::packs::PackCursor::default();
        let report = deployment.pack(&mut cursor, true).await;
        assert_eq!((report.objects, report.left_alone), (900, 1), "{report:?}");
        assert!(report.packs >= 2, "{report:?}");
        deployment.engine.collect(true).await.expect("collected");
        let packed = deployment.stored_bytes(&bucket).await - MIB as u64 * 3 / 4;
        assert!(packed < (alone - MIB as u64 * 3 / 4) / 4, "{packed} of {alone} bytes: {report:?}");

        deployment.engine.drop_caches();
        for number in (0..900).step_by(13) {
            let expected = document(number);
            let got = deployment.get(&bucket, &format!("orders/{number}.json"), 0..expected.len()).await;
            assert!(got == expected, "{number}");
            assert_eq!(deployment.get(&bucket, &format!("orders/{number}.json"), 5..17).await, expected[5..17]);
        }
        assert!(deployment.get(&bucket, "orders/large", 0..MIB).await == large);
        assert!(deployment.get(&bucket, "orders/noise", 0..noise.len()).await == noise);
        let after = deployment.engine.read.head(&bucket, "orders/7.json").await.expect("read").expect("exists");
        assert_eq!((after.version.id, after.version.seq), (before.version.id, before.version.seq));
        assert_eq!((&after.facts.etag, after.version.modified_ms), (&before.facts.etag, before.version.modified_ms));
        assert_eq!(after.facts.storage.reason, "packed");
        assert!(after.facts.storage.stored_bytes < before.facts.storage.stored_bytes / 3, "{:?}", after.facts.storage);
        assert_eq!(deployment.pack(&mut cursor, true).await, Packing::default(), "nothing is left to do");

        deployment.delete(&bucket, "orders/7.json").await;
        assert!(deployment.engine.read.head(&bucket, "orders/7.json").await.expect("read").is_none());
        assert!(deployment.get(&bucket, "orders/8.json", 0..document(8).len()).await == document(8));
    }
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_small_objects_wait_for_company() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let mut cursor = crate::background::packs::PackCursor::default();
    deployment.put_documents(&bucket, 0..20).await;
    assert_eq!(deployment.pack(&mut cursor, false).await, Packing::default());
    // Nobody has to come again for those that wait: they are remembered.
    deployment.put_documents(&bucket, 20..140).await;
    deployment.delete(&bucket, "orders/3.json").await;
    assert_eq!(deployment.pack(&mut cursor, false).await.objects, 139);
    assert!(deployment.get(&bucket, "orders/2.json", 0..document(2).len()).await == document(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_pack_moves_and_the_pack_dies() {
    let deployment = Deployment::start(512 << 20).await;
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        let mut cursor = crate::background::packs::PackCursor::default();
        deployment.put_documents(&bucket, 0..150).await;
        assert_eq!(deployment.pack(&mut cursor, true).await.packs, 1);
        let pack = deployment
            .engine
            .catalog()
            .packs(catalog::BlobKey([0; 16]), 10)
            .await
            .expect("asked")
            .pop()
            .expect("one")
            .blob;
        let described =
            deployment.engine.reports.inspect(&BlobId(pack.0).to_string()).await.expect("inspected").expect("known");
        let members = described["members"].as_array().expect("listed");
        assert_eq!((members.len(), members[10]["key"].as_str()), (150, Some("orders/10.json")), "in natural order");
        assert_eq!(members[10]["len"], document(10).len());
        for number in 0..60 {
            deployment.delete(&bucket, &format!("orders/{number}.json")).await;
        }
        assert_eq!(deployment.pack(&mut cursor, true).await.emptied_packs, 0, "more than half is in use");
        for number in 60..120 {
            deployment.delete(&bucket, &format!("orders/{number}.json")).await;
        }
        let report = deployment.pack(&mut cursor, true).await;
        assert_eq!((report.emptied_packs, report.packs, report.objects), (1, 1, 30));
        deployment.engine.collect(true).await.expect("collected");
        assert!(deployment.engine.catalog().blobs(&[pack]).await.expect("asked").is_empty(), "the first pack is gone");
        for number in 120..150 {
            let expected = document(number);
            assert!(deployment.get(&bucket, &format!("orders/{number}.json"), 0..expected.len()).await == expected);
        }
        for number in 120..150 {
            deployment.delete(&bucket, &format!("orders/{number}.json")).await;
        }
        deployment.engine.collect(true).await.expect("collected");
    }
    assert_eq!(deployment.blob_files(), Vec::<std::path::PathBuf>::new(), "packs die with their last range");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_changes_while_it_is_packed_keeps_its_new_content() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    deployment.put_documents(&bucket, 0..200).await;
    let (packing, writing) = tokio::join!(
        async { deployment.pack(&mut crate::background::packs::PackCursor::default(), true).await },
        async {
            for number in (0..200).step_by(2) {
                deployment.put(&bucket, &format!("orders/{number}.json"), &document(1000 + number)).await;
                deployment.delete(&bucket, &format!("orders/{}.json", number + 1)).await;
            }
        }
    );
    let ((), report) = (writing, packing);
    for number in (0..200).step_by(2) {
        let expected = document(1000 + number);
        let got = deployment.get(&bucket, &format!("orders/{number}.json"), 0..expected.len()).await;
        assert!(got == expected, "{number} {report:?}");
        let gone = deployment.engine.read.head(&bucket, &format!("orders/{}.json", number + 1)).await.expect("read");
        assert!(gone.is_none(), "a deleted object came back");
    }
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pack_job_takes_up_what_came_since_its_last_run_and_settling_waits_for_it() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    deployment.put_documents(&bucket, 0..30).await;
    assert_eq!(deployment.engine.workers.packer.backlog().await.expect("asked"), 0, "they are young");
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    let packed = || deployment.metrics.packed_objects_total.get();
    assert_eq!(packed(), 30);
    deployment.put_documents(&bucket, 30..70).await;
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    assert_eq!(packed(), 70, "none was packed twice");
    assert!(deployment.get(&bucket, "orders/69.json", 0..document(69).len()).await == document(69));
}
