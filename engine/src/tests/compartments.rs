//! Content of one compartment is neither base nor duplicate, nor packed together, with what is
//! outside of it.

use super::*;
use crate::{Sharing, background::packs::PackCursor, resources::clock::now_ms};
use catalog::Compartment;
use std::collections::BTreeSet;

const PARTIES: [Sharing<'static>; 4] =
    [Sharing::Bucket, Sharing::Prefix("r/"), Sharing::Writer("user ann"), Sharing::Writer("user bob")];

impl Deployment {
    async fn blobs_of(&self, bucket: &BucketHandle, key: &str) -> Vec<BlobRow> {
        self.engine.catalog().content(bucket.row.id, key).await.expect("read").expect("exists").blobs
    }

    async fn compartments_of(&self, bucket: &BucketHandle, key: &str) -> BTreeSet<Option<Compartment>> {
        self.blobs_of(bucket, key).await.iter().map(|row| row.compartment).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_compartment_holds_is_neither_base_nor_duplicate_in_another() {
    let deployment = Deployment::start(512 << 20).await;
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        let v1 = content(2 * MIB, 81);
        let v2 = edited(&v1, 82);
        let mut seen = BTreeSet::new();
        for (number, sharing) in PARTIES.into_iter().enumerate() {
            let own = bucket.sharing(sharing).expect("shares");
            // The key is everybody's: its version before is another party's.
            let first = deployment.put(&own, "r/app", &v1).await;
            assert_eq!(first.storage.form, Form::Zstd, "{name} {sharing:?}");
            let near = deployment.put(&own, "r/app", &v2).await;
            assert_eq!(near.storage.form, Form::Delta, "{name} {sharing:?}");
            let same = deployment.put(&own, &format!("elsewhere/{number}"), &v1).await;
            assert_eq!(same.storage.form, Form::Dedup, "{name} {sharing:?}");
            assert!(deployment.get(&own, "r/app", 0..v2.len()).await == v2);
            seen.extend(deployment.compartments_of(&bucket, "r/app").await);
        }
        assert_eq!(seen.len(), PARTIES.len(), "{name}");
        for key in ["one", "two"] {
            let nobody = bucket.sharing(Sharing::Nothing).expect("shares");
            assert_eq!(deployment.put(&nobody, key, &v1).await.storage.form, Form::Zstd, "{name}");
        }
    }
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compartment_is_named_alike_each_time_and_by_its_bucket_alone_where_that_is_sealed() {
    let deployment = Deployment::start(512 << 20).await;
    let (plain, sealed) = (deployment.bucket("delta").await, deployment.bucket("sealed").await);
    let named = |bucket: &BucketHandle, sharing| bucket.sharing(sharing).expect("shares").compartment();
    let ann = Sharing::Writer("ann");
    assert_eq!(named(&plain, ann), named(&plain, ann));
    assert_eq!(named(&plain, Sharing::Bucket), None);
    assert_ne!(named(&plain, ann), named(&plain, Sharing::Prefix("ann")));
    assert_ne!(named(&plain, ann), named(&sealed, ann));
    assert_ne!(named(&plain, Sharing::Nothing), named(&plain, Sharing::Nothing));
}

#[tokio::test(flavor = "multi_thread")]
async fn small_objects_of_different_compartments_are_packed_apart() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let members = ["ann", "bob"];
    for writer in members {
        let own = bucket.sharing(Sharing::Writer(writer)).expect("shares");
        for number in 0..40 {
            let document =
                format!("{{\"writer\": \"{writer}\", \"number\": {number}, \"text\": \"{}\"}}", "x".repeat(4000));
            deployment.put(&own, &format!("{number:02}-{writer}"), document.as_bytes()).await;
        }
    }
    let (mut cursor, mut report) = (PackCursor::default(), Packing::default());
    let packer = &deployment.engine.workers.packer;
    packer.pack_small_objects(&mut cursor, now_ms(), true, &|_| true, &mut report).await.expect("packed");
    assert_eq!((report.packs, report.objects), (2, 80), "{report:?}");
    for writer in members {
        let own = bucket.sharing(Sharing::Writer(writer)).expect("shares");
        let expected = BTreeSet::from([own.compartment()]);
        for number in 0..40 {
            let key = format!("{number:02}-{writer}");
            assert_eq!(deployment.compartments_of(&bucket, &key).await, expected, "{key}");
            assert!(deployment.blobs_of(&bucket, &key).await.iter().all(|row| row.pack), "{key}");
        }
    }
}
