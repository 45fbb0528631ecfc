//! What a scrub reads, and what it found.

use super::{
    Factory,
    desk::{Desk, NOW, all_of},
};
use crate::*;
use serde_json::json;

/// Every live blob once: bases by how many deltas need them, then the others; whatever the length
/// of a page.
pub async fn blobs_are_verified_bases_first_and_each_once<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let (one, two, none) = (desk.put("one").await, desk.put("two").await, desk.put("none").await);
    let deltas = [desk.delta(500, &[one, two]), desk.delta(500, &[two])];
    let mut others = [none, deltas[0].row.id, deltas[1].row.id];
    others.sort_unstable();
    for (key, delta) in ["d0", "d1"].into_iter().zip(deltas) {
        catalog.put(desk.commit(key, vec![delta])).await.unwrap();
    }
    desk.put("dying").await;
    desk.delete("dying").await;
    for limit in [1, 2, 100] {
        let mut met = Vec::new();
        let mut after = None;
        loop {
            let page = catalog.to_verify(after, limit).await.unwrap();
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            after = Some(VerifyPlace { fan_in: last.fan_in, blob: last.row.id });
            met.extend(page.into_iter().map(|blob| (blob.fan_in, blob.row.id)));
        }
        let expected: Vec<_> = [(2, two), (1, one)].into_iter().chain(others.iter().map(|id| (0, *id))).collect();
        assert_eq!(met, expected, "pages of {limit}");
    }
}

/// And costs no number of the order of mutations.
pub async fn when_a_blob_was_found_well_is_remembered<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (a, b) = (desk.put("a").await, desk.put("b").await);
    let seq = desk.catalog.last_seq().await.unwrap();
    desk.catalog.note_verified(&[a], NOW + 5).await.unwrap();
    desk.catalog.note_verified(&[], NOW + 6).await.unwrap();
    assert_eq!(desk.catalog.last_seq().await.unwrap(), seq);
    for blob in desk.catalog.to_verify(None, 10).await.unwrap() {
        assert_eq!(blob.verified_ms, if blob.row.id == a { NOW + 5 } else { 0 });
        assert!(blob.row.id == a || blob.row.id == b);
    }
}

/// Nobody may build on it any more; whoever references it goes on doing so, and it dies and is
/// purged like any other.
pub async fn a_blob_in_quarantine_is_no_base_and_no_duplicate<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let catalog = &desk.catalog;
    let mut blob = desk.whole(1000);
    blob.row.digest = Some([3; 32]);
    let (id, row) = (blob.row.id, blob.row.clone());
    catalog.put(desk.commit("k", vec![blob])).await.unwrap();
    let duplicate = async || catalog.duplicate(&desk.domain(), [3; 32], 1000).await.unwrap();
    assert!(duplicate().await.is_some() && !catalog.is_quarantined(id).await.unwrap());
    assert!(catalog.quarantine(id, json!({"ranges": [[0, 9]]}), NOW).await.unwrap());
    assert!(!catalog.quarantine(id, json!({"ranges": [[0, 9]]}), NOW + 1).await.unwrap(), "it is known");
    assert!(catalog.quarantine(id, json!({"ranges": []}), NOW + 2).await.unwrap());
    assert!(catalog.is_quarantined(id).await.unwrap());
    let found = catalog.quarantined(None, 10).await.unwrap();
    assert_eq!(found, [Quarantined { row: row.clone(), since_ms: NOW, damage: json!({"ranges": []}) }]);
    assert_eq!(catalog.quarantined(Some(id), 10).await.unwrap(), []);
    assert_eq!(duplicate().await, None);
    let delta = desk.delta(500, &[id]);
    let refused = catalog.put(desk.commit("delta", vec![delta.clone()])).await.unwrap_err();
    assert!(matches!(refused, CatalogError::BaseGone), "{refused}");
    catalog.put(desk.commit_extents("copy", vec![], vec![all_of(&row)])).await.unwrap();
    assert_eq!(desk.content("k").await.blobs, std::slice::from_ref(&row));
    assert!(catalog.end_quarantine(id).await.unwrap());
    assert!(!catalog.end_quarantine(id).await.unwrap());
    assert!(duplicate().await.is_some());
    catalog.put(desk.commit("delta", vec![delta])).await.unwrap();
    assert!(catalog.quarantine(id, json!({"again": true}), NOW).await.unwrap());
    for key in ["k", "copy", "delta"] {
        desk.delete(key).await;
    }
    for tombstone in catalog.tombstones(UnixMs::MAX, 10).await.unwrap() {
        catalog.purge(tombstone.blob, NOW).await.unwrap();
    }
    catalog.purge(id, NOW).await.unwrap();
    assert!(!catalog.quarantine(id, json!({}), NOW).await.unwrap(), "what is gone is not damaged");
    assert_eq!(catalog.quarantined(None, 10).await.unwrap(), []);
    desk.assert_sound().await;
}

/// Each part once, with everything it uses.
pub async fn every_part_that_references_a_blob_is_found<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put("k").await;
    let upload = desk.start_upload("u", NOW).await;
    let extents = vec![Extent { blob, offset: 0, len: 10 }, Extent { blob, offset: 20, len: 10 }];
    for number in [2, 7] {
        let mut part = desk.part(upload.id, number, 20);
        part.part.extents = extents.clone();
        part.new_blobs.clear();
        desk.catalog.put_part(part).await.unwrap();
    }
    let referrer = |number| PartReferrer { key: "u".into(), upload: upload.id, number, extents: extents.clone() };
    assert_eq!(desk.catalog.part_referrers(blob, 10).await.unwrap(), [referrer(2), referrer(7)]);
    assert_eq!(desk.catalog.part_referrers(blob, 1).await.unwrap(), [referrer(2)]);
}
