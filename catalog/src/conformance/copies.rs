//! Second copies of blobs that many deltas need.

use super::{
    Factory,
    desk::{Desk, NOW, unique},
};
use crate::*;
use serde_json::json;

/// Ids of what wants a copy.
async fn wanted<C: Catalog>(desk: &Desk<C>, fan_in_min: u64) -> Vec<BlobKey> {
    let rows = desk.catalog.to_copy(fan_in_min, None, 100).await.unwrap();
    rows.iter().map(|row| row.id).collect()
}

/// `count` keys, each a delta of `base`.
async fn deltas<C: Catalog>(desk: &Desk<C>, base: BlobKey, count: usize) {
    for _ in 0..count {
        let delta = desk.delta(100, &[base]);
        let key = hex::encode(delta.row.id.0);
        desk.catalog.put(desk.commit(&key, vec![delta])).await.unwrap();
    }
}

/// In pages, by how many deltas need it.
pub async fn a_base_of_many_deltas_wants_a_second_copy_until_it_has_one<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (one, three, four) = (desk.put("one").await, desk.put("three").await, desk.put("four").await);
    for (base, count) in [(one, 1), (three, 3), (four, 4)] {
        deltas(&desk, base, count).await;
    }
    assert_eq!(wanted(&desk, 2).await, [three, four]);
    assert_eq!(wanted(&desk, 4).await, [four]);
    assert_eq!(wanted(&desk, 5).await, []);
    let page = desk.catalog.to_copy(1, None, 2).await.unwrap();
    assert_eq!(page.iter().map(|row| row.id).collect::<Vec<_>>(), [one, three]);
    let rest = desk.catalog.to_copy(1, Some(three), 2).await.unwrap();
    assert_eq!(rest.iter().map(|row| row.id).collect::<Vec<_>>(), [four]);
    assert_eq!(rest[0].copy, None);

    let copy = desk.copy(three, None).await;
    assert_eq!(wanted(&desk, 2).await, [four]);
    let row = &desk.catalog.blobs(&[three]).await.unwrap()[0];
    assert_eq!(row.copy, Some(copy));
    assert_eq!(&desk.content("three").await.blobs[0], row);
    let stats = &desk.catalog.stats().await.unwrap()[0];
    assert_eq!((stats.copies, stats.copy_bytes, stats.stored.overhead), (1, row.stored_len, row.stored_len));
    desk.assert_sound().await;
}

/// Itself, through its deltas, or both; whole or not.
pub async fn a_blob_that_many_objects_need_wants_a_second_copy<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (alone, base) = (desk.put("alone").await, desk.put("base").await);
    deltas(&desk, base, 1).await;
    let delta = desk.catalog.deltas_of(base, 1).await.unwrap()[0].clone();
    for number in 0..2 {
        let mut commit = desk.commit(&format!("same-{number}"), vec![]);
        commit.extents = vec![Extent { blob: delta.id, offset: 0, len: delta.plain_len }];
        commit.size = delta.plain_len;
        desk.catalog.put(commit).await.unwrap();
    }
    let wanted = async |objects_min, after| {
        let rows = desk.catalog.to_copy_shared(&delta.backend, objects_min, after, 100).await.unwrap();
        rows.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(wanted(1, None).await, [alone, base, delta.id]);
    assert_eq!(wanted(3, None).await, [base, delta.id]);
    assert_eq!(wanted(4, None).await, [base]);
    assert_eq!(wanted(5, None).await, []);
    assert_eq!(wanted(1, Some(base)).await, [delta.id]);
    assert_eq!(desk.catalog.to_copy_shared("elsewhere", 1, None, 100).await.unwrap(), []);
    desk.copy(delta.id, None).await;
    assert_eq!(wanted(3, None).await, [base]);
    desk.assert_sound().await;
}

/// Bytes in the catalog are not in a backend, and damage is not copied.
pub async fn what_is_no_blob_in_a_backend_or_is_damaged_wants_no_copy<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (damaged, inline) = (desk.put("damaged").await, desk.inline(b"inline"));
    let inline_id = inline.row.id;
    desk.catalog.put(desk.commit("inline", vec![inline])).await.unwrap();
    let original = desk.foreign("original", 10);
    let original_id = original.row.id;
    desk.catalog.put(desk.commit("original", vec![original])).await.unwrap();
    for base in [damaged, inline_id] {
        deltas(&desk, base, 2).await;
    }
    assert!(desk.catalog.quarantine(damaged, json!({}), NOW).await.unwrap());
    assert_eq!(wanted(&desk, 1).await, []);
    assert!(desk.catalog.end_quarantine(damaged).await.unwrap());
    assert_eq!(wanted(&desk, 1).await, [damaged]);
    for blob in [inline_id, original_id, BlobKey(unique(desk.epoch))] {
        let commit = CopyCommit { blob, replaces: None, copy: BlobKey(unique(desk.epoch)), epoch: desk.epoch };
        assert!(matches!(desk.catalog.set_copy(commit).await, Err(CatalogError::Conflict)), "{blob:?}");
    }
    desk.assert_sound().await;
}

/// Of two that copy at once, one is named.
pub async fn a_copy_takes_the_place_of_the_one_its_writer_saw_or_none<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put("k").await;
    let first = desk.copy(blob, None).await;
    let late = |replaces| CopyCommit { blob, replaces, copy: BlobKey(unique(desk.epoch)), epoch: desk.epoch };
    let seq = desk.catalog.last_seq().await.unwrap();
    for wrong in [late(None), late(Some(BlobKey(unique(desk.epoch))))] {
        assert!(matches!(desk.catalog.set_copy(wrong).await, Err(CatalogError::Conflict)));
    }
    let of_another = CopyCommit { copy: BlobKey(unique(desk.epoch + 1)), ..late(Some(first)) };
    for wrong in [of_another, CopyCommit { copy: first, ..late(Some(first)) }] {
        assert!(matches!(desk.catalog.set_copy(wrong).await, Err(CatalogError::Invalid(_))));
    }
    assert_eq!(desk.catalog.last_seq().await.unwrap(), seq);
    let second = desk.copy(blob, Some(first)).await;
    assert_eq!(desk.catalog.blobs(&[blob]).await.unwrap()[0].copy, Some(second));
    desk.assert_sound().await;
}

/// Its tombstone names it, and its bytes are dying like the blob's own.
pub async fn a_copy_dies_with_its_blob<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (blob, plain) = (desk.put("k").await, desk.put("plain").await);
    let copy = desk.copy(blob, None).await;
    desk.delete("k").await;
    desk.delete("plain").await;
    let tombstones = desk.catalog.tombstones(UnixMs::MAX, 10).await.unwrap();
    let copies: Vec<_> = tombstones.iter().map(|tombstone| (tombstone.blob, tombstone.copy)).collect();
    assert_eq!(copies, [(blob, Some(copy)), (plain, None)]);
    let stored_len = tombstones[0].stored_len;
    let stats = &desk.catalog.stats().await.unwrap()[0];
    assert_eq!((stats.copies, stats.stored.overhead, stats.stored.tombstoned), (0, 0, 3 * stored_len));
    let late = CopyCommit { blob, replaces: Some(copy), copy: BlobKey(unique(desk.epoch)), epoch: desk.epoch };
    assert!(matches!(desk.catalog.set_copy(late).await, Err(CatalogError::Conflict)));
    desk.catalog.purge(blob, NOW).await.unwrap();
    assert!(matches!(desk.catalog.set_copy(late).await, Err(CatalogError::Conflict)));
    desk.assert_sound().await;
}

/// What such a writer stored is nobody's (E4).
pub async fn a_closed_epoch_names_no_copy<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put("k").await;
    let late = CopyCommit { blob, replaces: None, copy: BlobKey(unique(desk.epoch)), epoch: desk.epoch };
    desk.catalog.close_epochs(&[desk.epoch]).await.unwrap();
    assert!(matches!(desk.catalog.set_copy(late).await, Err(CatalogError::Fenced)));
    assert_eq!(desk.catalog.blobs(&[blob]).await.unwrap()[0].copy, None);
}
