//! Rewriting, step by step, with clients between the steps.

use super::*;
use crate::{
    CollectParameters, Destination,
    bucket::BucketHandle,
    facts::{Checksum, PartFacts},
    metrics::Metrics,
    tests::{Deployment, MIB, config, content, edited},
    write::{finish::FinishedContent, publish::PartName},
};
use catalog::Precondition;

mod stored;

fn reform(wish: Wish) -> Reform {
    let pace = Arc::new(Pace::new(0));
    Reform { occasion: Occasion::Asked, wish, effort: Effort::Balanced, pace, regardless: true, avoid: Arc::default() }
}

/// The one blob of a key.
async fn blob_of(deployment: &Deployment, bucket: &BucketHandle, key: &str) -> BlobRow {
    let content = deployment.engine.catalog().content(bucket.row.id, key).await.expect("read").expect("exists");
    let [row] = &content.blobs[..] else { panic!("{} blobs", content.blobs.len()) };
    row.clone()
}

fn reencoder(deployment: &Deployment) -> &Arc<Reencoder> {
    &deployment.engine.workers.converter.reencoder
}

/// The user of a blob, and its content encoded anew and durable, but not yet where readers look.
async fn encoded_anew(deployment: &Deployment, bucket: &BucketHandle, old: &BlobRow, wish: Wish) -> FinishedContent {
    let reencoder = reencoder(deployment);
    let user = reencoder.user_of(old).await.expect("read").expect("used");
    let staged =
        reencoder.restage(bucket, old, &user, &reform(wish), &mut OpenedText::default()).await.expect("staged");
    let sha256 = staged.hashed().expect("hashed");
    let object = reencoder.object_facts(bucket, old, &user, sha256).await.expect("facts");
    let digest = Some(bucket.content_digest(&sha256));
    let finisher = &deployment.engine.publisher.finisher;
    finisher.finish_blob(bucket, staged.content, &object, digest).await.expect("durable")
}

async fn assert_sound(deployment: &Deployment) {
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

/// A base, and a delta against it: the delta's content.
async fn two_versions(deployment: &Deployment, bucket: &BucketHandle) -> Vec<u8> {
    let v1 = content(5 * MIB, 71);
    let v2 = edited(&v1, 72);
    deployment.put(bucket, "v-1", &v1).await;
    assert_eq!(deployment.put(bucket, "v-2", &v2).await.storage.form, Form::Delta);
    v2
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rewrite_changes_no_byte_and_no_fact_that_a_client_sees() {
    let deployment = Deployment::start(512 << 20).await;
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        let v2 = edited(&two_versions(&deployment, &bucket).await, 73);
        let staged = deployment.stage(&bucket, Destination::Object { key: "v-2".into() }, &v2).await;
        let facts = VersionFacts {
            etag: "0123-2".into(),
            checksums: vec![Checksum { algorithm: "CRC32".into(), value: "AAAAAA==".into() }],
            ..VersionFacts::default()
        };
        deployment
            .engine
            .publisher
            .publish(&bucket, "v-2", staged, facts, Precondition::None)
            .await
            .expect("published");
        let before = deployment.engine.read.head(&bucket, "v-2").await.expect("head").expect("exists");
        for (wish, form, blob_form) in
            [(Wish::Whole, Form::Zstd, BlobForm::Whole), (Wish::Best, Form::Delta, BlobForm::Delta)]
        {
            let old = blob_of(&deployment, &bucket, "v-2").await;
            let outcome = reencoder(&deployment).reencode(&bucket, &old, &reform(wish)).await.expect("rewritten");
            let Reformed::Moved(new) = outcome else { panic!("{outcome:?}") };
            assert_eq!((new.form, new.digest), (blob_form, old.digest));
            let after = deployment.engine.read.head(&bucket, "v-2").await.expect("head").expect("exists");
            assert_eq!(after.facts.storage.form, form);
            assert_eq!(after.facts.storage.stored_bytes, new.stored_len);
            let visible = |info: &crate::ObjectInfo| {
                let facts = VersionFacts { storage: StorageFacts::default(), ..info.facts.clone() };
                (info.version.id, info.version.seq, info.version.modified_ms, info.version.size, facts)
            };
            assert_eq!(visible(&after), visible(&before));
            deployment.engine.collect(true).await.expect("collected");
            deployment.engine.drop_caches();
            assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
            assert_eq!(deployment.engine.catalog().blobs(&[old.id]).await.expect("read"), [], "the old blob is gone");
        }
    }
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_stays_in_its_compartment_when_it_is_encoded_anew() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let own = bucket.sharing(crate::Sharing::Writer("ann")).expect("shares");
    let v2 = two_versions(&deployment, &own).await;
    // Nearer than what its writer has, but of the whole bucket.
    deployment.put(&bucket, "v-3", &v2).await;
    let base = blob_of(&deployment, &own, "v-1").await;
    for (wish, form) in [(Wish::Whole, BlobForm::Whole), (Wish::Best, BlobForm::Delta)] {
        let old = blob_of(&deployment, &bucket, "v-2").await;
        let outcome = reencoder(&deployment).reencode(&bucket, &old, &reform(wish)).await.expect("rewritten");
        let Reformed::Moved(new) = outcome else { panic!("{outcome:?}") };
        assert_eq!((new.form, new.compartment), (form, own.compartment()));
    }
    let delta = blob_of(&deployment, &bucket, "v-2").await;
    assert_eq!(deployment.engine.catalog().bases_of(delta.id).await.expect("read"), [base.id]);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_rewriters_one_wins_and_the_other_leaves_nothing() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let v2 = two_versions(&deployment, &bucket).await;
    let old = blob_of(&deployment, &bucket, "v-2").await;
    let rewriting = || {
        let (reencoder, bucket, old) = (reencoder(&deployment).clone(), bucket.clone(), old.clone());
        tokio::spawn(async move { reencoder.reencode(&bucket, &old, &reform(Wish::Whole)).await.expect("no error") })
    };
    let outcomes = futures::future::join_all([rewriting(), rewriting(), rewriting()]).await;
    let moved = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Reformed::Moved(_)))).count();
    let unused = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Reformed::Unused))).count();
    assert_eq!((moved, unused), (1, 2), "{outcomes:?}");
    deployment.engine.collect(true).await.expect("collected");
    assert_eq!(deployment.blob_files().len(), 2);
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_and_copies_of_ranges_are_moved_over_together() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    let engine = &deployment.engine;
    let v2 = two_versions(&deployment, &bucket).await;
    let source = engine.read.open_object(&bucket, "v-2").await.expect("opened").expect("exists");
    engine
        .publisher
        .publish_copy(&bucket, "copy", &source, VersionFacts::default(), Precondition::None)
        .await
        .expect("copied");
    let upload =
        engine.uploads.create_upload(&bucket, "parts", "owner", VersionFacts::default()).await.expect("created");
    for (number, range) in [(1, 100..3 * MIB as u64), (2, 7..1_000_000)] {
        let part = PartName { key: "parts", upload, number };
        engine.publisher.publish_part_copy(&bucket, part, &source, range, PartFacts::default()).await.expect("copied");
    }
    let parts = engine.uploads.parts(&bucket, "parts", upload, 0, 10).await.expect("listed");
    let completion = crate::write::publish::Completion { upload, parts, parts_digest: [1; 32] };
    engine
        .publisher
        .complete(&bucket, "parts", completion, VersionFacts::default(), Precondition::None)
        .await
        .expect("completed");
    drop(source);
    let old = blob_of(&deployment, &bucket, "v-2").await;
    let outcome = reencoder(&deployment).reencode(&bucket, &old, &reform(Wish::Whole)).await.expect("rewritten");
    assert!(matches!(outcome, Reformed::Moved(_)), "{outcome:?}");
    engine.collect(true).await.expect("collected");
    engine.drop_caches();
    assert_eq!(engine.catalog().blobs(&[old.id]).await.expect("read"), []);
    assert!(deployment.get(&bucket, "copy", 0..v2.len()).await == v2);
    let parts: Vec<u8> = [&v2[100..3 * MIB], &v2[7..1_000_000]].concat();
    assert!(deployment.get(&bucket, "parts", 0..parts.len()).await == parts);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_replaced_or_deleted_meanwhile_stays_what_the_client_made_it() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let engine = &deployment.engine;
    for replaced in [true, false] {
        two_versions(&deployment, &bucket).await;
        let old = blob_of(&deployment, &bucket, "v-2").await;
        let stored = encoded_anew(&deployment, &bucket, &old, Wish::Whole).await;
        let newer = content(2 * MIB, 99);
        match replaced {
            true => drop(deployment.put(&bucket, "v-2", &newer).await),
            false => deployment.delete(&bucket, "v-2").await,
        }
        let FinishedContent { mut new_blobs, storage, .. } = stored;
        let new = new_blobs.pop().expect("one blob");
        let arrival = reencoder(&deployment)
            .move_over(&bucket, &old, new.row.clone(), Some((new, Some(storage))))
            .await
            .expect("no error");
        assert!(matches!(arrival, Arrival::Unused));
        match replaced {
            true => assert!(deployment.get(&bucket, "v-2", 0..newer.len()).await == newer),
            false => assert!(engine.read.open_object(&bucket, "v-2").await.expect("read").is_none()),
        }
        for key in ["v-1", "v-2"] {
            let _ = engine.changes.delete(&bucket, key, Precondition::None, None).await.expect("deleted");
        }
        engine.collect(true).await.expect("collected");
        assert_eq!(deployment.blob_files(), Vec::<std::path::PathBuf>::new());
    }
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_dies_before_the_first_swap_makes_the_content_whole() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let engine = &deployment.engine;
    let v1 = content(5 * MIB, 81);
    let v2 = edited(&v1, 82);
    deployment.put(&bucket, "v-1", &v1).await;
    let whole = bucket.with(|settings| settings.compression = Compression::Zstd);
    deployment.put(&whole, "v-2", &v2).await;
    let old = blob_of(&deployment, &bucket, "v-2").await;
    let stored = encoded_anew(&deployment, &bucket, &old, Wish::Best).await;
    deployment.delete(&bucket, "v-1").await;
    let FinishedContent { mut new_blobs, storage, held, .. } = stored;
    let new = new_blobs.pop().expect("one blob");
    assert_eq!(new.row.form, BlobForm::Delta);
    let arrival = reencoder(&deployment)
        .move_over(&bucket, &old, new.row.clone(), Some((new, Some(storage))))
        .await
        .expect("no error");
    assert!(matches!(arrival, Arrival::BaseGone));
    drop(held);
    engine.collect(true).await.expect("collected");
    assert_eq!(deployment.blob_files().len(), 1, "neither the base nor the delta that never came to be");
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_between_two_steps_loses_nothing_and_leaves_only_garbage() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    let v2 = two_versions(&deployment, &bucket).await;
    let engine = deployment.engine.clone();
    let old = blob_of(&deployment, &bucket, "v-2").await;
    // Once after the blob is durable, once while it is being written.
    drop(encoded_anew(&deployment, &bucket, &old, Wish::Whole).await);
    let user = reencoder(&deployment).user_of(&old).await.expect("read").expect("used");
    let half = reencoder(&deployment)
        .restage(&bucket, &old, &user, &reform(Wish::Whole), &mut OpenedText::default())
        .await
        .expect("staged");
    assert_eq!(deployment.blob_files().len(), 3);
    drop(half);
    let Deployment { engine: died, metrics: _, dir } = deployment;
    died.shutdown().await;
    drop((died, engine, bucket));
    let metrics = Metrics::new();
    let engine = crate::tests::open(config(dir.path(), 512 << 20), &metrics).await.expect("opens again");
    let deployment = Deployment { engine, metrics, dir };
    let bucket = deployment.bucket("sealed").await;
    let everything = CollectParameters { now: true, empty_trash: true, ..CollectParameters::default() };
    deployment.engine.collect_as(everything).await.expect("collected");
    assert_eq!(deployment.blob_files().len(), 2);
    assert_eq!(blob_of(&deployment, &bucket, "v-2").await.id, old.id);
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_source_is_rewritten_meanwhile_succeeds() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let engine = &deployment.engine;
    let v2 = two_versions(&deployment, &bucket).await;
    let source = engine.read.open_object(&bucket, "v-2").await.expect("opened").expect("exists");
    let old = blob_of(&deployment, &bucket, "v-2").await;
    reencoder(&deployment).reencode(&bucket, &old, &reform(Wish::Whole)).await.expect("rewritten");
    engine
        .publisher
        .publish_copy(&bucket, "copy", &source, VersionFacts::default(), Precondition::None)
        .await
        .expect("copied");
    let upload =
        engine.uploads.create_upload(&bucket, "part", "owner", VersionFacts::default()).await.expect("created");
    let part = PartName { key: "part", upload, number: 1 };
    engine
        .publisher
        .publish_part_copy(&bucket, part, &source, 0..MIB as u64, PartFacts::default())
        .await
        .expect("copied");
    assert!(deployment.get(&bucket, "copy", 0..v2.len()).await == v2);
    deployment.delete(&bucket, "v-2").await;
    let gone =
        engine.publisher.publish_copy(&bucket, "late", &source, VersionFacts::default(), Precondition::None).await;
    assert!(gone.is_ok() || matches!(gone, Err(EngineError::Conflict)), "{gone:?}");
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_encoded_anew_is_still_found_by_its_content() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    let v1 = content(5 * MIB, 95);
    deployment.put(&bucket, "builds/app.tar", &v1).await;
    let old = blob_of(&deployment, &bucket, "builds/app.tar").await;
    let outcome = reencoder(&deployment).reencode(&bucket, &old, &reform(Wish::Whole)).await.expect("rewritten");
    assert!(matches!(outcome, Reformed::Moved(_)), "{outcome:?}");
    deployment.engine.collect(true).await.expect("collected");
    deployment.engine.foundation.hooks.settle().await;
    let put = deployment.put(&bucket, "archive/nothing-alike.bin", &edited(&v1, 96)).await;
    assert_eq!((put.storage.form, put.storage.bases), (Form::Delta, vec!["builds/app.tar".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_content_is_not_encoded_anew() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("off").await;
    deployment.put(&bucket, "x", &content(MIB, 91)).await;
    let old = blob_of(&deployment, &bucket, "x").await;
    // A row that names other content: the chunks are good, the bytes are not those that were put.
    let lying = BlobRow { digest: Some([1; 32]), ..old.clone() };
    let outcome = reencoder(&deployment).reencode(&bucket, &lying, &reform(Wish::Whole)).await;
    assert!(matches!(outcome, Err(EngineError::Integrity(_))), "{outcome:?}");
    assert_eq!(blob_of(&deployment, &bucket, "x").await, old);
}

/// Words in an order of their own: what a compressor shrinks.
fn prose(len: usize, seed: u64) -> Vec<u8> {
    let words: Vec<Vec<u8>> =
        content(4000, seed).chunks(8).map(|word| word.iter().map(|byte| b'A' + (byte & 0x1f)).collect()).collect();
    let order = content(len / 4, seed + 1);
    let word = |pair: &[u8]| words[(usize::from(pair[0]) * 64 + usize::from(pair[1])) % words.len()].clone();
    order.chunks_exact(2).flat_map(|pair| [word(pair), b" ".to_vec()].concat()).collect()
}

/// A gzip stream as the tool itself writes it.
fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    std::io::Write::write_all(&mut file, plain).expect("written");
    let done = std::process::Command::new("gzip").args(["-6", "-n", "-c"]).arg(file.path()).output().expect("gzip");
    assert!(done.status.success());
    done.stdout
}

/// What the converter makes of a key that waited.
async fn converted(deployment: &Deployment, bucket: &BucketHandle, key: &str) -> BlobRow {
    let old = blob_of(deployment, bucket, key).await;
    let reform = Reform { occasion: Occasion::Deferred, regardless: false, ..reform(Wish::Best) };
    reencoder(deployment).reencode(bucket, &old, &reform).await.expect("looked at");
    blob_of(deployment, bucket, key).await
}

/// Archive or plain, in either direction, and never across the bounds of a domain.
#[tokio::test(flavor = "multi_thread")]
async fn content_of_another_name_is_found_by_the_text_of_streams() {
    let deployment = Deployment::start(512 << 20).await;
    let (first, second) = (prose(600_000, 301), edited(&prose(600_000, 301), 302));
    let others: Vec<Vec<u8>> = (0..4).map(|seed| gzip(&prose(600_000, 310 + 2 * seed))).collect();
    for name in ["delta", "sealed"] {
        let bucket = deployment.bucket(name).await;
        for (number, other) in others.iter().enumerate() {
            let key = format!("{number}/other");
            deployment.put(&bucket, &key, other).await;
            assert_eq!(converted(&deployment, &bucket, &key).await.form, BlobForm::Whole);
        }
        deployment.put(&bucket, "a/8f3a2c", &gzip(&first)).await;
        let base = converted(&deployment, &bucket, "a/8f3a2c").await;
        assert_eq!(base.form, BlobForm::Whole, "{name}: what other domains have is no base");
        for (key, body) in [("nightly/77aa01", gzip(&second)), ("trees/here", second.clone())] {
            assert_eq!(deployment.put(&bucket, key, &body).await.storage.bases, Vec::<String>::new());
            let view = converted(&deployment, &bucket, key).await;
            assert_eq!(deployment.engine.catalog().bases_of(view.id).await.expect("read"), [base.id], "{name} {key}");
            assert!(view.stored_len < body.len() as u64 / 10, "{name} {key}: {} of {}", view.stored_len, body.len());
            assert!(deployment.get(&bucket, key, 0..body.len()).await == body);
            let middle = body.len() / 2..body.len() / 2 + 1000;
            assert!(deployment.get(&bucket, key, middle.clone()).await == body[middle]);
        }
    }
    assert_sound(&deployment).await;
}

/// Whoever encodes it anew as a whole: what was a delta has no hooks.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_made_whole_is_found_by_its_text() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let first = prose(600_000, 321);
    let second = edited(&first, 322);
    deployment.put(&bucket, "a/first", &gzip(&first)).await;
    converted(&deployment, &bucket, "a/first").await;
    deployment.put(&bucket, "b/second", &gzip(&second)).await;
    let view = converted(&deployment, &bucket, "b/second").await;
    assert_eq!(view.form, BlobForm::Delta);
    let outcome = reencoder(&deployment).reencode(&bucket, &view, &reform(Wish::Whole)).await.expect("made whole");
    assert!(matches!(outcome, Reformed::Moved(_)), "{outcome:?}");
    deployment.delete(&bucket, "a/first").await;
    deployment.engine.collect(true).await.expect("collected");
    deployment.put(&bucket, "trees/here", &edited(&second, 323)).await;
    converted(&deployment, &bucket, "trees/here").await;
    let (new, base) =
        (blob_of(&deployment, &bucket, "trees/here").await, blob_of(&deployment, &bucket, "b/second").await);
    assert_eq!(deployment.engine.catalog().bases_of(new.id).await.expect("read"), [base.id]);
    assert_sound(&deployment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_is_a_base_is_found_by_its_text_though_it_stays_as_it_is() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let first = prose(600_000, 331);
    deployment.put(&bucket, "app/1.0", &gzip(&first)).await;
    let base = blob_of(&deployment, &bucket, "app/1.0").await;
    // By its name; nobody has opened it yet.
    deployment.put(&bucket, "app/1.1", &gzip(&edited(&first, 332))).await;
    assert_eq!(converted(&deployment, &bucket, "app/1.1").await.form, BlobForm::Delta);
    assert_eq!(converted(&deployment, &bucket, "app/1.0").await.id, base.id);
    deployment.put(&bucket, "trees/here", &edited(&first, 333)).await;
    let view = converted(&deployment, &bucket, "trees/here").await;
    assert_eq!(deployment.engine.catalog().bases_of(view.id).await.expect("read"), [base.id]);
}

/// A plain base that does as well is read with less work.
#[tokio::test(flavor = "multi_thread")]
async fn plain_content_differs_from_a_plain_base_rather_than_from_an_archive() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("delta").await;
    let first = prose(600_000, 341);
    deployment.put(&bucket, "a/first", &gzip(&first)).await;
    converted(&deployment, &bucket, "a/first").await;
    let wish = Wish::Whole;
    deployment.put(&bucket, "trees/1", &first).await;
    let plain = blob_of(&deployment, &bucket, "trees/1").await;
    reencoder(&deployment).reencode(&bucket, &plain, &reform(wish)).await.expect("whole");
    let plain = blob_of(&deployment, &bucket, "trees/1").await;
    deployment.put(&bucket, "trees/2", &edited(&first, 342)).await;
    let delta = converted(&deployment, &bucket, "trees/2").await;
    assert_eq!(deployment.engine.catalog().bases_of(delta.id).await.expect("read"), [plain.id]);
}
