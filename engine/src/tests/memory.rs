//! What is kept in memory has a bound, and is let go of.

use super::*;
use crate::{blobs::piece::BasePiece, resources::budget::MemoryBudget};
use delta_codec::Effort;

fn piece(number: u32) -> BasePiece {
    BasePiece::of(BlobId::new(number, [0; 12]), 0..1 << 20)
}

#[tokio::test]
async fn a_window_that_nobody_waits_for_any_more_keeps_no_place() {
    let deployment = Deployment::start(64 << 20).await;
    let (windows, budget) = (deployment.engine.foundation.bases.windows(), &deployment.engine.foundation.budget);
    let _everything = MemoryBudget::acquire(budget, 1 << 40).await.expect("nobody else has it");
    let mut first = Box::pin(windows.get(vec![piece(1)], &[], None, Effort::Balanced, true));
    let mut second = Box::pin(windows.get(vec![piece(1)], &[], None, Effort::Balanced, true));
    let mut other = Box::pin(windows.get(vec![piece(2)], &[], None, Effort::Balanced, true));
    for asked in [&mut first, &mut second, &mut other] {
        assert!(futures::poll!(asked).is_pending(), "there is no memory");
    }
    assert_eq!(windows.places(), 2);
    drop(first);
    assert_eq!(windows.places(), 2, "the second waits");
    drop((second, other));
    assert_eq!(windows.places(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_whose_windows_do_not_fit_together_do_not_load_one_for_each_part() {
    const UPLOADS: u64 = 8;
    let deployment = Deployment::start(128 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let decoded = || deployment.metrics.decode_seconds.with_label_values(&["zstd"]).get_sample_count();
    let bases: Vec<Vec<u8>> = (0..UPLOADS).map(|family| content(8 * MIB, 101 + 2 * family)).collect();
    for (family, base) in bases.iter().enumerate() {
        deployment.put_and_settle(&bucket, &format!("app-{family}/1.0"), base).await;
    }
    deployment.engine.drop_caches();
    let before = decoded();
    let uploads = bases.iter().enumerate().map(|(family, base)| {
        let (deployment, bucket) = (&deployment, &bucket);
        async move {
            let key = format!("app-{family}/1.1");
            let uploads = &deployment.engine.uploads;
            let upload = uploads.create_upload(bucket, &key, "owner", VersionFacts::default()).await.expect("created");
            for (number, part) in (1..).zip(edited(base, family as u64).chunks(MIB)) {
                let staged =
                    deployment.stage(bucket, Destination::Part { key: key.clone(), upload, number }, part).await;
                let name = PartName { key: &key, upload, number };
                let facts = PartFacts { size: part.len() as u64, ..PartFacts::default() };
                deployment.engine.publisher.publish_part(bucket, name, staged, facts).await.expect("stored");
            }
            let parts = uploads.parts(bucket, &key, upload, 0, 100).await.expect("parts");
            let completion = Completion { upload, parts, parts_digest: [1; 32] };
            let publisher = &deployment.engine.publisher;
            publisher.complete(bucket, &key, completion, VersionFacts::default(), Precondition::None).await
        }
    });
    for completed in futures::future::join_all(uploads).await {
        let storage = completed.expect("completed").storage;
        assert_eq!(storage.form, Form::Delta, "{storage:?}");
    }
    let (loaded, segments) = (decoded() - before, 2 * UPLOADS);
    assert!(loaded <= 3 * segments, "{loaded} segments of bases decoded, of {segments}");
}
