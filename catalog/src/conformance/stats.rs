//! Accounting.

use super::{
    Factory,
    desk::{Desk, NOW, all_of},
};
use crate::*;

/// All classes together.
pub(super) fn sum(stored: &StoredBytes) -> u64 {
    let StoredBytes { exclusive, shared, base_only, overhead, tombstoned, inline } = *stored;
    exclusive + shared + base_only + overhead + tombstoned + inline
}

/// Each blob is in one class, whatever refers to it.
pub async fn stored_bytes_add_up<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let empty = desk.with_bucket("zero").await;
    let catalog = &desk.catalog;
    // base only: 660. Its delta is exclusive, although the version uses it twice: 170.
    let base = desk.put("base").await;
    let delta = desk.delta(100, &[base]);
    let twice = vec![all_of(&delta.row), Extent { len: 50, ..all_of(&delta.row) }];
    catalog.put(desk.commit_extents("delta", vec![delta], twice)).await.unwrap();
    desk.delete("base").await;
    // shared by a version and a part: 660.
    let shared = desk.put("shared").await;
    let upload = desk.start_upload("u", NOW).await;
    let mut part = desk.part(upload.id, 1, 1000);
    part.new_blobs.clear();
    part.part.extents[0].blob = shared;
    catalog.put_part(part).await.unwrap();
    // exclusive to a part: 165. Inline: 6. Tombstoned: 660, and an inline one of 4.
    desk.put_part(upload.id, 2, 10).await;
    catalog.put(desk.commit("inline", vec![desk.inline(b"inline")])).await.unwrap();
    desk.put("gone").await;
    desk.delete("gone").await;
    catalog.put(desk.commit("gone", vec![desk.inline(b"gone")])).await.unwrap();
    desk.delete("gone").await;

    let stats = catalog.stats().await.unwrap();
    let expected = BucketStats {
        name: "desk".into(),
        objects: 3,
        logical_bytes: 150 + 1000 + 6,
        noncurrent_versions: 0,
        noncurrent_bytes: 0,
        delete_markers: 0,
        noncurrent_stored: 0,
        uploads: 1,
        upload_bytes: 1010,
        stored: StoredBytes {
            exclusive: 170 + 165,
            shared: 660,
            base_only: 660,
            overhead: 0,
            tombstoned: 664,
            inline: 6,
        },
        foreign_bytes: 0,
        whole_bytes: 660 + 660 + 165 + 6,
        delta_bytes: 170,
        forms: FormBytes { raw_plain: 6, zstd_plain: 2010, zstd_stored: 1005, delta_plain: 100, delta_stored: 10 },
        copies: 0,
        copy_bytes: 0,
    };
    assert_eq!(stats, [expected, BucketStats { name: empty.bucket.name, ..BucketStats::default() }]);
    assert_eq!(sum(&stats[0].stored), stats[0].whole_bytes + stats[0].delta_bytes + stats[0].stored.tombstoned);
}

/// Until they are purged.
pub async fn dying_bytes_of_deleted_buckets_are_under_an_empty_name<F: Factory>(factory: &F) {
    let desk = Desk::new(factory.fresh().await).await;
    let blob = desk.put("k").await;
    desk.delete("k").await;
    desk.catalog.delete_bucket(desk.bucket.id).await.unwrap();
    let stored = StoredBytes { tombstoned: 660, ..StoredBytes::default() };
    assert_eq!(desk.catalog.stats().await.unwrap(), [BucketStats { stored, ..BucketStats::default() }]);
    desk.catalog.purge(blob, NOW).await.unwrap();
    assert_eq!(desk.catalog.stats().await.unwrap(), []);
}
