//! Packs: many small versions in one blob.

use super::{
    Factory,
    desk::{Desk, NOW, all_of},
};
use crate::*;

const SMALL: u64 = 1000;

fn names(contents: &[Content]) -> Vec<&str> {
    contents.iter().map(|content| content.version.key.as_str()).collect()
}

/// A pack of three, into which three versions are rewritten one after the other.
async fn packed<C: Catalog>(desk: &Desk<C>, keys: [&str; 3]) -> BlobKey {
    let mut pack = desk.whole(3 * SMALL);
    pack.row.pack = true;
    let id = pack.row.id;
    let mut new_blobs = vec![pack];
    for (offset, key) in (0..).step_by(SMALL as usize).zip(keys) {
        let content = desk.content(key).await;
        let new_extents = vec![Extent { blob: id, offset, len: SMALL }];
        let commit = desk.rewrite(&content, Vec::new());
        let new_blobs = std::mem::take(&mut new_blobs);
        desk.catalog.rewrite(RewriteCommit { new_extents, new_blobs, ..commit }).await.unwrap();
    }
    id
}

/// A place that is remembered, and the small versions since.
pub async fn small_versions_are_given_in_the_order_they_came<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for key in ["c", "a", "gone", "b"] {
        desk.put(key).await;
    }
    desk.catalog.put(desk.commit("large", vec![desk.whole(SMALL + 1)])).await.unwrap();
    desk.catalog.put(desk.commit("empty", Vec::new())).await.unwrap();
    desk.catalog.put(desk.commit("two blobs", vec![desk.whole(400), desk.whole(600)])).await.unwrap();
    desk.put("a").await;
    desk.delete("gone").await.expect("there");

    let all = desk.catalog.small_contents(0, SMALL, 100).await.unwrap();
    assert_eq!(names(&all), ["c", "b", "two blobs", "a"], "replaced, removed, large and empty ones are left out");
    assert_eq!(all[2].extents.len(), 2);
    assert_eq!(all[2].blobs.len(), 2);
    assert_eq!(all[3], desk.content("a").await);
    let page = desk.catalog.small_contents(0, SMALL, 2).await.unwrap();
    assert_eq!(names(&page), ["c", "b"]);
    let rest = desk.catalog.small_contents(page[1].version.seq, SMALL, 100).await.unwrap();
    assert_eq!(names(&rest), ["two blobs", "a"]);
}

/// What is left of a pack when its versions go, and that it dies with the last.
pub async fn a_pack_tells_how_much_of_it_is_in_use<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for key in ["a", "b", "c"] {
        desk.put(key).await;
    }
    assert_eq!(desk.catalog.packs(BlobKey([0; 16]), 10).await.unwrap(), [], "whole blobs are none");
    let pack = packed(&desk, ["a", "b", "c"]).await;
    let using = |live_len| PackUse { blob: pack, bucket: desk.bucket.id, plain_len: 3 * SMALL, live_len };
    let packs = async || desk.catalog.packs(BlobKey([0; 16]), 10).await.unwrap();
    assert_eq!(packs().await, [using(3 * SMALL)]);
    assert_eq!(desk.catalog.packs(pack, 10).await.unwrap(), [], "only those after the given one");
    assert_eq!(desk.dying().await.len(), 3, "the blobs the versions had");

    let copy = Extent { blob: pack, offset: SMALL, len: SMALL };
    desk.catalog.put(desk.commit_extents("copy of b", Vec::new(), vec![copy])).await.unwrap();
    assert_eq!(packs().await, [using(3 * SMALL)], "shared bytes count once");
    desk.delete("a").await.expect("there");
    desk.delete("b").await.expect("there");
    assert_eq!(packs().await, [using(2 * SMALL)]);
    let content = desk.content("c").await;
    assert!(content.blobs[0].pack);

    desk.delete("c").await.expect("there");
    desk.catalog.put(desk.commit("copy of b", vec![desk.whole(5)])).await.unwrap();
    assert_eq!(packs().await, []);
    assert!(desk.dying().await.contains(&pack));
    desk.assert_sound().await;
}

/// A part that was copied from a packed version keeps its bytes in use.
pub async fn a_part_keeps_its_range_of_a_pack_in_use<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    for key in ["a", "b", "c"] {
        desk.put(key).await;
    }
    let pack = packed(&desk, ["a", "b", "c"]).await;
    let upload = desk.start_upload("parts", NOW).await;
    let mut commit = desk.part(upload.id, 1, SMALL);
    let unused = all_of(&commit.new_blobs.remove(0).row);
    commit.part.extents = vec![Extent { blob: pack, ..unused }];
    desk.catalog.put_part(commit).await.unwrap();
    for key in ["a", "b", "c"] {
        desk.delete(key).await.expect("there");
    }
    let packs = desk.catalog.packs(BlobKey([0; 16]), 10).await.unwrap();
    assert_eq!(packs.iter().map(|pack| pack.live_len).collect::<Vec<_>>(), [SMALL]);
    desk.assert_sound().await;
}
