//! Another KEK: everything is wrapped anew, nothing is copied, and the old one is not needed.

use super::*;
use crate::{AccountKind, AccountName, AccountRecord, AccountsWrite};
use std::{collections::BTreeMap, path::PathBuf};
use zeroize::Zeroizing;

fn keyring_file(deployment: &Deployment) -> serde_json::Value {
    let text = std::fs::read_to_string(deployment.dir.path().join("keyring.json")).expect("is there");
    serde_json::from_str(&text).expect("is JSON")
}

fn blob_bytes(deployment: &Deployment) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| (path.clone(), std::fs::read(path).expect("is there"));
    deployment.blob_files().into_iter().map(read).collect()
}

async fn an_account(engine: &Engine) {
    let name = AccountName { kind: AccountKind::User, name: "ann".into() };
    let document = Zeroizing::new(b"{\"secret\": 1}".to_vec());
    let creates = vec![AccountRecord { name, document }];
    let write = AccountsWrite { creates, ..AccountsWrite::default() };
    assert!(engine.accounts.change(0, &write).await.expect("changes").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_replaces_every_wrap_and_no_blob_and_the_old_kek_is_not_needed() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    let bytes = content(3 * MIB, 1);
    deployment.put(&bucket, "whole", &bytes).await;
    let changed = edited(&bytes, 2);
    deployment.put(&bucket, "delta", &changed).await;
    let (engine, named) = (&deployment.engine, deployment.engine.buckets.object_key("payroll").expect("named"));
    an_account(engine).await;
    engine.ship_journal().await.expect("ships");
    let before = blob_bytes(&deployment);
    let old = engine.keys.list().await.expect("lists");
    assert!(old.keys.iter().all(|key| key.bound && key.kek == old.keks[0].kek));

    let done = engine.keys.rotate(true).await.expect("rotates");
    assert_eq!((done.made, done.removed), (true, true));
    assert_eq!(
        (done.wraps, done.keysets, done.accounts, done.roots),
        (2, 4, 1, 1),
        "two of the bucket, its copies and the store's"
    );
    assert_eq!(done.needless, [old.keks[0].kek.clone()]);
    assert_eq!(blob_bytes(&deployment), before, "no blob was written or changed");
    let file = keyring_file(&deployment);
    assert_eq!((file["version"].as_u64(), file["keks"].as_array().map(Vec::len)), (Some(2), Some(1)));

    let dir = deployment.stop().await;
    let deployment = Deployment::reopened(dir, crate::registry::all, |_| ()).await;
    let bucket = deployment.bucket("sealed").await;
    assert!(deployment.get(&bucket, "whole", 0..bytes.len()).await == bytes);
    assert!(deployment.get(&bucket, "delta", 0..changed.len()).await == changed);
    let engine = &deployment.engine;
    let check = engine.keys.verify().await.expect("verifies");
    assert_eq!((check.wraps, check.keysets, check.accounts, check.roots), (2, 4, 1, 1));
    assert_eq!((check.outdated, check.unbound, check.problems), (0, 0, Vec::new()));
    let keys = engine.buckets.object_keys("payroll");
    assert_eq!((keys.len(), *keys[0] == *named, *keys[1] == *named), (2, false, true), "what it encrypted can be read");
    // The journal is sealed under the same store key, and goes on.
    deployment.put(&bucket, "after", b"x").await;
    engine.ship_journal().await.expect("ships");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_that_finds_a_wrap_it_cannot_open_keeps_every_kek() {
    let deployment = Deployment::start(512 << 20).await;
    let bucket = deployment.bucket("sealed").await;
    deployment.put(&bucket, "k", b"kept").await;
    let engine = &deployment.engine;
    let strange =
        catalog::WrappedKey { id: [7; 16], bucket: bucket.row.id, epoch: 9, kek: [7; 8], wrapped: vec![7; 72] };
    engine.catalog().put_key(strange).await.expect("puts");
    let refused = engine.keys.rotate(true).await.expect_err("is refused");
    assert!(refused.to_string().contains("0707070707070707"), "{refused}");
    let check = engine.keys.verify().await.expect("verifies");
    assert!(check.problems.iter().any(|problem| problem.contains("0707070707070707")), "{check:?}");
    assert!(deployment.get(&bucket, "k", 0..4).await == b"kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn wraps_of_two_buckets_that_change_places_open_for_neither() {
    let deployment = Deployment::start(512 << 20).await;
    let (one, two) = (deployment.bucket("sealed").await, deployment.bucket("off").await);
    let catalog = deployment.engine.catalog();
    let keys = catalog.keys(one.row.id).await.expect("reads");
    let moved = catalog::WrappedKey { id: keys[1].id, bucket: two.row.id, ..keys[1].clone() };
    let keyring = &deployment.engine.foundation.keyring;
    assert!(keyring.open_key(&keys[1]).expect("opens").is_some());
    assert!(keyring.open_key(&moved).is_err(), "the wrap names its bucket");
}
