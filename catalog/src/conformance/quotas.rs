//! How much is held, and how much may be.

use super::{
    Factory,
    desk::{Desk, NOW},
};
use crate::*;
use std::sync::Arc;
use tokio::task::JoinSet;

impl<C: Catalog> Desk<C> {
    async fn limit(&self, of: &QuotaOf, bytes: Option<u64>, objects: Option<u64>) {
        let limits = serde_json::json!(QuotaLimits { bytes, objects });
        self.catalog.put_setting(&of.setting(), limits).await.unwrap();
    }

    async fn limit_bucket(&self, bytes: Option<u64>, objects: Option<u64>) {
        self.limit(&QuotaOf::Bucket(self.bucket.id), bytes, objects).await;
    }

    /// Bytes and objects.
    async fn held(&self) -> (u64, u64) {
        self.assert_sound().await;
        let all = self.catalog.usage().await.unwrap();
        let own = all.into_iter().find(|(bucket, _)| *bucket == self.bucket.id).map(|(_, usage)| usage);
        own.map_or((0, 0), |usage| (usage.bytes, usage.objects))
    }

    async fn fits(&self, bytes: u64, replaces: Option<u64>, is_version: bool) -> bool {
        let asked = self.catalog.has_room(self.bucket.id, Growth { bytes, replaces, is_version }).await;
        assert!(asked.is_ok() || is_refused(&asked, "bucket") || is_refused(&asked, "owner"), "{asked:?}");
        asked.is_ok()
    }

    async fn put_of(&self, key: &str, bytes: u64) -> Result<Committed> {
        self.catalog.put(self.commit(key, vec![self.whole(bytes)])).await
    }
}

fn is_refused<T>(outcome: &Result<T>, whose: &str) -> bool {
    matches!(outcome, Err(CatalogError::QuotaExceeded(of)) if *of == whose)
}

/// And what is refused changes nothing; what adds nothing is never refused.
pub async fn nothing_goes_beyond_a_quota<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put_of("before", 2000).await.unwrap();
    desk.limit_bucket(Some(1000), None).await;
    assert!(is_refused(&desk.put_of("more", 1).await, "bucket"), "more is held than may be");
    desk.put_of("before", 2000).await.unwrap();
    desk.put_of("before", 900).await.unwrap();
    desk.put_of("k", 100).await.unwrap();
    assert!(is_refused(&desk.put_of("k", 101).await, "bucket"));
    assert_eq!(desk.content("k").await.version.size, 100);
    assert_eq!(desk.held().await, (1000, 2));
    desk.catalog.put(desk.commit("empty", Vec::new())).await.unwrap();
    desk.limit_bucket(None, Some(3)).await;
    assert!(is_refused(&desk.put_of("fourth", 1).await, "bucket"));
    desk.put_of("k", 1 << 40).await.unwrap();
    desk.delete("empty").await.unwrap();
    desk.put_of("fourth", 1).await.unwrap();
    desk.limit_bucket(Some(0), Some(0)).await;
    assert!(is_refused(&desk.put_of("fifth", 1).await, "bucket"));
    desk.limit_bucket(Some(u64::MAX), Some(u64::MAX)).await;
    desk.put_of("fifth", 1 << 40).await.unwrap();
    assert_eq!(desk.held().await, ((2 << 40) + 900 + 1, 4));
}

/// As the mutation that follows would be, and nothing is changed by asking.
pub async fn who_asks_for_room_is_told_as_who_commits<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let other = desk.with_bucket("other").await;
    assert!(desk.fits(1 << 40, None, true).await, "without a quota");
    desk.limit_bucket(Some(1000), Some(1)).await;
    assert!(desk.fits(1000, None, true).await && !desk.fits(1001, None, true).await, "an empty bucket");
    desk.put_of("k", 600).await.unwrap();
    assert!(!desk.fits(1, None, true).await, "a second version");
    assert!(desk.fits(1000, Some(600), true).await && !desk.fits(1001, Some(600), true).await);
    assert!(desk.fits(400, None, false).await && !desk.fits(401, None, false).await, "a part is no version");
    desk.limit_bucket(Some(100), None).await;
    assert!(desk.fits(600, Some(600), true).await, "what adds nothing is never refused");
    assert!(!desk.fits(601, Some(600), true).await);
    desk.limit_bucket(None, None).await;
    desk.limit(&QuotaOf::Owner("owner".into()), Some(700), None).await;
    assert!(other.fits(100, None, true).await && !other.fits(101, None, true).await);
    assert_eq!((desk.held().await, other.held().await), ((600, 1), (0, 0)));
}

/// Chosen or not, replaced, or given up with their upload.
pub async fn parts_count_while_they_are_stored_and_no_longer<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.limit_bucket(Some(100), Some(2)).await;
    let upload = desk.start_upload("k", NOW).await;
    desk.put_part(upload.id, 1, 70).await;
    let one = desk.put_part(upload.id, 1, 60).await;
    let two = desk.put_part(upload.id, 2, 40).await;
    assert!(is_refused(&desk.catalog.put_part(desk.part(upload.id, 3, 1)).await, "bucket"));
    assert!(is_refused(&desk.put_of("other", 1).await, "bucket"), "parts are held like versions");
    assert_eq!(desk.held().await, (100, 0));
    desk.catalog.complete(desk.completion(&upload, &[&one])).await.unwrap();
    assert_eq!(desk.held().await, (60, 1), "the part that was not chosen is gone");
    assert_eq!(two.size, 40);
    let upload = desk.start_upload("k", NOW).await;
    desk.put_part(upload.id, 1, 40).await;
    assert_eq!(desk.held().await, (100, 1));
    assert!(desk.catalog.abort(desk.bucket.id, "k", upload.id, desk.epoch).await.unwrap());
    assert_eq!(desk.held().await, (60, 1));
    desk.put_of("k2", 1).await.unwrap();
    let upload = desk.start_upload("k3", NOW).await;
    let part = desk.put_part(upload.id, 1, 1).await;
    let completed = desk.catalog.complete(desk.completion(&upload, &[&part])).await;
    assert!(is_refused(&completed, "bucket"), "a third version");
    assert_eq!(desk.held().await, (62, 2));
}

/// Whoever writes into them, and it is asked beside each bucket's own.
pub async fn a_quota_of_an_owner_is_for_all_of_its_buckets<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let other = desk.with_bucket("other").await;
    desk.limit(&QuotaOf::Owner("owner".into()), Some(100), Some(3)).await;
    desk.limit(&QuotaOf::Owner("somebody".into()), Some(0), None).await;
    desk.put_of("a", 60).await.unwrap();
    assert!(is_refused(&other.put_of("b", 41).await, "owner"));
    other.put_of("b", 40).await.unwrap();
    desk.delete("a").await.unwrap();
    other.limit_bucket(Some(50), None).await;
    assert!(is_refused(&other.put_of("c", 11).await, "bucket"));
    other.put_of("c", 10).await.unwrap();
    desk.put_of("a", 1).await.unwrap();
    assert!(is_refused(&desk.put_of("d", 1).await, "owner"), "a fourth version");
    assert_eq!((desk.held().await, other.held().await), ((1, 1), (50, 2)));
    let quotas = desk.catalog.quotas().await.unwrap();
    let expected = QuotaLimits { bytes: Some(50), objects: None };
    assert!(quotas.contains(&(QuotaOf::Bucket(other.bucket.id), expected)), "{quotas:?}");
    assert_eq!(quotas.len(), 3);
}

/// Old versions weigh like current ones, markers nothing.
pub async fn what_is_held_follows_versions_and_markers<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put_of("k", 10).await.unwrap();
    desk.catalog.set_versioning(desk.bucket.id, Versioning::Enabled).await.unwrap();
    desk.put_of("k", 20).await.unwrap();
    assert_eq!(desk.held().await, (30, 2));
    desk.limit_bucket(Some(30), Some(2)).await;
    assert!(is_refused(&desk.put_of("k", 1).await, "bucket"));
    let marker = desk.catalog.delete(desk.deletion("k")).await.unwrap().marker.unwrap();
    assert_eq!(desk.held().await, (30, 2), "a full bucket can be deleted from");
    desk.catalog.delete_version(desk.removal("k", marker.reference())).await.unwrap().unwrap();
    desk.catalog.delete_version(desk.removal("k", VersionRef::Null)).await.unwrap().unwrap();
    assert_eq!(desk.held().await, (20, 1));
    desk.catalog.set_versioning(desk.bucket.id, Versioning::Suspended).await.unwrap();
    desk.put_of("k", 5).await.unwrap();
    desk.put_of("k", 7).await.unwrap();
    assert_eq!(desk.held().await, (27, 2), "the null version was replaced");
    desk.delete("k").await.unwrap();
    assert_eq!(desk.held().await, (20, 1), "and went when its marker came");
}

/// All at once.
pub async fn of_64_writers_as_many_go_through_as_the_quota_allows<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.limit_bucket(Some(1000), None).await;
    let mut writers = JoinSet::new();
    for number in 0..64 {
        let commit = desk.commit(&format!("k{number}"), vec![desk.whole(100)]);
        let catalog = Arc::clone(&desk.catalog);
        writers.spawn(async move { catalog.put(commit).await });
    }
    let outcomes = writers.join_all().await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 10);
    assert!(outcomes.iter().all(|outcome| outcome.is_ok() || is_refused(outcome, "bucket")));
    assert_eq!(desk.held().await, (1000, 10));
}

/// And another bucket of the same name begins anew.
pub async fn a_quota_ends_with_its_bucket_or_when_it_is_taken_away<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.limit_bucket(Some(0), None).await;
    assert!(is_refused(&desk.put_of("k", 1).await, "bucket"));
    desk.catalog.put_setting(&QuotaOf::Bucket(desk.bucket.id).setting(), serde_json::Value::Null).await.unwrap();
    desk.put_of("k", 1).await.unwrap();
    assert_eq!(desk.catalog.quotas().await.unwrap(), []);
    desk.delete("k").await.unwrap();
    desk.limit_bucket(Some(0), None).await;
    let upload = desk.start_upload("k", NOW).await;
    assert!(is_refused(&desk.catalog.put_part(desk.part(upload.id, 1, 1)).await, "bucket"));
    assert!(desk.catalog.delete_bucket(desk.bucket.id).await.unwrap());
    assert_eq!(desk.catalog.quotas().await.unwrap(), []);
    let again = desk.with_bucket("desk").await;
    again.put_of("k", 1).await.unwrap();
    assert_eq!(again.held().await, (1, 1));
}
