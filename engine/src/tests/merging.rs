//! Two histories of one catalog are joined: nothing that either has is lost, and neither old
//! catalog writes again.

use super::{
    collecting::{copy_of_catalog, recovery},
    forks::{copy_data, over, split},
    rot::files_below,
    *,
};
use catalog::{BucketId, Versioning};
use std::path::PathBuf;

const HOUR: Duration = Duration::from_secs(3600);

fn bytes(seed: u64) -> Vec<u8> {
    content(9000, 2 * seed + 1)
}

/// A data directory with the keys and the forked catalog of another, and no catalog of its own.
fn beside(forked: &Path) -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a directory");
    copy_data(forked, dir.path());
    let aside = dir.path().join("forked.sqlite");
    for suffix in ["", "-wal"] {
        let from = dir.path().join(format!("catalog.sqlite{suffix}"));
        if from.exists() {
            std::fs::rename(from, dir.path().join(format!("forked.sqlite{suffix}"))).expect("moved");
        }
    }
    (dir, aside)
}

async fn merge(dir: &Path, aside: &Path, blobs: &Path) -> Result<RecoveryReport, EngineError> {
    let metrics = Metrics::new();
    let fork = SqliteCatalog::open(aside, SqliteOptions::default()).await?;
    let options = RecoveryOptions { fork: Some(Fork(Arc::new(fork))), ..recovery(false, true) };
    let stores = async {
        let mut stores = stores(dir, &metrics).await?;
        let local = LocalBackend::open(blobs.to_owned(), LocalOptions::default()).await?;
        stores.backends.insert("local".into(), Arc::new(local));
        Ok(stores)
    };
    recover(config(dir, 512 << 20), stores, &options, metrics.clone(), &|_, _| {}).await
}

async fn assert_holds(merged: &super::Deployment, bucket: &str, key: &str, seed: u64) {
    let bucket = merged.bucket(bucket).await;
    assert!(merged.get(&bucket, key, 0..9000).await == bytes(seed), "{key}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_keeps_what_either_side_wrote_and_the_later_write_of_a_key_is_current() {
    for name in ["off", "sealed"] {
        let (blobs, primary, standby) = split(HOUR, name, &["kept", "gone", "revived"]).await;
        let (theirs, mine) = (primary.bucket(name).await, standby.bucket(name).await);
        primary.put(&theirs, "late-here", &bytes(100)).await;
        for number in 0..40 {
            primary.put(&theirs, &format!("lost-{number}"), &bytes(200 + number)).await;
        }
        primary.put(&theirs, "late-there", &bytes(101)).await;
        primary.put(&theirs, "kept", &bytes(102)).await;
        primary.delete(&theirs, "gone").await;
        primary.delete(&theirs, "revived").await;
        standby.put(&mine, "late-there", &bytes(110)).await;
        standby.delete(&mine, "kept").await;
        standby.put(&mine, "revived", &bytes(111)).await;
        for number in 0..45 {
            standby.put(&mine, &format!("mine-{number}"), &bytes(300 + number)).await;
        }
        standby.put(&mine, "late-here", &bytes(112)).await;
        primary.engine.ship_journal().await.expect("shipped");
        let (primary, standby) = (primary.stop().await, standby.stop().await);

        let (dir, aside) = beside(standby.path());
        // One that was interrupted before leaves a catalog that is being filled.
        let metrics = Metrics::new();
        open_catalog(dir.path(), &metrics).await.expect("opens").begin_import().await.expect("begun");
        let report = merge(dir.path(), &aside, blobs.path()).await.expect("merged");
        let merged = report.merged.clone().expect("it was a fork");
        assert_eq!((merged.buckets[name].store, merged.buckets[name].catalog), (43, 48), "{merged:?}");
        assert_eq!((merged.deletions_left_out, merged.left_out.len()), (1, 0), "{merged:?}");
        let conflicts: Vec<_> = merged
            .conflicts
            .iter()
            .map(|found| (found.key.as_str(), found.current, found.other_key.as_str()))
            .collect();
        let expected = [
            ("late-here", Side::Catalog, "deltaweir-recovered/late-here"),
            ("late-there", Side::Store, "deltaweir-recovered/late-there"),
        ];
        assert_eq!(conflicts, expected);
        assert_eq!(report.objects, 2 + 40 + 45 + 2 + 2, "{report:?}");

        let joined = over(dir, blobs.path().into(), HOUR).await.expect("it is the store's catalog");
        for number in 0..40 {
            assert_holds(&joined, name, &format!("lost-{number}"), 200 + number).await;
        }
        for number in 0..45 {
            assert_holds(&joined, name, &format!("mine-{number}"), 300 + number).await;
        }
        for (key, seed) in [
            ("late-here", 112),
            ("deltaweir-recovered/late-here", 100),
            ("late-there", 101),
            ("deltaweir-recovered/late-there", 110),
            ("kept", 102),
            ("revived", 111),
        ] {
            assert_holds(&joined, name, key, seed).await;
        }
        let bucket = joined.bucket(name).await;
        assert!(joined.engine.read.open_object(&bucket, "gone").await.expect("asked").is_none());
        joined.put(&bucket, "after", &bytes(400)).await;
        joined.engine.ship_journal().await.expect("shipped");
        assert_eq!(joined.engine.catalog().check().await.expect("checked"), Vec::<String>::new());
        joined.engine.collect(true).await.expect("collected");
        assert_holds(&joined, name, "deltaweir-recovered/late-there", 110).await;
        joined.stop().await;
        for old in [primary, standby] {
            let why = over(old, blobs.path().into(), HOUR).await.err().expect("refused").to_string();
            assert!(why.contains("gone on as"), "{why}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_of_a_key_stay_where_its_bucket_keeps_versions() {
    let (blobs, primary, standby) = split(HOUR, "off", &["a", "b"]).await;
    let id: BucketId = primary.bucket("off").await.row.id;
    let mut written = Vec::new();
    for side in [&primary, &standby] {
        side.engine.catalog().set_versioning(id, Versioning::Enabled).await.expect("set");
    }
    let (theirs, mine) = (primary.bucket("off").await, standby.bucket("off").await);
    written.push(("a", standby.put(&mine, "a", &bytes(10)).await.version_id));
    written.push(("b", primary.put(&theirs, "b", &bytes(11)).await.version_id));
    written.push(("a", primary.put(&theirs, "a", &bytes(12)).await.version_id));
    written.push(("b", standby.put(&mine, "b", &bytes(13)).await.version_id));
    primary.engine.ship_journal().await.expect("shipped");
    let (_primary, standby) = (primary.stop().await, standby.stop().await);
    let (dir, aside) = beside(standby.path());
    let report = merge(dir.path(), &aside, blobs.path()).await.expect("merged");
    let current: Vec<_> = report.merged.expect("a fork").conflicts.iter().map(|found| found.current).collect();
    assert_eq!(current, [Side::Store, Side::Catalog]);
    let joined = over(dir, blobs.path().into(), HOUR).await.expect("opens");
    for (key, version) in written {
        let found = joined.engine.catalog().version(id, key, version).await.expect("asked");
        assert!(found.is_some(), "{key}");
    }
    assert_holds(&joined, "off", "a", 12).await;
    assert_holds(&joined, "off", "b", 13).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_write_of_the_catalog_stands_on_lives_again_though_the_store_let_it_die() {
    for name in ["delta", "sealed"] {
        let (blobs, primary, standby) = split(HOUR, name, &["base", "twin"]).await;
        let (theirs, mine) = (primary.bucket(name).await, standby.bucket(name).await);
        let base = content(9000, 1);
        let near = edited(&base, 7);
        standby.put(&mine, "near", &near).await;
        standby.put(&mine, "same", &base).await;
        for key in ["base", "twin"] {
            primary.delete(&theirs, key).await;
        }
        primary.engine.ship_journal().await.expect("shipped");
        let (_primary, standby) = (primary.stop().await, standby.stop().await);
        let (dir, aside) = beside(standby.path());
        let merged = merge(dir.path(), &aside, blobs.path()).await.expect("merged").merged.expect("a fork");
        assert_eq!(merged.left_out, [], "{name}");
        let joined = over(dir, blobs.path().into(), HOUR).await.expect("opens");
        joined.engine.collect(true).await.expect("collected");
        let bucket = joined.bucket(name).await;
        assert!(joined.get(&bucket, "near", 0..near.len()).await == near, "{name}");
        assert!(joined.get(&bucket, "same", 0..9000).await == base, "{name}");
        for key in ["base", "twin"] {
            assert!(joined.engine.read.open_object(&bucket, key).await.expect("asked").is_none(), "{key}");
        }
        let rows = joined.engine.catalog();
        let objects: u64 = rows.stats().await.expect("stats").iter().map(|bucket| bucket.objects).sum();
        assert_eq!(objects, 2, "nothing is left of what held them");
        assert_eq!(rows.check().await.expect("checked"), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_whose_blobs_are_gone_from_the_store_names_what_is_lost_and_keeps_the_rest() {
    let (blobs, primary, standby) = split(HOUR, "off", &["before"]).await;
    let (theirs, mine) = (primary.bucket("off").await, standby.bucket("off").await);
    primary.put(&theirs, "theirs", &bytes(10)).await;
    let before = files_below(blobs.path());
    standby.put(&mine, "gone", &bytes(11)).await;
    for file in files_below(blobs.path()).into_iter().filter(|file| !before.contains(file)) {
        std::fs::remove_file(file).expect("removed");
    }
    standby.put(&mine, "there", &bytes(12)).await;
    primary.engine.ship_journal().await.expect("shipped");
    let (_primary, standby) = (primary.stop().await, standby.stop().await);
    let (dir, aside) = beside(standby.path());
    let merged = merge(dir.path(), &aside, blobs.path()).await.expect("merged").merged.expect("a fork");
    let left_out: Vec<_> = merged.left_out.iter().map(|lost| (lost.key.as_deref(), lost.why.clone())).collect();
    assert!(matches!(&left_out[..], [(Some("gone"), why)] if why.contains("its bytes are gone")), "{left_out:?}");
    let joined = over(dir, blobs.path().into(), HOUR).await.expect("opens");
    for (key, seed) in [("theirs", 10), ("there", 12)] {
        assert_holds(&joined, "off", key, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_is_the_newest_state_of_its_store_is_not_merged() {
    let (blobs, primary, _standby) = split(HOUR, "off", &["a"]).await;
    primary.engine.ship_journal().await.expect("shipped");
    let primary = primary.stop().await;
    let (dir, aside) = beside(primary.path());
    let why = merge(dir.path(), &aside, blobs.path()).await.expect_err("nothing to merge").to_string();
    assert!(why.contains("there is nothing to merge"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_went_back_to_before_a_blob_was_cut_is_joined_with_the_store_that_has_it() {
    let blobs = TempDir::new().expect("a directory");
    let primary = over(TempDir::new().expect("a directory"), blobs.path().into(), HOUR).await.expect("opens");
    let bucket = primary.bucket("off").await;
    primary.put(&bucket, "before", &bytes(10)).await;
    primary.engine.ship_journal().await.expect("shipped");
    primary.put(&bucket, "shipped", &bytes(11)).await;
    // It has the row, and has not decided yet which blob it goes with.
    let copy = copy_of_catalog(primary.dir.path());
    primary.engine.ship_journal().await.expect("shipped");
    let dir = primary.stop().await;
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(dir.path().join(format!("catalog.sqlite{suffix}"))).ok();
    }
    std::fs::rename(copy, dir.path().join("catalog.sqlite")).expect("put back");
    let (made, aside) = beside(dir.path());
    let why = over(dir, blobs.path().into(), HOUR).await.err().expect("refused").to_string();
    assert!(why.contains("has gone back to before it did") && why.contains("recover --merge"), "{why}");

    let report = merge(made.path(), &aside, blobs.path()).await.expect("merged");
    assert_eq!(report.merged.expect("it went back").left_out, []);
    let joined = over(made, blobs.path().into(), HOUR).await.expect("it is the store's catalog");
    for (key, seed) in [("before", 10), ("shipped", 11)] {
        assert_holds(&joined, "off", key, seed).await;
    }
    let bucket = joined.bucket("off").await;
    joined.put(&bucket, "after", &bytes(12)).await;
    joined.engine.ship_journal().await.expect("shipped");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_merge_has_made_is_served_and_not_made_again() {
    let (blobs, primary, standby) = split(HOUR, "off", &["a"]).await;
    let bucket = primary.bucket("off").await;
    primary.put(&bucket, "lost", &bytes(10)).await;
    primary.engine.ship_journal().await.expect("shipped");
    let (_primary, standby) = (primary.stop().await, standby.stop().await);
    let (dir, aside) = beside(standby.path());
    merge(dir.path(), &aside, blobs.path()).await.expect("merged");
    // As after one that had told the store of its lineage, and could not say so.
    let again = merge(dir.path(), &aside, blobs.path()).await.expect_err("it is there").to_string();
    assert!(again.contains("what the last recovery made, serve it"), "{again}");
    let joined = over(dir, blobs.path().into(), HOUR).await.expect("it is the store's catalog");
    assert_holds(&joined, "off", "lost", 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sealed_with_a_key_that_the_store_has_shredded_is_left_out_and_named() {
    let (blobs, primary, standby) = split(HOUR, "sealed", &["before"]).await;
    let mine = standby.bucket("sealed").await;
    standby.put(&mine, "mine", &bytes(10)).await;
    let order = serde_json::json!({ "bucket": "sealed" });
    primary.engine.jobs.run_job("reencrypt", order).await.expect("ran");
    primary.engine.ship_journal().await.expect("shipped");
    let parameters = CollectParameters { now: true, ..CollectParameters::default() };
    primary.engine.collect_as(parameters).await.expect("collects");
    let told = primary.engine.keys.shred("sealed").await.expect("told");
    assert!(told.shredded, "{told:?}");
    primary.engine.ship_journal().await.expect("shipped");
    let (_primary, standby) = (primary.stop().await, standby.stop().await);
    let (dir, aside) = beside(standby.path());
    let merged = merge(dir.path(), &aside, blobs.path()).await.expect("merged").merged.expect("a fork");
    assert_eq!(merged.left_out.len(), 1, "{merged:?}");
    assert!(format!("{:?}", merged.left_out).contains("a key that the store's side removed"), "{merged:?}");
    let joined = over(dir, blobs.path().into(), HOUR).await.expect("opens");
    let bucket = joined.bucket("sealed").await;
    assert!(joined.get(&bucket, "before", 0..9000).await == content(9000, 1));
    assert!(joined.engine.read.open_object(&bucket, "mine").await.expect("asked").is_none());
}
