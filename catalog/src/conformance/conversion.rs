//! What the background needs to encode stored content anew.

use super::{
    Factory,
    desk::{Desk, NOW, all_of},
};
use crate::*;

/// Oldest first, with its sums; a blob leaves it when it is encoded better, given up on, or dying.
pub async fn what_was_stored_in_a_hurry_waits_until_it_is_done<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let mut waiting = Vec::new();
    for (key, now_ms) in [("a", NOW + 30), ("b", NOW + 10), ("c", NOW + 20)] {
        let blob = NewBlob { deferred: true, ..desk.whole(1000) };
        waiting.push(blob.row.id);
        catalog.put(PutCommit { now_ms, ..desk.commit(key, vec![blob]) }).await.unwrap();
    }
    let [a, b, c] = waiting[..] else { unreachable!("three were put") };
    desk.put("in good order").await;
    let queue = async |before_ms: UnixMs, limit: usize| -> Vec<BlobKey> {
        catalog.deferred(before_ms, limit).await.unwrap().iter().map(|waiting| waiting.row.id).collect()
    };
    assert_eq!(queue(NOW + 100, 10).await, [a, c, b], "the newest first");
    assert_eq!(queue(NOW + 100, 2).await, [a, c]);
    assert_eq!(queue(NOW + 20, 10).await, [b]);
    let sum = catalog.deferred_sum().await.unwrap();
    assert_eq!(sum, DeferredSum { blobs: 3, plain_bytes: 3000, oldest_ms: Some(NOW + 10) });
    assert!(catalog.undefer(c).await.unwrap());
    assert!(!catalog.undefer(c).await.unwrap());
    let content = desk.content("b").await;
    catalog.rewrite(desk.rewrite(&content, vec![desk.whole(1000)])).await.unwrap();
    assert_eq!(queue(NOW + 100, 10).await, [a], "a dying blob waits for nothing but its purge");
    catalog.purge(b, NOW).await.unwrap();
    desk.delete("a").await;
    catalog.purge(a, NOW).await.unwrap();
    assert_eq!(catalog.deferred_sum().await.unwrap(), DeferredSum::default());
    desk.assert_sound().await;
}

/// A part of an upload may be deferred as well. It is in the queue from the moment on when it is
/// part of a version.
pub async fn a_deferred_part_waits_on_after_completion<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let upload = desk.start_upload("k", NOW).await;
    let mut part = desk.part(upload.id, 1, 1000);
    part.new_blobs[0].deferred = true;
    let blob = part.new_blobs[0].row.id;
    desk.catalog.put_part(part.clone()).await.unwrap();
    assert_eq!(desk.catalog.deferred(NOW + 1, 10).await.unwrap(), []);
    assert_eq!(desk.catalog.deferred_sum().await.unwrap(), DeferredSum::default());
    desk.catalog.complete(desk.completion(&upload, &[&part.part])).await.unwrap();
    let queue = desk.catalog.deferred(NOW + 1, 10).await.unwrap();
    assert_eq!(queue.iter().map(|waiting| (waiting.row.id, waiting.since_ms)).collect::<Vec<_>>(), [(blob, NOW)]);
}

/// By blob and in all; a snapshot has it too.
pub async fn what_heat_costs_is_known_while_its_blob_lives<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let mut hot = Vec::new();
    for (key, heat_bytes) in [("a", 700), ("b", 80), ("c", 9), ("cold", 0)] {
        let blob = NewBlob { heat_bytes, ..desk.whole(1000) };
        hot.push(blob.row.id);
        catalog.put(desk.commit(key, vec![blob])).await.unwrap();
    }
    let [a, b, c, cold] = hot[..] else { unreachable!("four were put") };
    let listed = async |after| -> Vec<(BlobKey, u64)> {
        let heated = catalog.heated(after, 10).await.unwrap();
        heated.iter().map(|heated| (heated.row.id, heated.heat_bytes)).collect()
    };
    let mut all = vec![(a, 700), (b, 80), (c, 9)];
    all.sort_unstable();
    assert_eq!(listed(None).await, all);
    assert_eq!(listed(Some(all[0].0)).await, all[1..]);
    assert_eq!(catalog.heat_sum().await.unwrap(), 789);
    assert_eq!(catalog.heat_of(&[b, cold, c]).await.unwrap(), 89);
    assert!(catalog.cool(b).await.unwrap());
    assert!(!catalog.cool(b).await.unwrap());
    desk.delete("a").await;
    assert_eq!(listed(None).await, [(c, 9)], "what dies costs nothing any more");
    assert_eq!(catalog.heat_sum().await.unwrap(), 9);
    catalog.purge(a, NOW).await.unwrap();
    desk.assert_sound().await;
}

/// Each version once, whatever it uses of the blob.
pub async fn every_version_that_references_a_blob_is_found<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put("b").await;
    let extents = vec![Extent { blob, offset: 0, len: 10 }, Extent { blob, offset: 5, len: 10 }];
    desk.catalog.put(desk.commit_extents("a", vec![], extents)).await.unwrap();
    let referrers = desk.catalog.referrers(blob, 10).await.unwrap();
    assert_eq!(referrers.iter().map(|referrer| referrer.key.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(referrers[0].id, desk.content("a").await.version.id);
    assert_eq!(desk.catalog.referrers(blob, 1).await.unwrap(), referrers[..1]);
    desk.delete("a").await;
    assert_eq!(desk.catalog.referrers(blob, 10).await.unwrap(), referrers[1..]);
}

/// With the deltas that keep it; a base that a version or a part needs as well is none.
pub async fn a_base_that_only_deltas_need_is_found<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let (kept, alive) = (desk.put("kept").await, desk.put("alive").await);
    let deltas = [desk.delta(500, &[kept, alive]), desk.delta(500, &[kept])];
    let mut ids: Vec<_> = deltas.iter().map(|delta| delta.row.id).collect();
    for (key, delta) in ["d0", "d1"].into_iter().zip(deltas) {
        catalog.put(desk.commit(key, vec![delta])).await.unwrap();
    }
    assert_eq!(catalog.kept_bases(None, 10).await.unwrap(), []);
    desk.delete("kept").await;
    let found = catalog.kept_bases(None, 10).await.unwrap();
    assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [kept]);
    assert_eq!(catalog.kept_bases(Some(kept), 10).await.unwrap(), []);
    ids.sort_unstable();
    let of =
        async |base| -> Vec<BlobKey> { catalog.deltas_of(base, 10).await.unwrap().iter().map(|row| row.id).collect() };
    assert_eq!(of(kept).await, ids);
    let upload = desk.start_upload("u", NOW).await;
    let mut part = desk.part(upload.id, 1, 1000);
    part.part.extents = vec![all_of(&found[0])];
    part.new_blobs.clear();
    catalog.put_part(part).await.unwrap();
    assert_eq!(catalog.kept_bases(None, 10).await.unwrap(), []);
    desk.assert_sound().await;
}

/// By the number of their extents alone, in the order they came, whatever was rewritten meanwhile.
pub async fn versions_of_many_extents_are_found_and_others_are_not<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let many = usize::try_from(SCATTERED_EXTENTS_MIN).unwrap();
    for (key, extents) in [("few", many - 1), ("many", many), ("one", 1), ("more", many + 9)] {
        let blobs = (0..extents).map(|_| desk.whole(1000)).collect();
        catalog.put(desk.commit(key, blobs)).await.unwrap();
    }
    desk.put("other").await;
    let found = catalog.scattered(0, 10).await.unwrap();
    let version = desk.content("many").await.version;
    let (bucket, size, extents) = (desk.bucket.id, version.size, SCATTERED_EXTENTS_MIN);
    let (id, seq, modified_ms) = (version.id, version.seq, version.modified_ms);
    assert_eq!(found[0], Scattered { bucket, key: "many".into(), id, seq, modified_ms, size, extents });
    assert_eq!(
        found[1..].iter().map(|more| (more.key.as_str(), more.extents)).collect::<Vec<_>>(),
        [("more", extents + 9)]
    );
    assert_eq!(catalog.scattered(0, 1).await.unwrap(), found[..1]);
    assert_eq!(catalog.scattered(seq, 10).await.unwrap(), found[1..]);
    let content = desk.content("more").await;
    catalog.rewrite(desk.rewrite(&content, vec![desk.whole(content.version.size)])).await.unwrap();
    desk.delete("many").await;
    assert_eq!(catalog.scattered(0, 10).await.unwrap(), []);
    desk.assert_sound().await;
}

/// What would outlive the version, for each reason there is.
pub async fn blobs_that_would_outlive_a_version_are_told_apart<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let mut blobs: Vec<NewBlob> = (0..6).map(|_| desk.whole(1000)).collect();
    blobs[4].deferred = true;
    let ids: Vec<BlobKey> = blobs.iter().map(|blob| blob.row.id).collect();
    let [own, copied, in_a_part, base, deferred, damaged] = ids[..] else { unreachable!("six were made") };
    catalog.put(desk.commit("k", blobs)).await.unwrap();
    let id = desk.content("k").await.version.id;
    let bound = async || catalog.bound_blobs(id).await.unwrap();
    assert_eq!(bound().await, [deferred]);
    catalog.put(desk.commit_extents("copy", vec![], vec![Extent { blob: copied, offset: 7, len: 5 }])).await.unwrap();
    let upload = desk.start_upload("u", NOW).await;
    let mut part = desk.part(upload.id, 1, 1000);
    part.part.extents = vec![Extent { blob: in_a_part, offset: 0, len: 1000 }];
    part.new_blobs.clear();
    catalog.put_part(part).await.unwrap();
    catalog.put(desk.commit("delta", vec![desk.delta(500, &[base])])).await.unwrap();
    assert!(catalog.quarantine(damaged, serde_json::json!("torn"), NOW).await.unwrap());
    let mut expected = vec![copied, in_a_part, base, deferred, damaged];
    expected.sort_unstable();
    assert_eq!(bound().await, expected);
    assert!(!expected.contains(&own));
    desk.delete("copy").await;
    catalog.abort(desk.bucket.id, "u", upload.id, desk.epoch).await.unwrap();
    expected.retain(|blob| ![copied, in_a_part].contains(blob));
    assert_eq!(bound().await, expected);
    assert_eq!(catalog.bound_blobs(VersionId([9; 16])).await.unwrap(), []);
    desk.assert_sound().await;
}
