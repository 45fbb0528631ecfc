//! Content that lies in originals, and keys that must not come back from where they lie.

use super::{
    Factory,
    desk::{Desk, all_of},
};
use crate::*;

/// It counts apart.
pub async fn content_in_an_original_is_read_back_and_stores_nothing<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.foreign("a/../b \u{1f980}\"", 1000);
    let row = blob.row.clone();
    let halves = vec![Extent { len: 400, ..all_of(&row) }, Extent { offset: 400, len: 600, blob: row.id }];
    desk.catalog.put(desk.commit_extents("k", vec![blob], halves)).await.unwrap();
    assert_eq!(desk.content("k").await.blobs, [row]);
    let stats = desk.catalog.stats().await.unwrap().remove(0);
    assert_eq!((stats.logical_bytes, stats.foreign_bytes, stats.stored), (1000, 1000, StoredBytes::default()));
    desk.assert_sound().await;
}

/// Nor does it claim to store anything.
pub async fn content_in_an_original_is_nobodys_base<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let foreign = desk.foreign("o", 1000);
    let mut delta = desk.delta(500, &[foreign.row.id]);
    delta.row.backend = foreign.row.backend.clone();
    let together = desk.commit("d", vec![delta.clone(), foreign.clone()]);
    let together = PutCommit { extents: vec![all_of(&delta.row)], size: 500, ..together };
    let refused = desk.catalog.put(together).await;
    assert!(matches!(&refused, Err(CatalogError::Invalid(why)) if why.contains("original")), "{refused:?}");
    desk.catalog.put(desk.commit("o", vec![foreign])).await.unwrap();
    let refused = desk.catalog.put(desk.commit("d", vec![delta])).await;
    assert!(matches!(&refused, Err(CatalogError::Invalid(why)) if why.contains("original")), "{refused:?}");
    let mut stored = desk.foreign("p", 10);
    stored.row.stored_len = 10;
    assert!(matches!(desk.catalog.put(desk.commit("p", vec![stored])).await, Err(CatalogError::Invalid(_))));
    desk.assert_sound().await;
}

/// So that whoever purges it knows what to remove, and whether.
pub async fn a_rewrite_frees_the_original_and_its_tombstone_names_it<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let mut foreign = desk.foreign("o", 1000);
    let mut original = foreign.row.original.clone().unwrap();
    original.owned = true;
    foreign.row.original = Some(original.clone());
    desk.catalog.put(desk.commit("k", vec![foreign])).await.unwrap();
    let content = desk.content("k").await;
    desk.catalog.rewrite(desk.rewrite(&content, vec![desk.whole(1000)])).await.unwrap();
    let tombstones = desk.catalog.tombstones(UnixMs::MAX, 10).await.unwrap();
    assert_eq!(tombstones.iter().map(|t| t.original.clone()).collect::<Vec<_>>(), [Some(original)]);
    assert_eq!(desk.catalog.stats().await.unwrap()[0].foreign_bytes, 0);
    desk.assert_sound().await;
}

/// Whether it had a version or only an original.
pub async fn a_hidden_key_is_not_adopted_again<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let (catalog, bucket) = (&desk.catalog, desk.bucket.id);
    let adopt = |key: &str| PutCommit {
        precondition: Precondition::Adoptable,
        ..desk.commit(key, vec![desk.foreign(key, 10)])
    };
    let hide = |key: &str| DeleteCommit { hide: true, ..desk.deletion(key) };
    catalog.put(adopt("had")).await.unwrap();
    assert!(matches!(catalog.put(adopt("had")).await, Err(CatalogError::PreconditionFailed)));
    assert!(catalog.delete(hide("had")).await.unwrap().removed.is_some());
    assert_eq!(catalog.delete(hide("never had")).await.unwrap(), Deleted::default());
    let seq = catalog.last_seq().await.unwrap();
    assert_eq!(catalog.delete(hide("never had")).await.unwrap(), Deleted::default());
    assert_eq!(catalog.last_seq().await.unwrap(), seq, "nothing was left to be done");
    for key in ["had", "never had"] {
        assert!(catalog.hidden(bucket, key).await.unwrap());
        assert!(matches!(catalog.put(adopt(key)).await, Err(CatalogError::PreconditionFailed)));
    }
    assert!(!catalog.hidden(bucket, "other").await.unwrap());
    desk.delete("other").await;
    catalog.put(adopt("other")).await.unwrap();
    desk.delete("other").await;
    catalog.delete_bucket(bucket).await.unwrap();
    desk.assert_sound().await;
}

/// The client's own version is not what was hidden.
pub async fn a_hidden_key_may_be_written_and_hides_again_once_deleted<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    desk.catalog.delete(DeleteCommit { hide: true, ..desk.deletion("k") }).await.unwrap();
    desk.put("k").await;
    desk.delete("k").await;
    let adopt = PutCommit { precondition: Precondition::Adoptable, ..desk.commit("k", vec![desk.foreign("k", 10)]) };
    assert!(matches!(desk.catalog.put(adopt).await, Err(CatalogError::PreconditionFailed)));
    desk.assert_sound().await;
}
