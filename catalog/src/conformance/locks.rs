//! Object lock: what is locked is not removed.

use super::{
    Factory,
    desk::{Desk, NOW},
};
use crate::*;

/// A desk whose bucket's versions can be locked.
async fn lockable<F: Factory>(factory: &F) -> Desk<F::Catalog> {
    let desk = Desk::new(factory.fresh().await).await;
    desk.catalog.set_versioning(desk.bucket.id, Versioning::Enabled).await.unwrap();
    desk.catalog.enable_object_lock(desk.bucket.id).await.unwrap();
    desk
}

fn until(mode: RetentionMode, until_ms: UnixMs) -> VersionLock {
    VersionLock { retention: Some(Retention { mode, until_ms }), legal_hold: None }
}

const HELD: VersionLock = VersionLock { retention: None, legal_hold: Some(true) };

/// Puts `key` with a lock; its id.
async fn put<C: Catalog>(desk: &Desk<C>, key: &str, lock: VersionLock) -> VersionId {
    let commit = PutCommit { lock, ..desk.commit(key, vec![desk.whole(10)]) };
    let id = commit.id;
    desk.catalog.put(commit).await.unwrap();
    id
}

fn change<C: Catalog>(desk: &Desk<C>, key: &str, id: VersionId, change: LockChange) -> LockCommit {
    let (bucket, key, epoch) = (desk.bucket.id, key.to_owned(), desk.epoch);
    LockCommit { bucket, key, id, change, bypass_governance: false, now_ms: NOW, epoch }
}

/// And says so by its row; nothing goes back.
pub async fn a_bucket_with_object_lock_keeps_versions_for_good<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, id) = (&desk.catalog, desk.bucket.id);
    assert!(matches!(catalog.enable_object_lock(id).await, Err(CatalogError::BucketState)));
    catalog.set_versioning(id, Versioning::Suspended).await.unwrap();
    assert!(matches!(catalog.enable_object_lock(id).await, Err(CatalogError::BucketState)));
    catalog.set_versioning(id, Versioning::Enabled).await.unwrap();
    assert!(!catalog.bucket("desk").await.unwrap().unwrap().object_lock);
    catalog.enable_object_lock(id).await.unwrap();
    let seq = catalog.last_seq().await.unwrap();
    catalog.enable_object_lock(id).await.unwrap();
    assert_eq!(catalog.last_seq().await.unwrap(), seq, "what was said already is no mutation");
    assert!(matches!(catalog.set_versioning(id, Versioning::Suspended).await, Err(CatalogError::BucketState)));
    let (name, owner) = ("locked".to_owned(), "owner".to_owned());
    let new = NewBucket { name, owner, settings: serde_json::json!({}), object_lock: true, now_ms: NOW };
    let made = catalog.make_bucket(new).await.unwrap();
    assert_eq!((made.versioning, made.object_lock), (Versioning::Enabled, true));
    assert!(catalog.buckets().await.unwrap().iter().all(|bucket| bucket.object_lock));
    let elsewhere = BucketId(id.0 + 9);
    assert!(matches!(catalog.enable_object_lock(elsewhere).await, Err(CatalogError::NoBucket)));
    desk.assert_sound().await;
}

/// Whoever asks; a deletion that names no version adds a marker as ever.
pub async fn a_version_whose_lock_holds_is_not_removed<F: Factory>(factory: &F) {
    let desk = lockable(factory).await;
    let mode = RetentionMode::Governance;
    for (key, lock, bypassed) in [
        ("governance", until(mode, NOW + 1), true),
        ("compliance", until(RetentionMode::Compliance, NOW + 1), false),
        ("held", HELD, false),
        ("both", VersionLock { legal_hold: Some(true), ..until(mode, NOW + 1) }, false),
    ] {
        let id = put(&desk, key, lock).await;
        let removal =
            |bypass_governance| DeleteVersionCommit { bypass_governance, ..desk.removal(key, VersionRef::Id(id)) };
        assert!(matches!(desk.catalog.delete_version(removal(false)).await, Err(CatalogError::Locked)), "{key}");
        let marker = desk.catalog.delete(desk.deletion(key)).await.unwrap().marker.unwrap();
        assert!(matches!(desk.catalog.delete_version(removal(false)).await, Err(CatalogError::Locked)), "{key}");
        let content = desk.catalog.named_version(desk.bucket.id, key, VersionRef::Id(id)).await.unwrap();
        assert_eq!(content.unwrap().version.lock, lock);
        let removed = desk.catalog.delete_version(removal(true)).await;
        assert_eq!(removed.is_ok(), bypassed, "{key}");
        desk.catalog.delete_version(desk.removal(key, marker.reference())).await.unwrap().unwrap();
    }
    let past = put(&desk, "past", until(RetentionMode::Compliance, NOW)).await;
    desk.catalog.delete_version(desk.removal("past", VersionRef::Id(past))).await.unwrap().unwrap();
    desk.assert_sound().await;
}

/// The lock of one version, current or not, and of no other.
pub async fn a_lock_is_changed_as_far_as_its_retention_allows<F: Factory>(factory: &F) {
    let desk = lockable(factory).await;
    let (first, second) = (put(&desk, "k", VersionLock::default()).await, put(&desk, "k", HELD).await);
    let retain = |mode, until_ms| LockChange::Retention(Some(Retention { mode, until_ms }));
    let set = |id, what, bypass_governance| {
        desk.catalog.set_lock(LockCommit { bypass_governance, ..change(&desk, "k", id, what) })
    };
    let lock_of = async |id| desk.catalog.version(desk.bucket.id, "k", id).await.unwrap().unwrap().version.lock;
    assert!(set(first, retain(RetentionMode::Governance, NOW + 9), false).await.unwrap());
    assert_eq!((lock_of(first).await, lock_of(second).await), (until(RetentionMode::Governance, NOW + 9), HELD));
    let shorter = retain(RetentionMode::Governance, NOW + 5);
    assert!(matches!(set(first, shorter, false).await, Err(CatalogError::Locked)));
    assert!(set(first, shorter, true).await.unwrap());
    assert!(set(first, LockChange::LegalHold(true), false).await.unwrap());
    assert!(set(first, retain(RetentionMode::Compliance, NOW + 20), true).await.unwrap());
    assert!(matches!(set(first, LockChange::Retention(None), true).await, Err(CatalogError::Locked)));
    assert_eq!(
        lock_of(first).await,
        VersionLock { legal_hold: Some(true), ..until(RetentionMode::Compliance, NOW + 20) }
    );
    assert!(set(second, LockChange::LegalHold(false), false).await.unwrap());
    assert_eq!(lock_of(second).await, VersionLock { retention: None, legal_hold: Some(false) });
    assert!(!set(VersionId([7; 16]), LockChange::LegalHold(true), false).await.unwrap(), "it is gone");
    desk.assert_sound().await;
}

/// By a put, a completed upload or a change.
pub async fn a_bucket_without_object_lock_has_no_locks<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.catalog.set_versioning(desk.bucket.id, Versioning::Enabled).await.unwrap();
    let id = put(&desk, "k", VersionLock::default()).await;
    let locked = PutCommit { lock: HELD, ..desk.commit("k", vec![desk.whole(10)]) };
    assert!(matches!(desk.catalog.put(locked).await, Err(CatalogError::BucketState)));
    let hold = change(&desk, "k", id, LockChange::LegalHold(true));
    assert!(matches!(desk.catalog.set_lock(hold.clone()).await, Err(CatalogError::BucketState)));
    let upload = desk.start_upload("k", NOW).await;
    let part = desk.put_part(upload.id, 1, 10).await;
    let completion = CompleteCommit { lock: HELD, ..desk.completion(&upload, &[&part]) };
    assert!(matches!(desk.catalog.complete(completion.clone()).await, Err(CatalogError::BucketState)));
    desk.catalog.enable_object_lock(desk.bucket.id).await.unwrap();
    desk.catalog.complete(completion).await.unwrap();
    assert_eq!(desk.content("k").await.version.lock, HELD);
    assert!(desk.catalog.set_lock(hold).await.unwrap());
    desk.assert_sound().await;
}
