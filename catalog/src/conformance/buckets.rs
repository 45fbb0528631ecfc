//! Buckets, keys and settings.

use super::{
    Factory,
    desk::{Desk, NOW, unique},
};
use crate::*;
use serde_json::json;
use std::sync::Arc;

/// What was created is found by name and by nothing else.
pub async fn a_bucket_is_found_by_name<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let made = catalog.create_bucket("photos", "alice", json!({"encryption": "aes256"}), NOW).await.unwrap();
    assert_eq!(catalog.bucket("photos").await.unwrap(), Some(made.clone()));
    assert_eq!((made.owner.as_str(), made.created_ms, &made.settings["encryption"]), ("alice", NOW, &json!("aes256")));
    assert_eq!(catalog.bucket("photo").await.unwrap(), None);
    assert_eq!(catalog.bucket("PHOTOS").await.unwrap(), None);
}

/// Whatever the database's collation says of hyphens and digits.
pub async fn buckets_are_listed_in_byte_order_of_names<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    for name in ["b", "a.b", "a-b", "ab", "a1", "aa"] {
        catalog.create_bucket(name, "o", json!(null), NOW).await.unwrap();
    }
    let names: Vec<_> = catalog.buckets().await.unwrap().into_iter().map(|bucket| bucket.name).collect();
    assert_eq!(names, ["a-b", "a.b", "a1", "aa", "ab", "b"]);
}

/// And nothing is changed by the attempt.
pub async fn a_taken_bucket_name_is_refused<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let first = catalog.create_bucket("b", "alice", json!(1), NOW).await.unwrap();
    assert!(matches!(catalog.create_bucket("b", "bob", json!(2), NOW).await, Err(CatalogError::Exists)));
    assert_eq!(catalog.buckets().await.unwrap(), [first]);
}

/// Settings are replaced as a whole; a missing bucket is an error.
pub async fn bucket_settings_are_replaced<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let bucket = catalog.create_bucket("b", "o", json!({"a": 1}), NOW).await.unwrap();
    catalog.set_bucket_settings(bucket.id, json!({"b": [2, null]})).await.unwrap();
    assert_eq!(catalog.bucket("b").await.unwrap().unwrap().settings, json!({"b": [2, null]}));
    let (stale, current) = (json!({"b": 2}), json!({"b": [2, null]}));
    assert!(matches!(
        catalog.change_bucket_settings(bucket.id, stale, json!("lost")).await,
        Err(CatalogError::Conflict)
    ));
    catalog.change_bucket_settings(bucket.id, current, json!({"b": 3})).await.unwrap();
    assert_eq!(catalog.bucket("b").await.unwrap().unwrap().settings, json!({"b": 3}));
    assert!(matches!(
        catalog.set_bucket_settings(BucketId(bucket.id.0 + 1), json!({})).await,
        Err(CatalogError::NoBucket)
    ));
}

/// No upload stands in the way: what its parts hold is let go, and no part can be added any more.
pub async fn a_bucket_with_a_version_cannot_be_deleted_and_open_uploads_end_with_an_empty_one<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, id) = (&desk.catalog, desk.bucket.id);
    desk.put("k").await;
    assert!(matches!(catalog.delete_bucket(id).await, Err(CatalogError::NotEmpty)));
    desk.delete("k").await;
    let upload = desk.start_upload("u", NOW).await;
    let part = desk.put_part(upload.id, 1, 10).await;
    catalog.complete(desk.completion(&upload, &[&part])).await.unwrap();
    let open = desk.start_upload("open", NOW).await;
    let held = desk.put_part(open.id, 1, 10).await.extents[0].blob;
    assert!(matches!(catalog.delete_bucket(id).await, Err(CatalogError::NotEmpty)));
    assert!(catalog.upload(id, "open", open.id).await.unwrap().is_some(), "a refusal ends nothing");
    desk.delete("u").await;
    assert!(catalog.delete_bucket(id).await.unwrap());
    assert_eq!(catalog.upload(id, "open", open.id).await.unwrap(), None);
    assert!(catalog.parts(open.id, 0, 10, true).await.unwrap().is_empty());
    assert!(desk.dying().await.contains(&held), "its content is let go");
    assert!(!catalog.delete_bucket(id).await.unwrap(), "there is none any more");
    assert_eq!(catalog.bucket("desk").await.unwrap(), None);
    assert!(matches!(catalog.put(desk.commit("k", vec![desk.whole(1)])).await, Err(CatalogError::NoBucket)));
    desk.assert_sound().await;
}

/// Sealed bytes that still lie in the backend can be opened until they are gone.
pub async fn a_deleted_bucket_keeps_its_keys_until_its_last_blob_is_purged<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, id) = (&desk.catalog, desk.bucket.id);
    let key = WrappedKey { id: unique(1), bucket: id, epoch: 1, kek: [1; 8], wrapped: vec![1, 2, 3] };
    catalog.put_key(key.clone()).await.unwrap();
    let blobs = [desk.put("a").await, desk.put("b").await];
    desk.delete("a").await;
    desk.delete("b").await;
    assert!(catalog.delete_bucket(id).await.unwrap());
    let again = catalog.create_bucket("desk", "other", json!({}), NOW).await.unwrap();
    assert_ne!(again.id, id);
    catalog.purge(blobs[0], NOW).await.unwrap();
    assert_eq!(catalog.keys(id).await.unwrap(), [key]);
    desk.assert_sound().await;
    catalog.purge(blobs[1], NOW).await.unwrap();
    assert_eq!(catalog.keys(id).await.unwrap(), []);
    assert_eq!(catalog.bucket("desk").await.unwrap().unwrap().id, again.id);
    desk.assert_sound().await;
}

/// Rows that name a bucket by id can never come to mean another.
pub async fn a_bucket_id_is_never_used_again<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    let first = catalog.create_bucket("b", "o", json!({}), NOW).await.unwrap();
    assert!(catalog.delete_bucket(first.id).await.unwrap());
    let second = catalog.create_bucket("b", "o", json!({}), NOW).await.unwrap();
    assert!(second.id > first.id);
}

/// Keys come back by epoch.
pub async fn a_key_id_and_a_key_epoch_are_taken_once<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    let key = |id: u8, epoch| WrappedKey { id: [id; 16], bucket, epoch, kek: [id; 8], wrapped: vec![id; 40] };
    catalog.put_key(key(2, 2)).await.unwrap();
    catalog.put_key(key(1, 1)).await.unwrap();
    assert!(matches!(catalog.put_key(key(1, 3)).await, Err(CatalogError::Exists)));
    assert!(matches!(catalog.put_key(key(3, 2)).await, Err(CatalogError::Exists)));
    let elsewhere = WrappedKey { bucket: BucketId(bucket.0 + 100), ..key(4, 4) };
    assert!(matches!(catalog.put_key(elsewhere).await, Err(CatalogError::NoBucket)));
    assert_eq!(catalog.keys(bucket).await.unwrap(), [key(1, 1), key(2, 2)]);
}

fn keyed(bucket: BucketId, id: u8, epoch: u32) -> WrappedKey {
    WrappedKey { id: [id; 16], bucket, epoch, kek: [id; 8], wrapped: vec![id; 40] }
}

fn rewrapped(key: &WrappedKey, with: u8) -> Rewrap {
    let now = WrappedKey { kek: [with; 8], wrapped: vec![with; 48], ..key.clone() };
    Rewrap { before: key.wrapped.clone(), key: now }
}

/// A rotation that is repeated, or that another process was faster with, harms nothing.
pub async fn wraps_are_replaced_together_and_never_over_others<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    let (one, two) = (keyed(bucket, 1, 1), keyed(bucket, 2, 2));
    catalog.put_key(one.clone()).await.unwrap();
    catalog.put_key(two.clone()).await.unwrap();
    let both = vec![rewrapped(&one, 8), rewrapped(&two, 9)];
    catalog.rewrap_keys(both.clone()).await.unwrap();
    let now: Vec<WrappedKey> = both.iter().map(|rewrap| rewrap.key.clone()).collect();
    assert_eq!(catalog.keys(bucket).await.unwrap(), now);
    let stale = vec![rewrapped(&now[0], 5), rewrapped(&two, 6)];
    assert!(matches!(catalog.rewrap_keys(stale).await, Err(CatalogError::Conflict)));
    let elsewhere = Rewrap { key: WrappedKey { epoch: 7, ..now[1].clone() }, before: now[1].wrapped.clone() };
    assert!(matches!(catalog.rewrap_keys(vec![elsewhere]).await, Err(CatalogError::Conflict)));
    let unknown = rewrapped(&keyed(bucket, 3, 3), 4);
    assert!(matches!(catalog.rewrap_keys(vec![unknown]).await, Err(CatalogError::Conflict)));
    assert_eq!(catalog.all_keys().await.unwrap(), now, "all or none");
    catalog.rewrap_keys(Vec::new()).await.unwrap();
}

/// Compare and swap, also between processes.
pub async fn of_two_who_rewrap_a_key_at_once_one_does<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    let key = keyed(bucket, 1, 1);
    catalog.put_key(key.clone()).await.unwrap();
    let tries = (0..8).map(|with| {
        let (catalog, rewrap) = (catalog.clone(), rewrapped(&key, 10 + with));
        tokio::spawn(async move { catalog.rewrap_keys(vec![rewrap]).await })
    });
    let mut outcomes = Vec::new();
    for tried in tries.collect::<Vec<_>>() {
        outcomes.push(tried.await.unwrap());
    }
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(()) | Err(CatalogError::Conflict))));
}

/// Facts as an engine seals them: the key's id stands in front.
fn sealed_facts(key: &WrappedKey) -> Vec<u8> {
    [1].into_iter().chain(key.id).chain([9; 48]).collect()
}

/// What is shredded is needed by nothing: no blob, dying or not, and no row.
pub async fn a_key_is_removed_when_nothing_is_sealed_with_it<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    let keys = [keyed(bucket, 1, 0), keyed(bucket, 2, 1), keyed(bucket, 3, 2)];
    for key in &keys {
        catalog.put_key(key.clone()).await.unwrap();
    }
    let refused = async || matches!(catalog.remove_keys(bucket, &[1]).await, Err(CatalogError::BucketState));
    assert!(matches!(catalog.remove_keys(BucketId(bucket.0 + 100), &[1]).await, Err(CatalogError::NoBucket)));
    assert!(!catalog.remove_keys(bucket, &[7]).await.unwrap());
    let mut blob = desk.whole(9);
    blob.row.key_epoch = 1;
    let id = blob.row.id;
    let commit = PutCommit { facts: sealed_facts(&keys[1]), ..desk.commit("k", vec![blob]) };
    catalog.put(commit).await.unwrap();
    let found = catalog.key_dependents(bucket, 1).await.unwrap();
    assert_eq!(found, KeyDependents { blobs: 1, plain_bytes: 9, versions: 1, ..KeyDependents::default() });
    assert!(refused().await);
    desk.delete("k").await;
    assert_eq!(catalog.key_dependents(bucket, 1).await.unwrap(), KeyDependents { dying: 1, ..Default::default() });
    assert!(refused().await, "what waits for its purge may come back with a backup");
    catalog.purge(id, NOW).await.unwrap();
    assert!(catalog.key_dependents(bucket, 1).await.unwrap().is_none());

    let upload = desk.start_upload("u", NOW).await;
    let facts = sealed_facts(&keys[1]);
    catalog.create_upload(Upload { id: UploadId([77; 16]), facts: facts.clone(), ..upload.clone() }).await.unwrap();
    assert_eq!(catalog.key_dependents(bucket, 1).await.unwrap(), KeyDependents { uploads: 1, ..Default::default() });
    assert!(refused().await);
    let mut part = desk.part(upload.id, 1, 5);
    part.part.facts = facts;
    catalog.put_part(part).await.unwrap();
    assert!(catalog.abort(bucket, "u", UploadId([77; 16]), desk.epoch).await.unwrap());
    assert!(refused().await, "a part of an upload that began under another key");
    assert!(catalog.abort(bucket, "u", upload.id, desk.epoch).await.unwrap());
    assert!(catalog.remove_keys(bucket, &[1]).await.unwrap());
    assert_eq!(catalog.keys(bucket).await.unwrap(), [keys[0].clone(), keys[2].clone()]);
}

/// An upload that began before its key was removed ends without harm: nothing is acknowledged that
/// nobody can open.
pub async fn what_is_sealed_with_a_removed_key_is_not_committed<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    let keys = [keyed(bucket, 2, 1), keyed(bucket, 3, 2)];
    for key in &keys {
        catalog.put_key(key.clone()).await.unwrap();
    }
    assert!(catalog.remove_keys(bucket, &[1]).await.unwrap());
    let blob = |epoch| {
        let mut blob = desk.whole(9);
        blob.row.key_epoch = epoch;
        blob
    };
    let of = |facts, epoch| PutCommit { facts, ..desk.commit("k", vec![blob(epoch)]) };
    assert!(matches!(catalog.put(of(sealed_facts(&keys[1]), 1)).await, Err(CatalogError::KeyGone)));
    assert!(matches!(catalog.put(of(sealed_facts(&keys[0]), 2)).await, Err(CatalogError::KeyGone)));
    assert!(matches!(catalog.put(of(b"{}".to_vec(), 1)).await, Err(CatalogError::KeyGone)));
    assert_eq!(catalog.current(bucket, "k").await.unwrap(), None);
    catalog.put(of(sealed_facts(&keys[1]), 2)).await.unwrap();
    let upload = Upload { facts: sealed_facts(&keys[0]), id: UploadId([78; 16]), ..desk.start_upload("u", NOW).await };
    assert!(matches!(catalog.create_upload(upload).await, Err(CatalogError::KeyGone)));
}

/// What a key seals is known before it ends.
pub async fn blobs_are_counted_by_the_key_that_seals_them<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let bucket = desk.bucket.id;
    desk.put("plain").await;
    desk.catalog.put_key(keyed(bucket, 3, 3)).await.unwrap();
    for key in ["a", "b"] {
        let mut blob = desk.whole(9);
        blob.row.key_epoch = 3;
        desk.catalog.put(desk.commit(key, vec![blob])).await.unwrap();
    }
    desk.delete("a").await;
    let uses = desk.catalog.key_uses().await.unwrap();
    let of = |epoch, blobs| KeyUse { bucket, epoch, blobs };
    assert_eq!(uses, [of(0, 1), of(3, 2)], "those that wait for their purge count");
}

/// Any JSON.
pub async fn a_setting_is_read_back_and_replaced<F: Factory>(factory: &F) {
    let catalog = factory.fresh().await;
    assert_eq!(catalog.setting("anchor").await.unwrap(), None);
    catalog.put_setting("anchor", json!(null)).await.unwrap();
    assert_eq!(catalog.setting("anchor").await.unwrap(), Some(json!(null)));
    catalog.put_setting("anchor", json!({"deep": ["ü", 1.5, {"x": false}]})).await.unwrap();
    assert_eq!(catalog.setting("anchor").await.unwrap(), Some(json!({"deep": ["ü", 1.5, {"x": false}]})));
    catalog.probe().await.unwrap();
}

/// Those who come later find what the first one stored, also when all come at once.
pub async fn a_setting_is_created_once<F: Factory>(factory: &F) {
    let catalog = Arc::new(factory.fresh().await);
    let mut creating = tokio::task::JoinSet::new();
    for number in 0..8 {
        let catalog = catalog.clone();
        creating.spawn(async move { (number, catalog.create_setting("deployment", json!(number)).await) });
    }
    let created = creating.join_all().await;
    assert!(created.iter().all(|(_, outcome)| matches!(outcome, Ok(()) | Err(CatalogError::Exists))), "{created:?}");
    let winners: Vec<i32> = created.iter().filter(|(_, outcome)| outcome.is_ok()).map(|(number, _)| *number).collect();
    assert_eq!(winners.len(), 1, "{created:?}");
    assert_eq!(catalog.setting("deployment").await.unwrap(), Some(json!(winners[0])));
    catalog.put_setting("deployment", json!("other")).await.unwrap();
    assert!(matches!(catalog.create_setting("deployment", json!(9)).await, Err(CatalogError::Exists)));
    assert_eq!(catalog.setting("deployment").await.unwrap(), Some(json!("other")));
    let rows = catalog.journal(0, 100).await.unwrap();
    assert_eq!(rows.len(), 2, "a refusal leaves no trace");
    assert_eq!(rows[0].mutation.value(), json!({"PutSetting": {"name": "deployment", "value": winners[0]}}));
}
