//! When the converter works, and when it leaves things as they are.

use super::*;
use crate::{
    bucket::BucketHandle,
    config::{EffortSetting, EngineConfig},
    facts::Form,
    registry,
    tests::{Deployment, MIB, config, content, edited},
};
use serde_json::{Value, json};
use std::time::Duration;

pub(super) async fn start(change: impl Fn(&mut EngineConfig)) -> Deployment {
    let mut configured = config(std::path::Path::new("."), 512 << 20);
    configured.convert.defer = true;
    change(&mut configured);
    let convert = configured.convert.clone();
    // Each test says when the converter runs: on a busy machine it would begin between two uploads.
    let quiet = |config: &mut EngineConfig| (config.convert, config.schedule_jobs) = (convert, false);
    Deployment::with_jobs(registry::all, quiet).await
}

/// Two versions in a bucket of high effort: both wait to be encoded better.
async fn two_that_wait(deployment: &Deployment) -> (BucketHandle, Vec<u8>) {
    let bucket = deployment.bucket("delta").await.with(|settings| settings.effort = EffortSetting::High);
    let v1 = content(3 * MIB, 51);
    let v2 = edited(&v1, 52);
    deployment.put(&bucket, "v-1", &v1).await;
    deployment.put(&bucket, "v-2", &v2).await;
    assert_eq!(waiting(deployment).await, 2);
    (bucket, v2)
}

async fn waiting(deployment: &Deployment) -> u64 {
    deployment.engine.catalog().deferred_sum().await.expect("read").blobs
}

pub(super) async fn run(deployment: &Deployment, parameters: Value) -> Value {
    deployment.engine.jobs.run_job("converter", parameters).await.expect("ran")
}

/// Why each blob of an object was encoded anew, those that were.
fn occasions(explained: &Value) -> Vec<Vec<&str>> {
    let blobs = explained["blobs"].as_array().into_iter().flatten();
    blobs
        .map(|blob| {
            blob["conversions"].as_array().into_iter().flatten().filter_map(|one| one["occasion"].as_str()).collect()
        })
        .filter(|occasions: &Vec<&str>| !occasions.is_empty())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_done_when_somebody_waits_for_it() {
    let deployment = start(|_| {}).await;
    let (bucket, v2) = two_that_wait(&deployment).await;
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    assert_eq!(waiting(&deployment).await, 0);
    let metrics = &deployment.metrics;
    assert_eq!(metrics.deferred_blobs.get(), 0);
    let looked_at: u64 = ["converted", "kept"]
        .map(|result| metrics.convert_blobs_total.with_label_values(&["deferred", result]).get())
        .iter()
        .sum();
    assert_eq!(looked_at, 2);
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_meets_a_saturated_pool_is_stored_without_a_base_and_encoded_later() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(3 * MIB, 55);
    let v2 = edited(&v1, 56);
    deployment.put(&bucket, "v-1", &v1).await;
    // Jobs that waited long, and then both threads taken: what a burst leaves behind.
    let pool = deployment.engine.foundation.pool.clone();
    let occupy = || {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        for _ in 0..pool.threads() {
            let (pool, held) = (pool.clone(), held.clone());
            tokio::spawn(async move { pool.run(move |_| held.lock().is_ok_and(|held| held.recv().is_err())).await });
        }
        release
    };
    let taken = occupy();
    while pool.busy() < pool.threads() {
        tokio::task::yield_now().await;
    }
    let late: Vec<_> = (0..64)
        .map(|_| {
            tokio::spawn({
                let pool = pool.clone();
                async move { pool.run(|_| ()).await }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    drop(taken);
    futures::future::join_all(late).await;
    let taken = occupy();
    while pool.busy() < pool.threads() {
        tokio::task::yield_now().await;
    }
    assert!(pool.queue_time() > Duration::from_millis(800), "{:?}", pool.queue_time());
    let staging = deployment.stage(&bucket, crate::Destination::Object { key: "v-2".into() }, &v2);
    let (staged, ()) = futures::join!(staging, async {
        while deployment.metrics.effort_level.get() != 0.0 {
            tokio::task::yield_now().await;
        }
        drop(taken);
    });
    let facts = crate::facts::VersionFacts::default();
    let published =
        deployment.engine.publisher.publish(&bucket, "v-2", staged, facts, catalog::Precondition::None).await;
    let storage = published.expect("published").storage;
    assert_eq!((storage.form, storage.reason.as_str()), (Form::Zstd, "deferred"));
    assert_eq!(waiting(&deployment).await, 1);
    run(&deployment, json!({ "now": true })).await;
    let head = deployment.engine.read.head(&bucket, "v-2").await.expect("head").expect("exists");
    assert_eq!(head.facts.storage.form, Form::Delta);
    assert!(head.facts.storage.stored_bytes < storage.stored_bytes / 10);
    assert_eq!(waiting(&deployment).await, 0);
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_cores_are_busy_only_what_has_waited_too_long_is_done() {
    for (defer_age_max, left) in [(Duration::from_secs(3600), 2), (Duration::ZERO, 0)] {
        let deployment = start(|config| config.convert.defer_age_max = defer_age_max).await;
        two_that_wait(&deployment).await;
        let (release, held) = std::sync::mpsc::channel::<()>();
        let engine = deployment.engine.clone();
        // Not by the pool's count: another job may be what it counts.
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let hold = move || begun.send(()).is_ok() && held.recv().is_err();
        let busy = tokio::spawn(async move { engine.foundation.pool.run(move |_| hold()).await });
        has_begun.await.expect("a thread took the job");
        run(&deployment, Value::Null).await;
        assert_eq!(waiting(&deployment).await, left, "after {defer_age_max:?}");
        run(&deployment, json!({ "now": true })).await;
        assert_eq!(waiting(&deployment).await, 0);
        drop(release);
        assert!(busy.await.expect("no panic").expect("ran"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_room_leaves_content_as_it_is() {
    let deployment = start(|config| config.convert.free_bytes_min = u64::MAX).await;
    let (bucket, v2) = two_that_wait(&deployment).await;
    let report = run(&deployment, json!({ "now": true })).await;
    assert_eq!((&report["without_room"], waiting(&deployment).await), (&json!(2), 2));
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
    let order = deployment.engine.jobs.run_job("convert", json!({ "bucket": "delta", "compression": "off" })).await;
    assert!(matches!(order, Err(EngineError::Full)), "{order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_blob_stays_in_the_queue_and_does_not_stop_the_others() {
    let deployment = start(|_| {}).await;
    two_that_wait(&deployment).await;
    let current = deployment.engine.catalog().content(deployment.bucket("delta").await.row.id, "v-2").await;
    let row = current.expect("read").expect("exists").blobs.remove(0);
    deployment.damage(&row);
    let report = run(&deployment, json!({ "now": true })).await;
    assert_eq!((&report["failed"], waiting(&deployment).await), (&json!(1), 1), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_is_kept_for_one_delta_is_let_go_of_and_one_that_saves_much_is_not() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("sealed").await;
    for (series, deltas) in [("few", 1), ("many", 6)] {
        let base = content(2 * MIB, 53 + deltas);
        deployment.put(&bucket, &format!("{series}/v-0"), &base).await;
        for number in 1..=deltas {
            let put = deployment.put(&bucket, &format!("{series}/v-{number}"), &edited(&base, number)).await;
            assert_eq!(put.storage.form, Form::Delta);
        }
        deployment.delete(&bucket, &format!("{series}/v-0")).await;
    }
    let kept = async || deployment.engine.catalog().kept_bases(None, 10).await.expect("read").len();
    assert_eq!(kept().await, 2);
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    deployment.engine.collect(true).await.expect("collected");
    assert_eq!(kept().await, 1);
    let head = deployment.engine.read.head(&bucket, "few/v-1").await.expect("head").expect("exists");
    assert_ne!(head.facts.storage.form, Form::Delta);
    let base = content(2 * MIB, 54);
    let v1 = edited(&base, 1);
    assert!(deployment.get(&bucket, "few/v-1", 0..v1.len()).await == v1);
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

/// A delta in 24 parts, read often in ranges that are shorter than a part.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_often_in_ranges_grows_by_a_twentieth_of_what_deltas_save_at_most_and_comes_back() {
    const PART: usize = 320 << 10;
    let hot = |config: &mut EngineConfig| {
        config.convert.defer = false;
        config.convert.hot_reads = 4;
        config.convert.merge_extents = 0;
    };
    let deployment = start(hot).await;
    let bucket = deployment.bucket("delta").await;
    let v1 = content(24 * PART, 57);
    let v2 = edited(&v1, 58)[..24 * PART].to_vec();
    deployment.put_in_parts(&bucket, "v-1", &v1, PART).await;
    deployment.put_in_parts(&bucket, "v-2", &v2, PART).await;
    let sums = async |deployment: &Deployment| {
        let stats = deployment.engine.catalog().stats().await.expect("read");
        let bucket = stats.iter().find(|stats| stats.name == "delta").expect("it is there").clone();
        (bucket.whole_bytes + bucket.delta_bytes, bucket.forms.delta_plain - bucket.forms.delta_stored)
    };
    let download = async |deployment: &Deployment, bucket: &BucketHandle, times: usize| {
        for _ in 0..times {
            for start in (0..v2.len()).step_by(128 << 10) {
                let end = v2.len().min(start + (128 << 10));
                assert!(deployment.get(bucket, "v-2", start..end).await == v2[start..end]);
            }
        }
    };
    let (before, saved) = sums(&deployment).await;
    assert!(saved > 23 * PART as u64, "{saved}");
    download(&deployment, &bucket, 1).await;
    run(&deployment, json!({ "now": true })).await;
    assert_eq!(sums(&deployment).await.0, before, "once is not often");
    let looks = &deployment.engine.foundation.looks;
    looks.note_saved(0, tokio::time::Instant::now() - Duration::from_secs(10), 0);
    download(&deployment, &bucket, 6).await;
    run(&deployment, json!({ "now": true })).await;
    assert_eq!(sums(&deployment).await.0, before, "a count that took long is not made again so soon");
    looks.note_saved(0, tokio::time::Instant::now(), 0);
    download(&deployment, &bucket, 6).await;
    let report = run(&deployment, json!({ "now": true })).await;
    deployment.engine.collect(true).await.expect("collected");
    let (after, _) = sums(&deployment).await;
    assert_eq!(report["converted"]["hot"]["blobs"], 1, "{report}");
    assert!(after > before && after - before <= saved / 20, "{before} became {after}, and {saved} were saved");
    let explained = deployment.engine.reports.explain("delta", "v-2", None).await.expect("explained").expect("exists");
    let blobs = explained["blobs"].as_array().expect("a list").iter();
    assert_eq!(blobs.filter(|blob| blob["hot_bytes"] != 0).count(), 1, "{explained:#}");
    assert_eq!(occasions(&explained), [["hot"]], "{explained:#}");

    // The account is the store's, not the process's.
    let dir = deployment.stop().await;
    let deployment = Deployment::reopened(dir, registry::all, hot).await;
    let bucket = deployment.bucket("delta").await;
    download(&deployment, &bucket, 6).await;
    run(&deployment, json!({ "now": true })).await;
    deployment.engine.collect(true).await.expect("collected");
    assert_eq!(sums(&deployment).await.0, after);

    deployment.engine.foundation.heat.pass(Duration::from_secs(3600));
    let report = run(&deployment, json!({ "now": true })).await;
    assert_eq!(report["converted"]["cooled"]["blobs"], 1, "{report}");
    deployment.engine.collect(true).await.expect("collected");
    let explained = deployment.engine.reports.explain("delta", "v-2", None).await.expect("explained").expect("exists");
    assert_eq!(occasions(&explained), [["hot", "cooled"]], "the manifest outlives the process: {explained:#}");
    let (cold, _) = sums(&deployment).await;
    assert!(cold <= before + before / 100, "{before} became {after} and then {cold}");
    assert_eq!(deployment.engine.catalog().heat_sum().await.expect("read"), 0);
    download(&deployment, &bucket, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_finds_no_memory_for_a_window_is_encoded_later() {
    const LEN: usize = 16 * MIB;
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await.with(|settings| settings.effort = EffortSetting::Balanced);
    let v1 = content(LEN, 71);
    let v2 = edited(&v1, 72);
    deployment.put(&bucket, "v-1", &v1).await;
    deployment.engine.foundation.bases.windows().drop_idle();
    let budget = &deployment.engine.foundation.budget;
    let mut others: Vec<_> = std::iter::from_fn(|| budget.try_acquire(MIB as u64)).collect();
    others.truncate(others.len() - 12);
    let put = deployment.put(&bucket, "v-2", &v2).await;
    assert_eq!((put.storage.form, put.storage.reason.as_str()), (Form::Zstd, "busy"));
    assert_eq!(waiting(&deployment).await, 1);
    drop(others);
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    let head = deployment.engine.read.head(&bucket, "v-2").await.expect("head").expect("exists");
    assert_eq!(head.facts.storage.form, Form::Delta);
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_finds_no_memory_in_the_converter_either_waits_until_there_is_some() {
    const LEN: usize = 16 * MIB;
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await.with(|settings| settings.effort = EffortSetting::Balanced);
    let v1 = content(LEN, 73);
    let v2 = edited(&v1, 74);
    deployment.put(&bucket, "v-1", &v1).await;
    deployment.engine.foundation.bases.windows().drop_idle();
    let budget = &deployment.engine.foundation.budget;
    let mut others: Vec<_> = std::iter::from_fn(|| budget.try_acquire(MIB as u64)).collect();
    // Enough to read and encode it, and not for a window over its base.
    others.truncate(others.len() - 18);
    let put = deployment.put(&bucket, "v-2", &v2).await;
    assert_eq!(put.storage.reason.as_str(), "busy");
    for tried in 1..=2 {
        let report = run(&deployment, json!({ "now": true })).await;
        assert_eq!((&report["without_memory"], &report["kept"]), (&json!(1), &json!(0)), "{report}");
        let busy = deployment.metrics.convert_blobs_total.with_label_values(&["deferred", "busy"]).get();
        assert_eq!((busy, waiting(&deployment).await), (tried, 1));
    }
    assert_eq!(deployment.engine.workers.converter.backlog().await.expect("counted"), 0, "nobody waits for it");
    assert_eq!(run(&deployment, json!({})).await["without_memory"], 0, "it is too soon to try it again");
    drop(others);
    run(&deployment, json!({ "now": true })).await;
    assert_eq!(waiting(&deployment).await, 0);
    let head = deployment.engine.read.head(&bucket, "v-2").await.expect("head").expect("exists");
    assert_eq!(head.facts.storage.form, Form::Delta);
    assert!(deployment.get(&bucket, "v-2", 0..v2.len()).await == v2);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_deleted_while_it_waits_for_memory_keeps_nothing_else_from_its_turn() {
    const LEN: usize = 16 * MIB;
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await.with(|settings| settings.effort = EffortSetting::Balanced);
    let v1 = content(LEN, 75);
    deployment.put(&bucket, "v-1", &v1).await;
    deployment.engine.foundation.bases.windows().drop_idle();
    let budget = &deployment.engine.foundation.budget;
    let mut others: Vec<_> = std::iter::from_fn(|| budget.try_acquire(MIB as u64)).collect();
    others.truncate(others.len() - 18);
    deployment.put(&bucket, "v-2", &edited(&v1, 76)).await;
    assert_eq!(run(&deployment, json!({ "now": true })).await["without_memory"], 1);
    deployment.delete(&bucket, "v-2").await;
    let put = deployment.put(&bucket, "v-3", &edited(&v1, 77)).await;
    assert_eq!((put.storage.reason.as_str(), waiting(&deployment).await), ("busy", 1));
    assert_eq!(deployment.engine.workers.converter.backlog().await.expect("counted"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_versions_uploaded_side_by_side_one_stays_whole_and_the_others_differ_from_it() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await;
    let mut versions = vec![content(MIB, 61)];
    for number in 1..6 {
        versions.push(edited(&versions[number - 1], number as u64));
    }
    let staged = (0..).zip(&versions).map(|(number, version)| {
        let key = format!("release-{number}");
        let (deployment, bucket) = (&deployment, &bucket);
        async move { (deployment.stage(bucket, crate::Destination::Object { key: key.clone() }, version).await, key) }
    });
    let staged = futures::future::join_all(staged).await;
    let mut whole_bytes = 0;
    for (staged, key) in staged {
        let facts = crate::facts::VersionFacts::default();
        let none = catalog::Precondition::None;
        let published = deployment.engine.publisher.publish(&bucket, &key, staged, facts, none).await;
        let storage = published.expect("published").storage;
        assert_eq!(storage.form, Form::Zstd, "none of them could find another");
        whole_bytes += storage.stored_bytes;
    }
    assert_eq!(waiting(&deployment).await, 5, "all but the one that ended first");
    assert!(deployment.engine.jobs.settle(Duration::from_secs(60)).await.expect("settled"));
    let (mut deltas, mut stored) = (0, 0);
    for (number, version) in (0..).zip(&versions) {
        let key = format!("release-{number}");
        let head = deployment.engine.read.head(&bucket, &key).await.expect("head").expect("exists");
        deltas += usize::from(head.facts.storage.form == Form::Delta);
        stored += head.facts.storage.stored_bytes;
        assert!(deployment.get(&bucket, &key, 0..version.len()).await == *version);
    }
    assert_eq!(deltas, 5);
    assert!(stored < whole_bytes / 4, "{stored} of {whole_bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drifting_series_gets_bases_on_the_way_and_what_lies_between_two_differs_from_both() {
    const VERSIONS: usize = 70;
    const LEN: usize = 256 << 10;
    let deployment = start(|_| {}).await;
    // Under load, what is deferred would find both bases by itself.
    let bucket = deployment.bucket("delta").await.with(|settings| settings.effort = EffortSetting::Balanced);
    let mut version = content(LEN, 62);
    let noise = content(VERSIONS * 40 * 24, 63);
    let mut noise = noise.chunks_exact(24);
    let (mut versions, mut on_arrival, mut wholes) = (Vec::new(), 0, 0);
    for number in 0..VERSIONS {
        let put = deployment.put(&bucket, &format!("series/{number:04}"), &version).await;
        on_arrival += put.storage.stored_bytes;
        wholes += usize::from(put.storage.form != Form::Delta);
        versions.push(version.clone());
        for change in noise.by_ref().take(40) {
            let (at, bytes) = change.split_at(8);
            let at = at.iter().fold(0, |sum, byte| sum * 61 + usize::from(*byte)) % (LEN - 16);
            version[at..at + 16].copy_from_slice(bytes);
        }
    }
    assert!((2..=6).contains(&wholes), "{wholes} of {VERSIONS} are whole");
    assert!(deployment.engine.jobs.settle(Duration::from_secs(120)).await.expect("settled"));
    let converted = deployment.metrics.convert_blobs_total.with_label_values(&["between", "converted"]).get();
    assert!(converted > 20, "what is nearer to the later base differs from that: {converted}");
    let mut stored = 0;
    for (number, version) in versions.iter().enumerate() {
        let key = format!("series/{number:04}");
        let head = deployment.engine.read.head(&bucket, &key).await.expect("head").expect("exists");
        stored += head.facts.storage.stored_bytes;
        assert!(deployment.get(&bucket, &key, 0..LEN).await == *version, "{key}");
    }
    assert!(stored < on_arrival, "{stored} of {on_arrival}");
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
}

/// Versions of 6 MiB whose first 4 are the same in all; `own` gives the rest of each.
async fn series_apart(deployment: &Deployment, own: impl Fn(u64) -> Vec<u8>) -> (BucketHandle, Vec<Vec<u8>>, usize) {
    let bucket = deployment.bucket("delta").await.with(|settings| settings.effort = EffortSetting::Balanced);
    let shared = content(4 * MIB, 91);
    deployment.put(&bucket, "series/00", &[shared.clone(), content(2 * MIB, 92)].concat()).await;
    let (mut versions, mut wholes) = (Vec::new(), 0);
    for number in 1..=12 {
        let version = [shared.clone(), own(number)].concat();
        let put = deployment.put(&bucket, &format!("series/{number:02}"), &version).await;
        wholes += usize::from(put.storage.form != Form::Delta);
        versions.push(version);
    }
    assert!(deployment.engine.jobs.settle(Duration::from_secs(120)).await.expect("settled"));
    for (number, version) in (1..).zip(&versions) {
        assert!(deployment.get(&bucket, &format!("series/{number:02}"), 0..version.len()).await == *version);
    }
    assert_eq!(deployment.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
    (bucket, versions, wholes)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_whose_content_changes_to_and_fro_gets_one_more_base_at_most() {
    let deployment = start(|_| {}).await;
    let bucket = deployment.bucket("delta").await.with(|settings| settings.effort = EffortSetting::Balanced);
    let (shared, ends) = (content(4 * MIB, 91), [92, 95].map(|seed| content(2 * MIB, seed)));
    deployment.put(&bucket, "kept", &[shared.clone(), ends[0].clone()].concat()).await;
    let mut wholes = 0;
    for number in 0..24 {
        let version = [shared.clone(), ends[number % 2].clone(), content(64, 101 + number as u64)].concat();
        let put = deployment.put(&bucket, "overwritten", &version).await;
        wholes += usize::from(put.storage.form != Form::Delta);
    }
    assert!(wholes <= 1, "{wholes} of 24");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_only_deltas_of_a_series_hold_gets_a_base_and_is_stored_once() {
    let deployment = start(|_| {}).await;
    let (bucket, versions, wholes) =
        series_apart(&deployment, |number| [content(2 * MIB, 95), content(64, 95 + 2 * number)].concat()).await;
    assert_eq!(wholes, 1, "of {} versions", versions.len());
    for number in 1..=versions.len() {
        let key = format!("series/{number:02}");
        let head = deployment.engine.read.head(&bucket, &key).await.expect("head").expect("exists");
        let storage = head.facts.storage;
        assert!(storage.form != Form::Delta || storage.stored_bytes < 64 << 10, "{key}: {storage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_that_another_base_does_not_help_gets_one_more_and_no_third() {
    let deployment = start(|_| {}).await;
    let (_, _, wholes) = series_apart(&deployment, |number| content(2 * MIB, 101 + 2 * number)).await;
    assert_eq!(wholes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_series_whose_versions_change_to_and_fro_keeps_its_base() {
    let deployment = start(|_| {}).await;
    let ends = [92, 95].map(|seed| content(2 * MIB, seed));
    let own = |number: u64| [ends[number as usize % 2].clone(), content(64, 101 + 2 * number)].concat();
    let (_, _, wholes) = series_apart(&deployment, own).await;
    assert_eq!(wholes, 0);
}
