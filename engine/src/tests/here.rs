//! Small work is done where it is asked for: what is ready at the first poll was handed to no other
//! thread or task.

use super::*;
use crate::bucket::BucketState;
use futures::{FutureExt, StreamExt};

#[tokio::test(flavor = "multi_thread")]
async fn a_small_object_is_staged_found_and_read_without_another_thread() {
    let deployment = Deployment::start(512 << 20).await;
    for bucket in ["delta", "sealed", "off"] {
        let bucket = deployment.bucket(bucket).await;
        // Shrinks as zstd where the bucket compresses; lives in the catalog's row.
        let small = content(4000, 7);
        let destination = Destination::Object { key: "k".into() };
        // The first upload looks at the disk, on a blocking thread.
        drop(deployment.stage(&bucket, destination.clone(), &small).await);
        let staged = deployment.stage(&bucket, destination, &small).now_or_never().expect("staged at once");
        assert_eq!(staged.sha256, Some(Sha256::digest(&small).into()));
        drop(staged);
        deployment.put(&bucket, "k", &small).await;
        deployment.engine.read.head(&bucket, "k").await.expect("found").expect("exists");

        let read = &deployment.engine.read;
        let object = read.open_object(&bucket, "k").now_or_never().expect("found at once");
        let object = object.expect("opened").expect("exists");
        let pieces: Vec<Bytes> =
            read.read(&object, 0..4000).try_collect().now_or_never().expect("read at once").expect("read");
        assert_eq!(pieces.concat(), small);
        assert!(read.head(&bucket, "k").now_or_never().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_bucket_is_parsed_once_until_it_changes() {
    let deployment = Deployment::start(512 << 20).await;
    for (name, is_kept) in [("off", true), ("sealed", false)] {
        deployment.bucket(name).await;
        let is_same = async || {
            let (one, other) = (deployment.bucket(name).await, deployment.bucket(name).await);
            std::ptr::eq::<BucketState>(&*one, &*other)
        };
        if is_kept {
            // While something else is being committed, rows are read anew.
            let kept = async {
                while !is_same().await {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(20), kept).await.expect("kept");
        } else {
            assert!(!is_same().await, "{name}");
        }
    }
    let (buckets, before) = (&deployment.engine.buckets, deployment.bucket("off").await);
    buckets.configure_bucket(&before, "tagging", Some("told".into())).await.expect("configured");
    let after = deployment.bucket("off").await;
    assert!(before.settings.configurations.is_empty());
    assert_eq!(after.settings.configurations["tagging"], "told");
}

/// Its bytes come with its row: kept besides, they would take the place of what costs requests.
#[tokio::test(flavor = "multi_thread")]
async fn content_that_lies_in_its_row_is_kept_in_no_cache() {
    let deployment = Deployment::start(512 << 20).await;
    let looked = || -> u64 {
        let counters = [&deployment.metrics.cache_misses_total, &deployment.metrics.cache_hits_total];
        counters.map(|counter| counter.with_label_values(&["manifest", "memory"]).get()).iter().sum()
    };
    for bucket in ["delta", "sealed", "off"] {
        let bucket = deployment.bucket(bucket).await;
        for (len, is_looked_for) in [(4000, false), (40_000, true)] {
            deployment.put(&bucket, "k", &content(len, 9)).await;
            let before = looked();
            assert_eq!(deployment.get(&bucket, "k", 0..len).await, content(len, 9));
            assert_eq!(looked() > before, is_looked_for, "{len} bytes");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_the_directory_is_the_stores_is_asked_before_a_write_without_another_thread() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "k", b"looks at the store, which is not asked again so soon").await;
    let safety = &deployment.engine.foundation.safety;
    safety.may_write().now_or_never().expect("asked at once").expect("allowed");
    std::fs::rename(deployment.dir.path().join("blobs"), deployment.dir.path().join("away")).expect("moved");
    let refused = safety.may_write().now_or_never().expect("asked at once").expect_err("it is not there");
    assert!(matches!(refused, EngineError::NotCurrent(_)), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_is_read_beside_whoever_asks_for_it() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let large = content(MIB, 8);
    deployment.put(&bucket, "k", &large).await;
    let object = deployment.engine.read.open_object(&bucket, "k").await.expect("opened").expect("exists");
    let mut pieces = deployment.engine.read.read(&object, 0..MIB as u64);
    assert!(pieces.next().now_or_never().is_none());
    // What it has begun to load, others would wait for.
    drop(pieces);
    assert_eq!(deployment.get(&bucket, "k", 0..MIB).await, large);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_body_that_is_longer_than_it_said_is_refused() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let stage = async |len: u64, bytes: &'static [u8]| {
        let body = futures::stream::iter([Ok::<_, Infallible>(Bytes::from_static(bytes))]);
        let destination = Destination::Object { key: "k".into() };
        deployment.engine.stager.stage(&bucket, destination, Some(len), body, ContentDigest::default()).await
    };
    assert!(matches!(stage(3, b"abcd").await, Err(StoreError::Engine(EngineError::TooLarge))));
    assert_eq!(stage(4, b"abcd").await.expect("staged").plain_len, 4);
    assert_eq!(stage(0, b"").await.expect("staged").plain_len, 0);
}
