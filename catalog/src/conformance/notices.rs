//! Notices: left by the change they tell of, in its transaction, until they are taken away.

use super::{
    Factory,
    desk::{Desk, NOW},
};
use crate::*;
use serde_json::json;

/// A notice for `lane` of whatever happens to `key`.
pub(super) fn notice(lane: &str, key: &str, of: NoticeOf) -> NewNotice {
    let body = json!({ "of": format!("{of:?}") });
    NewNotice { lane: lane.into(), key: key.into(), of, body, at_ms: NOW, waiting_max: 100 }
}

/// The notices of a deletion, whatever it gives.
fn of_deletion(key: &str) -> Vec<NewNotice> {
    [NoticeOf::Removal, NoticeOf::Marker].map(|of| notice("a", key, of)).to_vec()
}

async fn waiting<C: Catalog>(desk: &Desk<C>, lane: &str) -> Vec<Notice> {
    desk.catalog.notices(lane, (0, 0), 1000).await.unwrap()
}

async fn lane<C: Catalog>(desk: &Desk<C>, lane: &str) -> (u64, u64) {
    let lanes = desk.catalog.notice_lanes().await.unwrap();
    lanes.iter().find(|found| found.lane == lane).map(|found| (found.waiting, found.lost)).unwrap_or_default()
}

/// Its place is the change's, and so is its version.
pub async fn a_notice_is_left_by_the_change_it_tells_of<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.catalog.set_versioning(desk.bucket.id, Versioning::Enabled).await.unwrap();
    let told = vec![notice("a", "k", NoticeOf::Any), notice("b", "k", NoticeOf::Any)];
    let commit = PutCommit { notices: told, ..desk.commit("k", vec![desk.whole(10)]) };
    let id = commit.id;
    let committed = desk.catalog.put(commit).await.unwrap();
    for lane in ["a", "b"] {
        let [left] = &waiting(&desk, lane).await[..] else { panic!("one notice waits") };
        assert_eq!((left.seq, left.key.as_str(), left.version, left.at_ms), (committed.seq, "k", Some(id), NOW));
    }
    let lanes = desk.catalog.notice_lanes().await.unwrap();
    let seen: Vec<_> = lanes.iter().map(|lane| (lane.lane.as_str(), lane.waiting, lane.oldest_ms)).collect();
    assert_eq!(seen, [("a", 1, Some(NOW)), ("b", 1, Some(NOW))]);
    desk.assert_sound().await;
}

/// Nor does one that changes nothing.
pub async fn a_change_that_is_refused_leaves_no_notice<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put("k").await;
    let notices = vec![notice("a", "k", NoticeOf::Any)];
    let refused = PutCommit { precondition: Precondition::Absent, notices, ..desk.commit("k", vec![desk.whole(1)]) };
    assert!(matches!(desk.catalog.put(refused).await, Err(CatalogError::PreconditionFailed)));
    let nothing = DeleteCommit { notices: of_deletion("none"), ..desk.deletion("none") };
    assert_eq!(desk.catalog.delete(nothing).await.unwrap(), Deleted::default());
    let none = DeleteVersionCommit { notices: of_deletion("none"), ..desk.removal("none", VersionRef::Null) };
    assert_eq!(desk.catalog.delete_version(none).await.unwrap(), None);
    assert!(waiting(&desk, "a").await.is_empty());
    assert!(desk.catalog.notice_lanes().await.unwrap().is_empty());
}

/// A removal by one notice, a delete marker by another.
pub async fn a_deletion_tells_what_came_of_it<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.put("k").await;
    let deletion = || DeleteCommit { notices: of_deletion("k"), ..desk.deletion("k") };
    desk.catalog.delete(deletion()).await.unwrap();
    desk.catalog.set_versioning(desk.bucket.id, Versioning::Enabled).await.unwrap();
    let marker = desk.catalog.delete(deletion()).await.unwrap().marker.unwrap();
    let removal = desk.removal("k", marker.reference());
    desk.catalog.delete_version(DeleteVersionCommit { notices: of_deletion("k"), ..removal }).await.unwrap();
    let told: Vec<_> = waiting(&desk, "a").await.into_iter().map(|left| (left.body, left.version)).collect();
    let of = |of: &str| json!({ "of": of });
    let id = Some(marker.id);
    assert_eq!(told, [(of("Removal"), None), (of("Marker"), id), (of("Removal"), id)]);
}

/// What settings, tags and completed uploads tell, too; pages go on behind a place.
pub async fn notices_are_given_in_the_order_of_the_changes<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let told = |key: &str| vec![notice("a", key, NoticeOf::Any), notice("a", key, NoticeOf::Any)];
    let (catalog, bucket) = (&desk.catalog, &desk.bucket);
    let (old, new) = (bucket.settings.clone(), json!({"x": 1}));
    catalog.change_bucket_settings_telling(bucket.id, old.clone(), new, told("")).await.unwrap();
    let stale = catalog.change_bucket_settings_telling(bucket.id, old, json!({}), told("")).await;
    assert!(matches!(stale, Err(CatalogError::Conflict)));
    catalog.put(PutCommit { notices: told("k"), ..desk.commit("k", vec![desk.whole(9)]) }).await.unwrap();
    let content = desk.content("k").await;
    catalog.rewrite(RewriteCommit { notices: told("k"), ..desk.rewrite(&content, vec![desk.whole(9)]) }).await.unwrap();
    let upload = desk.start_upload("m", NOW).await;
    let part = desk.put_part(upload.id, 1, 10).await;
    catalog.complete(CompleteCommit { notices: told("m"), ..desk.completion(&upload, &[&part]) }).await.unwrap();
    let all = waiting(&desk, "a").await;
    let keys: Vec<_> = all.iter().map(|left| left.key.as_str()).collect();
    assert_eq!(keys, ["", "", "k", "k", "k", "k", "m", "m"]);
    assert!(all.is_sorted_by_key(|left| (left.seq, left.ordinal)));
    let (mut paged, mut after) = (Vec::new(), (0, 0));
    loop {
        let page = catalog.notices("a", after, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = (last.seq, last.ordinal);
        paged.extend(page);
    }
    assert_eq!(paged, all);
}

/// And tells how many it did not take; those of other lanes wait all the same.
pub async fn a_full_lane_takes_no_more_notices<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let few = |lane: &str| NewNotice { waiting_max: 3, ..notice(lane, "k", NoticeOf::Any) };
    for _ in 0..2 {
        let notices = vec![few("a"), few("a"), few("b")];
        desk.catalog.put(PutCommit { notices, ..desk.commit("k", vec![desk.whole(1)]) }).await.unwrap();
    }
    assert_eq!((lane(&desk, "a").await, lane(&desk, "b").await), ((3, 1), (2, 0)));
    let first = waiting(&desk, "a").await.remove(0);
    let done = NoticesDone { lane: "a".into(), places: vec![(first.seq, first.ordinal)], lost: false };
    assert_eq!(desk.catalog.notices_done(done).await.unwrap(), 1);
    let notices = vec![few("a")];
    desk.catalog.put(PutCommit { notices, ..desk.commit("k", vec![desk.whole(1)]) }).await.unwrap();
    assert_eq!(lane(&desk, "a").await, (3, 1), "there was room again");
    desk.assert_sound().await;
}

/// However often somebody says so, and whatever it died of in between.
pub async fn a_notice_waits_until_it_is_taken_away_once<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let notices = vec![notice("a", "k", NoticeOf::Any), notice("a", "k", NoticeOf::Any)];
    desk.catalog.put(PutCommit { notices, ..desk.commit("k", vec![desk.whole(1)]) }).await.unwrap();
    let left = waiting(&desk, "a").await;
    let catalog = factory.after_crash(desk.catalog).await;
    let desk = Desk { catalog, bucket: desk.bucket, epoch: desk.epoch };
    assert_eq!(waiting(&desk, "a").await, left);
    let places = left.iter().map(|left| (left.seq, left.ordinal)).collect();
    let done = NoticesDone { lane: "a".into(), places, lost: true };
    assert_eq!(desk.catalog.notices_done(done.clone()).await.unwrap(), 2);
    let seq = desk.catalog.last_seq().await.unwrap();
    assert_eq!(desk.catalog.notices_done(done).await.unwrap(), 0);
    assert_eq!(desk.catalog.last_seq().await.unwrap(), seq, "nothing was left to be done");
    assert_eq!(lane(&desk, "a").await, (0, 2));
    desk.assert_sound().await;
}
