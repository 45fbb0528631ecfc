//! Merging, from the outside of the engine and step by step.

use super::*;
use crate::{
    BodyDigest, Destination, Engine,
    background::{
        converter::{
            Effort, Wish,
            tests::{run, start},
        },
        jobs::{
            run::JobRun,
            spec::{JobSpec, report},
        },
    },
    facts::{Checksum, Form, PartSize},
    registry,
    tests::{Deployment, MIB, content, edited},
    write::publish::{Completion, PartName},
};
use bytes::Bytes;
use catalog::{Precondition, Seq, VersionId};
use crypto::{Digest, Sha256};
use futures::TryStreamExt as _;
use md5::Md5;
use serde_json::json;
use std::{sync::OnceLock, time::Duration};

/// Facts of an object as a client made it.
fn facts_of(lens: impl Iterator<Item = usize>) -> VersionFacts {
    let part = |(number, len)| PartSize { number, size: len as u64, checksum: Some("AAAAAA==".into()) };
    VersionFacts {
        etag: "0123456789abcdef0123456789abcdef-40".into(),
        headers: [("content-type".to_owned(), "text/plain".to_owned())].into(),
        checksums: vec![Checksum { algorithm: "CRC32".into(), value: "AAAAAA==-40".into() }],
        parts: (1..).zip(lens).map(part).collect(),
        ..VersionFacts::default()
    }
}

/// Uploads content in parts of these lengths.
async fn upload(deployment: &Deployment, bucket: &BucketHandle, key: &str, content: &[u8], part_len: usize) {
    let engine = &deployment.engine;
    let upload = engine.uploads.create_upload(bucket, key, "owner", VersionFacts::default()).await.expect("created");
    for (number, part) in (1..).zip(content.chunks(part_len)) {
        let staged = deployment.stage(bucket, Destination::Part { key: key.into(), upload, number }, part).await;
        let facts = PartFacts { size: part.len() as u64, ..PartFacts::default() };
        engine
            .publisher
            .publish_part(bucket, PartName { key, upload, number }, staged, facts)
            .await
            .expect("published");
    }
    let parts = engine.uploads.parts(bucket, key, upload, 0, 1000).await.expect("listed");
    let facts = facts_of(content.chunks(part_len).map(<[u8]>::len));
    let completion = Completion { upload, parts, parts_digest: [1; 32] };
    engine.publisher.complete(bucket, key, completion, facts, Precondition::None).await.expect("completed");
}

async fn content_of(deployment: &Deployment, bucket: &BucketHandle, key: &str) -> Content {
    deployment.engine.catalog().content(bucket.row.id, key).await.expect("read").expect("exists")
}

async fn extents(deployment: &Deployment, bucket: &BucketHandle, key: &str) -> usize {
    content_of(deployment, bucket, key).await.extents.len()
}

/// What of a version nobody may see change.
async fn visible(
    deployment: &Deployment,
    bucket: &BucketHandle,
    key: &str,
) -> (VersionId, Seq, UnixMs, u64, VersionFacts) {
    let head = deployment.engine.read.head(bucket, key).await.expect("head").expect("exists");
    let facts = VersionFacts { storage: StorageFacts::default(), ..head.facts };
    (head.version.id, head.version.seq, head.version.modified_ms, head.version.size, facts)
}

async fn merge_now(deployment: &Deployment) -> serde_json::Value {
    run(deployment, json!({ "now": true })).await
}

fn counted(deployment: &Deployment, result: &str) -> u64 {
    deployment.metrics.convert_blobs_total.with_label_values(&["merge", result]).get()
}

async fn assert_sound(deployment: &Deployment) {
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_parts_become_one_blob_and_no_client_sees_it() {
    let deployment = start(|_| {}).await;
    // Parts of two segments' length together with some that live in the catalog.
    for (name, part_len) in [("delta", 150_001), ("sealed", 150_001), ("off", 150_001), ("delta", 1000)] {
        let bucket = deployment.bucket(name).await;
        let bytes = content(40 * part_len - 77, 31 + part_len as u64);
        let key = format!("parts-{part_len}");
        upload(&deployment, &bucket, &key, &bytes, part_len).await;
        let before = visible(&deployment, &bucket, &key).await;
        let old = content_of(&deployment, &bucket, &key).await;
        assert_eq!((old.extents.len(), old.blobs.len()), (40, 40));
        let converted = counted(&deployment, "converted");
        let report = merge_now(&deployment).await;
        assert_eq!(report["converted"]["merge"]["plain_bytes"], bytes.len(), "{report}");
        assert_eq!(counted(&deployment, "converted"), converted + 1);
        let new = content_of(&deployment, &bucket, &key).await;
        assert_eq!(new.extents, [Extent { blob: new.blobs[0].id, offset: 0, len: bytes.len() as u64 }]);
        assert_eq!(visible(&deployment, &bucket, &key).await, before);
        let storage = deployment.engine.read.head(&bucket, &key).await.expect("head").expect("exists").facts.storage;
        assert_eq!(storage.stored_bytes, new.blobs[0].stored_len);
        assert_eq!(storage.form, if name == "off" { Form::Raw } else { Form::Zstd });
        // The blob tells what it is: a catalog made from it alone has the object as it was.
        let manifest =
            deployment.engine.foundation.blobs.manifest(&new.blobs[0], bucket.domain_key()).await.expect("readable");
        let said = &manifest.root.facts;
        assert_eq!((said.key.as_str(), said.version_id, said.part), (key.as_str(), Some(before.0.0), None));
        assert_eq!(serde_json::from_slice::<VersionFacts>(&said.facts).expect("facts"), before.4);
        deployment.engine.collect(true).await.expect("collected");
        deployment.engine.drop_caches();
        let gone: Vec<BlobKey> = old.blobs.iter().map(|row| row.id).collect();
        assert_eq!(deployment.engine.catalog().blobs(&gone).await.expect("read"), [], "the parts' blobs are gone");
        for range in [0..bytes.len(), part_len - 3..part_len + 3, bytes.len() - 1..bytes.len(), 5..5] {
            assert!(deployment.get(&bucket, &key, range.clone()).await == bytes[range]);
        }
    }
    assert_eq!(deployment.metrics.merged_extents_total.get(), 160);
    let converted = counted(&deployment, "converted");
    merge_now(&deployment).await;
    assert_eq!(counted(&deployment, "converted"), converted, "once is enough");
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_began_before_gets_the_end_of_what_he_began() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("sealed").await;
    let bytes = content(6 * MIB, 33);
    upload(&deployment, &bucket, "k", &bytes, 150_000).await;
    let object = deployment.engine.read.open_object(&bucket, "k").await.expect("opened").expect("exists");
    let mut reading = deployment.engine.read.read(&object, 0..bytes.len() as u64);
    drop(object);
    let first = reading.try_next().await.expect("read").expect("some");
    merge_now(&deployment).await;
    assert_eq!(extents(&deployment, &bucket, "k").await, 1);
    let collect = async || deployment.engine.collect(true).await.expect("collected");
    collect().await;
    deployment.engine.drop_caches();
    assert!(deployment.blob_files().len() > 20, "what the reader holds is still there");
    let rest: Vec<Bytes> = reading.try_collect().await.expect("read to the end");
    assert!([&first[..], &rest.concat()].concat() == bytes);
    collect().await;
    assert_eq!(deployment.blob_files().len(), 1);
    assert!(deployment.get(&bucket, "k", 0..bytes.len()).await == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn deltas_are_merged_to_a_delta_of_the_same_bases() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await;
    // Once with the base under its own name, once with one that nobody names any more, once with
    // one that is made of many parts itself.
    for (seed, base, key) in [(35, "a-1", "a-2"), (73, "b", "b"), (75, "c-1", "c-2")] {
        let v1 = content(if base == "c-1" { 13 * MIB } else { 6 * MIB }, seed);
        match base {
            "c-1" => upload(&deployment, &bucket, base, &v1, 400_000).await,
            _ => drop(deployment.put(&bucket, base, &v1).await),
        }
        let v2 = edited(&v1, 38);
        upload(&deployment, &bucket, key, &v2, 180_000).await;
        let before = content_of(&deployment, &bucket, key).await;
        // A part may fail to find its base while its neighbours do.
        let deltas = before.blobs.iter().filter(|row| row.form == BlobForm::Delta).count();
        assert!(deltas > before.blobs.len() / 2, "{key}: {deltas} of {}", before.blobs.len());
        let report = &merge_now(&deployment).await["converted"]["merge"];
        // Judged by what merging reports: a base that only this one delta needs is let go of right
        // after it.
        let (stored_before, stored_after) = (report["stored_before"].as_u64(), report["stored_after"].as_u64());
        assert!(stored_after < stored_before && stored_before < Some(v1.len() as u64 / 2), "{key}: {report}");
        assert_eq!(extents(&deployment, &bucket, key).await, 1, "{key}");
        deployment.engine.collect(true).await.expect("collected");
        deployment.engine.drop_caches();
        assert!(deployment.get(&bucket, key, 0..v2.len()).await == v2);
    }
    assert_eq!(extents(&deployment, &bucket, "c-1").await, 35, "what deltas need stays as it is");
    assert_eq!(counted(&deployment, "converted"), 3);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_copy_shares_is_merged_only_when_the_copy_is_gone() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await;
    let engine = &deployment.engine;
    let bytes = content(4 * MIB, 39);
    upload(&deployment, &bucket, "k", &bytes, 100_000).await;
    let source = engine.read.open_object(&bucket, "k").await.expect("opened").expect("exists");
    engine
        .publisher
        .publish_copy(&bucket, "copy", &source, VersionFacts::default(), Precondition::None)
        .await
        .expect("copied");
    drop(source);
    let files = deployment.blob_files().len();
    merge_now(&deployment).await;
    assert_eq!((counted(&deployment, "converted"), deployment.blob_files().len()), (0, files));
    deployment.delete(&bucket, "k").await;
    merge_now(&deployment).await;
    assert_eq!(extents(&deployment, &bucket, "copy").await, 1);
    assert!(deployment.get(&bucket, "copy", 0..bytes.len()).await == bytes);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_others_need_stays_between_merged_ones_which_know_their_order() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("sealed").await;
    let engine = &deployment.engine;
    let bytes = content(4 * MIB, 41);
    upload(&deployment, &bucket, "k", &bytes, 100_000).await;
    let before = visible(&deployment, &bucket, "k").await;
    let shared = content_of(&deployment, &bucket, "k").await.extents[20].blob;
    let source = engine.read.open_object(&bucket, "k").await.expect("opened").expect("exists");
    let upload =
        engine.uploads.create_upload(&bucket, "other", "owner", VersionFacts::default()).await.expect("created");
    let part = PartName { key: "other", upload, number: 1 };
    engine
        .publisher
        .publish_part_copy(&bucket, part, &source, 2_000_000..2_100_000, PartFacts::default())
        .await
        .expect("copied");
    drop(source);
    merge_now(&deployment).await;
    let after = content_of(&deployment, &bucket, "k").await;
    assert_eq!(after.extents.iter().map(|extent| extent.len).collect::<Vec<_>>(), [2_000_000, 100_000, 2_094_304]);
    assert_eq!(after.extents[1].blob, shared);
    let mut numbers = Vec::new();
    for extent in [after.extents[0], after.extents[2]] {
        let row = after.blobs.iter().find(|row| row.id == extent.blob).expect("its row");
        let manifest = engine.foundation.blobs.manifest(row, bucket.domain_key()).await.expect("readable");
        let facts = &manifest.root.facts;
        let part: PartFacts = serde_json::from_slice(&facts.facts).expect("a part's facts");
        assert_eq!((part.size, part.etag.len(), facts.version_id), (extent.len, 32, None));
        let (upload, number) = facts.part.expect("it is a part");
        assert_eq!(upload, before.0.0);
        numbers.push(number);
    }
    assert!(numbers[0] < numbers[1] && numbers[1] <= 10_000, "{numbers:?}");
    assert_eq!(visible(&deployment, &bucket, "k").await, before);
    deployment.engine.collect(true).await.expect("collected");
    assert!(deployment.get(&bucket, "k", 0..bytes.len()).await == bytes);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_of_many_groups_is_rewritten_a_few_times() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("sealed").await;
    let engine = &deployment.engine;
    let part_len = 20_000;
    let bytes = content(98 * part_len, 57);
    upload(&deployment, &bucket, "k", &bytes, part_len).await;
    let before = visible(&deployment, &bucket, "k").await;
    let source = engine.read.open_object(&bucket, "k").await.expect("opened").expect("exists");
    let upload =
        engine.uploads.create_upload(&bucket, "other", "owner", VersionFacts::default()).await.expect("created");
    // Every ninth part is needed by somebody else: eleven groups of eight are left.
    for number in 1..=10 {
        let start = (u64::from(number) * 9 - 1) * part_len as u64;
        let part = PartName { key: "other", upload, number };
        let range = start..start + part_len as u64;
        engine.publisher.publish_part_copy(&bucket, part, &source, range, PartFacts::default()).await.expect("copied");
    }
    drop(source);
    let seq = engine.catalog().last_seq().await.expect("read");
    merge_now(&deployment).await;
    assert_eq!(extents(&deployment, &bucket, "k").await, 21);
    assert_eq!((counted(&deployment, "converted"), deployment.metrics.merged_extents_total.get()), (11, 88));
    let rewrites = engine.catalog().last_seq().await.expect("read") - seq;
    assert_eq!(rewrites, 6, "two groups each, and the last");
    assert_eq!(visible(&deployment, &bucket, "k").await, before);
    engine.collect(true).await.expect("collected");
    engine.drop_caches();
    assert!(deployment.get(&bucket, "k", 0..bytes.len()).await == bytes);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_merged_is_a_base_for_what_resembles_it() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("sealed").await;
    let bytes = content(5 * MIB, 59);
    upload(&deployment, &bucket, "builds/app.tar", &bytes, 100_000).await;
    merge_now(&deployment).await;
    deployment.engine.collect(true).await.expect("collected");
    deployment.engine.foundation.hooks.settle().await;
    let put = deployment.put(&bucket, "archive/nothing-alike.bin", &edited(&bytes, 60)).await;
    assert_eq!((put.storage.form, put.storage.bases), (Form::Delta, vec!["builds/app.tar".to_owned()]));
    assert!(put.storage.stored_bytes < bytes.len() as u64 / 20, "{:?}", put.storage.stored_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_would_take_more_is_left_as_it_is_and_not_tried_again() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await;
    let bytes = content(4 * MIB, 43);
    upload(&deployment, &bucket, "k", &bytes, 100_000).await;
    let mut settings = bucket.row.settings.clone();
    settings["compression"] = json!("off");
    deployment.engine.catalog().set_bucket_settings(bucket.row.id, settings).await.expect("changed");
    let files = deployment.blob_files();
    merge_now(&deployment).await;
    merge_now(&deployment).await;
    assert_eq!((counted(&deployment, "kept"), counted(&deployment, "converted")), (1, 0));
    assert_eq!((extents(&deployment, &bucket, "k").await, deployment.blob_files()), (42, files));
    assert!(deployment.get(&bucket, "k", 0..bytes.len()).await == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_done_when_somebody_waits_for_it_and_else_when_it_is_old_enough() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await;
    upload(&deployment, &bucket, "k", &content(4 * MIB, 45), 100_000).await;
    upload(&deployment, &bucket, "few", &content(4 * MIB, 46), 140_000).await;
    run(&deployment, serde_json::Value::Null).await;
    assert_eq!(extents(&deployment, &bucket, "k").await, 42, "it has just come");
    assert_eq!(deployment.engine.workers.converter.backlog().await.expect("read"), 0);
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    assert_eq!(extents(&deployment, &bucket, "k").await, 1);
    assert_eq!(extents(&deployment, &bucket, "few").await, 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_or_when_it_is_switched_off_nothing_is_merged() {
    let off = start(|config| config.convert.merge_extents = 0).await;
    let full = start(|config| config.convert.free_bytes_min = u64::MAX).await;
    for (deployment, without_room) in [(off, 0), (full, 1)] {
        let bucket = deployment.bucket("delta").await;
        upload(&deployment, &bucket, "k", &content(4 * MIB, 47), 100_000).await;
        let report = merge_now(&deployment).await;
        assert_eq!((&report["without_room"], extents(&deployment, &bucket, "k").await), (&json!(without_room), 42));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_to_one_version_is_told_and_does_not_stop_the_others() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await;
    upload(&deployment, &bucket, "a", &content(4 * MIB, 49), 100_000).await;
    upload(&deployment, &bucket, "b", &content(4 * MIB, 50), 100_000).await;
    let row = content_of(&deployment, &bucket, "a").await.blobs.remove(7);
    deployment.damage(&row);
    let report = merge_now(&deployment).await;
    assert_eq!((&report["failed"], counted(&deployment, "failed")), (&json!(1), 1), "{report}");
    assert_eq!((extents(&deployment, &bucket, "a").await, extents(&deployment, &bucket, "b").await), (42, 1));
}

/// A deployment whose job `steps` does what `steps` says of a version of many parts while a client
/// comes between.
async fn with_steps<F, R>(steps: F) -> Deployment
where
    F: Fn(Arc<Engine>, JobRun) -> R + Send + Sync + 'static,
    R: Future<Output = Result<serde_json::Value, EngineError>> + Send + 'static,
{
    let engine = Arc::<OnceLock<Arc<Engine>>>::default();
    let of_job = engine.clone();
    let spec = JobSpec::new("steps", "Merges step by step.", "blobs", move |run| {
        steps(of_job.get().expect("it is open").clone(), run)
    });
    let deployment = Deployment::with_jobs(
        |config, workers| registry::all(config, workers).into_iter().chain([spec]).collect(),
        |_| {},
    );
    let deployment = deployment.await;
    assert!(engine.set(deployment.engine.clone()).is_ok());
    deployment
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_another_one_by_now_stays_that() {
    let deployment = with_steps(|engine, run| async move {
        let pace = Arc::new(crate::resources::pace::Pace::new(0));
        let mut round =
            Round { run: &run, now: true, pace, tallies: crate::background::converter::round::Tallies::default() };
        let bucket = engine.buckets.bucket("delta").await?.expect("exists");
        for key in ["replaced", "deleted", "encoded anew"] {
            let content = engine.foundation.catalog.content(bucket.row.id, key).await?.expect("exists");
            let (facts, extents) = (engine.read.open_facts(&bucket, &content.version)?, content.extents.clone());
            let mut merging = Merging { bucket: bucket.clone(), content, facts, extents, done: Vec::new() };
            let grouped = engine.workers.converter.merger.merge_group(&round, &merging, 0..40).await?;
            let Grouped::Done(merged) = grouped else { panic!("it is as short") };
            match key {
                "replaced" => {
                    let other = engine.foundation.catalog.content(bucket.row.id, "other").await?.expect("exists");
                    let source = engine.read.open_content(&bucket, other, VersionFacts::default())?;
                    engine
                        .publisher
                        .publish_copy(&bucket, key, &source, VersionFacts::default(), Precondition::None)
                        .await?;
                }
                "deleted" => {
                    drop(engine.changes.delete(&bucket, key, Precondition::None, None).await?.removed.expect("existed"))
                }
                _ => {
                    let reform = round.reform(Occasion::Asked, Wish::Whole, Effort::Fast);
                    engine.workers.converter.reencoder.reencode(&bucket, &merging.content.blobs[3], &reform).await?;
                }
            }
            assert!(
                !engine.workers.converter.merger.rewrite_merged(&mut round, &mut merging, vec![*merged]).await?,
                "{key}"
            );
        }
        report(Ok(()))
    })
    .await;
    let bucket = deployment.bucket("delta").await;
    let other = content(MIB, 51);
    deployment.put(&bucket, "other", &other).await;
    upload(&deployment, &bucket, "replaced", &content(4 * MIB, 53), 100_000).await;
    upload(&deployment, &bucket, "deleted", &content(4 * MIB, 54), 100_000).await;
    upload(&deployment, &bucket, "encoded anew", &content(4 * MIB, 61), 100_000).await;
    let uploaded = content_of(&deployment, &bucket, "encoded anew").await;
    deployment.engine.jobs.run_job("steps", serde_json::Value::Null).await.expect("ran");
    let now = content_of(&deployment, &bucket, "encoded anew").await;
    let same = uploaded.extents.iter().zip(&now.extents).filter(|(was, is)| was == is).count();
    assert_eq!(
        (uploaded.extents.len(), now.extents.len(), same),
        (42, 42, 41),
        "one blob of it was encoded anew, and that counts"
    );
    assert!(deployment.get(&bucket, "encoded anew", 0..4 * MIB).await == content(4 * MIB, 61));
    deployment.delete(&bucket, "encoded anew").await;
    assert!(deployment.get(&bucket, "replaced", 0..MIB).await == other);
    assert!(deployment.engine.read.open_object(&bucket, "deleted").await.expect("read").is_none());
    deployment.engine.collect(true).await.expect("collected");
    assert_eq!(deployment.blob_files().len(), 1, "neither the parts nor what was made of them");
    assert_eq!(counted(&deployment, "unused"), 3);
    assert_sound(&deployment).await;
}

#[test]
fn a_group_is_hashed_as_a_whole_and_extent_by_extent() {
    let bytes = content(1000, 55);
    let extent = |len| Extent { blob: BlobKey([0; 16]), offset: 0, len };
    let mut digest = GroupDigest::new(&[extent(1), extent(600), extent(399)]);
    bytes.chunks(77).for_each(|piece| digest.update(piece));
    let (digests, whole) = digest.finish();
    assert_eq!(whole, Some(Sha256::digest(&bytes).into()));
    let cuts = [&bytes[..1], &bytes[1..601], &bytes[601..]];
    assert_eq!(digests.extents, cuts.map(|cut| <[u8; 32]>::from(Sha256::digest(cut))));
    assert_eq!(digests.md5, <[u8; 16]>::from(Md5::digest(&bytes)));
}
