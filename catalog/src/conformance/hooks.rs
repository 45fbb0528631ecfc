//! What whole blobs resemble.

use super::{
    Factory,
    desk::{Desk, NOW, all_of},
};
use crate::*;

/// Hooks that only regions made with the same `seed` share.
fn hooks(seed: u32) -> Vec<u32> {
    (0..32).map(|index| seed.wrapping_mul(0x9e37_79b9).wrapping_add(index * 0x0101_0101)).collect()
}

impl<C: Catalog> Desk<C> {
    fn query(&self, hooks: Vec<u32>) -> HookQuery {
        HookQuery { domain: self.domain(), hooks, limit: 8 }
    }

    /// Puts `key` as a whole blob with the hooks of one region.
    async fn put_with_hooks(&self, key: &str, hooks: Vec<u32>) -> BlobKey {
        let blob = self.put(key).await;
        let known =
            self.catalog.remember_hooks(vec![BlobHooks { blob, first: 0, regions: vec![hooks] }]).await.unwrap();
        assert_eq!(known, 1);
        blob
    }

    async fn found(&self, hooks: Vec<u32>) -> Vec<(BlobKey, u32, u32)> {
        let found = self.catalog.resembling(&self.query(hooks)).await.unwrap();
        found.iter().map(|found| (found.blob.id, found.region, found.shared)).collect()
    }
}

/// And it says how many, and of which region.
pub async fn what_shares_most_hooks_is_found_first<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let near = desk.put("near").await;
    let regions = vec![hooks(1), [&hooks(2)[..20], &hooks(9)[..4]].concat()];
    desk.catalog.remember_hooks(vec![BlobHooks { blob: near, first: 0, regions }]).await.unwrap();
    let far = desk.put_with_hooks("far", [&hooks(2)[..3], &hooks(8)[..5]].concat()).await;
    desk.put_with_hooks("other", hooks(7)).await;
    assert_eq!(desk.found(hooks(2)).await, [(near, 1, 20), (far, 0, 3)]);
    assert_eq!(desk.found(hooks(1)).await, [(near, 0, REGION_HOOKS_MAX as u32)]);
    assert_eq!(desk.found(hooks(6)).await, []);
    assert_eq!(desk.found(Vec::new()).await, []);
    let one = HookQuery { limit: 1, ..desk.query(hooks(2)) };
    let found = desk.catalog.resembling(&one).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].blob, desk.catalog.blobs(&[near]).await.unwrap()[0]);
    desk.assert_sound().await;
}

/// Another bucket, another key epoch, another backend, another compartment (E11).
pub async fn hooks_do_not_leave_their_domain<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let other = desk.with_bucket("other").await;
    let blob = desk.put_with_hooks("k", hooks(1)).await;
    assert_eq!(other.found(hooks(1)).await, []);
    for domain in desk.domain_and_others(other.bucket.id).into_iter().skip(1) {
        let query = HookQuery { domain, ..desk.query(hooks(1)) };
        assert_eq!(desk.catalog.resembling(&query).await.unwrap(), [], "{query:?}");
    }
    let same = other.put_with_hooks("k", hooks(1)).await;
    assert_eq!(desk.found(hooks(1)).await, [(blob, 0, 24)]);
    assert_eq!(other.found(hooks(1)).await, [(same, 0, 24)]);
}

/// In either direction, and what is of the whole bucket is of no compartment.
pub async fn hooks_are_found_in_the_compartment_of_their_blob_alone<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let mut blobs = Vec::new();
    let compartments = [None, Some(Compartment([1; 16])), Some(Compartment([2; 16]))];
    for (index, compartment) in compartments.into_iter().enumerate() {
        let mut blob = desk.whole(100);
        (blob.row.compartment, blob.row.digest) = (compartment, Some([6; 32]));
        blobs.push(blob.row.clone());
        let id = blob.row.id;
        desk.catalog.put(desk.commit(&format!("k{index}"), vec![blob])).await.unwrap();
        desk.catalog.remember_hooks(vec![BlobHooks { blob: id, first: 0, regions: vec![hooks(1)] }]).await.unwrap();
    }
    for (row, compartment) in blobs.iter().zip(compartments) {
        let domain = Domain { compartment, ..desk.domain() };
        let found =
            desk.catalog.resembling(&HookQuery { domain: domain.clone(), ..desk.query(hooks(1)) }).await.unwrap();
        assert_eq!(found.iter().map(|found| found.blob.id).collect::<Vec<_>>(), [row.id], "{compartment:?}");
        let duplicate = desk.catalog.duplicate(&domain, [6; 32], 100).await.unwrap();
        assert_eq!(duplicate.as_ref(), Some(row), "{compartment:?}");
    }
    desk.assert_sound().await;
}

/// It is not found from the moment it dies, and its hooks are gone with its row.
pub async fn a_dead_blob_is_not_found_and_its_hooks_go_with_it<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put_with_hooks("k", hooks(1)).await;
    let stays = desk.put_with_hooks("stays", hooks(1)).await;
    desk.delete("k").await;
    assert_eq!(desk.found(hooks(1)).await, [(stays, 0, 24)]);
    desk.catalog.purge(blob, NOW).await.unwrap();
    assert_eq!(desk.found(hooks(1)).await, [(stays, 0, 24)]);
    desk.assert_sound().await;
}

/// What is damaged is no base until it is found well again.
pub async fn a_blob_in_quarantine_is_not_found<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put_with_hooks("k", hooks(1)).await;
    assert!(desk.catalog.quarantine(blob, serde_json::json!({}), NOW).await.unwrap());
    assert_eq!(desk.found(hooks(1)).await, []);
    assert!(desk.catalog.end_quarantine(blob).await.unwrap());
    assert_eq!(desk.found(hooks(1)).await, [(blob, 0, 24)]);
}

/// Deltas, blobs that are gone, blobs that are dying; and a blob is taken once.
pub async fn only_live_whole_blobs_have_hooks<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let base = desk.put("base").await;
    let delta = desk.delta(100, &[base]);
    let delta_id = delta.row.id;
    desk.catalog.put(desk.commit("delta", vec![delta])).await.unwrap();
    let dying = desk.put("gone").await;
    desk.delete("gone").await;
    let before = desk.catalog.last_seq().await.unwrap();
    let told = [delta_id, dying, BlobKey([9; 16])].map(|blob| BlobHooks { blob, first: 0, regions: vec![hooks(1)] });
    assert_eq!(desk.catalog.remember_hooks(told.to_vec()).await.unwrap(), 0);
    assert_eq!(
        desk.catalog.remember_hooks(vec![BlobHooks { blob: base, first: 0, regions: Vec::new() }]).await.unwrap(),
        0
    );
    let twice = BlobHooks { blob: base, first: 0, regions: vec![hooks(2)] };
    assert_eq!(desk.catalog.remember_hooks(vec![twice.clone(), twice.clone()]).await.unwrap(), 1);
    assert_eq!(desk.catalog.remember_hooks(vec![twice]).await.unwrap(), 0);
    assert_eq!(desk.found(hooks(1)).await, []);
    assert_eq!(desk.found(hooks(2)).await, [(base, 0, 24)]);
    assert_eq!(desk.catalog.last_seq().await.unwrap(), before, "advice takes no number");
    desk.assert_sound().await;
}

/// Those of its text come when somebody has opened it: before or after those of its bytes, or with
/// them. All go with the blob.
pub async fn a_blob_gets_further_regions_and_keeps_those_it_has<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let mut blobs = Vec::new();
    for (key, order) in [("after", [0, 2]), ("before", [2, 0])] {
        let blob = desk.put(key).await;
        for first in order {
            let told = BlobHooks { blob, first, regions: vec![hooks(first + 1), hooks(first + 2)] };
            assert_eq!(desk.catalog.remember_hooks(vec![told.clone()]).await.unwrap(), 1);
            assert_eq!(desk.catalog.remember_hooks(vec![told]).await.unwrap(), 0, "they are known");
        }
        blobs.push(blob);
    }
    let together = desk.put("together").await;
    let told =
        [0, 2].map(|first| BlobHooks { blob: together, first, regions: vec![hooks(first + 1), hooks(first + 2)] });
    assert_eq!(desk.catalog.remember_hooks(told.to_vec()).await.unwrap(), 1);
    blobs.push(together);
    desk.assert_sound().await;
    for region in 0..4 {
        let found: Vec<_> = blobs.iter().rev().map(|blob| (*blob, region, 24)).collect();
        assert_eq!(desk.found(hooks(region + 1)).await, found);
    }
    let last = REGIONS_MAX as u32 - 1;
    let told = BlobHooks { blob: blobs[0], first: last, regions: vec![hooks(8), hooks(9)] };
    assert_eq!(desk.catalog.remember_hooks(vec![told]).await.unwrap(), 1);
    assert_eq!(desk.found(hooks(8)).await, [(blobs[0], last, 24)]);
    assert_eq!(desk.found(hooks(9)).await, []);
    for (key, blob) in ["after", "before", "together"].into_iter().zip(blobs) {
        desk.delete(key).await;
        desk.catalog.purge(blob, NOW).await.unwrap();
        desk.assert_sound().await;
    }
    for region in 0..4 {
        assert_eq!(desk.found(hooks(region + 1)).await, []);
    }
}

/// More regions than a blob can have, and more hooks than a region keeps, are cut.
pub async fn a_blob_of_many_regions_is_remembered_and_forgotten_whole<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.whole(5 << 30);
    let id = blob.row.id;
    let extents = vec![all_of(&blob.row)];
    desk.catalog.put(desk.commit_extents("large", vec![blob], extents)).await.unwrap();
    let regions: Vec<_> = (100..200).map(hooks).collect();
    desk.catalog.remember_hooks(vec![BlobHooks { blob: id, first: 0, regions }]).await.unwrap();
    let last = REGIONS_MAX as u32 - 1;
    assert_eq!(desk.found(hooks(100 + last)).await, [(id, last, 24)]);
    assert_eq!(desk.found(hooks(101 + last)).await, []);
    desk.assert_sound().await;
    desk.delete("large").await;
    desk.catalog.purge(id, NOW).await.unwrap();
    desk.assert_sound().await;
}

/// What everybody has does not make a lookup long, and the newest that have it are found.
pub async fn a_hook_of_very_many_blobs_leads_to_the_newest<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let mut blobs = Vec::new();
    for index in 0..70 {
        blobs.push(desk.put(&format!("k{index}")).await);
    }
    let told = blobs.iter().map(|blob| BlobHooks { blob: *blob, first: 0, regions: vec![vec![5]] }).collect();
    assert_eq!(desk.catalog.remember_hooks(told).await.unwrap(), 70);
    let found = desk.catalog.resembling(&desk.query(vec![5])).await.unwrap();
    assert_eq!(found.len(), 8);
    assert!(found.iter().all(|found| found.shared == 1));
}
