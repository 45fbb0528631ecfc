//! What does not open, is not read and is not committed.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn another_kek_than_the_one_that_wrapped_a_bucket_key_does_not_start() {
    let Deployment { engine, metrics, dir } = Deployment::start(512 << 20).await;
    engine.buckets.create_bucket("sealed", "owner").await.expect("created").expect("name was free");
    engine.shutdown().await;
    drop(engine);
    let other = || EngineConfig { kek: Some(object_format::Kek::new([9; 32])), ..config(dir.path(), 512 << 20) };
    let (file, away) = (dir.path().join("keyring.json"), dir.path().join("away.json"));
    std::fs::rename(&file, &away).expect("moved");
    let refused = open(other(), &metrics).await.err().expect("refused");
    assert!(refused.to_string().contains("another KEK"), "{refused}");
    std::fs::rename(&away, &file).expect("moved back");
    let both = open(other(), &metrics).await.expect("the keyring's KEK still opens what it wrapped");
    both.shutdown().await;
    drop(both);
    assert!(open(config(dir.path(), 512 << 20), &metrics).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_row_moved_to_another_key_does_not_open() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    deployment.put(&bucket, "a", b"secret").await;
    let mut version = deployment.engine.catalog().current(bucket.row.id, "a").await.expect("read").expect("exists");
    assert!(deployment.engine.read.open_facts(&bucket, &version).is_ok());
    version.key = "b".into();
    assert!(matches!(deployment.engine.read.open_facts(&bucket, &version), Err(EngineError::Integrity(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_stored_bytes_are_an_error_and_never_wrong_bytes() {
    for name in ["delta", "sealed", "off"] {
        let deployment = Deployment::start(512 << 20).await;
        let bucket = deployment.bucket(name).await;
        let bytes = content(5 * MIB, 20);
        deployment.put(&bucket, "x", &bytes).await;
        let file = deployment.blob_files().pop().expect("one blob");
        let good = std::fs::read(&file).expect("readable");
        for at in (0..good.len()).step_by(good.len() / 37) {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            std::fs::remove_file(&file).expect("removed");
            std::fs::write(&file, bad).expect("written");
            deployment.engine.drop_caches();
            let object = deployment.engine.read.open_object(&bucket, "x").await.expect("opened").expect("exists");
            let outcome: Result<Vec<Bytes>, _> =
                deployment.engine.read.read(&object, 0..bytes.len() as u64).try_collect().await;
            match outcome {
                Ok(pieces) => assert!(pieces.concat() == bytes, "wrong bytes after damage at {at}"),
                Err(error) => assert!(matches!(error, EngineError::Integrity(_)), "{error}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_a_closed_epoch_is_not_committed_under_the_next() {
    let deployment = Deployment::start(512 << 20).await;
    let engine = &deployment.engine;
    let bucket = deployment.bucket("off").await;
    let body = content(3 * MIB, 5);
    let staged = deployment.stage(&bucket, Destination::Object { key: "k".into() }, &body).await;
    let old = engine.foundation.writer.epoch();
    // As when this process was stopped for longer than its lease: another one's collector closes
    // the epoch.
    engine.foundation.catalog.close_epochs(&[old]).await.expect("closed");
    let refused = engine.changes.delete(&bucket, "nothing", Precondition::None, None).await;
    assert!(matches!(refused, Err(EngineError::Fenced)));
    while engine.foundation.writer.epoch() == old {
        tokio::task::yield_now().await;
    }
    // Its blob may be collected at any time now, so it must not become a version's, although this
    // process may write again.
    let facts = VersionFacts { etag: "e".into(), ..VersionFacts::default() };
    let late = engine.publisher.publish(&bucket, "k", staged, facts, Precondition::None).await;
    assert!(matches!(late, Err(EngineError::Fenced)), "{late:?}");
    assert!(engine.read.open_object(&bucket, "k").await.expect("catalog answers").is_none());
    deployment.put(&bucket, "k", &body).await;
    assert_eq!(deployment.get(&bucket, "k", 0..body.len()).await, body);
    engine.collect(true).await.expect("collected");
    assert_eq!(deployment.get(&bucket, "k", 0..body.len()).await, body);
}
